"""Runs a plan, whatever its kind."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from .channels import ChannelsSimulation
from .election import ElectionSimulation
from .scripted import ScriptedSimulation

if TYPE_CHECKING:
    from .plan import Plan, Result

__all__ = ["run"]

KINDS = {
    "scripted": ScriptedSimulation,
    "channels": ChannelsSimulation,
    "election": ElectionSimulation,
    "clients": ScriptedSimulation,
}


def run(plan: Plan, capture: str | None = None) -> Result:
    """Run a plan, and write the frames that pass to ``capture``."""
    gc.disable()  # no cycle of the run is worth a collection before its end
    try:
        return KINDS[plan.kind](plan, capture).go()
    finally:
        gc.enable()
        gc.collect()
