"""What UpdateMetadata will tell of partitions, collected in columns: no object is made for a partition.

A full update names every partition of the cluster, while brokers wait. So what the context holds is only pointed at
here, and the numbers are taken out once, by column, right into what the codec writes from.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

from kproto._codec import Columns
from kproto.api import ApiKey
from kproto.errors import OutOfRange
from kproto.types import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kproto.types import TopicPartition, Uuid

    from .types import LeaderIsrAndControllerEpoch

__all__ = ["MetadataColumns"]

_NAMES: Final = (
    "topic", "topic_id", "partition", "controller_epoch", "leader", "isr", "leader_epoch", "partition_epoch",
    "replicas", "offline_replicas",
)  # fmt: skip


class _Topic:
    """One topic's partitions in the order of adding; a partition may come again, and then the last one counts."""

    __slots__ = ("leaderships", "offline", "partitions", "replicas")

    def __init__(self) -> None:
        self.partitions: list[int] = []
        self.leaderships: list[LeaderIsrAndControllerEpoch] = []
        self.replicas: list[tuple[int, ...]] = []
        self.offline: dict[int, tuple[int, ...]] = {}

    def settle(self) -> None:
        """Keep of each partition what was said last."""
        last = {partition: at for at, partition in enumerate(self.partitions)}
        if len(last) < len(self.partitions):
            self.leaderships = [self.leaderships[at] for at in last.values()]
            self.replicas = [self.replicas[at] for at in last.values()]
            self.partitions = list(last)


class MetadataColumns:
    """The partitions of one UpdateMetadata request."""

    __slots__ = ("_bulk", "_topics")

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._bulk: dict[str, list[Any]] | None = None

    def __len__(self) -> int:
        bulk = 0 if self._bulk is None else len(self._bulk["partition"])
        return bulk + sum(len(topic.partitions) for topic in self._topics.values())

    def add(
        self,
        partitions: Iterable[
            tuple[TopicPartition, LeaderIsrAndControllerEpoch | None, tuple[int, ...], tuple[int, ...]]
        ],
        deleted: set[str],
    ) -> list[TopicPartition]:
        """Add partitions with who leads them, their replicas, and those of them that are offline.

        Args:
            partitions: What ``ControllerContext.partition_states`` yields.
            deleted: Topics to be told as deleted.

        Returns:
            Those that nobody has ever led, and that are therefore not told of.
        """
        never_led: list[TopicPartition] = []
        topic, last = _Topic(), None
        for tp, leadership, replicas, offline in partitions:
            name, partition = tp
            if leadership is None:
                never_led.append(tp)
                continue
            if name is not last:
                topic, last = self._topic(name), name
            topic.partitions.append(partition)
            topic.leaderships.append(leadership.during_delete() if name in deleted else leadership)
            topic.replicas.append(replicas)
            if offline or topic.offline:
                topic.offline[partition] = offline
        return never_led

    def add_columns(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add partitions in bulk: columns by name, of the same length, the rows of a topic one after the other.

        ``topic``, ``partition``, ``controller_epoch``, ``leader``, ``isr``, ``leader_epoch``, ``partition_epoch`` and
        ``replicas`` must be there; ``offline_replicas`` are none if they are left out, and topic ids are the context's.

        Raises:
            ValueError: A column is missing, unknown or of another length, or a topic was added before.
        """
        given = {"offline_replicas": [()] * len(columns.get("partition", ())), **columns}
        if given.keys() != set(_NAMES) - {"topic_id"}:
            raise ValueError(f"columns {', '.join(columns)}; there must be {', '.join(_NAMES)} but for topic_id")
        if len({len(column) for column in given.values()}) != 1:
            raise ValueError("the columns differ in length")
        topics = set(given["topic"])
        twice = topics & (self._topics.keys() | set(() if self._bulk is None else self._bulk["topic"]))
        if twice:
            raise ValueError(f"topic {min(twice)} is in the batch already; give all its partitions at once")
        if self._bulk is None:
            self._bulk = {name: [] for name in given}
        for name, column in given.items():
            self._bulk[name].extend(column)

    def columns(self, topic_ids: Mapping[str, Uuid]) -> Columns:
        """All partitions; a topic without an id has the zero id.

        Raises:
            OutOfRange: A number that is no int32.
        """
        for topic in self._topics.values():
            topic.settle()
        topics = self._topics.values()
        try:
            out: dict[str, Any] = {
                "topic": [name for name, topic in self._topics.items() for _ in topic.partitions],
                "partition": array("i", [p for topic in topics for p in topic.partitions]),
                "controller_epoch": array("i", [led[1] for topic in topics for led in topic.leaderships]),
                "leader": array("i", [led[0][0] for topic in topics for led in topic.leaderships]),
                "isr": [led[0][1] for topic in topics for led in topic.leaderships],
                "leader_epoch": array("i", [led[0][2] for topic in topics for led in topic.leaderships]),
                "partition_epoch": array("i", [led[0][3] for topic in topics for led in topic.leaderships]),
                "replicas": [replicas for topic in topics for replicas in topic.replicas],
            }
        except OverflowError as e:
            raise OutOfRange(f"a number of a partition is no int32: {e}") from None
        if any(topic.offline for topic in topics):
            out["offline_replicas"] = [topic.offline.get(p, ()) for topic in topics for p in topic.partitions]
        if self._bulk is not None:
            count = len(out["partition"])
            out.setdefault("offline_replicas", [()] * count)
            out = {name: [*column, *self._bulk[name]] for name, column in out.items()}
        ids = {name: topic_ids.get(name, ZERO_UUID) for name in dict.fromkeys(out["topic"])}
        out["topic_id"] = [ids[name] for name in out["topic"]]
        return Columns.from_sequences(ApiKey.UPDATE_METADATA, **out)

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            if self._bulk is not None and name in self._bulk["topic"]:
                raise ValueError(f"topic {name} was added by columns; it cannot get more partitions in this batch")
            topic = self._topics[name] = _Topic()
        return topic
