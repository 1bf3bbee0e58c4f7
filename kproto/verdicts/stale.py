"""Applies the verdicts of ``epochs`` to the table ``requests``: who was replaced, who meant an earlier registration."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.tables.arrays import rows_of, table_of
from kproto.tables.schemas import TIME, column, described
from kproto.verdicts.epochs import Epochs
from kproto.verdicts.states import FULL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kproto.tables.stored import Reader

EPOCH_COLUMNS: Final = (
    "cluster", "server_ip", "server_port", "controller_id", "controller_epoch", "broker_epoch", "error_code",
    "api_key", "is_kraft_controller", "type",
)  # fmt: skip
"""The columns of ``requests`` that hold epochs, beside ``ts``."""

STALE_COLUMNS: Final = (*EPOCH_COLUMNS, "frame_id", "ts", "broker_id", "capture")
"""The columns of ``requests`` that ``stale_rows`` reads."""

KnownEpochs = dict[str, dict[str, Epochs]]
"""What requests show: by the point whose clock dates them, see ``by_clock``, and by cluster."""

_END: Final = (1 << 63) - 1

CLUSTER: Final = column("cluster", pa.string(), "Cluster, as declared or as found, see the table clusters.")

STALE_REQUESTS: Final = described(
    "Requests whose sender was no longer the controller, or that meant an earlier registration of their broker.",
    column("frame_id", pa.binary(), "The request's frame. Joins requests."),
    CLUSTER,
    column("ts", TIME, "When the request passed (UTC, us)."),
    column("broker_id", pa.int32(), "Receiving broker; null where nothing tells it."),
    column("controller_id", pa.int32(), "Sender."),
    column(
        "reason",
        pa.string(),
        "controller_epoch_regressed, broker_epoch_regressed; refused_as_stale: only the broker says so.",
    ),
    column("zombie", pa.bool_(), "Whether the sender was replaced; else an earlier registration was meant."),
    column("seen_epoch", pa.int64(), "The request's controller epoch, or its broker epoch."),
    column(
        "known_epoch",
        pa.int64(),
        "The newest controller epoch that a broker had accepted, or the broker's lowest epoch above; null: not shown.",
    ),
    column("error_code", pa.int16(), "The broker's answer; null: none."),
)


def epochs_in(requests: Iterable[pa.Table]) -> pa.Table:
    """Reduce rows of ``requests``, or earlier results, to one row for each combination of epochs and address.

    Args:
        requests: With the columns ``EPOCH_COLUMNS`` (``cluster`` may be missing) and ``ts``.

    Returns:
        A small table with ``first`` and ``last``, the times of the first and the last such request in us since 1970.
    """
    found: pa.Table | None = None
    for table in requests:
        if "ts" in table.column_names:
            named = plain_times(table.filter(pc.is_valid(table["controller_id"])), "ts")
            of = named.select([name for name in EPOCH_COLUMNS if name in named.column_names])
            table = of.append_column("first", named["ts"]).append_column("last", named["ts"])
        every = table if found is None else pa.concat_tables([found, table])
        names = [name for name in every.column_names if name not in ("first", "last")]
        spans = every.group_by(names, use_threads=False).aggregate([("first", "min"), ("last", "max")])
        found = spans.rename_columns([*names, "first", "last"]).combine_chunks()
    assert found is not None
    return found


def plain_times(table: pa.Table, *names: str) -> pa.Table:
    """Return the table with times as microseconds since 1970."""
    for name in names:
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast(pa.int64()))
    return table


def learn_epochs(epochs: Epochs, found: pa.Table) -> None:
    """Add the epochs that ``epochs_in`` found."""
    rows = rows_of(found, (*EPOCH_COLUMNS[1:], "first", "last"))
    for ip, port, controller_id, epoch, broker_epoch, error, api_key, kraft, kind, first, last in rows:
        if api_key == ApiKey.FETCH:  # a batch of KRaft's log: who wrote it is no request that a broker accepted
            continue
        epochs.learn(
            first, last, (ip, port), controller_id, epoch, broker_epoch,
            is_kraft_controller=bool(kraft), error_code=error,
            is_full_update=api_key == ApiKey.UPDATE_METADATA and kind == FULL,
        )  # fmt: skip


def stale_rows(requests: pa.Table, known: KnownEpochs, clocks: pa.Table | None) -> Iterator[tuple[Any, ...]]:
    """Yield the stale requests among rows of ``requests``, as rows of ``STALE_REQUESTS``.

    Args:
        requests: With the columns ``STALE_COLUMNS``.
        known: See ``known_epochs``.
        clocks: See ``by_clock``.
    """
    for point, some in by_clock(requests, clocks):
        for cluster, epochs in known[point].items():
            suspects = _suspects(some.filter(pc.equal(some["cluster"], cluster)), epochs)
            for row in rows_of(suspects, STALE_COLUMNS):
                _, ip, port, controller_id, epoch, broker_epoch, error, api, kraft, _type, frame_id, ts, target, _ = row
                if api == ApiKey.FETCH:
                    continue
                for found in epochs.stale(ts, (ip, port), epoch, broker_epoch, error, is_kraft_controller=bool(kraft)):
                    yield (
                        frame_id, cluster, ts, target, controller_id, found.reason, found.zombie, found.seen_epoch,
                        found.known_epoch, error,
                    )  # fmt: skip


def _suspects(requests: pa.Table, epochs: Epochs) -> pa.Table:
    """The requests that may be stale: those with less than the newest controller epoch, and those refused as stale."""
    newest = epochs.newest_controller(_END)
    highest = 0 if newest is None else newest.epoch

    errors = pa.array([int(ErrorCode.STALE_CONTROLLER_EPOCH), int(ErrorCode.STALE_BROKER_EPOCH)], pa.int16())
    lower = pc.less(requests["controller_epoch"], highest)
    suspects = requests.filter(pc.or_kleene(lower, pc.is_in(requests["error_code"], value_set=errors)))
    return plain_times(suspects.filter(pc.is_valid(suspects["controller_id"])), "ts")


def by_clock(requests: pa.Table, clocks: pa.Table | None) -> list[tuple[str, pa.Table]]:
    """Split requests by the point with whose clock that of their capture was compared.

    The order of the times of others is unknown: an epoch that one shows replaces nobody in another.

    Args:
        requests: With the column ``capture``, if there are several such points.
        clocks: The table ``clocks``; None: one clock dates all.
    """
    points = [] if clocks is None else pc.unique(clocks["reference"]).to_pylist()
    if clocks is None or len(points) < 2:
        return [("", requests)]
    found = []
    for point in points:
        captures = clocks.filter(pc.equal(clocks["reference"], point))["capture"].combine_chunks()
        found.append((point, requests.filter(pc.is_in(requests["capture"], value_set=captures))))
    return found


def known_epochs(requests: Iterable[pa.Table], clocks: pa.Table | None) -> KnownEpochs:
    """Return what the requests show by each clock.

    Args:
        requests: As ``epochs_in`` takes them, with the columns ``cluster`` and, as ``by_clock`` asks, ``capture``.
        clocks: See ``by_clock``.
    """
    held: dict[str, list[pa.Table]] = defaultdict(list)
    for table in requests:
        for point, some in by_clock(table, clocks):
            held[point] = [epochs_in([*held[point], some])]
    known: KnownEpochs = {point: defaultdict(Epochs) for point in held}
    for point, (found,) in held.items():
        for cluster in pc.unique(found["cluster"]).to_pylist():
            learn_epochs(known[point][cluster], found.filter(pc.equal(found["cluster"], cluster)))
    return known


def stale_requests(read: Reader) -> pa.Table:
    """Return the table ``STALE_REQUESTS`` of resolved rows."""
    clocks = pa.concat_tables(read("clocks", ("capture", "reference")))
    known = known_epochs(read("requests", (*EPOCH_COLUMNS, "ts", "capture")), clocks)
    rows = (row for table in read("requests", STALE_COLUMNS) for row in stale_rows(table, known, clocks))
    return table_of(rows, STALE_REQUESTS)
