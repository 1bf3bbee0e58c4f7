"""Structs and messages: Python objects with a slot for each field."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from kproto.api import check_version

from .fields import Field, Fields, Type
from .wire import build, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from construct import Construct

    from kproto.types import Buffer, Json, Kind, RawTag

_set = object.__setattr__  # past a struct's own, which checks


class _FieldSlots(type):
    """Makes ``fields`` of the types that a class assigns, and a slot for each: a small struct costs no dictionary."""

    fields: Fields

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **named: Any) -> _FieldSlots:
        declared = {key: namespace.pop(key) for key, of in [*namespace.items()] if isinstance(of, Type | Field)}
        namespace.setdefault("__slots__", tuple(declared))
        if declared or not any(base.fields.all for base in bases if isinstance(base, _FieldSlots)):
            namespace["fields"] = Fields(declared)
        return super().__new__(mcs, name, bases, namespace, **named)


class Struct(metaclass=_FieldSlots):
    """Named fields with Kafka's defaults; mutable, compared by value.

    Arrays of structs are lists, arrays of numbers tuples, UUIDs 16 bytes. ``unknown_tagged_fields`` holds the tagged
    fields that Kafka 3.9.1 does not define, as (tag, bytes) in wire order; only flexible versions can carry them.

    Attributes:
        fields: The struct's fields over all versions.
        frozen: Whether this is a row of a flat view, in which a change would be lost.
    """

    __slots__ = ("frozen", "unknown_tagged_fields")
    __hash__: ClassVar[None] = None  # type: ignore[assignment]
    fields: ClassVar[Fields]
    frozen: bool
    unknown_tagged_fields: tuple[RawTag, ...]

    def __init__(self, **values: Any) -> None:
        for name, field in self.fields.all.items():
            _set(self, name, field.type.keep(values.pop(name)) if name in values else field.fresh())
        _set(self, "unknown_tagged_fields", _raw_tags(values.pop("unknown_tagged_fields", ())))
        _set(self, "frozen", False)
        if values:
            raise TypeError(f"{type(self).__name__} has no field {next(iter(values))!r}")

    @classmethod
    def of_values(cls, values: Mapping[str, Any], version: int) -> Self:
        """Make an object of a value for every field, as read in a version."""
        self = cls.__new__(cls)
        for name in cls.fields.names:
            _set(self, name, values[name])
        _set(self, "frozen", False)
        return self

    def to_values(self) -> dict[str, Any]:
        """Return every field's value by name."""
        return {name: getattr(self, name) for name in self.fields.names}

    def __setattr__(self, name: str, value: Any) -> None:
        if self.frozen:
            raise AttributeError(
                f"{name}: partition_states is a read-only view; "
                "change the row in the message, or a copy.copy of this one"
            )
        field = self.fields.all.get(name)
        if field is not None:
            _set(self, name, field.type.keep(value))
        elif name == "unknown_tagged_fields":
            _set(self, name, _raw_tags(value))
        else:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name}: a field cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Struct)
        return all(getattr(self, name) == getattr(other, name) for name in self.fields.names)

    def __repr__(self) -> str:
        shown = [
            f"{name}={_short(getattr(self, name))}"
            for name, field in self.fields.all.items()
            if getattr(self, name) != field.fresh()
        ]
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={_short(self.unknown_tagged_fields)}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        from kproto.notebook import message_html

        return message_html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.to_values())

    def replace(self, **values: Any) -> Self:
        """Return a copy with some fields changed; the fields' values are shared."""
        return type(self)(**{**self.to_values(), **values})

    def view(self, **values: Any) -> Self:
        """Return a read-only copy with some fields changed."""
        made = self.replace(**values)
        _set(made, "frozen", True)
        return made


_Row = TypeVar("_Row", bound=Struct)


class VersionedStruct(Struct):
    """A struct that is read and written by itself: a message, a header, a record of metadata.

    Attributes:
        newest: The newest version of its kind.
        version: The version that it was read with or made for, by default the newest. Encoding is given its own.
    """

    __slots__ = ("version",)
    newest: ClassVar[int]
    version: int

    def __init__(self, **values: Any) -> None:
        version = values.pop("version", self.newest)
        super().__init__(**values)
        self.version = version

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "version":
            self.is_flexible(value)
            _set(self, name, value)
        else:
            super().__setattr__(name, value)

    @classmethod
    def of_values(cls, values: Mapping[str, Any], version: int) -> Self:
        """Make an object as ``Struct.of_values`` does; it keeps its version."""
        self = super().of_values(values, version)
        _set(self, "version", version)
        return self

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether a version is flexible.

        Raises:
            UnsupportedVersion: There is no such version.
        """
        raise NotImplementedError

    @classmethod
    def at(cls, version: int) -> Construct:
        """Return the Construct of one version; its ``subcon`` is the ``construct.Struct``.

        Raises:
            UnsupportedVersion: There is no such version.
        """
        return cls.fields.at(cls, version, cls.is_flexible(version))

    @classmethod
    def decode(cls, version: int, data: Buffer, *, strict: bool = False, alone: bool = True) -> tuple[Self, int]:
        """Read an object from the start of a buffer; also return how many bytes it took.

        Args:
            version: Its version.
            data: A buffer that begins with it.
            strict: Refuse what the protocol forbids although Kafka accepts it.
            alone: Whether ``strict`` refuses bytes after it, too.

        Raises:
            DecodeError: The bytes are no such object.
            UnsupportedVersion: There is no such version.
        """
        api_key = getattr(cls, "api_key", None)
        return parse(cls.at(version), data, api_key=api_key, version=version, strict=strict, alone=alone)

    def encode(self, version: int) -> bytes:
        """Write the object in one version.

        Raises:
            EncodeError: It cannot be written.
            UnsupportedVersion: There is no such version.
        """
        return build(self.at(version), self)

    def to_json(self, version: int) -> Json:
        """Return Kafka's JSON form of that version, as brokers write it to their request log.

        Raises:
            FieldNotInVersion: As ``encode``.
            UnsupportedVersion: There is no such version.
        """
        self.is_flexible(version)
        return self.fields.to_json(self, version)

    @classmethod
    def from_json(cls, json: Mapping[str, Any], version: int) -> Self:
        """Make an object from Kafka's JSON form of that version.

        Raises:
            EncodeError: A field is missing, of the wrong type or out of range.
            UnsupportedVersion: There is no such version.
        """
        cls.is_flexible(version)
        return cls(version=version, **cls.fields.from_json(json, version))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), {**self.to_values(), "version": self.version})


class ReferenceMessage(VersionedStruct):
    """The body of a request or response.

    Attributes:
        api_key: The API that it belongs to.
        kind: ``request`` or ``response``.
    """

    __slots__ = ()
    api_key: int
    newest: ClassVar[int]
    kind: Kind

    def __init_subclass__(cls, *, api_key: int | None = None) -> None:
        if api_key is not None:
            cls.api_key, cls.newest = api_key, check_version(api_key, 0).max_version

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether a version of the API is flexible."""
        return check_version(cls.api_key, version).is_flexible(version)

    def for_version(self, version: int) -> Self:
        """Return the message as one who reads it in this version gets it: with the fields that the version has.

        Raises:
            FieldNotInVersion: A field that the version lacks holds a value that may not be dropped.
            EncodeError, UnsupportedVersion: As ``encode``.
        """
        return self.decode(version, self.encode(version))[0]


class RequestMessage(ReferenceMessage):
    """The body of a request."""

    __slots__ = ()
    kind: Kind = "request"


class ResponseMessage(ReferenceMessage):
    """The body of a response; its version is that of the request.

    Attributes:
        is_error_of_all: Whether an error of the whole counts for each of its parts, too, as Kafka counts them.
    """

    __slots__ = ()
    kind: Kind = "response"
    is_error_of_all: ClassVar[bool] = False

    def error_counts(self) -> dict[int, int]:
        """Count every error code of the response, of the whole and of its parts."""
        codes = [*_error_codes(self)]
        return {codes[0]: len(codes)} if self.is_error_of_all and codes[0] else dict(Counter(codes))


def _error_codes(struct: Struct) -> Iterator[int]:
    for name in struct.fields.names:
        value = getattr(struct, name)
        if name == "error_code":
            yield value
        elif isinstance(value, list):
            for part in value:
                if not isinstance(part, Struct):
                    break
                yield from _error_codes(part)
        elif isinstance(value, Struct):
            yield from _error_codes(value)


def flat_view(single: Iterable[_Row], topics: Iterable[Any]) -> tuple[_Row, ...]:
    """Rows of partitions that stand one by one, and those of topics, each with its topic's name: a read-only view."""
    grouped = (row.view(topic_name=topic.topic_name) for topic in topics for row in topic.partition_states)
    return (*(row.view() for row in single), *grouped)


def _restored(cls: type[Struct], values: dict[str, Any]) -> Struct:
    return cls(**values)


def _raw_tags(tags: Any) -> tuple[RawTag, ...]:
    return tuple((int(tag), bytes(data)) for tag, data in tags)


_SHOWN = 3
_SHOWN_NUMBERS = 12  # replica lists read better whole


def _short(value: object) -> str:
    """Return a repr of bounded length."""
    if isinstance(value, list | tuple):
        most = _SHOWN_NUMBERS if value and isinstance(value[0], int) else _SHOWN
        shown = [_short(item) for item in (value if len(value) <= most else value[:_SHOWN])]
        if len(shown) < len(value):
            shown.append(f"... {len(value) - len(shown)} more")
        inside = ", ".join(shown)
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, str) and len(value) > 60:
        return f"{value[:50]!r}... {len(value)} characters"
    if isinstance(value, bytes) and len(value) > 16:
        return f"{value[:12]!r}... {len(value)} bytes"
    return repr(value)
