"""The controller's decisions over a store in memory: what is written, and what the brokers are sent."""

from __future__ import annotations

import pytest
from decided_cluster import T0, DecidedCluster, broker

from channel.controller.cluster_events import BrokerChange, TopicDeletion
from kproto.api import ApiKey


@pytest.fixture
def cluster() -> DecidedCluster:
    cluster = DecidedCluster()
    cluster.elect()
    return cluster


@pytest.mark.conformance("CIT-08")
def test_a_new_topic_is_led_by_its_first_replica(cluster: DecidedCluster) -> None:
    cluster.taken()
    cluster.create([0, 1])
    assert cluster.leader() == (0, 0, [0, 1])
    assert cluster.store.read_partition_states([T0])[T0].controller_epoch == 1
    lisr = cluster.requests(ApiKey.LEADER_AND_ISR)
    assert sorted(lisr) == [0, 1]
    assert all(sent.partitions[T0].is_new for requests in lisr.values() for sent in requests)
    assert sorted(cluster.requests(ApiKey.UPDATE_METADATA)) == [0, 1, 2]


def test_the_leader_moves_when_its_broker_dies_and_the_topic_goes_once_all_brokers_are_back(
    cluster: DecidedCluster,
) -> None:
    cluster.create([0, 1, 2])
    cluster.store.unregister_broker(0)
    cluster.process(BrokerChange())
    assert cluster.leader() == (1, 1, [1, 2])
    cluster.store.register_broker(broker(0))
    cluster.process(BrokerChange())
    cluster.taken()
    cluster.store.mark_for_deletion("t")
    cluster.process(TopicDeletion())
    cluster.answer([0, 1, 2])
    assert not cluster.store.read_topics()
    assert not cluster.store.read_topic_deletions()
    assert not cluster.decisions.context.all_topics
