"""Conformance rows LIR: LeaderAndIsr requests and responses."""

from typing import Any

import pytest

from kproto.api import ApiKey
from kproto.codec import Codec

conformance = pytest.mark.conformance
VERSIONS = pytest.mark.parametrize("version", range(8))
IDS = {"topic0": bytes(range(16)), "topic1": bytes(range(16, 32))}


def state(codec: Codec, topic: str, partition: int) -> Any:
    return codec.LeaderAndIsrPartitionState(
        topic_name=topic,
        partition_index=partition,
        controller_epoch=2,
        leader=partition,
        leader_epoch=10 + partition,
        isr=[0, 1],
        partition_epoch=10,
        replicas=[0, 1, 2],
        adding_replicas=[3],
        removing_replicas=[2],
    )


def request(codec: Codec, version: int) -> Any:
    """topic0-0, topic0-1 and topic1-0, flat or grouped as the version wants it."""
    fields: dict[str, Any] = {"controller_id": 1, "controller_epoch": 2, "broker_epoch": 3}
    groups = {"topic0": [state(codec, "topic0", 0), state(codec, "topic0", 1)], "topic1": [state(codec, "topic1", 0)]}
    if version < 2:
        fields["ungrouped_partition_states"] = [each for group in groups.values() for each in group]
    else:
        fields["topic_states"] = [
            codec.LeaderAndIsrTopicState(topic_name=name, topic_id=IDS[name], partition_states=group)
            for name, group in groups.items()
        ]
    leaders = [codec.LeaderAndIsrLiveLeader(broker_id=i, host_name=f"host{i}", port=9090 + i) for i in (0, 1)]
    return codec.LeaderAndIsrRequest(live_leaders=leaders, **fields)


@conformance("LIR-03")
@VERSIONS
def test_lir_03_what_each_version_carries(codec: Codec, version: int) -> None:
    """LIR-03."""
    built = request(codec, version)
    assert built.broker_epoch == 3
    read = codec.decode_request(ApiKey.LEADER_AND_ISR, version, codec.encode(built, version))
    assert read.broker_epoch == (3 if version >= 2 else -1)
    rows = list(read.partition_states)
    assert [(row.topic_name, row.partition_index) for row in rows] == [("topic0", 0), ("topic0", 1), ("topic1", 0)]
    for row in rows:
        assert (row.controller_epoch, row.leader) == (2, row.partition_index)
        assert (row.leader_epoch, row.partition_epoch) == (10 + row.partition_index, 10)
        assert (list(row.isr), list(row.replicas)) == ([0, 1], [0, 1, 2])
        assert list(row.adding_replicas) == ([3] if version >= 3 else [])
        assert list(row.removing_replicas) == ([2] if version >= 3 else [])
    assert [(each.broker_id, each.host_name, each.port) for each in read.live_leaders] == [
        (0, "host0", 9090),
        (1, "host1", 9091),
    ]
    ids = {name: bytes(held) for name, held in read.topic_ids.items()}
    assert ids == ({} if version < 2 else dict.fromkeys(IDS, bytes(16)) if version < 5 else IDS)


@conformance("LIR-05")
@VERSIONS
def test_lir_05_the_error_response_counts_and_names_what_was_asked_for(codec: Codec, version: int) -> None:
    """LIR-05: by topic name below version 5, by topic id from then on; readable at the version of the request."""
    read = codec.decode_request(ApiKey.LEADER_AND_ISR, version, codec.encode(request(codec, version), version))
    written = codec.encode(read.error_response(11), version)
    response = codec.decode_response(ApiKey.LEADER_AND_ISR, version, written)
    assert response.error_code == 11
    assert response.error_counts() == {11: 4}
    if version < 5:
        found = [(each.topic_name, each.partition_index, each.error_code) for each in response.partition_errors]
        assert found == [("topic0", 0, 11), ("topic0", 1, 11), ("topic1", 0, 11)]
    else:
        assert [bytes(topic.topic_id) for topic in response.topics] == list(IDS.values())
        found = [[(each.partition_index, each.error_code) for each in t.partition_errors] for t in response.topics]
        assert found == [[(0, 11), (1, 11)], [(0, 11)]]


@conformance("LIR-06", "LIR-07")
@VERSIONS
@pytest.mark.parametrize(("top", "code", "counts"), [(-1, 6, {-1: 3}), (0, 31, {0: 2, 31: 1})])
def test_lir_06_and_07_a_top_level_error_counts_for_all_and_without_one_each_partition(
    codec: Codec, version: int, top: int, code: int, counts: dict[int, int]
) -> None:
    """LIR-06: the partitions' own codes are not counted. LIR-07: the top level is one NONE."""
    errors = [
        codec.LeaderAndIsrPartitionError(topic_name="foo", partition_index=i, error_code=c)
        for i, c in enumerate((0, code))
    ]
    if version < 5:
        built = codec.LeaderAndIsrResponse(error_code=top, partition_errors=errors)
    else:
        topics = [codec.LeaderAndIsrTopicError(topic_id=IDS["topic0"], partition_errors=errors)]
        built = codec.LeaderAndIsrResponse(error_code=top, topics=topics)
    read = codec.decode_response(ApiKey.LEADER_AND_ISR, version, codec.encode(built, version))
    assert read.error_counts() == counts
