"""Tracks the controller and broker epochs in a capture, and explains why requests with older epochs are refused."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kproto.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["EPOCH_NOT_ACCEPTED", "ControllerEpoch", "Epochs", "broker_name", "refusal_reason"]

EPOCH_NOT_ACCEPTED: Final = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR)
"""The errors of a whole request that do not show that the broker accepted the controller epoch."""

_NO_EPOCH: Final = -1
_REMEMBERED: Final = 64
"""The number of accepted epochs that are kept for each broker."""


class ControllerEpoch(NamedTuple):
    """A controller epoch as a capture first shows it.

    Attributes:
        epoch: The epoch.
        controller_id: The controller that has it.
        since_ns: When its first request passed, ns since 1970.
    """

    epoch: int
    controller_id: int
    since_ns: int


@dataclass(slots=True)
class Epochs:
    """The newest epochs of controllers and brokers. Requests are noted in the order of their times."""

    _newest: ControllerEpoch | None = None
    _broker_epochs: dict[object, deque[int]] = field(default_factory=dict)

    @property
    def newest(self) -> ControllerEpoch | None:
        """The newest controller epoch so far."""
        return self._newest

    def superseded_by(self, controller_epoch: int) -> ControllerEpoch | None:
        """The newer controller epoch that makes this one outdated, None if none was seen."""
        newest = self._newest
        return newest if newest is not None and newest.epoch > controller_epoch else None

    def note(
        self,
        time_ns: int,
        broker: object,
        controller_id: int,
        controller_epoch: int,
        broker_epoch: int | None,
        error_code: int | None,
    ) -> None:
        """Note a request's epochs.

        Args:
            time_ns: When it passed, ns since 1970.
            broker: The receiving broker: its id, or its address where the id is not known.
            controller_id, controller_epoch: The sender.
            broker_epoch: The epoch in the request; -1 or None where the version has none.
            error_code: The response's error of the whole request; None: unanswered.
        """
        if error_code in EPOCH_NOT_ACCEPTED:
            return
        if self._newest is None or controller_epoch > self._newest.epoch:
            self._newest = ControllerEpoch(controller_epoch, controller_id, time_ns)
        if broker_epoch is not None and broker_epoch != _NO_EPOCH and error_code != ErrorCode.STALE_BROKER_EPOCH:
            accepted = self._broker_epochs.setdefault(broker, deque(maxlen=_REMEMBERED))
            if broker_epoch not in accepted:
                accepted.append(broker_epoch)

    def reason(self, error_code: int, broker: object, controller_epoch: int | None, broker_epoch: int | None) -> str:
        """Why a broker refused a whole request, in one clause; empty where the error's name says all there is.

        Args:
            error_code: The response's error.
            broker: As of ``note``.
            controller_epoch, broker_epoch: The request's.
        """
        newer = None if controller_epoch is None else self.superseded_by(controller_epoch)
        known = self._broker_epochs.get(broker, ())
        return refusal_reason(error_code, broker_name(broker), controller_epoch, broker_epoch, newer, known)


def refusal_reason(
    error_code: int,
    broker: str,
    controller_epoch: int | None,
    broker_epoch: int | None,
    newer: ControllerEpoch | None,
    known: Iterable[int],
) -> str:
    """Why a broker refused a whole request, in one clause; empty where the error's name says all there is.

    Args:
        error_code: The response's error.
        broker: The broker's name.
        controller_epoch, broker_epoch: The request's.
        newer: The newer controller epoch that was seen before the request, if any.
        known: The broker's own epochs that were seen before the request.
    """
    if error_code == ErrorCode.STALE_CONTROLLER_EPOCH and controller_epoch is not None:
        if newer is None:
            return f"controller epoch {controller_epoch} is older than the broker's, which the capture does not show"
        return (
            f"controller epoch {controller_epoch} is older than {newer.epoch} of controller {newer.controller_id}: "
            "a controller that was replaced (zombie)"
        )
    if error_code == ErrorCode.STALE_BROKER_EPOCH and broker_epoch is not None:
        # A broker accepts its own epoch and any above: the lowest epoch above this one is the nearest to its own.
        above = [epoch for epoch in known if epoch > broker_epoch]
        if not above:
            return f"broker epoch {broker_epoch} is older than the broker's: {broker} has started again"
        return f"broker epoch {broker_epoch} is older than {min(above)}: sent to an earlier start of {broker}"
    if error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
        return "the broker failed on it; its log says why"
    return ""


def broker_name(broker: object) -> str:
    """``broker 2``, or ``the broker at 10.0.0.2:9092`` where the id is not known."""
    return f"broker {broker}" if isinstance(broker, int) else f"the broker at {broker}"
