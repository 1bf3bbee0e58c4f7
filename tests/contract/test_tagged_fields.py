"""Tagged sections as Kafka's own codec reads them: the one known tag, unknown ones, and what it does not look at."""

from typing import Any

import pytest
from answers import answer
from strategies import FLEXIBLE_FROM, MESSAGES, VERSIONS, Struct, by_hand, fields_with_paths, plain_json, reachable
from wire import i8, i16, tags, varint

from kproto.codec import Codec
from kproto.errors import DecodeError


def update_metadata(section: bytes, version: int = 8) -> bytes:
    """An UpdateMetadata request with nothing in it but the tagged section at its end."""
    return by_hand(6, version, "request", empty_form(version), {("tags",): section})


def empty_form(version: int) -> dict[str, Any]:
    form = plain_json(MESSAGES[6, "request"], version)
    return form | {name: [] for name in ("topicStates", "liveBrokers")}


def entry(tag: int, data: bytes, size: int | None = None) -> bytes:
    return varint(tag) + varint(len(data) if size is None else size) + data


TAKEN = [  # a note, the section read, the type and unknown tags found, the section written again (None: cannot be)
    ("none", tags(), 0, (), tags()),
    ("type 2", tags((0, i8(2))), 2, (), tags((0, i8(2)))),
    ("type negative", tags((0, i8(-1))), -1, (), tags((0, i8(-1)))),
    ("unknown", tags((5, b"abc")), 0, ((5, b"abc"),), tags((5, b"abc"))),
    ("unknown empty", tags((1, b"")), 0, ((1, b""),), tags((1, b""))),
    ("unknown beside the type", tags((0, i8(1)), (9, b"x")), 1, ((9, b"x"),), tags((0, i8(1)), (9, b"x"))),
    ("highest that goes both ways", tags((2**31 - 2, b"x")), 0, ((2**31 - 2, b"x"),), tags((2**31 - 2, b"x"))),
    ("the default spelt out", tags((0, i8(0))), 0, (), tags()),
    ("size 0 is not looked at", varint(1) + entry(0, i8(2), 0), 2, (), tags((0, i8(2)))),
    ("size 2 is not looked at", varint(1) + entry(0, i8(2), 2), 2, (), tags((0, i8(2)))),
    ("size 2^31-1 is not looked at", varint(1) + entry(0, i8(2), 2**31 - 1), 2, (), tags((0, i8(2)))),
    ("a negative size is not looked at", varint(1) + entry(0, i8(2), -1), 2, (), tags((0, i8(2)))),
    ("type twice, the last wins", tags((0, i8(1)), (0, i8(2))), 2, (), tags((0, i8(2)))),
    ("type behind a higher tag", tags((5, b"x"), (0, i8(1))), 1, ((5, b"x"),), tags((0, i8(1)), (5, b"x"))),
    ("unknown twice", tags((7, b"a"), (7, b"a")), 0, ((7, b"a"), (7, b"a")), None),
    ("unknown out of order", tags((9, b"a"), (8, b"b")), 0, ((9, b"a"), (8, b"b")), None),
    ("tag 2^31-1", tags((2**31 - 1, b"a")), 0, ((2**31 - 1, b"a"),), None),
    ("a negative tag", tags((-1, b"a")), 0, None, None),
    ("a negative count is none", varint(-1), 0, (), tags()),
    ("a negative count is none", varint(2**31), 0, (), tags()),
]
STRICTLY_WRONG = {
    "the default spelt out": False,  # Kafka's writers leave it out, but the protocol does not forbid it
    "size 0 is not looked at": True,
    "size 2 is not looked at": True,
    "size 2^31-1 is not looked at": True,
    "a negative size is not looked at": True,
    "type twice, the last wins": True,
    "type behind a higher tag": True,
    "unknown twice": True,
    "unknown out of order": True,
}
REFUSED = [
    ("type without its byte", varint(1) + entry(0, b"", 1)),
    ("unknown beyond the end", varint(1) + entry(9, b"ab", 3)),
    ("unknown of 2^31-1 bytes", varint(1) + entry(9, b"ab", 2**31 - 1)),
    ("unknown of negative size", varint(1) + entry(9, b"ab", -1)),
    ("count too high", tags((9, b"ab"), count=2)),
    ("count of 2^31-1", varint(2**31 - 1)),
]


class TestTaggedFields:
    """UpdateMetadata v8 has the one known tag of the three APIs: 0, ``type``, an int8."""

    @pytest.mark.parametrize(
        ("section", "type_", "unknown", "again"),
        [pytest.param(*case[1:], id=case[0].replace(" ", "-")) for case in TAKEN],
    )
    def test_taken(self, codec: Codec, section: bytes, type_: int, unknown: Any, again: bytes | None) -> None:
        data = update_metadata(section)
        message, used = codec.decode_request_from(6, 8, data)
        assert used == len(data)
        assert message.type == type_
        if unknown is not None:
            assert tuple((tag, bytes(held)) for tag, held in message.unknown_tagged_fields) == unknown
        got = answer(codec, 6, 8, "request", data)
        assert got["reencoded"] == (None if again is None else update_metadata(again).hex())
        assert got["json"] == empty_form(8) | ({"type": type_} if type_ else {})

    @pytest.mark.parametrize(
        ("section", "wrong"),
        [pytest.param(c[1], STRICTLY_WRONG[c[0]], id=c[0].replace(" ", "-")) for c in TAKEN if c[0] in STRICTLY_WRONG],
    )
    def test_strict(self, codec: Codec, section: bytes, wrong: bool) -> None:
        data = update_metadata(section)
        assert answer(codec, 6, 8, "request", data, strict=True)["accept"] is not wrong

    @pytest.mark.parametrize("section", [pytest.param(case[1], id=case[0].replace(" ", "-")) for case in REFUSED])
    def test_refused(self, codec: Codec, section: bytes) -> None:
        with pytest.raises(DecodeError):
            codec.decode_request(6, 8, update_metadata(section))

    @pytest.mark.parametrize("version", [6, 7])
    def test_a_tag_that_a_later_version_defines_is_refused(self, codec: Codec, version: int) -> None:
        with pytest.raises(DecodeError):
            codec.decode_request(6, version, update_metadata(tags((0, i8(1))), version))

    @pytest.mark.parametrize(("api", "version", "kind"), [v for v in VERSIONS if v[1] >= FLEXIBLE_FROM[v[0]]])
    def test_tags_are_kept_in_every_struct(self, codec: Codec, api: int, version: int, kind: str) -> None:
        """Tag 0 too, wherever it is unknown: nested structs, other messages."""
        struct = MESSAGES[api, kind]
        sections: dict[tuple[str, ...], bytes] = {("tags",): tags((1, b"top"), (300, b""))}
        for path, field in fields_with_paths(struct):
            if isinstance(field.type, Struct) and reachable(struct, path, version):
                sections[(*path, "tags")] = tags((0, path[-1].encode()), (128, bytes(130)))
        data = by_hand(api, version, kind, plain_json(struct, version), sections)
        got = answer(codec, api, version, kind, data)
        assert got["consumed"] == len(data)
        assert got["reencoded"] == data.hex()
        assert got["json"] == plain_json(struct, version)

    def test_unknown_tags_are_part_of_equality(self, codec: Codec) -> None:
        one, other, none = (
            codec.decode_response(6, 8, i16(0) + section) for section in (tags((1, b"a")), tags((1, b"b")), tags())
        )
        assert one == codec.decode_response(6, 8, i16(0) + tags((1, b"a")))
        assert one != other
        assert one != none
