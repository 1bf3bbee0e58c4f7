"""Cuts a message's JSON form to the wanted partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproto.tables.filters import Filters

__all__ = ["wanted_partitions"]

_STATE_LISTS: Final = ("ungroupedPartitionStates", "ungroupedPartitions", "partitionErrors")
_TOPIC_LISTS: Final = ("topicStates", "topics")


def wanted_partitions(form: Mapping[str, Any], filters: Filters, ids: Mapping[str, str]) -> dict[str, Any]:
    """Leave out of a message's JSON form the partitions that filters do not want.

    Args:
        form: A request or response of the three control APIs, as ``to_json`` gives it.
        filters: Topics and partitions.
        ids: Topic names by topic id in Kafka's text form, for responses that name ids alone.
    """
    cut = dict(form)
    for name in _STATE_LISTS:
        if isinstance(cut.get(name), list):
            cut[name] = [s for s in cut[name] if filters.wants_partition(s["topicName"], s["partitionIndex"])]
    for name in _TOPIC_LISTS:
        if isinstance(cut.get(name), list):
            topics = (_wanted_topic(topic, filters, ids) for topic in cut[name])
            cut[name] = [topic for topic in topics if topic is not None]
    return cut


def _wanted_topic(topic: dict[str, Any], filters: Filters, ids: Mapping[str, str]) -> dict[str, Any] | None:
    name = topic.get("topicName", topic.get("name"))
    if name is None:
        name = ids.get(topic.get("topicId", ""), "")
    for key in ("partitionStates", "partitionErrors"):
        if key in topic:
            kept = [s for s in topic[key] if filters.wants_partition(name, s["partitionIndex"])]
            return {**topic, key: kept} if kept else None
    if "partitionIndexes" in topic:
        indexes = [index for index in topic["partitionIndexes"] if filters.wants_partition(name, index)]
        return {**topic, "partitionIndexes": indexes} if indexes else None
    return topic
