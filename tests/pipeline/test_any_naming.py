"""However captures are named, packed, cut, copied, renamed and overwritten: the tables are those of one run."""

import gzip
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from conftest import few
from hypothesis import example, given, settings
from hypothesis import strategies as st
from packets import ACK, ETHERNET, FIN, UPDATE_METADATA_8, Packet, Talk, pcap, read_pcap, request, response, tcp
from state_runs import logs_of
from table_truth import CAPTURES, name_of
from tasks_here import TasksHere

from kproto.errors import CaptureError
from kproto.logs import LogReading
from kproto.pipeline import OutputDirectory, analyze
from kproto.pipeline.streaming import follow
from kproto.pipeline.upkeep import compact, expire
from kproto.query import open_tables
from kproto.tables import Filters, read
from kproto.tables.joining import MENDED
from kproto.tables.known import KnownTable
from kproto.tables.stored import current_tables, table_dataset

LABELS = {"conn_id", "capture", "file", "cluster", "payload", "date"}  # payload: that of any broker, of equal bodies
STORED = ("requests", "responses", "partition_errors", "partition_states", "bodies", "frames", "live_brokers")
DERIVED = ("leadership", "isr_events", "changes", "stale_requests")
HOUR = 3600 * 1_000_000_000
MIDNIGHT_NS = 1_764_201_600 * 1_000_000_000
CAPTURED = {name: read_pcap(path) for path in CAPTURES if (name := name_of(path)) in ("ibp-2.8-a", "ibp-2.4-IV1-a")}

STYLES: dict[str, Callable[[int, int], str]] = {
    "tcpdump -C": lambda n, _count: f"control.pcap{n or ''}",
    "tcpdump -C -W": lambda n, _count: f"control.pcap{n:03}",
    "tcpdump -G": lambda n, _count: f"control-20261120-{n:02}0000.pcap",
    "dumpcap": lambda n, _count: f"control_{n:05}_20261120{n:02}3557.pcapng",
    "logrotate": lambda n, count: f"control.pcap.{count - n}{'.gz' if n else ''}",
    "a directory for each hour": lambda n, _count: f"{n:02}/control.pcap",
    "names of nothing": lambda n, _count: f"{random.Random(n).randrange(1 << 30)}.pcap{'.gz' if n % 2 else ''}",
}


def rows(out: Path, *, derived: bool = False) -> dict[str, list[str]]:
    """The rows of tables in an order of their own, without labels, and without what ``broker_ids`` gives."""
    stored = current_tables(out)
    tables = {name: table_dataset(stored, name).to_table() for name in STORED}
    if derived:
        with open_tables(out) as connection:
            tables |= {name: connection.sql(f"FROM {name}").to_arrow_table() for name in DERIVED}
    found = {}
    for name, table in tables.items():
        columns = sorted(set(table.column_names) - LABELS - ({"broker_id"} if name == "requests" else set()))
        found[name] = sorted(map(repr, table.select(columns).to_pylist()))
    return found


def broker_ids(out: Path) -> set[tuple[bytes, int]]:
    """The brokers to which requests went, as far as they are known."""
    table = table_dataset(current_tables(out), "requests").to_table().select(["frame_id", "broker_id"])
    return {(row["frame_id"], row["broker_id"]) for row in table.to_pylist() if row["broker_id"] is not None}


def connections(out: Path) -> set[frozenset[bytes]]:
    """The requests of each connection."""
    table = table_dataset(current_tables(out), "requests").to_table().group_by("conn_id")
    return {frozenset(each) for each in table.aggregate([("frame_id", "list")])["frame_id_list"].to_pylist()}


def run(out: Path, *captures: Path, **options: Any) -> None:
    with suppress(CaptureError):  # nothing in them yet
        analyze(TasksHere(), [str(path) for path in captures], OutputDirectory(out), **options)  # type: ignore[arg-type]


def look(out: Path, folder: Path, **options: Any) -> None:
    """Look at a directory once, as ``--follow`` does."""
    follow(TasksHere(), str(folder), OutputDirectory(out), once=True, **options)  # type: ignore[arg-type]


class Host:
    """A place where packets are recorded: into files that follow one another."""

    def __init__(self, folder: Path, chosen: random.Random, link: int, packets: list[Packet]) -> None:
        self.folder, self.link = folder, link
        ends = sorted(chosen.sample(range(1, len(packets)), chosen.randint(1, 4)))
        self.pieces = [packets[begin:end] for begin, end in zip([0, *ends], [*ends, len(packets)], strict=True)]
        self._style = STYLES[chosen.choice([*STYLES])]
        self.whole = packets

    def name_of(self, number: int) -> str:
        return self._style(number, len(self.pieces))

    def write(self, number: int, name: str, *, share: float = 1.0) -> Path:
        """Write a file, or as much of it as is recorded so far: it may end within a packet."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = pcap(self.pieces[number], self.link)
        if path.suffix == ".gz":
            data = gzip.compress(data)
        elif share < 1:
            data = data[: int(len(data) * share)]
        path.write_bytes(data)
        return path


def happen(
    out: Path, hosts: list[Host], chosen: random.Random, tmp_path: Path, before: datetime, *, expires: bool
) -> bool:
    """Name all files of all hosts, in runs of any order, among all that happens to files; return whether days expired.

    Either recordings get other labels on the way, or the days before a moment expire, whose rows never come back.
    """
    expired = False
    todo = [(host, number) for host in hosts for number in range(len(host.pieces))]
    if chosen.random() < 0.5:
        chosen.shuffle(todo)
    written: list[Path] = []
    options: dict[str, Any] = {}
    while todo or written:
        some, todo = todo[: (n := chosen.randint(1, 3))], todo[n:]
        again: list[tuple[Host, int, str]] = []
        for host, number in some:
            kind = chosen.choice(["whole", "whole", "grows", "overwrites", "copied", "bad first"])
            name = "control.pcap" if kind == "overwrites" else host.name_of(number)
            if host.folder / name in written:  # that was not named yet
                name = f"{number}-{name}"
            share = chosen.uniform(0.1, 0.9) if kind == "grows" else 1.0
            file = host.write(number, name, share=share)
            if share < 1 or kind == "bad first":
                again.append((host, number, name))
            if kind == "bad first":
                file.write_bytes(b"no capture at all, for now")
            written.append(file)
            if kind == "copied":
                written.append(copied(file, chosen, tmp_path))
        named = [each for each in written if each.exists()]
        if chosen.random() < 0.3:
            named += chosen.sample(named, len(named) // 2)
        if not expires and chosen.random() < 0.3:
            options = chosen.choice([{}, {"cluster": "east"}, {"capture_point": "here"}])
        if chosen.random() < 0.2:
            with suppress(KeyboardInterrupt):  # there may be nothing to do
                analyze(
                    TasksHere(),
                    list(map(str, named)),
                    OutputDirectory(out),
                    on_step=interrupt,
                    **options,  # type: ignore[arg-type]
                )
        if chosen.random() < 0.3:
            for host in hosts:
                if host.folder.exists():
                    look(out, host.folder, **options)
        run(out, *named, **options)
        are_remembered = out.exists()  # else they hold no request yet, and no run was made
        if chosen.random() < 0.2 and out.exists():
            compact(OutputDirectory(out))
        if expires and chosen.random() < 0.3 and out.exists():
            expire(OutputDirectory(out), before)
            expired = True
        for host, number, name in again:
            run(out, host.write(number, name), **options)
        if not are_remembered:  # they are named again
            if not todo and not out.exists():
                break
            continue
        for file in named:
            what = chosen.random()
            if what < 0.3:
                file.unlink(missing_ok=True)
            elif what < 0.5 and file.exists():
                os.utime(file, (0, 0))
                run(out, file.rename(file.with_name(f"moved-{chosen.randrange(1 << 30)}.{file.name}")), **options)
        written = []
    return expired


def interrupt(step: str) -> None:
    raise KeyboardInterrupt(step)


def copied(file: Path, chosen: random.Random, tmp_path: Path) -> Path:
    """Return a file that holds the same as another one."""
    copy = tmp_path / f"copy-{chosen.randrange(1 << 30)}.pcap"
    kind = chosen.choice(["copy", "hard link", "symlink", "packed", "through another path"])
    if kind == "hard link":
        os.link(file, copy)
    elif kind == "symlink":
        copy.symlink_to(file)
    elif kind == "packed":
        copy = copy.with_suffix(".pcap.gz")
        copy.write_bytes(gzip.compress(file.read_bytes()))
    elif kind == "through another path":
        copy.symlink_to(file.parent)
        copy = copy / file.name
    else:
        shutil.copy(file, copy)
    return copy


def hosts_of(chosen: random.Random, tmp_path: Path) -> tuple[list[Host], datetime]:
    """One or two places: of one run, or one after the other, with clocks apart, also with captures of one name.

    Midnight, which is returned too, is somewhere in the first one's.
    """
    link, packets = CAPTURED[chosen.choice([*CAPTURED])]
    begin = chosen.choice([0, chosen.randrange(len(packets) - 600)])
    end = begin + chosen.choice([60, 200, 400])
    later = MIDNIGHT_NS - packets[chosen.randrange(begin, end)].time_ns
    packets = shifted(packets, later)
    first = packets[begin:end]
    hosts = [Host(tmp_path / "a", chosen, link, first)]
    if chosen.random() < 0.5:
        apart = chosen.choice([HOUR, -HOUR, 3_000_000_000, 0])
        second = chosen.choice([first, packets[begin + 100 : begin + 300], packets[end : end + 200]])
        hosts.append(Host(tmp_path / "b", chosen, link, shifted(second, apart)))
    return hosts, datetime.fromtimestamp(MIDNIGHT_NS // 1_000_000_000, UTC)


def shifted(packets: list[Packet], later_ns: int) -> list[Packet]:
    return [Packet(each.time_ns + later_ns, each.data, each.on_wire) for each in packets]


@pytest.mark.slow
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
@example(seed=513)  # a host's file goes on behind another host's, whose clock is three seconds behind
@example(seed=330)  # an answer comes three seconds later, in another file
@example(seed=1203)  # two hosts' requests have one answer, by clocks three seconds apart
@example(seed=9936)  # answers alone are named first
@example(seed=159607923)  # a request begins in one file, and all of its rest stands in the next
@example(seed=20387833)  # the other host's file goes on at the very byte, until that host's own earlier one is named
@example(seed=2884266025)  # a broker's id is told by captures that are said to be of another cluster
def test_the_tables_are_those_of_one_run(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    one_run_and_many(seed, tmp_path_factory.mktemp("named"))


def one_run_and_many(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    hosts, midnight = hosts_of(chosen, tmp_path / "files")
    many, once = tmp_path / "tables", tmp_path / "once"
    expired = happen(many, hosts, chosen, tmp_path, midnight, expires=chosen.random() < 0.5)
    wholes = []
    for number, host in enumerate(hosts):
        wholes.append(tmp_path / f"whole-{number}" / "control.pcap")
        wholes[-1].parent.mkdir()
        wholes[-1].write_bytes(pcap(host.whole, host.link))
    run(once, *wholes)
    assert once.exists() == many.exists()
    if not once.exists():
        return
    if expired:
        expire(OutputDirectory(once), midnight)
    known = KnownTable(current_tables(many), "known_recordings").all()
    labels = set(zip(known["cluster"].to_pylist(), known["capture"].to_pylist(), strict=True))
    is_one = len({cluster for cluster, _capture in labels}) == 1
    derived = len(hosts) == 1 and is_one  # histories are those of clusters
    ids_there, ids = broker_ids(once), broker_ids(many)
    assert ids == ids_there if is_one else ids <= ids_there  # brokers are those of clusters, too
    assert rows(many, derived=derived) == rows(once, derived=derived)
    if len(hosts) == 1:  # of two hosts that recorded one connection either may tell of a request
        assert connections(many) == connections(once)


@pytest.mark.slow
@settings(max_examples=max(settings.default.max_examples // 60, 1))
@given(
    st.sampled_from([*CAPTURED]), st.integers(-120, 120), st.floats(0.01, 0.99),
    st.lists(st.floats(0.01, 0.99), max_size=4), st.sampled_from(["files", "a file a run", "it grows"]), st.randoms(),
)  # fmt: skip
@example("ibp-2.8-a", 37, 0.4, [0.7], "a file a run", random.Random(1))  # the file behind the step is read first
@example("ibp-2.8-a", 37, 0.4, [0.7], "it grows", random.Random(1))
@example("ibp-2.8-a", -120, 0.4, [0.2, 0.6, 0.7], "a file a run", random.Random(1))
@example("ibp-2.8-a", 3, 0.5, [0.5], "files", random.Random(1))  # the senders' clocks tell it, from file to file
@example("ibp-2.8-a", -30, 0.5, [0.5], "files", random.Random(1))  # and the connections
def test_the_tables_are_those_of_one_file_wherever_the_recorders_clock_was_set(
    tmp_path_factory: pytest.TempPathFactory, name: str, seconds: int, part: float, cuts: list[float], how: str,
    chosen: random.Random,
) -> None:  # fmt: skip
    folder, (link, packets) = tmp_path_factory.mktemp("set"), CAPTURED[name]
    packets = packets[:600]
    step, *ends = (int(each * len(packets)) for each in (part, *sorted(cuts), 1))
    packets = [*packets[:step], *shifted(packets[step:], seconds * 1_000_000_000)]
    pieces = [packets[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if begin < end]
    whole = folder / "whole.pcap"
    whole.write_bytes(pcap(packets, link))
    run(folder / "once", whole)
    files = [folder / "files" / f"control.pcap{number or ''}" for number in range(len(pieces))]
    files[0].parent.mkdir()
    if how == "it grows":
        for end in ends:
            files[0].write_bytes(pcap(packets[:end], link))
            run(folder / "many", files[0])
    else:
        for file, piece in zip(files, pieces, strict=True):
            file.write_bytes(pcap(piece, link))
        chosen.shuffle(files)
        for some in [files] if how == "files" else [[file] for file in files]:
            run(folder / "many", *some)
    assert rows(folder / "many", derived=True) == rows(folder / "once", derived=True)


def test_logs_that_overlap_in_different_runs_are_told_once(tmp_path: Path) -> None:
    """A broker that starts again gets requests of the same numbers: the second part alone tells these."""
    lines = logs_of("kafka-2.8.2", "INFO")["broker-0/state-change.log"].splitlines(keepends=True)
    whole, first, second = (
        tmp_path / "state-change.log",
        tmp_path / "a" / "output.log",
        tmp_path / "b" / "server.out.gz",
    )
    for path in (first, second):
        path.parent.mkdir()
    whole.write_bytes(b"".join(lines))
    first.write_bytes(b"".join(lines[: len(lines) * 2 // 5]))
    second.write_bytes(gzip.compress(b"".join(lines[len(lines) // 5 :])))
    filters = Filters(logs=LogReading(zone="UTC"))
    found = []
    for out, runs in ((tmp_path / "once", [whole]), (tmp_path / "many", [first, second])):
        for path in runs:
            run(out, path, filters=filters)
        with open_tables(out) as sql:
            told = sql.execute(
                "SELECT api_key, correlation_id, ts, error_code, n_partitions FROM requests ORDER BY ALL"
            )
            found.append(told.fetchall())
    assert len({each[:2] for each in found[0]}) < len(found[0])
    assert found[1] == found[0]


def test_a_log_of_which_the_live_file_alone_is_named_goes_on_behind_what_has_another_name_now(tmp_path: Path) -> None:
    """At INFO a line tells no more than what changed: what was before it stands in the file that was rotated."""
    lines = logs_of("kafka-2.8.2", "INFO")["broker-1/state-change.log"].splitlines(keepends=True)
    live, whole = tmp_path / "logs" / "state-change.log", tmp_path / "whole" / "state-change.log"
    filters = Filters(logs=LogReading(zone="UTC"))
    for log in (live, whole):
        log.parent.mkdir()
    whole.write_bytes(b"".join(lines))
    run(tmp_path / "once", whole, filters=filters)
    for begin in range(0, len(lines), 130):
        live.write_bytes(b"".join(lines[begin : begin + 130]))
        run(tmp_path / "many", live, filters=filters)
        live.with_name(f"{live.name}.{begin // 130}.gz").write_bytes(gzip.compress(live.read_bytes()))
    assert rows(tmp_path / "many") == rows(tmp_path / "once")


def test_a_log_in_a_directory_for_each_hour_is_one(tmp_path: Path) -> None:
    lines = logs_of("kafka-2.8.2", "INFO")["broker-1/state-change.log"].splitlines(keepends=True)
    filters = Filters(logs=LogReading(zone="UTC"))
    whole, hours = tmp_path / "whole" / "state-change.log", []
    for begin in range(0, len(lines), 130):
        hours.append(tmp_path / "broker-1" / "2026-11-26" / f"{begin // 130:02}" / "state-change.log")
        hours[-1].parent.mkdir(parents=True)
        hours[-1].write_bytes(b"".join(lines[begin : begin + 130]))
    whole.parent.mkdir()
    whole.write_bytes(b"".join(lines))
    run(tmp_path / "once", whole, filters=filters)
    run(tmp_path / "together", *hours, filters=filters)
    for hour in hours:
        run(tmp_path / "many", hour.parent, filters=filters)
    assert rows(tmp_path / "many") == rows(tmp_path / "together") == rows(tmp_path / "once")


@pytest.mark.parametrize("apart", few([-HOUR, -3_000_000_000]))
def test_an_answer_that_another_host_seemed_to_have_is_taken_back(apart: int, tmp_path: Path) -> None:
    """A host's file ends where the second one of another goes on, whose first one then shows that it belongs there."""
    link, packets = CAPTURED["ibp-2.8-a"]
    begin, cut, end = 100, 300, 500
    files = {"b/control.pcap": shifted(packets[begin:cut], apart), "whole/control.pcap": packets[begin:end]}
    files |= {"a/control.pcap0": packets[begin:cut], "a/control.pcap1": packets[cut:end]}
    for name, each in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(pcap(each, link))
    many, once = tmp_path / "tables", tmp_path / "once"
    slowest_us = []
    for name in ("b/control.pcap", "a/control.pcap1", "a/control.pcap0"):
        run(many, tmp_path / name)
        requests = table_dataset(current_tables(many), "requests").to_table()
        slowest_us.append(pc.max(requests["latency_us"]).as_py())
    assert slowest_us[1] > 3_000_000 > slowest_us[2]
    run(once, tmp_path / "whole/control.pcap", tmp_path / "b/control.pcap")
    assert rows(many) == rows(once)


@pytest.mark.parametrize(
    ("last", "link", "judged"),
    [("tap-0-00002.pcap", None, 0), ("tap-0-00002.pcap", 147, 1), ("other.pcap", None, 1)],
    ids=["a recorder's last file", "packets that are not read", "another name"],
)
def test_a_file_that_shows_nothing_is_judged_alike_on_disk_and_in_one_reading(
    last: str, link: int | None, judged: int, tmp_path: Path
) -> None:
    ethernet, packets = CAPTURED["ibp-2.8-a"]
    folder, out = tmp_path / "captures", tmp_path / "tables"
    folder.mkdir()
    (folder / "tap-0-00001.pcap").write_bytes(pcap(packets[:300], ethernet))
    silent = [(at, bytes(len(data)), on_wire) for at, data, on_wire in packets[300:310]]  # no IP anywhere
    (folder / last).write_bytes(pcap(silent if link else [], link or ethernet))
    run(out, folder)
    assert table_dataset(current_tables(out), "bad_inputs").to_table().num_rows == judged
    assert read(folder)["bad_inputs"].num_rows == judged


@pytest.mark.parametrize("last", few([239, 261]))
def test_of_a_packet_within_which_a_file_ends_its_beginning_counts_until_the_file_is_whole(
    last: int, tmp_path: Path
) -> None:
    """Whether the next file goes on behind it on disk or in one reading; the rest of the packet may come later."""
    link, packets = CAPTURED["ibp-2.8-a"]
    folder, out, once = tmp_path / "captures", tmp_path / "tables", tmp_path / "once"
    folder.mkdir()
    files = {"tap-0-00001.pcap": pcap(packets[:last], link), "tap-0-00002.pcap": pcap(packets[last:300], link)}
    for name, data in files.items():
        (folder / name).write_bytes(data[: len(data) - 20 * ("1.pcap" in name)])
        look(out, folder)
    told = read(folder)
    stored = current_tables(out)
    for name in ("requests", "responses"):
        columns = sorted(set(told[name].column_names) - LABELS - {"broker_id"})
        rows_of = [table.select(columns).to_pylist() for table in (told[name], table_dataset(stored, name).to_table())]
        assert sorted(map(repr, rows_of[0])) == sorted(map(repr, rows_of[1]))
    for name, data in files.items():
        (folder / name).write_bytes(data)
    look(out, folder)
    (tmp_path / "whole.pcap").write_bytes(pcap(packets[:300], link))
    run(once, tmp_path / "whole.pcap")
    assert rows(out) == rows(once)


@pytest.mark.parametrize("last", few([239, 150, 187, 261]))
def test_a_capture_that_is_whole_lacks_nothing_of_the_packets_within_which_it_ended(last: int, tmp_path: Path) -> None:
    link, packets = CAPTURED["ibp-2.8-a"]
    found, columns = [], {*MENDED, "bad_inputs", "losses", "packets", "partial_starts"} - {"connections"}
    for name, ends in (("many", [last, last + 20, 300]), ("once", [300])):
        file = tmp_path / name / "control.pcap"
        file.parent.mkdir()
        for end in ends:
            data = pcap(packets[:end], link)
            file.write_bytes(data[: len(data) - 20 * (end < 300)])
            run(tmp_path / f"{name}-tables", file)
        (row,) = table_dataset(current_tables(tmp_path / f"{name}-tables"), "captures").to_table().to_pylist()
        found.append({column: row[column] for column in columns})
    assert found[0] == found[1]


CONTROL = Talk().open().ask(request(6, 8, 1, UPDATE_METADATA_8)).packets
ASKED = Talk(client=("10.0.0.1", 50_001)).open().ask(request(3, 2, 1, b"\0\0\0\1\0\6orders", "app")).packets
UNKNOWN = Talk(client=("10.0.0.1", 50_002)).open().ask(b"\0\0").packets


@pytest.mark.parametrize(
    "files",
    [{"tap-0-1": CONTROL, "tap-1-1": ASKED, "tap-1-2": []}, {"here": [*CONTROL, *UNKNOWN], "there": ASKED}],
    ids=["of its name", "of its server, with an unknown connection"],
)
def test_a_file_without_control_requests_is_excused_as_others_have_some(files: Any, tmp_path: Path) -> None:
    folder, out = tmp_path / "captures", tmp_path / "tables"
    folder.mkdir()
    for name, packets in files.items():
        (folder / f"{name}.pcap").write_bytes(pcap(packets, ETHERNET))
    run(out, folder)
    assert table_dataset(current_tables(out), "bad_inputs").to_table().num_rows == 0
    assert read(folder)["bad_inputs"].num_rows == 0


def test_a_file_that_cannot_be_read_is_not_excused_by_another_hosts_file_of_its_name(tmp_path: Path) -> None:
    out, folders = tmp_path / "tables", [tmp_path / host for host in "ab"]
    for folder, data in zip(folders, (pcap(CONTROL, ETHERNET), b""), strict=True):
        folder.mkdir()
        (folder / "control.pcap").write_bytes(data)
    run(out, *folders)
    (row,) = table_dataset(current_tables(out), "bad_inputs").to_table().to_pylist()
    assert row["reason"] == f"{tmp_path}/b/control.pcap: an empty file; nothing was recorded in it"
    assert read(*folders)["bad_inputs"].to_pylist() == [row]


@pytest.mark.parametrize("first", few([2, 1, 3, 4]))
def test_a_connection_counts_once_wherever_files_cut_it(first: int, tmp_path: Path) -> None:
    """Where its first file has its opening alone, half a request, or a request that is believed for want of more.

    Or where the next begins with the end of one side, while the other has not heard of it and asks on.
    """
    names = ["connections", "kafka_connections", "without_handshake", "unmatched_responses"]
    ask, said = (request(6, 8, n, UPDATE_METADATA_8) for n in (1, 2)), (response(6, 8, n, bytes(3)) for n in (1, 2))
    talk = Talk().open()
    for asked, answer in zip(ask, said, strict=True):
        talk.ask(asked, size=40).answer(answer, size=6)
    talk.add(tcp(talk.server, talk.client, talk.answered, talk.sent, FIN | ACK))
    talk.answered += 1
    talk.ask(request(6, 8, 3, UPDATE_METADATA_8), size=40).reset()
    packets, other = talk.packets, Talk(client=("10.0.0.1", 50_001)).open().ask(request(6, 8, 1, UPDATE_METADATA_8))
    for cut in range(first, len(packets), 4):
        out = tmp_path / f"tables-{cut}"
        for number, some in enumerate((other.packets, packets[:cut], packets[cut:])):
            file = tmp_path / f"{cut}-{number}.pcap"
            file.write_bytes(pcap(some, ETHERNET))
            run(out, file)
        told = table_dataset(current_tables(out), "captures").to_table()
        assert [pc.sum(told[name]).as_py() for name in names] == [2, 2, 0, 0], cut


def test_a_capture_without_packets_is_no_other_one_s_beginning(tmp_path: Path) -> None:
    """Its header is that of any capture: it is known by its name alone, until it grows."""
    link, packets = CAPTURED["ibp-2.8-a"]
    out, files = tmp_path / "tables", [tmp_path / name / "control.pcap" for name in "abcd"]
    shown = [packets[:150], [], [], packets[150:300]]
    for file, each in zip(files, shown, strict=True):
        file.parent.mkdir()
        file.write_bytes(pcap(each, link))
    run(out, *files[:3])
    run(out, files[3])
    files[2].write_bytes(pcap(packets[300:450], link))
    run(out, files[2])
    rows = table_dataset(current_tables(out), "captures").to_table().to_pylist()
    assert {row["capture"] for row in rows if row["packets"]} == {"control.pcap", "d/control.pcap", "c/control.pcap"}


def test_a_file_that_holds_no_capture_stands_among_the_bad_inputs_until_it_does(tmp_path: Path) -> None:
    link, packets = CAPTURED["ibp-2.8-a"]
    out, good, bad = tmp_path / "tables", tmp_path / "a.pcap", tmp_path / "b.pcap"
    good.write_bytes(pcap(packets[:150], link))
    bad.write_bytes(b"no capture at all, for now")
    for _ in range(2):
        run(out, good, bad)
        assert table_dataset(current_tables(out), "bad_inputs").to_table()["file"].to_pylist() == ["b.pcap"]
    bad.write_bytes(pcap(packets[150:300], link))
    run(out, good, bad)
    assert table_dataset(current_tables(out), "bad_inputs").to_table().num_rows == 0
    once, whole = tmp_path / "once", tmp_path / "whole.pcap"
    whole.write_bytes(pcap(packets[:300], link))
    run(once, whole)
    assert rows(out) == rows(once)
