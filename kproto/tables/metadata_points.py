"""Reads what captures show of KRaft's metadata log: each exchange once, all on one clock.

Several hosts see the same exchange, each by its own clock. The clocks are compared by these exchanges and by the
batches of the log, which the controller sends to all replicas at about the same time; those of hosts that share neither
by the times that the controllers wrote into their batches. Of a host whose clock nothing tells, what it shows of the
log itself counts, and who asked for changes, but no time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from kproto.api import ApiKey
from kproto.capture import CaptureSummary, exchanges
from kproto.capture.wanted import WantedApis
from kproto.errors import CaptureError
from kproto.metadata_log import admin_requests
from kproto.metadata_log.deliveries import APIS, MetadataTraffic, batches_told
from kproto.tables.clocks import BATCH_US, compared, densest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kproto.capture import CapturePoint, Exchange

CLIENT: Final = "raft-client"
"""The client id of a node that fetches the metadata log begins so."""

_MS: Final = 1_000_000
_US: Final = 1000
_LEAST: Final = 3
_WIDTH_MS: Final = 60
_EQUAL_MS: Final = 30


def read_traffic(points: Iterable[CapturePoint], *, ports: tuple[int, ...] | None = None) -> MetadataTraffic:
    """Read what captures show of a metadata log; a capture that cannot be read adds nothing.

    Args:
        points: The capture points of one cluster.
        ports: The listeners' ports; None finds them.
    """
    traffic, apart = MetadataTraffic(), MetadataTraffic()
    every = list(points)
    held = ((each, point.name) for point in every for each in _exchanges(point, ports))
    is_one = len({point.name for point in every}) < 2
    for exchange, name, is_dated in ((*each, True) for each in held) if is_one else _on_one_clock([*held]):
        is_asked = exchange.api_key in admin_requests.APIS or exchange.api_key == ApiKey.ENVELOPE
        (traffic if is_dated or is_asked else apart).add(exchange, name)
    traffic.take_log(apart)
    traffic.finish()
    return traffic


def _exchanges(point: CapturePoint, ports: tuple[int, ...] | None) -> Iterator[Exchange]:
    wanted = WantedApis(APIS, fetch_client=CLIENT)
    try:
        for exchange in exchanges(point, ports=ports, apis=wanted, summary=CaptureSummary()):
            if exchange.request is not None:
                yield exchange
    except CaptureError:
        return


def _key(exchange: Exchange) -> bytes:
    """What an exchange has in common wherever it is seen."""
    request = exchange.request
    assert request is not None
    named = f"{exchange.client} {exchange.server} {exchange.api_key} {exchange.correlation_id} ".encode()
    return blake2b(named + bytes(request.body), digest_size=16).digest()


def _on_one_clock(held: Sequence[tuple[Exchange, str]]) -> Iterator[tuple[Exchange, str, bool]]:
    """Yield exchanges in the order of time, each once, with their times by one clock, and whether they are."""
    same: dict[str, dict[bytes, int]] = defaultdict(dict)
    told: dict[str, dict[bytes, list[int]]] = defaultdict(dict)
    connections: dict[str, set[object]] = defaultdict(set)
    after: dict[str, dict[bytes, int]] = defaultdict(dict)  # ms after the time in the batch
    chosen: dict[bytes, tuple[Exchange, str]] = {}
    for exchange, name in held:
        key = _key(exchange)
        same[name].setdefault(key, exchange.time_ns // _US)
        connections[name].add((exchange.client, exchange.server))
        known = chosen.get(key)
        if known is None or (known[0].response is None and exchange.response is not None):
            chosen[key] = exchange, name
        for batch in batches_told(exchange):
            assert exchange.response is not None
            of = b"%d %d" % (batch.epoch, batch.base_offset)
            told[name].setdefault(of, []).append(exchange.response.time_ns // _US)
            late = exchange.response.time_ns // _MS - batch.time_ms
            after[name][of] = min(late, after[name].get(of, late))
    once = {
        name: {key: min(times) for key, times in some.items() if max(times) - min(times) < BATCH_US}
        for name, some in told.items()
    }
    clocks = compared(list(same), {name: len(some) for name, some in connections.items()}, once, same)
    ahead = {name: _agreed(some.values()) for name, some in after.items()}
    if not held:
        return
    shown = Counter(clocks[name].reference for _exchange, name in held)
    main = max(shown, key=lambda name: (ahead.get(name) is not None, shown[name], name))
    apart = set[str]()
    for name, clock in clocks.items():
        here, there = ahead.get(clock.reference), ahead.get(main)
        if clock.reference == main:
            continue
        if here is None or there is None:
            apart.add(name)
        elif abs(here - there) >= _EQUAL_MS:
            clocks[name] = clock._replace(offset_us=clock.offset_us + (here - there) * _US)
    for exchange, name in chosen.values():
        clocks[name].move(exchange)
    for exchange, name in sorted(chosen.values(), key=lambda one: one[0].time_ns):
        yield exchange, name, name not in apart


def controllers_clocks(traffic: MetadataTraffic) -> Mapping[int, int]:
    """By how many ns the captures' clock is ahead of that of each epoch's leader; an epoch that shows too little lacks.

    A batch is told within milliseconds of the time that its leader wrote into it, unless a replica catches up.
    """
    first: dict[tuple[int, int], int] = {}
    for each in traffic.deliveries:
        first.setdefault((each.epoch, each.base_offset), each.time_ns)
    differences: dict[int, list[int]] = defaultdict(list)
    for key, time_ns in first.items():
        batch, _where = traffic.batches[key]
        differences[batch.epoch].append(time_ns // _MS - batch.time_ms)
    agreed = {epoch: _agreed(some) for epoch, some in differences.items()}
    return {epoch: ahead * _MS for epoch, ahead in agreed.items() if ahead is not None}


def _agreed(differences: Iterable[int]) -> int | None:
    """The least of the differences, in ms, in their densest stretch; None: too few agree."""
    agreed = densest(sorted(differences), _WIDTH_MS)
    return agreed[0] if len(agreed) >= _LEAST else None
