"""Kafka's error codes by number and name. All of them are held against Kafka's own classes in tests/oracle."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode, error_name, is_retriable


@pytest.mark.parametrize(
    ("code", "name", "retriable"),
    [
        (-1, "UNKNOWN_SERVER_ERROR", False),
        (0, "NONE", False),
        (3, "UNKNOWN_TOPIC_OR_PARTITION", True),
        (5, "LEADER_NOT_AVAILABLE", True),
        (6, "NOT_LEADER_OR_FOLLOWER", True),
        (8, "BROKER_NOT_AVAILABLE", False),
        (9, "REPLICA_NOT_AVAILABLE", True),
        (11, "STALE_CONTROLLER_EPOCH", False),
        (13, "NETWORK_EXCEPTION", True),
        (31, "CLUSTER_AUTHORIZATION_FAILED", False),
        (33, "UNSUPPORTED_SASL_MECHANISM", False),
        (34, "ILLEGAL_SASL_STATE", False),
        (35, "UNSUPPORTED_VERSION", False),
        (41, "NOT_CONTROLLER", True),
        (42, "INVALID_REQUEST", False),
        (56, "KAFKA_STORAGE_ERROR", True),
        (58, "SASL_AUTHENTICATION_FAILED", False),
        (72, "LISTENER_NOT_FOUND", True),
        (74, "FENCED_LEADER_EPOCH", True),
        (75, "UNKNOWN_LEADER_EPOCH", True),
        (77, "STALE_BROKER_EPOCH", False),
        (102, "BROKER_ID_NOT_REGISTERED", False),
        (103, "INCONSISTENT_TOPIC_ID", True),
    ],
)
def test_the_codes_of_this_plane(code: int, name: str, retriable: bool) -> None:
    assert error_name(code) == ErrorCode(code).name == name
    assert is_retriable(code) is ErrorCode(code).retriable is retriable


def test_a_number_without_a_name() -> None:
    assert error_name(4711) == "UNKNOWN(4711)"
    assert is_retriable(4711) is False


def test_the_numbers_have_no_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))
