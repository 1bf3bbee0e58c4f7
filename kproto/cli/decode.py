"""``kproto decode``: shows one message, header or frame as JSON or field by field."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from kproto.cli.byte_text import FORMS, named, parse_bytes, recognised
from kproto.cli.message_options import message_options, parse_message_options, read_input
from kproto.cli.text import is_styled, terminal_width
from kproto.text import counted

if TYPE_CHECKING:
    from kproto.cli.byte_text import Form


@click.command(
    epilog="""\b
Examples:
  kproto decode frame.bin
      a whole request frame needs no options
  xxd -s 66 packet | kproto decode
      nor does a hex dump of it
  kproto decode --api UpdateMetadata --version 8 body.hex
      a request's body alone
  kproto decode --kind response-frame --api 4 --version 7 x.bin
      a response needs its request's API and version
  kproto decode --kind response --api 5 --version 4 --data 000b0100 \\
      --format json"""
)
@click.argument("source", default="-", metavar="[FILE]")
@click.option("--data", metavar="TEXT", help="Bytes as text, in place of a file: hex, base64, b'...'")
@click.option(
    "--input",
    "form",
    type=click.Choice(FORMS),
    default="auto",
    help="How the bytes are written; auto recognises the form.",
)
@message_options
@click.option(
    "--format", "output", type=click.Choice(["table", "json"]), default="table",
    help="Every field with its offset, or Kafka's JSON form.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Refuse messages that the protocol forbids although Kafka accepts them.")
def command(
    source: str,
    data: str | None,
    form: Form,
    kind: str | None,
    api: str | None,
    version: int | None,
    output: str,
    *,
    strict: bool,
) -> None:
    """Read one message, header or frame: every field with its offset and bytes, or Kafka's JSON form.

    FILE holds raw bytes, hex, base64, a dump as xxd, hexdump -C, od -A x -t x1, tcpdump -X, Wireshark and Netty print
    it, or what a program prints of bytes: Python's b'...', Node's Buffer, Go's []byte, Java's signed bytes, Erlang's
    <<...>>, also quoted with "> "; without FILE, or for -, standard input is read. A damaged message is shown up to the
    field that cannot be read.
    """
    from kproto.cli.dissection import dissect, table

    options = parse_message_options(kind, api, version)
    text = read_input(source, data)
    parts = dissect(options, parse_bytes(text, form), strict=strict)
    if form == "auto" and (name := named(text, recognised(text))) is not None:
        print(f"note: the input was read as {name}; --input hex, hexdump or raw reads it otherwise", file=sys.stderr)
    if output == "json":
        print(json.dumps(parts.to_json(options), indent=2 if terminal_width() else None))
    else:
        for line in table(parts, terminal_width(), color=is_styled()):
            print(line)
        sys.stdout.flush()
        if parts.error is not None:
            raise parts.error
    if parts.left_over:
        print(f"{counted(parts.left_over, 'byte')} after the message, which Kafka ignores", file=sys.stderr)
