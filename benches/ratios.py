"""The codec beside its peers on the same bytes, in paired rounds: ratios with their spread, and limits for them.

    python benches/ratios.py [--rounds 5] [--seconds 0.1] [--quick] [--without go,kio] [--only PATTERN] [--json FILE]

Peers: Kafka's own classes (tools/oracle, built by Maven), franz-go's kmsg and kio 0.6.2. In a round each program runs
once, in a process of its own, and gives the least CPU time of its calling thread for a call: the collectors of Java
and Go run in other threads and are not in it, Python's is. A row shows medians over the rounds; each ratio is made of
one round.

Ends with 1 if a limit is missed, a row is not measured or a program fails. The figures go to
benches/results/codec.json; --quick runs every program once, briefly, judges no limit and writes no file. --only
measures the bodies whose names match a regular expression ("updatemetadata-5", "1x10000$") and writes no file either.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from codec_bodies import write
from codec_goals import goals
from codec_peers import PEERS
from figures import Round, finish, options_of
from measure import machine


def rounds_of(count: int, seconds: float, programs: list[str], only: str, failures: list[str]) -> list[Round]:
    """Run every program in turn, ``count`` times; ``failures`` gets those that fail, which have no figures then."""
    found: list[Round] = []
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch), only)
        for number in range(1, count + 1):
            figures: dict[str, float] = {}
            for program in programs:
                print(f"round {number} of {count}: {program}", file=sys.stderr, flush=True)
                try:
                    figures |= PEERS[program](Path(scratch), seconds)
                except (OSError, subprocess.CalledProcessError) as e:
                    failures.append(f"{program} in round {number}: {e}")
            found.append(figures)
    return found


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=0.1, help="for each operation on each body")
    arguments.add_argument("--quick", action="store_true", help="one short round, no limits")
    arguments.add_argument("--without", default="", help="programs to leave out, of java,go,kio; their rows too")
    arguments.add_argument("--only", metavar="PATTERN", default="", help="measure the bodies whose names match")
    arguments.add_argument("--json", type=Path, help="the result file")
    options = options_of(arguments)
    left_out = set(options.without.split(",")) - {""}
    if unknown := left_out - (PEERS.keys() - {"kproto"}):
        arguments.error(f"--without {','.join(sorted(unknown))}: there are java, go and kio")
    programs = [program for program in PEERS if program not in left_out]
    at_start, failures = machine("java", "go"), list[str]()
    rounds, seconds = (1, 0.01) if options.quick else (options.rounds, options.seconds)
    found = rounds_of(rounds, seconds, programs, options.only, failures)
    wanted = [goal for goal in goals() if (goal.theirs or "kproto").split()[0] in programs]
    if options.only:
        wanted = [goal for goal in wanted if re.search(options.only, goal.case)]
    settings = {"rounds": rounds, "seconds": seconds, "without": sorted(left_out)}
    return finish(
        "codec",
        wanted,
        found,
        at_start,
        failures,
        options,
        keep=not options.only,
        settings=settings,
    )


if __name__ == "__main__":
    sys.exit(main())
