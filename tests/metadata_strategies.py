"""Metadata records of any type and version, for properties."""

from typing import Any

from hypothesis import strategies as st

from kproto.metadata_log.records import CONTROL_RECORDS, RECORDS, MetadataRecord
from kproto.reference.datatypes import ArrayOf, Nullable, StructOf
from kproto.reference.fields import Fields, Type

VERSIONS = [(cls, version) for cls in RECORDS.values() for version in range(cls.newest + 1)]
CONTROL_VERSIONS = [(cls, version) for cls in CONTROL_RECORDS.values() for version in range(cls.newest + 1)]

_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "_Bool": st.booleans(),
    "_String": st.text(st.characters(codec="utf-8"), max_size=12),
    "_Bytes": st.binary(max_size=20),
    "_Uuid": st.binary(min_size=16, max_size=16),
    "_Float64": st.floats(allow_nan=False),
}


def values(of: Type, version: int) -> st.SearchStrategy[Any]:
    if isinstance(of, Nullable):
        inner = values(of.of, version)
        return st.none() | inner if of.nullable_in(version) else inner
    if isinstance(of, ArrayOf):
        items = st.lists(values(of.item, version), max_size=4)
        return items.map(of.sequence)
    if isinstance(of, StructOf):
        return fields(of.cls.fields, version).map(lambda given: of.cls(**given))
    if type(of).__name__ == "_Integer":
        return st.integers(of.construct.low, of.construct.high)  # type: ignore[attr-defined]
    return _PLAIN[type(of).__name__]


def fields(of: Fields, version: int) -> st.SearchStrategy[dict[str, Any]]:
    present = {name: values(field.type, version) for name, field in of.all.items() if field.exists_in(version)}
    return st.fixed_dictionaries(present)


def records(cls: type[MetadataRecord], version: int) -> st.SearchStrategy[MetadataRecord]:
    return fields(cls.fields, version).map(lambda given: cls(**(given | {"version": version})))
