"""Where two requests share one response, its row stands once as long as one of them stays."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kproto.pipeline.settling import JOINED, settle, without_superseded
from kproto.pipeline.stages import DROPPED, StagedPart, without_requests
from kproto.pipeline.staging import StagedTables, read_staged
from kproto.tables.brokers import BrokerFacts
from kproto.tables.schemas import FRAMES, NEVER_NULL, REQUESTS, TIME
from kproto.tables.stored import StoredTables
from kproto.tables.writing import file_schema, write_table

LESS, MORE = None, b"body"

_FLOW = FRAMES.field("flow").type
_SOME: dict[pa.DataType, Any] = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64(), TIME), 1),
    pa.string(): "a",
    pa.binary(): b"a",
    _FLOW: {field.name: "a" if field.type == pa.string() else 1 for field in _FLOW},
}


def requests(*rows: tuple[bytes, bytes | None, bytes | None]) -> pa.Table:
    """Requests by frame, response and body: without a body less is told of them."""
    return filled(
        "requests",
        [{"frame_id": frame, "response_frame_id": answer, "body_id": body, "ts": 1} for frame, answer, body in rows],
        file_schema("requests"),
    )


def filled(name: str, rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows of a table with something in each column in which kproto writes no null."""
    columns = [schema.field(column) for column in NEVER_NULL[name] if column in schema.names]
    return pa.Table.from_pylist([{each.name: _SOME[each.type] for each in columns} | row for row in rows], schema)


def frames(table: pa.Table) -> pa.Table:
    ids = {*table["frame_id"].to_pylist(), *table["response_frame_id"].drop_null().to_pylist()}
    return filled("frames", [{"frame_id": each} for each in sorted(ids)], FRAMES)


def left(
    stored: list[pa.Table], new: list[pa.Table], folder: Path, *, joined: str = ""
) -> tuple[list[bytes], list[bytes]]:
    """The requests and the frames that stand after a run: of stored files, of one table ``joined``, and of pieces."""
    tables = StoredTables(folder, {}, {})

    def file_of(name: str, number: int) -> str:
        return f"{name}/part-{JOINED if name == joined else number}-{number}.parquet"

    for number, table in enumerate(stored):
        for name, rows in (("requests", table), ("frames", frames(table))):
            write_table(folder / (file := file_of(name, number)), name, rows)
            tables.rows[file] = rows.num_rows
    pieces = []
    for number, table in enumerate(new):
        staged = StagedTables(folder / f"piece-{number}")
        staged.write("requests", pa.RecordBatch.from_pylist(table.to_pylist(), REQUESTS))
        staged.close()
        empty: Any = None
        pieces.append(StagedPart(str(folder / f"piece-{number}"), Counter(), BrokerFacts(), empty, 0))
    settled = settle(pieces, tables, {}, -(1 << 62))
    found = dict(without_superseded(tables, settled))
    kept: dict[str, list[bytes]] = {"requests": [], "frames": []}
    for number, table in enumerate(stored):
        for name, rows in (("requests", table), ("frames", frames(table))):
            kept[name] += found.get(file_of(name, number), rows)["frame_id"].to_pylist()
    for piece, table in zip(pieces, new, strict=True):
        gone = [batch["frame_id"] for batch in read_staged(folder / piece.path / DROPPED, DROPPED)]
        ids = pa.concat_arrays(gone) if gone else pa.array([], pa.binary())
        for name, rows in without_requests({"requests": table, "frames": frames(table)}, ids).items():
            kept[name] += rows["frame_id"].to_pylist()
    return sorted(kept["requests"]), sorted(kept["frames"])


SHARED = requests((b"a", b"f", LESS), (b"b", b"f", MORE))


@pytest.mark.parametrize("joined", ["", "requests", "frames"])
@pytest.mark.parametrize(
    ("stored", "new"),
    [
        ([SHARED], [requests((b"a", None, MORE))]),
        ([SHARED], [requests((b"a", b"f", MORE))]),
        ([requests((b"b", b"f", MORE))], [requests((b"a", b"f", MORE))]),
        ([requests((b"a", b"f", LESS))], [requests((b"a", b"f", MORE), (b"b", b"f", MORE))]),
        ([requests((b"a", None, MORE))], [SHARED]),
        ([], [requests((b"a", b"f", MORE)), requests((b"b", b"f", MORE))]),
        ([requests((b"a", b"f", LESS))], [requests((b"a", b"f", MORE)), requests((b"b", b"f", MORE))]),
    ],
)
def test_a_response_of_two_requests_stands_once(
    stored: list[pa.Table], new: list[pa.Table], joined: str, tmp_path: Path
) -> None:
    assert left(stored, new, tmp_path, joined=joined) == ([b"a", b"b"], [b"a", b"b", b"f"])


def test_of_requests_that_are_taken_out_alone_a_shared_response_stays_with_the_others() -> None:
    tables = {"requests": SHARED, "frames": frames(SHARED)}
    ids = pa.array([b"a"], pa.binary())
    assert without_requests(tables, ids)["frames"]["frame_id"].to_pylist() == [b"b", b"f"]
