"""The simulation of a scripted controller, its channels, and embedded brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel.config import ChannelConfig
from channel.rehearsal.scripted_controller import ScriptedController
from channel.types import NO_LEADER
from kproto.api import ibp_at_least
from kproto.types import TopicPartition

from .cluster import SETTLING_S, Simulation

if TYPE_CHECKING:
    from .cluster import Broker
    from .plan import Plan

__all__ = ["ScriptedSimulation"]


class ScriptedSimulation(Simulation):
    """A scripted controller that elects, reassigns, creates and deletes while its brokers fail.

    Args:
        plan: What is done.
        capture: Where the frames that pass are written, None for nowhere.
    """

    def __init__(self, plan: Plan, capture: str | None) -> None:
        super().__init__(plan, capture)
        self.controller: ScriptedController
        self.agenda: list[tuple[float, str, int]] = []
        self.names = iter(f"t{i}" for i in range(1_000_000))

    def _observe(self) -> None:
        manager, journal, wires = self.controller.manager, self.controller.journal, self.wires
        send, add, answered, dropped = manager.send_request, manager.add_broker, journal.answered, journal.dropped

        def send_request(broker_id: int, request: Any, callback: Any = None) -> None:
            if not hasattr(request, "build"):
                request = manager.versioned(request)
            wires.decided(broker_id, request)
            send(broker_id, request, callback)

        def add_broker(broker: Any) -> None:
            wires.began(broker.id)
            add(broker)

        def note_answered(entry: Any, response: Any) -> None:
            known = wires.by_request.get(id(entry._request))
            if known is not None:
                if known.answered:
                    self.world.problem(f"{entry} was answered twice")
                if known.dropped:
                    self.world.problem(f"{entry} was answered though it was dropped")
                known.answered = True
            answered(entry, response)

        def note_dropped(request: Any) -> None:
            known = wires.by_request.get(id(request))
            if known is not None:
                known.dropped = True
            dropped(request)

        manager.send_request = send_request  # type: ignore[method-assign]
        manager.add_broker = add_broker  # type: ignore[method-assign]
        journal.answered = note_answered  # type: ignore[method-assign]
        journal.dropped = note_dropped  # type: ignore[method-assign]

    def direct(self) -> None:
        """Start everything, carry out the plan's work, settle, check, and end everything."""
        world = self.world
        for broker in self.brokers:
            self.start_broker(broker)
        while not all(broker.is_up for broker in self.brokers):
            world.sleep(0.01)
        config = ChannelConfig(inter_broker_protocol_version=self.plan.ibp, send_threads=self.plan.send_threads)
        self.controller = ScriptedController(self.brokers, config=config, recorder=self.recorder)
        self._observe()
        self.controller.start()
        for _ in range(2):
            self._work("create", (0.5, 0.5, 0.5))
        self._carry_out()
        self.calm()
        self._settle()
        self._check()
        self.controller.close()
        self.close_brokers()
        self.done = True

    def _carry_out(self) -> None:
        actions = [action for action in self.plan.actions if not action.is_fault]
        while actions or self.agenda:
            at = min([a.at_s for a in actions[:1]] + [entry[0] for entry in self.agenda[:1]])
            if at > self.plan.length_s and not actions:
                break
            left = at - self.world.elapsed_s()
            if left > 0:
                self.world.sleep(min(left, 0.5))
                continue
            if self.agenda and self.agenda[0][0] <= at:
                self._react()
            else:
                action = actions.pop(0)
                self._work(action.kind, action.draws)

    def _react(self) -> None:
        """Take note of a broker that has gone or come back, as its registration tells."""
        _, what, broker_id = self.agenda.pop(0)
        known = self.controller.context.live_broker_id_and_epochs.get(broker_id)
        broker = self.brokers[broker_id]
        if what == "gone" and known is not None and not (broker.is_up and broker.epoch == known):
            self.world.note(f"the controller takes broker {broker_id} for dead")
            self.controller.fail_over(broker_id)
        elif what == "back" and broker.is_up and known != broker.epoch:
            self.world.note(f"the controller registers broker {broker_id} with epoch {broker.epoch}")
            self.controller.register(broker)

    def left(self, broker: Broker, within_s: float) -> None:
        """Let the controller take the broker for dead within this time."""
        self.agenda.append((self.world.elapsed_s() + within_s, "gone", broker.id))
        self.agenda.sort()

    def came(self, broker: Broker) -> None:
        """Let the controller register the broker soon."""
        self.agenda.append((self.world.elapsed_s() + 0.1, "back", broker.id))
        self.agenda.sort()

    def _work(self, kind: str, draws: tuple[float, float, float]) -> None:
        """Do one piece of administration."""
        controller, (a, b, c) = self.controller, draws
        live = sorted(controller.context.live_broker_ids)
        topics = sorted(controller.context.all_topics)
        if not live:
            return

        def pick(of: Any, at: float) -> Any:
            return of[int(at * len(of))]

        if kind == "create" or not topics:
            name = next(self.names)
            controller.create_topic(name, partitions=1 + int(a * 4), replication_factor=1 + int(b * min(3, len(live))))
            self.world.note(f"create {name}")
            return
        topic = pick(topics, a)
        partitions = sorted(tp.partition for tp in controller.context.partitions_for_topic(topic))
        partition = pick(partitions, b)
        if kind == "elect":
            replicas = [
                r
                for r in controller.context.partition_replica_assignment(TopicPartition(topic, partition))
                if r in live and r in controller.leadership(topic, partition).isr
            ]
            if replicas:
                leader = pick(replicas, c)
                controller.elect(topic, partition, leader)
                self.world.note(f"elect {leader} for {topic}-{partition}")
        elif kind == "reassign":
            start = int(c * len(live))
            target = [live[(start + i) % len(live)] for i in range(1 + int(b * min(3, len(live))))]
            controller.reassign(topic, partition, target)
            self.world.note(f"reassign {topic}-{partition} to {target}")
        elif kind == "delete" and len(topics) > 1:
            controller.delete_topic(topic)
            self.world.note(f"delete {topic}")
        elif kind == "announce":
            controller.announce()
            self.world.note("announce")
        elif kind == "burst":
            for _ in range(5 + int(c * 30)):
                controller.announce()
            self.world.note("a burst of updates")

    def _settle(self) -> None:
        world = self.world
        end = world.elapsed_s() + SETTLING_S
        while world.elapsed_s() < end:
            world.sleep(0.5)
            self.start_dead_brokers()
            for broker in self.brokers:
                known = self.controller.context.live_broker_id_and_epochs.get(broker.id)
                if broker.is_up and known != broker.epoch:
                    self.controller.register(broker)
            live = self.controller.context.live_broker_id_and_epochs
            if not self.controller.journal.waiting and all(live.get(b.id) == b.epoch for b in self.brokers):
                return
        waiting = [e for e in self.controller.journal.entries if not (e.answered or e.dropped)]
        world.problem(
            f"{len(waiting)} requests are not answered {SETTLING_S:.0f} s after the last fault, "
            f"the first is {waiting[:1]}"
        )

    def _check(self) -> None:
        """Compare what brokers know with what the controller has decided."""
        context, world = self.controller.context, self.world
        self.controller.announce()
        self.controller.wait_all(60)
        partitions = list(context.partitions_with_leaders)
        for broker in self.brokers:
            snapshot = broker.broker.metadata.snapshot
            alive = set(snapshot.alive_brokers)
            if self.wires.channels[broker.id].is_excused:
                continue
            if alive != set(context.live_broker_ids):
                world.problem(f"broker {broker.id} takes {sorted(alive)} for alive")
            for tp in partitions:
                info = context.partition_leadership_info(tp)
                assert info is not None
                state = info.leader_and_isr
                cached = snapshot.partition(tp.topic, tp.partition)
                if cached is None:
                    world.problem(f"broker {broker.id} does not know {tp}")
                elif (cached.leader, tuple(cached.isr), cached.leader_epoch) != (
                    state.leader, tuple(state.isr), state.leader_epoch
                ):  # fmt: skip
                    world.problem(f"broker {broker.id} has an old state of {tp}: {cached}, it is {state}")
                if broker.id in context.partition_replica_assignment(tp):
                    replica = broker.broker.replicas.hosted.get(tp)
                    role = "leader" if state.leader == broker.id else "follower"
                    if replica is None or (replica.leader, replica.leader_epoch) != (state.leader, state.leader_epoch):
                        world.problem(f"broker {broker.id} has an old replica of {tp}: {replica}, it is {state}")
                    elif state.leader != NO_LEADER and replica.role != role:
                        world.problem(f"broker {broker.id} is {replica.role} of {tp}, not {role}")
            known = {tp.topic for tp in partitions}
            for topic in snapshot.partitions:
                if topic not in known and snapshot.partitions[topic] and ibp_at_least(self.plan.ibp, "2.2"):
                    world.problem(f"broker {broker.id} still knows topic {topic}")
        manager = self.controller.manager
        if manager.failed_threads:
            world.problem(f"send threads died: {manager.failed_threads}")
        ours = [s for s in self.controller_process.sockets.values() if s.connected and not s.error and not s.at_end]
        if len(ours) > len(self.brokers):
            world.problem(f"the controller has {len(ours)} connections to {len(self.brokers)} brokers")
