"""Recognises a migration from ZooKeeper to KRaft, and its phases, from controllers' requests."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

_INCREMENTAL: Final = 1
_FULL: Final = 2

_ZOOKEEPER: Final = "ZooKeeper controller"
_TAKEOVER: Final = "KRaft controller takes over"
_DUAL_WRITE: Final = "dual write"


@dataclass(slots=True)
class _Phase:
    requests: int = 0
    first: int | None = None
    last: int | None = None
    brokers: set[object] = field(default_factory=set)

    def add(self, requests: int, first: int, last: int, broker: object) -> None:
        self.requests += requests
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)
        self.brokers.add(broker)

    def merge(self, other: _Phase) -> None:
        self.requests += other.requests
        self.first = min((ts for ts in (self.first, other.first) if ts is not None), default=None)
        self.last = max((ts for ts in (self.last, other.last) if ts is not None), default=None)
        self.brokers |= other.brokers


class Migration:
    """Sorts requests into the phases of a migration.

    A KRaft controller that takes over sends each broker all topics in an UpdateMetadata without type, then a full
    LeaderAndIsr and a full UpdateMetadata; from then on it sends changes alone.
    """

    def __init__(self) -> None:
        self._phases: dict[str, _Phase] = defaultdict(_Phase)
        self._controllers: dict[bool, set[tuple[int, int]]] = {False: set(), True: set()}

    def add(
        self,
        requests: int,
        first: int,
        last: int,
        api_key: int,
        controller_id: int,
        epoch: int,
        broker: object,
        *,
        is_kraft_controller: bool,
        update_type: int,
        had_full: bool,
    ) -> None:
        """Add requests to one broker.

        Args:
            requests: The number of requests.
            first, last: The times of the first and the last, us since 1970.
            api_key: Their API.
            controller_id, epoch: The sender.
            broker: The receiver.
            is_kraft_controller: Whether the sender is a KRaft controller.
            update_type: Their field ``type``.
            had_full: Whether the broker had been sent all partitions by a KRaft controller before each of them.
        """
        self._controllers[is_kraft_controller].add((epoch, controller_id))
        if not is_kraft_controller:
            self._phases[_ZOOKEEPER].add(requests, first, last, broker)
            return
        if update_type == _FULL and api_key == ApiKey.UPDATE_METADATA:
            phase = _TAKEOVER
        elif update_type == _INCREMENTAL or had_full:
            phase = _DUAL_WRITE
        else:
            phase = _TAKEOVER
        self._phases[phase].add(requests, first, last, broker)

    def merge(self, other: Migration) -> None:
        """Add the requests of another ``Migration``."""
        for name, phase in other._phases.items():
            self._phases[name].merge(phase)
        for is_kraft_controller, controllers in other._controllers.items():
            self._controllers[is_kraft_controller] |= controllers

    def row(self, moment: Callable[[int], str]) -> dict[str, Any] | None:
        """Return the migration with its ``phases`` in order; None where no KRaft controller sent a request.

        Args:
            moment: Writes a time in us since 1970.
        """
        if not self._controllers[True]:
            return None
        return {
            "zookeeper_controllers": self._ids(is_kraft_controller=False),
            "kraft_controllers": self._ids(is_kraft_controller=True),
            "phases": [
                {
                    "phase": name,
                    "requests": phase.requests,
                    "brokers": len(phase.brokers),
                    "first": None if phase.first is None else moment(phase.first),
                    "last": None if phase.last is None else moment(phase.last),
                }
                for name in (_ZOOKEEPER, _TAKEOVER, _DUAL_WRITE)
                if (phase := self._phases.get(name)) is not None
            ],
        }

    def _ids(self, *, is_kraft_controller: bool) -> list[dict[str, int]]:
        return [
            {"controller_id": controller, "controller_epoch": epoch}
            for epoch, controller in sorted(self._controllers[is_kraft_controller])
        ]
