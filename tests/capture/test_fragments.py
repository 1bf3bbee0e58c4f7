"""Packets that were cut into IP fragments are put together again; what is not sure is dropped and counted."""

import struct
from pathlib import Path

import packets as make
import pytest
from conftest import DATA
from packets import fragments

from kproto.capture import WHOLE, CaptureSummary, frames
from kproto.capture.fragments import Fragments

FOUR = DATA / "captures" / "ibp-3.9-big-a.pcap.gz"
SIX = DATA / "captures" / "ibp-2.8-a.pcap.gz"


def written(path: Path, packets: list[tuple[int, bytes]]) -> Path:
    path.write_bytes(make.pcap([make.Packet(time_ns, ip, len(ip)) for time_ns, ip in packets], make.RAW))
    return path


def payloads(path: Path, summary: CaptureSummary | None = None) -> list[tuple[str, bytes]]:
    return [(f.direction, f.payload) for f in frames(path, summary=summary) if f.status == WHOLE]


@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "backwards"])
@pytest.mark.parametrize("capture", [FOUR, SIX], ids=["IPv4", "IPv6"])
def test_a_capture_of_fragments_tells_what_the_whole_packets_tell(
    capture: Path, backwards: bool, tmp_path: Path
) -> None:
    link, packets = make.read_pcap(capture)
    cut = []
    for number, packet in enumerate(packets):
        ip = make.ip_of(packet.data, link)
        pieces = fragments(ip, number, 512) if len(ip) > 600 else [ip]
        cut += [(packet.time_ns, piece) for piece in (pieces[::-1] if backwards else pieces)]
    assert len(cut) > 1.05 * len(packets)
    summary = CaptureSummary()
    assert payloads(written(tmp_path / "cut.pcap", cut), summary) == payloads(capture)
    assert (summary.ip_fragments, summary.not_tcp) == (0, 0)


def talk() -> tuple[list[bytes], bytes]:
    """A conversation's packets, and the request of 600 bytes in the last."""
    request = make.request(6, 8, 1, bytes(600))
    packets = make.Talk().open().ask(request, 1460).packets
    return [make.ip_of(p.data, make.ETHERNET) for p in packets], request[4:]


def test_copies_of_fragments_are_no_overlap(tmp_path: Path) -> None:
    (*before, last), request = talk()
    pieces = fragments(last, 7, 256)
    packets = [*before, *(piece for piece in pieces for _ in range(2)), *pieces]
    summary = CaptureSummary()
    assert payloads(written(tmp_path / "x", [(1, p) for p in packets]), summary) == [("request", request)]
    assert summary.ip_fragments == 0


def test_a_fragment_of_a_few_bytes_is_one_too(tmp_path: Path) -> None:
    (*before, last), request = talk()
    packets = [*before, *fragments(last, 7, len(last) - 20 - 4 & ~7)]
    assert 20 < len(packets[-1]) < 40
    assert payloads(written(tmp_path / "x", [(1, p) for p in packets])) == [("request", request)]


def test_an_identification_that_comes_again_is_another_packet(tmp_path: Path) -> None:
    packets, request = talk()
    other = make.request(6, 8, 2, bytes(600))
    second = make.tcp(("10.0.0.1", 50000), ("10.0.0.2", 9092), 1001 + 4 + len(request), 5001, make.ACK, other)
    cut = [*packets[:-1], *fragments(packets[-1], 7, 256), *fragments(second, 7, 256)]
    found = payloads(written(tmp_path / "x", [(1, p) for p in cut]))
    assert found == [("request", request), ("request", other[4:])]


def overlapping(pieces: list[bytes]) -> list[bytes]:
    first = pieces[0]
    return [first, first[:2] + struct.pack(">H", 20 + 64) + first[4:6] + b"\x20\x08" + first[8:84], *pieces[1:]]


@pytest.mark.parametrize(
    ("change", "dropped"),
    [
        (overlapping, 4),
        (lambda pieces: pieces[:-1], 2),
        (lambda pieces: pieces[1:], 2),
        (lambda pieces: [pieces[0], pieces[2]], 2),
        (lambda pieces: [pieces[0], pieces[1][:-20], pieces[2]], 3),  # cut by the snaplen
        (lambda pieces: [pieces[0], pieces[2], pieces[2][:6] + b"\0\x80" + pieces[2][8:], pieces[1]], 4),
    ],
    ids=["overlap", "no last", "no first", "no second", "one cut short", "two lasts"],
)
def test_a_packet_of_which_not_all_is_sure_is_dropped(change: object, dropped: int, tmp_path: Path) -> None:
    (*before, last), _ = talk()
    assert callable(change)
    packets = [*before, *change(fragments(last, 7, 256))]
    summary = CaptureSummary()
    assert payloads(written(tmp_path / "x", [(1, p) for p in packets]), summary) == []
    assert summary.ip_fragments == dropped


def test_fragments_wait_half_a_minute(tmp_path: Path) -> None:
    (*before, last), request = talk()
    pieces = fragments(last, 7, 256)
    for seconds, found in ((30, [("request", request)]), (31, [])):
        times = [*((1, p) for p in before), *((n * seconds * 10**9 // 2 + 1, p) for n, p in enumerate(pieces))]
        assert payloads(written(tmp_path / "x", times)) == found


def test_fragments_of_what_is_not_tcp_are_not_kept(tmp_path: Path) -> None:
    (*_, last), _ = talk()
    udp = [piece[:9] + b"\x11" + piece[10:] for piece in fragments(last, 7, 256)]
    summary = CaptureSummary()
    payloads(written(tmp_path / "x", [(1, p) for p in udp]), summary)
    assert (summary.not_tcp, summary.ip_fragments) == (3, 0)


@pytest.mark.parametrize("size", [pytest.param(8, marks=pytest.mark.slow), 1480, 60_000])
def test_what_waits_is_bounded_whatever_comes(size: int) -> None:
    """Beginnings without end, all at one moment, of more packets than may wait."""
    summary = CaptureSummary()
    waiting = Fragments(summary)
    head = bytearray(struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, 0, 0x2000, 64, 6, 0) + bytes(8 + size))
    room = 8 << 20
    count = 2 * room // size if size > 1000 else 100_000
    for number in range(count):
        head[12:20] = number.to_bytes(8)
        assert waiting.ipv4(1, bytes(head), 0, len(head), begins=True) is None
    assert 0 < count - summary.ip_fragments <= room // (size + 200) + 1  # those still wait; the others were dropped
    waiting.end()
    assert summary.ip_fragments == count
