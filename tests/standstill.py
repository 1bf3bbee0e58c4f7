"""A plugin that knows when the machine stood still, as a guest of a busy host does: sessions have expired meanwhile.

A run whose failures are all of files during which it stood still ends with ``EX_TEMPFAIL``; ``make real`` then asks
them once more.
"""

import os
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

STILL_S: Final = 3.0
"""A thread that sleeps a quarter of a second is woken later than this on no machine that is only busy."""

_by_file: dict[str, float] = {}
_now: list[str] = [""]


def _watch(ended: threading.Event) -> None:
    before = time.monotonic()
    while not ended.wait(0.25):
        now = time.monotonic()
        if now - before > STILL_S:
            _by_file[_now[0]] = _by_file.get(_now[0], 0) + now - before
        before = now


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Iterator[None]:
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(ended,), name="standstill", daemon=True)
    watch.start()
    try:
        return (yield)
    finally:
        ended.set()
        watch.join()


def pytest_runtest_logstart(nodeid: str) -> None:
    _now[0] = nodeid.partition("::")[0]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    stats = getattr(reporter, "stats", {})  # a worker has no reporter
    failed = {report.nodeid.partition("::")[0] for kind in ("failed", "error") for report in stats.get(kind, ())}
    if exitstatus == pytest.ExitCode.TESTS_FAILED and failed <= _by_file.keys():
        session.exitstatus = os.EX_TEMPFAIL


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for file, seconds in _by_file.items():
        terminalreporter.write_line(f"the machine stood still for {seconds:.1f} s during {file}")
