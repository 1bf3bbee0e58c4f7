"""The checks of a fleet's followers: leaders drop silent followers from the ISR, and take fetching followers back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from channel.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set

    from kproto.types import TopicPartition

    from .cluster import EmbeddedCluster
    from .links import BrokerLinks
    from .replicas import HostedReplica

__all__ = ["FollowerChecks"]

_LONGEST_MS: Final = 1_000
"""The longest interval between two checks of a leader's followers."""


class FollowerChecks:
    """Checks the followers of every leader of a fleet, again and again until the fleet closes.

    Args:
        cluster: Returns the fleet's brokers.
        links: The links of each broker.
        paused: The brokers that hang.
        lag_max_ms: The time after which a silent follower leaves the ISR.
        submit: Has a check made on another thread than the network thread; drops it once the fleet is closed.
    """

    def __init__(
        self,
        cluster: Callable[[], EmbeddedCluster],
        links: Mapping[int, BrokerLinks],
        paused: Set[int],
        lag_max_ms: int,
        submit: Callable[[Callable[[], None]], None],
    ) -> None:
        self._cluster = cluster
        self._links = links
        self._paused = paused
        self._interval_ms = min(_LONGEST_MS, max(1, lag_max_ms // 2))
        self._submit = submit

    def is_fetching(self, follower: int, tp: TopicPartition, led: HostedReplica) -> bool:
        """Whether a broker fetches a partition from this leader in this leader epoch."""
        member = self._cluster().members.get(follower)
        if member is None or not member.is_up or follower in self._paused:
            return False
        fetcher = member.broker.replicas.fetchers.get(tp)
        return fetcher is not None and (fetcher.leader, fetcher.leader_epoch) == (led.leader, led.leader_epoch)

    def check_later(self) -> None:
        """Check the followers after the interval, and then at each interval."""
        self._cluster().call_later(self._interval_ms, lambda: self._submit(self._check))

    def _check(self) -> None:
        now, cluster = SYSTEM_CLOCK.milliseconds(), self._cluster()
        try:
            for broker_id, links in list(self._links.items()):
                if cluster[broker_id].is_up and broker_id not in self._paused:
                    links.check_followers(now)
        finally:
            self.check_later()
