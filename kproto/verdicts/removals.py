"""Tells which brokers deleted a partition's log, or refused to. Times are us since 1970."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey

if TYPE_CHECKING:
    from kproto.verdicts.facts import Facts, Partition
    from kproto.verdicts.told import Body

_FULL: Final = 2
"""The type of a KRaft controller's LeaderAndIsr that holds all partitions of a broker."""


class Removals:
    """Which broker accepted when that a partition's log is to be deleted, or refused it."""

    def __init__(self, facts: Facts) -> None:
        self._accepted: dict[tuple[str, int], dict[Any, int]] = defaultdict(dict)
        self._refused: dict[tuple[str, int, Any], int] = {}
        self._kept: dict[Any, list[tuple[int, frozenset[Partition]]]] = defaultdict(list)
        for body in facts.bodies:
            if body.api_key == ApiKey.LEADER_AND_ISR and body.request.is_kraft_controller:
                if body.request.type == _FULL:  # a migrating broker moves aside what is not in it
                    kept = frozenset((topic, number) for topic, number, _id, _state in body.states)
                    for broker, (_first, last) in body.told.items():
                        self._kept[broker].append((last, kept))
            elif body.api_key == ApiKey.STOP_REPLICA:
                for topic, number, _id, delete in body.states:
                    if delete:
                        self._add(facts, body, (topic, number))

    def _add(self, facts: Facts, body: Body, partition: Partition) -> None:
        accepted = self._accepted[partition]
        for broker, (_first, last) in body.told.items():
            error = facts.partition_error(body, broker, partition)
            if error is None:
                accepted[broker] = max(last, accepted.get(broker, last))
            else:
                self._refused[*partition, broker] = error

    def last(self, partition: Partition, broker: Any) -> int | None:
        """When a broker accepted last that a partition's log is to be deleted; None: never."""
        times = [last for last, kept in self._kept.get(broker, ()) if partition not in kept]
        accepted = self._accepted.get(partition, {}).get(broker)
        return max((*times, *(() if accepted is None else (accepted,))), default=None)

    def refused(self, partition: Partition, broker: Any) -> int | None:
        """The error with which a broker refused to delete a partition; None: it did not."""
        return self._refused.get((*partition, broker))
