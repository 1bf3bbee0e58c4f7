"""A controller that tests and scripts direct: it decides nothing itself, and sends as Kafka's controller does.

``ScriptedController`` keeps a controller's context, request batch and channels, without ZooKeeper. Each method is one
decision: it changes the context and queues the requests that follow from it, in Kafka's order. Brokers may be embedded
ones or real ones.

>>> from channel.broker.cluster import EmbeddedCluster
>>> with EmbeddedCluster(3) as cluster, ScriptedController(cluster) as controller:
...     controller.create_topic("orders", partitions=6, replication_factor=2)
...     cluster.kill(0)
...     controller.mark_dead(0)
...     controller.wait_all()
...     sorted({controller.leadership("orders", p).leader for p in range(6)})
[1, 2]
"""

from __future__ import annotations

import contextlib
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, Self

from channel.api_errors import error_response
from channel.broker.cluster import EmbeddedCluster
from channel.broker.worker import Worker
from channel.clock import SYSTEM_CLOCK
from channel.config import ChannelConfig
from channel.errors import BrokerNotAvailable, ChannelError, IllegalState, RequestRefused, RequestTimeout
from channel.lead.migration import MigrationRequestBatch, Registration
from channel.lead.new_topics import (
    ReplicaBrokers,
    RequestRejected,
    added_partitions,
    check_topic_name,
    create_partitions,
    name_in_metrics,
    new_topics,
    topics_to_delete,
)
from channel.locks import guards_calls, new_reentrant_lock
from channel.logs import bounded, get_logger
from channel.metrics import Metrics
from channel.send.batch import RequestBatch
from channel.send.context import ControllerContext
from channel.threads import Startable, close_all, time_left
from channel.types import (
    NO_LEADER,
    TOPIC_NAMES,
    Broker,
    EndPoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    PartitionMetadata,
    ReplicaAssignment,
    UpdateType,
    is_topic_name,
    random_uuid,
)
from kproto import messages
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

from .journal import Journal, JournaledChannels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from channel.broker.hooks import RequestContext
    from channel.network.recorder import Recorder

    from .journal import SentRequest

_ANNOUNCED_S: Final = 1.0
"""The longest time that the start waits for the brokers' answers to the announcement."""

P = ParamSpec("P")
_log = get_logger(__name__)


def _decision(
    method: Callable[Concatenate[ScriptedController, P], None],
) -> Callable[Concatenate[ScriptedController, P], None]:
    """Make a method a decision: one at a time is made, by tests and by clients, until the controller is closed."""

    @wraps(method)
    def alone(controller: ScriptedController, /, *args: P.args, **options: P.kwargs) -> None:
        with controller.deciding:
            if controller._is_closed:
                raise IllegalState("the controller is closed")
            method(controller, *args, **options)

    return alone


class BrokerAddress(Protocol):
    """A broker's id, epoch and address, as it is registered; ``EmbeddedCluster`` is an iterable of them."""

    @property
    def id(self) -> int:
        """The broker's id."""

    @property
    def epoch(self) -> int:
        """The epoch of its registration: the czxid of its znode."""

    @property
    def host(self) -> str:
        """The host of its inter-broker listener."""

    @property
    def port(self) -> int:
        """The port of its inter-broker listener."""


class ScriptedController(Startable):
    """A controller without ZooKeeper; use it in a ``with``.

    At its start it announces all brokers to all brokers, before any LeaderAndIsr: a broker follows only leaders that
    an UpdateMetadata has named. Each method returns when its requests are queued; ``wait_all`` waits for the responses.
    One of the brokers begins once all have answered the announcement, or after a second.

    If it is one of the brokers of an ``EmbeddedCluster``, by its ``controller_id``, the brokers' metadata name it as
    the controller, it answers CreateTopics, CreatePartitions and DeleteTopics once all brokers that are up know of the
    change, and clients create topics by asking for them.

    Args:
        brokers: The registered brokers: an ``EmbeddedCluster``, or any objects with id, epoch, host and port.
        controller_id: The controller's broker id; 100 is none of the brokers of a small cluster.
        controller_epoch: Its controller epoch; brokers refuse requests with an older epoch than they have seen.
        config: ``inter.broker.protocol.version`` decides the versions of all requests; timeouts, listener names.
        metrics: Takes the figures of the channels.
        recorder: Sees every frame that passes.
        journal: Takes every request and its answer; a new one by default.
        auto_create_topics: Whether clients create topics by asking for them, where the controller is a broker.

    Attributes:
        deciding: The lock that a decision holds; several decisions that belong together may hold it.
        topic_settings: The settings with which clients created topics, by topic.
        context: The controller's knowledge of brokers and partitions; for reading.
        manager: The channels to the brokers.
        journal: Every request with its answer.
        metrics: The figures of the channels.
    """

    def __init__(
        self,
        brokers: Iterable[BrokerAddress],
        *,
        controller_id: int = 100,
        controller_epoch: int = 1,
        config: ChannelConfig | None = None,
        metrics: Metrics | None = None,
        recorder: Recorder | None = None,
        journal: Journal | None = None,
        auto_create_topics: bool = True,
    ) -> None:
        self._config = config = config or ChannelConfig()
        self.deciding = new_reentrant_lock("scripted decisions")
        self.topic_settings: dict[str, dict[str, str]] = {}
        self.journal = journal or Journal()
        self.metrics = metrics or Metrics(SYSTEM_CLOCK)
        self.context = ControllerContext()
        self.context.epoch = controller_epoch
        self.manager = JournaledChannels(
            self.journal, controller_id, lambda: self.context.epoch, config, metrics=self.metrics, recorder=recorder
        )
        self._batch = RequestBatch(controller_id, config, self.manager, self.context)
        self._migration: MigrationRequestBatch | None = None  # the batch of a KRaft controller, which sends its images
        self._is_started = self._is_closed = False
        self._worker = Worker("scripted-controller-worker-thread")
        self._creates_topics = auto_create_topics
        names = (config.inter_broker_listener, config.control_plane_listener_name)
        self._listeners = {name: config.protocol_of(name) for name in names if name is not None}
        self._brokers = brokers
        self._end_lead: Callable[[], None] = lambda: None
        self._seen = 0

    def start(self) -> Self:
        """Open the channels and announce all brokers; a ``with`` calls it.

        Raises:
            BrokerNotAvailable: A broker does not have the listener that the controller sends to.
            IllegalState: It was started before.
        """
        if self._is_started:
            how = "closed" if self._is_closed else "started already"
            raise IllegalState(f"this controller is {how}; a controller starts once: make another")
        self._is_started = True
        try:
            self.register(*self._brokers)
        except BaseException:
            self.close()
            raise
        if isinstance(self._brokers, EmbeddedCluster) and self.manager.controller_id in self._brokers.members:
            controller_for = partial(AdministratorAnswers, self, self._worker, self._creates_topics)
            self._brokers.lead_by(controller_for)
            self._end_lead = partial(self._brokers.end_lead, controller_for)
            # librdkafka does not ask again whoever knows no brokers yet, and its administrators wait in vain.
            with contextlib.suppress(RequestTimeout):
                self.journal.wait(timeout_s=_ANNOUNCED_S)
        return self

    def __enter__(self) -> Self:
        if self._is_closed or not self._is_started:
            self.start()
        return self

    def close(self, timeout_s: float | None = None) -> None:
        """End all channels, after the present decision; queued requests are dropped. Harmless if closed.

        Args:
            timeout_s: The longest time to wait; a line in the log names a thread that has not ended then.
        """
        self._is_started = self._is_closed = True
        self._end_lead()
        left_s = time_left(timeout_s)
        close_all(lambda: self._close_channels(left_s), lambda: self._worker.close(left_s()))

    def _close_channels(self, left_s: Callable[[], float | None]) -> None:
        limit_s = left_s()
        has_ended = self.deciding.acquire(timeout=-1 if limit_s is None else limit_s)
        if not has_ended:
            _log.warning("the present decision has not ended within %g s", limit_s)
        try:
            self.manager.close(left_s())
        finally:
            if has_ended:
                self.deciding.release()

    @_decision
    def migrate(self) -> None:
        """Go on as the KRaft controller of a migration, in the next controller epoch, and send the whole image.

        The brokers must take part in the migration (``EmbeddedCluster(..., kraft=True)``). They get UpdateMetadata,
        and then a full LeaderAndIsr; the requests of later decisions are a KRaft controller's, too.
        """
        context = self.context
        migration = MigrationRequestBatch(self.manager.controller_id, self._config, self.manager, context)
        self._batch = self._migration = migration
        context.epoch += 1
        migration.set_brokers(self._registrations().values())
        migration.send_image(context.epoch)

    def _registrations(self) -> dict[int, Registration]:
        """The live brokers, as the image of a KRaft controller has them."""
        brokers, epochs = self.context.live_or_shutting_down_brokers, self.context.live_broker_id_and_epochs
        return {broker.id: Registration(broker, epochs[broker.id]) for broker in brokers}

    # ---- brokers -----------------------------------------------------------------------------------------------------

    @_decision
    def register(self, *members: BrokerAddress) -> None:
        """Add brokers that are new, or that came back with a new epoch.

        The known brokers get UpdateMetadata first; the new brokers get all metadata, and then LeaderAndIsr for their
        replicas. A new broker becomes the leader of its leaderless partitions, and joins the ISR of the others.
        """
        brokers = {self._as_broker(member): member.epoch for member in members}
        new = {broker.id for broker in brokers}
        context, batch = self.context, self._batch

        def announce() -> None:
            for broker in brokers:
                if broker.id in context.live_or_shutting_down_broker_ids:
                    context.remove_live_brokers([broker.id])
                    self.manager.remove_broker(broker.id)
                self.manager.add_broker(broker)
            older = sorted(context.live_broker_ids)
            context.add_live_brokers(brokers)
            batch.add_update_metadata_request_for_brokers(older)

        def inform() -> None:
            batch.add_update_metadata_request_for_brokers(sorted(new), context.partitions_with_leaders)

        def lead() -> None:
            for tp in list(context.partitions_with_leaders):
                joining = [b for b in context.partition_replica_assignment(tp) if b in new]
                if joining:
                    state = self._state(tp)
                    isr = tuple(dict.fromkeys((*(b for b in state.isr if b in self._live()), *joining)))
                    self._lead(tp, next_state(state, joining[0] if state.leader == NO_LEADER else state.leader, isr))

        if self._migration is None:
            self._run(announce)
            self._run(inform)
        else:
            registered = {broker.id: Registration(broker, epoch) for broker, epoch in brokers.items()}
            changed = self._migration.set_brokers((self._registrations() | registered).values())
            self._migration.send_new_brokers(changed, context.epoch)
        self._run(lead)

    @_decision
    def mark_dead(self, broker_id: int) -> None:
        """Treat a broker as dead: close its channel, elect new leaders for its partitions, update the other brokers.

        Its queued requests are dropped. A partition without another live replica in its ISR is left without a leader.

        Raises:
            BrokerNotAvailable: The controller has no such broker.
        """
        self._known(broker_id)
        context, migration = self.context, self._migration

        def elect_others() -> None:
            if migration is None:
                context.remove_live_brokers([broker_id])
            else:
                known = self._registrations()
                known[broker_id] = known[broker_id]._replace(is_fenced=True)
                migration.set_brokers(known.values())
            affected = [
                tp for tp in context.partitions_on_brokers([broker_id])[broker_id] if self._has_leader_state(tp)
            ]
            for tp in affected:
                state = self._state(tp)
                isr = tuple(b for b in state.isr if b in self._live())
                leader = state.leader if state.leader != broker_id else next(iter(isr), NO_LEADER)
                self._lead(tp, next_state(state, leader, isr or state.isr))
            if not affected:
                self._batch.add_update_metadata_request_for_brokers(self._live())

        if migration is None:
            self.manager.remove_broker(broker_id)
        self._run(elect_others)

    @_decision
    def announce(self, *broker_ids: int) -> None:
        """Send UpdateMetadata without partitions to these brokers, by default to all live brokers.

        Raises:
            BrokerNotAvailable: The controller has no such broker.
        """
        for broker_id in broker_ids:
            self._known(broker_id)
        self._run(lambda: self._batch.add_update_metadata_request_for_brokers(broker_ids or self._live()))

    # ---- topics ------------------------------------------------------------------------------------------------------

    @_decision
    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        assignment: Sequence[Sequence[int]] | None = None,
        topic_id: bytes | None = None,
    ) -> None:
        """Create a topic; the first replica of each partition leads it, and all replicas are in its ISR.

        Args:
            name: The topic's name.
            partitions: The number of partitions; their replicas go round the live brokers.
            replication_factor: The number of replicas of each partition.
            assignment: The broker ids of each partition's replicas, in place of the two numbers.
            topic_id: 16 bytes; a random id by default.

        Raises:
            ValueError: The topic exists, Kafka allows no such name, a number is below 1, or ``topic_id`` has another
                length.
            BrokerNotAvailable: A replica would be on an unknown broker, or there are fewer brokers than replicas.
        """
        if name in self.context.all_topics:
            raise ValueError(f"topic {name} exists already")
        if not is_topic_name(name):
            raise ValueError(f"{name!r} is none: {TOPIC_NAMES}")
        if topic_id is not None and len(topic_id) != 16:
            raise ValueError(f"topic_id has {len(topic_id)} bytes; a topic id has 16")
        if assignment is None:
            assignment = spread(self._live(), partitions, replication_factor)
        placed = {TopicPartition(name, p): self._replicas(replicas) for p, replicas in enumerate(assignment)}
        if not placed:
            raise ValueError(f"topic {name} would have no partition; give at least one")

        def create() -> None:
            self.context.set_all_topics([*self.context.all_topics, name])
            self.context.add_topic_id(name, topic_id or random_uuid())
            self._create(placed)

        self._run(create)

    @_decision
    def add_partitions(self, name: str, count: int, *, assignment: Sequence[Sequence[int]] | None = None) -> None:
        """Add partitions to a topic.

        Args:
            name: The topic's name.
            count: The number of partitions that the topic then has.
            assignment: The broker ids of each new partition's replicas; by default as many replicas as partition 0 has,
                round the live brokers.

        Raises:
            ValueError: No such topic, ``count`` is not above the present number, or the assignment has another length.
            BrokerNotAvailable: A replica would be on an unknown broker, or there are fewer brokers than replicas.
        """
        first = self.context.partition_replica_assignment(self._partition(name, 0))
        present = len(self.context.partitions_for_topic(name))
        if count <= present:
            raise ValueError(f"topic {name} has {present} partitions; count is {count}, and must be above that")
        if assignment is None:
            assignment = spread(self._live(), count, len(first))[present:]
        if len(assignment) != count - present:
            raise ValueError(f"{count - present} partitions are new, and {len(assignment)} assignments are given")
        placed = {TopicPartition(name, present + i): self._replicas(r) for i, r in enumerate(assignment)}
        self._run(lambda: self._create(placed))

    def _create(self, placed: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        for tp, replicas in placed.items():
            self.context.update_partition_full_replica_assignment(tp, ReplicaAssignment(replicas))
            self._lead(tp, LeaderAndIsr(replicas[0], replicas), is_new=True)

    @_decision
    def elect(self, topic: str, partition: int, leader: int | None = None, *, unclean: bool = False) -> None:
        """Make a replica the leader, in a new leader epoch.

        Args:
            leader: A live replica; by default the first in the assignment that is live and in the ISR.
            unclean: Elect ``leader`` though it is not in the ISR; the ISR is then the leader alone.

        Raises:
            ValueError: No such partition, or ``leader`` is no live replica of it, or not in its ISR.
        """
        tp = self._partition(topic, partition)
        state, replicas = self._state(tp), self.context.partition_replica_assignment(tp)
        live = [b for b in replicas if b in self._live()]
        if leader is None:
            leader = next((b for b in live if b in state.isr), NO_LEADER)
        elif leader not in live:
            raise ValueError(f"broker {leader} is no live replica of {tp}; there are {live}")
        elif leader not in state.isr and not unclean:
            raise ValueError(f"broker {leader} is not in the ISR of {tp}, {list(state.isr)}; or give unclean=True")
        if leader == NO_LEADER or leader in state.isr:
            after = next_state(state, leader, state.isr)
        else:
            after = next_state(state, leader, (leader,), LeaderRecoveryState.RECOVERING)
        self._run(lambda: self._lead(tp, after))

    @_decision
    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Move a partition to other brokers, as if the new replicas had caught up at once.

        Old and new replicas get LeaderAndIsr with the adding and removing replicas; then the new replicas alone get
        LeaderAndIsr, one of them as the leader, and the removed replicas are deleted.

        Raises:
            ValueError: No such partition, no replicas, or a replica that is named twice.
            BrokerNotAvailable: A replica would be on an unknown broker.
        """
        tp, target = self._partition(topic, partition), self._replicas(replicas)
        context, before = self.context, self.context.partition_full_replica_assignment(tp)
        moving = before.reassign_to(target)

        def begin() -> None:
            context.update_partition_full_replica_assignment(tp, moving)
            state = self._state(tp)
            self._lead(tp, next_state(state, state.leader, state.isr), new_on=moving.adding)

        def complete() -> None:
            state, live = self._state(tp), self._live()
            context.update_partition_full_replica_assignment(tp, ReplicaAssignment(target))
            isr = tuple(b for b in target if b in live)
            leader = state.leader if state.leader in isr else next(iter(isr), NO_LEADER)
            self._lead(tp, next_state(state, leader, isr or state.isr))
            self._batch.add_stop_replica_request_for_brokers(moving.removing, tp, delete_partition=True)

        self._run(begin)
        self._run(complete)

    @_decision
    def delete_topic(self, name: str) -> None:
        """Delete a topic: UpdateMetadata marks its partitions as being deleted, then StopReplica deletes its replicas.

        Raises:
            ValueError: No such topic.
        """
        if name not in self.context.all_topics:
            raise ValueError(f"no topic {name}; there are {bounded(sorted(self.context.all_topics))}")
        context = self.context

        def delete() -> None:
            partitions = context.partitions_for_topic(name)
            context.queue_topic_deletion([name])
            context.topics_with_deletion_started.add(name)
            self._batch.add_update_metadata_request_for_brokers(self._live(), partitions)
            for tp in partitions:
                self._batch.add_stop_replica_request_for_brokers(context.partition_replica_assignment(tp), tp, True)

        migration = self._migration
        self.topic_settings.pop(name, None)
        if migration is None:
            self._run(delete)
            context.remove_topic(name)
            return
        deleted = {
            tp: PartitionMetadata(
                LeaderIsrAndControllerEpoch(self._state(tp), context.epoch), context.partition_replica_assignment(tp)
            )
            for tp in context.partitions_for_topic(name)
        }

        context.remove_topic(name)
        migration.send_deleted(deleted, context.epoch)

    # ---- decisions ---------------------------------------------------------------------------------------------------

    def _run(self, decide: Callable[[], None]) -> None:
        """Call ``decide`` with an open batch, and queue its requests.

        Raises:
            IllegalState: The batch failed.
            Exception: Raised by ``decide``.
        """
        self._batch.new_batch(UpdateType.UNKNOWN if self._migration is None else UpdateType.INCREMENTAL)
        try:
            decide()
            self._batch.send_requests_to_brokers(self.context.epoch)
        except BaseException:
            self._batch.clear()
            raise

    # ---- answers -----------------------------------------------------------------------------------------------------

    def wait_all(self, timeout_s: float = 30.0, *, allow_refused: bool = False) -> None:
        """Wait until every request is answered or dropped.

        Args:
            timeout_s: The longest time to wait.
            allow_refused: Whether brokers may have refused requests; ``refused`` lists them.

        Raises:
            RequestTimeout: Requests are left after ``timeout_s`` seconds; the text names their brokers.
            RequestRefused: A broker has refused a request since the last call, as a whole or for a partition.
        """
        self.journal.wait(timeout_s=timeout_s)
        seen, self._seen = self._seen, len(self.journal.entries)
        refused = self._refused_since(seen)
        if refused and not allow_refused:
            raise RequestRefused(
                f"{len(refused)} requests were refused: {bounded(', '.join(map(str, refused[:20])))}; where that is "
                "expected, call wait_all(allow_refused=True), and see controller.refused"
            )

    @property
    def refused(self) -> list[SentRequest]:
        """All requests that brokers have refused, as a whole or for some partitions."""
        return self._refused_since(0)

    def _refused_since(self, place: int) -> list[SentRequest]:
        entries, own_id = self.journal.entries[place:], self.manager.controller_id  # controllers may share a journal
        return [entry for entry in entries if entry.is_refused and entry.controller_id == own_id]

    def leadership(self, topic: str, partition: int) -> LeaderAndIsr:
        """A partition's leader, ISR and epochs as the controller last decided them.

        Raises:
            ValueError: No such partition.
        """
        return self._state(self._partition(topic, partition))

    # ---- the context -------------------------------------------------------------------------------------------------

    def _lead(
        self, tp: TopicPartition, state: LeaderAndIsr, *, is_new: bool = False, new_on: Iterable[int] = ()
    ) -> None:
        context, live, new_on = self.context, self._live(), set(new_on)
        info = LeaderIsrAndControllerEpoch(state, context.epoch)
        context.put_partition_leadership_info(tp, info)
        assignment = context.partition_full_replica_assignment(tp)
        for brokers, new in ((new_on, True), (set(assignment.replicas) - new_on, is_new)):
            there = [b for b in assignment.replicas if b in brokers and b in live]
            self._batch.add_leader_and_isr_request_for_brokers(there, tp, info, assignment, new)

    def _live(self) -> list[int]:
        return sorted(self.context.live_broker_ids)

    def _known(self, broker_id: int) -> None:
        if broker_id not in self.context.live_or_shutting_down_broker_ids:
            raise BrokerNotAvailable(f"the controller has no broker {broker_id!r}; there are {bounded(self._live())}")

    def _partition(self, topic: str, partition: int) -> TopicPartition:
        tp = TopicPartition(topic, partition)
        if not self._has_leader_state(tp):
            partitions = sorted(tp.partition for tp in self.context.partitions_for_topic(topic))
            there = f"topic {topic} has {bounded(partitions)}" if partitions else f"there is no topic {topic}"
            raise ValueError(f"no partition {partition}: {there}")
        return tp

    def _has_leader_state(self, tp: TopicPartition) -> bool:
        return self.context.partition_leadership_info(tp) is not None

    def _state(self, tp: TopicPartition) -> LeaderAndIsr:
        info = self.context.partition_leadership_info(tp)
        assert info is not None
        return info.leader_and_isr

    def _replicas(self, replicas: Sequence[int]) -> tuple[int, ...]:
        if not replicas or len(set(replicas)) != len(replicas):
            raise ValueError(f"replicas {list(replicas)}: give each broker once, and at least one")
        for broker_id in replicas:
            self._known(broker_id)
        return tuple(replicas)

    def _as_broker(self, member: BrokerAddress) -> Broker:
        return Broker(
            member.id, tuple(EndPoint(member.host, member.port, *listener) for listener in self._listeners.items())
        )


# ---- administrators and clients --------------------------------------------------------------------------------------

_PARTITIONS, _REPLICAS = 1, 1
"""What a topic gets whose request leaves it to the brokers, as with Kafka's defaults."""


class AdministratorAnswers:
    """Serves CreateTopics, CreatePartitions and DeleteTopics at one broker of a cluster; a ``ClusterController``.

    The broker that is the controller makes the decisions; its answers wait until all brokers know of them, as the
    cluster has it. Other brokers answer NOT_CONTROLLER, and the client asks the controller that their metadata name.

    Args:
        controller: Makes the decisions.
        worker: Runs what may block.
        creates_topics: Whether a client that asks for a topic that does not exist creates it.
        broker_id: The broker that is asked.

    Attributes:
        keys: The API keys that are served here.
    """

    keys: Set[int] = frozenset({ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS})

    def __init__(self, controller: ScriptedController, worker: Worker, creates_topics: bool, broker_id: int) -> None:
        self._controller = controller
        self._worker = worker
        self._creates_topics = creates_topics
        self._broker_id = broker_id

    def __call__(self, context: RequestContext, request: Any, answer: Callable[[Any], None]) -> None:
        """Serve or refuse a request; a response of None closes the connection."""
        if self._broker_id != self._controller.manager.controller_id:
            answer(error_response(context.api_key, request, ErrorCode.NOT_CONTROLLER))
            return
        try:
            self._worker.submit(partial(self._serve, context.api_key, request, answer), partial(answer, None))
        except IllegalState:  # the controller is closed
            answer(None)

    def settings(self, entity: str) -> Mapping[str, str]:
        """The settings with which a topic was created."""
        kind, _, name = entity.partition("/")
        return self._controller.topic_settings.get(name, {}) if kind == "topics" else {}

    def create_missing(self, topics: Sequence[str]) -> bool:
        """Create topics with one partition and one replica, soon."""
        if not self._creates_topics:
            return False
        try:
            self._worker.submit(partial(self._create_missing, topics))
        except IllegalState:
            return False
        return True

    def _create_missing(self, topics: Sequence[str]) -> None:
        for name in topics:
            try:
                with self._controller.deciding:
                    if name in self._controller.context.all_topics:
                        continue
                    check_topic_name(name, (), self._alike())
                    self._controller.create_topic(name, partitions=_PARTITIONS, replication_factor=_REPLICAS)
            except (ChannelError, RequestRejected, ValueError) as e:
                _log.warning("topic %s, which a client has asked for, is not created: %s", name, e)

    def _serve(self, api_key: int, request: Any, answer: Callable[[Any], None]) -> None:
        serve = {
            ApiKey.CREATE_TOPICS: self._create_topics,
            ApiKey.CREATE_PARTITIONS: self._create_partitions,
            ApiKey.DELETE_TOPICS: self._delete_topics,
        }[ApiKey(api_key)]
        try:
            response = serve(request)
        except ChannelError as e:  # it is closed
            _log.warning("the controller does not serve a request: %s", e)
            response = None
        except Exception:  # noqa: BLE001 - an error of its own, as Kafka answers it
            _log.exception("the controller cannot serve a request")
            response = error_response(api_key, request, ErrorCode.UNKNOWN_SERVER_ERROR)
        answer(response)

    def _alike(self) -> dict[str, str]:
        return {name_in_metrics(name): name for name in self._controller.context.all_topics}

    def _brokers(self) -> ReplicaBrokers:
        return ReplicaBrokers(dict.fromkeys(sorted(self._controller.context.live_broker_ids)))

    def _create_topics(self, request: Any) -> Any:
        controller = self._controller
        results = {}
        with controller.deciding:
            found = new_topics(request, controller.context.all_topics, self._brokers(), _PARTITIONS, _REPLICAS)
            for name, new in found.items():
                results[name] = result = messages.CreatableTopicResult(name=name, configs=[])
                if isinstance(new, RequestRejected):
                    result.error_code, result.error_message = new.code, str(new)
                    continue
                result.num_partitions, result.replication_factor = len(new.replicas), len(new.replicas[0])
                if not request.validate_only:
                    controller.topic_settings[name] = new.config
                    controller.create_topic(name, assignment=list(new.replicas.values()))
                    result.topic_id = controller.context.topic_ids[name]
        return messages.CreateTopicsResponse(topics=list(results.values()))

    def _create_partitions(self, request: Any) -> Any:
        controller, context = self._controller, self._controller.context

        def add(topic: Any) -> None:
            known = [
                context.partition_replica_assignment(tp) for tp in sorted(context.partitions_for_topic(topic.name))
            ]
            added = added_partitions(topic, known, brokers)
            if not request.validate_only:
                controller.add_partitions(topic.name, topic.count, assignment=list(added.values()))

        with controller.deciding:
            brokers = self._brokers()
            return create_partitions(request, add)

    def _delete_topics(self, request: Any) -> Any:
        controller, results = self._controller, []
        with controller.deciding:
            for name, result in topics_to_delete(request, controller.context):
                results.append(result)
                if name is not None:
                    self._delete(name, result)
        return messages.DeleteTopicsResponse(responses=results)

    def _delete(self, name: str, result: messages.DeletableTopicResult) -> None:
        result.topic_id = self._controller.context.topic_ids[name]
        self._controller.delete_topic(name)


guards_calls(AdministratorAnswers, "_controller.deciding", "_alike", "_brokers", "_delete")


# ---- rules -----------------------------------------------------------------------------------------------------------


def spread(live: Sequence[int], partitions: int, replication_factor: int) -> list[list[int]]:
    """Assign replicas to each partition, round-robin over the live brokers.

    Raises:
        ValueError: A number is below 1.
        BrokerNotAvailable: There are fewer live brokers than replicas.
    """
    if partitions < 1 or replication_factor < 1:
        raise ValueError(f"{partitions} partitions of {replication_factor} replicas; each must be at least 1")
    if replication_factor > len(live):
        raise BrokerNotAvailable(f"{replication_factor} replicas need as many live brokers, there are {len(live)}")
    return [[live[(p + r) % len(live)] for r in range(replication_factor)] for p in range(partitions)]


def next_state(
    state: LeaderAndIsr,
    leader: int,
    isr: Sequence[int],
    recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED,
) -> LeaderAndIsr:
    """Return the state after a change of leader or ISR: each change raises leader epoch and partition epoch."""
    return LeaderAndIsr(leader, tuple(isr), state.leader_epoch + 1, state.partition_epoch + 1, recovery)
