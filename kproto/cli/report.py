"""``kproto report``: writes one HTML page about a cluster's control traffic."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kproto.cli.no_pandas import keep_pandas_out
from kproto.cli.options import PlaceType, reading_options
from kproto.cli.progress import waiting
from kproto.cli.table_source import tables_of
from kproto.errors import ConfigurationError
from kproto.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kproto.tables.filters import Filters
    from kproto.tables.places import Place

_SHOWN = 5
"""At most this many findings of each rule are printed."""


@click.command(
    epilog="""\b
Examples:
  kproto report control.pcap
      of one capture, in seconds, without Spark
  kproto report /var/tmp/tap
      of all captures in a directory
  kproto analyze captures/*.pcap.gz --out tables
  kproto report tables --out incident-42.html
      of tables that kproto analyze wrote
  kproto report s3://bucket/tables
      of tables in an object store
  kproto report tables --partitions 200000
      all partitions of a large cluster

\b
The page is one file and asks no network: mail it, attach it, open it from
disk. """
)
@click.argument("sources", nargs=-1, required=True, metavar="DIR|CAPTURE...", type=PlaceType())
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    metavar="FILE",
    help="The file of the page; an existing file is replaced. - is standard output.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=50_000,
    metavar="N",
    help="The most partitions in the timeline; those that changed most are shown.",
)
@reading_options
def command(sources: tuple[Place, ...], filters: Filters, *, cluster: str | None, out: Path, partitions: int) -> None:
    """Write a report on the tables in DIR, which kproto analyze wrote, or on captures, as one HTML page.

    CAPTURE is a file, a directory of files, or - for standard input; rotated files are one stream. Captures of one
    cluster are shown as one, whatever their clocks say.

    It shows what stands out; requests over time; controllers, their epochs and fenced zombies; leaders and in-sync
    replicas of every partition over time, to zoom and search; how late metadata updates reach each broker; slow and
    silent brokers; errors; and what the captures lack. A click on any mark shows its request as JSON, and the command
    that finds it in the capture.

    Captures are read into memory; for large ones keep tables: kproto analyze.
    """
    keep_pandas_out()
    check_place(out)
    from kproto.report import Limits, write_report

    is_piped = str(out) == "-"
    limits = Limits(partitions=partitions, states=10 * partitions)
    with waiting("writing the report"):
        facts = write_report(
            tables_of(sources, filters), sys.stdout.buffer if is_piped else out, limits=limits, cluster=cluster,
            broker_ids=filters.broker_ids,
        )  # fmt: skip
    lines = [*_outstanding(facts["findings"])]
    lines = ["What stands out", *lines] if lines else ["Nothing stands out."]
    lines += [f"note: {printable(text)}" for text in facts["cut"]]
    if is_piped:
        print(*lines, sep="\n", file=sys.stderr)
    else:
        print(*lines, _place(facts, out), sep="\n")


def _outstanding(findings: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each finding, of the first few of each rule."""
    for rule, found in groupby(findings, key=lambda finding: finding["rule"]):
        same = [*found]
        yield from (f"  {printable(finding['text'])}" for finding in same[:_SHOWN])
        if len(same) > _SHOWN:
            yield f"  and {len(same) - _SHOWN} more of rule {rule}, which the page lists"


def check_place(out: Path) -> None:
    """Fail early if a page could not be written.

    Raises:
        ConfigurationError: There is no such directory.
        ImportError: DuckDB is missing.
    """
    import kproto.report  # noqa: F401

    if not out.absolute().parent.is_dir():
        raise ConfigurationError(f"there is no directory {out.parent} for {out.name}; make it, or choose another file")


def page_written(tables: Place, out: Path) -> str:
    """Write the report on tables; return a line that names its file."""
    from kproto.report import write_report

    with waiting("writing the report"):
        facts = write_report(tables, out)
    return _place(facts, out)


def _place(facts: dict[str, Any], out: Path) -> str:
    shown = counted(len(facts["timeline"]["partitions"]["topic"]), "partition")
    return f"{out}: {shown}, {out.stat().st_size / 1024:,.0f} KiB; open it in a browser"
