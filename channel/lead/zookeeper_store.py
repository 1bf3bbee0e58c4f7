"""The controller's store in ZooKeeper: reads in pipelined batches, fenced writes, watches that become events."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from channel.errors import BadVersion, NodeExists, NoNode, ZooKeeperError
from channel.logs import bounded, get_logger
from channel.types import is_topic_name
from channel.zookeeper import znodes
from channel.zookeeper.cluster_state import fenced, fenced_together, read_settings
from channel.zookeeper.session import Create, Delete, SetData
from channel.zookeeper.znodes import decoded_or_none

from .events import (
    BrokerChange,
    BrokerModifications,
    ConfigChangeNotification,
    IsrChangeNotification,
    LogDirEventNotification,
    PartitionModifications,
    PartitionReassignmentIsrChange,
    PreferredReplicaLeaderElection,
    TopicChange,
    TopicDeletion,
    ZkPartitionReassignment,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set

    from channel.types import Broker, LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
    from channel.zookeeper.session import Operation, Transaction, ZooKeeperSession
    from channel.zookeeper.znodes import TopicZnode
    from kproto.types import TopicPartition

    from .events import ControllerEvent

_log = get_logger(__name__)

_SETTLING_S: Final = 0.05
"""The time between the first change of the registered brokers and its event.

Sessions that expire together end one after the other, some ms apart: one event for all of them saves the requests that
each would cause to every broker.
"""

_FEATURES: Final = b'{"features":{},"version":2,"status":1}'
"""The contents of the znode of features where a controller is the first that knows it."""

_KNOWN_STATES: Final = 1_000
"""The number of partition states whose contents a read keeps, so as to decode equal contents once."""

StateWrite: TypeAlias = int | str | None
"""The result of writing one partition's state: the znode's new version; or the reason of a failure; or None.

None is a conflict: the znode has another version than the write expected, exists already or does not exist, so that its
state has to be read again.
"""

_T = TypeVar("_T")


class ConfigChanges(NamedTuple):
    """The latest notifications of changed settings.

    Attributes:
        last: The number of the latest notification; -1 if there is none.
        topics: The topics that the new notifications name.
        of_default: Whether a new notification names the default of all brokers.
    """

    last: int
    topics: tuple[str, ...] = ()
    of_default: bool = False


class ZooKeeperStore:
    """The controller's access to the cluster's durable state in ZooKeeper; called on the event thread only.

    A read also watches its znodes if the controller has an event for their changes: the children of
    broker ids, topics, deletions and notifications, the data of each broker id and of each topic, the znodes of
    reassignments and preferred elections. Every change of such a znode after the read becomes an event. Calls about
    many znodes are pipelined. A znode with contents that Kafka would not write there is logged and ignored, as if it
    were missing.

    Every method raises ``ChannelError`` if ZooKeeper cannot be reached; every write raises ``ControllerMoved``, and
    changes nothing, if another controller has been elected since.

    Args:
        session: The session; its expiry ends the watches, which the next controller's reads begin again.
        put: Takes the events of watches, on a thread of the session's.
        fence: The version of ``/controller_epoch`` that the controller was elected with.
    """

    def __init__(self, session: ZooKeeperSession, put: Callable[[ControllerEvent], object], fence: int) -> None:
        self.fence = fence
        self._session = session
        self._put_at_once = put
        self._watched: set[str] = set()
        self._settling: threading.Timer | None = None

    def unwatch(self) -> None:
        """End all watches, as the controller resigns."""
        if self._settling is not None:
            self._settling.cancel()
        for path in list(self._watched):
            self._unwatch(path)

    def _unwatch(self, path: str) -> None:
        self._watched.discard(path)
        self._session.unwatch(path)

    def _brokers_changed(self) -> None:
        """Put the event once all brokers that come or go together have done so, or before a later event of a watch."""
        self._settling = threading.Timer(_SETTLING_S, self._put_at_once, [BrokerChange()])
        self._settling.name, self._settling.daemon = "controller-brokers-settling", True
        try:
            self._settling.start()
        except RuntimeError:  # the system gives no thread for the pause
            self._settling = None
            self._put_at_once(BrokerChange())

    def _put(self, event: ControllerEvent) -> None:
        """Put the event of a watch, after the change of the brokers that came before it.

        A topic is thus created over all brokers that were registered before it was.
        """
        settling = self._settling
        if settling is not None and not settling.finished.is_set():
            settling.cancel()
            self._put_at_once(BrokerChange())  # a second one, if the timer has just put it too, finds nothing changed
        self._put_at_once(event)

    def _watched_children(
        self, path: str, event: ControllerEvent, changed: Callable[[], object] | None = None
    ) -> list[str]:
        """Read the names of the children of a permanent znode, and watch these; a missing znode is created again."""
        self._watched.add(path)
        self._session.watch_children(path, changed or (lambda: self._put(event)))
        try:
            return self._session.children(path)
        except NoNode:
            _log.error("ZooKeeper has no %s; somebody has deleted this znode, and it is created again", path)
            self._session.ensure(path)
            return self._session.children(path)

    def _watch(self, path: str, changed: Callable[[], object]) -> None:
        self._watched.add(path)
        self._session.watch_node(path, changed)

    def _watch_node(self, path: str, event: ControllerEvent) -> None:
        self._watch(path, lambda: self._put(event))

    # ---- brokers

    def _watch_broker(self, broker_id: int) -> None:
        """Watch a registration; its end changes the children too, and is not put before the others that go with it."""
        self._watch(znodes.broker_path(broker_id), lambda: self._put_at_once(BrokerModifications(broker_id)))

    def create_features(self) -> None:
        """Create the znode of features, which brokers of 2.7 and newer read, if there is none."""
        raise_error(fenced(self._session, self.fence, [Create(znodes.FEATURE, _FEATURES)]), NodeExists)

    def read_brokers(self) -> Mapping[Broker, int]:
        """All registered brokers with their epochs."""
        names = self._watched_children(znodes.BROKER_IDS, BrokerChange(), self._brokers_changed)
        ids = [broker_id for name in names if (broker_id := decoded_or_none(znodes.decode_broker_id, name)) is not None]
        for broker_id in ids:
            self._watch_broker(broker_id)
        brokers = {}
        for broker_id, found in zip(
            ids, self._session.get_many([znodes.broker_path(broker_id) for broker_id in ids]), strict=True
        ):
            broker = None if found is None else decoded_or_none(znodes.decode_broker, broker_id, found[0])
            if found is not None and broker is not None:
                brokers[broker] = found[1].czxid
        return brokers

    def read_broker(self, broker_id: int) -> Broker | None:
        """The registration of one broker, None if there is none."""
        path = znodes.broker_path(broker_id)
        self._watch_broker(broker_id)
        found = self._session.get_many([path])[0]
        if found is None:
            self._unwatch(path)  # the broker's return is a change of the children
            return None
        return decoded_or_none(znodes.decode_broker, broker_id, found[0])

    # ---- topics

    def read_topics(self) -> Set[str]:
        """The names of all topics."""
        names = self._watched_children(znodes.TOPICS, TopicChange())
        topics = {name for name in names if is_topic_name(name)}
        if len(topics) < len(names):
            _log.error(
                "%s has children that are no names of topics; they are passed over, delete them: %s",
                znodes.TOPICS, bounded([name for name in names if name not in topics]),
            )  # fmt: skip
        return topics

    def read_assignments(self, topics: Collection[str]) -> Mapping[str, TopicZnode]:
        """The assignments of those topics that exist."""
        names = list(topics)
        for topic in names:
            self._watch_node(znodes.topic_path(topic), PartitionModifications(topic))
        assignments = {}
        known: dict[ReplicaAssignment, ReplicaAssignment] = {}  # partitions with the same replicas share one object
        for topic, found in zip(
            names, self._session.get_many([znodes.topic_path(topic) for topic in names]), strict=True
        ):
            if found is None:
                self._unwatch(znodes.topic_path(topic))
                continue
            contents = decoded_or_none(znodes.decode_topic, topic, found[0])
            if contents is not None:
                partitions = {p: known.setdefault(each, each) for p, each in contents.partitions.items()}
                assignments[topic] = contents._replace(partitions=partitions)
        return assignments

    def write_assignment(self, topic: str, assignment: TopicZnode) -> bool:
        """Replace the assignment of a topic; False if the topic does not exist."""
        data = znodes.encode_topic(assignment.partitions, assignment.topic_id)
        outcome = fenced(self._session, self.fence, [SetData(znodes.topic_path(topic), data)])
        if isinstance(outcome.error, NoNode):
            return False
        raise_error(outcome)
        return True

    def read_topic_configs(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """The settings of topics that differ from the brokers' defaults; a topic without any may be left out."""
        names = list(topics)
        paths = [f"{znodes.TOPIC_CONFIGS}/{topic}" for topic in names]
        settings = {}
        for topic, path, found in zip(names, paths, self._session.get_many(paths), strict=True):
            config = None if found is None else decoded_or_none(znodes.decode_config, path, found[0])
            if config is not None:
                settings[topic] = config
        return settings

    def read_default_config(self) -> Mapping[str, str]:
        """The settings of all brokers that were changed while they run."""
        return read_settings(self._session, "brokers/<default>")

    def read_config_changes(self, after: int | None) -> ConfigChanges:
        """The notifications with a higher number than ``after``; for None the latest number alone."""
        names = self._watched_children(znodes.CONFIG_CHANGES, ConfigChangeNotification())
        numbers = {int(name[-10:]): name for name in names if _numbered(name)}
        last = max(numbers, default=-1 if after is None else after)
        new = [] if after is None else sorted(number for number in numbers if number > after)
        paths = [f"{znodes.CONFIG_CHANGES}/{numbers[number]}" for number in new]
        entities = [
            decoded_or_none(znodes.decode_config_change, path, found[0])
            for path, found in zip(paths, self._session.get_many(paths), strict=True)
            if found is not None
        ]
        topics = [name for kind, _, name in (e.partition("/") for e in entities if e is not None) if kind == "topics"]
        return ConfigChanges(last, tuple(dict.fromkeys(topics)), "brokers/<default>" in entities)

    def delete_topics(self, topics: Collection[str]) -> None:
        """Delete all znodes of topics: a topic's own with those below it, its configuration, last its marker."""
        level = [znodes.topic_path(topic) for topic in topics]
        for path in level:
            self._unwatch(path)
        below: dict[str, list[str]] = {path: [path] for path in level}
        owners = level
        while level:
            names = self._session.children_of_many(level)
            found = [
                (owner, f"{parent}/{name}")
                for owner, parent, children in zip(owners, level, names, strict=True)
                for name in children or ()
            ]
            for owner, path in found:
                below[owner].append(path)
            owners, level = [owner for owner, _ in found], [path for _, path in found]
        configs = [f"{znodes.TOPIC_CONFIGS}/{topic}" for topic in topics]
        are_there = self._session.exists_many(configs)
        paths: list[str] = []
        for topic, config, is_there in zip(topics, configs, are_there, strict=True):
            paths += reversed(below[znodes.topic_path(topic)])
            paths += [config] if is_there else []
            paths.append(f"{znodes.ADMIN_DELETE_TOPICS}/{topic}")
        self._delete(paths)

    # ---- partition states

    def read_partition_states(
        self, partitions: Collection[TopicPartition], *, watch: bool = False
    ) -> Mapping[TopicPartition, LeaderIsrAndControllerEpoch]:
        """The states of those partitions that have one; the partition epoch is the version of the znode.

        Args:
            watch: Watch the znodes: a change becomes ``PartitionReassignmentIsrChange``.
        """
        paths = map(znodes.partition_state_path, partitions)
        if watch:
            watched = list(paths)
            for tp, path in zip(partitions, watched, strict=True):
                self._watch_once(path, PartitionReassignmentIsrChange(tp))
        read = self._session.get_many(watched) if watch else self._session.get_unwatched(paths)
        states: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        known: dict[tuple[bytes, int], LeaderIsrAndControllerEpoch] = {}  # equal znodes share one state
        for tp, found in zip(partitions, read, strict=True):
            if found is None:
                continue
            contents = found[0], found[1].version
            state = known.get(contents) or decoded_or_none(znodes.decode_partition_state, tp, *contents)
            if state is not None:
                if len(known) == _KNOWN_STATES:
                    known.clear()
                states[tp] = known[contents] = state
        return states

    def _watch_once(self, path: str, event: ControllerEvent) -> None:
        """Watch a znode until its next change only: other reads do not watch the znode again."""

        def changed() -> None:
            self._unwatch(path)
            self._put(event)

        self._watch(path, changed)

    def create_partition_states(
        self, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch]
    ) -> Mapping[TopicPartition, StateWrite]:
        """Create the states of new partitions, with the znodes above them.

        A state that exists already counts as written if it is the one to be created, of this controller epoch: its
        first request arrived, and the connection was lost before the answer.
        """
        # An earlier controller may have created the znodes above, and ended before it wrote the state.
        above = dict.fromkeys(f"{znodes.topic_path(tp.topic)}/partitions" for tp in states)
        above.update(dict.fromkeys(znodes.partition_path(tp) for tp in states))
        missing = [path for path, found in zip(above, self._session.get_unwatched(above), strict=True) if found is None]
        if missing:
            for outcome in fenced_together(self._session, self.fence, [[Create(path)] for path in missing]):
                raise_error(outcome, NodeExists, NoNode)
        operations: list[list[Operation]] = [
            [Create(znodes.partition_state_path(tp), znodes.encode_partition_state(*state))]
            for tp, state in states.items()
        ]
        written = fenced_together(self._session, self.fence, operations)
        writes = {tp: _state_write(outcome, 0) for tp, outcome in zip(states, written, strict=True)}
        exist = [tp for tp, write in writes.items() if write is None]
        for tp, state in self.read_partition_states(exist).items() if exist else ():
            if state == states[tp]:
                writes[tp] = 0
        return writes

    def update_partition_states(
        self, states: Mapping[TopicPartition, LeaderAndIsr], controller_epoch: int
    ) -> Mapping[TopicPartition, StateWrite]:
        """Replace states; each write expects the znode's version to be the state's ``partition_epoch``."""
        operations: list[list[Operation]] = [
            [
                SetData(
                    znodes.partition_state_path(tp),
                    znodes.encode_partition_state(state, controller_epoch),
                    state.partition_epoch,
                )
            ]
            for tp, state in states.items()
        ]
        written = fenced_together(self._session, self.fence, operations)
        return {
            tp: _state_write(outcome, state.partition_epoch + 1)
            for (tp, state), outcome in zip(states.items(), written, strict=True)
        }

    # ---- requests of administrators

    def read_topic_deletions(self) -> Set[str]:
        """The topics that are marked for deletion."""
        return set(self._watched_children(znodes.ADMIN_DELETE_TOPICS, TopicDeletion()))

    def check_leadership(self) -> None:
        """Write nothing, but raise ``ControllerMoved`` as a write would."""
        fenced(self._session, self.fence, [])

    def read_reassignments(self, *, watch: bool = True) -> Mapping[TopicPartition, tuple[int, ...]]:
        """The target replicas in ``/admin/reassign_partitions``; empty without the znode.

        Args:
            watch: Watch the znode: a change becomes ``ZkPartitionReassignment``.
        """
        if watch:
            self._watch_node(znodes.REASSIGN_PARTITIONS, ZkPartitionReassignment())
            found = self._session.get_many([znodes.REASSIGN_PARTITIONS])[0]
        else:
            found = next(self._session.get_unwatched([znodes.REASSIGN_PARTITIONS]))
        return (found and decoded_or_none(znodes.decode_reassignments, found[0])) or {}

    def write_reassignments(self, reassignments: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Replace the content of ``/admin/reassign_partitions``; the znode is deleted if there is none left."""
        path = znodes.REASSIGN_PARTITIONS
        if not reassignments:
            self._delete([path])
            return
        data = znodes.encode_reassignments(reassignments)
        outcome = fenced(self._session, self.fence, [SetData(path, data)])
        if isinstance(outcome.error, NoNode):
            outcome = fenced(self._session, self.fence, [Create(path, data)])
        raise_error(outcome)

    def read_preferred_elections(self) -> Set[TopicPartition]:
        """The partitions in ``/admin/preferred_replica_election``; empty without the znode."""
        self._watch_node(znodes.PREFERRED_ELECTION, PreferredReplicaLeaderElection())
        found = self._session.get_many([znodes.PREFERRED_ELECTION])[0]
        return set((found and decoded_or_none(znodes.decode_partitions, znodes.PREFERRED_ELECTION, found[0])) or ())

    def delete_preferred_elections(self) -> None:
        """Delete ``/admin/preferred_replica_election``; its next creation becomes an event."""
        self._delete([znodes.PREFERRED_ELECTION])

    # ---- notifications of brokers

    def read_isr_changes(self) -> tuple[list[str], list[TopicPartition]]:
        """The ISR changes that brokers below inter.broker.protocol.version 2.7-IV2 have written themselves.

        Returns:
            The names of the notifications, and the partitions that they name.
        """
        names, lists = self._notifications(znodes.ISR_CHANGES, IsrChangeNotification(), znodes.decode_partitions)
        return names, list(dict.fromkeys(itertools.chain.from_iterable(lists)))

    def read_log_dir_failures(self) -> tuple[list[str], list[int]]:
        """The names of the notifications of failed log directories, and the brokers that they name."""
        names, brokers = self._notifications(
            znodes.LOG_DIR_EVENTS, LogDirEventNotification(), znodes.decode_log_dir_event
        )
        return names, list(dict.fromkeys(brokers))

    def _notifications(
        self, parent: str, event: ControllerEvent, decode: Callable[[str, bytes], _T]
    ) -> tuple[list[str], list[_T]]:
        """Read the children of a znode: the names of those that are still there, and the contents that are valid."""
        names = self._watched_children(parent, event)
        found = self._session.get_many([f"{parent}/{name}" for name in names])
        read = {name: each[0] for name, each in zip(names, found, strict=True) if each is not None}
        contents = [decoded_or_none(decode, f"{parent}/{name}", data) for name, data in read.items()]
        return list(read), [each for each in contents if each is not None]

    def delete_children(self, parent: str, names: Iterable[str]) -> None:
        """Delete children of a znode: notifications or markers of deleted topics; missing ones are passed over."""
        self._delete([f"{parent}/{name}" for name in names])

    def _delete(self, paths: Sequence[str]) -> None:
        """Delete znodes in their order, and ignore missing znodes."""
        for outcome in fenced_together(self._session, self.fence, [[Delete(path)] for path in paths]):
            raise_error(outcome, NoNode)


def _numbered(name: str) -> bool:
    """Whether a znode has a sequence number: ten digits at its end."""
    return name[-10:].isdecimal() and len(name) > 10


def raise_error(outcome: Transaction, *expected: type[ZooKeeperError]) -> None:
    """Raise the error of a write, unless it is an expected one."""
    if outcome.error is not None and not isinstance(outcome.error, expected):
        raise outcome.error


def _state_write(outcome: Transaction, partition_epoch: int) -> StateWrite:
    match outcome.error:
        case None:
            return partition_epoch
        case BadVersion() | NodeExists() | NoNode():
            return None
        case error:
            return str(error)
