"""StopReplica (5): the partitions that this broker has to stop, and perhaps to delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel.broker.replicas import Refused
from kproto.error_codes import ErrorCode
from kproto.messages import StopReplicaPartitionError, StopReplicaResponse
from kproto.types import TopicPartition

from .checks import refusal

if TYPE_CHECKING:
    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext

__all__ = ["handle"]

_COORDINATOR_TOPICS = ("__consumer_offsets", "__transaction_state")


def handle(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer 0 with a code for each partition; 77 and 11 stand on the top level alone, 31 on every partition too."""
    code = refusal(broker, context, request)
    if code is not None:
        return (
            StopReplicaResponse(error_code=code)
            if code == ErrorCode.STALE_BROKER_EPOCH
            else request.error_response(code)
        )
    partitions = request.partition_states
    try:
        codes = broker.replicas.stop_replicas(context.correlation_id, request, partitions)
    except Refused as e:
        return StopReplicaResponse(error_code=e.code)
    resigned = broker.hooks.resigned
    if resigned is not None:
        for p in partitions:
            stopped = codes[TopicPartition(p.topic_name, p.partition_index)] == ErrorCode.NONE
            if stopped and p.topic_name in _COORDINATOR_TOPICS and p.delete_partition:
                resigned(p.topic_name, p.partition_index, p.leader_epoch if p.leader_epoch >= 0 else None)
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
            for tp, code in codes.items()
        ]
    )
