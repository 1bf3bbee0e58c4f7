"""A client's metadata of its cluster, and the times at which it must be refreshed.

Every response makes a new snapshot with the next version. Threads that need newer metadata request an update and wait
for a higher version than they saw. Times are in milliseconds and given by the caller.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from channel.clock import FOREVER, SYSTEM_CLOCK, Clock
from channel.errors import (
    ChannelError,
    IllegalState,
    InvalidTopic,
    RequestTimeout,
    TopicAuthorizationFailed,
    TopicNotKnown,
)
from channel.locks import new_reentrant_lock
from channel.network.backoff import ExponentialBackoff
from kproto.error_codes import ErrorCode, error_name
from kproto.types import TopicPartition

from .snapshot import EPOCHS_FROM, INVALID_METADATA, ClusterSnapshot, PartitionInfo, TopicInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from channel.types import Node

_BASE: Final = 2
_JITTER: Final = 0.2


class RefreshSchedule:
    """The age and the back-off of metadata; for one thread at a time.

    Args:
        backoff_ms, backoff_max_ms: The first and the longest wait after a failed update or an equal response.
        max_age_ms: The age at which metadata is refreshed.

    Attributes:
        last_success_ms: The time of the last whole response, 0 for none.
    """

    def __init__(self, backoff_ms: int, backoff_max_ms: int, max_age_ms: int) -> None:
        self.last_success_ms = 0
        self._backoff = ExponentialBackoff(backoff_ms, _BASE, backoff_max_ms, _JITTER)
        # Both waits are drawn when their cause happens, not whenever they are read.
        self._wait = self._backoff.backoff(0)
        self._equal_wait = 0
        self._max_age_ms = max_age_ms
        self._last_refresh_ms = 0
        self._failures = 0
        self._equal_responses = 0

    def time_to_expire(self, now: int) -> int:
        """Milliseconds until the metadata is too old, 0 if it is."""
        return max(0, self.last_success_ms + self._max_age_ms - now)

    def time_to_allow(self, now: int) -> int:
        """Milliseconds until the back-off of a failed update, or of equal responses, is over."""
        if not self.time_to_expire(now):
            self.forget_equal_responses()
        return max(0, self._last_refresh_ms + max(self._wait, self._equal_wait) - now)

    def forget_equal_responses(self) -> None:
        """Forget the number of equal responses, so that they do not delay the next update."""
        self._equal_responses = self._equal_wait = 0

    def allow_at_once(self) -> None:
        """Let the next update begin whatever the back-off."""
        self._last_refresh_ms = 0
        self.forget_equal_responses()

    def succeeded(self, now: int, *, is_partial: bool) -> None:
        """Note a response; it counts as equal to the last unless ``forget_equal_responses`` follows."""
        self._last_refresh_ms = now
        self._failures = 0
        self._wait = self._backoff.backoff(0)
        if not is_partial:
            self.last_success_ms = now
        self._equal_wait = self._backoff.backoff(self._equal_responses)
        self._equal_responses += 1

    def failed(self, now: int) -> None:
        """Note that an update failed."""
        self._last_refresh_ms = now
        self._wait = self._backoff.backoff(self._failures)
        self._failures += 1
        self.forget_equal_responses()


class MetadataQuestion(NamedTuple):
    """The content of the next Metadata request.

    Attributes:
        topics: Names of topics; None for all of them.
        request_version: The argument of ``Metadata.update`` that goes with the response.
        is_partial: Whether the request names only topics that are not known yet.
    """

    topics: tuple[str, ...] | None
    request_version: int
    is_partial: bool


class LeaderUpdate(NamedTuple):
    """A partition's leader as a broker named it in another response than Metadata."""

    leader: int
    leader_epoch: int


_RAISED: Final[dict[int, tuple[type[ChannelError], str]]] = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: (InvalidTopic, "invalid topics"),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (TopicAuthorizationFailed, "not authorized to access topics"),
}
"""Errors of topics that are raised to those who wait for the topic."""


class Metadata:
    """A cluster's metadata, for any number of threads. ``snapshot`` may be read without waiting.

    Args:
        max_idle_ms: The time after its last ``add`` at which a topic is forgotten; None for metadata of all topics.
        refresh_backoff_ms, refresh_backoff_max_ms: The first and the longest wait after a failed update.
        max_age_ms: The age at which metadata is refreshed.
        clock: The time, for threads that wait.

    Attributes:
        snapshot: The present metadata.
        update_version: The number of responses taken so far.
        new_topics: Added topics that no response has named yet.
    """

    def __init__(
        self,
        max_idle_ms: int | None = None,
        *,
        refresh_backoff_ms: int = 100,
        refresh_backoff_max_ms: int = 1_000,
        max_age_ms: int = 300_000,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.snapshot = ClusterSnapshot()
        self.update_version = 0
        self.new_topics: set[str] = set()
        self._max_idle_ms = max_idle_ms
        self._expires: dict[str, int] = {}
        self._refresh = RefreshSchedule(refresh_backoff_ms, refresh_backoff_max_ms, max_age_ms)
        self._clock = clock
        self._changed = threading.Condition(new_reentrant_lock("cluster metadata"))
        self._request_version = 0
        self._needs_full_update = False
        self._needs_partial_update = False
        self._fatal_error: Exception | None = None
        self._errors_to_raise: dict[str, int] = {}
        self._last_seen_epochs: dict[TopicPartition, int] = {}
        self._bootstrap: tuple[tuple[str, int], ...] = ()
        self._is_closed = False

    # ---- which topics ------------------------------------------------------------------------------------------------

    def add(self, topic: str, now: int) -> None:
        """Note that a topic is being used; a new topic requests an update at once."""
        assert self._max_idle_ms is not None, "this is the metadata of all topics"
        with self._changed:
            is_new = topic not in self._expires
            self._expires[topic] = now + self._max_idle_ms
            if is_new:
                self.new_topics.add(topic)
                self.request_update(topic)

    def retain_topic(self, topic: str, now: int) -> bool:
        """Whether to keep a topic of a response or of an earlier snapshot; one that is used no more is forgotten."""
        if self._max_idle_ms is None:
            return True
        expires = self._expires.get(topic)
        if expires is None:
            return False
        if topic in self.new_topics or now < expires:
            return True
        del self._expires[topic]
        return False

    # ---- when --------------------------------------------------------------------------------------------------------

    @property
    def is_update_requested(self) -> bool:
        """Whether an update was requested before the metadata is old."""
        return self._needs_full_update or self._needs_partial_update

    def bootstrap(self, addresses: Sequence[tuple[str, int]] = ()) -> None:
        """Begin with these addresses, or again with the former; an update is due at once."""
        with self._changed:
            self._bootstrap = tuple(addresses) or self._bootstrap
            self._needs_full_update = True
            self.update_version += 1
            self.snapshot = ClusterSnapshot.of_bootstrap(self._bootstrap)

    def request_update(self, topic: str | None = None) -> int:
        """Request an update: of the new topics at once if this is one, else of all topics when the back-off is over.

        Returns:
            The present version, to wait for a higher.
        """
        with self._changed:
            if topic in self.new_topics:
                self._refresh.allow_at_once()
                self._needs_partial_update = True
                self._request_version += 1
            else:
                self._needs_full_update = True
            return self.update_version

    def time_to_next_update(self, now: int) -> int:
        """Milliseconds until an update should begin, and the back-off of a failed update or equal responses is over."""
        with self._changed:
            expires = 0 if self.is_update_requested else self._refresh.time_to_expire(now)
            return max(expires, self._refresh.time_to_allow(now))

    def question(self, now: int) -> MetadataQuestion:
        """Return the next request's content: only new topics if no whole update is due, else all topics of interest."""
        with self._changed:
            is_due = self._needs_full_update or not self._refresh.time_to_expire(now)
            is_partial = self._needs_partial_update and not is_due
            topics = self.new_topics if is_partial else self._expires
            asked = None if self._max_idle_ms is None else tuple(sorted(topics))
            return MetadataQuestion(asked, self._request_version, is_partial)

    # ---- responses ---------------------------------------------------------------------------------------------------

    def update(
        self, request_version: int, response: Any, now: int, *, is_partial: bool = False, api_version: int = 12
    ) -> None:
        """Take a response.

        Args:
            request_version: ``MetadataQuestion.request_version`` of the request.
            response: A ``MetadataResponse``.
            now: The time of its arrival.
            is_partial: Whether it answers a partial request.
            api_version: The version that the response was written in: leader epochs count from 9 on.

        Raises:
            IllegalState: The metadata is closed.
        """
        with self._changed:
            if self._is_closed:
                raise IllegalState("metadata was updated after it had been closed")
            self._needs_partial_update = request_version < self._request_version
            self.update_version += 1
            if not is_partial:
                self._needs_full_update = False
            self._refresh.succeeded(now, is_partial=is_partial)
            told = ClusterSnapshot.of_response(response)
            topics = self._accepted(told, is_partial=is_partial, has_epochs=api_version >= EPOCHS_FROM, now=now)
            self.snapshot = replace(told, topics=topics)
            self._forget_epochs(now)
            self._errors_to_raise = {
                name: topic.error_code for name, topic in topics.items() if topic.error_code in _RAISED
            }
            self.new_topics.difference_update(topic.name for topic in response.topics)
            self._changed.notify_all()

    def _accepted(self, told: ClusterSnapshot, *, is_partial: bool, has_epochs: bool, now: int) -> dict[str, TopicInfo]:
        """Return the topics of interest: the response's, without partitions known to be outdated, and those kept."""
        former = self.snapshot.topics
        topics = {name: topic for name, topic in former.items() if is_partial and self.retain_topic(name, now)}
        for name, topic in told.topics.items():
            if not self.retain_topic(name, now):
                continue
            known = former.get(name)
            is_another = topic.topic_id is not None and (known is None or topic.topic_id != known.topic_id)
            partitions: dict[int, PartitionInfo] = {}
            for index, info in topic.partitions.items():
                newest = self._newest(
                    TopicPartition(name, index), info if has_epochs else info._replace(leader_epoch=None), is_another
                )
                if newest is not None:
                    partitions[index] = newest
            topics[name] = topic._replace(partitions=partitions)
            codes = {topic.error_code, *(info.error_code for info in topic.partitions.values())}
            if not INVALID_METADATA.isdisjoint(codes):
                self._needs_full_update = True
        return topics

    def _newest(self, partition: TopicPartition, told: PartitionInfo, is_another: bool) -> PartitionInfo | None:
        """Choose the response's partition, or the known partition if its leader epoch is newer."""
        seen = self.last_seen_epoch(partition)
        if told.leader_epoch is None:
            self._last_seen_epochs.pop(partition, None)
        elif seen is not None and told.leader_epoch < seen and not is_another:
            return self.snapshot.partition(partition)
        else:
            self._last_seen_epochs[partition] = told.leader_epoch
        if told.leader_epoch is None or told.leader_epoch != seen or is_another:
            self._refresh.forget_equal_responses()  # as Kafka, which compares nothing but epochs and topic ids
        return told

    def _forget_epochs(self, now: int) -> None:
        """Forget the leader epochs of topics that are of no interest any more."""
        topics = {partition.topic for partition in self._last_seen_epochs}
        if gone := {topic for topic in topics if not self.retain_topic(topic, now)}:
            kept = {each: epoch for each, epoch in self._last_seen_epochs.items() if each.topic not in gone}
            self._last_seen_epochs = kept

    def failed_update(self, now: int) -> None:
        """Note that an update failed."""
        with self._changed:
            self._refresh.failed(now)

    def fail(self, error: Exception) -> None:
        """Note an error with which no update can succeed; waiting threads and ``raise_errors_of`` raise it, once."""
        with self._changed:
            self._fatal_error = error
            self._changed.notify_all()

    # ---- leaders -----------------------------------------------------------------------------------------------------

    def last_seen_epoch(self, partition: TopicPartition) -> int | None:
        """The newest leader epoch that was seen of a partition."""
        return self._last_seen_epochs.get(partition)

    def update_last_seen_epoch(self, partition: TopicPartition, epoch: int) -> bool:
        """Note a leader epoch that a broker named; a newer epoch than the known one requests an update.

        Returns:
            Whether the epoch is newer.

        Raises:
            ValueError: A negative epoch.
        """
        if epoch < 0:
            raise ValueError(f"leader epoch {epoch}; it must be 0 or more")
        with self._changed:
            seen = self.last_seen_epoch(partition)
            if seen is None or epoch <= seen:
                return False
            self._last_seen_epochs[partition] = epoch
            self._needs_full_update = True
            return True

    def partition_if_current(self, partition: TopicPartition) -> PartitionInfo | None:
        """Return a partition's metadata, None if a newer leader epoch has been seen since."""
        with self._changed:
            info = self.snapshot.partition(partition)
            seen = self.last_seen_epoch(partition)
            if info is None or (seen is not None and info.leader_epoch is not None and info.leader_epoch < seen):
                return None
            return info

    def update_partition_leadership(
        self, leaders: Mapping[TopicPartition, LeaderUpdate], nodes: Iterable[Node] = ()
    ) -> frozenset[TopicPartition]:
        """Take leaders, and perhaps their nodes, that brokers named in their responses.

        An update counts only if it is complete, newer than the known leader, and of a known partition and node.

        Returns:
            The partitions that were changed.
        """
        with self._changed:
            known = {**self.snapshot.nodes, **{node.id: node for node in nodes}}
            topics = dict(self.snapshot.topics)
            changed = set()
            for partition, leader in leaders.items():
                info = self.snapshot.partition(partition)
                if info is None or leader.leader < 0 or leader.leader_epoch < 0 or leader.leader not in known:
                    continue
                if info.leader_epoch is not None and leader.leader_epoch <= info.leader_epoch:
                    continue
                topic = topics[partition.topic]
                newer = info._replace(leader=leader.leader, leader_epoch=leader.leader_epoch)
                topics[partition.topic] = topic._replace(partitions={**topic.partitions, partition.partition: newer})
                self._last_seen_epochs[partition] = leader.leader_epoch
                changed.add(partition)
            if changed:
                self.snapshot = replace(self.snapshot, nodes=known, topics=topics)
            return frozenset(changed)

    # ---- errors ------------------------------------------------------------------------------------------------------

    def raise_errors_of(self, topic: str) -> None:
        """Raise the error with which no update can succeed, or that of this topic; those of all topics are forgotten.

        Raises:
            InvalidTopic: The cluster says that no topic can have this name.
            TopicAuthorizationFailed: This client may not know the topic.
        """
        with self._changed:
            self.raise_fatal_error()
            errors, self._errors_to_raise = self._errors_to_raise, {}
        if topic in errors:
            kind, what = _RAISED[errors[topic]]
            raise kind(f"{what}: {topic}")

    def raise_fatal_error(self) -> None:
        """Raise the error with which no update can succeed, once; those of topics are not raised here."""
        with self._changed:
            error, self._fatal_error = self._fatal_error, None
        if error is not None:
            raise error

    # ---- waiting -----------------------------------------------------------------------------------------------------

    def await_update(self, last_version: int, timeout_ms: int) -> None:
        """Wait for a version above ``last_version``.

        Raises:
            RequestTimeout: No response came in time.
            IllegalState: The metadata was closed.
        """
        deadline = self._clock.milliseconds() + timeout_ms
        with self._changed:
            while True:
                self.raise_fatal_error()
                if self._is_closed:
                    raise IllegalState("Requested metadata update after close")
                if self.update_version > last_version:
                    return
                left = deadline - self._clock.milliseconds()
                if left <= 0:
                    raise RequestTimeout(f"no metadata update within {timeout_ms} ms")
                self._changed.wait(min(left, FOREVER) / 1000)

    def wait_for_topic(
        self, topic: str, max_wait_ms: int, wake: Callable[[], None], partition: int | None = None
    ) -> tuple[int, PartitionInfo | None]:
        """Wait until a topic, or one of its partitions, is known.

        Args:
            topic: The topic's name.
            max_wait_ms: The longest time to wait (``max.block.ms``).
            wake: Wakes the thread that polls the client, so that the request goes out at once.
            partition: The partition that is needed; None for any.

        Returns:
            The topic's number of partitions, and the metadata of the partition.

        Raises:
            InvalidTopic, TopicAuthorizationFailed: The cluster answered with an error of the topic.
            TopicNotKnown: The topic or partition did not become known in time.
            IllegalState: The metadata was closed.
        """
        deadline = self._clock.milliseconds() + max_wait_ms
        known = self.snapshot.topics.get(topic)
        if known is not None and known.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise InvalidTopic(f"invalid topics: {topic}")  # each time, as the error itself is raised but once
        while True:
            now = self._clock.milliseconds()
            self.add(topic, now)
            known = self.snapshot.topics.get(topic)
            if known is not None and len(known.partitions) > (partition or 0):
                return len(known.partitions), None if partition is None else known.partitions.get(partition)
            version = self.request_update(topic)
            wake()
            try:
                self.await_update(version, deadline - now)
            except RequestTimeout as e:
                raise self._timeout(topic, partition, max_wait_ms) from e
            self.raise_errors_of(topic)

    def _timeout(self, topic: str, partition: int | None, max_wait_ms: int) -> TopicNotKnown:
        known = self.snapshot.topics.get(topic)
        code = ErrorCode.NONE if known is None else known.error_code
        which = f"topic {topic}"
        if partition is not None:
            which = f"partition {topic}-{partition}"
            if known is not None and known.partitions:
                which += f" of {len(known.partitions)} partitions"
        why = f": the last answer was {error_name(code)}" if code else ""
        return TopicNotKnown(f"{which} did not become known within {max_wait_ms} ms{why}", code)

    def close(self) -> None:
        """End all waits; a later update is an error."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
