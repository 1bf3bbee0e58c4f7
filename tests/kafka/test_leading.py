"""``kproto controller`` leads three real Kafka 3.9.1 brokers from an empty ZooKeeper, and loses them to one of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from real_brokers import free_ports, real_kafka

from channel.types import LeaderAndIsr, ReplicaAssignment
from channel.zookeeper import cluster as zk
from channel.zookeeper import znodes
from channel.zookeeper.session import ZooKeeperSession
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

CONTROLLER = 77


def within(seconds: float, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


class Led:
    """A folder with real brokers, their ZooKeeper, and the processes that stand for election."""

    def __init__(self, folder: Path, base: int) -> None:
        self.folder, self.base = folder, base
        self.zookeeper = f"127.0.0.1:{base + 3}"
        self.bootstrap = ",".join(f"127.0.0.1:{base + i}" for i in range(3))
        self.session = ZooKeeperSession(self.zookeeper)
        self.process: subprocess.Popen[str] | None = None

    def stand(self) -> subprocess.Popen[str]:
        """Start the controller's process, and return once it has told where it listens."""
        config = self.folder / "controller.properties"
        config.write_text("zookeeper.session.timeout.ms=6000\ndefault.replication.factor=3\n")
        command = [
            sys.executable, "-m", "kproto", "controller", "--zookeeper", self.zookeeper, "--id", str(CONTROLLER),
            "--config", str(config), "--record", str(self.folder / "recordings"), "--log-json",
        ]  # fmt: skip
        with (self.folder / "controller.log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.line()["id"] == CONTROLLER
        return self.process

    def line(self) -> Any:
        assert self.process is not None
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def broker(self, what: str, broker_id: int, *more: str) -> None:
        real_kafka(f"{what}-broker", str(self.folder), str(broker_id), *more)

    def state(self, topic: str, partition: int = 0) -> LeaderAndIsr:
        tp = TopicPartition(topic, partition)
        data, stat = self.session.get(znodes.partition_state_path(tp))
        return znodes.decode_partition_state(tp, data, stat.version).leader_and_isr

    def is_in_sync(self, topic: str, partitions: int, isr: set[int]) -> bool:
        return all(set(self.state(topic, p).isr) == isr for p in range(partitions))

    def folders(self, topic: str) -> list[Path]:
        return [p for p in self.folder.glob(f"data/broker-*/{topic}-*") if not p.name.endswith("-delete")]


@pytest.fixture(scope="module")
def led(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Led]:
    folder, base = tmp_path_factory.mktemp("led"), free_ports(4)
    real_kafka("install", str(folder), "--jars", str(kafka_jars))
    made = Led(folder, base)
    try:
        real_kafka(
            "start", str(folder), "--no-brokers", "--brokers", "3", "--base-port", str(base), "--zk-port",
            str(base + 3), "--prop", "offsets.topic.replication.factor=3",
        )  # fmt: skip
        made.session.start()
        made.stand()
        assert made.line() == {"controller": CONTROLLER, "leading": True, "controller_epoch": 1}
        for broker_id in range(3):
            made.broker("start", broker_id)
        yield made
    finally:
        if made.process is not None:
            made.process.kill()
            made.process.wait(10)
            made.process.stdout.close()
        made.session.close()
        real_kafka("stop", str(folder), "--kill")


def produce(bootstrap: str, topic: str, count: int, first: int = 0) -> None:
    from confluent_kafka import Producer

    failures: list[Any] = []
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 5}
    producer = Producer(settings)
    for i in range(first, first + count):
        producer.produce(topic, str(i), str(i), on_delivery=lambda error, _: failures.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(40) == 0
    assert failures == []


def consume(bootstrap: str, topic: str, count: int) -> set[int]:
    """Read a topic as a member of a group of its own."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"g{time.time_ns()}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: set[int] = set()
    deadline = time.monotonic() + 50
    try:
        while len(found) < count and time.monotonic() < deadline:
            found |= {int(m.value()) for m in consumer.consume(500, 0.5) if m.error() is None}
    finally:
        consumer.close()
    return found


def test_real_brokers_follow_from_an_empty_zookeeper(led: Led) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

    admin = AdminClient({"bootstrap.servers": led.bootstrap})
    # A topic by its znode, as kafka-topics once made them, and one by a real client.
    contents = znodes.encode_topic({p: ReplicaAssignment((p, (p + 1) % 3, (p + 2) % 3)) for p in range(3)}, None)
    led.session.create(znodes.topic_path("orders"), contents)
    within(20, lambda: led.session.exists(znodes.partition_state_path(TopicPartition("orders", 2))))
    admin.create_topics([NewTopic("asked", 2)])["asked"].result(20)  # default.replication.factor is the controller's
    within(20, lambda: led.is_in_sync("asked", 2, {0, 1, 2}))

    produce(led.bootstrap, "orders", 10_000)
    assert consume(led.bootstrap, "orders", 10_000) == set(range(10_000))

    admin.create_partitions([NewPartitions("orders", 6)])["orders"].result(20)
    within(20, lambda: led.is_in_sync("orders", 6, {0, 1, 2}))

    led.broker("stop", 0, "--kill")
    within(30, lambda: all(led.state("orders", p).leader in (1, 2) for p in range(6)))
    produce(led.bootstrap, "orders", 1_000, first=10_000)
    led.broker("start", 0)
    within(30, lambda: led.is_in_sync("orders", 6, {0, 1, 2}))
    assert consume(led.bootstrap, "orders", 11_000) == set(range(11_000))  # no acknowledged message is lost

    assert led.state("orders").leader != 0
    led.session.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions([TopicPartition("orders", 0)]))
    within(20, lambda: led.state("orders").leader == 0)

    moved = TopicPartition("orders", 0)
    led.session.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({moved: (2, 1)}))
    within(30, lambda: led.session.exists(znodes.REASSIGN_PARTITIONS) is None)
    within(10, lambda: (led.state("orders").leader, set(led.state("orders").isr)) == (2, {1, 2}))

    admin.delete_topics(["asked"])["asked"].result(20)
    within(20, lambda: led.session.exists(znodes.topic_path("asked")) is None)
    within(20, lambda: not led.folders("asked"))

    began = time.monotonic()
    led.broker("stop", 1)  # SIGTERM: a controlled shutdown
    within(20, lambda: all(1 not in led.state("orders", p).isr for p in range(1, 6)))
    assert time.monotonic() - began < 20
    log = (led.folder / "logs" / "broker-1" / "server.log").read_text()
    assert "Controlled shutdown request returned successfully" in log
    led.broker("start", 1)
    within(30, lambda: led.is_in_sync("orders", 6, {0, 1, 2}) or led.is_in_sync("orders", 1, {1, 2}))


def test_a_real_broker_takes_over_and_the_controller_waits_for_its_turn(led: Led) -> None:
    assert led.process is not None
    epoch = zk.read_controller_epoch(led.session)[0]
    led.process.send_signal(signal.SIGKILL)
    led.process.wait(10)
    led.process.stdout.close()

    def active() -> int | None:
        found = zk.read_controller(led.session)
        return found and found[0].broker_id

    within(30, lambda: active() in (0, 1, 2))
    taken_over = zk.read_controller_epoch(led.session)
    assert taken_over[0] == epoch + 1
    late = json.dumps({"controllerId": CONTROLLER, "isKRaftController": False, "controllerEpoch": epoch,
        "brokerEpoch": -1, "topicStates": [], "liveBrokers": []})  # fmt: skip
    command = [sys.executable, "-m", "kproto", "send", f"127.0.0.1:{led.base}", "--api", "UpdateMetadata"]
    sent = subprocess.run(command, input=late, capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(sent.stdout)["errorCode"] == 11  # its old epoch is fenced

    led.stand()
    assert led.line() == {"controller": active(), "leading": False}
    for broker_id in sorted(range(3), key=lambda b: b == active()):
        led.broker("stop", broker_id, "--kill")
    told: Any = {}
    while not told.get("leading"):
        told = led.line()
    assert (told["controller"], told["controller_epoch"]) == (CONTROLLER, taken_over[0] + 1)
    led.process.send_signal(signal.SIGTERM)  # it resigns
    assert led.process.wait(20) == 0
    assert active() is None
