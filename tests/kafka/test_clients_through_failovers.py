"""Producers, transactions, a consumer group, an administrator and Java's clients while controllers and brokers change.

``kproto controller`` leads three real brokers. It is killed and started again, ``/controller`` is deleted, and brokers
are restarted, for two minutes; in the long form for ten.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from led_cluster import LedCluster
from real_brokers import IS_LONG, eventually

from channel.errors import NoNode
from channel.zookeeper import cluster as zk
from channel.zookeeper import znodes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1_800)]

SECONDS = 600 if IS_LONG else 120
TOPICS = ("idempotent", "transactions", "java")
_GROUP_SETTINGS = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}


class Clients:
    """Clients of librdkafka, each on a thread, until ``end``."""

    def __init__(self, led: LedCluster) -> None:
        self._led = led
        self._over = threading.Event()
        self.faults: list[str] = []
        self.written: dict[str, list[str]] = {"idempotent": [], "transactions": []}
        self.read: dict[str, Counter[str]] = {topic: Counter() for topic in TOPICS}
        self.created: list[str] = []
        works = (self._produce, self._transact, self._consume, self._administer)
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]
        for each in self._threads:
            each.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as e:
            self.faults.append(f"{work.__name__}: {e!r}")

    def settings(self, **more: Any) -> dict[str, Any]:
        """The settings of a client, whose fatal errors are faults."""

        def failed(error: Any) -> None:
            if error.fatal():
                self.faults.append(str(error))

        return {
            **self._led.client(),
            "error_cb": failed,
            "log_level": 0,
            **{k.replace("_", "."): v for k, v in more.items()},
        }

    def _produce(self) -> None:
        producer = Producer(self.settings(enable_idempotence=True, delivery_timeout_ms=120_000))

        def delivered(error: Any, message: Any) -> None:
            if error:
                self.faults.append(f"not delivered: {error}")
            else:
                self.written["idempotent"].append(message.value().decode())

        for number in itertools.count():
            if self._over.is_set():
                break
            producer.produce("idempotent", str(number), on_delivery=delivered)
            producer.poll(0.02)
        assert producer.flush(120) == 0

    def _transact(self) -> None:
        producer = Producer(self.settings(transactional_id="t", transaction_timeout_ms=60_000))
        _tried(lambda: producer.init_transactions(60))
        for number in itertools.count():
            if self._over.is_set():
                return
            producer.begin_transaction()
            try:
                producer.produce("transactions", str(number))
                _tried(lambda: producer.commit_transaction(60))
            except KafkaException as e:
                if not e.args[0].txn_requires_abort():
                    raise
                _tried(lambda: producer.abort_transaction(60))
            else:
                self.written["transactions"].append(str(number))

    def _consume(self) -> None:
        consumer = Consumer(self.settings(group_id="g", **{k.replace(".", "_"): v for k, v in _GROUP_SETTINGS.items()}))
        consumer.subscribe(list(TOPICS))
        try:
            while not self._over.is_set():
                self._take(consumer.consume(500, 0.5))
            consumer.commit()
        finally:
            consumer.close()

    def _take(self, messages: list[Any]) -> None:
        for message in messages:
            if message.error() is None:
                self.read[message.topic()][message.value().decode()] += 1

    def _administer(self) -> None:
        admin = AdminClient(self.settings())
        for number in itertools.count():
            if self._over.wait(2):
                return
            name = f"made-{number}"
            try:
                # Longer than the request: librdkafka may wait for a controller that has been killed.
                admin.create_topics([NewTopic(name, 1, 2)], request_timeout=20)[name].result(120)
            except KafkaException:
                admin.list_topics(timeout=60)  # by which the client learns of another controller
            else:
                self.created.append(name)

    def end(self) -> None:
        """End the threads."""
        self._over.set()
        for each in self._threads:
            each.join(300)
            assert not each.is_alive()

    def read_all(self, topic: str) -> set[str]:
        """Every committed record of a topic; the test fails if one is there twice."""
        consumer = Consumer(self.settings(group_id=f"all-{topic}") | _GROUP_SETTINGS | {"enable.partition.eof": True})
        consumer.subscribe([topic])
        found: Counter[str] = Counter()
        ends = 0
        try:
            while ends < 3:
                for message in consumer.consume(500, 1):
                    if message.error() is None:
                        found[message.value().decode()] += 1
                    else:
                        ends += 1
        finally:
            consumer.close()
        assert {value: count for value, count in found.items() if count > 1} == {}
        return set(found)


def _tried(ask: Callable[[], Any]) -> None:
    """Ask again as long as the error says that this helps."""
    deadline = time.monotonic() + 120
    while True:
        try:
            ask()
        except KafkaException as e:
            if not e.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


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
        clients = Clients(led)
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
