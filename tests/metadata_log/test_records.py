"""Metadata records: equal to Kafka's own dump, both ways, in every version, and whatever the bytes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import kproto_rows
from hypothesis import given
from hypothesis import strategies as st
from kraft_runs import MADE, NODES, RUNS, metadata, truth
from metadata_strategies import CONTROL_VERSIONS, VERSIONS, records

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
from kproto.reference.wire import parse

LATE = {"kraft-4.0-a": 0}
"""Nodes whose logs begin at a snapshot."""


@pytest.mark.parametrize(
    ("run", "node"),
    [(run, node) for run in (*RUNS, *MADE) for node in (*NODES[run], None) if node != LATE.get(run, -1)],
)
def test_every_record_is_as_kafkas_dump_prints_it(run: str, node: int | None) -> None:
    files, others = find([metadata(run, node)])
    log = read(files)
    assert (others, log.faults, log.gaps) == ([], [], [])
    found = [each for batch in log.batches for each in batch.records()]
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


@pytest.mark.parametrize("run", MADE)
def test_what_inspect_prints_is_as_kafkas_dump_prints_it(run: str) -> None:
    """The log from its beginning, or from a snapshot on; and snapshots that are named."""

    def printed(place: Path) -> list[dict[str, Any]]:
        return kproto_rows("inspect", place, "--records", "--show-secrets")

    def like(found: list[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> None:
        assert len(found) == len(expected) > 0
        for row, wanted in zip(found, expected, strict=True):  # of control records Kafka prints no version, 3.9 no data
            title = {"type": row["type"]} if "data" in wanted else {"type": wanted["type"]}
            assert wanted.items() <= (row | title).items()
            assert row["type"].upper() == wanted["type"].replace("_", "").upper() or "data" in wanted

    node = LATE.get(run, NODES[run][-1])
    found = printed(metadata(run, node))
    own = [row for row in found if "snapshot" not in row]
    like(own, [row for row in truth(run) if own[0]["offset"] <= row["offset"] <= own[-1]["offset"]])
    assert ("snapshot" in found[0]) == (own[0]["offset"] > 0)
    snapshots = truth(run, of_snapshots=True)
    for name in {row["snapshot"] for row in snapshots}:
        (place, *_others) = metadata(run).glob(f"node*/{name}.checkpoint")
        like(printed(place), [row for row in snapshots if row["snapshot"] == name])


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
    assert decode_control_record(bytes([0, 0, 0, cls.record_type]), record.encode(record.version)) == record


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
