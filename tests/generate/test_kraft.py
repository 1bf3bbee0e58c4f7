"""Metadata logs of generated KRaft fleets are read as their truth says, by each node's files and by all together."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from commands import kproto_rows
from fleet_faults import fits

import kproto.tables
from kproto.errors import ConfigurationError
from kproto.generate import KRaftFleet, metadata_truth, write_metadata_logs
from kproto.generate.kraft import KRAFT_PLANTS
from kproto.verdicts.facts import Facts
from kproto.verdicts.rules import findings

FEW = 3
"""Fleets of fresh seeds."""


def fleet_of(seed: int, **more: Any) -> KRaftFleet:
    """The fleet of a seed, with up to four planted faults."""
    random = Random(seed)
    numbers: dict[str, Any] = {
        "brokers": random.randint(5, 8),
        "controllers": random.choice([1, 3, 5]),
        "topics": random.randint(3, 6),
        "partitions": random.randint(20, 40),
        "replication": random.randint(2, 4),
        "failovers": random.randint(0, 3),
        "restarts": random.randint(0, 3),
        "elections": random.randint(0, 6),
        "isr_changes": random.randint(0, 10),
        "eligible_elections": random.randint(0, 2),
        "plants": tuple(random.sample(sorted(KRAFT_PLANTS), random.randint(0, 4))),
    }
    return KRaftFleet(seed=seed, **(numbers | more))


def judged(fleet: KRaftFleet, *paths: Path) -> None:
    """Hold the doctor's findings against the truth: all that must come, and nothing else above a note."""
    truth = metadata_truth(fleet)
    tables = kproto.tables.read(*paths)
    assert tables["bad_inputs"].num_rows == 0
    found = findings(Facts([tables]), {})
    assert [wanted for wanted in truth.required if not any(fits(wanted, one) for one in found)] == []
    wrong = [one for one in found if one.severity != "note" and not any(fits(wanted, one) for wanted in truth.required)]
    assert wrong == []


def asked(path: Path, question: str) -> list[dict[str, Any]]:
    """The rows of an answer of ``kproto query``, with the time in ms since 1970 at which each begins."""
    rows = kproto_rows("query", path, question)
    for row in rows:
        row["time_ms"] = round(datetime.fromisoformat(row["valid_from"]).replace(tzinfo=UTC).timestamp() * 1000)
    return rows


def same(path: Path, question: str, expected: Sequence[dict[str, Any]]) -> None:
    """Hold an answer against rows of the truth."""
    found = [tuple(row[name] for name in expected[0]) for row in asked(path, question)]
    assert sorted(found) == sorted(tuple(row.values()) for row in expected)


@pytest.mark.slow
def test_leaders_registrations_and_controllers_are_those_of_the_history(tmp_path: Path) -> None:
    fleet = fleet_of(secrets.randbelow(1 << 30), controllers=3)
    print(fleet)
    write_metadata_logs(fleet, tmp_path)
    truth = metadata_truth(fleet)
    for path in (tmp_path / "node1000", tmp_path / "node1001"):
        same(path, "leader", truth.leaders)
        same(path, "restarts", truth.registrations)
        same(path, "controllers", truth.controllers)


def test_every_planted_fault_is_found_and_nothing_else(tmp_path: Path) -> None:
    fleet = fleet_of(1, brokers=6, plants=tuple(KRAFT_PLANTS), partitions=60)
    assert {planted.name for planted in metadata_truth(fleet).planted} == set(KRAFT_PLANTS)
    write_metadata_logs(fleet, tmp_path)
    judged(fleet, tmp_path / "node1000")


@pytest.mark.slow
def test_fleets_of_fresh_seeds_are_judged_right(tmp_path: Path) -> None:
    first = secrets.randbelow(1 << 30)
    for seed in range(first, first + FEW):
        fleet = fleet_of(seed)
        print(fleet)
        home = tmp_path / str(seed)
        write_metadata_logs(fleet, home)
        judged(fleet, home)
        judged(fleet, *list(home.iterdir())[-1:])


def test_a_fleet_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_metadata_logs(fleet_of(5), tmp_path / name)
    files = [{path.relative_to(home): path.read_bytes() for path in home.rglob("*.*")}
             for home in (tmp_path / "one", tmp_path / "other")]  # fmt: skip
    assert files[0] == files[1] != {}


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({"replication": 1}, "two replicas at least"),
        ({"brokers": 3}, "one broker more than replicas"),
        ({"topics": 50, "partitions": 20}, "50 topics need as many partitions"),
        ({"controllers": 0}, "controllers is 0"),
        ({"plants": ("rust",)}, "rust: no fault that can be planted in KRaft"),
    ],
)
def test_numbers_that_make_no_cluster_are_refused(numbers: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        KRaftFleet(**numbers)
