"""Metadata (3): brokers, controller and topics for clients, from the metadata cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from channel.broker.metadata_cache import TopicAnswer
from kproto import messages
from kproto.error_codes import ErrorCode
from kproto.types import ZERO_UUID

if TYPE_CHECKING:
    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext
    from channel.broker.metadata_cache import MetadataCache

__all__ = ["handle"]

_BY_ID: Final = 12
"""The first version that takes topics by id."""

_INTERNAL = ("__consumer_offsets", "__transaction_state")


def handle(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer with brokers, controller and topics; no topic is created, unknown topics get error 3 (by id: 100)."""
    asked, version = request.topics, context.version
    if asked and version < _BY_ID and any(t.name is None or t.topic_id != ZERO_UUID for t in asked):
        # versions 10 and 11 have the field, but brokers refuse it there; their answers cannot lack a name
        code = ErrorCode.INVALID_REQUEST
        return messages.MetadataResponse(
            topics=[
                messages.MetadataResponseTopic(error_code=code, name=t.name or "", topic_id=t.topic_id) for t in asked
            ]
        )
    nodes, controller = broker.metadata.nodes(context.listener)
    return messages.MetadataResponse(
        brokers=[messages.MetadataResponseBroker(node_id=n.id, host=n.host, port=n.port, rack=n.rack) for n in nodes],
        cluster_id=broker.cluster_id,
        controller_id=controller.id if controller else -1,
        topics=[_topic(topic) for topic in _wanted(broker.metadata, context.listener, asked, version)],
    )


def _wanted(cache: MetadataCache, listener: str, asked: Any, version: int) -> list[TopicAnswer]:
    names: dict[str, None] = {}  # each topic once, however often the request names it
    unknown: dict[tuple[str | None, bytes], TopicAnswer] = {}
    if asked is None or (version == 0 and not asked):
        names = dict.fromkeys(cache.topics())
    else:
        by_id = cache.snapshot.topic_names if any(topic.name is None for topic in asked) else {}
        for topic in asked:
            name = by_id.get(topic.topic_id) if topic.name is None else topic.name
            if name is not None and cache.contains(name):
                names[name] = None
            elif topic.name is None:
                missing = TopicAnswer(ErrorCode.UNKNOWN_TOPIC_ID, None, topic.topic_id, ())
                unknown[None, topic.topic_id] = missing
            else:
                missing = TopicAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic.name, ZERO_UUID, ())
                unknown[topic.name, ZERO_UUID] = missing
    known = cache.topic_metadata(
        names,
        listener,
        error_unavailable_endpoints=version == 0,
        error_unavailable_listeners=version >= 6,
    )
    return known + list(unknown.values())


def _topic(topic: TopicAnswer) -> messages.MetadataResponseTopic:
    return messages.MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in _INTERNAL,
        partitions=[
            messages.MetadataResponsePartition(
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
