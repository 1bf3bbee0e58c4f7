"""Traffic inside tunnels and under other links is read as if it had passed without; what is not read is named."""

import struct
from collections.abc import Callable, Iterable
from functools import reduce
from itertools import pairwise
from pathlib import Path

import packets as make
import pytest
from commands import run_kproto
from conftest import DATA
from hypothesis import given, settings
from hypothesis import strategies as st
from packets import fragments

from kproto.capture import CaptureReader, CaptureSummary, Exchange, exchanges, tunnels
from kproto.capture.fragments import Fragments
from kproto.capture.link import segment
from kproto.capture.summary import not_read_text

Wrap = Callable[[bytes], bytes]

MACS = bytes.fromhex("020000000001020000000002")


def ethernet(ip: bytes) -> bytes:
    return MACS + (b"\x86\xdd" if ip[0] >> 4 == 6 else b"\x08\0") + ip


def ipv4(protocol: int, payload: bytes) -> bytes:
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 7, 0, 64, protocol, 0) + bytes(range(8)) + payload


def ipv6(protocol: int, payload: bytes) -> bytes:
    return struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64) + bytes(range(32)) + payload


def udp(port: int, payload: bytes, source: int = 50123) -> bytes:
    return ipv4(17, struct.pack(">HHHH", source, port, 8 + len(payload), 0) + payload)


def gre(kind: int, payload: bytes, flags: int = 0, fields: bytes = b"") -> bytes:
    return ipv4(47, struct.pack(">HH", flags, kind) + fields + payload)


def ppp_type(ip: bytes) -> bytes:
    return b"\0\x57" if ip[0] >> 4 == 6 else b"\0\x21"


def label(bottom: bool) -> bytes:
    return (100 << 12 | bottom << 8 | 64).to_bytes(4)


def authenticated(ip: bytes) -> bytes:
    """IPv4 or IPv6 with an authentication header of 24 bytes before TCP."""
    header = bytes([6, 4]) + bytes(22)
    if ip[0] >> 4 == 6:
        return ip[:4] + struct.pack(">H", len(ip) - 40 + 24) + b"\x33" + ip[7:40] + header + ip[40:]
    return ip[:2] + struct.pack(">H", len(ip) + 24) + ip[4:9] + b"\x33" + ip[10:20] + header + ip[20:]


def vxlan(ip: bytes, port: int = 4789) -> bytes:
    return udp(port, b"\x08\0\0\0\0\0\x2a\0" + ethernet(ip))


def nflog(order: str) -> Wrap:
    def wrap(ip: bytes) -> bytes:
        def attribute(kind: int, value: bytes) -> bytes:
            return struct.pack(order + "HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)

        return b"\x02\0\0\x05" + attribute(1, bytes(4)) + attribute(10, b"prefix\0") + attribute(9, ip)

    return wrap


IN_IP: dict[str, Wrap] = {
    "VXLAN": vxlan,
    "VXLAN of flannel": lambda ip: vxlan(ip, 8472),
    "VXLAN at any port": lambda ip: vxlan(ip, 14789),
    "VXLAN-GPE": lambda ip: udp(4790, b"\x0c\0\0" + (b"\2" if ip[0] >> 4 == 6 else b"\1") + bytes(4) + ip),
    "VXLAN-GPE, NSH": lambda ip: udp(4790, b"\x0c\0\0\4" + bytes(4) + b"\x0f\xc6\1\3" + bytes(20) + ethernet(ip)),
    "Geneve": lambda ip: udp(6081, b"\x02\0\x65\x58\0\0\x2a\0" + bytes(8) + ethernet(ip)),
    "Geneve of IP": lambda ip: udp(6081, b"\0\0" + ethernet(ip)[12:14] + bytes(4) + ip),
    "GRE": lambda ip: gre(0x86DD if ip[0] >> 4 == 6 else 0x0800, ip),
    "GRE, key, sum, number": lambda ip: gre(0x86DD if ip[0] >> 4 == 6 else 0x0800, ip, 0xB000, bytes(12)),
    "GRE of Ethernet": lambda ip: gre(0x6558, ethernet(ip), 0x2000, bytes(4)),
    "GRE of MPLS": lambda ip: gre(0x8847, label(True) + ip),
    "GRE of PPTP": lambda ip: gre(0x880B, b"\xff\x03" + ppp_type(ip) + ip, 0x3081, bytes(12)),
    "ERSPAN I": lambda ip: gre(0x88BE, ethernet(ip)),
    "ERSPAN II": lambda ip: gre(0x88BE, b"\x10" + bytes(7) + ethernet(ip), 0x1000, bytes(4)),
    "ERSPAN III": lambda ip: gre(0x22EB, b"\x20" + bytes(11) + ethernet(ip), 0x1000, bytes(4)),
    "ERSPAN III, subheader": lambda ip: gre(
        0x22EB, b"\x20" + bytes(10) + b"\1" + bytes(8) + ethernet(ip), 0x1000, bytes(4)
    ),
    "ERSPAN III of IP": lambda ip: gre(0x22EB, b"\x20" + bytes(9) + b"\x08\0" + ip, 0x1000, bytes(4)),
    "IP in IP, 6in4": lambda ip: ipv4(41 if ip[0] >> 4 == 6 else 4, ip),
    "IP in IPv6": lambda ip: ipv6(41 if ip[0] >> 4 == 6 else 4, ip),
    "Ethernet in IPv6": lambda ip: ipv6(143, ethernet(ip)),
    "EtherIP": lambda ip: ipv4(97, b"\x30\0" + ethernet(ip)),
    "MPLS in IP": lambda ip: ipv4(137, label(False) + label(True) + ip),
    "MPLS in UDP": lambda ip: udp(6635, label(True) + ip),
    "GRE in UDP": lambda ip: udp(4754, gre(0x6558, ethernet(ip))[20:]),
    "AH": authenticated,
    "GTP-U": lambda ip: udp(2152, b"\x34\xff" + bytes(9) + b"\x85" + b"\1\0\0\0" + ip),
    "L2TP": lambda ip: udp(1701, b"\x40\2" + bytes(6) + b"\xff\3" + ppp_type(ip) + ip, 1701),
    "TZSP": lambda ip: udp(37008, b"\1\0\0\1\0\x0a\1\5\1" + ethernet(ip)),
    "LISP": lambda ip: udp(4341, bytes(8) + ip),
    "Teredo": lambda ip: udp(3544, b"\0\0" + bytes(6) + ip),
    "Geneve at any port": lambda ip: udp(16081, b"\0\0\x65\x58" + bytes(4) + ethernet(ip)),
    "GRE, source route": lambda ip: gre(0x86DD if ip[0] >> 4 == 6 else 0x0800, ip, 0x4000, bytes(8)),
    "GUE": lambda ip: udp(6080, b"\1" + (b"\x29" if ip[0] >> 4 == 6 else b"\4") + bytes(6) + ip),
}  # fmt: skip

IN_FRAMES: dict[str, Wrap] = {
    "MPLS": lambda ip: MACS + b"\x88\x47" + label(False) + label(True) + ip,
    "MPLS, Ethernet, control word": lambda ip: MACS + b"\x88\x47" + label(True) + bytes(4) + ethernet(ip),
    "MPLS, Ethernet": lambda ip: MACS + b"\x88\x47" + label(True) + ethernet(ip),
    "PPPoE": lambda ip: MACS + b"\x88\x64\x11\0\0\1" + struct.pack(">H", len(ip) + 2) + ppp_type(ip) + ip,
    "LLC, SNAP": lambda ip: MACS + struct.pack(">H", len(ip) + 8) + b"\xaa\xaa\3\0\0\0" + ethernet(ip)[12:],
    "LLC of a VLAN": lambda ip: (
        MACS + b"\x81\0\0\7" + struct.pack(">H", len(ip) + 8) + b"\xaa\xaa\3\0\0\0" + ethernet(ip)[12:]
    ),
    "VLANs, MPLS": lambda ip: MACS + b"\x88\xa8\0\5\x81\0\0\7\x88\x47" + label(True) + ip,
    "802.1ah": lambda ip: MACS + b"\x88\xa8\0\5\x88\xe7" + bytes(4) + ethernet(ip),
    "802.1BR": lambda ip: MACS + b"\x89\x3f" + bytes(6) + ethernet(ip)[12:],
    "VN-Tag": lambda ip: MACS + b"\x89\x26" + bytes(4) + ethernet(ip)[12:],
    "VN-Tag, VLAN": lambda ip: MACS + b"\x89\x26" + bytes(4) + b"\x81\0\0\7" + ethernet(ip)[12:],
    "TRILL": lambda ip: MACS + b"\x22\xf3\0\1\0\2\0\3" + ethernet(ip),
    "HSR": lambda ip: MACS + b"\x89\x2f" + bytes(4) + ethernet(ip)[12:],
}  # fmt: skip

LINKS: dict[str, tuple[int, Wrap]] = {
    "PPP": (9, lambda ip: ppp_type(ip) + ip),
    "PPP, address": (9, lambda ip: b"\xff\3" + ppp_type(ip) + ip),
    "PPP, short": (9, lambda ip: ppp_type(ip)[1:] + ip),
    "PPP in HDLC": (50, lambda ip: b"\xff\3" + ppp_type(ip) + ip),
    "Cisco HDLC": (104, lambda ip: b"\x0f\0" + ethernet(ip)[12:]),
    "PPPoE's link": (51, lambda ip: b"\x11\0\0\1\0\0" + ppp_type(ip) + ip),
    "PPP with direction": (204, lambda ip: b"\1\xff\3" + ppp_type(ip) + ip),
    "NFLOG": (239, nflog("<")),
    "NFLOG of the other byte order": (239, nflog(">")),
    "ENC": (109, lambda ip: bytes(12) + ip),
    "PFLOG": (117, lambda ip: b"\x3d" + bytes(63) + ip),
    "PKTAP": (258, lambda ip: struct.pack("<III", 108, 1, 1) + bytes(96) + ethernet(ip)),
    "netANALYZER": (240, lambda ip: bytes(4) + ethernet(ip)),
    "IPNET": (226, lambda ip: bytes(24) + ip),
    "IEEE 1394": (138, lambda ip: bytes(16) + ethernet(ip)[12:]),
    "cooked, 802.2": (113, lambda ip: bytes(14) + b"\0\4\xaa\xaa\3\0\0\0" + ethernet(ip)[12:]),
}  # fmt: skip


def talk(server: str = "10.0.0.2", client: str = "10.0.0.1", port: int = 50000, listener: int = 9092) -> list[bytes]:
    """A request of two segments and its answer, as IP packets."""
    conversation = make.Talk(client=(client, port), server=(server, listener)).open()
    conversation.ask(make.request(6, 8, 1, make.UPDATE_METADATA_8), 20).answer(make.response(6, 8, 1, b"\0\0\0"))
    return [make.ip_of(packet.data, make.ETHERNET) for packet in conversation.close().packets]


FOUR, SIX = talk(), talk("fd00::2", "fd00::1")


def read(packets: Iterable[bytes], link: int = make.ETHERNET) -> tuple[list[Exchange], CaptureSummary]:
    reader = CaptureReader()
    events = [
        event
        for number, packet in enumerate(packets)
        for event in reader.packet(make.START_NS + number * 1000, packet, link)
    ]
    return [event for event in [*events, *reader.end()] if isinstance(event, Exchange)], reader.summary


def holds_the_exchange(found: list[Exchange], summary: CaptureSummary) -> bool:
    assert (summary.not_tcp, summary.not_read, summary.ip_fragments, summary.cut_packets) == (0, {}, 0, 0)
    (exchange,) = found
    return exchange.request_message.controller_id == 1 and exchange.response_message.error_code == 0


@pytest.mark.parametrize("packets", [FOUR, SIX], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("name", IN_IP)
def test_what_a_tunnel_in_ip_carries_is_read(name: str, packets: list[bytes]) -> None:
    if name == "Teredo" and packets is FOUR:
        packets = SIX
    assert holds_the_exchange(*read(ethernet(IN_IP[name](ip)) for ip in packets))


@pytest.mark.parametrize("packets", [FOUR, SIX], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("name", IN_FRAMES)
def test_what_a_frame_carries_is_read(name: str, packets: list[bytes]) -> None:
    assert holds_the_exchange(*read(IN_FRAMES[name](ip) for ip in packets))


@pytest.mark.parametrize("packets", [FOUR, SIX], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("name", LINKS)
def test_what_another_link_carries_is_read(name: str, packets: list[bytes]) -> None:
    link, wrap = LINKS[name]
    assert holds_the_exchange(*read((wrap(ip) for ip in packets), link))


@given(st.sampled_from([FOUR, SIX]), st.binary(max_size=100), st.sampled_from(["IP", "Ethernet", "other link"]))
@settings(max_examples=60, deadline=None)
def test_a_header_of_any_kind_before_a_packet_is_passed_over(packets: list[bytes], header: bytes, where: str) -> None:
    """A tunnel at an unusual port, a switch's own tag, or a link type that is not known."""
    if where == "IP":
        assert holds_the_exchange(*read(ethernet(udp(5555, b"\7" + header + ip)) for ip in packets))
    elif where == "Ethernet":
        assert holds_the_exchange(*read(MACS + b"\xda\xda" + header + ip + bytes(4) for ip in packets))
    else:
        assert holds_the_exchange(*read((header + ip for ip in packets), 147))


@pytest.mark.parametrize("protocol", [1, 132, 255])
def test_a_packet_that_another_one_quotes_is_none(protocol: int) -> None:
    """ICMP tells a sender's own packet back to it."""
    found, summary = read(ethernet(ipv4(protocol, b"\3\4" + bytes(6) + ip)) for ip in FOUR)
    assert (found, summary.not_tcp, summary.connections) == ([], len(FOUR), 0)


@given(st.lists(st.sampled_from([*IN_IP.values()]), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_tunnels_in_tunnels_are_read(wraps: list[Wrap]) -> None:
    wraps = [wrap for wrap in wraps if wrap not in (authenticated, IN_IP["Teredo"])]
    assert holds_the_exchange(*read(ethernet(reduce(lambda ip, wrap: wrap(ip), wraps, ip)) for ip in FOUR))


@pytest.mark.parametrize("name", ["VXLAN", "GRE of Ethernet", "IP in IP, 6in4", "AH", "Geneve"])
def test_a_tunnels_fragments_are_put_together_outside_and_inside(name: str) -> None:
    outside = [ethernet(piece) for number, ip in enumerate(FOUR) for piece in fragments(IN_IP[name](ip), number, 48)]
    assert holds_the_exchange(*read(outside))
    inside = [ethernet(IN_IP["VXLAN"](piece)) for n, ip in enumerate(FOUR) for piece in fragments(ip, n, 24)]
    assert holds_the_exchange(*read(inside))


def test_fragments_of_a_tunnel_that_lack_others_are_counted() -> None:
    pieces = [piece for n, ip in enumerate(FOUR) for piece in fragments(IN_IP["VXLAN"](ip), n, 48)[:-1]]
    found, summary = read(map(ethernet, pieces))
    assert found == []
    assert summary.ip_fragments == len(pieces)


@pytest.mark.parametrize(
    ("name", "packet"),
    [
        ("WireGuard", udp(51820, b"\4\0\0\0" + bytes(4) + b"\x07" + bytes(7) + bytes(80))),
        ("WireGuard", udp(41641, b"\1\0\0\0" + bytes(144))),
        ("IPsec ESP", ipv4(50, bytes(80))),
        ("IPsec ESP", udp(4500, b"\0\0\0\1" + bytes(80))),
        ("OpenVPN", udp(1194, b"\x48" + bytes(80))),
        ("L2TPv3", ipv4(115, bytes(80))),
        ("IPComp", ipv6(108, bytes(80))),
        ("compressed or encrypted PPP", gre(0x880B, b"\0\xfd" + bytes(60), 0x2001, bytes(4))),
    ],
)  # fmt: skip
def test_what_may_hide_traffic_and_is_not_read_is_named(name: str, packet: bytes) -> None:
    found, summary = read([ethernet(packet)] * 3)
    assert (found, summary.not_read, summary.not_tcp) == ([], {name: 3}, 0)
    assert (
        summary.problem() == f"the capture: 3 packets of {name} are not read; capture on an interface inside the tunnel"
    )


@pytest.mark.parametrize(
    "packet",
    [
        ethernet(udp(53, b"\x04\0\0\0\0\1\0\0\0\0\0\0\3www\7example\3com\0\0\1\0\1")),
        ethernet(udp(123, b"\x23" + bytes(47))),
        ethernet(udp(4500, bytes(40))),
        ethernet(ipv4(1, bytes(40))),
        MACS + b"\x08\x06" + bytes(46),
        MACS + b"\x88\xcc" + bytes(46),
        MACS + b"\0\x26\x42\x42\3" + bytes(43),
    ],
    ids=["DNS", "NTP", "IKE", "ICMP", "ARP", "LLDP", "STP"],
)  # fmt: skip
def test_other_packets_are_no_hidden_traffic(packet: bytes) -> None:
    _, summary = read([packet])
    assert (summary.not_tcp, summary.not_read) == (1, {})


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_bytes_in_any_tunnel_are_a_packet_a_name_or_nothing(data: st.DataObject) -> None:
    wraps = {**{name: (1, lambda ip, w=w: ethernet(w(ip))) for name, w in IN_IP.items()},
             **{name: (1, wrap) for name, wrap in IN_FRAMES.items()}, **LINKS}  # fmt: skip
    link, wrap = wraps[data.draw(st.sampled_from([*wraps]))]
    whole = bytearray(wrap(FOUR[3]))
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=6)):
        whole[at] = value
    stop = data.draw(st.integers(0, len(whole)))
    summary = CaptureSummary()
    fragmented = Fragments(summary)
    found = segment(1, link, bytes(whole[:stop]), 0, stop, len(whole), fragmented, summary)
    fragmented.end()
    counted = summary.not_tcp + sum(summary.all_not_read.values()) + summary.ip_fragments
    assert counted == (found is None)
    # What stands behind the packet in its buffer belongs to the next one.
    if found is None and not summary.ip_fragments:
        again = CaptureSummary()
        assert (
            segment(1, link, bytes(whole[:stop]) + b"\x45" * 99, 0, stop, len(whole), Fragments(again), again) is None
        )


def test_a_hundred_tunnels_inside_one_another_are_given_up() -> None:
    packet = FOUR[3]
    for _ in range(100):
        packet = ipv4(4, packet)
    assert read([ethernet(packet)])[1].not_read == {"more than 16 tunnels inside one another": 1}


def test_a_mirror_shows_an_exchange_once() -> None:
    """The mirrored copy stands in VXLAN beside the packet, or alone and twice: for the sender and for the receiver."""
    assert holds_the_exchange(*read(packet for ip in FOUR for packet in (ethernet(ip), ethernet(vxlan(ip)))))
    assert holds_the_exchange(*read(packet for ip in FOUR for packet in [ethernet(vxlan(ip))] * 2))
    late = [*(ethernet(ip) for ip in FOUR), *(ethernet(vxlan(ip)) for ip in FOUR)]
    assert holds_the_exchange(*read(late))


@pytest.mark.parametrize(
    "translated",
    [talk("10.96.0.10"), talk("fd00::2", "fd00::1"), talk(client="10.0.0.77")],
    ids=["server", "none", "client"],
)
def test_both_sides_of_an_address_translation_show_an_exchange_once(translated: list[bytes]) -> None:
    copies = 0 if translated[0][0] >> 4 == 6 else 1
    for together in (1, len(FOUR) - 7):  # so many packets pass before the first of them is translated
        pieces = [*range(3), *range(3, len(FOUR), together), len(FOUR)]
        packets = [ip for a, b in pairwise(pieces) for side in (FOUR, translated) for ip in side[a:b]]
        found, summary = read(map(ethernet, packets))
        assert (len(found), summary.copied_connections) == (2 - copies, copies)


@pytest.mark.parametrize("begin", [0, 3, 4, 5])
def test_a_port_of_a_node_above_the_clients_is_translated_too(begin: int) -> None:
    """Its opening or a request tells the client; from the middle of a request on the bytes alone tell a copy."""
    sides = talk(port=20000), talk("10.0.0.9", port=20000, listener=30092)
    found, summary = read(
        map(ethernet, (ip for pair in zip(*(side[begin:] for side in sides), strict=True) for ip in pair))
    )
    assert (summary.copied_connections, summary.connections) == (1, 1)
    assert len(found) == (begin < 4)


def test_equal_requests_to_two_brokers_are_two() -> None:
    """Recordings may number each connection's bytes alike: another client port, or another moment, is another one."""
    other = talk("10.0.0.3", port=50001)
    found, _ = read(ethernet(ip) for pair in zip(FOUR, other, strict=False) for ip in pair)
    assert len(found) == 2
    found, _ = read([*map(ethernet, FOUR), *map(ethernet, talk("10.0.0.3"))])
    assert len(found) == 2


def said(command: str, path: Path) -> str:
    result = run_kproto(command, path)
    assert result.exit_code == 0, result.output
    return result.output


def test_inspect_summary_check_and_doctor_tell_what_is_not_read(tmp_path: Path) -> None:
    wireguard = ethernet(udp(51820, b"\4\0\0\0" + bytes(4) + b"\x07" + bytes(7) + bytes(80)))
    path = tmp_path / "mixed.pcap"
    packets = [*map(ethernet, FOUR), *[wireguard] * 12_000]
    path.write_bytes(make.pcap(make.Packet(make.START_NS, packet, len(packet)) for packet in packets))
    assert "warning: " + str(path) + ": 12,000 packets of WireGuard are not read" in said("inspect", path)
    assert "12,000 packets  WireGuard, not read  mixed.pcap" in said("summary", path)
    assert "12,000 packets of WireGuard are not read" in said("check", path)
    told = said("doctor", path)
    assert "KP064 traffic-not-read (12,000)" in told
    assert "12,000 packets of WireGuard are not read; requests in them are missing here" in told


def test_packets_without_times_are_said_to_have_none(tmp_path: Path) -> None:
    path = tmp_path / "simple.pcapng"
    simple = [make.block(3, struct.pack("<I", len(ethernet(ip))) + ethernet(ip)) for ip in FOUR]
    path.write_bytes(make.section() + make.interface() + b"".join(simple))
    for command in ("inspect", "summary", "check", "doctor"):
        told = said(command, path)
        assert f"{len(FOUR)} packets" in told
        assert "without a time" in told or "have no time" in told
        assert "1970" not in told
    assert said("inspect", path).startswith("no time  ")
    (exchange,) = exchanges(path)
    assert (exchange.to_json()["time"], exchange.latency_ms) == (None, None)


def test_the_doctor_tells_that_a_second_capture_stands_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cat.pcap"
    packets = [make.Packet(make.START_NS, ethernet(ip), len(ethernet(ip))) for ip in FOUR]
    path.write_bytes(make.pcap(packets) * 2)
    assert "KP065 damaged-file (1)" in said("doctor", path)
    summary = CaptureSummary()
    assert len(list(exchanges(path, summary=summary))) == 1
    (bad,) = summary.bad_inputs
    assert (bad.reason.partition(":")[0], bad.bytes_skipped) == ("another capture begins within the file", 24)
    assert summary.packets == 2 * len(FOUR)


def test_packets_that_are_not_read_are_counted_in_words() -> None:
    assert not_read_text({"GRE": 1}) == "1 packet of GRE is not read"
    assert not_read_text({"a": 3, "b": 2, "c": 1}) == "3 packets of a, 2 of b and 1 of c are not read"


def test_the_page_of_inputs_names_what_is_read_and_what_is_not() -> None:
    page = (Path(__file__).parents[2] / "docs" / "inputs.md").read_text()
    section = page[page.index("## Captures") : page.index("## Request logs")]
    words = {
        "VXLAN", "VXLAN-GPE", "NSH", "Geneve", "GRE", "PPTP", "ERSPAN", "IP in IP", "6in4", "EtherIP", "MPLS", "AH",
        "GTP-U", "L2TP", "TZSP", "LISP", "Teredo", "GUE", "PPPoE", "SNAP", "802.1ah", "802.1BR", "VN-Tag", "HSR", "PPP",
        "Cisco HDLC", "NFLOG", "ENC", "PFLOG", "PKTAP", "netANALYZER", "IPNET", "IEEE 1394",
        *tunnels._PORTS_NOT_READ.values(), "WireGuard", "MACsec", "TRILL",
    }  # fmt: skip
    assert not [word for word in words if word not in section]
    named = " ".join([*IN_IP, *IN_FRAMES, *LINKS])
    assert not [word for word in words & {*named.split()} if word not in section]


REAL = DATA / "captures" / "tunnels"
"""What tools/real_tunnels.py recorded: the same six exchanges through each tunnel that a kernel had."""


@pytest.mark.parametrize("path", sorted(REAL.glob("*.pcap.gz")), ids=lambda path: path.name.partition(".")[0])
def test_what_a_kernels_own_tunnel_carries_is_read_once(path: Path) -> None:
    summary = CaptureSummary()
    found = [(each.api_key, each.request.content, each.response.content) for each in exchanges(path, summary=summary)]  # type: ignore[union-attr]
    source = exchanges(DATA / "captures" / "ibp-2.8-a.pcap.gz")
    whole = {
        (each.api_key, each.request.content, each.response.content) for each in source if each.request and each.response
    }
    assert len(found) == len(set(found)) == 6
    assert set(found) <= whole
    assert summary.bad_inputs == []
    assert summary.gaps == summary.unmatched_requests == 0
    if path.name.startswith("hidden"):
        assert summary.all_not_read == {"IPsec ESP": 19, "WireGuard": 19}
    else:
        assert summary.all_not_read == {}
    assert summary.copied_connections == (path.name == "dnat-any.pcap.gz")
