"""The answers to administrators name each partition with its error, topic by topic."""

from typing import Any

import pytest
from decided_cluster import DecidedCluster

from channel.lead.events import ApiRequest
from kproto import messages
from kproto.api import ApiKey
from kproto.codec import decode_response, encode
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

CODES = {
    TopicPartition("b", 0): ErrorCode.NONE,
    TopicPartition("a", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    TopicPartition("a", 0): ErrorCode.NONE,
}


@pytest.mark.parametrize(
    ("request_", "api_key", "rows"),
    [
        (
            messages.ElectLeadersRequest(topic_partitions=None),
            ApiKey.ELECT_LEADERS,
            lambda answer: [
                (topic.topic, [(row.partition_id, row.error_code, row.error_message) for row in topic.partition_result])
                for topic in answer.replica_election_results
            ],
        ),
        (
            messages.AlterPartitionReassignmentsRequest(topics=[]),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            lambda answer: [
                (topic.name, [(row.partition_index, row.error_code, row.error_message) for row in topic.partitions])
                for topic in answer.responses
            ],
        ),
    ],
    ids=["elections", "reassignments"],
)
def test_every_partition_is_answered_under_its_topic(
    request_: Any, api_key: ApiKey, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = DecidedCluster().elect()
    monkeypatch.setattr(decisions.balance, "elect", lambda kind, partitions: CODES)
    monkeypatch.setattr(decisions.reassignments, "begin", lambda targets: CODES)
    answers: list[Any] = []
    decisions.process(ApiRequest(api_key, 0, request_, answers.append))
    (answer,) = answers
    read = rows(decode_response(api_key, 0, encode(answer, 0)))
    assert [(name, [row[:2] for row in members]) for name, members in read] == [
        ("a", [(0, 0), (1, 3)]),
        ("b", [(0, 0)]),
    ]
    assert [row[2] is not None for _, members in read for row in members] == [False, True, False]
