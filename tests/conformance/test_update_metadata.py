"""Conformance rows UMR: UpdateMetadata requests and responses."""

from typing import Any

import pytest

from kproto.api import ApiKey
from kproto.codec import Codec

conformance = pytest.mark.conformance
VERSIONS = pytest.mark.parametrize("version", range(9))
IDS = {"topic0": bytes(range(16)), "topic1": bytes(range(16, 32))}
PLAINTEXT, SSL = 0, 1


def request(codec: Codec, version: int) -> Any:
    """topic0-0 (offline replica 2), topic0-1, topic1-0; broker 0 in a rack with two listeners, broker 1 with one."""

    def state(topic: str, partition: int, offline: list[int]) -> Any:
        return codec.UpdateMetadataPartitionState(
            topic_name=topic,
            partition_index=partition,
            controller_epoch=2,
            leader=partition,
            leader_epoch=10,
            isr=[0, 1],
            zk_version=10,
            replicas=[0, 1, 2],
            offline_replicas=offline,
        )

    def endpoint(protocol: int, port: int) -> Any:
        names = ("PLAINTEXT", "SSL") if version < 3 else ("INSIDE", "OUTSIDE")
        return codec.UpdateMetadataEndpoint(
            host="host", port=port, listener=names[protocol], security_protocol=protocol
        )

    groups = {"topic0": [state("topic0", 0, [2]), state("topic0", 1, [])], "topic1": [state("topic1", 0, [])]}
    fields: dict[str, Any] = {"controller_id": 1, "controller_epoch": 2, "broker_epoch": 3}
    if version < 5:
        fields["ungrouped_partition_states"] = [each for group in groups.values() for each in group]
    else:
        fields["topic_states"] = [
            codec.UpdateMetadataTopicState(topic_name=name, topic_id=IDS[name], partition_states=group)
            for name, group in groups.items()
        ]
    two = [endpoint(PLAINTEXT, 9090)] + ([endpoint(SSL, 9091)] if version >= 1 else [])
    brokers = [
        codec.UpdateMetadataBroker(id=0, v0_host="host", v0_port=9090, endpoints=two, rack="rack0"),
        codec.UpdateMetadataBroker(id=1, v0_host="host", v0_port=9090, endpoints=[endpoint(PLAINTEXT, 9090)], rack=""),
    ]
    return codec.UpdateMetadataRequest(live_brokers=brokers, **fields)


@conformance("UMR-02")
@VERSIONS
def test_umr_02_the_error_response(codec: Codec, version: int) -> None:
    """UMR-02: a code at the top and nothing else."""
    message = codec.decode_request(6, version, codec.encode(codec.UpdateMetadataRequest(), version))
    response = message.error_response(31)
    assert response.to_json(version) == {"errorCode": 31}
    assert response.error_counts() == {31: 1}


@conformance("UMR-03")
@VERSIONS
def test_umr_03_what_each_version_carries(codec: Codec, version: int) -> None:
    """UMR-03."""
    read = codec.decode_request(ApiKey.UPDATE_METADATA, version, codec.encode(request(codec, version), version))
    assert (read.controller_id, read.controller_epoch) == (1, 2)
    assert read.broker_epoch == (3 if version >= 5 else -1)
    rows = list(read.partition_states)
    assert [(row.topic_name, row.partition_index) for row in rows] == [("topic0", 0), ("topic0", 1), ("topic1", 0)]
    for row in rows:
        assert (row.leader, row.leader_epoch, row.zk_version) == (row.partition_index, 10, 10)
        assert (list(row.isr), list(row.replicas)) == ([0, 1], [0, 1, 2])
    assert [list(row.offline_replicas) for row in rows] == [[2] if version >= 4 else [], [], []]
    assert [broker.rack for broker in read.live_brokers] == ["rack0" if version >= 2 else "", ""]
    ids = {name: bytes(held) for name, held in read.topic_ids.items() if any(held)}
    assert ids == (IDS if version >= 7 else {})


@conformance("UMR-03")
@VERSIONS
def test_umr_03_every_endpoint_has_its_listener(codec: Codec, version: int) -> None:
    """UMR-03: below v3 the security protocol's name, v0's host and port as a PLAINTEXT endpoint, racks from v2."""
    read = codec.decode_request(ApiKey.UPDATE_METADATA, version, codec.encode(request(codec, version), version))
    before = codec.encode(read, version)
    names = ("PLAINTEXT", "SSL") if version < 3 else ("INSIDE", "OUTSIDE")
    expected = [(PLAINTEXT, "host", 9090, names[0]), (SSL, "host", 9091, names[1])]
    found = {
        broker: ([(e.security_protocol, e.host, e.port, e.listener) for e in endpoints], rack)
        for broker, endpoints, rack in read.broker_endpoints
    }
    assert found == {
        0: (expected[: 1 if version == 0 else 2], "rack0" if version >= 2 else ""),
        1: (expected[:1], ""),
    }
    assert codec.encode(read, version) == before  # reading it so changed nothing of the message
