"""A small cluster in one process: a controller, embedded brokers, a scenario; everything that is said is written down.

The controller's decisions are events on its event thread; what it tells brokers goes through request batch, channel
manager and send threads over real sockets. The journal is the controller's own account, to be held against what a
recording of the wire says.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from channel.broker.cluster import EmbeddedCluster
from channel.clock import SYSTEM_CLOCK
from channel.config import ChannelConfig
from channel.controller.batch import ControllerBrokerRequestBatch
from channel.controller.context import ControllerContext
from channel.controller.events import ControllerEvent, ControllerEventManager, ControllerState
from channel.controller.manager import ControllerChannelManager
from channel.errors import RequestTimeout
from channel.metrics import Metrics
from channel.types import (
    Broker,
    EndPoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
)
from kproto.cli.journal import PATIENCE_S, Journal
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from channel.controller.requests import ControlRequest
    from channel.controller.send_thread import QueueItem
    from channel.network.recorder import Recorder

__all__ = ["Rehearsal"]


@dataclass(frozen=True, slots=True)
class _Decision(ControllerEvent):
    """Something that the scenario has the controller do."""

    state: ClassVar[ControllerState] = ControllerState.TOPIC_CHANGE
    act: Callable[[], None]
    done: threading.Event
    failures: list[Exception]


class _Controller:
    """The parts of a controller that sending needs, put together; also its own event processor and request sender."""

    def __init__(self, controller_id: int, epoch: int, journal: Journal, recorder: Recorder | None = None) -> None:
        config = ChannelConfig()
        self.id = controller_id
        self.journal = journal
        self.context = ControllerContext()
        self.context.epoch = epoch
        metrics = Metrics(SYSTEM_CLOCK)
        self.manager = ControllerChannelManager(
            controller_id,
            lambda: self.context.epoch,
            config,
            metrics=metrics,
            on_dropped=self._dropped,
            recorder=recorder,
        )
        self.events = ControllerEventManager(controller_id, self, SYSTEM_CLOCK, metrics)
        self.batch = ControllerBrokerRequestBatch(controller_id, config, self, self.events, lambda: self.context)

    def start(self) -> None:
        self.events.start()

    def close(self) -> None:
        self.events.close()
        self.manager.shutdown()

    def send_request(
        self, broker_id: int, request: ControlRequest, callback: Callable[[Any], None] | None = None
    ) -> None:
        told = self.journal.sent(self.id, broker_id, request)

        def answered(response: Any) -> None:
            if callback is not None:
                callback(response)
            self.journal.answered(told, response)

        self.manager.send_request(broker_id, request, answered)

    def _dropped(self, broker_id: int, items: list[QueueItem]) -> None:
        self.journal.dropped(len(items))

    def process(self, event: ControllerEvent) -> None:
        if isinstance(event, _Decision):
            try:
                event.act()
            except Exception as e:  # noqa: BLE001 - told to who decided, on his own thread
                event.failures.append(e)
            event.done.set()

    def preempt(self, event: ControllerEvent) -> None:
        if isinstance(event, _Decision):
            event.done.set()

    def decide(self, act: Callable[[], None]) -> None:
        """Do it on the event thread, as one batch, and wait until it is sent."""
        done, failures = threading.Event(), list[Exception]()

        def as_one_batch() -> None:
            self.batch.new_batch()
            act()
            self.batch.send_requests_to_brokers(self.context.epoch)

        self.events.put(_Decision(as_one_batch, done, failures))
        if not done.wait(PATIENCE_S):
            raise RequestTimeout("the controller's event thread is stuck")
        if failures:
            raise failures[0]


class Rehearsal:
    """A cluster of embedded brokers with a controller of its own; use it in a ``with``.

    Args:
        brokers: How many brokers.
        seed: What chance decides.
        recorder: Sees every frame of the controllers.
        on_step: Told what happens next, in a few words.
    """

    CONTROLLER_ID: Final = 100
    STALE_CONTROLLER_ID: Final = 99

    def __init__(
        self,
        brokers: int = 3,
        *,
        seed: int = 0,
        recorder: Recorder | None = None,
        on_step: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.journal = Journal()
        self._random = random.Random(seed)  # noqa: S311 - a scenario, no secret
        self._recorder = recorder
        self._on_step = on_step
        self.cluster = EmbeddedCluster(brokers)
        self._controller = _Controller(self.CONTROLLER_ID, 2, self.journal, recorder)
        self._topics = 0

    def __enter__(self) -> Self:
        self.cluster.start()
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.close()
        self.cluster.close()

    # ---- the scenario ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Topics made, leaders moved, a broker killed and brought back, a stale controller fenced, a topic deleted."""
        chance = self._random
        self.register_brokers()
        topics = [self.create_topic(chance.randint(1, 8)) for _ in range(chance.randint(3, 6))]
        for _ in range(chance.randint(3, 8)):
            self.move_leader(chance.choice(self._partitions()))
        victim = chance.choice(list(self.cluster)).id
        self.fail_broker(victim)
        topics.append(self.create_topic(chance.randint(1, 4)))
        self.bring_back(victim)
        for _ in range(chance.randint(1, 4)):
            self.move_leader(chance.choice(self._partitions()))
        self.stale_controller(chance.choice(list(self.cluster)).id)
        self.delete_topic(chance.choice(topics))

    def register_brokers(self) -> None:
        """All brokers appear; each is told of all."""
        self._on_step(f"{len(self.cluster.members)} brokers register")
        context = self._controller.context
        context.set_live_brokers({_as_broker(m): m.epoch for m in self.cluster})
        self._controller.manager.startup(_as_broker(m) for m in self.cluster)
        self._decide(self._tell_all)

    def create_topic(self, partitions: int) -> str:
        """A topic with chosen replicas; its leaders are the first of them."""
        name = f"topic-{self._topics}"
        self._topics += 1
        self._on_step(f"{name} is created with {partitions} partitions")
        context, live = self._controller.context, sorted(self._controller.context.live_broker_ids)
        topic_id = self._random.randbytes(16)
        placed = {
            TopicPartition(name, p): tuple(self._random.sample(live, self._random.randint(1, len(live))))
            for p in range(partitions)
        }

        def act() -> None:
            context.set_all_topics([*context.all_topics, name])
            context.add_topic_id(name, topic_id)
            for tp, replicas in placed.items():
                context.update_partition_full_replica_assignment(tp, ReplicaAssignment(replicas))
                self._lead(tp, LeaderAndIsr(replicas[0], replicas), is_new=True)

        self._decide(act)
        return name

    def move_leader(self, tp: TopicPartition) -> None:
        """Another replica leads; or, where there is no other that lives, the ISR is said again in a new epoch."""
        context = self._controller.context
        state = self._state(tp)
        others = [b for b in state.isr if b != state.leader and context.is_live_broker(b)]
        leader = self._random.choice(others) if others else state.leader
        change = f"leader {state.leader} -> {leader}" if others else f"leader {leader} stays, in a new epoch"
        self._on_step(f"{tp}: {change}")
        self._decide(lambda: self._lead(tp, _next(state, leader, state.isr)))

    def fail_broker(self, broker_id: int) -> None:
        """A broker is killed; one request waits for it in vain, then the controller notices, and others lead."""
        self._on_step(f"broker {broker_id} is killed")
        context, manager = self._controller.context, self._controller.manager
        self.cluster.kill(broker_id)
        self._decide(self._tell_all, still_waiting=1)
        manager.remove_broker(broker_id)
        broker = context.live_or_shutting_down_broker(broker_id)
        assert broker is not None

        def act() -> None:
            context.remove_live_brokers([broker_id])
            affected = context.partitions_on_broker(broker_id)
            for tp in affected:
                state = self._state(tp)
                isr = tuple(b for b in state.isr if b != broker_id)
                leader = state.leader if state.leader != broker_id else (isr[0] if isr else -1)
                self._lead(tp, _next(state, leader, isr or state.isr))
            if not affected:
                self._tell_all()

        self._decide(act)

    def bring_back(self, broker_id: int) -> None:
        """It registers anew: it is told everything, leads what only it could lead, and joins the ISRs again."""
        epoch = self.cluster.restart(broker_id)
        self._on_step(f"broker {broker_id} is back with epoch {epoch}")
        context = self._controller.context
        broker = _as_broker(self.cluster[broker_id])
        self._controller.manager.add_broker(broker)
        batch = self._controller.batch
        older = sorted(context.live_broker_ids)

        def announce() -> None:
            context.add_live_brokers({broker: epoch})
            batch.add_update_metadata_request_for_brokers(older)

        def inform() -> None:
            batch.add_update_metadata_request_for_brokers([broker_id], list(context.partitions_with_leaders))

        def lead() -> None:
            for tp in context.partitions_on_broker(broker_id):
                state = self._state(tp)
                isr = state.isr if broker_id in state.isr else (*state.isr, broker_id)
                self._lead(tp, _next(state, broker_id if state.leader == -1 else state.leader, isr))

        for act in (announce, inform, lead):  # a broker follows no leader that it has not been told of
            self._decide(act)

    def stale_controller(self, broker_id: int) -> None:
        """A controller that lost its office speaks once more, and is refused."""
        self._on_step(f"a stale controller speaks to broker {broker_id}, and is fenced")
        stale = _Controller(self.STALE_CONTROLLER_ID, self._controller.context.epoch - 1, self.journal, self._recorder)
        stale.start()
        try:
            member = self.cluster[broker_id]
            stale.context.set_live_brokers({_as_broker(member): member.epoch})
            stale.manager.startup([_as_broker(member)])
            stale.decide(lambda: stale.batch.add_update_metadata_request_for_brokers([broker_id]))
            self.journal.wait_until()
        finally:
            stale.close()

    def delete_topic(self, topic: str) -> None:
        """Everybody is told that it goes, then its replicas are stopped and deleted."""
        self._on_step(f"{topic} is deleted")
        context, batch = self._controller.context, self._controller.batch
        partitions = list(context.partitions_for_topic(topic))

        def act() -> None:
            context.queue_topic_deletion([topic])
            context.begin_topic_deletion([topic])
            batch.add_update_metadata_request_for_brokers(sorted(context.live_broker_ids), partitions)
            for tp in partitions:
                batch.add_stop_replica_request_for_brokers(context.partition_replica_assignment(tp), tp, True)

        self._decide(act)
        context.remove_topic(topic)

    # ---- how decisions are made --------------------------------------------------------------------------------------

    def _decide(self, act: Callable[[], None], still_waiting: int = 0) -> None:
        self._controller.decide(act)
        self.journal.wait_until(still_waiting)

    def _lead(self, tp: TopicPartition, state: LeaderAndIsr, *, is_new: bool = False) -> None:
        context = self._controller.context
        info = LeaderIsrAndControllerEpoch(state, context.epoch)
        context.put_partition_leadership_info(tp, info)
        assignment = context.partition_full_replica_assignment(tp)
        live = [b for b in assignment.replicas if context.is_live_broker(b)]
        self._controller.batch.add_leader_and_isr_request_for_brokers(live, tp, info, assignment, is_new)

    def _tell_all(self) -> None:
        context = self._controller.context
        self._controller.batch.add_update_metadata_request_for_brokers(sorted(context.live_broker_ids))

    def _state(self, tp: TopicPartition) -> LeaderAndIsr:
        info = self._controller.context.partition_leadership_info(tp)
        assert info is not None
        return info.leader_and_isr

    def _partitions(self) -> Sequence[TopicPartition]:
        return sorted(self._controller.context.partitions_with_leaders)


def _next(state: LeaderAndIsr, leader: int, isr: Iterable[int]) -> LeaderAndIsr:
    return LeaderAndIsr(leader, tuple(isr), state.leader_epoch + 1, state.partition_epoch + 1)


def _as_broker(member: Any) -> Broker:
    return Broker(member.id, (EndPoint(member.host, member.port),))
