"""Rolls tables up by day and broker: small figures that add up over any days, and outlive the tables' rows.

Each day is computed from its own rows and from the states that partitions had at the end of the day before. Its figures
stand in ``DIR/kproto-rollups/date=DAY/brokers.parquet``, the partitions' states in ``held.parquet`` beside it. Their
metadata says of which rows they were made: where these are others now, the day and those after it are computed again.
``days.json`` says it of all days at once, so that a roll-up opens no file of a former day but the last one's states.

A day of a cluster ends with its last request; the time until the next belongs to the next day that has requests.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kproto.errors import CaptureError
from kproto.query.hints import explained_by_duckdb
from kproto.tables.files import file_state
from kproto.tables.places import arrow_path, read_whole, remove_tree, require_no_link, require_no_links_in, write_whole
from kproto.tables.schemas import BROKER_DAYS, INTS, TIME
from kproto.tables.stored import ROLLUPS, StoredTables, current_tables, read_parquet, readable, table_dataset
from kproto.verdicts.derived import VIEWS
from kproto.verdicts.history import changes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow.dataset as ds

    from kproto.tables.places import Place

SESSION: Final = """
    SET TimeZone = 'UTC';
    CREATE MACRO array_except(a, b) AS [x for x in a if not list_contains(b, x)];
    CREATE MACRO collect_set(x) AS list(DISTINCT x);
    CREATE MACRO size(a) AS len(a);
    CREATE MACRO timestamp_micros(n) AS make_timestamptz(n);
    CREATE MACRO unix_micros(t) AS epoch_us(t);
"""
"""Shows times in UTC, and defines the functions that the derived tables' SQL calls by Spark's names."""

_VERSION: Final = 1
_DAYS_HELD: Final = 8
"""The number of days of which the states at their end are kept. Where rows are added to an older day, all are
computed again."""

_HELD: Final = pa.schema(
    [
        ("cluster", pa.string()), ("topic", pa.string()), ("topic_id", pa.binary()), ("partition", pa.int32()),
        ("controller_epoch", pa.int32()), ("leader_epoch", pa.int32()), ("partition_epoch", pa.int32()),
        ("leader", pa.int32()), ("isr", INTS), ("replicas", INTS), ("ts", TIME), ("controller_id", pa.int32()),
        ("frame_id", pa.binary()), ("until", TIME),
    ]
)  # fmt: skip
"""The state of each partition at the end of a day, and the time of the cluster's last request by then."""


class _Day(NamedTuple):
    """A day's rollup."""

    brokers: pa.Table
    held: pa.Table


# The states held from the day before are given to the views as if a request had brought each.
_DAY: Final = """
    CREATE OR REPLACE TEMP TABLE sent AS
    SELECT coalesce(cluster, 'default') AS cluster, frame_id, body_id, ts, api_key, controller_id, broker_id,
           server_ip, server_port, error_code, response_frame_id
    FROM day_requests;
    CREATE OR REPLACE TEMP VIEW all_sent AS
    SELECT cluster, frame_id, body_id, ts, api_key, controller_id, error_code FROM sent UNION ALL
    SELECT DISTINCT cluster, frame_id, frame_id, ts, CAST(6 AS smallint), controller_id, CAST(0 AS smallint) FROM held;
    CREATE OR REPLACE TEMP VIEW all_states AS
    SELECT body_id, api_key, topic, topic_id, partition, controller_epoch, leader_epoch, partition_epoch, leader, isr,
           replicas, is_new
    FROM day_states WHERE body_id IN (SELECT body_id FROM sent) UNION ALL
    SELECT frame_id, CAST(6 AS smallint), topic, topic_id, partition, controller_epoch, leader_epoch, partition_epoch,
           leader, isr, replicas, false
    FROM held;
    CREATE OR REPLACE TEMP TABLE windows AS
    SELECT s.cluster, coalesce(any_value(h.until), min(s.ts) - INTERVAL 1 microsecond) AS since, max(s.ts) AS until
    FROM sent s LEFT JOIN (SELECT DISTINCT cluster, until FROM held) h ON h.cluster = s.cluster GROUP BY s.cluster;
"""

_FIGURES: Final = """
    WITH asked AS (
        SELECT cluster, broker_id, count(*) AS requests, count(*) FILTER (error_code <> 0) AS refusals,
               count(*) FILTER (response_frame_id IS NULL) AS unanswered
        FROM sent GROUP BY GROUPING SETS ((cluster, broker_id), (cluster))
        HAVING broker_id IS NOT NULL OR grouping(broker_id) = 1
    ), lags AS (
        SELECT cluster, broker_id, CAST(floor(8 * log2(greatest(lag_us, 1))) AS int) AS bucket, count(*) AS n
        FROM day_propagation GROUP BY GROUPING SETS ((cluster, broker_id, bucket), (cluster, bucket))
    ), updates AS (
        SELECT cluster, broker_id, CAST(sum(n) AS bigint) AS updates,
               map_from_entries(list((bucket, n) ORDER BY bucket)) AS lag_us_log
        FROM lags GROUP BY cluster, broker_id
    ), led AS (
        SELECT l.*, lag(leader) OVER (
            PARTITION BY cluster, topic, topic_id, partition, incarnation ORDER BY leader_epoch, valid_from) AS before
        FROM day_leadership l
    ), lost AS (
        SELECT cluster, before AS broker_id, count(*) AS leader_changes
        FROM led JOIN windows w USING (cluster)
        WHERE before <> leader AND valid_from > w.since
        GROUP BY GROUPING SETS ((cluster, before), (cluster)) HAVING before >= 0 OR grouping(before) = 1
    ), shrinks AS (  -- null: all brokers together
        SELECT cluster, unnest(list_prepend(NULL, removed)) AS broker_id, 1 AS isr_shrinks
        FROM day_isr_events JOIN windows w USING (cluster) WHERE len(removed) > 0 AND ts > w.since
    ), spans AS (
        SELECT cluster, leader, isr, array_except(replicas, isr) AS missing,
               (epoch_us(least(coalesce(valid_to, w.until), w.until)) - epoch_us(greatest(valid_from, w.since))) / 6e7
                   AS minutes
        FROM day_spans JOIN windows w USING (cluster)
    ), out_of_isr AS (
        SELECT cluster, unnest(list_prepend(NULL, missing)) AS broker_id, minutes AS out_of_isr_minutes
        FROM spans WHERE minutes > 0 AND len(missing) > 0
    ), offline AS (
        SELECT cluster, unnest(list_prepend(NULL, isr)) AS broker_id, minutes AS offline_minutes
        FROM spans WHERE minutes > 0 AND leader = -1
    ), figures AS (
        FROM asked UNION ALL BY NAME FROM updates UNION ALL BY NAME FROM lost UNION ALL BY NAME FROM shrinks
        UNION ALL BY NAME FROM out_of_isr UNION ALL BY NAME FROM offline
    )
    SELECT CAST(? AS date) AS date, cluster, broker_id, coalesce(sum(requests), 0) AS requests,
           coalesce(sum(refusals), 0) AS refusals, coalesce(sum(unanswered), 0) AS unanswered,
           coalesce(sum(leader_changes), 0) AS leader_changes, coalesce(sum(isr_shrinks), 0) AS isr_shrinks,
           coalesce(sum(out_of_isr_minutes), 0) AS out_of_isr_minutes,
           coalesce(sum(offline_minutes), 0) AS offline_minutes, coalesce(sum(updates), 0) AS updates,
           coalesce(any_value(lag_us_log), MAP {}) AS lag_us_log
    FROM figures GROUP BY cluster, broker_id ORDER BY cluster, broker_id NULLS FIRST
"""

_STATES_LEFT: Final = """
    SELECT cluster, topic, topic_id, partition, controller_epoch, leader_epoch, partition_epoch, leader, isr,
           replicas, ts, controller_id, frame_id, w.until
    FROM day_spans JOIN windows w USING (cluster) WHERE valid_to IS NULL
    UNION ALL SELECT * FROM held WHERE cluster NOT IN (SELECT cluster FROM windows)
"""


def _computed(
    connection: duckdb.DuckDBPyConnection, source: StoredTables | Mapping[str, pa.Table], day: str, held: pa.Table
) -> _Day:
    """A day's rollup.

    Args:
        connection: For all days, one after another.
        source: The tables.
        day: The day.
        held: The states at the end of the day before.
    """
    for name, table in _TABLES.items():
        connection.register(table, _of_day(source, name, day))
    if connection.execute(_LACKING).fetchall():
        connection.register("day_states", _of_day(source, "partition_states", day, or_later=True))
    connection.register("held", held)
    connection.execute(_DAY)
    told = [connection.table(name).to_arrow_table() for name in ("all_sent", "all_states")]
    told[1].validate(full=True)  # DuckDB passes on a topic that is not UTF-8
    connection.register("day_changes", changes_of(*told))
    for name in ("leadership", "isr_events", "spans"):
        query = VIEWS[name].sql.format(changes="day_changes")
        connection.execute(f"CREATE OR REPLACE TEMP TABLE day_{name} AS {query}")
    tables = {"requests": "sent", "responses": "day_responses", "deliveries": "day_deliveries"}
    for name in ("deliveries", "propagation"):
        query = VIEWS[name].sql.format_map(tables)
        connection.execute(f"CREATE OR REPLACE TEMP VIEW day_{name} AS {query}")
    brokers = connection.sql(_FIGURES, params=[day]).to_arrow_table().cast(BROKER_DAYS)
    left = connection.sql(_STATES_LEFT).to_arrow_table().cast(_HELD)
    connection.unregister("held")
    return _Day(brokers, left)


_TABLES: Final = {"requests": "day_requests", "responses": "day_responses", "partition_states": "day_states"}


_LACKING: Final = """
    SELECT 1 FROM day_requests WHERE n_partitions > 0 AND body_id NOT IN (SELECT body_id FROM day_states) LIMIT 1
"""
"""SQL that gives a row if the day has a body that was stored under another day.

That was an earlier one, whose states are known, or, if the day's captures were added late, a later one."""


def _of_day(
    source: StoredTables | Mapping[str, pa.Table], name: str, day: str, *, or_later: bool = False
) -> pa.Table | ds.Dataset:
    """The rows of a day. Tables in memory hold all states together."""
    if not isinstance(source, StoredTables):
        table = source[name]
        if "ts" not in table.column_names:
            return table
        return table.filter(pc.equal(table["ts"].cast(pa.date32()).cast(pa.string()), day))
    begins = f"{name}/date={day}/"
    rows = {
        file: count
        for file, count in source.rows.items()
        if file.startswith(begins) or (or_later and file.startswith(f"{name}/") and file > begins)
    }
    return table_dataset(StoredTables(source.run, rows, source.facts), name)


def _days(source: StoredTables | Mapping[str, pa.Table]) -> dict[str, int]:
    """The rows of ``requests`` of each day."""
    found: dict[str, int] = {}
    if isinstance(source, StoredTables):
        for file in source.paths("requests"):
            if "/date=" in file:
                day = file.partition("/date=")[2].partition("/")[0]
                found[day] = found.get(day, 0) + source.rows[file]
    else:
        days = source["requests"]["ts"].cast(pa.date32()).cast(pa.string())
        found = {each["values"]: each["counts"] for each in days.value_counts().to_pylist()}
    return {day: found[day] for day in sorted(found) if found[day]}


def broker_days(source: StoredTables | Mapping[str, pa.Table], directory: Place | None = None) -> pa.Table:
    """The figures of each day and broker: as stored, as far as they are, and computed for the other days.

    Args:
        source: The tables.
        directory: Where rollups of them may be stored, beside their manifest.
    """
    found = [
        day.brokers if isinstance(day, _Day) else read_parquet(day / _FILE).cast(BROKER_DAYS)
        for _name, day, _made_of in _rolled_up(source, directory)
    ]
    return pa.concat_tables(found or [BROKER_DAYS.empty_table()])


def roll_up(directory: Place) -> tuple[int, int]:
    """Store the rollups of the days that lack them, or whose rows are others now.

    Args:
        directory: The directory that ``kproto analyze`` wrote.

    Returns:
        The number of days that were computed, and of all days.

    Raises:
        ConfigurationError: There are no tables.
    """
    stored = current_tables(directory)
    require_no_link(directory / ROLLUPS, directory)
    made: list[str] = []
    every: dict[str, Any] = {}
    with readable(directory):
        for name, day, made_of in _rolled_up(stored, directory):
            place = directory / ROLLUPS / f"date={name}"
            if isinstance(day, _Day):
                _write(place / _HELD_FILE, day.held, made_of)
                _write(place / _FILE, day.brokers, made_of)
                made.append(name)
            every[name] = {"state": _state_of(place / _FILE), "made_of": made_of}
    index = directory / ROLLUPS / _INDEX
    if every != _read_index(index):
        write_whole(index, json.dumps(every).encode())
    for name in [*every][:-_DAYS_HELD]:
        (directory / ROLLUPS / f"date={name}" / _HELD_FILE).unlink(missing_ok=True)
    for place in _stored_days(directory):
        if place.name.partition("=")[2] not in every:
            remove_tree(place)
    return len(made), len(every)


_DAY_NAME: Final = re.compile(r"date=\d{4}-\d\d-\d\d")
_FILE: Final = "brokers.parquet"
_HELD_FILE: Final = "held.parquet"
_INDEX: Final = "days.json"
"""What the days' files were made of, and their sizes and times: so long as a file has these, it need not be opened."""


def _rolled_up(
    source: StoredTables | Mapping[str, pa.Table], directory: Place | None
) -> Iterator[tuple[str, _Day | Place, dict[str, Any]]]:
    """Yield each day, its rollup or the place where that is stored, and what it was made of."""
    rows = _days(source)
    stored_days = _stored_days(directory) if directory is not None else []
    base = str(source.facts.get("base", "")) if isinstance(source, StoredTables) else ""
    kept = {}
    index = _read_index(directory / ROLLUPS / _INDEX) if directory is not None else {}
    for place in stored_days if isinstance(source, StoredTables) else ():
        day = place.name.partition("=")[2]
        known = index.get(day)
        is_known = known is not None and known["state"] == _state_of(place / _FILE)
        made_of = known["made_of"] if known and is_known else _made_of(place / _FILE)
        if made_of and made_of["base"] == base and made_of["version"] == _VERSION:
            kept[day] = place, made_of
    days = sorted({*rows, *kept})
    valid = 0
    for day in days:
        if day not in kept or rows.get(day) not in (None, kept[day][1]["requests"]):
            break
        valid += 1
    # A day is computed from the one before it, whose states may be kept no more.
    while 0 < valid < len(days) and days[valid - 1] in rows and _made_of(kept[days[valid - 1]][0] / _HELD_FILE) is None:
        valid -= 1
    held = _HELD.empty_table()
    for day in days[:valid]:
        yield day, *kept[day]
    if 0 < valid < len(days) and _made_of(kept[days[valid - 1]][0] / _HELD_FILE) is not None:
        held = read_parquet(kept[days[valid - 1]][0] / _HELD_FILE).cast(_HELD)
    if valid == len(days):
        return
    with duckdb.connect() as connection:
        connection.execute(SESSION)
        for day in days[valid:]:
            if day in rows:
                with explained_by_duckdb():
                    found = _computed(connection, source, day, held)
                held = found.held
                yield day, found, {"version": _VERSION, "base": base, "requests": rows[day]}
            else:
                yield day, *kept[day]


def _stored_days(directory: Place) -> list[Place]:
    place = directory / ROLLUPS
    require_no_link(place, directory)
    days = [day for day in place.iterdir() if _DAY_NAME.fullmatch(day.name)] if place.is_dir() else []
    for folder in (place, *days):
        require_no_links_in(folder, directory, (_FILE, _HELD_FILE, _INDEX))
    return sorted(days, key=str)


def _state_of(file: Place) -> list[int] | None:
    """A file's size and time; None if there is no such file."""
    try:
        return [*file_state(str(file))]
    except CaptureError:
        return None


def _read_index(file: Place) -> dict[str, Any]:
    try:
        found: Any = json.loads(read_whole(file))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        day: each
        for day, each in found.items()
        if isinstance(each, dict) and "state" in each and _is_made_of(each.get("made_of"))
    }


def _made_of(file: Place) -> dict[str, Any] | None:
    """The record of what a roll-up was made of; None if there is no such file, or another program wrote it."""
    path, files = arrow_path(file)
    try:
        text = (pq.read_schema(path, filesystem=files).metadata or {})[b"kproto"]
        found: Any = json.loads(text)
    except (OSError, KeyError, ValueError, RecursionError, pa.ArrowException):
        return None
    return found if _is_made_of(found) else None


def _is_made_of(found: object) -> bool:
    """Whether it is a record of what a roll-up was made of: files say anything."""
    return isinstance(found, dict) and {"version", "base", "requests"} <= found.keys()


def _write(file: Place, table: pa.Table, made_of: Mapping[str, Any]) -> None:
    """Write a file so that readers find the former one, or the new one whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    table = table.replace_schema_metadata({"kproto": json.dumps(made_of)})
    if isinstance(file, Path):
        require_no_link(file.parent, file.parent.parent)
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, compression="zstd")
        write_whole(file, buffer.getvalue().to_pybytes())
        return
    path, files = arrow_path(file)
    pq.write_table(table, path, filesystem=files, compression="zstd")
