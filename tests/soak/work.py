"""The administrator of a soak: creates, grows and deletes topics, and elects and reassigns, without end."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from channel.errors import ChannelError, NoNode
from channel.zookeeper import znodes
from kproto.messages import MetadataRequest, MetadataRequestTopic
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .processes import Soak

__all__ = ["Administrator"]

_TOPICS = 40
"""The most topics at a time."""


class Administrator(threading.Thread):
    """Changes topics on a thread of its own until it is told to end.

    Attributes:
        done: How often each change was made.
        refused: How often a change failed: a controller may be away.
    """

    def __init__(self, soak: Soak, seed: int, every_s: float = 0.7) -> None:
        super().__init__(name="soak-administrator", daemon=True)
        self._soak, self._random, self._every_s = soak, random.Random(f"work {seed}"), every_s
        self._over = threading.Event()
        self._number = 0
        self.topics: dict[str, int] = {}
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Make changes."""
        admin = AdminClient(self._soak.client_settings())
        changes = [self.create] * 4 + [self.delete] * 2 + [self.grow] * 2 + [self.elect, self.reassign]
        try:
            while not self._over.wait(self._every_s * self._random.uniform(0.2, 1.8)):
                change = self._random.choice(changes)
                try:
                    change(admin)
                except (KafkaException, ChannelError) as e:
                    self.refused[f"{change.__name__}: {_reason(e)}"] += 1
                    if (
                        _reason(e) == "_TIMED_OUT"
                    ):  # librdkafka keeps the port that a controller had before it began anew
                        admin = AdminClient(self._soak.client_settings())
                else:
                    self.done[change.__name__] += 1
        except BaseException as e:
            self.error = e
            raise

    def end(self) -> None:
        """End the changes."""
        self._over.set()
        self.join(90)

    def _replicas(self, topic: str) -> list[int]:
        """Three brokers of one process, as leaders see only their own process's brokers fetch."""
        groups = self._soak.groups
        return self._random.sample(self._soak.ids_of(groups[int(topic.rpartition("-")[2]) % len(groups)]), 3)

    def create(self, admin: AdminClient) -> None:
        """Create a topic of up to eight partitions."""
        if len(self.topics) >= _TOPICS:
            self.delete(admin)
            return
        self._number += 1
        name, count = f"soak-{self._number}", self._random.randint(1, 8)
        self.topics[name] = count
        replicas = [self._replicas(name) for _ in range(count)]
        with self._known_once_answered(name):
            admin.create_topics([NewTopic(name, count, replica_assignment=replicas)], request_timeout=10)[name].result(
                20
            )

    def delete(self, admin: AdminClient) -> None:
        """Delete a topic."""
        if len(self.topics) > 3:
            name = self._random.choice(sorted(self.topics))
            del self.topics[name]
            admin.delete_topics([name], request_timeout=10)[name].result(20)

    def grow(self, admin: AdminClient) -> None:
        """Add partitions to a topic."""
        if self.topics:
            name = self._random.choice(sorted(self.topics))
            more = self._random.randint(1, 3)
            replicas = [self._replicas(name) for _ in range(more)]
            self.topics[name] += more
            new = NewPartitions(name, self.topics[name], replica_assignment=replicas)
            with self._known_once_answered(name):
                admin.create_partitions([new], request_timeout=10)[name].result(20)

    @contextlib.contextmanager
    def _known_once_answered(self, name: str) -> Iterator[None]:
        """Ask the controller for a topic once it has answered the change: it must know it, if it still leads."""
        session, wanted = self._soak.session, self.topics[name]
        epoch = session.get(znodes.CONTROLLER_EPOCH)[0]
        yield
        registration = znodes.decode_controller(session.get(znodes.CONTROLLER)[0])
        broker = znodes.decode_broker(
            registration.broker_id, session.get(znodes.broker_path(registration.broker_id))[0]
        )
        endpoint = broker.endpoints[0]
        topics = [MetadataRequestTopic(name=name)]
        answer = self._soak.ask_at((endpoint.host, endpoint.port), MetadataRequest(topics=topics), 9, timeout_ms=10_000)
        known = len(answer.topics[0].partitions)
        if known < wanted and session.get(znodes.CONTROLLER_EPOCH)[0] == epoch:
            self._soak.wrong.append(
                f"controller {registration.broker_id} has answered a change of {name}, and knows {known} of its "
                f"{wanted} partitions"
            )

    def elect(self, _: AdminClient) -> None:
        """Ask for the preferred leaders of two topics by the znode."""
        chosen = self._random.sample(sorted(self.topics), min(2, len(self.topics)))
        wanted = [TopicPartition(name, p) for name in chosen for p in range(self.topics[name])]
        if wanted and self._soak.session.exists(znodes.PREFERRED_ELECTION) is None:
            self._soak.session.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions(wanted))

    def reassign(self, _: AdminClient) -> None:
        """Give a partition other replicas by the znode."""
        if self.topics and self._soak.session.exists(znodes.REASSIGN_PARTITIONS) is None:
            name = self._random.choice(sorted(self.topics))
            replicas = tuple(self._replicas(name))
            try:
                known = znodes.decode_topic(name, self._soak.session.get(znodes.topic_path(name))[0]).partitions
            except NoNode:
                return
            tp = TopicPartition(name, self._random.choice(sorted(known)))
            self._soak.session.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({tp: replicas}))


def _reason(error: Any) -> str:
    if isinstance(error, KafkaException):
        return str(error.args[0].name())
    return type(error).__name__
