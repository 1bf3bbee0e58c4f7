"""A report on a cluster's control traffic: one HTML page that opens offline.

    write_report(Path("tables"), Path("report.html"))

The page holds its data, its script and its charts, asks no network, and may be attached to an incident. It is made from
the tables that ``kproto analyze`` wrote, or from a capture's tables in memory. Needs the extra ``report`` (duckdb).
"""

from __future__ import annotations

from kproto.report.facts import Limits, report_facts
from kproto.report.page import write_report

__all__ = ["Limits", "report_facts", "write_report"]
