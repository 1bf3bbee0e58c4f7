"""Reads the tables that ``kproto analyze`` stored, by pyarrow alone.

A directory of tables has a manifest, ``_kproto.json``, which names the directory of the tables' files and lists these
files: a file that it does not list counts for nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kproto.api import ApiKey
from kproto.errors import ConfigurationError
from kproto.tables.files import explained
from kproto.tables.places import (
    MANIFEST,
    Place,
    RemotePath,
    arrow_path,
    read_whole,
    require_no_link,
    require_no_links_in,
)
from kproto.tables.schemas import KNOWN, METADATA_TABLES, NEVER_NULL, NULL_OF_STOP_REPLICA, TABLES
from kproto.tables.writing import file_schema
from kproto.text import pasted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RUNS: Final = "kproto-runs"
"""The directory of the runs' directories."""

ROLLUPS: Final = "kproto-rollups"
"""The directory of figures by day, see ``kproto.query.rollups``."""

SUMMARY: Final = "summary.json"
"""The summary of a run, beside its tables."""

BESIDE: Final = ("brokers-", "edges-")
"""The first parts of the names of the files beside the tables, which the manifest lists too: facts about brokers, and
what is read on where connections go on in another recording."""

SCHEMA: Final = 10
"""The version of the tables' columns, of the manifest, and of the readers' states beside the tables."""

_STORED: Final = TABLES | METADATA_TABLES | KNOWN
"""The tables that may be stored, by name."""

_BATCH_ROWS: Final = 1 << 18

_MOST_ROWS_A_BYTE: Final = 16
"""The most rows for each byte of a file: a million partitions that were told alike have 6."""

_ROW_BYTES: Final = dict.fromkeys(("requests", "responses", "frames", "bodies", "known_bodies"), 8) | dict.fromkeys(
    ("captures", "brokers", "bad_inputs", "known_recordings", "known_names", "known_borders"), 1
)
"""The least bytes of a row of these tables: one has an id of its own, which cannot be packed, or a name of its own."""

_MOST_UNPACKED: Final = 1000
"""The most that a file of more than ``_MUCH`` unpacked bytes may have of them for each of its own."""

_MUCH: Final = 64 << 20

_FIRST_US, _LAST_US = (
    (datetime.fromisoformat(f"{day}Z") - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
    for day in ("0001-01-01T00:00:00", "9999-12-31T23:59:59")
)


@dataclass(frozen=True, slots=True)
class StoredTables:
    """The files of stored tables, as a manifest lists them.

    Attributes:
        run: The directory of the files, a directory for each table.
        rows: The rows of each file, by its path below ``run``.
        facts: The content of the manifest.
        moves: The directories of files that a run has written, and not moved below ``run`` yet.
    """

    run: Place
    rows: dict[str, int]
    facts: dict[str, Any]
    moves: dict[str, Place] = field(default_factory=dict)

    def place(self, file: str) -> Place:
        """Return where a file stands."""
        place: Place = self.moves.get(file, self.run) / file
        return place

    def files(self, name: str) -> list[Place]:
        """Return the files of a table that have rows."""
        return [self.place(file) for file in self.paths(name) if self.rows[file]]

    def paths(self, name: str) -> list[str]:
        """Return the files of a table, below ``run``."""
        return [file for file in self.rows if file.startswith(f"{name}/")]

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each of ``TABLES``, and of those of a metadata log where there is one."""
        found = dict.fromkeys(TABLES, 0)
        for file, rows in self.rows.items():
            if (name := file.partition("/")[0]) not in KNOWN:
                found[name] = found.get(name, 0) + rows
        return found


def current_run(tables: Place) -> Place:
    """Return the directory that holds the current tables, a directory for each table.

    Raises:
        ConfigurationError: It has no manifest, or the manifest cannot be read.
    """
    run: Place = tables / read_facts(tables)["run"]
    return run


def current_tables(tables: Place) -> StoredTables:
    """Return the current tables of the directory that ``kproto analyze`` wrote.

    Raises:
        ConfigurationError: It has no manifest, the manifest cannot be read, or is of another version.
    """
    facts = read_facts(tables)
    version = facts.get("schema", 1)
    if version != SCHEMA:
        advice = (
            f"analyze the captures again: kproto analyze CAPTURE --out {tables} --overwrite"
            if isinstance(version, int) and version < SCHEMA
            else "a newer kproto wrote them: use that"
        )
        raise ConfigurationError(
            f"the tables in {tables} are of version {version!r:.20}, this kproto reads {SCHEMA}; {advice}"
        )
    wrong = _wrong_in(facts)
    if wrong is not None:
        raise ConfigurationError(f"{tables / MANIFEST} is no manifest of kproto ({wrong})")
    run: Place = tables / facts["run"]
    folders: dict[str, set[str]] = {"": set(facts.get("beside", []))}
    for file in facts["files"]:
        folder, _slash, name = file.rpartition("/")
        folders.setdefault(folder, set()).add(name)
    for folder, names in folders.items():
        require_no_links_in(run / folder, tables, names)
    return StoredTables(run, dict(sorted(facts["files"].items())), facts)


_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _wrong_in(facts: dict[str, Any]) -> str | None:
    """Say what a manifest holds that kproto does not write; None: nothing. What reads it relies on what is checked."""
    files: Any = facts.get("files")
    beside: Any = facts.get("beside", [])
    if not _is_map(facts.get("tables"), is_count):
        return "it names no tables"
    if not _is_map(files, is_count):
        return "it lists no files"
    foreign = next((file for file in files if not _is_file_of_a_table(file)), None)
    if foreign is not None:
        return f"it lists {foreign!r:.200}"
    if not isinstance(beside, list) or not all(map(is_plain_name, beside)) or {SUMMARY, *_STORED} & set(beside):
        return "it names files elsewhere"
    if not _is_map(facts.get("facts", {}), beside.__contains__):
        return "it names files elsewhere"
    others: dict[str, Callable[[Any], bool]] = {
        "watermarks": lambda value: _is_map(value, _is_day),
        "spans": lambda value: _is_map(value, _is_span),
        "base": lambda value: isinstance(value, str),
        "bodies_decoded": is_count,
        "seconds": lambda value: isinstance(value, float | int) and 0 <= value < 1e12,
        "logs": lambda value: _is_map(value, _is_log),
    }
    wrong = next((name for name, is_right in others.items() if name in facts and not is_right(facts[name])), None)
    return None if wrong is None else f"its {wrong!r} says {facts[wrong]!r:.80}"


def _is_map(value: object, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(is_right, value.values()))


def is_count(value: object) -> bool:
    """Whether a value that was read is a number of rows, bytes or nanoseconds that a file may have."""
    return type(value) is int and 0 <= value < 1 << 63


def _is_span(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(us) is int and abs(us) < 1 << 63 for us in value)


def _is_log(value: object) -> bool:
    """Whether a value says what tables hold of a metadata log: sizes and hashes of files, and ids of recordings."""
    if not isinstance(value, dict) or set(value) != {"segments", "others", "captures", "blank"}:
        return False
    pairs, ids = [value["segments"], value["others"]], [value["captures"], value["blank"]]
    return (
        all(isinstance(each, list) for each in (*pairs, *ids))
        and all(
            isinstance(pair, list) and len(pair) == 2 and is_count(pair[0]) and isinstance(pair[1], str)
            for each in pairs
            for pair in each
        )
        and all(isinstance(name, str) for each in ids for name in each)
    )


def _is_day(value: object) -> bool:
    try:
        return isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def is_plain_name(name: object) -> bool:
    """Whether a name that was read is that of a file in a directory: it leads nowhere else, and is not hidden."""
    return isinstance(name, str) and len(name) < 256 and _NAME.fullmatch(name) is not None


def _is_run(name: object) -> bool:
    """Whether a manifest names a directory among the runs: files there, and nowhere else, are kproto's to remove."""
    return isinstance(name, str) and name.startswith(f"{RUNS}/") and is_plain_name(name.removeprefix(f"{RUNS}/"))


def _is_file_of_a_table(file: str) -> bool:
    """Whether a manifest names a Parquet file in a table's directory, or in that of one of its days."""
    folder, _slash, name = file.rpartition("/")
    table, slash, day = folder.partition("/")
    is_dated = table in TABLES and day.startswith("date=") and _is_day(day[5:])
    is_there = is_dated if slash else table in _STORED
    return is_there and is_plain_name(name) and name.endswith(".parquet")


def checked_run(tables: Place) -> StoredTables:
    """Return ``current_tables`` if those on this machine's file systems are as they were written.

    The footers of the Parquet files are read. Tables in an object store are not checked: each footer costs a request.

    Raises:
        ConfigurationError: See ``current_tables``; or a file is missing, damaged, or of another format.
    """
    stored = current_tables(tables)
    if isinstance(stored.run, RemotePath):
        return stored
    again = _make_again(tables)
    for path, written in stored.rows.items():
        file = stored.run / path
        try:
            with opened_parquet(file) as opened:
                rows = opened.metadata.num_rows
        except FileNotFoundError:
            raise ConfigurationError(f"{file} is missing; {again}") from None
        except (pa.ArrowException, OSError) as e:
            raise ConfigurationError(f"{file} cannot be read ({_said(e)}); {again}") from None
        if rows != written:
            raise ConfigurationError(f"{file} has {rows} rows, where {written} were written; {again}")
    return stored


def read_facts(tables: Place) -> dict[str, Any]:
    """Return the content of the manifest, of whatever version.

    Raises:
        ConfigurationError: There is none, or it cannot be read.
    """
    require_no_link(tables / MANIFEST, tables)
    try:
        facts = json.loads(read_whole(_manifest(tables)))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(_no_tables(tables)) from None
    except (ValueError, RecursionError) as e:
        if isinstance(e, ConfigurationError):
            raise
        raise ConfigurationError(f"{tables / MANIFEST} is no manifest of kproto ({type(e).__name__}: {e})") from None
    except OSError:
        with explained(tables / MANIFEST):
            raise
    if not isinstance(facts, dict) or not _is_run(facts.get("run")):
        raise ConfigurationError(f"{tables / MANIFEST} is no manifest of kproto (it names no run)")
    return facts


def _make_again(tables: Place) -> str:
    return f"make the tables again: kproto analyze CAPTURE --out {tables} --overwrite"


def _said(error: Exception) -> str:
    """The first line of what pyarrow says, without all of a value that it quotes."""
    return str(error).splitlines()[0][:300]


def _no_tables(place: Place) -> str:
    """Return an error text for a place without a manifest, with the command that makes tables."""
    made = pasted(["kproto", "analyze", "CAPTURE", "--out", f"{place}"])  # its format hides credentials
    if isinstance(place, RemotePath):
        return f"{place} has no tables; make them: {made}"
    if not place.exists():
        return f"{place}: no such file or directory; check the path" + (
            "" if place.suffix else f", or make tables: {made}"
        )
    if not place.is_dir():
        return f"{place} is a file; name the directory that kproto analyze wrote"
    if any(place.iterdir()):
        return f"{place} has no tables; make them: kproto analyze CAPTURE --out DIR (if captures lie there, of {place})"
    return f"{place} is an empty directory; name a capture, or make tables of one there: {made}"


def _manifest(tables: Place) -> Place:
    """Return the manifest; that of the newest complete run where a killed run had just deleted it to rename its own."""
    manifest = tables / MANIFEST
    if isinstance(manifest, RemotePath) and not manifest.is_stored_whole and not manifest.is_file():
        complete = [run / MANIFEST for run in (tables / RUNS).iterdir() if (run / MANIFEST).is_file()]
        return max(complete, key=str, default=manifest)
    return manifest


def stored_pieces(stored: StoredTables, columns: Mapping[str, Sequence[str]]) -> Iterator[dict[str, pa.Table]]:
    """Yield columns of stored tables, by table: partition states in pieces, the others whole."""
    yield {name: whole_table(stored, name, columns[name]) for name in columns if name != "partition_states"}
    for file in stored.files("partition_states"):
        with opened_parquet(file) as opened:
            for batch in opened.iter_batches(_BATCH_ROWS, columns=list(columns["partition_states"])):
                require_rows("partition_states", batch)
                yield {"partition_states": pa.Table.from_batches([batch])}


def table_files(table: Place) -> list[Place]:
    """Return the Parquet files below a directory, in the order of their names."""
    return sorted(table.rglob("*.parquet"), key=str)


def table_dataset(stored: StoredTables, name: str) -> pa.dataset.Dataset:
    """Return a stored table as a dataset, of which readers fetch the columns and rows they need."""
    from pyarrow import dataset

    found = [arrow_path(file) for file in stored.files(name)]
    if not found:
        return dataset.dataset(_STORED[name].empty_table())
    paths = [path for path, _files in found]
    return dataset.dataset(paths, _STORED[name], format="parquet", filesystem=found[0][1], partitioning="hive")


Reader = Callable[[str, Sequence[str]], "Iterable[pa.Table]"]
"""Reads columns of a stored table by their names, in pieces."""


def reader_of(source: StoredTables | Mapping[str, pa.Table]) -> Reader:
    """Return a reader of stored tables, or of tables in memory."""

    def read(name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        if isinstance(source, Mapping):
            yield (source[name] if name in source else _STORED[name].empty_table()).select(columns)
            return
        yield _STORED[name].empty_table().select(columns)  # of a table without rows there is no batch
        try:
            for batch in table_dataset(source, name).to_batches(columns=list(columns)):
                require_rows(name, batch)
                yield pa.Table.from_batches([batch])
        except (pa.ArrowException, OSError) as e:
            out = source.run.parent.parent
            raise ConfigurationError(f"the tables cannot be read: {_said(e)}; {_make_again(out)}") from None

    return read


def require_rows(name: str, rows: pa.RecordBatch) -> None:
    """Check what the readers of a table's rows rely on.

    Raises:
        pa.ArrowInvalid: A text is not UTF-8, which Parquet's reader does not check; a time is none that Python's
            ``datetime`` can hold; or there is a null which kproto does not write.
    """
    rows.validate(full=True)
    always = NEVER_NULL.get(name, frozenset())
    for path, values in chain.from_iterable(map(_parts, rows.schema.names, rows.columns)):
        if values.null_count and (path in always or path.endswith("[]") or _is_open(name, path, values, rows)):
            raise pa.ArrowInvalid(f"{name} has a null in {path}, where kproto writes none")
        if pa.types.is_timestamp(values.type):
            first, last = pc.min_max(values.view(pa.int64())).as_py().values()
            if first is not None and not _FIRST_US <= first <= last <= _LAST_US:
                raise pa.ArrowInvalid(f"{name} has a time outside the years 1 to 9999")


def _is_open(name: str, path: str, values: pa.Array, rows: pa.RecordBatch) -> bool:
    """Whether a state lacks what StopReplica alone does not tell."""
    if name != "partition_states" or path not in NULL_OF_STOP_REPLICA or "api_key" not in rows.schema.names:
        return False
    return bool(pc.any(pc.and_(values.is_null(), pc.not_equal(rows["api_key"], ApiKey.STOP_REPLICA))).as_py())


def _parts(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield a column, and what is in its lists and structs, with their paths."""
    yield path, values
    if pa.types.is_list(values.type):
        yield from _parts(f"{path}[]", values.flatten())
    elif pa.types.is_struct(values.type):
        for field_in, part in zip(values.type, values.flatten(), strict=True):
            yield from _parts(f"{path}.{field_in.name}", part)


@contextmanager
def readable(tables: Place) -> Iterator[None]:
    """Turn what pyarrow says of a damaged file of tables into one line that says what to try.

    Raises:
        ConfigurationError: The block read such a file.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as e:
        if isinstance(e, OSError) and e.errno is not None:
            raise
        raise ConfigurationError(
            f"a file of the tables in {tables} cannot be read ({_said(e)}); {_make_again(tables)}"
        ) from e


def read_parquet(file: Place, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a Parquet file, of some columns in their order, or all.

    Raises:
        pa.ArrowException: See ``opened_parquet`` and ``require_rows``.
    """
    with opened_parquet(file) as opened:
        table = opened.read(columns=columns)
    for batch in table.to_batches():
        require_rows(_table_of(file), batch)
    return table if columns is None else table.select(columns)


@contextmanager
def opened_parquet(file: Place) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file.

    Raises:
        pa.ArrowException: It is damaged, lacks a column of the table in whose directory it is, or has more rows or
            unpacked bytes than any that kproto writes of its size.
    """
    path, files = arrow_path(file)
    with (
        pa.OSFile(path) if files is None else files.open_input_file(path) as source,
        pq.ParquetFile(source) as opened,
    ):
        wrong = _beyond_limits(file, opened.metadata, source.size())
        if wrong is not None:
            raise pa.ArrowInvalid(f"{file.name} {wrong}")
        yield opened


def _table_of(file: Place) -> str:
    """The name of the table in whose directory a file is."""
    folder = file.parent
    return (folder.parent if folder.name.startswith("date=") else folder).name


def _beyond_limits(file: Place, footer: pq.FileMetaData, size: int) -> str | None:
    """Say what no file of this size that kproto writes holds; what reads it would need much memory. None: nothing."""
    rows, name = footer.num_rows, _table_of(file)
    columns = footer.schema.to_arrow_schema()
    for each in sorted(file_schema(name), key=lambda field: field.name) if name in _STORED else ():
        at = columns.get_all_field_indices(each.name)
        if [columns.field(number).type for number in at] != [each.type]:
            wrong = f"a column {each.name} of another type" if at else f"no column {each.name}"
            return f"has {wrong}: another version or program wrote it"
    if rows > size * _MOST_ROWS_A_BYTE or rows * _ROW_BYTES.get(name, 0) > size:
        return f"claims {rows} rows in {size} bytes, more than can be"
    unpacked = sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    if unpacked > max(_MUCH, size * _MOST_UNPACKED):
        return f"has {size} bytes that unpack to {unpacked}, more than kproto reads"
    return None


def whole_table(stored: StoredTables, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a table whose files are not of days, or some columns of any table.

    Raises:
        pa.ArrowException: See ``opened_parquet``.
    """
    schema = TABLES[name] if columns is None else pa.schema([TABLES[name].field(column) for column in columns])
    found = [read_parquet(file, schema.names) for file in stored.files(name)]
    return pa.concat_tables([schema.empty_table(), *found])
