"""Recording frames as they pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .transport import Address, Bytes

__all__ = ["Direction", "Recorder"]

Direction: TypeAlias = Literal["sent", "received"]


class Recorder(Protocol):
    """Sees every frame that has passed, whole; called from many threads."""

    def opened(self, local: Address, remote: Address, time_ns: int, *, initiator: bool = True) -> None:
        """A connection stands; ``initiator`` if this end made it."""

    def record(
        self, direction: Direction, local: Address, remote: Address, time_ns: int, buffers: Sequence[Bytes]
    ) -> None:
        """A frame went from ``local`` to ``remote`` ("sent") or came from there; its length is part of the buffers."""

    def closed(self, local: Address, remote: Address, time_ns: int) -> None:
        """The connection has ended."""
