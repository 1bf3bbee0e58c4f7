"""The sending half against embedded brokers: what arrives, what they make of it, and what comes back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from network_peers import PLAIN_OR_TLS, SECURITY, until

from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import BrokerHooks
from channel.clock import SYSTEM_CLOCK
from channel.config import ChannelConfig
from channel.lead.events import (
    ControllerBrokerRequestBatch,
    ControllerEvent,
    ControllerEventManager,
    TopicDeletionStopReplicaResponseReceived,
    UpdateMetadataResponseReceived,
)
from channel.metrics import Metrics
from channel.send.context import ControllerContext
from channel.send.encoded_requests import SingleRequest
from channel.send.manager import ControllerChannelManager
from channel.types import (
    Broker,
    EndPoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    SecurityProtocol,
)
from kproto.messages import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kproto.types import TopicPartition

NEW_TOPIC = TopicPartition("new-topic", 0)
TOPIC_ID = bytes(range(16))


@pytest.fixture
def brokers(protocol: SecurityProtocol) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, first_epoch=25, protocol=protocol, security=SECURITY) as cluster:
        yield cluster


either_protocol = pytest.mark.parametrize("protocol", PLAIN_OR_TLS, indirect=True, ids=lambda each: each.name)


def registered(cluster: EmbeddedCluster, protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT) -> dict[Broker, int]:
    return {Broker(m.id, (EndPoint(m.host, m.port, protocol.name, protocol),)): m.epoch for m in cluster}


def send(manager: ControllerChannelManager, broker_id: int, message: Any, version: int) -> Any:
    """The response to one request."""
    came = threading.Event()
    responses: list[Any] = []

    def callback(response: Any) -> None:
        responses.append(response)
        came.set()

    manager.send_request(broker_id, SingleRequest(message, version), callback)
    assert came.wait(60)
    assert len(responses) == 1
    return responses[0]


def leader_and_isr(broker_epoch: int, leader_epoch: int = 1, controller_epoch: int = 2) -> LeaderAndIsrRequest:
    row = LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=controller_epoch, leader=0, leader_epoch=leader_epoch, isr=[0], replicas=[0]
    )
    topic = LeaderAndIsrTopicState(topic_name="new-topic", topic_id=TOPIC_ID, partition_states=[row])
    return LeaderAndIsrRequest(controller_epoch=controller_epoch, broker_epoch=broker_epoch, topic_states=[topic])


def update_metadata(broker_epoch: int, leader_epoch: int = 1, controller_epoch: int = 2) -> UpdateMetadataRequest:
    row = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=controller_epoch, leader=0, leader_epoch=leader_epoch, isr=[0], replicas=[0]
    )
    topic = UpdateMetadataTopicState(topic_name="new-topic", topic_id=TOPIC_ID, partition_states=[row])
    return UpdateMetadataRequest(controller_epoch=controller_epoch, broker_epoch=broker_epoch, topic_states=[topic])


def stop_replica(broker_epoch: int, leader_epoch: int = 2, controller_epoch: int = 2) -> StopReplicaRequest:
    row = StopReplicaPartitionState(partition_index=0, leader_epoch=leader_epoch, delete_partition=True)
    topic = StopReplicaTopicState(topic_name="new-topic", partition_states=[row])
    return StopReplicaRequest(controller_epoch=controller_epoch, broker_epoch=broker_epoch, topic_states=[topic])


def host_new_topic(manager: ControllerChannelManager) -> None:
    """The broker has the partition from an earlier leader epoch."""
    assert send(manager, 0, leader_and_isr(-1, leader_epoch=0, controller_epoch=1), 7).error_code == 0


@pytest.mark.conformance("RST-02")
def test_a_stale_controller_gets_its_error_and_does_not_try_again(brokers: EmbeddedCluster) -> None:
    seen: Counter[int] = Counter()
    brokers[1].broker.hooks = BrokerHooks(
        answered=lambda context, request, answer: seen.update([request.controller_epoch])
    )
    with ControllerChannelManager(1, lambda: 1) as first, ControllerChannelManager(2, lambda: 0) as second:
        first.start(registered(brokers))
        second.start(registered(brokers))
        assert send(first, 1, leader_and_isr(-1, controller_epoch=1), 7).error_code == 0
        assert send(second, 1, leader_and_isr(-1, controller_epoch=0), 7).error_code == 11
        assert send(second, 1, update_metadata(-1, controller_epoch=1), 8).error_code == 0
    assert seen == {1: 2, 0: 1}


@pytest.mark.conformance("RST-03", "RST-05")
@pytest.mark.parametrize("newer", [0, 1])
def test_requests_for_this_life_of_a_broker_or_a_later_one_succeed(brokers: EmbeddedCluster, newer: int) -> None:
    member = brokers[0]
    epoch = member.epoch + newer
    with ControllerChannelManager(1, lambda: 2) as manager:
        manager.start(registered(brokers))
        host_new_topic(manager)
        assert send(manager, 0, leader_and_isr(epoch), 7).error_counts() == {0: 2}
        hosted = member.broker.replicas.hosted[NEW_TOPIC]
        assert (hosted.role, hosted.leader_epoch) == ("leader", 1)
        assert send(manager, 0, update_metadata(epoch), 8).error_code == 0
        cached = member.broker.metadata.partition_info("new-topic", 0)
        assert (cached.leader, cached.leader_epoch) == (0, 1)
        assert send(manager, 0, stop_replica(epoch), 4).error_counts() == {0: 2}
        assert NEW_TOPIC not in member.broker.replicas.hosted


def test_requests_for_an_earlier_life_of_a_broker_change_nothing(brokers: EmbeddedCluster) -> None:
    member = brokers[0]
    stale = member.epoch - 1
    with ControllerChannelManager(1, lambda: 2) as manager:
        manager.start(registered(brokers))
        host_new_topic(manager)
        for message, version in ((leader_and_isr(stale), 7), (update_metadata(stale), 8), (stop_replica(stale), 4)):
            assert send(manager, 0, message, version).error_code == 77
        assert member.broker.replicas.hosted[NEW_TOPIC].leader_epoch == 0
        assert not member.broker.metadata.contains("new-topic")


# ---- a controller in parts


@dataclass
class Controller:
    """Context, batch, event manager and channel manager wired together, as a controller wires them."""

    brokers: EmbeddedCluster
    ibp: str = "3.9"
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    context: ControllerContext = field(default_factory=ControllerContext)
    events: list[ControllerEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = ChannelConfig(
            inter_broker_protocol_version=self.ibp,
            request_timeout_ms=5000,
            security_inter_broker_protocol=self.protocol.name,
            security=SECURITY,
        )
        metrics = Metrics()
        self.context.set_live_brokers(registered(self.brokers, self.protocol))
        self.manager = ControllerChannelManager(1, lambda: self.context.epoch, config, metrics=metrics)
        self.event_manager = ControllerEventManager(1, self, SYSTEM_CLOCK, metrics)
        self.batch = ControllerBrokerRequestBatch(1, config, self.manager, self.event_manager.put, self.context)
        self.context.epoch = 1

    def process(self, event: ControllerEvent) -> None:
        self.events.append(event)

    def preempt(self, event: ControllerEvent) -> None:
        pass

    def __enter__(self) -> Controller:
        self.event_manager.start()
        self.manager.start(self.context.live_or_shutting_down_brokers)
        return self

    def __exit__(self, *_: object) -> None:
        self.manager.close()
        self.event_manager.close()

    def create(self, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
        if tp.topic not in self.context.all_topics:
            self.context.all_topics.add(tp.topic)
            self.context.add_topic_id(tp.topic, tp.topic.encode().ljust(16, b"."))
        self.context.update_partition_full_replica_assignment(tp, ReplicaAssignment(replicas))
        leadership = LeaderIsrAndControllerEpoch(LeaderAndIsr(replicas[0], replicas), self.context.epoch)
        self.context.put_partition_leadership_info(tp, leadership)

    def tell(self, tps: list[TopicPartition], is_new: bool = True) -> None:
        self.batch.new_batch()
        for tp in tps:
            leadership = self.context.partition_leadership_info(tp)
            assert leadership is not None
            assignment = self.context.partition_full_replica_assignment(tp)
            self.batch.add_leader_and_isr_request_for_brokers(assignment.replicas, tp, leadership, assignment, is_new)
        self.batch.send_requests_to_brokers(self.context.epoch)


@pytest.mark.parametrize("ibp", ["3.9", "2.6-IV0", "2.4-IV0", "1.0-IV0", "0.10.0-IV0", "0.8.2"])
def test_a_topic_lives_and_dies_in_every_protocol(brokers: EmbeddedCluster, ibp: str) -> None:
    tps = [TopicPartition("t", p) for p in range(3)]
    with Controller(brokers, ibp) as controller:
        controller.batch.new_batch()
        controller.batch.add_update_metadata_request_for_brokers([0, 1, 2])
        controller.batch.send_requests_to_brokers(1)
        for p, tp in enumerate(tps):
            controller.create(tp, (p, (p + 1) % 3))
        controller.tell(tps)
        until(lambda: len(controller.events) == 9)
        assert {e.response.error_code for e in controller.events} == {0}  # type: ignore[attr-defined]
        for p, tp in enumerate(tps):
            assert brokers[p].broker.replicas.hosted[tp].role == "leader"
            assert brokers[(p + 1) % 3].broker.replicas.hosted[tp].role == "follower"
            assert {m.broker.metadata.partition_info("t", p).leader for m in brokers} == {p}

        controller.events.clear()
        controller.context.queue_topic_deletion(["t"])
        controller.context.topics_with_deletion_started.add("t")
        controller.batch.new_batch()
        controller.batch.add_update_metadata_request_for_brokers([0, 1, 2], tps)
        for p, tp in enumerate(tps):
            controller.batch.add_stop_replica_request_for_brokers((p, (p + 1) % 3), tp, delete_partition=True)
        controller.batch.send_requests_to_brokers(1)
        until(lambda: len(controller.events) == 6)
        deleted = [e for e in controller.events if isinstance(e, TopicDeletionStopReplicaResponseReceived)]
        assert {e.broker_id: set(e.partition_errors.values()) for e in deleted} == {0: {0}, 1: {0}, 2: {0}}
        assert all(len(e.partition_errors) == 2 for e in deleted)
        for member in brokers:
            assert not member.broker.replicas.hosted
            assert not member.broker.metadata.contains("t")


@either_protocol
def test_a_broker_that_comes_back_gets_what_waited(brokers: EmbeddedCluster, protocol: SecurityProtocol) -> None:
    with Controller(brokers, protocol=protocol) as controller:
        brokers.kill(1)
        tps = [TopicPartition(f"t{n}", 0) for n in range(20)]
        for tp in tps:
            controller.create(tp, (1, 0))
            controller.tell([tp])
        until(lambda: sum(e.broker_id != 1 for e in controller.events) == 60)  # type: ignore[attr-defined]
        assert not [e for e in controller.events if e.broker_id == 1]  # type: ignore[attr-defined]
        brokers.restart(1)
        until(lambda: len(controller.events) == 100)
        codes = {e.response.error_code for e in controller.events if e.broker_id == 1}  # type: ignore[attr-defined]
        assert codes == {77}, "they were meant for its earlier life"
        updates = [e.broker_id for e in controller.events if isinstance(e, UpdateMetadataResponseReceived)]
        assert Counter(updates) == {0: 20, 1: 20, 2: 20}


@either_protocol
def test_a_paused_broker_holds_up_nobody_and_loses_nothing(
    brokers: EmbeddedCluster, protocol: SecurityProtocol
) -> None:
    with Controller(brokers, protocol=protocol) as controller:
        tps = [TopicPartition(f"t{n}", 0) for n in range(50)]
        brokers.pause(2)
        for n, tp in enumerate(tps):
            controller.create(tp, (n % 3, (n + 1) % 3))
            controller.tell([tp])
        until(lambda: {e.broker_id for e in controller.events if len(controller.events) >= 100} == {0, 1})  # type: ignore[attr-defined]
        brokers.resume(2)
        until(lambda: len(controller.events) == 50 * 5)
        hosted = {m.id: set(m.broker.replicas.hosted) for m in brokers}
        for n, tp in enumerate(tps):
            assert {b for b, has in hosted.items() if tp in has} == {n % 3, (n + 1) % 3}
