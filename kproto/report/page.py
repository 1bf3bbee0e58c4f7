"""Assembles the page: template, styles, scripts and facts in one HTML file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from kproto.report.facts import report_facts
from kproto.tables.whole_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from kproto.report.facts import Limits
    from kproto.tables.places import Place

_SCRIPTS: Final = ("common", "lanes", "timeline", "controllers", "request", "tables", "charts", "main")
"""The script's parts in the order of their use."""


def write_report(
    tables: Place | str | Mapping[str, pa.Table],
    out: Path | IO[bytes],
    *,
    limits: Limits | None = None,
    cluster: str | None = None,
    broker_ids: Mapping[tuple[str, int], int] | None = None,
) -> dict[str, Any]:
    """Write a report as one HTML file; an existing file is replaced when the new file is complete.

    Args:
        tables: The directory that ``kproto analyze`` wrote, or its URI; or Arrow tables as in ``kproto.tables.read``.
        out: The file, or a stream such as ``sys.stdout.buffer``, which stays open.
        limits: Bounds of the page's size.
        cluster: Only rows of this cluster; None: all.
        broker_ids: Broker ids of addresses, which no traffic has to tell.

    Returns:
        The facts that the page shows, as ``report_facts`` gives them.

    Raises:
        ConfigurationError: There are no tables in that directory.
        OSError: The file cannot be written.
    """
    facts = report_facts(tables, limits, cluster, broker_ids)
    html = page(facts).encode("utf-8")
    with whole_file(out) if isinstance(out, Path) else nullcontext(out) as file:
        file.write(html)
    return facts


def page(facts: Mapping[str, Any]) -> str:
    """Return the HTML of a page that shows these facts.

    The facts are packed: no text in them can end the element that holds them. The page's policy names its own scripts
    and styles by their hashes and forbids all others, and every access to the network.
    """
    packed = gzip.compress(json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode("utf-8"), 6, mtime=0)
    script = "".join(_asset(f"{name}.js") for name in _SCRIPTS)
    parts = {
        "chart_style": _asset("uplot/uPlot.min.css"),
        "style": _asset("page.css"),
        "chart_script": _asset("uplot/uPlot.iife.min.js"),
        "script": f'"use strict";\n(() => {{\n{script}}})();\n',
    }
    scripts, styles = (
        " ".join(f"'sha256-{_hash(parts[name])}'" for name in names)
        for names in (("chart_script", "script"), ("chart_style", "style"))
    )
    parts |= {
        "policy": f"default-src 'none'; script-src {scripts}; style-src {styles}",
        "version": html.escape(str(facts["kproto"])),
        "facts": base64.b64encode(packed).decode("ascii"),
    }
    return re.sub(r"\{([a-z_]+)\}", lambda match: parts[match[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return (files("kproto.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
