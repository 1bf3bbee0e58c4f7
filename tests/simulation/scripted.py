"""The simulation of a scripted controller, its channels, and embedded brokers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from channel.config import ChannelConfig
from channel.rehearsal.scripted_controller import ScriptedController
from channel.types import NO_LEADER, SecurityProtocol
from kproto import messages
from kproto.api import CONTROL_APIS, ApiKey, ibp_at_least
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

from .clients import Client
from .cluster import SETTLING_S, Simulation
from .relay import TapProcess
from .scheduler import Process

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.broker.hooks import BrokerHooks, RequestContext

    from .cluster import Broker
    from .plan import Action, Plan

__all__ = ["ScriptedSimulation"]

FORMER_ID, FORMER_EPOCH = 101, 1
"""The controller of the time before the run, which does not know that it has been replaced."""
WRONG_ANSWER = bytes.fromhex("00000008 7fffffff 00000000")
"""A frame with a correlation id that no request has."""


class Wishes:
    """Hands the topics that clients create to the process of the controller; a ``ControllerApis``."""

    keys = frozenset({ApiKey.CREATE_TOPICS})

    def __init__(self, simulation: ScriptedSimulation) -> None:
        self._simulation = simulation

    def __call__(self, context: RequestContext, request: Any, answer: Callable[[Any], None]) -> None:
        """Take a request, whose answer comes from the controller's process."""
        self._simulation.wishes.append((request.topics[0].name, request.topics[0].num_partitions, answer))


class ScriptedSimulation(Simulation):
    """A scripted controller that elects, reassigns, creates and deletes while its brokers fail, and clients that ask.

    In a migration it goes on as a KRaft controller, and the controller before it never ends.

    Args:
        plan: What is done.
        capture: Where the frames that pass are written, None for nowhere.
    """

    def __init__(self, plan: Plan, capture: str | None) -> None:
        super().__init__(plan, capture)
        self.controller: ScriptedController
        self.agenda: list[tuple[float, str, int]] = []
        self.created: dict[str, int] = {}
        self.wishes: list[tuple[str, int, Callable[[Any], None]]] = []
        self.is_kraft = False
        self.lives: dict[int, tuple[int, bool]] = {}
        self.clients = [
            Client(self, number) for number in range((0, 1, 1, 2)[plan.seed % 4] if plan.kind == "clients" else 0)
        ]

        self.tap = TapProcess(self.world, self.brokers) if self.clients and not self.protocol.uses_tls else None

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
        config = config.secured(self.protocol.name, self.security)
        if self.plan.is_migration:
            self._start_former(config)
        self.controller = ScriptedController(
            self.brokers, controller_epoch=FORMER_EPOCH + 1, config=config, recorder=self.recorder
        )
        self._observe()
        self.controller.start()
        if self.tap is not None:
            self.tap.start()
        for client in self.clients:
            client.start()
        for _ in range(2):
            self._work("create", (0.5, 0.5, 0.5))
        self._carry_out()
        self.calm()
        self._settle()
        self._check()
        self._run_in_each_client("settling", Client.settle)
        self._run_in_each_client("closing", Client.close)
        if self.tap is not None:
            self.tap.close()
        self.controller.close()
        self.close_brokers()
        self.done = True

    def _start_former(self, config: ChannelConfig) -> None:
        """Start the controller of the time before the run; it announces the brokers again and again."""
        process = Process("former-controller", "10.0.5.1")
        former = ScriptedController(self.brokers, controller_id=FORMER_ID, controller_epoch=FORMER_EPOCH, config=config)

        def direct() -> None:
            former.start()
            while not self.settling:
                self.world.sleep(0.2 + self.world.draw() * 3)
                former.announce()
            former.close(10.0)

        self.world.spawn("former controller", direct, process)
        while not former.journal.entries:
            self.world.sleep(0.01)

    def _run_in_each_client(self, name: str, step: Any) -> None:
        tasks = [self.world.spawn(name, partial(step, client), client.process) for client in self.clients]
        while not all(task.is_over for task in tasks) and not self.world.problems:
            self.world.sleep(0.1)

    def knows(self, tp: TopicPartition) -> bool:
        """Whether the controller has a leader for a partition."""
        return tp in set(self.controller.context.partitions_with_leaders)

    def _answered(self, broker: Broker, context: Any, request: Any, answer: Any) -> None:
        """Check from whom a broker accepts requests: controller epochs only grow, and none follows KRaft's."""
        if context.api_key in CONTROL_APIS and answer is not None and not answer.error_code:
            life = broker.broker.broker_epoch
            epoch, was_kraft = self.lives.get(life, (0, False))
            is_kraft = bool(request.is_kraft_controller)
            if request.controller_epoch < epoch or (was_kraft and not is_kraft):
                self.world.problem(
                    f"broker {broker.id} takes a request of controller {request.controller_id} (epoch "
                    f"{request.controller_epoch}, KRaft: {is_kraft}) after one of epoch {epoch} (KRaft: {was_kraft})"
                )
            self.lives[life] = request.controller_epoch, is_kraft
        if context.api_key == ApiKey.CREATE_TOPICS and answer is not None and not broker.broker.is_led_by_kraft:
            for topic in answer.topics:
                is_deleted = topic.name not in self.controller.context.all_topics
                is_unknown = not is_deleted and not broker.broker.metadata.contains(topic.name)
                if topic.error_code == ErrorCode.NONE and is_unknown:
                    self.world.problem(f"broker {broker.id} answers that {topic.name} is created, and does not know it")
        super()._answered(broker, context, request, answer)

    def fault(self, action: Action) -> None:
        """Bring a fault about; called by the scheduler."""
        world, (a, b, c) = self.world, action.draws
        client = self.clients[int(a * len(self.clients))] if self.clients else None
        sockets = [s for s in client.process.sockets.values() if s in self.network.connections] if client else []
        sock = sockets[int(b * len(sockets))] if sockets else None
        match action.kind:
            case _ if self.settling:
                return
            case "pause client" if client is not None:
                client.pauses += 1
                world.note(f"pause {client} for {b * b * 30:.1f} s")
                world.pause(client.process)
                world.after(b * b * 30e9, partial(world.resume, client.process))
            case "reset client" if sock is not None:
                world.note(f"reset a connection of {client}")
                self.network.reset(sock)
            case "stall client" if sock is not None:
                world.note(f"stall a connection of {client} for {c * c * 45:.1f} s")
                self.network.stall(sock, int(c * c * 45e9))
            case "cut off client" if sock is not None:
                world.note(f"cut off a connection of {client} silently")
                self.network.cut_off(sock)
            case "wrong answer" if sock is not None and self.protocol == SecurityProtocol.PLAINTEXT:
                world.note(f"{client} gets an answer that nobody asked for")
                self.network.transmit(self.network.connections[sock], WRONG_ANSWER)
            case _:
                super().fault(action)
                return
        self.faults += 1

    def calm(self) -> None:
        """End all faults."""
        super().calm()
        for client in self.clients:
            self.world.resume(client.process)

    def _carry_out(self) -> None:
        actions = [action for action in self.plan.actions if not action.is_fault]
        while actions or self.agenda:
            at = min([a.at_s for a in actions[:1]] + [entry[0] for entry in self.agenda[:1]])
            if at > self.plan.length_s and not actions:
                break
            self._grant()
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
            self.controller.mark_dead(broker_id)
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

    def _hooks(self, broker: Broker) -> BrokerHooks:
        return replace(super()._hooks(broker), controller=Wishes(self)) if self.clients else super()._hooks(broker)

    def _grant(self) -> None:
        """Create the topics that clients have wished for, and answer at once: brokers have them wait for metadata."""
        while self.wishes:
            name, partitions, answer = self.wishes.pop(0)
            result = messages.CreatableTopicResult(name=name, num_partitions=partitions, error_message=None)
            if self.controller.context.live_broker_ids:
                self.created[name] = partitions
                self.controller.create_topic(name, partitions=partitions, replication_factor=1)
                self.world.note(f"create {name} for a client")
            else:
                result.error_code = ErrorCode.INVALID_REPLICATION_FACTOR
            answer(messages.CreateTopicsResponse(topics=[result]))

    def _work(self, kind: str, draws: tuple[float, float, float]) -> None:
        """Do one piece of administration."""
        controller, (a, b, c) = self.controller, draws
        live = sorted(controller.context.live_broker_ids)
        topics = sorted(controller.context.all_topics)
        if not live:
            return

        def pick(of: Any, at: float) -> Any:
            return of[int(at * len(of))]

        if kind == "migrate":
            self.is_kraft = True
            controller.migrate()
            self.world.note("the controller goes on as a KRaft controller")
            return
        if kind == "create" or not topics:
            name, partitions = f"t{len(self.created)}", 1 + int(a * 4)
            self.created[name] = partitions
            controller.create_topic(name, partitions=partitions, replication_factor=1 + int(b * min(3, len(live))))
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
            if not self.controller.journal._open and all(live.get(b.id) == b.epoch for b in self.brokers):
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
        self.controller.wait_all(60, allow_refused=True)
        partitions = list(context.partitions_with_leaders)
        for broker in self.brokers:
            snapshot = broker.broker.metadata.snapshot
            if self.is_kraft and not broker.broker.is_led_by_kraft:
                world.problem(f"broker {broker.id} is led by {snapshot.controller} after the migration")
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
