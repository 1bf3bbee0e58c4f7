"""Files of KRaft's metadata log -> tables on disk, in one task: the fold needs the order of offsets.

The tables of a cluster's log are files of their own among the others, made anew where the log has grown. They hold the
log itself too, as ``known_batches``, so that it goes on where Kafka has deleted its old segments since. The manifest
remembers what was read by size and hash, never by a path: a run that adds to a log is given again all captures that
were read beside it, or none of them, and then what these showed stays.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kproto.errors import CaptureError, ConfigurationError
from kproto.metadata_log.files import QuorumState, read
from kproto.metadata_log.finding import LogFiles, find
from kproto.pipeline.tasks import for_each, results
from kproto.tables.arrays import with_column
from kproto.tables.metadata_points import read_traffic
from kproto.tables.metadata_rows import known_log, tables_of_files
from kproto.tables.points import points_of
from kproto.tables.reading import without_records
from kproto.tables.schemas import KNOWN, METADATA_TABLES, TABLES
from kproto.tables.stored import read_parquet
from kproto.tables.writing import BY_BODY, TableFiles, days_of, kind_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import SparkSession

    from kproto.metadata_log.files import ShownLog
    from kproto.tables.filters import Filters
    from kproto.tables.places import Place
    from kproto.tables.recordings import Recording
    from kproto.tables.stored import StoredTables

_LOG: Final = "log"
_CHUNK: Final = 1 << 20
_OF_LOG: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "metadata_records": ((), ()),
    "broker_states": (("broker_id", "state", "valid_from"), ("evidence",)),
    "quorum_epochs": (
        ("controller_epoch",), ("served_ts", "led_ts", "candidates", "failed_elections", "late_ts", "why"),
    ),
    "quorum_members": (
        ("node_id", "role", "directory_id"), ("valid_from", "told_by", "log_offset", "last_offset", "fetched_ts"),
    ),
}  # fmt: skip
"""The tables to which the log itself gives rows: what makes a row the same, and the columns that captures fill."""


_OF_FILES: Final = ("captures", "bad_inputs", "quorum_epochs")
"""The tables that tell of the log's files, of ``quorum-state`` the last."""


class _Held(NamedTuple):
    """What the tables hold of a log.

    Attributes:
        segments: Size and hash of each segment.
        others: Those of snapshots and quorum-states, which nodes replace.
        captures: The recordings that were read beside it and show it.
        blank: Those that do not.
    """

    segments: frozenset[tuple[int, str]]
    others: frozenset[tuple[int, str]]
    captures: frozenset[str]
    blank: frozenset[str]

    def to_json(self) -> dict[str, Any]:
        """The entry in the manifest."""
        return {name: sorted(getattr(self, name)) for name in self._fields}

    @classmethod
    def from_json(cls, entry: Any) -> _Held:
        """Return what an entry of a manifest says, of which ``kproto.tables.stored`` knows that it is one."""
        segments, others = (frozenset((size, text) for size, text in entry[name]) for name in ("segments", "others"))
        return cls(segments, others, frozenset(entry["captures"]), frozenset(entry["blank"]))


@dataclass(slots=True)
class LogPlan:
    """A log whose tables a run makes.

    Attributes:
        files: Its files; none: the captures alone show it.
        captures: The captures that are named beside them, and the recording that each is.
        held: What the tables will hold then, if no capture shows the log.
        replaced: The clusters whose logs these tables replace.
        known: The stored files of ``known_batches`` of these.
        shown: Those of the other tables, where captures showed the log that are not named again.
        files_read: Those of the tables that tell of its files, where none is named again.
    """

    files: LogFiles
    captures: Mapping[str, Recording]
    held: _Held
    replaced: list[str] = field(default_factory=list)
    known: list[Place] = field(default_factory=list)
    shown: dict[str, list[Place]] = field(default_factory=dict)
    files_read: dict[str, list[Place]] = field(default_factory=dict)

    def held_with(self, shown_by: Collection[str]) -> _Held:
        """What the tables hold of the log, where these captures show it."""
        captures = frozenset(self.captures[file].id for file in shown_by) | self.held.captures
        return self.held._replace(captures=captures, blank=self.held.blank - captures)


@dataclass(slots=True)
class MadeLog:
    """The files that a task made of a log.

    Attributes:
        rows, spans: Of each, see ``kproto.tables.writing.TableFiles``; none: the captures show no record of it.
        shown_by: The captures that show the log.
        bad_inputs: That table.
    """

    rows: dict[str, int]
    spans: dict[str, list[int]]
    shown_by: list[str]
    bad_inputs: pa.Table


def logs_among(captures: Sequence[str]) -> tuple[LogFiles, list[str]]:
    """Part captures into the files of a metadata log, by their absolute paths, and the others."""
    found, others = find(captures)
    every = (found.segments, found.snapshots, found.states)
    return LogFiles(*([str(Path(path).absolute()) for path in paths] for paths in every)), others


def plan_log(
    files: LogFiles,
    captures: Mapping[str, Recording],
    stored: StoredTables | None,
    cluster: str,
    *,
    is_more_shown: bool,
) -> tuple[LogPlan | None, list[str]]:
    """Return what a run makes of a log, and why it leaves one as it is; None: nothing is made.

    Args:
        files, captures, cluster: The log's files, the recording that each capture beside them is, and the cluster;
            without files the log is what captures and stored tables show.
        stored: The tables.
        is_more_shown: Whether the captures have more than the tables.

    Raises:
        CaptureError: A file cannot be read.
    """
    recordings = frozenset(each.id for each in captures.values())
    facts = {} if stored is None else stored.facts.get("logs", {})
    former = {name: _Held.from_json(entry) for name, entry in facts.items()}
    sizes = sorted({size for held in former.values() for size, _hash in held.segments})
    named = [_hashes(path, sizes) for path in files.segments]
    beginnings = {each for hashes in named for each in hashes}
    replaced = [name for name, held in former.items() if held.segments & beginnings]
    replaced = [*dict.fromkeys([*replaced, *([cluster] if cluster in former else [])])]
    known: list[Place] = []
    shown: dict[str, list[Place]] = {}
    files_read: dict[str, list[Place]] = {}

    def places(table: str, name: str) -> list[Place]:
        assert stored is not None
        return [stored.place(file) for file in stored.paths(table) if is_of_log(file, [name])]

    for name in replaced:
        of_log = places("known_batches", name)
        missing = len(former[name].segments - beginnings)
        unshown = len(former[name].captures - recordings)
        if unshown and of_log and replaced == [cluster] and not recordings:
            unshown = 0
            shown = {table: places(table, name) for table in METADATA_TABLES}
        if not files:
            files_read = {table: places(table, name) for table in _OF_FILES}
        why = ""
        if unshown or (missing and not of_log):
            lacking = f"{unshown} captures" if unshown else f"{missing} segments"
            why = f"{lacking} of it are not named: name them too"
        elif missing and files and not _is_same(files, _known(of_log)):
            why = "what is named is another one: name its cluster with --cluster"
        if why:
            return None, [
                f"the metadata log of cluster {name!r} is left as the tables have it; {why}, or make new tables with "
                "--overwrite"
            ]
        known += of_log
    held = _Held(
        frozenset(hashes[-1] for hashes in named),
        frozenset(_hashes(path, ())[-1] for path in (*files.snapshots, *files.states)),
        former[replaced[0]].captures if shown else frozenset(),
        former[replaced[0]].blank if shown else recordings,
    )
    same = former.get(cluster)
    if same is not None and not files:
        held = held._replace(segments=same.segments, others=same.others)
    if same is not None and not is_more_shown and same[:2] == held[:2] and held.blank <= same.captures | same.blank:
        return None, []
    return LogPlan(files, captures, held, replaced, known, shown, files_read), []


def _known(files: Sequence[Place]) -> ShownLog:
    """Read the log that stored files of ``known_batches`` hold.

    Raises:
        ConfigurationError: A file is damaged.
    """
    try:
        return known_log(_read(files, KNOWN["known_batches"]))
    except (pa.ArrowException, ValueError, TypeError) as e:
        reason = str(e).partition("\n")[0]
        raise ConfigurationError(
            f"the metadata log in the tables cannot be read ({reason}); make new tables with --overwrite"
        ) from e


def _read(files: Sequence[Place], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *map(read_parquet, files)])


def _is_same(files: LogFiles, known: ShownLog) -> bool:
    """Whether files can be of a known log: they share batches with it, or have other offsets; no batch differs."""
    log = read(files)
    shared = [
        (batch, known.batches[batch.epoch, batch.base_offset][0])
        for batch in log.batches
        if (batch.epoch, batch.base_offset) in known.batches
    ]
    if shared or not (log.batches and known.batches):
        return all(one.crc == other.crc for one, other in shared)
    first = min(batch.base_offset for batch, _where in known.batches.values())
    last = max(batch.last_offset for batch, _where in known.batches.values())
    return log.batches[0].base_offset > last or log.batches[-1].last_offset < first


def _hashes(path: str, sizes: Sequence[int]) -> list[tuple[int, str]]:
    """Return the hashes of a file's beginnings of some sizes, ascending, and of the whole, each with its size."""
    found: list[tuple[int, str]] = []
    state, at = blake2b(digest_size=16), 0
    try:
        with Path(path).open("rb") as file:
            for size in sizes:
                while at < size and (data := file.read(min(size - at, _CHUNK))):
                    state.update(data)
                    at += len(data)
                if at < size:
                    break
                found.append((at, state.hexdigest()))
            while data := file.read(_CHUNK):
                state.update(data)
                at += len(data)
    except OSError as e:
        raise CaptureError(f"{path}: {e.strerror or e}") from None
    return [*found, (at, state.hexdigest())]


def make_log(
    spark: SparkSession, plan: LogPlan, directory: Place, filters: Filters, cluster: str, *, live_from_us: int
) -> MadeLog:
    """Make the tables of a log in one task, see ``write_log``; its executor opens the files by the names given here."""

    def run(numbers: Iterator[int]) -> Iterator[object]:
        for _number in numbers:
            yield write_log(plan, directory, filters, cluster, live_from_us=live_from_us)

    (made,) = results(for_each(spark, 1, run))
    assert isinstance(made, MadeLog)
    return made


def write_log(plan: LogPlan, directory: Place, filters: Filters, cluster: str, *, live_from_us: int) -> MadeLog:
    """Write the tables of a log into a directory; for ``live_from_us`` see ``tables_of_files``."""
    points = points_of(list(plan.captures)) if plan.captures else []
    traffic = read_traffic(points, ports=filters.ports)
    shown_by = [file for point in points if point.name in traffic.shown_by for file in point.files]
    shown = {name: _read(files, METADATA_TABLES[name]) for name, files in plan.shown.items()}
    if not (plan.files or (shown_by and (plan.known or traffic.batches))):
        return MadeLog({}, {}, [], without_records(next(iter(plan.captures))))
    known = _known(plan.known)
    files_read = {name: _read(files, (TABLES | METADATA_TABLES)[name]) for name, files in plan.files_read.items()}
    epochs = files_read["quorum_epochs"].to_pylist() if files_read else ()
    states = [
        QuorumState("", row["controller_id"], row["controller_epoch"], -1, ())
        for row in epochs
        if row["log_offset"] is None
    ]
    labels = [plan.captures[file].capture for file in shown_by[:1]]
    labels += [table["capture"][0].as_py() for table in shown.values() if table.num_rows][:1]
    tables = tables_of_files(
        plan.files, filters, traffic, capture=labels[0] if labels else None, cluster=cluster,
        live_from_us=live_from_us, known=known._replace(states=states),
    )  # fmt: skip
    tables |= {name: _with_shown(name, tables[name], former) for name, former in shown.items()}
    if files_read:
        captures, bad = files_read["captures"], files_read["bad_inputs"]
        tables["captures"] = with_column(captures, "capture", pa.array([labels[0]] * captures.num_rows, pa.string()))
        of_files = bad.filter(pc.is_in(bad["file"], value_set=captures["file"].combine_chunks()))
        tables["bad_inputs"] = pa.concat_tables([of_files, tables["bad_inputs"]])
    written = TableFiles(directory, _kind(cluster))
    for name, table in tables.items():
        if name not in BY_BODY:
            written.write(name, table)
    for day, requests in days_of(tables["requests"]):
        for name in BY_BODY:
            of_day = pc.is_in(tables[name]["body_id"], value_set=requests["body_id"].combine_chunks())
            written.write(name, tables[name].filter(of_day), day)
    return MadeLog(written.close(), written.spans, shown_by, tables["bad_inputs"])


def _with_shown(name: str, rows: pa.Table, former: pa.Table) -> pa.Table:
    """Rows of a log's table with what captures showed, by its former rows."""
    if name not in _OF_LOG:
        return former
    keys, columns = _OF_LOG[name]
    known: dict[tuple[Any, ...], deque[dict[str, Any]]] = defaultdict(deque)
    for row in former.to_pylist() if columns else ():
        known[tuple(row[key] for key in keys)].append(row)
    made = []
    for row in rows.to_pylist() if columns else ():
        some = known[tuple(row[key] for key in keys)]
        before = some.popleft() if some else {}
        if name == "quorum_members" and before and _is_earlier(row["valid_from"], before["valid_from"]):
            before |= {column: row[column] for column in ("valid_from", "told_by", "log_offset")}
        made.append(row | {column: before[column] for column in columns if before})
    if name in ("quorum_members", "quorum_epochs"):  # those of which captures alone tell
        made += [row for some in known.values() for row in some]
    return pa.Table.from_pylist(made, schema=rows.schema) if columns else rows


def _is_earlier(ours: datetime | None, theirs: datetime | None) -> bool:
    return ours is not None and (theirs is None or ours <= theirs)


def _kind(cluster: str) -> str:
    return _LOG + blake2b(cluster.encode("utf-8", "replace"), digest_size=6).hexdigest()


def is_of_log(file: str, clusters: Collection[str] | None = None) -> bool:
    """Whether a stored file is of a metadata log: of any, or of one of some clusters."""
    kind = kind_of(file)
    return kind.startswith(_LOG) if clusters is None else kind in map(_kind, clusters)


def without_logs(stored: StoredTables) -> StoredTables:
    """Stored tables without the files of metadata logs."""
    return replace(stored, rows={file: rows for file, rows in stored.rows.items() if not is_of_log(file)})
