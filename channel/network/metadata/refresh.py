"""The schedule of metadata refreshes: age limit and back-off. Times are in milliseconds, given by the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from channel.network.backoff import ExponentialBackoff

if TYPE_CHECKING:
    from channel.network.backoff import Randomness

__all__ = ["RefreshSchedule"]

_BASE: Final = 2
_JITTER: Final = 0.2


class RefreshSchedule:
    """The age and the back-off of metadata; for one thread at a time.

    Args:
        backoff_ms, backoff_max_ms: The first and the longest wait after a failed update or an equal response.
        max_age_ms: The age at which metadata is refreshed.
        randomness: The jitter of the wait.

    Attributes:
        last_success_ms: When a whole response was taken last, 0 for never.
    """

    def __init__(
        self, backoff_ms: int, backoff_max_ms: int, max_age_ms: int, randomness: Randomness | None = None
    ) -> None:
        self.last_success_ms = 0
        self._backoff = ExponentialBackoff(backoff_ms, _BASE, backoff_max_ms, _JITTER, randomness)
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
