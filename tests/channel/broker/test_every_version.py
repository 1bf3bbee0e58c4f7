"""Every version of every API that an embedded broker announces is answered, in each of its modes."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

import crc32c
import pytest

from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import Interception
from channel.broker.records import RecordConfig
from channel.rehearsal.scripted_controller import ScriptedController
from kproto import codec, headers, messages
from kproto.api import CONTROL_APIS, ApiKey, response_header_version
from kproto.error_codes import ErrorCode
from kproto.framing import FrameSplitter, frame

MODES: dict[str, dict[str, Any]] = {
    "control plane": {},
    "records": {"records": RecordConfig()},
    "migration": {"kraft": True},
}
LEADERS = {"led from outside": 100, "led by a broker": 0}
REFUSED = ErrorCode.UNKNOWN_SERVER_ERROR


class Client:
    """A client that asks one broker, one request after the other."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        member = cluster[0]
        self._socket = socket.create_connection((member.host, member.port), timeout=60)
        self._frames = FrameSplitter()
        self._count = 0

    def ask(self, request: Any, version: int) -> Any:
        self._count += 1
        key = request.api_key
        header = headers.encode_request_header(headers.request_header(key, version, self._count, "test"))
        self._socket.sendall(frame(header + codec.encode(request, version)))
        answer = None
        while answer is None:
            data = self._socket.recv(1 << 16)
            assert data, f"{ApiKey(key).name} {version}: the broker has closed the connection"
            answer = next(iter(self._frames.feed(data)), None)
        found, at = headers.decode_response_header_from(answer, response_header_version(key, version))
        assert found.correlation_id == self._count
        return codec.decode_response(key, version, memoryview(answer)[at:])

    def close(self) -> None:
        self._socket.close()


def batch() -> bytes:
    covered = struct.pack(">hiqqqhii", 0, 0, 5, 5, -1, -1, -1, 1) + bytes(10)
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c.crc32c(covered)) + covered


def request(key: ApiKey, version: int, topic: str) -> Any:
    """A request that has something to say in each version."""
    match key:
        case ApiKey.PRODUCE:
            part = messages.PartitionProduceData(index=0, records=batch())
            data = [messages.TopicProduceData(name=topic, partition_data=[part])]
            return messages.ProduceRequest(acks=1, timeout_ms=100, topic_data=data)
        case ApiKey.FETCH:
            part = messages.FetchPartition(fetch_offset=0, partition_max_bytes=1000)
            return messages.FetchRequest(max_wait_ms=0, topics=[messages.FetchTopic(topic=topic, partitions=[part])])
        case ApiKey.LIST_OFFSETS:
            parts = [messages.ListOffsetsPartition(partition_index=0, timestamp=t) for t in (-1, -2, 0)]
            return messages.ListOffsetsRequest(
                replica_id=-1, topics=[messages.ListOffsetsTopic(name=topic, partitions=[each]) for each in parts]
            )
        case ApiKey.METADATA:
            return messages.MetadataRequest(topics=[messages.MetadataRequestTopic(name=topic)])
        case ApiKey.FIND_COORDINATOR:
            keys = {"coordinator_keys": ["group"]} if version >= 4 else {"key": "group"}
            return messages.FindCoordinatorRequest(**keys)
        case ApiKey.JOIN_GROUP:
            return messages.JoinGroupRequest(group_id="group", protocol_type="consumer")
        case ApiKey.API_VERSIONS:
            return messages.ApiVersionsRequest(client_software_name="test", client_software_version="1")
        case ApiKey.CREATE_TOPICS:
            new = messages.CreatableTopic(name=f"new-{version}", num_partitions=1, replication_factor=1)
            return messages.CreateTopicsRequest(topics=[new])
        case ApiKey.DELETE_TOPICS:
            if version >= 6:
                return messages.DeleteTopicsRequest(topics=[messages.DeleteTopicState(name="nothing")])
            return messages.DeleteTopicsRequest(topic_names=["nothing"])
        case ApiKey.CREATE_PARTITIONS:
            more = messages.CreatePartitionsTopic(name=topic, count=1, assignments=None)
            return messages.CreatePartitionsRequest(topics=[more])
        case ApiKey.DESCRIBE_CONFIGS:
            of = [messages.DescribeConfigsResource(resource_type=kind, resource_name="0") for kind in (2, 4)]
            return messages.DescribeConfigsRequest(resources=of)
        case ApiKey.INIT_PRODUCER_ID:
            return messages.InitProducerIdRequest(transactional_id=None)
    return codec.message_class(key, "request")()


def announced(client: Client) -> dict[ApiKey, range]:
    """The versions of each API, as ApiVersions names them."""
    found = client.ask(request(ApiKey.API_VERSIONS, 3, ""), 3).api_keys
    return {ApiKey(each.api_key): range(each.min_version, each.max_version + 1) for each in found}


@contextlib.contextmanager
def broker(mode: str, led: str) -> Iterator[tuple[EmbeddedCluster, Client]]:
    with (
        EmbeddedCluster(2, **MODES[mode]) as cluster,
        ScriptedController(cluster, controller_id=LEADERS[led]) as controller,
    ):
        controller.create_topic("orders", assignment=[[0]])
        controller.wait_all()
        client = Client(cluster)
        yield cluster, client
        client.close()


@pytest.mark.parametrize("led", LEADERS)
@pytest.mark.parametrize("mode", MODES)
def test_every_announced_version_is_answered(mode: str, led: str) -> None:
    with broker(mode, led) as (_, client):
        versions = announced(client)
        assert versions.keys() >= {ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.FIND_COORDINATOR}
        assert (ApiKey.CREATE_TOPICS in versions) == (led == "led by a broker")
        for key, of_key in versions.items():
            for version in of_key:
                for topic in ("orders", "nothing"):
                    client.ask(request(key, version, topic), version)


@pytest.mark.parametrize("led", LEADERS)
def test_an_interception_may_answer_any_version_of_any_announced_api_with_an_error(led: str) -> None:
    with broker("records", led) as (cluster, client):
        versions = announced(client)
        cluster[0].intercept(Interception(error=REFUSED))
        for key, of_key in versions.items():
            for version in of_key:
                if key in CONTROL_APIS:
                    continue  # its requests, without a partition, have the error on the top level; see test_cluster
                answer = client.ask(request(key, version, "orders"), version)
                assert f"{answer.to_json(version)}".count(f"'errorCode': {REFUSED}") >= 1, (key, version)
        cluster[0].hooks.intercept = None
        assert client.ask(request(ApiKey.API_VERSIONS, 3, ""), 3).error_code == 0


def test_a_broker_that_led_a_partition_lists_its_offsets_in_each_version() -> None:
    with broker("records", "led from outside") as (_, client):
        client.ask(request(ApiKey.PRODUCE, 9, "orders"), 9)
        for version in announced(client)[ApiKey.LIST_OFFSETS]:
            answer = client.ask(request(ApiKey.LIST_OFFSETS, version, "orders"), version)
            found = [topic.partitions[0] for topic in answer.topics]
            assert [(each.error_code, each.offset) for each in found] == [(0, 1), (0, 0), (0, 0)]
            assert {each.leader_epoch for each in found} == ({0} if version >= 4 else {-1})
