"""``kproto encode``: write one message, header or frame from Kafka's JSON form."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from kproto.api import response_header_version
from kproto.cli.byte_text import hexdump
from kproto.cli.message_options import (
    KINDS,
    MessageOptions,
    json_object,
    message_of,
    message_options,
    parse_message_options,
    read_input,
)
from kproto.codec import get_codec
from kproto.errors import ConfigurationError
from kproto.framing import frame

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command(
    epilog="""\b
Examples:
  kproto encode --api UpdateMetadata --version 8 \\
      --data '{"controllerId":1,"isKRaftController":false,
      "controllerEpoch":2,"brokerEpoch":-1,"topicStates":[],"liveBrokers":[]}'
  kproto encode --api 5 --version 4 --kind response \\
      --to base64 stop-replica-response.json
  kproto decode frame.hex --format json \\
      | jq '.header.correlationId = 7' | kproto encode --to raw > frame.bin
  kproto inspect control.pcap --format json | head -1 | kproto encode \\
      --kind request-frame --to hexdump"""
)
@click.argument("source", default="-", metavar="[FILE]")
@click.option("--data", metavar="JSON", help="JSON text, in place of a file.")
@message_options
@click.option(
    "--to",
    type=click.Choice(["hex", "hexdump", "base64", "raw"]),
    default="hex",
    help="How to print the bytes.",
)
@click.option(
    "--correlation-id", type=int, metavar="N", help="Correlation id of a frame's header; by default the JSON's, or 0."
)
@click.option(
    "--client-id", metavar="TEXT", help="Client id of a request frame's header; by default the JSON's, or empty."
)
def command(
    source: str,
    data: str | None,
    kind: str | None,
    api: str | None,
    version: int | None,
    to: str,
    correlation_id: int | None,
    client_id: str | None,
) -> None:
    """Write one message, header or frame from Kafka's JSON form.

    FILE holds JSON; without FILE, or for -, standard input is read. The JSON of a body or a header is the form that
    brokers log and `kproto decode --format json` prints. The JSON of a frame is a body, an object with header and body
    as `kproto decode` prints it, or a line of `kproto inspect --format json`.
    """
    form = json_object(read_input(source, data))
    options, header, body = _parts_of(form, kind, api, version)
    if correlation_id is not None:
        header["correlationId"] = correlation_id
    if client_id is not None:
        header["clientId"] = client_id
    _print(_encoded(options, header, body), to)


def _parts_of(
    form: dict[str, Any], kind: str | None, api: str | None, version: int | None
) -> tuple[MessageOptions, dict[str, Any], dict[str, Any]]:
    """Return kind, API and version of the message, its header's fields and its body; options override the JSON."""
    header: Mapping[str, Any] = {}
    if "header" in form and "body" in form:
        kind = kind or form.get("kind")
        api, version = api or _text(form.get("api")), form.get("version") if version is None else version
        header, body = _object(form, "header"), _object(form, "body")
    elif "api_key" in form and "api_version" in form:
        kind = kind or "request-frame"
        api, version = api or _text(form["api_key"]), form["api_version"] if version is None else version
        header = {"correlationId": form.get("correlation_id"), "clientId": form.get("client_id")}
        body = _object(form, "response" if kind.startswith("response") else "request")
    else:
        body = form
    if kind is not None and kind not in KINDS:
        raise ConfigurationError(f"there is no kind {kind!r}; choose {', '.join(KINDS)}")
    if version is not None and type(version) is not int:
        raise ConfigurationError(f"version {version!r} is not a number")
    options = parse_message_options(kind, api, version)
    return options, dict(header), dict(header) if options.kind.endswith("-header") and header else body


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _object(form: dict[str, Any], key: str) -> dict[str, Any]:
    value = form.get(key)
    if not isinstance(value, dict):
        raise ConfigurationError(f"{key} is {json.dumps(value)[:40]}, where a JSON object is needed")
    return value


def _encoded(options: MessageOptions, header: dict[str, Any], body: dict[str, Any]) -> bytes:
    codec: Any = get_codec("construct")
    kind, _, part = options.kind.partition("-")
    if part == "header":
        own = options.header_version()
        header_class = codec.RequestHeader if kind == "request" else codec.ResponseHeader
        head = header_class.from_json(body, 2 if own is None else own)
        return bytes(getattr(codec, f"encode_{kind}_header")(head, own))
    api_key, version = options.of_body()
    data: bytes = codec.encode(message_of(codec.message_class(api_key, kind), body, version), version)
    if options.kind == "request-frame":
        head = codec.RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=header.get("correlationId") or 0,
            client_id=header.get("clientId", ""),
        )
        return frame(codec.encode_request_header(head) + data)
    if options.kind == "response-frame":
        head = codec.ResponseHeader(correlation_id=header.get("correlationId") or 0)
        return frame(codec.encode_response_header(head, response_header_version(api_key, version)) + data)
    return data


def _print(data: bytes, to: str) -> None:
    if to == "raw":
        if sys.stdout.isatty():
            raise ConfigurationError(
                "raw bytes would garble the terminal; redirect them to a file, or use --to hexdump"
            )
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    elif to == "base64":
        print(base64.b64encode(data).decode("ascii"))
    else:
        print(hexdump(data) if to == "hexdump" else data.hex())
