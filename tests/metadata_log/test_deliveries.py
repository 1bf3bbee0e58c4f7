"""Snapshots that replicas fetch part by part, as captures show them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kraft_runs import capture, metadata

from kproto.capture import capture_points, exchanges
from kproto.capture.wanted import WantedApis
from kproto.metadata_log.deliveries import APIS, MetadataTraffic
from kproto.metadata_log.files import read
from kproto.metadata_log.finding import LogFiles, find
from kproto.metadata_log.folding import fold
from kproto.reference.fetch_snapshot import (
    FetchSnapshotId,
    FetchSnapshotPartitionResult,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotTopicResult,
)
from kproto.tables.metadata_points import CLIENT

WHOLE = read(find([metadata("kraft-4.1-a", 1000)])[0])
SNAPSHOT = WHOLE.snapshots[-1]
DATA = b"".join(batch.data for batch in SNAPSHOT.batches)


def part(position: int, end: int, topic: str = "__cluster_metadata") -> FetchSnapshotResponse:
    partition = FetchSnapshotPartitionResult(
        snapshot_id=FetchSnapshotId(end_offset=SNAPSHOT.end_offset, epoch=SNAPSHOT.epoch),
        size=len(DATA),
        position=position,
        unaligned_records=DATA[position:end],
    )
    return FetchSnapshotResponse(topics=[FetchSnapshotTopicResult(name=topic, partitions=[partition])])


@given(st.lists(st.integers(1, len(DATA) - 1), max_size=4))
def test_parts_make_the_snapshot_however_they_are_cut(cuts: list[int]) -> None:
    traffic = MetadataTraffic()
    places = sorted({0, *cuts, len(DATA)})
    for begin, end in pairwise(places):
        assert not traffic.snapshots
        traffic.add_snapshot_part(FetchSnapshotRequest(replica_id=7), part(begin, end), "c")
    assert [s.batches for s in traffic.snapshots.values()] == [SNAPSHOT.batches]
    assert fold(read(LogFiles(), traffic.shown())).image.topics


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_snapshot_that_lacks_a_part_is_none(missing: int) -> None:
    traffic = MetadataTraffic()
    third = len(DATA) // 3
    for number, (begin, end) in enumerate([(0, third), (third, 2 * third), (2 * third, len(DATA))]):
        if number != missing:
            traffic.add_snapshot_part(FetchSnapshotRequest(replica_id=7), part(begin, end), "c")
    assert not traffic.snapshots


def test_what_a_replica_had_before_the_capture_has_no_delivery_when_it_is_told_again() -> None:
    (point,) = capture_points([capture("kraft-3.9-a")])
    every = [*exchanges(point, apis=WantedApis(APIS, fetch_client=CLIENT))]
    late = every[len(every) // 2 :]
    once, again = MetadataTraffic(), MetadataTraffic()
    for traffic, told in ((once, late), (again, [*late, *every])):
        for exchange in told:
            traffic.add(exchange, "c")
    assert once.deliveries == again.deliveries != []


def test_a_snapshot_of_another_topic_is_left_alone() -> None:
    traffic = MetadataTraffic()
    traffic.add_snapshot_part(FetchSnapshotRequest(replica_id=7), part(0, len(DATA), topic="orders"), "c")
    assert not traffic.snapshots
