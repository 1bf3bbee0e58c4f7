"""Clients of librdkafka at work while a cluster is disturbed: producers, transactions, a group, an administrator."""

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ["Clients"]

_GROUP_SETTINGS = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}


class Clients:
    """Clients of librdkafka, each on a thread, until ``end``.

    Args:
        settings: How a client finds the brokers.
        topics: What the consumer group reads, ``idempotent`` and ``transactions`` among them.

    Attributes:
        faults: Errors that no client may meet.
        written: What was acknowledged, by topic, in the order of the acknowledgements.
        read: How often the group has read each record, by topic.
        created: The topics that were made.
        longest_gap_s: The longest time between two acknowledgements.
    """

    def __init__(self, settings: Mapping[str, Any], topics: Sequence[str]) -> None:
        self._settings, self._topics = dict(settings), list(topics)
        self._acknowledged_at = time.monotonic()
        self.longest_gap_s = 0.0
        self._over = threading.Event()
        self.faults: list[str] = []
        self.written: dict[str, list[str]] = {"idempotent": [], "transactions": []}
        self.read: dict[str, Counter[str]] = {topic: Counter() for topic in topics}
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
            **self._settings,
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
                now = time.monotonic()
                self.longest_gap_s = max(self.longest_gap_s, now - self._acknowledged_at)
                self._acknowledged_at = now
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
        consumer.subscribe(self._topics)
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

    def read_all(self, topic: str, partitions: int = 3) -> set[str]:
        """Every committed record of a topic; the test fails if one is there twice or out of order."""
        consumer = Consumer(self.settings(group_id=f"all-{topic}") | _GROUP_SETTINGS | {"enable.partition.eof": True})
        consumer.subscribe([topic])
        found: defaultdict[int, list[str]] = defaultdict(list)
        ends = 0
        try:
            while ends < partitions:
                for message in consumer.consume(500, 1):
                    if message.error() is None:
                        found[message.partition()].append(message.value().decode())
                    else:
                        ends += 1
        finally:
            consumer.close()
        counts = Counter(value for values in found.values() for value in values)
        assert {value: count for value, count in counts.items() if count > 1} == {}
        for values in found.values():
            numbers = [int(value) for value in values]
            assert numbers == sorted(numbers)
        return set(counts)


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
