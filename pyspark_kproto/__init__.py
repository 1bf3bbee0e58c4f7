"""Registers the format ``kafka_control`` with Spark, which looks for packages of this name; nothing else.

spark.read.format("kafka_control").load("captures/")
"""

from __future__ import annotations

from kproto.pipeline.source import KafkaControlSource as DefaultSource

__all__ = ["DefaultSource"]
