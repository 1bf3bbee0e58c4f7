"""The three control requests in any version, from what the batch has collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from channel.errors import BrokerNotAvailable
from kproto._codec import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from kproto.types import ZERO_UUID, TopicPartition, Uuid

from .requests import SharedUpdateMetadata
from .types import SecurityProtocol, UpdateType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .context import ControllerContext
    from .metadata_columns import MetadataColumns
    from .types import Broker

__all__ = [
    "StopState",
    "leader_and_isr_request",
    "live_leaders",
    "stop_replica_requests",
    "update_metadata_request",
]


class StopState(NamedTuple):
    """What a StopReplica request says of one partition."""

    leader_epoch: int
    delete: bool


def leader_and_isr_request(
    *,
    version: int,
    controller_id: int,
    is_kraft_controller: bool,
    controller_epoch: int,
    broker_epoch: int,
    update_type: UpdateType,
    states: Mapping[TopicPartition, LeaderAndIsrPartitionState],
    topic_ids: Mapping[str, Uuid],
    live_leaders: list[LeaderAndIsrLiveLeader],
) -> LeaderAndIsrRequest:
    """A LeaderAndIsr request. A topic without an id gets the zero id."""
    fields: dict[str, Any] = {
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
        "broker_epoch": broker_epoch,
        "live_leaders": live_leaders,
    }
    if version >= 2:
        fields["topic_states"] = [
            LeaderAndIsrTopicState(
                topic_name=topic, topic_id=topic_ids.get(topic, ZERO_UUID), partition_states=[states[tp] for tp in tps]
            )
            for topic, tps in _by_topic(states)
        ]
    else:
        fields["ungrouped_partition_states"] = list(states.values())
    if version >= 5:
        fields["type"] = int(update_type)
    if version >= 7:
        fields["is_kraft_controller"] = is_kraft_controller
    return LeaderAndIsrRequest(**fields)


def live_leaders(context: ControllerContext, leaders: set[int], listener: str) -> list[LeaderAndIsrLiveLeader]:
    """The addresses of those leaders that are known, on the inter-broker listener.

    Raises:
        BrokerNotAvailable: A leader does not have this listener.
    """
    found = []
    for broker in context.live_or_shutting_down_brokers:
        if broker.id in leaders:
            host, port = _address(broker, listener)
            found.append(LeaderAndIsrLiveLeader(broker_id=broker.id, host_name=host, port=port))
    return found


def update_metadata_request(
    *,
    version: int,
    controller_id: int,
    is_kraft_controller: bool,
    controller_epoch: int,
    update_type: UpdateType,
    partitions: MetadataColumns,
    topic_ids: Mapping[str, Uuid],
    brokers: Iterable[Broker],
) -> SharedUpdateMetadata:
    """An UpdateMetadata request for any broker.

    Raises:
        OutOfRange: A number of a partition is no int32.
        BrokerNotAvailable: Version 0, and a broker has no PLAINTEXT listener.
    """
    fields: dict[str, Any] = {
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
        "live_brokers": [_live_broker(broker, version) for broker in brokers],
    }
    if version >= 8:
        fields["type"] = int(update_type)
        fields["is_kraft_controller"] = is_kraft_controller
    return SharedUpdateMetadata(version, UpdateMetadataRequest(**fields), partitions.columns(topic_ids))


def stop_replica_requests(
    *,
    version: int,
    controller_id: int,
    is_kraft_controller: bool,
    controller_epoch: int,
    broker_epoch: int,
    states: Mapping[TopicPartition, StopState],
) -> Iterator[tuple[StopReplicaRequest, set[TopicPartition] | None]]:
    """One StopReplica request, or below version 3 up to two: first what is to be deleted, then the rest.

    Yields:
        A request and the replicas that it deletes; None in place of these if nobody asks for the answer.
    """
    head: dict[str, Any] = {
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
        "broker_epoch": broker_epoch,
    }
    if version >= 4:
        head["is_kraft_controller"] = is_kraft_controller
    to_delete = {tp for tp, state in states.items() if state.delete}
    if version >= 3:
        topics = [
            StopReplicaTopicState(
                topic_name=topic,
                partition_states=[
                    StopReplicaPartitionState(
                        partition_index=tp.partition,
                        leader_epoch=states[tp].leader_epoch,
                        delete_partition=states[tp].delete,
                    )
                    for tp in tps
                ],
            )
            for topic, tps in _by_topic(states)
        ]
        yield StopReplicaRequest(**head, topic_states=topics), to_delete
        return
    for delete in (True, False):
        chosen = [tp for tp, state in states.items() if state.delete == delete]
        if not chosen:
            continue
        body: dict[str, Any] = {"delete_partitions": delete}
        if version >= 1:
            body["topics"] = [
                StopReplicaTopicV1(name=topic, partition_indexes=[tp.partition for tp in tps])
                for topic, tps in _by_topic(chosen)
            ]
        else:
            body["ungrouped_partitions"] = [
                StopReplicaPartitionV0(topic_name=tp.topic, partition_index=tp.partition) for tp in chosen
            ]
        yield StopReplicaRequest(**head, **body), to_delete if delete else None


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterator[tuple[str, list[TopicPartition]]]:
    """Partitions by topic, topics in the order in which they first come."""
    groups: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        groups.setdefault(tp.topic, []).append(tp)
    yield from groups.items()


def _address(broker: Broker, listener: str) -> tuple[str, int]:
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        raise BrokerNotAvailable(f"{broker} has no listener {listener}")
    return endpoint.host, endpoint.port


def _live_broker(broker: Broker, version: int) -> UpdateMetadataBroker:
    if version == 0:
        host, port = _address(broker, SecurityProtocol.PLAINTEXT.name)
        return UpdateMetadataBroker(id=broker.id, v0_host=host, v0_port=port)
    endpoints = [
        UpdateMetadataEndpoint(
            port=e.port, host=e.host, listener=e.listener_name, security_protocol=int(e.security_protocol)
        )
        for e in broker.endpoints
    ]
    return UpdateMetadataBroker(id=broker.id, endpoints=endpoints, rack=broker.rack)
