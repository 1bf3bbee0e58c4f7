"""``spark.read.format("kafka_control")``: the frames of captures as a DataFrame, by Spark's Python Data Source API.

Where kproto is installed Spark finds the format by itself, in SQL too:

    CREATE TEMPORARY VIEW frames USING kafka_control OPTIONS (path '/captures/*.pcap', apis 'LeaderAndIsr')
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from kproto.errors import ConfigurationError
from kproto.pipeline.captures import shares_of
from kproto.pipeline.options import capture_points_of, checked, columns_of, rows_of
from kproto.pipeline.parquet import spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from kproto.capture import CapturePoint


_PUSHED: Final = (EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual)
_FILTERED: Final = {"api_key", "api_version", "capture", "cluster", "direction", "flow", "ts", "ts_ns"}
"""The columns whose filters the reader takes; a broker is the address and port in ``flow``."""

_COMPARED: Final[dict[type[Filter], Any]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_PUSHES: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The worker of Spark's that pushes filters down, where ``spark.sql.python.filterPushdown.enabled`` is set. Elsewhere
Spark refuses a reader that could take them."""


class KafkaControlSource(DataSource):
    """The format ``kafka_control``.

    It reads pcap and pcapng, recordings of ``kproto tap`` and request logs of Kafka, each also packed. One task reads
    a capture point (see ``kproto.capture.capture_points``), small ones share a task; ``read_frames`` of
    ``kproto.pipeline`` reads large captures with many. A file that is damaged or no capture costs itself alone:
    ``table=bad_inputs`` lists what could not be used.

    With ``spark.sql.python.filterPushdown.enabled`` the filters of a query on ``ts``, ``ts_ns``, ``api_key``,
    ``api_version``, ``cluster``, ``capture``, ``direction`` and ``flow`` are applied while captures are read.

    Options:
        path: A file, directory, pattern or URI; ``load`` also takes several.
        table: ``frames`` (the default), ``bad_inputs`` or ``captures``.
        columns: Names of the columns to give, separated by commas; all by default.
        payload: ``distinct`` gives each distinct body with its first frame in a capture (the default), ``all`` with
            every frame, ``none`` with no frame.
        ports: The brokers' listeners, separated by commas; found from the traffic by default.
        apis: Names or numbers, separated by commas; LeaderAndIsr, StopReplica and UpdateMetadata by default.
        since, until: ISO 8601 (UTC where no zone is said): only requests sent from the one and before the other.
        cluster: The cluster whose brokers the captures show; default where it is not said.
        capture_point: The place where all files were recorded, one after the other; found by their names by default.
        workers: The number of tasks among which small captures are spread; 8 by default.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_control"

    def schema(self) -> StructType:
        """The columns of the rows."""
        return spark_schema(columns_of(self._checked()))

    def reader(self, schema: StructType) -> DataSourceReader:  # Spark's signature
        """The reader of the rows."""
        pushes = _PUSHES in sys.modules or getattr(sys.modules["__main__"].__spec__, "name", None) == _PUSHES
        return (_FilteringReader if pushes else _Reader)(self._checked())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # Spark's names
        """Refuse: files that arrive are joined, and may grow, which a stream's offsets cannot tell.

        Raises:
            ConfigurationError: Always; says what to do.
        """
        raise ConfigurationError(
            "kafka_control reads no stream: use kproto.pipeline.stream_frames(spark, DIRECTORY) for frames, or kproto "
            "analyze --follow DIRECTORY for tables"
        )

    def _checked(self) -> dict[str, str]:
        options = checked(self.options)
        if not options.keys() & {"path", "paths"}:
            raise ConfigurationError('kafka_control needs a path: spark.read.format("kafka_control").load(PATH)')
        return options


class _Share(InputPartition):
    """Capture points that one task reads."""

    def __init__(self, points: list[CapturePoint]) -> None:
        super().__init__(None)
        self.points = points


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._filters: list[Filter] = []

    def partitions(self) -> list[InputPartition]:
        options = self._options
        paths = json.loads(options["paths"]) if "paths" in options else [options["path"]]
        points = capture_points_of(paths, options)
        return [_Share(share) for share in shares_of(points, int(options.get("workers", "8")))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Share)
        wanted = [
            {each.value} if isinstance(each, EqualTo) else set(each.value)
            for each in self._filters
            if isinstance(each, EqualTo | In) and each.attribute == ("api_key",)
        ]
        apis = set.intersection(*wanted) if wanted else None
        for batch in rows_of(partition.points, self._options, apis):
            rows = batch
            for each in self._filters:
                rows = rows.filter(_mask(rows, each))
            if rows.num_rows:
                yield rows


class _FilteringReader(_Reader):
    """Takes the filters of a query, so that rows that it does not want never pass from Python to the JVM."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # Spark's name
        names = columns_of(self._options).names
        for each in filters:
            if isinstance(each, _PUSHED) and each.attribute[0] in _FILTERED and each.attribute[0] in names:
                self._filters.append(each)
            else:
                yield each


def _mask(rows: pa.RecordBatch, wanted: Filter) -> pa.Array:
    """Return which rows pass a filter; null where that is unknown."""
    assert isinstance(wanted, _PUSHED)
    name, *inside = wanted.attribute
    column = rows.column(name)
    for each in inside:
        column = pc.struct_field(column, each)
    if isinstance(wanted, IsNotNull):
        return pc.is_valid(column)
    if isinstance(wanted, In):
        return pc.is_in(column, value_set=pa.array(list(wanted.value), column.type), skip_nulls=True)
    return _COMPARED[type(wanted)](column, pa.scalar(wanted.value, column.type))
