"""A directory of tables that somebody else made is data: no name, path or link in it leads out of it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import DATA
from table_truth import store

from kproto.errors import ConfigurationError
from kproto.pipeline.output import OutputDirectory, move_files
from kproto.pipeline.upkeep import compact, expire
from kproto.query.rollups import roll_up
from kproto.tables.stored import current_tables

if TYPE_CHECKING:
    from collections.abc import Callable

Change = dict[str, Any]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    path = tmp_path / "out"
    store(path, DATA / "captures" / "ibp-2.8-a.pcap.gz", DATA / "captures" / "ibp-2.8-a.pcap.gz")
    return path


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of the user's beside the tables."""
    file = tmp_path / "precious"
    file.write_text("mine")
    return file


def change(tables: Path, edit: Callable[[Change], object]) -> None:
    manifest = tables / "_kproto.json"
    facts = json.loads(manifest.read_text())
    edit(facts)
    manifest.write_text(json.dumps(facts))


def renamed(facts: Change, name: str) -> None:
    file = next(iter(facts["files"]))
    facts["files"][name] = facts["files"].pop(file)


NAMES = [
    "../../../precious", "requests/../../../../precious", "/etc/passwd", "requests//precious.parquet",
    "requests/date=2026-01-01/../x.parquet", "elsewhere/part.parquet", "requests/.hidden.parquet", "requests/x.txt",
    "requests/date=../part.parquet", "requests", "", "requests/a\0b.parquet",
]  # fmt: skip

ATTACKS: dict[str, Callable[[Change], object]] = {
    **{f"files {name!r}": lambda facts, name=name: renamed(facts, name) for name in NAMES},  # type: ignore[misc]
    **{
        f"run {name!r}": lambda facts, name=name: facts.update(run=name)  # type: ignore[misc]
        for name in ("..", "kproto-runs/..", "kproto-runs/../..", "/tmp", "kproto-runs", "kproto-runs/1/..", "other/1")
    },
    "files beside the tables": lambda facts: facts.update(beside=["../../../precious"]),
    "a table beside the tables": lambda facts: facts.update(beside=["requests"]),
    "no list beside the tables": lambda facts: facts.update(beside={"a": 1}),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_manifest_that_names_files_elsewhere_is_refused(attack: str, tables: Path, precious: Path) -> None:
    change(tables, ATTACKS[attack])
    before = sorted(str(path) for path in tables.rglob("*"))
    for work in (compact, lambda out: expire(out, datetime(2100, 1, 1, tzinfo=UTC)), lambda out: roll_up(out.path)):
        with pytest.raises(ConfigurationError, match="no manifest of kproto"):
            work(OutputDirectory(tables))
    assert precious.read_text() == "mine"
    assert sorted(str(path) for path in tables.rglob("*")) == before


@pytest.mark.parametrize(
    "place",
    ["kproto-runs", "kproto-runs/1", "kproto-runs/1/requests", "kproto-runs/1/{day}", "kproto-runs/1/{file}"],
)
def test_links_among_the_tables_are_not_followed(place: str, tables: Path, tmp_path: Path) -> None:
    file = current_tables(tables).paths("requests")[0]
    linked = tables / place.format(file=file, day=file.rpartition("/")[0])
    other = tmp_path / "other"
    linked.rename(other)
    linked.symlink_to(other)
    there = sorted(str(path) for path in other.rglob("*"))
    for work in (
        lambda: compact(OutputDirectory(tables)),
        lambda: expire(OutputDirectory(tables), datetime(2000, 1, 1, tzinfo=UTC)),
        lambda: current_tables(tables).files("requests"),
    ):
        with pytest.raises(ConfigurationError, match="is a link to"):
            work()
    assert sorted(str(path) for path in other.rglob("*")) == there


@pytest.mark.parametrize("place", ["kproto-rollups", "kproto-rollups/date=2020-01-01"])
def test_rollups_behind_a_link_are_refused_and_stay(place: str, tables: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "date=2020-01-01").mkdir(parents=True)
    (other / "date=2020-01-01" / "mine").write_text("mine")
    linked = tables / place
    linked.parent.mkdir(exist_ok=True)
    linked.symlink_to(other if place == "kproto-rollups" else other / "date=2020-01-01")
    with pytest.raises(ConfigurationError, match="is a link to"):
        roll_up(tables)
    assert (other / "date=2020-01-01" / "mine").read_text() == "mine"


def test_names_that_kproto_will_write_are_no_way_out(tables: Path, precious: Path) -> None:
    """Links of the names of files that are written are replaced, never followed."""
    roll_up(tables)
    day = next((tables / "kproto-rollups").glob("date=*"))
    for name in ("brokers.parquet", "held.parquet", ".brokers.parquet", ".held.parquet"):
        (day / name).unlink(missing_ok=True)
        (day / name).symlink_to(precious)
    (tables / "kproto-rollups" / "days.json").unlink()
    (tables / "kproto-rollups" / ".days.json").symlink_to(precious)
    roll_up(tables)
    assert precious.read_text() == "mine"
    assert not (day / "brokers.parquet").is_symlink()


def test_a_file_that_is_moved_replaces_none(tmp_path: Path, precious: Path) -> None:
    made, run = tmp_path / "made", tmp_path / "run"
    for folder in (made, run):
        (folder / "requests").mkdir(parents=True)
    (made / "requests" / "a.parquet").write_text("new")
    (run / "requests" / "a.parquet").symlink_to(precious)
    with pytest.raises(FileExistsError):
        move_files({"requests/a.parquet": made}, run)
    (run / "requests" / "a.parquet").unlink()
    os.link(precious, run / "requests" / "a.parquet")
    with pytest.raises(FileExistsError):
        move_files({"requests/a.parquet": made}, run)
    assert precious.read_text() == "mine"


def test_a_directory_of_a_tables_name_is_not_removed(tables: Path) -> None:
    (tables / "requests").mkdir()
    (tables / "requests" / "mine").write_text("mine")
    compact(OutputDirectory(tables))
    assert (tables / "requests" / "mine").read_text() == "mine"
