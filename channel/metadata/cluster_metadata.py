"""A client's metadata of its cluster: immutable snapshots, and the times at which another is needed.

Every response makes a new snapshot with the next version. Threads that need newer metadata request an update and wait
for a higher version than they saw. Times are in milliseconds and given by the caller.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
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
from channel.locks import guards, guards_calls, guards_changes, new_reentrant_lock
from channel.network.backoff import ExponentialBackoff
from channel.types import Node
from kproto.error_codes import ErrorCode, error_name
from kproto.json_form import uuid_to_json
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_LONGEST_NAME: Final = 0x7FFF
"""The bytes of the longest text of a request."""

EPOCHS_FROM: Final = 9
"""The first version of Metadata whose leader epochs are reliable."""
INVALID_METADATA: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LISTENER_NOT_FOUND, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip
"""Errors of a topic or partition that a newer metadata response may heal."""


class PartitionInfo(NamedTuple):
    """One partition of a Metadata response.

    Attributes:
        leader: The leader's broker id, None if there is none.
        leader_epoch: None where the response had none.
        replicas, isr, offline_replicas: Broker ids.
        error_code: The partition's error code, 0 for none.
    """

    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0


class TopicInfo(NamedTuple):
    """One topic of a Metadata response.

    Attributes:
        topic_id: The topic's id, None where the response had none.
        error_code: The topic's error code, 0 for none.
        is_internal: Whether it is one of the cluster's own topics, such as ``__consumer_offsets``.
        partitions: The partitions by index; none where the topic has an error.
    """

    topic_id: bytes | None
    error_code: int
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]

    @property
    def shown_id(self) -> str | None:
        """The topic's id as text."""
        return None if self.topic_id is None else uuid_to_json(self.topic_id)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A cluster's metadata at one moment.

    Attributes:
        cluster_id: The cluster's id, None before the first response.
        nodes: Broker id to its address; bootstrap addresses have ids -1, -2 and so on.
        controller_id: The controller's broker id, None if none is known.
        topics: The topics that were requested, by name.
        is_bootstrap: Whether only bootstrap addresses are known.
    """

    cluster_id: str | None = None
    nodes: Mapping[int, Node] = field(default_factory=dict)
    controller_id: int | None = None
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    is_bootstrap: bool = False

    @classmethod
    def of_bootstrap(cls, addresses: Sequence[tuple[str, int]]) -> ClusterSnapshot:
        """Make a snapshot of bootstrap addresses: nodes -1, -2 and so on."""
        return cls(nodes={-i: Node(-i, host, port) for i, (host, port) in enumerate(addresses, 1)}, is_bootstrap=True)

    @classmethod
    def of_response(cls, response: Any) -> ClusterSnapshot:
        """Make a snapshot of a ``MetadataResponse``; topics without a name are left out."""
        return cls(
            response.cluster_id,
            {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers},
            None if response.controller_id < 0 else response.controller_id,
            {topic.name: _topic_of(topic) for topic in response.topics if topic.name},
        )

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        """The partition's metadata, None if it is not known."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionInfo]]:
        """All partitions, by topic and index."""
        for name, topic in sorted(self.topics.items()):
            for index, info in sorted(topic.partitions.items()):
                yield TopicPartition(name, index), info

    def leader(self, partition: TopicPartition) -> Node | None:
        """The address of a partition's leader; None if there is none, or its node is not known."""
        info = self.partition(partition)
        return None if info is None or info.leader is None else self.nodes.get(info.leader)


def _topic_of(told: Any) -> TopicInfo:
    partitions = {} if told.error_code else {each.partition_index: _partition_of(each) for each in told.partitions}
    return TopicInfo(
        bytes(told.topic_id) if any(told.topic_id) else None, told.error_code, told.is_internal, partitions
    )


def _partition_of(told: Any) -> PartitionInfo:
    return PartitionInfo(
        None if told.leader_id < 0 else told.leader_id,
        None if told.leader_epoch < 0 else told.leader_epoch,
        tuple(told.replica_nodes),
        tuple(told.isr_nodes),
        tuple(told.offline_replicas),
        told.error_code,
    )


# ---- views ----------------------------------------------------------------------------------------------------------


class ClusterView(NamedTuple):
    """The cluster's metadata as one node reports it.

    Attributes:
        node: The node that was asked.
        snapshot: The metadata in its response.
    """

    node: Node
    snapshot: ClusterSnapshot

    @property
    def brokers(self) -> list[Node]:
        """The live brokers with their addresses on the listener that was asked, by id."""
        return sorted(self.snapshot.nodes.values())

    def to_json(self) -> dict[str, Any]:
        """The view as an object for ``json``; no leader and no leader epoch are -1, as on the wire."""
        return {
            "node": {"broker_id": self.node.id, "host": self.node.host, "port": self.node.port},
            "cluster_id": self.snapshot.cluster_id,
            "controller_id": self.snapshot.controller_id,
            "brokers": [{"broker_id": b.id, "host": b.host, "port": b.port, "rack": b.rack} for b in self.brokers],
            "topics": [
                {
                    "topic": name,
                    "topic_id": topic.shown_id,
                    "internal": topic.is_internal,
                    "error": _error_or_none(topic.error_code),
                }
                for name, topic in sorted(self.snapshot.topics.items())
            ],
            "partitions": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "leader": -1 if info.leader is None else info.leader,
                    "leader_epoch": -1 if info.leader_epoch is None else info.leader_epoch,
                    "isr": list(info.isr),
                    "replicas": list(info.replicas),
                    "offline_replicas": list(info.offline_replicas),
                    "error": _error_or_none(info.error_code),
                }
                for each, info in self.snapshot.partitions()
            ],
        }


class Difference(NamedTuple):
    """A fact that is not the same in all views.

    Attributes:
        about: The partition, topic or broker concerned, for example ``topic-3-0``.
        fact: The name of the fact, for example ``leader``.
        values: The fact's value in each view, as text, in the order of the views.
    """

    about: str
    fact: str
    values: tuple[str, ...]


def differences(views: Sequence[ClusterSnapshot]) -> list[Difference]:
    """List the differences between views of several nodes (a stale metadata cache shows), or of two moments."""
    facts: dict[tuple[str, str], dict[int, str]] = {}
    for i, view in enumerate(views):
        for about, fact, value in _facts(view):
            facts.setdefault((about, fact), {})[i] = value
    found = []
    for (about, fact), told in facts.items():
        values = tuple(told.get(i, "unknown") for i in range(len(views)))
        if len(set(values)) > 1:
            found.append(Difference(about, fact, values))
    return found


def _facts(view: ClusterSnapshot) -> Iterator[tuple[str, str, str]]:
    yield "cluster", "id", str(view.cluster_id)
    yield "cluster", "controller", _or_none(view.controller_id)
    for broker in view.nodes.values():
        yield f"broker {broker.id}", "address", f"{broker.host}:{broker.port}"
    for topic_name, topic in sorted(view.topics.items()):
        yield topic_name, "topic id", topic.shown_id or "none"
        if topic.error_code:
            yield topic_name, "error", error_name(topic.error_code)
    for each, info in view.partitions():
        name = f"{each.topic}-{each.partition}"
        yield name, "leader", _or_none(info.leader)
        yield name, "leader epoch", _or_none(info.leader_epoch)
        yield name, "isr", ",".join(map(str, sorted(info.isr)))
        yield name, "replicas", ",".join(map(str, info.replicas))
        yield name, "offline", ",".join(map(str, sorted(info.offline_replicas))) or "none"


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)


def _error_or_none(code: int) -> str | None:
    return error_name(code) if code else None


# ---- refresh --------------------------------------------------------------------------------------------------------


class RefreshSchedule:
    """The age and the back-off of metadata; for one thread at a time.

    Args:
        backoff_ms, backoff_max_ms: The first and the longest wait after a failed update or an equal response.
        max_age_ms: The age at which metadata is refreshed.
    """

    def __init__(self, backoff_ms: int, backoff_max_ms: int, max_age_ms: int) -> None:
        self._last_success_ms = 0
        self._backoff = ExponentialBackoff(backoff_ms, 2, backoff_max_ms, 0.2)
        # Both waits are drawn when their cause happens, not whenever they are read.
        self._wait = self._backoff.backoff(0)
        self._equal_wait = 0
        self._max_age_ms = max_age_ms
        self._last_refresh_ms = 0
        self._failures = 0
        self._equal_responses = 0

    def time_to_expire(self, now: int) -> int:
        """Milliseconds until the metadata is too old, 0 if it is."""
        return max(0, self._last_success_ms + self._max_age_ms - now)

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
            self._last_success_ms = now
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
        request_version: The number of requests for new topics so far.
        is_partial: Whether the request names only topics that are not known yet.
    """

    topics: tuple[str, ...] | None
    request_version: int
    is_partial: bool


def _fits_into_a_request(topic: str) -> bool:
    try:
        return len(topic.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


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
        self._last_seen_ids: dict[str, bytes] = {}
        self._bootstrap: tuple[tuple[str, int], ...] = ()
        self._is_closed = False

    # ---- which topics ------------------------------------------------------------------------------------------------

    def add(self, topic: str, now: int) -> None:
        """Note that a topic is being used; a new topic requests an update at once.

        Raises:
            InvalidTopic: No request can hold this name, which would end the thread that asks.
        """
        assert self._max_idle_ms is not None, "this is the metadata of all topics"
        with self._changed:
            is_new = topic not in self._expires
            if is_new and not _fits_into_a_request(topic):
                raise InvalidTopic(f"no topic can have this name of {len(topic)} characters")
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
        with self._changed:
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

    def update(self, question: MetadataQuestion, response: Any, now: int, *, api_version: int = 12) -> None:
        """Take a response.

        Args:
            question: The content of the request.
            now: The time of its arrival.
            api_version: The version that the response was written in: leader epochs count from 9 on.

        Raises:
            IllegalState: The metadata is closed.
        """
        with self._changed:
            if self._is_closed:
                raise IllegalState("metadata was updated after it had been closed")
            self._needs_partial_update = question.request_version < self._request_version
            self.update_version += 1
            if not question.is_partial:
                self._needs_full_update = False
            self._refresh.succeeded(now, is_partial=question.is_partial)
            told = ClusterSnapshot.of_response(response)
            topics = self._accepted(
                told, is_partial=question.is_partial, has_epochs=api_version >= EPOCHS_FROM, now=now
            )
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
            is_another = topic.topic_id is not None and topic.topic_id != self._last_seen_ids.get(name)
            if topic.topic_id is not None:  # kept while the topic is unknown: a broker may be behind its deletion
                self._last_seen_ids[name] = topic.topic_id
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
        """Forget the leader epochs and ids of topics that are of no interest any more."""
        topics = {partition.topic for partition in self._last_seen_epochs} | self._last_seen_ids.keys()
        if gone := {topic for topic in topics if not self.retain_topic(topic, now)}:
            kept = {each: epoch for each, epoch in self._last_seen_epochs.items() if each.topic not in gone}
            self._last_seen_epochs = kept
            self._last_seen_ids = {name: each for name, each in self._last_seen_ids.items() if name not in gone}

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
            return self._if_current(partition)

    def _if_current(self, partition: TopicPartition) -> PartitionInfo | None:
        info, seen = self.snapshot.partition(partition), self._last_seen_epochs.get(partition)
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
            InvalidTopic, TopicAuthorizationFailed: The cluster answered with an error of the topic, or no request can
                hold its name.
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


guards(
    Metadata,
    "_changed",
    "_bootstrap",
    "_errors_to_raise",
    "_fatal_error",
    "_is_closed",
    "_refresh",
    "_request_version",
)
guards_calls(Metadata, "_changed", "_if_current")
guards_changes(
    Metadata,
    "_changed",
    "_expires",
    "_last_seen_epochs",
    "_last_seen_ids",
    "_needs_full_update",
    "_needs_partial_update",
    "new_topics",
    "snapshot",
    "update_version",
)
