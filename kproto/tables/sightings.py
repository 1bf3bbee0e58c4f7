"""Records when each epoch was first seen, for all captures, before requests are compared with them."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.tables.epochs import ControllerEpoch, counts_as_seen

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Sightings", "sightings"]

Address = tuple[str, int]
"""A broker's address: IP and port."""

_NO_EPOCH: Final = -1
_FULL: Final = 2
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


class Sightings:
    """The epochs that were seen up to any moment. Moments are in us since 1970."""

    def __init__(self) -> None:
        self._controllers: dict[tuple[int, int], int] = {}
        self._broker_epochs: dict[Address, dict[int, int]] = {}
        self._full_updates: dict[Address, int] = {}
        self._steps: tuple[list[int], list[ControllerEpoch]] | None = None

    def learn(self, found: pa.Table) -> None:
        """Add a table of ``sightings``."""
        for row in found.to_pylist():
            ts, address = row["ts"], (row["server_ip"], row["server_port"])
            if not row["error_code"] and row["is_kraft"] and row["type"] == _FULL and row["api_key"] == _UPDATE:
                self._full_updates[address] = min(ts, self._full_updates.get(address, ts))
            if not counts_as_seen(row["error_code"]):
                continue
            controller = row["controller_epoch"], row["controller_id"]
            self._controllers[controller] = min(ts, self._controllers.get(controller, ts))
            epoch = row["broker_epoch"]
            if epoch is not None and epoch != _NO_EPOCH and row["error_code"] != ErrorCode.STALE_BROKER_EPOCH:
                epochs = self._broker_epochs.setdefault(address, {})
                epochs[epoch] = min(ts, epochs.get(epoch, ts))
        self._steps = None

    def newest_controller(self, ts: int) -> ControllerEpoch | None:
        """The newest controller epoch that was seen up to this moment."""
        if self._steps is None:
            times: list[int] = []
            newest: list[ControllerEpoch] = []
            for (epoch, controller_id), first in sorted(self._controllers.items(), key=lambda item: (item[1], item[0])):
                if not newest or epoch > newest[-1].epoch:
                    times.append(first)
                    newest.append(ControllerEpoch(epoch, controller_id, first * 1000))
            self._steps = times, newest
        place = bisect_right(self._steps[0], ts)
        return self._steps[1][place - 1] if place else None

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


_UPDATE: Final = int(ApiKey.UPDATE_METADATA)
