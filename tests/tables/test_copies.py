"""A packet counts once, whatever files hold it: copies, packed, cut, joined and overlapping files add nothing."""

import gzip
import os
import random
import shutil
import struct
from pathlib import Path

import pytest
from conftest import DATA, few
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kproto.capture import capture_points, exchanges
from kproto.tables import chunks, read

LABELS = {"conn_id", "capture", "file", "cluster"}
NAMES = ("requests", "responses", "partition_errors", "partition_states", "live_brokers", "bodies")


def rows(tables: dict) -> dict[str, set]:
    return {
        name: {
            repr(sorted((column, value) for column, value in row.items() if column not in LABELS))
            for row in tables[name].to_pylist()
        }
        for name in NAMES
    }


def counts(tables: dict) -> dict[str, int]:
    return {name: tables[name].num_rows for name in NAMES}


def records(path: Path) -> tuple[bytes, list[bytes]]:
    """The header and the packets of a pcap."""
    data = path.read_bytes()
    order = "<" if data[:1] in (b"\xd4", b"\x4d") else ">"
    at, found = 24, []
    while at < len(data):
        end = at + 16 + struct.unpack_from(order + "I", data, at + 8)[0]
        found.append(data[at:end])
        at = end
    return data[:24], found


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("copies") / "control.pcap"
    source = next(DATA.rglob("ibp-2.8-a.pcap*"))
    data = source.read_bytes()
    path.write_bytes(gzip.decompress(data) if source.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("how", few(["copy", "gz", "hard link", "link"], 2))
def test_a_copy_of_a_file_adds_nothing_and_is_not_read(how: str, capture: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "control.pcap", tmp_path / "other.pcap"
    shutil.copy(capture, first)
    match how:
        case "copy":
            shutil.copy(first, second)
        case "gz":
            second = tmp_path / "control.pcap.gz"
            second.write_bytes(gzip.compress(first.read_bytes()))
        case "hard link":
            os.link(first, second)
        case _:
            second.symlink_to(first)
    alone, both = read(first), read(second, first)
    assert rows(both) == rows(alone)
    assert counts(both) == counts(alone)
    assert len(capture_points([tmp_path])) == 1
    assert sum(1 for _ in exchanges([first, second])) == sum(1 for _ in exchanges(first))


@pytest.mark.slow
@settings(max_examples=8)
@example(seed=288226)  # the last file read ends before the end of a connection that the whole shows
@given(seed=st.integers(0, 1 << 32))
def test_files_that_overlap_in_any_way_give_the_rows_of_the_whole(
    seed: int, capture: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chosen = random.Random(seed)
    folder = tmp_path_factory.mktemp("parts")
    head, packets = records(capture)
    whole = read(capture)
    files = [folder / "whole.pcap"]
    shutil.copy(capture, files[0])
    for number in range(chosen.randint(1, 3)):
        begin, end = sorted(chosen.sample(range(len(packets) + 1), 2))
        files.append(folder / f"{chosen.choice('abc')}{number}-part.pcap")
        files[-1].write_bytes(head + b"".join(packets[begin:end]))
    chosen.shuffle(files)
    found = read(*files)
    assert rows(found) == rows(whole)
    assert counts(found) == counts(whole)
    pieces = [*chunks([str(file) for file in files], chunk_bytes=50_000)]
    ids = [row for piece in pieces for row in piece["requests"]["frame_id"].to_pylist()]
    assert sorted(ids) == sorted(whole["requests"]["frame_id"].to_pylist())
    answered = [row for piece in pieces for row in piece["requests"]["response_frame_id"].to_pylist()]
    assert answered.count(None) == whole["requests"]["response_frame_id"].null_count
