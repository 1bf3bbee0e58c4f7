"""Contents of znodes: what Kafka 3.9 wrote is read, what is written is what Kafka writes, and damage is named."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from channel.types import (
    Broker,
    EndPoint,
    LeaderAndIsr,
    LeaderRecoveryState,
    ReplicaAssignment,
    SecurityProtocol,
)
from channel.zookeeper import znodes
from kproto.errors import DecodeError
from kproto.types import TopicPartition

TP = TopicPartition("t", 0)
BROKER = Broker(7, (EndPoint("h", 2, "SSL", SecurityProtocol.SSL), EndPoint("h", 1)), "r")


@pytest.mark.conformance("ZKC-11")
@pytest.mark.parametrize(
    ("ibp", "version", "keys"),
    [
        ("2.7-IV0", 5, {"rack", "listener_security_protocol_map", "features"}),
        ("2.6-IV0", 4, {"rack", "listener_security_protocol_map"}),
        ("0.9.0", 2, set()),
    ],
)
def test_a_registration_depends_on_the_inter_broker_protocol(ibp: str, version: int, keys: set[str]) -> None:
    value = json.loads(znodes.encode_broker(BROKER, ibp, 5))
    assert value["version"] == version
    assert (value["host"], value["port"]) == ("h", 1)  # the first PLAINTEXT endpoint
    assert value["endpoints"] == ["SSL://h:2", "PLAINTEXT://h:1"]
    assert value["timestamp"] == "5"
    assert keys == value.keys() & {"rack", "listener_security_protocol_map", "features"}
    assert value.get("rack", "r") == "r"
    assert value.get("features", {}) == {}


@pytest.mark.conformance("ZKC-11")
def test_a_registration_without_a_plaintext_endpoint_has_no_host() -> None:
    value = json.loads(znodes.encode_broker(BROKER._replace(endpoints=BROKER.endpoints[:1]), "3.9", 5))
    assert (value["host"], value["port"]) == (None, -1)


@pytest.mark.parametrize("ibp", ["3.9", "2.6", "0.9.0"])
def test_registrations_are_read_back(ibp: str) -> None:
    found = znodes.decode_broker(7, znodes.encode_broker(BROKER, ibp, 5))
    assert found == (BROKER if ibp != "0.9.0" else BROKER._replace(rack=None))


def test_registrations_of_other_kinds_are_read() -> None:
    old = b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2233345666"}'
    assert znodes.decode_broker(1, old) == Broker(1, (EndPoint("h", 9092),))
    v6 = b'{"version":5,"endpoints":["CLIENT://[::1]:9"],"listener_security_protocol_map":{"CLIENT":"SASL_SSL"}}'
    assert znodes.decode_broker(1, v6).endpoints == (EndPoint("::1", 9, "CLIENT", SecurityProtocol.SASL_SSL),)


def test_an_ipv6_address_is_written_in_brackets() -> None:
    broker = Broker(1, (EndPoint("::1", 9),))
    data = znodes.encode_broker(broker, "3.9", 0)
    assert json.loads(data)["endpoints"] == ["PLAINTEXT://[::1]:9"]
    assert znodes.decode_broker(1, data) == broker


def test_topics_as_kafka_writes_them() -> None:
    data = (
        b'{"removing_replicas":{"1":[3]},"partitions":{"0":[1,2],"1":[2,1,3]},"topic_id":"q1OIKoPoS9eEHNxaMLi6EQ",'
        b'"adding_replicas":{"1":[2]},"version":3}'
    )
    found = znodes.decode_topic("t", data)
    assert found.partitions == {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1, 3), (2,), (3,))}
    assert found.topic_id is not None
    assert len(found.topic_id) == 16
    assert json.loads(znodes.encode_topic(*found)) == json.loads(data)


def test_topics_before_topic_ids() -> None:
    assert znodes.decode_topic("t", b'{"version":1,"partitions":{"0":[1]}}') == ({0: ReplicaAssignment((1,))}, None)
    assert "topic_id" not in json.loads(znodes.encode_topic({0: ReplicaAssignment((1,))}, None))


def test_partition_states() -> None:
    data = b'{"controller_epoch":3,"leader":0,"version":1,"leader_epoch":4,"isr":[0,1]}'
    found = znodes.decode_partition_state(TP, data, 9)
    assert found == (LeaderAndIsr(0, (0, 1), 4, 9), 3)
    assert znodes.encode_partition_state(*found) == data
    unclean = LeaderAndIsr(1, (1,), 5, 10, LeaderRecoveryState.RECOVERING)
    data = znodes.encode_partition_state(unclean, 3)
    assert json.loads(data)["leader_recovery_state"] == 1
    assert znodes.decode_partition_state(TP, data, 10) == (unclean, 3)


def test_lists_of_partitions_and_reassignments() -> None:
    both = [TP, TopicPartition("u", 4)]
    assert znodes.decode_partitions("/x", znodes.encode_partitions(both)) == both
    targets = {TP: (3, 1), both[1]: (2,)}
    assert znodes.decode_reassignments(znodes.encode_reassignments(targets)) == targets


def test_controller_settings_and_producer_ids() -> None:
    assert znodes.decode_controller(znodes.encode_controller(5, 77)) == (5, -1, 77)
    assert json.loads(znodes.encode_controller(5, 77))["timestamp"] == "77"
    assert znodes.decode_controller(b'{"version":1,"brokerid":4,"timestamp":"1"}') == (4, -1, 1)
    settings = {"retention.ms": "1"}
    assert znodes.decode_config("/config/topics/t", znodes.encode_config(settings)) == settings
    block = znodes.ProducerIdBlock(3, 1000, 1999)
    assert json.loads(znodes.encode_producer_id_block(block))["block_end"] == "1999"
    assert znodes.decode_producer_id_block(znodes.encode_producer_id_block(block)) == block
    assert znodes.decode_log_dir_event("/l", b'{"version":1,"broker":2,"event":1}') == 2


_DECODERS: list[tuple[str, Callable[[bytes], Any]]] = [
    ("/controller", znodes.decode_controller),
    ("/brokers/ids/1", lambda data: znodes.decode_broker(1, data)),
    ("/brokers/topics/t", lambda data: znodes.decode_topic("t", data)),
    ("/brokers/topics/t/partitions/0/state", lambda data: znodes.decode_partition_state(TP, data, 0)),
    ("/x", lambda data: znodes.decode_partitions("/x", data)),
    ("/l", lambda data: znodes.decode_log_dir_event("/l", data)),
    ("/admin/reassign_partitions", znodes.decode_reassignments),
    ("/c", lambda data: znodes.decode_config("/c", data)),
    ("/latest_producer_id_block", znodes.decode_producer_id_block),
]


@pytest.mark.parametrize(("path", "decode"), _DECODERS, ids=[path for path, _ in _DECODERS])
@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", b"[]", b"1", b"null", b"{}", b"[" * 100_000,
        b'{"version":2,"brokerid":"x","endpoints":[3],"partitions":{"a":[0]},"leader":true}',
        b'{"version":5,"endpoints":["A://h:p"],"partitions":[{"topic":1,"partition":"0"}],"config":3,"block_start":[]}',
    ],
)  # fmt: skip
def test_damaged_contents_name_their_znode(path: str, decode: Callable[[bytes], Any], data: bytes) -> None:
    with pytest.raises(DecodeError, match=path):
        decode(data)


def _broker(**changed: Any) -> bytes:
    return json.dumps({"version": 5, "endpoints": ["PLAINTEXT://h:1"], **changed}).encode()


def _topic(partitions: dict[str, Any]) -> bytes:
    return json.dumps({"version": 3, "partitions": partitions}).encode()


def _state(**changed: Any) -> bytes:
    state = {"controller_epoch": 1, "leader": 0, "version": 1, "leader_epoch": 0, "isr": [0], **changed}
    return json.dumps(state).encode()


_BEYOND = 1 << 31


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        *[
            (partial(znodes.decode_broker, 1), _broker(**changed))
            for changed in (
                {"rack": 5}, {"rack": "\ud800"}, {"rack": "r" * 40_000},
                {"endpoints": [f"PLAINTEXT://h:{_BEYOND}"]}, {"endpoints": ["PLAINTEXT://h:-1"]},
                {"endpoints": ["PLAINTEXT://\ud800:1"]}, {"endpoints": [f"PLAINTEXT://{'h' * 40_000}:1"]},
            )
        ],
        *[
            (partial(znodes.decode_topic, "t"), _topic(partitions))
            for partitions in ({str(_BEYOND): [0]}, {"-1": [0]}, {"00": [0]}, {"0": [-1]}, {"0": [1, 1]})
        ],
        *[
            (partial(znodes.decode_partition_state, TopicPartition("t", 0), version=0), _state(**changed))
            for changed in (
                {"leader": _BEYOND}, {"leader_epoch": _BEYOND}, {"isr": [_BEYOND]}, {"controller_epoch": -_BEYOND - 1}
            )
        ],
        *[(znodes.decode_broker_id, name) for name in ("x", "007", "-1", str(_BEYOND), "\u0663")],
    ],
)  # fmt: skip
def test_contents_that_no_request_can_hold_are_damaged(decode: Callable[[Any], Any], data: Any) -> None:
    with pytest.raises(DecodeError, match="holds no contents that Kafka would write there"):
        decode(data)
