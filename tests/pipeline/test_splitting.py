"""Whatever the parts in which a capture is read, the frames, the bodies and the counts are those of the whole."""

from __future__ import annotations

import gzip
import pickle
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import DATA
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from packets import Packet, pcap, pcapng, read_pcap
from table_truth import CAPTURES, name_of

from kproto.capture import CapturePoint, CaptureReader
from kproto.capture.splits import SplitError
from kproto.pipeline.splitting import plan, scan_parts
from kproto.pipeline.stitching import CarriedConnections, Counts, reader_behind, stitch
from kproto.tables import SCAN, scan
from kproto.tables.ids import body_id
from kproto.tables.scanning import ScanToGoOn, Selection

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kproto.pipeline.splitting import Part

Row = dict[str, Any]
BUCKETS = 3


def stitched(point: CapturePoint, parts: Iterable[Part]) -> list[Row]:
    """What Spark does with parts, in one process; each part is read as a task of its own."""
    rows, counts, _connections = joined(point, parts)
    return rows + pa.Table.from_batches(counts.rows({point.name: point})).to_pylist()


def joined(
    point: CapturePoint, parts: Iterable[Part], states: dict[str, str | None] | None = None
) -> tuple[list[Row], Counts, list[bytes]]:
    """The rows, the counts, and the connections of a capture point that grows."""
    selection = Selection()
    connections: list[bytes] = []
    batches = [batch for part in parts for batch in scan_parts([part], selection, buckets=BUCKETS)]
    table = pa.Table.from_batches(batches).sort_by([(name, "ascending") for name in ("bucket", "key", "part", "item")])
    points, counts = {point.name: point}, Counts()
    rows: list[Row] = []
    for bucket in range(BUCKETS):
        chosen = table.filter(pc.equal(table["bucket"], bucket)).to_batches(max_chunksize=500)
        in_bucket = Counts()
        carried = None if states is None else CarriedConnections(states, selection)
        found = pa.Table.from_batches(stitch(chosen, points, selection, in_bucket, carried), SCAN).to_pylist()
        connections += [state for _capture, state in carried.freeze()] if carried else []
        given = {row["body_id"] for row in found if row["payload"] is not None}
        assert {row["body_id"] for row in found} - {None} == given
        rows += found
        counts.merge(pickle.loads(pickle.dumps(in_bucket)))
    return rows, counts, connections


def comparable(rows: list[Row]) -> list[str]:
    """Rows in an order of their own, without payloads: which of equal bodies is given may differ."""
    return sorted(repr({**row, "payload": None}) for row in rows)


def first_sent(rows: list[Row]) -> dict[bytes, int]:
    """When each body was sent first; those that differ in their broker epoch alone are one body."""
    found: dict[bytes, int] = {}
    for row in rows:
        if row["payload"] is not None:
            assert row["body_id"] == body_id(row["api_key"], row["api_version"], row["direction"], row["payload"])
            found[row["body_id"]] = min(found.get(row["body_id"], 1 << 63), row["ts_ns"])
    return found


def check(point: CapturePoint, split_bytes: int, least_parts: int = 2) -> None:
    whole, parts = plan([point], split_bytes)
    assert not whole
    assert len(parts) >= least_parts
    expected = pa.Table.from_batches(scan([point])).to_pylist()
    rows = stitched(point, parts)
    assert comparable(rows) == comparable(expected)
    assert first_sent(rows) == first_sent(expected)


def check_growing(point: CapturePoint, split_bytes: int, folder: Path) -> list[int]:
    """Read the first two files of a capture point, and then each of the others, alone; return the numbers of parts."""
    selection, settled, counted = Selection(), list[Row](), []
    state = folder / "state"
    for ends in range(min(2, len(point.files)), len(point.files) + 1):
        grown = CapturePoint(point.name, point.files[:ends])
        new = CapturePoint(point.name, grown.files[ends - 1 :] if state.exists() else grown.files)
        resumed = CaptureReader.resumed(state.read_bytes()) if state.exists() else None
        files = new.files
        _whole, parts = plan([new], split_bytes, grows=True)
        counted.append(len(parts))
        if parts:
            with suppress(SplitError):  # then its files are read by one task
                rows, counts, connections = joined(new, parts, {point.name: str(state) if resumed else None})
                before = state.read_bytes() if resumed else None
                resumed, files = reader_behind(new, selection, before, connections, counts), ()
                settled += rows
        reading = ScanToGoOn(grown, files, selection, resumed)
        settled += pa.Table.from_batches(reading.settled(), SCAN).to_pylist()
        state.write_bytes(reading.state or b"")
        opened = pa.Table.from_batches(reading.open(), SCAN).to_pylist()
        expected = pa.Table.from_batches(scan([grown])).to_pylist()
        assert comparable(settled + opened) == comparable(expected)
        assert first_sent(settled + opened) == first_sent(expected)
    return counted


@pytest.mark.parametrize("path", CAPTURES, ids=name_of)
@pytest.mark.parametrize("split_bytes", [16 << 10, 100_000])
def test_parts_of_a_capture_give_what_the_whole_gives(path: Path, split_bytes: int, tmp_path: Path) -> None:
    file = tmp_path / path.stem
    file.write_bytes(gzip.decompress(path.read_bytes()))
    check(CapturePoint(file.name, (str(file),)), split_bytes)


@pytest.mark.parametrize("split_bytes", [30_000, 64 << 10, 200_000])
def test_parts_of_a_capture_with_lost_and_swapped_packets_give_what_the_whole_gives(
    split_bytes: int, tmp_path: Path
) -> None:
    file = tmp_path / "reorder-loss.pcap"
    file.write_bytes(gzip.decompress((DATA / "reorder-loss.pcap.gz").read_bytes()))
    point = CapturePoint(file.name, (str(file),))
    directions = [row["direction"] for row in pa.Table.from_batches(scan([point])).to_pylist()]
    assert (directions.count("request"), directions.count("response")) == (586, 521)
    check(point, split_bytes)


class Perturbed(NamedTuple):
    """What happens to a capture's packets: how many of a thousand are lost, sent twice, swapped with the next, cut off
    in the middle, and put anywhere with the time that they had; and the file, the part and the time a second takes."""

    name: str
    lost: int
    doubled: int
    swapped: int
    cut: int
    misplaced: int
    begun: int
    files: int
    split_bytes: int
    slower: int


def perturbed(how: Perturbed, random: Random, packets: list[Packet]) -> list[Packet]:
    def happens(of_a_thousand: int) -> bool:
        return random.randrange(1000) < of_a_thousand

    out: list[Packet] = []
    for packet in packets[len(packets) * how.begun // 1000 :]:
        time_ns = packets[0].time_ns + (packet.time_ns - packets[0].time_ns) * how.slower
        data = packet.data[: max(60, len(packet.data) // 2)] if happens(how.cut) else packet.data
        copies = 0 if happens(how.lost) else 2 if happens(how.doubled) else 1
        out += [Packet(time_ns, data, packet.on_wire)] * copies
    for i in range(len(out) - 1):
        if happens(how.swapped):
            out[i], out[i + 1] = out[i + 1], out[i]
    for _ in range(len(out) * how.misplaced // 1000):
        out.insert(random.randrange(len(out)), out.pop(random.randrange(len(out))))
    return out


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    how=st.builds(
        Perturbed,
        name=st.sampled_from([name_of(path) for path in CAPTURES if "big" not in path.name]),
        lost=st.sampled_from([0, 10, 50, 200]),
        doubled=st.sampled_from([0, 50]),
        swapped=st.sampled_from([0, 50, 200]),
        cut=st.sampled_from([0, 0, 10]),
        misplaced=st.sampled_from([0, 2, 10]),
        begun=st.sampled_from([0, 300]),
        files=st.integers(1, 3),
        split_bytes=st.sampled_from([8 << 10, 20_000, 100_000]),
        slower=st.sampled_from([1, 10, 1000]),
    ),
    seed=st.integers(0, 2**32),
)
def test_parts_of_any_damaged_capture_give_what_the_whole_gives(how: Perturbed, seed: int, tmp_path: Path) -> None:
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == how.name))
    packets = perturbed(how, Random(seed), packets[:6000])
    files = []
    for n in range(how.files):
        file = tmp_path / f"control.pcap{n or ''}"
        share = packets[len(packets) * n // how.files : len(packets) * (n + 1) // how.files]
        file.write_bytes(pcap(share, link))
        files.append(str(file))
    point = CapturePoint("control.pcap", tuple(files))
    assume(plan([point], how.split_bytes)[1])
    with suppress(SplitError):  # then it is read as a whole
        check(point, how.split_bytes)
    if how.files > 1:
        (tmp_path / "state").unlink(missing_ok=True)
        check_growing(point, how.split_bytes, tmp_path)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("name", ["ibp-3.9-a", "ibp-0.9.0-a"])
def test_pcapng_is_read_in_parts_too(name: str, order: str, tmp_path: Path) -> None:
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == name))
    file = tmp_path / "a.pcapng"
    file.write_bytes(pcapng(packets, link, order))
    check(CapturePoint(file.name, (str(file),)), 50_000)


def rotated(tmp_path: Path, *, packed: bool = False) -> CapturePoint:
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-migration-a"))
    third = len(packets) // 3
    files = []
    for n in range(3):
        data = pcap(packets[n * third : (n + 1) * third if n < 2 else None], link)
        file = tmp_path / (f"control.pcap{n or ''}" + (".gz" if packed else ""))
        file.write_bytes(gzip.compress(data) if packed else data)
        files.append(str(file))
    return CapturePoint("control.pcap", tuple(files))


@pytest.mark.parametrize("packed", [False, True])
def test_rotated_files_are_parts_of_one_capture(packed: bool, tmp_path: Path) -> None:
    point = rotated(tmp_path, packed=packed)
    check(point, 10_000 if packed else 60_000, least_parts=3 if packed else 6)
    assert check_growing(point, 10_000 if packed else 60_000, tmp_path) == ([2, 0] if packed else [4, 2])


def test_more_connections_than_can_be_followed_end_with_the_last_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kproto.pipeline.stitching.MOST_CONNECTIONS", 1)
    point = rotated(tmp_path)
    check_growing(CapturePoint(point.name, point.files[:2]), 60_000, tmp_path)
    reader, _waiting = CaptureReader.resumed((tmp_path / "state").read_bytes())
    assert 0 < reader.connections.open_connections <= BUCKETS


def test_damage_within_a_part_is_told_as_of_the_whole(tmp_path: Path) -> None:
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-a"))
    data = bytearray(pcap(packets, link))
    at = data.index(packets[len(packets) // 3].data) - 16
    data[at + 8 : at + 12] = b"\xff\xff\xff\x7f"
    file = tmp_path / "damaged.pcap"
    file.write_bytes(data[:-7])
    point = CapturePoint(file.name, (str(file),))
    assert len({row["bad_input"] is None for row in pa.Table.from_batches(scan([point])).to_pylist()}) == 2
    check(point, 200_000)


def test_a_part_that_does_not_end_at_the_next_ones_first_packet_is_refused(tmp_path: Path) -> None:
    """A packet that holds a capture itself deceives the search for a border, but not the check after it."""
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-a"))
    inner = pcap(packets[100:400], link)[24:]
    packets[50] = packets[50]._replace(data=packets[50].data + inner[:200_000], on_wire=300_000)
    file = tmp_path / "nested.pcap"
    file.write_bytes(pcap(packets, link))
    _, parts = plan([CapturePoint(file.name, (str(file),))], 40_000)
    with pytest.raises(SplitError, match="--split-size 0"):
        list(scan_parts(parts, Selection()))


def test_small_captures_are_read_whole(tmp_path: Path) -> None:
    link, packets = read_pcap(CAPTURES[0])
    file = tmp_path / "a.pcap"
    file.write_bytes(pcap(packets, link))
    point = CapturePoint(file.name, (str(file),))
    for split_bytes in (0, file.stat().st_size, 1 << 30):
        assert plan([point], split_bytes) == ([point], [])
