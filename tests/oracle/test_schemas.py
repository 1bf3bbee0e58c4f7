"""Every field of every version against the message schemas inside the kafka-clients jar.

What the reference declares is compared fact by fact. Both codecs are then walked by what they do: the JSON keys of a
version, what may be missing or null, the range of every number, the defaults of fresh objects, what becomes of a
value in a version that lacks its field, and the tag under which it is written.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from answers import encode, message_type
from live import implementations
from schemas import Schema, SchemaField, schema

from kproto.api import ApiKey
from kproto.codec import get_codec
from kproto.errors import EncodeError, FieldNotInVersion
from kproto.reference import datatypes
from kproto.reference.fields import Fields

APIS = (
    3, 4, 5, 6, 7, 10, 16, 17, 18, 19, 20, 22, 30, 31, 32, 33, 35, 36,
    37, 43, 44, 45, 46, 49, 51, 56, 57, 58, 62, 63, 64, 66, 67,
)  # fmt: skip
RECORD_APIS = (0, 1, 2)
"""Declared as the schemas have them; Kafka's JSON form leaves their records out, so that no message is compared."""

NAMES = [ApiKey(api).info.name + kind for api in APIS for kind in ("Request", "Response")]
NAMES += ["RequestHeader", "ResponseHeader"]
CASES = [
    (name, codec)
    for api, name in [(-1 if name.endswith("Header") else APIS[i // 2], name) for i, name in enumerate(NAMES)]
    for codec in implementations(api)
]
BOTH = pytest.mark.parametrize(("name", "implementation"), CASES, ids=["-".join(case) for case in CASES])
LAST_VERSION = max(api.info.newest_version for api in ApiKey)
INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


@pytest.fixture(scope="module", autouse=True)
def _jar_is_there(oracle_program: Any) -> None:
    """Building the oracle fetches the jar."""


# ---- what the reference declares -------------------------------------------------------------------------------------

SCALARS = {
    datatypes.Bool: "bool",
    datatypes.Int8: "int8",
    datatypes.Int16: "int16",
    datatypes.UInt16: "uint16",
    datatypes.Int32: "int32",
    datatypes.Int64: "int64",
    datatypes.Float64: "float64",
    datatypes.Uuid: "uuid",
    datatypes.String: "string",
    datatypes.PlainString: "string",
    datatypes.Bytes: "bytes",
    datatypes.Records: "records",
}


def declared(fields: Fields, highest: int, names: bool) -> tuple[SchemaField, ...]:
    """A struct of the reference in the schema's own terms, without the fields that came after ``highest``; ``names``
    keeps those of nested structs."""
    out = []
    for name, field in fields.all.items():
        if field.since > highest:
            continue  # Kafka 4's: test_later.py asks its classes
        ends_later = highest <= field.until <= LAST_VERSION  # only Kafka 4 can say whether its value may be dropped
        nullable = field.type if isinstance(field.type, datatypes.Nullable) else None
        bare = nullable.of if nullable else field.type
        is_array = isinstance(bare, datatypes.ArrayOf)
        item = bare.item if is_array else bare
        struct = getattr(item, "cls", None)
        default = field.fresh()
        out.append(
            SchemaField(
                name=name,
                json_name=field.json_name,
                type=("[]" if is_array else "") + ("struct" if struct else SCALARS[item]),
                since=field.since,
                until=min(field.until, highest),
                nullable_since=max(field.since, nullable.since) if nullable else None,
                default=tuple(default) if isinstance(default, list) else None if struct and not is_array else default,
                ignorable=field.ignorable and not ends_later,
                tag=field.tag,
                plain=item is datatypes.PlainString,
                struct=struct.__name__ if struct and names else "",
                fields=declared(struct.fields, highest, names) if struct else (),
            )
        )
    return tuple(out)


def without_struct_names(fields: tuple[SchemaField, ...]) -> tuple[SchemaField, ...]:
    return tuple(
        SchemaField(**{**vars(field), "struct": "", "fields": without_struct_names(field.fields)}) for field in fields
    )


def within(fields: tuple[SchemaField, ...], since: int = 0, until: int = 99) -> tuple[SchemaField, ...]:
    """The fields with the versions that the fields around them leave: Produce and Fetch share structs."""
    inside = []
    for field in fields:
        first, last = max(since, field.since), min(until, field.until)
        null = None if field.nullable_since is None else max(first, field.nullable_since)
        changed = {"since": first, "until": last, "nullable_since": null, "fields": within(field.fields, first, last)}
        inside.append(SchemaField(**{**vars(field), **changed}))
    return tuple(inside)


@pytest.mark.parametrize(
    "name", [*NAMES, *(ApiKey(api).info.name + kind for api in RECORD_APIS for kind in ("Request", "Response"))]
)
def test_what_the_reference_declares(name: str) -> None:
    """Order, names, types, versions, nullability, defaults, tags, ignorable: all as the schema has them."""
    theirs = schema(name)
    cls = message_type(get_codec("construct"), theirs.api_key, theirs.kind)
    hot = theirs.api_key in (4, 5, 6)  # nested structs of the three control APIs bear the schema's names
    expected = theirs.fields if hot else without_struct_names(theirs.fields)
    ours = declared(cls.fields, theirs.highest, hot)
    if theirs.api_key in RECORD_APIS:
        ours, expected = within(ours), within(expected)
    assert ours == expected
    assert cls.__name__ == theirs.name
    if theirs.api_key >= 0:
        info = ApiKey(theirs.api_key).info
        assert (info.max_version, info.flexible_from) == (theirs.highest, theirs.flexible_from)


@pytest.mark.parametrize("name", NAMES)
def test_known_tags_count_up_from_zero(name: str) -> None:
    """Kafka then writes all of them before the unknown ones; both codecs rest on that."""

    def check(fields: tuple[SchemaField, ...]) -> None:
        tags = [field.tag for field in fields if field.tag is not None]
        assert tags == list(range(len(tags)))
        for field in fields:
            check(field.fields)

    check(schema(name).fields)


# ---- what a codec does -----------------------------------------------------------------------------------------------


def sample_of(field: SchemaField, version: int, *, other: bool = False) -> Any:
    """A value in JSON that is not the default."""
    bare = field.type.removeprefix("[]")
    if bare == "struct":
        value: Any = sample(field.fields, version)
    elif bare in INTEGERS:
        value = 7
    elif bare == "bool":
        value = not field.default if not field.type.startswith("[]") else True
    else:
        value = {"string": "seven", "bytes": "BwcH", "uuid": "AAECAwQFBgcICQoLDA0ODw", "float64": 7.5}[bare]
    return [value] if field.type.startswith("[]") else value


def sample(fields: tuple[SchemaField, ...], version: int) -> dict[str, Any]:
    """A struct in JSON with every field of a version, none of them at its default, one element in each array."""
    return {field.json_name: sample_of(field, version) for field in fields if field.exists_in(version)}


def walk(fields: tuple[SchemaField, ...], version: int, path: tuple[str, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field of every struct that a version has, with the JSON names of the arrays around it."""
    for field in fields:
        yield path, field
        if field.fields and field.exists_in(version):
            yield from walk(field.fields, version, (*path, field.json_name))


def inner(json_form: Any, path: tuple[str, ...]) -> Any:
    """The struct in JSON behind a path of arrays."""
    for key in path:
        json_form = json_form[key][0]
    return json_form


def reached(message: Any, theirs: Schema, path: tuple[str, ...]) -> Any:
    """The object behind a path of arrays."""
    fields = theirs.fields
    for key in path:
        (field,) = [f for f in fields if f.json_name == key]
        message, fields = getattr(message, field.name)[0], field.fields
    return message


def versions(theirs: Schema) -> range:
    return range(theirs.highest + 1)


def kinds(name: str, implementation: Any) -> tuple[Schema, Any, Any]:
    """A schema, a codec, and that codec's class for the schema."""
    theirs, codec = schema(name), get_codec(implementation)
    return theirs, codec, message_type(codec, theirs.api_key, theirs.kind)


def each_field(theirs: Schema, *, exists: bool = True) -> Iterator[tuple[int, Any, tuple[str, ...], SchemaField]]:
    """Each version, its sample in JSON, and of each field that it has, or lacks, the arrays around it and itself."""
    for version in versions(theirs):
        for path, field in walk(theirs.fields, version):
            if field.exists_in(version) == exists:
                yield version, sample(theirs.fields, version), path, field


def with_value(form: dict[str, Any], path: tuple[str, ...], name: str, value: Any) -> dict[str, Any]:
    changed = json.loads(json.dumps(form))
    inner(changed, path)[name] = value
    return changed


@BOTH
def test_json_keys(name: str, implementation: Any) -> None:
    """A version's JSON has just that version's keys, in the schema's order."""
    theirs, _, cls = kinds(name, implementation)
    for version in versions(theirs):
        form = sample(theirs.fields, version)
        assert json.dumps(cls.from_json(form, version).to_json(version)) == json.dumps(form), version


@BOTH
def test_a_missing_key(name: str, implementation: Any) -> None:
    """Only tagged fields may be missing; they are then at their default."""
    theirs, _, cls = kinds(name, implementation)
    for version, form, path, field in each_field(theirs):
        del inner(form, path)[field.json_name]
        if field.tag is None:
            with pytest.raises(EncodeError, match=field.name):
                cls.from_json(form, version)
        else:
            message = cls.from_json(form, version)
            assert plain(getattr(reached(message, theirs, path), field.name)) == field.default
            assert message.to_json(version) == form


@BOTH
def test_null(name: str, implementation: Any) -> None:
    """Null is taken, from JSON and into bytes and back, where the schema says so, and nowhere else."""
    theirs, codec, cls = kinds(name, implementation)
    for version, form, path, field in each_field(theirs):
        changed = with_value(form, path, field.json_name, None)
        if field.nullable_in(version):
            message = cls.from_json(changed, version)
            assert message.to_json(version) == changed
            assert decoded(codec, theirs, version, message).to_json(version) == changed
            continue
        with pytest.raises(EncodeError):
            cls.from_json(changed, version)
        with pytest.raises((EncodeError, TypeError)):  # at once, or when it is written
            encode_null(codec, theirs, version, cls.from_json(form, version), path, field)


@BOTH
def test_the_range_of_every_integer(name: str, implementation: Any) -> None:
    """Both ends go out and come back; what lies beyond them is refused."""
    theirs, codec, cls = kinds(name, implementation)
    for version, form, path, field in each_field(theirs):
        bare = field.type.removeprefix("[]")
        if bare not in INTEGERS:
            continue
        low, high = INTEGERS[bare]
        wrap = (lambda value: [value]) if field.type.startswith("[]") else (lambda value: value)
        for value in (low, high):
            changed = with_value(form, path, field.json_name, wrap(value))
            message = cls.from_json(changed, version)
            assert decoded(codec, theirs, version, message).to_json(version) == changed
        beyond = 257 if bare == "int8" else high + 1  # Kafka's JSON takes bytes up to 256, shifted
        for value in (low - 1, beyond, "7", 7.0, True, None):
            with pytest.raises(EncodeError):
                cls.from_json(with_value(form, path, field.json_name, wrap(value)), version)


@BOTH
def test_the_type_of_everything_else(name: str, implementation: Any) -> None:
    """A value of another JSON type is refused wherever it stands."""
    theirs, _, cls = kinds(name, implementation)
    for version, form, path, field in each_field(theirs):
        wrong: list[Any] = [{}]
        wrong += [[7]] if not field.type.startswith("[]") else ["seven", [[]], [None]]
        wrong += ["true", 1] if field.type == "bool" else []
        wrong += [7, True] if field.type in ("string", "bytes", "uuid") else []
        wrong += ["AAECAwQFBgcICQoLDA0O"] if field.type == "uuid" else []
        for value in wrong:
            with pytest.raises(EncodeError):
                cls.from_json(with_value(form, path, field.json_name, value), version)


@BOTH
def test_defaults_of_fresh_objects(name: str, implementation: Any) -> None:
    theirs, _, cls = kinds(name, implementation)
    for version in versions(theirs):
        message = cls.from_json(sample(theirs.fields, version), version)
        for path, field in walk(theirs.fields, version):
            fresh = type(reached(message, theirs, path))()
            assert plain(getattr(fresh, field.name)) == field.default, (path, field.name)
            if theirs.flexible_from is not None and theirs.flexible_from <= version:
                assert fresh.unknown_tagged_fields == ()


@BOTH
def test_a_value_in_a_version_that_lacks_its_field(name: str, implementation: Any) -> None:
    """Dropped without a word if the schema calls the field ignorable, an error otherwise; its default never hurts."""
    theirs, codec, cls = kinds(name, implementation)
    for version, form, path, field in each_field(theirs, exists=False):
        message = cls.from_json(form, version)
        bare = encode(codec, theirs.kind, message, version)
        setattr(reached(message, theirs, path), field.name, python_value(codec, theirs, path, field))
        if field.ignorable:
            assert encode(codec, theirs.kind, message, version) == bare, (path, field.name)
            assert message.to_json(version) == form
        else:
            with pytest.raises(FieldNotInVersion):
                encode(codec, theirs.kind, message, version)
            with pytest.raises(FieldNotInVersion):
                message.to_json(version)


@BOTH
def test_the_tag_of_every_tagged_field(name: str, implementation: Any) -> None:
    """Written under the schema's tag with its true size, and not at all at its default."""
    theirs, codec, cls = kinds(name, implementation)
    for version, form, path, field in each_field(theirs):
        if field.tag is None:
            continue
        for other_path, other in walk(theirs.fields, version):
            if other.tag is not None and other.exists_in(version):
                del inner(form, other_path)[other.json_name]
        bare = encode(codec, theirs.kind, cls.from_json(form, version), version)
        form = with_value(form, path, field.json_name, sample_of(field, version))
        got = encode(codec, theirs.kind, cls.from_json(form, version), version)
        depth = len(path)  # every struct around it ends with an empty section of its own
        assert bare.endswith(bytes(depth + 1))
        assert got.startswith(bare[: len(bare) - depth - 1])
        section = got[len(bare) - depth - 1 : len(got) - depth]
        assert section[:2] == bytes([1, field.tag])
        assert section[2] == len(section) - 3


def plain(value: Any) -> Any:
    """An attribute's value for comparing: codecs may hold arrays as lists or tuples."""
    return tuple(value) if isinstance(value, list) else value


def encode_null(
    codec: Any, theirs: Schema, version: int, message: Any, path: tuple[str, ...], field: SchemaField
) -> None:
    """Put null into a field of an object and write the message."""
    setattr(reached(message, theirs, path), field.name, None)
    encode(codec, theirs.kind, message, version)


def decoded(codec: Any, theirs: Schema, version: int, message: Any) -> Any:
    """The message after a way over the wire."""
    data = encode(codec, theirs.kind, message, version)
    match theirs.kind:
        case "request":
            return codec.decode_request(theirs.api_key, version, data, strict=True)
        case "response":
            return codec.decode_response(theirs.api_key, version, data, strict=True)
        case "request_header":
            return codec.decode_request_header(data, version, strict=True)
    return codec.decode_response_header(data, version, strict=True)


def python_value(codec: Any, theirs: Schema, path: tuple[str, ...], field: SchemaField) -> Any:
    """A value for an attribute that is not its default."""
    if field.fields:  # taken from a message of a version that has it
        cls = message_type(codec, theirs.api_key, theirs.kind)
        donor = cls.from_json(sample(theirs.fields, field.since), field.since)
        return getattr(reached(donor, theirs, path), field.name)
    bare = field.type.removeprefix("[]")
    value = {"string": "seven", "bytes": b"seven", "uuid": bytes(range(16)), "bool": not field.default}.get(bare, 7)
    return [value] if field.type.startswith("[]") else value
