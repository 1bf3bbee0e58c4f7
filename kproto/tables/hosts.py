"""Tells which capture points were recorded on one host, and so have one clock, from what they show and never by names.

The evidence:

1. The connections of a capture have one end in common, its side: one broker that was asked, or one broker that asked
   or was asked on each connection. Captures of one side that follow each other are of one host.
2. A connection of one capture goes on in another one: the controller's next request to the same broker stands there.
3. The logs of one broker are of its host, and what it decided as a controller.

Captures that show the same exchange at different times, that show one broker at the same time but no common exchange,
or in which two controllers lead in one epoch, are of different hosts, whatever they have in common. Where captures that
may be of one host hold such a pair, nothing is said of any of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import CONTROL_APIS
from kproto.tables.arrays import rows_of

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping

T = TypeVar("T")

_LINK: Final = ("cluster", "capture", "server_ip", "server_port", "broker_id", "controller_id", "controller_epoch")
HOST_COLUMNS: Final = (
    *_LINK, "api_key", "correlation_id", "exchange_id", "ts", "frame_id", "response_frame_id", "decode_error",
)  # fmt: skip
"""The columns of ``requests`` that hosts are told from."""

_SEEN: Final = pa.schema(
    [("capture", pa.string()), ("exchange_id", pa.binary()), ("frame_id", pa.binary()), ("rank", pa.int64()),
     ("first", pa.int64())]
)  # fmt: skip
"""A sighting of an exchange: by which place, how much it saw of it, and when."""

_OVERLAP_US: Final = 1_000_000
"""Captures that follow each other may overlap so far, as packets at a border are out of order."""

_NEXT: Final = 3
"""A controller's next request on a connection has a correlation id that is at most so much higher."""

_MOST_FOLLOWING: Final = 16
"""Of more captures that begin with one request none is told to go on another one."""

_CAPTURES: Final = {"pcap", "pcapng"}


class _Link(NamedTuple):
    """The requests of one controller epoch to one broker, as a capture point shows them."""

    server: tuple[str, int]
    broker: int | None
    controller: int
    epoch: int
    first: int
    last: int
    first_id: int | None
    last_id: int

    @property
    def has_ids(self) -> bool:
        """Whether the requests have correlation ids of their own; what a controller's log tells has none."""
        return self.first_id is not None and self.first_id >= 0


class HostEvidence:
    """What tells hosts apart, from rows of ``captures`` and pieces of ``requests``."""

    def __init__(self, captures: pa.Table) -> None:
        self._formats: dict[str, str] = dict(rows_of(captures, ("capture", "format")))
        self._links: list[pa.Table] = []
        self._exchanges = [_SEEN.empty_table()]

    def add(self, requests: pa.Table) -> None:
        """Add rows of ``requests``, with the columns ``HOST_COLUMNS``."""
        times = requests["ts"].cast(pa.int64())
        answered, whole = pc.is_valid(requests["response_frame_id"]), pc.is_null(requests["decode_error"])
        rank = pc.add(pc.if_else(answered, 2, 0), pc.if_else(whole, 1, 0))
        seen = requests.select(_SEEN.names[:3]).append_column("rank", rank).append_column("first", times)
        self._exchanges.append(seen.filter(pc.is_valid(seen["exchange_id"])))
        is_control = pc.is_in(requests["api_key"], value_set=pa.array(sorted(CONTROL_APIS), pa.int16()))
        control = requests.select([*_LINK, "correlation_id"]).append_column("first", times)
        control = control.filter(pc.and_(is_control, pc.is_valid(requests["controller_id"])))
        control = control.append_column("has_id", pc.greater_equal(control["correlation_id"], 0))
        spans = control.group_by([*_LINK, "has_id"], use_threads=False).aggregate(
            [("first", "min"), ("first", "max"), ("correlation_id", "min"), ("correlation_id", "max")]
        )
        self._links.append(spans)

    @cached_property
    def _several(self) -> pa.Table:
        """The sightings of exchanges that have several."""
        every = pa.concat_tables(self._exchanges)
        counts = every.group_by("exchange_id", use_threads=False).aggregate([("rank", "count")])
        several = counts.filter(pc.greater(counts["rank_count"], 1))["exchange_id"]
        return every.filter(pc.is_in(every["exchange_id"], value_set=several.combine_chunks()))

    def sightings(self) -> dict[bytes, dict[str, int]]:
        """Return the exchanges that were seen several times: when first, by capture point."""
        found: dict[bytes, dict[str, int]] = defaultdict(dict)
        for capture, exchange, first in rows_of(self._several, ("capture", "exchange_id", "first")):
            found[exchange].setdefault(capture, first)
        return found

    def repeated(self) -> pa.Array:
        """Return the request frames of exchanges that have another row that counts."""
        order = [("rank", "descending"), ("capture", "ascending"), ("frame_id", "ascending")]
        kept: set[bytes] = set()
        repeated = []
        for exchange, frame in rows_of(self._several.sort_by(order), ("exchange_id", "frame_id")):
            if exchange in kept:
                repeated.append(frame)
            kept.add(exchange)
        return pa.array(repeated, pa.binary())

    def hosts(self, captures: Iterable[str], sightings: Mapping[bytes, Mapping[str, int]]) -> dict[str, str]:
        """Return for each capture point the one that stands for its host: the first of those that share it.

        Args:
            captures: The capture points.
            sightings: What ``sightings`` returned.
        """
        links: dict[str, list[_Link]] = {name: [] for name in sorted(captures)}
        clusters: dict[str, str | None] = {}
        if self._links:
            for cluster, capture, ip, port, broker, controller, epoch, _has_id, *spans in rows_of(
                pa.concat_tables(self._links)
            ):
                links[capture].append(_Link((ip, port), broker, controller, epoch, *spans))
                clusters[capture] = cluster
        apart: dict[str, set[int]] = defaultdict(set)  # in which sets of captures that saw one exchange each is
        for number, seen in enumerate({frozenset(each) for each in sightings.values() if len(set(each.values())) > 1}):
            for capture in seen:
                apart[capture].add(number)
        sides: dict[tuple[Hashable, ...], list[str]] = defaultdict(list)
        for capture, of in links.items():
            side = self._side(capture, of)
            if side is not None:
                sides[clusters[capture], *side].append(capture)
        host = {capture: capture for capture in links}
        for members in sides.values():
            if self._may_share(members, links, apart):
                host.update(dict.fromkeys(members, members[0]))
        sided = {capture for members in sides.values() for capture in members}
        kin = Kin(host)
        pairs = [*host.items(), *self._going_on(links, clusters, sided)]
        for one, other in pairs:
            kin.join(one, other)
        grown = {kin.first(one) for one, _other in pairs[len(host) :]}
        for first, members in kin.groups().items():
            if first in grown and self._may_share(members, links, apart):
                host.update(dict.fromkeys(members, members[0]))
        return host

    def _is_log(self, capture: str) -> bool:
        return self._formats.get(capture) not in _CAPTURES

    def _side(self, capture: str, links: Collection[_Link]) -> tuple[Hashable, ...] | None:
        """Return what all connections of a capture point have in common; None: nothing, or more than one thing."""
        servers = {link.server for link in links}
        brokers = {link.broker for link in links}
        if self._is_log(capture):
            is_of_controller = len(brokers) > 1 and not any(link.has_ids for link in links)
            (broker, *others) = {link.controller for link in links} if is_of_controller else brokers or {None}
            if broker is not None and not others:
                return "log", broker
            return ("log", *servers) if len(servers) == 1 else None
        if len(servers) <= 1:
            return ("server", *servers) if servers else None
        common = set.intersection(*({link.broker, link.controller} for link in links)) - {None}
        if len(common) != 1:
            return None
        (home,) = common
        own = {link.server for link in links if link.broker == home}
        return ("server", *own) if len(own) == 1 else ("controller", home, frozenset(servers))

    def _may_share(
        self, members: Collection[str], links: Mapping[str, Collection[_Link]], apart: Mapping[str, Collection[int]]
    ) -> bool:
        """Whether nothing shows that two of some capture points are of different hosts."""
        if len(members) < 2:
            return False
        shared = Counter(number for capture in members for number in apart.get(capture, ()))
        if any(count > 1 for count in shared.values()):
            return False
        reigns: dict[int, set[int]] = {}
        spans: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
        for capture in members:
            led: dict[int, set[int]] = defaultdict(set)
            for link in links[capture]:
                led[link.epoch].add(link.controller)
            if any(epoch in reigns and reigns[epoch].isdisjoint(ids) for epoch, ids in led.items()):
                return False
            for epoch, ids in led.items():
                reigns.setdefault(epoch, set()).update(ids)
            shown = [link for link in links[capture] if link.has_ids]
            if shown:
                kind = self._formats.get(capture) if self._is_log(capture) else None
                spans[kind].append((min(link.first for link in shown), max(link.last for link in shown)))
        return all(
            later[0] >= former[1] - _OVERLAP_US for each in spans.values() for former, later in pairwise(sorted(each))
        )

    def _going_on(
        self, links: Mapping[str, Collection[_Link]], clusters: Mapping[str, str | None], sided: Collection[str]
    ) -> Iterable[tuple[str, str]]:
        """Yield two capture points of which the second shows a connection of the first one further on."""
        begins: dict[tuple[Any, ...], list[tuple[str, int]]] = defaultdict(list)
        for capture, of in links.items():
            for link in () if self._is_log(capture) else of:
                begins[clusters[capture], *_who(link), link.first_id].append((capture, link.first))
        for capture, of in links.items():
            for link in () if self._is_log(capture) else of:
                for number in range(link.last_id + 1, link.last_id + 1 + _NEXT):
                    following = begins.get((clusters[capture], *_who(link), number), ())
                    for later, first in following if len(following) <= _MOST_FOLLOWING else ():
                        if first >= link.last - _OVERLAP_US and not (capture in sided and later in sided):
                            yield capture, later


def _who(link: _Link) -> tuple[Any, ...]:
    return link.server, link.controller, link.epoch


class Kin(Generic[T]):
    """Sets of things that grow together.

    Attributes:
        count: The number of sets.
    """

    def __init__(self, things: Iterable[T]) -> None:
        self._first = {thing: thing for thing in things}
        self.count: int = len(self._first)

    def first(self, thing: T) -> T:
        """The thing that stands for a set."""
        first = self._first
        while first[thing] != thing:
            first[thing] = first[first[thing]]
            thing = first[thing]
        return thing

    def join(self, one: T, other: T) -> None:
        """Make one set of two."""
        one, other = self.first(one), self.first(other)
        if one != other:
            self._first[other] = one
            self.count -= 1

    def groups(self) -> dict[T, list[T]]:
        """The sets by the things that stand for them."""
        found: dict[T, list[T]] = defaultdict(list)
        for thing in self._first:
            found[self.first(thing)].append(thing)
        return found
