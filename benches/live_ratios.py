"""What ``kproto top`` takes of a core while requests flow, and whether ``kproto replay`` is as fast as the controller.

    python benches/live_ratios.py [--rounds 5] [--seconds 30] [--topics 5000] [--quick] [--json FILE]

``top`` runs in a terminal of 80 columns and reads a stream of 1,000 requests a second, no two of them equal, to twenty
brokers; its share of a core is that of the seconds after its start. For the replay a controller creates topics of one
partition at a broker of another process, as fast as the broker answers, and is recorded; ``kproto replay`` sends the
recording to a new broker.

Ends with 1 if a limit is missed, a row is not measured or a program fails. The figures go to benches/results/live.json;
--quick runs every program once, briefly, judges no limit and writes no file.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from figures import Goal, Round, finish, options_of
from growing_stream import pieces
from measure import machine

from channel.network.recorder import PcapngRecorder
from channel.rehearsal.scripted_controller import ScriptedController
from kproto.capture import exchanges

if TYPE_CHECKING:
    from collections.abc import Iterator

KPROTO = [sys.executable, "-m", "kproto"]
RATE = 1000
STARTING_S = 3
_WRITES = 20
"""How often the stream is written in a second."""
_TICKS = os.sysconf("SC_CLK_TCK")


def goals() -> list[Goal]:
    """The rows."""
    return [
        Goal("live", "kproto top", f"{RATE:,} requests a second", "% of a core", "top", limit=5),
        Goal("live", "kproto replay", "", "requests / s", "replay", "controller", "its controller", 1.0, at_least=True),
    ]  # fmt: skip


# ---- top -------------------------------------------------------------------------------------------------------------


def cpu_s(pid: int) -> float:
    """The CPU time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def emptied(terminal: int) -> None:
    """Read what a program writes to its terminal, until it ends."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass


def top(seconds: int) -> float:
    """The share of a core in % that ``kproto top`` takes in these seconds after its start."""
    terminal, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen([*KPROTO, "top", "-"], stdin=subprocess.PIPE, stdout=its_end, env=environment) as process:
        os.close(its_end)
        reader = threading.Thread(target=emptied, args=(terminal,))
        reader.start()
        assert process.stdin is not None
        began, due, before = time.monotonic(), 0.0, (0.0, 0.0)
        for second, piece in enumerate(pieces(RATE * (STARTING_S + seconds))):
            if second == STARTING_S:
                before = cpu_s(process.pid), time.monotonic()
            step = -(-len(piece) // _WRITES)
            for at in range(0, len(piece), step):
                process.stdin.write(piece[at : at + step])
                process.stdin.flush()
                due += 1 / _WRITES
                time.sleep(max(0.0, began + due - time.monotonic()))
        took = cpu_s(process.pid) - before[0]
        passed = time.monotonic() - before[1]
        process.stdin.close()
        process.wait(60)
        reader.join(60)
    os.close(terminal)
    if process.returncode:
        raise subprocess.SubprocessError(f"kproto top: exit code {process.returncode}")
    return 100 * took / passed


# ---- replay ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def broker() -> Iterator[SimpleNamespace]:
    """A broker in a process of its own."""
    command = [*KPROTO, "brokers", "--count", "1", "--first-id", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            told: dict[str, Any] = json.loads(process.stdout.readline())
            yield SimpleNamespace(
                id=told["broker_id"], epoch=told["broker_epoch"], host=told["host"], port=told["port"]
            )
        finally:
            process.terminate()


def replay(topics: int, folder: Path) -> dict[str, float]:
    """Requests a second of a controller, and of the replay of its recording."""
    recording = folder / "control.pcapng"
    with (
        broker() as captured,
        PcapngRecorder(recording) as recorder,
        ScriptedController([captured], recorder=recorder) as controller,
    ):
        for number in range(topics):
            controller.create_topic(f"topic-{number}", assignment=[[1]])
        controller.wait_all(600)
    times = [each.time_ns for each in exchanges(recording)]
    with broker() as address:
        command = [*KPROTO, "replay", str(recording), "--to", f"{address.host}:{address.port}"]
        named = ["--brokers", f"{captured.id}={captured.host}:{captured.port}"]
        done = subprocess.run([*command, *named], capture_output=True, text=True, check=False)
    found = re.search(r"(\d+) requests sent in ([\d.]+) s, 0 left out as not whole; 0 answers differ", done.stdout)
    if found is None:
        raise subprocess.SubprocessError(f"kproto replay: {done.stdout[-500:]} {done.stderr[-500:]}")
    recording.unlink()
    sent, took = float(found[1]), float(found[2])
    return {"controller": len(times) / (max(times) - min(times)) * 1e9, "replay": sent / took}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=int, default=30, help="of the stream that top reads, after its start")
    arguments.add_argument("--topics", type=int, default=5000, help="that the controller creates")
    arguments.add_argument("--quick", action="store_true", help="one short round, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    options = options_of(arguments)
    if options.quick:
        options.rounds, options.seconds, options.topics = 1, 5, 1000
    at_start = machine()
    rounds: list[Round] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            try:
                rounds.append({"top": top(options.seconds), **replay(options.topics, Path(folder))})
            except (subprocess.SubprocessError, OSError) as e:
                failures.append(str(e))
    settings = {"rounds": options.rounds, "seconds": options.seconds, "topics": options.topics}
    return finish("live", goals(), rounds, at_start, failures, options, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
