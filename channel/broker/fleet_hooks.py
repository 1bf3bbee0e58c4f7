"""The hooks of a fleet's brokers: those of their owner, the delays of slow brokers, and the observer of answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .hooks import BrokerHooks, Interception

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .hooks import RequestContext

__all__ = ["FleetHooks"]


class FleetHooks:
    """Makes the hooks of each broker of a fleet.

    Args:
        hooks: Returns the owner's hooks of a broker by its id; None for no hooks.
        observer: Returns the fleet's present observer of answered requests, None if there is none.
    """

    def __init__(
        self,
        hooks: Callable[[int], BrokerHooks] | None,
        observer: Callable[[], Callable[[int, RequestContext], None] | None],
    ) -> None:
        self._hooks = hooks
        self._observer = observer
        self._delays_s: dict[int, float] = {}

    def slow(self, broker_id: int, delay_s: float) -> None:
        """Delay every request of a broker by this many seconds; 0 for no delay.

        Raises:
            ValueError: The delay is negative or longer than a day.
        """
        Interception(delay_s=delay_s)  # it raises the error of an invalid delay
        self._delays_s[broker_id] = delay_s

    def __call__(self, broker_id: int) -> BrokerHooks:
        """Return a copy of the owner's hooks of a broker, with its delay and the observer added."""
        hooks = self._hooks(broker_id) if self._hooks is not None else BrokerHooks()
        intercept, answered = hooks.intercept, hooks.answered

        def slow_or(context: RequestContext, request: Any) -> Interception | None:
            plan = intercept(context, request) if intercept is not None else None
            delay_s = self._delays_s.get(broker_id, 0.0)
            return Interception(delay_s=delay_s) if plan is None and delay_s else plan

        def report(context: RequestContext, request: Any, answer: Any) -> None:
            if answered is not None:
                answered(context, request, answer)
            observer = self._observer()
            if observer is not None:
                observer(broker_id, context)

        return replace(hooks, intercept=slow_or, answered=report)
