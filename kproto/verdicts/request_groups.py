"""Groups requests that a summary counts alike, so that its figures take a group at a time and not each request."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kproto.capture.model import Endpoint
from kproto.tables.arrays import array_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.verdicts.epochs import Epochs

_KEYS: Final = (
    "api_key", "api_version", "error_code", "controller_id", "controller_epoch", "broker_epoch", "is_kraft_controller",
    "type", "broker_id", "server_ip", "server_port", "unmatched_reason", "decode_error",
)  # fmt: skip
_MOMENTS: Final = ("refused_ts", "era")
_FIGURES: Final = (
    ("ts", "count"), ("ts", "min"), ("ts", "max"), ("n_partitions", "sum"), ("response_frame_id", "count"),
)  # fmt: skip


class RequestGroup(NamedTuple):
    """Requests to one address that differ in their times, bodies and latencies alone.

    All were sent while the same controller epoch was the newest, and the broker either had or had not been sent all
    partitions before each of them.

    Attributes:
        broker_epoch: The epoch in refused requests; None for others, which may differ in it.
        requests: Their number.
        first, last: The times of the first and the last in us since 1970; equal for refused requests.
        partitions: Their partitions, None if no request has a number of them.
        answered: The number of requests with a response.
    """

    api_key: int
    api_version: int
    error_code: int | None
    controller_id: int | None
    controller_epoch: int | None
    broker_epoch: int | None
    is_kraft_controller: bool | None
    type: int | None
    broker_id: int | None
    server_ip: str
    server_port: int
    unmatched_reason: str | None
    decode_error: str | None
    requests: int
    first: int
    last: int
    partitions: int | None
    answered: int

    @property
    def address(self) -> tuple[str, int]:
        """The receiving broker's address."""
        return self.server_ip, self.server_port

    @property
    def target(self) -> object:
        """The receiving broker, see ``target_of``."""
        return target_of(self.broker_id, self.server_ip, self.server_port)


def target_of(broker_id: int | None, ip: str, port: int) -> object:
    """Return a receiving broker: its id, or its address where the id is not known."""
    if broker_id is not None:
        return broker_id
    return str(Endpoint(ip, port))


def group_requests(rows: pa.Table, seen: Epochs) -> Iterator[RequestGroup]:
    """Yield the groups of requests, in the order of their first requests.

    Args:
        rows: Of ``requests`` in the order of time, ``ts`` in us since 1970.
        seen: The epochs that were seen in all captures.
    """
    if not rows.num_rows:
        return
    refused = pc.not_equal(pc.fill_null(rows["error_code"], 0), 0)
    epoch = rows.column_names.index("broker_epoch")
    rows = rows.set_column(epoch, "broker_epoch", pc.if_else(refused, rows["broker_epoch"], None))
    rows = rows.append_column("refused_ts", pc.if_else(refused, rows["ts"], None))
    rows = rows.append_column("era", _eras(rows["ts"].combine_chunks(), seen.turns()))
    rows = rows.append_column("row", array_of(range(rows.num_rows), pa.int64()))
    grouped = rows.group_by([*_KEYS, *_MOMENTS], use_threads=False).aggregate([*_FIGURES, ("row", "min")])
    grouped = grouped.sort_by("row_min")  # groups come in no certain order
    names = (*_KEYS, *("_".join(figure) for figure in _FIGURES))
    yield from map(RequestGroup._make, rows_of(grouped, names))


def _eras(times: pa.Array, turns: list[int]) -> pa.Array:
    """Number the stretches of ascending times between the turns."""
    ends: list[int] = []
    for turn in turns[bisect_left(turns, times[0].as_py()) :]:
        end = bisect_left(times, turn, key=lambda time: time.as_py())
        if end == len(times):
            break
        if end and end != (ends[-1] if ends else 0):
            ends.append(end)
    ends.append(len(times))
    run_ends, numbers = array_of(ends, pa.int32()), array_of(range(len(ends)), pa.int32())
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(run_ends, numbers))
