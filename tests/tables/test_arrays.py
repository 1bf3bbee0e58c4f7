"""Columns are built as ``pyarrow.array`` builds them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.tables.arrays import array_of, table_of
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
    said = subprocess.run(
        [sys.executable, "-c", "import sys; from kproto.tables import decode, scan; "
         "list(decode(scan([sys.argv[1]]))); "
         "print('pandas' in sys.modules)", CAPTURE],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == "False"
