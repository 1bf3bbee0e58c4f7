"""Stores a task's rows between its stages as Arrow files, which are cheap to write and to read."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc
from pyarrow.fs import LocalFileSystem

from kproto.tables.places import arrow_path, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kproto.tables.places import Place


class StagedTables:
    """Writes rows of several tables, each into a file of its own; the n-th batches of all tables belong together.

    Args:
        directory: The directory of the files, which is created.
    """

    def __init__(self, directory: Place) -> None:
        self._directory = directory
        self._options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._sinks: list[pa.NativeFile] = []
        self._writers: dict[str, pa.ipc.RecordBatchFileWriter] = {}
        directory.mkdir(parents=True)

    def write(self, name: str, batch: pa.RecordBatch) -> None:
        """Write a batch, which may be empty."""
        writer = self._writers.get(name)
        if writer is None:
            path, files = arrow_path(self._directory / f"{name}.arrow")
            sink = (files or LocalFileSystem()).open_output_stream(path)
            self._sinks.append(sink)
            writer = self._writers[name] = pa.ipc.new_file(sink, batch.schema, options=self._options)
        writer.write_batch(batch)

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()
        for sink in self._sinks:
            sink.close()


def read_staged(directory: Place, name: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a table; no batches if none were written."""
    if (directory / f"{name}.arrow").exists():
        with _opened(directory, name) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def read_batch(directory: Place, name: str, number: int) -> pa.RecordBatch:
    """Return one batch of a table."""
    with _opened(directory, name) as reader:
        return reader.get_batch(number)


@contextmanager
def _opened(directory: Place, name: str) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """Open a table's file; one of this machine is mapped into memory."""
    path, files = arrow_path(directory / f"{name}.arrow")
    with (files or LocalFileSystem(use_mmap=True)).open_input_file(path) as file:
        yield pa.ipc.open_file(file)


def read_bodies(places: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Yield staged bodies, each batch of a piece read once.

    Args:
        places: With the fields ``piece``, ``batch`` and ``row``.
    """
    rows: dict[tuple[str, int], list[int]] = {}
    for place in places:
        rows.setdefault((place["piece"], place["batch"]), []).append(place["row"])
    for (piece, number), chosen in sorted(rows.items()):
        batch = read_batch(place_of(piece), "bodies", number)
        if len(chosen) < batch.num_rows:
            batch = batch.take(pa.array(sorted(chosen), pa.int64()))
        yield batch
