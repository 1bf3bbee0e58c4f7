"""Columns are built as ``pyarrow.array`` builds them, and tables from rows and back."""

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from commands import python_prints
from hypothesis import given
from hypothesis import strategies as st

from kproto.tables.arrays import RowBuffer, array_of, rows_of, table_of
from kproto.tables.schemas import PARTS, SCAN

CAPTURE = str(Path(__file__).parent.parent / "data" / "captures" / "ibp-2.8-a.pcap.gz")


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        made: st.SearchStrategy[Any] = st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    elif pa.types.is_list(kind):
        made = st.lists(values(kind.value_type), max_size=3)
    elif pa.types.is_boolean(kind):
        made = st.booleans()
    elif pa.types.is_string(kind):
        made = st.text(max_size=4)
    elif pa.types.is_binary(kind):
        made = st.binary(max_size=20)
    elif pa.types.is_floating(kind):
        made = st.floats(allow_nan=False)
    else:
        bits = min(kind.bit_width, 52)  # times beyond are no ``datetime``, by which they are compared
        made = st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    return st.none() | made


KINDS = sorted({field.type for schema in (SCAN, *PARTS.values()) for field in schema} | {pa.float64()}, key=str)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind)[:40])
@given(data=st.data())
def test_a_column_is_that_of_pyarrow(kind: pa.DataType, data: st.DataObject) -> None:
    given_values = data.draw(st.lists(values(kind), max_size=20))
    made = array_of(given_values, kind)
    made.validate(full=True)
    assert made.equals(pa.array(given_values, kind))


def test_a_value_beyond_its_type_is_refused() -> None:
    with pytest.raises(OverflowError):
        array_of([1 << 15], pa.int16())


def test_a_table_without_rows_has_a_chunk_of_each_column() -> None:
    """PySpark makes no frame of a column without any."""
    table = table_of([], SCAN)
    assert table.schema == SCAN
    assert {column.num_chunks for column in table.columns} == {1}


def test_captures_become_columns_without_pandas() -> None:
    """Its import takes longer than a small capture."""
    text = "import sys; from kproto.tables import decode, scan; list(decode(scan([sys.argv[1]])))"
    assert python_prints(f"{text}; print('pandas' in sys.modules)", CAPTURE).strip() == "False"


@given(
    numbers=st.lists(st.none() | st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=3), max_size=20),
    texts=st.lists(st.none() | st.text(max_size=2), max_size=20),
    data=st.data(),
)
def test_rows_have_the_values_of_pyarrow_and_lists_of_numbers_as_tuples(
    numbers: list[list[int] | None], texts: list[str | None], data: st.DataObject
) -> None:
    for given_values, kind in ((numbers, pa.list_(pa.int32())), (texts, pa.string())):
        cut, begin = (data.draw(st.integers(0, len(given_values))) for _ in range(2))
        column = pa.array(given_values, kind)
        table = pa.table({"a": range(len(column)), "b": pa.chunked_array([column[:cut], column[cut:]])})[begin:]
        wanted = [tuple(value) if isinstance(value, list) else value for value in given_values[begin:]]
        assert list(rows_of(table)) == list(enumerate(wanted, begin))
        assert list(rows_of(pa.RecordBatch.from_arrays([column[begin:]], ["b"]), ["b"])) == [(v,) for v in wanted]


def test_a_batch_that_is_gone_holds_nothing_of_its_rows() -> None:
    held = bytes(600)
    before = sys.getrefcount(held)
    buffer = RowBuffer(pa.schema([("payload", pa.binary())]))
    buffer.add((memoryview(held),), 600)
    assert [batch.to_pylist() for batch in buffer.take()] == [[{"payload": held}]]
    assert sys.getrefcount(held) == before
