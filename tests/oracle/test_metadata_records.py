"""The records of KRaft's metadata log, in every version, against the classes of Kafka 4.1.0."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from metadata_strategies import CONTROL_VERSIONS, VERSIONS, records

from kproto.errors import DecodeError
from kproto.metadata_log.records import AccessControlRecord, ControlRecord, MetadataRecord

CASES = [case for case in (*VERSIONS, *CONTROL_VERSIONS) if case[0] is not AccessControlRecord]
"""All but the record that Kafka 3.3 alone defines."""
few = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def question(op: str, cls: type[MetadataRecord], version: int, **more: Any) -> dict[str, Any]:
    kind = "control_record" if issubclass(cls, ControlRecord) else "metadata_record"
    return {"op": op, "api": cls.record_type, "version": version, "kind": kind} | more


@pytest.mark.parametrize(("cls", "version"), CASES)
@few
@given(data=st.data())
def test_records_are_written_and_read_as_kafka_does(
    cls: type[MetadataRecord], version: int, data: st.DataObject, later_oracle: Any
) -> None:
    record = data.draw(records(cls, version))
    written, form = record.encode(record.version), record.to_json()
    read, encoded = later_oracle.ask(
        [question("decode", cls, version, hex=written.hex()), question("encode", cls, version, json=form)]
    )
    assert read["ok"], read
    assert (read["consumed"], read["json"], read["reencoded"]) == (len(written), form, written.hex())
    assert encoded.get("hex") == written.hex(), encoded


@pytest.mark.parametrize(("cls", "version"), CASES)
@few
@given(data=st.data())
def test_damaged_records_are_read_or_refused_as_kafka_does(
    cls: type[MetadataRecord], version: int, data: st.DataObject, later_oracle: Any
) -> None:
    """What Kafka refuses or leaves bytes of is a DecodeError here, and what it reads is the same record."""
    damaged = bytearray(data.draw(records(cls, version)).encode(version))
    begin = 2 if issubclass(cls, ControlRecord) else 0  # a control record's first field is the version it is read with
    for at in data.draw(st.lists(st.integers(begin, max(begin, len(damaged) - 1)), max_size=2)):
        damaged[at] = data.draw(st.integers(0, 255))
    whole = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    answer = later_oracle.ask_one(**question("decode", cls, version, hex=whole.hex()))
    try:
        record, _used = cls.decode(version, whole)
    except DecodeError:
        assert not answer["ok"] or answer["consumed"] < len(whole), answer
        return
    assert answer["ok"], (answer, record)
    assert (answer["consumed"], answer["json"]) == (len(whole), record.to_json())
    if answer["reencoded"] is not None:
        assert record.encode(record.version).hex() == answer["reencoded"]
