"""The summary of a capture's tables, for ``kproto summary`` and ``kproto analyze``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import api_name
from kproto.error_codes import error_name
from kproto.tables.changes import PartitionHistory
from kproto.tables.deletions import Deletions
from kproto.tables.request_figures import REQUEST_COLUMNS, RequestFigures, moment, plain_times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["SUMMARY_COLUMNS", "summarize"]

SUMMARY_COLUMNS: Final = {
    "requests": REQUEST_COLUMNS,
    "partition_errors": ("frame_id", "error_code"),
    "responses": ("frame_id", "api_key", "n_partition_errors"),
    "partition_states": (
        "body_id", "api_key", "topic", "topic_id", "partition", "controller_epoch", "leader", "leader_epoch",
        "partition_epoch", "isr", "delete_partition",
    ),
    "brokers": ("broker_id", "host", "port"),
    "captures": (
        "capture", "file", "format", "packets", "first_ts", "last_ts", "connections", "kafka_connections",
        "tls_connections", "gaps", "gap_bytes", "cut_packets", "ip_fragments", "bad_checksums", "unmatched_responses",
        "bad_inputs",
    ),
    "bad_inputs": ("file", "reason", "offset", "bytes_skipped"),
}  # fmt: skip
"""The columns that a summary reads, by table."""

_MOST_CHANGED: Final = 10
_REFUSED_STATES: Final = 4_000_000
"""Rows of states kept though every request with their body was refused so far; the oldest go first."""


class _Figures:
    """The summary's figures, from pieces of tables."""

    def __init__(self) -> None:
        self._requests = RequestFigures()
        self._listeners: set[tuple[int, str, int]] = set()
        self._partition_errors: Counter[tuple[int, int]] = Counter()
        self._captures: list[dict[str, Any]] = []
        self._bad_inputs: list[dict[str, Any]] = []
        self._history = PartitionHistory()
        self._deletions = Deletions()
        self._accepted: set[bytes] = set()
        self._refused_states: dict[bytes, pa.Table] = {}

    def add(self, tables: Mapping[str, pa.Table]) -> None:
        """Take a piece of the tables, of which any may be missing."""
        if "requests" in tables:
            self._add_requests(tables["requests"])
        if "partition_errors" in tables:
            self._add_partition_errors(tables["partition_errors"], tables["responses"])
        if "partition_states" in tables:
            self._add_states(tables["partition_states"])
        if "brokers" in tables:
            columns = (tables["brokers"][name].to_pylist() for name in SUMMARY_COLUMNS["brokers"])
            self._listeners.update(zip(*columns, strict=True))
        if "captures" in tables:
            rows = tables["captures"].select(SUMMARY_COLUMNS["captures"])
            self._captures += plain_times(rows, "first_ts", "last_ts").to_pylist()
        if "bad_inputs" in tables:
            self._bad_inputs += tables["bad_inputs"].select(SUMMARY_COLUMNS["bad_inputs"]).to_pylist()

    def _add_requests(self, table: pa.Table) -> None:
        for body_id, request in self._requests.add(table):
            self._deletions.add_request(request.api_key, body_id, request.target, request.ts)
            if body_id not in self._accepted:
                self._accepted.add(body_id)
                if (states := self._refused_states.pop(body_id, None)) is not None:
                    self._add_accepted_states(states)

    def _add_partition_errors(self, errors: pa.Table, responses: pa.Table) -> None:
        position = pc.index_in(errors["frame_id"], value_set=responses["frame_id"].combine_chunks())
        apis = responses["api_key"].take(position)
        self._partition_errors.update(zip(apis.to_pylist(), errors["error_code"].to_pylist(), strict=True))

    def _add_states(self, table: pa.Table) -> None:
        states = table.select(SUMMARY_COLUMNS["partition_states"])
        if not states.num_rows:
            return
        accepted = pa.array(self._accepted, pa.binary())
        is_accepted = pc.is_in(states["body_id"], value_set=accepted)
        self._add_accepted_states(states.filter(is_accepted))
        refused = states.filter(pc.invert(is_accepted))
        for body_id in pc.unique(refused["body_id"]).to_pylist():
            self._refused_states[body_id] = refused.filter(pc.equal(refused["body_id"], body_id))
        rows = sum(held.num_rows for held in self._refused_states.values())
        while rows > _REFUSED_STATES:
            rows -= self._refused_states.pop(next(iter(self._refused_states))).num_rows

    def _add_accepted_states(self, states: pa.Table) -> None:
        self._history.add(states)
        self._deletions.add_states(states)

    def rows(self) -> dict[str, Any]:
        """The summary as plain values, ready for JSON."""
        totals, most_changed = self._history.changes(_MOST_CHANGED)
        captures = sorted(self._captures, key=lambda row: (row["first_ts"] or 0, row["capture"]))
        sections = self._requests.rows() | {
            "captures": [_capture_row(row) for row in captures],
            "brokers": [
                {"broker_id": broker, "host": host, "port": port} for broker, host, port in sorted(self._listeners)
            ],
            "changes": totals,
            "most_changed": most_changed,
            "deletions": self._deletions.rows(moment),
            "partition_errors": [
                {"api": api_name(api), "api_key": api, "error_code": error, "error": error_name(error), "count": count}
                for (api, error), count in sorted(self._partition_errors.items())
            ],
            "gaps": [
                {"file": row["file"], **{name: row[name] for name in _LOSSES}}
                for row in captures
                if any(row[name] for name in _LOSSES)
            ],
            "bad_inputs": sorted(self._bad_inputs, key=lambda row: (row["file"], row["offset"] or -1, row["reason"])),
        }
        return {name: sections[name] for name in _SECTIONS}


_SECTIONS: Final = (
    "captures", "requests", "controllers", "migration", "brokers", "changes", "most_changed", "deletions", "refusals",
    "partition_errors", "zombies", "slowest", "silent", "unanswered", "unreadable", "gaps", "bad_inputs",
)  # fmt: skip
"""The parts of a summary, in their order."""

_LOSSES: Final = ("gaps", "gap_bytes", "cut_packets", "ip_fragments", "bad_checksums", "unmatched_responses")


def summarize(pieces: Iterable[Mapping[str, pa.Table]]) -> dict[str, Any]:
    """Sum up tables.

    Args:
        pieces: The tables by name in one or many pieces, in the order of time, as ``chunks`` gives them. Of each table
            the columns of ``SUMMARY_COLUMNS`` count.

    Returns:
        One object, ready for JSON: ``captures``; ``requests`` by API, version and error; ``controllers`` and
        ``migration``; ``brokers`` and where they listen; ``changes`` of leaders and ISRs in all, and the partitions
        ``most_changed``; ``deletions``; ``refusals`` of whole requests with their reason, ``partition_errors`` and
        ``zombies``; the ``slowest`` addresses first, the ``silent`` of them, ``unanswered`` requests by reason;
        ``unreadable`` requests, ``gaps`` and ``bad_inputs``. Times are ISO 8601 in UTC, latencies in ms.
    """
    figures = _Figures()
    for piece in pieces:
        figures.add(piece)
    return figures.rows()


def _capture_row(row: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in row.items() if name not in ("first_ts", "last_ts")}
    times = {"first": row["first_ts"], "last": row["last_ts"]}
    return plain | {name: None if us is None else moment(us) for name, us in times.items()}
