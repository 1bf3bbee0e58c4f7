"""What a controller refuses of new topics and partitions, at each limit, and what it says."""

import pytest

from channel.lead.new_topics import (
    NewTopic,
    ReplicaBrokers,
    RequestRejected,
    added_partitions,
    check_named_once,
    check_topic_name,
    new_topic,
)
from kproto import messages
from kproto.error_codes import ErrorCode

BROKERS = ReplicaBrokers({1: None, 2: None, 3: None, 9: None}, frozenset({9}))


def topic(
    partitions: int = -1, factor: int = -1, assigned: dict[int, list[int]] | None = None, **config: str | None
) -> messages.CreatableTopic:
    return messages.CreatableTopic(
        name="orders",
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            messages.CreatableReplicaAssignment(partition_index=p, broker_ids=ids)
            for p, ids in (assigned or {}).items()
        ],
        configs=[messages.CreatableTopicConfig(name=name.replace("_", "."), value=v) for name, v in config.items()],
    )


def made(asked: messages.CreatableTopic) -> NewTopic:
    return new_topic(asked, BROKERS, num_partitions=2, replication_factor=1)


@pytest.mark.parametrize(
    ("asked", "partitions", "factor"),
    [(topic(), 2, 1), (topic(1), 1, 1), (topic(factor=3), 2, 3), (topic(5, 2, retention_ms="1"), 5, 2)],
)
def test_what_a_request_leaves_open_is_the_controllers(
    asked: messages.CreatableTopic, partitions: int, factor: int
) -> None:
    new = made(asked)
    assert list(new.replicas) == list(range(partitions))
    for replicas in new.replicas.values():
        assert len(replicas) == factor
        assert set(replicas) <= {1, 2, 3}
    assert new.config == {each.name: each.value for each in asked.configs}


def test_an_assignment_is_taken_as_it_is() -> None:
    assert made(topic(assigned={1: [2, 3], 0: [3, 1]})).replicas == {0: (3, 1), 1: (2, 3)}


WRONG = ErrorCode.INVALID_REPLICA_ASSIGNMENT
UNEQUAL = "partitions have equally many, each once"


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        (topic(0), ErrorCode.INVALID_PARTITIONS, "0 partitions; there must be 1 at least"),
        (topic(-2), ErrorCode.INVALID_PARTITIONS, "-2 partitions; there must be 1 at least"),
        (
            topic(factor=0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "0 replicas, and 3 live brokers to hold them; there can be 1 for each broker",
        ),
        (
            topic(factor=4),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "4 replicas, and 3 live brokers to hold them; there can be 1 for each broker",
        ),
        (topic(retention_ms=None), ErrorCode.INVALID_CONFIG, "a setting has no value"),
        (topic(colour="red"), ErrorCode.INVALID_CONFIG, "a topic has no setting 'colour'"),
        (
            topic(1, assigned={0: [1]}),
            ErrorCode.INVALID_REQUEST,
            "with assignments the partition and replica counts have to be -1",
        ),
        (
            topic(factor=1, assigned={0: [1]}),
            ErrorCode.INVALID_REQUEST,
            "with assignments the partition and replica counts have to be -1",
        ),
        (topic(assigned={1: [1]}), WRONG, "partitions have to be numbered from 0 without gaps"),
        (topic(assigned={0: [1], 2: [1]}), WRONG, "partitions have to be numbered from 0 without gaps"),
        (topic(assigned={0: []}), WRONG, f"partition 0 has replicas []; {UNEQUAL}"),
        (topic(assigned={0: [1, 1]}), WRONG, f"partition 0 has replicas [1, 1]; {UNEQUAL}"),
        (topic(assigned={0: [1], 1: [1, 2]}), WRONG, f"partition 0 has replicas [1]; {UNEQUAL}"),
        (topic(assigned={0: [1, 8, 7]}), WRONG, "there is no live broker 7"),
        (topic(assigned={0: [1, 9]}), WRONG, "broker 9 keeps no records and gets no replicas"),
    ],
)
def test_a_topic_that_cannot_be_made_is_refused(asked: messages.CreatableTopic, code: ErrorCode, said: str) -> None:
    with pytest.raises(RequestRejected) as refused:
        made(asked)
    assert (refused.value.code, str(refused.value)) == (code, said)


def more(count: int, *assigned: list[int]) -> messages.CreatePartitionsTopic:
    given = [messages.CreatePartitionsAssignment(broker_ids=ids) for ids in assigned] or None
    return messages.CreatePartitionsTopic(name="orders", count=count, assignments=given)


KNOWN = [(1, 2), (2, 3)]


def test_new_partitions_are_numbered_behind_the_known_ones() -> None:
    placed = added_partitions(more(4), KNOWN, BROKERS)
    assert list(placed) == [2, 3]
    assert all(len(set(replicas)) == 2 and set(replicas) <= {1, 2, 3} for replicas in placed.values())
    assert added_partitions(more(4, [3, 1], [1, 2]), KNOWN, BROKERS) == {2: (3, 1), 3: (1, 2)}


@pytest.mark.parametrize(
    ("asked", "known", "code", "said"),
    [
        (more(3), [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic orders"),
        (more(2), KNOWN, ErrorCode.INVALID_PARTITIONS, "topic orders has 2 partitions already"),
        (more(1), KNOWN, ErrorCode.INVALID_PARTITIONS, "topic orders has 2 partitions already"),
        (more(4, [1, 2]), KNOWN, WRONG, "2 partitions are new, and 1 assignments are given"),
        (more(3, [1, 8]), KNOWN, WRONG, "there is no live broker 8"),
        (more(3), [(1, 2, 3, 4)], ErrorCode.INVALID_REPLICATION_FACTOR, "4 replicas, and 3 live brokers"),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(
    asked: messages.CreatePartitionsTopic, known: list[tuple[int, ...]], code: ErrorCode, said: str
) -> None:
    with pytest.raises(RequestRejected) as refused:
        added_partitions(asked, known, BROKERS)
    assert (refused.value.code, str(refused.value)) == (code, said)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a" * 249, None),
        ("a" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("one.two", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("one_two", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("one-two", None),
    ],
)
def test_a_name_is_free_and_told_apart_in_metrics(name: str, code: ErrorCode | None) -> None:
    def check() -> None:
        check_topic_name(name, {"one.two"}, {"one_two": "one.two"})

    if code is None:
        check()
        return
    with pytest.raises(RequestRejected) as refused:
        check()
    assert refused.value.code == code


def test_a_topic_is_named_once() -> None:
    check_named_once(1)
    with pytest.raises(RequestRejected, match="more than once"):
        check_named_once(2)
