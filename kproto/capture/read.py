"""Opening what is to be read: a file or standard input, plain, gzip or zstd. The first bytes tell what is inside."""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import sys
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, cast

from kproto.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Format", "Source", "open_source"]

Format = Literal["pcap", "pcapng", "request log"]

_CHUNK: Final = 1 << 20
_STDIN: Final = "standard input"

_PCAP: Final = {b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1"}
_PCAPNG: Final = b"\x0a\x0d\x0d\x0a"
_LOG_LINE: Final = re.compile(rb"Completed request:|kafka\.request\.logger|^\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d", re.M)

_OTHERS: Final = [
    (b"BZh", "compressed with bzip2; unpack it first"),
    (b"\xfd7zXZ", "compressed with xz; unpack it first"),
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"\xa1\xb2\xcd\x34", "a pcap of an old patched tcpdump; convert it: editcap -F pcap IN OUT"),
    (b"\x34\xcd\xb2\xa1", "a pcap of an old patched tcpdump; convert it: editcap -F pcap IN OUT"),
    (b"snoop\0", "a snoop capture; convert it: editcap -F pcap IN OUT"),
    (b"PAR1", "a Parquet file; kproto reads captures and the brokers' kafka-request.log"),
]


class _Counted(io.RawIOBase):
    """A raw stream that gives back what was peeked, counts what was taken, and never waits for more than there is."""

    def __init__(self, raw: Any, progress: Callable[[int, int | None], object] | None, total: int | None) -> None:
        super().__init__()
        self._raw = raw
        self._read = getattr(raw, "read1", raw.read)
        self._head = b""
        self._progress = progress
        self._total = total
        self.taken = 0

    def peek(self, n: int) -> bytes:
        while len(self._head) < n:
            more = self._read(n - len(self._head))
            if not more:
                break
            self._head += more
        return self._head

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        view = memoryview(into).cast("B")
        if self._head:
            data, self._head = self._head[: len(view)], self._head[len(view) :]
        else:
            data = self._read(len(view)) or b""
        view[: len(data)] = data
        self._count(len(data))
        return len(data)

    def take(self, n: int) -> bytes:
        """At most n bytes, without a copy; empty at the end."""
        if self._head:
            data, self._head = self._head, b""
        else:
            data = self._read(n) or b""
        self._count(len(data))
        return data

    def _count(self, n: int) -> None:
        self.taken += n
        if self._progress is not None:
            self._progress(self.taken, self._total)


class Source:
    """Bytes of a capture, unpacked, piece by piece as they come.

    Attributes:
        name: The file's name, or ``standard input``.
        follows: Whether it may still grow while it is read (a pipe).
        damage: Why reading stopped early, None if it did not.
    """

    def __init__(self, name: str, follows: bool, take: Callable[[int], bytes], close: Callable[[], None]) -> None:
        self.name = name
        self.follows = follows
        self.damage: str | None = None
        self._take = take
        self._close = close
        self._head = b""

    def read(self) -> bytes:
        """The next piece, empty at the end. Damage in the packing ends it too, and is noted."""
        if self._head:
            data, self._head = self._head, b""
            return data
        if self.damage is not None:
            return b""
        try:
            return self._take(_CHUNK)
        except EOFError:
            self.damage = "the compressed file is cut off"
        except (OSError, zlib.error) as e:
            self.damage = f"the file cannot be read on: {e}"
        except Exception as e:
            if type(e).__name__ != "ZstdError":  # zstandard is optional, so its class cannot be named here
                raise
            self.damage = f"the file cannot be read on: {e}"
        return b""

    def peek(self, n: int) -> bytes:
        """The first bytes, at least n if there are so many; they are given again by ``read``."""
        head = b""
        while len(head) < n:
            more = self.read()
            if not more:
                break
            head += more
        self._head = head
        return head

    def close(self) -> None:
        """Close the file; standard input stays open."""
        self._close()


def open_source(
    path: str | os.PathLike[str], progress: Callable[[int, int | None], object] | None = None
) -> tuple[Source, Format]:
    """Open a capture or a request log and tell which it is.

    Args:
        path: A file, or ``-`` for standard input.
        progress: Called with (bytes read, size or None) after each piece.

    Raises:
        CaptureError: No such file, not readable, or neither a capture nor a log.
    """
    if str(path) == "-":
        raw: Any = sys.stdin.buffer
        path = name = _STDIN
        size = _regular_size(raw)
        close: Callable[[], None] = _nothing
    else:
        name = Path(path).name
        try:
            raw = Path(path).open("rb", buffering=0)  # noqa: SIM115  the source closes it
            size = _regular_size(raw)
        except OSError as e:
            raise CaptureError(f"{path}: {_why(e)}") from None
        close = raw.close
    try:
        follows = size is None
        counted = _Counted(raw, progress, size)
        try:
            source = _unpacked(name, follows, counted, close)
            return source, _format(source)
        except OSError as e:
            raise CaptureError(f"{path}: {_why(e)}") from None
    except BaseException:
        close()
        raise


def _unpacked(name: str, follows: bool, counted: _Counted, close: Callable[[], None]) -> Source:
    magic = counted.peek(4)
    if magic[:2] == b"\x1f\x8b":
        return Source(name, follows, gzip.GzipFile(fileobj=counted).read1, close)
    if magic == b"\x28\xb5\x2f\xfd":
        try:
            import zstandard
        except ImportError:
            raise CaptureError(
                f"{name}: compressed with zstd, for which the zstandard package is missing; "
                "pip install 'kproto[zstd]', or unpack it first: zstd -d"
            ) from None
        reader = zstandard.ZstdDecompressor().stream_reader(cast("IO[bytes]", counted), read_across_frames=True)
        return Source(name, follows, reader.read1, close)
    return Source(name, follows, counted.take, close)


def _format(source: Source) -> Format:
    head = source.peek(8)
    if head[:4] in _PCAP:
        return "pcap"
    if head[:4] == _PCAPNG:
        return "pcapng"
    if not head:
        empty = (
            "nothing came; did the command before the pipe fail?" if source.follows else "an empty file; take another"
        )
        raise CaptureError(f"{source.name}: {source.damage or empty}")
    for magic, what in _OTHERS:
        if head.startswith(magic):
            raise CaptureError(f"{source.name}: {what}")
    head = source.peek(4096)
    if b"\0" not in head and _LOG_LINE.search(head):
        return "request log"
    raise CaptureError(
        f"{source.name}: not a capture (it begins with {head[:8].hex(' ')}); "
        "kproto reads pcap, pcapng and the brokers' kafka-request.log, also gzip or zstd"
    )


def _regular_size(raw: Any) -> int | None:
    """The size of a file that will not grow, None for a pipe."""
    try:
        status = os.fstat(raw.fileno())
    except (OSError, ValueError, AttributeError):  # no descriptor behind it: it is in memory
        return len(raw.getbuffer()) if isinstance(raw, io.BytesIO) else 0
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _why(e: OSError) -> str:
    match e:
        case FileNotFoundError():
            return "no such file; check the path (a shell pattern that matches nothing is passed on as it is)"
        case IsADirectoryError():
            return "is a directory; name the files in it, e.g. DIR/*.pcap"
        case PermissionError():
            return "permission denied; what tcpdump wrote as root only root can read: try sudo, or chmod it"
    return (e.strerror or str(e)).lower()


def _nothing() -> None:
    pass
