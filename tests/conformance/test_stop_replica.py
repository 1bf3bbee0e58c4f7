"""Conformance rows SRR: StopReplica requests and responses."""

from typing import Any

import pytest

from kproto.api import ApiKey
from kproto.codec import Codec

conformance = pytest.mark.conformance
VERSIONS = pytest.mark.parametrize("version", range(5))
GROUPS = [("topic0", [(0, 0), (1, 1)]), ("topic1", [(0, 2)]), ("topic1", [(1, 3)]), ("topic2", [(0, -2), (1, -2)])]
"""Six partitions with their leader epochs; topic1 comes in two groups."""
FLAT = {(topic, partition): epoch for topic, group in GROUPS for partition, epoch in group}


def request(codec: Codec, version: int) -> Any:
    if version == 0:
        flat = [codec.StopReplicaPartitionV0(topic_name=t, partition_index=p) for t, p in FLAT]
        return codec.StopReplicaRequest(delete_partitions=True, ungrouped_partitions=flat)
    if version < 3:
        topics = [codec.StopReplicaTopicV1(name=t, partition_indexes=[p for p, _ in group]) for t, group in GROUPS]
        return codec.StopReplicaRequest(delete_partitions=True, topics=topics)
    states = [
        codec.StopReplicaTopicState(
            topic_name=topic,
            partition_states=[
                codec.StopReplicaPartitionState(partition_index=p, leader_epoch=e, delete_partition=True)
                for p, e in group
            ],
        )
        for topic, group in GROUPS
    ]
    return codec.StopReplicaRequest(topic_states=states)


def read(codec: Codec, version: int) -> Any:
    return codec.decode_request(ApiKey.STOP_REPLICA, version, codec.encode(request(codec, version), version))


@conformance("SRR-05", "SRR-06")
@VERSIONS
def test_srr_05_and_06_partitions_whatever_the_version(codec: Codec, version: int) -> None:
    """SRR-05, SRR-06: delete is true in all, epochs as given from v3 and -1 before, groups of a topic merged."""
    message = read(codec, version)
    rows = list(message.partition_states)
    assert len(rows) == 6
    assert {(row.topic_name, row.partition_index): row.leader_epoch for row in rows} == (
        FLAT if version >= 3 else dict.fromkeys(FLAT, -1)
    )
    assert all(row.delete_partition for row in rows)


@conformance("SRR-06")
def test_srr_06_a_partition_named_twice_counts_once(codec: Codec) -> None:
    """SRR-06: merged by topic and partition; the last one told wins, in the place of the first."""

    def topic(epoch: int) -> Any:
        state = codec.StopReplicaPartitionState(partition_index=1, leader_epoch=epoch, delete_partition=epoch == 9)
        return codec.StopReplicaTopicState(topic_name="t", partition_states=[state])

    message = codec.StopReplicaRequest(topic_states=[topic(5), topic(9)])
    message = codec.decode_request(ApiKey.STOP_REPLICA, 4, codec.encode(message, 4))
    assert len(message.topic_states) == 2  # the wire's own fields stay as they were
    (row,) = message.partition_states
    assert (row.topic_name, row.partition_index, row.leader_epoch, row.delete_partition) == ("t", 1, 9, True)


@conformance("SRR-07")
@VERSIONS
def test_srr_07_the_error_response(codec: Codec, version: int) -> None:
    """SRR-07: the code at the top and for each partition, by name."""
    answer = read(codec, version).error_response(31)
    assert answer.error_counts() == {31: 7}
    answer = codec.decode_response(ApiKey.STOP_REPLICA, version, codec.encode(answer, version))
    found = {(each.topic_name, each.partition_index, each.error_code) for each in answer.partition_errors}
    assert found == {(topic, partition, 31) for topic, partition in FLAT}


@conformance("SRR-09")
@VERSIONS
@pytest.mark.parametrize(("top", "code", "counts"), [(77, 6, {77: 3}), (0, 31, {0: 2, 31: 1})])
def test_srr_09_a_top_level_error_counts_for_all_and_without_one_each_partition(
    codec: Codec, version: int, top: int, code: int, counts: dict[int, int]
) -> None:
    """SRR-09: one NONE for the top."""
    errors = [
        codec.StopReplicaPartitionError(topic_name="foo", partition_index=i, error_code=c)
        for i, c in enumerate((0, code))
    ]
    written = codec.encode(codec.StopReplicaResponse(error_code=top, partition_errors=errors), version)
    assert codec.decode_response(ApiKey.STOP_REPLICA, version, written).error_counts() == counts
