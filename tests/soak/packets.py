"""What happens to packets in the network namespace of a soak: they are dropped, refused, lost or come out of order."""

import contextlib
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["Detour", "Packets"]

_DEVICE: Final = "detour"
_MARK: Final = 1
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_LARGEST: Final = 65_535


class Packets:
    """What nftables do with packets to and from the brokers' ports, in the namespace of the soak.

    All connections send small segments, so that a frame is several packets, which can come out of order.

    Args:
        seed: Of what the detour does.
        loss: Of a hundred packets that are lossy, how many are dropped.
        segment: The bytes of a segment.

    Attributes:
        detour: Where packets come out of order, None if there cannot be one.
        missing: Why there cannot be one.
    """

    _TABLE: Final = """
table inet soak {{
  set dropped {{ type inet_service; }}
  set lossy {{ type inet_service; }}
  set rejected {{ type inet_service; }}
  set detoured {{ type inet_service; }}
  chain input {{
    type filter hook input priority 0;
    tcp dport @rejected reject with tcp reset
    tcp sport @rejected reject with tcp reset
    tcp dport @dropped drop
    tcp sport @dropped drop
    tcp dport @lossy numgen random mod 100 < {loss} drop
    tcp sport @lossy numgen random mod 100 < {loss} drop
  }}
  chain output {{
    type route hook output priority -150;
    tcp flags syn tcp option maxseg size set {segment}
    tcp dport @detoured meta mark set {mark}
    tcp sport @detoured meta mark set {mark}
  }}
}}
"""

    def __init__(self, seed: int, loss: int = 10, segment: int = 256) -> None:
        self._run(self._TABLE.format(loss=loss, segment=segment, mark=_MARK))
        self._detours = 0
        self._happened: Counter[str] = Counter()
        self.detour: Detour | None = None
        self.missing = Detour.missing()
        if self.missing is None:
            try:
                self.detour = Detour(seed)
            except (OSError, subprocess.SubprocessError) as e:
                self.missing = f"there can be no detour: {e}"
            else:
                self.detour.start()

    @contextlib.contextmanager
    def held(self, name: str, ports: list[int]) -> Iterator[None]:
        """Treat the packets of these ports as those of a set."""
        elements = ", ".join(map(str, ports))
        self._run(f"add element inet soak {name} {{ {elements} }}\n")
        try:
            yield
        finally:
            self._run(f"delete element inet soak {name} {{ {elements} }}\n")

    @contextlib.contextmanager
    def detoured(self, ports: list[int]) -> Iterator[Counter[str]]:
        """Send the packets of these ports through the detour; gives a counter that tells afterwards what happened."""
        assert self.detour is not None
        before, late = self.detour.counts.copy(), self.detour.out_of_order()
        happened: Counter[str] = Counter()
        with self.held("detoured", ports):
            yield happened
        happened.update(self.detour.counts - before)
        happened["out of order"] = self.detour.out_of_order() - late
        self._detours += 1
        self._happened += happened

    def wrong(self) -> Iterator[str]:
        """Whether the detours did not do what they are for."""
        passed = self._happened["passed"]
        if self._detours and not passed:
            yield "no packet came to the detour"
        if passed > 1_000 and not self._happened["out of order"]:
            yield f"of {passed} packets in the detour none came out of order"

    @staticmethod
    def _run(commands: str) -> None:
        subprocess.run(["nft", "-f", "-"], input=commands, text=True, check=True, timeout=20)


class Detour(threading.Thread):
    """A device through which marked packets go, and come back late, twice or never, on a thread of its own.

    Most are passed on at once, so that they overtake those that wait.

    Args:
        seed: Of the choice.

    Attributes:
        counts: How many packets came, waited, came twice, and were lost.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(name="soak-detour", daemon=True)
        self._random = random.Random(f"detour {seed}")
        self.counts: Counter[str] = Counter()
        self._tun = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        fcntl.ioctl(self._tun, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
        # The system takes packets of its own addresses from a device, and sends marked ones there before it finds that
        # they are for itself.
        for name, value in (("rp_filter", 0), ("accept_local", 1), ("route_localnet", 1)):
            for device in ("all", _DEVICE):
                Path(f"/proc/sys/net/ipv4/conf/{device}/{name}").write_text(f"{value}\n", encoding="ascii")
        no_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{_DEVICE}/disable_ipv6")
        if no_ipv6.exists():  # with an IPv6 address alone beside loopback, resolvers would give no IPv4 addresses
            no_ipv6.write_text("1\n", encoding="ascii")
        for words in (
            f"link set {_DEVICE} mtu {_LARGEST} up",
            f"route add default dev {_DEVICE} table 100",
            "rule add pref 100 lookup local",
            f"rule add pref 10 fwmark {_MARK} lookup 100",
            "rule del pref 0",
        ):
            subprocess.run(["ip", *words.split()], check=True, timeout=20)

    @staticmethod
    def missing() -> str | None:
        """Why there cannot be one here, None if there can."""
        if not Path("/dev/net/tun").exists():
            return "there is no /dev/net/tun"
        return None if shutil.which("ip") else "ip is not installed (Debian, Ubuntu: apt-get install iproute2)"

    @staticmethod
    def out_of_order() -> int:
        """How many segments the namespace's TCP had to put in order."""
        names, values = (
            line.split()
            for line in Path("/proc/thread-self/net/netstat").read_text().splitlines()
            if line.startswith("TcpExt:")
        )
        return int(values[names.index("TCPOFOQueue")])

    def run(self) -> None:
        """Pass packets on."""
        waiting: list[tuple[float, int, bytes]] = []
        while True:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                os.write(self._tun, heapq.heappop(waiting)[2])
            ready, _, _ = select.select([self._tun], [], [], waiting[0][0] - now if waiting else None)
            if not ready:
                continue
            packet = os.read(self._tun, _LARGEST)
            self.counts["passed"] += 1
            chance = self._random.random()
            if chance < 0.01:
                self.counts["lost"] += 1
                continue
            if chance < 0.25:
                self.counts["delayed"] += 1
                due = now + self._random.uniform(0.001, 0.03)
                heapq.heappush(waiting, (due, self.counts["passed"], packet))
            else:
                os.write(self._tun, packet)
            if 0.24 < chance < 0.27:
                self.counts["twice"] += 1
                os.write(self._tun, packet)
