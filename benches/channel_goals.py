"""The rows of the channel's tables and their limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from figures import Goal

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKERS = (10, 50, 100)
SMALL = {
    "small-closed": "LeaderAndIsr, ten brokers at once",
    "small-one": "LeaderAndIsr, one at a time",
    "small-burst": "LeaderAndIsr, 2,000 queued at once",
    "small-batch": "batch for one partition (13 requests)",
}


_LEAST_RATES = {"small-closed": 1.2, "small-one": 1.0, "small-burst": 1.0, "small-batch": 1.25}
"""Of Kafka's rate, by the kind of small requests."""


@dataclass(frozen=True)
class Workload:
    """The work of the programs in a round, each against a sink of its own.

    Attributes:
        what: As programs call it.
        rounds: In each process; the second half counts.
        programs: In the order in which they run.
    """

    what: str
    brokers: int
    topics: int
    partitions: int
    rounds: int
    programs: tuple[str, ...]


WORKLOADS = (
    Workload(
        "small",
        10,
        100,
        20,
        8,
        (
            "kproto",
            "kafka",
            "bare",
            "kproto-recorder",
            "bare-recorder",
            "kproto-per-broker",
            "bare-per-broker",
        ),
    ),
    *(Workload("fanout", n, 5000, 20, 4, ("kproto", "kafka", "kproto-per-broker", "floor")) for n in BROKERS),
    *(Workload("build", n, 1000, 20, 8, ("kproto", "kafka")) for n in BROKERS),
    Workload("memory", 100, 5000, 20, 2, ("kproto",)),
)


def key(program: str, what: str, brokers: int, field: str) -> str:
    """The key of a figure in a round."""
    return f"{program} {what} {brokers} {field}"


def goals() -> Iterator[Goal]:
    """Every row, in the order of the tables."""
    for brokers in BROKERS:
        wall, cpu = (1 / 12, 1 / 20) if brokers == 100 else (None, None)
        name, per_broker = "full update of 100,000 partitions", "kproto-per-broker"
        yield _goal(name, "fanout", brokers, "s", "wall_s", limit=wall)
        yield _goal(f"{name}: CPU", "fanout", brokers, "s", "cpu_s", limit=cpu)
        yield _goal(f"{name}, a send thread per broker", "fanout", brokers, "s", "wall_s", per_broker)
        yield _goal(f"{name}, a send thread per broker: CPU", "fanout", brokers, "s", "cpu_s", per_broker)
        yield _goal(f"{name} beside an encoded body sent by C", "fanout", brokers, "s", "wall_s", peer="floor")
    for brokers in BROKERS:
        limit = 0.5 if brokers == 100 else None
        yield _goal("building UpdateMetadata, a partition", "build-um", brokers, "ns", "ns_partition", limit=limit)
        yield _goal("building LeaderAndIsr, a partition", "build-lai", brokers, "ns", "ns_partition")
    for what, name in SMALL.items():
        yield _goal(name, what, 10, "/s", "per_s", limit=_LEAST_RATES[what], at_least=True)
        if what != "small-burst":
            yield _floor(name, what, "/s", "per_s")
        yield _goal(f"{name}: CPU a request", what, 10, "us", "cpu_us", limit=1.0)
        if what == "small-one":
            yield _floor(f"{name}: CPU a request", what, "us", "cpu_us")
        if what in ("small-closed", "small-one"):
            yield _goal(f"{name}: p99", what, 10, "us", "p99_us", limit=1.0)
    for what, name in SMALL.items():
        yield _goal(f"{name}, recorded", what, 10, "/s", "per_s", "kproto-recorder", "kproto", limit=0.6, at_least=True)
        if what == "small-closed":
            yield _floor(f"{name}, recorded", what, "/s", "per_s", "bare-recorder", "bare")
    for what, name in SMALL.items():
        row = f"{name}, a send thread per broker"
        least = 0.8 if what == "small-closed" else None
        yield _goal(row, what, 10, "/s", "per_s", "kproto-per-broker", limit=least, at_least=True)
        if what == "small-closed":
            yield _floor(row, what, "/s", "per_s", "bare-per-broker")
        yield _goal(f"{row}: CPU a request", what, 10, "us", "cpu_us", "kproto-per-broker")
    held = key("kproto", "memory", 100, "bodies")
    yield Goal("channel", "growth while answers are held back", "100 brokers", "bodies", held, limit=2)


def _floor(row: str, what: str, unit: str, field: str, program: str = "bare", peer: str = "kafka") -> Goal:
    """What a bare loop of Python reaches where kproto's row misses its limit."""
    return _goal(f"{row}: a bare loop of Python instead", what, 10, unit, field, program, peer)


def _goal(
    row: str, what: str, brokers: int, unit: str, field: str, program: str = "kproto", peer: str = "kafka",
    *, limit: float | None = None, at_least: bool = False,
) -> Goal:  # fmt: skip
    names = {"kafka": "Kafka", "floor": "floor", "kproto": "not recorded", "bare": "not recorded"}
    return Goal(
        "channel", row, f"{brokers} brokers", unit, key(program, what, brokers, field),
        key(peer, what, brokers, field), names[peer], limit, at_least,
    )  # fmt: skip
