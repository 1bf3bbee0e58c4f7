"""From a captured packet to its TCP segment: link layers, IPv4, IPv6 with its extension headers, tunnels (``tunnels``).

Plain packets take the first lines of each branch; what they skip stands in ``tunnels`` and ``fragments``.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from .model import Endpoint
from .tunnels import (
    FRAGMENTED,
    LINKS,
    SEARCH,
    TRAILER,
    VLAN,
    find_ip,
    may_be_tunnel,
    of_ethertype,
    of_link,
    of_protocol,
)

if TYPE_CHECKING:
    from .fragments import Fragments
    from .summary import CaptureSummary

FIN, SYN, RST, ACK = 1, 2, 4, 16

# These are C's numbers where the module is compiled.
_ETHERNET, _COOKED, _COOKED_2, _IP = 1, 113, 276, 101
_IPV4, _IPV6 = 0x0800, 0x86DD
_UDP, _AUTHENTICATION = 17, 51
_TICKS = 0x0101080A
_MOST_LAYERS = 16  # the most packets inside one another

_FAMILY_FIRST: Final = {0, 108}
"""Null and loopback: four bytes of address family, which differ between systems; the IP version tells instead."""
_RAW: Final = {_IP, 12, 14, 228, 229}

_SKIPPABLE: Final = {0, 43, 60, 135, 139, 140}
"""IPv6 extension headers of the common form: next header, length in 8 bytes after the first 8."""


class Segment:
    """A TCP segment.

    Attributes:
        flow: Addresses and ports, the sender's first.
        sequence: Sequence number.
        acknowledged: Acknowledged number.
        flags: TCP's flags.
        buffer: The buffer that holds the payload.
        begin, end: Where in the buffer the payload begins and ends.
        on_wire: The payload's length on the wire, which is more if the capture cut it.
    """

    def __init__(
        self, flow: bytes, sequence: int, acknowledged: int, flags: int, buffer: bytes, begin: int, end: int,
        on_wire: int,
    ) -> None:  # fmt: skip
        self.flow: bytes = flow
        self.sequence: int = sequence
        self.acknowledged: int = acknowledged
        self.flags: int = flags
        self.buffer: bytes = buffer
        self.begin: int = begin
        self.end: int = end
        self.on_wire: int = on_wire


def segment(
    time_ns: int,
    link: int,
    buffer: bytes,
    start: int,
    stop: int,
    on_wire: int,
    fragments: Fragments,
    summary: CaptureSummary,
) -> Segment | None:
    """The TCP segment in a packet, None if there is none; the summary counts the reason.

    A fragment gives the segment of the packet that it completes, None while other fragments are missing. Of a tunnel
    the packet inside is read.
    """
    layers = 0
    wire_end = start + on_wire
    while True:
        if link == _ETHERNET:
            at = start + 14
            kind_at = start + 12
        elif link == _COOKED_2:
            at = start + 20
            kind_at = start
        elif link == _COOKED:
            at = start + 16
            kind_at = start + 14
        elif link in _RAW:
            at = start
            kind_at = -1
        elif link in _FAMILY_FIRST:
            at = start + 4
            kind_at = -1
        elif link in LINKS:
            at = start
            kind_at = -2
        else:
            at = find_ip(buffer, start, stop, wire_end - TRAILER, wire_end)
            kind_at = -1
            if at < 0 and link == SEARCH:
                summary.not_tcp += 1
                return None
            if at < 0:
                summary.unknown_links[link] += 1
                return None
        if layers > _MOST_LAYERS:
            summary.not_read["more than 16 tunnels inside one another"] += 1
            return None
        if kind_at == -2:
            inside = of_link(link, buffer, start, stop, summary)
        else:
            if kind_at >= 0 and stop - at >= 4:
                kind = _u16(buffer, kind_at)
                if kind != _IPV4 and kind != _IPV6:
                    while kind in VLAN and stop - at >= 4:
                        kind = _u16(buffer, at + 2)
                        at += 4
            else:
                kind = _IPV4
            version = buffer[at] >> 4 if stop > at else 0
            if kind != _IPV4 and kind != _IPV6:
                inside = of_ethertype(kind, buffer, at, stop, summary)
            elif stop - at < 40 and (stop - at < 21 or version != 4 or not _u16(buffer, at + 6) & 0x3FFF):
                summary.not_tcp += 1
                return None
            elif version == 4:
                protocol = buffer[at + 9]
                header = (buffer[at] & 15) * 4
                tcp = at + header
                if header < 20 or stop - tcp < 1:
                    summary.not_tcp += 1
                    return None
                if _u16(buffer, at + 6) & 0x3FFF:
                    begins = protocol in FRAGMENTED or (protocol == _UDP and may_be_tunnel(buffer, tcp, stop))
                    packet = fragments.ipv4(time_ns, buffer, at, stop, begins)
                    if packet is None:
                        return None
                    link, buffer, start, stop, wire_end = _IP, packet, 0, len(packet), len(packet)
                    layers += 1
                    continue
                total = _u16(buffer, at + 2)
                end = at + total if total else wire_end  # 0: the network card will fill it in
                while protocol == _AUTHENTICATION and stop - tcp >= 20:
                    protocol, tcp = buffer[tcp], tcp + (buffer[tcp + 1] + 2) * 4
                if protocol != 6:
                    inside = of_protocol(protocol, buffer, tcp, stop, summary)
                elif stop - tcp < 20:
                    summary.not_tcp += 1
                    return None
                else:
                    if tcp == at + 20:  # noqa: SIM108
                        flow = buffer[at + 12 : at + 24]
                    else:
                        flow = buffer[at + 12 : at + 20] + buffer[tcp : tcp + 4]
                    break
            elif version == 6:
                total, protocol = _u16(buffer, at + 4), buffer[at + 6]
                end = at + 40 + total if total else wire_end
                tcp = at + 40
                while protocol != 6:
                    if stop - tcp < 8:
                        break
                    if protocol in _SKIPPABLE:
                        protocol, tcp = buffer[tcp], tcp + (buffer[tcp + 1] + 1) * 8
                    elif protocol == _AUTHENTICATION:
                        protocol, tcp = buffer[tcp], tcp + (buffer[tcp + 1] + 2) * 4
                    elif protocol == 44 and not _u16(buffer, tcp + 2) & 0xFFF9:  # an atomic fragment: the whole packet
                        protocol, tcp = buffer[tcp], tcp + 8
                    else:
                        break
                if protocol == 44 and stop - tcp >= 8:
                    protocol = buffer[tcp]
                    begins = protocol in FRAGMENTED or (protocol == _UDP and may_be_tunnel(buffer, tcp + 8, stop))
                    packet = fragments.ipv6(time_ns, buffer, at, tcp, stop, begins)
                    if packet is None:
                        return None
                    link, buffer, start, stop, wire_end = _IP, packet, 0, len(packet), len(packet)
                    layers += 1
                    continue
                if protocol != 6:
                    inside = of_protocol(protocol, buffer, tcp, stop, summary)
                elif stop - tcp < 20:
                    summary.not_tcp += 1
                    return None
                else:
                    flow = buffer[at + 8 : at + 40] + buffer[tcp : tcp + 4]
                    break
            else:
                summary.not_tcp += 1
                return None
        if inside is None:
            return None
        link, start = inside
        layers += 1
    words = buffer[tcp + 12] >> 4
    begin = tcp + words * 4
    wire_length = end - begin
    if words < 5 or wire_length < 0:
        summary.not_tcp += 1
        return None
    if end > stop:
        end = stop
        if begin > end:
            begin = end
        summary.cut_packets += 1
    found = Segment.__new__(Segment)  # the call of __init__ would make Python's integers of all these
    found.flow = flow
    found.sequence = _u32(buffer, tcp + 4)
    found.acknowledged = _u32(buffer, tcp + 8)
    found.flags = buffer[tcp + 13]
    found.buffer = buffer
    found.begin = begin
    found.end = end
    found.on_wire = wire_length
    return found


def ticks_of(segment: Segment) -> int:
    """What a sender's own clock shows, as TCP's option has it where systems put it; -1: nothing."""
    at = segment.begin - 12
    if at < 0 or _u32(segment.buffer, at) != _TICKS:
        return -1
    return _u32(segment.buffer, at + 4)


def _u16(buffer: bytes, at: int) -> int:
    return buffer[at] << 8 | buffer[at + 1]


def _u32(buffer: bytes, at: int) -> int:
    return _u16(buffer, at) << 16 | _u16(buffer, at + 2)


def reverse(flow: bytes) -> bytes:
    """The flow of the other direction."""
    width = (len(flow) - 4) // 2
    return flow[width : 2 * width] + flow[:width] + flow[-2:] + flow[-4:-2]


def endpoints(flow: bytes) -> tuple[Endpoint, Endpoint]:
    """Sender and receiver of a flow."""
    width = (len(flow) - 4) // 2
    return (
        Endpoint(str(ip_address(flow[:width])), int.from_bytes(flow[-4:-2])),
        Endpoint(str(ip_address(flow[width : 2 * width])), int.from_bytes(flow[-2:])),
    )
