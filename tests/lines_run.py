"""Counts executed lines: a measure of work that no load changes."""

import sys
from collections.abc import Callable
from typing import Any


def lines_run(call: Callable[[], Any]) -> int:
    """The lines of kproto that a call executes."""
    count = 0

    def local(_frame: Any, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def trace(frame: Any, _event: str, _arg: Any) -> Any:
        return local if "kproto" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
