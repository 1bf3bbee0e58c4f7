"""``kproto analyze``: turns captures into Parquet tables, and prints their summary."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Final, Self

import click

from kproto.cli.footer import warn_of_bad_inputs
from kproto.cli.options import CaptureCommand, PlaceType, capture_filters, format_option
from kproto.cli.progress import waiting
from kproto.cli.report import check_place, page_written
from kproto.cli.sections import Section, print_sections
from kproto.cli.summary import check_apis
from kproto.cli.summary_text import page_of
from kproto.errors import CaptureError, ConfigurationError, first_reasons
from kproto.tables.files import is_uri
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.text import counted, from_here, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark import StatusTracker
    from pyspark.sql import SparkSession
    from rich.status import Status

    from kproto.pipeline import OutputDirectory, Run
    from kproto.tables.filters import Filters
    from kproto.tables.places import Place

_SMALL: Final = 32 << 20
"""Captures of fewer bytes are analysed with Spark settings for a quick start rather than for throughput."""


@click.command(
    cls=CaptureCommand,
    epilog="""\b
When: to keep tables on disk, or for captures beyond one machine's memory.
For the answer alone, in a second and without Java: kproto summary. For the
same tables in Python, without Spark: kproto.tables.read.

\b
Tables, in Parquet, below DIR: requests, responses, partition_errors,
partition_states, frames, bodies, brokers, live_brokers, captures,
bad_inputs. kproto tables describes every column. partition_states holds
each distinct body once, however many brokers got it; requests.body_id
joins it.

\b
Examples:
  kproto analyze control.pcap --out tables
  kproto analyze captures/*.pcap.gz --out tables --overwrite \\
      --since 2026-11-21T05:59
  kproto analyze control.pcap --out tables --report report.html
      and a page to look at
  kproto analyze control.pcap --out tables --topic 'orders*'
      only what names these topics
  kproto analyze control.pcap --out tables --format json | jq .requests
  kproto analyze __cluster_metadata-0 --out tables
      a copy of KRaft's metadata log, alone or beside captures
  kproto analyze monday.pcap --out tables --cluster prod-eu
      captures of other clusters may follow
  kproto analyze --follow recordings --out tables
      add what arrives, until Ctrl-C
  kproto analyze /shared/*.pcap --out /shared/tables \\
      --master spark://host:7077
  kproto analyze s3://bucket/captures/*.pcap --out s3://bucket/tables
  spark-submit --master yarn $(which kproto) analyze hdfs.pcap \\
      --out /shared/tables
  duckdb -c "select broker_id, max(latency_us)
      from 'tables/requests/**/*.parquet' group by all" """,
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@click.option(
    "--out",
    required=True,
    type=PlaceType(),
    metavar="DIR",
    help="Where the tables go: a directory, or a URI such as s3://bucket/tables.",
)
@click.option("--master", metavar="URL", help="Spark's master; else that of spark-submit, else local[*].")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting. Repeatable.")
@click.option(
    "--capture-point",
    metavar="NAME",
    help="The label of all captures; else their names make it. A later run may change it.",
)
@click.option(
    "--cluster",
    default=DEFAULT_CLUSTER,
    metavar="NAME",
    help="The cluster whose brokers the captures show; brokers are compared within it. A later run may change it.",
)
@click.option(
    "--follow", "follows", is_flag=True, help="Add captures to the tables as they arrive in CAPTURE, until Ctrl-C."
)
@click.option("--overwrite", is_flag=True, help="Make tables of CAPTURE alone, even beside other files in DIR.")
@capture_filters
@format_option("json")
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write kproto report's page."
)
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Keep Spark's own log.")
def command(
    captures: tuple[str, ...],
    filters: Filters,
    *,
    out: Place,
    master: str | None,
    conf: tuple[str, ...],
    follows: bool,
    overwrite: bool,
    form: str,
    report: Path | None,
    log: Path | None,
    **labels: Any,
) -> None:
    """Turn captures into tables with PySpark, and sum them up.

    CAPTURE is a pcap or pcapng file or a broker's kafka-request.log, either also packed; or a directory, a
    pattern, or a URI that pyarrow opens, such as s3://bucket/captures/*.pcap; or a copy of KRaft's
    __cluster_metadata-0, or its files. Each is read once, and the states of each
    distinct message body are written once. With another --master than local, every worker must see CAPTURE and DIR.

    In a job of spark-submit, whose program is "from kproto.__main__ import main; main()", its master and settings stay.

    DIR is made if need be. What is new is added to the tables that kproto wrote there before: recordings are known by
    their content, whatever they are called now, and joined by their connections, in whatever order they come. Where
    nothing is new, nothing is done. Rows stay when their captures are deleted; they leave by kproto tables expire, and
    by --overwrite, which makes tables of CAPTURE alone. Given new captures alone, it sums up these.
    """
    paths = [] if follows else _readable(captures)
    check_apis(filters)
    if report is not None:
        if str(report) == "-":
            raise ConfigurationError("--report: standard output has the summary; name a file, e.g. report.html")
        check_place(report)
        if isinstance(out, Path) and report.absolute() == out.absolute():
            raise ConfigurationError(f"{report} is the directory of --out; name a file with --report")
    from kproto.pipeline import (
        OutputDirectory,
        analyze,
        check_workers,
        is_cluster,
        spark_session,
        unchanged,
    )
    from kproto.tables.files import file_size

    settings = _settings(conf)
    directory = OutputDirectory(out, overwrite=overwrite)
    directory.check()
    if follows:
        directory.check_writable()
        session = spark_session(master, log=log, settings=settings)
        _follow(captures, directory, session, filters=filters, **labels)
        return
    run = unchanged(paths, directory, filters, **labels)
    is_new = run is None
    if run is None:
        directory.check_writable()
        small = sum(map(file_size, paths)) < _SMALL
        with (
            _explained(out),
            _Steps() as steps,
            spark_session(master, small=small, log=log, settings=settings) as spark,
            _interruptible(),
            steps.watching(spark),
        ):
            if is_cluster(spark.sparkContext.master):
                steps.show("asking the workers")
                check_workers(spark, [path if is_uri(path) else str(Path(path).absolute()) for path in paths], out)
            run = analyze(spark, paths, directory, filters=filters, on_step=steps.show, **labels)
    _note(run)
    is_whole = len(run.summary["captures"]) == run.rows["captures"]
    rest = "summary.json beside the tables has all" if is_whole else f"kproto report {shlex.quote(str(out))} has all"
    try:
        warn_of_bad_inputs(run.summary["bad_inputs"], _listed(out))
        sections = [*page_of(run.summary, rest)]
        is_ours = all(isinstance(cell, str) for section in sections for row in section.rows for cell in row)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        if run.captures_read:
            raise
        is_ours = False
    if not is_ours:
        raise ConfigurationError(f"{out}: kproto did not write the summary.json of these tables; delete it")
    if form == "json":
        facts = {"out": str(out), "inputs": run.inputs, "seconds": round(run.seconds, 3)}
        facts |= {"bodies_decoded": run.bodies_decoded, "tables": run.rows}
        print(json.dumps(facts | run.summary))
    else:
        print_sections([*sections, _tables(run, out, is_new=is_new)])
    if report is not None:
        print(page_written(out, report), file=sys.stderr)
    elif sys.stderr.isatty():
        print(f"kproto report {shlex.quote(str(out))} shows the tables as a page.", file=sys.stderr)


def _follow(
    captures: Sequence[str], out: OutputDirectory, session: AbstractContextManager[SparkSession], **how: Any
) -> None:
    """Follow a directory until Ctrl-C, and print a line about each run."""
    from kproto.pipeline import follow

    if len(captures) != 1 or not (is_uri(captures[0]) or Path(captures[0]).is_dir()):
        what = "; name it alone" if len(captures) > 1 else f": {captures[0]} is none"
        raise ConfigurationError(f"--follow takes one directory, in which captures arrive{what}")

    def said(run: Run) -> None:
        print(
            f"{counted(run.rows['captures'], 'capture')}, {counted(run.rows['requests'], 'request')}, "
            f"{run.seconds:.1f} s",
            flush=True,
        )
        _note(run)
        warn_of_bad_inputs([asdict(bad) for bad in run.bad_inputs], _listed(out.path))

    def waits(reason: str) -> None:
        print(f"no tables yet: {reason}", file=sys.stderr, flush=True)

    with waiting("following"), _explained(out.path), session as spark, _interruptible(), suppress(KeyboardInterrupt):
        follow(spark, captures[0], out, on_run=said, on_nothing=waits, **how)


def _note(run: Run) -> None:
    """Say on standard error what the run left out: copies of other files, requests of days that have expired, logs."""
    if run.copies:
        (copy, original), *others = run.copies.items()
        rest = f", and {len(others)} more" if others else ""
        print(f"{printable(copy)} is a copy of {printable(original)}{rest}: read once", file=sys.stderr)
    if run.expired:
        print(f"{counted(run.expired, 'request')} of days that have expired: not added", file=sys.stderr)
    for note in run.notes:
        print(printable(note), file=sys.stderr)


def _listed(out: Place) -> str:
    return f"all stand in the table bad_inputs: kproto query {shlex.quote(f'{out}')} --sql 'from bad_inputs'"


def _settings(texts: Sequence[str]) -> dict[str, str]:
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise ConfigurationError(f"{text!r} is not KEY=VALUE of Spark; try e.g. --conf spark.executor.memory=2g")
        settings[name] = value
    return settings


def _tables(run: Run, out: Place, *, is_new: bool) -> Section:
    rows = run.rows
    done = f", {run.seconds:.1f} s" if is_new else "; nothing was new"
    return Section(
        "Tables",
        ["table", ">rows"],
        [[name, str(count)] for name, count in rows.items()],
        text=f"in {out}: {counted(rows['captures'], 'capture')}, {counted(rows['frames'], 'frame')} with "
        f"{counted(rows['bodies'], 'distinct body')}{done}",
    )


def _readable(captures: Sequence[str]) -> list[str]:
    """Return the captures, each once.

    Those of a directory, pattern or URI that cannot be read cost only themselves, if any can be.

    Raises:
        CaptureError: A file that the user named is no capture, or no file can be read: told before Spark starts.
    """
    from kproto.capture.capture_points import capture_files
    from kproto.capture.source import faults_of, file_name
    from kproto.metadata_log.finding import find
    from kproto.tables.files import expand, open_file

    if "-" in captures:
        raise ConfigurationError("analyze reads files; save standard input to one first, or try kproto inspect -")
    logs, captures = find(captures)
    files = capture_files(expand(captures)) if captures or not logs else []
    faults = faults_of(files, opener=open_file)
    for file, why in faults.items():
        faults[file] = from_here(file + why.removeprefix(file).removeprefix(file_name(file)))
    there = {name if is_uri(name) else str(Path(name).resolve()) for name in captures}
    named = next((file for file in faults if file in there), None)
    if named is not None:
        raise CaptureError(faults[named])
    if len(faults) == len(files) and not logs:
        raise CaptureError(first_reasons(faults.values()))
    return files + logs.paths() + logs.states


@contextmanager
def _explained(out: Place) -> Iterator[None]:
    """Turn a failure inside Spark into one line instead of two stack traces, and say which disk may be full."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    from kproto.pipeline.output import FULL, NO_SPACE

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # this logger prints stack traces
    try:
        yield
    except OSError as e:
        if e.errno not in FULL:
            raise
        raise click.ClickException(f"{out}: {os.strerror(e.errno).lower()}; {NO_SPACE}") from e
    except (Py4JError, PySparkException) as e:
        if _interrupted(e):
            raise KeyboardInterrupt from None
        for full in map(os.strerror, FULL):
            if full in str(e):
                raise click.ClickException(
                    f"{out}: {full.lower()} there, or where Spark keeps its temporary files "
                    f"({os.environ.get('SPARK_LOCAL_DIRS', gettempdir())}; SPARK_LOCAL_DIRS names another place); "
                    f"{NO_SPACE}"
                ) from e
        lines = [line.strip() for line in str(e).splitlines() if line.strip()]
        reason = next((line for line in lines if "Error" in line or "Exception" in line), lines[0] if lines else "")
        raise click.ClickException(f"Spark failed: {reason[:300]}; --log FILE keeps what Spark says of it") from e


def _interrupted(error: BaseException | None) -> bool:
    """Tell whether Ctrl-C, and the cleaning up after it, caused this failure."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


@contextmanager
def _interruptible() -> Iterator[None]:
    """End quietly on Ctrl-C. Spark's own handler calls the JVM in the middle of another call, and fails."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        logging.disable(logging.CRITICAL)  # Py4J logs the interrupted call at length
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Steps:
    """Shows the current step and its progress on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self._status: Status | None = None
        self._step = "starting Spark"

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status(self._step)
            self._status.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, step: str) -> None:
        self._step = step
        if self._status is not None:
            self._status.update(step)

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Show the running tasks behind the step. Ends before Spark does, since it reads Spark's status tracker."""
        if self._status is None:
            yield
            return
        over = threading.Event()
        tracker = spark.sparkContext.statusTracker()
        watcher = threading.Thread(target=self._poll, args=(self._status, tracker, over), name="kproto-steps")
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join(timeout=10)

    def _poll(self, status: Status, tracker: StatusTracker, over: threading.Event) -> None:
        while not over.wait(0.3):
            stages = [info for info in map(tracker.getStageInfo, tracker.getActiveStageIds()) if info is not None]
            tasks = sum(info.numTasks for info in stages)
            done = sum(info.numCompletedTasks for info in stages)
            status.update(f"{self._step}  [dim]{done}/{tasks} tasks[/dim]" if tasks else self._step)
