"""The types of fields: for each its Construct in any version, its default, and its JSON form.

A type becomes a Construct when version and form are known (``at``): a string has an int16 in front in the older
versions and a varint in the flexible ones. JSON is checked as strictly as Kafka's own converters do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from kproto.errors import EncodeError, OutOfRange
from kproto.json_form import bytes_from_json, bytes_to_json, uuid_from_json, uuid_to_json
from kproto.types import ZERO_UUID

from . import primitives
from .fields import Type

if TYPE_CHECKING:
    from construct import Construct

    from .fields import StructClass


def _wrong(expected: str, json: object, path: str) -> EncodeError:
    return EncodeError(f"expected {expected}, got {'null' if json is None else type(json).__name__}", path)


class _Integer(Type):
    default = 0

    def __init__(self, code: str) -> None:
        self.construct = primitives.Integer(code)

    def at(self, version: int, flexible: bool, nullable: bool) -> Construct:
        return self.construct

    def from_json(self, json: Any, version: int, path: str) -> int:
        if type(json) is not int:
            raise _wrong("an integer", json, path)
        low, high = self.construct.low, self.construct.high
        if high == 127 and 128 <= json <= 256:
            return json - 128 if json < 256 else -128  # Kafka's converter takes it for an unsigned byte, and shifts it
        if not low <= json <= high:
            raise OutOfRange(f"{json} is not in {low}..{high}", path)
        return json


class _Float64(Type):
    """A double. JSON has NaN and the infinities as text, as Kafka's JSON has."""

    default = 0.0

    def at(self, version: int, flexible: bool, nullable: bool) -> Construct:
        return primitives.Double()

    def to_json(self, value: Any, version: int, path: str) -> object:
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return value

    def from_json(self, json: Any, version: int, path: str) -> float:
        if json in ("NaN", "Infinity", "-Infinity"):
            return float(json)
        if type(json) not in (int, float):
            raise _wrong("a number", json, path)
        return float(json)


class _Bool(Type):
    default = False

    def at(self, version: int, flexible: bool, nullable: bool) -> Construct:
        return primitives.Bool()

    def from_json(self, json: Any, version: int, path: str) -> bool:
        if type(json) is not bool:
            raise _wrong("true or false", json, path)
        return json


class _Uuid(Type):
    default = ZERO_UUID

    def at(self, version: int, flexible: bool, nullable: bool) -> Construct:
        return primitives.UuidBytes()

    def to_json(self, value: Any, version: int, path: str) -> str:
        return uuid_to_json(value)

    def from_json(self, json: Any, version: int, path: str) -> bytes:
        return uuid_from_json(json, path)


class _String(Type):
    """UTF-8 with an int16 length; from the first flexible version on a compact one, unless ``always_plain``."""

    default = ""

    def __init__(self, always_plain: bool = False) -> None:
        self.always_plain = always_plain

    def at(self, version: int, flexible: bool, nullable: bool) -> Construct:
        compact = flexible and not self.always_plain
        return primitives.Text(primitives.COMPACT_LENGTH if compact else primitives.INT16_LENGTH, nullable)

    def from_json(self, json: Any, version: int, path: str) -> str:
        if not isinstance(json, str):
            raise _wrong("a string", json, path)
        return json


class _Bytes(Type):
    default = b""

    def at(self, version: int, flexible: bool, nullable: bool) -> Construct:
        return primitives.Bytes(primitives.COMPACT_LENGTH if flexible else primitives.INT32_LENGTH, nullable)

    def to_json(self, value: Any, version: int, path: str) -> str:
        return bytes_to_json(value)

    def from_json(self, json: Any, version: int, path: str) -> bytes:
        return bytes_from_json(json, path)


class _StructOf(Type):
    """A nested struct: the element of an array, or a tagged field that is written once it is not the default."""

    def __init__(self, cls: StructClass) -> None:
        self.cls = cls

    @property
    def default(self) -> Any:
        """The struct with its own defaults; an object of its own for every field."""
        return self.cls()

    def at(self, version: int, flexible: bool, nullable: bool) -> Construct:
        """The Construct of the struct's class."""
        return self.cls.fields.at(self.cls, version, flexible)

    def to_json(self, value: Any, version: int, path: str) -> object:
        """The struct's fields in JSON."""
        return self.cls.fields.to_json(value, version, path)

    def from_json(self, json: Any, version: int, path: str) -> Any:
        """The struct behind the JSON."""
        return self.cls(**self.cls.fields.from_json(json, version, path))


class _ArrayOf(Type):
    """An array of scalars, held as a tuple, or of structs, held as a list."""

    def __init__(self, item: Type | StructClass) -> None:
        self.item = item if isinstance(item, Type) else _StructOf(item)
        self.sequence: type[Any] = list if isinstance(self.item, _StructOf) else tuple

    @property
    def default(self) -> Any:
        """Empty; a list of its own for every object."""
        return self.sequence()

    def at(self, version: int, flexible: bool, nullable: bool) -> Construct:
        """An int32 count in front, or a compact one."""
        length = primitives.COMPACT_LENGTH if flexible else primitives.INT32_LENGTH
        return primitives.Elements(self.item.at(version, flexible, nullable=False), length, nullable, self.sequence)

    def keep(self, value: Any) -> Any:
        """A copy of a sequence; other values are returned as they are, and the encoder refuses them."""
        if value is None or isinstance(value, str | bytes):
            return value
        try:
            return self.sequence(value)
        except TypeError:
            return value

    def to_json(self, value: Any, version: int, path: str) -> list[object]:
        """A list of the JSON values of its elements."""
        if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
            raise EncodeError(f"expected a sequence, got {type(value).__name__}", path)
        return [self.item.to_json(item, version, f"{path}[{i}]") for i, item in enumerate(value)]

    def from_json(self, json: Any, version: int, path: str) -> Any:
        """The elements, as an object holds them."""
        if not isinstance(json, list | tuple):
            raise _wrong("an array", json, path)
        return self.keep([self.item.from_json(item, version, f"{path}[{i}]") for i, item in enumerate(json)])


class _Nullable(Type):
    """A type with null beside its values, from version ``since`` on. The default stays that of the type."""

    def __init__(self, of: Type, since: int = 0) -> None:
        self.of = of
        self.since = since

    @property
    def default(self) -> Any:
        """The type's own."""
        return self.of.default

    def nullable_in(self, version: int) -> bool:
        """From ``since`` on."""
        return version >= self.since

    def at(self, version: int, flexible: bool, nullable: bool) -> Construct:
        """The type's own, with null where the version has it."""
        return self.of.at(version, flexible, self.nullable_in(version))

    def keep(self, value: Any) -> Any:
        """As the type does."""
        return self.of.keep(value)

    def to_json(self, value: Any, version: int, path: str) -> object:
        """As the type does; null has been dealt with."""
        return self.of.to_json(value, version, path)

    def from_json(self, json: Any, version: int, path: str) -> Any:
        """As the type does, or null."""
        if json is None and self.nullable_in(version):
            return None
        return self.of.from_json(json, version, path)


# Any, since a class assigns them to fields that have the types of their values.

Bool: Final[Any] = _Bool()
Int8: Final[Any] = _Integer("b")
Int16: Final[Any] = _Integer("h")
UInt16: Final[Any] = _Integer("H")
Int32: Final[Any] = _Integer("l")
Int64: Final[Any] = _Integer("q")
Float64: Final[Any] = _Float64()
Uuid: Final[Any] = _Uuid()
String: Final[Any] = _String()
PlainString: Final[Any] = _String(always_plain=True)
Bytes: Final[Any] = _Bytes()
Records: Final[Any] = _Bytes()
StructOf: Final[Any] = _StructOf
ArrayOf: Final[Any] = _ArrayOf
Nullable: Final[Any] = _Nullable
