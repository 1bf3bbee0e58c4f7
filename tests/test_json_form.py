"""The scalars of Kafka's JSON form. Whole messages stand in tests/contract."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import EncodeError
from kproto.json_form import bytes_from_json, bytes_to_json, camel_case, snake_case, uuid_from_json, uuid_to_json


@given(st.binary(min_size=16, max_size=16))
def test_uuids_go_both_ways(value: bytes) -> None:
    text = uuid_to_json(value)
    assert len(text) == 22
    assert uuid_from_json(text) == uuid_from_json(text + "==") == value


@pytest.mark.parametrize(
    "text", ["", "A" * 21, "A" * 23, "+" + "A" * 21, "/" + "A" * 21, "Ä" * 22, "A" * 22 + "\n", 5, None]
)
def test_what_is_no_uuid(text: object) -> None:
    with pytest.raises(EncodeError, match="topic_id"):
        uuid_from_json(text, "topic_id")


@given(st.binary(max_size=40))
def test_bytes_go_both_ways(value: bytes) -> None:
    assert bytes_from_json(bytes_to_json(value)) == value


@pytest.mark.parametrize("text", ["A", "-_==", "AAA", "é", "AA==\n", 5, None])
def test_what_is_no_base64(text: object) -> None:
    with pytest.raises(EncodeError, match="auth_bytes"):
        bytes_from_json(text, "auth_bytes")


@pytest.mark.parametrize(
    ("camel", "snake"),
    [
        ("leaderEpoch", "leader_epoch"),
        ("isKRaftController", "is_kraft_controller"),
        ("v0Host", "v0_host"),
        ("zkVersion", "zk_version"),
        ("isr", "isr"),
        ("ungroupedPartitionStates", "ungrouped_partition_states"),
    ],
)
def test_names(camel: str, snake: str) -> None:
    assert snake_case(camel) == snake
    assert camel_case(snake) == camel
