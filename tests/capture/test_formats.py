"""The same packets in every file format, link and packing give the same frames."""

import bz2
import gc
import gzip
import io
import lzma
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import packets as make
import pytest
import zstandard
from conftest import DATA, few

from kproto import CaptureError
from kproto.capture import GAP, WHOLE, CaptureReader, Captures, CaptureSummary, Exchange, Frame, exchanges, frames
from kproto.capture.source import Source

FOUR = DATA / "captures" / "ibp-3.9-big-a.pcap.gz"
SIX = DATA / "captures" / "ibp-2.8-a.pcap.gz"

Told = list[tuple[object, ...]]


def told(path: Captures, summary: CaptureSummary | None = None) -> Told:
    """What a capture tells, without the ids that depend on its name."""
    return [
        (
            str(frame.connection),
            frame.direction,
            frame.offset,
            frame.time_ns,
            frame.time_last_ns,
            frame.status,
            frame.payload,
            frame.api_key,
            frame.body_at,
            frame.request and frame.request.correlation_id,
        )
        for frame in frames(path, summary=summary)
    ]


@pytest.fixture(scope="module")
def expected() -> dict[Path, Told]:
    return {path: told(path) for path in (FOUR, SIX)}


@pytest.mark.parametrize("capture", [FOUR, SIX], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("nano", [False, True], ids=["micro", "nano"])
@pytest.mark.parametrize("order", ["<", ">"], ids=["little", "big"])
def test_pcap_of_either_byte_order_and_resolution(
    capture: Path, order: str, nano: bool, expected: dict[Path, Told], tmp_path: Path
) -> None:
    link, packets = make.read_pcap(capture)
    path = tmp_path / "other.pcap"
    path.write_bytes(make.pcap(packets, link, order, nano))
    assert told(path) == expected[capture]


@pytest.mark.parametrize("capture", [FOUR, SIX], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("link", [make.ETHERNET, make.NULL, make.LOOP, make.COOKED, make.COOKED_2, 101, 12, 228, 229])
def test_every_link_type(capture: Path, link: int, expected: dict[Path, Told], tmp_path: Path) -> None:
    own, packets = make.read_pcap(capture)
    path = tmp_path / "other.pcap"
    relinked = [make.wrap(make.ip_of(p.data, own), link) for p in packets]
    path.write_bytes(
        make.pcap([make.Packet(p.time_ns, d, len(d)) for p, d in zip(packets, relinked, strict=True)], link)
    )
    assert told(path) == expected[capture]


def rewrite(capture: Path, change: Callable[[bytes], bytes], path: Path) -> None:
    link, packets = make.read_pcap(capture)
    changed = [change(packet.data) for packet in packets]
    path.write_bytes(
        make.pcap([make.Packet(p.time_ns, d, len(d)) for p, d in zip(packets, changed, strict=True)], link)
    )


VLAN = b"\x81\x00\x00\x2a"
ETHERNET_CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "VLAN": lambda data: data[:12] + VLAN + data[12:],
    "QinQ": lambda data: data[:12] + b"\x88\xa8\x00\x07" + VLAN + data[12:],
    "IP length 0": lambda data: data[:16] + b"\0\0" + data[18:],
    "IP options": lambda data: (
        data[:14]
        + b"\x46"
        + data[15:16]
        + struct.pack(">H", int.from_bytes(data[16:18]) + 4)
        + data[18:34]
        + b"\1\1\1\0"
        + data[34:]
    ),
    "padding": lambda data: data + bytes(max(0, 80 - len(data))),
}


@pytest.mark.parametrize("name", ETHERNET_CHANGES)
def test_what_ethernet_and_ipv4_may_add(name: str, expected: dict[Path, Told], tmp_path: Path) -> None:
    path = tmp_path / "other.pcap"
    rewrite(FOUR, ETHERNET_CHANGES[name], path)
    assert told(path) == expected[FOUR]


def extended(data: bytes) -> bytes:
    """Hop-by-hop options, a routing header, an authentication header and destination options before TCP."""
    chain = b"\x2b\0" + bytes(6) + b"\x33\0" + bytes(6) + b"\x3c\1" + bytes(10) + b"\x06\1" + bytes(14)
    length = int.from_bytes(data[18:20]) + len(chain)
    return data[:18] + struct.pack(">H", length) + b"\0" + data[21:54] + chain + data[54:]


IPV6_CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "extension headers": extended,
    "a fragment that is whole": lambda data: (
        data[:18]
        + struct.pack(">H", int.from_bytes(data[18:20]) + 8)
        + b"\x2c"
        + data[21:54]
        + b"\x06"
        + bytes(7)
        + data[54:]
    ),
    "payload length 0": lambda data: data[:18] + b"\0\0" + data[20:],
}


@pytest.mark.parametrize("name", IPV6_CHANGES)
def test_what_ipv6_may_add(name: str, expected: dict[Path, Told], tmp_path: Path) -> None:
    path = tmp_path / "other.pcap"
    rewrite(SIX, IPV6_CHANGES[name], path)
    assert told(path) == expected[SIX]


# ---- pcapng ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["<", ">"], ids=["little", "big"])
def test_pcapng_of_either_byte_order(order: str, expected: dict[Path, Told], tmp_path: Path) -> None:
    link, packets = make.read_pcap(FOUR)
    path = tmp_path / "other.pcapng"
    path.write_bytes(make.pcapng(packets, link, order))
    assert told(path) == expected[FOUR]


def test_pcapng_of_several_sections_and_interfaces(expected: dict[Path, Told], tmp_path: Path) -> None:
    """Sections of both byte orders; interfaces of other links, resolutions and time offsets; blocks of no interest."""
    _, packets = make.read_pcap(FOUR)
    out = []
    for part, order in enumerate("<>"):
        half = packets[part * len(packets) // 2 : (part + 1) * len(packets) // 2]
        out += [make.section(order), make.block(4, bytes(20), order)]
        out.append(make.interface(make.ETHERNET, order, make.option(9, b"\x09", order) + make.option(0, b"", order)))
        offset = make.option(14, struct.pack(order + "q", 1_000_000_000), order)
        out.append(make.interface(make.COOKED_2, order, make.option(2, b"lo", order) + offset))
        out.append(make.interface(make.RAW, order, make.option(9, bytes([0x80 | 30]), order)))
        for number, packet in enumerate(half):
            ip = make.ip_of(packet.data, make.ETHERNET)
            if number % 3 == 0:
                out.append(make.enhanced(packet, 0, order, 10**9))
            elif number % 3 == 1:
                cooked = make.wrap(ip, make.COOKED_2)
                moved = make.Packet(packet.time_ns, cooked, len(cooked))
                out.append(make.enhanced(moved, 1, order, offset_s=1_000_000_000))
            else:
                out.append(binary(make.Packet(packet.time_ns, ip, len(ip)), order))
            if number % 50 == 0:  # statistics, custom, decryption secrets, one unknown
                out += [make.block(kind, b"skip this", order) for kind in (5, 0xBAD, 10, 0x4321)]
    path = tmp_path / "other.pcapng"
    path.write_bytes(b"".join(out))
    summary = CaptureSummary()
    assert told(path, summary) == expected[FOUR]
    assert summary.bad_inputs == []


def binary(packet: make.Packet, order: str) -> bytes:
    """An enhanced packet whose time counts 2**-30 s, rounded up so that reading gives the microsecond back."""
    ticks = -(-packet.time_ns * 2**30 // 10**9)
    head = struct.pack(order + "IIIII", 2, ticks >> 32, ticks & 0xFFFFFFFF, len(packet.data), packet.on_wire)
    return make.block(6, head + packet.data, order)


def test_pcapng_simple_and_obsolete_packets(expected: dict[Path, Told], tmp_path: Path) -> None:
    link, packets = make.read_pcap(FOUR)
    out = [make.section(), make.interface(link)]
    for number, (time_ns, data, on_wire) in enumerate(packets):
        ticks = time_ns // 1000
        if number % 2:
            out.append(make.block(3, struct.pack("<I", on_wire) + data))
        else:
            head = struct.pack("<HHIIII", 0, 0xFFFF, ticks >> 32, ticks & 0xFFFFFFFF, len(data), on_wire)
            out.append(make.block(2, head + data))
    path = tmp_path / "other.pcapng"
    path.write_bytes(b"".join(out))
    timeless = [(row[0], row[1], row[2], *row[5:]) for row in expected[FOUR]]
    assert [(row[0], row[1], row[2], *row[5:]) for row in told(path)] == timeless


def test_a_large_block_of_no_interest_is_not_held(expected: dict[Path, Told], tmp_path: Path) -> None:
    link, packets = make.read_pcap(FOUR)
    path = tmp_path / "other.pcapng"
    path.write_bytes(make.section() + make.block(4, bytes(9_000_000)) + make.pcapng(packets, link))
    assert told(path) == expected[FOUR]


def test_a_damaged_block_costs_its_section_alone(tmp_path: Path) -> None:
    link, packets = make.read_pcap(FOUR)
    whole = make.pcapng(packets, link)
    path = tmp_path / "other.pcapng"
    path.write_bytes(make.section() + make.interface() + struct.pack("<II", 6, 0xFFFFFFF0) + bytes(100) + whole)
    summary = CaptureSummary()
    assert len(told(path, summary)) == 230
    assert [bad.reason for bad in summary.bad_inputs] == ["a damaged block"]


# ---- packings, pipes -------------------------------------------------------------------------------------------------


def test_packings(expected: dict[Path, Told], tmp_path: Path) -> None:
    plain = gzip.decompress(FOUR.read_bytes())
    half = len(plain) // 2
    packings = {
        "plain": plain,
        "gzip in two members": gzip.compress(plain[:half]) + gzip.compress(plain[half:]),
        "bzip2": bz2.compress(plain),
        "bzip2 in two members": bz2.compress(plain[:half]) + bz2.compress(plain[half:]),
        "xz": lzma.compress(plain),
        "xz in two members, zeros between and behind": lzma.compress(plain[:half])
        + bytes(8)
        + lzma.compress(plain[half:])
        + bytes(4),
        "zstd": zstandard.compress(plain),
        "zstd in two frames": zstandard.compress(plain[:half]) + zstandard.compress(plain[half:]),
    }
    for name, data in packings.items():
        path = tmp_path / "packed"
        path.write_bytes(data)
        assert told(path) == expected[FOUR], name


def test_zstd_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "packed.zst"
    path.write_bytes(zstandard.compress(b"anything"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(CaptureError, match=r"packed.zst: .*pip install .*\[zstd\]'"):
        told(path)


PACKERS = {
    "gzip": gzip.compress,
    "bzip2": lambda data: bz2.compress(data, 1),
    "xz": lzma.compress,
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("pack", few(PACKERS.values(), 2), ids=PACKERS)
def test_a_packed_file_cut_off_gives_what_it_has(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    data = pack(gzip.decompress(FOUR.read_bytes()))
    path = tmp_path / "cut"
    path.write_bytes(data[: len(data) // 2])
    summary = CaptureSummary()
    assert 0 < len(told(path, summary)) < 230
    assert summary.bad_input_count >= 1


@pytest.mark.parametrize("pack", few(PACKERS.values(), 2), ids=PACKERS)
def test_damage_within_a_packed_file_is_noted(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    data = bytearray(pack(gzip.decompress(FOUR.read_bytes())))
    data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
    path = tmp_path / "damaged.gz"
    path.write_bytes(data)
    summary = CaptureSummary()
    assert len(told(path, summary)) < 230
    assert summary.bad_input_count >= 1


@pytest.mark.parametrize("pack", few(PACKERS.values(), 2), ids=PACKERS)
def test_a_little_file_that_unpacks_to_much_is_read_in_pieces(pack: Callable[[bytes], bytes]) -> None:
    with Source(pack(bytes(50_000_000))) as source:
        sizes = [len(piece) for piece in iter(source.read, b"")]
    assert sum(sizes) == 50_000_000
    assert max(sizes) <= 1 << 20
    assert source.damage is None


def test_xz_that_wants_more_memory_than_any_preset_is_refused() -> None:
    greedy = lzma.compress(b"anything", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28}])
    with Source(greedy) as source:
        assert source.read() == b""
    assert source.damage == "the file cannot be read on: unpacking it takes more memory than 128 MiB"


class Pipe:
    """A pipe, with its writing end."""

    def __init__(self) -> None:
        reading, self.writing = os.pipe()
        self.file = os.fdopen(reading, "rb")

    def write(self, data: bytes) -> None:
        os.write(self.writing, data)

    def close(self) -> None:
        os.close(self.writing)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """Close its writing end in the test."""
    pipe = Pipe()
    yield pipe
    pipe.file.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("write", [make.pcap, make.pcapng], ids=["pcap", "pcapng"])
def test_a_pipe_is_followed_without_waiting_for_more(write: Callable[[list[make.Packet]], bytes], pipe: Pipe) -> None:
    """Each frame comes out as soon as its last packet went in, though the pipe stays open and silent."""
    talk = make.Talk().open()
    for n in range(5):
        talk.ask(make.request(6, 8, n, bytes(1500))).answer(make.response(6, 8, n, b"\0\0\0"))
    head = len(write([]))
    pieces = [write([packet])[head:] for packet in talk.packets]
    pipe.write(write([]) + b"".join(pieces[:3]))
    reading = frames(pipe.file)
    for n in range(5):
        first, second, answer = pieces[3 + 3 * n : 6 + 3 * n]
        pipe.write(first[:7])
        pipe.write(first[7:] + second)
        assert next(reading).correlation_id == n
        pipe.write(answer)
        frame = next(reading)
        assert (frame.direction, frame.correlation_id) == ("response", n)
    pipe.close()
    assert list(reading) == []


@pytest.mark.timeout(120)
def test_exchanges_of_a_pipe_come_when_answered(pipe: Pipe) -> None:
    talk = make.Talk().open()
    talk.ask(make.request(6, 8, 0, bytes(30))).answer(make.response(6, 8, 0, b"\0\0\0"))
    pipe.write(gzip.compress(make.pcap(talk.packets)))
    reading = exchanges(pipe.file)
    assert next(reading).response is not None
    pipe.close()
    assert list(reading) == []


def test_standard_input_may_be_a_file(expected: dict[Path, Told]) -> None:
    code = "import sys; from kproto.capture import frames; print(sum(1 for _ in frames(sys.stdin.buffer)))"
    with FOUR.open("rb") as file:
        done = subprocess.run([sys.executable, "-c", code], stdin=file, capture_output=True, check=True, timeout=60)
    assert int(done.stdout) == len(expected[FOUR])


def test_bytes_and_open_files_are_read_as_files_are(expected: dict[Path, Told]) -> None:
    data = FOUR.read_bytes()
    assert told(data) == expected[FOUR]
    assert told(memoryview(gzip.decompress(data))) == expected[FOUR]
    file = io.BytesIO(data)
    assert told(file) == expected[FOUR]
    gc.collect()
    assert not file.closed
    with FOUR.open("rb") as opened:
        assert told(opened) == expected[FOUR]
        assert not opened.closed


def test_a_pipe_from_which_nothing_comes(pipe: Pipe) -> None:
    pipe.close()
    with pytest.raises(CaptureError, match=r"an open file: nothing came; did the command before the pipe fail\?"):
        list(frames(pipe.file))


def test_a_named_pipe_is_followed_too(expected: dict[Path, Told], tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(FOUR.read_bytes()))
    writer.start()
    try:
        assert told(path) == expected[FOUR]
    finally:
        writer.join(60)


def test_progress_reaches_the_size_of_the_file() -> None:
    calls: list[tuple[int, int | None]] = []
    assert list(frames(FOUR, progress=lambda done, total: calls.append((done, total))))
    size = FOUR.stat().st_size
    assert calls == sorted(calls)
    assert calls[-1] == (size, size)


# ---- files cut off or damaged ----------------------------------------------------------------------------------------


def test_a_file_cut_off_anywhere_gives_what_it_has(tmp_path: Path) -> None:
    """What comes out is what comes out of the whole file, up to some point; the last frame may have a gap."""
    link, packets = make.read_pcap(FOUR)
    path = tmp_path / "cut"
    for data in (make.pcap(packets[:120], link), make.pcapng(packets[:120], link)):
        path.write_bytes(data)
        whole = told(path)
        for end in [*range(24, 400, 7), *range(400, len(data), 997)]:
            path.write_bytes(data[:end])
            summary = CaptureSummary()
            got = [row for row in told(path, summary) if row[5] == 0]
            assert got == whole[: len(got)]
            assert summary.bad_input_count <= 1


def simple(packets: list[make.Packet]) -> bytes:
    """A pcapng of Simple Packet Blocks."""
    blocks = (make.block(3, struct.pack("<I", p.on_wire) + p.data) for p in packets)
    return make.section() + make.interface() + b"".join(blocks)


@pytest.mark.parametrize(
    ("write", "before", "behind", "reason"),
    [
        (make.pcap, 16, 0, "the file ends within a packet"),
        (make.pcapng, 28, 4, "the file ends within a block"),
        (simple, 12, 4, "the file ends within a block"),
    ],
    ids=["pcap", "enhanced", "simple"],
)
def test_of_a_packet_within_which_the_file_ends_its_beginning_is_used(
    write: Callable[[list[make.Packet]], bytes], before: int, behind: int, reason: str, tmp_path: Path
) -> None:
    """Whole frames in it are whole, the one that is cut has a gap; the end is told, and no snaplen is blamed."""
    one, two = (make.request(6, 8, n, make.UPDATE_METADATA_8) for n in (1, 2))
    talk = make.Talk().open().ask(one[:10]).ask(one[10:] + two)
    data = write(talk.packets)
    packet = len(write(talk.packets[:-1])) + before  # where the last one begins
    payload = packet + 14 + 20 + 20
    path = tmp_path / "cut"
    for end in range(packet - before + 1, len(data)):
        path.write_bytes(data[:end])
        summary = CaptureSummary()
        found = [(f.correlation_id, f.status, f.payload) for f in frames(path, summary=summary)]
        there = (one + two)[4 : 10 + max(0, min(end, len(data) - behind) - payload)]
        size = len(one) - 4
        expected = [(1, WHOLE, there[:size])] if len(there) >= size else []
        rest = there[size + 4 :] if expected else there
        if len(rest) == len(two) - 4:
            expected.append((2, WHOLE, rest))
        elif len(rest) >= 12:  # its header: as much as it takes to know a request
            expected.append((1 + len(expected), GAP, rest))
        assert found == expected, end
        skipped = end - (packet - before) if end <= packet else 0
        assert [(bad.reason, bad.bytes_skipped) for bad in summary.bad_inputs] == [(reason, skipped)]
        assert (summary.cut_packets, summary.not_tcp) == (0, 0)


@pytest.mark.parametrize("nano", [False, True], ids=["micro", "nano"])
@pytest.mark.parametrize("order", ["<", ">"], ids=["little", "big"])
def test_reading_goes_on_after_a_damaged_record(order: str, nano: bool, tmp_path: Path) -> None:
    link, packets = make.read_pcap(FOUR)
    head, tail = make.pcap(packets[:300], link, order, nano), make.pcap(packets[300:], link, order, nano)[24:]
    path = tmp_path / "damaged.pcap"
    path.write_bytes(head + b"\xff" * 1000 + tail)
    summary = CaptureSummary()
    whole = told(FOUR)
    assert [row[6] for row in told(path, summary)] == [row[6] for row in whole]
    assert [(bad.reason, bad.offset, bad.bytes_skipped) for bad in summary.bad_inputs] == [
        ("a damaged packet record", len(head), 1000)
    ]


# ---- packets and bytes from elsewhere --------------------------------------------------------------------------------


def test_packets_of_other_libraries_are_read_as_a_capture_is(expected: dict[Path, Told]) -> None:
    """Times in ns, in seconds as a float (dpkt) or a Decimal (scapy); any bytes-like packets."""
    link, packets = make.read_pcap(FOUR)
    assert told((p.time_ns, p.data, link) for p in packets) == expected[FOUR]
    assert told((p.time_ns / 10**9, bytearray(p.data), link) for p in packets) == expected[FOUR]
    assert told([(Decimal(p.time_ns) / 10**9, memoryview(p.data), link) for p in packets]) == expected[FOUR]
    assert told([(p.time_ns, p.data, link, p.on_wire) for p in packets]) == expected[FOUR]
    assert told([]) == []
    assert list(exchanges((p.time_ns, p.data, link) for p in packets))


def test_a_packet_beyond_all_times_is_a_bad_input(expected: dict[Path, Told]) -> None:
    link, packets = make.read_pcap(FOUR)
    odd = [(time_ns, b"", link) for time_ns in (-1, 1 << 63, 1 << 200)]
    summary = CaptureSummary()
    assert told([*odd, *((p.time_ns, p.data, link) for p in packets)], summary) == expected[FOUR]
    assert summary.bad_input_count == 3
    assert (summary.format, summary.file) == ("packets", "packets")


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_reader_is_fed_in_any_pieces(size: int) -> None:
    """Frames and exchanges equal those of the whole file, in every format."""
    link, packets = make.read_pcap(SIX)
    for data in (make.pcap(packets[:400], link), make.pcapng(packets[:400], link)):
        reader, found = CaptureReader(capture="x"), []
        for at in range(0, len(data), size):
            found += reader.feed(data[at : at + size])
        found += reader.end()
        requests = [event.payload for event in found if isinstance(event, Frame)]
        assert requests == [f.payload for f in frames(data) if f.direction == "request"]
        assert len([event for event in found if isinstance(event, Exchange)]) == len(list(exchanges(data)))


@pytest.mark.parametrize("skipped", [b"", b"anything" * 1000], ids=["empty", "8 kB"])
def test_a_zstd_file_may_begin_with_a_frame_to_be_skipped(
    skipped: bytes, expected: dict[Path, Told], tmp_path: Path
) -> None:
    plain = gzip.decompress(FOUR.read_bytes())
    path = tmp_path / "packed"
    path.write_bytes(b"\x5a\x2a\x4d\x18" + struct.pack("<I", len(skipped)) + skipped + zstandard.compress(plain))
    assert told(path) == expected[FOUR]


@pytest.mark.parametrize("kind", ["pcapng", "pcap"])
def test_damage_before_the_first_packet_is_not_blamed_on_the_capture_filter(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"torn.{kind}"
    path.write_bytes(make.section() + b"\xff" * 500 if kind == "pcapng" else make.pcap([]) + b"\xff" * 9)
    summary = CaptureSummary()
    assert list(frames(path, summary=summary)) == []
    assert (summary.problem() or "").startswith(f"torn.{kind}: no packet in it can be read: ")


def test_many_files_that_cannot_be_read_are_told_by_the_first(tmp_path: Path) -> None:
    for number in range(500):
        (tmp_path / f"{number:03}.pcap").touch()
    with pytest.raises(CaptureError) as raised:
        list(frames(tmp_path))
    empty = "an empty file; nothing was recorded in it"
    assert str(raised.value) == "; ".join([*(f"00{n}.pcap: {empty}" for n in range(3)), "and 497 more"])


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"07:00:09.123456 IP 10.0.0.1.9092 > 10.0.0.2.4000: Flags [P.], seq 1:50\n\t0x0000:  4500 0059\n", "print"),
        (b"    1   0.000000   10.0.0.1 \xe2\x86\x92 10.0.0.2   TCP 66 4000 \xe2\x86\x92 9092 [SYN] Seq=0\n", "print"),
        (b'[\n  {\n    "_index": "packets-2026-11-21",\n    "_source": {\n      "layers": {\n', "print"),
        (b'<?xml version="1.0" encoding="utf-8"?>\n<pdml version="0">\n', "print"),
        (b"0000  00 00 00 00 00 00 00 00 00 00 00 00 08 00 45 00   ..............E.\n", "print"),
        (b"GMBU\0\2\1\0" + bytes(40), "editcap -F pcap"),
        (b"snoop\0\0\0" + bytes(40), "editcap -F pcap"),
        (b"iptrace 2.0" + bytes(40), "editcap -F pcap"),
        (b"\xf8\0\xf8\0\0\xea\7\x0b" + bytes(40), "editcap -F pcap"),
        (b"some text about 12 packets\n", "not a capture"),
    ],
)
def test_what_other_programs_write_of_packets_is_refused_by_its_name(head: bytes, reason: str) -> None:
    with pytest.raises(CaptureError, match=reason):
        list(exchanges(head))
