"""Turns KRaft's metadata log into rows of the tables: its batches are requests, its folded records partition states.

A batch that holds more than NoOpRecords is a row of ``requests`` (``api_key`` 1, Fetch, which carries it to the other
nodes), dated by the clock of the controller that wrote it; a record of a partition, with all that the records before it
said, is a row of ``partition_states``. So all that is asked of requests and states is answered for both modes.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import defaultdict
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kproto.api import ApiKey
from kproto.metadata_log.admin_requests import CHANGING
from kproto.metadata_log.batches import RecordBatch, stored_batch
from kproto.metadata_log.files import ShownLog, read, snapshot_of
from kproto.metadata_log.finding import SNAPSHOT
from kproto.metadata_log.folding import fold, is_whole
from kproto.metadata_log.image import FoldedPartition
from kproto.metadata_log.records import NoOpRecord, RegisterControllerRecord
from kproto.metadata_log.secrets import stored_bytes, without_secrets
from kproto.tables.arrays import TableBuilder, plain_text
from kproto.tables.metadata_points import controllers_clocks
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.tables.schemas import COUNTS, KNOWN, METADATA_TABLES, NO_EPOCH, TABLES
from kproto.tables.traffic_rows import TimesTold, traffic_rows, us

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kproto.metadata_log.batches import LogRecord
    from kproto.metadata_log.deliveries import MetadataTraffic
    from kproto.metadata_log.files import LogSnapshot, MetadataLog
    from kproto.metadata_log.finding import LogFiles
    from kproto.metadata_log.folding import BrokerSpan, FoldedBatch, FoldedLog, FoldedState
    from kproto.tables.filters import Filters

FORMAT: Final = "metadata log"
"""The ``format`` of a metadata log in the table ``captures``."""

_TABLES: Final = "the stored tables"
_BEING_DELETED: Final = FoldedPartition(-2, 0, 0, (), (), None, None, None, None, None)


def tables_of_files(
    files: LogFiles,
    filters: Filters,
    traffic: MetadataTraffic,
    *,
    known: ShownLog | None = None,
    capture: str | None = None,
    cluster: str = DEFAULT_CLUSTER,
    live_from_us: int = 0,
) -> dict[str, pa.Table]:
    """Return the tables of the files of a metadata log: those of ``TABLES`` and of ``METADATA_TABLES``.

    With what stored tables know of the log there is ``known_batches`` too: its batches, and the snapshots it needs.

    Args:
        files: The files of one cluster's log, of one node or of several.
        filters: The requests and states to keep.
        traffic: What captures show of the same log.
        known: What stored tables know of the same log, see ``known_log``; its files may be gone since.
        capture: The capture point whose rows they become; None: one of its own.
        cluster: The declared cluster.
        live_from_us: Since when the rows of ``requests`` list the live brokers, those that are not fenced. Until then
            requests of ZooKeeper's controllers do.

    Raises:
        CaptureError: A file cannot be opened.
    """
    rows = _Rows(
        read(files, traffic.shown(), known),
        filters,
        capture or _name(files),
        cluster,
        traffic,
        live_from_us,
    )
    folded = rows.fold()
    schemas = TABLES | METADATA_TABLES
    made = {
        name: pa.Table.from_pylist([rows.of | row for row in listed], schemas[name])
        for name, listed in rows.made.items()
    }
    made |= {name: builder.table() for name, builder in rows.large.items()}
    if known is not None:
        schemas |= {"known_batches": KNOWN["known_batches"]}
        made |= {"known_batches": rows.known_batches(folded)}
    return {name: made.get(name, schemas[name].empty_table()) for name in schemas}


def known_log(rows: pa.Table) -> ShownLog:
    """Return the metadata log that rows of ``known_batches`` hold.

    Raises:
        ValueError, TypeError: They hold none.
    """
    batches: dict[tuple[int, int], tuple[RecordBatch, str]] = {}
    sent_in: dict[tuple[int, int], int] = {}
    of_snapshots: dict[str, list[RecordBatch]] = {}
    columns = (rows[name].to_pylist() for name in ("snapshot", "sent_in", "data"))
    for name, epoch, data in zip(*columns, strict=True):
        batch = stored_batch(data)
        if name is not None:
            of_snapshots.setdefault(name, []).append(batch)
            continue
        batches[batch.epoch, batch.base_offset] = batch, _TABLES
        sent_in[batch.epoch, batch.base_offset] = max(epoch, batch.epoch)
    snapshots: dict[tuple[int, int], LogSnapshot] = {}
    for name, found in of_snapshots.items():
        end, _dash, epoch = name.partition("-")
        snapshot = snapshot_of(int(end), int(epoch), _TABLES, found)
        if snapshot is not None:
            snapshots[snapshot.end_offset, snapshot.epoch] = snapshot
    return ShownLog(batches, sent_in, snapshots)


def _name(files: LogFiles) -> str:
    """A name for the capture point: that of the directory which all files share."""
    parents = [os.path.dirname(os.path.abspath(path)) for path in files.paths()]  # noqa: PTH100, PTH120
    return Path(os.path.commonpath(parents)).name or FORMAT


def _us(time_ms: int) -> int:
    """A time of the log in us since 1970, within the calendar."""
    return us(time_ms * 1_000_000) or 0


def _id(*parts: object) -> bytes:
    return blake2b("\0".join(map(str, parts)).encode("utf-8", "replace"), digest_size=16).digest()


def _followed(spans: Iterable[BrokerSpan]) -> Iterator[tuple[BrokerSpan, BrokerSpan]]:
    """Yield each state of a broker with its next one."""
    last: dict[int, BrokerSpan] = {}
    for span in spans:
        if span.broker_id in last:
            yield last[span.broker_id], span
        last[span.broker_id] = span


_REQUEST: Final = (
    "frame_id", "ts", "controller_id", "controller_epoch", "live_brokers_id", "n_topics", "n_partitions", "body_id",
    "frame_len", "response_frame_id",
)  # fmt: skip
_STATE: Final = (
    "body_id", "topic", "topic_id", "partition", "controller_epoch", "is_new", "leader", "leader_epoch",
    "partition_epoch", "isr", "replicas", "adding_replicas", "removing_replicas", "leader_recovery_state",
    "eligible_leader_replicas", "unclean_election",
)  # fmt: skip
_RECORD: Final = ("log_offset", "snapshot", "ts", "controller_epoch", "type", "version", "data", "body_id")
_DELIVERY: Final = ("body_id", "node_id", "controller_epoch", "log_offset", "told_ts", "committed_ts", "applied_ts")


def _frame_id(batch: FoldedBatch) -> bytes:
    """An id that sorts by the offset: requests of one time are put in the order of their ids."""
    offset = batch.begin_offset if batch.snapshot is None else max(batch.begin_offset - 1, 0)
    return offset.to_bytes(8, "big") + batch.batch_id[:8]


_CONNECTION: Final = _id(FORMAT)
_MOST_LOSSES: Final = 1000


class _Rows:
    """The rows of each table: those of small tables as dictionaries, those of large ones in builders."""

    def __init__(
        self,
        log: MetadataLog,
        filters: Filters,
        capture: str,
        cluster: str,
        traffic: MetadataTraffic,
        live_from_us: int,
    ) -> None:
        self._log = log
        self._traffic = traffic
        self._changing: list[LogRecord] = []
        self._clocks = controllers_clocks(traffic)
        self._controller_starts: dict[int, list[int]] = defaultdict(list)
        self._incarnations: dict[int, bytes] = {}
        self._filters = filters
        self.of = of = {"cluster": cluster, "capture": capture}
        self._live: frozenset[int] | None = None
        self._live_from_us = live_from_us
        self._lists_live = not live_from_us  # before, brokers of ZooKeeper may still be about to register
        self._batch_ids: dict[tuple[int, int], bytes] = {}
        self.made: dict[str, list[dict[str, Any]]] = defaultdict(list)
        fetch = {"api_key": ApiKey.FETCH}
        request = {
            "conn_id": _CONNECTION, "api_version": 0, "correlation_id": 0, "client_id": "",
            "broker_epoch": -1, "is_kraft_controller": True, "type": 0, "server_ip": "", "server_port": 0,
            "error_code": 0,
        }  # fmt: skip
        body = fetch | {"api_version": 0, "direction": "response"}
        self.large = {
            "requests": TableBuilder(TABLES["requests"], _REQUEST, of | fetch | request),
            "bodies": TableBuilder(TABLES["bodies"], ("body_id",), body),
            "partition_states": TableBuilder(TABLES["partition_states"], _STATE, fetch),
            "metadata_records": TableBuilder(METADATA_TABLES["metadata_records"], _RECORD, of),
            "metadata_deliveries": TableBuilder(METADATA_TABLES["metadata_deliveries"], _DELIVERY, of),
        }
        self._live_sets: set[frozenset[int]] = set()
        self._secret: set[bytes] = set()  # ids of batches with secrets

    def fold(self) -> FoldedLog:
        """Fold the log, and make the rows of all tables."""
        quorum = self._traffic.quorum
        folded = fold(self._log, self._record, quorum.named(), self._took_effect)
        folded.members.add_traffic(quorum.fetches, quorum.described)
        for batch in folded.batches:
            self._batch(batch)
        self._brokers(folded)
        self._epochs(folded)
        self._members(folded)
        self._source(folded)
        self._deliveries()
        self.made |= traffic_rows(self._traffic, self._changing, self._clocks)
        return folded

    def known_batches(self, folded: FoldedLog) -> pa.Table:
        """What was folded, as bytes without secrets."""
        schema = KNOWN["known_batches"]
        names: list[str | None] = []
        epochs: list[int] = []
        data: list[bytes] = []
        written: LogSnapshot | None = None
        for each in folded.batches:
            snapshot = each.snapshot
            if snapshot is not None and snapshot is written:
                continue  # what it removed stands before it
            written = snapshot
            for batch in [each.source] if isinstance(each.source, RecordBatch) else each.source.batches:
                names.append(None if snapshot is None else snapshot.name)
                epochs.append(self._log.sent_in.get((batch.epoch, batch.base_offset), batch.epoch))
                data.append(stored_bytes(batch) if each.batch_id in self._secret else batch.data)
        columns = zip((names, epochs, data), schema.types, strict=True)
        return pa.Table.from_arrays([pa.array(values, kind) for values, kind in columns], schema=schema)

    # ---- requests and states

    def _batch(self, batch: FoldedBatch) -> None:
        if batch.live is not None:
            self._live = batch.live
            self._lists_live = self._lists_live or batch.all_live
        if batch.is_idle or not self._filters.wants_time(batch.time_ms * 1_000_000):
            return
        if batch.epoch is not None:
            self._batch_ids[batch.epoch, batch.begin_offset] = batch.batch_id
        filters = self._filters
        if filters.errors or filters.brokers or (filters.apis and ApiKey.FETCH not in filters.apis):
            return
        if filters.controllers and not filters.wants_controller(batch.leader_id):
            return
        wanted = [state for state in batch.states if is_whole(state)]
        if filters.by_partition:
            wanted = [state for state in wanted if filters.wants_partition(state.topic or "", state.partition)]
            if not wanted:
                return
        for state in wanted:
            self._state(batch, state)
        frame_id, ts = _frame_id(batch), _us(batch.time_ms)
        self.large["requests"].add(
            frame_id, ts, batch.leader_id, NO_EPOCH if batch.epoch is None else batch.epoch, self._live_id(ts),
            len({state.topic_id for state in batch.states}), len(batch.states), batch.batch_id,
            len(batch.source.data) if isinstance(batch.source, RecordBatch) else 0, frame_id,
        )  # fmt: skip
        self.large["bodies"].add(batch.batch_id)

    def _state(self, batch: FoldedBatch, state: FoldedState) -> None:
        known = state.state or _BEING_DELETED
        epoch = batch.epoch if state.is_decided and batch.epoch is not None else NO_EPOCH
        is_new = state.state is not None and state.former is None and state.is_decided
        recovering = None if known.recovering is None else int(known.recovering)
        self.large["partition_states"].add(
            batch.batch_id, plain_text(state.topic or ""), state.topic_id, state.partition, epoch, is_new, known.leader,
            known.leader_epoch, known.partition_epoch, known.isr, known.replicas or (), known.adding, known.removing,
            recovering, known.elr, state.is_unclean,
        )  # fmt: skip

    def _live_id(self, ts: int) -> bytes | None:
        live = self._live
        if live is None or ts < self._live_from_us or not self._lists_live:
            return None
        live_id = _id("live", *sorted(live))
        if live not in self._live_sets:
            self._live_sets.add(live)
            self.made["live_brokers"] += ({"live_brokers_id": live_id, "broker_id": broker} for broker in sorted(live))
        return live_id

    def _record(self, batch: FoldedBatch, each: LogRecord) -> None:
        """Add a record that the fold reads."""
        record = each.record
        if isinstance(record, NoOpRecord):
            return
        shown = record if record is None or each.is_control else without_secrets(record)
        if shown is not record:
            self._secret.add(batch.batch_id)
        if not self._filters.wants_time(batch.time_ms * 1_000_000):
            return
        self.large["metadata_records"].add(
            each.offset,
            None if batch.snapshot is None else batch.snapshot.name,
            _us(each.time_ms),
            each.epoch,
            None if shown is None else shown.title(),
            None if shown is None else shown.version,
            None if shown is None else shown.to_json_text(),
            batch.batch_id,
        )

    def _took_effect(self, batch: FoldedBatch, each: LogRecord) -> None:
        record, is_new = each.record, batch.snapshot is None
        if isinstance(record, RegisterControllerRecord):
            node, begins_late = record.controller_id, self._log.batches and self._log.batches[0].base_offset > 0
            known = self._incarnations.get(node, b"" if begins_late else record.incarnation_id)
            if is_new and known != record.incarnation_id:
                self._controller_starts[node].append(each.time_ms * 1_000_000 + self._clocks.get(each.epoch, 0))
            self._incarnations[node] = record.incarnation_id
        elif is_new and self._traffic.admin.requests and isinstance(record, CHANGING):
            self._changing.append(each)

    def _deliveries(self) -> None:
        """Add the rows of ``metadata_deliveries``; batches of NoOpRecords alone are left out."""
        traffic = self._traffic
        committed = [mark for _time_ns, mark in traffic.committed]
        applied = {broker: [offset for _time_ns, offset in steps] for broker, steps in traffic.applied.items()}
        for each in traffic.deliveries:
            batch_id = self._batch_ids.get((each.epoch, each.base_offset))
            if batch_id is None:
                continue
            mark = bisect_right(committed, each.last_offset)  # the first that captures show may be an old one
            steps = traffic.applied.get(each.node_id, [])
            step = bisect_left(applied.get(each.node_id, []), each.last_offset)
            self.large["metadata_deliveries"].add(
                batch_id, each.node_id, each.epoch, each.last_offset, us(each.time_ns),
                us(traffic.committed[mark][0]) if 0 < mark < len(committed) else None,
                us(steps[step][0]) if step < len(steps) and (step or each.time_ns < steps[step][0]) else None,
            )  # fmt: skip

    # ---- brokers and the quorum

    def _brokers(self, folded: FoldedLog) -> None:
        listed: dict[tuple[int, str, int], int] = {}
        traffic = self._traffic
        told = TimesTold(traffic, self._clocks)
        ends = {(before.broker_id, before.offset): after for before, after in _followed(folded.brokers)}
        for span in folded.brokers:
            for host, port in span.listeners:
                listed.setdefault((span.broker_id, host, port), span.from_ms)
            if self._filters.wants_broker(span.broker_id):
                self.made["broker_states"].append(
                    {
                        "broker_id": span.broker_id,
                        "state": span.state,
                        "broker_epoch": span.broker_epoch,
                        "incarnation_id": span.incarnation_id if any(span.incarnation_id) else None,
                        "is_start": span.is_restart,
                        "valid_from": _us(span.from_ms),
                        "valid_to": None if span.until_ms is None else _us(span.until_ms),
                        "why": span.why,
                        "log_offset": None if span.offset < 0 else span.offset,
                        "evidence": traffic.heartbeats.evidence(
                            span,
                            told.of(span),
                            told.end_of(span, ends.get((span.broker_id, span.offset))),
                            is_shown=traffic.quorum.serves(told.of(span)),
                        ),
                    }
                )
        self.made["brokers"] += (
            {"broker_id": broker, "host": plain_text(host), "port": port, "first_ts": _us(first)}
            for (broker, host, port), first in listed.items()
        )

    def _epochs(self, folded: FoldedLog) -> None:
        former = None
        for epoch in folded.epochs:
            change = {}
            found = self._traffic.quorum.change(former, epoch, self._controller_starts)
            if found.led_ns is not None:
                change = {
                    "served_ts": us(found.served_ns), "led_ts": us(found.led_ns), "candidates": found.candidates,
                    "failed_elections": found.failed, "late_ts": us(found.late_ns), "why": found.why,
                }  # fmt: skip
            former = epoch
            self.made["quorum_epochs"].append(
                {
                    "controller_epoch": epoch.epoch,
                    "controller_id": epoch.leader_id,
                    "valid_from": None if epoch.from_ms is None else _us(epoch.from_ms),
                    "valid_to": None if epoch.until_ms is None else _us(epoch.until_ms),
                    "voters": None if epoch.offset is None else epoch.voters,
                    "granting_voters": None if epoch.offset is None else epoch.granting_voters,
                    "log_offset": epoch.offset,
                }
                | change
            )

    def _members(self, folded: FoldedLog) -> None:
        self.made["quorum_members"] = [
            {
                "node_id": member.node_id,
                "role": member.role,
                "directory_id": member.directory_id,
                "valid_from": us(member.from_ns),
                "valid_to": us(member.until_ns),
                "told_by": member.told_by,
                "log_offset": member.offset,
                "last_offset": member.last_offset,
                "fetched_ts": us(member.fetched_ns),
            }
            for member in folded.members.spans()
            if self._filters.wants_broker(member.node_id)
        ]

    # ---- the source

    def _source(self, folded: FoldedLog) -> None:
        losses = [
            {"conn_id": _CONNECTION, "kind": "gap", "server_ip": "", "server_port": 0, "ts": _us(former.time_ms)}
            for former, later in pairwise(folded.batches)
            if later.begin_offset > former.source.end_offset
        ][:_MOST_LOSSES]
        for number, (path, batches) in enumerate(self._log.file_batches.items()):
            is_beside = bool(self._log.batches) and SNAPSHOT.fullmatch(Path(path).name) is not None
            times = [] if is_beside else [batch.time_ms for batch in batches]  # a log may begin after a snapshot
            self.made["captures"].append(
                dict.fromkeys(COUNTS, 0)
                | {
                    "file": path,
                    "format": FORMAT,
                    "packets": len(batches),
                    "first_ts": _us(min(times)) if times else None,
                    "last_ts": _us(max(times)) if times else None,
                    "bad_inputs": sum(fault.path == path for fault in self._log.faults),
                    "not_read": (),
                    "losses": () if number else losses,
                    "all_requests": (),
                }
            )
        self.made["bad_inputs"] += (
            {"file": fault.path or self.of["capture"], "reason": plain_text(fault.reason), "offset": fault.at or 0,
             "bytes_skipped": fault.size or 0}
            for fault in self._log.faults
        )  # fmt: skip
        nothing = self._log.nothing
        if not nothing and folded.batches and all(batch.is_idle for batch in folded.batches):
            nothing = "the metadata log holds no change, NoOpRecords alone: name older segments or a snapshot, too"
        if nothing:
            self.made["bad_inputs"].append({"file": self.of["capture"], "reason": plain_text(nothing)})
        for number, text in (
            (folded.unreadable, f"records cannot be read; the first: {plain_text(folded.unreadable_reason)}"),
            (folded.unnamed, "states of partitions are not whole: the files lack what was before them"),
            *((n, f"records of type {kind} version {v} are unknown") for (kind, v), n in folded.image.unknown.items()),
        ):
            if number:
                self.made["bad_inputs"].append(
                    {"file": self.of["capture"], "reason": f"{number:,} {text}", "offset": 0, "bytes_skipped": 0}
                )
