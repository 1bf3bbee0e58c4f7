"""Producers, transactions, a consumer group, an administrator and Java's clients while controllers and brokers change.

``kproto controller`` leads three real brokers. It is killed and started again, ``/controller`` is deleted, and brokers
are restarted, for two minutes; in the long form for ten.
"""

import itertools
import json
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from led_cluster import LedCluster
from real_brokers import IS_LONG, eventually
from real_clients import Clients

from channel.errors import NoNode
from channel.zookeeper import cluster_state as zk
from channel.zookeeper import znodes

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1_800)]

SECONDS = 600 if IS_LONG else 120
TOPICS = ("idempotent", "transactions", "java")


def disturb(led: LedCluster) -> None:
    """Kill the controller, delete ``/controller``, restart a broker: over and over until the time is over."""
    deadline = time.monotonic() + SECONDS
    for number in itertools.count():
        if time.monotonic() > deadline:
            return
        match number % 3:
            case 0:
                led.end_controller()
                led.stand()
            case 1:
                try:
                    led.session.delete(znodes.CONTROLLER)
                except NoNode:
                    time.sleep(1)  # the last controller's session has just ended
            case _:
                broker_id = number // 3 % 3
                led.stop(broker_id)
                led.start(broker_id)
        eventually(lambda: zk.read_controller(led.session) is not None)
        time.sleep(5)  # the clients work under the new controller


def knows_topics(address: str) -> bool:
    """Whether a broker has been told of all topics."""
    found = AdminClient({"bootstrap.servers": address}).list_topics(timeout=60).topics
    return all(topic in found and len(found[topic].partitions) == 3 for topic in TOPICS)


def test_no_client_meets_a_fatal_error(kafka_jars: Path, tmp_path: Path) -> None:
    options = ("--prop", "offsets.topic.replication.factor=3", "--prop", "transaction.state.log.replication.factor=3",
               "--prop", "transaction.state.log.min.isr=1", "--prop", "min.insync.replicas=2")  # fmt: skip
    with LedCluster(tmp_path, kafka_jars, options=options) as led:
        led.lead()
        led.start(0, 1, 2)
        admin = led.admin()
        for future in admin.create_topics([NewTopic(topic, 3, 3) for topic in TOPICS]).values():
            future.result(60)
        eventually(lambda: all(led.is_in_sync(topic, 3, {0, 1, 2}) for topic in TOPICS))
        # Followers cannot fetch before; and a leader without followers refuses a new producer's first batch, but takes
        # the second one if it has followers then: so Kafka does, and the first is refused for good.
        eventually(lambda: all(map(knows_topics, led.bootstrap.split(","))))
        java = [
            "java",
            "-XX:+UseSerialGC",
            "-Xmx128m",
            "-cp",
            f"{kafka_jars}/*",
            "org.apache.kafka.tools.VerifiableProducer",
        ]
        retries = tmp_path / "retries.properties"  # the tool tries nothing again by itself
        retries.write_text("retries=2147483647\nenable.idempotence=true\n")
        with (tmp_path / "java.log").open("wb") as log:
            producer = subprocess.Popen(
                [*java, "--topic", "java", "--bootstrap-server", led.bootstrap, "--throughput", "20",
                 "--producer.config", str(retries)],
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        clients = Clients(led.client(), TOPICS)
        try:
            disturb(led)
        finally:
            producer.terminate()
            producer.wait(120)
            clients.end()
        assert clients.faults == []
        assert len(clients.created) > 5
        for topic in ("idempotent", "transactions"):
            assert len(clients.written[topic]) > SECONDS
            assert set(clients.written[topic]) <= clients.read_all(topic)
        lines = [json.loads(line) for line in (tmp_path / "java.log").read_text().splitlines() if line.startswith("{")]
        names = Counter(line["name"] for line in lines)
        assert names["producer_send_error"] == 0
        assert names["producer_send_success"] > SECONDS
        assert {line["value"] for line in lines if line["name"] == "producer_send_success"} <= clients.read_all("java")
        assert all(sum(clients.read[topic].values()) > 0 for topic in TOPICS)
