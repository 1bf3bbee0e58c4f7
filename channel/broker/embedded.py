"""An embedded broker without its sockets: its registration, its replicas and its metadata.

A process can hold a thousand brokers, as they share decoded messages and metadata snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from channel.errors import IllegalState
from channel.locks import guards_calls, guards_changes, new_reentrant_lock
from channel.logs import bounded, state_change_log
from channel.types import EPOCH_DURING_DELETE, NO_BROKER_EPOCH, NO_EPOCH, NO_LEADER, UpdateType
from kproto.api import CONTROL_APIS, ApiKey
from kproto.error_codes import ErrorCode
from kproto.types import ZERO_UUID, TopicPartition

from .hooks import BrokerHooks
from .metadata_cache import MetadataCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Set

    from .hooks import ClusterController, ControllerApis, RecordApis
    from .metadata_cache import SharedUpdates


LARGEST_BODY: Final = {
    ApiKey.METADATA: 256 * 1024,  # the names of about 8,000 topics; a client with more topics requests all topics
    ApiKey.CONTROLLED_SHUTDOWN: 1024,
    ApiKey.API_VERSIONS: 4 * 1024,
    ApiKey.DESCRIBE_CONFIGS: 256 * 1024,
}
"""The longest body in bytes by API; the control requests are limited by ``socket.request.max.bytes`` alone."""

LARGEST_CONTROLLER_BODY: Final = 1024 * 1024
"""The longest body in bytes of a request to the controller: AlterPartition for about 20,000 partitions."""

LARGEST_RECORD_BODY: Final = {
    ApiKey.PRODUCE: 16 * 1024 * 1024,
    ApiKey.FETCH: 256 * 1024,
    ApiKey.LIST_OFFSETS: 256 * 1024,
    ApiKey.INIT_PRODUCER_ID: 4 * 1024,
    ApiKey.FIND_COORDINATOR: 64 * 1024,
    ApiKey.JOIN_GROUP: 256 * 1024,
}
"""The longest body in bytes by API of the clients of records and groups."""

GROUP_APIS: Final = frozenset({ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP})
"""The APIs by which a consumer learns that there are no groups."""

RECORD_VERSIONS: Final = {
    ApiKey.PRODUCE: (0, 9),  # some clients look for version 0; its message formats are refused
    ApiKey.FETCH: (4, 10),  # from version 11 on a follower would have to answer, too
    ApiKey.LIST_OFFSETS: (1, 6),
}
"""The versions of these APIs that a broker with records serves: no topic ids, no records of format 0 or 1."""

SERVED: Final = frozenset((*LARGEST_BODY, *CONTROL_APIS))
"""The keys that ApiVersions announces."""

SLOW: Final = frozenset({ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS, *LARGEST_RECORD_BODY})
"""APIs whose messages the reference codec reads and writes, several microseconds for each byte, and that can be large.

They are served on another thread than the network thread, which serves all the other brokers.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The features that a broker announces in ApiVersions from version 3 on.

    The defaults are those of a Kafka 3.9 broker with ZooKeeper: it has no feature of its own, and finds the cluster's
    features, none, at epoch 0.

    Attributes:
        supported: The broker's features by name: lowest and highest level.
        finalized: The cluster's features by name: lowest and highest level.
        finalized_epoch: Counts the changes of ``finalized``; -1 while the broker does not know them.
    """

    supported: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    finalized: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    finalized_epoch: int = 0


class Refused(Exception):
    """A request was refused as a whole.

    Attributes:
        code: The error code of the answer.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{ErrorCode(code).name}: {reason}")
        self.code = code


@dataclass(slots=True)
class Fetcher:
    """A follower's fetch state: its leader, that leader's epoch and the topic id."""

    leader: int
    leader_epoch: int
    topic_id: bytes


@dataclass(slots=True)
class HostedReplica:
    """A partition that this broker hosts. Leader epoch -1 means known, but never led or followed."""

    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = 0
    controller_epoch: int = 0
    role: Literal["none", "leader", "follower"] = "none"
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    offline: bool = False


_NEW: Final = HostedReplica()


class _Changes:
    """What a LeaderAndIsr does: a code, the topic id and, where it has to change, the new state of each partition."""

    __slots__ = ("codes", "followers", "ids", "leaders", "repeated")

    def __init__(self) -> None:
        self.codes: dict[TopicPartition, int] = {}
        self.ids: dict[TopicPartition, bytes] = {}
        self.leaders: dict[TopicPartition, Any] = {}
        self.followers: dict[TopicPartition, Any] = {}
        self.repeated: dict[TopicPartition, bytes] = {}  # only the topic id changes


def _can_have_log(tp: TopicPartition) -> bool:
    return bool(tp.topic) and "/" not in tp.topic


def _failure(hook: Callable[[TopicPartition], None], tp: TopicPartition) -> OSError | None:
    try:
        hook(tp)
    except OSError as e:
        return e
    return None


class BrokerReplicas:
    """The replicas of one broker.

    LeaderAndIsr and StopReplica are taken by the rules of Kafka 3.9's replica manager, and answered with its error
    codes. A log is a topic id, a fetcher is a record: nothing is stored or fetched.

    Args:
        broker: The broker. Its hooks may be replaced while it lives, so they are looked up at each call.
    """

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self.lock = new_reentrant_lock("replicas")  # Kafka's replica-state-change lock: UpdateMetadata takes it too
        self.controller_epoch = 0
        self.hosted: dict[TopicPartition, HostedReplica] = {}
        self.logs: dict[TopicPartition, bytes] = {}
        self.fetchers: dict[TopicPartition, Fetcher] = {}
        self._log = state_change_log(broker.broker_id)

    # ---- LeaderAndIsr ------------------------------------------------------------------------------------------------

    def become_leader_or_follower(self, correlation_id: int, request: Any) -> dict[TopicPartition, int]:
        """Take a LeaderAndIsr.

        Returns:
            A code for each partition, in request order; a partition named twice is answered once.

        Raises:
            Refused: The whole request is refused: for a stale controller epoch (11), or by an error during it.
        """
        ids, hook = request.topic_ids, self._broker.hooks.create_log
        made: dict[TopicPartition, OSError | None] = {}
        while True:
            with self.lock:
                self.fence("LeaderAndIsr", request, correlation_id)
                self.controller_epoch = request.controller_epoch
                if self._broker.migration_enabled and request.is_kraft_controller and request.type == UpdateType.FULL:
                    self._remove_strays(request, ids)
                plan = self._plan(request, ids)
                missing = [] if hook is None else [tp for tp in self._new_logs(plan) if tp not in made]
                if hook is None or not missing:
                    return self._carry_out(plan, made, request, correlation_id)
            for tp in missing:  # without the lock; what another request has changed meanwhile the next round sees
                made[tp] = _failure(hook, tp)

    def _plan(self, request: Any, ids: Mapping[str, bytes]) -> _Changes:
        """Decide what a LeaderAndIsr changes; nothing is changed yet."""
        plan = _Changes()
        is_kraft = request.is_kraft_controller
        for state in request.partition_states:
            tp = TopicPartition(state.topic_name, state.partition_index)
            topic_id = plan.ids[tp] = ids.get(tp.topic, ZERO_UUID)
            known_id = plan.repeated.get(tp, self.logs.get(tp, ZERO_UUID))
            code = self._check(tp, state, topic_id, known_id, is_kraft=is_kraft)
            if code is None:
                (plan.leaders if state.leader == self._broker.broker_id else plan.followers)[tp] = state
            elif code == ErrorCode.NONE:
                plan.repeated[tp] = topic_id
            plan.codes[tp] = code or ErrorCode.NONE
        return plan

    def _new_logs(self, plan: _Changes) -> Iterator[TopicPartition]:
        """Yield the partitions that get a log, in the order of the changes, to the first whose log cannot be made."""
        for states in (plan.leaders, plan.followers):
            for tp, state in states.items():
                if tp not in self.logs and not self._is_late(tp, state):
                    if not _can_have_log(tp):
                        return
                    yield tp

    def _carry_out(
        self,
        plan: _Changes,
        made: Mapping[TopicPartition, OSError | None],
        request: Any,
        correlation_id: int,
    ) -> dict[TopicPartition, int]:
        codes, ids = plan.codes, plan.ids
        for tp in codes:
            self.hosted.setdefault(tp, HostedReplica())  # also if the partition is refused, as in Kafka
        for tp, topic_id in plan.repeated.items():
            self._take_id(tp, topic_id)
        for tp, state in plan.leaders.items():
            codes[tp] = self._lead(tp, state, ids[tp], made.get(tp))
        leaderless: dict[TopicPartition, Any] = {}
        for tp, state in plan.followers.items():
            if not self._leader_is_alive(state) and state.leader != NO_LEADER:
                leaderless[tp] = state
            codes[tp] = self._follow(tp, state, ids[tp], made.get(tp))
        if leaderless:
            self._report_leaderless(leaderless, request, correlation_id)
        return codes

    def _report_leaderless(self, leaderless: Mapping[TopicPartition, Any], request: Any, correlation_id: int) -> None:
        """Log one line for all leaderless partitions of a request, which may name any number of partitions.

        Partitions that have no leader at all are not an error of the controller.
        """
        tp, state = next(iter(leaderless.items()))
        self._log.error(
            "LeaderAndIsr of controller %d (epoch %d, correlation id %d): %d partitions have a leader that is not "
            "among the live brokers and stay without a fetcher, %s with leader %d at leader epoch %d the first; an "
            "UpdateMetadata request must name the leaders before",
            request.controller_id,
            request.controller_epoch,
            correlation_id,
            len(leaderless),
            tp,
            state.leader,
            state.leader_epoch,
        )

    def fence(self, api: str, request: Any, correlation_id: int) -> None:
        """Refuse a request of a deposed controller; the caller holds the lock.

        Raises:
            Refused: The controller epoch is older than the latest one (error 11).
        """
        if request.controller_epoch < self.controller_epoch:
            self._log.warning(
                "refusing %s of controller %d (correlation id %d): controller epoch %d has ended, epoch %d is known",
                api,
                request.controller_id,
                correlation_id,
                request.controller_epoch,
                self.controller_epoch,
            )
            raise Refused(ErrorCode.STALE_CONTROLLER_EPOCH, f"controller epoch {request.controller_epoch} has ended")

    def _check(self, tp: TopicPartition, state: Any, topic_id: bytes, known_id: bytes, *, is_kraft: bool) -> int | None:
        """Return the code of a partition that is refused or keeps its leader; None for one that has to change."""
        replica = self.hosted.get(tp) or _NEW
        if replica.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if ZERO_UUID not in (topic_id, known_id) and topic_id != known_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if state.leader_epoch > replica.leader_epoch or (state.leader_epoch == replica.leader_epoch and is_kraft):
            return None if self._broker.broker_id in state.replicas else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if state.leader_epoch < replica.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if topic_id != ZERO_UUID and known_id == ZERO_UUID:  # the known leader epoch: only the topic id may change
            if tp not in self.logs:
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} has no log here")
            return ErrorCode.NONE
        if topic_id == ZERO_UUID and known_id != ZERO_UUID and state.leader != self._broker.broker_id:
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def _take_id(self, tp: TopicPartition, topic_id: bytes) -> None:
        if topic_id != ZERO_UUID:
            self.logs[tp] = topic_id
        if tp in self.fetchers:
            self.fetchers[tp].topic_id = topic_id

    def _leader_is_alive(self, state: Any) -> bool:
        return state.leader in self._broker.metadata.snapshot.alive_brokers

    def _is_late(self, tp: TopicPartition, state: Any) -> bool:
        """Whether a newer ISR is known, so that nothing changes; without a live leader the log is made all the same."""
        if state.partition_epoch >= self.hosted.get(tp, _NEW).partition_epoch:
            return False
        return state.leader == self._broker.broker_id or self._leader_is_alive(state)

    def _lead(self, tp: TopicPartition, state: Any, topic_id: bytes, failure: OSError | None) -> int:
        self.fetchers.pop(tp, None)
        if self._is_late(tp, state):
            return ErrorCode.NONE
        code = self._ensure_log(tp, topic_id, failure)
        if code == ErrorCode.NONE:
            self._change(tp, state, "leader")
        return code

    def _follow(self, tp: TopicPartition, state: Any, topic_id: bytes, failure: OSError | None) -> int:
        if self._is_late(tp, state):
            return ErrorCode.NONE
        code = self._ensure_log(tp, topic_id, failure)
        if code != ErrorCode.NONE or not self._leader_is_alive(state):
            return code  # without a leader the epoch is not stored: the same request is accepted again later
        is_new_epoch = state.leader_epoch > self.hosted[tp].leader_epoch
        self._change(tp, state, "follower")
        if is_new_epoch:
            self.fetchers[tp] = Fetcher(state.leader, state.leader_epoch, topic_id)
        return ErrorCode.NONE

    def _change(self, tp: TopicPartition, state: Any, role: Literal["leader", "follower"]) -> None:
        replica = self.hosted[tp]
        replica.leader = state.leader
        replica.leader_epoch = state.leader_epoch
        replica.partition_epoch = state.partition_epoch
        replica.controller_epoch = state.controller_epoch
        replica.role = role
        replica.isr = tuple(state.isr)
        replica.replicas = tuple(state.replicas)

    def _ensure_log(self, tp: TopicPartition, topic_id: bytes, failure: OSError | None) -> int:
        if not _can_have_log(tp):
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"no log can be made for topic {tp.topic!r}")
        if tp not in self.logs and failure is not None:
            self._log.error("the log of %s cannot be created: %s", tp, failure)
            self.hosted[tp].offline = True
            self.fetchers.pop(tp, None)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if tp not in self.logs or topic_id != ZERO_UUID:
            self.logs[tp] = topic_id
        return ErrorCode.NONE

    def _remove_strays(self, request: Any, ids: Mapping[str, bytes]) -> None:
        named = {TopicPartition(s.topic_name, s.partition_index) for s in request.partition_states}
        strays = []
        for tp, topic_id in self.logs.items():
            if topic_id == ZERO_UUID:
                raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the log of {tp} has no topic id")
            if tp not in named or ids.get(tp.topic) != topic_id:
                strays.append(tp)
        if strays:
            self._log.info("moving %d stray logs aside, of %s", len(strays), bounded(", ".join(map(str, strays[:20]))))
        for tp in strays:
            self._forget(tp)

    # ---- StopReplica -------------------------------------------------------------------------------------------------

    def stop_replicas(self, correlation_id: int, request: Any) -> dict[TopicPartition, int]:
        """Take a StopReplica; returns a code for each partition.

        Raises:
            Refused: A stale controller epoch (11); Kafka then lists no partitions.
        """
        ends: dict[TopicPartition, None] = {}
        deleted: dict[TopicPartition, None] = {}
        with self.lock:
            self.fence("StopReplica", request, correlation_id)
            self.controller_epoch = request.controller_epoch
            codes: dict[TopicPartition, int] = {
                TopicPartition(p.topic_name, p.partition_index): self._stop(p, ends, deleted)
                for p in request.partition_states
            }
        hooks = self._broker.hooks  # without the lock, in Kafka's order
        if hooks.complete_requests is not None:
            for tp in ends:
                hooks.complete_requests(tp, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if hooks.delete_log is not None:
            for tp in deleted:
                failure = _failure(hooks.delete_log, tp)
                if failure is not None:
                    self._log.error("the log of %s cannot be deleted: %s", tp, failure)
                    codes[tp] = ErrorCode.KAFKA_STORAGE_ERROR
        return codes

    def _stop(self, wanted: Any, ends: dict[TopicPartition, None], deleted: dict[TopicPartition, None]) -> int:
        """Stop a replica; notes whether its waiting requests end, and whether its log is to be deleted."""
        tp = TopicPartition(wanted.topic_name, wanted.partition_index)
        replica = self.hosted.get(tp)
        if replica is not None and replica.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if (
            replica is not None
            and wanted.leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH)
            and wanted.leader_epoch < replica.leader_epoch
        ):
            return ErrorCode.FENCED_LEADER_EPOCH
        self.fetchers.pop(tp, None)
        if wanted.delete_partition:
            has_log = tp in self.logs
            if has_log:
                deleted[tp] = None
            if replica is not None:
                ends[tp] = None
            self._forget(tp)  # before its log is deleted: if it stayed after a failure, every repeat would fail too
        return ErrorCode.NONE

    def take_logs(self, former: BrokerReplicas) -> None:
        """Have the logs of the broker's former start."""
        with former.lock:
            logs = dict(former.logs)
        with self.lock:
            self.logs.update(logs)

    def take_isr(self, tp: TopicPartition, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Take over an ISR that was stored, unless the leader has changed since; the caller holds the lock."""
        replica = self.hosted.get(tp)
        if (
            replica is not None
            and replica.role == "leader"
            and replica.leader_epoch == leader_epoch
            and replica.partition_epoch < partition_epoch
        ):
            replica.isr, replica.partition_epoch = isr, partition_epoch

    def _forget(self, tp: TopicPartition) -> None:
        self.hosted.pop(tp, None)
        self.logs.pop(tp, None)
        self.fetchers.pop(tp, None)


guards_calls(BrokerReplicas, "lock", "fence", "take_isr", "_forget")
guards_changes(BrokerReplicas, "lock", "controller_epoch", "fetchers", "hosted", "logs")


class EmbeddedBroker:
    """A broker that serves the control plane, and producers and consumers if it is given ``records``.

    Args:
        broker_epoch: The epoch of its registration in ZooKeeper (the znode's czxid).
        cluster_id: The cluster id in Metadata answers.
        kraft_epoch: The epoch of its registration with a KRaft controller, where a migration is enabled.
        zookeeper_mode: False for a KRaft broker, which should never receive the three control requests.
        features: The features that the broker announces.
        hooks: The owner's callables.
        updates: The decoded UpdateMetadata requests that the brokers of a process share.

    Attributes:
        records: Serves the clients of records and groups; None if the broker answers no such client.
        cluster_controller: Serves requests to the controller where no hook does; None if there is no such controller.
        failures: What hooks and handlers have raised, the first hundred; the brokers of a cluster share the list.
    """

    _MOST_FAILURES = 100

    def __init__(
        self,
        broker_id: int,
        *,
        broker_epoch: int = 0,
        cluster_id: str = "kproto",
        kraft_epoch: int | None = None,
        zookeeper_mode: bool = True,
        features: Features | None = None,
        hooks: BrokerHooks | None = None,
        updates: SharedUpdates | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.cluster_id = cluster_id
        self.kraft_epoch = kraft_epoch
        self.zookeeper_mode = zookeeper_mode
        self.features = features or Features()
        self.hooks = hooks or BrokerHooks()
        self.records: RecordApis | None = None
        self.cluster_controller: ClusterController | None = None
        self.failures: list[BaseException] = []
        self.metadata = MetadataCache(broker_id, migration_enabled=self.migration_enabled, updates=updates)
        self.replicas = BrokerReplicas(self)

    @property
    def controller_apis(self) -> ControllerApis | None:
        """Serves requests to the controller: the hook, or the cluster's controller."""
        return self.cluster_controller if self.hooks.controller is None else self.hooks.controller

    @property
    def controller_keys(self) -> Set[int]:
        """The API keys that ``controller_apis`` serves; every broker of a fleet has some."""
        apis = self.controller_apis
        return frozenset() if apis is None else apis.keys

    def settings(self, entity: str) -> Mapping[str, str]:
        """The settings of an entity, such as "topics/orders": the hook's, or the cluster's controller's."""
        if self.hooks.settings is not None:
            return self.hooks.settings(entity)
        return {} if self.cluster_controller is None else self.cluster_controller.settings(entity)

    def note_failure(self, error: BaseException) -> None:
        """Keep what a hook or a handler has raised, for the owner to look at."""
        if len(self.failures) < self._MOST_FAILURES:
            self.failures.append(error)

    @property
    def announced_keys(self) -> Set[int]:
        """The API keys that the broker announces besides those that every embedded broker serves."""
        passed_on = self.hooks.passed_on
        records: Set[int] = frozenset() if self.records is None else self.records.keys
        return self.controller_keys | records | (frozenset() if passed_on is None else passed_on.keys)

    @property
    def is_led_by_kraft(self) -> bool:
        """Whether the broker's controller is a KRaft controller."""
        controller = self.metadata.snapshot.controller
        return controller is not None and controller.is_kraft

    @property
    def epoch_for_controller(self) -> int:
        """The epoch of the broker's registration with its controller."""
        return self.kraft_epoch if self.is_led_by_kraft and self.kraft_epoch is not None else self.broker_epoch

    @property
    def migration_enabled(self) -> bool:
        """Whether the broker takes part in a migration to KRaft."""
        return self.kraft_epoch is not None

    def is_stale(self, request_epoch: int, *, is_kraft: bool) -> bool:
        """Whether a request is for an earlier registration of this broker.

        -1 is never stale, and a larger epoch is accepted: the controller may know of a registration before the broker.

        Raises:
            IllegalState: A KRaft controller sent the request, but this broker is not registered with it.
        """
        if request_epoch == NO_BROKER_EPOCH:
            return False
        if is_kraft:
            if self.kraft_epoch is None:
                raise IllegalState("a KRaft controller's request, but migration to KRaft is not enabled here")
            return request_epoch < self.kraft_epoch
        return request_epoch < self.broker_epoch
