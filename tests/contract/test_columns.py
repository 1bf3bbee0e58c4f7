"""The columns of a message hold what its JSON form holds, row for row, and refuse what decoding to objects refuses."""

import base64
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from answers import answer
from conftest import few
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import VERSIONS, by_hand, json_forms, mutations

from kproto.codec import get_codec
from kproto.errors import DecodeError, UnsupportedApi, UnsupportedVersion
from kproto.json_form import camel_case

ROWS = [v for v in VERSIONS if v[::2] != (6, "response")]  # which has no partitions
EACH = pytest.mark.parametrize(("api", "version", "kind"), few(ROWS, 12))
ZERO = bytes(16)


def rows_of(form: dict[str, Any]) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """(topic, topic id, the rest) of every partition in a message's JSON form, in wire order."""
    for name in ("ungroupedPartitionStates", "ungroupedPartitions", "partitionErrors"):
        for row in form.get(name, []):
            yield row["topicName"], ZERO, row
    for topic in form.get("topics", []) + form.get("topicStates", []):
        name = topic.get("topicName", topic.get("name"))
        held = base64.urlsafe_b64decode(topic["topicId"] + "==") if "topicId" in topic else ZERO
        for row in topic.get("partitionStates", topic.get("partitionErrors", [])):
            yield name, held, row
        for index in topic.get("partitionIndexes", []):
            yield name, held, {"partitionIndex": index}


def expected(api: int, kind: str, form: dict[str, Any], columns: list[str]) -> list[dict[str, Any]]:
    defaults = {"leader_epoch": -1, "delete_partition": form.get("deletePartitions", False)} if api == 5 else {}
    out = []
    for topic, topic_id, row in rows_of(form):
        values: dict[str, Any] = {}
        for column in columns:
            match column:
                case "frame":
                    values[column] = 0
                case "topic":
                    values[column] = topic
                case "topic_id":
                    values[column] = None if kind == "response" and topic is not None else topic_id
                case "partition":
                    values[column] = row["partitionIndex"]
                case "partition_epoch" if api == 6:
                    values[column] = row["zkVersion"]
                case _:
                    values[column] = row.get(camel_case(column), defaults.get(column, NONE.get(column, [])))
        out.append(values)
    return out


NONE: dict[str, Any] = {"is_new": False, "leader_recovery_state": 0}
"""What stands for a field that the version lacks; lists are empty."""


def table(columns: Any) -> list[dict[str, Any]]:
    batch = pa.record_batch(columns)
    batch.validate(full=True)
    return batch.to_pylist()


@EACH
@settings(max_examples=max(2, settings.default.max_examples // 3))
@given(data=st.data())
def test_columns_are_the_objects_in_another_layout(api: int, version: int, kind: Any, data: st.DataObject) -> None:
    """The same values; and of damaged bytes the same are taken and refused."""
    codec = get_codec("cython")
    form = data.draw(json_forms(api, version, kind))
    whole = by_hand(api, version, kind, form)
    columns = codec.decode_columns(api, version, whole, kind=kind)
    assert table(columns) == expected(api, kind, form, list(columns.names))
    damaged = data.draw(mutations(whole))
    for strict in (False, True):
        told = answer(codec, api, version, kind, damaged, strict=strict)
        if strict and told.get("consumed") != len(damaged):
            told["accept"] = False  # what is left over counts where the whole is asked for
        try:
            columns = codec.decode_columns(api, version, damaged, kind=kind, strict=strict)
        except DecodeError:
            assert not told["accept"], damaged.hex()
        else:
            assert told["accept"], damaged.hex()
            assert table(columns) == expected(api, kind, told["json"], list(columns.names)), damaged.hex()


def test_only_the_three_apis_have_columns() -> None:
    codec = get_codec("cython")
    with pytest.raises(UnsupportedApi):
        codec.ColumnsBuilder(3)
    with pytest.raises(UnsupportedVersion):
        codec.decode_columns(6, 9, b"")
    with pytest.raises((ValueError, TypeError)):
        codec.ColumnsBuilder(6, "request_header")
