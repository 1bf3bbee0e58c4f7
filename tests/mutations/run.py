"""Breaks the program in many small ways, one after the other, and sees the tests go red: ``make mutations``.

Mutants are drawn by operator and seed over ``channel/`` and ``kproto/`` (operators.py, draw.py). Each is applied to a
private copy of the tree (trial.py), where the tests that run its line (covering.py) are run, quickest first, until one
fails, and then those of the folder that mirrors its own. The breakages of known.toml come with them. The run fails when
fewer than nine in ten drawn mutants are killed, when a known breakage survives, or when a list has gone stale
(lists.py).

``--replay 24`` measures nothing, and is for every change: it breaks 24 of the places again that the last whole campaign
broke, and all of known.toml, and expects the tests that went red then to go red now.

Python modules that are compiled too are broken, and run, as the Python that they are. Cython and C sources are
out of reach of operators that work on Python's syntax tree: the codec is held by the tests that compare it with the
reference, byte by byte and error by error, by sanitizers and by fuzzing. Code that runs in Spark's own processes is
left out too (draw.py).

No library does this for us. mutmut (3.8) draws nothing by seed, mutates only the bodies of functions and chooses tests
by function; cosmic-ray (8.7) runs one command for every mutant and writes mutants into the checkout itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[2] / "benches"))

from mutations.campaign import Trial, attempts
from mutations.covering import KEPT, measure, test_of
from mutations.draw import PACKAGES, ROOT, all_mutants, draw
from mutations.kills import Kills
from mutations.lists import Breakage, equivalents, known_breakages
from mutations.operators import Mutant
from mutations.report import report
from mutations.trial import Outcome, Tree
from real_brokers import zookeeper_alone

SEED = 391  # Kafka 3.9.1
COUNT = 200
BUDGET = 40.0
"""Seconds of tests in one run for a mutant; the slowest are left out beyond it."""
HERE = Path(__file__).parent
COMMITTED = HERE / "killed.json"


def parsed() -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT, help="how many mutants to draw (default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=PACKAGES, metavar="PATH", help="files or folders to draw from")
    parser.add_argument("--replay", type=int, metavar="N", help="try N places of the last whole campaign again instead")
    parser.add_argument("--no-known", action="store_true", help="leave known.toml out")
    parser.add_argument("--known", metavar="WORD", help="only the known breakages whose name or row has this word")
    parser.add_argument("--resume", action="store_true", help="take over the kills of the last run that still hold")
    parser.add_argument("--commit", action="store_true", help="write result.md and killed.json")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trials at a time (default: %(default)s)")
    return parser.parse_args()


def replayed(mutants: list[Mutant], count: int, kills: Kills) -> dict[Mutant, str]:
    """The first mutants of those killed by a test that can be named, each with that test.

    Raises:
        LookupError: Too few of the places are still as they were.
    """
    found = {mutant: test for mutant in mutants if (test := kills.of(mutant)) and (ROOT / test_of(test)).is_file()}
    if len(found) < count:
        raise LookupError(f"killed.json: {len(found)} places still stand, not {count}; run make mutations once more")
    return dict(list(found.items())[:count])


def main() -> int:
    """Run the campaign; the exit status is 1 if something is wrong."""
    args = parsed()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would hand on a deaf ear
    everything = all_mutants()
    drawn = draw([m for m in everything if m.path.startswith(tuple(args.only))], args.count, args.seed)
    last, committed = Kills(KEPT / "kills.json", ROOT), Kills(COMMITTED, ROOT)
    outcomes: dict[Mutant, Outcome] = {}
    try:
        reasons, breakages = equivalents(everything), [] if args.no_known else known_breakages()
        if args.known is not None:
            drawn, breakages = [], [b for b in breakages if args.known in b.name or args.known in b.rows]
        killers = replayed(drawn, args.replay, committed) if args.replay else {}
    except LookupError as error:
        print(error, file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="kproto-mutations-") as folder,
        zookeeper_alone(Path(folder, "zk")) as address,
    ):
        os.environ["KPROTO_ZOOKEEPER"] = address  # one server for all trials: each of its tests has a root of its own
        tree = Tree.of(ROOT, Path(folder))
        if args.replay or not drawn:
            names = [*killers.values(), *(name for b in breakages for run in b.runs for name in run)]
            seconds = tree.prepare(sorted(set(names)))
            trials = [Trial(mutant, [[test]], seconds) for mutant, test in killers.items()]
        else:
            trials = []
            covering = measure(jobs=args.jobs)
            tree.run(covering.samples(), PYTHONDONTWRITEBYTECODE="")  # compiles them; those that fail were left out
            seconds = covering.seconds
            for mutant in drawn:
                if args.resume and (test := last.of(mutant, unchanged=True)):
                    outcomes[mutant] = Outcome("killed", test)
                else:
                    runs = covering.stages(mutant, BUDGET)
                    if (killer := committed.of(mutant)) in covering.seconds:
                        runs.insert(0, [killer])  # most often the same test goes red again
                    times = {test: covering.seconds[test] for tests in runs for test in tests}
                    trials.append(Trial(mutant, runs, times))
        of_change = {b.change: b for b in breakages}
        trials += [Trial(b.change, b.runs, seconds, each=True) for b in breakages]
        tried: dict[Breakage, Outcome] = {}
        for number, (mutant, outcome) in enumerate(attempts(tree, Path(folder), args.jobs, trials), 1):
            if mutant in of_change:
                tried[of_change[mutant]] = outcome
            else:
                outcomes[mutant] = outcome
                if outcome.verdict == "killed" and outcome.red:
                    last.add(mutant, outcome.red)
                    last.write()
            name = of_change[mutant].name if mutant in of_change else mutant
            print(f"{number}/{len(trials)} {outcome.verdict} {outcome.seconds:.0f} s {name} {outcome.red}", flush=True)
    lines, wrong = report(outcomes, reasons, tried)
    print("", *lines, sep="\n")
    if args.commit:
        head = ["# The last whole run of `make mutations`", "", f"Drawn with seed {args.seed}:", ""]
        (HERE / "result.md").write_text("\n".join([*head, *lines, ""]), encoding="utf-8")
        last.commit([m for m in drawn if outcomes[m].verdict == "killed" and outcomes[m].red], COMMITTED)
    print(*wrong, sep="\n", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
