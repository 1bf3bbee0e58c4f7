"""Reads any number of nodes in bulk if the connected server answers bulk reads, and node by node otherwise."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from itertools import chain, islice
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

from kazoo import exceptions as kazoo_errors

from channel.errors import ZooKeeperError

from .operations import Stat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


_NODES: Final = 256
"""The number of nodes that one bulk read names."""

_WINDOW: Final = 4
"""The number of bulk reads in flight."""


class _NoBulkReads(Exception):
    """The server that is connected by now answers no bulk reads."""


class Answers(Protocol):
    """Sends requests, pipelined, and yields each with its answer; requests of a lost connection are sent again."""

    def __call__(
        self, ask: Callable[[Any, list[str]], Any], things: Iterable[list[str]], missing: Any = ..., window: int = ...
    ) -> Iterator[tuple[list[str], Any]]:
        """Ask for the answer of each thing."""


class BulkReader:
    """The bulk reads of a ZooKeeper session.

    Args:
        present: Returns a number that changes with the session's connection, and the present client of kazoo.
        answers: Sends the bulk reads.
        read_each: Reads nodes one by one.
    """

    def __init__(
        self,
        present: Callable[[], tuple[int, Any]],
        answers: Answers,
        read_each: Callable[[Iterable[str]], Iterator[tuple[bytes, Stat] | None]],
    ) -> None:
        self._present = present
        self._answers = answers
        self._read_each = read_each
        self._known = (-1, False)  # of which connection, and whether its server answers bulk reads

    def read(self, paths: Iterable[str]) -> Iterator[tuple[bytes, Stat] | None]:
        """Yield data and stat of each node; None for missing nodes."""
        left = iter(paths)
        batches = iter(lambda: list(islice(left, _NODES)), [])
        first = next(batches, [])
        if len(first) < _NODES or not self.is_served():
            yield from self._read_each(chain(first, left))
            return

        unread: deque[list[str]] = deque()

        def asked() -> Iterator[list[str]]:
            for batch in chain([first], batches):
                unread.append(batch)
                yield batch

        def read(client: Any, batch: Sequence[str]) -> Any:
            answer = client.handler.async_result()
            if not client.connected:
                answer.set_exception(kazoo_errors.ConnectionLoss())  # kazoo would send it to any server that comes
            elif self.is_served():
                client._call(ReadMany([client.chroot + path for path in batch]), answer)  # kazoo has no other door
            else:
                raise _NoBulkReads
            return answer

        try:
            for batch, results in self._answers(read, asked(), window=_WINDOW):
                unread.popleft()
                for path, found in zip(batch, results, strict=True):
                    if not isinstance(found, int):
                        yield found
                    elif found == NO_NODE:
                        yield None
                    else:
                        raise ZooKeeperError(f"ZooKeeper refused to read {path}: error {found}")
        except _NoBulkReads:
            yield from self._read_each(chain(chain.from_iterable(unread), left))

    def is_served(self) -> bool:
        """Whether the connected server answers bulk reads; if it does not tell its version, it is not asked for any."""
        connection, client = self._present()
        if self._known[0] != connection:  # it may be another server, of another version
            try:
                self._known = connection, serves_bulk_reads(client.command(b"srvr"))
            except (OSError, AttributeError, kazoo_errors.KazooException, client.handler.timeout_exception):
                return False  # the connection is down, or was replaced meanwhile
        return self._known == (self._present()[0], True)


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
