"""Records when each epoch was first seen, for all captures, before requests are compared with them."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.tables.arrays import array_of, rows_of
from kproto.tables.epochs import EPOCH_NOT_ACCEPTED, ControllerEpoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Sightings", "sightings"]

Address = tuple[str, int]
"""A broker's address: IP and port."""

_NO_EPOCH: Final = -1
_FULL: Final = 2
_UPDATE: Final = int(ApiKey.UPDATE_METADATA)
_NOT_ACCEPTED: Final = array_of([int(error) for error in EPOCH_NOT_ACCEPTED], pa.int16())
_COLUMNS: Final = (
    "capture", "server_ip", "server_port", "controller_id", "controller_epoch", "broker_epoch", "error_code",
    "api_key", "is_kraft", "type",
)  # fmt: skip


def sightings(requests: Iterable[pa.Table]) -> pa.Table:
    """Reduce rows of ``requests``, or earlier results, to one row for each combination of epochs and address.

    Args:
        requests: With the columns of epochs, ``ts`` and, if wanted, ``capture``.

    Returns:
        A small table; its ``ts`` is the time of the first such request, in us since 1970.
    """
    found: pa.Table | None = None
    for table in requests:
        readable = table.filter(pc.is_valid(table["controller_id"]))
        names = [name for name in _COLUMNS if name in readable.column_names]
        readable = readable.select([*names, "ts"])
        readable = readable.set_column(len(names), "ts", readable["ts"].cast(pa.int64()))
        every = readable if found is None else pa.concat_tables([found, readable])
        first = every.group_by(names, use_threads=False).aggregate([("ts", "min")])
        found = first.rename_columns([*names, "ts"]).combine_chunks()
    assert found is not None
    return found


def _first(found: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Return each combination of values in some columns, and its first time."""
    table = found.group_by(list(names), use_threads=False).aggregate([("ts", "min")])
    return rows_of(table, (*names, "ts_min"))


class Sightings:
    """The epochs that were seen up to any moment. Moments are in us since 1970."""

    def __init__(self) -> None:
        self._controllers: dict[tuple[int, int], int] = {}
        self._broker_epochs: dict[Address, dict[int, int]] = {}
        self._full_updates: dict[Address, int] = {}
        self._steps: tuple[list[int], list[ControllerEpoch]] | None = None

    def learn(self, found: pa.Table) -> None:
        """Add a table of ``sightings``."""
        error = pc.fill_null(found["error_code"], 0)
        full = pc.and_(pc.equal(found["api_key"], _UPDATE), pc.fill_null(pc.equal(found["type"], _FULL), False))
        of_kraft = pc.and_(pc.equal(error, 0), pc.fill_null(found["is_kraft"], False))
        for ip, port, ts in _first(found.filter(pc.and_(full, of_kraft)), "server_ip", "server_port"):
            self._full_updates[ip, port] = min(ts, self._full_updates.get((ip, port), ts))
        counted = found.filter(pc.invert(pc.is_in(error, value_set=_NOT_ACCEPTED)))
        for epoch, controller_id, ts in _first(counted, "controller_epoch", "controller_id"):
            controller = epoch, controller_id
            self._controllers[controller] = min(ts, self._controllers.get(controller, ts))
        accepted = pc.not_equal(pc.fill_null(counted["error_code"], 0), ErrorCode.STALE_BROKER_EPOCH)
        known = pc.not_equal(pc.fill_null(counted["broker_epoch"], _NO_EPOCH), _NO_EPOCH)
        own = counted.filter(pc.and_(accepted, known))
        for ip, port, epoch, ts in _first(own, "server_ip", "server_port", "broker_epoch"):
            epochs = self._broker_epochs.setdefault((ip, port), {})
            epochs[epoch] = min(ts, epochs.get(epoch, ts))
        self._steps = None

    def newest_controller(self, ts: int) -> ControllerEpoch | None:
        """The newest controller epoch that was seen up to this moment."""
        times, newest = self._newest()
        place = bisect_right(times, ts)
        return newest[place - 1] if place else None

    def turns(self) -> list[int]:
        """The moments, ascending, from which on ``newest_controller`` or ``had_full_update`` may answer otherwise."""
        return sorted({*self._newest()[0], *(first + 1 for first in self._full_updates.values())})

    def _newest(self) -> tuple[list[int], list[ControllerEpoch]]:
        """The newest controller epochs in the order of time, and since when each was."""
        if self._steps is None:
            times: list[int] = []
            newest: list[ControllerEpoch] = []
            for (epoch, controller_id), first in sorted(self._controllers.items(), key=lambda item: (item[1], item[0])):
                if not newest or epoch > newest[-1].epoch:
                    times.append(first)
                    newest.append(ControllerEpoch(epoch, controller_id, first * 1000))
            self._steps = times, newest
        return self._steps

    def superseded_by(self, controller_epoch: int, ts: int) -> ControllerEpoch | None:
        """The newer controller epoch that made this one outdated by then, None if none was seen."""
        newest = self.newest_controller(ts)
        return newest if newest is not None and newest.epoch > controller_epoch else None

    def broker_epochs(self, address: Address, ts: int) -> list[int]:
        """The epochs of the broker at an address that were seen up to this moment."""
        return [epoch for epoch, first in self._broker_epochs.get(address, {}).items() if first <= ts]

    def had_full_update(self, address: Address, ts: int) -> bool:
        """Whether a KRaft controller had sent the broker all partitions before this moment."""
        first = self._full_updates.get(address)
        return first is not None and first < ts
