"""Where an error says it is: path, offset, api and version, reading and writing, in every API."""

from itertools import islice
from typing import Any

import pytest
from answers import decode
from conftest import DATA, read_jsonl
from hypothesis import given
from hypothesis import strategies as st
from wire import i16, i32, string

from kproto import reference
from kproto.api import ApiKey
from kproto.errors import DecodeError, EncodeError, FieldNotInVersion, OutOfRange, Truncated
from kproto.reference import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataRequest,
)
from kproto.reference.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kproto.reference.envelope import EnvelopeRequest
from kproto.reference.metadata import MetadataRequest

NAMES = ["leaderandisr", "stopreplica", "updatemetadata", "headers", "others"]


@pytest.mark.parametrize("name", NAMES)
def test_every_cut_is_truncated(name: str) -> None:
    """Every proper prefix of what Kafka writes ends too early, and the error says where, within what there is."""
    lines = (line for line in read_jsonl(DATA / "vectors" / "valid" / f"{name}.jsonl.gz") if len(line["hex"]) < 300)
    for line in islice(lines, 0, None, 12):
        data = bytes.fromhex(line["hex"])
        for size in range(len(data)):
            with pytest.raises(Truncated) as caught:
                decode(reference, line["api"], line["version"], line["kind"], data[:size])
            assert caught.value.offset is not None
            assert 0 <= caught.value.offset <= size


APIS = (3, 4, 5, 6, 7, 17, 18, 19, 20, 36, 37, 56, 58, 62, 63, 67)
VERSIONS = [(api, version) for api in APIS for version in range(ApiKey(api).info.max_version + 1)]


@pytest.mark.parametrize("strict", [False, True], ids=["lenient", "strict"])
@pytest.mark.parametrize("kind", ["request", "response"])
@given(
    data=st.binary(max_size=120), where=st.sampled_from(VERSIONS), cut=st.integers(0, 200), value=st.integers(0, 255)
)
def test_any_bytes_are_a_message_or_a_decode_error(
    kind: str, strict: bool, data: bytes, where: tuple[int, int], cut: int, value: int
) -> None:
    """Random bytes, and a fresh message with random ones put into it."""
    api, version = where
    fresh = reference.encode(reference.message_class(api, kind)(), version)
    for damaged in (data, fresh[:cut] + bytes([value]) + data + fresh[cut + 1 :]):
        got = read(api, version, kind, damaged, strict)
        if isinstance(got, DecodeError):
            assert (got.api_key, got.version) == (api, version)
            assert got.offset is not None
            assert 0 <= got.offset <= len(damaged)
        else:
            assert len(repr(got)) < 20_000
            got.to_json(version)


def read(api: int, version: int, kind: str, data: bytes, strict: bool) -> Any:
    """The message or the error; any other error goes on."""
    try:
        return decode(reference, api, version, kind, data, strict=strict)[0]
    except DecodeError as e:
        return e


def test_the_path_goes_through_arrays() -> None:
    state = LeaderAndIsrPartitionState(isr=[1, 2], replicas=[1, 2, 3])
    topics = [LeaderAndIsrTopicState(topic_name=n, partition_states=[state] * 2) for n in "ab"]
    data = reference.encode(LeaderAndIsrRequest(topic_states=topics), 2)
    at = data.rindex(i32(2) + i32(1) + i32(2))  # the last isr
    with pytest.raises(Truncated) as caught:
        reference.decode_request(4, 2, data[: at + 10])
    assert caught.value.path == "topic_states[1].partition_states[1].isr[1]"
    assert caught.value.offset == at + 8
    assert (caught.value.api_key, caught.value.version) == (4, 2)
    with pytest.raises(Truncated, match="an array of 99 elements") as caught:
        reference.decode_request(4, 2, data[:at] + i32(99) + b"....")
    assert caught.value.path == "topic_states[1].partition_states[1].isr"
    with pytest.raises(DecodeError) as refused:
        reference.decode_request(4, 2, data.replace(string("b", flexible=False), i16(-1)))
    assert refused.value.path == "topic_states[1].topic_name"


UNWRITABLE: dict[str, tuple[Any, int, type[EncodeError], str]] = {
    "int32": (LeaderAndIsrRequest(controller_id=2**31), 7, OutOfRange, "controller_id"),
    "int8": (UpdateMetadataRequest(type=128), 8, OutOfRange, "type"),
    "no-integer": (LeaderAndIsrRequest(controller_epoch="1"), 7, EncodeError, "controller_epoch"),
    "fraction": (LeaderAndIsrRequest(controller_epoch=1.0), 7, EncodeError, "controller_epoch"),
    "null-integer": (LeaderAndIsrRequest(controller_epoch=None), 7, EncodeError, "controller_epoch"),
    "null-boolean": (LeaderAndIsrRequest(is_kraft_controller=None), 7, EncodeError, "is_kraft_controller"),
    "null-array": (LeaderAndIsrRequest(topic_states=None), 7, EncodeError, "topic_states"),
    "null-element": (LeaderAndIsrRequest(topic_states=[None]), 7, EncodeError, "topic_states[0]"),
    "no-sequence": (LeaderAndIsrRequest(topic_states=7), 7, EncodeError, "topic_states"),
    "text-for-array": (LeaderAndIsrRequest(topic_states="t"), 7, EncodeError, "topic_states"),
    "another-struct": (LeaderAndIsrRequest(topic_states=[StopReplicaTopicState()]), 7, EncodeError, "topic_states[0]"),
    "null-text": (
        LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState(topic_name=None)]),
        7,
        EncodeError,
        "topic_states[0].topic_name",
    ),
    "long-text": (
        LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState(topic_name="é" * 16384)]),
        7,
        OutOfRange,
        "topic_states[0].topic_name",
    ),
    "bytes-for-text": (
        LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState(topic_name=b"t")]),
        7,
        EncodeError,
        "topic_states[0].topic_name",
    ),
    "short-uuid": (
        LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState(topic_id=bytes(15))]),
        7,
        EncodeError,
        "topic_states[0].topic_id",
    ),
    "integer-in-array": (
        CreateTopicsRequest(topics=[CreatableTopic(assignments=[CreatableReplicaAssignment(broker_ids=[1, 2**31])])]),
        7,
        OutOfRange,
        "topics[0].assignments[0].broker_ids[1]",
    ),
    "text-for-bytes": (EnvelopeRequest(request_data="text"), 0, EncodeError, "request_data"),
    "null-in-version-0": (MetadataRequest(topics=None), 0, EncodeError, "topics"),
    "not-in-version": (StopReplicaRequest(is_kraft_controller=True), 3, FieldNotInVersion, "is_kraft_controller"),
    "tags-before-tags": (
        StopReplicaRequest(topic_states=[StopReplicaTopicState(unknown_tagged_fields=[(5, b""), (4, b"")])]),
        3,
        EncodeError,
        "topic_states[0].unknown_tagged_fields",
    ),
    "no-room-for-tags": (
        StopReplicaRequest(unknown_tagged_fields=[(5, b"")]),
        1,
        FieldNotInVersion,
        "unknown_tagged_fields",
    ),
}


@pytest.mark.parametrize(("message", "version", "error", "path"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_what_cannot_be_written(message: Any, version: int, error: type[EncodeError], path: str) -> None:
    with pytest.raises(EncodeError) as caught:
        reference.encode(message, version)
    assert type(caught.value) is error
    assert caught.value.path == path
