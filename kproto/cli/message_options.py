"""The options by which ``decode`` and ``encode`` name a message, and the reading of their input."""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

import click

from kproto.api import ApiKey, check_version, request_header_version, response_header_version
from kproto.cli.options import complete_api
from kproto.errors import ConfigurationError, EncodeError
from kproto.framing import DEFAULT_LIMIT
from kproto.tables.filters import parse_api

if TYPE_CHECKING:
    from collections.abc import Callable

KindName = Literal["request-frame", "response-frame", "request", "response", "request-header", "response-header"]
KINDS: Final[tuple[KindName, ...]] = get_args(KindName)

_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """Kind, API and version of the message to read or write.

    Attributes:
        kind: One of ``KINDS``.
        api_key, version: API and version; None if the bytes name them (a request frame, a request header).
    """

    kind: KindName
    api_key: int | None
    version: int | None

    def of_body(self) -> tuple[int, int]:
        """Return API key and version of a body.

        Raises:
            ConfigurationError: The options do not name them.
            UnsupportedApi, UnsupportedVersion: Kafka 3.9.1 does not have it.
        """
        if self.api_key is None or self.version is None:
            raise ConfigurationError(
                f"a {self.kind} does not name its API and version; add --api and --version, e.g. --api 6 --version 8"
            )
        check_version(self.api_key, self.version)
        return self.api_key, self.version

    def header_version(self) -> int | None:
        """Return a header's version: by API and version, or ``version`` without an API; None if the header names it."""
        if self.version is None:
            if self.kind == "request-header":
                return None
            raise ConfigurationError(
                "a response header does not name its version; add --api and --version of the request"
            )
        if self.api_key is None:
            return self.version
        derive = request_header_version if self.kind == "request-header" else response_header_version
        return derive(self.api_key, self.version)


def message_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options ``--kind --api --version``."""
    for option in (
        click.option("--version", type=int, metavar="N", help="The message's version; without --api the header's own."),
        click.option(
            "--api",
            metavar="API",
            shell_complete=complete_api,
            help="The message's API, by name or key: UpdateMetadata, 6.",
        ),
        click.option(
            "--kind",
            type=click.Choice(KINDS),
            metavar="KIND",
            help=f"Kind of the input: {', '.join(KINDS)}. A frame is length, header and body (the length may "
            "be missing); request and response are bodies alone. By default request if --api "
            "is given, else request-frame.",
        ),
    ):
        command = option(command)
    return command


def parse_message_options(kind: str | None, api: str | None, version: int | None) -> MessageOptions:
    """Turn the options' values into ``MessageOptions``.

    Raises:
        ConfigurationError: There is no such API.
    """
    if kind is None:
        kind = "request-frame" if api is None else "request"
    return MessageOptions(cast("KindName", kind), None if api is None else parse_api(api), version)


def read_input(source: str, text: str | None) -> bytes:
    """Read the input from a file, standard input or ``--data``.

    Raises:
        OSError: The file cannot be read.
        ConfigurationError: The input is empty, or both are given.
    """
    if text is not None and source != "-":
        raise ConfigurationError(f"{source} and --data are both given; leave one out")
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    if not data:
        where = "standard input" if source == "-" else source
        raise ConfigurationError(f"{where} is empty; try another file")
    return data


def json_object(text: bytes) -> dict[str, Any]:
    """Read the JSON form of a message.

    Raises:
        ConfigurationError: It is no JSON object.
    """
    try:
        form = json.loads(text)
    except RecursionError:
        raise ConfigurationError("the JSON is nested too deeply for a message") from None
    except ValueError as e:
        fault = "a number of thousands of digits" if "digits" in str(e) else e  # without Python's own advice
        raise ConfigurationError(
            f"the input is not JSON: {fault}; `kproto decode --format json` prints examples"
        ) from None
    if not isinstance(form, dict):
        raise ConfigurationError('a message is a JSON object, e.g. {"errorCode":0}')
    return form


def message_of(message_class: Any, form: Any, version: int) -> Any:
    """Make a message from its JSON form.

    Raises:
        ConfigurationError: A field is missing or of the wrong type.
    """
    try:
        return message_class.from_json(form, version)
    except EncodeError as e:
        raise ConfigurationError(
            f"{e}, in the JSON of {message_class.__name__} v{version}; `kproto inspect --format json` prints examples"
        ) from e


def size_field(data: bytes) -> int:
    """Return 4 if the first four bytes are the length of the rest, else 0."""
    return 4 if len(data) >= 4 and _SIZE.unpack_from(data)[0] == len(data) - 4 else 0


def request_header_at(data: bytes) -> int:
    """Return where the header of a request frame begins: after the length, or at 0 if the frame has none.

    In a frame that is cut off, or followed by others, the length is not that of the rest. The first four bytes count
    as a length if they may be one, and if a header may begin after them but not with them.
    """
    if size_field(data) or len(data) < 8:
        return size_field(data)
    may_be_length = 8 <= _SIZE.unpack_from(data)[0] <= DEFAULT_LIMIT
    return 4 if may_be_length and _header_may_begin(data, 4) and not _header_may_begin(data, 0) else 0


def _header_may_begin(data: bytes, at: int) -> bool:
    """Tell whether the bytes at ``at`` name an API and version that Kafka has, up to 4.1."""
    if len(data) < at + 4:
        return False
    key, version = struct.unpack_from(">hh", data, at)
    return key in ApiKey._value2member_map_ and 0 <= version <= ApiKey(key).info.newest_version
