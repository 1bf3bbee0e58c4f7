"""A pytest plugin: measures which test runs which lines, or runs chosen tests in a chosen order.

``KPROTO_MEASURE`` names the file for what is measured. ``KPROTO_CHOSEN`` names the file that lists what to run, one
test id or conformance row a line. Either way the run ends with a JSON file that says what became of the tests.
"""

import contextlib
import json
import os
import resource
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from uncompiled import SourcesFirst

MEMORY = 8 << 30
"""A mutant that allocates without end fails at this many bytes of address space, not with the machine."""


class ReclaimedLock:
    """A lock that the next thread takes over when its holder does not release it in time.

    Coverage's tracer acquires its lock in one call and releases it in another. Tests interrupt threads by signals, and
    a fork copies whatever state the lock has: an exception between the two calls leaves the lock held, and every thread
    that enters a new file would wait for ever, the main thread at the end of the session among them.

    Args:
        patience_s: Seconds that a holder may take; the tracer needs microseconds.
    """

    def __init__(self, patience_s: float = 2.0) -> None:
        self._lock = threading.Lock()
        self._patience_s = patience_s

    def acquire(self) -> None:
        """Acquire the lock, after ``patience_s`` seconds from a holder that was interrupted."""
        while not self._lock.acquire(timeout=self._patience_s):
            self.release()

    def release(self) -> None:
        """Release the lock; harmless for a holder that it was taken from."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Measuring:
    """Notes the lines that each test runs, in whatever thread, with its duration and its conformance rows.

    A context is a test id, or a test file for the lines of the fixtures that the tests of a file share: they run
    within the first test that asks for them, and concern all. The context is "" while modules are imported.
    """

    def __init__(self, target: Path) -> None:
        os.environ["COVERAGE_CORE"] = "ctrace"  # the only core that tells contexts apart in every version of Python
        import coverage

        sys.meta_path.insert(0, SourcesFirst())
        packages = [str(Path.cwd() / name) for name in ("channel", "kproto")]
        self._coverage = coverage.Coverage(data_file=None, config_file=False, source=packages, concurrency="thread")
        self._coverage.start()
        self._coverage._collector.data_lock = ReclaimedLock()
        self._tracer = sys.gettrace()
        self._root = Path.cwd()
        self._target = target
        self._context = ""
        self._tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        rows = [row for marker in item.iter_markers("conformance") for row in marker.args]
        test = self._tests[item.nodeid] = {"seconds": 0.0, "rows": rows, "outcome": "passed"}
        if sys.gettrace() is not self._tracer:  # a test that traces by itself may have put an end to the measuring
            sys.settrace(self._tracer)
        self._switch(item.nodeid)
        began = time.monotonic()
        result = yield
        test["seconds"] = round(time.monotonic() - began, 4)
        self._switch("")
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[object]:
        if fixturedef.scope == "function":
            return (yield)
        before = self._context
        self._switch(before.partition("::")[0])
        try:
            return (yield)
        finally:
            self._switch(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._tests[report.nodeid]["outcome"] = report.outcome

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data, lines = self._coverage.get_data(), {}
        for path in data.measured_files():
            by_line = {line: [c for c in contexts if c] for line, contexts in data.contexts_by_lineno(path).items()}
            lines[Path(path).relative_to(self._root).as_posix()] = {line: c for line, c in by_line.items() if c}
        self._target.write_text(json.dumps({"tests": self._tests, "lines": lines}), encoding="utf-8")

    def _switch(self, context: str) -> None:
        self._context = context
        self._coverage.switch_context(context)


class Choosing:
    """Runs the chosen tests alone, in their order, and tells the first that failed and how long each took."""

    def __init__(self, chosen: Path) -> None:
        self._order = {name: i for i, name in enumerate(chosen.read_text(encoding="utf-8").splitlines())}
        self._target = chosen.with_suffix(".outcome")
        self._red = ""
        self._seconds: dict[str, float] = defaultdict(float)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))

    @pytest.hookimpl(trylast=True)  # after pytest has grouped tests by their fixtures: quick ones come first here
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        place = {item: self._place(item) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if place[item] is None])
        items[:] = sorted((item for item in items if place[item] is not None), key=lambda item: place[item] or 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._red = self._red or report.nodeid
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        ran = [getattr(sys.modules.get(name), "__file__", None) or "" for name in ("kproto", "channel")]
        told = {"red": self._red, "seconds": self._seconds, "ran": ran}
        self._target.write_text(json.dumps(told), encoding="utf-8")

    def _place(self, item: pytest.Item) -> int | None:
        """Where a test stands in the order, by its id, with or without parameters, or by a row; None if nowhere."""
        rows = [row for marker in item.iter_markers("conformance") for row in marker.args]
        names = (item.nodeid, item.nodeid.partition("[")[0], *rows)
        return min((self._order[name] for name in names if name in self._order), default=None)


def pytest_configure(config: pytest.Config) -> None:
    if target := os.environ.get("KPROTO_MEASURE"):
        config.pluginmanager.register(Measuring(Path(target)))
    if chosen := os.environ.get("KPROTO_CHOSEN"):
        config.pluginmanager.register(Choosing(Path(chosen)))
