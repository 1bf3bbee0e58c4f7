"""The tables are a function of the packets that were ever named: no name, order, split, packing or deletion counts."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest
from conftest import few
from packets import Packet, enhanced, interface, pcap, read_pcap, section
from table_truth import CAPTURES, name_of
from tasks_here import TasksHere

from kproto.pipeline import OutputDirectory, analyze, follow, unchanged
from kproto.pipeline.upkeep import compact, expire
from kproto.tables import read, recordings, scanning
from kproto.tables.files import open_file
from kproto.tables.stored import current_tables, table_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kproto.pipeline import Run

LABELS = {"conn_id", "capture", "file", "cluster", "payload"}  # payload: that of any broker, of equal bodies
RELATED = ("requests", "responses", "partition_errors", "partition_states", "bodies", "live_brokers")
LINK, PACKETS = read_pcap(next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a"))
HOUR = 3600 * 1_000_000_000


def rows(tables: Any, names: Sequence[str] = RELATED) -> dict[str, list[str]]:
    """The rows of tables in an order of their own, without labels."""
    found = {}
    for name in names:
        table = tables[name] if isinstance(tables, dict) else table_dataset(current_tables(tables), name).to_table()
        columns = [column for column in table.column_names if column not in LABELS and column != "date"]
        found[name] = sorted(map(repr, table.select(sorted(columns)).to_pylist()))
    return found


def write(path: Path, packets: list[Packet]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = pcap(packets, LINK)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def later(packets: list[Packet], ns: int) -> list[Packet]:
    return [Packet(packet.time_ns + ns, packet.data, packet.on_wire) for packet in packets]


def pieces(count: int, packets: list[Packet] = PACKETS) -> list[list[Packet]]:
    return [packets[len(packets) * n // count : len(packets) * (n + 1) // count] for n in range(count)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return rows(read(write(tmp_path_factory.mktemp("whole") / "control.pcap", PACKETS)))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "tables"


@pytest.fixture
def run(out: Path) -> Callable[..., Run]:
    def made(*captures: Path, **options: Any) -> Run:
        return analyze(TasksHere(), [str(path) for path in captures], OutputDirectory(out), **options)  # type: ignore[arg-type]

    return made


Step = tuple["list[Path]", "dict[str, Any]"]
"""What a run is given: files or directories, and options."""

SHORT = PACKETS[:500]


def newest_alone(names: Sequence[str], *, stay: bool = False) -> Callable[[Path], Iterator[Step]]:
    """A job that names only the newest file of a rotated capture; the others are deleted, or stay."""

    def way(folder: Path) -> Iterator[Step]:
        for name, packets in zip(names, pieces(len(names), SHORT), strict=True):
            file = write(folder / name, packets)
            yield [file], {}
            if not stay:
                file.unlink()

    return way


def names_that_come_back(folder: Path) -> Iterator[Step]:
    """As tcpdump -W gives them; the directory is named."""
    for number, packets in enumerate(pieces(3, SHORT)):
        write(folder / f"control.pcap{number % 2}", packets)
        yield [folder], {}


def logrotate(folder: Path) -> Iterator[Step]:
    """Each file moves on by a number, and is packed then."""
    for packets in pieces(3, SHORT):
        for number in (2, 1):
            if (file := folder / f"control.pcap.{number}.gz").exists():
                file.rename(folder / f"control.pcap.{number + 1}.gz")
        if (newest := folder / "control.pcap").exists():
            (folder / "control.pcap.1.gz").write_bytes(gzip.compress(newest.read_bytes()))
        write(newest, packets)
        yield [folder], {}


def labelled_later(folder: Path) -> Iterator[Step]:
    first = write(folder / "control.pcap", SHORT)
    for options in ({}, {"cluster": "east"}, {"capture_point": "here"}, {"cluster": "west", "capture_point": "there"}):
        yield [first], options


def overwritten(folder: Path) -> Iterator[Step]:
    for packets in pieces(3, SHORT):
        yield [write(folder / "control.pcap", packets)], {}


def renamed_in_with_an_old_time(folder: Path) -> Iterator[Step]:
    for number, packets in enumerate(pieces(3, SHORT)):
        arrived = write(folder.with_name("arriving") / f"{number}.pcap", packets)
        os.utime(arrived, (0, 0))
        folder.mkdir(exist_ok=True)
        arrived.rename(folder / arrived.name)
        yield [folder], {}


def joined(folder: Path) -> Iterator[Step]:
    """Parts, and then one file of all."""
    yield [write(folder / f"{number}.pcap", packets) for number, packets in enumerate(pieces(3, SHORT))], {}
    yield [write(folder / "all.pcap", SHORT)], {}


def split(folder: Path) -> Iterator[Step]:
    """One file, and then its parts, which end elsewhere and overlap."""
    yield [write(folder / "all.pcap", SHORT)], {}
    yield [write(folder / f"{n}.pcap", SHORT[n * 150 : n * 150 + 200]) for n in range(4)], {}


def filtered(folder: Path) -> Iterator[Step]:
    """What was sent to each port by itself, the last packets first, and then all."""
    for part in (SHORT[300:], [packet for n, packet in enumerate(SHORT) if n % 2], SHORT):
        yield [write(folder / f"{len(part)}.pcap", part)], {}


def hosts_one_after_another(folder: Path) -> Iterator[Step]:
    """Of one name, each in two files: the second begins where the first one ended, with nothing of its connections."""
    for host, packets in zip("ab", (SHORT[:250], SHORT[250:]), strict=True):
        for number, part in enumerate(pieces(2, packets)):
            yield [write(folder / host / f"control.pcap{number or ''}", part)], {}
    yield [folder], {}


WAYS: dict[str, Callable[[Path], Iterator[Step]]] = {
    "tcpdump -C": newest_alone([f"control.pcap{n or ''}" for n in range(3)]),
    "tcpdump -W": names_that_come_back,
    "tcpdump -G": newest_alone([f"control-2026112{n}-060000.pcap" for n in range(3)]),
    "dumpcap": newest_alone([f"control_{n:05}_2026112{n}063557.pcapng" for n in range(3)], stay=True),
    "logrotate": logrotate,
    "a directory for each hour": newest_alone([f"2026-11-20/0{n}/control.pcap" for n in range(3)]),
    "a directory for each number": newest_alone([f"0{n}/control.pcap" for n in range(3)]),
    "names of nothing": newest_alone(["x.pcap", "b.pcap", "m.pcap.gz"]),
    "labels that are declared later": labelled_later,
    "overwritten names": overwritten,
    "renamed in with an old time": renamed_in_with_an_old_time,
    "hosts one after another": hosts_one_after_another,
    "joined": joined,
    "split": split,
    "filtered": filtered,
}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return rows(read(write(tmp_path_factory.mktemp("short") / "control.pcap", SHORT)))


@pytest.mark.parametrize("way", few(WAYS, 3))
def test_however_captures_are_named_the_tables_are_those_of_one(
    way: str, run: Callable[..., Run], out: Path, tmp_path: Path, short: dict[str, list[str]]
) -> None:
    for captures, options in WAYS[way](tmp_path / "captures"):
        run(*captures, **options)
    assert rows(out) == short


@pytest.mark.slow
def test_copies_of_all_kinds_add_nothing(
    run: Callable[..., Run], out: Path, tmp_path: Path, whole: dict[str, list[str]]
) -> None:
    first = write(tmp_path / "captures" / "control.pcap", PACKETS)
    run(first)
    manifest = (out / "_kproto.json").read_bytes()
    folder = first.parent
    shutil.copy(first, folder / "copy.pcap")
    os.link(first, folder / "hard.pcap")
    (folder / "link.pcap").symlink_to(first)
    (folder / "packed.pcap.gz").write_bytes(gzip.compress(first.read_bytes()))
    (through_another_path := tmp_path / "other").symlink_to(folder)
    done = run(folder, through_another_path)
    assert not done.captures_read
    assert rows(out) == whole
    assert (out / "_kproto.json").read_bytes() != manifest  # it has the further names
    write(folder / "joined.pcap", [*PACKETS[:500], *PACKETS[300:]])
    write(folder / "cut.pcap", PACKETS[100:700])
    assert run(folder).captures_read == 2
    assert rows(out) == whole
    run(first, cluster="east")
    assert set(table_dataset(current_tables(out), "requests").to_table()["cluster"].to_pylist()) == {"east"}
    run(first, capture_point="here")
    for name in ("requests", "responses", "partition_errors", "frames"):
        table = table_dataset(current_tables(out), name).to_table()
        assert set(table["cluster"].to_pylist()) <= {"east"}
    assert rows(out) == whole


def test_hosts_stand_beside_each_other(run: Callable[..., Run], out: Path, tmp_path: Path) -> None:
    """With captures of one name, one after another, with a clock an hour off; and their directory is accepted."""
    one, other = PACKETS, later(PACKETS, HOUR)
    first = write(tmp_path / "hosts" / "a" / "control.pcap", one)
    second = write(tmp_path / "hosts" / "b" / "control.pcap", other)
    run(first)
    run(first, second)
    found = rows(out)
    assert found["requests"] == sorted([*rows(read(first))["requests"], *rows(read(second))["requests"]])
    captures = table_dataset(current_tables(out), "captures").to_table()
    assert len(set(captures["capture"].to_pylist())) == 2
    done = run(tmp_path / "hosts")
    assert not done.captures_read
    assert rows(out) == found


@pytest.mark.spark
def test_subsets_in_any_order_make_the_tables_of_one_run(
    spark: SparkSession, run: Callable[..., Run], out: Path, tmp_path: Path
) -> None:
    """Two hosts, rotated, packed, renamed, grown, overwritten and deleted; compacted on the way."""
    chosen = random.Random(7)
    files = [write(tmp_path / "a" / f"control.pcap{n or ''}", part) for n, part in enumerate(pieces(4))]
    files += [
        write(tmp_path / "b" / f"control.pcap{n or ''}.gz", part)
        for n, part in enumerate(pieces(3, later(PACKETS, 37_500_000_000)))
    ]
    once = tmp_path / "once"
    analyze(spark, [str(file) for file in files], OutputDirectory(once))
    growing = files[2].read_bytes()
    files[2].write_bytes(growing[: len(growing) * 2 // 3])
    chosen.shuffle(files)
    run(*files[:2])
    compact(OutputDirectory(out))
    run(*files[1:4])
    files[0].unlink()
    moved = files[1].rename(tmp_path / "moved.pcap")
    (tmp_path / "a" / "control.pcap2").write_bytes(growing)
    run(*files[3:], moved, tmp_path / "a" / "control.pcap2")
    assert rows(out) == rows(once)


def test_days_that_expired_stay_away(run: Callable[..., Run], out: Path, tmp_path: Path) -> None:
    first = write(tmp_path / "a.pcap", PACKETS)
    second = write(tmp_path / "b.pcap", later(PACKETS, 48 * HOUR))
    run(first, second)
    day = datetime.fromtimestamp(PACKETS[0].time_ns / 1e9, UTC) + timedelta(days=1)
    expire(OutputDirectory(out), day)
    left = rows(out)
    assert left["requests"] == rows(read(second))["requests"]
    os.utime(first)
    run(first, second)
    write(tmp_path / "c.pcap", PACKETS[1:])
    done = run(tmp_path / "c.pcap")
    assert done.expired == len(rows(read(first))["requests"])
    assert rows(out)["requests"] == left["requests"]


@pytest.mark.spark
def test_a_directory_is_followed_whatever_comes_into_it(
    spark: SparkSession, out: Path, tmp_path: Path, whole: dict[str, list[str]]
) -> None:
    """Files with old times, files that grow, and files that were bad."""
    folder, said = tmp_path / "arriving", []

    def look() -> None:
        follow(spark, str(folder), OutputDirectory(out), once=True, on_run=said.append, on_nothing=said.append)

    first, second, third = pieces(3)
    grown = write(folder / "a.pcap", first[: len(first) // 2])
    (folder / "bad.pcap").write_bytes(b"no capture at all, for now")
    look()
    write(grown, first)
    os.utime(write(folder / "old.pcap", third), (0, 0))
    look()
    write(folder / "bad.pcap", second)
    look()
    assert rows(out) == whole
    assert not table_dataset(current_tables(out), "bad_inputs").to_table().num_rows
    assert len(said) == 3


def test_one_capture_that_changed_blocks_nobody(run: Callable[..., Run], out: Path, tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.pcap", later(PACKETS[:800], n * HOUR)) for n, name in enumerate("abc")]
    run(*files[:2])
    files[0].unlink()
    write(files[1], later(PACKETS[:900], HOUR))
    run(*files[1:])
    alone = read(*files[1:])["requests"].num_rows
    assert table_dataset(current_tables(out), "requests").to_table().num_rows > alone


def test_a_file_that_cannot_be_opened_is_read_as_soon_as_it_can(
    run: Callable[..., Run], out: Path, whole: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permission, a package or a disk may come without any change of the file; until then no run does anything."""
    first, second = (write(tmp_path / f"{name}.pcap", some) for name, some in zip("ab", pieces(2), strict=True))

    def refuse(path: str) -> Any:
        if path == str(second):
            raise PermissionError(13, "Permission denied", path)
        return open_file(path)

    for module in (recordings, scanning):
        monkeypatch.setattr(module, "open_file", refuse)
    given = [str(first), str(second)]
    (bad,) = run(first, second).bad_inputs
    assert (bad.file, bad.reason.split("; ")[0]) == ("b.pcap", f"{second}: permission denied")
    assert unchanged(given, OutputDirectory(out)) is not None
    monkeypatch.undo()
    assert unchanged(given, OutputDirectory(out)) is None
    assert run(first, second).captures_read == 1
    assert rows(out) == whole
    assert table_dataset(current_tables(out), "bad_inputs").to_table().num_rows == 0
    assert unchanged(given, OutputDirectory(out)) is not None


def test_a_file_that_goes_while_it_is_looked_at_does_not_end_a_look(
    out: Path, whole: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "captures"
    first, second = (write(folder / f"{name}.pcap", some) for name, some in zip("ab", pieces(2), strict=True))
    follow(TasksHere(), str(folder), OutputDirectory(out), once=True)  # type: ignore[arg-type]
    os.utime(second, (1, 1))

    opened: list[str] = []

    def go(path: str) -> Any:
        opened.append(path)
        if opened.count(str(second)) == 2:
            second.unlink(missing_ok=True)
        return open_file(path)

    monkeypatch.setattr(recordings, "open_file", go)
    for _ in range(2):
        follow(TasksHere(), str(folder), OutputDirectory(out), once=True)  # type: ignore[arg-type]
    assert first.exists()
    assert not second.exists()
    assert rows(out) == whole


@pytest.mark.parametrize("name", ["control.pcap.gz", "control.pcapng"])
def test_a_file_that_is_read_whole_again_as_it_grew_counts_once(
    name: str, run: Callable[..., Run], out: Path, tmp_path: Path
) -> None:
    """What is packed is read from its beginning, and so is a pcapng with interfaces behind packets."""
    file, count = tmp_path / name, 300
    several = section() + interface(LINK) + enhanced(PACKETS[0]) + interface(LINK)
    for end in (count // 2, count):
        if file.suffix == ".gz":
            write(file, PACKETS[:end])
        else:
            file.write_bytes(several + b"".join(enhanced(packet, 1) for packet in PACKETS[1:end]))
        run(file)
    (row,) = table_dataset(current_tables(out), "captures").to_table().to_pylist()
    (known,) = read(file)["captures"].to_pylist()
    assert row == known
    assert row["packets"] == count


def test_what_a_file_grows_by_is_of_its_cluster_and_counts_once(
    run: Callable[..., Run], out: Path, tmp_path: Path
) -> None:
    """It ends within a packet for a while."""
    file = write(tmp_path / "control.pcap", SHORT)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(pcap(SHORT[:250], LINK)) - 20])
    run(file, cluster="east")
    file.write_bytes(whole)
    run(file)
    (row,) = table_dataset(current_tables(out), "captures").to_table().to_pylist()
    assert row["packets"] == len(SHORT)
    for name in ("requests", "frames"):
        assert pc.unique(table_dataset(current_tables(out), name).to_table()["cluster"]).to_pylist() == ["east"]


def test_what_a_file_grows_by_gets_the_labels_that_a_run_names(
    run: Callable[..., Run], out: Path, tmp_path: Path
) -> None:
    file = write(tmp_path / "control.pcap", SHORT[:250])
    run(file)
    write(file, SHORT)
    run(file, cluster="east", capture_point="here")
    for name in ("requests", "frames", "captures"):
        rows = table_dataset(current_tables(out), name).to_table(["cluster", "capture"]).to_pylist()
        assert {(row["cluster"], row["capture"]) for row in rows} == {("east", "east/here")}


def test_losses_and_requests_name_a_connection_alike_wherever_files_cut_it(
    run: Callable[..., Run], out: Path, tmp_path: Path
) -> None:
    _link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-a-lossy"))
    for number, some in enumerate(pieces(6, packets[:3000])):
        run(write(tmp_path / f"{number}.pcap", some))
    found = []
    for tables in (current_tables(out), read(write(tmp_path / "whole" / "control.pcap", packets[:3000]))):
        captures, frames = (
            tables[name] if isinstance(tables, dict) else table_dataset(tables, name).to_table()
            for name in ("captures", "frames")
        )
        known = set(frames["conn_id"].to_pylist())
        losses = [loss for some in captures["losses"].to_pylist() for loss in some]
        found.append(sorted((loss["kind"], loss["conn_id"] in known) for loss in losses))
    assert found[0] == found[1]


def test_hosts_in_directories_that_are_called_as_clusters_stay_apart(
    run: Callable[..., Run], out: Path, tmp_path: Path
) -> None:
    west, east = (
        write(tmp_path / name / "control.pcap", some) for name, some in zip(("west", "east"), pieces(2), strict=True)
    )
    other = write(tmp_path / "control.pcap", later(PACKETS, HOUR))
    run(west)
    run(east)
    run(other, cluster="east")
    captures = table_dataset(current_tables(out), "captures").to_table().to_pylist()
    assert len({row["capture"] for row in captures}) == 3


def test_names_that_are_no_text_are_names_as_others(
    run: Callable[..., Run], out: Path, whole: dict[str, list[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "host\udcff"
    for number, some in enumerate(pieces(3)):
        run(write(folder / f"\udcfe\nit's {number}% of=\u00e9.pcap", some))
    assert rows(out) == whole
