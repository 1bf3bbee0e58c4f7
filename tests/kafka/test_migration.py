"""A ZooKeeper-to-KRaft migration: a real KRaft controller takes a fleet over that a broker of it led before.

The long form does it over TLS without SASL too.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from free_ports import free_ports
from led_cluster import CONTROLLER, LedCluster
from real_brokers import IS_LONG, client_settings, elected, eventually, real_kafka, security_file

from channel.broker.fleet import Fleet
from channel.broker.hooks import BrokerHooks, RequestContext
from channel.config import ChannelConfig
from channel.node.controller_node import candidates
from channel.rehearsal.fleet_steps import Step, rehearse
from channel.security import read_security
from channel.types import Node, ReplicaAssignment
from channel.zookeeper import znodes
from channel.zookeeper.cluster_state import create_persistent_nodes
from channel.zookeeper.session import ZooKeeperSession
from kproto.api import ApiKey
from kproto.types import TopicPartition

pytestmark = pytest.mark.kafka

KRAFT = 3000
TP = TopicPartition("t", 0)


def administer(admin: AdminClient, fleet: Fleet) -> None:
    """Create, extend and delete a topic by a real client, and wait until every broker knows."""
    admin.create_topics([NewTopic("asked", 2, replica_assignment=[[1, 2], [2, 3]])])["asked"].result(120)
    eventually(lambda: all(m.broker.metadata.contains("asked") for m in fleet))
    admin.create_partitions([NewPartitions("asked", 3)])["asked"].result(120)
    eventually(lambda: all(m.broker.metadata.partition_info("asked", 2) is not None for m in fleet))
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("asked", 1, 1)])["asked"].result(120)
    admin.delete_topics(["asked"])["asked"].result(120)
    eventually(lambda: not any(m.broker.metadata.contains("asked") for m in fleet))


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_SSL", *(["SSL"] if IS_LONG else [])])
def test_a_real_kraft_controller_leads_the_fleet(kafka_jars: Path, tmp_path: Path, protocol: str) -> None:
    folder, base = str(tmp_path), free_ports(2)
    seen: list[tuple[int, int, bool, int]] = []

    def hooks(broker_id: int) -> BrokerHooks:
        def answered(context: RequestContext, request: Any, answer: Any) -> None:
            if context.api_key in (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA):
                seen.append((context.api_key, request.type, request.is_kraft_controller, answer.error_code))

        return BrokerHooks(answered=answered)

    real_kafka("install", folder, "--jars", str(kafka_jars))
    try:
        started = real_kafka(
            "start", folder, "--no-brokers", "--zk-port", str(base), "--migration-port", str(base + 1),
            "--security", protocol,
        )  # fmt: skip
        secured = None if protocol == "PLAINTEXT" else security_file(tmp_path, protocol)
        listeners, security = read_security(secured)
        config = ChannelConfig().secured(listeners.name, security)
        quorum = [Node(KRAFT, "127.0.0.1", base + 1)]
        with ZooKeeperSession(started["zookeeper_connect"]) as admin:  # one id of 64 looks like an option
            create_persistent_nodes(admin)
            admin.create(znodes.CLUSTER_ID, b'{"version":"1","id":"-MHVpmUARpqaNfW68SaFGg"}')
        with Fleet(
            started["zookeeper_connect"], [1, 2, 3], session_timeout_ms=4_000, replica_lag_time_max_ms=1_000,
            hooks=hooks, quorum=quorum, stand=candidates(config), protocol=listeners, security=security,
        ) as fleet, ZooKeeperSession(started["zookeeper_connect"]) as admin:  # fmt: skip
            elected(fleet)
            replicas = {0: ReplicaAssignment((1, 2, 3)), 1: ReplicaAssignment((2, 3, 1))}
            admin.create(znodes.topic_path("t"), znodes.encode_topic(replicas, None))
            eventually(lambda: all(member.broker.metadata.contains("t") for member in fleet))
            assert not any(is_kraft for _, _, is_kraft, _ in seen)
            client = AdminClient(client_settings(tmp_path, protocol, f"127.0.0.1:{fleet[1].port}"))
            administer(client, fleet)

            real_kafka("start-kraft", folder)
            eventually(lambda: all(member.broker.is_led_by_kraft for member in fleet))
            assert {m.broker.metadata.snapshot.controller.id for m in fleet} == {KRAFT}  # type: ignore[union-attr]
            assert all((member.broker.kraft_epoch or -1) >= 0 for member in fleet)
            eventually(lambda: fleet.controller_id is None)  # the broker that led has resigned
            assert json.loads(admin.get(znodes.CONTROLLER)[0])["brokerid"] == KRAFT
            eventually(lambda: (ApiKey.UPDATE_METADATA, 2, True, 0) in seen)  # the whole image
            eventually(lambda: all(m.broker.metadata.partition_info(*TP).leader == 1 for m in fleet))  # type: ignore[union-attr]

            administer(client, fleet)  # clients cannot reach the KRaft controller: any broker forwards their requests

            fleet.pause(3)  # its leader asks the KRaft controller for another ISR
            eventually(lambda: set(fleet[1].broker.metadata.partition_info(*TP).isr) == {1, 2})  # type: ignore[union-attr]
            fleet.resume(3)
            eventually(lambda: set(fleet[1].broker.metadata.partition_info(*TP).isr) == {1, 2, 3})  # type: ignore[union-attr]
            assert (ApiKey.UPDATE_METADATA, 1, True, 0) in seen  # a change of the image

            (left,) = rehearse(fleet, [Step("leave", "1")])  # by a heartbeat that says so
            assert (left.heard, left.listening, left.is_complete) == (2, 2, True)
            eventually(lambda: fleet[2].broker.metadata.partition_info(*TP).leader in (2, 3))  # type: ignore[union-attr]
            survivor = 2 if fleet[2].broker.metadata.partition_info(*TP).leader == 3 else 3  # type: ignore[union-attr]
            (event,) = rehearse(fleet, [Step("kill", str(5 - survivor))])  # its heartbeats end: it is fenced
            assert (event.heard, event.listening, event.is_complete) == (1, 1, True)
            eventually(lambda: fleet[survivor].broker.metadata.partition_info(*TP).leader == survivor)  # type: ignore[union-attr]
            assert not [code for _, _, is_kraft, code in seen if is_kraft and code]
    finally:
        real_kafka("stop", folder, "--kill")


def test_a_cluster_that_kproto_leads_migrates_and_loses_nothing(kafka_jars: Path, tmp_path: Path) -> None:
    port = free_ports(1)
    options = ("--migration-port", str(port), "--prop", "offsets.topic.replication.factor=1")
    arguments = ("--quorum", f"{KRAFT}@127.0.0.1:{port}")
    with LedCluster(tmp_path, kafka_jars, options=options, arguments=arguments) as led:
        led.lead()
        led.start(0, 1, 2)
        admin = led.admin()
        admin.create_topics([NewTopic("before", 3, 3)])["before"].result(120)
        led.produce("before", 1_000)
        assert led.process is not None

        real_kafka("start-kraft", str(tmp_path))
        assert led.line() == {"controller": KRAFT, "leading": False}
        assert led.process.wait(120) == 0  # it ends by itself
        assert led.session.exists(znodes.broker_path(CONTROLLER)) is None
        assert "was asked to forget broker 77: UnregisterBrokerResponse" in (tmp_path / "controller.log").read_text()

        led.produce("before", 1_000, first=1_000)
        assert led.consume("before", 2_000) == set(range(2_000))
        admin = led.admin()  # one that has not learnt of the former controller
        admin.create_topics([NewTopic("after", 3, 3)])["after"].result(120)
        eventually(lambda: led.is_in_sync("after", 3, {0, 1, 2}))  # the KRaft controller writes to ZooKeeper too
        assert set(admin.list_topics(timeout=60).brokers) == {0, 1, 2}

        real_kafka("finish-migration", str(tmp_path))  # each broker starts anew in KRaft mode, then the controller
        real_kafka("stop-zookeeper", str(tmp_path), "--kill")  # nobody needs it any more
        led.produce("after", 1_000)
        assert led.consume("after", 1_000) == set(range(1_000))
        assert led.consume("before", 2_000) == set(range(2_000))
        admin.create_topics([NewTopic("last", 3, 3)])["last"].result(120)
        led.produce("last", 100)
        assert led.consume("last", 100) == set(range(100))
