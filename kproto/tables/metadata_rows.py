"""Turns KRaft's metadata log into rows of the tables: its batches are requests, its folded records partition states.

A batch that holds more than NoOpRecords is a row of ``requests`` (``api_key`` 1, Fetch, which carries it to the other
nodes), dated by the clock of the controller that wrote it; a record of a partition, with all that the records before it
said, is a row of ``partition_states``. So all that is asked of requests and states is answered for both modes.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left, bisect_right
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kproto.api import ApiKey
from kproto.metadata_log.batches import records_of
from kproto.metadata_log.files import read
from kproto.metadata_log.folding import fold, is_whole
from kproto.metadata_log.records import NoOpRecord
from kproto.metadata_log.secrets import without_secrets
from kproto.tables.arrays import array_of, plain_text
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.tables.schemas import METADATA_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kproto.metadata_log.deliveries import MetadataTraffic
    from kproto.metadata_log.files import MetadataLog
    from kproto.metadata_log.finding import LogFiles
    from kproto.metadata_log.folding import FoldedBatch, FoldedLog, FoldedState
    from kproto.tables.filters import Filters

FORMAT: Final = "metadata log"
"""The ``format`` of a metadata log in the table ``captures``."""

_BEING_DELETED: Final = -2
_LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: damaged records can name any time."""
_NS: Final = 1000


def tables_of_files(
    files: LogFiles,
    filters: Filters,
    traffic: MetadataTraffic | None = None,
    *,
    capture: str | None = None,
    cluster: str = DEFAULT_CLUSTER,
    lists_live: bool = True,
) -> dict[str, pa.Table]:
    """Return the tables of the files of a metadata log: those of ``TABLES`` and of ``METADATA_TABLES``.

    Args:
        files: The files of one cluster's log, of one node or of several.
        traffic: What captures show of the same log.
        filters: The requests and states to keep.
        capture: The capture point whose rows they become; None: one of its own.
        cluster: The declared cluster.
        lists_live: Whether the rows of ``requests`` list the live brokers: those that are not fenced.

    Raises:
        CaptureError: A file cannot be opened.
    """
    log = read(files) if traffic is None else read(files, traffic.shown(), traffic.snapshots.values())
    rows = _Rows(log, fold(log), filters, capture or _name(files), cluster, lists_live=lists_live)
    if traffic is not None:
        rows.deliveries(traffic)
    schemas = TABLES | METADATA_TABLES
    made = {name: _table(schemas[name], listed) for name, listed in rows.made.items()}
    return {name: made.get(name, schemas[name].empty_table()) for name in schemas}


def _name(files: LogFiles) -> str:
    """A name for the capture point: that of the directory which all files share."""
    parents = [os.path.dirname(os.path.abspath(path)) for path in files.paths()]  # noqa: PTH100, PTH120
    return Path(os.path.commonpath(parents)).name or FORMAT


def _table(schema: pa.Schema, rows: Sequence[dict[str, Any]]) -> pa.Table:
    columns = [array_of([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _us(time_ms: int) -> int:
    """A time of the log in us since 1970, within the calendar."""
    return max(0, min(time_ms, _LATEST_MS)) * 1000


def _id(*parts: object) -> bytes:
    return blake2b("\0".join(map(str, parts)).encode("utf-8", "replace"), digest_size=16).digest()


class _Rows:
    """The rows of each table, as dictionaries."""

    def __init__(
        self, log: MetadataLog, folded: FoldedLog, filters: Filters, capture: str, cluster: str, *, lists_live: bool
    ) -> None:
        self._log = log
        self._filters = filters
        self._of = {"cluster": cluster, "capture": capture}
        self._live: frozenset[int] | None = None
        self._lists_live = lists_live
        self._batch_ids: dict[tuple[int, int], bytes] = {}
        self.made: dict[str, list[dict[str, Any]]] = {
            name: []
            for name in (
                "requests", "partition_states", "bodies", "brokers", "live_brokers", "captures", "bad_inputs",
                *METADATA_TABLES,
            )
        }  # fmt: skip
        self._live_sets: set[frozenset[int]] = set()
        for batch in folded.batches:
            self._batch(batch)
        self._brokers(folded)
        self._epochs(folded)
        self._source(folded)

    # ---- requests and states

    def _batch(self, batch: FoldedBatch) -> None:
        if batch.live is not None:
            self._live = batch.live
        if batch.is_idle or not self._filters.wants_time(batch.time_ms * 1_000_000):
            return
        self._records(batch)
        if batch.batch is not None:
            self._batch_ids[batch.batch.epoch, batch.batch.base_offset] = batch.batch_id
        filters = self._filters
        if filters.errors or filters.brokers or (filters.apis and ApiKey.FETCH not in filters.apis):
            return
        if filters.controllers and not filters.wants_controller(batch.leader_id):
            return
        states = [state for state in batch.states if is_whole(state)]
        wanted = [state for state in states if filters.wants_partition(state.topic or "", state.partition)]
        if filters.by_partition and not wanted:
            return
        for state in wanted:
            self.made["partition_states"].append(_state_row(batch, state))
        self.made["requests"].append(
            self._of
            | {
                "frame_id": _id("frame", batch.batch_id.hex()),
                "conn_id": _id("metadata log"),
                "ts": _us(batch.time_ms),
                "api_key": ApiKey.FETCH,
                "api_version": 0,
                "correlation_id": 0,
                "client_id": "",
                "controller_id": batch.leader_id,
                "controller_epoch": -1 if batch.epoch is None else batch.epoch,
                "broker_epoch": -1,
                "is_kraft_controller": True,
                "type": 0,
                "live_brokers_id": self._live_id(),
                "server_ip": "",
                "server_port": 0,
                "n_topics": len({state.topic_id for state in batch.states}),
                "n_partitions": len(batch.states),
                "body_id": batch.batch_id,
                "frame_len": len(batch.batch.data) if batch.batch is not None else 0,
                "error_code": 0,
                "response_frame_id": _id("frame", batch.batch_id.hex()),
            }
        )
        self.made["bodies"].append(
            {"body_id": batch.batch_id, "api_key": ApiKey.FETCH, "api_version": 0, "direction": "response"}
        )

    def _live_id(self) -> bytes | None:
        live = self._live
        if live is None or not self._lists_live:
            return None
        live_id = _id("live", *sorted(live))
        if live not in self._live_sets:
            self._live_sets.add(live)
            self.made["live_brokers"] += ({"live_brokers_id": live_id, "broker_id": broker} for broker in sorted(live))
        return live_id

    def _records(self, batch: FoldedBatch) -> None:
        source = batch.snapshot
        name = None if source is None else f"{source.end_offset:020}-{source.epoch:010}"
        records = source.records() if source is not None else records_of(batch.batch) if batch.batch is not None else ()
        for each in records:
            record = each.record
            if isinstance(record, NoOpRecord):
                continue
            shown = record if record is None or each.is_control else without_secrets(record)
            self.made["metadata_records"].append(
                self._of
                | {
                    "log_offset": each.offset,
                    "snapshot": name,
                    "ts": _us(each.time_ms),
                    "controller_epoch": each.epoch,
                    "type": None if shown is None else shown.title(),
                    "version": None if shown is None else shown.version,
                    "data": None if shown is None else plain_text(json.dumps(shown.to_json())),
                    "body_id": batch.batch_id,
                }
            )

    def deliveries(self, traffic: MetadataTraffic) -> None:
        """Add the rows of ``metadata_deliveries``; batches of NoOpRecords alone are left out."""
        committed = [mark for _time_ns, mark in traffic.committed]
        applied = {broker: [offset for _time_ns, offset in steps] for broker, steps in traffic.applied.items()}
        for each in traffic.deliveries:
            batch_id = self._batch_ids.get((each.epoch, each.base_offset))
            if batch_id is None:
                continue
            mark = bisect_right(committed, each.last_offset)
            steps = traffic.applied.get(each.node_id, [])
            step = bisect_left(applied.get(each.node_id, []), each.last_offset)
            self.made["metadata_deliveries"].append(
                self._of
                | {
                    "body_id": batch_id,
                    "node_id": each.node_id,
                    "controller_epoch": each.epoch,
                    "log_offset": each.last_offset,
                    "told_ts": each.time_ns // _NS,
                    "committed_ts": traffic.committed[mark][0] // _NS if mark < len(committed) else None,
                    "applied_ts": steps[step][0] // _NS if step < len(steps) else None,
                }
            )

    # ---- brokers and the quorum

    def _brokers(self, folded: FoldedLog) -> None:
        listed: dict[tuple[int, str, int], int] = {}
        for span in folded.brokers:
            for host, port in span.listeners:
                listed.setdefault((span.broker_id, host, port), span.from_ms)
            if self._filters.wants_broker(span.broker_id):
                self.made["broker_states"].append(
                    self._of
                    | {
                        "broker_id": span.broker_id,
                        "state": span.state,
                        "broker_epoch": span.broker_epoch,
                        "incarnation_id": span.incarnation_id,
                        "is_start": span.is_restart,
                        "valid_from": _us(span.from_ms),
                        "valid_to": None if span.until_ms is None else _us(span.until_ms),
                        "why": span.why,
                        "log_offset": None if span.offset < 0 else span.offset,
                    }
                )
        self.made["brokers"] += (
            self._of | {"broker_id": broker, "host": plain_text(host), "port": port, "first_ts": _us(first)}
            for (broker, host, port), first in listed.items()
        )

    def _epochs(self, folded: FoldedLog) -> None:
        for epoch in folded.epochs:
            self.made["quorum_epochs"].append(
                self._of
                | {
                    "controller_epoch": epoch.epoch,
                    "controller_id": epoch.leader_id,
                    "valid_from": None if epoch.from_ms is None else _us(epoch.from_ms),
                    "valid_to": None if epoch.until_ms is None else _us(epoch.until_ms),
                    "voters": None if epoch.offset is None else epoch.voters,
                    "granting_voters": None if epoch.offset is None else epoch.granting_voters,
                    "log_offset": epoch.offset,
                }
            )

    # ---- the source

    def _source(self, folded: FoldedLog) -> None:
        times = [batch.time_ms for batch in folded.batches if batch.batch is not None]
        times = times or [batch.time_ms for batch in folded.batches]
        for path, count in self._log.file_batches.items():
            self.made["captures"].append(
                self._of
                | dict.fromkeys(_COUNTS, 0)
                | {
                    "file": path,
                    "format": FORMAT,
                    "packets": count,
                    "first_ts": _us(min(times)) if times else None,
                    "last_ts": _us(max(times)) if times else None,
                    "bad_inputs": sum(fault.path == path for fault in self._log.faults),
                    "losses": (),
                    "all_requests": (),
                }
            )
        self.made["bad_inputs"] += (
            {"file": fault.path or self._of["capture"], "reason": plain_text(fault.reason), "offset": fault.at or 0,
             "bytes_skipped": fault.size or 0}
            for fault in self._log.faults
        )  # fmt: skip
        for number, text in (
            (folded.unreadable, "records cannot be read"),
            (folded.unnamed, "states of partitions are not whole: the files lack what was before them"),
            *((n, f"records of type {kind} version {v} are unknown") for (kind, v), n in folded.image.unknown.items()),
        ):
            if number:
                self.made["bad_inputs"].append(
                    {"file": self._of["capture"], "reason": f"{number:,} {text}", "offset": 0, "bytes_skipped": 0}
                )


_COUNTS: Final = (
    "connections", "kafka_connections", "without_handshake", "tls_connections", "partial_starts", "gaps", "gap_bytes",
    "cut_packets", "ip_fragments", "bad_checksums", "unmatched_responses",
)  # fmt: skip


def _state_row(batch: FoldedBatch, state: FoldedState) -> dict[str, Any]:
    known = state.state
    row = {
        "body_id": batch.batch_id,
        "api_key": ApiKey.FETCH,
        "topic": plain_text(state.topic or ""),
        "topic_id": state.topic_id,
        "partition": state.partition,
        "controller_epoch": -1 if batch.epoch is None else batch.epoch,
        "is_new": state.former is None and known is not None and batch.snapshot is None,
    }
    if known is None:
        none: Iterable[int] = ()
        return row | {"leader": _BEING_DELETED, "leader_epoch": 0, "partition_epoch": 0, "isr": none, "replicas": none}
    return row | {
        "leader": known.leader,
        "leader_epoch": known.leader_epoch,
        "partition_epoch": known.partition_epoch,
        "isr": known.isr,
        "replicas": known.replicas,
        "adding_replicas": known.adding,
        "removing_replicas": known.removing,
        "leader_recovery_state": None if known.recovering is None else int(known.recovering),
        "eligible_leader_replicas": known.elr,
    }
