"""Cuts a message's JSON form to the wanted partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kproto.tables.filters import Filters

_PARTITION_LISTS: Final = (
    "ungroupedPartitionStates", "ungroupedPartitions", "partitionStates", "partitionErrors", "partitionIndexes",
)  # fmt: skip
_NAME_LISTS: Final = ("topics", "topicNames")
_TOPIC_LISTS: Final = ("topicStates", "topics")


def named_ids(form: Any) -> Iterator[str]:
    """Yield the topic ids, in Kafka's text form, of topics that the JSON form of a message names by id alone."""
    for topic in _topics(form):
        if _name(topic, {}) is None and "topicId" in topic:
            yield topic["topicId"]


def names_partition(form: Any, filters: Filters, ids: Mapping[str, str]) -> bool:
    """Whether the JSON form of a message names a wanted partition, or a topic without partitions that is wanted.

    Args:
        form: A request or response of any API, as ``to_json`` gives it.
        filters: Topics and partitions.
        ids: See ``wanted_partitions``.
    """
    for topic in _topics(form):
        name = _name(topic, ids)
        if name is None:
            continue
        indexes = list(_partition_indexes(topic))
        if any(filters.wants_partition(name, index) for index in indexes) if indexes else filters.wants_topic(name):
            return True
    return False


def _topics(form: Any, parent: str = "") -> Iterator[dict[str, Any]]:
    """Yield the structs that stand for topics; topics listed by name alone as structs, too."""
    if isinstance(form, dict):
        if "topicName" in form or "topicId" in form or (parent == "topics" and "name" in form):
            yield form
        for key, value in form.items():
            yield from _topics(value, key)
    elif isinstance(form, list):
        for item in form:
            if isinstance(item, str) and parent in _NAME_LISTS:
                yield {"topicName": item}
            else:
                yield from _topics(item, parent)


def _name(topic: Mapping[str, Any], ids: Mapping[str, str]) -> str | None:
    name: str | None = topic.get("topicName", topic.get("name"))
    return ids.get(topic.get("topicId", "")) if name is None else name


def _partition_indexes(topic: dict[str, Any]) -> Iterator[int]:
    if "partitionIndex" in topic:
        yield topic["partitionIndex"]
    for value in topic.values():
        if isinstance(value, list):
            yield from (item["partitionIndex"] for item in value if isinstance(item, dict) and "partitionIndex" in item)
    yield from topic.get("partitionIndexes", ())


def wanted_partitions(form: Mapping[str, Any], filters: Filters, ids: Mapping[str, str]) -> dict[str, Any]:
    """Leave out of a message's JSON form the partitions that filters do not want.

    Args:
        form: A request or response of the three control APIs, as ``to_json`` gives it.
        filters: Topics and partitions.
        ids: Topic names by topic id in Kafka's text form, for responses that name ids alone.
    """
    cut, topic = dict(form), _name(form, ids)
    for key, items in form.items():
        if key in _TOPIC_LISTS and items:
            topics = [wanted_partitions(each, filters, ids) for each in items]
            cut[key] = [each for each in topics if all(each[of] for of in _PARTITION_LISTS if of in each)]
        elif key in _PARTITION_LISTS and items:
            cut[key] = [each for each in items if filters.wants_partition(*_named(each, topic))]
    return cut


def _named(partition: Any, topic: str | None) -> tuple[str, int]:
    """The topic and the index of a partition in a list, of a topic or of those that name theirs."""
    if isinstance(partition, int):
        return topic or "", partition
    return partition.get("topicName", topic) or "", partition["partitionIndex"]
