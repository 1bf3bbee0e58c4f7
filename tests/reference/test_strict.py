"""``strict``: each thing that the protocol forbids and Kafka lets pass has its own message and offset."""

import pytest
from answers import answer
from conftest import DATA, read_jsonl
from wire import i16, i32, i64, overlong, string, tags, varint

from kproto import reference
from kproto.errors import EncodeError, Malformed

HEAD = i32(1) + b"\0" + i32(2) + i64(-1)  # the fixed part of UpdateMetadata v8
EMPTY = HEAD + varint(1) + varint(1)

# What is wrong, the bytes, where, in which field, in words.
UPDATE_METADATA_V8 = {
    "bytes-after-the-message": (EMPTY + tags() + b"\0\0", len(EMPTY) + 1, "", "2 bytes after the message"),
    "boolean": (EMPTY.replace(b"\0\0\0\1\0", b"\0\0\0\1\2", 1) + tags(), 4, "is_kraft_controller", "boolean of 0x02"),
    "overlong-length": (HEAD + overlong(1, 2) + varint(1) + tags(), 17, "topic_states", "shortest form"),
    "bits-above-the-32nd": (HEAD + overlong(1, 5, 0x10) + varint(1) + tags(), 17, "topic_states", "shortest form"),
    "ill-formed-utf8": (
        HEAD + varint(2) + varint(3) + b"a\xff" + bytes(16) + varint(1) + tags() + varint(1) + tags(),
        20,
        "topic_states[0].topic_name",
        "ill-formed UTF-8",
    ),
    "odd-null": (
        HEAD + varint(1) + varint(2) + i32(7) + varint(1) + varint(2**31 + 9) + tags() + tags(),
        24,
        "live_brokers[0].rack",
        "null with length",
    ),
    "tags-out-of-order": (EMPTY + varint(2) + b"\5\0" + b"\4\0", len(EMPTY) + 3, "", "tag 4 after tag 5"),
    "tag-twice": (EMPTY + varint(2) + b"\5\0" + b"\5\0", len(EMPTY) + 3, "", "tag 5 twice"),
    "known-tag-twice": (EMPTY + varint(2) + b"\0\1\1" + b"\0\1\2", len(EMPTY) + 4, "", "tag 0 twice"),
    "known-tag-too-long": (EMPTY + varint(1) + b"\0\2\1", len(EMPTY) + 2, "type", "claims 2 bytes and has 1"),
    "known-tag-too-short": (EMPTY + varint(1) + b"\0\0\1", len(EMPTY) + 2, "type", "claims 0 bytes and has 1"),
    "tag-of-33-bits": (EMPTY + varint(1) + varint(2**31) + b"\0", len(EMPTY) + 1, "", "tag 2147483648 is above"),
    "count-of-33-bits": (EMPTY + varint(2**31 + 1), len(EMPTY), "", "2147483649 tagged fields"),
}


@pytest.mark.parametrize(("data", "offset", "path", "words"), UPDATE_METADATA_V8.values(), ids=UPDATE_METADATA_V8)
def test_refused_with_message_and_offset(data: bytes, offset: int, path: str, words: str) -> None:
    reference.decode_request(6, 8, data)
    with pytest.raises(Malformed, match=words) as caught:
        reference.decode_request(6, 8, data, strict=True)
    assert caught.value.offset == offset
    assert caught.value.path == path.replace("_tagged.", "").replace("", "")
    assert (caught.value.api_key, caught.value.version) == (6, 8)


def test_a_null_of_another_length_in_the_fixed_form() -> None:
    data = i32(0) + i32(0) + i32(0) + i32(1) + i32(7) + i32(0) + i16(-2)
    assert reference.decode_request(6, 2, data).live_brokers[0].rack is None
    with pytest.raises(Malformed, match="null with length -2") as caught:
        reference.decode_request(6, 2, data, strict=True)
    assert caught.value.path == "live_brokers[0].rack"


def test_bytes_after_a_header_are_refused_only_where_it_stands_alone() -> None:
    header = i16(6) + i16(8) + i32(1) + string("c", flexible=False) + tags()
    assert reference.decode_request_header_from(header + b"body", strict=True)[1] == len(header)
    assert reference.decode_request_from(6, 8, EMPTY + tags() + b"more", strict=True)[1] == len(EMPTY) + 1
    with pytest.raises(Malformed, match="4 bytes after the message"):
        reference.decode_request_header(header + b"body", strict=True)


def test_headers_are_strict_only_where_that_is_asked_for() -> None:
    data = i32(1) + overlong(0, 2)
    assert reference.decode_response_header_from(data + b"body", 1)[1] == len(data)
    assert reference.decode_response_header(data, 1).correlation_id == 1
    for read in (reference.decode_response_header_from, reference.decode_response_header):
        with pytest.raises(Malformed, match="shortest form"):
            read(data, 1, strict=True)
    start = i16(6) + i16(8) + i32(1) + string("c", flexible=False)
    assert reference.decode_request_header_from(start + overlong(0, 2))[1] == len(start) + 2
    with pytest.raises(Malformed, match="shortest form"):
        reference.decode_request_header_from(start + overlong(0, 2), strict=True)


FILES = ["leaderandisr", "stopreplica", "updatemetadata", "headers", "others"]


@pytest.mark.parametrize("name", FILES)
def test_what_is_taken_when_strict_is_written_again_as_it_was(name: str) -> None:
    """Strictness leaves one way to say a thing, but for a default spelled out and tags that cannot be written."""
    taken = 0
    for line in read_jsonl(DATA / "vectors" / "malformed" / f"{name}.jsonl.gz"):
        data = bytes.fromhex(line["hex"])
        strict = answer(reference, line["api"], line["version"], line["kind"], data, strict=True)
        if not strict["accept"]:
            continue
        taken += 1
        lenient = answer(reference, line["api"], line["version"], line["kind"], data)
        assert strict == lenient, line["id"]
        again = strict["reencoded"]
        if again is not None and again != line["hex"][: 2 * strict["consumed"]]:
            assert len(again) < 2 * strict["consumed"], line["id"]  # without the default that was spelled out
            shorter = answer(reference, line["api"], line["version"], line["kind"], bytes.fromhex(again), strict=True)
            assert shorter["json"] == strict["json"], line["id"]
    assert taken > 20


def test_the_highest_tag_is_read_and_cannot_be_written() -> None:
    message = reference.decode_request(6, 8, EMPTY + tags((2**31 - 1, b"x")), strict=True)
    assert message.unknown_tagged_fields == ((2**31 - 1, b"x"),)
    with pytest.raises(EncodeError, match="2147483646 is the highest"):
        reference.encode(message, 8)
