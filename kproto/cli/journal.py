"""A controller's own account of what it said and what it heard, to be held against a recording of the wire."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from channel.errors import RequestTimeout

if TYPE_CHECKING:
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
        partition_codes: Codes other than 0 of single partitions, as they were answered.
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
    partition_codes: tuple[int, ...] = ()


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
        codes = [e.error_code for t in getattr(response, "topics", ()) for e in t.partition_errors]
        codes += [e.error_code for e in getattr(response, "partition_errors", ())]
        told.partition_codes = tuple(sorted(code for code in codes if code))
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
