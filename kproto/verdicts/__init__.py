"""Draws conclusions from control traffic: each question is answered here once, whoever asks it.

``docs/verdicts.md`` defines every term. What opens which file:

    catalogue    the rules of ``kproto doctor``: ids, severities, limits
    epochs       zombie controllers, controllers with one epoch, requests for an earlier registration of a broker
    stale        the same over the table ``requests``: the derived table ``stale_requests``
    states       the order of a partition's states, deletions, incarnations, kinds of changes
    history      the one fold: every state of every partition, and how it differs from the one before
    facts        what was told, by whom, when, to whom; who was alive: what ``rules``, ``events`` and ``updates`` judge
    doctor       how rules make findings of what they see; ``rules``, ``kraft`` and ``listeners`` have them
    derived      the tables that follow from the stored ones; ``found`` has those of verdicts
    summary      the figures of ``kproto summary``, from ``request_figures`` and ``history``
    timeline     the exchanges of ``kproto inspect``, each with what its broker knew before (``knowledge``)
    assertions   what tests assert of a recording's findings
    answers      how a broker answered a request, and why it refused a partition

``epochs``, ``timeline`` and ``answers`` need no pyarrow: names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kproto.verdicts.assertions import assert_only, findings_of
    from kproto.verdicts.catalogue import LIMITS, RULES, Rule
    from kproto.verdicts.epochs import Epochs, Stale
    from kproto.verdicts.summary import summarize

__all__ = ["LIMITS", "RULES", "Epochs", "Rule", "Stale", "assert_only", "findings_of", "summarize"]

_HOMES = {
    "LIMITS": "catalogue",
    "RULES": "catalogue",
    "Epochs": "epochs",
    "Rule": "catalogue",
    "Stale": "epochs",
    "assert_only": "assertions",
    "findings_of": "assertions",
    "summarize": "summary",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"kproto.verdicts.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
