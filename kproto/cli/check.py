"""``kproto check``: verifies that captures and recordings are complete and undamaged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kproto.cli.options import format_option, log_options
from kproto.text import counted, printable

if TYPE_CHECKING:
    from kproto.tables.filters import Filters

_SHOWN = 20  # the most damages of one file that the text output lists


@click.command(
    epilog="""\b
Examples:
  kproto check control.pcapng
  ssh host cat tap.pcapng | kproto check -
  kproto check /var/tmp/tap-*.pcapng --format json \\
      | jq 'select(.whole | not)' """
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@log_options
@format_option("json")
def command(files: tuple[str, ...], filters: Filters, form: str) -> None:
    """Verify captures and recordings: every packet against its checksum, the file to its last byte.

    FILE is a capture, a directory of captures, or - for standard input.

    Recordings of kproto carry a CRC-32C beside each packet; of other captures only the structure can be verified. A
    recording whose end was torn off by kill -9 is damaged in its last packet alone. The exit code is 1 if any file is
    damaged, and 2 if any cannot be read at all, which is said on standard error.
    """
    from kproto.capture import CaptureSummary, frames
    from kproto.capture.capture_points import captures_in
    from kproto.capture.source import LOGS
    from kproto.capture.summary import not_read_text
    from kproto.errors import CaptureError

    damaged = unreadable = 0
    for file in (each for name in files for each in (Path(name).is_dir() and captures_in(Path(name))) or [name]):
        summary, error = CaptureSummary(), None
        try:
            source = sys.stdin.buffer if file == "-" else file
            for _ in frames(source, summary=summary, logs=filters.logs):
                pass
        except CaptureError as e:
            error = str(e)
        is_log = summary.format in LOGS
        if is_log and not error and not summary.packets and file in files:  # of a directory not all logs tell of any
            error = "no line of this text is a request that kafka.request.logger wrote; name a kafka-request.log"
        whole = error is None and not summary.bad_input_count
        damaged += not whole
        unreadable += error is not None
        if form == "json":
            print(json.dumps({
                "file": file,
                "whole": whole,
                "error": error,
                "format": summary.format,
                "packets": summary.packets,
                "bad_checksums": summary.bad_checksums,
                "not_read": summary.all_not_read,
                "untimed_packets": summary.untimed_packets,
                "damages": [
                    {"reason": bad.reason, "offset": bad.offset, "bytes": bad.bytes_skipped}
                    for bad in summary.bad_inputs
                ],
            }))  # fmt: skip
            continue
        if error is not None:
            reason = (
                error.removeprefix("standard input: ").removeprefix(f"{file}: ").removeprefix(f"{Path(file).name}: ")
            )
            print(f"{printable(file)}: {printable(reason)}", file=sys.stderr)
            continue
        verdict = "whole" if whole else f"damaged in {counted(summary.bad_input_count, 'place')}"
        print(f"{printable(file)}: {verdict}, {counted(summary.packets, 'request' if is_log else 'packet')}")
        if summary.all_not_read:
            print(f"  {not_read_text(summary.all_not_read)}")
        if summary.untimed_packets:
            print(f"  {counted(summary.untimed_packets, 'packet')} without a time")
        for bad in summary.bad_inputs[:_SHOWN]:
            lost = f" ({counted(bad.bytes_skipped, 'byte')} lost)" if bad.bytes_skipped else ""
            print(f"  byte {bad.offset}: {printable(bad.reason)}{lost}")
        if summary.bad_input_count > _SHOWN:
            print(f"  and {summary.bad_input_count - _SHOWN} more")
    if damaged:
        sys.exit(2 if unreadable else 1)
