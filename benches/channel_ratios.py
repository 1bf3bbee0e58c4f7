"""The channel beside Kafka's own classes, against the same brokers of C, in paired rounds: ratios, spread and limits.

    python benches/channel_ratios.py [--pairs 3] [--quick] [--json FILE] [--without-kafka]

Kafka's classes, the sink that plays the brokers and the floor are built from benches/peers/channel into a cache
directory, Kafka by Maven's ordinary client. Programs run in turn (kproto, Kafka, kproto, Kafka, ...), each in a process
of its own with several rounds, of which the second half counts: a JVM gets faster for about five. A row shows medians
over the pairs; a ratio is of one pair.

Ends with 1 if a limit is missed, a row is not measured or a program fails. The figures and every round go to
benches/results/channel.json; --quick runs every program once, briefly, judges no limit and writes no file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from channel_goals import WORKLOADS, Workload, goals
from channel_runs import Row, RunFailed, build, figures, run
from figures import finish, options_of
from measure import machine


def pair(number: int, *, quick: bool, kafka: bool, failures: list[str]) -> list[Row]:
    """Every program of every workload once."""
    found: list[Row] = []
    total = 2_000 if quick else 20_000
    for load in map(shortened, WORKLOADS) if quick else WORKLOADS:
        sent: dict[str, int] = {}
        for program in load.programs:
            if program == "kafka" and not kafka:
                continue
            name = f"{load.what} to {load.brokers} brokers, {program}, pair {number}"
            print(name, file=sys.stderr, flush=True)
            try:
                rows = run(program, load, total)
            except (RunFailed, subprocess.CalledProcessError) as e:
                failures.append(f"{name}: {e}")
                continue
            found += [row | {"pair": number} for row in rows]
            sent[program] = rows[-1]["bytes"]
        if load.what != "memory" and len({sent[p] for p in ("kproto", "kafka") if p in sent}) > 1:
            failures.append(f"{load.what} to {load.brokers} brokers, pair {number}: bytes differ, {sent}")
    return found


def shortened(load: Workload) -> Workload:
    """The same in seconds."""
    return replace(load, topics=max(100, load.topics // 10), rounds=1)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=3)
    arguments.add_argument("--quick", action="store_true", help="one short pair, no limits")
    arguments.add_argument("--without-kafka", action="store_true")
    arguments.add_argument("--json", type=Path, help="the result file")
    options = options_of(arguments)
    kafka, count = not options.without_kafka, 1 if options.quick else options.pairs
    at_start, failures = machine("java"), list[str]()
    build(kafka=kafka)
    pairs = [pair(number, quick=options.quick, kafka=kafka, failures=failures) for number in range(1, count + 1)]
    rounds = [figures(rows) for rows in pairs]
    wanted = [goal for goal in goals() if kafka or not (goal.theirs or "").startswith("kafka ")]
    settings = {"pairs": count, "without_kafka": options.without_kafka}
    runs = [row for rows in pairs for row in rows]
    return finish(
        "channel",
        wanted,
        rounds,
        at_start,
        failures,
        options,
        settings=settings,
        runs=runs,
    )


if __name__ == "__main__":
    sys.exit(main())
