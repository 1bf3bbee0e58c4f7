"""Decides from epochs who was no longer the controller, and which requests meant an earlier registration.

A controller's epochs grow by one with each election, in ZooKeeper and KRaft mode alike. An epoch is known from the
first request on that a broker accepted with it: refused, unanswered and unreadable requests prove nothing. A request
with a lower epoch than a known one is that of a zombie: a controller that was replaced.

A broker's own epoch is the transaction of its registration: of ZooKeeper in ZooKeeper mode, of the metadata log in
KRaft mode. Those of the two modes are never compared. Brokers accept their own epoch and any above, so that a lower one
is wrong only where the broker says so, with STALE_BROKER_EPOCH.

See ``docs/verdicts.md``. Times are us since 1970.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from kproto.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Address = tuple[str, int]
"""A broker's address: IP and port."""

StaleReason = Literal["controller_epoch_regressed", "broker_epoch_regressed", "refused_as_stale"]

NOT_NEWER: Final = "not newer than the broker's (no zombie)"
"""The meaning of STALE_CONTROLLER_EPOCH for a single partition: its leader epoch is stale, not the controller epoch."""

_NO_EPOCH: Final = -1


class ControllerEpoch(NamedTuple):
    """A controller epoch as a capture first shows it.

    Attributes:
        epoch: The epoch.
        controller_id: The controller that has it.
        since: The time of the first request with it that a broker accepted.
    """

    epoch: int
    controller_id: int
    since: int


class Stale(NamedTuple):
    """The reason why a request is stale.

    Attributes:
        reason: ``controller_epoch_regressed``: a newer controller epoch was known; ``broker_epoch_regressed``: the
            broker refused the request as one for an earlier registration, and a later one is known;
            ``refused_as_stale``: the broker says so, and the capture does not show why.
        zombie: Whether the sender was replaced; else the request meant an earlier registration of its broker.
        seen_epoch: The request's epoch of the controller, or of the broker.
        known_epoch: The newest controller epoch known then, or the lowest of the broker's epochs above; None: none.
        newer: The newer controller epoch, if any is known.
    """

    reason: StaleReason
    zombie: bool
    seen_epoch: int
    known_epoch: int | None
    newer: ControllerEpoch | None = None


class EpochWentBack(NamedTuple):
    """A broker accepted a lower controller epoch after a higher one.

    Attributes:
        broker: The broker's address.
        higher, lower: The epochs.
        at: The time at which it last accepted the lower one.
    """

    broker: Address
    higher: int
    lower: int
    at: int


class Epochs:
    """The epochs that brokers accepted, and the verdicts that follow from them."""

    def __init__(self) -> None:
        self._controllers: dict[tuple[int, int], int] = {}
        self._brokers: dict[Address, dict[tuple[bool, int], int]] = {}
        self._runs: dict[tuple[Address, bool, int], dict[int, tuple[int, int]]] = {}
        self._full_updates: dict[Address, int] = {}
        self._steps: tuple[list[int], list[ControllerEpoch]] | None = None

    def learn(
        self,
        first: int,
        last: int,
        broker: Address,
        controller_id: int,
        controller_epoch: int,
        broker_epoch: int | None,
        *,
        is_kraft_controller: bool,
        error_code: int | None,
        is_full_update: bool = False,
    ) -> None:
        """Learn the epochs of requests to one broker.

        Args:
            first, last: The times of the first and the last of these requests.
            broker: The receiver.
            controller_id, controller_epoch: The sender; -1 where a broker's log does not name it.
            broker_epoch: The registration that the requests are meant for; -1 or None where the version has none.
            is_kraft_controller: Whether the sender is a KRaft controller.
            error_code: The broker's answer to the whole request; None: unanswered or unreadable.
            is_full_update: Whether each is an UpdateMetadata of all partitions.
        """
        if error_code != 0 or controller_epoch == _NO_EPOCH:
            return
        sender = (controller_epoch, controller_id)
        known = self._controllers.get(sender)
        if known is None or first < known:
            self._controllers[sender] = first
            self._steps = None
        if is_full_update and is_kraft_controller:
            self._full_updates[broker] = min(first, self._full_updates.get(broker, first))
        if broker_epoch is None or broker_epoch == _NO_EPOCH:
            return
        registrations = self._brokers.setdefault(broker, {})
        registration = (is_kraft_controller, broker_epoch)
        registrations[registration] = min(first, registrations.get(registration, first))
        run = self._runs.setdefault((broker, *registration), {})
        begin, end = run.get(controller_epoch, (first, last))
        run[controller_epoch] = (min(begin, first), max(end, last))

    def newest_controller(self, ts: int) -> ControllerEpoch | None:
        """The newest controller epoch that was known before this time."""
        times, newest = self._newest()
        place = bisect_left(times, ts)
        return newest[place - 1] if place else None

    def _newest(self) -> tuple[list[int], list[ControllerEpoch]]:
        """The newest controller epochs in the order of time, and since when each was."""
        if self._steps is None:
            times: list[int] = []
            newest: list[ControllerEpoch] = []
            for (epoch, controller_id), first in sorted(self._controllers.items(), key=lambda item: (item[1], item[0])):
                if not newest or epoch > newest[-1].epoch:
                    times.append(first)
                    newest.append(ControllerEpoch(epoch, controller_id, first))
            self._steps = times, newest
        return self._steps

    def superseded_by(self, controller_epoch: int, ts: int) -> ControllerEpoch | None:
        """The newest controller epoch known before this time, if it is newer than this one; of an unknown one none."""
        newest = None if controller_epoch == _NO_EPOCH else self.newest_controller(ts)
        return newest if newest is not None and newest.epoch > controller_epoch else None

    def _above(self, broker: Address, broker_epoch: int, ts: int, *, is_kraft_controller: bool) -> int | None:
        """The lowest known epoch of a broker above this one: the nearest to its own, since it accepts any above."""
        known = self._brokers.get(broker, {}).items()
        earlier = [epoch for (kraft, epoch), first in known if kraft == is_kraft_controller and first < ts]
        return min((epoch for epoch in earlier if epoch > broker_epoch), default=None)

    def stale(
        self,
        ts: int,
        broker: Address,
        controller_epoch: int,
        broker_epoch: int | None,
        error_code: int | None,
        *,
        is_kraft_controller: bool,
    ) -> Iterator[Stale]:
        """Yield why a request is stale; nothing of most.

        Args:
            ts: The time at which it passed.
            broker: The receiver.
            controller_epoch, broker_epoch, is_kraft_controller, error_code: See ``learn``.
        """
        newer = self.superseded_by(controller_epoch, ts)
        if newer is not None:
            yield Stale("controller_epoch_regressed", True, controller_epoch, newer.epoch, newer)
        elif error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            newest = self.newest_controller(ts)
            yield Stale("refused_as_stale", True, controller_epoch, None if newest is None else newest.epoch)
        if error_code == ErrorCode.STALE_BROKER_EPOCH and broker_epoch is not None:
            above = self._above(broker, broker_epoch, ts, is_kraft_controller=is_kraft_controller)
            yield Stale("refused_as_stale" if above is None else "broker_epoch_regressed", False, broker_epoch, above)

    def controllers(self) -> list[ControllerEpoch]:
        """The controllers that brokers accepted, in the order of their epochs."""
        some = sorted(self._controllers.items())
        return [ControllerEpoch(epoch, controller_id, since) for (epoch, controller_id), since in some]

    def rivals(self) -> dict[int, dict[int, int]]:
        """The controller epochs that more than one controller had: epoch -> controller -> since when."""
        found: dict[int, dict[int, int]] = {}
        for (epoch, controller_id), first in self._controllers.items():
            found.setdefault(epoch, {})[controller_id] = first
        return {epoch: senders for epoch, senders in sorted(found.items()) if len(senders) > 1}

    def went_back(self) -> list[EpochWentBack]:
        """The brokers that accepted a lower controller epoch after a higher one, within one registration."""
        found = []
        for (broker, _is_kraft, _registration), run in self._runs.items():
            epochs = sorted(run, reverse=True)
            begins = list(accumulate((run[epoch][0] for epoch in epochs), min))
            for place, lower in enumerate(epochs):
                last = run[lower][1]
                higher = bisect_right(begins, -last, hi=place, key=lambda begin: -begin)
                if higher < place:  # the highest epoch that the broker had accepted before
                    found.append(EpochWentBack(broker, epochs[higher], lower, last))
        return sorted(found, key=lambda back: (back.at, back.broker, back.lower))

    def had_full_update(self, broker: Address, ts: int) -> bool:
        """Whether a KRaft controller had sent the broker all partitions before this time."""
        first = self._full_updates.get(broker)
        return first is not None and first < ts

    def turns(self) -> list[int]:
        """The times, ascending, from which on a verdict or ``had_full_update`` may be another."""
        return sorted({first + 1 for first in (*self._newest()[0], *self._full_updates.values())})


def refusal_reason(error_code: int | None, reasons: Iterable[Stale], name: str) -> str:
    """The reason why a broker refused a whole request, in one clause; empty where the error's name says it all.

    Args:
        error_code: The broker's answer.
        reasons: What ``Epochs.stale`` yields of the request.
        name: The broker's name.
    """
    if error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
        return "the broker failed on it; its log says why"
    for stale in reasons:
        if error_code == ErrorCode.STALE_CONTROLLER_EPOCH and stale.zombie:
            older = f"controller epoch {stale.seen_epoch} is older than"
            if stale.newer is None:
                return f"{older} the broker's, which the capture does not show"
            controller = f"{stale.newer.epoch} of controller {stale.newer.controller_id}"
            return f"{older} {controller}: a controller that was replaced (zombie)"
        if error_code == ErrorCode.STALE_BROKER_EPOCH and not stale.zombie:
            older = f"broker epoch {stale.seen_epoch} is older than"
            if stale.known_epoch is None:
                return f"{older} the broker's: {name} has started again"
            return f"{older} {stale.known_epoch}: meant for an earlier registration of {name}"
    return ""


def broker_name(broker: object) -> str:
    """``broker 2``, or ``the broker at 10.0.0.2:9092`` where the id is not known."""
    return f"broker {broker}" if isinstance(broker, int) else f"the broker at {broker}"


def the_broker(broker: object) -> str:
    """``broker_name`` at the begin of a sentence."""
    name = broker_name(broker)
    return name[:1].upper() + name[1:]


def partition_error_meaning(error_code: int) -> str:
    """An explanation of a single partition's error, for every partition that has it; mostly empty."""
    return f"the leader epoch is {NOT_NEWER}" if error_code == ErrorCode.STALE_CONTROLLER_EPOCH else ""
