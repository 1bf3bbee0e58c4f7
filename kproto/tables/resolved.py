"""Gives the rows of tables what all captures together tell: the cluster, the common time and the receiving broker.

Stored tables keep times and addresses as the capture points recorded them: a capture that is added later may tell whose
clock is ahead, and which broker stands behind an address. Whoever reads rows reads them here:

- ``ts`` and the other times are by the clock of the reference, see ``clocks``;
- ``cluster`` names the cluster, as declared or as found, see ``clusters``;
- ``broker_id`` is the receiving broker, by all evidence, see ``brokers``;
- an exchange that several capture points saw has one row, of the place that saw most of it; what a log tells too has
  that of the packets;
- ``is_kraft_controller`` of a state-change log, whose lines seldom tell it, is what others of that controller have.

Three tables come with them: ``clocks``, ``clusters`` and ``identities``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.capture.source import LOGS
from kproto.errors import ConfigurationError
from kproto.tables.arrays import rows_of, table_of, with_column
from kproto.tables.clocks import CLOCKS, LED, ClockEvidence, PointClock, on_common_clock
from kproto.tables.clusters import CLUSTER_COLUMNS, CLUSTERS, NODE, ClusterEvidence, Node, cluster_names, topic_ids_of
from kproto.tables.filters import Filters
from kproto.tables.hosts import HOST_COLUMNS, HostEvidence
from kproto.tables.identities import IDENTITIES, IDENTITY_COLUMNS, IDENTITY_STATES, Identity, identities
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.tables.reading import chunks_of, points_in
from kproto.tables.schemas import METADATA_TABLES, TABLES
from kproto.tables.stored import reader_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from kproto.capture import CapturePoint, Exchange
    from kproto.tables.stored import Reader

_OF_KRAFT: Final = "is_kraft_controller"
_SMALL: Final = {"clocks": CLOCKS, "clusters": CLUSTERS, "identities": IDENTITIES}
RESOLVED: Final = TABLES | METADATA_TABLES | _SMALL
"""The tables whose rows are resolved, by name."""

_TIMES: Final = ("ts", "ts_last", "ts_ns", "first_ts", "last_ts")
_SURVEYED: Final = (*dict.fromkeys((*CLUSTER_COLUMNS, *IDENTITY_COLUMNS, *HOST_COLUMNS)), "conn_id", _OF_KRAFT)
_ASKED: Final = ("captures", "brokers", "requests", "partition_states", "live_brokers")
"""The tables that are surveyed."""

_MOST_NAMELESS: Final = 1_000_000
"""Of more requests no broker is found by elimination."""

_LOGGED: Final = ("cluster", "controller_epoch", "broker_id", "api_key", "correlation_id")
"""What names a request in a log; correlation ids begin anew with each start of a controller, or of a broker."""

_SAME_US: Final = 60_000_000
"""A log tells of a request within this time of its packets, in us: its broker may be slow."""

_TOLD_US: Final = 5_000_000
"""Lines of two logs tell of a request within this time; a broker that starts again takes longer to get the next one of
its number."""

_SENT_US: Final = 10_000_000
"""A controller that begins to send does so within this time of its decision, in us."""

_OF_REQUESTS: Final = ("responses", "partition_errors")
"""Tables whose rows belong to a request each, by ``frame_id``, and do not name the capture point."""


class Survey:
    """Gathers what tells who, when and which from all rows of ``requests``.

    Args:
        read: Reads the tables as they are stored: ``partition_states`` and ``live_brokers`` only where there may be
            several clusters, or addresses of which no listing tells the broker.
        broker_ids: Broker ids of addresses, which no traffic has to tell.
    """

    def __init__(self, read: Reader, broker_ids: Mapping[tuple[str, int], int] | None = None) -> None:
        captures = pa.concat_tables(read("captures", ["capture", "cluster", "format", "senders"]))
        self._read = read
        self._is_one = pc.count_distinct(captures["capture"]).as_py() < 2  # its clock is the reference
        self._logs = {name for name, kind in rows_of(captures, ("capture", "format")) if kind in LOGS}
        self._senders: dict[str, set[int]] = defaultdict(set)
        for sender in chain.from_iterable(filter(None, captures["senders"].to_pylist())):
            self._senders[sender["ip"]].add(sender["broker_id"])
        self._broker_ids = dict(broker_ids or {})
        self._captures: dict[str, None] = {}
        self._stored: set[str | None] = set()
        self._clocks = ClockEvidence()
        self._hosts = HostEvidence(captures)
        brokers = pa.concat_tables(read("brokers", ["capture", "broker_id", "host", "port"]))
        self._clusters = ClusterEvidence(captures, brokers)
        self._asked: list[pa.Table] = []
        self._modes: set[tuple[Any, ...]] = set()  # address, controller, whether it is KRaft's
        self._rows = 0
        for table in read("requests", list(_SURVEYED)):
            self._add(table)

    def _add(self, requests: pa.Table) -> None:
        """Add rows of ``requests``, with the columns ``_SURVEYED``."""
        self._stored.update(pc.unique(requests["cluster"]).to_pylist())
        self._captures.update(dict.fromkeys(pc.unique(requests["capture"]).to_pylist()))
        self._clusters.add(requests)
        self._rows += requests.num_rows
        modes = [*NODE, "controller_id", _OF_KRAFT]
        self._modes.update(rows_of(requests.group_by(modes, use_threads=False).aggregate([]), modes))
        if self._rows <= _MOST_NAMELESS:
            self._asked.append(requests.select([*dict.fromkeys((*IDENTITY_COLUMNS, *NODE, *_LOGGED, "frame_id"))]))
        if not self._is_one:
            self._clocks.add(requests)
            self._hosts.add(requests)

    def resolution(self) -> Resolution:
        """Return what all rows tell."""
        read, sightings = self._read, self._hosts.sightings()
        hosts = self._hosts.hosts(self._captures, sightings)
        states = partial(read, "partition_states", LED) if self._logs else None
        clocks = self._clocks.clocks(hosts, sightings, states)
        clusters = self._clusters.clusters(
            lambda: topic_ids_of(read("partition_states", ["body_id", "topic", "topic_id"])),
            lambda capture, ts: clocks[capture].ahead(ts),
            hosts,
        )
        repeated, of_kraft = self._hosts.repeated(), self._logged_of_kraft(clusters)
        found = Resolution(clocks, clusters, repeated, self._broker_ids, of_kraft, self._stored)
        if self._asked and self._rows <= _MOST_NAMELESS:
            requests = pa.concat_tables([found.requests(table) for table in self._asked])
            if requests["broker_id"].null_count:
                live = pa.concat_tables(read("live_brokers", ["live_brokers_id", "broker_id"]))
                states = partial(read, "partition_states", IDENTITY_STATES)
                found = replace(found, identities=identities(requests, live, states, self._senders))
            if self._logs and not self._is_one:
                retold = self._retold(pa.concat_tables([found.requests(table) for table in self._asked]))
                found = replace(found, repeated=pa.concat_arrays([repeated, pa.array(retold, pa.binary())]))
        return found

    def _retold(self, requests: pa.Table) -> list[bytes]:
        """Return the request frames of logs that tell what packets, or another log, show too."""
        names = [*_LOGGED, "ts", "capture", "frame_id"]
        rows = requests.select(names).drop_null()
        times = rows["ts"].cast(pa.int64())
        rows = rows.set_column(names.index("ts"), "ts", times).sort_by([(name, "ascending") for name in names])
        ends: dict[str, int] = {}
        begins: dict[Any, dict[str, int]] = defaultdict(dict)  # of what each broker was sent, by capture point
        for *key, _api, _number, ts, capture, _frame in rows_of(rows, names):
            if capture not in self._logs:
                ends[capture] = max(ts, ends.get(capture, ts))
                begins[tuple(key)][capture] = min(ts, begins[tuple(key)].get(capture, ts))
        found = []
        same: list[dict[str, list[bytes]]] = []  # of each request its frames, by capture point
        before: list[Any] = []
        last = 0
        for *key, ts, capture, frame in rows_of(rows, names):
            if key[-1] < 0:  # a decision, of which the log does not tell how it was sent
                shown = begins.get(tuple(key[:3]), {}).items()
                found += [frame] if any(begin - _SENT_US <= ts <= ends[of] for of, begin in shown) else []
                continue
            is_told = key == before and {capture, *same[-1]} <= self._logs
            if key != before or ts - last > (_TOLD_US if is_told else _SAME_US):
                same.append({})
            same[-1].setdefault(capture, []).append(frame)
            before, last = key, ts
        for frames in same:
            kept = min(
                frames, key=self._logs.__contains__
            )  # of logs the one that tells it first: another may begin within
            found += [frame for capture in frames.keys() & self._logs - {kept} for frame in frames[capture]]
        return found

    def _logged_of_kraft(self, clusters: Mapping[Node, str]) -> set[tuple[str, int]]:
        """Return the controllers that are KRaft's, each with its cluster, where rows of logs do not say so."""
        told: dict[bool, set[tuple[str, int]]] = {True: set(), False: set()}
        for capture, ip, port, controller, is_kraft in self._modes:
            if is_kraft or port == 0:
                told[bool(is_kraft)].add((clusters[capture, ip, port], controller))
        return told[True] & told[False]


@dataclass
class Resolution:
    """What all captures together tell of who, when and which.

    Attributes:
        clocks: By capture point.
        clusters: The name of each address's cluster.
        repeated: The request frames of exchanges that another row stands for.
        broker_ids: The brokers of addresses, as given.
        of_kraft: The controllers that are KRaft's, each with its cluster, where rows of logs do not say so.
        stored: The clusters that stored rows name.
        identities: What is known of addresses that no listing names.
    """

    clocks: dict[str, PointClock]
    clusters: dict[Node, str]
    repeated: pa.Array
    broker_ids: Mapping[tuple[str, int], int]
    of_kraft: Collection[tuple[str, int]]
    stored: Collection[str | None]
    identities: Sequence[Identity] = ()

    @cached_property
    def _differs(self) -> bool:
        return any(clock.differs for clock in self.clocks.values())

    @cached_property
    def _one(self) -> str | None:
        """The only cluster, if there is one alone."""
        return names[0] if len(names := self.names) == 1 else None

    @cached_property
    def _brokers(self) -> dict[tuple[str, str, int], int]:
        return {one[:3]: one.broker_id for one in self.identities if one.broker_id is not None}

    @property
    def changes_rows(self) -> bool:
        """Whether any row is different from what was stored."""
        is_renamed = self._one is None or {self._one} != self.stored
        others = self.broker_ids, self.of_kraft, self._brokers
        return self._differs or len(self.repeated) > 0 or is_renamed or any(others)

    @property
    def names(self) -> list[str]:
        """The clusters: the one that was not declared first."""
        return cluster_names(self.clusters.values())

    def small(self, name: str) -> pa.Table:
        """Return the table ``clocks``, ``clusters`` or ``identities``."""
        clusters = sorted((*node, cluster) for node, cluster in self.clusters.items())
        rows = {"clocks": self.clocks.values(), "clusters": clusters, "identities": self.identities}
        return table_of(rows[name], _SMALL[name])

    def requests(self, rows: pa.Table) -> pa.Table:
        """Return resolved rows of ``requests``, with the columns ``NODE``, ``cluster`` and ``controller_id``."""
        if len(self.repeated):
            rows = rows.filter(pc.invert(pc.is_in(rows["frame_id"], value_set=self.repeated)))
        if self._differs:
            rows = on_common_clock(rows, rows["capture"], self.clocks, _TIMES)
        rows = self._with_cluster(rows, [rows[name] for name in NODE])
        given, known = self.broker_ids, self._brokers
        if (given or known) and "broker_id" in rows.column_names:
            ids = (
                given.get((ip, port), known.get((cluster, ip, port)) if broker is None else broker)
                for cluster, ip, port, broker in rows_of(rows, ("cluster", *NODE[1:], "broker_id"))
            )
            rows = with_column(rows, "broker_id", pa.array(ids, pa.int32()))
        if self.of_kraft and _OF_KRAFT in rows.column_names:
            modes = (
                is_kraft or (port == 0 and (cluster, controller) in self.of_kraft)
                for is_kraft, port, cluster, controller in rows_of(
                    rows, (_OF_KRAFT, "server_port", "cluster", "controller_id")
                )
            )
            rows = with_column(rows, _OF_KRAFT, pa.array(modes, pa.bool_()))
        return rows

    def brokers_of(self, cluster: str | None) -> dict[tuple[str, int], int]:
        """Return the brokers of addresses that no listing names, of one cluster or of all."""
        return {(ip, port): broker for (of, ip, port), broker in self._brokers.items() if cluster in (None, of)}

    def takes(self, exchange: Exchange, cluster: str | None = None) -> bool:
        """Whether an exchange is of a cluster, and no other sighting stands for it; its frames get the common time."""
        request, point = exchange.request, exchange.connection.capture
        server = exchange.server
        if cluster is not None and self.clusters.get((point, server.ip, server.port), DEFAULT_CLUSTER) != cluster:
            return False
        if request is not None and len(self.repeated) and request.frame_id in self._repeated_frames:
            return False
        if (clock := self.clocks.get(point)) is not None:
            clock.move(exchange)
        return True

    @cached_property
    def _repeated_frames(self) -> frozenset[bytes]:
        return frozenset(self.repeated.to_pylist())

    def others(self, name: str, rows: pa.Table, origins: Callable[[], pa.Table]) -> pa.Table:
        """Return resolved rows of another table.

        Args:
            name: The table.
            rows: Its rows.
            origins: Returns the columns ``frame_id``, ``capture`` and ``cluster`` of resolved requests.
        """
        if not self.changes_rows:
            return rows
        if name in _OF_REQUESTS:
            known = origins()
            places = pc.index_in(rows["frame_id"], value_set=known["frame_id"].combine_chunks())
            rows = rows.filter(pc.is_valid(places))
            of = known.take(places.drop_null())
            if "cluster" in rows.column_names:
                rows = with_column(rows, "cluster", of["cluster"])
            return on_common_clock(rows, of["capture"], self.clocks, _TIMES)
        if "capture" not in rows.column_names:
            return rows
        if self._differs:
            rows = on_common_clock(rows, rows["capture"], self.clocks, _TIMES)
        if name == "frames" and "cluster" in rows.column_names:
            flow = rows["flow"]
            asked = pc.equal(rows["direction"], "request")
            ends = [
                (pc.struct_field(flow, f"dst_{end}"), pc.struct_field(flow, f"src_{end}")) for end in ("ip", "port")
            ]
            return self._with_cluster(rows, [rows["capture"], *(pc.if_else(asked, to, of) for to, of in ends)])
        if "cluster" in rows.column_names:
            main = self._main_clusters()
            listed = ("host", "port") if name == "brokers" else ("capture", "capture")
            names = [
                self.clusters.get((capture, host, port), main.get(capture, cluster))
                for capture, cluster, host, port in rows_of(rows, ("capture", "cluster", *listed))
            ]
            rows = with_column(rows, "cluster", pa.array(names, pa.string()))
        return rows

    def _main_clusters(self) -> dict[str, str]:
        """Return the cluster of each capture point; of several the first."""
        found: dict[str, str] = {}
        for cluster in reversed(self.names):
            found.update({node[0]: cluster for node, of in self.clusters.items() if of == cluster})
        return found

    def _with_cluster(self, rows: pa.Table, node: Sequence[Any]) -> pa.Table:
        if self._one is not None:
            return with_column(rows, "cluster", pa.repeat(pa.scalar(self._one, pa.string()), rows.num_rows))
        keys = pa.table(dict(zip(NODE, node, strict=True)))
        found = [self.clusters.get(key, DEFAULT_CLUSTER) for key in rows_of(keys)]
        return with_column(rows, "cluster", pa.array(found, pa.string()))


def _resolution_of(
    pieces: Iterable[Mapping[str, pa.Table]], broker_ids: Mapping[tuple[str, int], int] | None
) -> Resolution:
    held = [{name: piece[name] for name in _ASKED} for piece in pieces]
    return Survey(lambda name, columns: [piece[name].select(columns) for piece in held], broker_ids).resolution()


def resolution_of_captures(points: Sequence[str | CapturePoint], filters: Filters) -> Resolution:
    """Survey captures that are read once more then.

    Args:
        points: The capture points.
        filters: Of these the listeners, given brokers and the reading of logs count.
    """
    anything = Filters(ports=filters.ports, broker_ids=filters.broker_ids, logs=filters.logs)
    return _resolution_of(chunks_of(points, anything), filters.broker_ids)


def resolved_reader(
    read: Reader, cluster: str | None = None, broker_ids: Mapping[tuple[str, int], int] | None = None
) -> Reader:
    """Return a reader of resolved rows.

    All requests are surveyed when the first rows are read.

    Args:
        read: Reads the rows as they are stored.
        cluster: Only rows of this cluster, and of ``captures`` those that show it; None: all.
        broker_ids: Broker ids of addresses, which no traffic has to tell.

    Raises:
        ConfigurationError: When rows are read: there is no such cluster.
    """

    return _reader(read, cache(lambda: Survey(read, broker_ids).resolution()), cluster)


def _reader(read: Reader, resolution: Callable[[], Resolution], cluster: str | None) -> Reader:
    def requests(columns: Sequence[str]) -> Iterator[pa.Table]:
        found = resolution()
        for table in read("requests", [*dict.fromkeys([*columns, *NODE, "frame_id", "cluster", "controller_id"])]):
            yield found.requests(table).select(list(columns))

    @cache
    def origins() -> pa.Table:
        names = ["frame_id", "capture", "cluster"]
        return pa.concat_tables([TABLES["requests"].empty_table().select(names), *requests(names)])

    def read_resolved(name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        if name == "requests":
            yield from requests(columns)
        elif name == "resolution":
            yield pa.table({"changes_rows": [resolution().changes_rows]})
        elif name in _SMALL:
            yield resolution().small(name).select(list(columns))
        else:
            extra = {"frames": ["flow", "direction"], "brokers": ["host", "port"]}.get(name, [])
            of = [
                column
                for column in ("frame_id", "capture", "cluster", *extra)
                if column in RESOLVED[name].names and (name in _OF_REQUESTS or column != "frame_id")
            ]
            for table in read(name, [*dict.fromkeys([*columns, *of])]):
                yield resolution().others(name, table, origins).select(list(columns))

    if cluster is None:
        return read_resolved
    return _of_cluster(read_resolved, cluster, lambda: check_cluster(cluster, resolution().names))


_TOLD_BY: Final = {"captures": ("capture", "clusters"), "partition_states": ("body_id", "requests")}
"""The tables whose rows are of each cluster that another table shows them in, by a column that both have."""


def _of_cluster(read: Reader, cluster: str, check: Callable[[], object] = lambda: None) -> Reader:
    """Return a reader of the rows of resolved tables that are of a cluster; ``bad_inputs`` stay whole."""

    @cache
    def values(name: str, column: str) -> pa.Array:
        return pc.unique(pa.concat_tables(read_own(name, [column]))[column]).drop_null()

    def read_own(name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        check()
        column, told_by = _TOLD_BY.get(name, ("cluster", ""))
        if name not in RESOLVED or column not in RESOLVED[name].names:
            yield from read(name, columns)
            return
        for table in read(name, [*dict.fromkeys([*columns, column])]):
            wanted = values(told_by, column) if told_by else pa.array([cluster])
            yield table.filter(pc.is_in(table[column], value_set=wanted)).select(list(columns))

    return read_own


def changes_rows(read: Reader) -> bool:
    """Whether rows of a reader that ``resolved_reader`` made differ from those that are stored."""
    return any(pc.any(table["changes_rows"]).as_py() for table in read("resolution", ["changes_rows"]))


def check_cluster(cluster: str, names: Sequence[str]) -> None:
    """Refuse a cluster that is not there.

    Raises:
        ConfigurationError: There is no such cluster.
    """
    if cluster not in names:
        raise ConfigurationError(f"no traffic of cluster {cluster!r} is here; there is {', '.join(names)}")


def resolved_tables(
    tables: Mapping[str, pa.Table],
    cluster: str | None = None,
    broker_ids: Mapping[tuple[str, int], int] | None = None,
) -> dict[str, pa.Table]:
    """Return tables in memory with resolved rows, requests in the order of time, and the small tables.

    Args:
        tables: As in ``kproto.tables.read``.
        cluster: Only rows of this cluster; None: all.
        broker_ids: Broker ids of addresses, which no traffic has to tell.

    Raises:
        ConfigurationError: There is no such cluster.
    """
    found = _resolved(tables, _resolution_of([tables], broker_ids), cluster)
    found["requests"] = found["requests"].sort_by([("ts", "ascending"), ("frame_id", "ascending")])
    return found


_HELD: Final = 64 << 20
"""About how much of the tables of one capture point is read before the first piece is given, so that clusters and
brokers are known from the beginning."""


def resolved_pieces(
    paths: Sequence[str], filters: Filters | None = None, cluster: str | None = None
) -> Iterator[dict[str, pa.Table]]:
    """Yield resolved tables of captures in pieces, with the small tables, but without frames and bodies.

    Several capture points make one piece, in the order of time: what the last one shows may change all rows. One
    capture point makes many, as ``chunks`` does; what it shows later than in its first 64 MB of tables changes later
    rows alone.

    Args:
        paths: See ``kproto.tables.read``.
        filters: The requests to keep; times are on the common clock.
        cluster: Only rows of this cluster; None: all.

    Raises:
        ConfigurationError: There is no such cluster.
    """
    filters = filters or Filters()
    points = points_in(paths)
    if len(points) > 1:
        anywhere = replace(filters, since_ns=None, until_ns=None, brokers=frozenset())
        found = resolved_tables(
            _joined([_slim(piece) for piece in chunks_of(points, anywhere)]), cluster, filters.broker_ids
        )
        yield _wanted(found, filters)
        return
    pieces = chunks_of(points, filters)
    held = []
    size = 0
    for piece in pieces:
        held.append(_slim(piece))
        size += sum(table.nbytes for table in held[-1].values())
        if size > _HELD:
            break
    resolution = _resolution_of(held, filters.broker_ids)
    while held:
        yield _resolved(held.pop(0), resolution, cluster)
    for piece in pieces:
        yield _resolved(_slim(piece), resolution, cluster)


def _slim(piece: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    return {name: table for name, table in piece.items() if name not in ("frames", "bodies")}


def _joined(pieces: Sequence[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """Return pieces as one, each body's states once."""
    known = pa.array([], pa.binary())
    states = []
    for piece in pieces:
        rows = piece["partition_states"]
        states.append(rows.filter(pc.invert(pc.is_in(rows["body_id"], value_set=known))))
        known = pa.concat_arrays([known, pc.unique(states[-1]["body_id"])])
    names = dict.fromkeys(name for piece in pieces for name in piece)
    joined = {name: pa.concat_tables([piece[name] for piece in pieces if name in piece]) for name in names}
    return joined | {"partition_states": pa.concat_tables(states)}


def _resolved(piece: Mapping[str, pa.Table], resolution: Resolution, cluster: str | None) -> dict[str, pa.Table]:
    """Return a piece of tables with resolved rows, those of a cluster alone if it is named, and the small tables."""
    columns = _SMALL | {name: table.schema for name, table in piece.items()}
    return _whole(_reader(reader_of(piece), lambda: resolution, cluster), columns)


def of_cluster(tables: Mapping[str, pa.Table], cluster: str) -> dict[str, pa.Table]:
    """Return the rows of resolved tables that are of a cluster; ``bad_inputs`` stay whole."""
    return _whole(_of_cluster(reader_of(tables), cluster), {name: table.schema for name, table in tables.items()})


def _whole(read: Reader, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
    return {name: pa.concat_tables(read(name, schema.names)) for name, schema in schemas.items()}


def by_cluster(
    pieces: Iterator[dict[str, pa.Table]],
) -> list[tuple[str, Iterable[dict[str, pa.Table]]]]:
    """Return the clusters in pieces of resolved tables, each with its pieces.

    The pieces of one cluster are passed on as they come; those of several are held in memory.
    """
    first = next(pieces, None)
    names = cluster_names(first["clusters"]["cluster"].to_pylist()) if first is not None else []
    every = chain([] if first is None else [first], pieces)
    if len(names) < 2:
        return [(names[0] if names else DEFAULT_CLUSTER, every)]
    held = list(every)
    return [(name, [of_cluster(piece, name) for piece in held]) for name in names]


def _wanted(tables: dict[str, pa.Table], filters: Filters) -> dict[str, pa.Table]:
    """Return the rows of requests at some time, and to some brokers."""
    requests = tables["requests"]
    micros = requests["ts"].cast(pa.int64())
    keep = pa.repeat(pa.scalar(True), requests.num_rows)
    if filters.since_ns is not None:
        keep = pc.and_(keep, pc.greater_equal(micros, -(-filters.since_ns // 1000)))
    if filters.until_ns is not None:
        keep = pc.and_(keep, pc.less(micros, -(-filters.until_ns // 1000)))
    if filters.brokers:
        ids = pa.array(sorted(filters.brokers), pa.int32())
        keep = pc.and_(keep, pc.is_in(requests["broker_id"], value_set=ids))
    kept = requests.filter(keep)
    if kept.num_rows == requests.num_rows:
        return tables
    asked, bodies = kept["frame_id"].combine_chunks(), pc.unique(kept["body_id"]).drop_null()
    found = tables | {"requests": kept}
    for name, column, values in (
        ("responses", "frame_id", asked),
        ("partition_errors", "frame_id", asked),
        ("partition_states", "body_id", bodies),
    ):
        found[name] = tables[name].filter(pc.is_in(tables[name][column], value_set=values))
    return found
