"""Stores a task's rows on disk between its stages as Arrow files, which are cheap to write and to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.ipc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["StagedTables", "read_batch", "read_staged"]


class StagedTables:
    """Writes rows of several tables, each into a file of its own; the n-th batches of all tables belong together.

    Args:
        directory: The directory of the files, which is created.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writers: dict[str, pa.ipc.RecordBatchFileWriter] = {}
        directory.mkdir(parents=True)

    def write(self, name: str, batch: pa.RecordBatch) -> None:
        """Write a batch, which may be empty."""
        writer = self._writers.get(name)
        if writer is None:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            writer = pa.ipc.new_file(self._directory / f"{name}.arrow", batch.schema, options=options)
            self._writers[name] = writer
        writer.write_batch(batch)

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()


def read_staged(directory: Path, name: str) -> Iterator[pa.RecordBatch]:
    """Return the batches of a table; no batches if none were written."""
    path = directory / f"{name}.arrow"
    if path.exists():
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def read_batch(directory: Path, name: str, number: int) -> pa.RecordBatch:
    """Return one batch of a table."""
    with pa.memory_map(str(directory / f"{name}.arrow")) as file:
        return pa.ipc.open_file(file).get_batch(number)
