"""The interface of an elected controller's leadership, which the candidate makes, starts and closes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.zookeeper.cluster import WonElection
    from channel.zookeeper.session import ZooKeeperSession

    from .events import ControllerEvent

__all__ = ["Leadership", "MakeLeadership"]


class Leadership(Protocol):
    """An active controller's context, decisions and channels, from its election to its resignation."""

    def start(self) -> None:
        """Take over as the active controller of the cluster.

        Raises:
            ChannelError: The start failed; ``close`` must follow.
        """

    def process(self, event: ControllerEvent) -> None:
        """Do the work of an event.

        Raises:
            ControllerMoved: Another controller was elected.
        """

    def close(self, timeout_s: float | None = None) -> None:
        """Close all channels to the brokers, within this time, and drop the context. Harmless if closed."""


class MakeLeadership(Protocol):
    """A function that makes an elected controller's leadership."""

    def __call__(
        self, session: ZooKeeperSession, election: WonElection, put: Callable[[ControllerEvent], object]
    ) -> Leadership:
        """Make the leadership; ``put`` takes events from any thread."""
