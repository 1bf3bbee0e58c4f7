"""The partitions of an UpdateMetadata request, collected in columns, without an object for each partition.

A full update names every partition of the cluster, while brokers wait. So the columns point to the context's values,
whose numbers are copied once, some thousand partitions at a time, into the codec's arrays: no second object of the
encoded body's size is ever in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kproto.api import ApiKey
from kproto.columns import Columns, encode_batches
from kproto.types import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel.types import LeaderIsrAndControllerEpoch
    from kproto.messages import UpdateMetadataRequest
    from kproto.types import Uuid

__all__ = ["MetadataColumns"]

_ROWS: Final = 1024  # of one piece, if its topics end there: about 50 kB of a body


class MetadataColumns:
    """The partitions of one UpdateMetadata request, in runs of the same topic."""

    __slots__ = ("_leaderships", "_offline", "_partitions", "_replicas", "_starts", "_topics")

    def __init__(self) -> None:
        self._topics: list[str] = []  # of each run
        self._starts: list[int] = []  # of each run, into the three lists that follow
        self._partitions: list[int] = []
        self._leaderships: list[LeaderIsrAndControllerEpoch] = []
        self._replicas: list[tuple[int, ...]] = []
        self._offline: dict[int, tuple[int, ...]] = {}  # by index in these lists, for partitions with offline replicas

    def __len__(self) -> int:
        return len(self._partitions)

    def add(
        self,
        topic: str,
        partition: int,
        leadership: LeaderIsrAndControllerEpoch,
        replicas: tuple[int, ...],
        offline: tuple[int, ...] = (),
    ) -> None:
        """Add a partition: its leadership, its replicas, and those that are not online; a later call replaces it.

        Raises:
            ValueError: The topic was added by columns.
        """
        self._begin(topic)
        if offline:
            self._offline[len(self._partitions)] = offline
        self._partitions.append(partition)
        self._leaderships.append(leadership)
        self._replicas.append(replicas)

    def add_all(
        self,
        topic: str,
        partitions: Sequence[int],
        leaderships: Sequence[LeaderIsrAndControllerEpoch],
        replicas: Sequence[tuple[int, ...]],
    ) -> None:
        """``add`` for at least one partition of a topic, all replicas of which are online."""
        self._begin(topic)
        self._partitions += partitions
        self._leaderships += leaderships
        self._replicas += replicas

    def _begin(self, topic: str) -> None:
        if not self._topics or self._topics[-1] != topic:
            self._topics.append(topic)
            self._starts.append(len(self._partitions))

    def encode(self, message: UpdateMetadataRequest, version: int, topic_ids: Mapping[str, Uuid]) -> list[bytes]:
        """Encode a request with these partitions.

        Args:
            message: The request's other fields.
            version: The version to write.
            topic_ids: A topic without an id has the zero id.

        Returns:
            The body; a large body in consecutive pieces.

        Raises:
            EncodeError: As ``kproto.codec.encode``; ``OutOfRange`` for a number that is no int32.
        """
        if len(self._partitions) > 1:
            self._settle()
        pieces = encode_batches(message, version, self._batches(topic_ids))
        return pieces if len(self) > _ROWS else [b"".join(pieces)]

    def _settle(self) -> None:
        """Group the partitions by topic, and keep the last entry of each partition."""
        if len(set(self._topics)) == len(self._topics) and not self._repeats():
            return
        places: dict[str, dict[int, int]] = {}
        for topic, start, end in self._runs():
            of_topic = places.setdefault(topic, {})
            for at in range(start, end):
                of_topic[self._partitions[at]] = at
        order = [at for of_topic in places.values() for at in of_topic.values()]
        self._offline = {new: self._offline[at] for new, at in enumerate(order) if at in self._offline}
        self._leaderships = [self._leaderships[at] for at in order]
        self._replicas = [self._replicas[at] for at in order]
        self._topics, self._starts, self._partitions = list(places), [], []
        for of_topic in places.values():
            self._starts.append(len(self._partitions))
            self._partitions += of_topic

    def _repeats(self) -> bool:
        return any(
            end - start > 1 and len(set(self._partitions[start:end])) < end - start for _, start, end in self._runs()
        )

    def _runs(self) -> Iterator[tuple[str, int, int]]:
        ends = [*self._starts[1:], len(self._partitions)] if self._starts else []
        return zip(self._topics, self._starts, ends, strict=True)

    def _batches(self, topic_ids: Mapping[str, Uuid]) -> Iterator[Columns]:
        """Yield the rows in batches that end where a topic ends."""
        names: list[str] = []
        ids: list[Uuid] = []
        first, last = 0, len(self._partitions)
        for topic, start, end in self._runs():
            names += [topic] * (end - start)
            ids += [topic_ids.get(topic, ZERO_UUID)] * (end - start)
            if len(names) >= _ROWS or end == last:
                yield self._columns(first, end, names, ids)
                first, names, ids = end, [], []

    def _columns(self, first: int, end: int, names: list[str], ids: list[Uuid]) -> Columns:
        states, epochs = zip(*self._leaderships[first:end], strict=True)
        leader, isr, leader_epoch, partition_epoch, _ = zip(*states, strict=True)
        more = {}
        if self._offline:
            more["offline_replicas"] = [self._offline.get(at, ()) for at in range(first, end)]
        return Columns.from_sequences(
            ApiKey.UPDATE_METADATA,
            topic=names,
            topic_id=ids,
            partition=self._partitions[first:end],
            controller_epoch=epochs,
            leader=leader,
            isr=isr,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            replicas=self._replicas[first:end],
            **more,
        )
