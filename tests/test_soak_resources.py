"""What a soak says of the memory, threads and descriptors of its processes."""

import os
import time
from types import SimpleNamespace

from soak.checks import Resources


def program(**more):
    settings = {"name": "controller-1000", "pid": os.getpid(), "is_running": True, "started_at": time.monotonic() - 60}
    return SimpleNamespace(**settings | more)


def test_descriptors_that_a_restarted_process_keeps_are_found():
    restarted = program(pid=-1, is_running=False)  # the process that the soak began with was killed
    watched = Resources([restarted], connections=0)
    watched.look()
    restarted.pid, restarted.is_running = os.getpid(), True
    watched.look()
    kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]
    try:
        ((_, grown),) = watched.compared()
    finally:
        for each in kept:
            os.close(each)
    assert len(grown) == 1
    assert grown[0].startswith("controller-1000: files went from ")


def test_a_process_too_young_to_be_compared_is_said():
    watched = Resources([program(started_at=time.monotonic())], connections=0)
    watched.look()
    assert list(watched.compared()) == [("controller-1000: its process is too young to be compared", [])]
