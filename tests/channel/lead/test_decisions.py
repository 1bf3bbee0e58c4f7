"""The controller's decisions about brokers, topics and leaders: what is written, and what the brokers are sent."""

import logging
from typing import Any

import pytest
from decided_cluster import T0, DecidedCluster, broker

from channel.errors import BrokerNotAvailable, ControllerMoved, StaleBrokerEpoch
from channel.lead.election import Controller
from channel.lead.events import (
    BrokerChange,
    BrokerModifications,
    ConfigChangeNotification,
    LeaderAndIsrResponseReceived,
    LogDirEventNotification,
    PartitionModifications,
    PreferredReplicaLeaderElection,
    TopicChange,
)
from channel.types import LeaderRecoveryState
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.messages import LeaderAndIsrPartitionError, LeaderAndIsrResponse, LeaderAndIsrTopicError
from kproto.types import TopicPartition

GROUP = "kafka.controller:type=KafkaController"
T1 = TopicPartition("t", 1)
CONTROLLER, OTHER = 0, 1


def elected(*broker_ids: int, **settings: Any) -> DecidedCluster:
    cluster = DecidedCluster(broker_ids or (0, 1, 2), settings)
    cluster.elect()
    return cluster


def stop(cluster: DecidedCluster, broker_id: int) -> None:
    cluster.store.unregister_broker(broker_id)
    cluster.process(BrokerChange())


def start(cluster: DecidedCluster, broker_id: int) -> None:
    cluster.store.register_broker(broker(broker_id))
    cluster.process(BrokerChange())


# ---- topics


@pytest.mark.conformance("CIT-08")
def test_a_new_topic_is_led_by_its_first_replica() -> None:
    cluster = elected()
    cluster.taken()
    cluster.create([0, 1])
    assert cluster.leader() == (0, 0, [0, 1])
    assert cluster.store.read_partition_states([T0])[T0].controller_epoch == 1
    lisr = cluster.requests(ApiKey.LEADER_AND_ISR)
    assert sorted(lisr) == [0, 1]
    assert all(sent.partitions[T0].is_new for requests in lisr.values() for sent in requests)
    assert sorted(cluster.requests(ApiKey.UPDATE_METADATA)) == [0, 1, 2]


@pytest.mark.conformance("CIT-09")
def test_a_new_topic_is_led_by_its_first_live_replica() -> None:
    cluster = elected(CONTROLLER, OTHER)
    stop(cluster, OTHER)
    cluster.create([OTHER, CONTROLLER])
    assert cluster.leader() == (CONTROLLER, 0, [CONTROLLER])


def test_a_new_topic_without_a_live_replica_waits_for_one() -> None:
    cluster = elected(0)
    cluster.create([1, 2])
    assert cluster.store.read_partition_states([T0]) == {}
    start(cluster, 2)
    assert cluster.leader() == (2, 0, [2])


@pytest.mark.conformance("CIT-11")
def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    cluster = elected(CONTROLLER, OTHER)
    cluster.create([OTHER, CONTROLLER])
    stop(cluster, OTHER)
    cluster.store.create_topic("t", {0: (OTHER, CONTROLLER), 1: (OTHER, CONTROLLER)})
    cluster.process(PartitionModifications("t"))
    assert cluster.leader(T1) == (CONTROLLER, 0, [CONTROLLER])
    cluster.taken()
    cluster.process(PartitionModifications("t"))  # as after a write of the controller's own
    assert cluster.taken() == []


def test_a_topic_whose_znode_has_gone_is_forgotten() -> None:
    cluster = elected()
    cluster.create([0, 1, 2])
    cluster.store.delete_topics(["t"])
    cluster.process(TopicChange())
    assert not cluster.decisions.context.all_topics
    cluster.create([1, 2])
    assert cluster.leader() == (1, 0, [1, 2])


@pytest.mark.conformance("CIT-28")
def test_each_topic_gets_an_id_of_its_own() -> None:
    cluster = elected()
    cluster.create([0], "t1")
    ids = dict(cluster.decisions.context.topic_ids)
    cluster.create([0], "t2")
    context = cluster.decisions.context
    assert context.topic_ids["t1"] == ids["t1"] != context.topic_ids["t2"]
    for topic in ("t1", "t2"):
        assert context.topic_name(context.topic_ids[topic]) == topic
        assert cluster.store.read_assignments([topic])[topic].topic_id == context.topic_ids[topic]


@pytest.mark.conformance("CIT-31")
def test_the_next_controller_has_the_same_topic_ids() -> None:
    cluster = elected(0, 1)
    cluster.create([0, 1])
    before = dict(cluster.decisions.context.topic_ids)
    cluster.elect()
    assert dict(cluster.decisions.context.topic_ids) == before


@pytest.mark.conformance("CIT-32")
def test_a_topic_without_an_id_gets_one_after_an_upgrade() -> None:
    cluster = DecidedCluster((0,), {"inter_broker_protocol_version": "2.7-IV0"})
    cluster.elect()
    cluster.create([0])
    assert cluster.store.read_assignments(["t"])["t"].topic_id is None
    assert not cluster.decisions.context.topic_ids
    cluster.settings = {}
    cluster.elect()
    topic_id = cluster.decisions.context.topic_ids["t"]
    assert cluster.store.read_assignments(["t"])["t"].topic_id == topic_id
    (sent,) = cluster.requests(ApiKey.LEADER_AND_ISR)[0]
    assert sent.message.topic_states[0].topic_id == topic_id
    assert sent.partitions[T0].leader_epoch == 0


# ---- brokers


@pytest.mark.conformance("CIT-07")
def test_all_are_told_of_a_broker_that_ends_though_no_partition_changes() -> None:
    cluster = elected(0, 1, 2)
    cluster.create([1], "topic1")
    stop(cluster, 1)
    cluster.taken()
    stop(cluster, 2)
    (sent,) = cluster.taken()
    assert (sent.broker_id, sent.kind) == (0, ApiKey.UPDATE_METADATA)
    assert [b.id for b in sent.message.live_brokers] == [0]


@pytest.mark.conformance("CIT-18")
def test_an_isr_that_is_all_offline_stays_if_no_other_replica_is_live() -> None:
    cluster = elected(CONTROLLER, OTHER, unclean_leader_election_enable=True)
    cluster.create([OTHER])
    stop(cluster, OTHER)
    assert cluster.leader() == (-1, 1, [OTHER])


@pytest.mark.conformance("CIT-34")
def test_leader_epochs_over_two_failovers() -> None:
    """A broker that is the controller ends: the next controller removes it from the ISR, then elects."""
    cluster = elected(0, 1)
    cluster.create([0, 1])
    assert cluster.leader() == (0, 0, [0, 1])
    cluster.store.unregister_broker(0)
    cluster.elect()
    assert cluster.leader() == (1, 2, [1])
    start(cluster, 0)
    cluster.store.change_isr(T0, (0, 1))
    cluster.store.unregister_broker(1)
    cluster.elect()
    assert cluster.leader() == (0, 4, [0])


@pytest.mark.conformance("CIT-25")
def test_a_broker_that_bounced_unseen_gets_everything_again() -> None:
    cluster = elected(0, 1)
    cluster.create([0, 1])
    cluster.taken()
    cluster.channels.calls.clear()
    epoch = cluster.store.register_broker(broker(1))
    cluster.process(BrokerChange())
    assert cluster.channels.calls == [("remove", 1), ("add", 1)]
    to_bounced = [sent for sent in cluster.taken() if sent.broker_id == 1]
    assert {sent.message.broker_epoch for sent in to_bounced} == {epoch}
    metadata = [sent for sent in to_bounced if sent.kind is ApiKey.UPDATE_METADATA]
    assert list(metadata[0].partitions) == [T0]
    assert [b.id for b in metadata[0].message.live_brokers] == [0, 1]
    assert [list(s.partitions) for s in to_bounced if s.kind is ApiKey.LEADER_AND_ISR] == [[T0]]


@pytest.mark.conformance("CIT-38")
def test_the_order_of_a_broker_change(caplog: pytest.LogCaptureFixture) -> None:
    cluster = elected(1, 2, 3)
    cluster.create([1, 2, 3])
    cluster.taken()
    cluster.channels.calls.clear()
    bounced = cluster.store.register_broker(broker(2))
    cluster.store.register_broker(broker(4))
    cluster.store.unregister_broker(3)
    with caplog.at_level(logging.INFO):
        cluster.process(BrokerChange())
    assert cluster.channels.calls == [("add", 4), ("remove", 2), ("add", 2), ("remove", 3)]
    lines = [r.getMessage() for r in caplog.records if "newly added brokers" in r.getMessage()]
    assert len(lines) == 1
    assert lines[0].endswith("newly added brokers: 4, deleted brokers: 3, bounced brokers: 2, all live brokers: 1,2,4")
    sent = cluster.taken()
    startup_of_4 = next(i for i, s in enumerate(sent) if s.broker_id == 4 and s.partitions)
    without_2 = next(i for i, s in enumerate(sent) if s.partitions and list(s.partitions[T0].isr) == [1, 3])
    startup_of_2 = next(i for i, s in enumerate(sent) if s.broker_id == 2 and s.message.broker_epoch == bounced)
    without_3 = next(i for i, s in enumerate(sent) if s.partitions and list(s.partitions[T0].isr) == [1])
    assert startup_of_4 < without_2 < startup_of_2 < without_3
    assert cluster.leader() == (1, 2, [1])


@pytest.mark.conformance("CIT-39")
def test_a_new_broker_is_announced_then_informed_then_led() -> None:
    cluster = elected(1, 2)
    cluster.create([1, 2, 3])
    cluster.taken()
    start(cluster, 3)
    order = [(s.broker_id, s.kind.name, list(s.partitions)) for s in cluster.taken()]
    assert order[:4] == [
        (1, "UPDATE_METADATA", []),
        (2, "UPDATE_METADATA", []),
        (3, "UPDATE_METADATA", [T0]),
        (3, "LEADER_AND_ISR", [T0]),
    ]


@pytest.mark.conformance("CIT-40")
def test_a_new_controller_sends_the_live_brokers_first() -> None:
    cluster = elected(0, 1, 2)
    cluster.create([0, 1, 2])
    cluster.elect()
    for broker_id in (0, 1, 2):
        first, second, *_ = [s for s in cluster.channels.sent if s.broker_id == broker_id]
        assert first.kind is ApiKey.UPDATE_METADATA
        assert not first.partitions
        assert second.kind is ApiKey.LEADER_AND_ISR


@pytest.mark.conformance("CIT-41")
def test_other_addresses_of_a_broker_are_told_and_other_data_are_not() -> None:
    cluster = elected(1, 2)
    cluster.taken()
    cluster.channels.calls.clear()
    cluster.store.modify_broker(broker(2, port=12345))
    cluster.process(BrokerModifications(2))
    sent = cluster.taken()
    assert [(s.broker_id, s.kind, dict(s.partitions)) for s in sent] == [
        (1, ApiKey.UPDATE_METADATA, {}),
        (2, ApiKey.UPDATE_METADATA, {}),
    ]
    assert sent[0].message.live_brokers[1].endpoints[0].port == 12345
    cluster.process(BrokerModifications(2))  # only the timestamp, which is no part of a registration here
    assert cluster.taken() == []
    assert cluster.channels.calls == []


def test_a_broker_without_the_listener_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = elected(0)

    def refuse(_: object) -> None:
        raise BrokerNotAvailable("broker 1 has no listener PLAINTEXT")

    monkeypatch.setattr(cluster.channels, "add_broker", refuse)
    start(cluster, 1)
    assert "left out" in caplog.text
    assert cluster.decisions.context.live_broker_ids == {0}
    cluster.store.register_broker(broker(0))
    cluster.process(BrokerChange())
    assert cluster.decisions.context.live_broker_ids == set()


# ---- elections


@pytest.mark.conformance("CIT-15")
def test_a_preferred_election_gives_the_leader_back() -> None:
    cluster = elected(CONTROLLER, OTHER)
    cluster.create([OTHER, CONTROLLER])
    stop(cluster, OTHER)
    assert cluster.leader() == (CONTROLLER, 1, [CONTROLLER])
    start(cluster, OTHER)
    cluster.store.change_isr(T0, (CONTROLLER, OTHER))
    cluster.store.elect_preferred([T0])
    cluster.process(PreferredReplicaLeaderElection())
    assert cluster.leader() == (OTHER, 2, [CONTROLLER, OTHER])
    assert not cluster.store.read_preferred_elections()


@pytest.mark.conformance("CIT-16")
def test_a_preferred_replica_that_is_offline_is_not_elected() -> None:
    cluster = elected(CONTROLLER, OTHER)
    cluster.create([OTHER, CONTROLLER])
    stop(cluster, OTHER)
    cluster.store.elect_preferred([T0, TopicPartition("unknown", 7)])
    cluster.process(PreferredReplicaLeaderElection())
    assert cluster.leader() == (CONTROLLER, 1, [CONTROLLER])
    assert not cluster.store.read_preferred_elections()


@pytest.mark.parametrize("of_topic", [True, False])
def test_an_unclean_election_where_the_topic_allows_it(of_topic: bool) -> None:
    cluster = elected(0, 1, unclean_leader_election_enable=not of_topic)
    setting = {"unclean.leader.election.enable": str(of_topic).lower()}
    cluster.create([0, 1], config=setting)
    stop(cluster, 1)
    start(cluster, 1)
    assert cluster.leader() == (0, 1, [0])
    stop(cluster, 0)
    state = cluster.state()
    if of_topic:
        assert cluster.leader() == (1, 2, [1])
        assert state.recovery_state is LeaderRecoveryState.RECOVERING
    else:
        assert cluster.leader() == (-1, 2, [0])
        cluster.store.create_topic("t", {0: (0, 1)}, config={"unclean.leader.election.enable": "true"})
        cluster.process(ConfigChangeNotification())  # of a setting that was there before
        assert cluster.leader() == (-1, 2, [0])
        cluster.store.notify_of_settings("users/alice", "topics/t", "topics/gone")
        cluster.process(ConfigChangeNotification())
        assert cluster.leader() == (1, 3, [1])


def test_an_unclean_election_once_the_default_of_all_brokers_allows_it() -> None:
    cluster = elected(0, 1)
    cluster.create([0, 1])
    cluster.create([0, 1], "clean", config={"unclean.leader.election.enable": "false"})
    stop(cluster, 1)
    start(cluster, 1)
    stop(cluster, 0)
    cluster.store.notify_of_settings("brokers/<default>")
    cluster.process(ConfigChangeNotification())
    assert cluster.leader() == (-1, 2, [0])  # another setting has changed
    cluster.store.configure("brokers/<default>", {"unclean.leader.election.enable": "true"})
    cluster.store.notify_of_settings("brokers/<default>")
    cluster.process(ConfigChangeNotification())
    assert cluster.leader() == (1, 3, [1])
    assert cluster.leader(TopicPartition("clean", 0)) == (-1, 2, [0])


def test_notifications_of_an_earlier_controller_are_passed_over() -> None:
    cluster = elected(0, 1)
    cluster.create([0, 1])
    cluster.store.notify_of_settings("topics/t")
    cluster.elect()
    reads: list[int | None] = []
    read = cluster.store.read_config_changes
    cluster.store.read_config_changes = lambda after: (reads.append(after), read(after))[1]  # type: ignore[method-assign]
    cluster.process(ConfigChangeNotification())
    assert reads == [0]


# ---- controlled shutdown


def shut_down(cluster: DecidedCluster, broker_id: int, epoch_step: int = 0) -> set[TopicPartition]:
    epoch = {b.id: e for b, e in cluster.store.read_brokers().items()}.get(broker_id, 0)
    return cluster.decisions.brokers.shut_down(broker_id, epoch + epoch_step)


@pytest.mark.conformance("CIT-19")
def test_brokers_shut_down_one_after_the_other_and_the_last_one_leads_on() -> None:
    cluster = elected(0, 1, 2)
    cluster.create([0, 1, 2], "test")
    test0 = TopicPartition("test", 0)
    assert shut_down(cluster, 2) == set()
    assert cluster.leader(test0)[0] == 0
    assert cluster.leader(test0)[2] == [0, 1]
    assert shut_down(cluster, 1) == set()
    assert cluster.leader(test0)[0] == 0
    assert shut_down(cluster, 0) == {test0}
    assert cluster.leader(test0)[0] == 0


def test_a_broker_that_shuts_down_hands_its_leaders_over_and_its_followers_are_stopped() -> None:
    cluster = elected(0, 1)
    cluster.create([0, 1], "led")
    cluster.create([1, 0], "followed")
    cluster.create([0], "alone")
    cluster.taken()
    assert shut_down(cluster, 0) == set()
    assert cluster.leader(TopicPartition("led", 0)) == (1, 1, [1])
    assert cluster.leader(TopicPartition("followed", 0)) == (1, 1, [1])
    assert cluster.leader(TopicPartition("alone", 0)) == (0, 0, [0])
    stopped = [s.partitions for s in cluster.requests(ApiKey.STOP_REPLICA)[0]]
    assert [list(p) for p in stopped] == [[TopicPartition("followed", 0)]] * 2
    assert not any(state.delete_partition for p in stopped for state in p.values())


@pytest.mark.conformance("CIT-20")
def test_a_controlled_shutdown_with_a_stale_epoch_is_refused() -> None:
    cluster = elected(CONTROLLER, OTHER)
    with pytest.raises(StaleBrokerEpoch):
        shut_down(cluster, OTHER, epoch_step=-1)
    assert cluster.decisions.context.live_broker_ids == {CONTROLLER, OTHER}


def test_a_controlled_shutdown_of_an_unknown_broker_is_refused() -> None:
    with pytest.raises(BrokerNotAvailable):
        shut_down(elected(0), 9)


# ---- log directories


def lost(cluster: DecidedCluster, broker_id: int, code: int) -> None:
    error = LeaderAndIsrPartitionError(partition_index=0, error_code=code)
    topic = LeaderAndIsrTopicError(topic_id=cluster.decisions.context.topic_ids["t"], partition_errors=[error])
    cluster.process(LeaderAndIsrResponseReceived(LeaderAndIsrResponse(topics=[topic]), broker_id))


def test_a_leader_on_a_failed_directory_is_replaced_until_it_is_back() -> None:
    cluster = elected(0, 1)
    cluster.create([0, 1])
    cluster.taken()
    cluster.store.fail_log_dir(0)
    cluster.process(LogDirEventNotification())
    assert cluster.store.read_log_dir_failures() == ([], [])
    assert [list(s.partitions) for s in cluster.requests(ApiKey.LEADER_AND_ISR)[0]] == [[T0]]
    lost(cluster, 0, ErrorCode.KAFKA_STORAGE_ERROR)
    assert cluster.leader() == (1, 1, [1])
    assert cluster.decisions.context.replicas_on_offline_dirs(0) == {T0}
    metadata = cluster.requests(ApiKey.UPDATE_METADATA)[1][-1]
    assert list(metadata.partitions[T0].offline_replicas) == [0]
    lost(cluster, 0, ErrorCode.NONE)
    assert cluster.decisions.context.replicas_on_offline_dirs(0) == set()


# ---- the end of a leadership


@pytest.mark.parametrize("event", [BrokerChange(), TopicChange(), PreferredReplicaLeaderElection()])
def test_a_deposed_controller_writes_nothing(event: Any) -> None:
    cluster = elected(0, 1)
    cluster.create([0, 1])
    cluster.taken()
    before = cluster.state()
    cluster.store.depose()
    cluster.store.unregister_broker(0)
    cluster.store.create_topic("u", {0: (1,)})
    cluster.store.elect_preferred([T0])
    with pytest.raises(ControllerMoved, match="another controller was elected"):
        cluster.process(event)
    assert cluster.store.read_partition_states([T0, TopicPartition("u", 0)])[T0].leader_and_isr == before
    assert len(cluster.store.read_partition_states([T0, TopicPartition("u", 0)])) == 1
    assert all(s.kind is ApiKey.UPDATE_METADATA for s in cluster.taken())


def test_a_closed_leadership_leaves_nothing() -> None:
    cluster = elected(0, 1)
    cluster.create([0, 1])
    assert {name.name for name in cluster.metrics.names()} >= {"GlobalPartitionCount", "OfflinePartitionsCount"}
    assert cluster.metrics.value(GROUP, "GlobalPartitionCount") == 1
    cluster.decisions.close()
    cluster.decisions.close()
    assert cluster.channels.is_shut_down
    assert not cluster.metrics.names()
    assert cluster.decisions.context.epoch == 0
    assert not cluster.decisions.context.all_topics


@pytest.mark.conformance("CIT-35")
def test_the_gauges_of_a_controller_go_with_it_and_no_others() -> None:
    cluster = DecidedCluster((0,))
    cluster.metrics.gauge("kafka.server:type=BrokerTopicMetrics", "kept", lambda: 1)
    controller = Controller(77, "127.0.0.1:1", lambda *_: pytest.fail("it never leads"), cluster.metrics)
    others = {name for name in cluster.metrics.names() if name.group != GROUP}
    cluster.elect()
    assert sorted(name.name for name in cluster.metrics.names() if name.group == GROUP) == [
        "ActiveBrokerCount",
        "ActiveControllerCount",
        "ControllerState",
        "FencedBrokerCount",
        "GlobalPartitionCount",
        "GlobalTopicCount",
        "OfflinePartitionsCount",
        "PreferredReplicaImbalanceCount",
        "ReplicasIneligibleToDeleteCount",
        "ReplicasToDeleteCount",
        "TopicsIneligibleToDeleteCount",
        "TopicsToDeleteCount",
        "ZkMigrationState",
    ]
    assert all(value >= 0 for name, value in cluster.metrics.read().items() if name.group == GROUP)
    cluster.decisions.close()
    controller.close()
    assert set(cluster.metrics.names()) == others


def test_an_event_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="is no event of an elected controller"):
        elected(0).process(object())  # type: ignore[arg-type]


# ---- znodes that somebody has damaged, and brokers without storage


def test_of_two_topics_with_one_id_the_second_is_passed_over_until_it_has_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = DecidedCluster()
    cluster.create([0, 1], "a", topic_id=b"1" * 16)
    cluster.create([1, 2], "b", topic_id=b"1" * 16)
    cluster.create([2, 0], "c")
    cluster.elect()
    led = {topic: cluster.store.read_partition_states([TopicPartition(topic, 0)]) for topic in "abc"}
    assert [len(states) for states in led.values()] == [1, 0, 1]
    assert "topic b has the id of topic a in ZooKeeper" in caplog.text
    cluster.store.create_topic("b", {0: (1, 2)}, b"2" * 16)
    cluster.process(PartitionModifications("b"))
    assert cluster.leader(TopicPartition("b", 0)) == (1, 0, [1, 2])
    assert cluster.decisions.context.topic_ids["b"] == b"2" * 16


def test_a_broker_without_storage_gets_no_replicas_whoever_places_them() -> None:
    cluster = DecidedCluster((0, 1, 77), without_storage=frozenset({77}))
    cluster.create([77, 0], "before")
    cluster.elect()
    assert cluster.replicas(TopicPartition("before", 0)) == [1, 0]
    cluster.create([0, 77])
    assert cluster.replicas() == [0, 1]
    cluster.store.create_topic("t", {0: (0, 1), 1: (77,)})
    cluster.process(PartitionModifications("t"))
    assert cluster.replicas(T1) == [1]
    assert cluster.leader(T1) == (1, 0, [1])
