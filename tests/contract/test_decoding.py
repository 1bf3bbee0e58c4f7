"""What Kafka's own codec accepts and refuses, by behaviour: frame, numbers, varints, strings, arrays, UTF-8, tags.

The facts were observed on kafka-clients 3.9.1 (``tools/oracle/java-behaviour.md``); where the protocol's description
alone would lead elsewhere, the name of the test or of its case says so.
"""

from typing import Any

import pytest
from answers import answer
from strategies import (
    FLEXIBLE_FROM,
    MESSAGES,
    VERSIONS,
    Field,
    Struct,
    by_hand,
    fields_with_paths,
    plain_json,
    reachable,
)
from wire import array, i8, i16, i32, i64, ids, overlong, string, tags, varint

from kproto.codec import Codec
from kproto.errors import DecodeError, Malformed, Truncated, UnsupportedApi

EACH = pytest.mark.parametrize(("api", "version", "kind"), VERSIONS)


def plain_bytes(api: int, version: int, kind: str, **instead: Any) -> bytes:
    return by_hand(api, version, kind, plain_json(MESSAGES[api, kind], version), instead or None)


class TestFrame:
    """What surrounds a message."""

    @EACH
    def test_bytes_left_over_are_ignored_but_not_when_strict_and_nothing_at_all_is_refused(
        self, codec: Codec, api: int, version: int, kind: str
    ) -> None:
        body = plain_bytes(api, version, kind)
        got = answer(codec, api, version, kind, body + b"\x00\xff junk")
        assert (got["consumed"], got["reencoded"]) == (len(body), body.hex())
        read = codec.decode_request if kind == "request" else codec.decode_response
        with pytest.raises(Malformed) as caught:
            read(api, version, body + b"\x00", strict=True)
        assert caught.value.offset == len(body)
        assert answer(codec, api, version, kind, b"") == {"accept": False}

    @pytest.mark.parametrize(("kind", "version"), [("request_header", v) for v in (0, 1, 2)] + [("response_header", 0)])
    def test_no_header_is_refused(self, codec: Codec, kind: str, version: int) -> None:
        assert answer(codec, -1, version, kind, b"") == {"accept": False}

    @pytest.mark.parametrize("api", [-1, 88, 337, 32767])
    def test_an_api_that_kafka_lacks_is_an_error_of_its_own(self, codec: Codec, api: int) -> None:
        with pytest.raises(UnsupportedApi):
            codec.decode_request(api, 0, b"\x00" * 64)
        with pytest.raises(UnsupportedApi):
            codec.decode_response(api, 0, b"\x00" * 64)
        with pytest.raises(UnsupportedApi):
            codec.message_class(api, "request")


class TestNumbers:
    """Booleans and integers: every bit pattern is a value."""

    @pytest.mark.parametrize("byte", [1, 2, 128, 255])
    def test_any_byte_but_zero_is_true(self, codec: Codec, byte: int) -> None:
        data = plain_bytes(6, 8, "request").replace(b"\x00" * 5, b"\x00" * 4 + bytes([byte]), 1)
        message = codec.decode_request(6, 8, data)
        assert message.is_kraft_controller is True
        assert codec.encode(message, 8)[4] == 1
        if byte > 1:
            with pytest.raises(Malformed) as caught:
                codec.decode_request(6, 8, data, strict=True)
            assert caught.value.offset == 4

    def test_no_meaning_is_checked(self, codec: Codec) -> None:
        """Ids, epochs, ports, error codes, the type: whatever the bits say."""
        form = plain_json(MESSAGES[4, "request"], 7)
        form |= {"controllerId": -(2**31), "controllerEpoch": -7, "brokerEpoch": -(2**63), "type": -128}
        form["liveLeaders"][0]["port"] = -1
        form["topicStates"][0]["partitionStates"][0] |= {"leaderRecoveryState": 127, "partitionIndex": -5, "leader": -9}
        data = by_hand(4, 7, "request", form)
        message = codec.decode_request(4, 7, data)
        assert message.to_json(7) == form
        assert codec.encode(message, 7) == data

    def test_duplicates_are_kept_in_wire_order(self, codec: Codec) -> None:
        """Topics, partitions, brokers, ids: also in the response whose topics are a keyed collection in Java."""
        one = {"topicId": "AAECAwQFBgcICQoLDA0ODw", "partitionErrors": [{"partitionIndex": 1, "errorCode": 2}] * 2}
        form = {"errorCode": 0, "topics": [one, one, one]}
        data = by_hand(4, 7, "response", form)
        message = codec.decode_response(4, 7, data)
        assert message.to_json(7) == form
        assert codec.encode(message, 7) == data


class TestVarints:
    """The unsigned varints of flexible versions, seen at the count of a response's partition errors."""

    @staticmethod
    def response(count: bytes) -> bytes:
        """An answer to StopReplica v4 with the given count (plus one) and no element behind it."""
        return i16(7) + count + tags()

    @pytest.mark.parametrize("length", [2, 3, 4, 5])
    def test_overlong_forms_are_taken_and_written_short(self, codec: Codec, length: int) -> None:
        data = self.response(overlong(1, length))
        got = answer(codec, 5, 4, "response", data)
        assert got["consumed"] == len(data)
        assert got["reencoded"] == self.response(varint(1)).hex()
        with pytest.raises(Malformed) as caught:
            codec.decode_response(5, 4, data, strict=True)
        assert caught.value.offset == 2

    @pytest.mark.parametrize("top_bits", [0x10, 0x20, 0x40, 0x70])
    def test_bits_above_the_32nd_are_dropped(self, codec: Codec, top_bits: int) -> None:
        got = answer(codec, 5, 4, "response", self.response(overlong(1, 5, top_bits)))
        assert got["reencoded"] == self.response(varint(1)).hex()

    @pytest.mark.parametrize("bad", ["8180808080", "ffffffffff", "ffffffffffff01", "818080808000"])
    def test_six_bytes_are_too_many(self, codec: Codec, bad: str) -> None:
        with pytest.raises(DecodeError):
            codec.decode_response(5, 4, self.response(bytes.fromhex(bad)) + bytes(8))

    @pytest.mark.parametrize("cut", ["", "80", "8080", "ff", "ffffffff"])
    def test_an_end_inside_a_varint_is_a_truncation(self, codec: Codec, cut: str) -> None:
        with pytest.raises(Truncated):
            codec.decode_response(5, 4, i16(7) + bytes.fromhex(cut))


class TestStrings:
    """Lengths and nulls, in the fixed and in the compact form."""

    @pytest.mark.parametrize("version", [5, 8])
    @pytest.mark.parametrize("field", ["topicName", "rack"])
    @pytest.mark.parametrize("length", [-1, -2, -32768])
    def test_every_negative_length_is_null(self, codec: Codec, version: int, field: str, length: int) -> None:
        """Refused where null is not allowed; where it is (rack), null again and written as such."""
        flexible = version >= FLEXIBLE_FROM[6]
        wire = varint(length + 1) if flexible else i16(length)
        path = ("liveBrokers", "rack") if field == "rack" else ("topicStates", "topicName")
        form = plain_json(MESSAGES[6, "request"], version)
        data = by_hand(6, version, "request", form, {path: wire})
        if field == "topicName":
            with pytest.raises(DecodeError) as caught:
                codec.decode_request(6, version, data)
            assert caught.value.path == "topic_states[0].topic_name"
        else:
            message = codec.decode_request(6, version, data)
            assert message.live_brokers[0].rack is None
            form["liveBrokers"][0]["rack"] = None
            assert codec.encode(message, version) == by_hand(6, version, "request", form)

    @pytest.mark.parametrize("header_version", [1, 2])
    @pytest.mark.parametrize("length", [-1, -2, -32768])
    def test_a_null_client_id_stays_null(self, codec: Codec, header_version: int, length: int) -> None:
        """In the flexible header too its length is an int16."""
        fixed = i16(4) + i16(7) + i32(99)
        end = tags() if header_version == 2 else b""
        header = codec.decode_request_header(fixed + i16(length) + end, header_version)
        assert header.client_id is None
        assert header.client_id_or_empty == ""
        assert header.to_json(header_version)["clientId"] is None
        assert codec.encode_request_header(header, header_version) == fixed + i16(-1) + end

    @pytest.mark.parametrize("version", [5, 8])
    @pytest.mark.parametrize("length", [5, 4000, 32767])
    def test_a_length_beyond_the_end_is_refused(self, codec: Codec, version: int, length: int) -> None:
        """The last string of the message claims more than is there."""
        flexible = version >= FLEXIBLE_FROM[6]
        wire = (varint(length + 1) if flexible else i16(length)) + b"four"
        cut = by_hand(
            6, version, "request", plain_json(MESSAGES[6, "request"], version), {("liveBrokers", "rack"): wire}
        )
        data = cut[: cut.rindex(b"four") + 4]
        with pytest.raises(DecodeError) as caught:
            codec.decode_request(6, version, data)
        assert caught.value.path == "live_brokers[0].rack"

    def test_a_compact_string_ends_at_32767_bytes(self, codec: Codec) -> None:
        path = ("topicStates", "topicName")
        form = plain_json(MESSAGES[6, "request"], 8)
        longest = by_hand(6, 8, "request", form, {path: string("t" * 32767, flexible=True)})
        assert codec.decode_request(6, 8, longest).topic_states[0].topic_name == "t" * 32767
        too_long = by_hand(6, 8, "request", form, {path: string("t" * 32768, flexible=True)})
        with pytest.raises(DecodeError):
            codec.decode_request(6, 8, too_long)

    @pytest.mark.parametrize("text", ["", "\x00", "\x07\x1b\t\n", "\ufeffbom", "\uffff", "../etc", "топик-日本-😀"])
    @pytest.mark.parametrize("version", [5, 8])
    def test_any_text_is_a_name(self, codec: Codec, version: int, text: str) -> None:
        form = plain_json(MESSAGES[6, "request"], version)
        form["topicStates"][0]["topicName"] = text
        data = by_hand(6, version, "request", form)
        message = codec.decode_request(6, version, data)
        assert message.topic_states[0].topic_name == text
        assert codec.encode(message, version) == data


REPLACED = [  # bytes, what Java makes of them, a note
    ("80", "\ufffd", "a continuation alone"),
    ("ff", "\ufffd", "no UTF-8 byte"),
    ("fe", "\ufffd", "no UTF-8 byte"),
    ("c3", "\ufffd", "cut"),
    ("e282", "\ufffd", "cut"),
    ("f09f98", "\ufffd", "cut"),
    ("c080", "\ufffd" * 2, "overlong NUL"),
    ("c1bf", "\ufffd" * 2, "overlong"),
    ("e08080", "\ufffd" * 3, "overlong"),
    ("f0808080", "\ufffd" * 4, "overlong"),
    ("f4908080", "\ufffd" * 4, "above U+10FFFF"),
    ("f5808080", "\ufffd" * 4, "above U+10FFFF"),
    ("f888808080", "\ufffd" * 5, "five bytes"),
    ("fc8480808080", "\ufffd" * 6, "six bytes"),
    ("eda080", "\ufffd", "a lone surrogate: one, where Python has three"),
    ("eda080edb080", "\ufffd" * 2, "a surrogate pair: two, where Python has six"),
    ("eda0", "\ufffd", "a cut surrogate: one, where Python has two"),
    ("eda061", "\ufffda", "a cut surrogate before a letter"),
    ("ed", "\ufffd", "a surrogate's first byte alone"),
    ("ed61", "\ufffda", "a surrogate's first byte before a letter"),
    ("edbfbf7a", "\ufffdz", "the last surrogate before a letter"),
    ("61c3", "a\ufffd", "cut behind a letter"),
    ("007fefbbbf", "\x00\x7f\ufeff", "the first and the last of one byte, and a mark of byte order"),
    ("eda0e282ac", "\ufffd€", "a cut surrogate before a good sequence"),
    ("edbfbf", "\ufffd", "the last surrogate"),
    ("ed9fbf", "\ud7ff", "the last code point below the surrogates"),
    ("ee8080", "\ue000", "the first above"),
    ("61e28262", "a\ufffdb", "cut between letters"),
    ("f09f9861", "\ufffda", "cut before a letter"),
    ("e28280ff", "\u2080\ufffd", "good, then bad"),
]


class TestUtf8:
    """Ill-formed text is replaced, as Java replaces it, and refused when strict."""

    @pytest.mark.parametrize(
        ("raw", "text"), [pytest.param(r, t, id=f"{r}-{n.replace(' ', '-')}") for r, t, n in REPLACED]
    )
    @pytest.mark.parametrize("version", [5, 8])
    def test_replacement(self, codec: Codec, version: int, raw: str, text: str) -> None:
        path = ("topicStates", "topicName")
        wire = string(bytes.fromhex(raw), flexible=version >= FLEXIBLE_FROM[6])
        form = plain_json(MESSAGES[6, "request"], version)
        data = by_hand(6, version, "request", form, {path: wire})
        message = codec.decode_request(6, version, data)
        assert message.topic_states[0].topic_name == text
        form["topicStates"][0]["topicName"] = text
        assert codec.encode(message, version) == by_hand(6, version, "request", form)
        if "\ufffd" in text:
            with pytest.raises(Malformed) as caught:
                codec.decode_request(6, version, data, strict=True)
            assert caught.value.path == "topic_states[0].topic_name"

    def test_what_outgrows_the_limit_by_replacement_cannot_be_written(self, codec: Codec) -> None:
        wire = string(b"\xff" * 11000, flexible=True)
        data = by_hand(6, 8, "request", plain_json(MESSAGES[6, "request"], 8), {("topicStates", "topicName"): wire})
        got = answer(codec, 6, 8, "request", data)
        assert got["accept"] is True
        assert got["json"]["topicStates"][0]["topicName"] == "\ufffd" * 11000
        assert got["reencoded"] is None


def arrays(api: int, version: int, kind: str) -> list[tuple[str, ...]]:
    """Every array of a version, by the names that lead to it."""
    struct = MESSAGES[api, kind]
    return [path for path, field in fields_with_paths(struct) if reachable(struct, path, version) and is_array(field)]


def is_array(field: Field) -> bool:
    return isinstance(field.type, Struct) or field.type.startswith("[]")


@EACH
def test_no_array_may_be_null_and_no_count_is_believed_before_the_bytes_are_seen(
    codec: Codec, api: int, version: int, kind: str
) -> None:
    form = plain_json(MESSAGES[api, kind], version)
    for path in arrays(api, version, kind):
        for count in (-1, -2, -(2**31) + 1, 2**31 - 1, 2**28, 1000):
            wire = varint(count + 1) if version >= FLEXIBLE_FROM[api] else i32(count)
            data = by_hand(api, version, kind, form, {path: wire})
            assert answer(codec, api, version, kind, data) == {"accept": False}, (path, count)


class TestErrors:
    """A refusal says what, where and in which message."""

    def test_the_place_of_a_broken_field(self, codec: Codec) -> None:
        form = plain_json(MESSAGES[6, "request"], 8)
        data = by_hand(6, 8, "request", form, {("topicStates", "partitionStates", "isr"): varint(0)})
        with pytest.raises(DecodeError) as caught:
            codec.decode_request(6, 8, data)
        error = caught.value
        assert error.path == "topic_states[0].partition_states[0].isr"
        assert (error.api_key, error.version) == (6, 8)
        before = i32(0) + b"\x00" + i32(0) + i64(-1) + varint(2) + varint(1) + bytes(16) + varint(2) + i32(0) * 4
        assert error.offset in (len(before), len(before) + 1)
        assert str(error).endswith(f"({error.path}, offset {error.offset}, api 6 version 8)")

    def test_the_place_counts_from_the_start_of_what_was_given(self, codec: Codec) -> None:
        with pytest.raises(Truncated) as caught:
            codec.decode_request(6, 8, memoryview(b"\xee" * 10 + i32(1))[10:])
        assert caught.value.offset in range(5)

    def test_a_header_says_so_too(self, codec: Codec) -> None:
        with pytest.raises(Truncated) as caught:
            codec.decode_request_header(i16(6) + i16(8) + i32(1) + i16(5) + b"abc", 2)
        assert caught.value.path == "client_id"


class TestHeaders:
    """Their own oddities; which version goes with which body stands in test_api."""

    def test_the_client_id_of_v2_is_no_compact_string(self, codec: Codec) -> None:
        data = i16(6) + i16(8) + i32(-1) + i16(2) + b"ab" + tags((3, b"x"))
        header, used = codec.decode_request_header_from(data + b"body")
        assert used == len(data)
        assert (header.request_api_key, header.request_api_version) == (6, 8)
        assert (header.correlation_id, header.client_id) == (-1, "ab")
        assert codec.encode_request_header(header) == data

    def test_v0_has_no_client_id_and_drops_one(self, codec: Codec) -> None:
        header = codec.RequestHeader(request_api_key=7, request_api_version=0, correlation_id=5, client_id="lost")
        assert codec.encode_request_header(header) == i16(7) + i16(0) + i32(5)

    def test_the_default_client_id_is_empty_and_not_null(self, codec: Codec) -> None:
        assert codec.RequestHeader().client_id == ""

    def test_a_too_new_version_still_has_a_header(self, codec: Codec) -> None:
        """So that the request can be refused with an answer that carries its correlation id."""
        header = codec.decode_request_header(i16(6) + i16(99) + i32(5) + i16(-1) + tags())
        assert (header.request_api_version, header.correlation_id) == (99, 5)

    def test_response_headers(self, codec: Codec) -> None:
        assert codec.decode_response_header_from(i32(7) + b"\xff", 0)[1] == 4
        header, used = codec.decode_response_header_from(i32(7) + tags((2, b"y")) + b"\xff", 1)
        assert (header.correlation_id, used) == (7, 8)
        assert codec.encode_response_header(header, 1) == i32(7) + tags((2, b"y"))


def test_a_whole_message_by_hand(codec: Codec) -> None:
    """One UpdateMetadata v8, each field written out: the layout that all else here takes for granted."""
    state = i32(3) + i32(5) + i32(1) + i32(7) + ids([1, 2], flexible=True) + i32(9)
    state += ids([1, 2, 3], flexible=True) + ids([3], flexible=True) + tags()
    topic = string("topic", flexible=True) + bytes(range(16)) + array([state], flexible=True) + tags()
    endpoint = i32(9092) + string("host", flexible=True) + string("PLAINTEXT", flexible=True) + i16(0) + tags()
    broker = i32(1) + array([endpoint], flexible=True) + string(None, flexible=True) + tags()
    data = i32(1) + b"\x01" + i32(5) + i64(17) + array([topic], flexible=True) + array([broker], flexible=True)
    data += tags((0, i8(2)))
    message = codec.decode_request(6, 8, data)
    assert (message.controller_id, message.is_kraft_controller, message.type) == (1, True, 2)
    assert (message.controller_epoch, message.broker_epoch) == (5, 17)
    (topic_state,) = message.topic_states
    assert (topic_state.topic_name, bytes(topic_state.topic_id)) == ("topic", bytes(range(16)))
    (partition,) = topic_state.partition_states
    assert (partition.partition_index, partition.controller_epoch, partition.leader) == (3, 5, 1)
    assert (partition.leader_epoch, partition.zk_version) == (7, 9)
    assert (list(partition.isr), list(partition.replicas), list(partition.offline_replicas)) == ([1, 2], [1, 2, 3], [3])
    (live,) = message.live_brokers
    assert (live.id, live.rack, live.endpoints[0].port, live.endpoints[0].listener) == (1, None, 9092, "PLAINTEXT")
    assert codec.encode(message, 8) == data
