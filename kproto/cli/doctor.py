"""``kproto doctor``: says what is wrong with a control plane, the worst first, and shows how to see it."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections import Counter, deque
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kproto.cli.footer import saying_zone, warn_of_bad_inputs
from kproto.cli.options import PlaceType, among, format_option, reading_options
from kproto.cli.progress import waited
from kproto.cli.settings import text_of
from kproto.cli.text import moment_text, terminal_width
from kproto.errors import CaptureError, ConfigurationError
from kproto.text import counted, meant, pasted, printable
from kproto.verdicts.catalogue import LIMITS, RULES, SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from click.shell_completion import CompletionItem

    from kproto.tables.filters import Filters
    from kproto.tables.places import Place
    from kproto.verdicts.doctor import Finding
    from kproto.verdicts.facts import Facts

_FOUND: Final = 1
"""The exit code where ``--fail-on`` holds."""

_BROKERS: Final = 4
"""The most lines of one rule."""

_MOST_REQUESTS: Final = 500_000
"""The most requests of captures that findings rest on, the last ones: a stream may run for days."""

_AROUND_US: Final = 1_000_000
_INDENT: Final = " " * 9


def _complete_rule(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a rule's id, or its name."""
    by_id = {rule.id: f"{rule.name}: {rule.meaning}" for rule in RULES.values()}
    by_name = {rule.name: f"{rule.id}: {rule.meaning}" for rule in RULES.values()}
    return among(by_id, incomplete) or among(by_name, incomplete)


def _rules_option(option: str, name: str, description: str) -> Callable[..., Any]:
    return click.option(option, name, multiple=True, metavar="RULE", shell_complete=_complete_rule, help=description)


@click.command(
    epilog="""\b
Examples:
  kproto doctor control.pcap
      what is wrong, the worst first
  kproto doctor captures/ --fail-on warning
      exit code 1 from warnings on
  kproto doctor tables
      tables of kproto analyze
  tcpdump -i any -w - port 9092 | kproto doctor -
  kproto doctor --explain KP011
      what a finding means
  kproto doctor --explain all
      all rules and limits
  kproto doctor control.pcap --limit offline=5 --limit min-isr=2
  kproto doctor control.pcap --format json > known.jsonl
  kproto doctor later.pcap --baseline known.jsonl
      only what is new

\b
docs/verdicts.md defines every rule and term. """
)
@click.argument("sources", nargs=-1, metavar="CAPTURE...|TABLES", type=PlaceType())
@click.option(
    "--explain",
    metavar="RULE",
    shell_complete=lambda _c, _p, begun: [*among({"all": "every rule"}, begun), *_complete_rule(_c, _p, begun)],
    help="Explain a rule, such as KP011, or all; nothing is read.",
)
@click.option(
    "--fail-on", type=click.Choice(SEVERITIES), help="Exit with 1 if there is such a finding, or a worse one."
)
@_rules_option("--rule", "rules", "Only this rule. Repeatable.")
@_rules_option("--ignore", "ignored", "Not this rule. Repeatable.")
@click.option(
    "--baseline",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Leave out the findings in FILE, which --format json printed before.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=lambda _context, _parameter, begun: among(
        {f"{limit.name}={limit.default:g}": f"{limit.unit}: {limit.meaning}" for limit in LIMITS.values()}, begun
    ),
    help="Change a limit. Repeatable.",
)
@click.option("--events", "with_events", is_flag=True, help="Say first what happened, in order, each with its command.")
@click.option("--redact", is_flag=True, help="Number topics, addresses and files instead of naming them.")
@reading_options
@format_option("json", description="Text, or a JSON object for each finding.")
def command(
    sources: tuple[Place, ...],
    filters: Filters,
    *,
    cluster: str | None,
    explain: str | None,
    fail_on: str | None,
    rules: tuple[str, ...],
    ignored: tuple[str, ...],
    baseline: str | None,
    limits: tuple[str, ...],
    with_events: bool,
    redact: bool,
    form: str,
) -> None:
    """Find what is wrong with a control plane, from its captures or tables.

    CAPTURE is a pcap or pcapng file, a kafka-request.log, either also packed, a directory of such files, or - for
    standard input. TABLES is a directory that kproto analyze wrote. Captures of one cluster are judged together,
    whatever their clocks say; each cluster is judged by itself.

    Trouble: act now; warning: look at it today; note: for your information. Where the capture lacks the evidence,
    a finding says "cannot tell".
    """
    if explain is not None:
        if form == "json":
            raise ConfigurationError("--explain is text; try --format text")
        print(*_explanation(explain), sep="\n")
        return
    if not sources:
        raise click.MissingParameter(param_hint="'CAPTURE...|TABLES'", param_type="argument")
    from kproto.verdicts.rules import findings

    wanted = _rules_of(rules) or frozenset(RULES)
    known = _known(baseline) if baseline else frozenset()
    given = _limits_of(limits)
    wanted -= _rules_of(ignored)
    bad = SEVERITIES[: SEVERITIES.index(fail_on) + 1] if fail_on is not None else ()
    is_bad = False
    used = [option for option, value in (("--rule", rules), ("--ignore", ignored), ("--baseline", baseline)) if value]
    judged = (
        (name, facts, findings(facts, given)) for name, facts in _judged(sources, filters, cluster, redact=redact)
    )
    for name, facts, every in waited(judged, "judging"):
        found = [f for f in every if f.rule in wanted and (name, *f.key) not in known]
        left_out = Counter(f.rule for f in every) - Counter(f.rule for f in found)
        is_bad = is_bad or any(finding.severity in bad for finding in found)
        if form == "json":
            if with_events:
                raise ConfigurationError("--events is text; for JSON try kproto query CAPTURE events --format json")
            of = {} if name is None else {"cluster": name}
            for finding in found:
                print(json.dumps(finding.to_json() | of))
            if used:
                print(f"kproto: {_left_out(left_out, used)}", file=sys.stderr)
        else:
            shown = [] if redact else [str(source) for source in sources]
            title = [] if name is None else [f"cluster {printable(name)}"]
            lines = list(finding_lines(found, shown, width=terminal_width())) if found or not left_out else []
            if with_events:
                title += [*_event_lines(facts, shown, terminal_width()), ""]
            print(*title, *lines, *([_left_out(left_out, used)] if used else []), sep="\n")
    if is_bad:
        sys.exit(_FOUND)


def _judged(
    sources: Sequence[Place], filters: Filters, cluster: str | None, *, redact: bool
) -> Iterator[tuple[str | None, Facts]]:
    """Read the facts of captures in pieces, or of the clusters in tables; several clusters come with their names."""
    from kproto.cli.no_pandas import keep_pandas_out
    from kproto.cli.table_source import tables_in
    from kproto.tables.reading import why_nothing
    from kproto.tables.resolved import by_cluster, resolved_pieces, resolved_reader
    from kproto.verdicts.facts import FACT_COLUMNS, Facts

    keep_pandas_out()
    tables = tables_in(sources)
    if tables is not None:
        from kproto.tables.stored import checked_run, reader_of
        from kproto.verdicts.found import facts_of_clusters

        read = resolved_reader(reader_of(checked_run(tables)), cluster, filters.broker_ids)
        stored = list(facts_of_clusters(read, redact=redact))
        if len(stored) < 2:
            yield None, stored[0][1] if stored else Facts([])
            return
        for number, (name, facts) in enumerate(stored, 1):
            yield str(number) if redact else name, facts
        return
    wanted = {name: (*columns, "cluster") for name, columns in FACT_COLUMNS.items()}
    wanted["clusters"] = ("cluster", "capture")
    bad: list[dict[str, Any]] = []
    kept: deque[dict[str, Any]] = deque()
    held = left_out = 0
    for piece in saying_zone(resolved_pieces([str(source) for source in sources], filters, cluster)):
        bad.extend(piece["bad_inputs"].to_pylist())
        kept.append({name: _slim(piece[name], columns) for name, columns in wanted.items() if name in piece})
        held += piece["requests"].num_rows
        while held > _MOST_REQUESTS and len(kept) > 1:
            rows = kept.popleft()["requests"].num_rows
            held, left_out = held - rows, left_out + rows
    if left_out:
        print(
            f"kproto: findings are of the last {held:,} requests; {left_out:,} earlier ones are left out",
            file=sys.stderr,
        )
    clusters = by_cluster(kept.popleft() for _ in range(len(kept)))  # what facts have read is not held here, too
    told: set[str] | None = None  # the files of which KP065 tells what is damaged
    for number, (name, pieces) in enumerate(clusters, 1):
        facts = Facts(pieces, redact=redact)
        if facts.requests:
            told = (told or set()) | {row["file"] for row in facts.captures}
            yield None if len(clusters) == 1 else str(number) if redact else name, facts
    if told is None:
        raise CaptureError(why_nothing(bad))
    unread = [file for file in bad if file["offset"] is None or (not redact and file["file"] not in told)]
    if redact:
        unread = [file | {"reason": "a file cannot be read"} for file in unread]
    warn_of_bad_inputs(unread, "no finding rests on that; kproto summary names all")


def _slim(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    return table.select([name for name in table.column_names if name in columns])


def _event_lines(facts: Facts, sources: Sequence[str], width: int | None) -> Iterator[str]:
    """Yield what happened, each event with the command that shows it; without sources no commands."""
    from kproto.verdicts.events import command_for, events

    for event in events(facts):
        yield from _wrapped(f"{moment_text(event.ts * 1000)}  {event.kind}: {printable(event.text)}", width)
        if sources:
            yield _INDENT + command_for(event.command, sources)


def _left_out(rules: Counter[str], filters: Sequence[str]) -> str:
    """Say how many findings the answer lacks because of options, by rule."""
    named = ", ".join(f"{rule} {count:,}" for rule, count in sorted(rules.items()))
    return f"{counted(rules.total(), 'finding')} left out by {' and '.join(filters)}{f': {named}' if named else ''}"


def finding_lines(found: Iterable[Finding], sources: Sequence[str], *, width: int | None = None) -> Iterator[str]:
    """Yield the findings as lines: one for those of one rule and broker, and the command that shows the first.

    Where a rule finds something at many brokers, there is one line for all of them.

    Args:
        found: In the order of ``findings``.
        sources: The captures or tables that were read; empty: findings name no commands.
        width: The terminal's width, if it is one.
    """
    groups: list[list[Finding]] = []
    for _rule, of_rule in groupby(sorted(found, key=_place), key=lambda f: (f.severity, f.rule)):
        by_broker = [list(some) for _broker, some in groupby(of_rule, key=lambda f: str(f.broker))]
        groups += by_broker if len(by_broker) <= _BROKERS else [[f for some in by_broker for f in some]]
    if not groups:
        yield "Nothing is wrong, as far as the captures show."
    for some in groups:
        first = some[0]
        times = _moment(min(f.first for f in some))
        more = f"; and {len(some) - 1:,} more" if len(some) > 1 else ""
        count = sum(f.count for f in some)
        head = f"{first.severity:<8} {first.rule} {RULES[first.rule].name} ({count:,}), {times}: "
        yield from _wrapped(head + printable(first.text) + more, width)
        if sources:
            yield _INDENT + pasted(["kproto", *_evidence(first, sources)])


def _place(finding: Finding) -> tuple[Any, ...]:
    return finding.rank, finding.rule, str(finding.broker), finding.first, finding.text


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [text]
    return textwrap.wrap(text, max(width, 40), subsequent_indent=_INDENT, break_on_hyphens=False)


def _moment(us: int) -> str:
    from kproto.verdicts.request_figures import moment

    return moment(us)[:19] + "Z" if us else moment(us)


def _evidence(finding: Finding, sources: Sequence[str]) -> list[str]:
    """The arguments of the command that shows the evidence of a finding."""
    from kproto.verdicts.request_figures import moment

    where = []
    if finding.topic is not None:
        is_whole = finding.partition is None
        where = ["--topic", finding.topic] if is_whole else ["--partition", f"{finding.topic}-{finding.partition}"]
    span = ["--since", moment(finding.first - _AROUND_US)]
    if finding.last < finding.first + 3600 * _AROUND_US:
        span += ["--until", moment(finding.last + _AROUND_US)]
    options = {
        "BROKER": ["--broker", str(finding.broker)] if isinstance(finding.broker, int) else [],
        "PLACE": where,
        "TIME": span if finding.first else [],
    }
    command, *words = RULES[finding.rule].shown_by.split()
    return [command, *sources, *(option for word in words for option in options.get(word, [word]))]


def _explanation(name: str) -> Iterator[str]:
    if name == "all":
        yield from (f"{rule.id}  {rule.severity:<8} {rule.name}: {rule.meaning}" for rule in RULES.values())
        yield ""
        yield "Limits, for --limit NAME=VALUE:"
        yield from (f"  {limit.name}={limit.default:g} ({limit.unit}): {limit.meaning}" for limit in LIMITS.values())
        return
    (found,) = _rules_of((name,))
    rule = RULES[found]
    yield f"{rule.id} {rule.name} ({rule.severity}, {rule.subject})"
    said = (
        ("Meaning", rule.meaning),
        ("Cause", rule.cause),
        ("What to do", rule.action),
        ("Harmless", rule.harmless),
        ("Limits", "; ".join(f"{name}={LIMITS[name].default:g} {LIMITS[name].unit}" for name in rule.limits)),
        ("Kafka's bugs", ", ".join(rule.bugs)),
        ("Shown by", f"kproto {rule.shown_by}"),
        ("Rests on", ", ".join(rule.rests_on)),
    )
    for title, text in said:
        if text:
            yield from textwrap.wrap(
                f"{title}: {text}",
                min(terminal_width() or 80, 80),
                initial_indent="  ",
                subsequent_indent="    ",
                break_on_hyphens=False,
            )


def _rules_of(names: Iterable[str]) -> frozenset[str]:
    """Return the ids of rules that are given by id or by name.

    Raises:
        ConfigurationError: There is no such rule.
    """
    by_name = {rule.name: rule.id for rule in RULES.values()}
    found = set()
    for name in names:
        rule = name.upper() if name.upper() in RULES else by_name.get(name)
        if rule is None:
            parts = [each for each in by_name if name and name.lower() in each]
            listed = "kproto doctor --explain all lists the rules"
            tip = f"try {', '.join(parts)}, or" if parts else meant(name, [*RULES, *by_name], "")
            raise ConfigurationError(f"there is no rule {name!r}; {tip}{' ' * bool(tip)}{listed}")
        found.add(rule)
    return frozenset(found)


def _limits_of(texts: Iterable[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in LIMITS:
            raise ConfigurationError(f"there is no limit {name!r}; {meant(name, LIMITS)}")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = -1
        if not 0 <= found[name] < math.inf:
            raise ConfigurationError(f"{text!r} is not NAME=VALUE, a number from 0 on; try e.g. --limit offline=5")
    return found


def _known(baseline: str) -> frozenset[tuple[Any, ...]]:
    """Return the keys of the findings in a baseline.

    Raises:
        ConfigurationError: The file was not printed by ``--format json``.
    """
    try:
        found = [json.loads(line) for line in text_of(Path(baseline)).split("\n") if line.strip()]
        return frozenset(map(_known_row, found))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigurationError(
            f"{baseline} is no baseline; make one: kproto doctor CAPTURE --format json > {baseline}"
        ) from None


def _known_row(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the key of a finding in a baseline."""
    broker = None if row["broker_id"] is None else str(row["broker_id"])
    found = row.get("cluster"), row["rule"], broker, row["topic"], row["partition"]
    if not all(value is None or isinstance(value, (str, int)) for value in found):
        raise TypeError("values of other kinds")
    return found
