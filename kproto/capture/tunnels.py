"""Protocols that carry another packet: where the packet inside begins, or the name of what is not read.

Each function is given the place behind what is known so far. It returns the link type of the packet inside, as a pcap
file names it, and where it begins; or None, after it has counted the packet: in ``not_read`` by the name of a protocol
that may hide Kafka traffic, else in ``not_tcp``. No byte at or after ``stop`` is looked at.

Sources: RFC 2784 and 2890 (GRE), 2637 (its form in PPTP), 7348 (VXLAN), 8926 (Geneve), 3378 (EtherIP), 2661 (L2TP),
4302 (AH), 2516 (PPPoE), 1661 (PPP), 3032 (MPLS), 4023 (MPLS in IP), 8300 (NSH), 4380 (Teredo), 9300 (LISP), 8086 (GRE
in UDP), 7510 (MPLS in UDP); draft-foschiano-erspan, draft-ietf-intarea-gue; 3GPP TS 29.281 (GTP-U); IEEE 802.1ah,
802.1BR, 802.2; tcpdump.org's list of link types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from .summary import CaptureSummary

Inside: TypeAlias = tuple[int, int] | None

ETHERNET: Final = 1
RAW: Final = 101

IPV4: Final = 0x0800
IPV6: Final = 0x86DD
VLAN: Final = {0x8100, 0x88A8, 0x9100, 0x9200}

_FIRST_ETHERTYPE: Final = 0x0600
_BRIDGED: Final = 0x6558
_MPLS: Final = {0x8847, 0x8848}
_PPPOE: Final = 0x8864
_PPP: Final = 0x880B
_NSH: Final = 0x894F
_ERSPAN: Final = 0x88BE
_ERSPAN_3: Final = 0x22EB
_WCCP: Final = 0x883E
_BACKBONE: Final = 0x88E7

_TAGS: Final = {0x8926: 4, 0x893F: 6, 0x892F: 4, 0x8909: 6}
"""Tags of switches (VN-Tag, 802.1BR, HSR, Cisco metadata): bytes before the next EtherType."""

_TYPES_NOT_READ: Final = {0x88E5: "MACsec", 0x22F3: "TRILL", 0x4305: "batman-adv", 0x8903: "FabricPath"}

_PPP_TYPES: Final = {0x21: IPV4, 0x57: IPV6, 0x281: 0x8847, 0x283: 0x8848}
_PPP_PACKED: Final = {0xFD, 0xFB, 0x53, 0x55}

_PROTOCOLS_NOT_READ: Final = {50: "IPsec ESP", 108: "IPComp", 115: "L2TPv3"}

FRAGMENTED: Final = frozenset({4, 6, 41, 47, 51, 94, 97, 137, 143})
"""IP protocols whose fragments are put together; of UDP those packets that begin like a tunnel's."""

_VXLAN_PORTS: Final = {4789, 8472, 4790, 6784}
_VXLAN_TYPES: Final = {1: RAW, 2: RAW, 3: ETHERNET}
_GENEVE_PORT: Final = 6081
_GTP_PORT: Final = 2152
_L2TP_PORT: Final = 1701
_TZSP_PORT: Final = 37008
_LISP_PORT: Final = 4341
_MPLS_PORT: Final = 6635
_GRE_PORT: Final = 4754
_TEREDO_PORT: Final = 3544
_GUE_PORT: Final = 6080
_ESP_PORT: Final = 4500

_READ_PORTS: Final = _VXLAN_PORTS | {
    _GENEVE_PORT, _GTP_PORT, _L2TP_PORT, _TZSP_PORT, _LISP_PORT, _MPLS_PORT, _GRE_PORT, _TEREDO_PORT, _GUE_PORT,
}  # fmt: skip
_PORTS_NOT_READ: Final = {1194: "OpenVPN", 4242: "Nebula", 5247: "CAPWAP", 9993: "ZeroTier"}

_WIREGUARD_SIZES: Final = {1: 148, 2: 92, 3: 64}
_WIREGUARD_DATA: Final = 4

LINKS: Final = frozenset({9, 50, 51, 104, 109, 117, 138, 204, 226, 239, 240, 258})
"""Link types that ``of_link`` reads: PPP, PPPoE, Cisco HDLC, ENC, PFLOG, IP over IEEE 1394, IPNET, NFLOG, netANALYZER,
PKTAP."""

_NFLOG_PAYLOAD: Final = 9
_PKTAP_RAW: Final = {12, 14}


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
    if link == 138:
        return (
            of_ethertype(_u16(buffer, at + 16), buffer, at + 18, stop, summary) if stop - at > 18 else _not_tcp(summary)
        )
    if link == 258:
        inner = int.from_bytes(buffer[at + 8 : at + 12], "little")
        return RAW if inner in _PKTAP_RAW else inner, at + int.from_bytes(buffer[at : at + 4], "little")
    if link == 240:
        return ETHERNET, at + 4
    ahead = {109: 12, 117: (buffer[at] + 3) & ~3, 226: 24}[link]
    return RAW, at + ahead


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
        elif kind in _TAGS:
            ahead = _TAGS[kind]
            kind, at = _u16(buffer, at + ahead), at + ahead + 2
        elif kind in _MPLS:
            return _of_mpls(buffer, at, stop, summary)
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
        elif kind == _NSH:
            return _of_nsh(buffer, at, stop, summary)
        elif kind == _BACKBONE:
            return ETHERNET, at + 4
        elif kind in (_ERSPAN, _ERSPAN_3):
            return _of_erspan(buffer, at, stop, summary)
        elif kind == _WCCP:
            return RAW, at if buffer[at] >> 4 == 4 else at + 4
        elif kind < _FIRST_ETHERTYPE:  # the length of a frame of IEEE 802.3; in Linux' cooked form a small number
            sap = _u16(buffer, at)
            if sap == 0xAAAA and buffer[at + 2] == 3:
                kind, at = _u16(buffer, at + 6), at + 8
                if kind < _FIRST_ETHERTYPE:
                    return _not_tcp(summary)
            elif sap == 0x0606 and buffer[at + 2] == 3:
                return RAW, at + 3
            elif kind in (0, 3) and buffer[at] >> 4 in (4, 6):  # cooked packets of a device without a link layer
                return RAW, at
            else:
                return _not_tcp(summary)
        elif kind in _TYPES_NOT_READ:
            return _not_read(_TYPES_NOT_READ[kind], summary)
        else:
            return _not_tcp(summary)


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
        return _of_mpls(buffer, at, stop, summary)
    if protocol == 97:
        return ETHERNET, at + 2
    if protocol == 143:
        return ETHERNET, at
    return _not_tcp(summary)


def may_be_tunnel(buffer: bytes, at: int, stop: int) -> bool:
    """Whether a UDP packet, whose header begins at ``at``, may be one of a tunnel that is read."""
    return stop - at >= 16 and (_u16(buffer, at + 2) in _READ_PORTS or _is_vxlan(buffer, at + 8, stop))


def _of_udp(buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    source, port = _u16(buffer, at), _u16(buffer, at + 2)
    data = at + 8
    if stop - data < 8:
        return _not_tcp(summary)
    first = buffer[data]
    if port in _VXLAN_PORTS and first & 8:
        if not first & 4:
            return ETHERNET, data + 8
        if buffer[data + 3] == 4:
            return of_ethertype(_NSH, buffer, data + 8, stop, summary)
        found = _VXLAN_TYPES.get(buffer[data + 3])
        return (found, data + 8) if found is not None else _not_tcp(summary)
    if port == _GENEVE_PORT and first >> 6 == 0:
        return of_ethertype(_u16(buffer, data + 2), buffer, data + 8 + (first & 63) * 4, stop, summary)
    if port == _GTP_PORT and first >> 4 == 3:
        return _of_gtp(buffer, data, stop, summary)
    if port == _L2TP_PORT or source == _L2TP_PORT:
        return _of_l2tp(buffer, data, stop, summary)
    if port == _TZSP_PORT and first == 1:
        return _of_tzsp(buffer, data, stop, summary)
    if port == _LISP_PORT:
        return RAW, data + 8
    if port == _MPLS_PORT:
        return _of_mpls(buffer, data, stop, summary)
    if port == _GRE_PORT:
        return _of_gre(buffer, data, stop, summary)
    if _TEREDO_PORT in (port, source):
        if buffer[data : data + 2] == b"\0\1":
            data += 13 + buffer[data + 2] + buffer[data + 3]
        if buffer[data : data + 2] == b"\0\0":
            data += 8
        return RAW, data
    if port == _GUE_PORT:
        if first >> 6 == 1:
            return RAW, data
        if first >> 5:
            return _not_tcp(summary)
        return of_protocol(buffer[data + 1], buffer, data + 4 + (first & 31) * 4, stop, summary)
    if _ESP_PORT in (port, source) and buffer[data : data + 4] != bytes(4):
        return _not_read("IPsec ESP", summary)
    if _is_wireguard(buffer, data, at + _u16(buffer, at + 4), stop):
        return _not_read("WireGuard", summary)
    name = _PORTS_NOT_READ.get(port) or _PORTS_NOT_READ.get(source)
    if name is not None:
        return _not_read(name, summary)
    if _is_vxlan(buffer, data, stop):
        return ETHERNET, data + 8
    return _not_tcp(summary)


def _is_vxlan(buffer: bytes, at: int, stop: int) -> bool:
    """Whether VXLAN's header begins here, with an Ethernet frame of IP in it, whatever the port is."""
    return (
        stop - at >= 48
        and buffer[at : at + 4] == b"\x08\0\0\0"
        and not buffer[at + 7]
        and (_u16(buffer, at + 20) in (IPV4, IPV6) or _u16(buffer, at + 20) in VLAN)
    )


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
        return _not_read("GRE with source routes", summary) if flags & 0x4000 else _not_tcp(summary)
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


def _of_mpls(buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    """Behind the last label stands IP; or Ethernet, often behind a control word of four bytes that begins with 0."""
    while stop - at >= 4 and not buffer[at + 2] & 1:
        at += 4
    at += 4
    if stop - at < 20:
        return _not_tcp(summary)
    if buffer[at] >> 4 in (4, 6) and not _is_ethernet(buffer, at, stop):
        return RAW, at
    if not buffer[at] >> 4 and _is_ethernet(buffer, at + 4, stop):
        return ETHERNET, at + 4
    return ETHERNET, at


def _is_ethernet(buffer: bytes, at: int, stop: int) -> bool:
    """Whether an Ethernet frame with a packet of IP, or a tag, begins here."""
    if stop - at < 34:
        return False
    kind = _u16(buffer, at + 12)
    return kind in VLAN or (kind == IPV4 and buffer[at + 14] >> 4 == 4) or (kind == IPV6 and buffer[at + 14] >> 4 == 6)


def _of_nsh(buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    found = _VXLAN_TYPES.get(buffer[at + 3])
    length = (buffer[at + 1] & 63) * 4
    return (found, at + length) if found is not None and length and at + length < stop else _not_tcp(summary)


def _of_gtp(buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    """Of a message with a user's packet (255): behind the extension headers, each of which names the next one."""
    if buffer[at + 1] != 255 or stop - at < 12:
        return _not_tcp(summary)
    flags = buffer[at]
    following = buffer[at + 11] if flags & 4 else 0
    at += 12 if flags & 7 else 8
    while following:
        length = buffer[at] * 4 if at < stop else 0
        if not length or at + length >= stop:
            return _not_tcp(summary)
        at += length
        following = buffer[at - 1]
    return RAW, at


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


def _of_tzsp(buffer: bytes, at: int, stop: int, summary: CaptureSummary) -> Inside:
    """Behind the tags, of which 0 is padding and 1 the last; the others have a length."""
    if _u16(buffer, at + 2) != 1:
        return _not_tcp(summary)
    at += 4
    while stop - at >= 2:
        tag = buffer[at]
        if tag == 1:
            return ETHERNET, at + 1
        at += 1 if not tag else 2 + buffer[at + 1]
    return _not_tcp(summary)


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
