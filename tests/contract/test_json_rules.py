"""Kafka's JSON form, read: what is asked of it and what it may not be. How it is written stands in test_vectors."""

import copy
from itertools import product
from typing import Any

import pytest
from strategies import MESSAGES, VERSIONS, Struct, plain_json

from kproto.codec import Codec
from kproto.errors import EncodeError, FieldNotInVersion
from kproto.json_form import snake_case

EACH = pytest.mark.parametrize(("api", "version", "kind"), VERSIONS)
WRONG = {
    "bool": (0, 1, "true", None, []),
    "int8": ("1", 1.0, None, True, 257, -129),
    "int16": ("1", 1.0, None, False, 1 << 15, -(1 << 15) - 1),
    "int32": ("1", 1.5, None, True, 1 << 31, -(1 << 31) - 1, []),
    "int64": ("1", 1.0, None, True, 1 << 63, -(1 << 63) - 1, {}),
    "uuid": ("", "AAAA", 1, None, "A" * 21, "A" * 23, "+" * 22, "/" * 22, "é" * 22),
    "string": (1, [], {}, True),
    "[]int32": (None, 1, "1,2", {}, [None], ["1"], [1.0], [1 << 31], [True]),
}


def structs(struct: Struct, form: Any, version: int, at: str = "") -> list[tuple[str, Struct, dict[str, Any]]]:
    """Every object in the form with its struct; the objects themselves, so that a test can spoil them."""
    found = [(at, struct, form)]
    for field in struct.of(version):
        if isinstance(field.type, Struct):
            found += structs(field.type, form[field.name][0], version, f"{at}.{field.name}")
    return found


def named(field: str) -> str:
    """An error may use the name of the JSON form or that of the attribute."""
    return f"{field}|{snake_case(field)}"


def refused(cls: Any, form: Any, version: int) -> bool:
    try:
        cls.from_json(form, version)
    except EncodeError:
        return True
    return False


@EACH
def test_every_field_must_be_there(codec: Codec, api: int, version: int, kind: str) -> None:
    """With or without a default, nullable or not; only a tagged field may be missing."""
    cls = codec.message_class(api, kind)
    whole = plain_json(MESSAGES[api, kind], version)
    assert cls.from_json(whole, version).to_json(version) == whole
    for i, (_, struct, _) in enumerate(structs(MESSAGES[api, kind], whole, version)):
        for field in struct.of(version):
            if field.tag is None:
                spoilt = copy.deepcopy(whole)
                del structs(MESSAGES[api, kind], spoilt, version)[i][2][field.name]
                with pytest.raises(EncodeError, match=named(field.name)):
                    cls.from_json(spoilt, version)


@EACH
def test_a_value_of_the_wrong_kind_is_refused(codec: Codec, api: int, version: int, kind: str) -> None:
    cls = codec.message_class(api, kind)
    whole = plain_json(MESSAGES[api, kind], version)
    for i, (at, struct, _) in enumerate(structs(MESSAGES[api, kind], whole, version)):
        for field in struct.of(version):
            wrong = (None, 1, "x", {}, [1], [None]) if isinstance(field.type, Struct) else WRONG[field.type]
            for value in (*wrong, *(() if field.nullable else (None,))):
                spoilt = copy.deepcopy(whole)
                structs(MESSAGES[api, kind], spoilt, version)[i][2][field.name] = value
                assert refused(cls, spoilt, version), f"{at}.{field.name} took {value!r}"


@EACH
def test_what_is_not_known_is_ignored(codec: Codec, api: int, version: int, kind: str) -> None:
    """A key of another version, or of none."""
    cls = codec.message_class(api, kind)
    whole = plain_json(MESSAGES[api, kind], version)
    more = copy.deepcopy(whole)
    for _, struct, form in structs(MESSAGES[api, kind], more, version):
        form["nobodyKnowsThis"] = {"at": "all"}
        for field in struct.fields:
            if not field.in_version(version):
                form[field.name] = "another version's"
    assert cls.from_json(more, version) == cls.from_json(whole, version)


@pytest.mark.parametrize("api", [4, 5, 6])
def test_a_request_that_was_read_has_a_form_where_it_can_be_encoded(codec: Codec, api: int) -> None:
    """In any version: a form that leaves its partitions out would be another request's."""
    cls = codec.message_class(api, "request")
    for read, asked in product(
        [version for key, version, kind in VERSIONS if (key, kind) == (api, "request")], repeat=2
    ):
        body = codec.encode(cls.from_json(plain_json(MESSAGES[api, "request"], read), read), read)
        try:
            whole = codec.encode(codec.decode_request(api, read, body), asked)
        except FieldNotInVersion:
            with pytest.raises(FieldNotInVersion):
                codec.decode_request(api, read, body).to_json(asked)
        else:
            form = codec.decode_request(api, asked, whole).to_json(asked)
            assert codec.decode_request(api, read, body).to_json(asked) == form


@pytest.mark.parametrize(("given", "taken"), [(127, 127), (128, 0), (200, 72), (255, 127), (256, -128), (-128, -128)])
def test_a_byte_above_127_is_shifted(codec: Codec, given: int, taken: int) -> None:
    """Kafka's own converter does so, by mistake or not."""
    form = plain_json(MESSAGES[6, "request"], 8) | {"type": given}
    assert codec.UpdateMetadataRequest.from_json(form, 8).type == taken
    form = plain_json(MESSAGES[4, "request"], 6)
    form["topicStates"][0]["partitionStates"][0]["leaderRecoveryState"] = given
    message = codec.LeaderAndIsrRequest.from_json(form, 6)
    assert message.topic_states[0].partition_states[0].leader_recovery_state == taken


@pytest.mark.parametrize("form", [None, 1, "text", [], [{}]])
def test_only_an_object_is_a_message(codec: Codec, form: Any) -> None:
    with pytest.raises(EncodeError):
        codec.UpdateMetadataRequest.from_json(form, 8)


@pytest.mark.parametrize("text", ["AAECAwQFBgcICQoLDA0ODw", "AAECAwQFBgcICQoLDA0ODw=="])
def test_padding_of_a_uuid_is_optional(codec: Codec, text: str) -> None:
    form = plain_json(MESSAGES[6, "request"], 8)
    form["topicStates"][0]["topicId"] = text
    assert bytes(codec.UpdateMetadataRequest.from_json(form, 8).topic_states[0].topic_id) == bytes(range(16))


def test_a_tagged_field_at_its_default_is_left_out(codec: Codec) -> None:
    assert "type" not in codec.UpdateMetadataRequest(type=0).to_json(8)
    assert codec.UpdateMetadataRequest(type=1).to_json(8)["type"] == 1


def test_unknown_tags_have_no_place_in_it(codec: Codec) -> None:
    tagged = codec.UpdateMetadataRequest(unknown_tagged_fields=((5, b"x"),))
    assert tagged.to_json(8) == codec.UpdateMetadataRequest().to_json(8)


@pytest.mark.parametrize(("kind", "version"), [("RequestHeader", v) for v in (0, 1, 2)] + [("ResponseHeader", 1)])
def test_headers(codec: Codec, kind: str, version: int) -> None:
    cls = getattr(codec, kind)
    form: dict[str, Any] = {"correlationId": -7}
    if kind == "RequestHeader":
        form = {"requestApiKey": 6, "requestApiVersion": 8, **form} | ({"clientId": None} if version else {})
    assert cls.from_json(form, version).to_json(version) == form
    for key in form:
        with pytest.raises(EncodeError, match=named(key)):
            cls.from_json({k: v for k, v in form.items() if k != key}, version)
