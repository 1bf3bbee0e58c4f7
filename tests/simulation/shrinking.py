"""Shortens a failing run: faults and work are left out while it still fails in the same way."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from .runs import run
from .scheduler import START_NS

if TYPE_CHECKING:
    from .plan import Plan, Result

__all__ = ["START_NS", "kind_of", "shrink"]

BUDGET_S = 60.0
ORDERS = 4


def kind_of(problem: str) -> str:
    """What is wrong, without numbers and names: the same for runs that fail in the same way."""
    return re.sub(r"\bt\d+-\d+|\d+", "#", problem)[:50]


def shrink(result: Result, budget_s: float = BUDGET_S) -> tuple[Result, int]:
    """Shorten a failing run.

    Returns:
        The shortest run found that fails in the same way, and how many runs it took to find it.
    """
    wanted = kind_of(result.problems[0])
    ends = time.monotonic() + budget_s
    best, runs = result, 0

    def attempt(plan: Plan) -> bool:
        """Run a shorter plan in several orders of tasks, as the fault may need one of them."""
        nonlocal best, runs
        for order in (plan.order, *range(ORDERS)):
            runs += 1
            found = run(replace(plan, order=order))
            if found.problems and kind_of(found.problems[0]) == wanted:
                best = found
                return True
            if time.monotonic() > ends:
                break
        return False

    attempt(replace(best.plan, actions=tuple(a for a in best.plan.actions if a.at_s <= best.virtual_s)))
    size = max(1, len(best.plan.actions) // 2)
    while time.monotonic() < ends:
        at, shorter = 0, False
        while at < len(best.plan.actions) and time.monotonic() < ends:
            actions = best.plan.actions
            if attempt(replace(best.plan, actions=actions[:at] + actions[at + size :])):
                shorter = True
            else:
                at += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    for brokers in range(1, best.plan.brokers):
        if time.monotonic() > ends or attempt(replace(best.plan, brokers=brokers)):
            break
    return best, runs
