"""UpdateMetadata (6): the state of the cluster, for this broker's clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel.broker.replicas import Refused
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

from .checks import refusal

if TYPE_CHECKING:
    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext

__all__ = ["handle"]


def handle(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer with a top-level code alone: 31, 77, 11 or 0."""
    code = refusal(broker, context, request)
    if code is not None:
        return request.error_response(code)
    replicas = broker.replicas
    with replicas.lock:
        try:
            replicas.fence("UpdateMetadata", request, context.correlation_id)
        except Refused as e:
            return request.error_response(e.code)
        deleted = broker.metadata.update_metadata(context.correlation_id, request, version=context.version)
        replicas.controller_epoch = request.controller_epoch  # set after the cache, unlike in the other two APIs
    hooks = broker.hooks  # in Kafka's order
    if deleted and hooks.partitions_deleted is not None:
        hooks.partitions_deleted(deleted)
    entries: list[TopicPartition] = []
    if hooks.topics_changed is not None or hooks.partitions_changed is not None:
        entries = [TopicPartition(row.topic_name, row.partition_index) for row in request.partition_states]
    if entries and hooks.topics_changed is not None:
        hooks.topics_changed([tp.topic for tp in entries])
    if hooks.quotas_changed is not None:
        hooks.quotas_changed(broker.metadata.cluster(context.listener))
    if entries and hooks.partitions_changed is not None:
        hooks.partitions_changed(entries)
    return request.error_response(ErrorCode.NONE)
