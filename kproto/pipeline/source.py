"""``spark.read.format("kafka_control")``: the frames of captures as a DataFrame, by Spark's Python Data Source API.

Where kproto is installed Spark finds the format by itself, in SQL too:

    CREATE TEMPORARY VIEW frames USING kafka_control OPTIONS (path '/captures/*.pcap', apis 'LeaderAndIsr')
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kproto.errors import ConfigurationError
from kproto.pipeline.captures import shares_of
from kproto.pipeline.options import capture_points_of, checked, columns_of, rows_of, scan_arguments
from kproto.pipeline.parquet import spark_schema
from kproto.tables.scanning import scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kproto.capture import CapturePoint


class KafkaControlSource(DataSource):
    """The format ``kafka_control``.

    It reads pcap and pcapng, recordings of ``kproto tap`` and request logs of Kafka, each also packed. One task reads
    a capture point (see ``kproto.capture.capture_points``), small ones share a task; ``read_frames`` of
    ``kproto.pipeline`` reads large captures with many. A file that is damaged or no capture costs itself alone:
    ``table=bad_inputs`` lists what could not be used.

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
        workers: Among so many tasks small captures are spread; 8 by default.
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
        return _Reader(self._checked())

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

    def partitions(self) -> list[InputPartition]:
        options = self._options
        paths = json.loads(options["paths"]) if "paths" in options else [options["path"]]
        return [
            _Share(share) for share in shares_of(capture_points_of(paths, options), int(options.get("workers", "8")))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Share)
        batches = scan(partition.points, **scan_arguments(self._options))
        yield from rows_of(batches, self._options, columns_of(self._options))
