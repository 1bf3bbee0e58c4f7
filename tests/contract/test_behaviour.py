"""What messages of both codecs do alike when a program builds, changes and misuses them."""

import copy
from typing import Any

import pytest
from strategies import LATEST, MESSAGES, VERSIONS, plain_json
from wire import i16, i32

from kproto import messages
from kproto.codec import Codec
from kproto.errors import DecodeError, FieldNotInVersion, Malformed, UnsupportedVersion

REQUESTS = [(api, version) for api, version, kind in VERSIONS if kind == "request"]
HOT = ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "RequestHeader", "ResponseHeader")
CLASSES = [name for name in messages.__all__ if name.startswith(HOT) and name != "StopReplicaState"]  # a named tuple


def request(codec: Codec, api: int, version: int) -> Any:
    """A request with one partition."""
    made = codec.message_class(api, "request").from_json(plain_json(MESSAGES[api, "request"], version), version)
    if api == 5 and version in (1, 2):
        made.topics[0].partition_indexes = [3]
    return made


class TestFlatView:
    """``partition_states`` has the same rows for every version, and never swallows a write."""

    @pytest.mark.parametrize(("api", "version"), REQUESTS)
    def test_a_write_to_a_row_is_refused(self, codec: Codec, api: int, version: int) -> None:
        message = request(codec, api, version)
        before = codec.encode(message, version)
        view = message.partition_states
        assert isinstance(view, tuple)
        (row,) = view
        for field, value in (("topic_name", "other"), ("partition_index", 9), ("leader_epoch", 9), ("isr", (9,))):
            if hasattr(row, field):
                with pytest.raises(AttributeError):
                    setattr(row, field, value)
        assert message.partition_states == view
        assert codec.encode(message, version) == before

    @pytest.mark.parametrize(("api", "version"), [row for row in REQUESTS if row[0] != 5])
    def test_the_error_says_where_to_write_and_a_copy_can_be_changed(
        self, codec: Codec, api: int, version: int
    ) -> None:
        message = request(codec, api, version)
        (row,) = message.partition_states
        with pytest.raises(AttributeError, match=r"leader: partition_states is a read-only view; change the row in"):
            row.leader = 7
        own = copy.copy(row)
        assert own == row
        own.leader = 7
        assert (own.leader, own.topic_name) == (7, row.topic_name)
        assert message.partition_states == (row,)

    @pytest.mark.parametrize(("api", "version"), [row for row in REQUESTS if row[0] != 5])
    def test_a_write_to_the_message_shows_in_the_next_view(self, codec: Codec, api: int, version: int) -> None:
        message = request(codec, api, version)
        groups = message.topic_states or [message]
        rows = groups[0].partition_states if message.topic_states else message.ungrouped_partition_states
        rows[0].leader = 77
        rows[0].isr = [7, 8]
        assert [(row.leader, row.isr) for row in message.partition_states] == [(77, (7, 8))]


class TestStructs:
    """Every class takes, keeps and refuses the same."""

    @pytest.mark.parametrize("name", CLASSES)
    def test_unknown_tagged_fields_are_in_every_struct(self, codec: Codec, name: str) -> None:
        struct = getattr(codec, name)(unknown_tagged_fields=[(1, b"x")])
        assert struct.unknown_tagged_fields == ((1, b"x"),)
        assert struct != getattr(codec, name)()
        assert copy.copy(struct) == struct

    def test_a_version_without_tagged_fields_refuses_them(self, codec: Codec) -> None:
        row = codec.StopReplicaPartitionV0(topic_name="t", unknown_tagged_fields=[(1, b"x")])
        with pytest.raises(FieldNotInVersion, match="version 0 has no tagged fields") as caught:
            codec.encode(codec.StopReplicaRequest(ungrouped_partitions=[row]), 0)
        assert caught.value.path == "ungrouped_partitions[0].unknown_tagged_fields"

    @pytest.mark.parametrize("name", CLASSES)
    def test_a_field_cannot_be_deleted(self, codec: Codec, name: str) -> None:
        struct = getattr(codec, name)()
        for field in ("topic_name", "controller_id", "error_code", "host", "unknown_tagged_fields"):
            if hasattr(struct, field):
                with pytest.raises(AttributeError, match=f"{field}: a field cannot be deleted"):
                    delattr(struct, field)
        assert struct == getattr(codec, name)()


class TestVersions:
    """A version is checked in the same way wherever it is given."""

    WRONG = [
        (-1, UnsupportedVersion),
        (99, UnsupportedVersion),
        (2**70, UnsupportedVersion),
        (-(2**70), UnsupportedVersion),
        ("4", TypeError),
        (4.0, TypeError),
        (None, TypeError),
    ]

    @pytest.mark.conformance("SRR-01", "UMR-01")
    @pytest.mark.parametrize(("api", "kind"), MESSAGES)
    def test_of_messages(self, codec: Codec, api: int, kind: Any) -> None:
        """Java's message classes would read it as their highest or lowest form; the check is its callers'."""
        cls = codec.message_class(api, kind)
        message = cls()
        decode = codec.decode_request if kind == "request" else codec.decode_response
        for version, error in ((LATEST[api] + 1, UnsupportedVersion), (32767, UnsupportedVersion), *self.WRONG):
            for use, *given in (
                (decode, api, version, bytes(64)),
                (codec.encode, message, version),
                (message.to_json, version),
                (cls.from_json, {}, version),
                (lambda version: cls(version=version), version),
                (setattr, message, "version", version),
            ):
                with pytest.raises(error, match=r"has no version|version: (expected an int|may not be None)"):
                    use(*given)
        assert message.version == LATEST[api]

    @pytest.mark.parametrize(("version", "error"), [(3, UnsupportedVersion), *WRONG])
    def test_of_headers(self, codec: Codec, version: Any, error: type[Exception]) -> None:
        uses = [
            lambda: codec.decode_response_header(bytes(64), version),
            lambda: codec.encode_response_header(codec.ResponseHeader(), version),
            lambda: codec.ResponseHeader().to_json(version),
            lambda: codec.RequestHeader().to_json(version),
        ]
        if version is not None:  # where the header says it itself
            uses += [
                lambda: codec.decode_request_header(bytes(64), version),
                lambda: codec.encode_request_header(codec.RequestHeader(), version),
            ]
        for use in uses:
            with pytest.raises(error, match=r"^re(quest|sponse) header has no version|version: expected an int"):
                use()

    def test_an_api_key_is_an_integer(self, codec: Codec) -> None:
        for key in ("6", 6.0, None):
            with pytest.raises(TypeError, match="api_key: expected an int"):
                codec.decode_request(key, 8, b"")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="kind is 'request' or 'response'"):
            codec.message_class(6, "request_header")  # type: ignore[arg-type]


class TestHeaderOfAnUnknownApi:
    """Its layout cannot be known: the bytes are at fault, not the caller."""

    def test_is_a_decode_error(self, codec: Codec) -> None:
        data = i16(337) + i16(0) + i32(5) + i16(-1)
        for read in (codec.decode_request_header, codec.decode_request_header_from):
            with pytest.raises(Malformed, match=r"api key 337 is not one of Kafka 3\.9\.1's") as caught:
                read(data)
            assert (caught.value.offset, caught.value.path) == (0, "request_api_key")

    def test_can_be_read_by_a_header_version(self, codec: Codec) -> None:
        header = codec.decode_request_header(i16(337) + i16(0) + i32(5) + i16(-1), 1)
        assert (header.request_api_key, header.correlation_id) == (337, 5)

    @pytest.mark.parametrize("size", range(8))
    def test_a_short_one_says_which_field_is_cut(self, codec: Codec, size: int) -> None:
        with pytest.raises(DecodeError, match=r"the input ends early: . bytes needed, . left") as caught:
            codec.decode_request_header((i16(6) + i16(8) + i32(1))[:size])
        cut = ("request_api_key", "request_api_version", "correlation_id", "correlation_id")[size // 2]
        assert caught.value.path == cut
