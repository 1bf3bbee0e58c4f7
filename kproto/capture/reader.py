"""Bytes or packets of one capture point as they come -> frames and exchanges; does no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kproto.api import CONTROL_APIS
from kproto.errors import CaptureError
from kproto.framing import DEFAULT_LIMIT

from .collector import Collector
from .frozen import freeze
from .pcap import FileReader, PcapReader
from .pcapng import PcapngReader
from .source import LOGS, detect_format
from .summary import CaptureSummary

if TYPE_CHECKING:
    from collections.abc import Collection

    from kproto.logs import LogReading

    from .collector import Event
    from .log_reader import LogReader
    from .model import Frame
    from .payloads import PayloadStore
    from .pcap import Packet
    from .wanted import WantedApis


class CaptureReader:
    """Reads the recording of one capture point, piece by piece, from any source.

    A capture's bytes go to ``feed``, in pieces of any size; rotated files go one after the other, with
    ``end_file`` after each. Packets from elsewhere (a socket, another library) go to ``packet``. Each call returns the
    frames and exchanges that it completes: a request's ``Frame`` once it is whole, an ``Exchange`` once the request is
    answered or can no longer be. ``end`` returns the rest.

    >>> reader = CaptureReader()
    >>> reader.end()
    []

    Args:
        ports: The listeners' ports; None finds them from the traffic.
        apis: API keys whose requests and responses are given; None for all.
        capture: Name of the capture point, part of the connections' ids.
        limit: The largest frame in bytes; a larger one is passed over.
        summary: A fresh summary to be filled.
        keeps_payloads: See ``read_frames``.
        payloads: The payloads of large requests, which captures that are read one after the other may share; None: a
            store of its own.
        logs: What logs do not say themselves.

    Attributes:
        summary: Counts and damage so far.
        rest: The packet within which the file that was ended last ends, as far as it is there; else empty.
    """

    def __init__(
        self,
        *,
        ports: Collection[int] | None = None,
        apis: Collection[int] | WantedApis | None = CONTROL_APIS,
        capture: str = "",
        limit: int = DEFAULT_LIMIT,
        summary: CaptureSummary | None = None,
        keeps_payloads: bool = True,
        payloads: PayloadStore | None = None,
        logs: LogReading | None = None,
    ) -> None:
        self.summary: CaptureSummary = CaptureSummary() if summary is None else summary
        self.rest: list[Packet] = []
        self._packets = Collector(
            self.summary,
            capture=capture,
            ports=ports,
            apis=apis,
            limit=limit,
            keeps_payloads=keeps_payloads,
            payloads=payloads,
        )
        self._log: LogReader | None = None
        self._log_options: dict[str, Any] = {"capture": capture, "apis": apis, "reading": logs}
        self._reader: PcapReader | PcapngReader | LogReader | None = None
        self._head = b""

    def freeze(self, waiting: list[Frame]) -> bytes | None:
        """Return the state behind the last file as bytes, which ``thaw`` reads; None where it cannot be kept.

        Args:
            waiting: Requests that were given and are not answered yet.
        """
        if self.summary.format in LOGS:
            return None
        return freeze((self._packets, self.summary, waiting))

    def count_in(self, summary: CaptureSummary) -> None:
        """Count in another summary what the next log tells."""
        self.summary = summary
        if self._log is not None:
            self._log.summary = summary

    @property
    def connections(self) -> Collector:
        """The connections of the capture point."""
        return self._packets

    @property
    def time_ns(self) -> int:
        """Time in the capture: of the packet or log line read last, ns since the epoch."""
        return max(self._packets.time_ns, self._log.time_ns if self._log else 0)

    def begin_file(self, name: str) -> None:
        """Name the file whose bytes come next; frames and bad inputs carry the name."""
        self.summary.file = self.summary.file or name
        self.summary.reading = self._packets.file = name
        if self._log is not None:
            self._log.begin_file(name)

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes of a capture or request log, unpacked.

        Raises:
            CaptureError: They are neither; the text says what they may be.
        """
        if self._reader is None:
            data = self._head + data
            if not self._begin(data, whole=False):
                self._head = data
                return []
            self._head = b""
        reader = self._reader
        assert reader is not None
        if not isinstance(reader, (PcapReader, PcapngReader)):
            return reader.feed(data)
        packets = reader.feed(data)
        return self._packets.packets(packets) if packets else []

    def packet(self, time_ns: int, data: bytes, link: int, on_wire: int | None = None) -> list[Event]:
        """Take a packet.

        Args:
            time_ns: When it passed, ns since the epoch.
            data: Its bytes, from the link layer's header on.
            link: The link type, as in a pcap file: 1 is Ethernet, 101 raw IP, 113 and 276 Linux cooked.
            on_wire: Its length when it passed, if the capture has cut it.
        """
        if not 0 <= time_ns < 1 << 63:
            self.summary.bad("a packet whose time lies before 1970 or after 2262", self.summary.packets, len(data))
            return []
        on_wire = len(data) if on_wire is None else on_wire
        return self._packets.packets([(time_ns, link, data, 0, len(data), on_wire)])

    @property
    def context(self) -> int:
        """``FileReader.context`` of the file; 0 of a log."""
        return self._reader.context if isinstance(self._reader, FileReader) else 0

    @property
    def read_to(self) -> int | None:
        """Where in the file the packets that were read whole end; None of a log."""
        return self._reader.read_to if isinstance(self._reader, FileReader) else None

    def end_file(self, damage: str | None = None) -> list[Event]:
        """End a file. Its connections, frames and segments continue in the next one.

        Args:
            damage: Why the file could not be read to its end, None if it was.

        Raises:
            CaptureError: The file is too short to be a capture.
        """
        events: list[Event] = []
        if self._reader is None and self._head:
            head, self._head = self._head, b""
            self._begin(head, whole=True)
            events = self.feed(head)
        reader, self._reader = self._reader, None
        if isinstance(reader, (PcapReader, PcapngReader)):
            # The end of the file cut this packet, not the capture's snaplen, and its TCP header may be missing.
            cut, not_tcp = self.summary.cut_packets, self.summary.not_tcp
            if rest := reader.end(damage):
                events += self._packets.packets(rest)
            self.rest = rest
            self.summary.cut_packets, self.summary.not_tcp = cut, not_tcp
        elif reader is not None:
            events += reader.end_file(damage)
        elif damage:
            raise CaptureError(f"{self.summary.reading or 'the capture'}: {damage}")
        return events

    def end(self) -> list[Event]:
        """End the capture; return the remaining frames and exchanges, with the requests that got no response."""
        events = self.end_file()
        if self._log is not None:
            events += self._log.end()
        return [*events, *self._packets.end()]

    def _begin(self, head: bytes, *, whole: bool) -> bool:
        """Tell a file's format from its first bytes; return whether they are enough."""
        found = detect_format(self.summary.reading or "the capture", head, whole=whole)
        if found is None:
            return False
        self.summary.format = self.summary.format or found
        if found == "pcap":
            self._reader = PcapReader(self.summary)
        elif found == "pcapng":
            self._reader = PcapngReader(self.summary)
        else:
            if self._log is None:
                from .log_reader import LogReader  # whose patterns no packet needs

                self._log = LogReader(self.summary, **self._log_options)
                self._log.begin_file(self.summary.reading)
            self._reader = self._log
        return True
