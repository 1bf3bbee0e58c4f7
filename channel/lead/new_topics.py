"""New topics and partitions as an administrator asks for them: what a controller refuses, and where replicas go."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from channel.errors import ControllerMoved, IllegalState, SessionExpired
from channel.logs import get_logger
from channel.types import TOPIC_NAMES, is_topic_name
from kproto import messages
from kproto.error_codes import ErrorCode
from kproto.types import ZERO_UUID

from .topic_settings import check_topic_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence, Set

    from channel.send.context import ControllerContext

_log = get_logger(__name__)


class RequestRejected(Exception):
    """A part of a request, such as one topic, is answered with an error.

    Attributes:
        code: The error; its text is the exception's.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class NewTopic(NamedTuple):
    """A topic that can be made.

    Attributes:
        replicas: The replicas of each partition, the leader first.
        config: The topic's settings.
    """

    replicas: dict[int, tuple[int, ...]]
    config: dict[str, str]


class ReplicaBrokers(NamedTuple):
    """The live brokers, on which replicas may be placed.

    Attributes:
        racks: The rack of each live broker.
        without_storage: The ids of those that keep no records, and get no replicas.
    """

    racks: Mapping[int, str | None]
    without_storage: Set[int] = frozenset()

    @property
    def storing(self) -> dict[int, str | None]:
        """The brokers that can have replicas, and their racks."""
        return {broker: rack for broker, rack in self.racks.items() if broker not in self.without_storage}


def new_topics(
    request: Any, known: Collection[str], brokers: ReplicaBrokers, num_partitions: int, replication_factor: int
) -> dict[str, NewTopic | RequestRejected]:
    """Place the replicas of each topic of a CreateTopics request; a topic that cannot be made has its error instead.

    Args:
        known: The names of the topics that there are.
        num_partitions, replication_factor: What a topic has whose request leaves it to the controller.
    """
    asked = Counter(topic.name for topic in request.topics)
    alike = {name_in_metrics(name): name for name in known}
    found: dict[str, NewTopic | RequestRejected] = {}
    for name, topic in {each.name: each for each in request.topics}.items():
        try:
            check_named_once(asked[name])
            check_topic_name(name, known, alike)
            found[name] = new_topic(topic, brokers, num_partitions, replication_factor)
        except RequestRejected as e:
            found[name] = e
        else:
            if not request.validate_only:
                alike[name_in_metrics(name)] = name
    return found


def new_topic(topic: Any, brokers: ReplicaBrokers, num_partitions: int, replication_factor: int) -> NewTopic:
    """Place the replicas of a topic of a CreateTopics request.

    Args:
        topic: The topic, as the request has it.
        num_partitions, replication_factor: What a topic has whose request leaves it to the controller.

    Raises:
        RequestRejected: The topic cannot be made.
    """
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
        given = {a.partition_index: tuple(a.broker_ids) for a in topic.assignments}
        return NewTopic(_checked(given, brokers), config)
    partitions = num_partitions if topic.num_partitions == -1 else topic.num_partitions
    if partitions <= 0:
        raise RequestRejected(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions; there must be 1 at least")
    factor = replication_factor if topic.replication_factor == -1 else topic.replication_factor
    storing = brokers.storing
    if not 0 < factor <= len(storing):
        raise RequestRejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{factor} replicas, and {len(storing)} live brokers to hold them; there can be 1 for each broker",
        )
    return NewTopic(place_replicas(storing, range(partitions), factor), config)


def added_partitions(topic: Any, known: Sequence[Sequence[int]], brokers: ReplicaBrokers) -> dict[int, tuple[int, ...]]:
    """Place the replicas of the new partitions that a CreatePartitions request asks for.

    Args:
        topic: The topic, as the request has it.
        known: The replicas of its present partitions, by partition; none if there is no such topic.

    Raises:
        RequestRejected: The partitions cannot be made.
    """
    if not known:
        raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name}")
    new = range(len(known), topic.count)
    if not new:
        text = f"topic {topic.name} has {len(known)} partitions already"
        raise RequestRejected(ErrorCode.INVALID_PARTITIONS, text)
    if topic.assignments is not None:
        if len(topic.assignments) != len(new):
            raise RequestRejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{len(new)} partitions are new, and {len(topic.assignments)} assignments are given",
            )
        given = _checked({i: tuple(each.broker_ids) for i, each in enumerate(topic.assignments)}, brokers)
        return {new[i]: replicas for i, replicas in given.items()}
    storing, factor, leader = brokers.storing, len(known[0]), known[0][0]
    if factor > len(storing):
        text = f"{factor} replicas, and {len(storing)} live brokers"
        raise RequestRejected(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    return place_replicas(storing, new, factor, first=leader if leader in storing else None)


def create_partitions(request: Any, add: Callable[[Any], object]) -> messages.CreatePartitionsResponse:
    """Answer a CreatePartitions request; ``add`` takes each topic, and may reject it."""
    asked = Counter(topic.name for topic in request.topics)

    def add_once(topic: Any) -> None:
        check_named_once(asked[topic.name])
        add(topic)

    topics = {each.name: each for each in request.topics}.values()
    return messages.CreatePartitionsResponse(
        results=[
            messages.CreatePartitionsTopicResult(name=topic.name, **rejection(add_once, topic)) for topic in topics
        ]
    )


def topics_to_delete(
    request: Any, context: ControllerContext
) -> Iterator[tuple[str | None, messages.DeletableTopicResult]]:
    """Yield the name and the answer of each topic of a DeleteTopics request; None and an error for an unknown topic.

    Each topic is looked up as late as that: a caller may delete one before it takes the next.
    """
    asked = [(name, ZERO_UUID) for name in request.topic_names] + [(t.name, t.topic_id) for t in request.topics]
    for given, topic_id in asked:
        name = context.topic_name(topic_id) if given is None else given
        result = messages.DeletableTopicResult(name=name, topic_id=topic_id, error_message=None)
        if name not in context.all_topics:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if given is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            name, result.error_code = None, unknown
        yield name, result


def rejection(action: Callable[..., object], *args: object) -> dict[str, Any]:
    """Carry out a part of a request; the error code and the message that answer it.

    Raises:
        ControllerMoved, SessionExpired, IllegalState: No part can be carried out any more.
    """
    try:
        action(*args)
    except RequestRejected as e:
        return {"error_code": e.code, "error_message": str(e)}
    except (ControllerMoved, SessionExpired, IllegalState):
        raise
    except Exception:  # noqa: BLE001 - as in Kafka, the other parts are carried out all the same
        _log.exception("a part of a request failed")
        return {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR, "error_message": None}
    return {"error_code": ErrorCode.NONE, "error_message": None}


def check_topic_name(name: str, topics: Container[str], alike: Mapping[str, str]) -> None:
    """Refuse the name of a new topic if it is wrong or taken.

    Args:
        alike: The known topics by their names in metrics.

    Raises:
        RequestRejected: A topic cannot have this name.
    """
    if not is_topic_name(name):
        raise RequestRejected(ErrorCode.INVALID_TOPIC_EXCEPTION, TOPIC_NAMES)
    if name in topics:
        raise RequestRejected(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    if known := alike.get(name_in_metrics(name)):
        raise RequestRejected(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} collides with {known}: metrics do not tell '.' from '_'"
        )


def name_in_metrics(topic: str) -> str:
    """The name of a topic in metrics, which have '_' for '.' too."""
    return topic.replace(".", "_")


def check_named_once(times: int) -> None:
    """Refuse a topic that a request names more than once.

    Raises:
        RequestRejected: It does.
    """
    if times > 1:
        raise RequestRejected(ErrorCode.INVALID_REQUEST, "the request names the topic more than once")


def _checked(assignment: Mapping[int, tuple[int, ...]], brokers: ReplicaBrokers) -> dict[int, tuple[int, ...]]:
    """Check and return the assignment that a request names."""
    if sorted(assignment) != list(range(len(assignment))):
        raise RequestRejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions have to be numbered from 0 without gaps"
        )
    sizes = {len(replicas) for replicas in assignment.values()}
    for partition, replicas in assignment.items():
        if not replicas or len(set(replicas)) != len(replicas) or len(sizes) > 1:
            raise RequestRejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {partition} has replicas {list(replicas)}; partitions have equally many, each once",
            )
        if unknown := sorted(set(replicas) - brokers.racks.keys()):
            raise RequestRejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there is no live broker {unknown[0]}")
        if empty := sorted(brokers.without_storage & set(replicas)):
            raise RequestRejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {empty[0]} keeps no records and gets no replicas"
            )
    return {p: assignment[p] for p in sorted(assignment)}


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
