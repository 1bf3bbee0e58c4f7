"""Answers of a controller that wait until the metadata of the broker that answers shows the change, as Kafka's do.

A client that has its answer asks for metadata next: without the wait its new topic would be unknown at the very broker
that has just created it. An answer waits for ``timeout_ms`` of its request at the longest; what is not shown by then
has the error REQUEST_TIMED_OUT, though the controller has taken it, and at once for a ``timeout_ms`` of 0.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from channel.errors import IllegalState
from channel.locks import guards_changes, new_lock
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.types import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .metadata_cache import MetadataCache

DELAYED_APIS: Final = frozenset(
    {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS, ApiKey.ELECT_LEADERS}
)

_PREFERRED: Final = 0
_TICK_MS: Final = 500
"""The longest time to the next look at a waiting answer's limit, so that no timer outlives its answer for long."""


@dataclass(slots=True)
class _Change:
    """A part of a response that is to be shown: the row that says so, and what it needs of a broker's metadata."""

    row: Any
    is_shown: Callable[[MetadataCache], bool]


@dataclass(slots=True)
class _WaitingAnswer:
    """A response, with the changes that are not shown yet, the next one last."""

    response: Any
    answer: Callable[[Any], None]
    changes: list[_Change]
    caches: Callable[[], Iterable[MetadataCache]]
    deadline: float

    def is_complete(self) -> bool:
        """Whether all changes are shown; looks at none again that was."""
        while self.changes:
            if not all(map(self.changes[-1].is_shown, self.caches())):
                return False
            self.changes.pop()
        return True


class DelayedAnswers:
    """The waiting answers of the brokers of a process.

    Args:
        call_later: Calls a function after a time in ms.
        submit: Calls a function soon, on a thread that may encode a large answer.
        who_must_show: Returns the metadata that must show a change, given that of the broker that answers; by default
            that alone, as in Kafka.
    """

    def __init__(
        self,
        call_later: Callable[[int, Callable[[], None]], None],
        submit: Callable[[Callable[[], None]], None],
        who_must_show: Callable[[MetadataCache], Iterable[MetadataCache]] = lambda own: (own,),
    ) -> None:
        self._call_later = call_later
        self._submit = submit
        self._who_must_show = who_must_show
        self._lock = new_lock("delayed answers")
        self._numbers = itertools.count()
        self._waiting: dict[int, _WaitingAnswer] = {}

    def until_shown(
        self, api_key: int, request: Any, metadata: MetadataCache, answer: Callable[[Any], None]
    ) -> Callable[[Any], None]:
        """Wrap the function that takes a controller's response, so that the response waits.

        Args:
            api_key: One of ``DELAYED_APIS``.
            metadata: The metadata of the broker that answers.
            answer: Sends the response.
        """
        snapshot = metadata.snapshot
        counts: dict[str, int] = {}
        if api_key == ApiKey.CREATE_PARTITIONS:  # those that there are need not be led
            counts = {topic.name: len(snapshot.partitions.get(topic.name, ())) for topic in request.topics}
        return partial(self._take, api_key, request, counts, partial(self._who_must_show, metadata), answer)

    def _take(
        self,
        api_key: int,
        request: Any,
        counts: dict[str, int],
        caches: Callable[[], Iterable[MetadataCache]],
        answer: Callable[[Any], None],
        response: Any,
    ) -> None:
        """Take the response of the controller, on its thread."""
        if response is None or getattr(request, "validate_only", False):
            answer(response)
            return
        changes = list(_changes(api_key, request, counts, response))
        timeout_ms = request.timeout_ms
        waiting = _WaitingAnswer(response, answer, changes[::-1], caches, time.monotonic() + timeout_ms / 1000)
        if timeout_ms <= 0:
            self._end(waiting, is_late=True)
        elif waiting.is_complete():
            answer(response)
        else:
            number = next(self._numbers)
            with self._lock:
                self._waiting[number] = waiting
            self.check()  # what has come meanwhile
            self._look_later(number, waiting)

    def check(self) -> None:
        """Send the answers whose changes are shown now; called after each UpdateMetadata, costs nothing without any."""
        if not self._waiting:
            return
        with self._lock:
            complete = [number for number, waiting in self._waiting.items() if waiting.is_complete()]
            taken = [self._waiting.pop(number) for number in complete]
        for each in taken:
            self._end(each)

    def _look_later(self, number: int, waiting: _WaitingAnswer) -> None:
        left_ms = max(1, math.ceil((waiting.deadline - time.monotonic()) * 1000))  # 0 would spin until the limit
        self._call_later(min(left_ms, _TICK_MS), partial(self._look, number))

    def _look(self, number: int) -> None:
        with self._lock:
            waiting = self._waiting.get(number)
            if waiting is None:
                return
            is_late = time.monotonic() >= waiting.deadline
            is_over = waiting.is_complete() or is_late  # a broker that did not know of it may have gone
            if is_over:
                del self._waiting[number]
        if is_over:
            self._end(waiting, is_late=is_late)
        else:
            self._look_later(number, waiting)

    def _end(self, waiting: _WaitingAnswer, *, is_late: bool = False) -> None:
        if is_late:
            for change in waiting.changes:
                change.row.error_code = ErrorCode.REQUEST_TIMED_OUT
        try:
            self._submit(partial(waiting.answer, waiting.response))
        except (IllegalState, RuntimeError):  # the brokers are closing, or the system gives no thread
            waiting.answer(waiting.response)


guards_changes(DelayedAnswers, "_lock", "_waiting")


def _changes(api_key: int, request: Any, counts: dict[str, int], response: Any) -> Iterator[_Change]:
    """The changes that the controller has accepted."""
    if api_key == ApiKey.CREATE_TOPICS:
        for row in response.topics:
            if not row.error_code:
                yield _Change(row, partial(_are_led, row.name, 0, row.num_partitions))
    elif api_key == ApiKey.CREATE_PARTITIONS:
        wanted = {topic.name: topic.count for topic in request.topics}
        for row in response.results:
            if not row.error_code:
                yield _Change(row, partial(_are_led, row.name, counts.get(row.name, 0), wanted.get(row.name, 0)))
    elif api_key == ApiKey.DELETE_TOPICS:
        for row in response.responses:
            if not row.error_code:
                yield _Change(row, partial(_is_gone, row.name, row.topic_id))
    else:
        is_preferred = request.election_type == _PREFERRED
        for topic in response.replica_election_results:
            for row in topic.partition_result:
                if not row.error_code:
                    yield _Change(row, partial(_is_elected, topic.topic, row.partition_id, is_preferred))


def _are_led(topic: str, first: int, count: int, cache: MetadataCache) -> bool:
    known = cache.snapshot.partitions.get(topic, {})
    return all((row := known.get(number)) is not None and row.leader >= 0 for number in range(first, count))


def _is_gone(topic: str, topic_id: bytes, cache: MetadataCache) -> bool:
    snapshot = cache.snapshot
    is_another = topic_id != ZERO_UUID and snapshot.topic_ids.get(topic, topic_id) != topic_id  # of the same name
    return topic not in snapshot.partitions or is_another


def _is_elected(topic: str, partition: int, is_preferred: bool, cache: MetadataCache) -> bool:
    row = cache.partition_info(topic, partition)
    if row is None or row.leader < 0:
        return False
    return not is_preferred or row.leader == next(iter(row.replicas), -1)
