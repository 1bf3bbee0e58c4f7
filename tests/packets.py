"""Captures made by hand: packets, TCP conversations, pcap and pcapng files."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from kproto import codec, headers
from kproto.api import request_header_version, response_header_version
from kproto.capture.cutter import FrameCutter, StreamItem

ETHERNET, NULL, COOKED, LOOP, RAW, COOKED_2 = 1, 0, 113, 108, 101, 276
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16

START_NS = 1_700_000_000_000_000_000

UPDATE_METADATA_8 = codec.encode(
    codec.message_class(6, "request")(controller_id=1, controller_epoch=2, broker_epoch=3), 8
)
"""The body of a small request."""


class Packet(NamedTuple):
    time_ns: int
    data: bytes
    on_wire: int


def read_pcap(path: Path) -> tuple[int, list[Packet]]:
    """Link type and packets of a little-endian microsecond pcap, as the sample captures are."""
    data = gzip.decompress(path.read_bytes())
    (link,) = struct.unpack_from("<I", data, 20)
    packets, at = [], 24
    while at < len(data):
        seconds, micros, length, on_wire = struct.unpack_from("<IIII", data, at)
        packets.append(Packet(seconds * 10**9 + micros * 1000, data[at + 16 : at + 16 + length], on_wire))
        at += 16 + length
    return link, packets


def pcap(packets: Iterable[Packet], link: int = ETHERNET, order: str = "<", nano: bool = False) -> bytes:
    out = [struct.pack(order + "IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, 262144, link)]
    for time_ns, data, on_wire in packets:
        fraction = time_ns % 10**9 // (1 if nano else 1000)
        out.append(struct.pack(order + "IIII", time_ns // 10**9, fraction, len(data), on_wire) + data)
    return b"".join(out)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack(order + "II", kind, len(body) + 12) + body + struct.pack(order + "I", len(body) + 12)


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link: int = ETHERNET, order: str = "<", options: bytes = b"") -> bytes:
    return block(1, struct.pack(order + "HHI", link, 0, 0) + options, order)


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def enhanced(packet: Packet, which: int = 0, order: str = "<", units: int = 10**6, offset_s: int = 0) -> bytes:
    ticks = (packet.time_ns - offset_s * 10**9) * units // 10**9
    head = struct.pack(order + "IIIII", which, ticks >> 32, ticks & 0xFFFFFFFF, len(packet.data), packet.on_wire)
    return block(6, head + packet.data, order)


def pcapng(packets: Iterable[Packet], link: int = ETHERNET, order: str = "<") -> bytes:
    return section(order) + interface(link, order) + b"".join(enhanced(p, order=order) for p in packets)


def ip_of(packet: bytes, link: int) -> bytes:
    """The IP packet in a captured one."""
    return packet[{ETHERNET: 14, COOKED_2: 20, COOKED: 16, RAW: 0, NULL: 4, LOOP: 4}[link] :]


def wrap(ip: bytes, link: int, order: str = "<") -> bytes:
    """An IP packet as another link shows it."""
    six = ip[0] >> 4 == 6
    ethertype = b"\x86\xdd" if six else b"\x08\x00"
    return {
        ETHERNET: lambda: bytes(12) + ethertype + ip,
        COOKED: lambda: bytes(14) + ethertype + ip,
        COOKED_2: lambda: ethertype + bytes(18) + ip,
        NULL: lambda: struct.pack(order + "I", 30 if six else 2) + ip,
        LOOP: lambda: struct.pack(">I", 24 if six else 2) + ip,
    }.get(link, lambda: ip)()


def tcp(
    source: tuple[str, int],
    target: tuple[str, int],
    sequence: int,
    acknowledged: int,
    flags: int,
    data: bytes = b"",
    *,
    length_zero: bool = False,
    options: bytes = b"",
) -> bytes:
    """One segment in IPv4 or IPv6, checksums left out."""
    words = 5 + len(options) // 4
    segment = struct.pack(
        ">HHIIBBHHH", source[1], target[1], sequence % 2**32, acknowledged % 2**32, words << 4, flags, 65535, 0, 0
    )
    segment += options + data
    ends = ip_address(source[0]).packed + ip_address(target[0]).packed
    if len(ends) == 8:
        total = 0 if length_zero else 20 + len(segment)
        return struct.pack(">BBHHHBBH", 0x45, 0, total, 0, 0x4000, 64, 6, 0) + ends + segment
    return struct.pack(">IHBB", 6 << 28, 0 if length_zero else len(segment), 6, 64) + ends + segment


def fragments(ip: bytes, number: int, size: int) -> list[bytes]:
    """An IP packet without options, in fragments of ``size`` bytes, a multiple of eight."""
    six = ip[0] >> 4 == 6
    head, payload = (ip[:40], ip[40:]) if six else (ip[:20], ip[20:])
    found = []
    for at in range(0, len(payload), size):
        data, more = payload[at : at + size], at + size < len(payload)
        if six:
            extension = struct.pack(">BBHI", head[6], 0, at | more, number)
            found.append(head[:4] + struct.pack(">HB", 8 + len(data), 44) + head[7:] + extension + data)
        else:
            where = struct.pack(">HHH", 20 + len(data), number % 65536, at >> 3 | more << 13)
            found.append(head[:2] + where + head[8:] + data)
    return found


@dataclass
class Talk:
    """A TCP conversation, packet by packet; each method adds one or more."""

    client: tuple[str, int] = ("10.0.0.1", 50000)
    server: tuple[str, int] = ("10.0.0.2", 9092)
    client_isn: int = 1000
    server_isn: int = 5000
    now_ns: int = START_NS
    step_ns: int = 1_000_000
    packets: list[Packet] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sent = self.client_isn + 1
        self.answered = self.server_isn + 1

    def add(self, ip: bytes) -> None:
        data = wrap(ip, ETHERNET)
        self.packets.append(Packet(self.now_ns, data, len(data)))
        self.now_ns += self.step_ns

    def open(self) -> Talk:
        self.add(tcp(self.client, self.server, self.client_isn, 0, SYN))
        self.add(tcp(self.server, self.client, self.server_isn, self.client_isn + 1, SYN | ACK))
        self.add(tcp(self.client, self.server, self.sent, self.answered, ACK))
        return self

    def ask(self, data: bytes, size: int = 1460) -> Talk:
        """The client sends, in segments of at most that size."""
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            self.add(tcp(self.client, self.server, self.sent, self.answered, ACK | PSH, piece))
            self.sent += len(piece)
        return self

    def answer(self, data: bytes, size: int = 1460) -> Talk:
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            self.add(tcp(self.server, self.client, self.answered, self.sent, ACK | PSH, piece))
            self.answered += len(piece)
        return self

    def close(self) -> Talk:
        self.add(tcp(self.client, self.server, self.sent, self.answered, FIN | ACK))
        self.add(tcp(self.server, self.client, self.answered, self.sent + 1, FIN | ACK))
        self.add(tcp(self.client, self.server, self.sent + 1, self.answered + 1, ACK))
        return self

    def reset(self) -> Talk:
        self.add(tcp(self.server, self.client, self.answered, self.sent, RST | ACK))
        return self


def sized(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request(api_key: int, version: int, correlation_id: int, body: bytes, client_id: str | None = "1") -> bytes:
    """A request's frame."""
    header = headers.request_header(api_key, version, correlation_id, client_id)
    return sized(headers.encode_request_header(header, request_header_version(api_key, version)) + body)


def response(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A response's frame."""
    header = headers.response_header(correlation_id)
    return sized(headers.encode_response_header(header, response_header_version(api_key, version)) + body)


def cuts(cutter: FrameCutter, offset: int, data: bytes, begin: int, end: int, time_ns: int) -> Iterator[StreamItem]:
    """Feed a piece of a stream to a cutter; yields its cuts, each before the cutter goes on."""
    todo = [(offset, data, begin, end, time_ns)]
    while todo:
        yield from cutter.feed(todo)
