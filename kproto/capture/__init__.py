"""Recorded traffic -> frames -> exchanges. No Spark, no pyarrow.

    for exchange in exchanges("broker-1.pcap.gz"):
        print(exchange.time, exchange.server, exchange.request_message, exchange.response_message)

What can be read: classic pcap and pcapng, of Ethernet (also with VLAN tags), Linux cooked, null, loopback and raw IP
links, IPv4 and IPv6; Kafka's own ``kafka-request.log``; each plain, gzip or zstd; a file, or ``-`` for standard input.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from kproto.api import CONTROL_APIS
from kproto.framing import DEFAULT_LIMIT

from . import pcap, pcapng, request_log
from .correlate import Collector
from .fragments import Fragments
from .link import segment
from .model import GAP, WHOLE, Connection, Direction, Endpoint, Exchange, Frame
from .read import open_source
from .reassembly import Reassembler
from .summary import BadInput, CaptureSummary

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator

    from .read import Source

__all__ = [
    "GAP",
    "WHOLE",
    "BadInput",
    "CaptureSummary",
    "Connection",
    "Direction",
    "Endpoint",
    "Exchange",
    "Frame",
    "exchanges",
    "frames",
]

_ORDER_NS: Final = 2_000_000_000
_ORDER_EXCHANGES: Final = 50_000
_ORDER_BYTES: Final = 256 << 20
"""How long, how many and how large exchanges may wait for older ones, so that they come in order."""


def frames(
    path: str | os.PathLike[str],
    *,
    ports: Collection[int] | None = None,
    apis: Collection[int] | None = CONTROL_APIS,
    capture: str | None = None,
    limit: int = DEFAULT_LIMIT,
    progress: Callable[[int, int | None], object] | None = None,
    summary: CaptureSummary | None = None,
) -> Iterator[Frame]:
    """The Kafka frames of a capture, undecoded, each as soon as it is whole.

    Args:
        path: A capture or request log, or ``-`` for standard input, which is followed as it grows.
        ports: The listeners' ports; None finds them from the traffic.
        apis: API keys whose requests and responses are given; None for all.
        capture: Name of the capture point, part of the connections' ids; None takes the file's name.
        limit: The largest frame in bytes; a larger one is passed over.
        progress: Called with (bytes read, size of the file or None) after each piece.
        summary: A fresh summary to be filled.

    Raises:
        CaptureError: The file cannot be read, or is no capture. Damage within it only goes to the summary.
    """
    for collector, _ in _collect(path, ports, apis, capture, limit, progress, summary):
        if collector.frames:
            yield from collector.frames
            collector.frames.clear()
        collector.exchanges.clear()


def exchanges(
    path: str | os.PathLike[str],
    *,
    ports: Collection[int] | None = None,
    apis: Collection[int] | None = CONTROL_APIS,
    capture: str | None = None,
    limit: int = DEFAULT_LIMIT,
    progress: Callable[[int, int | None], object] | None = None,
    summary: CaptureSummary | None = None,
) -> Iterator[Exchange]:
    """Requests with their responses, in the order of the requests' times.

    Arguments and errors are those of ``frames``. From a pipe an exchange is given as soon as it is answered, or can be
    no more, rather than in order. A request without response and a response without request are given too, with their
    ``unmatched_reason``.
    """
    ready: list[tuple[int, int, Exchange]] = []
    number = held = 0
    for collector, now_ns in _collect(path, ports, apis, capture, limit, progress, summary):
        collector.frames.clear()
        if collector.exchanges:
            if collector.follows:
                yield from collector.exchanges
            for exchange in () if collector.follows else collector.exchanges:
                number += 1
                held += _size(exchange)
                heapq.heappush(ready, (exchange.time_ns, number, exchange))
            collector.exchanges.clear()
        while ready and (
            len(ready) > _ORDER_EXCHANGES or held > _ORDER_BYTES or _may_go(ready[0][0], now_ns, collector)
        ):
            exchange = heapq.heappop(ready)[2]
            held -= _size(exchange)
            yield exchange
    while ready:
        yield heapq.heappop(ready)[2]


def _may_go(time_ns: int, now_ns: int, collector: Collector) -> bool:
    if time_ns >= now_ns - _ORDER_NS:
        return False
    oldest = collector.oldest_open_ns(now_ns)
    return oldest is None or time_ns <= oldest


def _size(exchange: Exchange) -> int:
    return sum(len(frame.payload) for frame in (exchange.request, exchange.response) if frame is not None)


def _collect(
    path: str | os.PathLike[str],
    ports: Collection[int] | None,
    apis: Collection[int] | None,
    capture: str | None,
    limit: int,
    progress: Callable[[int, int | None], object] | None,
    summary: CaptureSummary | None,
) -> Iterator[tuple[Collector, int]]:
    """Read the capture; whenever something has come out: the collector, and the time in the capture."""
    summary = CaptureSummary() if summary is None else summary
    source, summary.format = open_source(path, progress)
    try:
        summary.file = source.name
        collector = Collector(
            summary,
            file=source.name,
            capture=source.name if capture is None else capture,
            ports=ports,
            apis=apis,
            limit=limit,
            follows=source.follows,
        )
        read = request_log.read if summary.format == "request log" else _packets
        for time_ns in read(source, collector, summary):
            yield collector, time_ns
    finally:
        source.close()


def _packets(source: Source, collector: Collector, summary: CaptureSummary) -> Iterator[int]:
    """Read packets into the collector; gives the time in the capture whenever something has come out."""
    fragments = Fragments(summary)
    reassembler = Reassembler(collector.opened, summary)
    frames, settled = collector.frames, collector.exchanges
    time_ns = 0
    packets = pcap.packets if summary.format == "pcap" else pcapng.packets
    for time_ns, link, buffer, start, stop, on_wire in packets(source, summary):
        if not summary.packets:
            summary.first_ns = time_ns
        summary.packets += 1
        found = segment(time_ns, link, buffer, start, stop, on_wire, fragments, summary)
        if found is not None:
            reassembler.segment(time_ns, found)
            if frames or settled:
                yield time_ns
    summary.last_ns = time_ns
    collector.ending = True
    fragments.end()
    reassembler.end(time_ns)
    yield time_ns
