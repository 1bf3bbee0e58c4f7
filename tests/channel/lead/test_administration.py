"""The answers to administrators name each partition with its error, topic by topic."""

from typing import Any

import pytest
from decided_cluster import DecidedCluster

from channel.errors import ControllerMoved, IllegalState, NoNode, SessionExpired
from channel.lead import administration
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


@pytest.mark.parametrize("error", [NoNode("it has gone"), ValueError("no JSON")])
def test_a_part_that_fails_keeps_no_other_part_from_its_answer(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def read(session: object, entity: str) -> dict[str, str]:
        if entity == "users/bad":
            raise error
        return {}

    monkeypatch.setattr(administration, "read_settings", read)
    decisions, answers = DecidedCluster().elect(), list[Any]()
    asked = [messages.ScramCredentialDeletion(name=name, mechanism=1) for name in ("bad", "good")]
    request = messages.AlterUserScramCredentialsRequest(deletions=asked)
    decisions.process(ApiRequest(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request, answers.append))
    assert [(each.user, each.error_code) for each in answers[0].results] == [
        ("bad", ErrorCode.UNKNOWN_SERVER_ERROR), ("good", ErrorCode.RESOURCE_NOT_FOUND),
    ]  # fmt: skip
    assert type(error).__name__ in caplog.text


@pytest.mark.parametrize("error", [ControllerMoved("another"), SessionExpired("over"), IllegalState("closed")])
def test_no_part_is_carried_out_after_the_end_of_the_leadership(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(session: object, entity: str) -> dict[str, str]:
        raise error

    monkeypatch.setattr(administration, "read_settings", read)
    asked = [messages.ScramCredentialDeletion(name="user", mechanism=1)]
    request = messages.AlterUserScramCredentialsRequest(deletions=asked)
    with pytest.raises(type(error)):
        DecidedCluster().elect().process(ApiRequest(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request, print))
