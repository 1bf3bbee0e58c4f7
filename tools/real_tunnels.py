"""Captures of this kernel's own tunnels: a controller's requests between two network namespaces, recorded by dumpcap.

    sudo python tools/real_tunnels.py [--out tests/data/captures/tunnels]

Each capture holds the same exchanges, those of one connection of ``ibp-2.8-a.pcap.gz``, asked and answered over real
sockets. A tunnel of which the kernel has no driver is named and left out. Nothing outside the namespaces is touched.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import gzip
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kproto.capture import exchanges

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "tests" / "data" / "captures" / "ibp-2.8-a.pcap.gz"
PORT: Final = 9092
MOST: Final = 6
MINE: Final = f"kproto{os.getpid()}"

_libc = ctypes.CDLL(None, use_errno=True)


class Missing(Exception):
    """The kernel has no such driver."""


def run(command: str, space: str = "") -> None:
    """Run a command, perhaps in a namespace."""
    words = [*(["ip", "netns", "exec", f"{MINE}{space}"] if space else []), *command.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{command}: {done.stderr.strip()}")


def inside(space: str, act: Callable[[], object]) -> threading.Thread:
    """Begin a thread whose sockets are of a namespace."""

    def enter() -> None:
        with Path(f"/run/netns/{MINE}{space}").open() as file:
            if _libc.setns(file.fileno(), 0x40000000):
                raise OSError(ctypes.get_errno(), "setns")
        act()

    thread = threading.Thread(target=enter)
    thread.start()
    return thread


def frames() -> list[tuple[bytes, bytes]]:
    """The requests and responses of a connection."""
    found: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for each in exchanges(SOURCE):
        if each.request is not None and each.response is not None:
            pair = each.request.content, each.response.content
            found.setdefault(each.connection.conn_id, []).append(pair)
    return next(pairs for pairs in found.values() if len(pairs) >= MOST)[:MOST]


def talk(target: str) -> None:
    """Ask and answer everything over one connection from ``a`` to ``target``, which leads to ``b``."""
    pairs, ready = frames(), threading.Event()
    family = socket.AF_INET6 if ":" in target else socket.AF_INET

    def read(connection: socket.socket, size: int) -> None:
        while size:
            data = connection.recv(size)
            if not data:
                raise EOFError
            size -= len(data)

    def answer() -> None:
        with socket.create_server(("", PORT), family=family) as server:
            ready.set()
            connection, _ = server.accept()
            with connection:
                for request, response in pairs:
                    read(connection, 4 + len(request))
                    connection.sendall(struct.pack(">I", len(response)) + response)

    def ask() -> None:
        ready.wait(30)
        with socket.create_connection((target, PORT), timeout=30) as connection:
            for request, response in pairs:
                connection.sendall(struct.pack(">I", len(request)) + request)
                read(connection, 4 + len(response))

    for thread in (inside("b", answer), inside("a", ask)):
        thread.join(60)


def record(out: Path, space: str, interface: str, target: str) -> None:
    """Record the talk on an interface of a namespace."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture"
        Path(folder).chmod(0o777)
        command = ["ip", "netns", "exec", f"{MINE}{space}", "dumpcap", "-q", "-P", "-i", interface, "-w", str(path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as dumpcap:
            assert dumpcap.stderr is not None
            said = next((line for line in dumpcap.stderr if line.startswith("File:")), "")
            if not said:
                raise Missing(f"dumpcap cannot record {interface}")
            time.sleep(0.5)
            talk(target)
            time.sleep(2)
            dumpcap.send_signal(signal.SIGINT)
            dumpcap.wait(30)
        out.write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))


def pair(*, router: bool = False) -> None:
    """Two namespaces with a cable between them, or a router ``r`` in the middle."""
    for space in "abr" if router else "ab":
        run(f"ip netns add {MINE}{space}")
        run("ip link set lo up", space)
    cables = [("a", "r", 1), ("r", "b", 2)] if router else [("a", "b", 1)]
    for one, other, number in cables:
        run(f"ip link add to{other} netns {MINE}{one} type veth peer name to{one} netns {MINE}{other}")
        for space, name, host in ((one, f"to{other}", 1), (other, f"to{one}", 2)):
            run(f"ip addr add 10.9.{number}.{host}/24 dev {name}", space)
            run(f"ip addr add fd00:9:{number}::{host}/64 dev {name} nodad", space)
            run(f"ip link set {name} up", space)
    if router:
        run("ip route add default via 10.9.1.2", "a")
        run("ip route add default via 10.9.2.1", "b")
        run("sysctl -qw net.ipv4.ip_forward=1", "r")


def device(name: str, kind: str, net: int, form: str) -> None:
    """A tunnel's two ends with addresses; ``form`` names {here} and {there}."""
    for space, host, other in (("a", 1, 2), ("b", 2, 1)):
        run(f"ip link add {name} type {kind} " + form.format(here=host, there=other), space)
        run(f"ip addr add 10.{net}.0.{host}/24 dev {name}", space)
        run(f"ip link set {name} up", space)


def tun() -> None:
    """Two TUN devices whose packets this program carries from one to the other."""
    ends = []

    def begin(space: str) -> None:
        end = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(end, 0x400454CA, struct.pack("16sH22x", b"tun0", 0x1001))  # a TUN without a header
        ends.append(end)
        run(f"ip addr add 10.50.0.{len(ends)}/24 dev tun0", space)
        run("ip link set tun0 up", space)

    for space in "ab":
        inside(space, lambda space=space: begin(space)).join()  # type: ignore[misc]

    def carry() -> None:
        while True:
            for end in select.select(ends, [], [])[0]:
                os.write(ends[1 - ends.index(end)], os.read(end, 65536))

    threading.Thread(target=carry, daemon=True).start()


def nflog() -> None:
    """Rules that log what goes out and comes in."""
    run("nft add table inet kproto", "a")
    for hook in ("input", "output"):
        run(f"nft add chain inet kproto {hook} {{ type filter hook {hook} priority 0 ; }}", "a")
        run(f"nft add rule inet kproto {hook} tcp dport {PORT} log group 5 queue-threshold 1", "a")
        run(f"nft add rule inet kproto {hook} tcp sport {PORT} log group 5 queue-threshold 1", "a")


def translate() -> None:
    """The router leads an address that nobody has to ``b``."""
    run("nft add table ip kproto", "r")
    run("nft add chain ip kproto before { type nat hook prerouting priority -100 ; }", "r")
    run(f"nft add rule ip kproto before ip daddr 10.99.0.1 tcp dport {PORT} dnat to 10.9.2.2", "r")


def hidden() -> None:
    """Beside the talk packets of IPsec ESP and WireGuard, which are not read, one of each in a tenth of a second."""

    def send() -> None:
        with (
            suppress(OSError),  # the namespace has ended
            socket.socket(socket.AF_INET, socket.SOCK_RAW, 50) as esp,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wireguard,
        ):
            for n in range(1, 30):
                esp.sendto(struct.pack(">II", 7, n) + bytes(range(64)), ("10.9.1.2", 0))
                wireguard.sendto(struct.pack("<IIQ", 4, 7, n) + bytes(range(64)), ("10.9.1.2", 51820))
                time.sleep(0.1)

    inside("a", send)


def vxlan(*nets: str) -> None:
    """VXLAN over each of these, the later ones inside the earlier ones."""
    for number, form in enumerate(nets):
        device(f"tunnel{number}", "vxlan", 40 + number, f"id {number + 7} remote {form}")


def ends(kind: str, more: str = "") -> Callable[[], None]:
    """A tunnel of IP between both hosts."""
    return lambda: device("tunnel0", kind, 40, f"local 10.9.1.{{here}} remote 10.9.1.{{there}} {more}")


def fou() -> None:
    """IP in UDP."""
    for space in "ab":
        run("ip fou add port 5555 ipproto 4", space)
    ends("ipip", "encap fou encap-dport 5555")()


OVER: Final = "10.9.1.{there} dstport 4789"

CASES: Final[dict[str, tuple[Callable[[], object], str, str, str]]] = {
    "plain": (lambda: None, "a", "tob", "10.9.1.2"),
    "plain-ipv6": (lambda: None, "a", "tob", "fd00:9:1::2"),
    "vxlan": (lambda: vxlan(OVER), "a", "tob", "10.40.0.2"),
    "vxlan-8472-ipv6": (lambda: vxlan("fd00:9:1::{there} dstport 8472"), "a", "tob", "10.40.0.2"),
    "vxlan-in-vxlan": (lambda: vxlan(OVER, "10.40.0.{there} dstport 8472"), "a", "tob", "10.41.0.2"),
    "vxlan-any": (lambda: vxlan(OVER), "a", "any", "10.40.0.2"),
    "geneve": (lambda: device("tunnel0", "geneve", 40, "id 7 remote 10.9.1.{there}"), "a", "tob", "10.40.0.2"),
    "gre": (ends("gre"), "a", "tob", "10.40.0.2"),
    "gretap": (ends("gretap"), "a", "tob", "10.40.0.2"),
    "erspan": (ends("erspan", "seq key 1 erspan_ver 1"), "a", "tob", "10.40.0.2"),
    "ipip": (ends("ipip"), "a", "tob", "10.40.0.2"),
    "sit": (ends("sit"), "a", "tob", "10.40.0.2"),
    "fou": (fou, "a", "tob", "10.40.0.2"),
    "wireguard": (lambda: device("tunnel0", "wireguard", 40, ""), "a", "tob", "10.40.0.2"),
    "dnat-any": (translate, "r", "any", "10.99.0.1"),
    "nflog": (nflog, "a", "nflog:5", "10.9.1.2"),
    "tun": (tun, "a", "tun0", "10.50.0.2"),
    "hidden": (hidden, "a", "tob", "10.9.1.2"),
}
"""How each is made; where and on which interface it is recorded; the address that is asked."""


def main() -> int:
    """Record every tunnel that this kernel has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "data" / "captures" / "tunnels")
    parser.add_argument("names", nargs="*", default=[])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or CASES:
        make, space, interface, target = CASES[name]
        try:
            pair(router=space == "r")
            make()
            record(options.out / f"{name}.pcap.gz", space, interface, target)
            print(f"{name}: {(options.out / f'{name}.pcap.gz').stat().st_size} bytes", flush=True)
        except Missing as e:
            print(f"{name}: not on this machine: {e}", flush=True)
        finally:
            for each in "abr":
                subprocess.run(["ip", "netns", "del", f"{MINE}{each}"], capture_output=True, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
