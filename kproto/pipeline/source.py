"""``spark.read.format("kafka_control")``: the frames of captures as a DataFrame, by Spark's Python Data Source API.

Where kproto is installed Spark finds the format by itself, in SQL too:

    CREATE TEMPORARY VIEW frames USING kafka_control OPTIONS (path '/captures/*.pcap', apis 'LeaderAndIsr')
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kproto.api import CONTROL_APIS, ApiKey, api_name
from kproto.errors import ConfigurationError
from kproto.pipeline.captures import points_of, shares_of
from kproto.pipeline.stored import spark_schema
from kproto.tables.scanning import scan
from kproto.tables.schemas import BAD_INPUTS, CAPTURES, FRAMES, SCAN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

    from kproto.capture import CapturePoint

__all__ = ["KafkaControlSource"]

_TABLES: Final = {
    "frames": pa.schema([*FRAMES, *(SCAN.field(name) for name in ("request_frame_id", "error", "payload"))]),
    "bad_inputs": BAD_INPUTS,
    "captures": CAPTURES,
}
_PAYLOADS: Final = ("distinct", "all", "none")
_OPTIONS: Final = {"path", "paths", "table", "ports", "apis", "since", "until", "columns", "payload", "workers"}


class KafkaControlSource(DataSource):
    """The format ``kafka_control``.

    One task reads a capture point (see ``kproto.capture.capture_points``), small ones share a task. A file that is
    damaged or no capture costs itself alone: ``table=bad_inputs`` lists what could not be used.

    Options:
        path: A file, directory, pattern or URI; ``load`` also takes several.
        table: ``frames`` (the default), ``bad_inputs`` or ``captures``.
        columns: Names of the columns to give, separated by commas; all by default.
        payload: ``distinct`` gives each distinct body with its first frame in a capture (the default), ``all`` with
            every frame, ``none`` with no frame.
        ports: The brokers' listeners, separated by commas; found from the traffic by default.
        apis: Names or numbers, separated by commas; LeaderAndIsr, StopReplica and UpdateMetadata by default.
        since, until: ISO 8601 (UTC where no zone is said): only requests sent from the one and before the other.
        workers: Among so many tasks small captures are spread; 8 by default.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_control"

    def schema(self) -> StructType:
        """The columns of the rows."""
        return spark_schema(_columns(_checked(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:  # Spark's signature
        """The reader of the rows."""
        return _Reader(_checked(self.options))


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
        return [_Share(share) for share in shares_of(points_of(paths), int(options.get("workers", "8")))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Share)
        options = self._options
        schema = _columns(options)
        table = options.get("table", "frames")
        payload = options.get("payload", "distinct")
        batches = scan(
            partition.points,
            ports=_numbers(options["ports"]) if "ports" in options else None,
            apis=_apis(options["apis"]) if "apis" in options else CONTROL_APIS,
            since_ns=_moment_ns(options, "since"),
            until_ns=_moment_ns(options, "until"),
            every_payload=payload == "all",
        )
        for batch in batches:
            rows = _rows_of(batch, table)
            if rows.num_rows:
                if table == "frames" and payload == "none":
                    at = rows.schema.get_field_index("payload")
                    rows = rows.set_column(at, SCAN.field("payload"), pa.nulls(rows.num_rows, pa.binary()))
                yield pa.RecordBatch.from_arrays([rows.column(name) for name in schema.names], schema=schema)


def _rows_of(batch: pa.RecordBatch, table: str) -> pa.RecordBatch:
    """The rows of a scan that belong to a table, with its columns."""
    if table == "frames":
        return batch.filter(batch.column("frame_id").is_valid())
    note = "bad_input" if table == "bad_inputs" else "facts"
    rows = batch.filter(batch.column(note).is_valid())
    struct = rows.column(note)
    columns = dict(zip([field.name for field in struct.type], struct.flatten(), strict=True))
    columns |= {name: rows.column(name) for name in ("capture", "file")}
    return pa.RecordBatch.from_pydict(columns)


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    """The options, by lower-case names.

    Raises:
        ConfigurationError: One of them is unknown, or says nothing that it may.
    """
    found = {name.lower(): value for name, value in options.items()}
    if unknown := sorted(found.keys() - _OPTIONS):
        raise ConfigurationError(f"kafka_control has no option {unknown[0]!r}; it has {', '.join(sorted(_OPTIONS))}")
    if not found.keys() & {"path", "paths"}:
        raise ConfigurationError('kafka_control needs a path: spark.read.format("kafka_control").load(PATH)')
    if (table := found.get("table", "frames")) not in _TABLES:
        raise ConfigurationError(f"kafka_control has no table {table!r}; it has {', '.join(_TABLES)}")
    if (payload := found.get("payload", "distinct")) not in _PAYLOADS:
        raise ConfigurationError(f"the option payload is one of {', '.join(_PAYLOADS)}, not {payload!r}")
    for name in ("ports", "workers"):
        if name in found:
            _numbers(found[name])
    if "apis" in found:
        _apis(found["apis"])
    for name in ("since", "until"):
        _moment_ns(found, name)
    return found


def _columns(options: Mapping[str, str]) -> pa.Schema:
    schema = _TABLES[options.get("table", "frames")]
    if "columns" not in options:
        return schema
    names = [name.strip() for name in options["columns"].split(",")]
    for name in names:
        if name not in schema.names:
            raise ConfigurationError(f"no column {name!r} among {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in names])


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigurationError(f"{text!r} is not a list of numbers such as 9092,9093") from None


def _apis(text: str) -> set[int]:
    by_name = {api_name(key).lower(): int(key) for key in ApiKey}
    found = set()
    for part in text.split(","):
        name = part.strip().lower()
        api = int(name) if name.isdecimal() and len(name) < 6 else by_name.get(name)
        if api is None:
            raise ConfigurationError(f"no api {part.strip()!r}; try a number, or a name such as LeaderAndIsr")
        found.add(api)
    return found


def _moment_ns(options: Mapping[str, Any], name: str) -> int | None:
    if name not in options:
        return None
    try:
        moment = datetime.fromisoformat(options[name])
    except ValueError:
        raise ConfigurationError(f"{options[name]!r} is no moment such as 2026-11-21T06:00:00Z") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
