"""The metadata of a producer: topics are added when they are first used, and removed when they are no longer used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel.errors import InvalidTopic, RequestTimeout, TopicNotKnown
from kproto.error_codes import ErrorCode, error_name
from kproto.types import TopicPartition

from .cluster import Metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from .snapshot import PartitionInfo

__all__ = ["ProducerMetadata"]


class ProducerMetadata(Metadata):
    """Metadata of the topics that are in use.

    Args:
        max_idle_ms: The time after its last ``add`` at which a topic is forgotten.
        **settings: As ``Metadata`` takes them.

    Attributes:
        new_topics: Added topics that no response has named yet.
    """

    def __init__(self, max_idle_ms: int = 300_000, **settings: Any) -> None:
        super().__init__(**settings)
        self._max_idle_ms = max_idle_ms
        self._expires: dict[str, int] = {}
        self.new_topics: set[str] = set()

    def add(self, topic: str, now: int) -> None:
        """Note that a topic is being used; a new topic requests an update at once."""
        with self._changed:
            is_new = topic not in self._expires
            self._expires[topic] = now + self._max_idle_ms
            if is_new:
                self.new_topics.add(topic)
                self.request_update_for_new_topics()

    def request_update_for(self, topic: str) -> int:
        """Request an update with this topic; returns the present version, to wait for a higher."""
        with self._changed:
            return self.request_update_for_new_topics() if topic in self.new_topics else self.request_update()

    def topics_to_ask(self) -> tuple[str, ...]:
        """The topics that are in use."""
        return tuple(sorted(self._expires))

    def new_topics_to_ask(self) -> tuple[str, ...]:
        """The topics that no response has named yet."""
        return tuple(sorted(self.new_topics))

    def retain_topic(self, topic: str, now: int) -> bool:
        """Whether the topic is in use; an expired topic is forgotten."""
        expires = self._expires.get(topic)
        if expires is None:
            return False
        if topic in self.new_topics or now < expires:
            return True
        del self._expires[topic]
        return False

    def update(
        self, request_version: int, response: Any, now: int, *, is_partial: bool = False, api_version: int = 12
    ) -> None:
        """Take a response: its topics are no longer new. See ``Metadata.update``."""
        with self._changed:
            super().update(request_version, response, now, is_partial=is_partial, api_version=api_version)
            self.new_topics.difference_update(topic.name for topic in response.topics)

    def wait_for_topic(
        self, topic: str, max_wait_ms: int, wake: Callable[[], None], partition: int | None = None
    ) -> tuple[int, PartitionInfo | None]:
        """Wait until a topic, or one of its partitions, is known.

        Args:
            topic: The topic's name.
            max_wait_ms: How long to wait (``max.block.ms``).
            wake: Wakes the thread that polls the client, so that the request goes out at once.
            partition: The partition that is needed; None for any.

        Returns:
            The topic's number of partitions, and the metadata of the partition.

        Raises:
            InvalidTopic, TopicAuthorizationFailed: The cluster refused the topic.
            TopicNotKnown: The topic or partition did not become known in time.
            IllegalState: The metadata was closed.
        """
        began = self._clock.milliseconds()
        if topic in self.snapshot.invalid_topics:
            raise InvalidTopic(f"invalid topics: {topic}")  # each time, as the error itself is raised but once
        self.add(topic, began)
        while True:
            snapshot = self.snapshot
            count = snapshot.partition_count(topic)
            if count is not None and (partition is None or partition < count):
                info = None if partition is None else snapshot.partitions.get(TopicPartition(topic, partition))
                return count, info
            self.add(topic, self._clock.milliseconds())
            version = self.request_update_for(topic)
            wake()
            left = max_wait_ms - (self._clock.milliseconds() - began)
            try:
                self.await_update(version, left)
            except RequestTimeout as e:
                raise self._timeout(topic, partition, max_wait_ms) from e
            if self._clock.milliseconds() - began >= max_wait_ms:
                raise self._timeout(topic, partition, max_wait_ms)
            self.raise_errors_of(topic)

    def _timeout(self, topic: str, partition: int | None, max_wait_ms: int) -> TopicNotKnown:
        snapshot = self.snapshot
        code = snapshot.topic_errors.get(topic, ErrorCode.NONE)
        which = f"topic {topic}"
        if partition is not None:
            which = f"partition {topic}-{partition}"
            if (count := snapshot.partition_count(topic)) is not None:
                which += f" of {count} partitions"
        why = f": the last answer was {error_name(code)}" if code else ""
        return TopicNotKnown(f"{which} did not become known within {max_wait_ms} ms{why}", code)
