"""Generated frames are those of the capture, and no part of them depends on which others are asked for."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from expected_tables import expected_tables

from kproto.generate import PlannedFleet
from kproto.generate.frames import frames
from kproto.generate.schedule import Schedule

SMALL = PlannedFleet(brokers=4, topics=3, partitions=30, isr_changes=20, elections=5, failovers=2, loss=0.1)
HOLES = replace(SMALL, seed=3, capture_loss=0.2)


def rows(fleet: PlannedFleet, events: range, batch_bytes: int = 1 << 20) -> list[dict[str, object]]:
    return [row for batch in frames(fleet, events, batch_bytes=batch_bytes) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "fleet", [SMALL, replace(SMALL, seed=2, bodies="distinct"), HOLES], ids=["fleet", "distinct", "holes"]
)
def test_any_part_is_the_same_alone(fleet: PlannedFleet) -> None:
    events = range(len(Schedule(fleet)))
    whole = rows(fleet, events)
    assert [row for event in events for row in rows(fleet, range(event, event + 1))] == whole
    assert rows(fleet, events[:7]) + rows(fleet, events[7:]) == whole
    assert rows(fleet, events, batch_bytes=1) == whole


@pytest.mark.parametrize("fleet", [SMALL, HOLES], ids=["fleet", "holes"])
def test_frames_are_those_of_the_capture(fleet: PlannedFleet) -> None:
    wanted = expected_tables(fleet)
    found = pa.Table.from_batches(frames(fleet, range(len(Schedule(fleet)))))
    names = [name for name in wanted["frames"].column_names if name != "frame_id"]

    def values(table: pa.Table) -> list[str]:
        return sorted(map(repr, table.select(names).to_pylist()))

    whole = found.filter(pc.is_valid(found["frame_id"]))
    assert values(whole) == values(wanted["frames"])
    bodies = {row["body_id"]: row["payload"] for row in wanted["bodies"].to_pylist()}
    given = whole.filter(pc.is_valid(whole["payload"])).to_pylist()
    assert {row["body_id"]: row["payload"] for row in reversed(given)}.keys() == bodies.keys()
    lost = found.filter(pc.is_null(found["frame_id"]))
    unanswered = sum(row["response_frame_id"] is None for row in wanted["requests"].to_pylist())
    assert lost.num_rows == unanswered > 0
    assert len(set(whole["frame_id"].to_pylist())) == whole.num_rows


def test_ids_join_responses_to_requests() -> None:
    found = rows(SMALL, range(len(Schedule(SMALL))))
    requests = {row["frame_id"]: row for row in found if row["direction"] == "request"}
    for row in found:
        if row["direction"] == "response":
            request = requests[row["request_frame_id"]]
            assert (request["conn_id"], request["correlation_id"]) == (row["conn_id"], row["correlation_id"])


def test_a_connection_never_carries_two_requests_with_one_id() -> None:
    found = [row for row in rows(SMALL, range(len(Schedule(SMALL)))) if row["direction"] == "request"]
    assert len({(row["conn_id"], row["correlation_id"]) for row in found}) == len(found)
