"""Kafka's own request log (``kafka-request.log``, ``kafka.request.logger`` at DEBUG) -> frames, as a capture gives.

A line holds both bodies in Kafka's JSON form, so both frames are made anew from it as Kafka writes
them; unknown tagged fields are not in the log.
The log tells when a request was answered and how long that took, and no time zone: its times are read as local ones.
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .correlate import Collector
    from .model import Direction
    from .read import Source
    from .summary import CaptureSummary

__all__ = ["read"]

_MARK: Final = b"Completed request:"
_VERSION: Final = re.compile(rb'"requestApiVersion":\s*(-?\d+)')
_API: Final = re.compile(rb'"requestApiKey":\s*(-?\d+)')
_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
_CONNECTION: Final = re.compile(r"(.+):(\d+)-(.+):(\d+)-\d+")
_LONGEST_LINE: Final = 512 << 20
_CONNECTIONS: Final = 100_000
"""So many connections are remembered, for their stream offsets and ids."""

_decode_json: Final = json.JSONDecoder().raw_decode


class _Streams:
    """A connection of the log, and how far its two streams have come."""

    __slots__ = ("connection", "req", "resp")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.req = self.resp = 0


class _Log:
    def __init__(self, collector: Collector, summary: CaptureSummary) -> None:
        self._collector = collector
        self._summary = summary
        self._streams: OrderedDict[str, _Streams] = OrderedDict()

    def line(self, line: bytes, offset: int) -> int:
        """Take a line; the time at which its request was answered, ns since the epoch, 0 if it holds none."""
        mark = line.find(_MARK)
        if mark < 0:
            return 0
        summary = self._summary
        summary.packets += 1
        api = _API.search(line, mark)
        apis = self._collector.apis
        if api is not None and apis is not None and int(api[1]) not in apis:
            version = _VERSION.search(line, mark)
            summary.requests[int(api[1]), int(version[1]) if version else 0] += 1
            return 0
        try:
            return self._exchange(line, mark)
        except UnsupportedApi:
            return 0  # counted; no codec has its bodies
        except _Unusable as e:
            summary.bad(str(e), offset, len(line))
        except KprotoError as e:
            summary.bad(f"a logged message that cannot be written: {e}", offset, len(line))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as e:
            summary.bad(f"a line that is no logged request: {type(e).__name__}: {e}", offset, len(line))
        return 0

    def _exchange(self, line: bytes, mark: int) -> int:
        answered_ns = _time_ns(line[:mark])
        text = line[mark + len(_MARK) :].decode("utf-8", "replace")
        if not text.startswith("{"):
            raise _Unusable("a request logged as text; Kafka logs JSON since 2.7")
        entry: dict[str, Any] = _decode_json(text)[0]
        header = entry["requestHeader"]
        api_key, version = int(header["requestApiKey"]), int(header["requestApiVersion"])
        correlation_id, client_id = int(header["correlationId"]), header.get("clientId")
        asked_ns = answered_ns - round(float(entry.get("totalTimeMs") or 0) * 1_000_000)
        self._summary.requests[api_key, version] += 1

        streams = self._connection(str(entry["connection"]), asked_ns)
        head = encode_request_header(
            request_header(api_key, version, correlation_id, client_id), request_header_version(api_key, version)
        )
        body = _body(api_key, version, "request", entry["request"])
        request = self._frame(streams, "req", asked_ns, head, body, api_key, version, correlation_id, client_id)
        response = None
        if entry.get("response") is not None:
            head = encode_response_header(response_header(correlation_id), response_header_version(api_key, version))
            body = _body(api_key, version, "response", entry["response"])
            response = self._frame(
                streams, "resp", answered_ns, head, body, api_key, version, correlation_id, client_id
            )
            response.request = request
            self._summary.responses += 1
        else:
            request.unmatched_reason = "the log has no response"
            self._summary.unmatched_requests += 1
        self._collector.frames.append(request)
        if response is not None:
            self._collector.frames.append(response)
        self._collector.exchanges.append(Exchange(request, response))
        return answered_ns

    def _connection(self, name: str, time_ns: int) -> _Streams:
        streams = self._streams.get(name)
        if streams is None:
            ends = _CONNECTION.fullmatch(name)
            if ends is None:
                raise _Unusable(f"a connection named {name[:100]!r}")
            server, client = Endpoint(_address(ends[1]), int(ends[2])), Endpoint(_address(ends[3]), int(ends[4]))
            streams = _Streams(Connection(client, server, time_ns, self._collector.capture, saw_open=False))
            self._streams[name] = streams
            self._summary.connections += 1
            self._summary.kafka_connections += 1
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
        offset = streams.req if direction == "req" else streams.resp
        length = len(head) + len(body)
        if direction == "req":
            streams.req += 4 + length
        else:
            streams.resp += 4 + length
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
            self._collector.file,
        )


class _Unusable(Exception):
    """A line that cannot be used; the text says why."""


def read(source: Source, collector: Collector, summary: CaptureSummary) -> Iterator[int]:
    """Read a request log into the collector; gives the time in the log whenever something has come out.

    Rotated files are files of their own. Lines of other loggers are passed over.
    """
    log = _Log(collector, summary)
    for offset, line in _lines(source, summary):
        time_ns = log.line(line, offset)
        if time_ns:
            summary.first_ns = summary.first_ns or time_ns
            summary.last_ns = time_ns
            yield time_ns


def _lines(source: Source, summary: CaptureSummary) -> Iterator[tuple[int, bytes]]:
    """Each line with its offset, as soon as it is whole; the last one also if it is not."""
    offset, held = 0, 0
    parts: list[bytes] = []
    while more := source.read():
        end = more.rfind(b"\n") + 1
        if end:
            parts.append(more[:end])
            for line in b"".join(parts).splitlines(keepends=True):
                yield offset, line
                offset += len(line)
            parts, held = [], 0
        if end < len(more):
            parts.append(more[end:])
            held += len(more) - end
        if held > _LONGEST_LINE:
            summary.bad("a line too long for a log", offset, held)
            offset += held
            parts, held = [], 0
    if source.damage:
        summary.bad(source.damage, offset, held)
    if parts:
        yield offset, b"".join(parts)


def _body(api_key: int, version: int, kind: Literal["request", "response"], form: Any) -> bytes:
    return codec.encode(codec.message_class(api_key, kind).from_json(form, version), version)


def _time_ns(text: bytes) -> int:
    """The time that a log line begins with, as local time."""
    found = _TIME.search(text)
    if found is None:
        raise _Unusable("a logged request without a time of the form 2024-12-31 23:59:59,999")
    seconds = datetime.strptime(f"{found[1].decode()} {found[2].decode()}", "%Y-%m-%d %H:%M:%S").timestamp()
    return int(seconds) * 1_000_000_000 + int((found[3] or b"0").ljust(9, b"0"))


def _address(text: str) -> str:
    """An address as Java prints it, in the usual short form."""
    try:
        return str(ip_address(text.strip("[]/").partition("%")[0]))
    except ValueError:
        return text
