"""What a task keeps on disk between its stages, as Arrow files: rows cost little to write and to read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.ipc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["StagedTables", "read_batch", "read_staged"]


class StagedTables:
    """Writes rows of several tables, each into a file of its own; batch n of one belongs to batch n of the others.

    Args:
        directory: Where the files go; is made.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writers: dict[str, pa.ipc.RecordBatchFileWriter] = {}
        directory.mkdir(parents=True)

    def write(self, name: str, batch: pa.RecordBatch) -> None:
        """Take a batch, which may be empty."""
        writer = self._writers.get(name)
        if writer is None:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            writer = pa.ipc.new_file(self._directory / f"{name}.arrow", batch.schema, options=options)
            self._writers[name] = writer
        writer.write_batch(batch)

    def close(self) -> None:
        """End the files."""
        for writer in self._writers.values():
            writer.close()


def read_staged(directory: Path, name: str) -> Iterator[pa.RecordBatch]:
    """The batches of a table, none where nothing was written."""
    path = directory / f"{name}.arrow"
    if path.exists():
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def read_batch(directory: Path, name: str, number: int) -> pa.RecordBatch:
    """One batch of a table."""
    with pa.memory_map(str(directory / f"{name}.arrow")) as file:
        return pa.ipc.open_file(file).get_batch(number)
