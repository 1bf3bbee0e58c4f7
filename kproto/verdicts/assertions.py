"""Assertions about a recording in tests: which findings the doctor has, and that it has no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproto.tables.reading import chunks
from kproto.verdicts.catalogue import RULES, SEVERITIES
from kproto.verdicts.facts import Facts
from kproto.verdicts.rules import findings

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from kproto.verdicts.catalogue import Severity
    from kproto.verdicts.doctor import Finding


def findings_of(*captures: str | os.PathLike[str], limits: Mapping[str, float] | None = None) -> list[Finding]:
    """Return what ``kproto doctor`` finds in captures of one cluster, the worst first.

    Args:
        captures: Files, directories or patterns, as in ``kproto.tables.read``; a ``PcapngRecorder``'s file, for
            instance, once the recorder is closed.
        limits: Limits by name that differ from their default, in the units of ``catalogue.LIMITS``: a test that lasts
            a second needs ``{"told": 0.1}`` to find what was not told.

    Raises:
        CaptureError: No capture can be read.
    """
    return findings(Facts(chunks([str(capture) for capture in captures])), limits)


def assert_only(found: Iterable[Finding], *rules: str, severity: Severity = "warning") -> None:
    """Assert that some rules found something, and that no other did.

    Args:
        found: The findings.
        rules: Ids of the rules that must have found something; notes count where they are named.
        severity: Findings of other rules fail from this severity on.

    Raises:
        AssertionError: A finding is unexpected, or a rule found nothing; the text has all of them.
        ValueError: There is no such rule.
    """
    unknown = sorted(set(rules) - RULES.keys())
    if unknown:
        raise ValueError(f"there is no rule {unknown[0]!r}; kproto doctor --explain all lists the rules")
    some = list(found)
    bad = SEVERITIES[: SEVERITIES.index(severity) + 1]
    wrong = [f"unexpected: {f.severity} {f.rule} {f.text}" for f in some if f.rule not in rules and f.severity in bad]
    came = {finding.rule for finding in some}
    wrong += [f"not found: {rule} {RULES[rule].name}" for rule in rules if rule not in came]
    if wrong:
        raise AssertionError("\n".join(wrong))
