"""A runner that carries out a controller's decisions: each becomes one request batch, each request a journal entry.

It has a controller's event thread, request batch, channel manager and journal; a test or a script decides.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from channel.clock import SYSTEM_CLOCK
from channel.controller.batch import ControllerBrokerRequestBatch
from channel.controller.context import ControllerContext
from channel.controller.events import ControllerEvent, ControllerEventManager, ControllerState
from channel.errors import IllegalState, RequestTimeout
from channel.threads import close_all, time_left

from .journal import JournaledChannels

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.config import ChannelConfig
    from channel.metrics import Metrics
    from channel.network.recorder import Recorder

    from .journal import Journal

__all__ = ["DecisionRunner"]

_PATIENCE_S: Final = 60.0
"""The time in s after which a decision on the event thread counts as stuck."""


@dataclass(frozen=True, slots=True)
class _Decision(ControllerEvent):
    """A function for the event thread to call."""

    state: ClassVar[ControllerState] = ControllerState.TOPIC_CHANGE
    decide: Callable[[], None]
    done: threading.Event = field(default_factory=threading.Event)
    failures: list[Exception] = field(default_factory=list)


class DecisionRunner:
    """Carries out decisions on a controller's event thread, each as one batch.

    The runner is the event manager's processor; its owner calls ``start``, ``run`` and ``close``.

    Args:
        controller_id: The controller's broker id.
        controller_epoch: The controller epoch of its election.
        config: ``inter.broker.protocol.version`` decides the versions of all requests; timeouts, listener names.
        metrics: Takes the figures of channels and event queue.
        journal: Takes every request and its answer.
        recorder: Sees every frame that passes.

    Attributes:
        context: The controller's knowledge; decisions change it.
        batch: The open batch of the decision that is being carried out.
        manager: The channels to the brokers.
        journal: Every request with its answer.
    """

    def __init__(
        self,
        controller_id: int,
        controller_epoch: int,
        config: ChannelConfig,
        metrics: Metrics,
        journal: Journal,
        recorder: Recorder | None,
    ) -> None:
        self.controller_id = controller_id
        self.context = ControllerContext()
        self.context.epoch = controller_epoch
        self.journal = journal
        self._is_closed = False
        self.manager = JournaledChannels(
            journal, controller_id, lambda: self.context.epoch, config, metrics=metrics, recorder=recorder
        )
        self._events = ControllerEventManager(controller_id, self, SYSTEM_CLOCK, metrics)
        self.batch = ControllerBrokerRequestBatch(
            controller_id, config, self.manager, self._events, lambda: self.context
        )

    def start(self) -> None:
        """Start the event thread."""
        self._events.start()

    def close(self, timeout_s: float | None = None) -> None:
        """End the event thread and all channels, within this time; queued requests are dropped. Harmless if closed."""
        self._is_closed = True
        left_s = time_left(timeout_s)
        close_all(lambda: self._events.close(left_s()), lambda: self.manager.close(left_s()))

    def run(self, decide: Callable[[], None]) -> None:
        """Call ``decide`` on the event thread with an open batch, and return when its requests are queued.

        Raises:
            IllegalState: The batch failed, or the controller is closed.
            RequestTimeout: The event thread is stuck.
            Exception: Raised by ``decide``.
        """

        def as_one_batch() -> None:
            self.batch.new_batch()
            try:
                decide()
                self.batch.send_requests_to_brokers(self.context.epoch)
            except BaseException:
                self.batch.clear()
                raise

        decision = _Decision(as_one_batch)
        queued = self._events.put(decision)
        if self._is_closed:
            queued.preempt(self)  # the event thread has ended, or ends without it
        if not decision.done.wait(_PATIENCE_S):
            raise RequestTimeout(f"the controller's event thread is stuck: no decision in {_PATIENCE_S:.0f} s")
        if decision.failures:
            raise decision.failures[0]

    # ---- called by the event manager ---------------------------------------------------------------------------------

    def process(self, event: ControllerEvent) -> None:
        """Carry out a decision; responses, which are events too, need no further work."""
        if isinstance(event, _Decision):
            try:
                event.decide()
            except Exception as e:  # noqa: BLE001  (raised again on the thread that asked for the decision)
                event.failures.append(e)
            event.done.set()

    def preempt(self, event: ControllerEvent) -> None:
        """Refuse a decision, as the controller is closing."""
        if isinstance(event, _Decision):
            event.failures.append(IllegalState("the controller is closed"))
            event.done.set()
