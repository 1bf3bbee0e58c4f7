"""The tap: a relay between Kafka nodes that records their traffic."""

from .relay import Mapping, Tap

__all__ = ["Mapping", "Tap"]
