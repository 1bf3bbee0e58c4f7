"""Reads the facts that a report's page shows into one object that is ready for JSON.

The page draws and describes the facts; each mark in it names a request by its index in ``requests``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import kproto
from kproto.api import CONTROL_APIS, api_name
from kproto.error_codes import error_name
from kproto.query.hints import explained_by_duckdb
from kproto.query.views import open_tables
from kproto.report.figures import ReportFigures
from kproto.report.requests import RequestIndex
from kproto.report.timeline import keep_changes, timeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from kproto.tables.places import Place


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a page's size. The page says which rows were left out.

    Attributes:
        partitions: Partitions in the timeline; those that changed most are kept.
        states: Their states in all.
        rows: Rows of each table, the first of its order.
        body_bytes: JSON of request and response bodies.
    """

    partitions: int = 50_000
    states: int = 500_000
    rows: int = 1_000
    body_bytes: int = 8 << 20


def report_facts(
    tables: Place | str | Mapping[str, pa.Table],
    limits: Limits | None = None,
    cluster: str | None = None,
    broker_ids: Mapping[tuple[str, int], int] | None = None,
) -> dict[str, Any]:
    """Read the facts for the page from tables.

    Args:
        tables: The directory that ``kproto analyze`` wrote, or its URI; or Arrow tables as in ``kproto.tables.read``.
        limits: Bounds of the page's size.
        cluster, broker_ids: See ``open_tables``.

    Returns:
        Lists of columns and rows. Times are us since 1970, latencies us; a request is its place in ``requests``,
        -1 for none; a capture is its place in ``captures``, a cluster its place in ``clusters``.

    Raises:
        ConfigurationError: There are no tables in that directory, or they cannot be read.
    """
    limits = limits or Limits()
    cut: list[str] = []
    with explained_by_duckdb(), open_tables(tables, cluster, broker_ids) as sql:
        keep_changes(sql)
        requests = RequestIndex(sql)
        figures = ReportFigures(sql, requests, limits.rows, cut)
        senders = figures.controllers()
        # In the order in which bodies are kept, should there be more than fit.
        facts: dict[str, Any] = {
            "captures": figures.captures,
            "clusters": figures.clusters,
            "controllers": senders,
            "quorum": figures.quorum(),
            "stale": figures.stale(senders),
            "errors": figures.errors(),
            "brokers": figures.responders(),
            "lag": figures.lag(),
            "weeks": figures.weeks(),
            "rates": figures.rates(),
            "losses": figures.losses(),
            "timeline": timeline(sql, figures.places, requests, limits.partitions, limits.states, cut),
            "findings": figures.findings(),
            "events": figures.events(),
            "flaps": figures.flaps(),
            "requests": requests.rows(figures.files, limits.body_bytes, cut),
        }
    codes = {row["error_code"] for row in (*facts["errors"], *facts["stale"])}
    return {
        "kproto": kproto.__version__,
        "apis": {key: api_name(key) for key in CONTROL_APIS},
        "error_names": {code: error_name(code) for code in sorted(codes | set(facts["requests"]["error_code"]), key=str)
                        if code is not None},
        "cut": cut,
        **facts,
    }  # fmt: skip
