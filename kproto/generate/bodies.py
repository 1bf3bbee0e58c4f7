"""Encodes the bodies of a fleet's requests and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kproto import codec
from kproto.api import ApiKey, request_header_version, response_header_version
from kproto.columns import encode_columns
from kproto.fanout import SharedBody
from kproto.headers import encode_request_header, encode_response_header, request_header, response_header
from kproto.messages import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

if TYPE_CHECKING:
    from .content import Content

_LISTENER: Final = "PLAINTEXT"
_RACKS: Final = 3
_FLAG_OF_PARTITIONS: Final = 3
"""From this version on StopReplica has the flag for deletion in each partition; before, one flag for all."""


def shared_body(content: Content) -> SharedBody:
    """Return the body of a request, encoded at the first call; each broker's epoch is put in when it is sent."""
    if content.encoded is None:
        content.encoded = SharedBody(content.api_key, content.version, [_encode_request(content)])
    return content.encoded


def _encode_request(content: Content) -> bytes:
    fleet, controller, rows = content.fleet, content.controller, content.rows
    sender: dict[str, Any] = {
        "controller_id": controller.id, "controller_epoch": controller.epoch, "broker_epoch": 0,
        "is_kraft_controller": controller.is_kraft_controller,
    }  # fmt: skip
    if content.request_type:
        sender["type"] = content.request_type
    message: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
    match content.api_key:
        case ApiKey.LEADER_AND_ISR:
            leaders = sorted(set(rows["leader"]).intersection(content.live))
            message = LeaderAndIsrRequest(
                **sender,
                live_leaders=[
                    LeaderAndIsrLiveLeader(broker_id=b, host_name=fleet.address(b).ip, port=fleet.address(b).port)
                    for b in leaders
                ],
            )
        case ApiKey.STOP_REPLICA:
            whole = content.version < _FLAG_OF_PARTITIONS and rows["delete_partition"][0]
            message = StopReplicaRequest(**sender, delete_partitions=whole)
        case _:
            message = UpdateMetadataRequest(**sender, live_brokers=[_live_broker(content, b) for b in content.live])
    return encode_columns(message, content.version, rows)


def _live_broker(content: Content, broker: int) -> UpdateMetadataBroker:
    ip, port = content.fleet.address(broker)
    endpoints = [UpdateMetadataEndpoint(port=port, host=ip, listener=_LISTENER, security_protocol=0)]
    if content.external is not None and broker in content.external:
        host, other = content.external[broker]
        endpoints.append(UpdateMetadataEndpoint(port=other, host=host, listener="EXTERNAL", security_protocol=0))
    return UpdateMetadataBroker(id=broker, endpoints=endpoints, rack=f"rack-{broker % _RACKS}")


def encode_response(content: Content) -> bytes:
    """Encode the body of a broker's response."""
    return codec.encode(_response(content), content.version)


def _response(content: Content) -> Any:
    rows, code, partition_code = content.rows, content.error_code, content.partition_error
    if content.api_key == ApiKey.UPDATE_METADATA:
        return UpdateMetadataResponse(error_code=code)
    if content.api_key == ApiKey.LEADER_AND_ISR and content.fleet.has_topic_ids:
        by_topic: dict[bytes, list[LeaderAndIsrPartitionError]] = {}
        for topic_id, index in zip(rows["topic_id"], rows["partition"], strict=True):
            error = LeaderAndIsrPartitionError(partition_index=index, error_code=partition_code)
            by_topic.setdefault(topic_id, []).append(error)
        topics = [LeaderAndIsrTopicError(topic_id=each, partition_errors=some) for each, some in by_topic.items()]
        return LeaderAndIsrResponse(error_code=code, topics=topics)
    answers: tuple[Any, Any] = LeaderAndIsrResponse, LeaderAndIsrPartitionError
    if content.api_key == ApiKey.STOP_REPLICA:
        answers = StopReplicaResponse, StopReplicaPartitionError
    response, error_of = answers
    return response(
        error_code=code,
        partition_errors=[
            error_of(topic_name=topic, partition_index=index, error_code=partition_code)
            for topic, index in zip(rows["topic"], rows["partition"], strict=True)
        ],
    )


def request_head(content: Content, correlation_id: int) -> bytes:
    """Encode the header of a request."""
    header = request_header(content.api_key, content.version, correlation_id, str(content.controller.id))
    return encode_request_header(header, request_header_version(content.api_key, content.version))


def response_head(content: Content, correlation_id: int) -> bytes:
    """Encode the header of a response."""
    return encode_response_header(
        response_header(correlation_id), response_header_version(content.api_key, content.version)
    )
