"""Collects what control traffic shows before any verdict: who was told what, who accepted it, who was alive.

Work is done for each distinct body, not for each copy of it: ``Facts.told`` has, for a body, when each broker accepted
it first and last. See ``docs/verdicts.md``. Times are us since 1970.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise, zip_longest
from operator import itemgetter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.capture.model import Endpoint
from kproto.error_codes import ErrorCode
from kproto.metadata_log.heartbeats import SHUT_DOWN
from kproto.tables.arrays import rows_of
from kproto.tables.clocks import CLOCKS, PointClock
from kproto.verdicts.epochs import ControllerEpoch, Epochs
from kproto.verdicts.live_lists import LiveLists
from kproto.verdicts.stale import epochs_in, learn_epochs, plain_times
from kproto.verdicts.states import (
    BEING_DELETED,
    FULL,
    NO_LEADER,
    Body,
    Incarnation,
    Incarnations,
    Request,
    Sighting,
    State,
    Stretch,
    Told,
    first_within,
    micros,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_STATE_COLUMNS: Final = (
    "body_id", "api_key", "topic", "topic_id", "partition", "leader", "leader_epoch", "partition_epoch", "isr",
    "replicas", "adding_replicas", "removing_replicas", "is_new", "leader_recovery_state", "delete_partition",
    "unclean_election",
)  # fmt: skip
FACT_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "requests": Request._fields,
    "partition_states": _STATE_COLUMNS,
    "partition_errors": ("frame_id", "topic", "partition", "error_code"),
    "live_brokers": ("live_brokers_id", "broker_id", "host", "port", "listener"),
    "captures": (
        "capture", "file", "first_ts", "last_ts", "partial_starts", "gaps", "gap_bytes", "cut_packets", "ip_fragments",
        "bad_checksums", "dropped_packets", "servers", "losses", "kafka_connections", "without_handshake", "bad_inputs",
        "not_read", "untimed_packets", "format", "controller_events",
    ),
    "clocks": tuple(CLOCKS.names),
    "bad_inputs": ("file", "reason", "offset", "bytes_skipped"),
    "identities": ("server_ip", "server_port", "broker_id", "possible"),
    "broker_states": (
        "capture", "broker_id", "broker_epoch", "is_start", "valid_from", "valid_to", "why", "state", "evidence",
    ),
    "broker_registrations": (
        "broker_id", "cluster_id", "address", "listeners", "error_code", "first_ts", "last_ts", "requests",
    ),
    "broker_heartbeats": ("broker_id", "broker_epoch", "first_ts", "last_ts", "heartbeats", "error_code"),
    "broker_progress": ("broker_id", "ts", "lag_us", "late"),
    "quorum_epochs": ("controller_epoch", "controller_id", "valid_from", "led_ts", "late_ts", "why"),
    "quorum_requests": ("first_ts", "last_ts", "count", "api_key", "node_id", "controller_epoch", "is_pre_vote"),
    "quorum_outages": ("valid_from", "valid_to", "last_ts", "votes", "refused", "nodes"),
    "admin_changes": (
        "ts", "client_id", "client_address", "principal", "topic", "partition", "what", "error_code",
    ),
}  # fmt: skip
"""The columns that facts are made of, by table."""

_NO_ID: Final = bytes(16)
_MOST_TRIED: Final = 100_000
"""Of more requests it is not tried which brokers may stand behind addresses."""
_SAME: Final = PointClock("", "")
_ONE_BATCH: Final = 1_000_000
"""The requests of one batch of a controller pass within this time, in us."""

SHUTDOWN: Final = 60_000_000
"""A controlled shutdown ends within this time, in us, after its StopReplica requests."""

Partition = tuple[str, int]
"""A topic and a partition's number."""

Listener = tuple[int, str | None, int | None, str | None]
"""Broker, host, port and name of an advertised listener; host, port and name are null where only the id is known."""


def named(partition: Partition) -> str:
    """A partition's name."""
    return f"{partition[0]}-{partition[1]}"


@dataclass(slots=True, eq=False)
class Life:
    """A registration of a broker, as accepted requests show it.

    Attributes:
        broker: The broker's id; its address where no id is known.
        address: The address of its first request; None: a metadata log shows it.
        is_kraft: Whether it registered with a KRaft controller.
        epoch: Its broker epoch.
        first, last: The times of the first and the last accepted request for it.
        requests: The number of requests.
        connections: The connections on which they passed.
        former: The registration before in the same mode; None: the captures show none.
        until: The time at which the broker's next registration began; None: this is the last.
        shown_by: The evidence that it began, in a few words.
    """

    broker: Any
    address: str | None
    is_kraft: bool
    epoch: int
    first: int
    last: int
    requests: int = 0
    connections: set[bytes] = field(default_factory=set)
    former: Life | None = None
    until: int | None = None
    shown_by: str = ""

    def add(self, request: Request) -> None:
        """Add a later accepted request for this registration."""
        self.last = request.ts
        self.requests += 1
        self.connections.add(request.conn_id)


class Spans:
    """The connections to one broker: from the first to the last request of each."""

    def __init__(self) -> None:
        self._spans: dict[bytes, list[int]] = {}

    def add(self, conn_id: bytes, ts: int) -> None:
        """Add a request that was answered."""
        span = self._spans.setdefault(conn_id, [ts, ts])
        span[0], span[1] = min(span[0], ts), max(span[1], ts)

    @property
    def stretches(self) -> Iterable[list[int]]:
        """The times of the first and the last request of each connection."""
        return self._spans.values()

    @cached_property
    def _reached(self) -> tuple[list[int], list[int]]:
        """When each connection began, ascending, and the last request of those that had begun by then."""
        spans = sorted(self._spans.values())
        return [first for first, _last in spans], list(accumulate((last for _first, last in spans), max))

    @property
    def last(self) -> int:
        """The time of the last request."""
        return self._reached[1][-1]

    def covers(self, begin: int, end: int) -> bool:
        """Whether one connection has a request at or before the begin, and one at or after the end."""
        begins, reached = self._reached
        place = bisect_right(begins, begin)
        return place > 0 and reached[place - 1] >= end

    def last_before(self, ts: int) -> int | None:
        """The time of the last request at or before this time, as far as the ends of connections tell; None: never."""
        begins, reached = self._reached
        place = bisect_right(begins, ts)
        return min(reached[place - 1], ts) if place else None

    def begins_after(self, ts: int) -> int | None:
        """When the first connection after a time began; None: none did."""
        return _after(self._reached[0], ts)

    def began_before(self, ts: int) -> bool:
        """Whether the newest connection began before this time."""
        return self._reached[0][-1] < ts


@dataclass(slots=True)
class _Source:
    """What one capture point shows: the captures of a host, or the log of a broker.

    Attributes:
        first, last: The times of its first and its last packet, or line; those of all requests where it has none.
        asked: Each broker to which it shows requests, and whether more than lines of a state-change log do.
        lists: The times of lists of live brokers in a state-change log, ascending.
    """

    first: int
    last: int
    asked: dict[Any, bool] = field(default_factory=dict)
    lists: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _ShownReign:
    """What the captures show of one controller.

    Attributes:
        since: The time of its first request.
        captured: The time of its first request in a capture, where none lacks its list; None: logs alone show it.
    """

    since: int
    captured: int | None = None


def _live_changes(listing: Iterable[tuple[Request, frozenset[int]]]) -> list[tuple[int, frozenset[int]]]:
    """When the live brokers changed, with the brokers from then on, by requests with their lists.

    A controller's log tells a list as it is decided, a connection as it is sent, later: either has an order of its own.
    """
    lists: LiveLists[frozenset[int]] = LiveLists()
    for request, live in listing:
        lists.add(request.ts, request.reign, (request.broker_id, request.is_logged), live)
    return lists.changes()


def _absences(changes: Iterable[tuple[int, frozenset[int]]]) -> dict[int, list[Stretch]]:
    """When the live brokers lacked each broker that they had had before, in order."""
    found: dict[int, list[Stretch]] = defaultdict(list)
    listed: set[int] = set()
    before: frozenset[int] = frozenset()
    for ts, live in changes:
        for broker in before - live:
            found[broker].append(Stretch(ts, None))
        for broker in (live - before) & listed:
            found[broker][-1] = found[broker][-1]._replace(until=ts)
        listed |= live
        before = live
    return dict(found)


def _where_all(
    of: Mapping[Any, Iterable[Stretch]], connected: Mapping[Any, Iterable[Sequence[int]]], end: int
) -> list[Stretch]:
    """The times at which some broker has a stretch, and no connected one has none, in order."""
    held: Counter[Any] = Counter()
    on: Counter[Any] = Counter()
    marks = []
    for broker, stretches in of.items():
        for since, until in stretches:
            marks += [(since, held, broker, 1), (end if until is None else until, held, broker, -1)]
    for broker, spans in connected.items() if marks else ():
        for first, last in spans:
            marks += [(first, on, broker, 1), (last, on, broker, -1)]
    found: list[Stretch] = []
    held_now = free_now = 0
    began: int | None = None
    for ts, counts, broker, step in sorted(marks, key=itemgetter(0)):
        was_free = on[broker] > 0 and not held[broker]
        counts[broker] += step
        free_now += (on[broker] > 0 and not held[broker]) - was_free
        held_now += step if counts is held else 0
        if began is None and held_now and not free_now:
            began = ts
        elif began is not None and (free_now or not held_now):
            found += [Stretch(began, ts)] if began < ts else []
            began = None
    return found


def is_near(times: Sequence[int], ts: int, settled: int) -> bool:
    """Whether one of ascending times lies within ``settled`` us before a time, or at once after it."""
    first = _after(times, ts - settled)
    return first is not None and first <= ts + settled // 60


def _after(times: Sequence[int], ts: int) -> int | None:
    """The first of ascending times after a time; None: there is none."""
    place = bisect_right(times, ts)
    return times[place] if place < len(times) else None


class Removals:
    """When each broker was last told to stop a partition's replica, and to delete its log; and who refused that."""

    def __init__(self, facts: Facts) -> None:
        self.stopped: dict[Partition, dict[Any, int]] = defaultdict(dict)
        self._deleted: dict[Partition, dict[Any, int]] = defaultdict(dict)
        self.refused: dict[tuple[Partition, Any], int] = {}
        self._kept: dict[Any, list[tuple[int, frozenset[Partition]]]] = defaultdict(list)
        for body in facts.bodies:
            if body.api_key == ApiKey.LEADER_AND_ISR and body.request.is_kraft_controller:
                if body.request.type == FULL:  # a migrating broker moves aside what is not in it
                    kept = frozenset((topic, number) for topic, number, _id, _state in body.states)
                    for broker, (_first, last) in body.told.items():
                        self._kept[broker].append((last, kept))
            elif body.api_key == ApiKey.STOP_REPLICA:
                for topic, number, _id, delete in body.states:
                    self._add(facts, body, (topic, number), delete=delete)

    def _add(self, facts: Facts, body: Body, partition: Partition, *, delete: bool) -> None:
        stopped, deleted = self.stopped[partition], self._deleted[partition]
        for broker, (_first, last) in body.told.items():
            stopped[broker] = max(last, stopped.get(broker, last))
            error = facts.partition_error(body, broker, partition) if delete else None
            if error is not None:
                self.refused[partition, broker] = error
            elif delete:
                deleted[broker] = max(last, deleted.get(broker, last))

    def last(self, partition: Partition, broker: Any) -> int | None:
        """When a broker accepted last that a partition's log is to be deleted; None: never."""
        times = [last for last, kept in self._kept.get(broker, ()) if partition not in kept]
        accepted = self._deleted.get(partition, {}).get(broker)
        return max((*times, *(() if accepted is None else (accepted,))), default=None)


class Facts:
    """The facts of a cluster's captures.

    Attributes:
        epochs: Of controllers and brokers.
        clocks: Those of the capture points; times are on the common one already.
        requests: In the order of time.
        begin, end: The times of the first and the last of them.
        bodies: In the order in which the first broker accepted each.
        unanswered_deletions: Topic, partition and broker of each deletion that was sent and has no answer.

    Args:
        pieces: Resolved tables by name, whole or in pieces, see ``kproto.tables.resolved``; of each the columns of
            ``FACT_COLUMNS`` count. A piece with requests may repeat bodies of earlier ones, as those of ``chunks`` do.
        redact: Whether to number topics, addresses and files instead of naming them.
        brokers: Brokers of addresses, to try what follows if they stand behind these.
    """

    def __init__(
        self,
        pieces: Iterable[Mapping[str, pa.Table]],
        *,
        redact: bool = False,
        brokers: Mapping[str, int] | None = None,
    ) -> None:
        self._redact = redact
        self._told: dict[tuple[Incarnation, Any], Told] = {}
        self._brokers = dict(brokers or {})
        self._numbers: dict[tuple[str, str], str] = {}
        self._numbered: Counter[str] = Counter()
        parts: dict[str, list[pa.Table]] = defaultdict(list)
        known = pa.array([], pa.binary())
        for piece in pieces:
            for name, columns in FACT_COLUMNS.items():
                if name in piece and piece[name].num_rows:
                    rows = piece[name].select(columns)
                    if name == "partition_states" and "requests" in piece:
                        rows = rows.filter(pc.invert(pc.is_in(rows["body_id"], value_set=known)))
                        known = pa.concat_arrays([known, pc.unique(rows["body_id"])])
                    parts[name].append(rows)
        self._tables = {name: pa.concat_tables(tables) for name, tables in parts.items()}
        self.epochs = Epochs()
        self.clocks: dict[str, PointClock] = {row[0]: PointClock(*row) for row in self.rows("clocks")}
        self.requests = self._read_requests()
        self.end: int = max((request.ts for request in self.requests), default=0)
        self.begin: int = self.requests[0].ts if self.requests else 0
        self.listeners: dict[bytes, list[Listener]] = self._read_listeners()
        self._live_sets = {name: frozenset(row[0] for row in rows) for name, rows in self.listeners.items()}
        self.unanswered_deletions: set[tuple[str, int, Any]] = set()
        if not self.fits:  # else they are read again for each
            self._tables.pop("requests", None)
        self.bodies = self._read_bodies()
        if not self.fits:
            self._tables.pop("partition_states", None)

    def rows(self, name: str) -> Iterable[tuple[Any, ...]]:
        """Return the rows of a table, with the columns of ``FACT_COLUMNS``."""
        table = self._tables.get(name)
        return () if table is None else rows_of(table, FACT_COLUMNS[name])

    def shown(self, kind: str, name: str) -> str:
        """The name of a topic, address or capture, or its replacement where names are left out."""
        if not self._redact:
            return name
        known = self._numbers.get((kind, name))
        if known is None:
            self._numbered[kind] += 1
            known = self._numbers[kind, name] = f"{kind}-{self._numbered[kind]}"
        return known

    def _read_requests(self) -> list[Request]:
        table = self._tables.get("requests")
        if table is None:
            return []
        table = plain_times(table, "ts")
        learn_epochs(self.epochs, epochs_in([table]))
        table = table.sort_by([("ts", "ascending"), ("frame_id", "ascending")])
        requests = map(Request._make, rows_of(table, FACT_COLUMNS["requests"]))
        return [
            request
            if request.broker_id is not None
            else request._replace(broker_id=self._broker_at(request.server_ip, request.server_port))
            for request in requests
        ]

    @cached_property
    def fits(self) -> list[dict[str, int]]:
        """The ways in which brokers may stand behind addresses whose broker is unknown; empty: too little is known."""
        rows = {
            (ip, port): possible for ip, port, broker, possible in self.rows("identities") if broker is None
        }  # several pieces repeat them
        if len(self.requests) > _MOST_TRIED or not rows or not all(rows.values()):
            return []
        count = min(map(len, rows.values()))
        every = [{self.shown_address(*end): possible[n] for end, possible in rows.items()} for n in range(count)]
        return [dict(fit) for fit in dict.fromkeys(tuple(sorted(fit.items())) for fit in every)]

    def if_brokers_are(self, fit: Mapping[str, int]) -> Facts:
        """Return the facts if these brokers stood behind addresses whose broker is unknown."""
        return Facts([self._tables], redact=self._redact, brokers=fit)

    def _broker_at(self, ip: str, port: int) -> Any:
        address = self.shown_address(ip, port)
        return self._brokers.get(address, address)

    @cached_property
    def servers(self) -> dict[tuple[str, int], Any]:
        """The broker behind each address that was sent requests."""
        return {(request.server_ip, request.server_port): request.broker_id for request in self.requests}

    def shown_address(self, ip: str, port: int) -> str:
        """An address, or its replacement."""
        return self.shown("address", str(Endpoint(ip, port)))

    def _read_listeners(self) -> dict[bytes, list[Listener]]:
        lists: dict[bytes, list[Listener]] = defaultdict(list)
        for name, *listener in self.rows("live_brokers"):
            lists[name].append(tuple(listener))
        return dict(lists)

    def live_in(self, request: Request) -> frozenset[int] | None:
        """The live brokers that an UpdateMetadata lists; None of other requests."""
        if request.live_brokers_id is not None:
            return self._live_sets.get(request.live_brokers_id, frozenset())
        return None

    def _read_bodies(self) -> list[Body]:
        """The bodies in the order in which the first broker accepted each."""
        found: dict[bytes, Body] = {}
        unsure: dict[bytes, set[Any]] = defaultdict(set)
        unanswered: dict[bytes, list[Any]] = defaultdict(list)
        for request in self.requests:
            if request.body_id is None or (request.controller_id is None and request.api_key != ApiKey.FETCH):
                continue
            if request.error_code is None and request.api_key == ApiKey.STOP_REPLICA:
                unanswered[request.body_id].append(request.broker_id)
            if request.error_code != 0:
                unsure[request.body_id].add(request.broker_id)
                continue
            body = found.get(request.body_id)
            if body is None:
                body = found[request.body_id] = Body(request, self.live_in(request))
                body.first = request.ts
            first, _last = body.told.get(request.broker_id, (request.ts, 0))
            body.told[request.broker_id] = (first, request.ts)
            body.last = request.ts
        for body_id in found.keys() & unsure.keys():
            found[body_id].unsure = unsure[body_id]
        table = self._tables.get("partition_states")
        if table is not None:
            wanted = pa.array(found.keys() | unanswered.keys(), pa.binary())
            table = table.filter(pc.is_in(table["body_id"], value_set=wanted))
            for body_id, api_key, topic, topic_id, partition, *fields in rows_of(table, _STATE_COLUMNS):
                leader, leader_epoch, partition_epoch, isr, replicas, adding, removing, *more = fields
                is_new, recovery, delete, unclean = more
                state: Any
                if api_key == ApiKey.STOP_REPLICA:
                    state = bool(delete)
                    if delete and body_id in unanswered:
                        asked = ((self.shown("topic", topic), partition, broker) for broker in unanswered[body_id])
                        self.unanswered_deletions.update(asked)
                    if body_id not in found:
                        continue
                else:
                    is_full = found[body_id].request.type == FULL  # such a request calls all partitions new
                    state = State(
                        leader, leader_epoch, -1 if partition_epoch is None else partition_epoch, isr or (),
                        replicas or (), adding, removing or (), bool(is_new) and not is_full,
                        None if recovery is None or api_key == ApiKey.UPDATE_METADATA else bool(recovery), unclean,
                    )  # fmt: skip
                found[body_id].states.append(
                    (self.shown("topic", topic), partition, None if topic_id == _NO_ID else topic_id, state)
                )
        return list(found.values())

    @cached_property
    def partition_errors(self) -> dict[bytes, dict[Partition, int]]:
        """The errors of single partitions, by request."""
        found: dict[bytes, dict[Partition, int]] = defaultdict(dict)
        for frame_id, topic, partition, code in self.rows("partition_errors"):
            if topic is not None:  # else the request that names it cannot be read
                found[frame_id][self.shown("topic", topic), partition] = code
        return found

    @cached_property
    def refused_partitions(self) -> dict[tuple[bytes | None, Any], dict[Partition, int]]:
        """The errors of single partitions, by body and broker; of a body that came twice, those of both answers."""
        if not self.partition_errors:
            return {}
        found: dict[tuple[bytes | None, Any], dict[Partition, int]] = {}
        for request in self.requests:
            if request.body_id is not None and request.error_code == 0:
                key = request.body_id, request.broker_id
                errors = self.partition_errors.get(request.frame_id, {})
                before = found.get(key)
                if before is not None:
                    errors = {partition: code for partition, code in errors.items() if partition in before}
                found[key] = errors
        return found

    def accepted(self, body: Body, broker: Any, partition: Partition) -> bool:
        """Whether a broker accepted a body, and this partition in it."""
        return broker in body.told and self.partition_error(body, broker, partition) is None

    def partition_error(self, body: Body, broker: Any, partition: Partition) -> int | None:
        """The error with which a broker refused a partition of a body; None: none."""
        return self.refused_partitions.get((body.request.body_id, broker), {}).get(partition)

    def told(self, life: Incarnation, broker: Any) -> Told:
        """What UpdateMetadata told a broker of a partition."""
        known = self._told.get((life, broker))
        if known is None:
            known = self._told[life, broker] = life.told(broker, True)
        return known

    @cached_property
    def left_out(self) -> set[Partition]:
        """The partitions of which the newest controller told nothing, though captures show that of others.

        It tells all states as it takes over, if it is Kafka's: such a partition was deleted, or captures lack what it
        told.
        """
        if self._begun_unseen[1] or not any(row["without_handshake"] or row["gaps"] for row in self.captures):
            return set()
        updates = (body for body in self.bodies if body.api_key == ApiKey.UPDATE_METADATA and body.states)
        newest = max((body.request.controller_epoch for body in updates if not body.request.is_logged), default=-1)
        last = {partition: life.sightings[-1].body for partition, life in self.present.items()}
        return {
            partition
            for partition, body in last.items()
            if body.api_key != ApiKey.FETCH and body.request.controller_epoch < newest
        }

    @cached_property
    def removals(self) -> Removals:
        """Who was told to stop replicas and to delete logs."""
        return Removals(self)

    @cached_property
    def incarnations(self) -> dict[Partition, Incarnations]:
        """The lives of each partition, in order; a state that all refuse as of another topic's id is of none."""
        found: dict[Partition, Incarnations] = defaultdict(Incarnations)
        for body in self.bodies:
            if body.api_key == ApiKey.STOP_REPLICA:
                continue
            refused = [self.refused_partitions.get((body.request.body_id, broker), {}) for broker in body.told]
            for topic, number, topic_id, state in body.states:
                if state.leader == BEING_DELETED:
                    found[topic, number].end(topic_id, body.first)
                elif any(codes.get((topic, number)) != ErrorCode.INCONSISTENT_TOPIC_ID for codes in refused):
                    life = found[topic, number].of(topic_id, state.epochs, body.first, is_new=state.is_new)
                    life.sightings.append(Sighting(body.first, body, state))
        deleted = {each["topic"]: each["ts"] for each in self.controller_events if each["kind"] == "topic deleted"}
        for (topic, _number), lives in found.items() if deleted else ():
            if max((sighting.ts for life in lives for sighting in life.sightings), default=0) < deleted.get(topic, 0):
                lives.end(None, deleted[topic])
        return found

    @property
    def told_lives(self) -> Iterator[tuple[Partition, Incarnation]]:
        """The lives of all partitions of which a state was told."""
        for partition, lives in self.incarnations.items():
            for life in lives:
                if life.sightings:
                    yield partition, life

    @cached_property
    def present(self) -> dict[Partition, Incarnation]:
        """The partitions that exist at the end, with the states that requests gave them."""
        return {
            partition: lives[-1]
            for partition, lives in self.incarnations.items()
            if lives[-1].deleted is None and lives[-1].sightings
        }

    @cached_property
    def fewest_replicas(self) -> dict[str, int]:
        """The fewest replicas that a partition of each topic has in its newest state."""
        found: dict[str, int] = {}
        for (topic, _number), life in self.present.items():
            count = len(life.newest.state.replicas)
            found[topic] = min(count, found.get(topic, count))
        return found

    @cached_property
    def spans(self) -> dict[Any, Spans]:
        """The connections to each broker on which it accepted requests."""
        found: dict[Any, Spans] = defaultdict(Spans)
        for request in self.requests:
            if request.error_code is not None:
                found[request.broker_id].add(request.conn_id, request.ts)
        return found

    @cached_property
    def _answered(self) -> dict[Any, list[int]]:
        """The times of each broker's answers, ascending."""
        found: dict[Any, list[int]] = defaultdict(list)
        for request in self.requests:
            if request.latency_us is not None:
                found[request.broker_id].append(request.ts + request.latency_us)
        return {broker: sorted(times) for broker, times in found.items()}

    def was_busy(self, broker: Any, ts: int, queued: int) -> bool:
        """Whether a broker answered the request before within ``queued`` us: one is in flight, others wait for it."""
        times = self._answered.get(broker, [])
        place = bisect_right(times, ts)
        return place > 0 and ts - times[place - 1] < queued

    @cached_property
    def live_changes(self) -> list[tuple[int, frozenset[int]]]:
        """The times at which the live brokers in accepted updates changed, with the brokers from then on."""
        return _live_changes(self._listing)

    @cached_property
    def _listing(self) -> list[tuple[Request, frozenset[int]]]:
        """The accepted requests with a list of live brokers, each with its list."""
        found = []
        for request in self.requests:
            live = self.live_in(request)
            if live is not None and request.error_code == 0:
                found.append((request, live))
        return found

    @cached_property
    def listed_to(self) -> frozenset[Any]:
        """The brokers that accepted lists of live brokers."""
        return frozenset(request.broker_id for request, _live in self._listing)

    @cached_property
    def absences(self) -> dict[int, list[Stretch]]:
        """The times during which updates did not list each broker as alive, after one had; in order."""
        return _absences(self.live_changes)

    @cached_property
    def _zookeeper_lists(self) -> list[tuple[list[tuple[int, frozenset[int]]], dict[int, list[Stretch]], int | None]]:
        """The changes of the live brokers in each reign of ZooKeeper's controllers, the absences, and its end.

        A controller of KRaft goes on to list brokers that are down: its lists end a reign and show nothing. What logs
        alone list holds until the last of them ends.
        """
        kraft = self.told_by_kraft
        reigns: dict[int, list[tuple[Request, frozenset[int]]]] = defaultdict(list)
        for request, live in self._listing:
            if not request.is_kraft_controller:
                reigns[bisect_right(kraft, request.ts)].append((request, live))
        found = []
        for place, listing in reigns.items():
            changes = _live_changes(listing)
            end = kraft[place] if place < len(kraft) else None
            if end is None and all(request.is_logged for request, _live in listing):
                last = max(log.last for log in self._logs_listing(self.begin, self.end))
                end = last if last + _ONE_BATCH < self.end else None
            found.append((changes, _absences(changes), end))
        return found

    def not_alive(self, broker: int) -> list[Stretch]:
        """The times at which ZooKeeper's controllers did not list a broker as alive; in order."""
        found = []
        for changes, absences, end in self._zookeeper_lists:
            stretches = absences.get(broker)
            if stretches is None:
                stretches = [Stretch(changes[0][0], None)] if broker not in changes[-1][1] else []
            found += [stretch._replace(until=end) if stretch.until is None else stretch for stretch in stretches]
        return found

    @cached_property
    def _shut_down(self) -> dict[Any, list[int]]:
        """When the controller took each broker out of ISRs while the live brokers still had it; in the order of time.

        It does so in a controlled shutdown, before the broker ends, by the next state, with a new leader epoch. Leaders
        that shrink an ISR keep the leader epoch (with KRaft they need not: there, records and heartbeats tell), and a
        broker that was killed is in the list of live brokers no more by then. The broker is told to stop its replicas,
        which stay assigned to it. A deletion stops them first, too: that of the leader as well, and a request to delete
        one follows, of which the capture may lack either.
        """
        found: dict[Any, list[int]] = defaultdict(list)
        stops = {body.request.body_id: body.states for body in self.bodies if body.api_key == ApiKey.STOP_REPLICA}
        stopped: dict[Partition, list[tuple[int, Any, bool]]] = defaultdict(list)
        for request in self.requests:  # each counts, also of a body that the broker got before
            for topic, number, _topic_id, delete in stops.get(request.body_id, ()):
                if delete or request.error_code == 0:  # whatever a broker answers, the topic is being deleted
                    stopped[topic, number].append((request.ts, request.broker_id, delete))
        for partition in stopped.keys() & self.present.keys():
            life, told_to = self.present[partition], stopped[partition]
            deletions = [ts for ts, broker, delete in told_to if delete or broker == life.leader_at(ts)]
            for ts, broker, _delete in told_to:
                place = bisect_left(deletions, ts - _ONE_BATCH)
                is_deletion = place < len(deletions) and deletions[place] <= ts + _ONE_BATCH
                if broker in life.newest.state.replicas and not is_deletion:
                    found[broker].append(ts)
        for some in self.incarnations.values():
            for life in some:
                told = {
                    sighting.state.epochs: sighting
                    for sighting in reversed(life.sightings)
                    if sighting.body.live is not None
                }
                for before, after in pairwise(life.steps):
                    old, new = before.state, after.state
                    gone = set(old.isr).difference(new.isr)
                    is_next = old.partition_epoch < 0 or new.partition_epoch == old.partition_epoch + 1
                    sighting = told.get(new.epochs)
                    if sighting is None or sighting.body.request.is_kraft_controller:
                        continue
                    if gone and is_next and new.leader_epoch > old.leader_epoch:
                        for broker in gone.intersection(sighting.body.live or (), new.replicas):
                            found[broker].append(sighting.ts)
        return {broker: sorted(times) for broker, times in found.items()}

    @cached_property
    def _left_in_sync(self) -> set[tuple[int, int]]:
        """The brokers that left the live brokers while an ISR of several held them, with KRaft as leaders, and when.

        A controlled shutdown takes the broker out of these first; with KRaft a broker that leads nothing is fenced at
        once, whatever ends it. Others rest on no evidence: the state before may lie before the capture. A controller's
        log has both in the order in which they were decided; a broker may be told of the ISR after others were told who
        is alive.
        """
        left = {broker: [stretch.since for stretch in stretches] for broker, stretches in self.absences.items()}
        held = {broker: [0] * (len(times) + 1) for broker, times in left.items()}
        for lives in self.incarnations.values() if left else ():
            for life in lives:
                for step, after in zip_longest(life.steps, life.steps[1:]):
                    until = life.deleted or self.end  # of a topic that is deleted it takes out nobody
                    if after is not None:
                        until = min(until, after.ts + _ONE_BATCH * (not after.body.request.is_logged))
                    state, is_kraft = step.state, step.body.request.is_kraft_controller
                    holding = {state.leader} if is_kraft else set(state.isr if len(state.isr) > 1 else ())
                    for broker in holding & left.keys():
                        first, last = bisect_right(left[broker], step.ts), bisect_right(left[broker], until)
                        if first < last:  # how many ISRs hold it is counted from here on, and no more from there on
                            held[broker][first] += 1
                            held[broker][last] -= 1
        return {
            (broker, ts)
            for broker, times in left.items()
            for ts, count in zip(times, accumulate(held[broker]), strict=False)
            if count
        }

    @cached_property
    def _arrivals(self) -> dict[int, list[int]]:
        """The times at which each broker came to the live brokers."""
        found: dict[int, list[int]] = defaultdict(list)
        for (_ts, before), (ts, live) in pairwise(self.live_changes):
            for broker in live - before:
                found[broker].append(ts)
        return found

    def back_since(self, broker: Any, ts: int, within: int) -> int:
        """When a broker came back that had left within some us after a time; else that time, or the end: not yet."""
        absence = first_within(self.absences.get(broker, ()), ts, ts + within - 1)
        return ts if absence is None else absence.until or self.end

    @cached_property
    def _registered_again(self) -> dict[Any, list[int]]:
        """When each broker registered again with controllers of KRaft."""
        found: dict[Any, list[int]] = defaultdict(list)
        for life in self.lives:
            if life.is_kraft and life.former:
                found[life.broker].append(life.first)
        return found

    def shows_removal(self, broker: Any, decided: int, told: int, settled: int) -> bool:
        """Whether the captures show what a broker was told in the seconds in which it is told to delete a log.

        What passed before a connection's first packet in the captures, or after its last, leaves no gap in its bytes.
        So a connection has to begin soon, and to go on or to be the last for a while; and a controller that lists a
        broker as back as soon as it takes over may not be the first that did.

        Args:
            broker: The broker.
            decided: When others were told that the log is to go.
            told, settled: Within how long, in us, a broker is told, and a change follows from its coming.
        """
        since = self.back_since(broker, decided, told)
        soon = told // 4  # in real captures one that is back is told within 1.3 s
        reigns = bisect_right(self._reigns, since, key=lambda reign: reign.since)
        is_taken_over = reigns > 0 and self._reigns[reigns - 1].since > max(decided, since - soon - 1)
        if since == decided:  # controllers of KRaft list brokers that are down: there it is back as it registers
            again = self._registered_again[broker]
            place = bisect_right(again, decided)
            since = again[place] if place < len(again) else since
        spans, first = self.spans[broker], since + soon
        following = spans.begins_after(first) or self.recorded_until(broker)
        is_last = (spans.last_before(first) or 0) >= since and following - first > settled
        return not is_taken_over and (is_last or spans.covers(first, first + soon))

    def how_it_left(self, broker: int, ts: int) -> str | None:
        """How a broker left the live brokers at a time, by what the controller did since it came.

        None: the captures do not tell, as they show no replica of it before, or as what told so may be missing.
        """
        fenced = self._how_fenced.get((broker, ts))
        if fenced is not None:
            return fenced
        times, arrivals = self._shut_down.get(broker, []), self._arrivals.get(broker, [])
        place, came = bisect_right(times, ts), bisect_left(arrivals, ts)
        if place and (not came or times[place - 1] >= arrivals[came - 1]):
            return "a controlled shutdown"
        is_whole = any(self._logs_listing(ts, ts)) or not self._lacks_bytes(broker, ts - SHUTDOWN, ts)
        if (broker, ts) in self._left_in_sync and is_whole:
            return "killed, hung or cut off (no controlled shutdown)"
        return None

    @cached_property
    def _sources(self) -> dict[str, _Source]:
        """What each capture point shows."""
        found: dict[str, _Source] = {}
        for row in self.captures:
            if row["first_ts"] is not None and row["last_ts"] is not None:
                first, last = micros(row["first_ts"]), micros(row["last_ts"])
                source = found.setdefault(row["capture"], _Source(first, last))
                source.first, source.last = min(source.first, first), max(source.last, last)
        for request in self.requests:
            source = found.get(request.capture) or found.setdefault(request.capture, _Source(self.begin, self.end))
            source.asked[request.broker_id] = source.asked.get(request.broker_id) or not request.is_logged
            if request.is_logged and request.live_brokers_id is not None and request.error_code == 0:
                source.lists.append(request.ts)
        return found

    def _logs_listing(self, first: int, last: int) -> Iterator[_Source]:
        """Yield the logs that list live brokers between two times: they are a controller's, and tell all it decides."""
        for source in self._sources.values():
            place = bisect_left(source.lists, first)
            if place < len(source.lists) and source.lists[place] <= last:
                yield source

    @cached_property
    def _recorded(self) -> dict[Any, tuple[int, int]]:
        """From when until when the capture points that show requests to each broker recorded; empty if there is one."""
        found: dict[Any, tuple[int, int]] = {}
        for source in self._sources.values() if len(self._sources) > 1 else ():
            for broker in source.asked:
                first, last = found.get(broker, (source.first, source.last))
                found[broker] = min(first, source.first), max(last, source.last)
        return found

    def recorded_until(self, broker: Any) -> int:
        """The time until which captures show what a broker is asked: those of its host may end earlier than others."""
        return min(self._recorded.get(broker, (self.begin, self.end))[1], self.end)

    def is_recorded(self, broker: Any, first: int, last: int, within: int = 0) -> bool:
        """Whether captures were made where a broker is asked, at both times and in all reigns between them.

        A controller whose first request passed within the last ``within`` us may yet ask.
        """
        begin, _end = self._recorded.get(broker, (first, last))
        elsewhere = first_within(self._unrecorded.get(broker, ()), first, min(last, self.end - within - 1))
        is_asked = elsewhere is None and (broker in self._recorded or not self._recorded)
        return is_asked and begin <= first and last <= self.recorded_until(broker)

    @cached_property
    def _how_fenced(self) -> dict[tuple[int, int], str]:
        """How brokers were fenced, where the log or heartbeats tell, by broker and time."""
        found = {}
        for _capture, broker, _epoch, _start, begin, _end, why, state, evidence in self.rows("broker_states"):
            if why == "fenced after its controlled shutdown" or (state == "fenced" and evidence == SHUT_DOWN):
                found[broker, micros(begin)] = "a controlled shutdown"
            elif state == "fenced" and evidence and evidence.startswith("session timed out"):
                found[broker, micros(begin)] = evidence
        return found

    @cached_property
    def _since(self) -> dict[tuple[int, int | None], int]:
        return {(one.epoch, one.controller_id): one.since for one in self.epochs.controllers()}

    def is_from_new(self, body: Body, within: int) -> bool:
        """Whether the captures know a body's controller for less than ``within`` us before it.

        A controller that takes over tells every state again, and so may one with which the captures begin.
        """
        sender = body.request.controller_epoch, body.request.controller_id
        return body.first - self._since.get(sender, self.begin) < within

    @cached_property
    def controllers(self) -> list[ControllerEpoch]:
        """The controllers that brokers accepted, and the leaders of KRaft's quorum, in the order of their epochs.

        In a migration a leader of the quorum tells ZooKeeper's brokers of an epoch of theirs: that is no other reign.
        """
        begins = {row[:2]: row[3] if row[2] is None else row[2] for row in self.rows("quorum_epochs")}
        led = [
            ControllerEpoch(epoch, node, micros(begin)) for (epoch, node), begin in begins.items() if begin is not None
        ]
        found = {
            one[:2]: one
            for one in self.epochs.controllers()
            if one[:2] in begins or all(one.controller_id != node or one.since < since for _epoch, node, since in led)
        }
        return sorted([*found.values(), *(one for one in led if one[:2] not in found)])

    def dead_since(self, broker: int) -> int | None:
        """The time since which no update lists a broker as alive; None: the last one lists it, or none ever did."""
        last = self.absences.get(broker, ())[-1:]
        if last:
            return last[0].since if last[0].until is None else None
        if self.live_changes and broker not in self.live_changes[-1][1]:
            return self.live_changes[0][0]
        return None

    def gone_between(self, broker: Any, begin: int, end: int) -> int | None:
        """The first time between two at which no update lists a broker as alive any more; None: there is none."""
        absence = first_within(self.absences.get(broker, ()), begin, end - 1)
        return None if absence is None else max(begin, absence.since)

    @cached_property
    def with_broker_epochs(self) -> frozenset[Any]:
        """The brokers that accepted a request with a broker epoch, which shows their registrations."""
        return frozenset(life.broker for life in self.lives)

    @cached_property
    def is_kraft_controller(self) -> bool:
        """Whether the last controller was one of KRaft."""
        accepted = (request.is_kraft_controller for request in reversed(self.requests) if request.error_code == 0)
        return bool(next(accepted, False))

    @cached_property
    def told_by_kraft(self) -> list[int]:
        """The times at which brokers accepted requests of KRaft controllers, ascending."""
        return [request.ts for request in self.requests if request.is_kraft_controller and request.error_code == 0]

    @cached_property
    def alive(self) -> frozenset[int]:
        """The brokers that are alive at the end, as far as the captures tell.

        A KRaft controller goes on to list brokers that are down: there a broker counts that the ISR of a partition with
        a leader still holds; where there is no leader, the ISR names those that were in sync last.
        """
        live = self.live_changes[-1][1] if self.live_changes else frozenset()
        if self.is_kraft_controller:
            states = (life.newest.state for life in self.present.values())
            held = {broker for state in states if state.leader != NO_LEADER for broker in state.isr}
            return live & held
        return live

    @cached_property
    def life_events(self) -> dict[int, list[int]]:
        """The times at which each broker came or went: by lists of live brokers, registrations, a log of its states."""
        found: dict[int, list[int]] = defaultdict(list)
        for (_ts, before), (ts, live) in pairwise(self.live_changes):
            for broker in live ^ before:
                found[broker].append(ts)
        for broker, _former, _epoch, ts in self.registrations:
            found[broker].append(ts)
        for _capture, broker, _epoch, _is_start, valid_from, *_more in self.rows("broker_states"):
            found[broker].append(micros(valid_from))  # a controlled shutdown begins seconds before the broker leaves
        return {broker: sorted(times) for broker, times in found.items()}

    def is_settling(self, brokers: Iterable[int], ts: int, settled: int) -> bool:
        """Whether one of the brokers joined or left within ``settled`` us before, or at once after; or may have."""
        events, blind = self.life_events, first_within(self.blind, ts - settled, ts)
        may_have = blind is not None or not self.shows_alive(ts)
        return may_have or any(is_near(events.get(broker, ()), ts, settled) for broker in brokers)

    def shows_alive(self, ts: int) -> bool:
        """Whether anything tells who was alive: a log of states, or the controller's lists, which no broker logs."""
        if not self._reigns or "broker_states" in self._tables:
            return True
        place = bisect_right(self._reigns, ts, key=lambda reign: reign.since)
        reign, until = self._reigns[max(place - 1, 0)], ts + _ONE_BATCH
        if reign.captured is not None and reign.captured <= until:
            return True
        return any(log.last + _ONE_BATCH >= ts for log in self._logs_listing(reign.since, until))

    def joined(self, broker: int) -> int:
        """The time at which a broker came or went last; that of the first request if it always was alive."""
        events = self.life_events.get(broker)
        return events[-1] if events else self.begin

    @cached_property
    def lives(self) -> list[Life]:
        """Each broker's registrations, in the order in which they began.

        A registration after another needs two accepted requests, and no later one that was accepted with a lower epoch:
        brokers accept invented higher epochs too.
        """
        seen: dict[tuple[Any, bool], dict[int, Life]] = defaultdict(dict)
        for request in self.requests:
            if request.controller_id is None:  # it cannot be read, so that its mode is unknown
                continue
            if request.error_code == 0 and request.broker_epoch is not None and request.broker_epoch >= 0:
                mode = bool(request.is_kraft_controller)
                epochs = seen[request.broker_id, mode]
                life = epochs.get(request.broker_epoch)
                if life is None:
                    address = self.shown_address(request.server_ip, request.server_port)
                    life = Life(request.broker_id, address, mode, request.broker_epoch, request.ts, request.ts)
                    epochs[life.epoch] = life
                life.add(request)
        found = []
        for epochs in seen.values():
            former: Life | None = None
            lower_last = 0
            for _epoch, life in sorted(epochs.items()):
                disproved, lower_last = lower_last > life.first, max(lower_last, life.last)
                if former is not None and (life.requests < 2 or disproved):
                    continue
                life.former = former
                found.append(life)
                former = life
        found = self._with_log(found)
        found.sort(key=lambda life: life.first)
        newest: dict[Any, Life] = {}
        for life in found:
            before = newest.get(life.broker)
            if before is not None:
                before.until = life.first
            life.shown_by = life.shown_by or self._shown_by(life, before)
            newest[life.broker] = life
        return found

    def _with_log(self, found: list[Life]) -> list[Life]:
        """Add the registrations in a metadata log, which are exact; requests of the same ones count with them."""
        newest: dict[int, Life] = {}
        logged: dict[tuple[int, int], Life] = {}
        rows = sorted(self.rows("broker_states"), key=lambda row: micros(row[4]))
        for _capture, broker, epoch, is_start, valid_from, valid_to, why, *_more in rows:
            if epoch < 0:
                continue  # the log begins after its registration
            began, ended = micros(valid_from), self.end if valid_to is None else micros(valid_to)
            life = logged.get((broker, epoch))
            if life is None:
                life = logged[broker, epoch] = Life(broker, None, True, epoch, began, began, shown_by=why)
                life.former = newest.get(broker) if is_start else None
                newest[broker] = life
            life.last = max(life.last, ended)
        for life in found:
            same = logged.get((life.broker, life.epoch)) if life.is_kraft else None
            if same is None:
                logged[life.broker, life.epoch] = life
            else:
                same.requests += life.requests
                same.connections |= life.connections
        return list(logged.values()) if rows else found

    def _shown_by(self, life: Life, before: Life | None) -> str:
        """The evidence that a registration began."""
        if before is None:
            return "first request in the capture"
        if life.former is None:
            return "first request in KRaft mode" if life.is_kraft else "first request in ZooKeeper mode"
        if self.gone_between(life.broker, before.first, life.first + 1) is not None:
            return "higher broker epoch, after live brokers without it"
        if before.connections.isdisjoint(life.connections):
            return "higher broker epoch, on new connections"
        return "higher broker epoch, on the same connection: an expired session"

    def left_after(self, life: Life) -> int | None:
        """When the live brokers first lacked a broker after a registration began, and before its next; None: never."""
        stretches = self.absences.get(life.broker, [])
        place = bisect_left(stretches, life.first, key=lambda stretch: stretch.since)
        if place == len(stretches) or (life.until is not None and stretches[place].since >= life.until):
            return None
        return stretches[place].since

    @cached_property
    def lives_of(self) -> dict[Any, list[Life]]:
        """The registrations by broker, each in the order in which they began."""
        found: dict[Any, list[Life]] = defaultdict(list)
        for life in self.lives:
            found[life.broker].append(life)
        return dict(found)

    def stayed_registered(self, broker: Any, begin: int, end: int) -> bool:
        """Whether a broker accepted requests after the end in the registration that it had before the begin.

        It did not come or go since: over a new connection it was only told what the controller had for it.
        """
        lives = self.lives_of.get(broker)
        return (
            lives is not None
            and lives[-1].first <= begin
            and end <= lives[-1].last
            and self.joined(broker) <= begin
            and self.took_part(broker, end - 1, self.end + 1)
        )

    @property
    def registrations(self) -> list[tuple[Any, int, int, int]]:
        """Each broker's later registrations in one mode: broker, former and new epoch, and when."""
        return [(life.broker, life.former.epoch, life.epoch, life.first) for life in self.lives if life.former]

    @cached_property
    def captures(self) -> list[dict[str, Any]]:
        """The rows of ``captures``."""
        return self._of_files("captures")

    def file_of(self, row: Mapping[str, Any]) -> str:
        """The file of a row of ``captures``, with its directory where the names of others are alike."""
        return self.shown("capture", str(PurePath(row["capture"]).parent / row["file"]))

    @cached_property
    def shown_since(self) -> int:
        """The time from which on all captures show what passes; that of the first request at the latest."""
        return min(self.begin, max((source.first for source in self._sources.values()), default=self.begin))

    def _common(self, capture: str, moment: Any) -> int:
        """The time on the common clock, in us, of a moment on that of a capture point."""
        ts = micros(moment)
        return ts - self.clocks.get(capture, _SAME).ahead(ts)

    @cached_property
    def controller_events(self) -> list[dict[str, Any]]:
        """What logs of controllers tell beside requests, on the common clock; see ``captures.controller_events``."""
        found = []
        for row in self.captures:
            for event in row["controller_events"] or ():
                times = {name: self._common(row["capture"], event[name]) for name in ("ts", "last_ts")}
                topic = None if event["topic"] is None else self.shown("topic", event["topic"])
                found.append(event | times | {"topic": topic})
        return found

    @cached_property
    def elsewhere(self) -> set[tuple[Any, str, int]]:
        """Broker, topic and partition where a broker has another topic of that name."""
        return {
            (broker, topic, number)
            for (_body, broker), errors in self.refused_partitions.items()
            for (topic, number), code in errors.items()
            if code == ErrorCode.INCONSISTENT_TOPIC_ID
        }

    @cached_property
    def bad_inputs(self) -> list[dict[str, Any]]:
        """The rows of ``bad_inputs``."""
        return self._of_files("bad_inputs")

    def _of_files(self, name: str) -> list[dict[str, Any]]:
        rows = (dict(zip(FACT_COLUMNS[name], row, strict=True)) for row in self.rows(name))
        return [row | {"file": self.shown("capture", row["file"])} for row in rows]

    @cached_property
    def unread_lines(self) -> int:
        """The number of pieces of request logs that cannot be read."""
        logs = {row["file"] for row in self.captures if row["format"] == "request log"}
        return sum(row["offset"] is not None and row["file"] in logs for row in self.bad_inputs)

    @cached_property
    def _accepted_times(self) -> dict[Any, list[int]]:
        """The times of the requests that each broker accepted, ascending."""
        found: dict[Any, list[int]] = defaultdict(list)
        for request in self.requests:
            if request.error_code == 0:
                found[request.broker_id].append(request.ts)
        return found

    def took_part(self, broker: Any, begin: int, end: int) -> bool:
        """Whether a broker accepted a request after the begin and before the end."""
        times = self._accepted_times.get(broker, [])
        place = bisect_left(times, end)
        return place > 0 and times[place - 1] > begin

    @cached_property
    def has_one_clock(self) -> bool:
        """Whether the clocks of all capture points could be compared, so that the order of their times is known."""
        shown = {request.capture for request in self.requests}
        return len({self.clocks[name].reference for name in shown if name in self.clocks}) < 2

    @cached_property
    def unknown_addresses(self) -> frozenset[str]:
        """The addresses of brokers whose ids nothing tells."""
        return frozenset(request.broker_id for request in self.requests if isinstance(request.broker_id, str))

    @cached_property
    def holes(self) -> dict[Any, list[Stretch]]:
        """The times during which bytes of the connections to each broker are missing; brokers without are not in it.

        A hole ends with the next request on its connection that was answered; if later holes of that connection may not
        be listed, with the next connection to the broker. A connection that the capture shows from the middle of a
        request on is complete from the next request on. Where the capture lacks the beginning of one, what it shows may
        not be the first request on it: a controller counts those to a broker, from 0 on.
        """
        answered: dict[Any, list[int]] = defaultdict(list)  # the times of requests, by broker and by connection
        for request in self.requests:
            if request.response_frame_id is not None:
                answered[request.broker_id].append(request.ts)
                answered[request.conn_id].append(request.ts)
        found: dict[Any, list[Stretch]] = defaultdict(list)
        for row in self.captures:
            losses = [loss for loss in row["losses"] or () if loss["kind"] != "partial start"]
            are_all = row["gaps"] == len(losses) == sum(loss["kind"] == "gap" for loss in losses)
            are_all = are_all or row["format"] == "metadata log"
            for loss in losses:
                address = loss["server_ip"], loss["server_port"]
                broker = self.servers.get(address, self.shown_address(*address))
                since = self.begin if loss["ts"] is None else self._common(row["capture"], loss["ts"])
                same = answered.get(loss["conn_id"], [])
                until = _after(same, since) if are_all else None
                if until is None:
                    until = _after(answered.get(broker, []), max([since, *same[-1:]]))
                found[broker].append(Stretch(since, until))
        for controller, broker, hole in self._begun_unseen[0]:
            if controller not in self._begun_unseen[1]:
                found[broker].append(hole)
        return dict(found)

    @cached_property
    def _begun_unseen(self) -> tuple[list[tuple[int, Any, Stretch]], set[int]]:
        """The time before each connection whose first requests the captures lack, with its controller and the broker.

        Those of the controller with which the captures begin may have begun before them. Second, controllers whose
        connections begin with other numbers again: tools, whose numbers show nothing.
        """
        found: list[tuple[int, Any, Stretch]] = []
        anew: set[int] = set()
        lacking = {row["capture"] for row in self.captures if row["without_handshake"]}
        known: set[bytes] = set()
        asked: dict[Any, int] = {}
        counted: dict[tuple[Any, int | None, int], int] = {}
        oldest: int | None = None
        for request in self.requests if lacking else ():
            if request.controller_id is None or request.api_key == ApiKey.FETCH or request.is_logged:
                continue
            broker, number, epoch = request.broker_id, request.correlation_id, request.controller_epoch
            if request.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
                continue
            oldest = epoch if oldest is None else oldest
            channel = broker, request.controller_id, epoch
            if request.conn_id not in known:
                known.add(request.conn_id)
                if 0 < number <= counted.get(channel, -1):
                    anew.add(request.controller_id)
                follows = number in (0, counted.get(channel, -1) + 1) or (channel not in counted and epoch <= oldest)
                if request.capture in lacking and not follows:
                    found.append((request.controller_id, broker, Stretch(asked.get(broker, self.begin), request.ts)))
            asked[broker], counted[channel] = request.ts, number
        return found, anew

    @cached_property
    def blind(self) -> list[Stretch]:
        """The times at which no connection shows what all brokers are told, as bytes or captures are missing, in order.

        Where captures of hosts begin and end each at its time, a connection lasts until that of its host ends.
        """
        unseen = {broker: list(holes) for broker, holes in self.holes.items()}
        connected = {broker: list(spans.stretches) for broker, spans in self.spans.items()}
        for broker, (first, last) in self._recorded.items():
            edges = Stretch(self.begin, first), Stretch(last, self.end)
            unseen.setdefault(broker, []).extend(edge for edge in edges if edge.since < (edge.until or 0))
            if broker in connected:
                connected[broker].append([self.spans[broker].last, last])
        return _where_all(unseen, connected, self.end)

    @cached_property
    def _waits(self) -> list[Stretch]:
        """The times at which no broker could be told anything, as a request was in flight or it was away; in order."""
        held: dict[Any, list[Stretch]] = defaultdict(list)
        for request in self.requests:
            if request.latency_us is not None:
                held[request.broker_id].append(Stretch(request.ts, request.ts + request.latency_us))
        connected = {}
        for broker, stretches in held.items():
            spans, gone = sorted(self.spans[broker].stretches), self.dead_since(broker)
            some = self.lives_of.get(broker, [])
            connected[broker] = [(spans[0][0], self.end if gone is None else max(last for _first, last in spans))]
            for (_first, last), (first, _last) in pairwise(spans):
                place = bisect_right(some, last, key=lambda life: life.first)
                if last < first and not (place and first <= some[place - 1].last):  # it did not stay registered
                    stretches.append(Stretch(last, first))
        return _where_all(held, connected, self.end)

    def decided(self, ts: int, queued: int) -> int:
        """Since when what was told at a time may have been decided: it may have waited for answers, or for a broker.

        Args:
            ts: The time.
            queued: A request within this time, in us, of the answer to another was waiting for it.
        """
        place = bisect_left(self._waits, ts, key=lambda wait: wait.since)
        while place and ts - (self._waits[place - 1].until or ts) <= queued:
            place -= 1
            ts = self._waits[place].since
        return ts

    @cached_property
    def _may_lack_connections(self) -> frozenset[Any]:
        """The brokers to which whole connections may be missing: those whose recorder dropped packets."""
        places = (
            (server["ip"], server["port"])
            for row in self.captures
            if row["dropped_packets"]
            for server in row["servers"] or ()
        )
        return frozenset(self.servers.get(place, self.shown_address(*place)) for place in places)

    def _missing(self, broker: Any) -> str:
        shown = [source.asked[broker] for source in self._sources.values() if broker in source.asked]
        if shown and not any(shown):
            return "lines at INFO do not tell all that it was sent"
        return "bytes of its connection are missing in the capture"

    @cached_property
    def _reigns(self) -> list[_ShownReign]:
        """The controllers in the order of their epochs, from the first request of each on."""
        found: dict[int, _ShownReign] = {}
        newest = -1
        for request in self.requests:
            epoch = request.controller_epoch
            if request.controller_id is None or epoch < 0 or request.api_key == ApiKey.FETCH:
                continue
            if epoch > newest:
                newest = epoch
                found[epoch] = _ShownReign(request.ts)
            reign = found.get(epoch)
            if reign is None:
                continue
            if not request.is_logged:
                reign.captured = reign.captured or request.ts
        return list(found.values())

    @cached_property
    def _unrecorded(self) -> dict[Any, list[Stretch]]:
        """The times at which a controller asked each broker on connections that no capture shows, in order.

        It told others meanwhile that the broker is alive, which it tells all who are, and no request to the broker is
        shown or waits for its answer. A broker that leaves the live brokers then may have been down already, unless a
        controller that came later told so; a controller of KRaft goes on to list brokers that are down.
        """
        shown: dict[Any, Spans] = defaultdict(Spans)
        waiting: dict[Any, list[int]] = defaultdict(list)
        epochs: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        for request in self.requests:
            shown[request.broker_id].add(request.conn_id, request.ts)
            if request.error_code is None:
                waiting[request.broker_id].append(request.ts)
            epochs[request.broker_id].append((request.ts, request.controller_epoch))
        found: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        for body in self.bodies:
            live = frozenset() if body.request.is_kraft_controller else body.live or frozenset()
            for broker in live.difference(body.sent):
                known = found.get(broker)
                if known and known[-1][0] <= body.first < known[-1][1]:
                    continue  # as nearly all bodies of a host's capture, which shows no other broker
                spans = shown.get(broker)
                if spans is not None and spans.covers(body.first, body.first):
                    continue
                last = spans and spans.last_before(body.first)
                since, until = last or self.begin, (spans and spans.begins_after(body.first)) or self.end + 1
                gone = None
                for away in self.absences.get(broker, ()):
                    if away.since > body.first:
                        gone = away.since if away.since < until else None
                        break
                    since = max(since, away.until or since)
                asked = epochs[broker][bisect_right(epochs[broker], last, key=itemgetter(0)) - 1][1] if last else -1
                may_be_down = gone is not None and since == last and asked >= body.request.controller_epoch
                unanswered = _after(waiting[broker], since - 1)
                if may_be_down or body.first - since < _ONE_BATCH or (unanswered or self.end) < body.first:
                    continue
                found[broker].append((since, gone or until))
        return {broker: [Stretch(*each) for each in sorted(set(some))] for broker, some in found.items()}

    def _lacks_bytes(self, broker: Any, begin: int, end: int, since: int | None = None) -> bool:
        """Whether bytes of what a broker was sent between two times are missing; see ``may_hide``."""
        early = begin if since is None else min(since, begin)
        missing = [(hole, begin) for hole in self.holes.get(broker, ())] + [(hole, early) for hole in self.blind]
        return any(hole.meets(since, end) for hole, since in missing)

    def may_hide(self, broker: Any, first: int, last: int | None, within: int, since: int | None = None) -> str:
        """Why a request to a broker may have passed that the captures do not show; empty: none can.

        Where the recorder dropped packets, a request can pass unseen only if no connection without holes lasts all the
        time: a controller has one connection to each broker.

        Args:
            broker: The broker.
            first, last: The times between which the request is missing; ``last`` None: as long as captures show what
                the broker is asked.
            within: How long before and after, in us, it may have passed as well.
            since: It may also have passed from this time on where the captures show what no broker was told.
        """
        until = self.recorded_until(broker)
        last = max(first, until) if last is None else last
        if self._lacks_bytes(broker, first - within, last + within, since):
            return self._missing(broker)
        if broker in self._may_lack_connections:
            spans = self.spans.get(broker)
            if spans is None or not spans.covers(first, min(last + within, until - within)):
                return self._missing(broker)
        if not self.is_recorded(broker, first, last, within):
            return "the captures lack what a controller sent to that broker"
        if not self.shows_alive(min(first + within, last)):
            return "the logs do not tell whether it was alive"
        return "lines of a request log cannot be read" if self.unread_lines else ""


def was_named_before(life: Incarnation) -> bool:
    """Whether UpdateMetadata named a living partition before it was first said to be deleted.

    Else the deletion began before the capture, and brokers may have accepted it then: it is told again to brokers that
    come back.
    """
    return any(
        sighting.body.api_key == ApiKey.UPDATE_METADATA
        for sighting in life.sightings
        if life.deleted is None or sighting.ts < life.deleted
    )
