"""Figures of paired rounds as rows of a table: medians, paired ratios with their spread, limits, a result file.

A round is what kproto and its peers gave one after the other, each in a process of its own: a key for each figure. A
ratio is only ever made of two figures of one round.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from measure import show

HERE = Path(__file__).parent
RESULTS = HERE / "results"

Round: TypeAlias = Mapping[str, float]
"""Key of a figure -> its value."""

Verdict: TypeAlias = Literal["", "met", "MISSED", "NOT MEASURED"]


@dataclass(frozen=True)
class Goal:
    """What one row of a table shows, and its limit.

    Attributes:
        group: The table that the row belongs to.
        what: The row's name.
        case: The shape or size that was measured.
        unit: Of the figures.
        ours: Key of kproto's figure.
        theirs: Key of the figure it is divided by; None for a figure that stands alone.
        peer: Name of the peer in the table.
        limit: Limit of the ratio, or of the figure that stands alone; None for a row that only informs.
        at_least: Whether the limit is a lower one.
    """

    group: str
    what: str
    case: str
    unit: str
    ours: str
    theirs: str | None = None
    peer: str = ""
    limit: float | None = None
    at_least: bool = False

    def without_limit(self) -> Goal:
        """The same row without a limit."""
        return replace(self, limit=None)


@dataclass(frozen=True)
class Line:
    """One row of a table as it was measured: medians over all rounds.

    Attributes:
        ours, theirs: Medians of the figures; None where nothing was measured, or where there is no peer.
        value: Median of what the limit speaks of: the paired ratios, or the figures that stand alone.
        low, high: Least and largest of the same.
        rounds: The number of rounds that gave the figures.
    """

    group: str
    what: str
    case: str
    unit: str
    peer: str
    ours: float | None
    theirs: float | None
    value: float | None
    low: float | None
    high: float | None
    rounds: int
    limit: float | None
    at_least: bool
    verdict: Verdict


def line(goal: Goal, rounds: Sequence[Round]) -> Line:
    """Judge a goal by all rounds; a round that lacks one of its figures makes it "NOT MEASURED"."""
    keys = [goal.ours] if goal.theirs is None else [goal.ours, goal.theirs]
    whole = [found for found in rounds if all(key in found for key in keys)]
    ours = theirs = value = low = high = None
    verdict: Verdict = "NOT MEASURED"
    if whole:
        values = [found[goal.ours] for found in whole]
        ours = statistics.median(values)
        if goal.theirs is not None:
            theirs = statistics.median(found[goal.theirs] for found in whole)
            values = [found[goal.ours] / found[goal.theirs] for found in whole]
        value, low, high = statistics.median(values), min(values), max(values)
        if len(whole) == len(rounds):
            verdict = _judged(goal, value)
    return Line(
        goal.group, goal.what, goal.case, goal.unit, goal.peer, ours, theirs, value, low, high, len(whole),
        goal.limit, goal.at_least, verdict,
    )  # fmt: skip


def _judged(goal: Goal, value: float) -> Verdict:
    if goal.limit is None:
        return ""
    return "met" if (value >= goal.limit if goal.at_least else value <= goal.limit) else "MISSED"


def settled(values: Sequence[float]) -> float:
    """The median of the second half of a process's rounds: a JVM gets faster for about five."""
    return statistics.median(values[len(values) // 2 :])


def complaints(lines: Iterable[Line], failures: Iterable[str]) -> list[str]:
    """Why a command ends with an error: limits that were missed, rows that were not measured, programs that failed."""
    found = [f"failed: {failure}" for failure in failures]
    for row in lines:
        name = f"{row.what}, {row.case}" if row.case else row.what
        if row.verdict == "MISSED":
            found.append(f"missed: {name}: {number(row.value)}, {limit_of(row)}")
        elif row.verdict == "NOT MEASURED":
            found.append(f"not measured: {name}")
    return found


def verdict(lines: Iterable[Line], failures: Iterable[str], *, quick: bool) -> int:
    """Say what is wrong; gives a command's exit code."""
    wrong = complaints(lines, failures)
    if quick:
        print("quick: rounds and shapes are cut short, the figures say nothing", file=sys.stderr)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line; ``changed`` has the options that would make other figures than the defaults do.

    ``--json`` and ``--only`` choose what is measured and where it is kept, and change no figure.
    """
    options = parser.parse_args()
    chosen = {name: value for name, value in vars(options).items() if name not in ("json", "only")}
    options.changed = {name: value for name, value in chosen.items() if value != parser.get_default(name)}
    return options


def measured_rounds(count: int, measured: Callable[[], Round]) -> tuple[list[Round], list[str]]:
    """Measure so many rounds; gives those that went well, and why the others did not."""
    rounds: list[Round] = []
    failures: list[str] = []
    for _ in range(count):
        try:
            rounds.append(measured())
        except (subprocess.SubprocessError, OSError, AssertionError) as e:
            failures.append(f"{type(e).__name__}: {e}")
    return rounds, failures


def finish(
    command: str,
    goals: Iterable[Goal],
    rounds: Sequence[Round],
    at_start: dict[str, Any],
    failures: Sequence[str],
    options: argparse.Namespace,
    *,
    keep: bool = True,
    **more: Any,
) -> int:
    """Print a command's table, keep its result and say what is wrong; gives the exit code.

    Args:
        command: Names the result file.
        goals: The rows.
        rounds: The figures of each round.
        at_start: The machine, as it was before.
        failures: What went wrong meanwhile.
        options: Those of ``options_of``. ``quick``: the figures say nothing, so no limits and no result; ``json``:
            another result file, or None.
        keep: Whether there is a result without ``json``.
        more: What the result keeps beside the table.
    """
    lines = [line(goal.without_limit() if options.quick else goal, rounds) for goal in goals]
    show(text(lines))
    path = options.json or (RESULTS / f"{command}.json" if keep and not options.quick else None)
    if path:
        save(path, command, at_start, lines, changed=options.changed, failures=failures, rounds=rounds, **more)
    return verdict(lines, failures, quick=options.quick)


def number(value: float | None) -> str:
    """A figure in three or four digits."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio(value: float | None) -> str:
    """A ratio in two decimals, or in two digits where it is small."""
    if value is None:
        return "-"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def limit_of(row: Line) -> str:
    """The limit in words; "" where there is none."""
    if row.limit is None:
        return ""
    return f"at {'least' if row.at_least else 'most'} {number(row.limit)}"


def text(lines: Iterable[Line]) -> list[tuple[str, ...]]:
    """The table for a terminal, its headings first."""
    rows: list[tuple[str, ...]] = [("work", "case", "kproto", "", "peer", "ratio", "least - most", "limit", "")]
    for row in lines:
        peer, shown = (f"{row.peer} {number(row.theirs)}", ratio) if row.peer else ("", number)
        spread = f"{shown(row.low)} - {shown(row.high)}"
        value = ratio(row.value) if row.peer else ""
        rows.append((row.what, row.case, number(row.ours), row.unit, peer, value, spread, limit_of(row), row.verdict))
    return rows


def commit() -> str | None:
    """The commit that is measured, with a + where files differ from it; None outside a git clone."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(HERE), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git(
            "status", "--porcelain", "--untracked-files=no", "--", ":(top,exclude)benches/results", ":(top,exclude)*.md"
        )
        return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def save(path: Path, command: str, at_start: dict[str, Any], lines: Iterable[Line], **more: Any) -> None:
    """Write a command's result: the machine's facts, the table, and whatever else it keeps."""
    now = datetime.datetime.now(datetime.UTC)
    began = at_start.get("began")
    result = {
        "command": command,
        "program": Path(sys.argv[0]).name,
        "when": now.isoformat(timespec="seconds"),
        "seconds": round((now - datetime.datetime.fromisoformat(began)).total_seconds()) if began else None,
        "commit": commit(),
        "machine": at_start,
        "load_after": [round(load, 1) for load in os.getloadavg()],
        "table": [asdict(row) for row in lines],
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_short(result), indent=1) + "\n", encoding="utf-8")


def _short(value: Any) -> Any:
    """The same with floats of six digits: no clock is better."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _short(each) for key, each in value.items()}
    return [_short(each) for each in value] if isinstance(value, list | tuple) else value


def load(path: Path) -> tuple[dict[str, Any], list[Line]]:
    """A result file: all of it, and its table."""
    result = json.loads(path.read_text(encoding="utf-8"))
    return result, [Line(**row) for row in result["table"]]
