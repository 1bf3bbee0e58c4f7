"""The cluster of the request batch's rows: brokers 1, 2, 3, topics foo and bar, a collector in place of the sending."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from channel.config import ChannelConfig
from channel.lead.events import ControllerBrokerRequestBatch, ControllerEvent
from channel.lead.migration import MigrationRequestBatch
from channel.send.batch import RequestBatch
from channel.send.context import ControllerContext
from channel.types import (
    Broker,
    EndPoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    ReplicaAssignment,
)
from kproto.types import TopicPartition


class Collector:
    """Takes the place of the channel manager and of the event manager."""

    def __init__(self) -> None:
        self.sent: dict[int, list[tuple[Any, Callable[[Any], None] | None]]] = {}
        self.events: list[ControllerEvent] = []

    def send_request(self, broker_id: int, request: Any, callback: Callable[[Any], None] | None = None) -> None:
        self.sent.setdefault(broker_id, []).append((request, callback))

    def put(self, event: ControllerEvent) -> None:
        self.events.append(event)

    def add_broker(self, broker: Broker) -> None:
        """It takes the requests to any broker."""

    def requests(self, broker_id: int, api_key: int) -> list[Any]:
        return [r for r, _ in self.sent.get(broker_id, []) if r.api_key == api_key]

    def answer(self, api_key: int, respond: Callable[[Any], Any]) -> None:
        """Hand each request of an api its response."""
        for sent in self.sent.values():
            for request, callback in sent:
                if request.api_key == api_key and callback is not None:
                    callback(respond(request))


FOO0, FOO1, BAR0, BAR1 = (TopicPartition(t, p) for t in ("foo", "bar") for p in (0, 1))
ASSIGNMENT = ReplicaAssignment((1, 2, 3))


@dataclass
class Cluster:
    """Brokers 1, 2, 3 and topics foo, bar of two partitions."""

    context: ControllerContext = field(default_factory=ControllerContext)
    collector: Collector = field(default_factory=Collector)
    controller_id: int = 1
    controller_epoch: int = 1

    def __post_init__(self) -> None:
        self.context.set_live_brokers({Broker(i, (EndPoint("localhost", 9900 + i),)): 1 for i in (1, 2, 3)})
        self.context.set_all_topics(["foo", "bar"])
        self.context.add_topic_id("foo", bytes(range(1, 17)))
        self.context.add_topic_id("bar", bytes(range(101, 117)))
        for tp in (FOO0, FOO1, BAR0, BAR1):
            self.context.update_partition_full_replica_assignment(tp, ASSIGNMENT)

    def batch(self, ibp: str = "3.9", kind: type[MigrationRequestBatch] | None = None, **settings: Any) -> RequestBatch:
        config = ChannelConfig(inter_broker_protocol_version=ibp, **settings)
        if kind is not None:
            return kind(self.controller_id, config, self.collector, self.context)
        put = self.collector.put
        return ControllerBrokerRequestBatch(self.controller_id, config, self.collector, put, self.context)

    def lead(
        self,
        tp: TopicPartition,
        leader: int,
        isr: tuple[int, ...] = (1, 2, 3),
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED,
    ) -> LeaderIsrAndControllerEpoch:
        state = LeaderAndIsr(leader, isr, leader_epoch, partition_epoch, recovery)
        info = LeaderIsrAndControllerEpoch(state, self.controller_epoch)
        self.context.put_partition_leadership_info(tp, info)
        return info

    def shut_down(self, broker_id: int) -> None:
        self.context.shutting_down_broker_ids.add(broker_id)

    def remove(self, broker_id: int) -> None:
        self.context.remove_live_brokers([broker_id])
