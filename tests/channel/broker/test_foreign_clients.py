"""Clients that are not ours understand embedded brokers: librdkafka asks for the cluster, and renews its session."""

import contextlib

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from network_peers import until

from channel.broker.cluster import EmbeddedCluster
from channel.rehearsal.scripted_controller import ScriptedController
from channel.security import Password, SecurityConfig
from channel.types import SecurityProtocol


def silent(_: object) -> None:
    """Nobody wants to hear that the brokers have gone."""


@pytest.mark.parametrize("broker_id", [0, 2])
def test_any_broker_lists_the_cluster_once_a_controller_has_told_of_it(broker_id: int) -> None:
    with EmbeddedCluster(3) as cluster, ScriptedController(cluster) as controller:
        controller.create_topic("orders", partitions=4, replication_factor=2)
        controller.wait_all()
        member = cluster[broker_id]
        admin = AdminClient({"bootstrap.servers": f"{member.host}:{member.port}", "error_cb": silent, "log_level": 0})
        listed = admin.list_topics(timeout=30)
        assert {(b.id, b.port) for b in listed.brokers.values()} == {(each.id, each.port) for each in cluster}
        partitions = listed.topics["orders"].partitions
        assert sorted(partitions) == [0, 1, 2, 3]
        assert all(len(each.replicas) == 2 and each.leader in each.isrs for each in partitions.values())
        del admin


@pytest.mark.slow
def test_librdkafka_renews_its_session_on_its_connection() -> None:
    protocol = SecurityProtocol.SASL_PLAINTEXT
    users = {"user": Password("secret")}
    security = SecurityConfig(sasl_enabled_mechanisms=("PLAIN",), users=users, connections_max_reauth_ms=10_000)
    with EmbeddedCluster(1, protocol=protocol, security=security) as cluster:
        listener = cluster[0].listener
        assert listener is not None
        admin = AdminClient(
            {
                "bootstrap.servers": f"127.0.0.1:{listener.port}", "security.protocol": protocol.name,
                "sasl.mechanism": "PLAIN", "sasl.username": "user", "sasl.password": "secret", "error_cb": silent,
                "log_level": 0,
            }
        )  # fmt: skip

        def has_renewed() -> bool:
            with contextlib.suppress(KafkaException):  # no controller has told the broker of any
                admin.list_topics(timeout=1)
            authenticators = [channel.authenticator for channel in cluster._server.selector.all_channels()]
            return any(each is not None and each.renewal_took_ns is not None for each in authenticators)

        assert not has_renewed()
        until(lambda: len(listener.connections) == 1)
        (connection,) = listener.connections
        until(has_renewed)
        assert list(listener.connections) == [connection]
