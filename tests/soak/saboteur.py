"""Runs a command of kproto in whose process faults can be made: one of its threads dies, or it gets none for a while.

``python tests/soak/saboteur.py FILE controller ...``: at SIGUSR1 the process reads an order from FILE, and removes it:
``{"kill": N}`` or ``{"refuse_s": SECONDS}``. What it does is told in FILE.told; FILE.ready holds its number, once it
takes orders.
"""

import ctypes
import json
import os
import runpy
import signal
import sys
import threading
from pathlib import Path
from typing import Any


class Killed(BaseException):
    """No handler of errors expects it."""


def no_thread(*_: Any) -> None:
    """Stand for a system that gives no thread."""
    raise RuntimeError("can't start new thread")


def kill(number: int) -> str:
    """Kill one of the channel's threads, and wake it; gives its name, which is empty while there is none."""
    kind = getattr(sys.modules.get("channel.threads"), "StoppableThread", ())  # it may come amid the first imports
    threads: list[Any] = [each for each in threading.enumerate() if isinstance(each, kind)]
    if not threads:
        return ""
    victim = sorted(threads, key=lambda each: each.name)[number % len(threads)]
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(victim.ident or 0), ctypes.py_object(Killed))
    if hasattr(victim, "clear_and_put"):
        victim.put(sys.modules["channel.lead.election"].ControllerChange())
    else:
        victim.interrupt()
        with victim._initiated._cond:
            victim._initiated._cond.notify_all()
    return victim.name


def refuse(seconds: float) -> str:
    """Give no thread for this long."""
    given = threading._start_new_thread  # type: ignore[attr-defined]

    def give_again(*_: Any) -> None:
        threading._start_new_thread = given  # type: ignore[attr-defined]

    threading._start_new_thread = no_thread  # type: ignore[attr-defined]
    signal.signal(signal.SIGALRM, give_again)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return f"{seconds:.1f} s"


def main() -> None:
    """Take orders, and run the command."""
    orders = Path(sys.argv[1])

    def obey(*_: Any) -> None:
        order = json.loads(orders.read_text())
        told = kill(order["kill"]) if "kill" in order else refuse(order["refuse_s"])
        orders.with_suffix(".told").write_text(told)
        orders.unlink()

    signal.signal(signal.SIGUSR1, obey)
    orders.with_suffix(".ready").write_text(str(os.getpid()))
    sys.argv = ["kproto", *sys.argv[2:]]
    sys.path[0] = ""
    runpy.run_module("kproto", run_name="__main__")


if __name__ == "__main__":
    main()
