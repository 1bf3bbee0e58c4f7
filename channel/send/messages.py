"""Builds the three control requests in any version from the changes that a batch has collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from channel.errors import BrokerNotAvailable
from channel.types import LeaderRecoveryState, SecurityProtocol
from kproto.api import ApiKey
from kproto.columns import Columns, encode_batches
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

from .encoded_requests import with_version_addresses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from channel.types import Broker, LeaderIsrAndControllerEpoch, ReplicaAssignment, UpdateType

    from .context import ControllerContext


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
        found = []
        for broker_id in sorted(broker_ids):
            leader = self._leaders.get(broker_id) or self._leader(context, broker_id)
            if leader is not None:
                found.append(leader)
        return found

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


_ROWS: Final = 1024  # of one piece, if its topics end there: about 50 kB of a body


class MetadataColumns:
    """The partitions of one UpdateMetadata request, in runs of the same topic."""

    __slots__ = ("_leaderships", "_may_repeat", "_offline", "_partitions", "_replicas", "_seen", "_starts", "_topics")

    def __init__(self) -> None:
        self._topics: list[str] = []  # of each run
        self._starts: list[int] = []  # of each run, into the three lists that follow
        self._partitions: list[int] = []
        self._leaderships: list[LeaderIsrAndControllerEpoch] = []
        self._replicas: list[tuple[int, ...]] = []
        self._offline: dict[int, tuple[int, ...]] = {}  # by index in these lists, for partitions with offline replicas
        self._seen: set[str] = set()
        self._may_repeat = False  # set where a topic has a second run, or a run's partitions do not ascend

    def __len__(self) -> int:
        return len(self._partitions)

    def add(
        self,
        topic: str,
        partition: int,
        leadership: LeaderIsrAndControllerEpoch,
        replicas: tuple[int, ...],
        offline: tuple[int, ...] = (),
    ) -> None:
        """Add a partition: its leadership, its replicas, and those that are not online; a later call replaces it."""
        if not self._topics or self._topics[-1] != topic:
            self._begin(topic)
        elif partition == self._partitions[-1]:  # a decision adds each group of a partition's replicas by itself
            self._offline.pop(len(self._partitions) - 1, None)
            for column in (self._partitions, self._leaderships, self._replicas):
                column.pop()
        elif partition < self._partitions[-1]:
            self._may_repeat = True
        if offline:
            self._offline[len(self._partitions)] = offline
        self._partitions.append(partition)
        self._leaderships.append(leadership)
        self._replicas.append(replicas)

    def add_all(
        self,
        topic: str,
        partitions: Sequence[int],
        leaderships: Sequence[LeaderIsrAndControllerEpoch],
        replicas: Sequence[tuple[int, ...]],
    ) -> None:
        """``add`` for at least one partition of a topic, all replicas of which are online."""
        if not self._topics or self._topics[-1] != topic:
            self._begin(topic)
        elif partitions[0] <= self._partitions[-1]:
            self._may_repeat = True
        if sorted(set(partitions)) != partitions:
            self._may_repeat = True
        self._partitions += partitions
        self._leaderships += leaderships
        self._replicas += replicas

    def _begin(self, topic: str) -> None:
        if topic in self._seen:
            self._may_repeat = True
        self._seen.add(topic)
        self._topics.append(topic)
        self._starts.append(len(self._partitions))

    def encode(self, message: UpdateMetadataRequest, version: int, topic_ids: Mapping[str, Uuid]) -> list[bytes]:
        """Encode a request with these partitions.

        Args:
            message: The request's other fields.
            topic_ids: A topic without an id has the zero id.

        Returns:
            The body; a large body in consecutive pieces.

        Raises:
            EncodeError: As ``kproto.codec.encode``; ``OutOfRange`` for a number that is no int32.
        """
        if self._may_repeat:
            self._drop_repeated()
        pieces = encode_batches(message, version, self._batches(topic_ids))
        return pieces if len(self) > _ROWS else [b"".join(pieces)]

    def _drop_repeated(self) -> None:
        """Group the partitions by topic, and keep the last entry of each partition."""
        places: dict[str, dict[int, int]] = {}
        for topic, start, end in self._runs():
            of_topic = places.setdefault(topic, {})
            for at in range(start, end):
                of_topic[self._partitions[at]] = at
        order = [at for of_topic in places.values() for at in of_topic.values()]
        self._offline = {new: self._offline[at] for new, at in enumerate(order) if at in self._offline}
        self._leaderships = [self._leaderships[at] for at in order]
        self._replicas = [self._replicas[at] for at in order]
        self._topics, self._starts, self._partitions = list(places), [], []
        for of_topic in places.values():
            self._starts.append(len(self._partitions))
            self._partitions += of_topic

    def _runs(self) -> Iterator[tuple[str, int, int]]:
        ends = [*self._starts[1:], len(self._partitions)] if self._starts else []
        return zip(self._topics, self._starts, ends, strict=True)

    def _batches(self, topic_ids: Mapping[str, Uuid]) -> Iterator[Columns]:
        """Yield the rows in batches that end where a topic ends."""
        names: list[str] = []
        ids: list[Uuid] = []
        first, last = 0, len(self._partitions)
        for topic, start, end in self._runs():
            names += [topic] * (end - start)
            ids += [topic_ids.get(topic, ZERO_UUID)] * (end - start)
            if len(names) >= _ROWS or end == last:
                yield self._columns(first, end, names, ids)
                first, names, ids = end, [], []

    def _columns(self, first: int, end: int, names: list[str], ids: list[Uuid]) -> Columns:
        states, epochs = zip(*self._leaderships[first:end], strict=True)
        leader, isr, leader_epoch, partition_epoch, _ = zip(*states, strict=True)
        more = {}
        if self._offline:
            more["offline_replicas"] = [self._offline.get(at, ()) for at in range(first, end)]
        return Columns.from_sequences(
            ApiKey.UPDATE_METADATA,
            topic=names,
            topic_id=ids,
            partition=self._partitions[first:end],
            controller_epoch=epochs,
            leader=leader,
            isr=isr,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            replicas=self._replicas[first:end],
            **more,
        )
