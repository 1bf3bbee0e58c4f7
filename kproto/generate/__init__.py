"""Synthetic fleets: captures of control-plane traffic of any size, and the tables that must come out of them.

``Fleet`` names a cluster and its history, and a seed decides all the rest: events -> contents (what the controller
tells) -> exchanges (to whom, when, with what answer) -> packets. Nothing here knows how captures are read or tables
are made, so that the one can be held against the other. ``kproto.generate.expected`` has the tables,
``kproto.generate.frames`` and ``kproto.generate.spark`` the frames without a capture; these need pyarrow and pyspark.

>>> from kproto.generate import Fleet
>>> Fleet(seed=1, brokers=3, topics=2, partitions=6).replicas(0)
[2, 3, 1]
"""

from __future__ import annotations

from .files import Written, write_captures, write_stream
from .fleet import Fleet
from .sizes import sized

__all__ = ["Fleet", "Written", "sized", "write_captures", "write_stream"]
