"""Sums up a capture's tables, for ``kproto summary`` and ``kproto analyze``."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey, api_name
from kproto.capture.summary import LOSSES
from kproto.error_codes import error_name
from kproto.tables.arrays import rows_of
from kproto.text import printable
from kproto.verdicts.epochs import partition_error_meaning
from kproto.verdicts.history import History
from kproto.verdicts.request_figures import REQUEST_COLUMNS, RequestFigures, moment, target_of
from kproto.verdicts.stale import plain_times
from kproto.verdicts.states import BEING_DELETED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kproto.verdicts.epochs import Epochs
    from kproto.verdicts.history import Counts

SUMMARY_COLUMNS: Final = {
    "requests": REQUEST_COLUMNS,
    "partition_errors": ("frame_id", "error_code"),
    "responses": ("frame_id", "api_key", "n_partition_errors"),
    "partition_states": (
        "body_id", "api_key", "topic", "topic_id", "partition", "controller_epoch", "leader", "leader_epoch",
        "partition_epoch", "isr", "is_new", "delete_partition",
    ),
    "brokers": ("broker_id", "host", "port"),
    "captures": (
        "capture", "file", "format", "packets", "first_ts", "last_ts", "connections", "kafka_connections",
        "tls_connections", *LOSSES, "bad_inputs", "not_read", "untimed_packets", "copied_connections",
    ),
    "bad_inputs": ("file", "reason", "offset", "bytes_skipped"),
}  # fmt: skip
"""The columns that a summary reads, by table."""

MOST_CHANGED: Final = 10
"""The number of partitions that ``most_changed`` lists."""

ACCEPTED: Final = pa.schema([("body_id", pa.binary()), ("ts", pa.int64())])
"""The bodies that brokers accepted, and when the first did, in us since 1970."""

_REFUSED_STATES: Final = 1_000_000
_REFUSED_BODIES: Final = 20_000
"""The most rows of states, and bodies, that are kept while no request with the body was accepted; the oldest are
dropped."""

_MOST_STATES: Final = 2_000_000
"""Beyond this number of states, changes are counted and the newest state of each partition is kept."""


def first_accepted(accepted: Sequence[pa.Table]) -> pa.Table:
    """Return each body once, ``ACCEPTED``, from rows of that kind."""
    every = pa.concat_tables(accepted or [ACCEPTED.empty_table()])
    first = every.group_by("body_id", use_threads=False).aggregate([("ts", "min")])
    return first.rename_columns(ACCEPTED.names).combine_chunks()


class _Deletions:
    """Deletions of logs by StopReplica, and of topics by UpdateMetadata's leader -2."""

    def __init__(self) -> None:
        self._sent: dict[bytes, dict[object, tuple[int, int]]] = defaultdict(dict)  # body -> broker -> first, last
        self._bodies: dict[tuple[str, bytes], set[int]] = defaultdict(set)
        self._topics: set[str] = set()

    def add_requests(self, accepted: pa.Table) -> None:
        """Add rows of ``requests`` that their brokers accepted; ``ts`` in us since 1970."""
        stops = accepted.filter(pc.equal(accepted["api_key"], ApiKey.STOP_REPLICA))
        for body_id, broker_id, *address, ts in rows_of(
            stops, ("body_id", "broker_id", "server_ip", "server_port", "ts")
        ):
            self._add(body_id, target_of(broker_id, *address), ts, ts)

    def _add(self, body_id: bytes, broker: object, first: int, last: int) -> None:
        known = self._sent[body_id].get(broker, (first, last))
        self._sent[body_id][broker] = min(first, known[0]), max(last, known[1])

    def add_states(self, states: pa.Table) -> None:
        """Add rows of ``partition_states``."""
        leaving = states.filter(pc.fill_null(pc.equal(states["leader"], BEING_DELETED), False))
        self._topics.update(pc.unique(leaving["topic"]).to_pylist())
        deleted = states.filter(pc.fill_null(states["delete_partition"], False))
        for body_id, topic, partition in rows_of(deleted, ("body_id", "topic", "partition")):
            self._bodies[topic, body_id].add(partition)

    def merge(self, other: _Deletions) -> None:
        """Add the deletions of another collection."""
        self._topics |= other._topics
        for body_id, sent in other._sent.items():
            for broker, span in sent.items():
                self._add(body_id, broker, *span)
        for key, partitions in other._bodies.items():
            self._bodies[key] |= partitions

    def rows(self) -> list[dict[str, Any]]:
        """Return a row a topic: its deleted ``partitions``, the ``brokers`` concerned, if it went whole, and when."""
        deleted: dict[str, set[int]] = {topic: set() for topic in self._topics}
        sent: dict[str, list[tuple[object, tuple[int, int]]]] = defaultdict(list)
        for (topic, body_id), partitions in self._bodies.items():
            deleted.setdefault(topic, set()).update(partitions)
            sent[topic] += self._sent.get(body_id, {}).items()
        return [
            {
                "topic": topic,
                "partitions": sorted(partitions),
                "brokers": sorted({broker for broker, _span in sent[topic]}, key=lambda b: (isinstance(b, str), b)),
                "whole_topic": topic in self._topics,
                "first": moment(min(first for _broker, (first, _last) in sent[topic])) if sent[topic] else None,
                "last": moment(max(last for _broker, (_first, last) in sent[topic])) if sent[topic] else None,
            }
            for topic, partitions in sorted(deleted.items())
        ]


class Figures:
    """The summary's figures of some rows of the tables. Figures of different rows merge.

    Attributes:
        requests: The figures of the requests.
        history: Of the partitions in these rows.
        changes: The counts of the whole history, where others have a part of it; None: they are those of ``history``.

    Args:
        known: Epochs seen in all captures; None: requests come in the order of time.
    """

    def __init__(self, known: Epochs | None = None) -> None:
        self.requests = RequestFigures(known)
        self._listeners: set[tuple[int, str, int]] = set()
        self._partition_errors: Counter[tuple[int, int]] = Counter()
        self._captures: list[dict[str, Any]] = []
        self._bad_inputs: list[dict[str, Any]] = []
        self._deletions = _Deletions()
        self.history = History()
        self.changes: Counts | None = None

    def add(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Add a piece of the tables without its partition states; any table may be missing.

        Returns:
            The bodies that brokers accepted, ``ACCEPTED``, each once.
        """
        bodies = ACCEPTED.empty_table()
        if "requests" in tables:
            accepted = self.requests.add(tables["requests"], tables.get("clocks"))
            self._deletions.add_requests(accepted)
            bodies = first_accepted([accepted.select(ACCEPTED.names)])
        if "partition_errors" in tables:
            errors, responses = tables["partition_errors"], tables["responses"]
            position = pc.index_in(errors["frame_id"], value_set=responses["frame_id"].combine_chunks())
            apis = responses["api_key"].take(position).to_pylist()
            self._partition_errors.update(zip(apis, errors["error_code"].to_pylist(), strict=True))
        if "brokers" in tables:
            names = list(SUMMARY_COLUMNS["brokers"])
            listed = tables["brokers"].group_by(names, use_threads=False).aggregate([])  # each capture lists them all
            self._listeners.update(rows_of(listed, names))
        if "captures" in tables:
            rows = tables["captures"].select(SUMMARY_COLUMNS["captures"])
            self._captures += plain_times(rows, "first_ts", "last_ts").to_pylist()
        if "bad_inputs" in tables:
            self._bad_inputs += tables["bad_inputs"].select(SUMMARY_COLUMNS["bad_inputs"]).to_pylist()
        return bodies

    def add_states(self, states: pa.Table, accepted: pa.Table) -> pa.Table:
        """Add rows of ``partition_states``.

        Args:
            states: The rows.
            accepted: The bodies that brokers accepted, ``ACCEPTED``, and others.

        Returns:
            The rows that were not added, since no broker accepted their bodies.
        """
        states = states.select(SUMMARY_COLUMNS["partition_states"])
        times = accepted["ts"].take(pc.index_in(states["body_id"], value_set=accepted["body_id"].combine_chunks()))
        refused = states.filter(pc.is_null(times))
        states = states.filter(pc.is_valid(times))  # a copy even if all are: rows of a piece keep all of its memory
        self.history.add(states.append_column("ts", times.drop_null()))
        self._deletions.add_states(states)
        return refused

    def merge(self, other: Figures) -> None:
        """Add the figures of other rows, but for their partitions' history."""
        self.requests.merge(other.requests)
        self._listeners |= other._listeners
        self._partition_errors.update(other._partition_errors)
        self._captures += other._captures
        self._bad_inputs += other._bad_inputs
        self._deletions.merge(other._deletions)

    def rows(self) -> dict[str, Any]:
        """Return the summary as plain values, ready for JSON."""
        totals, most_changed = self.changes or self.history.counts(MOST_CHANGED)
        captures = sorted(self._captures, key=lambda row: (row["first_ts"] or 0, row["capture"]))
        sections = self.requests.rows() | {
            "captures": [_capture_row(row) for row in captures],
            "brokers": [
                {"broker_id": broker, "host": host, "port": port} for broker, host, port in sorted(self._listeners)
            ],
            "changes": totals,
            "most_changed": most_changed,
            "deletions": self._deletions.rows(),
            "partition_errors": [
                {
                    "api": api_name(api),
                    "api_key": api,
                    "error_code": error,
                    "error": error_name(error),
                    "count": count,
                    "meaning": partition_error_meaning(error),
                }
                for (api, error), count in sorted(self._partition_errors.items())
            ],
            "gaps": [
                {"file": row["file"], **{name: row[name] for name in LOSSES}}
                for row in captures
                if any(row[name] for name in LOSSES)
            ],
            "bad_inputs": sorted(self._bad_inputs, key=lambda row: (row["file"], row["offset"] or -1, row["reason"])),
        }
        return {name: sections[name] for name in _SECTIONS}


_SECTIONS: Final = (
    "captures", "requests", "controllers", "migration", "brokers", "changes", "most_changed", "deletions", "refusals",
    "partition_errors", "zombies", "slowest", "silent", "unanswered", "unreadable", "gaps", "bad_inputs",
)  # fmt: skip
"""The parts of a summary, in their order."""


def summary_from(content: bytes) -> dict[str, Any]:
    """Return a summary that was stored as JSON; texts that do not fit a terminal are escaped in it.

    Raises:
        ValueError: It is none.
    """
    try:
        found = _escaped(json.loads(content))
    except RecursionError:
        raise ValueError("nested too deep") from None
    kinds: dict[str, type | tuple[type, ...]] = {"changes": dict, "migration": (dict, NoneType)}
    if (
        not isinstance(found, dict)
        or found.keys() != set(_SECTIONS)
        or not all(isinstance(found[name], kinds.get(name, list)) for name in found)
    ):
        raise ValueError("other parts than those of a summary")
    return found


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {printable(name): _escaped(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return printable(value) if isinstance(value, str) else value


def summarize(pieces: Iterable[Mapping[str, pa.Table]]) -> dict[str, Any]:
    """Sum up tables.

    Args:
        pieces: The tables by name in one or many pieces, in the order of time, as ``chunks`` gives them; or all
            requests in one piece, and then partition states alone. Of each table the columns of ``SUMMARY_COLUMNS``
            count. Memory grows with the number of brokers and partitions, not with the number of pieces.

    Returns:
        One object, ready for JSON: ``captures``; ``requests`` by API, version and error; ``controllers`` and
        ``migration``; ``brokers`` and where they listen; ``changes`` of leaders and ISRs in all, and the partitions
        ``most_changed``; ``deletions``; ``refusals`` of whole requests with their reason, ``partition_errors`` and
        ``zombies``; the ``slowest`` addresses first, the ``silent`` of them, ``unanswered`` requests by reason;
        ``unreadable`` requests, ``gaps`` and ``bad_inputs``. Times are ISO 8601 in UTC, latencies in ms.
    """
    figures = Figures()
    refused = _RefusedStates()
    accepted = ACCEPTED.empty_table()
    for piece in pieces:
        just_accepted = figures.add(piece)
        if "requests" in piece:
            accepted = just_accepted  # the states of bodies that were accepted before have been added
        for states in refused.pop(just_accepted["body_id"].to_pylist()):
            figures.add_states(states, just_accepted)
        if "partition_states" in piece and piece["partition_states"].num_rows:
            refused.add(figures.add_states(piece["partition_states"], accepted))
        if "requests" in piece:
            figures.history.limit(_MOST_STATES)
    return figures.rows()


class _RefusedStates:
    """The states of bodies that no broker has accepted so far; beyond a limit the oldest are dropped."""

    def __init__(self) -> None:
        self._states: dict[bytes, pa.Table] = {}

    def add(self, states: pa.Table) -> None:
        for body_id in pc.unique(states["body_id"])[-_REFUSED_BODIES:].to_pylist():
            self._states.pop(body_id, None)
            self._states[body_id] = states.filter(pc.equal(states["body_id"], body_id))
        rows = sum(held.num_rows for held in self._states.values())
        while rows > _REFUSED_STATES or len(self._states) > _REFUSED_BODIES:
            rows -= self._states.pop(next(iter(self._states))).num_rows

    def pop(self, bodies: Iterable[bytes]) -> list[pa.Table]:
        return [self._states.pop(body_id) for body_id in bodies if body_id in self._states]


def _capture_row(row: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in row.items() if name not in ("first_ts", "last_ts")}
    times = {"first": row["first_ts"], "last": row["last_ts"]}
    return plain | {name: None if us is None else moment(us) for name, us in times.items()}
