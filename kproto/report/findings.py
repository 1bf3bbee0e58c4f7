"""Puts the findings of ``kproto doctor`` at the head of a report, each with the section that shows it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from kproto.query import ask_sql
from kproto.verdicts.catalogue import RULES, SEVERITIES

if TYPE_CHECKING:
    import duckdb

_CLASSES: Final = {"trouble": "bad", "warning": "warning", "note": "note"}
_SECTIONS: Final = {
    "controllers": "controllers",
    "leaders": "timeline",
    "replicas": "timeline",
    "brokers": "brokers",
    "topics": "timeline",
    "requests": "errors",
    "capture": "captures",
}
_UPDATES: Final = ("KP030", "KP031", "KP032")


def findings(sql: duckdb.DuckDBPyConnection) -> list[dict[str, str]]:
    """Return the findings, the worst first; those of one rule and broker are one.

    Returns:
        Each with ``rule``, ``severity`` (bad, warning or note), ``text``, ``section`` (the section of the page that
        shows it) and ``rows`` (which rows of the timeline to choose: "troubled", "changed", or empty for all).
    """
    rows = ask_sql(sql, "SELECT severity, rule, broker, text FROM findings").rows
    rows.sort(key=lambda row: (SEVERITIES.index(row[0]), row[1], row[2] or ""))
    found = []
    for (severity, rule, _broker), some in groupby(rows, key=lambda row: row[:3]):
        texts = [row[3] for row in some]
        more = f"; and {len(texts) - 1:,} more" if len(texts) > 1 else ""
        found.append(_finding(severity, rule, f"{texts[0]}{more}."))
    return found


def _finding(severity: str, rule: str, text: str) -> dict[str, Any]:
    section = "lag" if rule in _UPDATES else _SECTIONS[RULES[rule].subject]
    rows = "" if section != "timeline" else "changed" if rule in ("KP016", "KP022") else "troubled"
    return {"rule": rule, "severity": _CLASSES[severity], "text": text, "section": section, "rows": rows}
