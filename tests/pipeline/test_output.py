"""The output directory: nothing of the user's is lost, tables come whole or not at all, nothing is left behind."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from kproto.errors import ConfigurationError
from kproto.pipeline import OutputDirectory
from kproto.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path


def write(out: OutputDirectory, text: str) -> None:
    """What a run does, in small."""
    with out.writing():
        for name in TABLES:
            (out.staging / name).mkdir()
            (out.staging / name / "part.parquet").write_text(text)
        out.publish({"text": text})


def contents(path: Path) -> dict[str, str]:
    return {str(file.relative_to(path)): file.read_text() for file in path.rglob("*") if file.is_file()}


def test_a_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    write(OutputDirectory(tmp_path / "a" / "b"), "1")
    found = contents(tmp_path / "a" / "b")
    assert set(found) == {"_kproto.json", *(f"{name}/part.parquet" for name in TABLES)}


def test_our_own_tables_are_replaced_and_other_files_beside_them_stay(tmp_path: Path) -> None:
    write(OutputDirectory(tmp_path / "out"), "1")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    (tmp_path / "out" / "requests" / "old.parquet").write_text("gone with its table")
    write(OutputDirectory(tmp_path / "out"), "2")
    found = contents(tmp_path / "out")
    assert found.pop("notes.txt") == "mine"
    assert found.pop("_kproto.json") == '{\n  "text": "2"\n}\n'
    assert set(found.values()) == {"2"}
    assert "requests/old.parquet" not in found


def test_a_directory_with_other_things_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "requests").mkdir()
    (tmp_path / "requests" / "mine.csv").write_text("precious")
    out = OutputDirectory(tmp_path)
    with pytest.raises(ConfigurationError, match=r"holds something else \(requests\).*--overwrite"):
        out.check()
    with pytest.raises(ConfigurationError), out.writing():
        pytest.fail("not to be reached")
    assert contents(tmp_path) == {"requests/mine.csv": "precious"}


def test_overwrite_replaces_tables_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "requests").mkdir()
    (tmp_path / "requests" / "mine.csv").write_text("precious")
    (tmp_path / "thesis.txt").write_text("precious")
    write(OutputDirectory(tmp_path, overwrite=True), "1")
    found = contents(tmp_path)
    assert found["thesis.txt"] == "precious"
    assert "requests/mine.csv" not in found
    assert found["requests/part.parquet"] == "1"


def test_a_failed_run_leaves_the_old_tables_as_they_were(tmp_path: Path) -> None:
    write(OutputDirectory(tmp_path / "out"), "1")
    before = contents(tmp_path / "out")
    out = OutputDirectory(tmp_path / "out")
    with pytest.raises(FileNotFoundError), out.writing():
        (out.staging / "requests" / "part.parquet").write_text("2")
    assert contents(tmp_path / "out") == before
    assert not out.staging.exists()


def test_a_failed_first_run_leaves_nothing(tmp_path: Path) -> None:
    out = OutputDirectory(tmp_path / "out")
    with pytest.raises(RuntimeError), out.writing():
        raise RuntimeError("interrupted")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_cleared_away(tmp_path: Path) -> None:
    out = OutputDirectory(tmp_path / "out")
    (out.staging / "requests").mkdir(parents=True)
    (out.staging / "requests" / "half.parquet").write_text("half")
    out.check()  # what is left of us does not count as somebody else's
    write(out, "1")
    assert not out.staging.exists()
    assert set(contents(tmp_path / "out").values()) == {"1", '{\n  "text": "1"\n}\n'}


def test_a_second_writer_is_told_to_wait(tmp_path: Path) -> None:
    out = OutputDirectory(tmp_path / "out")
    with out.writing():
        (out.staging / "requests").mkdir()
        other = OutputDirectory(tmp_path / "out")
        with pytest.raises(ConfigurationError, match="another kproto is writing"), other.writing():
            pytest.fail("not to be reached")
        assert (out.staging / "requests").is_dir()


def test_the_directory_is_free_again_afterwards(tmp_path: Path) -> None:
    write(OutputDirectory(tmp_path / "out"), "1")
    descriptor = os.open(tmp_path / "out", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigurationError, match="is a file"):
        OutputDirectory(tmp_path / "out").check()
