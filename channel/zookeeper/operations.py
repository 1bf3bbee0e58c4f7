"""Operations on znodes, and their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from channel.errors import ZooKeeperError


class Stat(NamedTuple):
    """A node's metadata in ZooKeeper.

    Attributes:
        czxid: The transaction that created the node: the broker epoch, for a broker's registration.
        version: Counts the changes of the data.
        owner: The session that an ephemeral node belongs to, 0 for others.
    """

    czxid: int
    version: int
    owner: int


class Create(NamedTuple):
    """Create a node; its parent must exist."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class SetData(NamedTuple):
    """Replace a node's data; version -1 means any."""

    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    """Delete a node without children; version -1 means any."""

    path: str
    version: int = -1


class Check(NamedTuple):
    """Check that a node has this version."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check


class Transaction(NamedTuple):
    """The outcome of operations that are applied together or not at all.

    Attributes:
        results: Each operation's result if all were applied: the path of a ``Create``, the ``Stat`` of a ``SetData``.
        failed: The index of the operation that failed, None if all were applied.
        error: The reason of the refusal.
    """

    results: list[Any]
    failed: int | None = None
    error: ZooKeeperError | None = None
