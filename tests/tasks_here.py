"""Stands in for a Spark session where a run is tested: its tasks run in this process, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pyarrow as pa


class TasksHere:
    """Runs what ``kproto.pipeline.tasks.for_each`` gives to Spark: numbers, a task for each, and its receipts."""

    sparkContext = SimpleNamespace(defaultParallelism=2)

    def range(self, begin: int, end: int, _step: int, numPartitions: int) -> _Numbers:
        assert numPartitions == end - begin
        return _Numbers(range(begin, end))


class _Numbers:
    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = numbers

    def mapInArrow(self, work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: Any) -> _Rows:
        batches = (pa.record_batch({"id": [number]}) for number in self._numbers)
        return _Rows(chain.from_iterable(work(iter([batch])) for batch in batches))


class _Rows:
    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches

    def collect(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(**row) for batch in self._batches for row in batch.to_pylist()]
