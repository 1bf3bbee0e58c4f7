"""Makes a capture of each broker's host, with a clock of its own, from a capture of all."""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from kproto.tables import read
from kproto.tables.schemas import TABLES
from tests.packets import Packet, ip_of, pcap, read_pcap

End = tuple[str, int]


class Recorded(NamedTuple):
    """Packets of one link type."""

    link: int
    packets: Sequence[Packet]

    def write(self, path: Path, *, ahead_ns: int = 0, drift_ppm: float = 0.0) -> Path:
        """Write them as a clock shows them that is ahead and gains time."""
        begin = self.packets[0].time_ns
        path.write_bytes(pcap((
            packet._replace(time_ns=packet.time_ns + ahead_ns + round((packet.time_ns - begin) * drift_ppm / 1_000_000))
            for packet in self.packets
        ), self.link, nano=True))  # fmt: skip
        return path


def ends_of(packet: bytes, link: int) -> tuple[End, End]:
    """Source and target of a TCP packet without extension headers."""
    ip = ip_of(packet, link)
    if ip[0] >> 4 == 6:
        source, target, tcp = ip[8:24], ip[24:40], ip[40:44]
    else:
        source, target, tcp = ip[12:16], ip[16:20], ip[4 * (ip[0] & 15) :][:4]
    ports = int.from_bytes(tcp[:2], "big"), int.from_bytes(tcp[2:], "big")
    return (str(ip_address(source)), ports[0]), (str(ip_address(target)), ports[1])


def recorded(path: Path) -> Recorded:
    """The packets of a capture."""
    return Recorded(*read_pcap(path))


def by_host(of: Recorded, servers: Iterable[End]) -> dict[str, Recorded]:
    """The packets that each broker's host sees; where all have one address, those from and to each broker's port.

    Args:
        of: The packets that all hosts see.
        servers: Where the brokers listen.
    """
    servers = sorted(servers)
    names = {ip for ip, _port in servers}
    has_one = len(names) < len(servers)
    places: Mapping[End, str] = {end: f"host-{end[1] if has_one else end[0]}.pcap" for end in servers}
    found: dict[str, list[Packet]] = {name: [] for name in places.values()}
    addresses = {end[0]: name for end, name in places.items()}
    for packet in of.packets:
        ends = ends_of(packet.data, of.link)
        shown = {places.get(end) if has_one else addresses.get(end[0]) for end in ends}
        for name in shown - {None}:
            found[str(name)].append(packet)
    return {name: Recorded(of.link, packets) for name, packets in found.items()}


def servers_of(capture: Path) -> set[tuple[str, int]]:
    """The brokers' addresses in a capture."""
    requests = read(capture)["requests"].select(["server_ip", "server_port"])
    return {(row["server_ip"], row["server_port"]) for row in requests.to_pylist()}


def without_listings(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables as if brokers advertised names."""
    requests = tables["requests"]
    place = requests.schema.get_field_index("broker_id")
    nobody = pa.nulls(requests.num_rows, pa.int32())
    hidden = requests.set_column(place, TABLES["requests"].field("broker_id"), nobody)
    return {**tables, "requests": hidden, "brokers": tables["brokers"].slice(0, 0)}
