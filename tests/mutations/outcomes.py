"""A pytest plugin that tells which conformance rows ran and which tests went red, as JSON in ``KPROTO_OUTCOMES``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

_ran: set[str] = set()
_red: dict[str, list[str]] = {}


def rows_of(item: pytest.Item) -> list[str]:
    """The rows that a test holds."""
    return [row for marker in item.iter_markers("conformance") for row in marker.args]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    _ran.update(rows_of(item))
    if report.failed:
        _red[item.nodeid] = rows_of(item)
    return report


def pytest_sessionfinish() -> None:
    import kproto

    told = {"kproto": kproto.__file__, "ran": sorted(_ran), "red": _red}
    Path(os.environ["KPROTO_OUTCOMES"]).write_text(json.dumps(told), encoding="utf-8")
