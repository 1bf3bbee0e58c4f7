"""How everything here is timed, on what bodies, and on which machine; standard library only, so that peers share it."""

from __future__ import annotations

import gzip
import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = Path(__file__).parent / "data"
APIS = {"leaderandisr": 4, "stopreplica": 5, "updatemetadata": 6}

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kproto-bench"
"""What peers are built and installed into."""


@dataclass(frozen=True)
class Body:
    """A request's body: Kafka's own bytes, ``topics`` times so many partitions."""

    name: str
    api_key: int
    version: int
    topics: int
    partitions: int
    data: bytes


def bodies(folder: Path = DATA) -> Iterator[Body]:
    """The bodies ``api-version-TOPICSxPARTITIONS.bin.gz`` of a folder."""
    for path in sorted(folder.glob("*.bin.gz")):
        name = path.name.removesuffix(".bin.gz")
        if match := re.fullmatch(r"([a-z]+)-(\d+)-(\d+)x(\d+)", name):
            topics = int(match[3])
            data = gzip.decompress(path.read_bytes())
            yield Body(name, APIS[match[1]], int(match[2]), topics, topics * int(match[4]), data)


_FIELDS = {
    4: ["controller_epoch", "leader", "partition_epoch", "is_new", "leader_recovery_state"],
    5: ["delete_partition"],
    6: ["controller_epoch", "leader", "zk_version"],
}
_LISTS: dict[int, list[str]] = {
    4: ["isr", "replicas", "adding_replicas", "removing_replicas"],
    5: [],
    6: ["isr", "replicas", "offline_replicas"],
}


def reader(api_key: int) -> Callable[[Any], int]:
    """A straight loop over every field of every partition of a request in its newest version."""
    fields = [f"p.{name}" for name in ["partition_index", "leader_epoch", *_FIELDS[api_key]]]
    total = " + ".join(fields + [f"len(p.{name})" for name in _LISTS[api_key]])
    space: dict[str, Any] = {}
    lines = [
        "def read(m):",
        " n = 0",
        " for t in m.topic_states:",
        "  for p in t.partition_states:",
        f"   n += {total}",
    ]
    exec("\n".join([*lines, " return n"]), space)
    read: Callable[[Any], int] = space["read"]
    return read


def best_ns(work: Callable[[], Any], seconds: float = 0.3) -> float:
    """The least CPU time of this thread for one call, over batches of about a millisecond; collector as it is."""
    work()
    began = time.perf_counter()
    work()
    batch = range(max(1, int(1e-3 / max(time.perf_counter() - began, 1e-9))))
    least, end = float("inf"), time.perf_counter() + seconds
    while True:
        started = time.thread_time_ns()
        for _ in batch:
            work()
        least = min(least, time.thread_time_ns() - started)
        if time.perf_counter() >= end:
            return least / len(batch)


def machine() -> dict[str, Any]:
    """The machine by its parts, and how busy it is."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.*)", cpuinfo)
    cache = re.search(r"cache size\s*: (.*)", cpuinfo)
    return {
        "cpu": model[1] if model else platform.processor(),
        "cores": os.cpu_count(),
        "cache": cache[1] if cache else None,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()} ({platform.python_compiler()})",
        "load": [round(x, 1) for x in os.getloadavg()],
    }


def show(rows: list[tuple[str, ...]]) -> None:
    """Print a table."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
