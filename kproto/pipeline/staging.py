"""Stores a task's rows between its stages as Arrow files, which are cheap to write and to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc

from kproto.tables.places import open_input, open_output, place_of

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
            sink = open_output(self._directory / f"{name}.arrow")
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
