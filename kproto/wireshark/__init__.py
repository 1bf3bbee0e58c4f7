"""Makes a Wireshark dissector from the reference codec's declarations: of the three control requests, and of KRaft's
Fetch with the records of the metadata log.

``dissector()`` gives it as Lua source: tables of each version's fields in wire order, then ``dissector.lua``, which
reads messages by them. Filter fields have the protocol's names: ``kproto.leader_epoch == 7``.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Literal

import kproto
from kproto.api import CONTROL_APIS, ApiKey, api_name, check_version
from kproto.error_codes import ErrorCode
from kproto.metadata_log.records import CONTROL_RECORDS, RECORDS
from kproto.reference import message_class
from kproto.reference.datatypes import ArrayOf, Nullable, Records, StructOf
from kproto.reference.primitives import Text

if TYPE_CHECKING:
    from kproto.reference.fields import Field, Type

__all__ = ["FILE_NAME", "dissector"]

FILE_NAME: Final = "kproto.lua"
"""The dissector's name in Wireshark's folder of plugins."""

_KINDS: Final[tuple[Literal["request", "response"], ...]] = ("request", "response")
_APIS: Final = (*sorted(CONTROL_APIS), ApiKey.FETCH)
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
    for api in _APIS:
        messages[int(api)] = {}
        info = check_version(api, 0)
        newest = info.newest_version
        flexible = next(v for v in range(newest + 2) if v > newest or info.is_flexible(v))
        for kind in _KINDS:
            struct = _add_struct(structs, kinds, message_class(api, kind), newest)
            messages[int(api)][kind] = {"struct": struct, "flexible": flexible}
    records, control_records = (
        {
            number: {"struct": _add_struct(structs, kinds, cls, cls.newest), "newest": cls.newest, "title": cls.title()}
            for number, cls in among.items()
        }
        for among in (RECORDS, CONTROL_RECORDS)
    )
    tables = {
        "MESSAGES": messages,
        "RECORDS": records,
        "CONTROL_RECORDS": control_records,
        "NEWEST": {int(api): check_version(api, 0).newest_version for api in _APIS},
        "STRUCTS": structs,
        "FIELDS": kinds,
        "APIS": {int(api): api_name(api) for api in ApiKey},
        "ERRORS": {int(code): code.name for code in ErrorCode},
    }
    head = f"-- kproto {kproto.__version__}\n"
    return head + "".join(f"local {name} = {_lua(value)}\n" for name, value in tables.items())


def _add_struct(
    structs: dict[str, dict[int, Any]], kinds: dict[str, str], cls: Any, newest: int, oldest: int = 0
) -> str:
    """Add a struct's fields in some versions, and those of the structs in it; return its name."""
    for version in range(oldest, newest + 1):
        fields = list(cls.fields.all.values())
        present = [field for field in fields if field.exists_in(version)]
        tagged = {field.tag: field for field in present if field.tag is not None}
        elsewhere = {field.tag: True for field in fields if field.tag is not None and field.tag not in tagged}
        plain = (field for field in present if field.tag is None)
        declared: dict[Any, Any] = {at: _field(field, kinds, version) for at, field in enumerate(plain, start=1)}
        declared["tags"] = {tag: _field(field, kinds, version) for tag, field in tagged.items()}
        declared["elsewhere"] = elsewhere
        structs.setdefault(_struct_name(cls), {})[version] = declared
        for field in present:
            nested = _nested(field.type)
            if nested is not None:
                _add_struct(structs, kinds, nested, version, version)
    return _struct_name(cls)


def _struct_name(cls: Any) -> str:
    return f"{cls.__module__.rpartition('.')[2]}_{cls.__name__}"


def _field(field: Field, kinds: dict[str, str], version: int) -> dict[str, Any]:
    of = field.type.of if isinstance(field.type, Nullable) else field.type
    row: dict[str, Any] = {"name": field.name, "type": "array" if isinstance(of, ArrayOf) else _kind(of)}
    if field.type.nullable_in(version):
        row["nullable"] = True
    nested = _nested(of)
    if nested is not None:
        row["struct"] = _struct_name(nested)
        if field.name in _COUNTED:
            row["counted"] = True
        return row
    kind = _kind(of.item) if isinstance(of, ArrayOf) else _kind(of)
    if isinstance(of, ArrayOf):
        row["of"] = kind
        if field.name == "partition_indexes":
            row["counted"] = True
    if kinds.setdefault(field.name, kind) != kind:  # a filter has one type
        row["name"] = f"{field.name}_{kind}"
        kinds[row["name"]] = kind
    return row


def _nested(of: Type) -> Any:
    """Return the struct that a field or the elements of its array are; None of any other type."""
    of = of.of if isinstance(of, Nullable) else of
    of = of.item if isinstance(of, ArrayOf) else of
    return of.cls if isinstance(of, StructOf) else None


def _kind(of: Type) -> str:
    """Return the name of Wireshark's field type; ``struct`` and ``records`` have none."""
    if isinstance(of, StructOf):
        return "struct"
    if of is Records:
        return "records"
    name = type(of).__name__.lower().lstrip("_")
    if name == "integer":
        construct = of.at(0, False, False)
        return f"{'u' if construct.low == 0 else ''}int{8 * construct.length}"
    if name == "string":
        assert isinstance(of.at(0, False, False), Text)
    assert name in ("bool", "uuid", "string", "bytes", "float64"), name
    return "double" if name == "float64" else name


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
