"""The states of partitions become a history, wherever they were read from."""

from pathlib import Path

import pyarrow as pa

from kproto.tables.schemas import PARTITION_STATES
from kproto.verdicts.history import History


def test_states_without_any_isr_may_come_from_a_file(tmp_path: Path) -> None:
    """What a file holds of lists without items may have no buffer; INFO tells no ISR of what a broker follows."""
    state = {"api_key": 6, "topic": "orders", "partition": 0, "leader": 1, "isr": []}
    table = pa.Table.from_pylist([state], PARTITION_STATES.append(pa.field("ts", pa.int64())))
    with pa.OSFile(str(tmp_path / "states"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    history = History()
    with pa.OSFile(str(tmp_path / "states")) as source:
        history.add(pa.ipc.open_file(source).read_all())
    assert history.reduced().num_rows == 1
