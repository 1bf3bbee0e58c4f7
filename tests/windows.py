"""Makes other windows on the traffic of a capture: a later begin, an earlier end, slower time, lost packets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from packets import Packet, pcap, read_pcap


@dataclass(frozen=True)
class Window:
    """Some packets of a capture.

    Attributes:
        link: The link type.
        packets: In their order.
    """

    link: int
    packets: tuple[Packet, ...]

    @classmethod
    def of(cls, path: Path) -> Window:
        """The whole of a packed pcap."""
        link, packets = read_pcap(path)
        return cls(link, tuple(packets))

    def at(self, part: float) -> int:
        """The time in ns at which a part of the capture has passed."""
        begin, end = self.packets[0].time_ns, self.packets[-1].time_ns
        return begin + int((end - begin) * part)

    def since(self, time_ns: int) -> Window:
        """The packets from a time on."""
        return replace(self, packets=tuple(packet for packet in self.packets if packet.time_ns >= time_ns))

    def until(self, time_ns: int) -> Window:
        """The packets up to a time."""
        return replace(self, packets=tuple(packet for packet in self.packets if packet.time_ns <= time_ns))

    def lacking(self, since: float, until: float) -> Window:
        """The packets but for those between two parts of the capture."""
        first, last = self.at(since), self.at(until)
        return replace(self, packets=tuple(packet for packet in self.packets if not first <= packet.time_ns <= last))

    def slower(self, times: int) -> Window:
        """The same packets while time passes more slowly."""
        begin = self.packets[0].time_ns
        slow = (packet._replace(time_ns=begin + (packet.time_ns - begin) * times) for packet in self.packets)
        return replace(self, packets=tuple(slow))

    def losing(self, share: float, random: Random) -> Window:
        """The packets without a share of them."""
        return replace(self, packets=tuple(packet for packet in self.packets if random.random() >= share))

    def cut_to(self, snaplen: int) -> Window:
        """The packets as a snaplen keeps them."""
        return replace(self, packets=tuple(packet._replace(data=packet.data[:snaplen]) for packet in self.packets))

    def write(self, path: Path) -> Path:
        """Write a pcap and return its path."""
        path.write_bytes(pcap(self.packets, self.link))
        return path
