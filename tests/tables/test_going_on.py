"""Rotated files that are read one after the other, each by a process of its own, give what one reading gives."""

from __future__ import annotations

import pickle
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packets import ETHERNET, Talk, pcap, read_pcap, request, response
from table_truth import CAPTURES, name_of

from kproto.capture import CapturePoint, CaptureReader
from kproto.capture.frozen import freeze, thaw
from kproto.tables import SCAN, scan
from kproto.tables.scanning import ScanToGoOn, Selection

if TYPE_CHECKING:
    from pathlib import Path

    from packets import Packet


def comparable(batches: list[pa.RecordBatch]) -> list[str]:
    """Rows in an order of their own, without payloads: which of equal bodies is given may differ."""
    return sorted(repr({**row, "payload": None}) for row in pa.Table.from_batches(batches, SCAN).to_pylist())


def check(packets: list[Packet], link: int, ends: list[int], folder: Path) -> list[int]:
    """Read files that end at these packets, one by one and at once; return the bytes of the states between them."""
    files, sizes = [], []
    for n, (begin, end) in enumerate(zip([0, *ends], [*ends, len(packets)], strict=True)):
        file = folder / f"control.pcap{n or ''}"
        file.write_bytes(pcap(packets[begin:end], link))
        files.append(str(file))
    settled: list[pa.RecordBatch] = []
    state = b""
    for number, file in enumerate(files):
        point = CapturePoint("control.pcap", tuple(files[: number + 1]))
        reading = ScanToGoOn(point, (file,), Selection(), CaptureReader.resumed(state) if state else None)
        settled += reading.settled()
        state = reading.state or b""
        assert state
        sizes.append(len(state))
        assert comparable([*settled, *reading.open()]) == comparable(list(scan([point])))
    return sizes


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([name_of(path) for path in CAPTURES if "big" not in path.name]),
    ends=st.lists(st.integers(1, 999), min_size=1, max_size=4, unique=True).map(sorted),
    lost=st.sampled_from([0, 10, 50]),
    swapped=st.sampled_from([0, 50]),
    seed=st.integers(0, 2**32),
)
def test_files_read_one_by_one_give_what_one_reading_gives(
    name: str, ends: list[int], lost: int, swapped: int, seed: int, tmp_path: Path
) -> None:
    """Wherever the files end: within requests, between a request and its response, within bytes out of order."""
    link, packets = read_pcap(next(path for path in CAPTURES if name_of(path) == name))
    random = Random(seed)
    packets = [packet for packet in packets[:3000] if random.randrange(1000) >= lost]
    for at in range(len(packets) - 1):
        if random.randrange(1000) < swapped:
            packets[at : at + 2] = packets[at + 1], packets[at]
    check(packets, link, [len(packets) * end // 1000 for end in ends], tmp_path)


def test_large_updates_before_and_across_the_end_of_a_file_have_their_place_in_the_state_once(tmp_path: Path) -> None:
    """Two brokers are sent an update, and another one, whose last packet is in the next file."""
    talks = [Talk(server=(f"10.0.0.{number}", 9092)).open() for number in (2, 3)]
    packets: list[Packet] = []
    for number in (1, 2):
        update = request(6, 8, number, Random(number).randbytes(10 << 20))
        for talk in talks:
            packets += talk.ask(update, 60_000).answer(response(6, 8, number, b"\0\0\0")).packets
            talk.packets.clear()
    sizes = check(packets, ETHERNET, [len(packets) - 2], tmp_path)
    assert 9 << 20 < sizes[0] < 11 << 20
    assert sizes[1] < 100_000


@pytest.mark.parametrize("given_bytes", [b"", b"no state", pickle.dumps(print), pickle.dumps(Random(1))])
def test_a_state_from_elsewhere_is_refused(given_bytes: bytes) -> None:
    """It would run code."""
    with pytest.raises(ValueError, match="this state cannot be read"):
        thaw(given_bytes)


def test_objects_that_hold_one_another_deeply_are_not_kept() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert freeze(deep) is None
