"""Commands to a running fleet: it takes steps from any source, one at a time, and keeps their latest reports."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from channel.errors import IllegalState
from channel.locks import new_lock

from .fleet_steps import Step, rehearse

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .fleet import Fleet
    from .fleet_steps import Event

__all__ = ["FleetCommands"]

_KEPT: Final = 1_000


class FleetCommands:
    """Takes steps for a fleet, from any thread.

    Args:
        fleet: A fleet that has started.
        report: Takes the report of each step as a JSON object, on the thread that called ``take``.

    Attributes:
        events: The reports of the latest thousand steps, the oldest first.
    """

    def __init__(self, fleet: Fleet, report: Callable[[dict[str, Any]], None]) -> None:
        self.events: deque[Event] = deque(maxlen=_KEPT)
        self._fleet = fleet
        self._report = report
        self._taking = new_lock("fleet commands")

    def take(self, line: str, *, wait: bool) -> Event:
        """Take a step, and return its report once it is over.

        Args:
            line: The step, as ``Step.of`` reads it.
            wait: Whether to wait for the end of another thread's step.

        Raises:
            IllegalState: Another step is being taken, and ``wait`` is false.
            ValueError, ChannelError: The line is no step, or the step cannot be taken.
        """
        step = Step.of(line)
        if not self._taking.acquire(blocking=wait):
            raise IllegalState("another step is being taken; try again once it is over")
        try:
            (event,) = rehearse(self._fleet, [step])
            self.events.append(event)
            self._report(event.to_json())
        finally:
            self._taking.release()
        return event

    def brokers(self) -> list[dict[str, Any]]:
        """Return the state of every broker, as JSON objects."""
        leader = self._fleet.controller_id
        return [
            {
                "broker": member.id,
                "host": member.host,
                "port": member.port,
                "broker_epoch": member.epoch,
                "up": member.is_up,
                "paused": self._fleet.is_paused(member.id),
                "leads_cluster": member.id == leader,
            }
            for member in self._fleet
        ]
