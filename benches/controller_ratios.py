"""kproto's controller beside Kafka's own: the failover of a broker, and the start of a controller.

    python benches/controller_ratios.py [--pairs 3] [--quick] [--json FILE]

Both lead the same fleet of simulated brokers (``kproto brokers --zookeeper``, in a process of its own) from the same
ZooKeeper, with topics that were written before: `kproto controller` in the one run, a real broker of Kafka 3.9.1 in the
other. A pair is a new process of each, in turn; Kafka's has the options and the heap of Kafka's own scripts, and both
log a line for each request.

Failover: brokers end one after the other: a broker's port is closed and its id znode deleted; from there until the last
answer to a LeaderAndIsr. A JVM gets faster with each, so the first failover and the median of the last ones are rows of
their own. Start: from the creation of /controller until the last answer to an UpdateMetadata, with all partitions known
to every broker. Times are taken at the brokers, CPU is that of the controller's process until all requests are
answered, memory its largest resident set.

Ends with 1 if a limit is missed, a row is not measured or a program fails. The figures and every round go to
benches/results/controller.json; --quick runs a small pair, judges no limit and writes no file.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller_fleet import fleet_process
from controller_processes import HEAP, Shape, check_failover, controller, write_topics, zookeeper
from figures import Goal, finish, settled
from measure import machine

from channel.errors import ChannelError
from channel.zookeeper.session import ZooKeeperSession

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAMS = ("kproto", "kafka")
FAILOVER, START = Shape(100, 100, range(100, 150)), Shape(1_000, 100, range(100, 110))
FAILURES = 6
APART = 5
"""Every fifth broker fails, so that no partition loses two replicas."""


def failover(program: str, shape: Shape, failures: int, address: str, folder: Path) -> dict[str, Any]:
    """One controller's failovers of one broker after the other."""
    rounds = []
    write_topics(address, shape)
    with (
        ZooKeeperSession(address) as session,
        fleet_process(address, shape.brokers) as fleet,
        controller(program, address, folder) as process,
    ):
        process.await_election(session)
        fleet.ask(f"know {shape.total}")
        for broker in shape.brokers[: failures * APART : APART]:
            before = process.cpu_s
            answered = fleet.ask(f"fail {broker}")
            rounds.append(
                {
                    "seconds": answered["last"]["LeaderAndIsr"] - answered["began"],
                    "cpu_s": process.cpu_s - before,
                    "requests": answered["requests"],
                    "bytes": answered["bytes"],
                }
            )
            check_failover(session, shape, broker)
        peak = process.peak_mib
    return {
        "seconds": settled([found["seconds"] for found in rounds]),
        "cpu_s": settled([found["cpu_s"] for found in rounds]),
        "first_seconds": rounds[0]["seconds"],
        "first_cpu_s": rounds[0]["cpu_s"],
        "peak_mib": peak,
        "rounds": rounds,
    }


def start(program: str, shape: Shape, address: str, folder: Path) -> dict[str, Any]:
    """The start of one controller over topics that exist."""
    with (
        ZooKeeperSession(address) as session,
        fleet_process(address, shape.brokers) as fleet,
        controller(program, address, folder) as process,
    ):
        process.await_election(session)
        answered = fleet.ask(f"know {shape.total}")
        return {
            "seconds": answered["last"]["UpdateMetadata"] - process.elected,
            "cpu_s": process.cpu_s - process.cpu_at_election,
            "peak_mib": process.peak_mib,
            "requests": answered["requests"],
            "bytes": answered["bytes"],
        }


def goals(failover_shape: Shape = FAILOVER, start_shape: Shape = START) -> list[Goal]:
    """The rows."""
    shapes = {"failover": failover_shape, "start": start_shape}
    rows: Sequence[tuple[str, str, str, str, float | None]] = [
        ("failover", "failover of a broker", "s", "seconds", 0.5),
        ("failover", "CPU of a failover", "s", "cpu_s", None),
        ("failover", "the first failover of the process", "s", "first_seconds", 0.5),
        ("failover", "CPU of the first failover", "s", "first_cpu_s", None),
        ("failover", "peak memory", "MiB", "peak_mib", 0.1),
        ("start", "start of a controller", "s", "seconds", 1.0),
        ("start", "CPU of the start", "s", "cpu_s", None),
        ("start", "peak memory", "MiB", "peak_mib", None),
    ]
    return [
        Goal(
            "controller", what, f"{len(shapes[load].brokers)} brokers, {shapes[load].total:,} partitions", unit,
            f"kproto {load} {field}", f"kafka {load} {field}", "Kafka", limit,
        )
        for load, what, unit, field, limit in rows
    ]  # fmt: skip


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=3)
    arguments.add_argument("--quick", action="store_true", help="one small pair, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    arguments.add_argument("--only", choices=("failover", "start"), help="one of the two, for work on it")
    arguments.add_argument("--program", choices=PROGRAMS, help="one of the two, for work on it")
    options = arguments.parse_args()
    shapes, failures = (FAILOVER, START), FAILURES
    if options.quick:
        shapes, failures = (Shape(20, 20, range(100, 110)), Shape(50, 100, range(100, 104))), 2
    at_start, failed = machine("java"), list[str]()
    rounds, runs = list[dict[str, float]](), list[dict[str, Any]]()
    pairs = 1 if options.quick else options.pairs
    loads = ("failover", "start") if options.only is None else (options.only,)
    programs = PROGRAMS if options.program is None else (options.program,)
    with tempfile.TemporaryDirectory() as scratch, zookeeper(Path(scratch) / "zookeeper") as address:
        if "start" in loads:
            write_topics(f"{address}/start", shapes[1])
        for number in range(1, pairs + 1):
            found: dict[str, float] = {}
            rounds.append(found)
            for load, program in itertools.product(loads, programs):
                name, folder = f"{load}, {program}, pair {number}", Path(scratch) / f"{load}-{program}-{number}"
                print(f"{name} of {pairs}", file=sys.stderr, flush=True)
                try:
                    if load == "failover":
                        run = failover(program, shapes[0], failures, f"{address}/{folder.name}", folder)
                    else:
                        run = start(program, shapes[1], f"{address}/start", folder)
                except (OSError, ChannelError, AssertionError, subprocess.SubprocessError) as e:
                    failed.append(f"{name}: {e}")
                    continue
                runs.append({"program": program, "load": load, "pair": number, **run})
                found |= {f"{program} {load} {key}": value for key, value in run.items() if isinstance(value, float)}
    settings = {"pairs": pairs, "heap": HEAP}
    return finish("controller", goals(*shapes), rounds, at_start, failed, options, settings=settings, runs=runs)


if __name__ == "__main__":
    sys.exit(main())
