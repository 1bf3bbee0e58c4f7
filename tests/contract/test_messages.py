"""Messages as Python objects: equality, text, pickling, and how large their text may get."""

import copy
import pickle
from typing import Any

import pytest
from conftest import DATA, read_jsonl
from strategies import LATEST, MESSAGES, VERSIONS, plain_json

from kproto.codec import Codec
from kproto.errors import UnsupportedVersion

FIRST = {"request": "controller_id", "response": "error_code"}
KINDS = pytest.mark.parametrize(("api", "kind"), MESSAGES)


def plain(codec: Codec, api: int, kind: Any) -> Any:
    return codec.message_class(api, kind).from_json(plain_json(MESSAGES[api, kind], LATEST[api]), LATEST[api])


@KINDS
def test_a_class_has_its_schemas_name_and_knows_what_it_is(codec: Codec, api: int, kind: Any) -> None:
    cls = codec.message_class(api, kind)
    assert cls.__name__ == MESSAGES[api, kind].name
    assert getattr(codec, cls.__name__) is cls
    message = cls()
    assert (message.api_key, message.kind) == (api, kind)


@KINDS
def test_equal_by_value(codec: Codec, api: int, kind: Any) -> None:
    one, same = plain(codec, api, kind), plain(codec, api, kind)
    assert one == same
    assert (one != same) is False
    assert one != codec.message_class(api, kind)(**{FIRST[kind]: 9})
    assert one != "a message"
    assert one is not None
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_one_different_value_anywhere_makes_messages_unequal(codec: Codec) -> None:
    def message(**leaf: Any) -> Any:
        state = codec.UpdateMetadataPartitionState(**{"isr": [1, 2], "replicas": [1, 2, 3]} | leaf)
        topic = codec.UpdateMetadataTopicState(topic_name="t", partition_states=[state])
        return codec.UpdateMetadataRequest(topic_states=[topic])

    assert message() == message()
    for leaf in (
        {"leader": 1},
        {"isr": [2, 1]},
        {"isr": [1]},
        {"replicas": []},
        {"offline_replicas": [0]},
        {"zk_version": 1},
    ):
        assert message(**leaf) != message()
    assert codec.LeaderAndIsrPartitionError() != codec.StopReplicaPartitionError(), "alike but for their types"


@pytest.mark.parametrize(("api", "version", "kind"), VERSIONS)
def test_pickled_and_copied_they_are_the_same(codec: Codec, api: int, version: int, kind: Any) -> None:
    made = codec.message_class(api, kind).from_json(plain_json(MESSAGES[api, kind], version), version)
    body = codec.encode(made, version)
    read = (codec.decode_request if kind == "request" else codec.decode_response)(api, version, body)
    for message in (made, read):
        pickled = [pickle.loads(pickle.dumps(message, each)) for each in range(2, pickle.HIGHEST_PROTOCOL + 1)]
        for twin in (*pickled, copy.copy(message), copy.deepcopy(message)):
            assert twin == message
            assert twin is not message
            assert (type(twin), twin.version) == (type(message), version)
            assert codec.encode(twin, version) == body


def test_the_text_names_class_and_fields(codec: Codec) -> None:
    text = repr(codec.StopReplicaPartitionState(partition_index=7, leader_epoch=3, delete_partition=True))
    assert "StopReplicaPartitionState" in text
    assert "partition_index=7" in text
    assert "delete_partition=True" in text


def test_the_text_of_a_large_message_is_bounded(codec: Codec) -> None:
    """A failed assertion or a log line must not print 200,000 partitions."""
    largest = max(read_jsonl(DATA / "vectors" / "valid" / "updatemetadata.jsonl.gz"), key=lambda line: len(line["hex"]))
    message = codec.decode_request(6, largest["version"], bytes.fromhex(largest["hex"]))
    assert len(repr(message)) < 4000


def test_headers_are_values_too(codec: Codec) -> None:
    def header(**fields: Any) -> Any:
        return codec.RequestHeader(**{"request_api_key": 6, "request_api_version": 8, "correlation_id": 1} | fields)

    assert header() == header()
    assert header() != header(client_id="c")
    assert header(client_id=None) != header(client_id="")
    assert pickle.loads(pickle.dumps(header(client_id="c"))) == header(client_id="c")
    assert "correlation_id=1" in repr(header())
    assert codec.ResponseHeader(correlation_id=1) == codec.ResponseHeader(correlation_id=1)
    assert codec.ResponseHeader(correlation_id=1) != codec.ResponseHeader(correlation_id=2)


def test_topic_ids_print_as_kafka_prints_them(codec: Codec) -> None:
    form = plain_json(MESSAGES[6, "request"], 8)
    form["topicStates"][0]["topicId"] = "AAECAwQFBgcICQoLDA0ODw"
    assert codec.UpdateMetadataRequest.from_json(form, 8).to_json(8) == form


@KINDS
def test_a_message_for_a_version_is_what_its_reader_gets(codec: Codec, api: int, kind: Any) -> None:
    read = codec.decode_request if kind == "request" else codec.decode_response
    newest = plain(codec, api, kind)
    assert newest.for_version(LATEST[api]) == newest
    for version in range(LATEST[api] + 1):
        message = codec.message_class(api, kind).from_json(plain_json(MESSAGES[api, kind], version), version)
        found = message.for_version(version)
        assert (found, found.version) == (message, version)
        assert found == read(api, version, codec.encode(message, version))
    with pytest.raises(UnsupportedVersion):
        newest.for_version(LATEST[api] + 1)
