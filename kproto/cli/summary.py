"""``kproto summary``: sums up captures within a second, without Spark."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from kproto.api import CONTROL_APIS, api_name
from kproto.cli.bad_inputs import warn_of_bad_inputs
from kproto.cli.options import CaptureCommand, capture_filters
from kproto.cli.output_format import format_option
from kproto.errors import CaptureError, ConfigurationError

if TYPE_CHECKING:
    from kproto.tables.filters import Filters

__all__ = ["command"]


@click.command(
    cls=CaptureCommand,
    epilog="""\b
Examples:
  kproto summary control.pcap                            who ruled, who lagged, who was refused, what changed
  kproto summary captures/*.pcap.gz --since -10m         the last ten minutes
  kproto summary control.pcap --format line              one line, for a ticket
  kproto summary control.pcap --format json | jq '.refusals[] | {broker_id, error, reason}'
  kproto summary control.pcap --format json | jq '.slowest[0] | {broker_id, p99_ms}'

\b
kproto inspect shows the single requests, kproto analyze writes tables with Spark. """,
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@capture_filters
@click.option("--all", "every", is_flag=True, help="Every row of each section; a large cluster has thousands.")
@format_option("json", "line", description="Text, one JSON object, or one line of text.")
def command(captures: tuple[str, ...], filters: Filters, *, every: bool, form: str) -> None:
    """Sum up captures: controllers, brokers, changes, errors, delays and losses.

    CAPTURE is a pcap or pcapng file, a broker's kafka-request.log, either also gzip or zstd, a directory of such files,
    or - for standard input; several are taken as one cluster's, rotated files as one stream. Nothing
    else is needed: no Spark, no Java.
    """
    check_apis(filters)
    keep_pandas_out()
    from kproto.cli.sections import print_sections
    from kproto.cli.summary_text import one_line, page_of, sections_of
    from kproto.tables.reading import chunks, why_nothing
    from kproto.verdicts.summary import summarize

    summary = summarize(chunks(captures, filters=filters))
    if not summary["requests"]:
        raise CaptureError(why_nothing(summary["bad_inputs"]))
    warn_of_bad_inputs(summary["bad_inputs"], "all stand in bad_inputs of --format json")
    match form:
        case "json":
            print(json.dumps(summary))
        case "line":
            print(one_line(summary))
        case _:
            print_sections(sections_of(summary) if every else page_of(summary, "--all shows them"))


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


class _NoPandas:
    """An import hook that hides pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("not wanted here", name=name)


def keep_pandas_out() -> None:
    """Hide pandas from pyarrow, which would import it with the first array: half a second for no use here."""
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)
