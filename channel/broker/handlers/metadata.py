"""Metadata (3): what clients ask, answered from the metadata cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel.broker.metadata_cache import TopicMetadata
from kproto.error_codes import ErrorCode
from kproto.reference.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproto.types import ZERO_UUID

if TYPE_CHECKING:
    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext

__all__ = ["handle"]

_INTERNAL = ("__consumer_offsets", "__transaction_state")


def handle(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answers brokers, controller and topics; topics are never made by asking, unknown ones get 3 (by id: 100)."""
    cache, version = broker.metadata, context.version
    cluster = cache.cluster(context.listener)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n.id, host=n.host, port=n.port, rack=n.rack) for n in cluster.nodes],
        cluster_id=broker.cluster_id,
        controller_id=cluster.controller.id if cluster.controller else -1,
        topics=[_topic(topic) for topic in _wanted(broker, context, request, version)],
    )


def _wanted(broker: EmbeddedBroker, context: RequestContext, request: Any, version: int) -> list[TopicMetadata]:
    cache = broker.metadata
    unknown: list[TopicMetadata] = []
    if request.topics is None or (version == 0 and not request.topics):
        names: list[str] = list(cache.topics())
    else:
        by_id = cache.snapshot.topic_names
        names = []
        for topic in request.topics:
            by_name = topic.name is not None
            name = topic.name if by_name else by_id.get(topic.topic_id)
            if name is not None and cache.contains(name):
                names.append(name)
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID
                topic_id = ZERO_UUID if by_name else topic.topic_id
                unknown.append(TopicMetadata(code, topic.name if by_name else None, topic_id, ()))
    known = cache.topic_metadata(
        names,
        context.listener,
        error_unavailable_endpoints=version == 0,
        error_unavailable_listeners=version >= 6,
    )
    return known + unknown


def _topic(topic: TopicMetadata) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in _INTERNAL,
        partitions=[
            MetadataResponsePartition(
                error_code=p.error_code,
                partition_index=p.partition,
                leader_id=p.leader,
                leader_epoch=p.leader_epoch,
                replica_nodes=list(p.replicas),
                isr_nodes=list(p.isr),
                offline_replicas=list(p.offline_replicas),
            )
            for p in topic.partitions
        ],
    )
