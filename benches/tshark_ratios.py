"""How fast does a capture become columns, without Spark, beside tshark -T fields?

    python benches/tshark_ratios.py [--pairs 5] [--size 50] [--quick] [--json FILE]

Both read the same generated capture, in versions that tshark 4.0 decodes (LeaderAndIsr 4, StopReplica 2,
UpdateMetadata 6), in which no request body is there twice. kproto decodes every body into Arrow columns, all fields of
them; tshark prints topic, partition, leader, leader epoch, ISR, replicas, version and controller epoch. Runs alternate,
CPU time is that of the whole process, its start included. Both must find the same partitions.

Needs tshark (Debian, Ubuntu: apt-get install --no-install-recommends tshark). Ends with 1 if the limit is missed or a
program fails. The figures go to benches/results/tshark.json; --quick reads a small capture once, and judges nothing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import Goal, finish
from measure import machine
from processes import cost_of

FIELDS = ("topic_name", "partition_id", "leader_id", "leader_epoch", "isr_id", "replica_id", "zk_version",
          "controller_epoch")  # fmt: skip


def goals() -> list[Goal]:
    """The rows."""
    rate, case = "MB / CPU-s", "no body twice"
    return [
        Goal("tshark", "capture to columns", case, rate, "kproto rate", "tshark rate", "tshark", 10, at_least=True),
        Goal("tshark", "partition states", case, "M / CPU-s", "kproto rows", "tshark rows", "tshark"),
    ]


COLUMNS = """
import sys
from kproto.tables import decode, scan
print(sum(rows.num_rows for kind, rows in decode(scan(sys.argv[1:], every_payload=True)) if kind == "state"))
"""
"""Decodes every request and response of a capture to columns; prints the number of partition states."""


def tshark(capture: str) -> list[str]:
    """Return the command that prints the fields of the requests' partitions."""
    fields = [part for field in FIELDS for part in ("-e", f"kafka.{field}")]
    requests = "tcp.dstport == 9092 && kafka"
    return ["tshark", "-n", "-r", capture, "-Y", requests, "-T", "fields", *fields]


def pair(capture: str) -> dict[str, float]:
    """One run of each; MB and million partitions a CPU second."""
    megabytes = Path(capture).stat().st_size / 1e6
    ours = cost_of([sys.executable, "-c", COLUMNS, capture])
    theirs = cost_of(tshark(capture))
    rows = int(ours.output)
    at = FIELDS.index("partition_id")
    lines = [line.split("\t") for line in theirs.output.splitlines()]
    found = sum(len(line[at].split(",")) for line in lines if line[at])
    if found != rows:
        raise ValueError(f"kproto found {rows} partitions, tshark {found}")
    return {
        "kproto rate": megabytes / ours.cpu_s,
        "tshark rate": megabytes / theirs.cpu_s,
        "kproto rows": rows / ours.cpu_s / 1e6,
        "tshark rows": rows / theirs.cpu_s / 1e6,
    }


def release() -> str:
    """Return tshark's version."""
    said = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"TShark.*?(\d+\.\d+\.\d+)", said)
    return found[1] if found else "unknown"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--size", type=int, default=200, metavar="MB", help="of the capture")
    arguments.add_argument("--quick", action="store_true", help="a small capture, one pair, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    options = arguments.parse_args()
    at_start = machine()
    version = release()
    size = 5 if options.quick else options.size
    rounds: list[dict[str, float]] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        generate = [sys.executable, "-m", "kproto", "generate", "--out", f"{directory}/capture", "--size", f"{size}M"]
        more = ["--protocol", "2.4", "--bodies", "distinct", "--zombies", "0", "--batch", "200"]
        subprocess.run([*generate, *more], check=True, capture_output=True)
        for _ in range(1 if options.quick else options.pairs):
            try:
                rounds.append(pair(f"{directory}/capture/control.pcap"))
            except (subprocess.SubprocessError, ValueError) as e:
                failures.append(str(e))
    settings = {"pairs": len(rounds), "size_mb": size, "tshark": version}
    return finish("tshark", goals(), rounds, at_start, failures, options, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
