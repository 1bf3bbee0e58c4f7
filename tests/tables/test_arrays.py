"""Tables are built from rows."""

from kproto.tables.arrays import table_of
from kproto.tables.schemas import SCAN


def test_a_table_without_rows_has_a_chunk_of_each_column() -> None:
    """PySpark makes no frame of a column without any."""
    table = table_of([], SCAN)
    assert table.schema == SCAN
    assert {column.num_chunks for column in table.columns} == {1}
