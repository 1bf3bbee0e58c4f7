"""Fields and the versions that have them.

A struct of a message declares each field once, over all its versions, with the type that its value has in Python::

    controller_id: int = Int32
    is_kraft_controller: bool = Since(7, Bool)
    broker_epoch: int = Since(2, Int64, default=-1, ignorable=True)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = Until(1, ArrayOf(LeaderAndIsrPartitionState))

``Fields.at`` leaves out what a version lacks and gives the ``construct.Struct`` of that version, which parses and
builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from construct import Adapter, Construct
from construct import Struct as ConstructStruct

from kproto.errors import EncodeError, FieldNotInVersion
from kproto.json_form import camel_case

from .primitives import TaggedFields
from .wire import TAGGED_SECTION, field_path

if TYPE_CHECKING:
    from construct import Container

_NEWEST = 1 << 15
_OF_TYPE: Any = object()  # stands for the default of the field's type


class Type:
    """What a field holds; assigned in the body of a struct, a field that every version has.

    Attributes:
        default: The value in a fresh object, unless the field names another.
    """

    default: Any

    def at(self, version: int, flexible: bool, nullable: bool) -> Construct:
        """The Construct of one version; ``flexible`` chooses the compact forms."""
        raise NotImplementedError

    def nullable_in(self, version: int) -> bool:
        """Whether null is allowed in a version."""
        return False

    def keep(self, value: Any) -> Any:
        """The form in which an object holds a value that was assigned to it."""
        return value

    def to_json(self, value: Any, version: int, path: str) -> object:
        """A value of this type in JSON; null has been dealt with."""
        return value

    def from_json(self, json: Any, version: int, path: str) -> Any:
        """The value behind the JSON.

        Raises:
            EncodeError: It is no such value.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Field:
    """A named field and its versions.

    Attributes:
        since, until: The first and the last version that have it.
        default: The value in a fresh object, where it differs from the type's own default.
        ignorable: Whether a version that lacks the field drops its value; otherwise only the default may be dropped.
        tag: The tag under which it stands in the tagged section, None for a field of the body.
    """

    type: Type
    since: int = 0
    until: int = _NEWEST
    default: Any = _OF_TYPE
    ignorable: bool = False
    tag: int | None = None
    name: str = ""
    json_name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "json_name", camel_case(self.name))

    def exists_in(self, version: int) -> bool:
        """Whether a version has the field."""
        return self.since <= version <= self.until

    def fresh(self) -> Any:
        """The value of a fresh object."""
        return self.type.default if self.default is _OF_TYPE else self.default

    def check_droppable(self, value: Any, version: int, path: str) -> None:
        """Make sure that a version without this field loses nothing.

        Raises:
            FieldNotInVersion: The value is not the default, and the field is not ignorable.
        """
        if self.ignorable or value == self.fresh():
            return
        if value is None and not self.type.nullable_in(version):
            raise EncodeError("null, where null is not allowed", path)
        raise FieldNotInVersion(f"version {version} has no such field, and its value is not the default", path)


def Since(version: int, of: Type, *, default: Any = _OF_TYPE, ignorable: bool = False) -> Any:
    """A field of ``version`` and all later ones."""
    return Field(of, since=version, default=default, ignorable=ignorable)


def Until(version: int, of: Type, *, default: Any = _OF_TYPE, ignorable: bool = False) -> Any:
    """A field of version 0 up to and with ``version``."""
    return Field(of, until=version, default=default, ignorable=ignorable)


def Between(first: int, last: int, of: Type, *, default: Any = _OF_TYPE, ignorable: bool = False) -> Any:
    """A field of the versions ``first`` to ``last``, both included."""
    return Field(of, since=first, until=last, default=default, ignorable=ignorable)


def Tagged(tag: int, of: Type, *, since: int, default: Any = _OF_TYPE, ignorable: bool = False) -> Any:
    """A field of the tagged section, from version ``since`` on; written only when it is not the default."""
    return Field(of, since=since, default=default, ignorable=ignorable, tag=tag)


class StructClass(Protocol):
    """A class with fields: ``struct.Struct`` and the messages."""

    @property
    def fields(self) -> Fields:
        """The class's fields over all versions."""

    def of_values(self, values: Mapping[str, Any], version: int) -> Any:
        """Make an object of the values read in a version."""

    def __call__(self, **values: Any) -> Any:
        """Make an object from values by name."""


class Fields:
    """The fields of one struct in wire order, over all its versions."""

    def __init__(self, declared: Mapping[str, Type | Field]) -> None:
        self.all: dict[str, Field] = {
            name: replace(of if isinstance(of, Field) else Field(of), name=name) for name, of in declared.items()
        }
        self.names: tuple[str, ...] = (*self.all, "unknown_tagged_fields")
        self._constructs: dict[tuple[int, bool], Construct] = {}

    def at(self, cls: StructClass, version: int, flexible: bool) -> Construct:
        """The Construct of one version, which parses to and builds from objects of ``cls``."""
        key = version, flexible
        if key not in self._constructs:
            present = [f for f in self.all.values() if f.exists_in(version)]
            body = [f.name / f.type.at(version, flexible, nullable=False) for f in present if f.tag is None]
            if flexible:
                tagged = {
                    f.tag: (f.name, f.type.at(version, flexible, nullable=False), f.fresh())
                    for f in present
                    if f.tag is not None
                }
                every_tag = frozenset(f.tag for f in self.all.values() if f.tag is not None)
                body.append(TAGGED_SECTION / TaggedFields(tagged, every_tag - tagged.keys()))
            self._constructs[key] = _Wrapped(ConstructStruct(*body), cls, version, flexible)
        return self._constructs[key]

    def check_absent(self, values: Mapping[str, Any], version: int, path: str) -> None:
        """Make sure that what a version lacks may be dropped.

        Raises:
            EncodeError: It may not.
        """
        for field in self.all.values():
            if not field.exists_in(version):
                field.check_droppable(values[field.name], version, f"{path}.{field.name}" if path else field.name)

    def to_json(self, struct: Any, version: int, path: str = "") -> dict[str, object]:
        """Kafka's JSON form of one version. Unknown tagged fields have no place in it.

        Raises:
            EncodeError: A value that has no place in this version, or null where null is not allowed.
        """
        values = values_of(struct, self, path)
        self.check_absent(values, version, path)
        json: dict[str, object] = {}
        for name, field in self.all.items():
            if not field.exists_in(version):
                continue
            value = values[name]
            where = f"{path}.{name}" if path else name
            if field.tag is not None and value == field.fresh():
                continue
            if value is None:
                if not field.type.nullable_in(version):
                    raise EncodeError("null, where null is not allowed", where)
                json[field.json_name] = None
            else:
                json[field.json_name] = field.type.to_json(value, version, where)
        return json

    def from_json(self, json: Any, version: int, path: str = "") -> dict[str, Any]:
        """The values behind Kafka's JSON form of one version; keys that it does not know are passed over.

        Raises:
            EncodeError: A field of this version is missing, of the wrong type, or out of range.
        """
        if not isinstance(json, Mapping):
            raise EncodeError(f"expected an object, got {'null' if json is None else type(json).__name__}", path)
        values: dict[str, Any] = {}
        for name, field in self.all.items():
            if not field.exists_in(version):
                continue
            where = f"{path}.{name}" if path else name
            if field.json_name in json:
                values[name] = field.type.from_json(json[field.json_name], version, where)
            elif field.tag is None:
                raise EncodeError(f"{field.json_name!r} is missing", where)
        return values


def values_of(struct: Any, fields: Fields, path: str) -> dict[str, Any]:
    """Return the values of a struct that must have just these fields.

    Raises:
        EncodeError: It is null, or a struct of another kind.
    """
    if struct is None:
        raise EncodeError("null, where null is not allowed", path)
    if getattr(type(struct), "fields", None) is not fields:
        raise EncodeError(f"a {type(struct).__name__} has no place here", path)
    values: dict[str, Any] = struct.to_values()
    return values


class _Wrapped(Adapter):  # type: ignore[misc]
    """Turns the container that Construct parses into an object, and an object into values that Construct builds."""

    def __init__(self, subcon: Construct, cls: StructClass, version: int, flexible: bool) -> None:
        super().__init__(subcon)
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.absent = [f for f in cls.fields.all.values() if not f.exists_in(version) or f.tag is not None]

    def _decode(self, obj: Container, context: Any, path: str) -> Any:
        for field in self.absent:
            obj[field.name] = field.fresh()
        obj.update(obj.pop(TAGGED_SECTION, {"unknown_tagged_fields": ()}))
        return self.cls.of_values(obj, self.version)

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:
        where = field_path(path)
        values = values_of(obj, self.cls.fields, where)
        self.cls.fields.check_absent(values, self.version, where)
        if not self.flexible:
            if values["unknown_tagged_fields"]:
                raise FieldNotInVersion(
                    f"version {self.version} has no tagged fields", f"{where}.unknown_tagged_fields".lstrip(".")
                )
            return values
        return {**values, TAGGED_SECTION: values}
