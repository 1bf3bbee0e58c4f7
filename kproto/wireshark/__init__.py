"""Makes a Wireshark dissector of the three control requests from the reference codec's declarations.

``dissector()`` gives it as Lua source: tables of each version's fields in wire order, then ``dissector.lua``, which
reads messages by them. Filter fields have the protocol's names: ``kproto.leader_epoch == 7``.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Literal

import kproto
from kproto.api import CONTROL_APIS, ApiKey, api_name, check_version
from kproto.error_codes import ErrorCode
from kproto.reference import message_class
from kproto.reference.datatypes import ArrayOf, Nullable
from kproto.reference.primitives import Text

if TYPE_CHECKING:
    from kproto.reference.fields import Field, Type

__all__ = ["FILE_NAME", "dissector"]

FILE_NAME: Final = "kproto.lua"
"""The dissector's name in Wireshark's folder of plugins."""

_KINDS: Final[tuple[Literal["request", "response"], ...]] = ("request", "response")
_COUNTED: Final = ("ungrouped_partition_states", "partition_states", "ungrouped_partitions", "partition_errors")
"""Arrays whose elements are partitions: the packet list shows their number."""


def dissector() -> str:
    """Return the dissector's Lua source, for Wireshark 3.6 and newer."""
    source = resources.files(__package__).joinpath("dissector.lua").read_text(encoding="utf-8")
    return source.replace("--@DECLARATIONS@\n", _declarations())


def _declarations() -> str:
    structs: dict[str, dict[int, Any]] = {}
    kinds: dict[str, str] = {}
    messages: dict[int, dict[str, Any]] = {}
    for api in sorted(CONTROL_APIS):
        messages[int(api)] = {}
        for kind in _KINDS:
            cls = message_class(api, kind)
            info = check_version(api, 0)
            flexible = next(v for v in range(info.max_version + 2) if v > info.max_version or info.is_flexible(v))
            messages[int(api)][kind] = {"struct": cls.__name__, "flexible": flexible}
            for version in range(info.max_version + 1):
                _add_struct(structs, kinds, cls, version)
    tables = {
        "MESSAGES": messages,
        "NEWEST": {int(api): check_version(api, 0).max_version for api in sorted(CONTROL_APIS)},
        "STRUCTS": structs,
        "FIELDS": kinds,
        "APIS": {int(api): api_name(api) for api in ApiKey},
        "ERRORS": {int(code): code.name for code in ErrorCode},
    }
    head = f"-- kproto {kproto.__version__}\n"
    return head + "".join(f"local {name} = {_lua(value)}\n" for name, value in tables.items())


def _add_struct(structs: dict[str, dict[int, Any]], kinds: dict[str, str], cls: Any, version: int) -> None:
    """Add a struct's fields of one version, and those of the structs in it."""
    fields = list(cls.fields.all.values())
    present = [field for field in fields if field.exists_in(version)]
    tagged = {field.tag: field for field in present if field.tag is not None}
    elsewhere = {field.tag: True for field in fields if field.tag is not None and field.tag not in tagged}
    declared: dict[Any, Any] = {
        position: _field(field, kinds) for position, field in enumerate((f for f in present if f.tag is None), start=1)
    }
    declared["tags"] = {tag: _field(field, kinds) for tag, field in tagged.items()}
    declared["elsewhere"] = elsewhere
    structs.setdefault(cls.__name__, {})[version] = declared
    for field in present:
        nested = _nested(field.type)
        if nested is not None:
            _add_struct(structs, kinds, nested, version)


def _field(field: Field, kinds: dict[str, str]) -> dict[str, Any]:
    of, nullable = field.type, False
    if isinstance(of, Nullable):
        assert of.since == 0, field.name
        of, nullable = of.of, True
    row: dict[str, Any] = {"name": field.name, "type": "array" if isinstance(of, ArrayOf) else _kind(of)}
    if nullable:
        row["nullable"] = True
    nested = _nested(of)
    if nested is not None:
        row["struct"] = nested.__name__
        if field.name in _COUNTED:
            row["counted"] = True
        return row
    kind = _kind(of.item) if isinstance(of, ArrayOf) else _kind(of)
    if isinstance(of, ArrayOf):
        row["of"] = kind
        if field.name == "partition_indexes":
            row["counted"] = True
    assert kinds.setdefault(field.name, kind) == kind, f"{field.name} has two types"
    return row


def _nested(of: Type) -> Any:
    """Return the struct that an array holds; None of any other type."""
    of = of.of if isinstance(of, Nullable) else of
    return getattr(of.item, "cls", None) if isinstance(of, ArrayOf) else None


def _kind(of: Type) -> str:
    """Return the name of Wireshark's field type."""
    name = type(of).__name__.lower().lstrip("_")
    if name == "integer":
        construct = of.at(0, False, False)
        return f"{'u' if construct.low == 0 else ''}int{8 * construct.length}"
    if name == "string":
        assert isinstance(of.at(0, False, False), Text)
    assert name in ("bool", "uuid", "string"), name
    return name


def _lua(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"[{_lua(key)}]={_lua(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    assert isinstance(value, str)
    assert value.isidentifier() or not value, value
    return f'"{value}"'
