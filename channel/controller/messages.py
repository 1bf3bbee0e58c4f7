"""Builds the three control requests in any version from the changes that a batch has collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from channel.errors import BrokerNotAvailable
from channel.types import LeaderRecoveryState, SecurityProtocol
from kproto.api import ApiKey
from kproto.fanout import SharedBody
from kproto.messages import (
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

from .requests import with_version_addresses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from channel.types import Broker, LeaderIsrAndControllerEpoch, ReplicaAssignment, UpdateType

    from .context import ControllerContext
    from .metadata_columns import MetadataColumns

__all__ = [
    "BrokerAddresses",
    "StopState",
    "leader_and_isr_request",
    "leader_and_isr_state",
    "stop_replica_requests",
    "update_metadata_request",
]


_GROUPED_SINCE: Final = 2  # LeaderAndIsr; before, each partition's state names its topic
_RECOVERY_STATE_SINCE: Final = 6  # LeaderAndIsr of 3.2-IV0


class StopState(NamedTuple):
    """One partition's entry in StopReplica."""

    leader_epoch: int
    delete: bool


class BrokerAddresses:
    """The context's brokers in the form of requests, built once as long as the brokers stay the same.

    Args:
        listener: The inter-broker listener, where leaders are found.
        version: The version of UpdateMetadata.
    """

    def __init__(self, listener: str, version: int) -> None:
        self._listener = listener
        self._version = version
        self._of: ControllerContext | None = None
        self._brokers_version = -1
        self._leaders: dict[int, LeaderAndIsrLiveLeader] = {}
        self._brokers: list[UpdateMetadataBroker] | None = None

    def leaders(self, context: ControllerContext, broker_ids: Iterable[int]) -> list[LeaderAndIsrLiveLeader]:
        """Return the addresses of those brokers that are known, by id.

        Raises:
            BrokerNotAvailable: A broker does not have the listener.
        """
        self._look_at(context)
        return [leader for i in sorted(broker_ids) if (leader := self._leaders.get(i) or self._leader(context, i))]

    def brokers(self, context: ControllerContext) -> list[UpdateMetadataBroker]:
        """All known brokers, by id; not to be changed."""
        self._look_at(context)
        if self._brokers is None:
            self._brokers = [_live_broker(b, self._version) for b in context.live_or_shutting_down_brokers]
        return self._brokers

    def _look_at(self, context: ControllerContext) -> None:
        if context is not self._of or context.brokers_version != self._brokers_version:
            self._of, self._brokers_version = context, context.brokers_version
            self._leaders, self._brokers = {}, None

    def _leader(self, context: ControllerContext, broker_id: int) -> LeaderAndIsrLiveLeader | None:
        broker = context.live_or_shutting_down_broker(broker_id)
        if broker is None:
            return None
        host, port = _address(broker, self._listener)
        leader = self._leaders[broker_id] = LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=host, port=port)
        return leader


def leader_and_isr_state(
    version: int,
    tp: TopicPartition,
    leadership: LeaderIsrAndControllerEpoch,
    assignment: ReplicaAssignment,
    is_new: bool,
) -> LeaderAndIsrPartitionState:
    """One partition's entry in LeaderAndIsr."""
    (leader, isr, leader_epoch, partition_epoch, recovery), controller_epoch = leadership
    replicas, adding, removing = assignment
    return LeaderAndIsrPartitionState(
        topic_name="" if version >= _GROUPED_SINCE else tp.topic,
        partition_index=tp.partition,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=isr,
        partition_epoch=partition_epoch,
        replicas=replicas,
        adding_replicas=adding,
        removing_replicas=removing,
        is_new=is_new,
        leader_recovery_state=recovery if version >= _RECOVERY_STATE_SINCE else LeaderRecoveryState.RECOVERED,
    )


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
    if version >= _GROUPED_SINCE:
        fields["topic_states"] = [
            LeaderAndIsrTopicState(
                topic_name=topic, topic_id=topic_ids.get(topic, ZERO_UUID), partition_states=of_topic
            )
            for topic, of_topic in _by_topic(states, states.values()).items()
        ]
    else:
        fields["ungrouped_partition_states"] = list(states.values())
    if version >= 5:
        fields["type"] = int(update_type)
    if version >= 7:
        fields["is_kraft_controller"] = is_kraft_controller
    return LeaderAndIsrRequest(**fields)


def update_metadata_request(
    *,
    version: int,
    controller_id: int,
    is_kraft_controller: bool,
    controller_epoch: int,
    update_type: UpdateType,
    partitions: MetadataColumns,
    topic_ids: Mapping[str, Uuid],
    live_brokers: list[UpdateMetadataBroker],
) -> SharedBody:
    """An UpdateMetadata request for any broker, encoded.

    Raises:
        ListenerNotExpressible: The version has no field for a broker's endpoints.
        EncodeError: As ``kproto.codec.encode``; ``OutOfRange`` for a number of a partition that is no int32.
    """
    fields: dict[str, Any] = {
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
        "live_brokers": live_brokers,
    }
    if version >= 8:
        fields["type"] = int(update_type)
        fields["is_kraft_controller"] = is_kraft_controller
    around = with_version_addresses(UpdateMetadataRequest(**fields), version)
    return SharedBody(ApiKey.UPDATE_METADATA, version, partitions.encode(around, version, topic_ids))


def stop_replica_requests(
    *,
    version: int,
    controller_id: int,
    is_kraft_controller: bool,
    controller_epoch: int,
    broker_epoch: int,
    states: Mapping[TopicPartition, StopState],
) -> Iterator[tuple[StopReplicaRequest, set[TopicPartition] | None]]:
    """One StopReplica request, or below version 3 up to two: first the replicas to delete, then the others.

    Yields:
        A request and the replicas that it deletes; None for the replicas if the answer is of no interest.
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
            for topic, tps in _by_topic(states, states).items()
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
                for topic, tps in _by_topic(chosen, chosen).items()
            ]
        else:
            body["ungrouped_partitions"] = [
                StopReplicaPartitionV0(topic_name=tp.topic, partition_index=tp.partition) for tp in chosen
            ]
        yield StopReplicaRequest(**head, **body), to_delete if delete else None


_Entry = TypeVar("_Entry")


def _by_topic(partitions: Iterable[TopicPartition], entries: Iterable[_Entry]) -> dict[str, list[_Entry]]:
    """Group the partitions' entries by topic, topics in the order of their first entries."""
    groups: dict[str, list[_Entry]] = {}
    group: list[_Entry] = []
    last: str | None = None
    for tp, of_partition in zip(partitions, entries, strict=True):
        topic = tp[0]
        if topic is not last:  # partitions mostly come topic by topic
            last, group = topic, groups.setdefault(topic, [])
        group.append(of_partition)
    return groups


def _address(broker: Broker, listener: str) -> tuple[str, int]:
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        raise BrokerNotAvailable(f"{broker} has no listener {listener}")
    return endpoint.host, endpoint.port


def _live_broker(broker: Broker, version: int) -> UpdateMetadataBroker:
    plaintext = SecurityProtocol.PLAINTEXT.name  # the only listener that version 0 can carry
    endpoints = [
        UpdateMetadataEndpoint(
            port=e.port, host=e.host, listener=e.listener_name, security_protocol=int(e.security_protocol)
        )
        for e in broker.endpoints
        if version > 0 or e.listener_name == plaintext or not broker.endpoint(plaintext)
    ]
    return UpdateMetadataBroker(id=broker.id, endpoints=endpoints, rack=broker.rack)
