"""``kproto audit``: compares how both codecs, and Kafka's own classes, read the frames of captures."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kproto.api import api_name
from kproto.cli.no_pandas import keep_pandas_out
from kproto.cli.options import CaptureCommand, parse_ports
from kproto.cli.output_format import format_option
from kproto.cli.progress import reading
from kproto.cli.text import counted
from kproto.errors import CaptureError, ConfigurationError, first_reasons
from kproto.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from kproto.cli.sections import Section
    from kproto.tables.decoders import Decoder

_SHOWN: Final = 20
"""The most mismatches that the text output lists."""

_WARNED: Final = 3
"""The most bad inputs of which a warning is printed."""


@click.command(
    cls=CaptureCommand,
    epilog="""\b
Examples:
  kproto audit control.pcap
      do both codecs say the same of every frame?
  kproto audit captures/ --oracle 'tools/oracle/oracle serve'
      and Kafka's own classes?
  kproto audit big.pcap --sample 0.01
      of one frame in a hundred
  kproto audit control.pcap --write audit.parquet
      the table audit, as Parquet
  kproto audit control.pcap --format json \\
      | jq '.mismatches[] | {outcome, field_path, cython, construct}'

\b
The exit code is 1 if any frame is read in two ways. """,
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@click.option("--oracle", metavar="COMMAND", help="Compare Kafka's own classes too: a program that answers JSON lines.")
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Share of the frames to read; the same frames in every run.",
)
@click.option(
    "--ports", multiple=True, metavar="PORT,...", help="The brokers' listeners; found from the traffic by default."
)
@click.option(
    "--write",
    "write",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the table audit to a Parquet file.",
)
@format_option("json", description="Text, or one JSON object.")
def command(
    captures: tuple[str, ...],
    *,
    oracle: str | None,
    sample: float,
    ports: tuple[str, ...],
    write: Path | None,
    form: str,
) -> None:
    """Read every control frame with both codecs, write it again, and list the differences.

    The C-accelerated codec and the reference share no code. A frame that both read alike and write again unchanged
    was read correctly, unless both have the same fault; --oracle compares Kafka's own classes as well.
    """
    if write is not None and not write.absolute().parent.is_dir():
        raise ConfigurationError(
            f"there is no directory {write.parent} for {write.name}; make it, or name another file"
        )
    keep_pandas_out()
    import pyarrow as pa
    import pyarrow.parquet as pq

    from kproto.cli.sections import print_sections
    from kproto.tables.auditing import AGREEMENTS, AUDIT, audit, codec_decoders
    from kproto.tables.kafka_decoder import KafkaDecoder
    from kproto.tables.points import points_of
    from kproto.tables.whole_file import whole_file

    with ExitStack() as stack:
        decoders: list[Decoder] = codec_decoders()
        if oracle is not None:
            decoders.append(stack.enter_context(KafkaDecoder(oracle, _teller())))
        points = points_of(captures)
        progress = stack.enter_context(reading())
        batches = [
            batch
            for point in points
            for batch in audit(
                [point], decoders, ports=parse_ports(ports), sample=sample, progress=progress.of(point.name)
            )
        ]
    table = pa.Table.from_batches(batches, AUDIT)
    unread = [row["reason"] for row in table.to_pylist() if row["outcome"] == "bad_input"]
    rows = [row for row in table.to_pylist() if row["outcome"] != "bad_input"]
    if not rows:
        raise CaptureError(
            first_reasons(unread) or "no control frame in these captures; kproto summary says what they hold"
        )
    for reason in unread[:_WARNED]:
        print(f"warning: {printable(reason)}; skipped", file=sys.stderr)
    if len(unread) > _WARNED:
        print(f"warning: {len(unread) - _WARNED} more bad inputs; --format json lists all", file=sys.stderr)
    if write is not None:
        with whole_file(write) as file:
            pq.write_table(table, file)
    mismatches = [row for row in rows if row["outcome"] not in AGREEMENTS]
    if form == "json":
        print(json.dumps(_as_json(rows, mismatches, unread)))
    else:
        print_sections(_sections(rows, mismatches, [decoder.name for decoder in decoders]))
    if mismatches:
        sys.exit(1)


def _teller() -> Callable[[str], None] | None:
    """Return a function that tells people what a command waits for; None unless standard error is a terminal."""
    return (lambda text: print(printable(text), file=sys.stderr)) if sys.stderr.isatty() else None


def _counts(rows: list[dict[str, Any]]) -> Counter[tuple[int, int, str, str]]:
    counts: Counter[tuple[int, int, str, str]] = Counter()
    for row in rows:
        counts[row["api_key"], row["api_version"], row["direction"], row["outcome"]] += row["frames"]
    return counts


def _as_json(rows: list[dict[str, Any]], mismatches: list[dict[str, Any]], unread: list[str]) -> dict[str, Any]:
    names = ("api_key", "api_version", "direction", "outcome")
    return {
        "frames": sum(row["frames"] for row in rows),
        "counts": [{**dict(zip(names, key, strict=True)), "frames": n} for key, n in sorted(_counts(rows).items())],
        "mismatches": [{**row, "frame_id": row["frame_id"].hex(), "ts": row["ts"].isoformat()} for row in mismatches],
        "bad_inputs": unread,
    }


def _sections(rows: list[dict[str, Any]], mismatches: list[dict[str, Any]], names: list[str]) -> list[Section]:
    from kproto.cli.sections import Section

    frames = [
        [api_name(api), str(version), direction, outcome.replace("_", " "), str(number)]
        for (api, version, direction, outcome), number in sorted(_counts(rows).items())
    ]
    verdict = f"{counted(len(mismatches), 'frame')} read in two ways" if mismatches else "no frame read in two ways"
    sections = [
        Section(
            "Audit", text=f"{counted(sum(row['frames'] for row in rows), 'frame')}, {verdict} ({', '.join(names)})"
        ),
        Section("Frames", ["api", ">version", "half", "outcome", ">frames"], frames),
    ]
    if mismatches:
        shown = [
            [
                row["frame_id"].hex()[:12],
                api_name(row["api_key"]),
                str(row["api_version"]),
                row["outcome"].replace("_", " "),
                printable(row["field_path"] or ""),
                *(printable(_said(row, name)) for name in names),
            ]
            for row in mismatches[:_SHOWN]
        ]
        more = f"the first {_SHOWN} of {len(mismatches)}" if len(mismatches) > _SHOWN else ""
        sections.append(Section("Mismatches", ["frame", "api", ">version", "outcome", "field", *names], shown, more))
    return sections


def _said(row: dict[str, Any], name: str) -> str:
    return row[name] if row[name] is not None else row[f"error_{name}"] or "accepts it"
