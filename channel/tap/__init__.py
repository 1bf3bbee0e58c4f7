"""The tap: a relay between Kafka nodes that records their traffic."""

from .relay import Tap, TapMapping

__all__ = ["Tap", "TapMapping"]
