"""Which message ``decode`` and ``encode`` are about: the options that say it, and whole frames cut into their parts."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import click

from kproto.api import ApiKey, check_version, request_header_version, response_header_version
from kproto.cli.options import parse_api
from kproto.errors import ConfigurationError, EncodeError
from kproto.framing import DEFAULT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "KINDS",
    "Subject",
    "message_of",
    "read_input",
    "request_header_at",
    "size_field",
    "subject_of",
    "subject_options",
]

KINDS: Final = ("request-frame", "response-frame", "request", "response", "request-header", "response-header")
KindName = Literal["request-frame", "response-frame", "request", "response", "request-header", "response-header"]

_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be read or written.

    Attributes:
        kind: One of ``KINDS``.
        api_key, version: Whose; None where the bytes themselves tell (a request frame, a request header).
    """

    kind: KindName
    api_key: int | None
    version: int | None

    def of_body(self) -> tuple[int, int]:
        """API key and version of a body.

        Raises:
            ConfigurationError: They were not told.
            UnsupportedApi, UnsupportedVersion: Kafka 3.9.1 does not have it.
        """
        if self.api_key is None or self.version is None:
            raise ConfigurationError(
                f"a {self.kind} does not tell whose it is; add --api and --version, e.g. --api 6 --version 8"
            )
        check_version(self.api_key, self.version)
        return self.api_key, self.version

    def header_version(self) -> int | None:
        """A header's version: from API and version, or its own if there is no API; None where it tells itself."""
        if self.version is None:
            if self.kind == "request-header":
                return None
            raise ConfigurationError(
                "a response header does not tell its version; add --api and --version of the request"
            )
        if self.api_key is None:
            return self.version
        derive = request_header_version if self.kind == "request-header" else response_header_version
        return derive(self.api_key, self.version)


def subject_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options ``--kind --api --version``."""
    for option in (
        click.option(
            "--version", type=int, metavar="N", help="Its version; of a header without --api the header's own."
        ),
        click.option("--api", metavar="API", help="Whose message, by name or key: 6, UpdateMetadata, update-metadata."),
        click.option(
            "--kind",
            type=click.Choice(KINDS),
            help="What the bytes are. A frame is size, header and body (the size may be missing); request and response "
            "are bodies alone. Without it: request if --api is given, else request-frame.",
        ),
    ):
        command = option(command)
    return command


def subject_of(kind: str | None, api: str | None, version: int | None) -> Subject:
    """The options, understood.

    Raises:
        ConfigurationError: There is no such API.
    """
    if kind is None:
        kind = "request-frame" if api is None else "request"
    return Subject(cast("KindName", kind), None if api is None else parse_api(api), version)


def read_input(source: str, text: str | None) -> bytes:
    """What ``SOURCE`` or ``--data`` gives.

    Raises:
        OSError: The file cannot be read.
        ConfigurationError: There is nothing in it, or both are given.
    """
    if text is not None and source != "-":
        raise ConfigurationError(f"both {source} and --data; give one of them")
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    if not data:
        where = "standard input" if source == "-" else source
        raise ConfigurationError(f"there is nothing to read in {where}; try another file")
    return data


def message_of(message_class: Any, form: Any, version: int) -> Any:
    """The message that a JSON form stands for.

    Raises:
        ConfigurationError: A field is missing, or not what it has to be.
    """
    try:
        return message_class.from_json(form, version)
    except EncodeError as e:
        raise ConfigurationError(
            f"{e}, in the JSON of {message_class.__name__} v{version}; `kproto inspect --format json` prints whole ones"
        ) from e


def size_field(data: bytes) -> int:
    """4 if the first four bytes are the size of what follows, else 0."""
    return 4 if len(data) >= 4 and _SIZE.unpack_from(data)[0] == len(data) - 4 else 0


def request_header_at(data: bytes) -> int:
    """Where the header of a request frame begins: behind the size field, or at once where there is none.

    The size of a frame that is cut off, or that others follow, does not fit what is there; it counts as one where it
    may be one, and a header stands behind it but not in its place.
    """
    if size_field(data) or len(data) < 8:
        return size_field(data)
    may_be_size = 8 <= _SIZE.unpack_from(data)[0] <= DEFAULT_LIMIT
    return 4 if may_be_size and _plausible(data, 4) and not _plausible(data, 0) else 0


def _plausible(data: bytes, at: int) -> bool:
    """Whether a request header of an API and version that Kafka 3.9.1 has may stand here."""
    if len(data) < at + 4:
        return False
    key, version = struct.unpack_from(">hh", data, at)
    return key in ApiKey._value2member_map_ and 0 <= version <= ApiKey(key).info.max_version
