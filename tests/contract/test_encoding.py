"""What Kafka's own codec writes, drops and refuses to write, field by field and version by version."""

from typing import Any

import pytest
from strategies import (
    FLEXIBLE_FROM,
    LATEST,
    MESSAGES,
    VERSIONS,
    Field,
    Struct,
    by_hand,
    default_json,
    plain_json,
)
from wire import string, tags

from kproto.codec import Codec
from kproto.errors import EncodeError, FieldNotInVersion, OutOfRange
from kproto.json_form import snake_case

EACH = pytest.mark.parametrize(("api", "version", "kind"), VERSIONS)

NOT_DEFAULT = {
    "bool": True,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "uuid": bytes(range(16)),
    "string": "text",
    "[]int32": [1, 2],
}


def build(codec: Codec, struct: Struct, version: int, at: str = "", extra: dict[str, Any] | None = None) -> Any:
    """A message made by its constructors: one element in every array that the version has.

    ``extra`` are keywords for the struct at the dotted path ``at`` (empty: the message itself).
    """
    head, _, rest = at.partition(".")
    keywords: dict[str, Any] = {}
    for field in struct.of(version):
        if isinstance(field.type, Struct):
            deeper = extra if field.name == head else None
            keywords[snake_case(field.name)] = [build(codec, field.type, version, rest, deeper)]
    if not at:
        keywords |= extra or {}
    return getattr(codec, struct.name)(**keywords)


def written(codec: Codec, api: int, version: int, kind: str, at: str, extra: dict[str, Any]) -> bytes:
    """Such a message, made and encoded in one."""
    return codec.encode(build(codec, MESSAGES[api, kind], version, at, extra), version)


def places(struct: Struct, version: int, at: str = "") -> list[tuple[str, Struct]]:
    """The structs that a version has, each with the dotted path of the first one of its kind."""
    found = [(at, struct)]
    for field in struct.of(version):
        if isinstance(field.type, Struct):
            found += places(field.type, version, f"{at}.{field.name}".strip("."))
    return found


def lacking(api: int, version: int, kind: str) -> list[tuple[str, Field]]:
    """Every field that a version lacks though it has the struct around it, with the dotted path of that struct."""
    return [
        (at, field)
        for at, struct in places(MESSAGES[api, kind], version)
        for field in struct.fields
        if not field.in_version(version)
    ]


def not_default(codec: Codec, field: Field) -> Any:
    if isinstance(field.type, Struct):
        return [getattr(codec, field.type.name)()]
    return NOT_DEFAULT[field.type]


class TestFieldsThatAVersionLacks:
    """Dropped in silence, or refused unless at the default: the protocol's tables say which."""

    @EACH
    def test_dropped_or_refused(self, codec: Codec, api: int, version: int, kind: str) -> None:
        struct = MESSAGES[api, kind]
        plain = by_hand(api, version, kind, plain_json(struct, version))
        assert codec.encode(build(codec, struct, version), version) == plain
        for at, field in lacking(api, version, kind):
            message = build(codec, struct, version, at, {snake_case(field.name): not_default(codec, field)})
            if field.ignorable:
                assert codec.encode(message, version) == plain, (at, field)
            else:
                with pytest.raises(FieldNotInVersion, match=snake_case(field.name)):
                    codec.encode(message, version)
                with pytest.raises(FieldNotInVersion):
                    message.to_json(version)

    def test_the_table_of_the_protocol(self) -> None:
        """The rows of ``tools/oracle/java-behaviour.md``, so that the table behind this suite cannot drift."""
        refused = {
            (MESSAGES[case[0], case[2]].name, field.name)
            for case in VERSIONS
            for _, field in lacking(*case)
            if not field.ignorable
        }
        assert refused == {
            ("LeaderAndIsrRequest", "isKRaftController"),
            ("LeaderAndIsrRequest", "type"),
            ("LeaderAndIsrRequest", "topicStates"),
            ("LeaderAndIsrRequest", "ungroupedPartitionStates"),
            ("LeaderAndIsrRequest", "leaderRecoveryState"),
            ("LeaderAndIsrResponse", "partitionErrors"),
            ("LeaderAndIsrResponse", "topics"),
            ("StopReplicaRequest", "isKRaftController"),
            ("StopReplicaRequest", "deletePartitions"),
            ("StopReplicaRequest", "ungroupedPartitions"),
            ("StopReplicaRequest", "topics"),
            ("StopReplicaRequest", "topicStates"),
            ("UpdateMetadataRequest", "isKRaftController"),
            ("UpdateMetadataRequest", "type"),
            ("UpdateMetadataRequest", "ungroupedPartitionStates"),
            ("UpdateMetadataRequest", "topicStates"),
        }

    @pytest.mark.parametrize(("api", "version", "kind"), [v for v in VERSIONS if v[1] < FLEXIBLE_FROM[v[0]]])
    def test_unknown_tags_need_a_flexible_version(self, codec: Codec, api: int, version: int, kind: str) -> None:
        for at, _ in places(MESSAGES[api, kind], version):
            with pytest.raises(FieldNotInVersion):
                written(codec, api, version, kind, at, {"unknown_tagged_fields": ((1, b"x"),)})


class TestDefaults:
    """What a constructor without arguments gives: Kafka's own defaults."""

    @EACH
    def test_a_fresh_message(self, codec: Codec, api: int, version: int, kind: str) -> None:
        struct = MESSAGES[api, kind]
        fresh = codec.message_class(api, kind)()
        assert fresh.to_json(version) == default_json(struct, version)
        assert codec.encode(fresh, version) == by_hand(api, version, kind, default_json(struct, version))

    @pytest.mark.parametrize(("api", "kind"), MESSAGES)
    def test_every_field_by_name(self, codec: Codec, api: int, kind: str) -> None:
        for _, struct in {
            s.name: ("", s) for v in range(LATEST[api] + 1) for _, s in places(MESSAGES[api, kind], v)
        }.values():
            fresh = getattr(codec, struct.name)()
            for field in struct.fields:
                value = getattr(fresh, snake_case(field.name))
                if field.type == "uuid":
                    assert bytes(value) == bytes(16)
                elif isinstance(field.default_value, list):
                    assert list(value) == []
                else:
                    assert (type(value), value) == (type(field.default_value), field.default_value), field.name
            assert tuple(fresh.unknown_tagged_fields) == ()

    def test_the_odd_ones(self, codec: Codec) -> None:
        assert codec.StopReplicaPartitionState().leader_epoch == -1
        assert codec.UpdateMetadataRequest().broker_epoch == -1
        assert codec.UpdateMetadataBroker().rack == ""
        assert codec.RequestHeader().client_id == ""


class TestNull:
    """Only the rack and the client id may be null."""

    @pytest.mark.parametrize("version", range(9))
    def test_rack(self, codec: Codec, version: int) -> None:
        """Written as null from v2, dropped before."""
        message = codec.UpdateMetadataRequest(live_brokers=[codec.UpdateMetadataBroker(rack=None)])
        form = default_json(MESSAGES[6, "request"], version)
        form["liveBrokers"] = [default_json(MESSAGES[6, "request"].fields[-1].type, version)]
        if version >= 2:
            form["liveBrokers"][0]["rack"] = None
        assert codec.encode(message, version) == by_hand(6, version, "request", form)

    @EACH
    def test_anything_else(self, codec: Codec, api: int, version: int, kind: str) -> None:
        """By the constructor or when it is written: never on the wire."""
        for at, struct in places(MESSAGES[api, kind], version):
            for field in struct.of(version):
                if not field.nullable:
                    with pytest.raises((TypeError, ValueError)):
                        written(codec, api, version, kind, at, {snake_case(field.name): None})

    def test_an_element(self, codec: Codec) -> None:
        with pytest.raises((TypeError, ValueError)):
            codec.encode(codec.UpdateMetadataRequest(topic_states=[None]), 8)
        with pytest.raises((TypeError, ValueError)):
            codec.encode(codec.LeaderAndIsrRequest(ungrouped_partition_states=[None]), 0)


class TestStrings:
    """Text that does not fit, and text that is no text."""

    @pytest.mark.parametrize("version", range(9))
    def test_the_limit_is_32767_bytes_of_utf8(self, codec: Codec, version: int) -> None:
        name = "ä" * 16383 + "x"  # 32,767 bytes in 16,384 characters
        leaf = "ungrouped_partition_states" if version < 5 else "topic_states"
        struct = codec.UpdateMetadataPartitionState if version < 5 else codec.UpdateMetadataTopicState
        fits = codec.UpdateMetadataRequest(**{leaf: [struct(topic_name=name)]})
        assert name.encode() in codec.encode(fits, version)
        over = codec.UpdateMetadataRequest(**{leaf: [struct(topic_name=name + "x")]})
        with pytest.raises(OutOfRange):
            codec.encode(over, version)

    @pytest.mark.parametrize("version", [5, 8])
    @pytest.mark.parametrize(
        ("text", "written"),
        [
            ("a\ud800b", "a?b"),
            ("\ud800", "?"),
            ("x\udfffy", "x?y"),
            ("\ud83d\ude00", "😀"),  # two halves side by side are one character, as in Java
            ("\ude00\ud83d", "??"),
            ("\ud83d\ud83d\ude00\ude00", "?😀?"),
            ("é€😀\uffff", "é€😀\uffff"),
        ],
        ids=ascii,
    )
    def test_a_lone_surrogate_becomes_a_question_mark(
        self, codec: Codec, version: int, text: str, written: str
    ) -> None:
        message = codec.UpdateMetadataRequest(topic_states=[codec.UpdateMetadataTopicState(topic_name=text)])
        assert string(written, flexible=version >= 6) in codec.encode(message, version)


class TestNumbers:
    """A number that its field cannot hold is refused, by the constructor or when it is written."""

    @EACH
    def test_out_of_range(self, codec: Codec, api: int, version: int, kind: str) -> None:
        for at, struct in places(MESSAGES[api, kind], version):
            for field in struct.of(version):
                if isinstance(field.type, str) and field.type.startswith("int"):
                    limit = 1 << int(field.type[3:]) - 1
                    for value in (limit, -limit - 1, 1 << 70):
                        with pytest.raises((OutOfRange, OverflowError)):
                            written(codec, api, version, kind, at, {snake_case(field.name): value})

    def test_ids_in_arrays(self, codec: Codec) -> None:
        with pytest.raises((OutOfRange, OverflowError)):
            written(codec, 4, 0, "request", "ungroupedPartitionStates", {"isr": [1, 2**31]})

    def test_a_topic_id_has_16_bytes(self, codec: Codec) -> None:
        for wrong in (b"", bytes(15), bytes(17)):
            with pytest.raises((ValueError, TypeError)):
                written(codec, 4, 7, "request", "topicStates", {"topic_id": wrong})


class TestTags:
    """Unknown tagged fields that the caller sets."""

    def written(self, codec: Codec, fields: Any, **more: Any) -> bytes:
        return codec.encode(codec.UpdateMetadataRequest(unknown_tagged_fields=fields, **more), 8)

    def test_the_type_takes_its_place_in_the_order(self, codec: Codec) -> None:
        data = self.written(codec, ((3, b"c"), (300, b"")), type=2)
        assert data.endswith(tags((0, b"\x02"), (3, b"c"), (300, b"")))

    def test_a_type_of_zero_is_left_out(self, codec: Codec) -> None:
        assert self.written(codec, ((3, b"c"),), type=0).endswith(tags((3, b"c")))

    @pytest.mark.parametrize("fields", [((9, b""), (8, b"")), ((7, b""), (7, b"")), ((2**31 - 1, b""),)])
    def test_what_kafka_cannot_write(self, codec: Codec, fields: Any) -> None:
        with pytest.raises(EncodeError):
            self.written(codec, fields)

    def test_tag_zero_given_as_unknown_is_written_beside_the_type(self, codec: Codec) -> None:
        """As Kafka does: no check stands on the first known tag."""
        assert self.written(codec, ((0, b"\x05"),)).endswith(tags((0, b"\x05")))
        assert self.written(codec, ((0, b"\x05"),), type=1).endswith(tags((0, b"\x01"), (0, b"\x05")))

    @pytest.mark.parametrize("version", [6, 7])
    def test_tag_zero_is_written_where_no_kafka_can_read_it(self, codec: Codec, version: int) -> None:
        data = codec.encode(codec.UpdateMetadataRequest(unknown_tagged_fields=((0, b"x"),)), version)
        assert data.endswith(tags((0, b"x")))


class TestMisuse:
    """Wrong use by the caller is ValueError, TypeError or kproto's own, and says what."""

    def test_what_is_no_message(self, codec: Codec) -> None:
        for thing in (None, b"bytes", {"controllerId": 1}, codec.UpdateMetadataBroker()):
            with pytest.raises((TypeError, ValueError)):
                codec.encode(thing, 8)

    def test_an_unknown_keyword(self, codec: Codec) -> None:
        with pytest.raises(TypeError):
            codec.UpdateMetadataRequest(leader=1)
