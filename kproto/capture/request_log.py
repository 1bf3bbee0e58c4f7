"""Kafka's own request log (``kafka-request.log``, ``kafka.request.logger`` at DEBUG) -> frames, as a capture gives.

A line holds both bodies in Kafka's JSON form; both frames are encoded from it again as Kafka encodes them, without
unknown tagged fields, which the log lacks. The log has the time of the answer and the duration, but no time zone: times
are read as local ones.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from datetime import datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Literal

from kproto import codec
from kproto.api import request_header_version, response_header_version
from kproto.errors import KprotoError, UnsupportedApi
from kproto.headers import encode_request_header, encode_response_header, request_header, response_header

from .model import WHOLE, Connection, Endpoint, Exchange, Frame
from .wanted import WantedApis

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from .model import Direction
    from .summary import CaptureSummary

LONGEST_LINE: Final = 16 << 20
"""A longer line is not read as a request."""

_MARK: Final = b"Completed request:"
_VERSION: Final = re.compile(rb'"requestApiVersion":\s*(-?\d{1,9})(?!\d)')
_API: Final = re.compile(rb'"requestApiKey":\s*(-?\d{1,9})(?!\d)')
_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
_CONNECTION: Final = re.compile(r"(.+):(\d{1,5})-(.+):(\d{1,5})-\d+")
_LONGEST_CONNECTION: Final = 300
"""Longest connection name (two addresses with zones, two ports, a number); the pattern refuses longer text slowly."""

_CONNECTIONS: Final = 100_000
"""The most connections whose stream offsets and ids are remembered."""

_decode_json: Final = json.JSONDecoder().raw_decode


class _Streams:
    """A connection of the log, and the current offsets of its two streams."""

    __slots__ = ("connection", "request", "response")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.request = self.response = 0


class _Unusable(Exception):
    """A line that cannot be read; the text says why."""


class RequestLogReader:
    """Bytes of a request log -> frames and exchanges, each when its line is whole; does no I/O.

    Lines of other loggers are ignored. A line that cannot be read is noted, and reading goes on with the next one.

    Args:
        summary: Counts and damage go there.
        capture: Name of the capture point, part of the connections' ids.
        apis: API keys whose frames are wanted; None for all.

    Attributes:
        file: Name of the file, which frames carry.
        time_ns: Time at which the last request was answered, ns since the epoch.
    """

    def __init__(self, summary: CaptureSummary, *, capture: str, apis: Collection[int] | None) -> None:
        self.file = ""
        self.time_ns = 0
        self._summary = summary
        self._capture = capture
        self._wanted = WantedApis(apis)
        self._streams: OrderedDict[str, _Streams] = OrderedDict()
        self._offset = 0  # of the next line in the file
        self._parts: list[bytes] = []  # its bytes so far
        self._held = 0
        self._too_long = False

    def feed(self, data: bytes) -> list[Frame | Exchange]:
        """Take the next bytes of the file."""
        events: list[Frame | Exchange] = []
        end = data.rfind(b"\n") + 1
        if end:
            self._parts.append(data[:end])
            for line in self._lines(b"".join(self._parts)):
                self._line(line, events)
            self._parts, self._held = [], 0
        if end < len(data):
            self._held += len(data) - end
            if self._held > LONGEST_LINE:
                self._too_long = True
                self._parts = []
            else:
                self._parts.append(data[end:])
        return events

    def end(self, damage: str | None = None) -> list[Frame | Exchange]:
        """Say that the file has ended; its last line may lack its end.

        Args:
            damage: Why the file could not be read to its end, None if it was.
        """
        events: list[Frame | Exchange] = []
        if damage:
            self._summary.bad(damage, self._offset, self._held)
        for line in self._lines(b"".join(self._parts)):
            self._line(line, events)
        self._parts, self._held, self._offset = [], 0, 0
        return events

    def _lines(self, data: bytes) -> Iterator[bytes]:
        """Cut the bytes into lines; a line that is too long is noted and left out."""
        at = 0
        if self._too_long:
            at = data.find(b"\n") + 1 or len(data)
            length = self._held + at
            self._summary.bad(f"a line of more than {LONGEST_LINE >> 20} MiB", self._offset, length)
            self._offset += length
            self._too_long = False
        for line in data[at:].splitlines(keepends=True):
            if len(line) > LONGEST_LINE:
                self._summary.bad(f"a line of more than {LONGEST_LINE >> 20} MiB", self._offset, len(line))
            else:
                yield line
            self._offset += len(line)

    def _line(self, line: bytes, events: list[Frame | Exchange]) -> None:
        mark = line.find(_MARK)
        if mark < 0:
            return
        summary = self._summary
        summary.packets += 1
        api = _API.search(line, mark)
        if api is not None and int(api[1]) not in self._wanted and 0 <= int(api[1]) < 1 << 15:
            version = _VERSION.search(line, mark)
            number = int(version[1]) if version else 0
            if -1 << 15 <= number < 1 << 15:
                summary.requests[int(api[1]), number] += 1
                return
        try:
            answered_ns = self._exchange(line, mark, events)
        except UnsupportedApi:
            return  # only counted: no codec reads this API's bodies
        except _Unusable as e:
            summary.bad(str(e), self._offset, len(line))
        except KprotoError as e:
            summary.bad(f"a logged message that cannot be written: {e}", self._offset, len(line))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
            told = "a number of thousands of digits" if "digits" in str(e) else f"{type(e).__name__}: {str(e)[:200]}"
            reason = f"a line that is no logged request: {told}"
            summary.bad(reason, self._offset, len(line))
        else:
            self.time_ns = answered_ns
            summary.first_ns = summary.first_ns or answered_ns
            summary.last_ns = answered_ns

    def _exchange(self, line: bytes, mark: int, events: list[Frame | Exchange]) -> int:
        """Make both frames of a line; return the time at which the request was answered."""
        answered_ns = _time_ns(line[:mark])
        text = line[mark + len(_MARK) :].decode("utf-8", "replace")
        if not text.startswith("{"):
            raise _Unusable("a request logged as text; Kafka logs JSON since 2.7")
        entry: dict[str, Any] = _decode_json(text)[0]
        header = entry["requestHeader"]
        api_key, version = int(header["requestApiKey"]), int(header["requestApiVersion"])
        correlation_id, client_id = int(header["correlationId"]), header.get("clientId")
        if not (0 <= api_key < 1 << 15 and -1 << 15 <= version < 1 << 15):
            raise _Unusable(f"a logged request of API {str(api_key)[:20]} version {str(version)[:20]}")
        sent_ns = answered_ns - round(float(entry.get("totalTimeMs") or 0) * 1_000_000)
        if not 0 <= sent_ns < 1 << 63:
            raise _Unusable("a logged request whose time lies before 1970 or after 2262")
        ends = self._ends(str(entry["connection"]))
        self._summary.requests[api_key, version] += 1
        head = encode_request_header(
            request_header(api_key, version, correlation_id, client_id), request_header_version(api_key, version)
        )
        body = _body(api_key, version, "request", entry["request"])
        answer_head = answer = None
        if entry.get("response") is not None:
            answer_head = encode_response_header(
                response_header(correlation_id), response_header_version(api_key, version)
            )
            answer = _body(api_key, version, "response", entry["response"])

        streams = self._connection(str(entry["connection"]), ends, sent_ns)
        names = api_key, version, correlation_id, client_id
        request = self._frame(streams, "request", sent_ns, head, body, *names)
        response = None
        if answer_head is not None and answer is not None:
            response = self._frame(streams, "response", answered_ns, answer_head, answer, *names)
            response.request = request
            self._summary.responses += 1
        else:
            request.unmatched_reason = "the log has no response"
            self._summary.unmatched_requests += 1
        events += [request, Exchange(request, response)]
        return answered_ns

    def _ends(self, name: str) -> tuple[Endpoint, Endpoint]:
        """Server and client of a connection, as its name in the log says."""
        found = _CONNECTION.fullmatch(name) if len(name) <= _LONGEST_CONNECTION else None
        if found is None or int(found[2]) > 0xFFFF or int(found[4]) > 0xFFFF:
            raise _Unusable(f"a connection named {name[:100]!r}")
        return Endpoint(_address(found[1]), int(found[2])), Endpoint(_address(found[3]), int(found[4]))

    def _connection(self, name: str, ends: tuple[Endpoint, Endpoint], time_ns: int) -> _Streams:
        streams = self._streams.get(name)
        if streams is None:
            server, client = ends
            streams = _Streams(Connection(client, server, time_ns, self._capture, saw_open=False))
            self._streams[name] = streams
            self._summary.connections += 1
            self._summary.recognised("kafka", server)
            if len(self._streams) > _CONNECTIONS:
                self._streams.popitem(last=False)
        return streams

    def _frame(
        self,
        streams: _Streams,
        direction: Direction,
        time_ns: int,
        head: bytes,
        body: bytes,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> Frame:
        offset: int = getattr(streams, direction)
        length = len(head) + len(body)
        setattr(streams, direction, offset + 4 + length)
        return Frame(
            streams.connection,
            direction,
            offset,
            time_ns,
            time_ns,
            WHOLE,
            length,
            head + body,
            api_key,
            version,
            correlation_id,
            client_id,
            len(head),
            self.file,
        )


def _body(api_key: int, version: int, kind: Literal["request", "response"], form: Any) -> bytes:
    return codec.encode(codec.message_class(api_key, kind).from_json(form, version), version)


def _time_ns(text: bytes) -> int:
    """The time that a log line begins with, as local time."""
    found = _TIME.search(text)
    if found is None:
        raise _Unusable("a logged request without a time of the form 2024-12-31 23:59:59,999")
    seconds = datetime.strptime(f"{found[1].decode()} {found[2].decode()}", "%Y-%m-%d %H:%M:%S").timestamp()
    time_ns = int(seconds) * 1_000_000_000 + int((found[3] or b"0").ljust(9, b"0"))
    if not 0 <= time_ns < 1 << 63:
        raise _Unusable("a logged request whose time lies before 1970 or after 2262")
    return time_ns


def _address(text: str) -> str:
    """An address as Java prints it, in the usual short form."""
    try:
        return str(ip_address(text.strip("[]/").partition("%")[0]))
    except ValueError:
        return text
