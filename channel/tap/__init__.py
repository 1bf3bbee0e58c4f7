"""The tap: a relay between Kafka nodes that records their traffic."""

from .mapping import Mapping
from .relay import Tap

__all__ = ["Mapping", "Tap"]
