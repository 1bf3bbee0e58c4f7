"""Generates synthetic fleets: captures of control-plane traffic of any size.

``PlannedFleet`` describes a cluster and its history, and a seed decides all the rest: events -> contents (the
controller's requests) -> exchanges (broker, times, response) -> packets. This package shares no code with the reading
of captures and the making of tables, so that each can be checked by the other. ``findings_truth`` has the findings of
``kproto doctor``, also of faults that are planted (``PlannedFleet.plants``).

>>> from kproto.generate import PlannedFleet
>>> PlannedFleet(seed=1, brokers=3, topics=2, partitions=6).replicas(0)
[2, 3, 1]
"""

from __future__ import annotations

from .files import Written, write_captures, write_stream
from .fleet import PlannedFleet
from .kraft import KRaftFleet, metadata_truth, write_metadata_logs
from .sizes import sized
from .truth import Truth, findings_truth

__all__ = [
    "KRaftFleet",
    "PlannedFleet",
    "Truth",
    "Written",
    "findings_truth",
    "metadata_truth",
    "sized",
    "write_captures",
    "write_metadata_logs",
    "write_stream",
]
