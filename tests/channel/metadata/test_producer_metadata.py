"""A producer's metadata: topics come with their first use and go when they are used no more."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from network_peers import until

from channel.errors import IllegalState, InvalidTopic, RequestTimeout, TopicNotKnown
from channel.metadata.cluster_metadata import Metadata
from kproto.error_codes import ErrorCode
from kproto.reference.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kproto.types import TopicPartition


def response(*names: str, partitions: int = 1, error: int = 0) -> MetadataResponse:
    made = [MetadataResponsePartition(partition_index=i, leader_id=0) for i in range(0 if error else partitions)]
    return MetadataResponse(
        topics=[MetadataResponseTopic(name=name, error_code=error, partitions=made) for name in names]
    )


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(60_000, refresh_backoff_ms=100, refresh_backoff_max_ms=1000, max_age_ms=1000)


def updated(metadata: Metadata, *names: str, now: int = 10_000, **more: Any) -> None:
    question = metadata.question(now)
    metadata.update(question, response(*names, **more), now)


@pytest.mark.conformance("PMD-02")
def test_a_wait_for_closed_metadata_is_an_error(metadata: Metadata) -> None:
    metadata.close()
    with pytest.raises(IllegalState, match="Requested metadata update after close"):
        metadata.await_update(metadata.update_version, 10_000)


@pytest.mark.conformance("PMD-05")
def test_a_new_topic_does_not_wait_for_the_backoff(metadata: Metadata) -> None:
    metadata.add("new-topic", 10_000)
    assert metadata.time_to_next_update(10_000) == 0
    updated(metadata, "new-topic")
    assert metadata.time_to_next_update(10_000) == 1000
    metadata.add("new-topic", 10_000)
    assert metadata.time_to_next_update(10_000) == 1000
    metadata.add("another", 10_000)
    assert metadata.time_to_next_update(10_000) == 0


@pytest.mark.conformance("PMD-06")
def test_a_topic_is_forgotten_when_it_is_used_no_more(metadata: Metadata) -> None:
    metadata.add("topic1", 0)
    updated(metadata, "topic1", now=0)
    assert tuple(sorted(metadata._expires)) == ("topic1",)
    updated(metadata, "topic1", now=60_000)
    assert tuple(sorted(metadata._expires)) == ()

    metadata.add("topic2", 0)
    for now in range(0, 180_000, 30_000):
        updated(metadata, "topic2", now=now)
        metadata.add("topic2", now)
    assert tuple(sorted(metadata._expires)) == ("topic2",)

    metadata.add("topic3", 0)
    updated(metadata, "topic2", "topic3", now=120_000)
    assert tuple(sorted(metadata._expires)) == ("topic2", "topic3")


@pytest.mark.conformance("PMD-08")
def test_a_partial_update_is_about_new_topics_alone(metadata: Metadata) -> None:
    updated(metadata)
    metadata.add("one", 10_000)
    assert metadata.new_topics == {"one"}
    assert metadata.question(10_000)[::2] == (("one",), True)
    updated(metadata, "one")
    assert metadata.new_topics == set()
    metadata.add("one", 10_000)
    assert not metadata.is_update_requested
    metadata.add("two", 10_000)
    metadata.add("three", 10_000)
    assert metadata.new_topics == {"two", "three"}
    updated(metadata, "two")
    assert metadata.new_topics == {"three"}
    assert sorted(metadata.snapshot.topics) == ["one", "two"]


def test_new_topics_alone_are_asked_for_while_the_rest_is_young(metadata: Metadata) -> None:
    updated(metadata)
    metadata.add("new", 10_000)
    assert metadata.question(10_500).is_partial
    assert not metadata.question(11_000).is_partial
    metadata.request_update()
    assert not metadata.question(10_500).is_partial


# ---- waiting for a topic ---------------------------------------------------------------------------------------------


def waiting(metadata: Metadata, *arguments: Any, **more: Any) -> Callable[[], Any]:
    """Wait on a thread; calling the result gives what the wait gave, or raises what it raised."""
    results: list[Any] = []
    asked = threading.Event()

    def wait() -> None:
        try:
            results.append(metadata.wait_for_topic(*arguments, wake=asked.set, **more))
        except Exception as e:
            results.append(e)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: asked.is_set() or results)

    def result() -> Any:
        thread.join(60)
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    return result


def test_a_wait_for_a_topic_asks_and_ends_when_it_is_known(metadata: Metadata) -> None:
    result = waiting(metadata, "topic", 10_000)
    assert metadata.new_topics == {"topic"}
    updated(metadata, "topic", partitions=3)
    assert result() == (3, None)
    assert metadata.wait_for_topic("topic", 0, lambda: None) == (3, None)


def test_a_wait_for_a_partition_ends_when_the_topic_has_it(metadata: Metadata) -> None:
    result = waiting(metadata, "topic", 10_000, partition=1)
    updated(metadata, "topic", partitions=1)
    until(lambda: metadata.is_update_requested)
    updated(metadata, "topic", partitions=2)
    count, info = result()
    assert count == 2
    assert info.leader == 0


def test_a_wait_for_an_invalid_topic_raises(metadata: Metadata) -> None:
    result = waiting(metadata, "a b", 10_000)
    updated(metadata, "a b", error=ErrorCode.INVALID_TOPIC_EXCEPTION)
    with pytest.raises(InvalidTopic):
        result()


def test_a_wait_for_an_invalid_topic_raises_each_time(metadata: Metadata) -> None:
    metadata.add("a b", 10_000)
    updated(metadata, "a b", error=ErrorCode.INVALID_TOPIC_EXCEPTION)
    for _ in range(3):
        with pytest.raises(InvalidTopic, match="a b"):
            metadata.wait_for_topic("a b", 10_000, lambda: None)


def test_a_time_out_names_the_topics_error(metadata: Metadata) -> None:
    metadata.add("topic", 10_000)
    updated(metadata, "topic", error=ErrorCode.LEADER_NOT_AVAILABLE)
    with pytest.raises(TopicNotKnown, match="within 0 ms: the last answer was LEADER_NOT_AVAILABLE") as caught:
        metadata.wait_for_topic("topic", 0, lambda: None)
    assert caught.value.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    updated(metadata, "topic", partitions=2)
    with pytest.raises(TopicNotKnown, match="partition topic-2 of 2 partitions"):
        metadata.wait_for_topic("topic", 0, lambda: None, partition=2)


def test_the_epochs_of_a_forgotten_topic_are_forgotten() -> None:
    metadata = Metadata(60_000, refresh_backoff_ms=100, refresh_backoff_max_ms=1000, max_age_ms=1000)

    def told(epoch: int) -> MetadataResponse:
        answer = response("topic")
        answer.topics[0].partitions[0].leader_epoch = epoch
        return answer

    partition = TopicPartition("topic", 0)
    metadata.add("topic", 0)
    metadata.update(metadata.question(0), told(9), 0)
    assert metadata.last_seen_epoch(partition) == 9
    metadata.update(metadata.question(60_000), response(), 60_000)
    assert metadata.last_seen_epoch(partition) is None
    metadata.add("topic", 70_000)
    metadata.update(metadata.question(70_000), told(2), 70_000)
    assert metadata.snapshot.partition(partition).leader_epoch == 2


def test_a_wait_for_a_topic_ends_with_its_time(metadata: Metadata) -> None:
    with pytest.raises(RequestTimeout, match="topic-7"):
        metadata.wait_for_topic("topic", 30, lambda: None, partition=7)


def test_an_answer_replaces_what_was_known_unless_it_is_said_to_be_partial(metadata: Metadata) -> None:
    for topic in ("one", "two", "three"):
        metadata.add(topic, 0)
    updated(metadata, "one", "two")
    question = metadata.question(0)
    metadata.update(question._replace(is_partial=True), response("three"), 0)
    assert sorted(metadata.snapshot.topics) == ["one", "three", "two"]
    metadata.update(question._replace(is_partial=False), response("two"), 0)
    assert list(metadata.snapshot.topics) == ["two"]
