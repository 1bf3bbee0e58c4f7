"""A client's metadata: when it asks, what it takes of a response, how threads wait for it."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from channel.errors import AuthenticationFailed, IllegalState, InvalidTopic, RequestTimeout, TopicAuthorizationFailed
from channel.metadata.cluster_metadata import LeaderUpdate, Metadata, MetadataQuestion
from channel.types import Node
from kproto.error_codes import ErrorCode
from kproto.reference.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproto.types import TopicPartition

P0, P1 = TopicPartition("topic-1", 0), TopicPartition("topic-1", 1)
WHOLE, PARTIAL = MetadataQuestion(None, 0, False), MetadataQuestion((), 0, True)
ID_X, ID_Y = bytes(15) + b"x", bytes(15) + b"y"


def partition(
    index: int = 0, leader: int = 0, epoch: int = -1, isr: Sequence[int] = (0,), error: int = 0, **more: Any
) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=more.pop("replicas", [0, 1, 2]),
        isr_nodes=list(isr),
        **more,
    )


def topic(
    *partitions: MetadataResponsePartition, name: str = "topic-1", error: int = 0, topic_id: bytes = bytes(16)
) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=list(partitions))


def response(*topics: MetadataResponseTopic, nodes: Sequence[int] = (0, 1, 2), controller: int = 0) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=i, host=f"host-{i}", port=9092) for i in nodes]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=controller, topics=list(topics))


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(refresh_backoff_ms=100, refresh_backoff_max_ms=1000, max_age_ms=1000)


def updated(metadata: Metadata, *topics: MetadataResponseTopic, now: int = 10_000, **more: Any) -> None:
    metadata.update(metadata.question(now), response(*topics, **more), now)


# ---- when ------------------------------------------------------------------------------------------------------------


@pytest.mark.conformance("MDT-01")
def test_an_update_after_the_close_is_refused(metadata: Metadata) -> None:
    metadata.close()
    with pytest.raises(IllegalState):
        updated(metadata)


@pytest.mark.conformance("MDT-02")
def test_after_bootstrap_an_update_is_due_at_once(metadata: Metadata) -> None:
    metadata.bootstrap([("localhost", 9002)])
    assert metadata.time_to_next_update(10_000) == 0
    assert metadata.snapshot.nodes == {-1: Node(-1, "localhost", 9002)}
    assert metadata.snapshot.is_bootstrap


def test_rebootstrap_goes_back_to_the_first_addresses(metadata: Metadata) -> None:
    metadata.bootstrap([("localhost", 9002), ("localhost", 9003)])
    updated(metadata, topic(partition()))
    assert -1 not in metadata.snapshot.nodes
    version = metadata.update_version
    metadata.bootstrap()
    assert list(metadata.snapshot.nodes) == [-1, -2]
    assert metadata.update_version == version + 1
    assert metadata.is_update_requested


@pytest.mark.conformance("MDT-04")
def test_a_failed_update_is_followed_by_a_pause_whatever_is_requested(metadata: Metadata) -> None:
    metadata.failed_update(10_000)
    assert 80 <= metadata.time_to_next_update(10_000) <= 120
    metadata.request_update()
    assert 80 <= metadata.time_to_next_update(10_000) <= 120
    assert metadata.time_to_next_update(10_000 + 121) == 0


def test_the_pause_grows_with_each_failure_up_to_its_limit(metadata: Metadata) -> None:
    waits = []
    for _ in range(8):
        metadata.failed_update(10_000)
        waits.append(metadata.time_to_next_update(10_000))
    for wait, expected in zip(waits, [100, 200, 400, 800, 1000, 1000, 1000, 1000], strict=True):
        assert expected * 0.8 <= wait <= min(1000, expected * 1.2)


@pytest.mark.conformance("MDT-07")
def test_a_failed_update_does_not_count_as_a_refresh(metadata: Metadata) -> None:
    updated(metadata, topic(partition()), now=100)
    assert metadata.time_to_next_update(1000) == 100
    metadata.failed_update(1100)
    assert 80 <= metadata.time_to_next_update(1100) <= 120
    assert metadata.time_to_next_update(1221) == 0


def test_equal_responses_are_asked_for_less_and_less_often(metadata: Metadata) -> None:
    waits = []
    for _ in range(5):
        updated(metadata, topic(partition(epoch=1)))
        metadata.request_update()
        waits.append(metadata.time_to_next_update(10_000))
    for wait, expected in zip(waits, [100, 100, 200, 400, 800], strict=True):
        assert expected * 0.8 <= wait <= expected * 1.2
    updated(metadata, topic(partition(leader=1, epoch=2)))
    metadata.request_update()
    assert metadata.time_to_next_update(10_000) <= 120


@pytest.mark.parametrize(
    ("changed", "is_equal"),
    [
        (topic(partition(epoch=1, isr=[0, 1])), True),
        (topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), True),
        (topic(partition(epoch=-1)), False),
        (topic(partition(epoch=2)), False),
        (topic(partition(epoch=1), partition(1, epoch=1)), False),
        (topic(partition(epoch=1), topic_id=ID_X), False),
    ],
)
def test_responses_are_equal_to_the_backoff_if_no_epoch_is_new_as_in_kafka(
    metadata: Metadata, changed: MetadataResponseTopic, is_equal: bool
) -> None:
    for _ in range(4):
        updated(metadata, topic(partition(epoch=1)))
    updated(metadata, changed)
    metadata.request_update()
    assert (metadata.time_to_next_update(10_000) > 120) == is_equal


@pytest.mark.conformance("MDT-17")
def test_a_response_from_before_a_new_topic_does_not_satisfy_it() -> None:
    metadata = Metadata(60_000)
    updated(metadata)
    metadata.add("first", 10_000)
    first = metadata.question(10_000)
    metadata.add("second", 10_000)
    second = metadata.question(10_000)
    metadata.update(first, response(), 10_000)
    assert metadata.is_update_requested
    metadata.update(second, response(), 10_000)
    assert not metadata.is_update_requested


# ---- leader epochs ---------------------------------------------------------------------------------------------------


@pytest.mark.conformance("MDT-06")
def test_an_older_leader_epoch_is_not_taken(metadata: Metadata) -> None:
    updated(metadata, topic(partition(epoch=10, isr=[1, 2, 3])))
    updated(metadata, topic(partition(epoch=9, isr=[1, 2])))
    info = metadata.snapshot.partition(P0)
    assert (info.leader_epoch, info.isr) == (10, (1, 2, 3))
    assert metadata.last_seen_epoch(P0) == 10


@pytest.mark.conformance("MDT-09")
def test_only_a_newer_epoch_asks_for_an_update(metadata: Metadata) -> None:
    updated(metadata, topic(partition(epoch=0)))
    asked = []
    for epoch in (42, 42, 41, 41, 42, 43, 43, 42, 41, 44):
        metadata.update_last_seen_epoch(P0, epoch)
        asked.append(metadata.is_update_requested)
        metadata._needs_full_update = False
    assert asked == [True, False, False, False, False, True, False, False, False, True]


@pytest.mark.conformance("MDT-10")
def test_epochs_of_brokers_and_of_responses_grow_together(metadata: Metadata) -> None:
    assert [metadata.update_last_seen_epoch(P0, epoch) for epoch in (0, 1, 2)] == [False] * 3
    assert metadata.last_seen_epoch(P0) is None
    updated(metadata, topic(partition(epoch=10)))
    assert metadata.last_seen_epoch(P0) == 10
    assert [metadata.update_last_seen_epoch(P0, epoch) for epoch in (1, 10, 12)] == [False, False, True]
    assert metadata.last_seen_epoch(P0) == 12
    assert metadata.partition_if_current(P0) is None
    for epoch in (12, 11):
        updated(metadata, topic(partition(epoch=epoch)))
        assert metadata.last_seen_epoch(P0) == 12
    assert metadata.partition_if_current(P0) is not None


def test_a_negative_epoch_is_a_mistake(metadata: Metadata) -> None:
    with pytest.raises(ValueError, match="-1"):
        metadata.update_last_seen_epoch(P0, -1)


@pytest.mark.conformance("MDT-11")
def test_a_topic_made_anew_begins_with_new_epochs(metadata: Metadata) -> None:
    updated(metadata, topic(partition(epoch=10), topic_id=ID_X))
    updated(metadata, topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert metadata.last_seen_epoch(P0) == 10
    assert metadata.is_update_requested
    updated(metadata, topic(partition(epoch=5), topic_id=ID_Y))
    assert metadata.last_seen_epoch(P0) == 5


def test_a_broker_that_is_behind_does_not_take_a_deletion_back(metadata: Metadata) -> None:
    """The id and the epochs of a topic count while it is unknown: a lower epoch under the same id is an old answer."""
    updated(metadata, topic(partition(epoch=4), topic_id=ID_X))
    updated(metadata, topic(error=3))
    updated(metadata, topic(partition(epoch=3), topic_id=ID_X))
    assert metadata.last_seen_epoch(P0) == 4
    assert metadata.snapshot.partition(P0) is None
    updated(metadata, topic(partition(epoch=4), topic_id=ID_X))
    assert metadata.snapshot.partition(P0) is not None


@pytest.mark.conformance("MDT-13")
def test_an_old_response_neither_changes_nor_revives_a_partition(metadata: Metadata) -> None:
    updated(metadata, topic(partition(epoch=100, isr=[0, 1])))
    updated(metadata, topic(partition(epoch=99, isr=[])))
    assert metadata.snapshot.partition(P0).isr == (0, 1)
    updated(metadata, topic(partition(epoch=100, isr=[])))
    assert metadata.snapshot.partition(P0).isr == ()
    updated(metadata)
    assert metadata.snapshot.partition(P0) is None
    assert metadata.last_seen_epoch(P0) == 100
    updated(metadata, topic(partition(epoch=99)))
    assert metadata.snapshot.partition(P0) is None


@pytest.mark.conformance("MDT-15")
@pytest.mark.parametrize(("version", "epoch"), [(12, -1), (8, 5)], ids=["no epoch", "an epoch before version 9"])
def test_without_epochs_a_response_is_taken_as_it_is(metadata: Metadata, version: int, epoch: int) -> None:
    metadata.update(WHOLE, response(topic(partition(epoch=epoch))), 10_000, api_version=version)
    assert metadata.last_seen_epoch(P0) is None
    info = metadata.partition_if_current(P0)
    assert info is not None
    assert (info.leader, info.leader_epoch) == (0, None)
    assert not metadata.update_last_seen_epoch(P0, 10)
    assert metadata.partition_if_current(P0) == info


@pytest.mark.conformance("MDT-23")
def test_a_leader_whose_node_has_gone_is_no_leader(metadata: Metadata) -> None:
    updated(metadata, topic(partition(leader=0, epoch=10)))
    updated(metadata, topic(partition(leader=1, epoch=8)), nodes=(1, 2))
    assert metadata.snapshot.leader(P0) is None
    assert metadata.last_seen_epoch(P0) == 10


# ---- topics ----------------------------------------------------------------------------------------------------------


@pytest.mark.conformance("MDT-19")
def test_an_invalid_topic_is_told_once_and_healed_by_a_good_response(metadata: Metadata) -> None:
    updated(metadata, topic(error=ErrorCode.INVALID_TOPIC_EXCEPTION, name="a b"))
    with pytest.raises(InvalidTopic, match="a b"):
        metadata.raise_errors_of("a b")
    metadata.raise_errors_of("a b")
    updated(metadata, topic(error=ErrorCode.INVALID_TOPIC_EXCEPTION, name="a b"))
    updated(metadata, topic(partition()))
    metadata.raise_errors_of("a b")


def test_an_unauthorized_topic_is_told_to_who_asks_for_it(metadata: Metadata) -> None:
    updated(metadata, topic(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name="secret"))
    metadata.raise_errors_of("other")
    metadata.raise_errors_of("secret")  # asking for one topic forgets all errors
    updated(metadata, topic(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name="secret"))
    with pytest.raises(TopicAuthorizationFailed, match="secret"):
        metadata.raise_errors_of("secret")


def internal_topics(metadata: Metadata) -> list[str]:
    return [name for name, each in metadata.snapshot.topics.items() if each.is_internal]


def test_internal_topics_are_named(metadata: Metadata) -> None:
    offsets = topic(partition(), name="__consumer_offsets")
    offsets.is_internal = True
    updated(metadata, topic(partition()), offsets)
    assert internal_topics(metadata) == ["__consumer_offsets"]
    metadata.update(PARTIAL, response(topic(partition())), 10_000)
    assert internal_topics(metadata) == ["__consumer_offsets"]
    updated(metadata, topic(partition()))
    assert internal_topics(metadata) == []


@pytest.mark.conformance("MDT-22")
def test_a_node_is_online_for_its_replicas_that_are(metadata: Metadata) -> None:
    updated(metadata, topic(partition(replicas=[0], offline_replicas=[1])))
    info = metadata.snapshot.partition(P0)
    assert info is not None
    assert (info.replicas, info.offline_replicas) == ((0,), (1,))
    assert metadata.snapshot.nodes[0] == Node(0, "host-0", 9092)


@pytest.mark.conformance("MDT-25")
def test_a_partial_update_without_an_id_takes_the_id_away(metadata: Metadata) -> None:
    one, two = topic(partition(), name="one", topic_id=ID_X), topic(partition(), name="two", topic_id=ID_Y)
    updated(metadata, one, two)
    metadata.update(PARTIAL, response(topic(partition(), name="one")), 10_000)
    assert sorted(metadata.snapshot.topics) == ["one", "two"]
    assert {name: each.topic_id for name, each in metadata.snapshot.topics.items()} == {"one": None, "two": ID_Y}


@pytest.mark.parametrize("error", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_partition_that_a_later_response_may_heal_asks_for_one(metadata: Metadata, error: int) -> None:
    updated(metadata, topic(partition(error=error, leader=-1)))
    assert metadata.is_update_requested
    assert metadata.snapshot.leader(P0) is None


@pytest.mark.conformance("MDT-26")
def test_a_leader_that_a_broker_named_replaces_only_its_partition() -> None:
    metadata = Metadata()
    one = topic(partition(0, leader=1, epoch=1), partition(1, leader=1, epoch=1), name="input-topic")
    updated(metadata, one)
    metadata.update_partition_leadership({TopicPartition("input-topic", 1): LeaderUpdate(2, 3)}, [])
    snapshot = metadata.snapshot
    leaders = [snapshot.leader(TopicPartition("input-topic", i)) for i in range(2)]
    assert [node.id for node in leaders if node] == [1, 2]
    assert len(snapshot.topics["input-topic"].partitions) == 2


@pytest.mark.conformance("MDT-27")
def test_leaders_are_taken_only_if_they_are_known_and_newer() -> None:
    metadata = Metadata()
    updated(metadata, topic(partition(0, epoch=100), partition(1, epoch=200)), nodes=range(5))
    before = metadata.snapshot
    for refused in (
        {P0: LeaderUpdate(-1, -1)},
        {P0: LeaderUpdate(99_999, 101)},
        {TopicPartition("topic-1", 9): LeaderUpdate(1, 101)},
        {P0: LeaderUpdate(1, 99)},
        {P0: LeaderUpdate(1, 100)},
    ):
        assert metadata.update_partition_leadership(refused, []) == frozenset()
        assert metadata.snapshot is before
    nodes = [Node(5, "new", 9092), Node(1, "moved", 9093)]
    unknown, outdated = {TopicPartition("topic-1", 9): LeaderUpdate(1, 101)}, {P1: LeaderUpdate(1, 200)}
    assert metadata.update_partition_leadership({**unknown, **outdated, P0: LeaderUpdate(5, 101)}, nodes) == {P0}
    assert metadata.snapshot.leader(P0) == nodes[0]
    assert metadata.snapshot.partition(P1) == before.partition(P1)
    assert metadata.snapshot.nodes[1] == nodes[1]
    assert metadata.snapshot.nodes[2] == before.nodes[2]


# ---- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.conformance("MDT-28")
def test_readers_see_whole_snapshots_and_never_an_older_one(metadata: Metadata) -> None:
    done = threading.Event()
    wrong: list[str] = []

    def write() -> None:
        for epoch in range(1, 60):
            both = [topic(partition(i, epoch=epoch, leader=epoch % 10), name=name) for name in ("a", "b") for i in [0]]
            updated(metadata, *both, nodes=range(10))

    def read() -> None:
        last = -1
        while not done.is_set():
            snapshot = metadata.snapshot
            epochs = {info.leader_epoch for _, info in snapshot.partitions()}
            if len(epochs) > 1 or (snapshot.topics and len(snapshot.nodes) != 10):
                wrong.append(f"torn: {snapshot}")
            newest = max((epoch or 0 for epoch in epochs), default=-1)
            if newest < last:
                wrong.append(f"{newest} after {last}")
            last = newest

    readers = [threading.Thread(target=read) for _ in range(3)]
    writers = [threading.Thread(target=write) for _ in range(3)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert wrong == []


def test_a_wait_ends_with_its_time_or_with_a_fatal_error(metadata: Metadata) -> None:
    for timeout in (0, 20):
        with pytest.raises(RequestTimeout):
            metadata.await_update(metadata.update_version, timeout)
    metadata.fail(AuthenticationFailed("wrong password"))
    with pytest.raises(AuthenticationFailed):
        metadata.await_update(metadata.update_version, 10_000)
    metadata.raise_fatal_error()  # raised once
