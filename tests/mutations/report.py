"""The result of a campaign in Markdown, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mutations.draw import PACKAGES
from mutations.operators import OPERATORS

if TYPE_CHECKING:
    from mutations.lists import Breakage
    from mutations.operators import Mutant
    from mutations.trial import Outcome

__all__ = ["WANTED", "report", "table"]

WANTED = 0.85


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
    wanted: float = WANTED,
) -> tuple[list[str], list[str]]:
    """The result as Markdown lines, and what is wrong with it, a line each.

    The share that is wanted is of the mutants that do not behave as the program does.
    """
    killed = [m for m, outcome in outcomes.items() if outcome.killed]
    left = [m for m, outcome in outcomes.items() if not outcome.killed]
    same = [m for m in left if m in reasons]
    share = _share(len(killed), len(outcomes) - len(same))
    lines = _drawn(outcomes, killed, left, {m: reasons[m] for m in same}) if outcomes else []
    if breakages:
        noticed = sum(outcome.killed for outcome in breakages.values())
        lines += ["", f"Known breakages: {noticed} of {len(breakages)} turn a test red.", ""]
        lines += ["| breakage | rows | red |", "|---|---|---|"]
        lines += [
            f"| {b.name} | {', '.join(b.rows) or '-'} | {f'`{o.red or o.verdict}`' if o.killed else '**none**'} |"
            for b, o in breakages.items()
        ]
    wrong = [f"{b.name}: no test notices" for b, o in breakages.items() if not o.killed]
    wrong += [f"equivalent.toml: {m} is killed by {outcomes[m].red}" for m in killed if m in reasons]
    if share < wanted:
        wrong.append(f"{share:.1%} of the mutants are killed, at least {wanted:.0%} are wanted")
    return lines, wrong


def _drawn(
    outcomes: dict[Mutant, Outcome], killed: list[Mutant], left: list[Mutant], same: dict[Mutant, str]
) -> list[str]:
    verdicts = Counter(outcome.verdict for outcome in outcomes.values())
    counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    others = len(outcomes) - len(same)
    return [
        f"{len(outcomes)} mutants: {counted}. Killed are {len(killed)}, {_share(len(killed), others):.1%} of the "
        f"{others} that do not behave as the program does, {_share(len(killed), len(outcomes)):.1%} of all.",
        "",
        *table(outcomes),
        "",
        f"Survivors that behave as the program does: {len(same)}.",
        "",
        *(f"- `{_place(m)}`: {same[m]}" for m in sorted(same, key=_place)),
        "",
        f"Survivors that a test should notice: {len(left) - len(same)}.",
        "",
        *(f"- `{_place(m)}` ({outcomes[m].verdict})" for m in sorted(left, key=_place) if m not in same),
    ]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _place(mutant: Mutant) -> str:
    """A place that does not move with the lines above it."""
    return f"{mutant.path} {mutant.function}: {mutant.operator}: {mutant.line}"
