"""Three clients that are not ours produce to an embedded cluster, consume by assignment, administer it, and learn that
it has no consumer groups: librdkafka, aiokafka and kafka-python.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import aiokafka.admin
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import kafka.errors
import pytest

from channel.broker.cluster import EmbeddedCluster
from channel.rehearsal.scripted_controller import ScriptedController

VALUES = [b"first", b"second", b"third"]
WAIT_S = 20


class Librdkafka:
    """confluent-kafka."""

    def __init__(self, servers: str) -> None:
        self._settings = {"bootstrap.servers": servers, "log_level": 0, "error_cb": lambda _: None}

    def produce(self, topic: str) -> None:
        producer = confluent_kafka.Producer({**self._settings, "enable.idempotence": True, "compression.type": "lz4"})
        for value in VALUES:
            producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_S) == 0

    def consume(self, topic: str) -> list[bytes]:
        consumer = confluent_kafka.Consumer({**self._settings, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found = consumer.consume(len(VALUES), WAIT_S)
        consumer.close()
        assert [each.error() for each in found] == [None] * len(VALUES)
        return [each.value() for each in found]

    def subscribe(self, topic: str) -> str:
        consumer = confluent_kafka.Consumer({**self._settings, "group.id": "g"})
        consumer.subscribe([topic])
        (found,) = consumer.consume(1, WAIT_S)
        consumer.close()
        error = found.error()
        assert error is not None
        return error.name()

    def administer(self, topic: str) -> int:
        admin = confluent_kafka.admin.AdminClient(self._settings)
        (made,) = admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 2)]).values()
        made.result(WAIT_S)
        (grown,) = admin.create_partitions([confluent_kafka.admin.NewPartitions(topic, 3)]).values()
        grown.result(WAIT_S)
        assert len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 3
        controller = admin.describe_cluster().result(WAIT_S).controller.id
        (deleted,) = admin.delete_topics([topic]).values()
        deleted.result(WAIT_S)
        return int(controller)


class KafkaPython:
    """kafka-python."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def produce(self, topic: str) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self._servers)
        for value in VALUES:
            producer.send(topic, value, partition=0).get(WAIT_S)
        producer.close()

    def consume(self, topic: str) -> list[bytes]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._servers, consumer_timeout_ms=WAIT_S * 1000, auto_offset_reset="earliest"
        )
        consumer.assign([kafka.TopicPartition(topic, 0)])
        found = [next(consumer).value for _ in VALUES]
        consumer.close()
        return found

    def subscribe(self, topic: str) -> str:
        consumer = kafka.KafkaConsumer(topic, bootstrap_servers=self._servers, group_id="g")
        try:
            with pytest.raises(kafka.errors.KafkaError) as refused:
                consumer.poll(WAIT_S * 1000)
        finally:
            consumer.close()
        return repr(refused.value)

    def administer(self, topic: str) -> int:
        admin = kafka.KafkaAdminClient(bootstrap_servers=self._servers)
        admin.create_topics([kafka.admin.NewTopic(topic, 1, 2)])
        admin.create_partitions({topic: kafka.admin.NewPartitions(3)})
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        controller = admin.describe_cluster()["controller_id"]
        admin.delete_topics([topic])
        admin.close()
        return int(controller)


class Aiokafka:
    """aiokafka, on a loop of its own."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def produce(self, topic: str) -> None:
        async def main() -> None:
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=self._servers, enable_idempotence=True) as producer:
                for value in VALUES:
                    await producer.send_and_wait(topic, value, partition=0)

        asyncio.run(main())

    def consume(self, topic: str) -> list[bytes]:
        async def main() -> list[bytes]:
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self._servers, auto_offset_reset="earliest")
            async with consumer:
                consumer.assign([aiokafka.TopicPartition(topic, 0)])
                return [(await asyncio.wait_for(consumer.getone(), WAIT_S)).value for _ in VALUES]

        return asyncio.run(main())

    def subscribe(self, topic: str) -> str:
        async def main() -> str:
            consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=self._servers, group_id="g")
            try:
                with pytest.raises(aiokafka.errors.KafkaError) as refused:
                    await consumer.start()
            finally:
                await consumer.stop()
            return repr(refused.value)

        return asyncio.run(main())

    def administer(self, topic: str) -> int:
        async def main() -> int:
            admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=self._servers)
            await admin.start()
            try:
                await admin.create_topics([aiokafka.admin.NewTopic(topic, 1, 2)])
                await admin.create_partitions({topic: aiokafka.admin.NewPartitions(3)})
                (described,) = await admin.describe_topics([topic])
                assert len(described["partitions"]) == 3
                controller = (await admin.describe_cluster())["controller_id"]
                await admin.delete_topics([topic])
            finally:
                await admin.close()
            return int(controller)

        return asyncio.run(main())


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, records=True) as made, ScriptedController(made, controller_id=1):
        yield made


CLIENTS = [Librdkafka, KafkaPython, Aiokafka]


@pytest.mark.parametrize("kind", CLIENTS)
def test_what_a_client_produces_it_consumes_by_assignment(cluster: EmbeddedCluster, kind: Callable[..., Any]) -> None:
    """Nobody has created the topic: the producer asks for it, and the cluster's controller makes it."""
    client, topic = kind(cluster.bootstrap_servers), f"orders-{kind.__name__}"
    client.produce(topic)
    assert client.consume(topic) == VALUES


@pytest.mark.parametrize("kind", CLIENTS)
def test_an_administrator_is_answered_once_every_broker_knows(
    cluster: EmbeddedCluster, kind: Callable[..., Any]
) -> None:
    assert kind(cluster.bootstrap_servers).administer(f"made-{kind.__name__}") == 1


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_consumer_of_a_group_learns_that_there_are_no_groups(
    cluster: EmbeddedCluster, kind: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    client, topic = kind(cluster.bootstrap_servers), f"orders-{kind.__name__}"
    client.produce(topic)
    told = client.subscribe(topic)
    assert any(words in told for words in ("POLICY_VIOLATION", "PolicyViolation"))
    assert "an embedded broker has no consumer groups: assign partitions instead of subscribing" in caplog.text
