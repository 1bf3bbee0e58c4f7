"""Bodies that are put aside while parts are read are those of the capture read whole, each staged and written once."""

from __future__ import annotations

import gzip
import pickle
import tracemalloc
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from table_truth import CAPTURES, name_of

from kproto.capture import CapturePoint
from kproto.pipeline.splitting import plan, scan_parts
from kproto.pipeline.stages import chosen_of, gather, learn, relate, write_bodies
from kproto.pipeline.staging import aside, read_bodies
from kproto.pipeline.stitching import Counts, stitch
from kproto.pipeline.tasks import body_bytes_a_task
from kproto.tables import BODIES, scan
from kproto.tables.filters import Filters
from kproto.tables.ids import body_id
from kproto.tables.scanning import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAMES = ("requests", "responses", "partition_errors", "frames", "bodies", "partition_states")


@pytest.fixture
def point(tmp_path: Path) -> CapturePoint:
    """A capture of a real controller, unpacked."""
    packed = next(path for path in CAPTURES if name_of(path) == "ibp-3.9-a")
    path = tmp_path / "control.pcap"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return CapturePoint("control.pcap", (str(path),))


def in_parts(point: CapturePoint, directory: Path) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """The rows that tasks move to the one that joins the parts, and the joined rows."""
    _whole, parts = plan([point], 60_000)
    moved = [batch for part in parts for batch in aside(scan_parts([part], Selection()), directory)]
    order = [(name, "ascending") for name in ("bucket", "key", "part", "item")]
    batches = pa.Table.from_batches(moved).sort_by(order).to_batches(max_chunksize=100)
    return moved, list(stitch(batches, {point.name: point}, Selection(), Counts()))


def tables_of(batches: Iterable[pa.RecordBatch], directory: Path) -> dict[str, list[str]]:
    """The rows of the tables, in an order of their own."""
    filters = Filters()
    piece = gather(batches, directory, filters)
    related, claims = relate(piece.path, directory, learn([piece], filters), filters)
    settled = write_bodies(chosen_of(claims), directory, filters)
    assert settled.bodies == claims.num_rows == len(pc.unique(claims["body_id"]))
    assert piece.body_bytes == pc.sum(claims["bytes"]).as_py()
    found: dict[str, list[str]] = {name: [] for name in NAMES}
    for made in (related, settled):
        for folder, file in ((folder, file) for folder, files in made.files.items() for file in files):
            for row in pq.ParquetFile(f"{folder}/{file}").read().to_pylist():
                if (payload := row.pop("payload", None)) is not None:  # their broker epochs may differ
                    assert row["body_id"] == body_id(row["api_key"], row["api_version"], row["direction"], payload)
                found[file.partition("/")[0]].append(repr(row))
    return {name: sorted(rows) for name, rows in found.items()}


def test_bodies_put_aside_give_the_tables_of_the_capture_read_whole(point: CapturePoint, tmp_path: Path) -> None:
    moved, joined = in_parts(point, tmp_path / "parts")
    assert all(batch.column("payload").null_count == batch.num_rows for batch in moved)
    assert any(batch.column("staged").null_count < batch.num_rows for batch in joined)
    expected = tables_of(scan([point]), tmp_path / "whole")
    assert expected["partition_states"]
    assert tables_of(joined, tmp_path / "parts") == expected


def test_a_row_names_the_place_of_its_own_body(point: CapturePoint, tmp_path: Path) -> None:
    _whole, parts = plan([point], 60_000)
    plain = pa.Table.from_batches([batch for part in parts for batch in scan_parts([part], Selection())])
    payloads = plain["payload"].drop_null().to_pylist()
    moved, _joined = in_parts(point, tmp_path)
    places = [place for batch in moved for place in batch.column("staged").to_pylist() if place is not None]
    assert [place["bytes"] for place in places] == [len(payload) for payload in payloads]
    bodies = [pa.Table.from_batches(read_bodies([place]), BODIES)["payload"].to_pylist() for place in places]
    assert bodies == [[payload] for payload in payloads]


def test_ten_terabytes_take_no_more_receipts_than_the_driver_holds_in_two_gigabytes(
    point: CapturePoint, tmp_path: Path
) -> None:
    terabytes = 10 << 40
    tasks = -(-terabytes // body_bytes_a_task(terabytes))
    assert tasks <= 10_000
    assert body_bytes_a_task(1 << 30) == 32 << 20  # small runs are cut as finely as ever
    filters = Filters()
    piece = gather(scan([point]), tmp_path, filters)
    made, _claims = relate(piece.path, tmp_path, learn([piece], filters), filters)
    sample = pickle.dumps(made)
    tracemalloc.start()
    held = [pickle.loads(sample) for _ in range(200)]
    bytes_each = tracemalloc.get_traced_memory()[0] / len(held) + len(sample)
    tracemalloc.stop()
    assert tasks * bytes_each < 2 << 30
