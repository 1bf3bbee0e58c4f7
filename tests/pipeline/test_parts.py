"""Captures that Spark reads in parts give the tables and the summary of the same captures read whole."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest
from packets import pcap, read_pcap
from table_truth import CAPTURES, Analyzed, name_of

from kproto.capture import CapturePoint
from kproto.capture.splits import SplitError
from kproto.pipeline import OutputDirectory, analyze, tasks
from kproto.pipeline.splitting import plan, scan_parts
from kproto.tables import TABLES
from kproto.tables.scanning import Selection

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def analyzed(spark: SparkSession, folder: Path, out: Path, split_bytes: int) -> Analyzed:
    run = analyze(spark, [str(folder)], OutputDirectory(out), split_bytes=split_bytes)
    return Analyzed(out, run, run.summary)


def assert_same(found: Analyzed, expected: Analyzed) -> None:
    for name in TABLES:
        assert _comparable(found, name) == _comparable(expected, name)
    assert found.summary == expected.summary


def _comparable(tables: Analyzed, name: str) -> list[str]:
    rows: list[dict[str, Any]] = tables.rows(name)
    return sorted(repr({key: value for key, value in row.items() if key != "payload"}) for row in rows)


def test_large_and_rotated_captures_are_read_in_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    for path in CAPTURES:
        if name_of(path) in ("ibp-3.9-a", "ibp-3.9-a-lossy"):
            (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a"))
    half = len(packets) // 2
    (folder / "control.pcap").write_bytes(pcap(packets[:half], link))
    (folder / "control.pcap1").write_bytes(pcap(packets[half:], link))
    whole = analyzed(spark, folder, tmp_path / "whole", 0)
    assert whole.run.rows["requests"] > 700
    assert_same(analyzed(spark, folder, tmp_path / "parts", 100_000), whole)
    # As where there is much more: Spark chooses the copies of bodies, and partition histories stay on disk.
    monkeypatch.setattr(tasks, "_CLAIMS_ON_DRIVER", 0)
    monkeypatch.setattr(tasks, "_HISTORY_ROWS", 0)
    monkeypatch.setattr(tasks, "_BODY_BYTES_A_TASK", 50_000)
    monkeypatch.setattr(tasks, "_HISTORY_PARTS", 3)
    assert_same(analyzed(spark, folder, tmp_path / "many", 200_000), whole)


def test_a_capture_that_cannot_be_read_in_parts_is_read_whole(spark: SparkSession, tmp_path: Path) -> None:
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-a"))
    inner = pcap(packets[100:400], link)[24:]
    packets[50] = packets[50]._replace(data=packets[50].data + inner[:200_000], on_wire=300_000)
    folder = tmp_path / "captures"
    folder.mkdir()
    (folder / "nested.pcap").write_bytes(pcap(packets, link))
    _, parts = plan([CapturePoint("nested.pcap", (str(folder / "nested.pcap"),))], 40_000)
    with pytest.raises(SplitError):
        list(scan_parts(parts, Selection()))
    assert_same(analyzed(spark, folder, tmp_path / "parts", 40_000), analyzed(spark, folder, tmp_path / "whole", 0))
