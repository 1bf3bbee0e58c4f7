"""A migration from ZooKeeper to KRaft, as its controllers' requests show it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Migration"]

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

    def add(self, ts: int, broker: object) -> None:
        self.requests += 1
        self.first = ts if self.first is None else min(self.first, ts)
        self.last = ts if self.last is None else max(self.last, ts)
        self.brokers.add(broker)


class Migration:
    """Sorts requests into the phases of a migration.

    A KRaft controller that takes over sends each broker all topics in an UpdateMetadata without type, then a full
    LeaderAndIsr and a full UpdateMetadata; from then on it sends changes alone.
    """

    def __init__(self) -> None:
        self._phases: dict[str, _Phase] = defaultdict(_Phase)
        self._controllers: dict[bool, set[tuple[int, int]]] = {False: set(), True: set()}
        self._full_sent: set[object] = set()

    def add(
        self, ts: int, api_key: int, controller_id: int, epoch: int, broker: object, *, is_kraft: bool, update_type: int
    ) -> None:
        """Take a request, in the order of time; ``ts`` in us since 1970, ``update_type`` its field ``type``."""
        self._controllers[is_kraft].add((epoch, controller_id))
        if not is_kraft:
            self._phases[_ZOOKEEPER].add(ts, broker)
            return
        if update_type == _FULL and api_key == ApiKey.UPDATE_METADATA:
            self._full_sent.add(broker)
            phase = _TAKEOVER
        elif update_type == _INCREMENTAL or broker in self._full_sent:
            phase = _DUAL_WRITE
        else:
            phase = _TAKEOVER
        self._phases[phase].add(ts, broker)

    def row(self, moment: Callable[[int], str]) -> dict[str, Any] | None:
        """The migration with its ``phases`` in order; None where no KRaft controller sent a request.

        Args:
            moment: Writes a time in us since 1970.
        """
        if not self._controllers[True]:
            return None
        return {
            "zookeeper_controllers": self._ids(is_kraft=False),
            "kraft_controllers": self._ids(is_kraft=True),
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

    def _ids(self, *, is_kraft: bool) -> list[dict[str, int]]:
        return [
            {"controller_id": controller, "controller_epoch": epoch}
            for epoch, controller in sorted(self._controllers[is_kraft])
        ]
