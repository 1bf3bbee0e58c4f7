"""Metadata records: equal to Kafka's own dump, both ways, in every version, and whatever the bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kraft_runs import NODES, RUNS, metadata, truth

from kproto.errors import DecodeError, UnsupportedVersion
from kproto.metadata_log.files import read
from kproto.metadata_log.finding import find
from kproto.metadata_log.records import (
    CONTROL_RECORDS,
    RECORDS,
    ControlRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    UnknownRecord,
    decode_control_record,
    decode_record,
    encode_record,
)
from kproto.metadata_log.secrets import HIDDEN, without_secrets
from kproto.reference.datatypes import ArrayOf, Nullable, StructOf
from kproto.reference.fields import Fields, Type
from kproto.reference.wire import parse

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


@pytest.mark.parametrize(("run", "node"), [(run, node) for run in RUNS for node in (*NODES[run], None)])
def test_every_record_is_as_kafkas_dump_prints_it(run: str, node: int | None) -> None:
    files, others = find([metadata(run, node)])
    log = read(files)
    assert (others, log.faults, log.gaps) == ([], [], [])
    found = list(log.records())
    last = found[-1].offset
    expected = [row for row in truth(run) if row["offset"] <= last]
    assert [each.offset for each in found] == [row["offset"] for row in expected]
    for each, row in zip(found, expected, strict=True):
        assert each.record is not None, each
        assert (each.time_ms, each.epoch) == (row["time_ms"], row["epoch"])
        if "data" in row:
            assert (each.record.title(), each.record.to_json()) == (row["type"], row["data"])
        else:  # Kafka 3.9 prints a control record's type alone
            assert each.is_control
            assert each.record.title().upper() == row["type"].replace("_", "")
        if "version" in row:
            assert each.record.version == row["version"]


def test_the_types_are_those_that_kafka_defines() -> None:
    assert sorted(RECORDS) == [*range(13), 14, 15, *range(17, 29)]
    assert sorted(CONTROL_RECORDS) == [2, 3, 4, 5, 6]
    assert RECORDS[5].title() == "PARTITION_CHANGE_RECORD"
    assert RECORDS[20].title() == "NO_OP_RECORD"


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
@given(st.data())
def test_what_was_written_is_read(cls: type[MetadataRecord], version: int, data: st.DataObject) -> None:
    record = data.draw(records(cls, version))
    assert decode_record(encode_record(record)) == record
    form = record.to_json()
    assert record.to_json_text() == json.dumps(form)
    assert cls(version=version, **cls.fields.from_json(form, version)) == record


@pytest.mark.parametrize(("cls", "version"), CONTROL_VERSIONS)
@given(st.data())
def test_control_records_too(cls: type[ControlRecord], version: int, data: st.DataObject) -> None:
    record = data.draw(records(cls, version))
    assert decode_control_record(bytes([0, 0, 0, cls.record_type]), record.write()) == record


@pytest.mark.parametrize("cls", [PartitionRecord, PartitionChangeRecord])
@given(st.data())
def test_the_reader_by_hand_equals_the_declared_one(cls: type[MetadataRecord], data: st.DataObject) -> None:
    """On valid bytes, damaged ones, and cut ones: the same record, or the same error."""
    version = data.draw(st.integers(0, cls.newest))
    value = bytearray(encode_record(data.draw(records(cls, version))))
    for at in data.draw(st.lists(st.integers(3, len(value) - 1), max_size=2)):
        value[at] = data.draw(st.integers(0, 255))
    whole = bytes(value[: data.draw(st.integers(3, len(value)))])

    def declared() -> Any:
        construct = cls.fields.at(cls, version, flexible=True)
        return parse(construct, whole[3:], api_key=None, version=version, strict=False, alone=True)[0]

    assert outcome(lambda: decode_record(whole)) == outcome(declared)


def outcome(read_it: Any) -> Any:
    try:
        return read_it()
    except DecodeError as e:
        return str(e)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_decode_error(value: bytes) -> None:
    try:
        record = decode_record(value)
    except DecodeError:
        return
    record.to_json()


def test_unknown_types_and_versions_keep_their_bytes() -> None:
    later = UnknownRecord(90, 3, b"\x01\x02")
    found = decode_record(encode_record(later))
    assert isinstance(found, UnknownRecord)
    assert (found.record_type, found.version, found.data, found.title()) == (90, 3, b"\x01\x02", "UNKNOWN_90")
    newer = decode_record(bytes([1, 2, 9, 7, 7]))
    assert isinstance(newer, UnknownRecord)
    assert (newer.title(), newer.version, newer.to_json()) == ("TOPIC_RECORD", 9, {"bytes": "0707"})
    with pytest.raises(UnsupportedVersion):
        RECORDS[2](version=9)


@pytest.mark.parametrize(
    ("record", "hidden"),
    [
        (RECORDS[4](resource_type=4, name="ssl.keystore.password", value="hunter2"), {"value": HIDDEN}),
        (RECORDS[4](resource_type=4, name="listener.name.x.sasl.jaas.config", value="hunter2"), {"value": HIDDEN}),
        (RECORDS[4](resource_type=2, name="retention.ms", value="1"), {}),
        (RECORDS[11](salt=b"1", stored_key=b"2", server_key=b"3"), {"salt": "", "storedKey": "", "serverKey": ""}),
        (RECORDS[10](owner="u", token_id="hunter2"), {"tokenId": HIDDEN}),
        (RECORDS[26](token_id="hunter2"), {"tokenId": HIDDEN}),
    ],
)  # fmt: skip
def test_secrets_are_hidden(record: MetadataRecord, hidden: dict[str, str]) -> None:
    assert without_secrets(record).to_json() == record.to_json() | hidden
