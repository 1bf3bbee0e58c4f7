"""Uses of the public API with the types they have: ``make lint`` checks them with mypy and pyright, both strict.

``assert_type`` fails where a result is wider or another than it says; a use that is no longer allowed fails by itself.
The tests run the file too, so that no type here is a promise that the code does not keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import kproto
from channel import Broker, ControllerChannelManager, EmbeddedCluster, EndPoint
from kproto import ApiKey, DecodeError, UpdateMetadataRequest
from kproto.codec import Message, decode_request_from, decode_response_from, message_class
from kproto.columns import Columns, ColumnsBuilder, decode_columns, encode_columns
from kproto.fanout import Fanout
from kproto.framing import FrameSplitter, frame
from kproto.headers import (
    decode_request_header,
    decode_request_header_from,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header,
    response_header,
)
from kproto.messages import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
    RequestHeader,
    ResponseHeader,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from kproto.types import Json, RawTag, Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence


def build() -> UpdateMetadataRequest:
    """A request of every class that it has, from keywords."""
    row = UpdateMetadataPartitionState(partition_index=0, leader=1, leader_epoch=3, isr=[1, 2], replicas=range(1, 4))
    topic = UpdateMetadataTopicState(topic_name="orders", topic_id=bytes(range(16)), partition_states=[row])
    endpoint = UpdateMetadataEndpoint(host="broker-1", port=9092, listener="PLAINTEXT")
    broker = UpdateMetadataBroker(id=1, endpoints=[endpoint], rack=None)
    return UpdateMetadataRequest(controller_id=1, controller_epoch=2, topic_states=[topic], live_brokers=[broker])


def fields(request: UpdateMetadataRequest) -> None:
    """Fields and rows have the protocol's types."""
    assert_type(request.controller_epoch, int)
    assert_type(request.is_kraft_controller, bool)
    assert_type(request.topic_states, list[UpdateMetadataTopicState])
    assert_type(request.topic_states[0].topic_id, bytes)
    assert_type(request.topic_states[0].partition_states[0].isr, tuple[int, ...])
    assert_type(request.partition_states, tuple[UpdateMetadataPartitionState, ...])
    assert_type(request.topic_ids, dict[str, Uuid])
    assert_type(request.live_brokers[0].rack, str | None)
    assert_type(request.unknown_tagged_fields, tuple[RawTag, ...])
    assert_type(request.error_response(11), UpdateMetadataResponse)
    assert_type(request.to_json(8), Json)
    assert_type(UpdateMetadataRequest.from_json(request.to_json(8), 8), UpdateMetadataRequest)
    assert_type(request.for_version(5), UpdateMetadataRequest)


def typed_answers() -> None:
    """What the other APIs decode to is known, with the types of its fields."""
    broker = MetadataResponseBroker(node_id=1, host="broker-1", port=9092)
    body = kproto.encode(MetadataResponse(brokers=[broker], topics=[MetadataResponseTopic(name="orders")]), 12)
    metadata = kproto.decode_response(ApiKey.METADATA, 12, body)
    assert_type(metadata, MetadataResponse)
    assert_type(metadata.brokers, list[MetadataResponseBroker])
    assert_type(metadata.brokers[0].rack, str | None)
    assert_type(metadata.topics[0].name, str | None)
    assert_type(metadata.controller_id, int)
    assert_type(metadata.for_version(9), MetadataResponse)
    asked = kproto.encode(MetadataRequest(topics=None), 12)
    assert_type(decode_request_from(3, 12, asked), tuple[MetadataRequest, int])
    assert_type(message_class(ApiKey.METADATA, "response"), type[MetadataResponse])


def decode(body: bytes) -> None:
    """The API key decides on the class, in both directions and by number too."""
    assert_type(kproto.decode_request(ApiKey.UPDATE_METADATA, 8, body), UpdateMetadataRequest)
    assert_type(kproto.decode_request(6, 8, memoryview(body)), UpdateMetadataRequest)
    assert_type(decode_request_from(ApiKey.UPDATE_METADATA, 8, body), tuple[UpdateMetadataRequest, int])
    assert_type(message_class(ApiKey.UPDATE_METADATA, "request"), type[UpdateMetadataRequest])
    error = bytes(2)
    assert_type(kproto.decode_response(ApiKey.UPDATE_METADATA, 0, error), UpdateMetadataResponse)
    assert_type(decode_response_from(ApiKey.UPDATE_METADATA, 0, error), tuple[UpdateMetadataResponse, int])
    assert_type(message_class(ApiKey.UPDATE_METADATA, "response"), type[UpdateMetadataResponse])

    leadership = LeaderAndIsrRequest(
        topic_states=[
            LeaderAndIsrTopicState(topic_name="orders", partition_states=[LeaderAndIsrPartitionState(leader=1)])
        ]
    )
    written = kproto.encode(leadership, 7)
    assert_type(kproto.decode_request(ApiKey.LEADER_AND_ISR, 7, written, strict=True), LeaderAndIsrRequest)
    assert_type(leadership.partition_states, tuple[LeaderAndIsrPartitionState, ...])
    assert_type(message_class(ApiKey.LEADER_AND_ISR, "response"), type[LeaderAndIsrResponse])
    answer = kproto.decode_response(ApiKey.LEADER_AND_ISR, 7, kproto.encode(leadership.error_response(11), 7))
    assert_type(answer, LeaderAndIsrResponse)
    assert_type(answer.error_counts(), dict[int, int])
    assert_type(
        [error for topic in answer.topics for error in topic.partition_errors], list[LeaderAndIsrPartitionError]
    )

    stop = StopReplicaRequest(controller_id=1)
    assert_type(kproto.decode_request(ApiKey.STOP_REPLICA, 4, kproto.encode(stop, 4)), StopReplicaRequest)
    assert_type(stop.partition_states, tuple[StopReplicaState, ...])
    assert_type(kproto.decode_response(ApiKey.STOP_REPLICA, 4, bytes.fromhex("000b0100")), StopReplicaResponse)


def decode_any(api_key: int, version: int, body: bytes) -> Message | None:
    """Where the key is known at run time only, a message is what all messages can do."""
    try:
        message: Message = kproto.decode_request(api_key, version, body)
    except DecodeError as e:
        assert_type(e.offset, int | None)
        assert_type(e.path, str)
        return None
    assert_type(message.api_key, int)
    assert_type(message.to_json(version), Json)
    return message


def other_apis() -> None:
    """Messages of the other APIs come from the same place."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    assert_type(kproto.encode(request, 12), bytes)
    assert_type(MetadataRequest.from_json(request.to_json(12), 12), MetadataRequest)


def headers(body: bytes) -> None:
    """A payload: header and body, and the frame around it."""
    header = request_header(ApiKey.UPDATE_METADATA, 8, correlation_id=7, client_id=None)
    assert_type(header, RequestHeader)
    payload = encode_request_header(header) + body
    assert_type(decode_request_header_from(payload), tuple[RequestHeader, int])
    assert_type(decode_request_header(payload).client_id, str | None)
    assert_type(response_header(7), ResponseHeader)
    assert_type(decode_response_header(encode_response_header(response_header(7), 1), 1).correlation_id, int)
    assert_type(list(FrameSplitter().feed(frame(payload))), list[bytes])
    shared = Fanout(build(), 8, client_id="1")
    assert_type(shared.buffers(7, broker_epoch=25), list[bytes | memoryview])


def columns(body: bytes) -> None:
    """The same rows as Arrow columns."""
    decoded = decode_columns(ApiKey.UPDATE_METADATA, 8, body)
    assert_type(decoded, Columns)
    assert_type(decoded.names, tuple[str, ...])
    assert_type(encode_columns(UpdateMetadataRequest(), 8, decoded), bytes)
    rows: dict[str, Sequence[Any]] = {"topic": ["orders", "orders"], "partition": [0, 1], "isr": [[1, 2], [2]]}
    assert_type(encode_columns(LeaderAndIsrRequest(), 7, rows), bytes)
    assert_type(UpdateMetadataRequest.from_columns(rows, 8), UpdateMetadataRequest)
    builder = ColumnsBuilder(ApiKey.UPDATE_METADATA)
    assert_type(builder.append(8, body), int)
    assert_type(builder.finish(), Columns)


def callbacks() -> None:
    """A control request's callback takes its response."""
    codes: list[int] = []

    def stopped(response: StopReplicaResponse) -> None:
        codes.append(response.error_code)

    with EmbeddedCluster(1) as cluster, ControllerChannelManager(9, lambda: 1) as manager:
        assert_type(cluster, EmbeddedCluster)
        manager.add_broker(Broker(0, (EndPoint(cluster[0].host, cluster[0].port),)))
        request = StopReplicaRequest(controller_id=9, controller_epoch=1, broker_epoch=cluster[0].epoch)
        manager.send_request(0, request, stopped)
        manager.send_request(0, UpdateMetadataRequest(), stopped)  # type: ignore[arg-type]  # pyright: ignore


def main() -> None:
    """Run every use."""
    request = build()
    body = kproto.encode(request, 8)
    fields(request)
    decode(body)
    assert isinstance(decode_any(6, 8, body), Message)
    assert decode_any(6, 8, body[:-1]) is None
    other_apis()
    typed_answers()
    callbacks()
    headers(body)
    columns(body)
    unknown: Any = kproto.decode_request(ApiKey.API_VERSIONS, 0, b"")
    assert unknown.api_key == ApiKey.API_VERSIONS


if __name__ == "__main__":
    main()
