"""A controller's own account of what it said and what it heard, to be held against a recording of the wire."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from channel.errors import RequestTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel.controller.requests import ControlRequest

__all__ = ["PATIENCE_S", "Journal", "Told"]

PATIENCE_S: Final = 30.0
"""How long anything on a cluster in one process may take."""


@dataclass(slots=True, eq=False)
class Told:
    """One request that the controller sent, and what came back.

    Attributes:
        answered: Whether an answer came; if not, the request was dropped with its broker.
        error_code: The answer's top-level code.
        partition_errors: The partitions whose code is not 0, as rows of the table ``partition_errors``.
    """

    broker_id: int
    api_key: int
    version: int
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    message: Any
    answered: bool = False
    error_code: int | None = None
    partition_errors: tuple[dict[str, Any], ...] = ()


@dataclass(slots=True)
class Journal:
    """All that controllers said, in the order in which they said it."""

    entries: list[Told] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _open: int = 0

    def sent(self, controller_id: int, broker_id: int, request: ControlRequest) -> Told:
        """A request was handed to the channel manager."""
        told = Told(
            broker_id,
            request.api_key,
            request.latest_version,
            controller_id,
            request.controller_epoch,
            request.broker_epoch,
            request.message,
        )
        with self._changed:
            self.entries.append(told)
            self._open += 1
        return told

    def answered(self, told: Told, response: Any) -> None:
        """Its answer came."""
        told.answered = True
        told.error_code = response.error_code
        told.partition_errors = tuple(_partition_errors(told.message, response))
        self._close(1)

    def dropped(self, count: int) -> None:
        """So many requests went with their broker."""
        self._close(count)

    def _close(self, count: int) -> None:
        with self._changed:
            self._open -= count
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """Requests that are neither answered nor dropped."""
        return self._open

    def wait_until(self, most_waiting: int = 0) -> None:
        """Wait until no more than so many requests are open.

        Raises:
            RequestTimeout: They still are after half a minute.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._open <= most_waiting, PATIENCE_S):
                raise RequestTimeout(f"{self._open} requests were not answered within {PATIENCE_S:.0f} s")


def _partition_errors(request: Any, response: Any) -> Iterator[dict[str, Any]]:
    """Give the partitions that a response reports with an error; LeaderAndIsr names topics by their ids from v5 on."""
    names = {topic_id: name for name, topic_id in getattr(request, "topic_ids", {}).items()}
    found = [(e.topic_name, None, e) for e in getattr(response, "partition_errors", ())]
    found += [(names[t.topic_id], t.topic_id, e) for t in getattr(response, "topics", ()) for e in t.partition_errors]
    for topic, topic_id, e in found:
        if e.error_code:
            yield {"topic": topic, "topic_id": topic_id, "partition": e.partition_index, "error_code": e.error_code}
