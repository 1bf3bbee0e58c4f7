"""Tables are built from rows, and give them back."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kproto.tables.arrays import rows_of, table_of
from kproto.tables.schemas import SCAN


def test_a_table_without_rows_has_a_chunk_of_each_column() -> None:
    """PySpark makes no frame of a column without any."""
    table = table_of([], SCAN)
    assert table.schema == SCAN
    assert {column.num_chunks for column in table.columns} == {1}


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
