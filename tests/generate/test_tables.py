"""The tables read from generated captures are those that the generator says must come out."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from expected_tables import EXPECTED, STORED, assert_rows, expected_tables
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

import kproto.tables
from kproto.generate import PlannedFleet, write_captures
from kproto.query import open_tables
from kproto.tables.resolved import resolved_tables
from kproto.tables.schemas import TABLES
from kproto.verdicts.derived import DERIVED

SMALL = PlannedFleet(
    brokers=4, topics=3, partitions=30, isr_changes=20, elections=25, restarts=2, failovers=2, zombies=2
)

FLEETS = {
    "quiet": replace(SMALL, elections=0, restarts=0, failovers=0, zombies=0, deletions=0, isr_changes=3),
    "everything": replace(SMALL, loss=0.1, deletions=2),
    "another seed": replace(SMALL, seed=5, loss=0.05, restarts=6),
    "older versions": replace(SMALL, seed=2, protocol="2.4", loss=0.05),
    "one replica, so that leaders are lost": replace(SMALL, seed=3, replication=1, restarts=4),
    "one broker": PlannedFleet(
        brokers=1, replication=1, topics=2, partitions=5, failovers=0, zombies=0, restarts=0, loss=0.2
    ),
    "two brokers": PlannedFleet(
        seed=4, brokers=2, replication=2, topics=2, partitions=9, restarts=3, failovers=3, zombies=3
    ),
    "no body twice": replace(SMALL, seed=6, bodies="distinct"),
    "a day and a half": replace(SMALL, seed=7, hours=36.0),
    "holes in the capture": replace(SMALL, seed=9, capture_loss=0.2),
    "holes in the capture, and connections that break": replace(SMALL, seed=10, capture_loss=0.1, loss=0.1, hours=0.01),
    "holes among large bodies": replace(SMALL, seed=11, partitions=700, batch=300, capture_loss=0.2, loss=0.05),
    "large bodies": replace(SMALL, seed=8, partitions=700, batch=300, elections=3, isr_changes=4, loss=0.02),
}


def assert_tables(fleet: PlannedFleet, directory: Path, *, per_host: bool) -> None:
    write_captures(fleet, directory, per_host=per_host)
    found = kproto.tables.read(directory)
    clocks = {row["capture"]: row["reference"] for row in resolved_tables(found)["clocks"].to_pylist()}
    wanted = expected_tables(fleet, per_host=per_host, clocks=clocks)
    assert fleet.capture_loss or not found["bad_inputs"].num_rows  # a host may have lost its only control request
    for name in STORED:
        assert_rows(name, found[name], wanted[name])
    with open_tables(found) as sql:
        for name, derived in DERIVED.items():
            rows = sql.table(name).to_arrow_table().cast(derived.schema)
            assert_rows(name, rows, wanted[name])


CASES = [
    pytest.param(
        fleet, per_host, id=f"{name}, {'per host' if per_host else 'one capture'}",
        marks=[pytest.mark.slow] * (name == "another seed" or "large" in name or (per_host and name != "everything")),
    )
    for name, fleet in FLEETS.items()
    for per_host in (False, True)
]  # fmt: skip


@pytest.mark.parametrize(("fleet", "per_host"), CASES)
def test_all_tables_come_out(tmp_path: Path, fleet: PlannedFleet, per_host: bool) -> None:
    assert_tables(fleet, tmp_path, per_host=per_host)


LATE = PlannedFleet(
    seed=17, brokers=2, topics=2, partitions=32, hours=1.0, restarts=4, elections=9, isr_changes=6, batch=1, zombies=3,
    deletions=1, loss=0.05, replication=2,
)  # fmt: skip
"""Of the updates that both hosts saw, most came late to one."""


@st.composite
def fleets(draw: st.DrawFn) -> PlannedFleet:
    """Small fleets of any kind, also with events so close that the answers to one come after the next."""
    brokers = draw(st.integers(1, 6))
    partitions = draw(st.integers(1, 40))
    failovers = draw(st.integers(0, 3)) if brokers > 1 else 0
    return PlannedFleet(
        seed=draw(st.integers(0, 1000)),
        brokers=brokers,
        topics=draw(st.integers(1, min(partitions, 5))),
        partitions=partitions,
        replication=draw(st.integers(1, min(brokers, 4))),
        hours=draw(st.sampled_from([0.001, 0.05, 1.0, 30.0])),
        failovers=failovers,
        restarts=draw(st.integers(0, 4)) if brokers > 1 else 0,
        elections=draw(st.integers(0, 25)),
        isr_changes=draw(st.integers(0, 15)),
        batch=draw(st.integers(1, 20)),
        zombies=draw(st.integers(0, 3)) if failovers else 0,
        deletions=draw(st.integers(0, 2)),
        loss=draw(st.sampled_from([0.0, 0.05, 0.3])),
        capture_loss=draw(st.sampled_from([0.0, 0.05, 0.3])),
        bodies=draw(st.sampled_from(["fleet", "distinct"])),
        protocol=draw(st.sampled_from(["3.9", "2.4"])),
    )


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fleet=fleets(), per_host=st.booleans())
@example(fleet=LATE, per_host=True)
def test_all_tables_come_out_of_any_fleet(fleet: PlannedFleet, per_host: bool) -> None:
    """Hosts whose captures do not overlap in time are read as rotated files of one: fleets of seconds may be such.

    Hosts of a fleet of distinct bodies share no update; listeners and controllers tell that they are one cluster.
    """
    assume(not per_host or fleet.hours > 0.01)
    with tempfile.TemporaryDirectory() as directory:
        assert_tables(fleet, Path(directory), per_host=per_host)


def test_what_the_capture_misses_is_told_and_nothing_else_changes(tmp_path: Path) -> None:
    holes = FLEETS["holes in the capture"]
    whole = expected_tables(replace(holes, capture_loss=0.0))
    write_captures(holes, tmp_path)
    found = kproto.tables.read(tmp_path)
    there = {row["frame_id"] for row in whole["frames"].to_pylist()}
    here = {row["frame_id"] for row in found["frames"].to_pylist()}
    assert here < there
    (capture,) = found["captures"].to_pylist()
    assert 0 < capture["gaps"] <= len(there - here)
    unmatched = [row for row in found["requests"].to_pylist() if row["response_frame_id"] is None]
    assert {row["unmatched_reason"] is None for row in unmatched} == {False}
    missed_requests = len(there - here) - len(unmatched)
    assert 0 < capture["unmatched_responses"] <= missed_requests


def test_a_fleet_fills_every_table() -> None:
    assert {name for name, table in expected_tables(FLEETS["everything"]).items() if not table.num_rows} == set()


def test_cutting_into_rotated_files_and_small_segments_changes_nothing(tmp_path: Path) -> None:
    fleet = FLEETS["everything"]
    write_captures(fleet, tmp_path, rotate_bytes=20_000, mss=100)
    found = kproto.tables.read(tmp_path)
    wanted = expected_tables(fleet, mss=100)
    for name in STORED:
        assert_rows(name, found[name], wanted[name])


def test_columns_are_those_of_the_tables() -> None:
    schemas = TABLES | {name: derived.schema for name, derived in DERIVED.items()}
    for name, columns in EXPECTED.items():
        unexpected = {("frames", "file"), ("requests", "live_brokers_id")}
        if name in TABLES:
            unexpected.add((name, "cluster"))  # none is declared
        if name == "changes":  # what the fold adds of the state before
            former = ("valid_to", "former_leader", "former_leader_epoch", "former_partition_epoch")
            unexpected |= {(name, each) for each in (*former, "isr_change", "removed", "added")}
        names = [column for column in schemas[name].names if (name, column) not in unexpected]
        assert columns.names == names
        assert columns.types == [schemas[name].field(column).type for column in names]
