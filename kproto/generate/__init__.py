"""Synthetic fleets: captures of control-plane traffic of any size, and the tables that must come out of them.

``Fleet`` names a cluster and its history, and a seed decides all the rest: events -> contents (what the controller
tells) -> exchanges (to whom, when, with what answer) -> packets. Nothing here knows how captures are read or tables
are made, so that the one can be held against the other.

>>> from kproto.generate import Fleet
>>> Fleet(seed=1, brokers=3, topics=2, partitions=6).replicas(0)
[2, 3, 1]
"""

from __future__ import annotations

from .expected import expected
from .expected_derived import expected_derived
from .files import Written, write_captures
from .fleet import Fleet
from .sizes import sized

__all__ = ["Fleet", "Written", "expected", "expected_derived", "sized", "write_captures"]
