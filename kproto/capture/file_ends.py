"""How files begin and how they end: what is looked at before captures and logs are read, each file's but once."""

from __future__ import annotations

import os
import re
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kproto.errors import CaptureError

from .pcap import PcapReader
from .pcapng import PcapngReader
from .source import HEAD, Source, check_begun, detect_format
from .summary import CaptureSummary
from .tail import Tail, is_plain, read_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .pcap import Packet

Opener: TypeAlias = "Callable[[str], IO[bytes]]"

LOG_TIME: Final = re.compile(rb"^\[?(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[,.](\d{3}))?", re.M)

OF_LOG: Final = ("request log",)
"""The properties of each log."""

_END: Final = 1 << 20
"""The number of bytes before a file's end that show when it was last written to."""

_SHORT: Final = 64 << 20
"""The number of bytes to unpack of a file whose name is enough."""


class Beginning(NamedTuple):
    """The properties of a file that its beginning tells; ``seen_ns`` is the newest time there."""

    properties: tuple[object, ...]
    first_ns: int
    seen_ns: int = 0


def is_pipe(file: str) -> bool:
    """Whether a file is a pipe or a device: what is read of it, nobody can read again."""
    path = Path(file)
    return path.exists() and not path.is_file() and not path.is_dir()


def refuse_pipes(files: Iterable[str]) -> None:
    """Check that files can be read several times.

    Raises:
        CaptureError: One of them is a pipe.
    """
    if (pipe := next(filter(is_pipe, files), None)) is not None:
        raise CaptureError(f"{pipe}: a pipe can be read only once; save what comes in a file, and name that")


class FileEnds:
    """Reads the beginnings and ends of files, and keeps what they told.

    Args:
        opener: Opens a file by its name, for seeking; None: the file system does.
    """

    def __init__(self, opener: Opener | None = None) -> None:
        self._opener: Opener = opener or _open
        self._beginnings: dict[str, Beginning] = {}
        self._last_ns_of_logs: dict[str, int] = {}

    def open(self, file: str) -> Source:
        """Open a file.

        Raises:
            CaptureError: It cannot be opened.
        """
        return Source(file, opener=self._opener)

    def beginning(self, file: str) -> Beginning:
        """Read the beginning of a file; an empty file counts as later than all others.

        Raises:
            CaptureError: The file cannot be read, or is no capture; or it can be read only once.
        """
        found = self._beginnings.get(file)
        if found is None:
            refuse_pipes([file])
            found = self._beginnings[file] = self._read_beginning(file)
        return found

    def _read_beginning(self, file: str) -> Beginning:
        with self.open(file) as source:
            head = source.peek(HEAD)
            check_begun(source, begun=bool(head))
            reader = _reader_of(source)
            if reader is None:
                from kproto.logs.detection import first_time_ns

                found = LOG_TIME.search(head)
                return Beginning(OF_LOG, time_ns(found) if found else first_time_ns(head))
            packets = next(_packets(source, reader), None)
            if packets is None:
                return Beginning(reader.properties, 1 << 63)
            return Beginning(reader.properties, packets[0][0], max(packet[0] for packet in packets))

    def last_ns(self, file: str, *, short: bool = False) -> int:
        """Return the time of the last packet of a capture, or of the last line of a log.

        Args:
            file: The file.
            short: See ``last_packets``.
        """
        if self.beginning(file).properties != OF_LOG:
            return max((packet[0] for packet in self.last_packets(file, short=short)[0]), default=0)
        last_ns = self._last_ns_of_logs.get(file, 0)
        if not last_ns:
            with self.open(file) as source:
                if source.peek(HEAD).startswith(source.packed_head):
                    with self._opener(file) as opened:
                        opened.seek(max(opened.seek(0, os.SEEK_END) - _END, 0))
                        last_ns = last_line_ns(opened.read())
                else:
                    while data := source.read():
                        last_ns = max(last_ns, last_line_ns(data))
            self._last_ns_of_logs[file] = last_ns
        return last_ns

    def first_packets(self, file: str) -> list[Packet]:
        """Return the packets in the first bytes of a capture; none of a log."""
        with self.open(file) as source:
            return next(_packets(source, _reader_of(source)), [])

    def last_packets(self, file: str, *, short: bool = False) -> tuple[list[Packet], bool]:
        """Return the packets in the last megabyte of a capture, and whether it was read to its end; none of a log.

        Args:
            file: The file.
            short: Whether to read no more than the first megabytes of a packed capture.
        """
        last: deque[tuple[int, list[Packet]]] = deque()
        done = 0
        with self.open(file) as source, self._opener(file) as opened:
            size = opened.seek(0, os.SEEK_END)
            if size >= 2 * _END and is_plain(source.packed_head):
                pieces = read_tail(Tail(file, size - _END, size), self._opener, CaptureSummary(file=file))
            else:
                pieces = _packets(source, _reader_of(source))
            for packets in pieces:
                done += sum(packet[4] - packet[3] for packet in packets)
                last.append((done, packets))
                while last[0][0] <= done - _END:
                    last.popleft()
                if short and done > _SHORT:
                    break
        return [packet for _done, packets in last for packet in packets], not short or done <= _SHORT


def _reader_of(source: Source) -> PcapReader | PcapngReader | None:
    """What reads the packets of a file, None of a log."""
    kind = detect_format(source.name, source.peek(HEAD), whole=True)
    summary = CaptureSummary()
    return None if kind == "request log" else PcapReader(summary) if kind == "pcap" else PcapngReader(summary)


def _packets(source: Source, reader: PcapReader | PcapngReader | None) -> Iterator[list[Packet]]:
    """Yield the packets of a capture in pieces; none of a log."""
    while reader and (data := source.read()):
        if packets := reader.feed(data):
            yield packets


def last_line_ns(data: bytes) -> int:
    """Return the time of the last line with one in some bytes of a log; 0 if none has one."""
    from kproto.logs.detection import last_time_ns

    at = len(data)
    while (at := data.rfind(b"\n[", 0, at)) >= 0:
        if found := LOG_TIME.match(data, at + 1):
            return time_ns(found)
    lines = deque(LOG_TIME.finditer(data), maxlen=1)
    return time_ns(lines[0]) if lines else last_time_ns(data[-HEAD:])


def time_ns(found: re.Match[bytes]) -> int:
    """Return the time that ``LOG_TIME`` found, by this machine's zone; 0 if there is no such time."""
    try:
        time = datetime.strptime(f"{found[1].decode()} {found[2].decode()}", "%Y-%m-%d %H:%M:%S")
        return int(time.timestamp()) * 1_000_000_000 + int(found[3] or 0) * 1_000_000
    except (ValueError, OverflowError, OSError):
        return 0


def _open(file: str) -> IO[bytes]:
    return Path(file).open("rb", buffering=0)
