"""Where captures come from: files, open binary files, bytes; plain, or packed with gzip, bzip2, xz or zstd."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import sys
import zlib
from base64 import b64decode
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from kproto.errors import CaptureError
from kproto.extras import install_command

from .growing import GrowingPart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

Format = Literal["pcap", "pcapng", "request log"]

LOGS: Final = frozenset(("request log", "state-change log"))
"""The formats in ``CaptureSummary.format`` of what was logged, not captured."""

File: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | GrowingPart
"""A path, the bytes of a file, or an open binary file, which stays open."""

HEAD: Final = 4096
"""The number of first bytes that show a file's format."""

_CHUNK: Final = 1 << 17

_PCAP: Final = {b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1"}
_PCAPNG: Final = b"\x0a\x0d\x0d\x0a"
PCAP_HEADER: Final = 24
"""The bytes of a pcap file's header."""

_GZIP: Final = b"\x1f\x8b"
_BZIP2: Final = re.compile(rb"BZh[1-9]")
_XZ: Final = b"\xfd7zXZ"
_XZ_MEMORY: Final = 128 << 20
"""The most memory that unpacking xz may take: as much as its highest preset needs, and more."""
_ZSTD: Final = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")  # a zstd frame, or a skippable one

_OTHERS: Final = [
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"\xa1\xb2\xcd\x34", "a pcap of an old patched tcpdump; convert it: editcap -F pcap IN OUT"),
    (b"\x34\xcd\xb2\xa1", "a pcap of an old patched tcpdump; convert it: editcap -F pcap IN OUT"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
    (b"Rar!", "a rar archive; unpack it first"),
    (b"\x04\x22\x4d\x18", "compressed with lz4; unpack it first: lz4 -d"),
    (b"\x1f\x9d", "compressed with compress; unpack it first: uncompress"),
    (b"\x1f\x8b", "packed twice; unpack it once: gunzip"),
    (b"LZIP", "compressed with lzip; unpack it first: lzip -d"),
    (b"\x5d\0\0", "compressed with lzma; unpack it first: unlzma"),
    (b"%PDF", "a PDF file; save the log in it as text"),
    (b"\x89PNG", "a picture; kproto reads text"),
    (b"snoop\0", "a snoop capture; convert it: editcap -F pcap IN OUT"),
    (b"PAR1", "a Parquet file; kproto reads captures and the brokers' kafka-request.log"),
]

_PRINTED: Final = re.compile(
    rb"\bIP6? [\w.:-]{3,80} > [\w.:-]{3,80}: |<(?:pdml|psml)\b|\"layers\":"
    rb"|^[^\S\n]*\d+ .{0,60}\xe2\x86\x92.{0,60} (?:TCP|Kafka) "
    rb"|^(?:0x)?0000:? {1,2}[0-9a-f]{2}"
    rb"|^(?:[^\t\n]{0,60}\t){0,5}(?:\d{1,3}\.){3}\d{1,3}\t(?:[^\t\n]{0,60}\t){0,3}(?:\d{1,3}\.){3}\d{1,3}\s"
    rb"|^(?:frame|ip|tcp|kafka)\.[a-z_.]{2,40}[\t,;|]",
    re.M,
)
"""What tcpdump and tshark print of packets, as lines, XML, JSON, hexadecimal or fields."""

_SIDE_BY_SIDE: Final = re.compile(
    rb"^(\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[^\n]{20,2000}?)(?:\t|  )[\t ]{0,300}+\1"
    rb"|^\[?\d{4}-\d\d-\d\d[ T][^\n]{20,2000}[\t ]\(\n\[?\d{4}-\d\d-\d\d[ T][^\n]{20,2000}[\t ]\($",
    re.M,
)
"""Lines of two logs that are equal there, as diff prints them in columns, which cut the lines, or in the left one."""

_FILLED: Final = re.compile(
    rb"^[^\n]{0,300}\([A-Za-z][\w.$]{2,200}\) \[\d{4}-\d\d-\d\d(?:[^\n]{0,250}[^)\]}\"'\\\n])?\n"
    rb"(?!(?:> ?)*(?:\[\d{4}-|\s|$))",
    re.M,
)
"""A line that ends, and the next one beginning behind it, which goes on below."""

_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]{80,}")
"""Text that is encoded."""

_TAR: Final = b"ustar"
_TAR_AT: Final = 257


class _CountingStream:
    """A raw stream that returns peeked bytes again, counts the bytes read, and never waits for more than are there."""

    def __init__(self, raw: Any, progress: Callable[[int, int | None], object] | None, total: int | None) -> None:
        self._read = getattr(raw, "read1", raw.read)
        self._head = b""
        self._progress = progress
        self._total = total
        self._bytes_read = 0

    def peek(self, n: int) -> bytes:
        while len(self._head) < n:
            more = self._read(n - len(self._head))
            if not more:
                break
            self._head += more
        return self._head

    def read(self, n: int) -> bytes:
        """At most n bytes; empty at the end."""
        if self._head:
            data, self._head = self._head[:n], self._head[n:]
        else:
            data = self._read(n) or b""
        self._bytes_read += len(data)
        if self._progress is not None:
            self._progress(self._bytes_read, self._total)
        return data


class Source:
    """Bytes of a file, unpacked, piece by piece as they come. A context manager: closes what it opened.

    Args:
        file: A path, the bytes of a file, or an open binary file.
        progress: Called with (bytes read, size or None) after each piece.
        opener: Opens a path; None: the file system does.

    Attributes:
        name: The file's name, see ``file_name``.
        follows: Whether the file may still grow while it is read (a pipe, a ``GrowingPart``).
        damage: Why reading stopped early, None if it reached the end.
        packed_head: The first bytes as they stand in the file, packed or not.

    Raises:
        CaptureError: No such file, or it cannot be read.
    """

    def __init__(
        self,
        file: File,
        progress: Callable[[int, int | None], object] | None = None,
        *,
        opener: Callable[[str], IO[bytes]] | None = None,
    ) -> None:
        self.name: str = file_name(file)
        self.damage: str | None = None
        self._head = b""
        self._close: Callable[[], object] | None = None
        raw: Any
        if isinstance(file, (bytes, bytearray, memoryview)):
            raw = io.BytesIO(file)
        elif not isinstance(file, (str, os.PathLike)):
            raw = file
        else:
            try:
                raw = opener(str(file)) if opener else Path(file).open("rb", buffering=0)  # noqa: SIM115  ``close`` closes it
            except OSError as e:
                raise CaptureError(f"{file}: {_why(e, str(file))}") from None
            self._close = raw.close
        try:
            size = _regular_size(raw)
            self.follows: bool = size is None
            counted = _CountingStream(raw, progress, size)
            self.packed_head: bytes = counted.peek(4)
            self._take = self._unpacked(counted)
        except OSError as e:
            self.close()
            raise CaptureError(f"{self.name}: {_why(e, self.name)}") from None
        except BaseException:
            self.close()
            raise

    def read(self) -> bytes:
        """The next piece, empty at the end. Damaged compression also ends the file, and is noted."""
        if self._head:
            data, self._head = self._head, b""
            return data
        if self.damage is not None:
            return b""
        try:
            return self._take(_CHUNK)
        except EOFError:
            self.damage = "the compressed file is cut off"
        except lzma.LZMAError as e:
            greedy = f"unpacking it takes more memory than {_XZ_MEMORY >> 20} MiB"
            self.damage = f"the file cannot be read on: {greedy if 'limit' in str(e) else 'it is damaged'}"
        except (OSError, zlib.error) as e:
            is_bzip2 = type(e) is OSError and e.errno is None
            self.damage = f"the file cannot be read on: {'it is damaged' if is_bzip2 else e}"
        except Exception as e:
            if type(e).__name__ != "ZstdError":  # zstandard is optional, so its class cannot be named here
                raise
            self.damage = f"the file cannot be read on: {e}"
        return b""

    def peek(self, n: int) -> bytes:
        """The first bytes, at least n if the file has n; ``read`` returns them again."""
        head = b""
        while len(head) < n:
            more = self.read()
            if not more:
                break
            head += more
        self._head = head
        return head

    def close(self) -> None:
        """Close the file, if it was opened here."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _unpacked(self, counted: _CountingStream) -> Callable[[int], bytes]:
        magic = counted.peek(5)
        if magic.startswith(_GZIP):
            return gzip.GzipFile(fileobj=cast("IO[bytes]", counted)).read1
        if _BZIP2.match(magic):
            return _members(counted, bz2.BZ2Decompressor)
        if magic.startswith(_XZ):
            return _members(counted, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY))
        if _ZSTD.match(magic):
            try:
                import zstandard
            except ImportError:
                raise CaptureError(
                    f"{self.name}: compressed with zstd, for which the zstandard package is missing; "
                    f"{install_command('zstd')}, or unpack it first: zstd -d"
                ) from None
            reader = zstandard.ZstdDecompressor().stream_reader(cast("IO[bytes]", counted), read_across_frames=True)
            return cast("Callable[[int], bytes]", reader.read1)
        return counted.read


def _members(counted: _CountingStream, new: Callable[[], Any]) -> Callable[[int], bytes]:
    """Read what bzip2 or xz packed, member by member, never more than is asked for."""
    member = new()

    def take(n: int) -> bytes:
        nonlocal member
        while True:
            if member.eof:
                packed = member.unused_data.lstrip(b"\0")  # zeros may stand between
                while not packed:
                    more = counted.read(_CHUNK)
                    if not more:
                        return b""
                    packed = more.lstrip(b"\0")
                member = new()
            else:
                packed = counted.read(_CHUNK) if member.needs_input else b""
                if not packed and member.needs_input:
                    raise EOFError
            if data := member.decompress(packed, n):
                return cast("bytes", data)

    return take


def is_file(source: object) -> bool:
    """Whether a source is one file: a path, bytes, or an open file."""
    return isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview)) or hasattr(source, "read")


def file_name(file: File) -> str:
    """A file's name without its folders; if it has none ``standard input``, ``an open file`` or ``bytes``."""
    if isinstance(file, (str, os.PathLike)):
        return Path(file).name
    if isinstance(file, (bytes, bytearray, memoryview)):
        return "bytes"
    if file is getattr(sys.stdin, "buffer", None):
        return "standard input"
    name = getattr(file, "name", None)
    return Path(name).name if isinstance(name, str) else "an open file"


def detect_format(name: str, head: bytes, *, whole: bool) -> Format | None:
    """Tell a file's format from its first bytes.

    Args:
        name: The file's name, for errors.
        head: The first bytes; ``HEAD`` of them are enough.
        whole: Whether these are all bytes of the file.

    Returns:
        None if more bytes are needed.

    Raises:
        CaptureError: It is neither a capture nor a request log; says what it may be.
    """
    if head[:4] in _PCAP:
        if whole and len(head) < PCAP_HEADER:
            raise CaptureError(f"{name}: a pcap file cut off within its header")
        return "pcap" if len(head) >= PCAP_HEADER else None
    if head[:4] == _PCAPNG:
        return "pcapng"
    if len(head) < 8 and not whole:
        return None
    for magic, advice in _OTHERS:
        if head.startswith(magic):
            raise CaptureError(f"{name}: {advice}")
    if head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
        raise CaptureError(f"{name}: a tar archive; unpack it first: tar -xf")
    from kproto.logs.detection import holds_line, looks_like_log  # whose patterns no packet needs

    if _SIDE_BY_SIDE.search(head, 0, HEAD):
        raise CaptureError(f"{name}: two logs side by side, as diff -y prints them; name each log by itself")
    if _FILLED.search(head, 0, HEAD):
        raise CaptureError(f"{name}: a log whose lines were filled like a paragraph, as fmt does; name the log itself")
    if looks_like_log(head):
        return "request log"
    if (b"\0" not in head or head[:1] == b"{") and len(head) < HEAD and not whole:
        return None
    if _PRINTED.search(head):
        raise CaptureError(f"{name}: packets as tcpdump or tshark print them; save the packets themselves: -w FILE")
    if b"\ncontent-transfer-encoding: base64" in head.lower():
        raise CaptureError(f"{name}: the source of a mail whose text is in base64: save the log in it as a file")
    if (encoded := _BASE64.search(head)) and looks_like_log(b64decode(encoded[0][: len(encoded[0]) // 4 * 4])):
        raise CaptureError(f"{name}: a log in base64; decode it first: base64 -d")
    if holds_line(head):
        raise CaptureError(
            f"{name}: a log whose lines have no time that can be read, such as 2024-12-31 23:59:59,999; "
            "if it is an export that has the time apart (YAML, a list of fields), export JSON or CSV"
        )
    raise CaptureError(
        f"{name}: not a capture (it begins with {head[:8].hex(' ')}); "
        "kproto reads pcap, pcapng and the brokers' logs (kafka-request.log, state-change.log), also packed with gzip, "
        "bzip2, xz or zstd; a capture of another program is converted with editcap -F pcap IN OUT"
    )


def check_capture(file: File, *, opener: Callable[[str], IO[bytes]] | None = None) -> Format:
    """Tell whether a file can be read at all, by its first bytes.

    Args:
        file: The file.
        opener: Opens a path; None: the file system does.

    Raises:
        CaptureError: It cannot be opened, is empty, or is neither a capture nor a request log.
    """
    with Source(file, opener=opener) as source:
        head = source.peek(HEAD)
        check_begun(source, begun=bool(head))
        found = detect_format(source.name, head, whole=True)
        assert found is not None
        return found


def faults_of(files: Iterable[str], *, opener: Callable[[str], IO[bytes]] | None = None) -> dict[str, str]:
    """Return the files that cannot be read at all, each with the reason that ``check_capture`` gives."""
    faults: dict[str, str] = {}
    for file in files:
        try:
            check_capture(file, opener=opener)
        except CaptureError as e:
            faults[file] = str(e)
    return faults


def check_begun(source: Source, *, begun: bool) -> None:
    """Check that a source had any bytes.

    Raises:
        CaptureError: It had none; the text says why.
    """
    if not begun:
        empty = "an empty file; nothing was recorded in it"
        if source.follows:
            empty = "nothing came; did the command before the pipe fail?"
        raise CaptureError(f"{source.name}: {source.damage or empty}")


def _regular_size(raw: Any) -> int | None:
    """The size of a file that will not grow, None for a pipe."""
    if isinstance(raw, GrowingPart):
        return None
    try:
        status = os.fstat(raw.fileno())
    except (OSError, ValueError, AttributeError):  # a file object without a descriptor is in memory
        return len(raw.getbuffer()) if isinstance(raw, io.BytesIO) else 0
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _why(e: OSError, name: str) -> str:
    match e:
        case FileNotFoundError() if "://" in name:
            return "no such file here; summary, query, report and analyze read URIs: try these, or copy the file"
        case FileNotFoundError():
            return (
                "no such file or directory; check the path (a shell pattern that matches nothing is passed on as it is)"
            )
        case IsADirectoryError():
            return "is a directory, and so no capture"
        case PermissionError():
            return "permission denied; what tcpdump wrote as root only root can read: try sudo, or chmod it"
    return (e.strerror or str(e)).lower()
