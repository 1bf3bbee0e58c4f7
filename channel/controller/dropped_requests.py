"""The controller's requests that will not be answered: counted, and reported to a hook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from channel.locks import new_lock
from channel.logs import get_logger

from .broker_requests import DroppedRequest, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DroppedHook", "DroppedRequests"]


class DroppedHook(Protocol):
    """A hook for requests that will not be answered."""

    def __call__(self, broker_id: int, items: list[DroppedRequest]) -> None:
        """Take dropped requests in place of their callbacks, oldest first, once no more of their bytes are sent."""


class DroppedRequests:
    """Counts dropped requests and reports them; for any thread.

    Args:
        controller_id: The controller's broker id, for the log.
        hook: Called with the dropped requests of one broker; its errors are logged.

    Attributes:
        count: The number of requests dropped so far.
        possibly_applied: The number of dropped requests that were sent, so that the broker may have applied them.
    """

    def __init__(self, controller_id: int, hook: DroppedHook | None) -> None:
        self.count = 0
        self.possibly_applied = 0
        self._hook = hook
        self._lock = new_lock("dropped requests")
        self._log = get_logger(__name__, f"[Channel manager on controller {controller_id}]")

    def add(self, broker_id: int, items: Sequence[DroppedRequest]) -> None:
        """Count requests, oldest first, and report them."""
        if not items:
            return
        with self._lock:
            self.count += len(items)
            self.possibly_applied += sum(item.outcome is Outcome.POSSIBLY_APPLIED for item in items)
        if self._hook is not None:
            try:
                self._hook(broker_id, list(items))
            except Exception:  # noqa: BLE001  (a hook must cost neither a send thread nor a removal)
                self._log.exception("the hook for dropped requests failed")

    def forget_lock(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may have held it."""
        self._lock = new_lock("dropped requests")
