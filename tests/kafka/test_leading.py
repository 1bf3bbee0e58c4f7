"""``kproto controller`` leads three real Kafka 3.9.1 brokers from an empty ZooKeeper, and loses them to one of them."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import ask_port
from confluent_kafka.admin import NewPartitions, NewTopic
from led_cluster import CONTROLLER, LedCluster
from real_brokers import eventually

from channel.types import ReplicaAssignment
from channel.zookeeper import cluster_state as zk
from channel.zookeeper import znodes
from kproto.messages import MetadataRequest
from kproto.types import TopicPartition

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def led(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedCluster]:
    options = ("--prop", "offsets.topic.replication.factor=3")
    with LedCluster(tmp_path_factory.mktemp("led"), kafka_jars, options=options) as made:
        made.lead()
        made.start(0, 1, 2)
        yield made


@pytest.mark.proof(1)
def test_real_brokers_follow_from_an_empty_zookeeper(led: LedCluster) -> None:
    admin = led.admin()
    # A topic by its znode, as kafka-topics once made them, and one by a real client.
    contents = znodes.encode_topic({p: ReplicaAssignment((p, (p + 1) % 3, (p + 2) % 3)) for p in range(3)}, None)
    led.session.create(znodes.topic_path("orders"), contents)
    eventually(lambda: led.session.exists(znodes.partition_state_path(TopicPartition("orders", 2))))
    admin.create_topics([NewTopic("asked", 2)])["asked"].result(120)  # default.replication.factor is the controller's
    eventually(lambda: led.is_in_sync("asked", 2, {0, 1, 2}))

    led.produce("orders", 10_000)
    assert led.consume("orders", 10_000) == set(range(10_000))

    admin.create_partitions([NewPartitions("orders", 6)])["orders"].result(120)
    eventually(lambda: led.is_in_sync("orders", 6, {0, 1, 2}))

    led.stop(0, kill=True)
    eventually(lambda: all(led.state("orders", p).leader in (1, 2) for p in range(6)))
    led.produce("orders", 1_000, first=10_000)
    led.start(0)
    eventually(lambda: led.is_in_sync("orders", 6, {0, 1, 2}))
    assert led.consume("orders", 11_000) == set(range(11_000))  # no acknowledged message is lost

    assert led.state("orders").leader != 0
    led.session.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions([TopicPartition("orders", 0)]))
    eventually(lambda: led.state("orders").leader == 0)

    moved = TopicPartition("orders", 0)
    led.session.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({moved: (2, 1)}))
    eventually(lambda: led.session.exists(znodes.REASSIGN_PARTITIONS) is None)
    eventually(lambda: (led.state("orders").leader, set(led.state("orders").isr)) == (2, {1, 2}))

    admin.delete_topics(["asked"])["asked"].result(120)
    eventually(lambda: led.session.exists(znodes.topic_path("asked")) is None)
    eventually(lambda: not led.folders("asked"))

    led.stop(1)  # SIGTERM: a controlled shutdown
    eventually(lambda: all(1 not in led.state("orders", p).isr for p in range(1, 6)))
    log = (led.folder / "logs" / "broker-1" / "server.log").read_text()
    assert "Controlled shutdown request returned successfully" in log
    led.start(1)
    eventually(lambda: led.is_in_sync("orders", 6, {0, 1, 2}) or led.is_in_sync("orders", 1, {1, 2}))


@pytest.mark.proof(2)
def test_a_real_broker_takes_over_and_the_controller_waits_for_its_turn(led: LedCluster) -> None:
    assert led.process is not None
    epoch = zk.read_controller_epoch(led.session)[0]
    led.end_controller()

    def active() -> int | None:
        found = zk.read_controller(led.session)
        return found and found[0].broker_id

    eventually(lambda: active() in (0, 1, 2))
    taken_over = zk.read_controller_epoch(led.session)
    assert taken_over[0] == epoch + 1
    # A broker refuses the old epoch once it has heard from the new controller.
    metadata = MetadataRequest(topics=[])
    eventually(lambda: ask_port(led.base, metadata, 12).controller_id == active())
    late = json.dumps({"controllerId": CONTROLLER, "isKRaftController": False, "controllerEpoch": epoch,
        "brokerEpoch": -1, "topicStates": [], "liveBrokers": []})  # fmt: skip
    command = [sys.executable, "-m", "kproto", "send", f"127.0.0.1:{led.base}", "--api", "UpdateMetadata"]
    sent = subprocess.run(command, input=late, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(sent.stdout)["errorCode"] == 11  # its old epoch is fenced

    led.stand()
    assert led.line() == {"controller": active(), "leading": False}
    for broker_id in sorted(range(3), key=lambda b: b == active()):
        led.stop(broker_id, kill=True)
    told: Any = {}
    while not told.get("leading"):
        told = led.line()
    assert (told["controller"], told["controller_epoch"]) == (CONTROLLER, taken_over[0] + 1)
    led.process.send_signal(signal.SIGTERM)  # it resigns
    assert led.process.wait(120) == 0
    assert active() is None
