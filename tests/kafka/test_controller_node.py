"""The controller on a real ZooKeeper over embedded brokers: election, fencing, expiry, and requests to its listener."""

import contextlib
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from asking import ask_port
from click.testing import CliRunner
from network_peers import until
from real_brokers import real_kafka, zookeeper_alone
from zookeeper_faults import expire

from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import Interception
from channel.config import ChannelConfig
from channel.lead.events import ApiRequest
from channel.node.controller_node import ControllerNode
from channel.types import Broker, EndPoint, LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from channel.zookeeper import cluster_state as zk
from channel.zookeeper import znodes
from channel.zookeeper.session import Operation, Transaction, ZooKeeperSession
from kproto import codec, headers
from kproto.api import ApiKey
from kproto.cli.controller import command as controller_command
from kproto.error_codes import ErrorCode
from kproto.messages import (
    AllocateProducerIdsRequest,
    AlterableConfig,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterUserScramCredentialsRequest,
    ApiVersionsRequest,
    BrokerState,
    ControlledShutdownRequest,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ElectLeadersRequest,
    ElectLeadersTopic,
    EnvelopeRequest,
    FeatureUpdateKey,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    InitProducerIdRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    MetadataRequest,
    ReassignablePartition,
    ReassignableTopic,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UpdateFeaturesRequest,
)
from kproto.types import TopicPartition, Uuid

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]

CONFIG = ChannelConfig(zookeeper_session_timeout_ms=6000, default_replication_factor=3)


class Fleet:
    """Embedded brokers, each registered in ZooKeeper by a session of its own."""

    def __init__(self, zookeeper: str, cluster: EmbeddedCluster) -> None:
        self.zookeeper = zookeeper
        self.cluster = cluster
        self.sessions: dict[int, ZooKeeperSession] = {}
        self.admin = ZooKeeperSession(zookeeper)
        self.admin.start()
        zk.create_persistent_nodes(self.admin)
        for member in cluster:
            self.register(member.id)

    def register(self, broker_id: int) -> None:
        session = self.sessions[broker_id] = ZooKeeperSession(self.zookeeper)
        session.start()
        member = self.cluster[broker_id]
        broker = Broker(broker_id, (EndPoint("127.0.0.1", member.port),))
        member.broker.broker_epoch = zk.register_broker(session, broker_id, znodes.encode_broker(broker, "3.9", 0))

    def kill(self, broker_id: int) -> None:
        self.cluster.kill(broker_id)
        self.sessions.pop(broker_id).close()

    def restart(self, broker_id: int) -> None:
        self.cluster.restart(broker_id)
        self.register(broker_id)

    def close(self) -> None:
        for session in (*self.sessions.values(), self.admin):
            session.close()

    def create_topic(self, topic: str, *replicas: tuple[int, ...]) -> None:
        contents = znodes.encode_topic({p: ReplicaAssignment(r) for p, r in enumerate(replicas)}, None)
        self.admin.create(znodes.topic_path(topic), contents)

    def state(self, topic: str, partition: int = 0) -> LeaderIsrAndControllerEpoch | None:
        tp = TopicPartition(topic, partition)
        found = self.admin.get_many([znodes.partition_state_path(tp)])[0]
        return found and znodes.decode_partition_state(tp, found[0], found[1].version)

    def topic_id(self, topic: str) -> Uuid:
        """The id of a topic, once every broker that is up knows it."""
        up = [member.broker.metadata for member in self.cluster if member.is_up]
        until(lambda: all(metadata.contains(topic) for metadata in up))
        return up[0].snapshot.topic_ids[topic]

    def leader_and_isr(self, topic: str, partition: int = 0) -> tuple[int, tuple[int, ...]] | None:
        state = self.state(topic, partition)
        return state and state.leader_and_isr[:2]


@pytest.fixture
def fleet(zookeeper: str) -> Iterator[Fleet]:
    with EmbeddedCluster(3) as cluster, contextlib.closing(Fleet(zookeeper, cluster)) as made:
        yield made


@pytest.fixture
def node(fleet: Fleet) -> Iterator[ControllerNode]:
    with ControllerNode(77, fleet.zookeeper, config=CONFIG) as made:
        until(lambda: made.controller.is_active)
        yield made


def ask(node: ControllerNode, message: Any, version: int) -> Any:
    """Send one request to the controller's listener; gives the answer."""
    assert node.endpoint is not None
    return ask_port(node.endpoint.port, message, version)


@pytest.mark.conformance("CIT-01", "CIT-03")
def test_elections_count_the_epoch(zookeeper: str) -> None:
    changes: list[tuple[int, int]] = []
    for epoch in (1, 2):
        with ControllerNode(1, zookeeper, config=CONFIG, on_change=lambda *now: changes.append(now)) as node:
            until(lambda: node.controller.is_active)
            assert node.controller.epoch == epoch
            assert zk.read_controller_epoch(node.controller.session) == (epoch, epoch)
    assert changes == [(1, 1), (-1, 0), (1, 2), (-1, 0)]


def test_a_second_process_with_the_same_id_waits_and_says_so(
    fleet: Fleet, node: ControllerNode, caplog: pytest.LogCaptureFixture
) -> None:
    with ControllerNode(77, fleet.zookeeper, config=CONFIG) as other:
        until(lambda: "broker id 77 is registered in ZooKeeper by another process" in caplog.text)
        assert node.controller.is_active
        assert not other.controller.is_active


def test_a_node_with_the_id_of_a_live_broker_does_not_stand(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    with ControllerNode(1, fleet.zookeeper, config=CONFIG) as node:
        until(lambda: "broker id 1 is registered in ZooKeeper by another process" in caplog.text)
        assert zk.read_controller(fleet.admin) is None
        assert zk.read_controller_epoch(fleet.admin) is None
        fleet.kill(1)
        until(lambda: node.controller.is_active)  # the id is free


@pytest.mark.parametrize("has_authorizer", [False, True])
def test_acls_in_zookeeper_are_a_warning_unless_super_users_are_named(
    fleet: Fleet, caplog: pytest.LogCaptureFixture, has_authorizer: bool
) -> None:
    fleet.admin.create(znodes.ACLS, b"")
    named = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
    config = ChannelConfig.of(named if has_authorizer else {})
    with ControllerNode(77, fleet.zookeeper, config=config) as node:
        until(lambda: node.controller.is_active)
    assert ("ZooKeeper holds /kafka-acl: brokers have an authorizer" in caplog.text) is not has_authorizer


def test_a_damaged_controller_epoch_is_counted_on(fleet: Fleet) -> None:
    for epoch in (1, 2):
        with ControllerNode(77, fleet.zookeeper, config=CONFIG) as node:
            until(lambda: node.controller.is_active)
            assert node.controller.epoch == epoch
    fleet.admin.set(znodes.CONTROLLER_EPOCH, b"abc")
    with ControllerNode(77, fleet.zookeeper, config=CONFIG) as node:
        until(lambda: node.controller.is_active)
        assert zk.read_controller_epoch(fleet.admin) == (4, 4)


def test_a_controller_ends_although_zookeeper_is_away(
    kafka_jars: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with zookeeper_alone(tmp_path) as address, ControllerNode(77, address, config=CONFIG) as node:
        until(lambda: node.controller.is_active)
        real_kafka("stop-zookeeper", str(tmp_path), "--kill")
        until(lambda: not node.controller.session.is_connected)
        node.close()
        assert not node.controller.is_active
    assert "ZooKeeper is away" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.conformance("CIT-08", "CIT-28")
def test_a_topic_gets_leaders_and_an_id(fleet: Fleet, node: ControllerNode) -> None:
    fleet.create_topic("t", (0, 1), (1, 2))
    topic_id = fleet.topic_id("t")
    assert fleet.state("t") == LeaderIsrAndControllerEpoch(LeaderAndIsr(0, (0, 1)), 1)
    assert fleet.state("t", 1) == LeaderIsrAndControllerEpoch(LeaderAndIsr(1, (1, 2)), 1)
    fleet.create_topic("u", (0,))
    assert fleet.topic_id("u") != topic_id == fleet.topic_id("t")
    assert znodes.decode_topic("t", fleet.admin.get(znodes.topic_path("t"))[0]).topic_id == topic_id
    assert node.endpoint is not None
    assert node.endpoint.port > 1023  # any free port, as none was named


def test_leaders_move_when_a_broker_dies_and_come_back_when_asked(fleet: Fleet, node: ControllerNode) -> None:
    fleet.create_topic("t", (0, 1))
    until(lambda: fleet.leader_and_isr("t") == (0, (0, 1)))
    fleet.kill(0)
    until(lambda: fleet.leader_and_isr("t") == (1, (1,)))
    fleet.restart(0)
    topic_id = fleet.topic_id("t")
    found = fleet.state("t")
    assert found is not None
    asked = AlterPartitionRequestPartition(
        partition_index=0,
        leader_epoch=found.leader_and_isr.leader_epoch,
        partition_epoch=found.leader_and_isr.partition_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=1), BrokerState(broker_id=0)],
    )
    unknown = AlterPartitionRequestTopic(topic_id=b"?" * 16, partitions=[AlterPartitionRequestPartition()])
    topics = [unknown, AlterPartitionRequestTopic(topic_id=topic_id, partitions=[asked])]
    epoch = fleet.cluster[1].broker.broker_epoch
    answer = ask(node, AlterPartitionRequest(broker_id=1, broker_epoch=epoch, topics=topics), 3)
    assert answer.error_code == ErrorCode.NONE
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert list(answer.topics[1].partitions[0].isr) == [1, 0]
    assert fleet.leader_and_isr("t") == (1, (1, 0))
    fleet.admin.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions([TopicPartition("t", 0)]))
    until(lambda: fleet.leader_and_isr("t") == (0, (1, 0)))
    until(lambda: fleet.admin.exists(znodes.PREFERRED_ELECTION) is None)


@pytest.mark.conformance("CIT-12")
def test_a_partition_is_reassigned(fleet: Fleet, node: ControllerNode) -> None:
    fleet.create_topic("t", (0,))
    until(lambda: fleet.leader_and_isr("t") == (0, (0,)))
    tp = TopicPartition("t", 0)
    fleet.admin.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({tp: (1,)}))
    until(lambda: fleet.state("t")[0].leader_epoch == 1)
    state = fleet.state("t").leader_and_isr
    topic_id = fleet.topic_id("t")
    wanted = AlterPartitionRequestPartition(
        partition_index=0,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=0), BrokerState(broker_id=1)],
    )
    request = AlterPartitionRequest(
        broker_id=0,
        broker_epoch=fleet.cluster[0].broker.broker_epoch,
        topics=[AlterPartitionRequestTopic(topic_id=topic_id, partitions=[wanted])],
    )
    assert ask(node, request, 3).topics[0].partitions[0].error_code == ErrorCode.NONE
    until(lambda: fleet.leader_and_isr("t") == (1, (1,)))
    assert fleet.state("t").leader_and_isr.leader_epoch == 3
    until(lambda: fleet.admin.exists(znodes.REASSIGN_PARTITIONS) is None)
    assert znodes.decode_topic("t", fleet.admin.get(znodes.topic_path("t"))[0]).partitions == {
        0: ReplicaAssignment((1,))
    }


@pytest.mark.conformance("CIT-21")
def test_a_deposed_controller_resigns(fleet: Fleet, node: ControllerNode, caplog: pytest.LogCaptureFixture) -> None:
    fleet.admin.delete(znodes.CONTROLLER)
    with ZooKeeperSession(fleet.zookeeper) as other:
        # Whichever of the two is quicker: this one wins the race at last, and the controller keeps quiet.
        while True:
            with contextlib.suppress(Exception):
                zk.register_controller(other, 99)
                break
            with contextlib.suppress(Exception):
                fleet.admin.delete(znodes.CONTROLLER)
        until(lambda: not node.controller.is_active and node.controller.active_id == 99)
        fleet.create_topic("t", (0,))
        request = CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)])
        assert ask(node, request, 7).topics[0].error_code == ErrorCode.NOT_CONTROLLER
        assert fleet.state("t") is None
    until(lambda: node.controller.is_active)  # as soon as the other has gone
    until(lambda: fleet.leader_and_isr("t") == (0, (0,)))


@contextlib.contextmanager
def held(node: ControllerNode) -> Iterator[None]:
    """Hold the controller's event thread for as long as the block runs."""
    holding, release = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        holding.set()
        release.wait(100)

    node.controller.ask(ApiRequest(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(), hold))
    try:
        assert holding.wait(60)
        yield
    finally:
        release.set()


def delete_topic(fleet: Fleet) -> None:
    fleet.admin.create(f"{znodes.ADMIN_DELETE_TOPICS}/t")


def elect_preferred(fleet: Fleet) -> None:
    fleet.admin.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions([TopicPartition("t", 0)]))


def reassign(fleet: Fleet) -> None:
    fleet.admin.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({TopicPartition("t", 0): (1, 0)}))


@pytest.mark.parametrize(
    ("work", "unfinished"),
    [
        pytest.param(delete_topic, f"{znodes.ADMIN_DELETE_TOPICS}/t", marks=pytest.mark.conformance("CIT-22")),
        pytest.param(elect_preferred, znodes.PREFERRED_ELECTION, marks=pytest.mark.conformance("CIT-23")),
        pytest.param(reassign, znodes.REASSIGN_PARTITIONS, marks=pytest.mark.conformance("CIT-24")),
    ],
)
def test_a_controller_that_was_deposed_before_its_work_leaves_it_undone(
    fleet: Fleet,
    node: ControllerNode,
    caplog: pytest.LogCaptureFixture,
    work: Callable[[Fleet], None],
    unfinished: str,
) -> None:
    fleet.create_topic("t", (0, 1))
    until(lambda: fleet.leader_and_isr("t") == (0, (0, 1)))
    fleet.topic_id("t")
    caplog.set_level(logging.INFO)
    with ZooKeeperSession(fleet.zookeeper) as other:
        with held(node):
            before = fleet.state("t")
            work(fleet)
            fleet.admin.delete(znodes.CONTROLLER)
            zk.register_controller(other, 99)
        until(lambda: not node.controller.is_active and node.controller.active_id == 99)
        until(lambda: any("ControllerMoved" in r.message and r.levelno == logging.INFO for r in caplog.records))
        assert fleet.state("t") == before
        assert fleet.admin.exists(unfinished) is not None
    until(lambda: node.controller.is_active)
    until(lambda: fleet.admin.exists(unfinished) is None)  # done by the next controller


def test_a_session_that_expires_while_the_controller_closes_leaves_no_leadership(
    fleet: Fleet, node: ControllerNode
) -> None:
    controller = node.controller
    closing = threading.Thread(target=controller.close)
    expiring = threading.Thread(target=controller.session_expired)
    with held(node):
        closing.start()
        until(lambda: not controller.events.is_empty)
        expiring.start()  # its event takes the place of the last one, and is itself cleared by the end of the thread
        expiring.join(60)
    closing.join(60)
    assert not closing.is_alive()
    assert controller._leadership is None


@pytest.mark.conformance("CIT-42")
def test_an_expired_session_resigns_first_and_registers_anew(fleet: Fleet, node: ControllerNode) -> None:
    controller = node.controller
    before, epoch = fleet.admin.exists(znodes.broker_path(77)), controller.epoch
    expire(controller.session)
    until(lambda: controller.is_active and controller.epoch > epoch)
    after = fleet.admin.exists(znodes.broker_path(77))
    assert before is not None
    assert after is not None
    assert after.czxid > before.czxid
    fleet.create_topic("t", (0, 1))
    until(lambda: fleet.leader_and_isr("t") == (0, (0, 1)))


def test_topics_by_request(fleet: Fleet, node: ControllerNode) -> None:
    def create(name: str, count: int = 2, factor: int = -1, **more: Any) -> Any:
        topic = CreatableTopic(name=name, num_partitions=count, replication_factor=factor, **more)
        return ask(node, CreateTopicsRequest(topics=[topic]), 7).topics[0]

    made = create("t", configs=[CreatableTopicConfig(name="retention.ms", value="5")])
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 2, 3)
    assert fleet.topic_id("t") == made.topic_id
    assert znodes.decode_config("t", fleet.admin.get("/config/topics/t")[0]) == {"retention.ms": "5"}
    assert create("t").error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert create("a/b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert create("v", count=0).error_code == ErrorCode.INVALID_PARTITIONS
    too_large = create("v", count=70_000, factor=3)  # for a znode
    assert too_large.error_code == ErrorCode.INVALID_PARTITIONS
    assert "jute.maxbuffer" in too_large.error_message
    assert create("v", factor=4).error_code == ErrorCode.INVALID_REPLICATION_FACTOR  # 3 keep records, 77 does not

    more = CreatePartitionsTopic(name="t", count=4, assignments=None)
    grow = CreatePartitionsRequest(topics=[more], timeout_ms=60_000)
    assert ask(node, grow, 3).results[0].error_code == 0
    until(lambda: fleet.state("t", 3) is not None)
    assert ask(node, grow, 3).results[0].error_code == ErrorCode.INVALID_PARTITIONS

    delete = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="t"), DeleteTopicState(topic_id=b"?" * 16)], timeout_ms=60_000
    )
    codes = [each.error_code for each in ask(node, delete, 6).responses]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
    until(lambda: fleet.admin.exists(znodes.topic_path("t")) is None)
    until(lambda: not fleet.cluster[0].broker.metadata.contains("t"))
    until(lambda: fleet.admin.children(znodes.ADMIN_DELETE_TOPICS) == [])  # the last znode that is deleted


def test_many_topics_in_one_request_have_each_its_own_outcome(fleet: Fleet, node: ControllerNode) -> None:
    fleet.admin.create(f"{znodes.TOPIC_CONFIGS}/left", znodes.encode_config({"retention.ms": "1"}))
    fleet.create_topic("known", (0,))
    many = {f"many-{n}": (1, ErrorCode.NONE) for n in range(250)}
    asked = many | {
        "left": (1, ErrorCode.NONE),
        "known": (1, ErrorCode.TOPIC_ALREADY_EXISTS),
        "one.name": (1, ErrorCode.NONE),
        "one_name": (1, ErrorCode.INVALID_TOPIC_EXCEPTION),  # metrics would not tell it from the former
        "twice": (1, ErrorCode.INVALID_REQUEST),
        "large": (6_000, ErrorCode.NONE),
        "too-large": (70_000, ErrorCode.INVALID_PARTITIONS),
        "last": (2, ErrorCode.NONE),
    }
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=3) for name, (count, _) in asked.items()
    ]
    answer = ask(node, CreateTopicsRequest(topics=[*topics, CreatableTopic(name="twice", num_partitions=1)]), 7)
    assert {found.name: found.error_code for found in answer.topics} == {
        name: code for name, (_, code) in asked.items()
    }
    made = {found.name: found.topic_id for found in answer.topics if not found.error_code}
    assert {name: fleet.topic_id(name) for name in made} == made
    assert sorted(fleet.admin.children(znodes.TOPICS)) == sorted({*made, "known"})
    assert znodes.decode_config("left", fleet.admin.get(f"{znodes.TOPIC_CONFIGS}/left")[0]) == {}
    until(lambda: all(fleet.leader_and_isr(name) is not None for name in made))

    delete = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in (*made, "no-topic")], timeout_ms=60_000
    )
    codes = {found.name: found.error_code for found in ask(node, delete, 6).responses}
    assert codes == dict.fromkeys(made, ErrorCode.NONE) | {"no-topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    until(lambda: fleet.admin.children(znodes.TOPICS) == ["known"])


def test_a_topic_whose_creation_was_applied_before_its_answer_was_lost_is_created(
    fleet: Fleet, node: ControllerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = []

    def lost(session: ZooKeeperSession, many: Sequence[Sequence[Operation]]) -> list[Transaction]:
        """What a session does that loses the connection before the answers: it sends the requests again."""
        monkeypatch.setattr(ZooKeeperSession, "transactions", transactions)
        applied.extend(transactions(session, many))
        return transactions(session, many)

    transactions = ZooKeeperSession.transactions
    monkeypatch.setattr(ZooKeeperSession, "transactions", lost)
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=3) for name in ("t", "u")]
    found = ask(node, CreateTopicsRequest(topics=topics), 7).topics
    assert [outcome.error for outcome in applied] == [None]
    assert [(topic.error_code, topic.topic_id) for topic in found] == [(0, fleet.topic_id(t.name)) for t in topics]


@pytest.mark.parametrize(("name", "value"), [("no.such", "1"), ("retention.ms", "a week")])
def test_settings_that_no_topic_can_have_are_refused(fleet: Fleet, node: ControllerNode, name: str, value: str) -> None:
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, configs=[CreatableTopicConfig(name=name, value=value)]
    )
    answer = ask(node, CreateTopicsRequest(topics=[topic]), 7).topics[0]
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert name in answer.error_message
    assert fleet.admin.exists(znodes.topic_path("t")) is None


@pytest.mark.parametrize(
    ("path", "notification"),
    [
        (f"{znodes.TOPIC_CONFIGS}/t", b'{"version":2,"entity_path":"topics/t"}'),
        (f"{znodes.TOPIC_CONFIGS}/t", b'{"version":1,"entity_type":"topics","entity_name":"t"}'),
        ("/config/brokers/<default>", b'{"version":2,"entity_path":"brokers/<default>"}'),
    ],
)
def test_an_unclean_election_as_soon_as_it_is_allowed(
    fleet: Fleet, node: ControllerNode, path: str, notification: bytes
) -> None:
    fleet.create_topic("t", (0, 1))
    until(lambda: fleet.leader_and_isr("t") == (0, (0, 1)))
    for broker_id in (1, 0):
        fleet.kill(broker_id)
        until(lambda: fleet.leader_and_isr("t") == ((0, (0,)) if 0 in fleet.sessions else (-1, (0,))))
    fleet.restart(1)
    fleet.create_topic("later", (1,))
    fleet.topic_id("later")  # so the controller has dealt with the restart, and found no election to hold
    fleet.admin.create(f"{znodes.CONFIG_CHANGES}/config_change_0000000003", b"not JSON")
    fleet.admin.ensure(path.rpartition("/")[0])
    fleet.admin.create(path, znodes.encode_config({"unclean.leader.election.enable": "true"}))
    assert fleet.leader_and_isr("t") == (-1, (0,))
    fleet.admin.create(f"{znodes.CONFIG_CHANGES}/config_change_0000000004", notification)
    until(lambda: fleet.leader_and_isr("t") == (1, (1,)))


def test_replicas_that_brokers_place_on_the_controller_go_to_others(fleet: Fleet, node: ControllerNode) -> None:
    fleet.create_topic("t", (77, 1, 2), (0, 77))
    fleet.topic_id("t")
    assert fleet.leader_and_isr("t") == (0, (0, 1, 2))
    found = fleet.state("t", 1)
    assert found is not None
    assert 77 not in found.leader_and_isr.isr
    assert len(found.leader_and_isr.isr) == 2


def test_an_envelope_holds_a_request_and_its_answer(fleet: Fleet, node: ControllerNode) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=2)])
    inner = headers.encode_request_header(headers.request_header(19, 7, 42, "client"), 2) + codec.encode(request, 7)
    answer = ask(node, EnvelopeRequest(request_data=inner, client_host_address=b"\x7f\0\0\1"), 0)
    assert answer.error_code == ErrorCode.NONE
    header, at = headers.decode_response_header_from(answer.response_data, 1)
    assert header.correlation_id == 42
    assert codec.decode_response(19, 7, answer.response_data[at:]).topics[0].error_code == 0
    broken = EnvelopeRequest(request_data=inner[:-3], client_host_address=b"")
    assert ask(node, broken, 0).error_code == ErrorCode.INVALID_REQUEST


def test_producer_ids_are_given_once(fleet: Fleet, node: ControllerNode) -> None:
    epoch = fleet.cluster[1].broker.broker_epoch
    blocks = [ask(node, AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch), 0) for _ in range(3)]
    assert [(b.error_code, b.producer_id_start, b.producer_id_len) for b in blocks] == [
        (0, 0, 1000), (0, 1000, 1000), (0, 2000, 1000),
    ]  # fmt: skip
    stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch - 1)
    assert ask(node, stale, 0).error_code == ErrorCode.STALE_BROKER_EPOCH
    unknown = AllocateProducerIdsRequest(broker_id=9, broker_epoch=1)
    assert ask(node, unknown, 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.conformance("CIT-19", "CIT-20")
def test_brokers_shut_down_one_after_the_other(fleet: Fleet, node: ControllerNode) -> None:
    fleet.create_topic("t", (0, 1, 2))
    until(lambda: fleet.leader_and_isr("t") == (0, (0, 1, 2)))

    def shut_down(broker_id: int, back: int = 0) -> Any:
        epoch = fleet.cluster[broker_id].broker.broker_epoch - back
        return ask(node, ControlledShutdownRequest(broker_id=broker_id, broker_epoch=epoch), 3)

    assert shut_down(2, back=1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert [len(shut_down(b).remaining_partitions) for b in (2, 1)] == [0, 0]
    assert fleet.leader_and_isr("t") == (0, (0,))
    assert len(shut_down(0).remaining_partitions) == 1
    assert fleet.leader_and_isr("t") == (0, (0,))


def test_clients_find_brokers_and_controller_and_are_refused_the_rest(fleet: Fleet, node: ControllerNode) -> None:
    until(lambda: len(ask(node, MetadataRequest(topics=None), 12).brokers) == 4)
    answer = ask(node, MetadataRequest(topics=None), 12)
    assert answer.controller_id == 77
    assert {b.node_id for b in answer.brokers} == {0, 1, 2, 77}
    keys = {each.api_key for each in ask(node, ApiVersionsRequest(), 0).api_keys}
    assert {ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE, ApiKey.CREATE_TOPICS} <= keys
    assert ApiKey.PRODUCE not in keys


# ---- what administrators ask of the controller


def test_reassignments_by_request(fleet: Fleet, node: ControllerNode) -> None:
    fleet.create_topic("t", (0,), (1,))
    fleet.topic_id("t")

    def reassign(partition: int, replicas: list[int] | None) -> tuple[int, str | None]:
        wanted = ReassignablePartition(partition_index=partition, replicas=replicas)
        topic = ReassignableTopic(name="t", partitions=[wanted])
        response = ask(node, AlterPartitionReassignmentsRequest(topics=[topic]), 0)
        assert response.error_code == 0
        (result,) = response.responses[0].partitions
        return result.error_code, result.error_message

    def under_way(*partitions: int) -> dict[int, tuple[list[int], list[int], list[int]]]:
        asked = [ListPartitionReassignmentsTopics(name="t", partition_indexes=list(partitions))] if partitions else None
        topics = ask(node, ListPartitionReassignmentsRequest(topics=asked), 0).topics
        return {
            p.partition_index: (list(p.replicas), list(p.adding_replicas), list(p.removing_replicas))
            for topic in topics
            for p in topic.partitions
        }

    assert under_way() == {}
    assert reassign(0, None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    assert reassign(0, [77])[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(9, [1])[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fleet.cluster[2].broker.hooks.intercept = lambda context, _: (
        Interception(drop=True) if context.api_key == ApiKey.LEADER_AND_ISR else None
    )  # so that it never joins the ISR
    assert reassign(0, [2]) == (0, None)
    assert under_way() == under_way(0, 1) == {0: ([2, 0], [2], [0])}
    assert under_way(1) == {}
    assert reassign(0, None) == (0, None)
    assert under_way() == {}
    assert fleet.leader_and_isr("t") == (0, (0,))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_elections_by_request(fleet: Fleet, node: ControllerNode, version: int) -> None:
    fleet.create_topic("t", (0, 1), (1, 0))
    fleet.topic_id("t")
    fleet.kill(0)
    until(lambda: fleet.leader_and_isr("t") == (1, (1,)))

    def elect(*partitions: int) -> dict[int, int]:
        topics = [ElectLeadersTopic(topic="t", partitions=list(partitions))] if partitions else None
        response = ask(node, ElectLeadersRequest(topic_partitions=topics), version)
        assert response.error_code == 0
        return {p.partition_id: p.error_code for t in response.replica_election_results for p in t.partition_result}

    assert elect(0, 1, 7) == {
        0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        1: ErrorCode.ELECTION_NOT_NEEDED,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert elect() == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_credentials_and_settings_by_request(fleet: Fleet, node: ControllerNode) -> None:
    def alter(**changes: Any) -> list[int]:
        return [r.error_code for r in ask(node, AlterUserScramCredentialsRequest(**changes), 0).results]

    new = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
    assert alter(upsertions=[ScramCredentialUpsertion(name="a b*", **new)]) == [0]
    stored = znodes.decode_config("", fleet.admin.get("/config/users/a%20b%2A")[0])["SCRAM-SHA-256"]
    assert stored == (
        "salt=c2FsdA==,stored_key=GtLpyI6j6Ao7WJIybughIWcRlg4gdeLuD7KvRlS0+W4=,"
        "server_key=p7SKfng/8xN8+R0XmIh/Y+No1mzIJVIp0003IJMExn0=,iterations=4096"
    )
    assert alter(upsertions=[ScramCredentialUpsertion(name="b", **{**new, "iterations": 4095})]) == [93]
    assert alter(upsertions=[ScramCredentialUpsertion(name="b", **{**new, "mechanism": 3})]) == [33]
    assert alter(upsertions=[ScramCredentialUpsertion(name="..", **new)]) == [93]
    assert alter(upsertions=[ScramCredentialUpsertion(name="b", **{**new, "salt": bytes(1_000_000)})]) == [40]
    assert fleet.admin.exists("/config/users/b") is None
    assert alter(deletions=[ScramCredentialDeletion(name="a b*", mechanism=2)]) == [91]
    assert alter(deletions=[ScramCredentialDeletion(name="a b*", mechanism=1)]) == [0]
    assert fleet.admin.exists("/config/users/a%20b%2A") is None
    assert alter(upsertions=[ScramCredentialUpsertion(name="c", **new)]) == [0]
    fleet.admin.ensure("/config/users/c/clients/d")
    assert alter(deletions=[ScramCredentialDeletion(name="c", mechanism=1)]) == [0]
    assert znodes.decode_config("", fleet.admin.get("/config/users/c")[0]) == {}

    def change(operation: int, value: str | None, name: str = "leader.replication.throttled.rate") -> int:
        entry = AlterableConfig(name=name, config_operation=operation, value=value)
        own = IncrementalAlterConfigsResource(resource_type=4, resource_name="77", configs=[entry])
        return int(ask(node, IncrementalAlterConfigsRequest(resources=[own]), 1).responses[0].error_code)

    assert change(0, "5") == 0
    assert znodes.decode_config("", fleet.admin.get("/config/brokers/77")[0]) == {
        "leader.replication.throttled.rate": "5"
    }
    described = DescribeConfigsResource(resource_type=4, resource_name="77", configuration_keys=None)
    found = ask(node, DescribeConfigsRequest(resources=[described]), 4).results[0]
    assert {c.name: c.value for c in found.configs} == {"broker.id": "77", "leader.replication.throttled.rate": "5"}
    assert change(0, "fast") == change(0, "5", "broker.id") == ErrorCode.INVALID_CONFIG
    assert change(1, None) == 0
    assert znodes.decode_config("", fleet.admin.get("/config/brokers/77")[0]) == {}


def test_features_are_refused_as_by_a_broker_with_zookeeper(node: ControllerNode) -> None:
    update = FeatureUpdateKey(feature="metadata.version", max_version_level=4)
    (result,) = ask(node, UpdateFeaturesRequest(feature_updates=[update]), 1).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "not supported" in result.error_message


def test_the_status_tells_who_leads_and_what_is_under_way(fleet: Fleet, node: ControllerNode) -> None:
    fleet.create_topic("t", (0,))
    fleet.topic_id("t")
    done = CliRunner().invoke(controller_command, ["--zookeeper", fleet.zookeeper, "--status"])
    status = json.loads(done.output)
    assert re.fullmatch(r"20[0-9-]+T[0-9:.]+Z", status.pop("since"))
    assert status == {
        "controller": 77, "kraft": False, "controller_epoch": 1, "brokers": [0, 1, 2, 77], "topics": 1,
        "reassignments": [], "deletions": [],
    }  # fmt: skip
    moving = ReplicaAssignment((1, 0), (1,), (0,))
    fleet.admin.set(znodes.topic_path("t"), znodes.encode_topic({0: moving}, fleet.topic_id("t")))
    assert zk.controller_status(fleet.admin)["reassignments"] == ["t-0"]
    node.close()
    assert zk.controller_status(fleet.admin)["controller"] is None


@pytest.mark.parametrize("verbose", [False, True])
def test_the_command_serves_on_its_listener_and_logs_state_changes_when_asked(zookeeper: str, verbose: bool) -> None:
    """``kproto controller`` in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with EmbeddedCluster(2) as cluster, contextlib.closing(Fleet(zookeeper, cluster)):
        command = [sys.executable, "-m", "kproto", "controller", "--zookeeper", zookeeper, "--id", "9"]
        command += ["--listener", f"127.0.0.1:{port}", *(["--verbose"] if verbose else [])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            try:
                assert json.loads(running.stdout.readline()) == {"id": 9, "host": "127.0.0.1", "port": port}
                assert json.loads(running.stdout.readline())["leading"] is True
                socket.create_connection(("127.0.0.1", port), 10).close()
                until(lambda: set(cluster[1].broker.metadata.snapshot.alive_brokers) == {0, 1, 9})
            finally:
                running.send_signal(signal.SIGTERM)
            _, logged = running.communicate(timeout=60)
    assert ("UpdateMetadata" in logged) is verbose, logged
