"""A directory of tables that somebody else made is data: no name, path or link in it leads out of it."""

import json
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kraft_runs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run_kproto
from conftest import DATA, few
from hypothesis import given, settings
from hypothesis import strategies as st
from packets import pcap, read_pcap
from state_runs import files_of
from table_truth import CAPTURES, store
from tasks_here import TasksHere

from kproto.capture.borders import Border
from kproto.capture.frozen import freeze, thaw
from kproto.errors import ConfigurationError, KprotoError
from kproto.logs.reading import LogReading
from kproto.pipeline import analyze, unchanged
from kproto.pipeline.output import OutputDirectory, move_files
from kproto.pipeline.upkeep import compact, expire
from kproto.query.rollups import roll_up
from kproto.tables import read
from kproto.tables.filters import Filters
from kproto.tables.joining import Edge, border_rows, borders_of
from kproto.tables.known import KnownTable
from kproto.tables.recordings import Recording
from kproto.tables.schemas import KNOWN
from kproto.tables.stored import (
    checked_run,
    current_tables,
    read_parquet,
    reader_of,
    require_rows,
    stored_pieces,
    table_dataset,
)

Change = dict[str, Any]

KNOWN_OF_CAPTURES = [name for name in KNOWN if name != "known_batches"]


@pytest.fixture(scope="module")
def stored_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "out"
    store(path, DATA / "captures" / "ibp-2.8-a.pcap.gz", DATA / "captures" / "ibp-2.8-a.pcap.gz")
    return path


@pytest.fixture
def tables(tmp_path: Path, stored_once: Path) -> Path:
    return shutil.copytree(stored_once, tmp_path / "out")


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

RUNS: list[object] = [
    "..", "kproto-runs/..", "kproto-runs/../..", "/tmp", "kproto-runs", "kproto-runs/1/..", "other/1",
    "kproto-runs/a\nb", "x" * 10_000, None, 7, ["kproto-runs/1"],
]  # fmt: skip

ATTACKS: dict[str, Callable[[Change], object]] = {
    **{f"files {name!r}": lambda facts, name=name: renamed(facts, name) for name in NAMES},  # type: ignore[misc]
    **{f"run {name!r:.40}": lambda facts, name=name: facts.update(run=name) for name in RUNS},  # type: ignore[misc]
    "files beside the tables": lambda facts: facts.update(beside=["../../../precious"]),
    "a table beside the tables": lambda facts: facts.update(beside=["requests"]),
    "no list beside the tables": lambda facts: facts.update(beside={"a": 1}),
    "facts about brokers elsewhere": lambda facts: facts.update(facts={"default": "../../../precious"}),
    "an unknown table of what is known": lambda facts: renamed(facts, "known_secrets/1.parquet"),
    "days of what is known": lambda facts: renamed(facts, "known_names/date=2026-01-01/1.parquet"),
    "what is known beside the tables": lambda facts: facts.update(beside=["known_names"]),
    "a number of rows that is none": lambda facts: facts["files"].update({next(iter(facts["files"])): True}),
    "fewer rows than none": lambda facts: facts["files"].update({next(iter(facts["files"])): -1}),
    "tables without numbers": lambda facts: facts.update(tables={"requests": "many"}),
    "a day that is none": lambda facts: renamed(facts, "requests/date=2026-13-01/part.parquet"),
    "days that are none": lambda facts: facts.update(watermarks={"default": "tomorrow"}),
    "times that are none": lambda facts: facts.update(spans={"requests/part.parquet": [1]}),
    "a base that is none": lambda facts: facts.update(base=["a"]),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_manifest_that_names_files_elsewhere_is_refused(attack: str, tables: Path, precious: Path) -> None:
    change(tables, ATTACKS[attack])
    before = sorted(str(path) for path in tables.rglob("*"))
    for work in (compact, lambda out: expire(out, datetime(2100, 1, 1, tzinfo=UTC)), lambda out: roll_up(out.path)):
        with pytest.raises(ConfigurationError, match="no manifest of kproto") as caught:
            work(OutputDirectory(tables))
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 2000
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


def test_a_file_of_another_table_is_an_error_of_one_line(tables: Path) -> None:
    stored = current_tables(tables)
    requests, frames = (Path(str(stored.files(name)[0])) for name in ("requests", "frames"))
    requests.write_bytes(frames.read_bytes())
    for work in (compact, lambda out: expire(out, datetime(2000, 1, 1, tzinfo=UTC))):
        with pytest.raises(ConfigurationError, match="has no column") as caught:
            work(OutputDirectory(tables))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "column"), few([("partition_states", "isr"), ("captures", "losses"), ("requests", "ts")], 1)
)
def test_a_column_of_another_type_is_an_error_of_one_short_line(name: str, column: str, tables: Path) -> None:
    file = current_tables(tables).files(name)[0]
    table = pq.read_table(file, partitioning=None)
    texts = pa.array(["/" * 10_000] * table.num_rows)
    for changed in (
        table.set_column(table.schema.get_field_index(column), column, texts),
        table.append_column(column, table[column]),
    ):
        pq.write_table(changed, file)
        for work in (lambda: checked_run(tables), lambda: compact(OutputDirectory(tables))):
            with pytest.raises(ConfigurationError, match=f"has a column {column} of another type") as caught:
                work()
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "column"), [("partition_states", "topic"), ("captures", "file"), ("requests", "cluster")]
)
def test_a_text_that_is_not_utf_8_is_an_error_of_one_line(name: str, column: str, tables: Path) -> None:
    stored = current_tables(tables)
    for file in stored.files(name):
        table = pq.read_table(file, partitioning=None)
        texts = pa.array([b"\xff\xfe"] * table.num_rows, pa.binary()).view(pa.string())
        pq.write_table(table.set_column(table.schema.get_field_index(column), table.schema.field(column), texts), file)
    columns = {name: [column]}
    for work in (
        lambda: read_parquet(file), lambda: list(reader_of(stored)(name, [column])),
        lambda: list(stored_pieces(stored, columns)), lambda: compact(OutputDirectory(tables)),
        *([lambda: roll_up(tables)] if name == "partition_states" else []),
    ):  # fmt: skip
        with pytest.raises((ConfigurationError, pa.ArrowInvalid), match="UTF8") as caught:
            work()
        assert "\n" not in str(caught.value)


def test_files_without_statistics_are_joined(tables: Path) -> None:
    for file in current_tables(tables).files("frames"):
        pq.write_table(pq.read_table(file, partitioning=None), file, write_statistics=False)
    rows = current_tables(tables).counts()
    compact(OutputDirectory(tables))
    assert current_tables(tables).counts() == rows


@pytest.mark.parametrize("us", [-(1 << 63), (1 << 63) - 1, 253_402_300_800_000_000])
@pytest.mark.parametrize("name", few(["captures", "requests", "frames"], 2))
def test_a_time_beyond_the_years_is_an_error_of_one_line(name: str, us: int, tables: Path) -> None:
    file = current_tables(tables).files(name)[0]
    table = pq.read_table(file, partitioning=None)
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            times = pa.array([us] * table.num_rows).cast(field.type, safe=False)
            pq.write_table(table.set_column(place, field, times), file)
            with pytest.raises(ConfigurationError, match="has a time outside the years") as caught:
                list(reader_of(current_tables(tables))(name, [field.name]))
            assert "\n" not in str(caught.value)


def with_null(table: pa.Table, path: str) -> pa.Table:
    """A table in whose last row a column, or what is in it, is null."""

    def emptied(value: Any, names: list[str]) -> Any:
        if not names:
            return None
        if isinstance(value, list):
            return [emptied(each, names) for each in value]
        return value | {names[0]: emptied(value[names[0]], names[1:])}

    column, *inside = path.replace("[]", "").split(".")
    place = table.schema.get_field_index(column)
    values = table[column].to_pylist()
    values[-1] = [None] if path.endswith("[]") else emptied(values[-1], inside)
    return table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("captures", "capture"), ("captures", "file"), ("captures", "losses"), ("captures", "servers[].ip"),
        ("requests", "server_ip"), ("requests", "ts"), ("frames", "flow.src_ip"), ("partition_states", "leader"),
        ("partition_states", "isr[]"), ("live_brokers", "broker_id"),
    ],
)  # fmt: skip
def test_a_null_that_kproto_does_not_write_is_an_error_of_one_line(name: str, path: str, tables: Path) -> None:
    stored, column = current_tables(tables), path.partition("[")[0].partition(".")[0]
    file = stored.files(name)[0]
    table = pq.read_table(file, partitioning=None)
    if name == "partition_states":
        table = table.sort_by("api_key")  # the last row is of UpdateMetadata
    pq.write_table(with_null(table, path), file)
    columns = {"partition_states": ["api_key"]}
    columns[name] = [*columns.get(name, []), column]
    for work in (
        lambda: list(reader_of(stored)(name, columns[name])), lambda: list(stored_pieces(stored, columns)),
        lambda: read_parquet(file), lambda: compact(OutputDirectory(tables)),
    ):  # fmt: skip
        with pytest.raises((ConfigurationError, pa.ArrowInvalid), match="has a null in") as caught:
            work()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "name", "path"),
    [
        (["doctor"], "captures", "losses"), (["query", "events"], "requests", "ts"),
        (["query", "leader"], "partition_states", "leader"), (["report", "--out", "page.html"], "captures", "file"),
        (["tables", "expire", "--before", "2026-11-21"], "captures", "file"), (["tables", "compact"], "frames", "ts"),
    ],
)  # fmt: skip
def test_commands_say_of_a_null_what_to_try(
    command: list[str], name: str, path: str, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tables.parent)
    for file in current_tables(tables).files(name):
        table = pq.read_table(file, partitioning=None)
        pq.write_table(with_null(table.sort_by("api_key") if name == "partition_states" else table, path), file)
    words = command[:2] if command[0] == "tables" else command[:1]
    told = run_kproto(*words, tables, *command[len(words) :])
    assert told.exit_code == 2
    assert re.fullmatch(
        r"kproto: [^\n]* has a null in [^\n]*; make the tables again: kproto analyze [^\n]*\n", told.stderr
    )


@pytest.mark.parametrize(
    "source", ["ibp-2.4-IV1-a", "kraft-4.1-c", *few(CAPTURES, 2)], ids=lambda source: Path(source).name
)
def test_kproto_writes_no_null_where_it_says_that_there_is_none(source: Path | str, tmp_path: Path) -> None:
    sources: list[Path] = [source] if isinstance(source, Path) else []
    if isinstance(source, str) and source.startswith("kraft"):
        sources = [kraft_runs.capture(source), kraft_runs.metadata(source)]
    elif isinstance(source, str):
        for number, (name, data) in enumerate(files_of(source).items()):
            if name.endswith(".log"):
                (tmp_path / f"{number}.log").write_bytes(data)
        sources = [tmp_path]
    filters = Filters(logs=LogReading(zone="UTC"))
    for name, table in read(*map(str, sources), filters=filters).items():
        for batch in table.to_batches():
            require_rows(name, batch)


VALUES = [
    None, True, -1, 1 << 64, 10**400, 0.5, float("nan"), float("inf"), "", "..", "../../../precious", "/etc/passwd",
    "x" * 10_000, "a\0", "\ud800", "a\nb", [], [[1]], {"a": 1}, "2026-13-01", [None] * 3,
]  # fmt: skip


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all that a JSON value holds."""
    yield path
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from leaves(each, (*path, key))


@pytest.mark.slow
@settings(max_examples=15)
@given(name=st.sampled_from(["_kproto.json", "days.json", "brokers-*"]), draw=st.data())
def test_whatever_a_leaf_says_nothing_outside_is_touched(
    name: str, draw: st.DataObject, begun_once: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = shutil.copytree(begun_once, tmp_path_factory.mktemp("leaf") / "begun", symlinks=True)
    tables, second = folder / "out", str(folder / "control.pcap1")
    (folder / "precious").write_text("mine")
    roll_up(tables)
    file = next(tables.rglob(name))
    said = [json.loads(file.read_text())]
    *path, last = draw.draw(st.sampled_from(list(leaves(said))[1:]))
    holder: Any = said
    for key in path:
        holder = holder[key]
    holder[last] = draw.draw(st.sampled_from(VALUES))
    file.write_text(json.dumps(said[0]))
    there = {each.name for each in folder.iterdir()}
    told: list[str] = []
    for work in (
        lambda out: analyze(TasksHere(), [second], out),  # type: ignore[arg-type]
        compact, lambda out: expire(out, datetime(2026, 12, 30, tzinfo=UTC)), lambda out: roll_up(out.path),
    ):  # fmt: skip
        try:
            work(OutputDirectory(tables))
        except (KprotoError, OSError) as e:
            told.append(str(e))
    assert all("\n" not in each and len(each) < 2000 for each in told)
    assert (folder / "precious").read_text() == "mine"
    assert {each.name for each in folder.iterdir()} == there


def many_rows(table: pa.Table) -> pa.Table:
    return table.take(pa.array([0] * 300_000))


def a_long_text(table: pa.Table) -> pa.Table:
    place = next(n for n, field in enumerate(table.schema) if pa.types.is_string(field.type))
    texts = pa.array(["x" * (100 << 20)] * table.num_rows, pa.string())
    return table.set_column(place, table.schema.field(place), texts)


@pytest.mark.parametrize(
    ("more", "name"),
    few(
        [(many_rows, "requests"), (many_rows, "captures"), (a_long_text, "partition_states"), (a_long_text, "captures")]
    ),
)
def test_a_small_file_that_would_fill_the_memory_is_refused_in_one_line(
    more: Callable[[pa.Table], pa.Table], name: str, tables: Path
) -> None:
    file = current_tables(tables).paths(name)[0]
    path = tables / "kproto-runs" / "1" / file
    table = more(pq.read_table(path, partitioning=None).slice(0, 1))
    pq.write_table(table, path, compression="zstd")
    change(tables, lambda facts: facts["files"].update({file: table.num_rows}))
    usual, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        for read in (checked_run, lambda _tables: read_parquet(path)):
            with pytest.raises((ConfigurationError, pa.ArrowInvalid), match="more than") as caught:
                read(tables)
            assert "\n" not in str(caught.value)
    finally:
        pa.set_memory_pool(usual)
    assert pool.max_memory() < 10 << 20


RECORDING: dict[str, Any] = {
    "id": "1", "capture": "a", "cluster": "default", "place": b"/a", "start": "", "start_bytes": 0, "length": 0,
    "size": 0, "tail": "", "has_context": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"length": -1}, {"start_bytes": 1 << 40}, {"capture": None}, {"has_context": None}, {"size": None}],
)
def test_a_recording_that_kproto_does_not_write_is_refused(change: dict[str, Any]) -> None:
    assert Recording.of_row(dict(RECORDING)).place == "/a"
    with pytest.raises(ConfigurationError, match="the tables know of a recording what kproto does not write"):
        Recording.of_row(RECORDING | change)


@pytest.fixture(scope="module")
def begun_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    analyze(TasksHere(), [str(rotated(folder)[0])], OutputDirectory(folder / "out"))  # type: ignore[arg-type]
    return folder


@pytest.fixture
def begun(tmp_path: Path, begun_once: Path) -> tuple[Path, Path]:
    """Tables of the first file of a rotated capture, and the file that goes on."""
    folder = shutil.copytree(begun_once, tmp_path / "begun")
    return folder / "out", folder / "control.pcap1"


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
    stored = current_tables(out)
    edges = next(stored.run.glob("edges-*")).rename(tmp_path / "edges")
    (file,) = stored.files("known_borders")
    table = pq.read_table(file, partitioning=None)
    for name in ("state", "edges"):
        elsewhere = pa.array([str(edges)] * table.num_rows)
        table = table.set_column(table.schema.get_field_index(name), name, elsewhere)
    pq.write_table(table, file)
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


@pytest.mark.parametrize("name", ["_kproto.json", "brokers-*", "edges-*"])
def test_a_hole_that_would_fill_the_memory_is_not_read(name: str, begun: tuple[Path, Path]) -> None:
    out, second = begun
    os.truncate(next(out.rglob(name)), 8 << 40)
    is_lost = name == "edges-*"  # and with it the frames across this border alone
    with nullcontext() if is_lost else pytest.raises(ConfigurationError, match=r"^[^\n]*larger than[^\n]*$"):
        assert analyze(TasksHere(), [str(second)], OutputDirectory(out)).captures_read == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["seconds", "bodies_decoded"])
def test_a_manifest_without_the_figures_of_its_run_tells_none(name: str, begun: tuple[Path, Path]) -> None:
    out, second = begun
    first = str(second.with_name("control.pcap"))
    analyze(TasksHere(), [first], OutputDirectory(out))  # type: ignore[arg-type]  # it is known by this name, too
    change(out, lambda facts: facts.pop(name))
    found = unchanged([first], OutputDirectory(out))
    assert getattr(found, name) == 0


@pytest.mark.parametrize("number", ["Infinity", "1e400", str(1 << 40), "7.5"])
def test_brokers_of_no_number_are_an_error_of_one_line(number: str, begun: tuple[Path, Path]) -> None:
    out, second = begun
    file = next(out.rglob("brokers-*"))
    said = json.loads(file.read_text())
    said["lists"][0][0][0] = "number"
    file.write_text(json.dumps(said).replace('"number"', number))
    with pytest.raises(ConfigurationError, match="is damaged") as caught:
        analyze(TasksHere(), [str(second)], OutputDirectory(out))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"flow": b"00"}, {"sequence": None}, {"edges": None}, {"conn_id": None},
        {"place": None}, {"is_end": None},
    ],
)  # fmt: skip
def test_borders_that_kproto_does_not_write_are_lost(change: dict[str, Any]) -> None:
    border = Border(bytes(12), (1, 2), 3, b"", True)
    rows = border_rows([Edge("a", "b", border, "c", state="edges-1")], [Edge("a", "b", border, "c", file="file")])
    assert border_rows(*borders_of(rows)) == rows
    changed = pa.Table.from_pylist([row | change for row in rows.to_pylist()], rows.schema)
    assert borders_of(changed) == ([], [])


@pytest.mark.parametrize("name", few(KNOWN_OF_CAPTURES, 2))
@pytest.mark.parametrize("damage", [b"", b"no Parquet at all", pa.table({"a": [1]}), "wrong kinds"])
def test_a_damaged_table_of_what_is_known_is_an_error_of_one_line(
    name: str, damage: Any, begun: tuple[Path, Path]
) -> None:
    out, second = begun
    (file,) = current_tables(out).files(name)
    if isinstance(damage, bytes):
        Path(str(file)).write_bytes(damage)
    elif isinstance(damage, str):
        pq.write_table(pa.table({column: [{"a": 1}] for column in KNOWN[name].names}), file)
    else:
        pq.write_table(damage, file)
    with pytest.raises(ConfigurationError) as caught:
        analyze(TasksHere(), [str(second)], OutputDirectory(out))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


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


def test_what_connections_went_on_with_is_forgotten_with_their_days(tmp_path: Path) -> None:
    """Else each connection that was ever seen would stay: those of the day before the first that stays may go on."""
    captures, out = rotated(tmp_path), OutputDirectory(tmp_path / "out")
    analyze(TasksHere(), [str(captures[0])], out)  # type: ignore[arg-type]
    borders = KnownTable(current_tables(out.path), "known_borders").all()
    last = datetime.fromtimestamp(max(borders["time_ns"].to_pylist()) / 1e9, UTC)

    def left() -> set[str]:
        stored = current_tables(out.path)
        files = {file.name for file in Path(str(stored.run)).glob("edges-*")}
        assert files == {name for name in stored.facts["beside"] if name.startswith("edges-")}
        assert files == set(KnownTable(stored, "known_borders").all()["edges"].to_pylist())
        return files

    before = left()
    assert before
    expire(out, last + timedelta(days=1))
    assert left() == before
    expire(out, last + timedelta(days=2))
    assert not left()
    assert analyze(TasksHere(), list(map(str, captures)), out).captures_read == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("name", KNOWN_OF_CAPTURES)
def test_a_missing_table_of_what_is_known_is_named_in_one_line(name: str, begun: tuple[Path, Path]) -> None:
    out, second = OutputDirectory(begun[0]), begun[1]
    for file in current_tables(out.path).files(name):
        Path(str(file)).unlink()
    if name in ("known_recordings", "known_names"):  # as where another run has just written other ones
        assert unchanged([str(second.with_name("control.pcap"))], out) is None
    with pytest.raises(FileNotFoundError, match=name) as caught:
        analyze(TasksHere(), [str(second)], out)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
