"""The options of the format ``kafka_control``: what they mean for a scan, and for its rows."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kproto.api import CONTROL_APIS
from kproto.errors import ConfigurationError
from kproto.logs import LogReading
from kproto.tables.arrays import with_column
from kproto.tables.filters import iso_ns, parse_api
from kproto.tables.points import DEFAULT_CLUSTER, points_of
from kproto.tables.scanning import scan
from kproto.tables.schemas import BAD_INPUTS, CAPTURES, FRAMES, SCAN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from kproto.capture import CapturePoint

_OF_SCANS: Final = ("broker_epoch", "exchange_id", "request_frame_id", "error", "payload")

_TABLES: Final = {
    "frames": pa.schema([*FRAMES, *map(SCAN.field, _OF_SCANS)]),
    "bad_inputs": BAD_INPUTS,
    "captures": CAPTURES,
}
_PAYLOADS: Final = ("distinct", "all", "none")


def scan_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of ``kproto.tables.scan`` that checked options ask for."""
    return {
        "ports": _numbers(options["ports"]) if "ports" in options else None,
        "apis": _apis(options["apis"]) if "apis" in options else CONTROL_APIS,
        "since_ns": _moment_ns(options["since"]) if "since" in options else None,
        "until_ns": _moment_ns(options["until"]) if "until" in options else None,
        "every_payload": options.get("payload") == "all",
        "logs": _log_reading(options),
    }


def capture_points_of(paths: Iterable[str], options: Mapping[str, str]) -> list[CapturePoint]:
    """Return the capture points in files that checked options ask for.

    Raises:
        CaptureError: A directory or pattern holds no capture.
        ConfigurationError: The cluster's name is not valid.
    """
    return points_of(paths, options.get("capture_point"), options.get("cluster", DEFAULT_CLUSTER))


def rows_of(
    points: Iterable[CapturePoint], options: Mapping[str, str], apis: Collection[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read capture points, each with all of its bodies; yield the rows that checked options ask for.

    Args:
        points: The capture points.
        options: The options.
        apis: Of the APIs that they name those to read; None: all.
    """
    arguments, schema = scan_arguments(options), columns_of(options)
    if apis is not None:
        arguments["apis"] = {*arguments["apis"]} & {*apis}
    table = options.get("table", "frames")
    for batch in chain.from_iterable(scan([point], **arguments) for point in points):
        rows = _rows_of(batch, table)
        if rows.num_rows:
            if table == "frames" and options.get("payload") == "none":
                rows = with_column(rows, "payload", pa.nulls(rows.num_rows, pa.binary()))
            cluster = pa.repeat(pa.scalar(options.get("cluster", DEFAULT_CLUSTER), pa.string()), rows.num_rows)
            columns = [cluster if name == "cluster" else rows.column(name) for name in schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _rows_of(batch: pa.RecordBatch, table: str) -> pa.RecordBatch:
    """Return the rows of a scan that belong to a table, with its columns."""
    if table == "frames":
        return batch.filter(batch.column("frame_id").is_valid())
    note = "bad_input" if table == "bad_inputs" else "facts"
    rows = batch.filter(batch.column(note).is_valid())
    struct = rows.column(note)
    columns = dict(zip([field.name for field in struct.type], struct.flatten(), strict=True))
    columns |= {name: rows.column(name) for name in ("capture", "file")}
    return pa.RecordBatch.from_pydict(columns)


def checked(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by lower-case names.

    Raises:
        ConfigurationError: One of them is unknown, or says nothing that it may.
    """
    found = {name.lower(): value for name, value in options.items()}
    if unknown := sorted(found.keys() - _READERS):
        raise ConfigurationError(f"kafka_control has no option {unknown[0]!r}; it has {', '.join(sorted(_READERS))}")
    if (table := found.get("table", "frames")) not in _TABLES:
        raise ConfigurationError(f"kafka_control has no table {table!r}; it has {', '.join(_TABLES)}")
    if (payload := found.get("payload", "distinct")) not in _PAYLOADS:
        raise ConfigurationError(f"the option payload is one of {', '.join(_PAYLOADS)}, not {payload!r}")
    for name, value in found.items():
        _READERS[name](value)
    _log_reading(found)
    return found


def columns_of(options: Mapping[str, str]) -> pa.Schema:
    """Return the columns of the rows that checked options ask for.

    Raises:
        ConfigurationError: The option ``columns`` names a column that the table lacks.
    """
    schema = _TABLES[options.get("table", "frames")]
    if "columns" not in options:
        return schema
    names = [name.strip() for name in options["columns"].split(",")]
    for name in names:
        if name not in schema.names:
            raise ConfigurationError(f"no column {name!r} among {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in names])


def _log_reading(options: Mapping[str, str]) -> LogReading:
    """The options about logs; each worker has a zone of its own, so that a log's zone has to be named."""
    return LogReading(options.get("log_zone", ""), zone_required=True, day=options.get("log_date", ""))


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigurationError(f"{text!r} is not a list of numbers such as 9092,9093") from None


def _count(text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,5}", text):
        raise ConfigurationError(f"{text!r} is no number of tasks such as 8")
    return int(text)


def _apis(text: str) -> set[int]:
    return {parse_api(part.strip()) for part in text.split(",")}


def _moment_ns(text: str) -> int:
    try:
        return iso_ns(text)
    except ValueError:
        raise ConfigurationError(f"{text!r} is no moment such as 2026-11-21T06:00:00Z") from None


_READERS: Final[dict[str, Callable[[str], object]]] = {
    **dict.fromkeys(
        ("path", "paths", "table", "columns", "payload", "cluster", "capture_point", "log_zone", "log_date"), str
    ),
    "ports": _numbers,
    "workers": _count,
    **dict.fromkeys(("since", "until"), _moment_ns),
    "apis": _apis,
}
"""The options, each with what reads it, or refuses it."""
