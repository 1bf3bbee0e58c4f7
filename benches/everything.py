"""Every figure of docs/figures.md by one command: each program with its defaults, one after the other.

    python benches/everything.py                   all of them, then the tables of docs/figures.md
    python benches/everything.py ratios pipeline   some of them
    python benches/everything.py --quick           every program once, briefly; judges nothing, writes nothing

Each program keeps its result as it ends, in benches/results. One that fails, or that takes several times as long as it
should, ends alone: the others are run, and the command ends with 1. What each took is printed at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = {
    "doors": 600.0,
    "secured_ratios": 600.0,
    "tap_ratios": 600.0,
    "channel_thousand": 600.0,
    "live_ratios": 1200.0,
    "tshark_ratios": 1200.0,
    "ratios": 1800.0,
    "channel_ratios": 1800.0,
    "metadata_log": 1200.0,
    "doctor_ratios": 1800.0,
    "month": 1800.0,
    "small_recordings": 1800.0,
    "controller_ratios": 3600.0,
    "pipeline": 3600.0,
}
"""The programs in their order, and how long each may take, in s: several times what it takes."""


def run(command: list[str], longest_s: float) -> str:
    """Run a program to its end; gives "" or what went wrong."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        status = process.wait(longest_s)
    except BaseException as e:  # an interrupt, too, ends the program and all that it has started
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(e, subprocess.TimeoutExpired):
            return f"did not end within {longest_s:g} s"
        raise
    return "a limit is missed or something failed: see its output" if status else ""


def main() -> int:
    """Run the programs; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="program", help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--quick", action="store_true", help="every program once, briefly")
    options = parser.parse_args()
    if unknown := set(options.programs) - set(PROGRAMS):
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    quick = ["--quick"] if options.quick else []
    said = []
    for name in options.programs or PROGRAMS:
        command = [sys.executable, str(HERE / f"{name}.py"), *quick]
        print(f"== benches/{name}.py {' '.join(quick)}", flush=True)
        began = time.monotonic()
        wrong = run(command, PROGRAMS[name])
        said.append((name, time.monotonic() - began, wrong))
    if not options.quick:
        wrong = run([sys.executable, str(HERE / "figures_page.py"), "--write"], 60.0)
        said.append(("figures_page", 0.0, wrong))
    for name, seconds, wrong in said:
        print(f"{name:20}{seconds:7.0f} s  {wrong or 'ok'}")
    print(f"{'in all':20}{sum(seconds for _, seconds, _ in said):7.0f} s")
    return 1 if any(wrong for _, _, wrong in said) else 0


if __name__ == "__main__":
    sys.exit(main())
