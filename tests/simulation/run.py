"""Simulates the control plane by seed: ``make simulate SEEDS=1000``, or ``SEED=n`` for one of them.

Each seed is one run of the product's own code in one thread and in virtual time (scheduler.py), with faults and work
drawn from the seed (scripted.py). The first seed that breaks an invariant is shortened, by leaving out faults and work
while it still fails (shrinking.py), and its story is printed with the command that repeats it.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets must be that of the run to be repeated
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
sys.path.insert(0, str(Path(__file__).parents[1]))

from simulation import broken

_BROKEN = os.environ.get("SIMULATION_BREAKS")
"""The name of a deliberate fault that is put into the product."""
if _BROKEN and _BROKEN.startswith("mutant "):
    broken.install(broken.drawn(*(int(number) for number in _BROKEN.split()[1:3]))[int(_BROKEN.split()[3])].sources)
elif _BROKEN:
    broken.install(next(b.sources for b in broken.breakages() if b.name == _BROKEN))

import lock_checks  # noqa: E402

lock_checks.check_order()  # classes have their guarded attributes watched, where threads give way to one another

from simulation import shrinking  # noqa: E402 - the product may have to be loaded with a fault
from simulation.plan import Result, draw_plan  # noqa: E402
from simulation.runs import run  # noqa: E402


def parsed() -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: %(default)s)")
    parser.add_argument("--fresh", type=int, default=0, metavar="N", help="run N more that nobody has run before")
    parser.add_argument("--seed", type=int, help="run this seed alone, and print what happens in it")
    parser.add_argument(
        "--kind", choices=["scripted", "channels", "election", "clients"], help="run seeds of this kind alone"
    )
    parser.add_argument("--capture", metavar="FILE", help="with --seed: write the frames that pass, as pcapng")
    parser.add_argument("--breakages", nargs="*", metavar="WORD", help="put known faults back, and find each")
    parser.add_argument("--mutants", type=int, metavar="N", help="break N places that are drawn instead, and find each")
    parser.add_argument("--draw", type=int, default=391, metavar="SEED", help="the seed of that draw")
    parser.add_argument("--brief", action="store_true", help="neither shorten a failing seed nor tell its story")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one for each core)")
    return parser.parse_args()


def one(seed: int, kind: str | None = None) -> Result:
    """Run a seed."""
    return run(draw_plan(seed, kind))


def story(result: Result) -> str:
    """The timeline of a run that failed, of a page at most."""
    lines = [f"{(at - shrinking.START_NS) / 1e9:9.4f} s  {what}" for at, what in result.events]
    if len(lines) > 50:
        lines = [*lines[:10], f"           ... {len(lines) - 50} lines ...", *lines[-40:]]
    return "\n".join(line[:200] for line in lines)


def explain(result: Result, capture: str | None = None) -> None:
    """Shorten a failing run, and tell it."""
    print(f"seed {result.plan.seed} breaks an invariant: {result.problems[0]}", flush=True)
    short, runs = shrinking.shrink(result)
    if capture:
        run(short.plan, capture)
    print(
        f"\nshortened in {runs} runs from {len(result.plan.actions)} to {len(short.plan.actions)} faults and pieces of "
        f"work, {short.plan.brokers} brokers:\n{story(short)}\n"
    )
    kind = f" KIND={result.plan.kind}" if result.plan.kind in ("election", "clients") else ""
    print(f"repeat it: make simulate SEED={result.plan.seed}{kind}")


def find_breakages(args: argparse.Namespace) -> int:
    """Put each known fault back, or break what is drawn, and run seeds until one fails.

    The exit status is 1 if a known fault is not found, or fewer than nine in ten of what was drawn.
    """
    missed = 0
    if args.mutants:
        listed = [
            (f"mutant {args.mutants} {args.draw} {index}", breakage)
            for index, breakage in enumerate(broken.drawn(args.mutants, args.draw))
        ]
    else:
        listed = [(breakage.name, breakage) for breakage in broken.breakages()]
    for key, breakage in listed:
        if args.breakages and not any(word in breakage.name for word in args.breakages):
            continue
        began = time.perf_counter()
        found = subprocess.run(
            [sys.executable, __file__, "--seeds", str(args.seeds), "--jobs", str(args.jobs), "--brief"]
            + (["--kind", breakage.kind] if breakage.kind else []),
            env={**os.environ, "SIMULATION_BREAKS": key},
            capture_output=True,
            text=True,
            check=False,
        )
        told = (found.stdout + found.stderr).strip().splitlines()[-1:]
        missed += found.returncode != 1
        print(f"{breakage.name}\n    {' '.join(told)[:300]}  ({time.perf_counter() - began:.0f} s)", flush=True)
    print(f"{missed} of {len(listed)} faults were not found")
    return 1 if missed > (len(listed) // 10 if args.mutants else 0) else 0


def main() -> int:
    """Run the seeds; the exit status is 1 if one fails."""
    args = parsed()
    if args.seed is not None:
        plan = draw_plan(args.seed, args.kind)
        result = run(plan, args.capture)
        if result.problems:
            explain(result, args.capture)
            return 1
        print(story(result))
        print(f"seed {args.seed} holds: {result.steps} steps, {result.virtual_s:.0f} virtual s")
        return 0
    if args.breakages is not None or args.mutants:
        return find_breakages(args)
    seeds = list(range(args.first, args.first + args.seeds))
    if args.fresh:
        first = int.from_bytes(os.urandom(4), "big")
        print(f"fresh seeds from {first}: make simulate FIRST={first} SEEDS={args.fresh}", flush=True)
        seeds += range(first, first + args.fresh)
    began = time.perf_counter()
    steps = frames = faults = count = 0
    virtual_s = 0.0
    failed: list[Result] = []
    with multiprocessing.Pool(args.jobs) as pool:
        for result in pool.imap_unordered(partial(one, kind=args.kind), seeds, chunksize=4):
            count += 1
            steps += result.steps
            frames += result.frames
            faults += result.faults
            virtual_s += result.virtual_s
            if result.problems:
                failed.append(result)
                break
    took = time.perf_counter() - began
    print(
        f"{count} seeds, {steps} steps, {virtual_s / 3600:.1f} virtual hours, {faults} faults (one each "
        f"{virtual_s / max(1, faults):.0f} virtual s), {frames} requests; {took:.0f} s, "
        f"{steps / took / args.jobs:.0f} steps a second on each of {args.jobs} cores"
    )
    for result in failed:
        if args.brief:
            print(f"found by seed {result.plan.seed}: {result.problems[0]}")
        else:
            explain(result)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
