"""``kproto summary``: sums up captures within a second, without Spark."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from kproto.api import CONTROL_APIS, api_name
from kproto.cli.footer import absent_from, saying_zone, warn_of_bad_inputs
from kproto.cli.no_pandas import keep_pandas_out
from kproto.cli.options import CaptureCommand, capture_filters, cluster_option, format_option
from kproto.cli.progress import waiting
from kproto.errors import CaptureError, ConfigurationError
from kproto.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from kproto.cli.sections import Section
    from kproto.tables.filters import Filters
    from kproto.verdicts.doctor import Finding


@click.command(
    cls=CaptureCommand,
    epilog="""\b
Examples:
  kproto summary control.pcap
      who ruled, who lagged, who was refused, what changed
  kproto summary captures/*.pcap.gz --since -10m
      the last ten minutes
  kproto summary control.pcap --format line
      one line, for a ticket
  kproto summary control.pcap --format json \\
      | jq '.refusals[] | {broker_id, error, reason}'
  kproto summary control.pcap --format json \\
      | jq '.slowest[0] | {broker_id, p99_ms}'

\b
kproto inspect shows the single requests, kproto analyze writes tables with
Spark. """,
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@capture_filters
@cluster_option
@click.option("--all", "every", is_flag=True, help="Every row of each section; a large cluster has thousands.")
@format_option("json", "line", description="Text, one JSON object, or one line of text.")
def command(captures: tuple[str, ...], filters: Filters, *, cluster: str | None, every: bool, form: str) -> None:
    """Sum up captures: controllers, brokers, changes, errors, delays and losses.

    CAPTURE is a pcap or pcapng file, a broker's kafka-request.log, either also packed, a directory of such files,
    or - for standard input; rotated files are one stream. Captures of one cluster are summed up together, whatever
    their clocks say; each cluster by itself. Nothing else is needed: no Spark, no Java.
    """
    check_apis(filters)
    keep_pandas_out()
    from kproto.tables.reading import why_nothing
    from kproto.tables.resolved import by_cluster, resolved_pieces
    from kproto.verdicts.summary import summarize

    with waiting("reading"):
        clusters = by_cluster(saying_zone(resolved_pieces(captures, filters, cluster)))
    is_empty = True
    bad: list[dict[str, Any]] = []
    for name, pieces in clusters:
        facts = _FactPieces()
        with waiting("summing up"):
            summary = summarize(pieces if filters.by_request else facts.kept(pieces))
        bad = summary["bad_inputs"]  # of all clusters
        if summary["requests"]:
            is_empty = False
            _print_summary(name if len(clusters) > 1 else None, summary, facts, filters, every=every, form=form)
    if is_empty:
        are_read = all(row["offset"] is not None for row in bad)
        raise CaptureError((are_read and absent_from(captures, filters)) or why_nothing(bad))
    warn_of_bad_inputs(bad, "all stand in bad_inputs of --format json")


def _print_summary(
    cluster: str | None, summary: dict[str, Any], facts: _FactPieces, filters: Filters, *, every: bool, form: str
) -> None:
    """Print the summary of a cluster, with its name if there are several."""
    from kproto.cli.sections import print_sections
    from kproto.cli.summary_text import one_line, page_of, sections_of

    match form:
        case "json":
            found = facts.findings()
            rows = None if found is None else [finding.to_json() for finding in found]
            of = {} if cluster is None else {"cluster": cluster}
            print(json.dumps(of | {"findings": rows} | summary))
        case "line":
            print(one_line(summary) if cluster is None else f"{printable(cluster)}: {one_line(summary)}")
        case _:
            sections = sections_of(summary) if every else page_of(summary, "--all shows them")
            first = [] if filters.by_request else [_findings_section(facts.findings())]
            if cluster is not None:
                print(f"Cluster {printable(cluster)}\n")
            print_sections([*first, *sections])


_MOST_ROWS: Final = 100_000
"""The most requests, and partition states, of which a summary tells the findings; of more, ``kproto doctor`` does."""


class _FactPieces:
    """Keeps the requests that the rules of ``kproto doctor`` need, of captures that are small enough."""

    def __init__(self) -> None:
        self._pieces: list[dict[str, pa.Table]] | None = []
        self._rows: Counter[str] = Counter()

    def kept(self, pieces: Iterable[Mapping[str, pa.Table]]) -> Iterator[Mapping[str, pa.Table]]:
        """Yield the pieces as they come."""
        from kproto.verdicts.facts import FACT_COLUMNS

        for piece in pieces:
            self._rows.update({name: piece[name].num_rows for name in ("requests", "partition_states")})
            if max(self._rows.values()) > _MOST_ROWS:
                self._pieces = None
            if self._pieces is not None:
                self._pieces.append(
                    {name: piece[name].select(columns) for name, columns in FACT_COLUMNS.items() if name in piece}
                )
            yield piece

    def findings(self) -> list[Finding] | None:
        """Return the findings; None: the captures are too large, or a part of them was chosen."""
        from kproto.verdicts.facts import Facts
        from kproto.verdicts.rules import findings

        return findings(Facts(self._pieces)) if self._pieces else None


def _findings_section(found: list[Finding] | None) -> Section:
    from kproto.cli.doctor import finding_lines
    from kproto.cli.sections import Section

    if found is None:
        return Section("Findings", text="the captures are large; kproto doctor tells their findings")
    if not found:
        return Section("Findings", text="nothing is wrong, as far as the captures show")
    return Section("Findings", ["_finding"], [[line] for line in finding_lines(found, ())])


def check_apis(filters: Filters) -> None:
    """Refuse APIs that have no tables.

    Raises:
        ConfigurationError: Another API than the three control requests is chosen.
    """
    others = sorted(filters.apis - set(CONTROL_APIS))
    if others:
        raise ConfigurationError(
            f"there are tables of LeaderAndIsr, StopReplica and UpdateMetadata alone; for {api_name(others[0])} "
            f"try kproto inspect --api {api_name(others[0])}"
        )
