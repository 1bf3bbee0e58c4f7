"""Every door of the codec by pytest-benchmark: CPU time a partition, for the newest version of each control request.

    python benches/doors.py [--rounds 3] [--quick]

A round is a run of benches/test_codec.py in a process of its own. A figure is the median of its calls' CPU time, so
that other work on the machine hardly counts. ``--quick`` calls every benchmark of the file once or twice.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import Goal, Round, finish, measured_rounds, options_of
from measure import machine

HERE = Path(__file__).parent
SHAPE = "1x10000"
LIMITS = {
    "decode": (14.0, 18.0, 2.0),
    "decode_and_read_every_field": (360.0, 480.0, 160.0),
    "encode": (8.0, 12.0, 3.0),
    "decode_to_columns": (14.0, 20.0, 3.0),
    "encode_from_columns": (9.0, 12.0, 4.0),
    "objects_from_columns": (20.0, 26.0, 5.0),
}
"""Door -> the most ns a partition of UpdateMetadata, LeaderAndIsr and StopReplica: about twice what it takes."""
BODIES = (f"updatemetadata-8-{SHAPE}", f"leaderandisr-7-{SHAPE}", f"stopreplica-4-{SHAPE}")
BUILT = {f"updatemetadata-8-{SHAPE}": 12.0, f"leaderandisr-7-{SHAPE}": 16.0, f"leaderandisr-3-{SHAPE}": 15.0}
"""Encoding rows that were built, with one to five replicas each."""


def goals() -> list[Goal]:
    """The rows."""
    doors = [(door, body, limit) for door, limits in LIMITS.items() for body, limit in zip(BODIES, limits, strict=True)]
    doors += [("encode_rows_that_were_built", body, limit) for body, limit in BUILT.items()]
    return [
        Goal("doors", door.replace("_", " "), body, "ns a partition", f"{door} {body}", limit=limit)
        for door, body, limit in doors
    ]


def figures(result: dict[str, list[dict[str, dict[str, float | str]]]]) -> Round:
    """Door and body -> ns a partition, of what pytest-benchmark wrote; the extension's alone."""
    found = {}
    for each in result["benchmarks"]:
        facts = each["extra_info"]
        if facts["codec"] == "cython":
            name = str(each["name"]).partition("[")[0].removeprefix("test_")
            ns = float(each["stats"]["median"]) * 1e9
            found[f"{name} {facts['body']}"] = ns / float(facts["partitions"])
    return found


def measured(*, quick: bool) -> Round:
    """A run of the file; its own table is printed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "doors.json")
        brief = ["--benchmark-min-rounds=1", "--benchmark-max-time=0.01"]
        only = ["--benchmark-max-time=0.3", "-k", f"{SHAPE} and not construct and not one_more_broker"]
        command = [
            *(sys.executable, "-m", "pytest", str(HERE / "test_codec.py"), "-q", "-o", "addopts=", "--benchmark-only"),
            *("--benchmark-timer=time.process_time", "--benchmark-columns=median,ops", f"--benchmark-json={out}"),
            *(brief if quick else only),
        ]
        subprocess.run(command, cwd=HERE.parent, check=True, timeout=900)
        return figures(json.loads(out.read_text(encoding="utf-8")))


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--quick", action="store_true", help="one round, every benchmark briefly, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    options = options_of(arguments)
    at_start = machine()
    rounds, failures = measured_rounds(1 if options.quick else options.rounds, lambda: measured(quick=options.quick))
    return finish("doors", goals(), rounds, at_start, failures, options)


if __name__ == "__main__":
    sys.exit(main())
