"""Rotated files are one capture; files of different capture points are kept apart."""

import gzip
import inspect
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import packets as make
import pytest
from conftest import DATA, few
from hypothesis import given
from hypothesis import strategies as st

from kproto import CaptureError
from kproto.capture import CapturePoint, CaptureSummary, capture_points, exchanges, frames
from kproto.capture.capture_points import folders_left_out, point_name
from kproto.tables import read

SAMPLES = ["ibp-3.9-a", "ibp-2.8-a", "ibp-3.9-big-a"]


def told(captures: object) -> list[tuple[object, ...]]:
    """What captures tell, without the names of files and capture points."""
    found = list(frames(captures))  # type: ignore[call-overload]
    return [
        (str(f.connection), f.connection.opened_ns, f.direction, f.offset, f.time_ns, f.status, f.payload, f.api_key)
        for f in found
    ]


def cut(packets: list[make.Packet], parts: int, seed: int = 1) -> list[list[make.Packet]]:
    """Packets in a number of files, cut anywhere: within requests, between a request and its response."""
    borders = sorted(random.Random(seed).sample(range(1, len(packets)), parts - 1))
    return [packets[start:stop] for start, stop in zip([0, *borders], [*borders, None], strict=True)]


NAMES: dict[str, Callable[[int], str]] = {
    "tcpdump -C": lambda n: f"control.pcap{n or ''}",
    "tcpdump -C -W": lambda n: f"control.pcap{n:02}",
    "tcpdump -G": lambda n: f"control-2026-11-21_06.{35 + n}.00.pcap",
    "dumpcap": lambda n: f"control_{n + 1:05}_202611210635{n:02}.pcap",
    "numbers": lambda n: f"part-{n}.pcap",
    "numbers of different length": lambda n: f"part{n + 8}.pcap",
    "words": lambda n: f"{['monday', 'afternoon', 'zebra', 'last', 'old'][n % 5]}{'x' * (n // 5)}.pcap",
}


@pytest.mark.parametrize("naming", few(NAMES, 3))
@pytest.mark.parametrize("pack", [False, True], ids=["plain", "gzip"])
def test_rotated_files_are_read_as_one(naming: str, pack: bool, tmp_path: Path) -> None:
    """Frames across borders are whole, connections go on; in whatever order the files are named."""
    original = DATA / "captures" / "ibp-3.9-a.pcap.gz"
    link, packets = make.read_pcap(original)
    paths = []
    for n, part in enumerate(cut(packets, 5)):
        data = make.pcap(part, link)
        path = tmp_path / (NAMES[naming](n) + (".gz" if pack else ""))
        path.write_bytes(gzip.compress(data, 1) if pack else data)
        paths.append(path)
    expected = told(original)
    (point,) = capture_points(reversed(paths))
    first = {"numbers": "part-0.pcap", "numbers of different length": "part8.pcap", "words": "monday.pcap"}
    assert point == CapturePoint(first.get(naming, "control.pcap"), tuple(map(str, paths)))
    assert told(point) == told(tmp_path) == told(reversed(paths)) == expected


@given(
    st.sampled_from(SAMPLES), st.sampled_from(sorted(NAMES.keys() - {"words"})), st.floats(0, 1), st.integers(-120, -1)
)
def test_files_are_in_the_order_of_their_connections_wherever_the_clock_was_set_back(
    name: str, naming: str, begin: float, seconds: int
) -> None:
    link, packets = make.read_pcap(DATA / "captures" / f"{name}.pcap.gz")
    set_at = round(len(packets) * begin)
    packets[set_at:] = [packet._replace(time_ns=packet.time_ns + seconds * 10**9) for packet in packets[set_at:]]
    parts = [packets[len(packets) * at // 5 : len(packets) * (at + 1) // 5] for at in range(5)]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / NAMES[naming](number) for number in range(len(parts))]
        for path, part in zip(paths, parts, strict=True):
            path.write_bytes(make.pcap(part, link))
        (point,) = capture_points([folder])
        assert point.files == tuple(map(str, paths))


@pytest.mark.parametrize("name", SAMPLES)
def test_any_cut_gives_the_same_frames(name: str, tmp_path: Path) -> None:
    link, packets = make.read_pcap(DATA / "captures" / f"{name}.pcap.gz")
    expected = told(DATA / "captures" / f"{name}.pcap.gz")
    for seed in range(5):
        for n, part in enumerate(cut(packets, 12, seed)):
            (tmp_path / f"x.pcapng{n}").write_bytes(make.pcapng(part, link))
        assert told(tmp_path) == expected


def test_frames_and_damage_name_their_file(tmp_path: Path) -> None:
    link, packets = make.read_pcap(DATA / "captures" / "ibp-3.9-a.pcap.gz")
    first, second = cut(packets, 2)
    (tmp_path / "x.pcap").write_bytes(make.pcap(first, link))
    (tmp_path / "x.pcap1").write_bytes(make.pcap(second, link)[:-3])
    summary = CaptureSummary()
    found = list(frames(tmp_path, summary=summary))
    assert {f.file for f in found} == {"x.pcap", "x.pcap1"}
    assert {f.connection.capture for f in found} == {"x.pcap"}
    assert summary.file == "x.pcap"
    assert [bad.file for bad in summary.bad_inputs] == ["x.pcap1"]


def test_captures_that_overlap_are_of_different_places(tmp_path: Path) -> None:
    """The same traffic seen at both ends: each frame comes out twice, on connections of different ids."""
    link, packets = make.read_pcap(DATA / "captures" / "ibp-3.9-a.pcap.gz")
    for place in (1, 2):
        later = [make.Packet(p.time_ns + place * 1000, p.data, p.on_wire) for p in packets]
        for n, part in enumerate(cut(later, 3, seed=place)):
            (tmp_path / f"broker-{place}.pcap{n}").write_bytes(make.pcap(part, link))
    points = capture_points([tmp_path])
    assert [(p.name, len(p.files)) for p in points] == [("broker-1.pcap", 3), ("broker-2.pcap", 3)]
    one = list(exchanges(points[0]))
    both = list(exchanges(tmp_path))
    assert len(both) == 2 * len(one)
    assert [e.time_ns for e in both] == sorted(e.time_ns for e in both)
    assert len({e.connection.conn_id for e in both}) == 2 * len({e.connection.conn_id for e in one})
    names = [tmp_path / f"broker-{place}.pcap" for place in (1, 2)]
    for path in names:
        path.write_bytes(make.pcap(packets, link))
    assert [p.name for p in capture_points(names)] == ["broker-1.pcap"]  # the other one is a copy
    names[1].write_bytes(make.pcap(later, link))
    assert [p.name for p in capture_points(names)] == ["broker-1.pcap", "broker-2.pcap"]


def test_large_packed_files_are_joined_where_a_connection_goes_on_whatever_their_names(tmp_path: Path) -> None:
    talk = make.Talk().open()
    for n in range(6):
        talk.ask(make.request(6, 8, n, make.UPDATE_METADATA_8)).answer(make.response(6, 8, n, b"\0\0\0"))
    first, second = talk.packets[:9], talk.packets[9:]
    first[2:2] = [first[2]] * 20_001  # acknowledgements
    for name, part in (("morning", first), ("storm", second)):
        (tmp_path / f"{name}.pcap.gz").write_bytes(gzip.compress(make.pcap(part), 1))
    (point,) = capture_points([tmp_path])
    assert [Path(file).name for file in point.files] == ["morning.pcap.gz", "storm.pcap.gz"]
    assert [exchange.unmatched_reason for exchange in exchanges(point)] == [None] * 6


def test_a_capture_point_is_named_as_its_files_without_rotation_and_compression() -> None:
    for file, name in {
        "control.pcap": "control.pcap",
        "control.pcap.zst": "control.pcap",
        "/data/control.pcap12.gz": "control.pcap",
        "control_00007_20261121063557.pcapng.gz": "control.pcapng",
        "control-2026-11-21_06.35.00.pcap": "control.pcap",
        "kafka-request.log.2026-11-21-06": "kafka-request.log",
        "broker-3.pcap": "broker-3.pcap",
        "20261121.pcap": "20261121.pcap",
        "s3://bucket/captures/control.pcap.gz": "control.pcap",
    }.items():
        assert point_name(file) == name


def test_ids_do_not_hang_on_compression_rotation_or_directory(tmp_path: Path) -> None:
    original = DATA / "captures" / "ibp-2.8-a.pcap.gz"
    link, packets = make.read_pcap(original)
    half = len(packets) // 2
    (tmp_path / "a").mkdir()
    plain, packed = tmp_path / "control.pcap", tmp_path / "a" / "control.pcap.gz"
    plain.write_bytes(make.pcap(packets, link))
    packed.write_bytes(gzip.compress(make.pcap(packets, link), 1))
    rotated = [tmp_path / "a" / "control.pcap1", tmp_path / "a" / "control.pcap2.gz"]
    rotated[0].write_bytes(make.pcap(packets[:half], link))
    rotated[1].write_bytes(gzip.compress(make.pcap(packets[half:], link), 1))
    ids = [
        [table.column(column).to_pylist() for column in ("frame_id", "conn_id", "capture")]
        for table in (read(*paths)["requests"].sort_by("frame_id") for paths in ([plain], [packed], rotated))
    ]
    assert ids[0] == ids[1] == ids[2]


def test_captures_of_one_name_are_told_apart_by_as_much_of_their_paths_as_that_takes(tmp_path: Path) -> None:
    files = []
    for n, name in enumerate(["x/1/control.pcap.gz", "y/1/control.pcap", "y/2/control.pcap", "y/2/control.pcap.gz"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        files.append(recording(path, 0, 100 + n))
    names = [point.name for point in capture_points(files)]
    assert names[:2] == ["x/1/control.pcap", "y/1/control.pcap"]
    assert len(set(names)) == len(names)
    assert [point.name for point in capture_points(files[1:2])] == ["control.pcap"]


def recording(path: Path, first_ns: int, last_ns: int) -> str:
    """A capture of a first and a last packet, which name the file: none is a copy of another."""
    data = path.name.encode().ljust(60, b"\0")
    packets = [make.Packet(make.START_NS + time_ns, data, 60) for time_ns in (first_ns, last_ns)]
    path.write_bytes(make.pcap(packets, nano=True))
    return str(path)


@given(times=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), min_size=2, max_size=12))
def test_a_file_follows_the_chain_that_ended_last_before_it(times: list[tuple[int, int]]) -> None:
    """Near the border packets may be out of order: by a hundredth of the chain, and by a second at most."""
    unit = 100_000_000
    times = sorted((first * unit, (first + length) * unit) for first, length in times)
    chains: list[list[int]] = []
    ends: dict[int, tuple[int, int]] = {}  # when each chain begins and ends
    for n, (first, last) in enumerate(times):
        open_to = [c for c, (begin, end) in ends.items() if first >= end - min(10 * unit, (end - begin) // 100)]
        place = max(open_to, key=lambda c: (ends[c][1], -c), default=len(chains))
        if place == len(chains):
            chains.append([])
        chains[place].append(n)
        ends[place] = ends.get(place, (first, last))[0], last
    with tempfile.TemporaryDirectory() as folder:
        for n, (first, last) in enumerate(times):
            recording(Path(folder) / f"place-{n:02}.pcap", first, last)
        found = [[int(Path(file).stem[-2:]) for file in point.files] for point in capture_points([folder])]
    assert found == chains


def test_the_work_grows_with_the_number_of_files_alone(tmp_path: Path) -> None:
    """Also where no file follows another, as with one capture of each of thousands of brokers."""

    def calls(count: int) -> int:
        files = [recording(tmp_path / f"broker-{n}.pcap", n, 10**12 + n) for n in range(count)]
        counted = Counter[str]()
        former = sys.getprofile()
        sys.setprofile(lambda frame, event, _: counted.update([frame.f_code.co_filename]) if "call" in event else None)
        try:
            points = capture_points(files)
        finally:
            sys.setprofile(former)
        assert len(points) == count
        return sum(times for file, times in counted.items() if Path(file).parent == package)

    package = Path(sys.modules[capture_points.__module__].__file__ or "").parent
    assert calls(300) < 2.5 * calls(150)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda packets: make.pcap(packets), lambda packets: make.pcap(packets, order=">")),
        (lambda packets: make.pcap(packets), lambda packets: make.pcap(packets, nano=True)),
        (lambda packets: make.pcap(packets), lambda packets: make.pcapng(packets)),
        (lambda packets: make.pcap(packets), lambda packets: make.pcap(packets, link=make.RAW)),
        (lambda packets: named("eth0", packets), lambda packets: named("eth1", packets)),
    ],
    ids=["byte order", "resolution", "format", "link type", "interface"],
)
def test_files_that_describe_other_interfaces_are_of_different_places(
    first: Callable[[list[make.Packet]], bytes], second: Callable[[list[make.Packet]], bytes], tmp_path: Path
) -> None:
    packets = make.Talk().open().ask(make.request(6, 8, 0, make.UPDATE_METADATA_8)).packets
    for n, write in enumerate((first, second)):
        (tmp_path / f"x.pcap{n}").write_bytes(write(packets[2 * n : 2 * n + 2]))
    assert len(capture_points([tmp_path])) == 2


def named(interface: str, packets: list[make.Packet]) -> bytes:
    head = make.section() + make.interface(options=make.option(2, interface.encode()) + make.option(0, b""))
    return head + b"".join(make.enhanced(packet) for packet in packets)


def test_files_of_other_names_or_folders_are_of_different_places(tmp_path: Path) -> None:
    packets = make.Talk().open().ask(make.request(6, 8, 0, make.UPDATE_METADATA_8)).packets
    paths = [tmp_path / "a.pcap", tmp_path / "b.pcap", tmp_path / "inner" / "a.pcap"]
    paths[2].parent.mkdir()
    for n, path in enumerate(paths):
        path.write_bytes(make.pcap(packets[n : n + 1]))
    assert [p.name for p in capture_points(paths)] == [f"{tmp_path.name}/a.pcap", "b.pcap", "inner/a.pcap"]


def test_files_said_to_be_of_one_place_are(tmp_path: Path) -> None:
    original = DATA / "captures" / "ibp-3.9-a.pcap.gz"
    link, packets = make.read_pcap(original)
    paths = [tmp_path / name for name in ("night.pcap", "morning.pcap")]
    for path, part in zip(paths, cut(packets, 2), strict=True):
        path.write_bytes(make.pcap(part, link))
    found = list(frames(reversed(paths), capture="broker-1"))
    assert [f.payload for f in found] == [f.payload for f in frames(original)]
    assert {f.connection.capture for f in found} == {"broker-1"}


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    path = DATA / "captures" / "ibp-3.9-a.pcap.gz"
    link = tmp_path / "link.pcap.gz"
    link.symlink_to(path)
    assert [p.files for p in capture_points([path, str(path), link])] == [(str(path),)]


def test_rotated_request_logs_are_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    original = DATA / "request_log" / "broker-0-kafka-request.log.gz"
    lines = gzip.decompress(original.read_bytes()).splitlines(keepends=True)
    half = len(lines) // 2
    (tmp_path / "kafka-request.log").write_bytes(b"".join(lines[half:]))
    (tmp_path / "kafka-request.log.2026-11-21-05").write_bytes(b"".join(lines[:half]))
    (tmp_path / "notes.txt").write_text("no capture")
    assert [len(p.files) for p in capture_points([tmp_path])] == [2]
    assert [e.to_json() for e in exchanges(tmp_path)] == [e.to_json() for e in exchanges(original)]
    monkeypatch.undo()
    time.tzset()


def test_a_file_without_packets_is_of_the_others_place(tmp_path: Path) -> None:
    packets = make.Talk().open().packets
    (tmp_path / "x.pcap").write_bytes(make.pcap(packets))
    (tmp_path / "x.pcap1").write_bytes(make.pcap([]))
    (point,) = capture_points([tmp_path])
    assert [path.rsplit("/", 1)[1] for path in point.files] == ["x.pcap", "x.pcap1"]


@pytest.mark.parametrize(
    ("going_on", "places"),
    [("AB", [[0, 1, 2]]), ("A", [[0, 2], [1]]), ("B", [[0], [1, 2]]), ("", [[0], [1], [2]])],
    ids=["both go on", "the first goes on", "the second goes on", "other hosts"],
)
def test_a_connection_may_go_on_behind_a_file_without_it(
    going_on: str, places: list[list[int]], tmp_path: Path
) -> None:
    """A mere number may be that of a host; but a recorder's short file may show a new connection alone."""
    asked = make.request(6, 8, 0, make.UPDATE_METADATA_8)
    talks = {name: make.Talk(client=("10.0.0.1", 50_000 + n)).open() for n, name in enumerate("ABC")}
    now_ns = make.START_NS
    for number, names in enumerate(("A", "B", f"{going_on}C")):
        packets: list[make.Packet] = []
        for name in names:
            talk = talks[name]
            talk.now_ns, talk.packets = now_ns, packets
            now_ns = talk.ask(asked).now_ns
        (tmp_path / f"tap-0-{number}.pcap").write_bytes(make.pcap(packets))
    assert [[int(Path(file).stem[-1]) for file in point.files] for point in capture_points([tmp_path])] == places


def test_a_directory_without_captures_is_told(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="a directory without a capture or request log"):
        capture_points([tmp_path])


def test_tables_of_rotated_files_are_those_of_one(tmp_path: Path) -> None:
    original = DATA / "captures" / "ibp-3.9-a.pcap.gz"
    link, packets = make.read_pcap(original)
    for n, part in enumerate(cut(packets, 4)):
        (tmp_path / f"ibp-3.9-a.pcap{n}").write_bytes(make.pcap(part, link))
    parts, whole = read(tmp_path), read(original)
    for name in ("requests", "responses", "partition_states", "frames"):
        columns = [column for column in whole[name].column_names if column != "file"]
        assert parts[name].select(columns).to_pylist() == whole[name].select(columns).to_pylist()


@pytest.fixture
def with_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of a capture, three files that are captures by their names alone, and two of other kinds."""
    (tmp_path / "good.pcap.gz").write_bytes((DATA / "captures" / "ibp-3.9-a.pcap.gz").read_bytes())
    (tmp_path / "garbage.pcap1").write_bytes(b"\x01" * 5000)
    (tmp_path / "packed.pcapng.zip").write_bytes(b"PK\x03\x04\0\0\0\0")
    (tmp_path / "empty.PCAP").touch()
    (tmp_path / "locked.pcap").touch()
    (tmp_path / "README").write_text("how these were taken")
    (tmp_path / "hosts.json").write_text("{}")
    opened = type(tmp_path).open

    def refused(path: Path, *arguments: object, **more: object) -> object:
        if path.name == "locked.pcap":
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(type(tmp_path), "open", refused)
    return tmp_path


def test_files_named_as_captures_stay_in_the_list_whatever_they_hold(with_unreadable: Path) -> None:
    names = {point.name for point in capture_points([with_unreadable])}
    assert names == {"good.pcap", "garbage.pcap", "packed.pcapng.zip", "empty.PCAP", "locked.pcap"}


def test_files_of_a_directory_that_cannot_be_read_cost_only_themselves(with_unreadable: Path) -> None:
    summary = CaptureSummary()
    found = list(frames(with_unreadable, summary=summary))
    assert len(found) == len(list(frames(with_unreadable / "good.pcap.gz")))
    reasons = {bad.file: bad.reason for bad in summary.bad_inputs}
    rows = read(str(with_unreadable))["bad_inputs"].to_pylist()
    assert {row["file"] for row in rows} == set(reasons)
    for name, reason in {
        "garbage.pcap1": "not a capture",
        "packed.pcapng.zip": "a zip archive",
        "empty.PCAP": "an empty file",
        "locked.pcap": "permission denied",
    }.items():
        assert reason in reasons.pop(name)
        assert [reason in row["reason"] for row in rows if row["file"] == name] == [True]
    assert not reasons


def test_a_directory_of_unreadable_captures_alone_is_refused_with_their_reasons(tmp_path: Path) -> None:
    (tmp_path / "garbage.pcap").write_bytes(b"\x01" * 5000)
    with pytest.raises(CaptureError, match=r"garbage\.pcap: not a capture"):
        list(frames(tmp_path))


def test_frames_takes_no_internal_arguments() -> None:
    assert set(inspect.signature(frames).parameters) == {
        "captures", "ports", "apis", "capture", "limit", "progress", "summary", "logs",
    }  # fmt: skip


def test_captures_that_lie_deeper_are_named_with_what_to_type(tmp_path: Path) -> None:
    """As a pattern where it names no other directory and nothing needs quotes, else one by one."""

    def typed(*folders: str) -> str:
        (tmp_path / "/".join(folders)).mkdir(parents=True)
        (tmp_path / "/".join(folders) / "state-change.log").touch()
        with pytest.raises(CaptureError) as raised:
            capture_points([tmp_path])
        return str(raised.value).rpartition("; name their directories: ")[2].replace(str(tmp_path), "")

    assert typed("b", "logs") == "/b/logs"
    assert typed("a host", "logs") == "/*/logs"
    (tmp_path / "empty" / "logs").mkdir(parents=True)
    assert typed("c", "logs", "x", "y") == "'/a host/logs' /b/logs /c/logs/x/y"


def test_directories_that_are_not_read_with_theirs_are_named(tmp_path: Path) -> None:
    """Those beside captures, and those below directories of hosts; others are read, or hold nothing to read."""

    def log(*folders: str) -> Path:
        file = tmp_path.joinpath(*folders, "state-change.log")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        return file

    (tmp_path / "empty").mkdir()
    log("a host"), log("b", "logs")
    assert folders_left_out(tmp_path) == [str(tmp_path / "b" / "logs")]
    file = log()
    assert folders_left_out(tmp_path) == [str(tmp_path / "a host"), str(tmp_path / "b")]
    assert folders_left_out(tmp_path / "a host") == folders_left_out(file) == folders_left_out("nothing") == []
