"""``kproto query``: answers questions from the tables that ``kproto analyze`` wrote, or from a capture."""

from __future__ import annotations

import csv
import json
import sys
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from kproto.api import api_name
from kproto.cli.no_pandas import keep_pandas_out
from kproto.cli.options import among, answer_filters, cluster_option, format_option, timed
from kproto.cli.progress import waiting
from kproto.cli.table_source import span_of_tables, tables_of
from kproto.cli.text import LEADERS
from kproto.cli.times import moment_ns
from kproto.error_codes import error_name
from kproto.errors import ConfigurationError
from kproto.tables.files import is_pattern, is_uri
from kproto.tables.filters import Filters
from kproto.text import csv_cell, meant, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kproto.cli.times import Span
    from kproto.query import Answer

_NAMES: Final[dict[str, Callable[[int], int | str]]] = {
    "api_key": api_name,
    "error_code": error_name,
    **dict.fromkeys(("leader", "former_leader", "leaders"), lambda leader: LEADERS.get(leader, leader)),
}
"""Columns of codes that the text output shows by name; JSON and CSV keep the codes."""


_QUESTIONS: Final = {
    "events": "what happened, in order: controllers, brokers, topics ...",
    "reassignments": "partitions that got other replicas, from when to when",
    "leader": "who led a partition, until when, by which controller",
    "controllers": "which controller was active in which epoch",
    "brokers": "what a broker was to KRaft's controller: fenced, shut down",
    "elections": "how each leader of KRaft's quorum came",
    "quorum-members": "who votes in KRaft's quorum, who only follows",
    "quorum-outages": "when KRaft's quorum had no leader that answered",
    "metadata-lag": "when a broker was told KRaft's metadata, and applied it",
    "asked": "who asked KRaft's controller for which change",
    "offline": "partitions without a leader, from when to when",
    "under-replicated": "partitions with fewer in-sync replicas than replicas",
    "off-preferred": "partitions whose leader is not the first of the replicas",
    "diff": "partitions that differ at two times, or in two captures",
    "isr": "when in-sync replicas left and came back, who asked for it",
    "flaps": "partitions that changed their leader again and again",
    "restarts": "each registration of a broker, by its broker epochs",
    "findings": "what the rules of kproto doctor find, the worst first",
    "behind": "brokers that were never sent a partition's newest state",
    "missed": "metadata updates that a broker never got, most others did",
    "lag": "time from the first broker's metadata update to each other",
    "stale": "requests of a former controller, or for a former broker",
    "errors": "which errors brokers answered, and how often",
    "worst": "the worst brokers of each week: offline, out of ISRs, late",
}
"""The questions by name, each in a line: for help and completion, which need no DuckDB."""


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and, behind one, the questions."""
    files = [CompletionItem(incomplete, type="file")]
    return files + (among(_QUESTIONS, incomplete) if context.params.get(parameter.name or "") else [])


@click.command(
    epilog="""\b
Questions:
"""  # noqa: S608  # the help shows a query
    + "".join(f"  {name:<18}{text}\n" for name, text in _QUESTIONS.items())
    + """
\b
Examples:
  kproto analyze control.pcap --out tables
  kproto query control.pcap events
  kproto query control.pcap leader --topic orders --at 05:59:08
  kproto query control.pcap off-preferred --at 05:59:08
  kproto query broker-*.pcap.gz missed
  zcat control.pcap.gz | kproto query - errors
  kproto query tables leader --partition orders-3 --at 2026-11-21T05:59:08
  kproto query control.pcap diff --from 05:58 --to 05:59:30 --topic orders
  kproto query monday.pcap diff --with friday.pcap
  kproto query control.pcap restarts --broker 7
  kproto query tables missed --broker 7 --since 2026-11-21T05:59
  kproto query tables behind --topic 'orders*' --broker 7
  kproto query tables stale --format json | jq .controller_id
  kproto query tables flaps --format csv > flaps.csv
  kproto query s3://bucket/tables errors
  kproto query tables \\
      --sql "SELECT broker_id, max(latency_us) FROM requests GROUP BY ALL"

\b
--sql takes DuckDB's SQL over the tables that kproto tables describes. """
)
@click.argument("words", nargs=-1, required=True, metavar="DIR|CAPTURE... [QUESTION]", shell_complete=_complete)
@answer_filters
@cluster_option
@click.option(
    "--at", metavar="TIME", help="Only rows valid at this time: of leader, offline, off-preferred, restarts and others."
)
@click.option("--from", "begin", metavar="TIME", help="The first of the two times that diff compares.")
@click.option("--to", "end", metavar="TIME", help="The second; without it, the end of the captures.")
@click.option(
    "--with",
    "others",
    multiple=True,
    metavar="DIR|CAPTURE",
    help="Tables or captures that diff compares with. Repeatable.",
)
@click.option("--sql", metavar="TEXT", help="A query of your own, instead of a question.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The most rows that are printed.")
@format_option("json", "csv")
def command(
    words: tuple[str, ...],
    filters: Filters,
    *,
    cluster: str | None,
    since: str | None,
    until: str | None,
    at: str | None,
    begin: str | None,
    end: str | None,
    others: tuple[str, ...],
    sql: str | None,
    limit: int | None,
    form: str,
) -> None:
    """Ask the tables in DIR, which kproto analyze wrote, or captures; without QUESTION: count the rows of each table.

    CAPTURE is a file, a directory of files, or - for standard input; rotated files are one stream. Answers are those of
    clusters, whichever hosts recorded them and whatever their clocks say: an exchange that two captures show counts
    once. Between hosts, lag is as exact as what they share tells of their clocks.

    diff --with OTHER compares the state at the end of the captures (or at --from) with that at the end of OTHER (or at
    --to), which is of the same cluster. A partition of which OTHER tells nothing is "not seen".

    Captures are read into memory for the question; to ask large ones, or often, keep tables: kproto analyze.

    --format json prints an object a line. Ids are in hexadecimal, times in UTC. In text APIs and errors have their
    names, and no leader is none; JSON and CSV have the codes.
    """
    keep_pandas_out()
    from kproto.capture.file_ends import is_pipe
    from kproto.query import QUESTIONS, ask, ask_sql, isr_requests, open_tables
    from kproto.tables.places import place_of
    from kproto.tables.schemas import TABLES

    sources, question = _split(words, tuple(QUESTIONS))
    of_rows = replace(filters, broker_ids={}, ports=None, logs=Filters().logs)
    if sql is not None and (
        question or at or begin or end or others or since or until or limit or of_rows != Filters()
    ):
        raise ConfigurationError("--sql is a whole query; put conditions and LIMIT into it, and name no question")
    with waiting("reading"):
        run = tables_of([place_of(source) for source in sources], filters)
    once = any(source == "-" or is_uri(source) or is_pipe(source) for source in sources)
    if question == "isr" and isinstance(run, dict) and not once:
        run["isr_requests"] = isr_requests(*sources)
    with waiting("asking"), ExitStack() as opened:
        tables = opened.enter_context(open_tables(run, cluster, filters.broker_ids))
        if sql is not None:
            answer = ask_sql(tables, sql)
        elif question is not None:
            span = partial(span_of_tables, tables)
            chosen = timed(filters, since, until, span)
            other, span_to = None, span
            if others:
                there = tables_of([place_of(source) for source in others], filters)
                other = opened.enter_context(open_tables(there, None, filters.broker_ids))
                span_to = partial(span_of_tables, other)
            at_ns, from_ns = (moment_ns(time, span) if time else None for time in (at, begin))
            to_ns = moment_ns(end, span_to) if end else None
            answer = ask(tables, question, chosen, at_ns=at_ns, from_ns=from_ns, to_ns=to_ns, other=other, limit=limit)
            given = {"--at": at_ns, "--from": from_ns, "--since": chosen.since_ns, "--until": chosen.until_ns}
            of_other = {"--to": to_ns}
            notes = [answer.note, _outside(given | ({} if others else of_other), span)]
            notes += [_outside(of_other, span_to)] if others else []
            answer = answer._replace(note="; ".join(filter(None, notes)))
        else:
            counts = (f"SELECT '{name}' AS \"table\", count(*) AS rows FROM {name}" for name in TABLES)  # noqa: S608
            answer = ask_sql(tables, " UNION ALL ".join(counts))
    if question == "events":
        from kproto.verdicts.events import command_for

        answer = answer._replace(rows=[(*row[:-1], command_for(row[-1], sources)) for row in answer.rows])
    title = QUESTIONS[question].text if question is not None else "Answer" if sql else "Tables"
    names = ["broker_id" if name == "broker" and question else name for name in answer.columns]
    match form:
        case "json":
            for row in answer.rows:
                print(json.dumps(dict(zip(names, map(_json_value, row), strict=True))))
        case "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(names)
            writer.writerows(
                [csv_cell(_text(v)) if isinstance(v, str) else _text(v) for v in row] for row in answer.rows
            )
        case _:
            _print_text(title, answer)
    if answer.note:
        print(f"note: {printable(answer.note)}", file=sys.stderr)


def _outside(times: Mapping[str, int | None], span: Callable[[], Span]) -> str:
    """Say which times, by option, lie outside the captures; empty: none does."""
    if all(time_ns is None for time_ns in times.values()):
        return ""
    begin_ns, end_ns = span()
    outside = [  # a bound before or behind all captures takes all of them
        option
        for option, time_ns in times.items()
        if time_ns is not None
        and not begin_ns <= time_ns <= end_ns
        and not (option == "--since" and time_ns < begin_ns)
        and not (option == "--until" and time_ns > end_ns)
    ]
    if not outside:
        return ""
    reach = " to ".join(_time(datetime.fromtimestamp(ns / 1e9, UTC))[:23] + "Z" for ns in (begin_ns, end_ns))
    verb = "lies" if len(outside) == 1 else "lie"
    return f"{' and '.join(outside)} {verb} outside the captures, which reach from {reach}"


def _split(words: Sequence[str], questions: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """Tell the captures, or the directory of tables, from the question behind them.

    Raises:
        ConfigurationError: The last word is neither.
    """
    *sources, last = words
    if not sources:
        if last in questions and not Path(last).exists():
            raise ConfigurationError(
                f"name a capture or a directory of tables before the question: query CAPTURE {last}"
            )
        return words, None
    if first := next((word for word in sources if word in questions and not Path(word).exists()), None):
        rule = "a query has one question" if last in questions else "the question comes last"
        raise ConfigurationError(f"{rule}: query CAPTURE {first}")
    if last in questions:
        return sources, last
    if last != "-" and not is_uri(last) and not is_pattern(last) and not Path(last).exists():
        raise ConfigurationError(f"there is no question {last!r}; {meant(last, questions)}")
    return words, None


def _print_text(title: str, answer: Answer) -> None:
    from kproto.cli.sections import Section, print_sections

    if not answer.rows:
        print_sections([Section(title, text="nothing")])
        return
    days = {_time(value)[:10] for row in answer.rows for value in row if isinstance(value, datetime)}
    of_one_day = sys.stdout.isatty() and len(days) == 1
    rows = [[_named(name, value) for name, value in zip(answer.columns, row, strict=True)] for row in answer.rows]
    names = [_heading(name, [row[number] for row in rows]) for number, name in enumerate(answer.columns)]
    cells = [
        [_time(v)[11:23] if of_one_day and isinstance(v, datetime) else _text(v) or "-" for v in row] for row in rows
    ]
    print_sections([Section(title, names, cells, f"times are of {min(days)}, UTC" if of_one_day else "")])


def _named(column: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_named(column, item) for item in value]
    return _NAMES[column](value) if column in _NAMES and isinstance(value, int) else value


def _heading(name: str, values: Sequence[Any]) -> str:
    """Return a column's heading, marked as a number or as a text that may be shortened."""
    kinds = {type(value) for value in values if value is not None}
    return f">{name}" if kinds & {int, float} else f"~{name}" if kinds == {str} else name


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ",".join(_text(item) for item in value)
        case datetime():
            return _time(value)
        case bytes():
            return value.hex()
    return printable(str(value))


def _json_value(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_json_value(item) for item in value]
        case dict():
            return {str(key): _json_value(item) for key, item in value.items()}
    return _text(value)


def _time(value: datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return f"{value.isoformat(timespec='microseconds')}Z"
