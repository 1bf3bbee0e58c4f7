"""Recordings that are read by themselves, in any order, and joined by their connections give the rows of the whole."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from packets import enhanced, interface, pcap, read_pcap, section
from state_runs import logs_of
from table_truth import CAPTURES, name_of

from kproto.capture.file_ends import FileEnds
from kproto.tables import SCAN, read
from kproto.tables.brokers import BrokerDirectory
from kproto.tables.filters import Filters
from kproto.tables.joining import MENDED, Edge, Joiner
from kproto.tables.reading import TableReader
from kproto.tables.recordings import Known, PartRead, read_parts, read_together
from kproto.tables.scanning import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from packets import Packet

SMALL = [path for path in CAPTURES if "big" not in path.name]
FEW_PACKETS = [(0, 1), (0, 2), (0, 1, 2), (0, 1, 3), (0, 2, 3, 4, 5)]
"""Where files of one packet or two end."""


class Shelf:
    """Reads recordings as a run does, and keeps what joins them."""

    def __init__(self) -> None:
        self.known = Known()
        self.batches: list[pa.RecordBatch] = []
        self.ends: list[Edge] = []
        self.begins: list[Edge] = []
        self.edges: dict[str, bytes] = {}
        self.changes: Counter[str] = Counter()
        self.connections: dict[bytes, bytes] = {}

    def store(self, edges: bytes) -> str:
        name = f"edges-{len(self.edges)}"
        self.edges[name] = edges
        return name

    def add(self, files: Iterable[Path]) -> int:
        parts = self.known.parts_to_read(map(str, files), "default", None)
        found: list[PartRead] = []
        self.batches += read_parts(read_together(parts, FileEnds()), Selection(), found.append, self.store)
        for part in found:
            self.known.note(part)
            if part.edges is not None:
                label = part.recording.capture
                self.ends += [Edge(part.edges, label, border, label, state=part.edges) for border in part.ends]
                self.begins += [Edge(part.edges, label, border, label, file=part.file) for border in part.begins]
        joiner = Joiner(Selection(), self.edges.get, self.store)
        self.batches += joiner.join(self.ends, self.begins)
        self.ends, self.begins = joiner.ends, joiner.begins
        self.connections |= joiner.connections
        for each in joiner.counts.values():
            self.changes.update(each)
        return len(parts)

    def counts(self) -> list[int]:
        """The counts of all files together that what is before a file may change."""
        facts = [row["facts"] for row in pa.Table.from_batches(self.batches, SCAN).to_pylist() if row["facts"]]
        return [sum(each[name] for each in facts) + self.changes[name] for name in MENDED]

    def requests(self) -> dict[bytes, tuple[Any, ...]]:
        return best(self.batches)


def best(batches: list[pa.RecordBatch]) -> dict[bytes, tuple[Any, ...]]:
    """The row of each request that tells most."""
    found: dict[bytes, tuple[Any, ...]] = {}
    frames = pa.Table.from_batches(batches, SCAN).to_pylist()
    notes = {row["request_frame_id"] for row in frames if row["frame_id"] is None}
    answers = {row["request_frame_id"]: row["frame_id"] for row in frames if row["direction"] == "response"}
    for row in frames:
        if row["direction"] == "request":
            told = (row["body_id"], answers.get(row["frame_id"]), row["correlation_id"], row["exchange_id"])
            known = found.get(row["frame_id"])
            if known is None or (known[0] is None and told[0] is not None):
                found[row["frame_id"]] = told
    assert notes is not None
    return found


def whole(path: Path) -> dict[bytes, tuple[Any, ...]]:
    requests = read(path)["requests"].to_pylist()
    return {
        row["frame_id"]: (row["body_id"], row["response_frame_id"], row["correlation_id"], row["exchange_id"])
        for row in requests
    }


def cut(packets: list[Packet], link: int, ends: list[int], folder: Path, names: list[str]) -> list[Path]:
    files = []
    for name, begin, end in zip(names, [0, *ends], [*ends, len(packets)], strict=True):
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        data = pcap(packets[begin:end], link)
        file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        files.append(file)
    return files


@settings(max_examples=3)
@example(run=("ibp-2.8-a", 100, "{}.pcap"), ends=[13], names=(0, 1))  # behind an opening
@example(run=("ibp-2.8-a", 100, "{}.pcap"), ends=[13, 14], names=range(7))  # a file of the answer to an opening alone
@example(
    run=("ibp-1.0-a", 449, "{}.pcap"), ends=[2, 4, 5], names=(0, 2, 3, 1)
)  # another end comes before a request in doubt
@example(
    run=("ibp-3.2-IV0-a", 481, "control.pcap{}"), ends=[32, 33, 34, 63], names=(0, 1, 4, 3, 2)
)  # a reset that acknowledges nothing
# behind a connection's opening stands what is a request where nothing follows
@example(run=("ibp-2.8-a", 100, "{}.pcap"), ends=[147], names=(0, 1))
# beginnings without a complete exchange; ends that are guessed while others are missing
@example(run=("ibp-2.8-a", 100, "{}.pcap"), ends=[15, 22, 24, 44, 93], names=(5, 2, 4, 3, 0, 1))
@example(run=("ibp-2.8-a", 100, "{}.pcap"), ends=[11, 67, 99, 108, 131], names=(3, 5, 2, 1, 4, 0))
@given(
    run=st.sampled_from(
        [("ibp-2.8-a", 100, "{}.pcap"), ("ibp-1.0-a", 449, "{}.pcap"), ("ibp-3.2-IV0-a", 481, "control.pcap{}")]
    ),
    ends=st.lists(st.integers(1, 149), min_size=1, max_size=6, unique=True).map(sorted)
    | st.builds(lambda at, few: [at + each for each in few], st.integers(1, 144), st.sampled_from(FEW_PACKETS)),
    names=st.permutations(range(7)),
)
def test_a_connection_counts_once_in_whatever_order_its_files_come(
    run: tuple[str, int, str], ends: list[int], names: Sequence[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("counted")
    name, begin, style = run
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == name))
    packets = packets[begin : begin + 150]
    shelf, once = Shelf(), Shelf()
    once.add(cut(packets, link, [], folder, ["whole.pcap"]))
    files = cut(packets, link, ends, folder, [style.format(n) for n in range(len(ends) + 1)])
    for number in names:
        if number < len(files):
            shelf.add([files[number]])
    assert shelf.counts() == once.counts()


@pytest.mark.parametrize("ends", [[114], [116, 117], [160], [200], [240]])
def test_a_connection_keeps_its_id_in_the_next_file(ends: list[int], tmp_path: Path) -> None:
    """Also before its first request, and one that is over there, as the file before shows that it has begun."""
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a"))
    shelf, once = Shelf(), Shelf()
    once.add(cut(packets, link, [], tmp_path, ["whole/control.pcap"]))
    for file in cut(packets, link, ends, tmp_path, ["control.pcap", "control.pcap1", "control.pcap2"][: len(ends) + 1]):
        shelf.add([file])
    rows = pa.Table.from_batches(shelf.batches, SCAN)["conn_id"].drop_null().to_pylist()
    known = pa.Table.from_batches(once.batches, SCAN)["conn_id"].drop_null().to_pylist()
    assert {shelf.connections.get(each, each) for each in rows} == set(known)


@pytest.mark.slow
@settings(max_examples=25)
@example(name="ibp-2.4-IV1-a", ends=[19], seed=0)  # within the first exchanges of connections older than it
@example(name="ibp-2.4-IV1-a", ends=[5, 11, 15, 19], seed=1)
@example(name="ibp-1.0-a", ends=[660], seed=0)  # before data that is sent again
@given(
    name=st.sampled_from([name_of(path) for path in SMALL]),
    ends=st.lists(st.integers(1, 999), min_size=1, max_size=4, unique=True).map(sorted),
    seed=st.integers(0, 2**32),
)
def test_any_order_of_rotated_files_gives_the_whole(
    name: str, ends: list[int], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Wherever the files end, whatever they are called, one by one or together, and if the first ones are deleted."""
    folder = tmp_path_factory.mktemp("rotated")
    chosen = random.Random(seed)
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == name))
    packets = packets[:2500]
    (folder / "whole.pcap").write_bytes(pcap(packets, link))
    count = len(ends) + 1
    names = chosen.choice(
        [
            [f"control.pcap{n or ''}" for n in range(count)],
            [f"{n:02}/control.pcap" for n in range(count)],
            [f"{chosen.randrange(1 << 30)}.pcap{chosen.choice(['', '.gz'])}" for _ in range(count)],
        ]
    )
    ends = [len(packets) * end // 1000 for end in ends]
    files = cut(packets, link, ends, folder, names)
    chosen.shuffle(files)
    shelf = Shelf()
    while files:
        number = chosen.randint(1, len(files))
        shelf.add(files[:number])
        for file in files[:number]:
            file.unlink()
        del files[:number]
    assert shelf.requests() == whole(folder / "whole.pcap")


def test_a_recording_is_known_under_any_name_and_read_on_where_it_has_grown(tmp_path: Path) -> None:
    link, packets = read_pcap(SMALL[0])
    first, second = tmp_path / "a.pcap", tmp_path / "b.pcap"
    first.write_bytes(pcap(packets[:201], link)[:-7])  # it is being written
    shelf = Shelf()
    assert shelf.add([first]) == 1
    assert shelf.add([first]) == 0
    first.rename(second)
    assert shelf.add([second]) == 0
    packed = tmp_path / "c.pcap.gz"
    packed.write_bytes(gzip.compress(second.read_bytes()))
    assert shelf.add([packed]) == 0
    second.write_bytes(pcap(packets[:500], link))
    assert shelf.add([second]) == 1
    assert shelf.requests() == whole(second)
    for grown in (501, 503, 503):  # by few packets
        second.write_bytes(pcap(packets[:grown], link))
        shelf.add([second])
    second.write_bytes(pcap(packets[:503], link))
    assert shelf.add([second]) == 0
    assert shelf.requests() == whole(second)
    second.write_bytes(pcap(packets[503:700], link))  # another one under its name
    assert shelf.add([second]) == 1
    (tmp_path / "all.pcap").write_bytes(pcap(packets[:700], link))
    assert shelf.requests() == whole(tmp_path / "all.pcap")


def test_a_pcapng_grows_behind_an_interface_that_begins_behind_packets(tmp_path: Path) -> None:
    """The blocks before the first packet do not describe it."""
    link, packets = read_pcap(SMALL[0])
    first, then = ([enhanced(each, which) for each in packets[300 * which :][:300]] for which in (0, 1))
    blocks = [section(), interface(link), *first, interface(link), *then]
    file, plain, shelf = tmp_path / "a.pcapng", tmp_path / "plain.pcap", Shelf()
    for content in (blocks[:200], blocks[:-100], [*blocks, *(enhanced(each, 1) for each in packets[600:900])]):
        file.write_bytes(b"".join(content))
        shelf.add([file])
    plain.write_bytes(pcap(packets[:900], link))
    assert shelf.requests() == whole(plain)


def test_rows_are_tables(tmp_path: Path) -> None:
    link, packets = read_pcap(SMALL[0])
    files = cut(packets, link, [len(packets) // 2], tmp_path, ["a.pcap", "b.pcap"])
    shelf = Shelf()
    shelf.add(files)
    reader = TableReader(Filters(), BrokerDirectory(), several=True)
    tables = reader.tables(shelf.batches, last=True)
    (tmp_path / "all.pcap").write_bytes(pcap(packets, link))
    assert tables["requests"].num_rows == read(tmp_path / "all.pcap")["requests"].num_rows


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["07/a.pcap", "08/a.pcap", "07/a.pcap1", "08/a.pcap1"], ["a.pcap", "08/a.pcap", "a.pcap", "08/a.pcap"]),
        (["2026-11-21/07/a.pcap", "2026-11-21/08/a.pcap", "2026-11-22/07/a.pcap"], ["a.pcap"] * 3),
        (["dt=20261121/a.pcap", "hour=07/a.pcap"], ["a.pcap"] * 2),
        (["07/2026/11/21/a.pcap", "07/2026/11/22/a.pcap", "08/2026/11/22/a.pcap"], ["a.pcap", "a.pcap", "08/a.pcap"]),
        (["x/a.pcap", *(f"y/a.pcap{n}" for n in range(3))], ["a.pcap", *["y/a.pcap"] * 3]),
    ],
)
def test_a_host_has_one_label_and_hosts_by_number_are_no_hours(
    names: list[str], labels: list[str], tmp_path: Path
) -> None:
    """A host under several labels would have several clocks, and several hosts under one label one clock."""
    for number, name in enumerate(names):
        file = tmp_path / "hosts" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"capture {number}")
    known = Known()
    found = [
        part.recording.capture
        for name in names
        for part in known.parts_to_read([str(tmp_path / "hosts" / name)], "default", None)
    ]
    assert found == labels


@pytest.mark.parametrize(("run", "level"), [("kafka-2.8.2", "TRACE"), ("ibp-3.9-a", "INFO"), ("kraft-3.9.1", "INFO")])
def test_requests_that_the_rotation_of_logs_cuts_are_those_of_the_whole(run: str, level: str, tmp_path: Path) -> None:
    logs = logs_of(run, level)
    for name in ("state-change.log", "controller.log"):
        lines = logs.get(f"broker-1/{name}", b"").splitlines(keepends=True)
        (tmp_path / "whole").mkdir(exist_ok=True)
        (tmp_path / "whole" / name).write_bytes(b"".join(lines))
        for number in range(20):
            part = lines[len(lines) * number // 20 : len(lines) * (number + 1) // 20]
            file = tmp_path / (f"{name}.{19 - number}" if number < 19 else name)
            file.write_bytes(b"".join(part))
    shelf = Shelf()
    shelf.add(sorted(file for file in tmp_path.iterdir() if file.is_file()))
    assert shelf.requests() == whole(tmp_path / "whole")
