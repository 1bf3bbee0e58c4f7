"""Finds partitions whose logs a controller had deleted, and deleted topics."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.tables.arrays import rows_of
from kproto.verdicts.request_groups import target_of
from kproto.verdicts.states import BEING_DELETED

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa


class Deletions:
    """Collects StopReplica's deletions, and UpdateMetadata's leader -2, from requests and their partition states."""

    def __init__(self) -> None:
        self._sent: dict[bytes, dict[object, tuple[int, int]]] = defaultdict(dict)  # body -> broker -> first, last
        self._deleted: dict[bytes, dict[str, set[int]]] = {}
        self._topics: set[str] = set()

    def add_requests(self, accepted: pa.Table) -> None:
        """Add rows of ``requests`` that their brokers accepted; ``ts`` in us since 1970."""
        stops = accepted.filter(pc.equal(accepted["api_key"], ApiKey.STOP_REPLICA))
        names = ("body_id", "broker_id", "server_ip", "server_port", "ts")
        for body_id, broker_id, ip, port, ts in rows_of(stops, names):
            broker = target_of(broker_id, ip, port)
            first, last = self._sent[body_id].get(broker, (ts, ts))
            self._sent[body_id][broker] = (min(first, ts), max(last, ts))

    def add_states(self, states: pa.Table) -> None:
        """Add rows of ``partition_states``."""
        leaving = states.filter(pc.fill_null(pc.equal(states["leader"], BEING_DELETED), False))
        self._topics.update(pc.unique(leaving["topic"]).to_pylist())
        deleted = states.filter(pc.fill_null(states["delete_partition"], False))
        for body_id, topic, partition in rows_of(deleted, ("body_id", "topic", "partition")):
            self._deleted.setdefault(body_id, {}).setdefault(topic, set()).add(partition)

    def merge(self, other: Deletions) -> None:
        """Add the deletions of another collection."""
        for body_id, sent in other._sent.items():
            for broker, (first, last) in sent.items():
                known = self._sent[body_id].get(broker, (first, last))
                self._sent[body_id][broker] = (min(first, known[0]), max(last, known[1]))
        for body_id, topics in other._deleted.items():
            for topic, partitions in topics.items():
                self._deleted.setdefault(body_id, {}).setdefault(topic, set()).update(partitions)
        self._topics |= other._topics

    def rows(self, moment: Callable[[int], str]) -> list[dict[str, Any]]:
        """Return a row a topic: its deleted ``partitions``, the ``brokers`` concerned, whether it went whole, and when.

        Args:
            moment: Writes a time in us since 1970.
        """
        partitions: dict[str, set[int]] = {topic: set() for topic in self._topics}
        brokers: dict[str, set[object]] = defaultdict(set)
        times: dict[str, list[int]] = defaultdict(list)
        for body_id, topics in self._deleted.items():
            for topic, numbers in topics.items():
                partitions.setdefault(topic, set()).update(numbers)
                for broker, span in self._sent.get(body_id, {}).items():
                    brokers[topic].add(broker)
                    times[topic] += span
        return [
            {
                "topic": topic,
                "partitions": sorted(numbers),
                "brokers": sorted(brokers[topic], key=lambda broker: (isinstance(broker, str), broker)),
                "whole_topic": topic in self._topics,
                "first": moment(min(times[topic])) if times[topic] else None,
                "last": moment(max(times[topic])) if times[topic] else None,
            }
            for topic, numbers in sorted(partitions.items())
        ]
