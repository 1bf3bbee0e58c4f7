"""Topic deletion: the requests, retries, dead brokers, and deletions that another controller finds begun."""

import pytest
from decided_cluster import T0, DecidedCluster, broker

from channel.lead.events import BrokerChange, PartitionModifications, TopicDeletion
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode

GROUP = "kafka.controller:type=KafkaController"


@pytest.fixture
def cluster() -> DecidedCluster:
    cluster = DecidedCluster((0, 1, 2))
    cluster.elect()
    cluster.create([0, 1])
    cluster.taken()
    return cluster


def delete(cluster: DecidedCluster, topic: str = "t") -> None:
    cluster.store.mark_for_deletion(topic)
    cluster.process(TopicDeletion())


def is_deleted(cluster: DecidedCluster) -> bool:
    context = cluster.decisions.context
    left = cluster.store.read_topics() | cluster.store.read_topic_deletions() | context.all_topics
    return not left and not cluster.store.read_partition_states([T0]) and not context.topics_to_be_deleted


def test_metadata_goes_first_then_the_replicas_stop_then_they_are_deleted(cluster: DecidedCluster) -> None:
    delete(cluster)
    order = [(s.kind.name, s.broker_id) for s in cluster.channels.sent]
    assert order == [
        *(("UPDATE_METADATA", b) for b in (0, 1, 2)),
        *(("STOP_REPLICA", b) for b in (0, 1)),
        *(("STOP_REPLICA", b) for b in (0, 1)),
    ]
    assert cluster.channels.sent[0].partitions[T0].leader == -2
    stops = [s.partitions[T0] for s in cluster.channels.sent if s.kind is ApiKey.STOP_REPLICA]
    assert [(s.leader_epoch, s.delete_partition) for s in stops] == [(-2, False)] * 2 + [(-2, True)] * 2
    assert cluster.metrics.value(GROUP, "ReplicasToDeleteCount") == 2
    cluster.answer([0])
    assert not is_deleted(cluster)
    assert cluster.metrics.value(GROUP, "ReplicasToDeleteCount") == 1


def test_the_znodes_go_with_the_last_answer(cluster: DecidedCluster) -> None:
    delete(cluster)
    cluster.answer([0, 1])
    assert is_deleted(cluster)
    assert cluster.metrics.value(GROUP, "TopicsToDeleteCount") == 0


def test_a_replica_that_was_not_deleted_is_tried_again(cluster: DecidedCluster) -> None:
    delete(cluster)
    cluster.answer([0, 1], ErrorCode.KAFKA_STORAGE_ERROR)
    assert not is_deleted(cluster)
    assert cluster.metrics.value(GROUP, "TopicsIneligibleToDeleteCount") == 1
    cluster.store.register_broker(broker(0))
    cluster.process(BrokerChange())
    cluster.answer([0, 1])
    assert is_deleted(cluster)


def test_a_topic_waits_for_its_dead_broker(cluster: DecidedCluster) -> None:
    cluster.store.unregister_broker(1)
    cluster.process(BrokerChange())
    delete(cluster)
    assert cluster.metrics.value(GROUP, "ReplicasIneligibleToDeleteCount") == 1
    cluster.answer([0])
    assert not is_deleted(cluster)
    cluster.store.register_broker(broker(1))
    cluster.process(BrokerChange())
    cluster.answer([1])
    assert is_deleted(cluster)


def test_a_broker_that_dies_before_it_answers_halts_the_deletion(cluster: DecidedCluster) -> None:
    delete(cluster)
    cluster.answer([0])
    cluster.store.unregister_broker(1)
    cluster.process(BrokerChange())
    assert cluster.decisions.context.topics_ineligible_for_deletion == {"t"}
    cluster.store.register_broker(broker(1))
    cluster.process(BrokerChange())
    cluster.answer([1])
    assert is_deleted(cluster)


def test_another_controller_goes_on_with_a_deletion(cluster: DecidedCluster) -> None:
    cluster.store.mark_for_deletion("t")
    cluster.elect()
    cluster.answer([0, 1])
    assert is_deleted(cluster)


def test_a_marker_of_an_unknown_topic_is_removed(cluster: DecidedCluster) -> None:
    delete(cluster, "unknown")
    assert cluster.store.read_topic_deletions() == set()
    assert cluster.decisions.context.topics_to_be_deleted == set()


def test_deletion_can_be_disabled() -> None:
    cluster = DecidedCluster((0,), {"delete_topic_enable": False})
    cluster.elect()
    cluster.create([0])
    delete(cluster)
    assert cluster.store.read_topic_deletions() == set()
    cluster.store.mark_for_deletion("t")
    cluster.elect()
    assert cluster.store.read_topic_deletions() == set()
    assert cluster.leader() == (0, 0, [0])


def test_a_topic_that_is_being_deleted_gets_no_partitions(cluster: DecidedCluster) -> None:
    delete(cluster)
    cluster.store.create_topic("t", {0: (0, 1), 1: (0, 1)})
    cluster.process(PartitionModifications("t"))
    assert list(cluster.store.read_assignments(["t"])["t"].partitions) == [0]
    cluster.answer([0, 1])
    assert is_deleted(cluster)


def test_a_topic_without_partitions_goes_at_once(cluster: DecidedCluster) -> None:
    cluster.store.create_topic("empty", {})
    cluster.create([2], "other")
    delete(cluster, "empty")
    assert cluster.store.read_topics() == {"t", "other"}
