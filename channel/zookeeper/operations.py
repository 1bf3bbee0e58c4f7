"""Operations on znodes, and their outcomes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

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


# ---- bulk reads, which kazoo does not have ---------------------------------------------------------------------------

NO_NODE: Final = -101
"""ZooKeeper's error code for a missing znode."""

_SINCE: Final = (3, 6)
_GET_DATA: Final = 4
_ERROR: Final = -1
_HEADER: Final = Struct(">i?i")  # of each operation: its type, whether this is the end, an error code
_LENGTH: Final = Struct(">i")
_STAT: Final = Struct(">q24xi8xq16x")  # czxid, version and ephemeral owner
_BEGIN: Final = _HEADER.pack(_GET_DATA, False, -1)
_END: Final = _HEADER.pack(_ERROR, True, -1)
_NO_WATCH: Final = b"\0"

Found: TypeAlias = tuple[bytes, Stat] | int
"""Data and stat of a znode, or the error code of its read."""


@dataclass(frozen=True, slots=True)
class ReadMany:
    """A request for data and stat of many znodes, without watches; paths are whole, with the chroot.

    Attributes:
        paths: The znodes.
        type: ZooKeeper's number of this request.
    """

    paths: Sequence[str]
    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        """The request's body."""
        pieces: list[bytes] = []
        for path in self.paths:
            name = path.encode()
            pieces += (_BEGIN, _LENGTH.pack(len(name)), name, _NO_WATCH)
        return b"".join((*pieces, _END))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Found]:
        """Data and stat of each znode, or the error code of its read, in the order of the request."""
        found: list[Found] = []
        while True:
            kind, is_end, _ = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size
            if is_end:
                return found
            (number,) = _LENGTH.unpack_from(data, offset)
            offset += _LENGTH.size
            if kind == _ERROR:
                found.append(number)
                continue
            end = offset + max(number, 0)  # -1 for no data at all
            found.append((bytes(data[offset:end]), Stat(*_STAT.unpack_from(data, end))))
            offset = end + _STAT.size


def serves_bulk_reads(answer: str) -> bool:
    """Whether a server of this version answers ``ReadMany``; older servers end the session instead.

    Args:
        answer: The server's answer to the command ``srvr``.
    """
    version = re.match(r"Zookeeper version: (\d+)\.(\d+)", answer)
    return version is not None and (int(version[1]), int(version[2])) >= _SINCE
