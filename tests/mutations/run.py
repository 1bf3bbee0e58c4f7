"""Breaks the program in many small ways, one after the other, and sees the tests go red: ``make mutations``.

Mutants are drawn by operator and by a fresh seed, which is printed, over ``channel/`` and ``kproto/`` (operators.py,
draw.py): half of them from the files that have changed since a commit, the others from all. Each is applied to a
private copy of the tree (trial.py), where the tests that run its line (covering.py) are run, quickest first, until one
fails, and then those of the folder that mirrors its own. The run fails when fewer than 85 in 100 drawn mutants are
killed, when a breakage of known.toml survives, or when a list has gone stale (lists.py). ``--known`` tries the known
breakages alone, in a minute or two.

Python modules that are compiled too are broken, and run, as the Python that they are. Cython and C sources are
out of reach of operators that work on Python's syntax tree: the codec is held by the tests that compare it with the
reference, byte by byte and error by error, by sanitizers and by fuzzing.

No library does this for us. mutmut (3.8) draws nothing by seed, mutates only the bodies of functions and chooses tests
by function; cosmic-ray (8.7) runs one command for every mutant and writes mutants into the checkout itself.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[2] / "benches"))

from mutations.campaign import Trial, attempts
from mutations.covering import measure
from mutations.draw import PACKAGES, ROOT, all_mutants, draw
from mutations.lists import Breakage, equivalents, known_breakages
from mutations.operators import Mutant
from mutations.report import report
from mutations.trial import Outcome, Tree
from real_brokers import zookeeper_alone

COUNT = 200
BUDGET = 40.0
"""Seconds of tests in one run for a mutant; the slowest are left out beyond it."""


def parsed() -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=int(time.time()), help="draw those of an earlier run again")
    parser.add_argument("--count", type=int, default=COUNT, help="how many mutants to draw (default: %(default)s)")
    parser.add_argument("--since", default="HEAD~30", metavar="COMMIT", help="half are of files changed since it")
    parser.add_argument("--only", nargs="+", default=PACKAGES, metavar="PATH", help="files or folders to draw from")
    parser.add_argument(
        "--known", nargs="?", const="", metavar="WORD", help="known breakages alone, those with this word"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trials at a time (default: %(default)s)")
    return parser.parse_args()


def chosen(everything: list[Mutant], args: argparse.Namespace) -> list[Mutant]:
    """The drawn mutants: half of the files changed since the commit, the others of all files."""
    if args.known is not None:
        return []
    git = ["git", "diff", "--name-only", "--diff-filter=d", args.since, "--", *PACKAGES]
    told = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    changed = set(told.split())
    allowed = [m for m in everything if m.path.startswith(tuple(args.only))]
    new = draw([m for m in allowed if m.path in changed], args.count // 2, args.seed)
    taken = set(new)
    return new + draw([m for m in allowed if m not in taken], args.count - len(new), args.seed)


def main() -> int:
    """Run the campaign; the exit status is 1 if something is wrong."""
    args = parsed()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would hand on a deaf ear
    everything = all_mutants()
    drawn = chosen(everything, args)
    print(f"mutations: seed {args.seed}; repeat with --seed {args.seed}", flush=True)
    try:
        reasons = equivalents(everything)
        known = [b for b in known_breakages(everything) if not args.known or args.known in (b.name, *b.rows)]
    except LookupError as error:
        print(error, file=sys.stderr)
        return 1
    if args.known and not known:
        print(f"no known breakage is named {args.known!r}, or has such a row: see known.toml", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="kproto-mutations-") as folder,
        zookeeper_alone(Path(folder, "zk")) as address,
    ):
        os.environ["KPROTO_ZOOKEEPER"] = address  # one server for all trials: each of its tests has a root of its own
        tree = Tree.of(ROOT, Path(folder))
        names = sorted({name for b in known for run in b.runs for name in run})
        trials = []
        if drawn:
            covering = measure(jobs=args.jobs)
            tree.run(covering.samples(), PYTHONDONTWRITEBYTECODE="")  # compiles them; those that fail were left out
            for mutant in drawn:
                runs = covering.stages(mutant, BUDGET)
                trials.append(Trial(mutant, runs, {test: covering.seconds[test] for run in runs for test in run}))
        seconds = tree.prepare(names)
        trials += [Trial(b.change, b.runs, seconds, each=True) for b in known]
        of_change = {b.change: b for b in known}
        outcomes: dict[Mutant, Outcome] = {}
        tried: dict[Breakage, Outcome] = {}
        for number, (mutant, outcome) in enumerate(attempts(tree, Path(folder), args.jobs, trials), 1):
            if mutant in of_change:
                tried[of_change[mutant]] = outcome
            else:
                outcomes[mutant] = outcome
            name = of_change[mutant].name if mutant in of_change else mutant
            print(f"{number}/{len(trials)} {outcome.verdict} {outcome.seconds:.0f} s {name} {outcome.red}", flush=True)
    lines, wrong = report(outcomes, reasons, tried)
    print("", *lines, sep="\n")
    print(*wrong, sep="\n", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
