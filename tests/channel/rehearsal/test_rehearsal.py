"""The scripted controller over real sockets: what brokers hold after each decision, and what wrong use gives."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from asking import ask_port
from network_peers import until

from channel.broker.cluster import EmbeddedCluster
from channel.broker.handlers import handle
from channel.broker.hooks import BrokerHooks, Interception, RequestContext
from channel.config import ChannelConfig
from channel.errors import BrokerNotAvailable, IllegalState, RequestRefused, RequestTimeout
from channel.logs import STATE_CHANGE
from channel.rehearsal.scripted_controller import ScriptedController
from channel.security import Password, SecurityConfig
from channel.types import LeaderAndIsr, LeaderRecoveryState, SecurityProtocol
from kproto import messages
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(4) as made:
        yield made


@pytest.fixture
def controller(cluster: EmbeddedCluster) -> Iterator[ScriptedController]:
    with ScriptedController(cluster) as made:
        yield made


def roles(cluster: EmbeddedCluster, tp: TopicPartition) -> dict[int, str]:
    """Of each broker that hosts the partition, whether it leads or follows."""
    return {m.id: m.broker.replicas.hosted[tp].role for m in cluster if tp in m.broker.replicas.hosted}


def known_leaders(cluster: EmbeddedCluster, tp: TopicPartition) -> set[int | None]:
    """The leader as the metadata caches of all brokers that are up have it."""
    rows = [m.broker.metadata.partition_info(*tp) for m in cluster if m.is_up]
    return {None if row is None else row.leader for row in rows}


def test_brokers_know_each_other_before_the_first_leader_and_isr(
    cluster: EmbeddedCluster, controller: ScriptedController, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, STATE_CHANGE.name):
        controller.create_topic("t", partitions=8, replication_factor=3)
        controller.wait_all()
    assert not caplog.records
    by_broker: dict[int, list[int]] = {}
    for entry in controller.journal.entries:
        by_broker.setdefault(entry.broker_id, []).append(entry.api_key)
    assert set(by_broker) == {0, 1, 2, 3}
    assert all(keys[0] == ApiKey.UPDATE_METADATA for keys in by_broker.values())
    assert all(entry.error_code == 0 and not entry.partition_errors for entry in controller.journal.entries)
    assert {entry.controller_epoch for entry in controller.journal.entries} == {1}
    assert roles(cluster, T1) == {1: "leader", 2: "follower", 3: "follower"}
    assert known_leaders(cluster, T1) == {1}


def test_a_failed_brokers_partitions_get_other_leaders_and_it_comes_back_as_a_follower(
    cluster: EmbeddedCluster, controller: ScriptedController
) -> None:
    controller.create_topic("t", assignment=[[0, 1, 2], [0]])
    controller.wait_all()
    cluster.kill(0)
    controller.announce()
    controller.mark_dead(0)
    controller.wait_all()
    assert controller.leadership("t", 0) == LeaderAndIsr(1, (1, 2), 1, 1)
    assert controller.leadership("t", 1).leader == -1
    assert known_leaders(cluster, T0) == {1}
    assert known_leaders(cluster, T1) == {-1}
    (lost,) = (e for e in controller.journal.entries if e.dropped)
    assert (lost.broker_id, lost.answered, lost.error_code, lost.partition_errors) == (0, False, None, ())
    assert repr(lost) == "<UpdateMetadata v8 to broker 0: dropped>"

    cluster.restart(0)
    controller.register(cluster[0])
    controller.wait_all()
    assert controller.leadership("t", 0) == LeaderAndIsr(1, (1, 2, 0), 2, 2)
    assert controller.leadership("t", 1).leader == 0
    assert roles(cluster, T0) == {0: "follower", 1: "leader", 2: "follower"}
    assert roles(cluster, T1) == {0: "leader"}
    assert known_leaders(cluster, T1) == {0}


def test_a_broker_that_bounced_unnoticed_is_registered_with_its_new_epoch(
    cluster: EmbeddedCluster, controller: ScriptedController
) -> None:
    controller.create_topic("t", assignment=[[0, 1]])
    controller.wait_all()
    epoch = cluster.restart(0)
    controller.register(cluster[0])
    controller.wait_all()
    assert controller.context.live_broker_id_and_epochs[0] == epoch
    assert controller.leadership("t", 0).leader == 0
    assert roles(cluster, T0) == {0: "leader", 1: "follower"}
    assert all(entry.error_code == 0 for entry in controller.journal.entries)


def test_elections(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.create_topic("t", assignment=[[0, 1, 2]])
    controller.elect("t", 0, leader=2)
    controller.wait_all()
    assert controller.leadership("t", 0) == LeaderAndIsr(2, (0, 1, 2), 1, 1)
    assert roles(cluster, T0) == {0: "follower", 1: "follower", 2: "leader"}
    controller.elect("t", 0)
    assert controller.leadership("t", 0).leader == 0, "the preferred replica"
    with pytest.raises(ValueError, match=r"broker 3 is no live replica of t-0; there are \[0, 1, 2\]"):
        controller.elect("t", 0, leader=3)
    cluster.kill(1)
    controller.mark_dead(1)
    cluster.restart(1)
    controller.register(cluster[1])
    cluster.kill(2)
    controller.mark_dead(2)
    controller.wait_all()
    assert controller.leadership("t", 0).isr == (0, 1)
    with pytest.raises(ValueError, match="broker 2 is no live replica"):
        controller.elect("t", 0, leader=2)


def test_an_unclean_election_has_to_be_asked_for(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.create_topic("t", assignment=[[0, 1]])
    cluster.kill(1)
    controller.mark_dead(1)
    cluster.kill(0)
    controller.mark_dead(0)
    controller.context.add_live_brokers({controller._as_broker(cluster[1]): 1})  # back, and not caught up
    with pytest.raises(ValueError, match=r"broker 1 is not in the ISR of t-0, \[0\]; or give unclean=True"):
        controller.elect("t", 0, leader=1)
    controller.elect("t", 0)
    assert controller.leadership("t", 0).leader == -1
    controller.elect("t", 0, leader=1, unclean=True)
    state = controller.leadership("t", 0)
    assert (state.leader, state.isr, state.recovery_state) == (1, (1,), LeaderRecoveryState.RECOVERING)


def test_a_reassignment_moves_replicas_and_deletes_the_old_ones(
    cluster: EmbeddedCluster, controller: ScriptedController
) -> None:
    controller.create_topic("t", assignment=[[0, 1]])
    controller.reassign("t", 0, [2, 1])
    controller.wait_all()
    assert controller.leadership("t", 0).leader == 2
    assert controller.leadership("t", 0).isr == (2, 1)
    assert roles(cluster, T0) == {1: "follower", 2: "leader"}
    assert known_leaders(cluster, T0) == {2}
    to_new = [e.message for e in controller.journal.entries if e.broker_id == 2 and e.api_key == ApiKey.LEADER_AND_ISR]
    states = [message.partition_states[0] for message in to_new]
    assert [(s.is_new, s.adding_replicas, s.removing_replicas) for s in states] == [(True, (2,), (0,)), (False, (), ())]


def test_a_topic_goes_with_its_replicas(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.create_topic("t", partitions=4, replication_factor=2)
    controller.create_topic("kept", partitions=1)
    controller.delete_topic("t")
    controller.wait_all()
    assert all(set(m.broker.replicas.logs) <= {TopicPartition("kept", 0)} for m in cluster)
    assert known_leaders(cluster, T0) == {None}
    controller.create_topic("t", partitions=1)
    controller.wait_all()
    assert known_leaders(cluster, T0) == {0}


@pytest.mark.parametrize("ibp", ["0.10.2", "2.2", "3.9"])
def test_the_protocol_version_decides_the_requests(cluster: EmbeddedCluster, ibp: str) -> None:
    config = ChannelConfig(inter_broker_protocol_version=ibp, control_plane_listener_name="CONTROL")
    with ScriptedController(cluster, config=config) as controller:
        controller.create_topic("t", partitions=4, replication_factor=2)
        controller.delete_topic("t")
        controller.wait_all()
    assert {e.version for e in controller.journal.entries if e.api_key == ApiKey.LEADER_AND_ISR} == {
        {"0.10.2": 0, "2.2": 2, "3.9": 7}[ibp]
    }
    assert all(e.error_code == 0 for e in controller.journal.entries)


def test_a_deposed_controllers_requests_are_refused_with_their_partitions(
    cluster: EmbeddedCluster, controller: ScriptedController
) -> None:
    controller.context.epoch = 5
    controller.announce()
    controller.wait_all()
    with ScriptedController(cluster, controller_epoch=4, controller_id=7) as deposed:
        deposed.create_topic("t", assignment=[[0, 1]])
        with pytest.raises(RequestRefused, match=r"10 requests were refused: <.*STALE_CONTROLLER_EPOCH>"):
            deposed.wait_all()
        deposed.wait_all()  # it tells of each request once
        assert len(deposed.refused) == 10
        assert {entry.controller_epoch for entry in deposed.journal.entries} == {4}
        entries = deposed.journal.entries
    assert {e.error_code for e in entries} == {11}
    refused = next(e for e in entries if e.api_key == ApiKey.LEADER_AND_ISR)
    topic_id = deposed.context.topic_ids["t"]
    assert refused.partition_errors == ({"topic": "t", "topic_id": topic_id, "partition": 0, "error_code": 11},)


def test_a_broker_that_does_not_answer_is_named(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.wait_all()
    cluster[2].broker.hooks = BrokerHooks(intercept=lambda context, request: Interception(drop=True))
    controller.announce()
    until(lambda: [t.broker_id for t in controller.journal.entries if not t.answered] == [2])
    with pytest.raises(RequestTimeout, match=r"1 requests are not answered after 0.2 s, by brokers \[2\]"):
        controller.wait_all(timeout_s=0.2)
    controller.mark_dead(2)
    controller.wait_all()


def test_wrong_use_is_refused_and_sends_nothing(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.create_topic("t", partitions=2, replication_factor=2)
    controller.wait_all()
    sent = len(controller.journal.entries)
    wrong: list[tuple[Any, type[Exception], str]] = [
        (lambda: controller.mark_dead(9), BrokerNotAvailable, r"no broker 9; there are \[0, 1, 2, 3\]"),
        (lambda: controller.mark_dead("9"), BrokerNotAvailable, "no broker '9'; there are"),
        (lambda: controller.announce(9), BrokerNotAvailable, "no broker 9"),
        (lambda: controller.create_topic("t"), ValueError, "topic t exists already"),
        (lambda: controller.create_topic(""), ValueError, "'' is none: a topic's name has 1 to 249"),
        (lambda: controller.create_topic("u", partitions=0), ValueError, "0 partitions of 1 replicas"),
        (lambda: controller.create_topic("u", assignment=[]), ValueError, "no partition"),
        (lambda: controller.create_topic("u", assignment=[[0, 0]]), ValueError, "each broker once"),
        (lambda: controller.create_topic("u", assignment=[[0, 9]]), BrokerNotAvailable, "no broker 9"),
        (lambda: controller.create_topic("u", replication_factor=5), BrokerNotAvailable, "there are 4"),
        (lambda: controller.create_topic("u", topic_id=b"x"), ValueError, "topic_id has 1 bytes"),
        (lambda: controller.elect("t", 5), ValueError, r"no partition 5: topic t has \[0, 1\]"),
        (lambda: controller.elect("u", 0), ValueError, "there is no topic u"),
        (lambda: controller.reassign("t", 0, []), ValueError, "at least one"),
        (lambda: controller.delete_topic("u"), ValueError, r"no topic u; there are \['t'\]"),
    ]
    for call, error, text in wrong:
        with pytest.raises(error, match=text):
            call()
    controller.wait_all()
    assert len(controller.journal.entries) == sent
    controller.create_topic("u", partitions=1)
    controller.wait_all()


def test_a_failed_decision_leaves_the_controller_usable(
    cluster: EmbeddedCluster, controller: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(controller.manager, "send_request", fail)
    with pytest.raises(IllegalState, match="no room"):
        controller.announce()
    monkeypatch.undo()
    controller.create_topic("u", partitions=2)
    controller.wait_all()
    assert known_leaders(cluster, TopicPartition("u", 0)) <= {0, None}


def test_the_threads_end_with_it(cluster: EmbeddedCluster) -> None:
    before = set(threading.enumerate())
    with ScriptedController(cluster) as controller:
        controller.wait_all()
    assert set(threading.enumerate()) <= before
    with pytest.raises(BrokerNotAvailable), ScriptedController(cluster, config=ChannelConfig()) as broken:
        broken.mark_dead(9)
    assert set(threading.enumerate()) <= before


def test_a_closed_controller_takes_no_decision(cluster: EmbeddedCluster) -> None:
    with ScriptedController(cluster) as controller:
        pass
    with pytest.raises(IllegalState, match="closed"):
        controller.announce()


def test_a_scripted_controller_names_the_security_protocol_of_its_brokers() -> None:
    users = {"kproto": Password("secret")}
    security = SecurityConfig(
        sasl_mechanism="PLAIN", sasl_enabled_mechanisms=("PLAIN",), sasl_username="kproto",
        sasl_password=users["kproto"], users=users,
    )  # fmt: skip
    config = ChannelConfig(inter_broker_protocol_version="0.10.0").secured("SASL_PLAINTEXT", security)
    with (
        EmbeddedCluster(2, protocol=SecurityProtocol.SASL_PLAINTEXT, security=security) as cluster,
        ScriptedController(cluster, config=config) as controller,
    ):
        controller.wait_all()  # UpdateMetadata 2 has no name for a listener, and names its protocol
        alive = cluster[0].broker.metadata.snapshot.alive_brokers
        named = {(end.listener_name, end.security_protocol) for each in alive.values() for end in each.endpoints}
        assert named == {("SASL_PLAINTEXT", SecurityProtocol.SASL_PLAINTEXT)}


def test_a_scripted_controller_goes_on_as_the_kraft_controller_of_a_migration() -> None:
    with EmbeddedCluster(3, kraft=True) as cluster, ScriptedController(cluster, controller_epoch=4) as controller:
        controller.create_topic("kept", partitions=3, replication_factor=3)
        controller.create_topic("gone", partitions=1, replication_factor=3)
        controller.wait_all()
        before = len(controller.journal.entries)
        assert [member.broker.is_led_by_kraft for member in cluster] == [False] * 3
        controller.migrate()
        controller.wait_all()
        image = controller.journal.entries[before:]
        assert [member.broker.is_led_by_kraft for member in cluster] == [True] * 3
        first = [next(each for each in image if each.broker_id == broker_id) for broker_id in range(3)]
        assert {each.api_key for each in first} == {ApiKey.UPDATE_METADATA}
        full = [each.message for each in image if each.api_key == ApiKey.LEADER_AND_ISR]
        assert [(message.type, message.controller_epoch) for message in full] == [(2, 5)] * 3
        controller.elect("kept", 0, 1)
        cluster.kill(2)
        controller.mark_dead(2)
        cluster.restart(2)
        controller.register(cluster[2])
        controller.delete_topic("gone")
        controller.wait_all()
        later = [each for each in controller.journal.entries[before:] if not each.dropped]
        assert all(each.message.is_kraft_controller for each in later)
        assert {each.error_code for each in later} == {0}
        assert [member.broker.metadata.snapshot.partition_count for member in cluster] == [3] * 3
        assert [TopicPartition("gone", 0) in member.broker.replicas.hosted for member in cluster] == [False] * 3


def test_a_kraft_controller_has_channels_to_the_brokers_of_the_migration_alone() -> None:
    """A broker that is fenced, or a KRaft broker by now, gets nothing until it is a ZooKeeper broker again."""
    with EmbeddedCluster(3, kraft=True) as cluster, ScriptedController(cluster) as controller:
        controller.migrate()

        def told() -> set[int]:
            before = len(controller.journal.entries)
            controller.announce()
            controller.wait_all()
            return {each.broker_id for each in controller.journal.entries[before:] if not each.dropped}

        assert told() == {0, 1, 2}
        controller.mark_dead(1)
        assert told() == {0, 2}
        controller.mark_dead(0)
        assert told() == {2}
        controller.register(cluster[1])
        assert told() == {1, 2}


def test_a_controller_starts_once(cluster: EmbeddedCluster) -> None:
    with ScriptedController(cluster).start() as controller, pytest.raises(IllegalState, match="is started already"):
        controller.start()
    with pytest.raises(IllegalState, match="this controller is closed; a controller starts once: make another"):
        controller.start()


def test_partitions_are_added_beside_those_that_a_topic_has(
    cluster: EmbeddedCluster, controller: ScriptedController
) -> None:
    controller.create_topic("t", partitions=2, replication_factor=2)
    controller.add_partitions("t", 3)
    controller.add_partitions("t", 4, assignment=[[3, 0]])
    controller.wait_all()
    assert [cluster[1].broker.metadata.partition_info("t", p).leader for p in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="topic t has 4 partitions; count is 4"):
        controller.add_partitions("t", 4)
    with pytest.raises(ValueError, match="2 partitions are new, and 1 assignments are given"):
        controller.add_partitions("t", 6, assignment=[[0]])
    with pytest.raises(ValueError, match="there is no topic u"):
        controller.add_partitions("u", 4)


class Administrator:
    """Gives requests to one broker of a cluster whose controller is broker 1."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    def ask(self, request: Any, broker_id: int = 1, version: int = 5) -> Any:
        return ask_port(self._cluster[broker_id].port, request, version)

    def create(self, *topics: Any, broker_id: int = 1, **options: Any) -> dict[str, int]:
        answer = self.ask(messages.CreateTopicsRequest(topics=list(topics), **options), broker_id)
        return {each.name: each.error_code for each in answer.topics}


def new(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> Any:
    return messages.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **more)


@pytest.fixture
def administrator(cluster: EmbeddedCluster) -> Iterator[Administrator]:
    with ScriptedController(cluster, controller_id=1):
        yield Administrator(cluster)


def test_topics_are_created_by_the_rules_of_kafkas_controller(
    cluster: EmbeddedCluster, administrator: Administrator
) -> None:
    setting = messages.CreatableTopicConfig(name="min.insync.replicas", value="2")
    assert administrator.create(new("a", 3, 2), new("b", -1, -1, configs=[setting])) == {"a": 0, "b": 0}
    assert all(member.broker.metadata.partition_info("a", 2) is not None for member in cluster)
    assert cluster[3].broker.settings("topics/b") == {"min.insync.replicas": "2"}
    wrong = messages.CreatableTopicConfig(name="min.insync.replicas", value="many")
    assert administrator.create(
        new("a"), new("a/b"), new("c", 0), new("d", 1, 9), new("e", configs=[wrong]), new("f"), new("f")
    ) == {"a": 36, "a/b": 17, "c": 37, "d": 38, "e": 40, "f": 42}
    assert administrator.create(new("g"), validate_only=True) == {"g": 0}
    assert not cluster[0].broker.metadata.contains("g")
    assert administrator.create(new("g"), broker_id=0) == {"g": ErrorCode.NOT_CONTROLLER}


def test_an_error_of_the_controllers_own_is_answered(
    administrator: Administrator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ScriptedController, "create_topic", fails)
    assert administrator.create(new("a")) == {"a": ErrorCode.UNKNOWN_SERVER_ERROR}
    assert "ZeroDivisionError" in caplog.text


def test_partitions_are_created_and_topics_deleted_for_administrators(
    cluster: EmbeddedCluster, administrator: Administrator
) -> None:
    administrator.create(new("a", 1, 2), new("b"))
    topics = [messages.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ("a", "nothing")]
    answer = administrator.ask(messages.CreatePartitionsRequest(topics=topics, timeout_ms=30_000), version=3)
    assert {each.name: each.error_code for each in answer.results} == {"a": 0, "nothing": 3}
    assert cluster[2].broker.metadata.partition_info("a", 1) is not None
    answer = administrator.ask(messages.DeleteTopicsRequest(topic_names=["a", "nothing"], timeout_ms=30_000))
    assert [(each.name, each.error_code) for each in answer.responses] == [("a", 0), ("nothing", 3)]
    assert not cluster[0].broker.metadata.contains("a")


def test_a_broker_that_hangs_is_not_waited_for_and_a_time_limit_of_zero_times_out(
    cluster: EmbeddedCluster, administrator: Administrator
) -> None:
    cluster.pause(3)
    assert administrator.create(new("a")) == {"a": 0}
    cluster.resume(3)
    cluster[0].intercept(Interception(delay_s=0.2), ApiKey.UPDATE_METADATA)
    assert administrator.create(new("b"), timeout_ms=0) == {"b": ErrorCode.REQUEST_TIMED_OUT}


def test_the_answer_of_a_kraft_controller_waits_for_all_brokers_too() -> None:
    with EmbeddedCluster(3, kraft=True) as cluster, ScriptedController(cluster, controller_id=1) as controller:
        controller.migrate()
        cluster[0].intercept(Interception(delay_s=0.1), ApiKey.UPDATE_METADATA)
        assert Administrator(cluster).create(new("a")) == {"a": 0}
        assert all(member.broker.metadata.contains("a") for member in cluster)


def test_clients_create_topics_by_asking_unless_the_controller_forbids_it(cluster: EmbeddedCluster) -> None:
    def asked(name: str, **options: Any) -> int:
        request = messages.MetadataRequest(topics=[messages.MetadataRequestTopic(name=name)], **options)
        answer = handle(cluster[2].broker, RequestContext(ApiKey.METADATA, 9, 1, "test", "PLAINTEXT"), request)
        (topic,) = answer.topics
        return int(topic.error_code)

    with ScriptedController(cluster, controller_id=1) as controller:
        assert asked("a") == ErrorCode.LEADER_NOT_AVAILABLE
        assert asked("a/b") == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert asked("b", allow_auto_topic_creation=False) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        until(lambda: asked("a") == 0)
        assert controller.context.all_topics == {"a"}
    with ScriptedController(cluster, controller_id=1, controller_epoch=2, auto_create_topics=False):
        assert asked("c") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_next_controller_serves_administrators_after_the_former_has_ended(cluster: EmbeddedCluster) -> None:
    former = ScriptedController(cluster, controller_id=1).start()
    with ScriptedController(cluster, controller_id=2, controller_epoch=2):
        former.close()
        administrator = Administrator(cluster)
        assert administrator.create(new("a"), broker_id=1) == {"a": ErrorCode.NOT_CONTROLLER}
        assert administrator.create(new("a"), broker_id=2) == {"a": 0}
    assert cluster[2].broker.controller_apis is None


def test_one_of_the_brokers_begins_once_all_know_each_other() -> None:
    def late(context: RequestContext, request: Any) -> Interception | None:
        return Interception(delay_s=0.05) if context.api_key == ApiKey.UPDATE_METADATA else None

    with (
        EmbeddedCluster(3, hooks=lambda _: BrokerHooks(intercept=late)) as cluster,
        ScriptedController(cluster, controller_id=1),
    ):
        known = [sorted(node.id for node in member.broker.metadata.nodes("PLAINTEXT")[0]) for member in cluster]
        assert known == [[0, 1, 2]] * 3
