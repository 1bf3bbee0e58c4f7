"""Recorded traffic -> frames -> exchanges. No Spark, no pyarrow."""

from __future__ import annotations

from .model import GAP, WHOLE, Connection, Direction, Endpoint, Exchange, Frame

__all__ = ["GAP", "WHOLE", "Connection", "Direction", "Endpoint", "Exchange", "Frame"]
