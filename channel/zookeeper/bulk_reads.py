"""ZooKeeper's request for many znodes at once, which servers answer since version 3.6.

One request for hundreds of znodes costs a client as much as a request for one znode, apart from the bytes themselves.
The bytes are ZooKeeper's Jute: numbers are big-endian, strings and buffers begin with their length as an int32.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from .operations import Stat

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NO_NODE", "ReadMany", "serves_bulk_reads"]

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
