"""Runs real brokers that ``kproto controller`` leads; tests start and end each process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from free_ports import free_ports
from real_brokers import administrator, client_settings, real_kafka, security_file

from channel.errors import NoNode
from channel.types import LeaderAndIsr
from channel.zookeeper import znodes
from channel.zookeeper.session import ZooKeeperSession
from kproto.types import TopicPartition

__all__ = ["CONTROLLER", "LedCluster"]

CONTROLLER = 77


class LedCluster:
    """ZooKeeper and real brokers in a folder, and a process of ``kproto controller``; a context manager.

    Args:
        folder: The directory for data, logs and recordings.
        jars: The folder with Kafka's jars.
        brokers: How many brokers there are.
        options: More options of ``real-kafka start``.
        settings: Properties of the controller.
        protocol: The security protocol between controller and brokers.
        arguments: More arguments of the controller.

    Attributes:
        process: The controller's latest process.
        session: A session with ZooKeeper for the test's own reads and writes.
        bootstrap: The addresses of the brokers.
    """

    def __init__(
        self,
        folder: Path,
        jars: Path,
        brokers: int = 3,
        *,
        options: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        protocol: str = "PLAINTEXT",
        arguments: Sequence[str] = (),
    ) -> None:
        self.folder, self.count, self.protocol = folder, brokers, protocol
        self.base = free_ports(brokers + 1)
        self.zookeeper = f"127.0.0.1:{self.base + brokers}"
        self.bootstrap = ",".join(f"127.0.0.1:{self.base + i}" for i in range(brokers))
        self.session = ZooKeeperSession(self.zookeeper)
        self.process: subprocess.Popen[str] | None = None
        self._settings = {"zookeeper.session.timeout.ms": 12_000, "default.replication.factor": 3, **(settings or {})}
        self._options = (
            "--brokers", str(brokers), "--base-port", str(self.base), "--zk-port", str(self.base + brokers),
            "--security", protocol, *options,
        )  # fmt: skip
        self._jars = jars
        self._arguments = arguments

    def __enter__(self) -> LedCluster:
        """Start ZooKeeper alone."""
        real_kafka("install", str(self.folder), "--jars", str(self._jars))
        try:
            real_kafka("start", str(self.folder), "--no-brokers", *self._options)
            self.session.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end_controller()
        self.session.close()
        real_kafka("stop", str(self.folder), "--kill")

    # ---- the controller

    @property
    def recording(self) -> Path:
        """The recording of the controller's first process; the next ones write ``.1``, ``.2`` and so on beside it."""
        return self.folder / "recordings" / f"controller-{CONTROLLER}.pcapng"

    def stand(self) -> subprocess.Popen[str]:
        """Start the controller's process, and return once it has printed its listener."""
        config = self.folder / "controller.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        command = [
            sys.executable, "-m", "kproto", "controller", "--zookeeper", self.zookeeper, "--id", str(CONTROLLER),
            "--config", str(config), "--record", str(self.recording.parent), "--log-json", *self._arguments,
        ]  # fmt: skip
        if self.protocol != "PLAINTEXT":
            command += ["--security", str(security_file(self.folder, self.protocol))]
        with (self.folder / "controller.log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.line()["id"] == CONTROLLER
        return self.process

    def lead(self, epoch: int = 1) -> None:
        """Start the controller's process, and return once it leads."""
        self.stand()
        assert self.line() == {"controller": CONTROLLER, "leading": True, "controller_epoch": epoch}

    def line(self) -> Any:
        """The next line that the controller prints."""
        assert self.process is not None
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end_controller(self) -> None:
        """End the controller's process by kill -9, if there is one."""
        if self.process is not None and self.process.stdout is not None:
            self.process.kill()
            self.process.wait(120)
            self.process.stdout.close()

    # ---- brokers and ZooKeeper

    def start(self, *broker_ids: int) -> None:
        """Start brokers, at once, and return when each of them is ready."""
        real_kafka("start-broker", str(self.folder), *map(str, broker_ids))

    def stop(self, broker_id: int, *, kill: bool = False) -> None:
        """End a broker by SIGTERM, a controlled shutdown, or by kill -9."""
        real_kafka("stop-broker", str(self.folder), str(broker_id), *(["--kill"] if kill else []))

    def pid(self, name: str) -> int:
        """The process of ``zookeeper`` or ``broker-N``."""
        return int((self.folder / "run" / f"{name}.pid").read_text())

    def request_log(self, broker_id: int) -> Path:
        """Where a broker logs its requests, if it was started with ``--request-log``."""
        return self.folder / "logs" / f"broker-{broker_id}" / "kafka-request.log"

    # ---- topics

    def state(self, topic: str, partition: int = 0) -> LeaderAndIsr:
        """A partition's state in ZooKeeper."""
        tp = TopicPartition(topic, partition)
        data, stat = self.session.get(znodes.partition_state_path(tp))
        return znodes.decode_partition_state(tp, data, stat.version).leader_and_isr

    def is_in_sync(self, topic: str, partitions: int, isr: set[int]) -> bool:
        """Whether the first partitions of a topic all have this ISR: none has one before its state is written."""
        try:
            return all(set(self.state(topic, p).isr) == isr for p in range(partitions))
        except NoNode:
            return False

    def folders(self, topic: str) -> list[Path]:
        """The folders of a topic's replicas, without those that are being deleted."""
        return [p for p in self.folder.glob(f"data/broker-*/{topic}-*") if not p.name.endswith("-delete")]

    # ---- clients

    def client(self) -> dict[str, Any]:
        """The settings of a client of librdkafka."""
        return client_settings(self.folder, self.protocol, self.bootstrap)

    def admin(self) -> AdminClient:
        """An administrator."""
        return administrator(self.client())

    def produce(self, topic: str, count: int, first: int = 0, *, idempotent: bool = True) -> None:
        """Write numbers to a topic, each acknowledged by all replicas in sync."""
        failures: list[Any] = []
        producer = Producer({**self.client(), "enable.idempotence": idempotent, "acks": "all", "linger.ms": 5})

        def delivered(error: Any, _: Any) -> None:
            if error:
                failures.append(error)

        for i in range(first, first + count):
            producer.produce(topic, str(i), str(i), on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(120) == 0
        assert failures == []

    def consume(self, topic: str, count: int) -> set[int]:
        """Read this number of values from a topic, as a member of a group of its own."""
        settings = {"group.id": f"g{time.time_ns()}", "auto.offset.reset": "earliest"}
        consumer = Consumer({**self.client(), **settings})
        consumer.subscribe([topic])
        found: set[int] = set()
        deadline = time.monotonic() + 120
        try:
            while len(found) < count and time.monotonic() < deadline:
                found |= {int(m.value()) for m in consumer.consume(500, 0.5) if m.error() is None}
        finally:
            consumer.close()
        return found
