"""Captures -> tables on disk: each capture is read once, the states of each distinct body are written once."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import kproto
from kproto import tables
from kproto.capture import BadInput
from kproto.errors import CaptureError
from kproto.pipeline.captures import gather_captures
from kproto.pipeline.previous_run import PreviousRun, at_store, fingerprint, store_facts
from kproto.pipeline.splitting import SPLIT_BYTES
from kproto.pipeline.stages import SMALL_TABLES, learn, small_table
from kproto.pipeline.tasks import count_changes, make_tables
from kproto.tables.filters import Filters
from kproto.tables.places import place_of, remove_tree
from kproto.tables.points import DEFAULT_CLUSTER, points_of
from kproto.tables.reading import why_nothing
from kproto.tables.stored import SUMMARY, read_parquet, stored_pieces
from kproto.tables.writing import write_table
from kproto.verdicts.summary import SUMMARY_COLUMNS, Figures, summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from kproto.capture import CapturePoint
    from kproto.pipeline.output import OutputDirectory
    from kproto.pipeline.stages import BrokersAndEpochs, StagedPart, TaskOutput
    from kproto.tables.brokers import BrokerFacts
    from kproto.tables.places import Place

__all__ = ["BadInput", "Run", "analyze", "unchanged"]


@dataclass(slots=True)
class Run:
    """What a run did.

    Attributes:
        inputs: The captures.
        rows: Table -> rows written.
        captures_read: How many capture points were read.
        bodies_decoded: Distinct bodies, whose states were each written once.
        bad_inputs: Pieces of captures that could not be read; without an offset: captures without any request.
        summary: As ``kproto.verdicts.summarize`` gives it.
        seconds: Wall time.
        gone: Files that no longer exist, and whose rows the tables keep.
    """

    inputs: list[str]
    rows: dict[str, int] = field(default_factory=dict)
    captures_read: int = 0
    bodies_decoded: int = 0
    bad_inputs: list[BadInput] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    gone: list[str] = field(default_factory=list)


def analyze(
    spark: SparkSession,
    captures: Sequence[str],
    out: OutputDirectory,
    *,
    filters: Filters | None = None,
    split_bytes: int = SPLIT_BYTES,
    capture_point: str | None = None,
    cluster: str = DEFAULT_CLUSTER,
    on_step: Callable[[str], object] = lambda _step: None,
) -> Run:
    """Make the tables of some captures.

    Args:
        spark: The session. Its executors must see the captures and ``out`` under the same paths.
        captures: Files, directories, patterns, URIs.
        out: The directory for the tables.
        filters: Which requests to keep; None keeps all control requests.
        split_bytes: Captures of twice this size or more are read in parts of about this size; 0: never.
        capture_point: The place where all captures were recorded, one after the other; None finds it by their names.
        cluster: The cluster whose brokers the captures show.
        on_step: Called with a short description of each step.

    Raises:
        CaptureError: None of the captures holds a wanted control request; says why.
        ConfigurationError: ``out`` cannot be written to; or rows would be lost whose captures are gone.
    """
    started = time.monotonic()
    filters = filters or Filters()
    points = points_of(captures, capture_point, cluster)
    with out.writing():
        if (same := unchanged(captures, out, filters, capture_point, cluster)) is not None:
            return same
        inputs = fingerprint(points, filters)
        former = PreviousRun.of(out.path)
        job = _Job(spark, out.run, filters, split_bytes, cluster, on_step, Run(list(captures)))
        if former:
            together, gone = former.with_gone(inputs)
            added = former.added(points, together, kproto.__version__)
        if former and added and job.add_to(former, added):
            inputs, job.run.gone = together, gone
        else:
            if former:
                former.check_not_lost(inputs, out)
            job.make(points)
        job.run.seconds = time.monotonic() - started
        out.publish(_manifest(job.run) | inputs)
    return job.run


def unchanged(
    captures: Sequence[str],
    out: OutputDirectory,
    filters: Filters | None = None,
    capture_point: str | None = None,
    cluster: str = DEFAULT_CLUSTER,
) -> Run | None:
    """The run whose tables ``out`` holds, if the same captures as they are today were read with the same filters.

    Captures that are gone since then, and whose rows are kept, do not count as a change.
    """
    filters = filters or Filters()
    former = PreviousRun.of(out.path)
    if former is None:
        return None
    points = points_of(captures, capture_point, cluster)
    wanted, gone = former.with_gone(fingerprint(points, filters))
    if former.added(points, wanted, kproto.__version__) != []:
        return None
    if len(former.manifest["points"]) != len(wanted["points"]):
        return None
    try:
        summary = former.summary()
    except (OSError, ValueError):
        return None
    said = former.manifest
    return Run(
        list(captures),
        said["tables"],
        bodies_decoded=said["bodies_decoded"],
        bad_inputs=[BadInput(**bad) for bad in said["bad_inputs"]],
        summary=summary,
        seconds=said["seconds"],
        gone=gone,
    )


class _Job:
    """One run: reads capture points and makes the tables in a directory."""

    def __init__(
        self,
        spark: SparkSession,
        directory: Place,
        filters: Filters,
        split_bytes: int,
        cluster: str,
        on_step: Callable[[str], object],
        run: Run,
    ) -> None:
        self.run = run
        self._split_bytes = split_bytes
        self._cluster = cluster
        self._spark = spark
        self._directory = directory
        self._work = directory / "tasks"
        self._filters = filters
        self._on_step = on_step

    def make(self, points: Sequence[CapturePoint]) -> None:
        """Make all tables."""
        pieces = self._gather(points)
        self._check(pieces)
        made = self._tables(pieces, learn(pieces, self._filters))
        self._write_small(pieces)
        self._on_step("summing up")
        self._finish(_summary(self._spark, made, self._directory), [piece.facts for piece in pieces], made)

    def add_to(self, former: PreviousRun, points: Sequence[CapturePoint]) -> bool:
        """Make the tables of some more captures beside the former ones'; False if those must be read again.

        They must if the new captures tell more of the brokers' ids. The summary is that of the stored tables.
        """
        pieces = self._gather(points)
        facts = [piece.facts for piece in pieces]
        if not former.holds_beside(facts, self._filters):
            remove_tree(self._work)
            return False
        former.link_into(self._directory)
        knowledge = learn(pieces, self._filters, [former.facts])
        made = self._tables(pieces, knowledge, former)
        self._write_small(pieces, former)
        self._on_step("summing up")
        summary = summarize(stored_pieces(self._directory, SUMMARY_COLUMNS))
        self._finish(summary, [former.facts, *facts], made, former.addresses)
        return True

    def _gather(self, points: Sequence[CapturePoint]) -> list[StagedPart]:
        self._on_step("reading captures")
        self.run.captures_read += len(points)
        return gather_captures(self._spark, points, self._work, self._filters, self._split_bytes, self._cluster)

    def _check(self, pieces: Sequence[StagedPart]) -> None:
        """Raise if the captures hold no wanted request."""
        if not any(piece.rows["requests"] for piece in pieces):
            raise CaptureError(why_nothing(small_table([piece.path for piece in pieces], "bad_inputs").to_pylist()))

    def _tables(
        self, pieces: Sequence[StagedPart], knowledge: BrokersAndEpochs, former: PreviousRun | None = None
    ) -> list[TaskOutput]:
        """Write the tables, move their files to their places and count their rows."""
        self._on_step("writing tables")
        run = self.run
        run.rows = dict(former.manifest["tables"]) if former else dict.fromkeys(tables.TABLES, 0)
        run.bodies_decoded = former.manifest["bodies_decoded"] if former else 0
        stored = self._directory / "bodies" if former else None
        made = make_tables(self._spark, pieces, self._work, knowledge, self._filters, stored)
        for each in made:
            run.bodies_decoded += each.bodies
            for file, rows in each.files.items():
                run.rows[file.partition("/")[0]] += rows
        at_store(lambda move: self._keep(*move), [(each.path, file) for each in made for file in each.files])
        if not run.rows["requests"]:
            raise CaptureError(why_nothing(small_table([piece.path for piece in pieces], "bad_inputs").to_pylist()))
        for name, schema in tables.TABLES.items():
            if not run.rows[name] and name not in SMALL_TABLES:  # readers find its columns
                write_table(self._directory / name / "part-empty.zstd.parquet", name, schema.empty_table())
        return made

    def _keep(self, task: str, file: str) -> None:
        """Move a task's file to its place among the tables."""
        place = self._directory / file
        place.parent.mkdir(parents=True, exist_ok=True)
        (place_of(task) / file).rename(place)  # type: ignore[arg-type]  # both are paths, or both URIs

    def _write_small(self, pieces: Sequence[StagedPart], former: PreviousRun | None = None) -> None:
        for name in SMALL_TABLES:
            table = small_table([piece.path for piece in pieces], name)
            if former:
                table = pa.concat_tables([read_parquet(former.run / name).cast(table.schema), table])
                if name == "live_brokers":
                    table = table.group_by(table.column_names, use_threads=False).aggregate([]).cast(table.schema)
            write_table(self._directory / name / "part-0.zstd.parquet", name, table)
            self.run.rows[name] = table.num_rows
            if name == "bad_inputs":
                bad = (BadInput(**row) for row in table.to_pylist())
                self.run.bad_inputs = sorted(bad, key=lambda row: (row.file, row.offset or -1))

    def _finish(
        self,
        summary: dict[str, Any],
        facts: Sequence[BrokerFacts],
        made: Sequence[TaskOutput],
        addresses: Sequence[tuple[str, str, int]] = (),
    ) -> None:
        self.run.summary = summary
        (self._directory / SUMMARY).write_text(json.dumps(summary, ensure_ascii=False) + "\n", encoding="utf-8")
        store_facts(self._directory, facts, set(addresses).union(*(each.addresses for each in made)))
        remove_tree(self._work)


def _summary(spark: SparkSession, made: Sequence[TaskOutput], directory: Place) -> dict[str, Any]:
    """Merge the figures of all tasks."""
    figures = Figures()
    for each in made:
        figures.merge(each.figures)
    for changes in count_changes(spark, made):
        figures.add_changes(changes)
    figures.add({name: read_parquet(directory / name) for name in SMALL_TABLES})
    return figures.rows()


def _manifest(run: Run) -> dict[str, Any]:
    return {
        "kproto": kproto.__version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "inputs": run.inputs,
        "tables": run.rows,
        "bodies_decoded": run.bodies_decoded,
        "bad_inputs": [asdict(bad) for bad in run.bad_inputs],
        "seconds": round(run.seconds, 3),
    }
