"""Protocols that carry another packet: where the packet inside begins, or the name of what is not read.

Each function is given the place behind what is known so far. It returns the link type of the packet inside, as a pcap
file names it, and where it begins; or None, after it has counted the packet: in ``not_read`` by the name of a protocol
that may hide Kafka traffic, else in ``not_tcp``. No byte at or after ``stop`` is looked at.

Headers are read here where they are common, or where what they carry need not be whole (a mirror cuts it). Behind any
other header the packet of IP is found by itself: its length leads to the end of what carries it (``find_ip``).

Sources: RFC 2784 and 2890 (GRE), 2637 (its form in PPTP), 7348 (VXLAN), 8926 (Geneve), 3378 (EtherIP), 2661 (L2TP),
4302 (AH), 2516 (PPPoE), 1661 (PPP), 3032 (MPLS), 4023 (MPLS in IP); draft-foschiano-erspan; tcpdump.org's list of link
types.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from .summary import CaptureSummary

Inside: TypeAlias = tuple[int, int] | None

ETHERNET: Final = 1
RAW: Final = 101
SEARCH: Final = -2
"""In place of a link type: a packet of IP may stand anywhere from there on."""

IPV4: Final = 0x0800
IPV6: Final = 0x86DD
VLAN: Final = {0x8100, 0x88A8, 0x9100, 0x9200}

_BRIDGED: Final = 0x6558
_MPLS: Final = {0x8847, 0x8848}
_PPPOE: Final = 0x8864
_PPP: Final = 0x880B
_MACSEC: Final = 0x88E5
_ERSPAN: Final = 0x88BE
_ERSPAN_3: Final = 0x22EB

_PPP_TYPES: Final = {0x21: IPV4, 0x57: IPV6, 0x281: 0x8847, 0x283: 0x8848}
_PPP_PACKED: Final = {0xFD, 0xFB, 0x53, 0x55}

_PROTOCOLS_NOT_READ: Final = {50: "IPsec ESP", 108: "IPComp", 115: "L2TPv3"}

FRAGMENTED: Final = frozenset({4, 6, 41, 47, 51, 94, 97, 137, 143})
"""IP protocols whose fragments are put together; of UDP those packets that begin like a tunnel's."""

_VXLAN_PORTS: Final = {4789, 8472, 4790, 6784}
_GENEVE_PORT: Final = 6081
_L2TP_PORT: Final = 1701
_ESP_PORT: Final = 4500

_PORTS_NOT_READ: Final = {1194: "OpenVPN", 4242: "Nebula", 5247: "CAPWAP", 9993: "ZeroTier"}

_WIREGUARD_SIZES: Final = {1: 148, 2: 92, 3: 64}
_WIREGUARD_DATA: Final = 4

_HEADERS: Final = frozenset({109, 117, 138, 226, 240, 258})
"""Link types with a header before a frame or packet: ENC, PFLOG, IP over IEEE 1394, IPNET, netANALYZER, PKTAP."""

LINKS: Final = _HEADERS | {9, 50, 51, 104, 204, 239}
"""Link types that ``of_link`` reads, among them PPP, Cisco HDLC, PPPoE and NFLOG."""

_NFLOG_PAYLOAD: Final = 9

_AHEAD: Final = 136
"""The longest header behind which a packet is searched, and the ten bytes of the packet that tell it."""

TRAILER: Final = 16
"""At most so many bytes stand behind a packet: padding, a checksum, what switches add."""

_IP_BEGINS: Final = re.compile(
    rb"[\x45-\x4f\x60-\x6f](?:"  # a pattern that begins with a set is quick to search
    rb"(?<=[\x45-\x4f])(?=.{8}[\1\4\6\x11\x29\x2f\x32\x33\x61\x6c\x73\x89\x8f])"
    rb"|(?<=[\x60-\x6f])(?=.{5}[\0\4\6\x11\x29\x2b\x2c\x2f\x32\x33\x3a\x3c\x61\x6c\x73\x89\x8f]))",
    re.S,
)
"""Version and protocol of a header."""


def of_link(link: int, buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    """The packet inside one of a link type in ``LINKS``, which begins at ``at``."""
    if stop - at < 16:
        return _not_tcp(summary)
    if link == 239:
        return _of_nflog(buffer, at + 4, stop, summary)
    if link in (50, 104) and buffer[at] in (0x0F, 0x8F):
        return of_ethertype(_u16(buffer, at + 2), buffer, at + 4, stop, summary)
    if link in (9, 50, 104, 204):
        return of_ethertype(_PPP, buffer, at + (link == 204), stop, summary)
    if link == 51:
        return of_ethertype(_PPPOE, buffer, at, stop, summary)
    return SEARCH, at


def of_ethertype(kind: int, buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    """The packet in a frame whose EtherType is ``kind``, and whose content begins at ``at``."""
    while True:
        if kind in (IPV4, IPV6):
            return RAW, at
        if kind == _BRIDGED:
            return ETHERNET, at
        if stop - at < 8:
            return _not_tcp(summary)
        if kind in VLAN:
            kind, at = _u16(buffer, at + 2), at + 4
        elif kind in _MPLS:
            return _of_mpls(buffer, at, stop)
        elif kind == _PPPOE:
            if buffer[at] != 0x11 or buffer[at + 1]:
                return _not_tcp(summary)
            kind, at = _PPP, at + 6
        elif kind == _PPP:
            if _u16(buffer, at) == 0xFF03:
                at += 2
            short = buffer[at] & 1
            protocol = buffer[at] if short else _u16(buffer, at)
            at += 1 if short else 2
            if protocol in _PPP_PACKED:
                return _not_read("compressed or encrypted PPP", summary)
            if protocol not in _PPP_TYPES:
                return _not_tcp(summary)
            kind = _PPP_TYPES[protocol]
        elif kind in (_ERSPAN, _ERSPAN_3):
            return _of_erspan(buffer, at, stop, summary)
        elif kind == _MACSEC:
            return _not_read("MACsec", summary)
        else:
            return SEARCH, at


def of_protocol(protocol: int, buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    """The packet in an IP packet of a protocol other than TCP, whose content begins at ``at``."""
    if protocol in _PROTOCOLS_NOT_READ:
        return _not_read(_PROTOCOLS_NOT_READ[protocol], summary)
    if stop - at < 12:
        return _not_tcp(summary)
    if protocol == 17:
        return _of_udp(buffer, at, stop, summary)
    if protocol in (4, 41, 94):
        return RAW, at
    if protocol == 47:
        return _of_gre(buffer, at, stop, summary)
    if protocol == 137:
        return _of_mpls(buffer, at, stop)
    if protocol == 97:
        return ETHERNET, at + 2
    if protocol == 143:
        return ETHERNET, at
    return _not_tcp(summary)


def may_be_tunnel(buffer: bytes, at: int, stop: int) -> bool:
    """Whether a UDP packet, whose header begins at ``at``, may be one of a tunnel that is read."""
    if stop - at < 16:
        return False
    port = _u16(buffer, at + 2)
    is_known = port in _VXLAN_PORTS or port in (_GENEVE_PORT, _L2TP_PORT)
    return is_known or find_ip(buffer, at + 8, stop, stop, stop + 0xFFFF) >= 0


def find_ip(buffer: bytes, at: int, stop: int, least: int, most: int) -> int:
    """Where a packet of IP begins whose length leads to a place between two others; -1: nowhere.

    Of IPv4 the header's checksum must be right, or left out. A header of IPv6 has none: it stands first, or where its
    type is told; elsewhere it must be one of TCP with addresses and flags that are in use.
    """
    for match in _IP_BEGINS.finditer(buffer, at, min(stop, at + _AHEAD)):
        place = match.start()
        is_4 = buffer[place] < 0x60
        end = place + (_u16(buffer, place + 2) if is_4 else 40 + _u16(buffer, place + 4))
        size = (buffer[place] & 15) * 4 if is_4 else 54
        if not least <= end <= most or stop - place < size:
            continue
        if is_4:
            is_header = buffer[place + 10 : place + 12] == b"\0\0" or not (
                sum(struct.unpack_from(f">{size // 2}H", buffer, place)) % 0xFFFF
            )
        else:
            is_header = (
                place == at
                or buffer[max(at, place - 2) : place] in (b"\x86\xdd", b"\0\x57")
                or (
                    buffer[place + 6] == 6
                    and {buffer[place + 8] >> 5, buffer[place + 24] >> 5} <= {0, 1, 7}
                    and buffer[place + 52] in range(0x50, 0x100, 16)
                )
            )
        if is_header:
            return place
    return -1


def _of_udp(buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    source, port = _u16(buffer, at), _u16(buffer, at + 2)
    data = at + 8
    if stop - data < 8:
        return _not_tcp(summary)
    first = buffer[data]
    if port in _VXLAN_PORTS and first & 12 == 8:
        return ETHERNET, data + 8
    if port == _GENEVE_PORT and first >> 6 == 0:
        return of_ethertype(_u16(buffer, data + 2), buffer, data + 8 + (first & 63) * 4, stop, summary)
    if port == _L2TP_PORT or source == _L2TP_PORT:
        return _of_l2tp(buffer, data, stop, summary)
    if _ESP_PORT in (port, source) and buffer[data : data + 4] != bytes(4):
        return _not_read("IPsec ESP", summary)
    if _is_wireguard(buffer, data, at + _u16(buffer, at + 4), stop):
        return _not_read("WireGuard", summary)
    name = _PORTS_NOT_READ.get(port) or _PORTS_NOT_READ.get(source)
    if name is not None:
        return _not_read(name, summary)
    return SEARCH, data


def _is_wireguard(buffer: bytes, at: int, end: int, stop: int) -> bool:
    """Whether a message of WireGuard begins here: its type, its size, and of data a counter that is not absurd."""
    kind, size = buffer[at], end - at
    if stop - at < 16 or buffer[at + 1 : at + 4] != bytes(3):
        return False
    if kind == _WIREGUARD_DATA:
        return size >= 32 and size % 16 == 0 and buffer[at + 13 : at + 16] == bytes(3)
    return _WIREGUARD_SIZES.get(kind) == size


def _of_gre(buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    if stop - at < 8:
        return _not_tcp(summary)
    flags, kind = _u16(buffer, at), _u16(buffer, at + 2)
    if flags & 7 == 1:  # PPTP's
        return of_ethertype(kind, buffer, at + 8 + 4 * bool(flags & 0x1000) + 4 * bool(flags & 0x80), stop, summary)
    if flags & 0x4007:
        return SEARCH, at + 4
    at += 4 + 4 * bool(flags & 0x8000) + 4 * bool(flags & 0x2000) + 4 * bool(flags & 0x1000)
    if kind == _ERSPAN and not flags & 0x1000:  # its first type has no header of its own
        kind = _BRIDGED
    return of_ethertype(kind, buffer, at, stop, summary)


def _of_erspan(buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    """Type II has a header of 8 bytes, type III of 12, with 8 more where it says so."""
    version = buffer[at] >> 4
    if version == 1:
        return ETHERNET, at + 8
    if version != 2 or stop - at < 20:
        return _not_tcp(summary)
    content = buffer[at + 10] >> 2 & 31
    found = {0: ETHERNET, 2: RAW}.get(content)
    return (found, at + 12 + 8 * (buffer[at + 11] & 1)) if found is not None else _not_tcp(summary)


def _of_mpls(buffer: bytes, at: int, stop: int) -> Inside:
    """Behind the last label stands IP; or Ethernet, often behind a control word of four bytes."""
    while stop - at >= 4 and not buffer[at + 2] & 1:
        at += 4
    return SEARCH, at + 4


def _of_l2tp(buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    """Of a data message of version 2: behind its header, whose fields its flags tell."""
    flags = _u16(buffer, at)
    if flags & 15 == 3:
        return _not_read("L2TPv3", summary)
    if flags & 15 != 2 or flags & 0x8000:
        return _not_tcp(summary)
    at += 6 + 2 * bool(flags & 0x4000) + 4 * bool(flags & 0x0800)
    if flags & 0x0200:
        if stop - at < 2:
            return _not_tcp(summary)
        at += 2 + _u16(buffer, at)
    return of_ethertype(_PPP, buffer, at, stop, summary)


def _of_nflog(buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    """The attribute with the packet; lengths and types are in the host's byte order, which the first type shows."""
    order: Literal["little", "big"] = "little" if not buffer[at + 3] else "big"
    while stop - at >= 4:
        length = int.from_bytes(buffer[at : at + 2], order)
        if length < 4:
            break
        if int.from_bytes(buffer[at + 2 : at + 4], order) == _NFLOG_PAYLOAD:
            return RAW, at + 4
        at += (length + 3) & ~3
    return _not_tcp(summary)


def _u16(buffer: bytes, at: int) -> int:
    return buffer[at] << 8 | buffer[at + 1]


def _not_tcp(summary: CaptureSummary) -> Inside:
    summary.not_tcp += 1
    return None


def _not_read(name: str, summary: CaptureSummary) -> Inside:
    summary.not_read[name] += 1
    return None
