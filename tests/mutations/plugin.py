"""A pytest plugin: measures which test runs which lines, or runs a chosen list of tests in its order.

``KPROTO_MEASURE`` names the file for what is measured, ``KPROTO_CHOSEN`` the file with the test ids to run, one a line.
Either way the run ends with a JSON file that says what became of the tests.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = 8 << 30
"""A mutant that allocates without end fails at this many bytes of address space, not with the machine."""


class Measuring:
    """Notes the lines that each test runs, in whatever thread, with its duration and its conformance rows."""

    def __init__(self, target: Path) -> None:
        import coverage

        packages = [str(Path.cwd() / name) for name in ("channel", "kproto")]
        self._coverage = coverage.Coverage(data_file=None, config_file=False, source=packages, concurrency="thread")
        self._coverage.start()
        self._target = target
        self._tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        rows = [row for marker in item.iter_markers("conformance") for row in marker.args]
        test = self._tests[item.nodeid] = {"seconds": 0.0, "rows": rows, "outcome": "passed"}
        self._coverage.switch_context(item.nodeid)
        began = time.monotonic()
        result = yield
        test["seconds"] = round(time.monotonic() - began, 4)
        self._coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._tests[report.nodeid]["outcome"] = report.outcome

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data, lines = self._coverage.get_data(), {}
        for path in data.measured_files():
            by_line = {line: [t for t in tests if t] for line, tests in data.contexts_by_lineno(path).items()}
            lines[Path(path).relative_to(Path.cwd()).as_posix()] = {line: t for line, t in by_line.items() if t}
        self._target.write_text(json.dumps({"tests": self._tests, "lines": lines}), encoding="utf-8")


class Choosing:
    """Runs the chosen tests alone, in their order, and tells the first that failed."""

    def __init__(self, chosen: Path) -> None:
        self._order = {name: i for i, name in enumerate(chosen.read_text(encoding="utf-8").splitlines())}
        self._target = chosen.with_suffix(".outcome")
        self._outcome: dict[str, Any] = {"passed": 0, "red": ""}
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))

    @pytest.hookimpl(trylast=True)  # after pytest has grouped tests by their fixtures: quick ones come first here
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        others = [item for item in items if item.nodeid not in self._order]
        items[:] = sorted((i for i in items if i.nodeid in self._order), key=lambda i: self._order[i.nodeid])
        config.hook.pytest_deselected(items=others)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._outcome["red"] = self._outcome["red"] or report.nodeid
        elif report.when == "call":
            self._outcome["passed"] += 1

    def pytest_sessionfinish(self) -> None:
        files: dict[str, str] = defaultdict(str)
        for name in ("kproto", "channel"):
            files[name] = getattr(sys.modules.get(name), "__file__", None) or ""
        self._target.write_text(json.dumps(self._outcome | {"ran": files}), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    if target := os.environ.get("KPROTO_MEASURE"):
        config.pluginmanager.register(Measuring(Path(target)))
    if chosen := os.environ.get("KPROTO_CHOSEN"):
        config.pluginmanager.register(Choosing(Path(chosen)))
