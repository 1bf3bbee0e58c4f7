"""Which messages of any API name a partition that filters want."""

from typing import Any

import pytest

from kproto.tables.filters import Filters
from kproto.tables.json_choice import names_partition
from kproto.types import TopicPartition

WANTED = Filters(partitions=frozenset({TopicPartition("orders", 3)}))


@pytest.mark.parametrize(
    ("topic", "named"),
    [
        ({"topicName": "orders", "partitions": [{"partitionIndex": 2}, {"partitionIndex": 3}]}, True),
        ({"topicName": "orders", "partitions": [{"partitionIndex": 2}]}, False),
        ({"topicName": "orders", "partitionIndexes": [3]}, True),
        ({"topicName": "orders", "partitionIndexes": [1]}, False),
        ({"topicName": "orders", "partitionIndex": 3}, True),
        ({"topicName": "orders", "partitions": [], "configs": ["a"]}, True),
        ({"topicName": "payments", "partitions": [{"partitionIndex": 3}]}, False),
        ({"topicId": "x", "partitions": [{"partitionIndex": 3}, {"index": 1}]}, True),
        ({"topicId": "y", "partitions": [{"partitionIndex": 3}]}, False),
    ],
    ids=str,
)
def test_a_partition_is_named_in_any_form(topic: dict[str, Any], named: bool) -> None:
    assert names_partition({"topics": [topic]}, WANTED, {"x": "orders"}) is named
