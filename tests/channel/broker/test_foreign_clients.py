"""Clients that are not ours understand what embedded brokers say: librdkafka asks them for the cluster."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from channel.broker.cluster import EmbeddedCluster
from channel.rehearsal import ScriptedController


def silent(_: object) -> None:
    """Nobody wants to hear that the brokers have gone."""


@pytest.mark.parametrize("broker_id", [0, 2])
def test_any_broker_lists_the_cluster_once_a_controller_has_told_of_it(broker_id: int) -> None:
    with EmbeddedCluster(3) as cluster, ScriptedController(cluster) as controller:
        controller.create_topic("orders", partitions=4, replication_factor=2)
        controller.wait_all()
        member = cluster[broker_id]
        admin = AdminClient({"bootstrap.servers": f"{member.host}:{member.port}", "error_cb": silent, "log_level": 0})
        listed = admin.list_topics(timeout=10)
        assert {(b.id, b.port) for b in listed.brokers.values()} == {(each.id, each.port) for each in cluster}
        partitions = listed.topics["orders"].partitions
        assert sorted(partitions) == [0, 1, 2, 3]
        assert all(len(each.replicas) == 2 and each.leader in each.isrs for each in partitions.values())
        del admin
