"""Settles which row tells of a request that several recordings hold: a packet counts once, in one run or in many.

The best row stays: that of the whole request before that of a cut one, then one with a response, one whose messages
could be read, one that knows what was answered, or why nothing was, the earliest response. Of rows that tell as much
any may stay, since they differ in labels alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.capture.collector import CAPTURE_ENDED
from kproto.pipeline.stages import DROPPED, RELATED
from kproto.pipeline.staging import StagedTables, read_staged
from kproto.tables.arrays import rows_of
from kproto.tables.places import place_of
from kproto.tables.stored import read_parquet
from kproto.tables.writing import token_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from kproto.pipeline.stages import StagedPart
    from kproto.tables.stored import StoredTables

_READ: Final = [
    "frame_id", "body_id", "response_frame_id", "unmatched_reason", "decode_error", "error_code", "ts", "latency_us",
]  # fmt: skip


@dataclass(slots=True)
class Settled:
    """What settling found.

    Attributes:
        superseded: The requests in stored files whose rows go, since new ones tell more.
        answers: Stored responses of these that stay, since they answer another request too.
        expired: The number of new requests that are not written, since their days have expired.
    """

    superseded: dict[str, list[bytes]] = field(default_factory=dict)
    answers: set[bytes] = field(default_factory=set)
    expired: int = 0


def settle(
    pieces: Sequence[StagedPart],
    stored: StoredTables,
    spans: Mapping[str, Any],
    watermark_us: int,
    taken_back: Collection[tuple[bytes, bytes | None]] = (),
    *,
    crosses: bool = False,
) -> Settled:
    """Settle which rows of pieces are written, and note the others in them.

    Args:
        pieces: The pieces of a run.
        stored: The tables to which they are added.
        spans: The first and the last time (us) in stored files of requests.
        watermark_us: Requests before this time have expired.
        taken_back, crosses: See ``Joiner``.
    """
    sources = [_ranked(pa.Table.from_batches(read_staged(place_of(each.path), "requests"))) for each in pieces]
    found = Settled()
    gone: list[set[bytes]] = [set() for _ in pieces]
    for number, rows in enumerate(sources):
        late = pc.less(rows["ts"], watermark_us)
        if pc.any(late).as_py():
            gone[number].update(rows.filter(late)["frame_id"].to_pylist())
            found.expired += pc.sum(late).as_py()
            sources[number] = rows.filter(pc.invert(late))
    stored_files: list[str] = []
    times = [pc.min_max(rows["ts"]).as_py() for rows in sources if rows.num_rows]
    if times:
        first, last = min(each["min"] for each in times), max(each["max"] for each in times)
        for file in stored.paths("requests"):
            begin, end = spans.get(file, (first, last))
            if stored.rows[file] and (taken_back or crosses or (begin <= last and end >= first)):
                sources.append(_ranked(read_parquet(stored.place(file), _READ)))
                stored_files.append(file)
    frames = pa.array({frame_id for frame_id, _answer in taken_back}, pa.binary())
    for rows in sources[len(pieces) :]:
        some = rows.filter(pc.is_in(rows["frame_id"], value_set=frames)) if taken_back else rows[:0]
        gone.append({pair[0] for pair in rows_of(some, ("frame_id", "answer")) if pair in taken_back})
    for frame_id, number in _losers([_without(rows, ids) for rows, ids in zip(sources, gone, strict=True)]):
        gone[number].add(frame_id)
    found.superseded = {file: [*ids] for file, ids in zip(stored_files, gone[len(pieces) :], strict=True) if ids}
    for answer, numbers in _answers(sources, gone).items():  # the row of a response stands in one place
        if numbers[-1] >= len(pieces):
            found.answers.add(answer)
        for number in (
            each for each in numbers if each < len(pieces) and (each != numbers[0] or answer in found.answers)
        ):
            gone[number].add(answer)
    for piece, ids in zip(pieces, gone, strict=False):
        if ids:
            staged = StagedTables(place_of(piece.path) / DROPPED)
            staged.write(DROPPED, pa.RecordBatch.from_arrays([pa.array(ids, pa.binary())], ["frame_id"]))
            staged.close()
    return found


def _ranked(requests: pa.Table) -> pa.Table:
    """The requests' frames and times (us), and how much their rows tell."""
    answered = pc.is_valid(requests["response_frame_id"])
    whole = pc.is_valid(requests["body_id"])
    final = pc.invert(pc.fill_null(pc.equal(requests["unmatched_reason"], CAPTURE_ENDED), False))
    told = pc.is_valid(requests["error_code"])  # a response may be cut
    read = pc.is_null(requests["decode_error"])
    late = pc.min_element_wise(pc.abs(pc.fill_null(requests["latency_us"], 0)), (1 << 58) - 1)
    rank = pc.negate(late)
    for bit, each in enumerate((final, told, read, answered, whole), start=58):
        rank = pc.add(rank, pc.multiply(each.cast(pa.int64()), 1 << bit))
    ids = {"frame_id": requests["frame_id"], "answer": requests["response_frame_id"]}
    return pa.table(ids | {"ts": requests["ts"].cast(pa.int64()), "rank": rank})


def _shared(sources: Sequence[pa.Table], column: str) -> pa.Table:
    """The rows whose value in a column several rows have."""
    every = pa.concat_tables(
        table.append_column("source", pa.repeat(pa.scalar(number, pa.int32()), table.num_rows))
        for number, table in enumerate(sources)
    )
    counts = every.group_by(column, use_threads=False).aggregate([("rank", "count")])
    several = counts.filter(pc.greater(counts["rank_count"], 1))[column].combine_chunks().drop_null()
    return every.filter(pc.is_in(every[column], value_set=several, skip_nulls=True))


def _without(rows: pa.Table, ids: Collection[bytes]) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows["frame_id"], value_set=pa.array(ids, pa.binary())))) if ids else rows


def _answers(sources: Sequence[pa.Table], gone: Sequence[Collection[bytes]]) -> dict[bytes, list[int]]:
    """Responses that several rows have: the sources of those rows that stay, in order."""
    found: dict[bytes, list[int]] = {}
    for frame_id, answer, source in rows_of(_shared(sources, "answer"), ("frame_id", "answer", "source")):
        if frame_id not in gone[source]:
            numbers = found.setdefault(answer, [])
            if source not in numbers:
                numbers.append(source)
    return found


def _losers(sources: Sequence[pa.Table]) -> Iterator[tuple[bytes, int]]:
    """Yield each request that several sources have, with each source whose row does not stay."""
    best: dict[bytes, tuple[int, int]] = {}
    rows = list(rows_of(_shared(sources, "frame_id"), ("frame_id", "rank", "source")))
    for frame_id, rank, source in rows:
        best[frame_id] = max(best.get(frame_id, (rank, source)), (rank, source))  # of equal ones the stored row stays
    yield from ((frame_id, source) for frame_id, _rank, source in rows if source != best[frame_id][1])


def without_superseded(stored: StoredTables, settled: Settled) -> Iterator[tuple[str, pa.Table]]:
    """Yield stored files that have superseded requests, and what stays of each."""
    of_token: dict[str, list[bytes]] = {}
    answers: dict[str, set[bytes]] = {}
    every = {token_of(file) for name in RELATED for file in stored.paths(name)}
    for file, ids in settled.superseded.items():
        theirs = read_parquet(stored.place(file), ["frame_id", "response_frame_id"])
        found = theirs.filter(pc.is_in(theirs["frame_id"], value_set=pa.array(ids, pa.binary())))
        own = token_of(file)
        for token in every if own == JOINED else {own, JOINED}:  # what was joined has rows of any file beside it
            of_token.setdefault(token, []).extend(ids)
            answers.setdefault(token, set()).update(found["response_frame_id"].drop_null().to_pylist())
    for name, file in [(each, file) for each in RELATED for file in stored.paths(each)]:
        token = token_of(file)
        if stored.rows[file] and token in of_token:
            table = read_parquet(stored.place(file))
            gone = [*of_token[token], *(answers[token] - settled.answers if name == "frames" else ())]
            mask = pc.is_in(table["frame_id"], value_set=pa.array(gone, pa.binary()))
            if pc.any(mask).as_py():
                yield file, table.filter(pc.invert(mask))


JOINED: Final = "joined"
"""The token of files that ``compact`` joined."""
