"""Reads captures into tables in this process, by pyarrow alone; ``kproto.pipeline`` writes the same with Spark."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.capture.summary import KRAFT_TRAFFIC
from kproto.errors import CaptureError, first_reasons
from kproto.metadata_log.finding import LogFiles, find
from kproto.tables.arrays import with_column
from kproto.tables.brokers import BrokerDirectory
from kproto.tables.decoding import decode
from kproto.tables.filters import Filters
from kproto.tables.points import DEFAULT_CLUSTER, points_of
from kproto.tables.relations import (
    Decoded,
    Relations,
    bad_inputs,
    captures,
    distinct_frames,
    first_bodies,
    judged_together,
    learn_brokers,
)
from kproto.tables.scanning import MOST_WAITING, REMEMBERED, scan, scan_options
from kproto.tables.schemas import METADATA_TABLES, SCAN, TABLES
from kproto.text import from_here

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kproto.capture import CapturePoint
    from kproto.tables.brokers import BrokerFacts

_STANDARD_INPUT: Final = "-"

_KRAFT_APIS: Final = frozenset({52, 53, 54, 59, 62, 63})
"""APIs that nobody but the nodes of a KRaft cluster use: where they occur, a capture is read again for its log."""

CHUNK_BYTES: Final = 64 << 20
"""Bytes of the captures' bodies that a task of Spark holds at a time."""

_PIECE_BYTES: Final = 16 << 20
"""About how much ``chunks`` makes a piece of."""

_MOST_BODIES: Final = REMEMBERED + MOST_WAITING
"""The number of decoded bodies kept: more than those of a scan, which gives a body again that it forgot."""


def read(*paths: str | os.PathLike[str], filters: Filters | None = None) -> dict[str, pa.Table]:
    """Read captures into Arrow tables, without Spark.

    pandas, polars and DuckDB take the tables as they are. Everything is held in memory: about four times the captures'
    distinct bodies. For captures beyond that see ``kproto.pipeline``, which writes the same tables with Spark.

    Args:
        paths: pcap, pcapng or ``kafka-request.log``, also packed, or directories, patterns or URIs of them.
            Rotated files of one capture point are read as one capture, see ``kproto.capture.capture_points``. A frame
            that several files hold is there once. Files of KRaft's metadata log, and directories of them, are found as
            ``kproto.metadata_log.finding`` says.
        filters: The requests to keep; None keeps all control requests.

    Returns:
        The tables of ``kproto.tables.TABLES`` by name: ``requests``, ``responses``, ``partition_errors``,
        ``partition_states``, ``frames``, ``bodies``, ``brokers``, ``live_brokers``, ``captures``, ``bad_inputs``; with
        a metadata log also those of ``METADATA_TABLES``. Their schemas' metadata describes every column.

    Raises:
        CaptureError: No file can be read, or none holds a request that passes the filters.
    """
    names = [os.fspath(path) for path in paths]
    if not names:
        raise ValueError("name at least one capture")
    pieces = list(chunks(names, filters=filters, chunk_bytes=None))
    every = [name for name in (*TABLES, *METADATA_TABLES) if any(name in piece for piece in pieces)]
    found = {name: pa.concat_tables([piece[name] for piece in pieces if name in piece]) for name in every}
    if not found["requests"].num_rows:
        raise CaptureError(why_nothing(found["bad_inputs"].to_pylist()))
    return found | {"bad_inputs": judged_together(found["bad_inputs"], found["captures"])}


def why_nothing(bad_inputs: Iterable[Mapping[str, Any]]) -> str:
    """Explain why captures gave no request at all, from rows of ``bad_inputs``."""
    reasons = [from_here(bad["reason"]) for bad in bad_inputs if bad["offset"] is None]
    return first_reasons(reasons) or (
        "no control request in these captures passes the filters; leave one out, or see all: kproto inspect"
    )


def chunks(
    paths: Sequence[str],
    *,
    filters: Filters | None = None,
    chunk_bytes: int | None = _PIECE_BYTES,
) -> Iterator[dict[str, pa.Table]]:
    """Yield the tables in pieces, each of a bounded part of the captures, in bounded memory.

    A request is in the piece in which its outcome is known; a body and its states are in the piece that first names
    them, and again in a later piece if more than 50,000 other bodies came between two requests with it.
    ``broker_id`` uses the addresses that were known by then.

    Args:
        paths: See ``read``.
        filters: See ``read``.
        chunk_bytes: About how much a piece may be made of; None makes one piece.
    """
    yield from chunks_of(points_in(paths), filters or Filters(), chunk_bytes)


def points_in(paths: Sequence[str]) -> list[str | CapturePoint | LogFiles]:
    """Return the capture points in files, directories, patterns and URIs; ``-``, once, stands for itself.

    The files of KRaft's metadata log among them come first, as one point.
    """
    logs, paths = find(paths)
    piped = [path for path in paths if path == _STANDARD_INPUT][:1]
    others = [path for path in paths if path != _STANDARD_INPUT]
    return [*([logs] if logs else []), *piped, *(points_of(others) if others else [])]


def chunks_of(
    every: Iterable[str | CapturePoint | LogFiles], filters: Filters, chunk_bytes: int | None = _PIECE_BYTES
) -> Iterator[dict[str, pa.Table]]:
    """Yield ``chunks`` of capture points."""
    points: list[str | CapturePoint] = []
    logs: list[LogFiles] = []
    for point in every:
        if isinstance(point, LogFiles):
            logs.append(point)
        else:
            points.append(point)
    if logs and not points:
        yield _of_log(logs, [], filters)
        return
    reader = TableReader(filters, BrokerDirectory(filters.broker_ids), several=len(points) > 1)
    batches = scan(points, **scan_options(filters))
    is_kraft, last_us = False, 0
    for stretch, last in stretches(batches, chunk_bytes):
        piece = reader.tables(stretch, last=last)
        piece["bad_inputs"] = without_kraft_note(piece["bad_inputs"])
        is_kraft = is_kraft or shows_kraft(piece["captures"])
        last_us = max(last_us, last_listing(piece["requests"]))
        yield piece
    if logs or is_kraft:
        yield _of_log(logs, points, filters, live_from_us=last_us)


def shows_kraft(captures: pa.Table) -> bool:
    """Whether rows of ``captures`` count requests that nobody but the nodes of a KRaft cluster sends."""
    counts = captures["all_requests"].to_pylist()
    return any(count["api_key"] in _KRAFT_APIS for some in counts for count in some)


def last_listing(requests: pa.Table) -> int:
    """The time (us) of the last of some requests by which ZooKeeper's controllers list live brokers; 0: none does."""
    lists = pc.and_not_kleene(pc.is_valid(requests["live_brokers_id"]), requests["is_kraft_controller"])
    return pc.max(requests.filter(lists)["ts"].cast(pa.int64())).as_py() or 0


def without_kraft_note(bad: pa.Table) -> pa.Table:
    """Take off the notes that a capture has no control requests as it is KRaft's: its metadata log is read."""
    noted = pc.and_(pc.is_null(bad["offset"]), pc.match_substring(bad["reason"], KRAFT_TRAFFIC))
    return bad.filter(pc.invert(noted)) if pc.any(noted).as_py() else bad


def _of_log(
    logs: Sequence[LogFiles], points: Sequence[str | CapturePoint], filters: Filters, *, live_from_us: int = 0
) -> dict[str, pa.Table]:
    """The tables of KRaft's metadata log, as its files and captures show it; a pipe cannot be read a second time."""
    from kproto.capture import CapturePoint
    from kproto.tables.metadata_points import read_traffic
    from kproto.tables.metadata_rows import tables_of_files

    files = logs[0] if logs else LogFiles()
    captures = [point for point in points if isinstance(point, CapturePoint)]
    traffic = read_traffic(captures, ports=filters.ports)
    if captures and not traffic.batches and not logs:
        empty = {name: schema.empty_table() for name, schema in (TABLES | METADATA_TABLES).items()}
        return empty | {"bad_inputs": without_records(captures[0].files[0])}
    shown_by = next((point.name for point in captures if point.name in traffic.shown_by), None)
    return tables_of_files(files, filters, traffic, capture=shown_by, live_from_us=live_from_us)


def without_records(file: str) -> pa.Table:
    """The row of ``bad_inputs`` of a capture of a KRaft cluster that shows no record of the metadata log."""
    advice = (
        f"{KRAFT_TRAFFIC}, without a fetch of the metadata log that brings records; capture on a controller's "
        "listener, or name a copy of __cluster_metadata-0"
    )
    row = {"file": file, "reason": advice, "offset": None, "bytes_skipped": None}
    return pa.Table.from_pylist([row], schema=TABLES["bad_inputs"])


def stretches(
    batches: Iterable[pa.RecordBatch], chunk_bytes: int | None = CHUNK_BYTES
) -> Iterator[tuple[list[pa.RecordBatch], bool]]:
    """Group batches into stretches of a number of bytes; each comes with whether it is the last, which may be empty."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if chunk_bytes is not None and size >= chunk_bytes:
            yield held, False
            held, size = [], 0
    yield held, True


class TableReader:
    """Turns parts of a scan into tables; keeps unanswered requests and the heads of known bodies.

    Args:
        filters: The requests to keep.
        directory: Learns the brokers' addresses and tells their ids.
        states: Whether to make ``partition_states`` and ``bodies``; else they are missing.
        cluster: The declared cluster of the captures.
        several: Whether several recordings are scanned, so that a frame may come again in a later stretch.

    Attributes:
        given: The bodies of the last stretch, as ``first_bodies`` gives them, known before or not.
    """

    def __init__(
        self,
        filters: Filters,
        directory: BrokerDirectory | BrokerFacts,
        *,
        states: bool = True,
        cluster: str = DEFAULT_CLUSTER,
        several: bool = False,
    ) -> None:
        self._seen: set[bytes] | None = set() if several else None
        self._filters = filters
        self._states = states
        self._cluster = cluster
        self._directory = directory
        self._decoded = Decoded()
        self._open: list[pa.RecordBatch] = []
        self.given = first_bodies(SCAN.empty_table())

    def tables(self, batches: list[pa.RecordBatch], *, last: bool) -> dict[str, pa.Table]:
        """The tables of a stretch.

        Args:
            batches: Of the schema ``SCAN``.
            last: Whether no more will come, so that requests which wait for their response have none.
        """
        stretch = pa.Table.from_batches([*self._open, *batches], SCAN)
        self._open = []
        new = self.given = first_bodies(stretch)
        stretch = with_column(stretch, "payload", pa.nulls(stretch.num_rows, pa.binary()))
        stretch = distinct_frames(stretch.combine_chunks(), self._seen)  # small recordings are a chunk each
        used = stretch["body_id"]
        unknown = self._decoded.unknown(new["body_id"])
        new = new if pc.all(unknown).as_py() else new.filter(unknown)  # that copies payloads
        every_state = self._states or self._filters.by_partition
        for kind, rows in decode(new.to_batches(), states=every_state):
            self._decoded.add(kind, rows)
        learn_brokers(self._directory, stretch, self._decoded)
        if not last:
            stretch = self._set_open_aside(stretch)
        if self._seen is not None:
            self._seen.update(stretch["frame_id"].drop_null().to_pylist())
        if not every_state:
            self._decode_refused(stretch, new)
        relations = Relations(stretch, self._decoded, self._directory, self._filters, self._cluster)
        requests = relations.requests()
        frames = relations.frames(requests)
        found = {
            "requests": requests,
            "responses": relations.responses(requests),
            "partition_errors": relations.partition_errors(requests),
            "frames": frames,
            "brokers": relations.brokers(),
            "live_brokers": relations.live_brokers(),
            "captures": captures(stretch, self._cluster),
            "bad_inputs": bad_inputs(stretch),
        }
        if self._states:
            found["partition_states"] = relations.partition_states(requests)
            found["bodies"] = relations.bodies(new, frames)
        self._decoded.forget_states()
        self._decoded.keep_recent(used, _MOST_BODIES)
        return {name: found[name] for name in TABLES if name in found}

    def _decode_refused(self, stretch: pa.Table, new: pa.Table) -> None:
        """Decode the states of new bodies answered with partition errors, since answers may lack topics' names."""
        failed = pc.unique(self._decoded.table("error")["body_id"])
        answers = stretch.filter(pc.is_in(stretch["body_id"], value_set=failed, skip_nulls=True))
        if not answers.num_rows:
            return
        asked = pc.is_in(stretch["frame_id"], value_set=answers["request_frame_id"].combine_chunks(), skip_nulls=True)
        refused = pc.unique(stretch.filter(asked)["body_id"])
        bodies = new.filter(pc.is_in(new["body_id"], value_set=refused, skip_nulls=True))
        for kind, rows in decode(bodies.to_batches()):
            if kind == "state":
                self._decoded.add(kind, rows)

    def _set_open_aside(self, stretch: pa.Table) -> pa.Table:
        """Keep requests with neither response nor reason for the next stretch."""
        is_request = pc.fill_null(pc.equal(stretch["direction"], "request"), False)
        closed = pc.is_in(stretch["frame_id"], value_set=stretch["request_frame_id"].combine_chunks(), skip_nulls=True)
        is_open = pc.and_(is_request, pc.invert(closed))
        waiting = stretch.filter(is_open)
        self._open = waiting.to_batches()
        return stretch.filter(pc.invert(is_open))
