"""What a tap costs beside a bare relay: throughput of large frames, and the time that a small request takes longer.

    python benches/tap_ratios.py [--pairs 7] [--quick] [--json FILE]

Tap and bare relay run at the same time, each in a process of its own, before the same server; blocks of traffic
alternate between them. Both are one thread with epoll that reads up to 256 KiB at a time, hands it on, and waits where
the other side does not take it. The bare relay does nothing else; the tap records both directions as pcapng with a
CRC-32C for each packet, in a file. A pair is a new process of each. Throughput is that of the quickest block; small
requests follow each other, and median and 99th percentile are the least of all blocks, so that other programs of the
machine do not count. Rows show medians over the pairs.

Ends with 1 if a limit is missed, a row is not measured or a program fails. The figures and every round go to
benches/results/tap.json; --quick runs every program once, briefly, judges no limit and writes no file.
"""

from __future__ import annotations

import argparse
import contextlib
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from figures import Goal, finish, options_of
from measure import machine
from plain_sockets import LOOPBACK, at_once, received_into

from channel.network.recorder import PcapngRecorder
from channel.tap import Tap, TapMapping

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 262_144
LARGE, SMALL = 8 << 20, 300
"""Bytes of a frame."""
ANSWER = (16).to_bytes(4, "big") + bytes(16)


# ---- relays ----------------------------------------------------------------------------------------------------------


class BareRelay:
    """One connection at a time, from its accept to both ends; one thread, as the tap."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._listening = socket.create_server(LOOPBACK)
        self.port = self._listening.getsockname()[1]
        self._buffer = memoryview(bytearray(CHUNK))

    def run(self) -> None:
        while True:
            near, _ = self._listening.accept()
            far = socket.create_connection(self._upstream)
            for sock in (near, far):
                at_once(sock).setblocking(False)
            self._relay(near, far)

    def _relay(self, near: socket.socket, far: socket.socket) -> None:
        ends = {near.fileno(): (near, far), far.fileno(): (far, near)}
        with contextlib.closing(select.epoll()) as epoll, near, far:
            for fd in ends:
                epoll.register(fd, select.EPOLLIN)
            while True:
                for fd, _ in epoll.poll():
                    source, target = ends[fd]
                    count = source.recv_into(self._buffer)
                    if not count:
                        return
                    rest = self._buffer[:count]
                    while rest:
                        try:
                            rest = rest[target.send(rest) :]
                        except BlockingIOError:
                            select.select([], [target], [])


def serve_relay(program: str, port: int, recording: Path) -> None:
    """Relay to the port until standard input ends; the listening port is printed."""
    if program == "bare":
        relay = BareRelay(("127.0.0.1", port))
        threading.Thread(target=relay.run, daemon=True).start()
        print(relay.port, flush=True)
        sys.stdin.read()
        return
    with (
        PcapngRecorder(recording) as recorder,
        Tap([TapMapping(LOOPBACK, ("127.0.0.1", port))], recorder) as tap,
    ):
        print(tap.listening[0][1], flush=True)
        sys.stdin.read()
    if recorder.error is not None:
        sys.exit(f"the recording is incomplete: {recorder.error}")


@contextlib.contextmanager
def relay(program: str, port: int, folder: Path) -> Iterator[int]:
    """The port of a relay in a process of its own."""
    recording = folder / "tap.pcapng"
    command = [sys.executable, __file__, "--relay", program, str(port), str(recording)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()
    recording.unlink(missing_ok=True)
    if process.returncode:
        raise OSError(f"{program} ended with {process.returncode}")


# ---- traffic ---------------------------------------------------------------------------------------------------------


def serve(listening: socket.socket) -> None:
    """Answer each frame with a frame of twenty bytes."""
    while True:
        sock, _ = listening.accept()
        threading.Thread(target=answer, args=(sock,), daemon=True).start()


def answer(sock: socket.socket) -> None:
    at_once(sock)
    buffer = memoryview(bytearray(1 << 20))
    with sock:
        while received_into(sock, buffer[:4]):
            left = int.from_bytes(buffer[:4], "big")
            while left:
                left -= sock.recv_into(buffer[: min(left, len(buffer))])
            sock.sendall(ANSWER)


def exchanges(sock: socket.socket, size: int, count: int) -> list[float]:
    """Frames one after the other, each answered before the next; the seconds that each took."""
    frame = size.to_bytes(4, "big") + bytes(size)
    into = memoryview(bytearray(20))
    found = []
    for _ in range(count):
        began = time.perf_counter()
        sock.sendall(frame)
        assert received_into(sock, into)
        found.append(time.perf_counter() - began)
    return found


def once(port: int, folder: Path, *, quick: bool) -> dict[str, float]:
    """What the best blocks of one pair give: GB/s of large frames, median and 99th percentile of small ones in µs."""
    blocks, large, small = (1, 4, 100) if quick else (12, 8, 500)
    seconds: dict[str, list[list[float]]] = {"tap": [], "bare": []}
    speeds: dict[str, list[float]] = {"tap": [], "bare": []}
    with contextlib.ExitStack() as stack:
        socks = {}
        for name in seconds:
            near = stack.enter_context(relay(name, port, folder))
            socks[name] = at_once(stack.enter_context(socket.create_connection(("127.0.0.1", near))))
            exchanges(socks[name], LARGE, 2)
        for _ in range(blocks):
            for name, sock in socks.items():
                seconds[name].append(sorted(exchanges(sock, SMALL, small)))
        for _ in range(blocks):
            for name, sock in socks.items():
                speeds[name].append(LARGE * large / sum(exchanges(sock, LARGE, large)) / 1e9)
        for sock in socks.values():
            sock.close()
    figures: dict[str, float] = {}
    for name, found in seconds.items():
        figures[f"{name} p99_us"] = min(block[small * 99 // 100] for block in found) * 1e6
        figures[f"{name} median_us"] = min(map(statistics.median, found)) * 1e6
        figures[f"{name} gb_s"] = max(speeds[name])
    figures["added p99_us"] = figures["tap p99_us"] - figures["bare p99_us"]
    figures["added median_us"] = figures["tap median_us"] - figures["bare median_us"]
    return figures


def goals() -> list[Goal]:
    """The rows."""
    large, small = f"frames of {LARGE >> 20} MiB", f"requests of {SMALL} bytes"
    return [
        Goal("tap", "throughput", large, "GB/s", "tap gb_s", "bare gb_s", "bare relay", 0.5, at_least=True),
        Goal("tap", "p99 of a request", small, "us", "tap p99_us", "bare p99_us", "bare relay"),
        Goal("tap", "p99 less the bare relay's", small, "us", "added p99_us", limit=200),
        Goal("tap", "median of a request", small, "us", "tap median_us", "bare median_us", "bare relay"),
        Goal("tap", "median less the bare relay's", small, "us", "added median_us"),
    ]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=7)
    arguments.add_argument("--quick", action="store_true", help="one short pair, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    arguments.add_argument("--relay", nargs=3, help=argparse.SUPPRESS)
    options = options_of(arguments)
    if options.relay:
        program, port, recording = options.relay
        serve_relay(program, int(port), Path(recording))
        return 0
    at_start, failures, rounds = machine(), list[str](), list[dict[str, float]]()
    pairs = 1 if options.quick else options.pairs
    with tempfile.TemporaryDirectory() as folder, socket.create_server(LOOPBACK) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        for number in range(1, pairs + 1):
            print(f"pair {number} of {pairs}", file=sys.stderr, flush=True)
            try:
                rounds.append(once(listening.getsockname()[1], Path(folder), quick=options.quick))
            except (OSError, AssertionError) as e:
                failures.append(f"pair {number}: {e}")
                rounds.append({})
    return finish("tap", goals(), rounds, at_start, failures, options, settings={"pairs": pairs})


if __name__ == "__main__":
    sys.exit(main())
