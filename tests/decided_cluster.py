"""Runs an elected controller over a store in memory, with brokers that only keep their requests."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memory_store import MemoryStore

from channel.config import ChannelConfig
from channel.lead.events import ControllerBrokerRequestBatch, ControllerEvent, TopicChange
from channel.lead.leadership import Leadership
from channel.lead.state_machines import ControlledCluster
from channel.metrics import Metrics
from channel.send.context import ControllerContext
from channel.types import Broker, EndPoint, LeaderAndIsr
from kproto.api import ApiKey
from kproto.messages import LeaderAndIsrResponse, StopReplicaPartitionError, StopReplicaResponse, UpdateMetadataResponse
from kproto.types import TopicPartition

T0 = TopicPartition("t", 0)


class Sent(NamedTuple):
    """One request to a broker."""

    broker_id: int
    message: Any
    callback: Callable[[Any], None] | None

    @property
    def kind(self) -> ApiKey:
        return ApiKey(self.message.api_key)

    @property
    def partitions(self) -> dict[TopicPartition, Any]:
        """The partition states of a LeaderAndIsr, StopReplica (from version 3) or UpdateMetadata (from 5) request."""
        return {
            TopicPartition(topic.topic_name, state.partition_index): state
            for topic in self.message.topic_states
            for state in topic.partition_states
        }


def broker(broker_id: int, port: int | None = None) -> Broker:
    return Broker(broker_id, (EndPoint("localhost", 9900 + broker_id if port is None else port),))


class Channels:
    """Replaces the channel manager and the event queue; keeps every call in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.sent: list[Sent] = []
        self.events: list[ControllerEvent] = []
        self.is_shut_down = False

    def add_broker(self, broker: Broker) -> None:
        self.calls.append(("add", broker.id))

    def remove_broker(self, broker_id: int) -> None:
        self.calls.append(("remove", broker_id))

    def send_request(self, broker_id: int, request: Any, callback: Callable[[Any], None] | None = None) -> None:
        self.sent.append(Sent(broker_id, request.message, callback))

    def close(self, timeout_s: float | None = None) -> None:
        self.is_shut_down = True

    def put(self, event: ControllerEvent) -> None:
        self.events.append(event)


@dataclass
class DecidedCluster:
    """A store with registered brokers, and the controller that was elected over it last."""

    broker_ids: Sequence[int] = (0, 1, 2)
    settings: Mapping[str, Any] = field(default_factory=dict)
    without_storage: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.store = MemoryStore()
        for broker_id in self.broker_ids:
            self.store.register_broker(broker(broker_id))
        self.metrics = Metrics()

    def elect(self) -> Leadership:
        """Elect a controller, which takes the cluster over."""
        self.channels = Channels()
        epoch = self.store.elect()
        config = ChannelConfig(**{"auto_leader_rebalance_enable": False} | dict(self.settings))
        context = ControllerContext(epoch)
        batch = ControllerBrokerRequestBatch(77, config, self.channels, self.channels.put, context)
        cluster = ControlledCluster(77, config, context, self.store, batch, self.without_storage)
        self.decisions = Leadership(cluster, self.channels, None, self.channels.put, self.metrics)
        self.decisions.start()
        return self.decisions

    def create(self, replicas: Sequence[int], topic: str = "t", **settings: Any) -> None:
        """Create a topic of one partition before or after the election."""
        self.store.create_topic(topic, {0: replicas}, **settings)
        if hasattr(self, "decisions"):
            self.process(TopicChange())

    def process(self, event: ControllerEvent) -> None:
        self.decisions.process(event)

    def state(self, tp: TopicPartition = T0) -> LeaderAndIsr:
        """A partition's durable state, which has to be the context's too."""
        stored = self.store.read_partition_states([tp])[tp]
        assert self.decisions.context.partition_leadership_info(tp) == stored
        return stored.leader_and_isr

    def leader(self, tp: TopicPartition = T0) -> tuple[int, int, list[int]]:
        """Leader, leader epoch and ISR."""
        state = self.state(tp)
        return state.leader, state.leader_epoch, list(state.isr)

    def replicas(self, tp: TopicPartition = T0) -> list[int]:
        """The durable replicas of a partition."""
        return list(self.store.read_assignments([tp.topic])[tp.topic].partitions[tp.partition].replicas)

    def taken(self) -> list[Sent]:
        """The requests since the last call."""
        sent, self.channels.sent = self.channels.sent, []
        return sent

    def requests(self, kind: ApiKey) -> dict[int, list[Sent]]:
        """Those of one kind since the last ``taken``, by broker."""
        found: dict[int, list[Sent]] = {}
        for each in self.channels.sent:
            if each.kind is kind:
                found.setdefault(each.broker_id, []).append(each)
        return found

    def answer(self, broker_ids: Iterable[int], code: int = 0) -> None:
        """Have brokers answer all requests since the last ``taken``, and process the answers."""
        wanted = set(broker_ids)
        for each in self.taken():
            if each.broker_id in wanted and each.callback is not None:
                each.callback(_response(each, code))
        events, self.channels.events = self.channels.events, []
        for event in events:
            self.process(event)


def _response(sent: Sent, code: int) -> Any:
    if sent.kind is ApiKey.UPDATE_METADATA:
        return UpdateMetadataResponse()
    if sent.kind is ApiKey.LEADER_AND_ISR:
        return LeaderAndIsrResponse()
    errors = [
        StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
        for tp in sent.partitions
    ]
    return StopReplicaResponse(partition_errors=errors)
