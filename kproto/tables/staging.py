"""Stores a task's rows between its stages as Arrow files, which are cheap to write and to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.ipc

from kproto.tables.places import open_input, open_output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.tables.places import Place

__all__ = ["StagedTables", "read_batch", "read_staged"]


class StagedTables:
    """Writes rows of several tables, each into a file of its own; the n-th batches of all tables belong together.

    Args:
        directory: The directory of the files, which is created.
    """

    def __init__(self, directory: Place) -> None:
        self._directory = directory
        self._sinks: list[pa.NativeFile] = []
        self._writers: dict[str, pa.ipc.RecordBatchFileWriter] = {}
        directory.mkdir(parents=True)

    def write(self, name: str, batch: pa.RecordBatch) -> None:
        """Write a batch, which may be empty."""
        writer = self._writers.get(name)
        if writer is None:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            sink = open_output(self._directory / f"{name}.arrow")
            self._sinks.append(sink)
            writer = self._writers[name] = pa.ipc.new_file(sink, batch.schema, options=options)
        writer.write_batch(batch)

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()
        for sink in self._sinks:
            sink.close()


def read_staged(directory: Place, name: str) -> Iterator[pa.RecordBatch]:
    """Return the batches of a table; no batches if none were written."""
    path = directory / f"{name}.arrow"
    if path.exists():
        with open_input(path) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def read_batch(directory: Place, name: str, number: int) -> pa.RecordBatch:
    """Return one batch of a table."""
    with open_input(directory / f"{name}.arrow") as file:
        return pa.ipc.open_file(file).get_batch(number)
