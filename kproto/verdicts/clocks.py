"""Estimates by how much the clocks of capture points differ, from updates that went to brokers of several at once."""

from __future__ import annotations

from collections import defaultdict
from statistics import median, median_low
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from kproto.api import ApiKey
from kproto.tables.arrays import rows_of

if TYPE_CHECKING:
    import pyarrow as pa

_LEAST_US: Final = 1_000_000
"""A smaller difference may be the time that a controller takes to send a request to all brokers."""

_SPREAD_US: Final = 250_000
_MOST: Final = 0.8
"""A clock differs if this share of its updates differ by the same time, give or take the spread."""

_FEW: Final = 5
"""Fewer updates tell nothing."""


def clock_offsets(requests: pa.Table) -> dict[str, int]:
    """Return by how many us the clocks of capture points are ahead of most; negative: behind.

    Updates that the brokers of several capture points accepted are compared: where a capture point has nearly all of
    them earlier or later than the median by the same time, over a second, its clock differs. A broker that is told late
    is not late by the same time again and again.

    Args:
        requests: Rows of ``requests``; ``ts`` in us since 1970. Capture points whose clocks agree are not returned.
    """
    if len(pc.unique(requests["capture"])) == 1:
        return {}
    is_update = pc.equal(requests["api_key"], ApiKey.UPDATE_METADATA)
    accepted = requests.filter(pc.and_(is_update, pc.fill_null(pc.equal(requests["error_code"], 0), False)))
    spans = accepted.group_by(["body_id", "capture"], use_threads=False).aggregate([("ts", "min"), ("ts", "max")])
    seen: dict[bytes, dict[str, int]] = defaultdict(dict)
    for body_id, capture, first, last in rows_of(spans, ("body_id", "capture", "ts_min", "ts_max")):
        if last - first < _LEAST_US:  # else the same update was made several times
            seen[body_id][capture] = first
    differences: dict[str, list[int]] = defaultdict(list)
    for times in seen.values():
        if len(times) > 1:
            usual = median_low(times.values())
            for capture, ts in times.items():
                differences[capture].append(ts - usual)
    found: dict[str, int] = {}
    for capture, some in differences.items():
        offset = int(median(some))
        alike = sum(abs(one - offset) < _SPREAD_US for one in some)
        if len(some) >= _FEW and abs(offset) > _LEAST_US and alike >= _MOST * len(some):
            found[capture] = offset
    return found
