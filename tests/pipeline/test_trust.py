"""A directory of tables that somebody else made is data: no name, path or link in it leads out of it."""

from __future__ import annotations

import json
import os
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import DATA
from packets import pcap, read_pcap
from table_truth import store
from tasks_here import TasksHere

from kproto.capture.frozen import freeze, thaw
from kproto.errors import ConfigurationError
from kproto.pipeline import analyze
from kproto.pipeline.output import OutputDirectory, move_files
from kproto.pipeline.upkeep import compact, expire
from kproto.query.rollups import roll_up
from kproto.tables.joining import borders_from_bytes, borders_to_bytes
from kproto.tables.recordings import recordings_in
from kproto.tables.stored import current_tables, table_dataset

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
    "facts about brokers elsewhere": lambda facts: facts.update(facts={"default": "../../../precious"}),
    "borders elsewhere": lambda facts: facts.update(borders="../../../precious"),
    "a number of rows that is none": lambda facts: facts["files"].update({next(iter(facts["files"])): True}),
    "fewer rows than none": lambda facts: facts["files"].update({next(iter(facts["files"])): -1}),
    "tables without numbers": lambda facts: facts.update(tables={"requests": "many"}),
    "a day that is none": lambda facts: renamed(facts, "requests/date=2026-13-01/part.parquet"),
    "days that are none": lambda facts: facts.update(watermarks={"default": "tomorrow"}),
    "times that are none": lambda facts: facts.update(spans={"requests/part.parquet": [1]}),
    "no list of recordings": lambda facts: facts.update(recordings={"a": 1}),
    "a base that is none": lambda facts: facts.update(base=["a"]),
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
    """Links of the names of files that are written are refused, and never followed."""
    roll_up(tables)
    day = next((tables / "kproto-rollups").glob("date=*"))
    for place in (day / "brokers.parquet", day / "held.parquet", tables / "kproto-rollups" / "days.json"):
        kept = place.read_bytes()
        place.unlink()
        place.symlink_to(precious)
        with pytest.raises(ConfigurationError, match="is a link to"):
            roll_up(tables)
        place.unlink()
        place.write_bytes(kept)
    assert precious.read_text() == "mine"


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


@pytest.mark.parametrize(
    "place", ["_kproto.json", "kproto-runs/1/{file}", "kproto-runs/1/x", "kproto-rollups/days.json"]
)
@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_what_is_no_file_is_not_read(place: str, kind: str, tables: Path) -> None:
    """A read of a pipe never ends; a directory may hold anything."""
    if place == "kproto-runs/1/x" and kind == "directory":
        return  # nobody reads it
    changed = tables / place.format(file=current_tables(tables).paths("requests")[0])
    changed.unlink(missing_ok=True)
    changed.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(changed)
    else:
        changed.mkdir()
    with pytest.raises((ConfigurationError, IsADirectoryError)):
        roll_up(tables)


@pytest.mark.parametrize("damage", [b"", b"no Parquet at all", b"PAR1" * 100])
def test_a_damaged_file_of_a_table_is_an_error_of_one_line(damage: bytes, tables: Path) -> None:
    (tables / "kproto-runs" / "1" / current_tables(tables).paths("requests")[0]).write_bytes(damage)
    for work in (lambda: compact(OutputDirectory(tables)), lambda: roll_up(tables)):
        with pytest.raises(ConfigurationError, match="cannot be read") as caught:
            work()
        assert "\n" not in str(caught.value)


RECORDING: Change = {
    "id": "1", "capture": "a", "cluster": "default", "place": "/a", "start": "", "start_bytes": 0, "length": 0,
    "size": 0, "tail": "", "has_context": False, "names": {"/a.pcap": [1, 2]},
}  # fmt: skip


@pytest.mark.parametrize(
    "entry",
    [5, [], {}, *(RECORDING | change for change in (
        {"length": -1}, {"length": 1 << 70}, {"length": True}, {"start_bytes": 1 << 40}, {"capture": None},
        {"has_context": 5}, {"names": []}, {"names": {"/a": 5}}, {"more": 1}))],
)  # fmt: skip
def test_an_entry_of_a_recording_that_kproto_does_not_write_is_refused(entry: object) -> None:
    assert recordings_in({"recordings": [RECORDING]})
    with pytest.raises(ConfigurationError, match="the manifest lists no recordings"):
        recordings_in({"recordings": [RECORDING, entry]})


def rotated(folder: Path) -> tuple[Path, Path]:
    """A capture of which a second file goes on."""
    link, packets = read_pcap(DATA / "captures" / "ibp-2.8-a.pcap.gz")
    captures = folder / "control.pcap", folder / "control.pcap1"
    for capture, some in zip(captures, (packets[:300], packets[300:500]), strict=True):
        capture.write_bytes(pcap(some, link))
    return captures


def test_edges_are_read_from_beside_the_tables_alone(tmp_path: Path) -> None:
    """Stored borders name the edges: a name that the manifest does not list is no file of the tables."""
    captures = rotated(tmp_path)
    out = tmp_path / "out"
    analyze(TasksHere(), [str(captures[0])], OutputDirectory(out))  # type: ignore[arg-type]
    facts = current_tables(out).facts
    borders = out / facts["run"] / facts["borders"]
    ends, begins = json.loads(borders.read_bytes())
    edges = next((out / facts["run"]).glob("edges-*")).rename(tmp_path / "edges")
    borders.write_text(json.dumps([[[*end[:3], str(edges), end[4]] for end in ends], begins]))
    analyze(TasksHere(), list(map(str, captures)), OutputDirectory(out))  # type: ignore[arg-type]
    analyze(TasksHere(), list(map(str, captures)), OutputDirectory(tmp_path / "honest"))  # type: ignore[arg-type]
    columns = ["frame_id", "response_frame_id"]
    found, honest = (
        table_dataset(current_tables(each), "requests").to_table(columns=columns).to_pylist()
        for each in (out, tmp_path / "honest")
    )
    assert [row["response_frame_id"] for row in found].count(None) > [r["response_frame_id"] for r in honest].count(
        None
    )


def test_a_state_with_values_of_other_kinds_joins_nothing(tmp_path: Path) -> None:
    captures = rotated(tmp_path)
    out = tmp_path / "out"
    analyze(TasksHere(), [str(captures[0])], OutputDirectory(out))  # type: ignore[arg-type]
    edges = next((out / current_tables(out).facts["run"]).glob("edges-*"))
    state, segments = thaw(edges.read_bytes())
    collector, summary, waiting = thaw(state)
    collector._reassembler = None
    edges.write_bytes(freeze((freeze((collector, summary, waiting)), segments)) or b"")
    run = analyze(TasksHere(), list(map(str, captures)), OutputDirectory(out))  # type: ignore[arg-type]
    assert run.captures_read == 1


END: list[Any] = ["a", "b", ["00" * 12, 1, 2, 3, "", True], "edges-1", "c"]


@pytest.mark.parametrize(
    "content",
    [b"", b"[" * 100_000, b"{}", b"[1, 2]", b"[[1], []]", *(json.dumps([[end], []]).encode() for end in (
        [1, *END[1:]], END[:4], [*END, ""], [*END[:2], END[2][:5], *END[3:]], [*END[:2], ["0", *END[2][1:]], *END[3:]],
        [*END[:2], ["00", *END[2][1:]], *END[3:]], [*END[:2], [END[2][0], "1", *END[2][2:]], *END[3:]],
        [*END[:2], [END[2][0], 1 << 70, *END[2][2:]], *END[3:]], [*END[:3], None, END[4]]))],
)  # fmt: skip
def test_borders_of_other_kinds_are_refused(content: bytes) -> None:
    honest = json.dumps([[END], [["a", "b", "file", END[2], "c", ""]]]).encode()
    assert borders_to_bytes(*borders_from_bytes(honest)) == honest
    with pytest.raises(ValueError, match="no ends and beginnings"):
        borders_from_bytes(content)


def test_states_that_hold_one_another_are_refused_before_they_are_compared() -> None:
    """Sixty tuples that each hold the one before twice: a hash of the last would never end."""
    number = struct.Struct(">I").pack
    pairs = b"".join(b"t" + number(2) + 2 * (b"r" + number(1 + each)) for each in range(60))
    state = b"l" + number(62) + b"t" + number(1) + b"n" + pairs + b"e" + number(1) + b"r" + number(61)
    with pytest.raises(ValueError, match="hold one another too often"):
        thaw(state)


def test_a_directory_of_a_tables_name_is_not_removed(tables: Path) -> None:
    (tables / "requests").mkdir()
    (tables / "requests" / "mine").write_text("mine")
    compact(OutputDirectory(tables))
    assert (tables / "requests" / "mine").read_text() == "mine"
