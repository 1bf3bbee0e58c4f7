"""Captures are named by path, pattern or URI; each is listed and opened wherever it is asked for."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from table_truth import CAPTURES

from kproto.capture import capture_points
from kproto.errors import CaptureError, ConfigurationError
from kproto.tables import SCAN, scan
from kproto.tables.files import expand, file_size, open_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "day one").mkdir()
    for name in ("a.pcap", "b.pcap", "day one/c.pcap", ".hidden"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def test_patterns_and_uris_name_files(folder: Path) -> None:
    assert expand([f"{folder}/*.pcap"]) == [str(folder / "a.pcap"), str(folder / "b.pcap")]
    assert expand([f"{folder}/*/c.pcap"]) == [str(folder / "day one" / "c.pcap")]
    assert expand([str(folder)]) == [str(folder)]
    uri = f"file://{folder}"
    assert expand([uri]) == [f"{uri}/a.pcap", f"{uri}/b.pcap"]
    assert expand([f"{uri}/b*"]) == expand([f"{uri}/b.pcap"]) == [f"{uri}/b.pcap"]
    assert expand([f"{uri}/*/c.pcap"]) == [f"{uri}/day one/c.pcap"]


def test_a_uri_is_opened_as_the_path_is(folder: Path) -> None:
    for name in (str(folder / "a.pcap"), f"file://{folder}/a.pcap", f"file://{folder}/day one/c.pcap"):
        with open_file(name) as file:
            file.seek(-4, 2)
            assert file.read(100) == b"pcap"
        assert file_size(name) == len(name.removeprefix(f"file://{folder}/").removeprefix(f"{folder}/"))


@pytest.mark.parametrize("path", ["{}/*.nothing", "file://{}/*.nothing", "file://{}/nothing"])
def test_what_is_not_there_is_named(path: str, folder: Path) -> None:
    with pytest.raises(CaptureError, match="noth"):
        expand([path.format(folder)])


def test_an_unknown_scheme_is_told_with_those_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match=r"nosuch://a/: pyarrow knows no such scheme; it opens file, s3"):
        expand(["nosuch://a/b"])


def test_rotated_captures_are_found_and_read_by_uri(tmp_path: Path) -> None:
    data = gzip.decompress(CAPTURES[0].read_bytes())
    (tmp_path / "control.pcap").write_bytes(data)
    by_path = capture_points([tmp_path])
    by_uri = capture_points(expand([f"file://{tmp_path}"]), opener=open_file)
    assert [point.name for point in by_uri] == [point.name for point in by_path] == ["control.pcap"]
    expected = pa.Table.from_batches(scan(by_path), SCAN)
    assert pa.Table.from_batches(scan(by_uri), SCAN).equals(expected)
    assert expected.num_rows > 100
