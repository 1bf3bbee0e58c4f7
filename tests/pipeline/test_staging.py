"""Bodies that are put aside while parts are read are those of the capture read whole, each staged and written once."""

import gzip
import pickle
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from table_truth import CAPTURES, body_id, name_of

from kproto.capture import CapturePoint
from kproto.pipeline import stages
from kproto.pipeline.stages import chosen_of, gather, learn, relate, write_bodies
from kproto.pipeline.tasks import body_bytes_a_task
from kproto.tables import read, scan, schemas
from kproto.tables.filters import Filters

NAMES = ("requests", "responses", "partition_errors", "frames", "bodies", "partition_states")


@pytest.fixture
def point(tmp_path: Path) -> CapturePoint:
    """A capture of a real controller, unpacked."""
    packed = next(path for path in CAPTURES if name_of(path) == "ibp-3.9-a")
    path = tmp_path / "control.pcap"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return CapturePoint("control.pcap", (str(path),))


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


def test_a_piece_gives_the_tables_of_the_capture(point: CapturePoint, tmp_path: Path) -> None:
    expected = read(point.files[0])
    found = tables_of(scan([point]), tmp_path)
    assert {name: len(rows) for name, rows in found.items()} == {name: expected[name].num_rows for name in NAMES}


def test_bodies_of_one_batch_are_staged_in_many(
    point: CapturePoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As bodies above 8 MiB are."""
    expected = tables_of(scan([point]), tmp_path / "in one")
    monkeypatch.setattr(stages, "BATCH_BYTES", 1 << 12)
    assert tables_of(scan([point]), tmp_path / "in many") == expected
    (bodies,) = (tmp_path / "in many").glob("piece-*/bodies.arrow")
    assert pa.ipc.open_file(bodies).num_record_batches > 10


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


def test_all_counts_of_the_parts_of_a_file_add_up() -> None:
    """And what was not read, by its protocol."""
    row = dict.fromkeys(schemas.COUNTS, 1) | {"cluster": "default", "capture": "a", "file": "a.pcap", "losses": []}
    row |= {"not_read": [{"protocol": "WireGuard", "packets": 2}], "all_requests": []}
    merged = stages.merged_rows("captures", pa.Table.from_pylist([row, row], schemas.CAPTURES)).to_pylist()
    assert [{name: each[name] for name in schemas.COUNTS} for each in merged] == [dict.fromkeys(schemas.COUNTS, 2)]
    assert merged[0]["not_read"] == [{"protocol": "WireGuard", "packets": 4}]
