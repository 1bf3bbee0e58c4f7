"""The controller's answers to brokers and administrators about topics, partitions and producer ids."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from channel.errors import BadVersion, NodeExists, NodeTooLarge
from channel.logs import get_logger
from channel.types import ReplicaAssignment, is_topic_name, random_uuid
from channel.zookeeper import znodes
from channel.zookeeper.cluster_state import fenced, fenced_together
from channel.zookeeper.operations import Create, SetData
from kproto import messages
from kproto.api import ApiKey, ibp_at_least
from kproto.error_codes import ErrorCode

from .api_requests import RequestRejected
from .cluster_events import PartitionModifications, TopicChange, TopicDeletion
from .store import TopicAssignment
from .topic_settings import check_topic_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel.config import ChannelConfig
    from channel.zookeeper.operations import Operation
    from channel.zookeeper.session import ZooKeeperSession
    from kproto.types import Uuid

    from .api_requests import ApiRequest
    from .context import ControllerContext
    from .events import ControllerEvent
    from .zookeeper_store import ZooKeeperStore


_log = get_logger(__name__)

_BLOCK: Final = 1000
"""The number of producer ids in a broker's block, as in Kafka."""

_ATTEMPTS: Final = 10
_LARGE_TOPIC: Final = 128 << 10
"""The size of a topic's znode, in bytes, from which it is written alone."""

_LAST_PRODUCER_ID: Final = (1 << 63) - 1


class _NewTopic(NamedTuple):
    partitions: dict[int, ReplicaAssignment]
    config: dict[str, str]


class Administration:
    """Answers brokers and administrators for an elected controller; on the event thread only.

    Args:
        context: The controller's knowledge.
        store: The durable state.
        session: The ZooKeeper session, for znodes that the store does not handle.
        config: Gives ``default.replication.factor`` and ``num.partitions`` for requests without them.
        process: Processes the events of topic changes, before the answer goes out.
        controller_id: The controller's broker id.
        without_storage: The brokers that keep no records: they get no replicas.
    """

    def __init__(
        self,
        context: ControllerContext,
        store: ZooKeeperStore,
        session: ZooKeeperSession,
        config: ChannelConfig,
        process: Callable[[ControllerEvent], object],
        controller_id: int,
        *,
        without_storage: frozenset[int] = frozenset(),
    ) -> None:
        self._context = context
        self._store = store
        self._session = session
        self._config = config
        self._process = process
        self._controller_id = controller_id
        self._without_storage = without_storage
        self._own_ids = range(0)
        self._has_topic_ids = ibp_at_least(config.inter_broker_protocol_version, "2.8-IV0")

    def answer(self, event: ApiRequest) -> Any:
        """The response to a request.

        Raises:
            ControllerMoved: Another controller was elected.
        """
        match event.api_key:
            case ApiKey.CREATE_TOPICS:
                return self._create_topics(event.request)
            case ApiKey.CREATE_PARTITIONS:
                return self._create_partitions(event.request)
            case ApiKey.DELETE_TOPICS:
                return self._delete_topics(event.request)
            case ApiKey.ALLOCATE_PRODUCER_IDS:
                return self._allocate_producer_ids(event.request)
            case ApiKey.INIT_PRODUCER_ID:
                return self._init_producer_id(event.request)
        raise ValueError(f"the controller does not serve API {event.api_key}")

    # ---- CreateTopics

    def _create_topics(self, request: Any) -> Any:
        asked = Counter(topic.name for topic in request.topics)
        alike = {_name_in_metrics(known): known for known in self._context.all_topics}
        new: dict[str, _NewTopic] = {}
        outcomes: dict[str, Uuid | RequestRejected] = {}
        for name, topic in {each.name: each for each in request.topics}.items():
            try:
                _check_named_once(asked[name])
                self._check_name(name, alike)
                new[name] = self._new_topic(topic)
                outcomes[name] = bytes(16)
            except RequestRejected as e:
                outcomes[name] = e
            else:
                if not request.validate_only:
                    alike[_name_in_metrics(name)] = name
        if not request.validate_only:
            outcomes |= self._write_topics(new)
            self._process(TopicChange())
        return messages.CreateTopicsResponse(
            topics=[
                messages.CreatableTopicResult(name=name, error_code=outcome.code, error_message=str(outcome))
                if isinstance(outcome, RequestRejected)
                else messages.CreatableTopicResult(
                    name=name,
                    topic_id=outcome,
                    num_partitions=len(new[name].partitions),
                    replication_factor=len(new[name].partitions[0].replicas),
                    configs=[],
                )
                for name, outcome in outcomes.items()
            ]
        )

    def _new_topic(self, topic: Any) -> _NewTopic:
        config = {each.name: each.value for each in topic.configs}
        if None in config.values():
            raise RequestRejected(ErrorCode.INVALID_CONFIG, "a setting has no value")
        if reason := check_topic_settings(config):
            raise RequestRejected(ErrorCode.INVALID_CONFIG, reason)
        if topic.assignments:
            if topic.num_partitions != -1 or topic.replication_factor != -1:
                raise RequestRejected(
                    ErrorCode.INVALID_REQUEST, "with assignments the partition and replica counts have to be -1"
                )
            return _NewTopic(self._given({a.partition_index: tuple(a.broker_ids) for a in topic.assignments}), config)
        partitions = self._config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        if partitions <= 0:
            raise RequestRejected(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions; there must be 1 at least")
        factor = topic.replication_factor
        factor = self._config.default_replication_factor if factor == -1 else factor
        brokers = self._storing_brokers()
        if not 0 < factor <= len(brokers):
            raise RequestRejected(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{factor} replicas, and {len(brokers)} live brokers to hold them; there can be 1 for each broker",
            )
        placed = place_replicas(brokers, range(partitions), factor)
        return _NewTopic({p: ReplicaAssignment(replicas) for p, replicas in placed.items()}, config)

    def _check_name(self, name: str, alike: Mapping[str, str]) -> None:
        """Refuse a topic's name that is wrong or taken; ``alike`` has the known topics by their names in metrics."""
        if not is_topic_name(name):
            raise RequestRejected(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                "a topic's name has 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'",
            )
        if name in self._context.all_topics:
            raise RequestRejected(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if known := alike.get(_name_in_metrics(name)):
            raise RequestRejected(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name} collides with {known}: metrics do not tell '.' from '_'",
            )

    def _storing_brokers(self) -> dict[int, str | None]:
        """The live brokers that can have replicas, and their racks."""
        live = self._context.live_broker_ids - self._without_storage
        return {broker.id: broker.rack for broker in self._context.live_or_shutting_down_brokers if broker.id in live}

    def _given(self, assignment: Mapping[int, tuple[int, ...]]) -> dict[int, ReplicaAssignment]:
        """Check and return the assignment that the request names."""
        if sorted(assignment) != list(range(len(assignment))):
            raise RequestRejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions have to be numbered from 0 without gaps"
            )
        sizes = {len(replicas) for replicas in assignment.values()}
        known = self._context.live_broker_ids
        for partition, replicas in assignment.items():
            if not replicas or len(set(replicas)) != len(replicas) or len(sizes) > 1:
                raise RequestRejected(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"partition {partition} has replicas {list(replicas)}; partitions have equally many, each once",
                )
            if unknown := sorted(set(replicas) - known):
                raise RequestRejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is no live broker {unknown[0]}")
            if empty := sorted(self._without_storage.intersection(replicas)):
                raise RequestRejected(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {empty[0]} keeps no records and gets no replicas"
                )
        return {p: ReplicaAssignment(assignment[p]) for p in sorted(assignment)}

    def _write_topics(self, new: Mapping[str, _NewTopic]) -> dict[str, Uuid | RequestRejected]:
        """Write topics' configurations and assignments, pipelined; gives their ids, all zero before topic ids existed.

        ZooKeeper ends the connection at a znode above its limit, and requests after it are lost and sent again: a
        large topic is written alone.
        """
        ids = {name: random_uuid() if self._has_topic_ids else None for name in new}
        contents = {name: znodes.encode_topic(topic.partitions, ids[name]) for name, topic in new.items()}
        small = [name for name, data in contents.items() if len(data) < _LARGE_TOPIC]
        outcomes: dict[str, Uuid | RequestRejected] = {}
        for names in (small, *([name] for name in contents if len(contents[name]) >= _LARGE_TOPIC)):
            try:
                written = self._create_znodes({name: (new[name].config, contents[name]) for name in names})
            except NodeTooLarge as e:
                outcomes[names[0]] = RequestRejected(ErrorCode.INVALID_PARTITIONS, str(e))
                continue
            for name, is_new in written.items():
                if is_new:
                    _log.info("created topic %s with %d partitions", name, len(new[name].partitions))
                    outcomes[name] = ids[name] or bytes(16)
                else:
                    outcomes[name] = RequestRejected(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        return outcomes

    def _create_znodes(self, topics: Mapping[str, tuple[Mapping[str, str], bytes]]) -> dict[str, bool]:
        """Create the znodes of topics, whose settings and contents are given; False for those that exist already."""
        paths = {name: (f"{znodes.TOPIC_CONFIGS}/{name}", znodes.topic_path(name)) for name in topics}
        configs = self._session.get_unwatched([config for config, _ in paths.values()])
        writes: list[list[Operation]] = []
        for (config, topic), (settings, contents), known in zip(paths.values(), topics.values(), configs, strict=True):
            data = znodes.encode_config(settings)
            # There may be one, left by a topic whose creation or deletion was not finished.
            write: Operation = Create(config, data) if known is None else SetData(config, data)
            writes.append([write, Create(topic, contents)])
        written = {}
        outcomes = fenced_together(self._session, self._context.epoch_zk_version, writes)
        for (name, (_, contents)), outcome in zip(topics.items(), outcomes, strict=True):
            if outcome.error is not None and not isinstance(outcome.error, NodeExists):
                raise outcome.error
            # A write whose answer was lost with the connection is sent again, and meets its own znodes.
            written[name] = outcome.error is None or self._is_written(paths[name][1], contents)
        return written

    def _is_written(self, path: str, contents: bytes) -> bool:
        found = self._session.get_many([path])[0]
        return self._has_topic_ids and found is not None and found[0] == contents

    # ---- CreatePartitions

    def _create_partitions(self, request: Any) -> Any:
        asked = Counter(topic.name for topic in request.topics)
        results = []
        for topic in {each.name: each for each in request.topics}.values():
            try:
                _check_named_once(asked[topic.name])
                self._add_partitions(topic, request.validate_only)
                results.append(messages.CreatePartitionsTopicResult(name=topic.name))
            except RequestRejected as e:
                results.append(
                    messages.CreatePartitionsTopicResult(name=topic.name, error_code=e.code, error_message=str(e))
                )
            except NodeTooLarge as e:
                code = ErrorCode.INVALID_PARTITIONS
                results.append(
                    messages.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=str(e))
                )
        return messages.CreatePartitionsResponse(results=results)

    def _add_partitions(self, topic: Any, validate_only: bool) -> None:
        name, context = topic.name, self._context
        found = self._store.read_assignments([name]).get(name) if name in context.all_topics else None
        if found is None or name in context.topics_to_be_deleted:
            raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        known = found.partitions
        if any(assignment.is_being_reassigned for assignment in known.values()):
            raise RequestRejected(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"partitions of {name} are being reassigned")
        new = range(len(known), topic.count)
        if not new:
            raise RequestRejected(ErrorCode.INVALID_PARTITIONS, f"topic {name} has {len(known)} partitions already")
        factor = len(known[0].replicas)
        brokers = self._storing_brokers()
        if topic.assignments is None:
            if factor > len(brokers):
                raise RequestRejected(
                    ErrorCode.INVALID_REPLICATION_FACTOR, f"{factor} replicas, and {len(brokers)} live brokers"
                )
            leader = known[0].replicas[0]
            placed = place_replicas(brokers, new, factor, first=leader if leader in brokers else None)
        else:
            if len(topic.assignments) != len(new):
                raise RequestRejected(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{len(new)} partitions are new, and {len(topic.assignments)} assignments are given",
                )
            given = self._given({i: tuple(each.broker_ids) for i, each in enumerate(topic.assignments)})
            placed = {new[i]: assignment.replicas for i, assignment in given.items()}
        if validate_only:
            return
        partitions = {**known, **{p: ReplicaAssignment(replicas) for p, replicas in placed.items()}}
        self._store.write_assignment(name, TopicAssignment(partitions, found.topic_id), context.epoch_zk_version)
        self._process(PartitionModifications(name))

    # ---- DeleteTopics

    def _delete_topics(self, request: Any) -> Any:
        wanted: list[tuple[str | None, Uuid]] = [(name, bytes(16)) for name in request.topic_names]
        wanted += [(topic.name, topic.topic_id) for topic in request.topics]
        results = []
        markers: dict[str, Operation] = {}
        for asked_name, topic_id in wanted:
            name = self._context.topic_name(topic_id) if asked_name is None else asked_name
            try:
                known = self._deletable(name, by_id=asked_name is None)
            except RequestRejected as e:
                results.append(
                    messages.DeletableTopicResult(name=name, topic_id=topic_id, error_code=e.code, error_message=str(e))
                )
                continue
            markers[known] = Create(f"{znodes.ADMIN_DELETE_TOPICS}/{known}")
            found = self._context.topic_ids.get(known, bytes(16))
            results.append(messages.DeletableTopicResult(name=known, topic_id=found))
        marked = fenced_together(self._session, self._context.epoch_zk_version, [[each] for each in markers.values()])
        for outcome in marked:
            if outcome.error is not None and not isinstance(outcome.error, NodeExists):
                raise outcome.error
        self._process(TopicDeletion())
        return messages.DeleteTopicsResponse(responses=results)

    def _deletable(self, name: str | None, *, by_id: bool) -> str:
        """Return the name of a topic that may be deleted."""
        if name is None or name not in self._context.all_topics:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise RequestRejected(code, "there is no such topic")
        if not self._config.delete_topic_enable:
            raise RequestRejected(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        return name

    # ---- producer ids

    def _init_producer_id(self, request: Any) -> Any:
        """Give a client an id from the controller's own block; a transactional client has to ask its coordinator."""
        if request.transactional_id is not None:
            return messages.InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR)
        if not self._own_ids:
            block = self._next_block(self._controller_id)
            if block is None:
                return messages.InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._own_ids = range(block.first, block.last + 1)
        producer_id, self._own_ids = self._own_ids[0], self._own_ids[1:]
        return messages.InitProducerIdResponse(producer_id=producer_id)

    def _allocate_producer_ids(self, request: Any) -> Any:
        epoch = self._context.live_broker_id_and_epochs.get(request.broker_id)
        if epoch is None:
            return messages.AllocateProducerIdsResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
        if request.broker_epoch != epoch:
            return messages.AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        block = self._next_block(request.broker_id)
        if block is None:
            return messages.AllocateProducerIdsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return messages.AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=_BLOCK)

    def _next_block(self, broker_id: int) -> znodes.ProducerIdBlock | None:
        """Allocate the next block of producer ids to a broker; None if others keep taking it first, or none is left."""
        path = znodes.PRODUCER_ID_BLOCK
        for _ in range(_ATTEMPTS):
            data, stat = self._session.get(path)
            first = znodes.decode_producer_id_block(data).last + 1 if data else 0
            if first > _LAST_PRODUCER_ID - _BLOCK:
                _log.error("all producer ids are given away")
                return None
            block = znodes.ProducerIdBlock(broker_id, first, first + _BLOCK - 1)
            write = SetData(path, znodes.encode_producer_id_block(block), stat.version)
            outcome = fenced(self._session, self._context.epoch_zk_version, [write])
            if outcome.error is None:
                return block
            if not isinstance(outcome.error, BadVersion):
                raise outcome.error
        return None


def _name_in_metrics(topic: str) -> str:
    """The name of a topic in metrics, which have '_' for '.' too."""
    return topic.replace(".", "_")


def _check_named_once(times: int) -> None:
    if times > 1:
        raise RequestRejected(ErrorCode.INVALID_REQUEST, "the request names the topic more than once")


def place_replicas(
    brokers: Mapping[int, str | None],
    partitions: range,
    replication_factor: int,
    *,
    first: int | None = None,
    draw: random.Random | None = None,
) -> dict[int, tuple[int, ...]]:
    """Place leaders on the brokers in turn, and followers so that one broker's leaders have different followers.

    The replicas of a partition are spread evenly over the racks. If a broker has no rack, racks do not count.

    >>> place_replicas({0: None, 1: None, 2: None}, range(3), 2, first=0)
    {0: (0, 1), 1: (1, 2), 2: (2, 0)}
    >>> place_replicas({0: "a", 1: "a", 2: "b", 3: "b"}, range(2), 2, first=0)
    {0: (0, 2), 1: (2, 1)}

    Args:
        brokers: The brokers to choose from, at least ``replication_factor``, and the rack of each.
        partitions: The numbers of the new partitions.
        replication_factor: The number of replicas of each.
        first: The broker that leads partition 0, and from which followers are counted; drawn if None.
        draw: Draws ``first``.
    """
    draw = draw or random.Random()  # noqa: S311  (placement is no secret)
    racks = (
        {broker: rack or "" for broker, rack in brokers.items()}
        if all(brokers.values())
        else dict.fromkeys(brokers, "")
    )
    ordered = _alternating(racks)
    start = draw.randrange(len(ordered)) if first is None else ordered.index(first)
    shift = draw.randrange(len(ordered)) if first is None else start
    placed = {}
    for partition in partitions:
        leader = (partition + start) % len(ordered)
        others = ordered[leader + 1 :] + ordered[:leader]
        turn = (shift + partition // len(ordered)) % len(others) if others else 0
        placed[partition] = _with_followers(ordered[leader], others[turn:] + others[:turn], replication_factor, racks)
    return placed


def _alternating(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers with alternating racks, as long as each rack has brokers left."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = itertools.zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for each in rounds for broker in each if broker is not None]


def _with_followers(leader: int, others: list[int], count: int, racks: Mapping[int, str]) -> tuple[int, ...]:
    """Return the leader and its followers: the first of the others from racks with the fewest replicas so far."""
    replicas, used = [leader], Counter([racks[leader]])
    while len(replicas) < count:
        follower = min((b for b in others if b not in replicas), key=lambda b: used[racks[b]])
        replicas.append(follower)
        used[racks[follower]] += 1
    return tuple(replicas)
