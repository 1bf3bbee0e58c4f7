"""Compares the readings of several implementations of the protocol, for an audit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from kproto.errors import DecodeError, EncodeError, UnsupportedVersion
from kproto.json_form import snake_case

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kproto.codec import Codec
    from kproto.types import Json

Outcome: TypeAlias = Literal["equal", "values_differ", "one_rejects", "both_reject", "reencode_differs"]
"""``equal``: all read the same values and write the same bytes again. ``both_reject``: none can read it, which is no
disagreement. The others are mismatches."""

_MISSING: Final = "(no such field)"
_BYTES_READ: Final = "bytes_read"
_SHOWN_BYTES: Final = 16
_SHOWN_TEXT: Final = 300


class AuditedBody(NamedTuple):
    """A body to read.

    Attributes:
        api_key, version: The API and version of its request.
        kind: Request or response.
        data: Its bytes.
    """

    api_key: int
    version: int
    kind: Literal["request", "response"]
    data: bytes


class Reading(NamedTuple):
    """A decoder's result for a body.

    Attributes:
        json: Its fields in Kafka's JSON form; None if it was refused.
        used: The length of the message in bytes.
        written: The same message, encoded again.
        error: The reason why it was refused, or cannot be written again.
    """

    json: Json | None
    used: int = 0
    written: bytes | None = None
    error: str | None = None


class Decoder(Protocol):
    """An implementation of the protocol."""

    @property
    def name(self) -> str:
        """The decoder's name in the table ``audit``."""

    def read(self, bodies: Sequence[AuditedBody]) -> list[Reading]:
        """Read bodies and write them again."""


class CodecDecoder:
    """One of kproto's codecs.

    Args:
        name: The decoder's name in the table ``audit``: ``cython`` or ``construct``.
        codec: The codec, as ``kproto.codec.get_codec`` gives it.
    """

    def __init__(self, name: str, codec: Codec) -> None:
        self.name = name
        self._codec = codec

    def read(self, bodies: Sequence[AuditedBody]) -> list[Reading]:
        """Read bodies and write them again."""
        return [self._read(body) for body in bodies]

    def _read(self, body: AuditedBody) -> Reading:
        codec = self._codec
        read = codec.decode_request_from if body.kind == "request" else codec.decode_response_from
        try:
            message, used = read(body.api_key, body.version, body.data)
        except (DecodeError, UnsupportedVersion) as e:
            return Reading(None, error=str(e))
        fields = message.to_json(body.version)
        try:
            return Reading(fields, used, codec.encode(message, body.version))
        except EncodeError as e:
            return Reading(fields, used, error=str(e))


class Comparison(NamedTuple):
    """A comparison of the decoders' readings of one body.

    Attributes:
        outcome: In one word.
        field_path: The first difference: a field, e.g. ``topic_states[0].topic_name``, or a byte of the body.
        values: Each decoder's value there, as JSON, or as hexadecimal bytes; empty without a difference.
        differences: The number of fields that differ.
    """

    outcome: Outcome
    field_path: str | None
    values: dict[str, str]
    differences: int


def compare(data: bytes, readings: Mapping[str, Reading]) -> Comparison:
    """Compare the readings of one body with each other, and the encoded messages with the body.

    Args:
        data: The body.
        readings: Each decoder's result, by the decoder's name.
    """
    refused = [reading.json is None for reading in readings.values()]
    if all(refused):
        return Comparison("both_reject", None, {}, 0)
    if any(refused):
        return Comparison("one_rejects", None, {}, 0)
    fields = [{**(reading.json or {}), _BYTES_READ: reading.used} for reading in readings.values()]
    found = list(_differences(fields, ""))
    if found:
        path, values = found[0]
        shown = {name: _as_text(value) for name, value in zip(readings, values, strict=True)}
        return Comparison("values_differ", path, shown, len(found))
    for reading in readings.values():
        read = data[: reading.used]
        if reading.written != read:
            at = _first_difference(reading.written or b"", read)
            shown = {name: _hex(other.written, at) for name, other in readings.items()}
            return Comparison("reencode_differs", f"byte {at}, where the body has {_hex(read, at)}", shown, 1)
    return Comparison("equal", None, {}, 0)


def _differences(values: Sequence[Any], path: str) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield each field that differs between the values: its path, and its value in each."""
    first = values[0]
    if all(value == first and type(value) is type(first) for value in values):
        return
    if all(isinstance(value, dict) for value in values):
        for name in dict.fromkeys(name for value in values for name in value):
            field = snake_case(name)
            yield from _differences(
                [value.get(name, _MISSING) for value in values], f"{path}.{field}" if path else field
            )
    elif all(isinstance(value, list) and len(value) == len(first) for value in values):
        for number, items in enumerate(zip(*values, strict=True)):
            yield from _differences(items, f"{path}[{number}]")
    else:
        yield path, values


def _as_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_TEXT else f"{text[: _SHOWN_TEXT - 1]}…"


def _first_difference(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _hex(data: bytes | None, at: int) -> str:
    """Write some bytes in hexadecimal, or say that the message cannot be written again."""
    return "cannot be written" if data is None else data[at : at + _SHOWN_BYTES].hex() or "end"
