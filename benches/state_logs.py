"""How fast are state-change logs read, at TRACE and at INFO, and in how much memory?

    python benches/state_logs.py [--mb 40] [--rounds 3]

The logs are those of a real run of Kafka 3.9.1 in tests/data/state_logs, one broker's after the other, again on each
day of a calendar until they have that many MB; at INFO the lines at INFO and above. A process of its own reads each
file to exchanges. The CPU time is that of reading, without imports; the memory is the process's peak beside that of an
empty log.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
from datetime import date, timedelta
from pathlib import Path

from measure import machine

DATA = Path(__file__).parent.parent / "tests" / "data" / "state_logs" / "ibp-3.9-a.tar.xz"

_PROGRAM = """
import json, re, sys, time
from kproto.capture import exchanges
began = time.process_time()
count = sum(1 for _ in exchanges(sys.argv[1]))
taken = time.process_time() - began
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())  # getrusage's begins with the parent's size
print(json.dumps([count, taken, int(peak[1]) / 1024]))
"""


def logs() -> dict[str, bytes]:
    """The state-change logs of all brokers by level."""
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(DATA.read_bytes()))) as tar:
        found = [tar.extractfile(member) for member in tar if member.name.endswith("state-change.log")]
    whole = b"".join(file.read() for file in found if file is not None)
    lines = whole.splitlines(keepends=True)
    return {
        "TRACE": whole,
        "INFO": b"".join(line for line in lines if b"] TRACE" not in line and b"] DEBUG" not in line),
    }


def read(path: Path) -> tuple[int, float, float]:
    """Exchanges, CPU-s and peak memory in MiB of a process that reads a log."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(path)], capture_output=True, text=True, check=True)
    count, taken, peak = json.loads(done.stdout)
    return count, taken, peak


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=40.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        nothing = Path(folder) / "state-change.log"
        nothing.write_text("[2024-01-01 00:00:00,000] INFO [Controller id=1] nothing (state.change.logger)\n")
        _count, _taken, least = read(nothing)
        for level, data in logs().items():
            path = Path(folder) / f"{level}.log"
            times = max(round(options.mb * 1e6 / len(data)), 1)
            days = (date(2026, 1, 1) + timedelta(days=n) for n in range(times))
            path.write_bytes(b"".join(re.sub(rb"(?m)^\[\d{4}-\d\d-\d\d", b"[%b" % f"{d}".encode(), data) for d in days))
            rounds = [read(path) for _ in range(options.rounds)]
            speeds = [len(data) * times / 1e6 / taken for _count, taken, _peak in rounds]
            peak = max(peak for _count, _taken, peak in rounds) - least
            print(
                f"{level}: {statistics.median(speeds):.1f} MB a CPU-second ({min(speeds):.1f} to {max(speeds):.1f}), "
                f"{rounds[0][0]:,} requests in {len(data) * times / 1e6:.1f} MB, {peak:.0f} MiB beside an empty log"
            )
    print(json.dumps(machine()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
