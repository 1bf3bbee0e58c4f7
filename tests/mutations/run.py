"""Breaks the program in many small ways, one after the other, and sees the tests go red: ``make mutations``.

Mutants are drawn by operator and seed over ``channel/`` and ``kproto/`` (operators.py, draw.py). Each is applied to a
private copy of the tree, where the tests that run its line (covering.py) are run, quickest first, until one fails. Then
come the breakages of known.toml. The run fails when fewer than nine in ten drawn mutants are killed, when a known
breakage survives, or when a list has gone stale (lists.py).

Cython and C sources are out of reach of operators that work on Python's syntax tree: the extension is held by the
tests that compare it with the reference, byte by byte and error by error, by sanitizers and by fuzzing. Code that runs
in Spark's own processes is left out too (draw.py).

No library does this for us. mutmut (3.8) draws nothing by seed, mutates only the bodies of functions and chooses tests
by function; cosmic-ray (8.7) runs one command for every mutant and writes mutants into the checkout itself.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from mutations.covering import Covering, measure
from mutations.draw import PACKAGES, all_mutants, draw
from mutations.kills import Kills
from mutations.lists import Breakage, equivalents, known_breakages
from mutations.operators import OPERATORS, Mutant
from mutations.trial import Outcome, Tree

SEED = 391  # Kafka 3.9.1
COUNT = 200
WANTED = 0.9
BUDGET = 60.0
"""Seconds of tests that a mutant may cost at most; the slowest of a line's tests are left out beyond it."""


def try_mutant(tree: Tree, mutant: Mutant, tests: list[str], covering: Covering) -> Outcome:
    """Apply a mutant and run the tests, first those of the files that are about its place."""
    source = (tree.root / mutant.path).read_bytes()
    outcome, seconds = Outcome("untested"), 0.0
    with tree.broken(mutant.path, mutant.applied_to(source)):
        for stage in covering.stages(tests):
            times = [covering.seconds[test] for test in stage]
            outcome = tree.run(stage, limit=60 + 5 * sum(times), one_test=20 + 5 * max(times))
            seconds += outcome.seconds
            if outcome.killed:
                break
    return replace(outcome, seconds=seconds)


def try_breakage(tree: Tree, breakage: Breakage, covering: Covering) -> Outcome:
    """Apply a known breakage and run the tests of its rows, of each row by themselves, or those of its lines."""
    if not breakage.rows:
        return try_mutant(tree, breakage.change, covering.tests_of(breakage.change, BUDGET), covering)
    outcomes = [
        try_mutant(tree, breakage.change, covering.quickest(covering.rows.get(row, set()), BUDGET), covering)
        for row in breakage.rows
    ]
    return next((outcome for outcome in outcomes if not outcome.killed), outcomes[0])


def table(outcomes: dict[Mutant, Outcome]) -> list[str]:
    """The Markdown table: a line for each operator, a column for each package."""

    def cell(chosen: list[Mutant]) -> str:
        return f"{sum(outcomes[m].killed for m in chosen)} of {len(chosen)}" if chosen else "-"

    lines = [f"| operator | {' | '.join(PACKAGES)} | both |", "|---|---:|---:|---:|"]
    for operator in (*OPERATORS, "all"):
        chosen = [m for m in outcomes if operator in (m.operator, "all")]
        cells = [cell([m for m in chosen if m.path.startswith(package)]) for package in PACKAGES]
        lines.append(f"| {operator} | {' | '.join(cells)} | {cell(chosen)} |")
    return lines


def report(
    outcomes: dict[Mutant, Outcome],
    reasons: dict[Mutant, str],
    breakages: dict[Breakage, Outcome],
    seed: int,
    wanted: float = WANTED,
) -> tuple[list[str], list[str]]:
    """The result as Markdown lines, and what is wrong with it, a line each."""
    killed = sum(outcome.killed for outcome in outcomes.values())
    share = killed / len(outcomes) if outcomes else 1.0
    verdicts = Counter(outcome.verdict for outcome in outcomes.values())
    counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    lines = [f"{len(outcomes)} mutants drawn with seed {seed}: {share:.1%} killed ({counted}).", ""]
    lines += table(outcomes)
    left = [m for m, outcome in outcomes.items() if not outcome.killed]
    same = [m for m in left if m in reasons]
    lines += ["", f"Survivors that behave as the program does: {len(same)}.", ""]
    lines += [f"- `{_place(m)}`: {reasons[m]}" for m in sorted(same, key=_place)]
    lines += ["", f"Survivors that a test should notice: {len(left) - len(same)}.", ""]
    lines += [f"- `{_place(m)}` ({outcomes[m].verdict})" for m in sorted(left, key=_place) if m not in reasons]
    if breakages:
        lines += [
            "",
            f"Known breakages: {sum(o.killed for o in breakages.values())} of {len(breakages)} turn a test red.",
            "",
        ]
        lines += ["| breakage | rows | red |", "|---|---|---|"]
        lines += [
            f"| {b.name} | {', '.join(b.rows) or '-'} | {f'`{o.red or o.verdict}`' if o.killed else '**none**'} |"
            for b, o in breakages.items()
        ]
    wrong = [f"{b.name}: no test notices" for b, o in breakages.items() if not o.killed]
    wrong += [
        f"equivalent.toml: {m} is killed by {outcomes[m].red}" for m in reasons if m in outcomes and outcomes[m].killed
    ]
    if share < wanted:
        wrong.append(f"{share:.1%} of the mutants are killed, at least {wanted:.0%} are wanted")
    return lines, wrong


def _place(mutant: Mutant) -> str:
    """A place that does not move with the lines above it."""
    return f"{mutant.path} {mutant.function}: {mutant.operator}: {mutant.line}"


def main() -> int:
    """Run the campaign; the exit status is 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT, help="how many mutants to draw (default: %(default)s)")
    parser.add_argument("--minutes", type=float, help="draw no further mutant after this long")
    parser.add_argument("--only", nargs="+", default=PACKAGES, metavar="PATH", help="files or folders to draw from")
    parser.add_argument("--no-known", action="store_true", help="leave known.toml out")
    parser.add_argument("--known", metavar="WORD", help="only the known breakages whose name or row has this word")
    parser.add_argument("--at-least", type=float, default=WANTED, help="share to be killed (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="take over the kills of the last run that still hold")
    parser.add_argument("--result", type=Path, metavar="FILE", help="write the result to this file too")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would hand on a deaf ear
    everything = all_mutants()
    try:
        reasons, breakages = equivalents(everything), [] if args.no_known else known_breakages()
    except LookupError as error:
        print(error, file=sys.stderr)
        return 1
    drawn = draw([m for m in everything if m.path.startswith(tuple(args.only))], args.count, args.seed)
    if args.known is not None:
        drawn, breakages = [], [b for b in breakages if args.known in b.name or args.known in b.rows]
    covering = measure()
    outcomes: dict[Mutant, Outcome] = {}
    tried: dict[Breakage, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="kproto-mutations-") as folder:
        tree = Tree(Path(folder))
        kills = Kills(tree.root)
        tree.prepare(covering.samples())
        deadline = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
        for number, mutant in enumerate(drawn, 1):
            if time.monotonic() > deadline:
                print(f"{args.minutes:g} minutes are over after {number - 1} of {len(drawn)} mutants", file=sys.stderr)
                break
            outcome = kills.of(mutant) if args.resume else None
            if outcome is None:
                outcome = try_mutant(tree, mutant, covering.tests_of(mutant, BUDGET), covering)
                kills.add(mutant, outcome)
            outcomes[mutant] = outcome
            print(f"{number}/{len(drawn)} {outcome.verdict} {outcome.seconds:.0f} s {mutant} {outcome.red}", flush=True)
        for breakage in breakages:
            outcome = tried[breakage] = try_breakage(tree, breakage, covering)
            print(f"{outcome.verdict} {outcome.seconds:.0f} s {breakage.name} {outcome.red}", flush=True)
    lines, wrong = report(outcomes, reasons, tried, args.seed, args.at_least)
    print("", *lines, sep="\n")
    if args.result:
        args.result.write_text(
            "\n".join(["# The last whole run of `make mutations`", "", *lines, ""]), encoding="utf-8"
        )
    print(*wrong, sep="\n", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
