"""LeaderAndIsr (4): the partitions that this broker has to lead or follow, with their replicas and epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel.broker.replicas import Refused
from kproto.messages import LeaderAndIsrPartitionError, LeaderAndIsrResponse, LeaderAndIsrTopicError
from kproto.types import ZERO_UUID

from .checks import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext
    from kproto.types import TopicPartition

__all__ = ["handle"]


def handle(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer 0 with a code for each partition; 31, 77 and 11 stand on the top level and on every partition."""
    code = refusal(broker, context, request)
    if code is not None:
        return request.error_response(code)
    try:
        codes = broker.replicas.become_leader_or_follower(context.correlation_id, request)
    except Refused as e:
        return request.error_response(e.code)
    if broker.hooks.leadership is not None:
        hosted = broker.replicas.hosted
        done = [tp for tp, code in codes.items() if code == 0 and tp in hosted]
        broker.hooks.leadership(
            [tp for tp in done if hosted[tp].role == "leader"], [tp for tp in done if hosted[tp].role == "follower"]
        )
    return _response(context.version, codes, request.topic_ids)


def _response(version: int, codes: Mapping[TopicPartition, int], topic_ids: Mapping[str, bytes]) -> Any:
    error = LeaderAndIsrPartitionError
    if version < 5:
        return LeaderAndIsrResponse(
            partition_errors=[
                error(topic_name=tp.topic, partition_index=tp.partition, error_code=code) for tp, code in codes.items()
            ]
        )
    by_id: dict[bytes, list[Any]] = {}  # topics without an id share the zero id's entry
    for tp, code in codes.items():
        by_id.setdefault(topic_ids.get(tp.topic, ZERO_UUID), []).append(
            error(partition_index=tp.partition, error_code=code)
        )
    return LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors) for topic_id, errors in by_id.items()
        ]
    )
