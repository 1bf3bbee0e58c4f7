"""The position of each field of a message, as a dissector shows it.

A copy of the message's Construct notes where every part begins and ends while it is read; the Constructs that read
messages know nothing of it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from construct import Construct, Renamed, StreamError, Struct, Subconstruct

from kproto.errors import DecodeError

from . import message_class
from .headers import RequestHeader, ResponseHeader
from .primitives import Elements, TaggedFields
from .wire import Wire, part_path

if TYPE_CHECKING:
    from kproto.types import Buffer, Kind


@dataclass(slots=True)
class FieldSpan:
    """One field with its position in the bytes.

    Attributes:
        path: The field, e.g. ``topic_states[0].topic_name``.
        start, end: Its position from the start of the input, length prefix included; if reading the field failed,
            ``end`` is where it failed.
        value: Its value; None if reading it failed.
        whole: Whether it was read to its end.
        first_inner: Where the first field within it begins (of a struct, an array, a tagged section), None if there is
            none.
    """

    path: str
    start: int
    end: int = 0
    value: Any = None
    whole: bool = False
    first_inner: int | None = None


class _TracedWire(Wire):
    """A wire that records the fields read from it, a struct before the fields in it."""

    __slots__ = ("fields",)

    def __init__(self, data: bytes, strict: bool, api_key: int | None, version: int) -> None:
        super().__init__(data, strict, api_key, version)
        self.fields: list[FieldSpan] = []


class _Noted(Subconstruct):  # type: ignore[misc]
    """Reads what the wrapped Construct reads, and records its position."""

    def _parse(self, stream: _TracedWire, context: Any, path: str) -> Any:
        span = FieldSpan(part_path(path), stream.at)
        stream.fields.append(span)
        count = len(stream.fields)
        try:
            span.value = self.subcon._parsereport(stream, context, path)
            span.whole = True
        finally:
            span.end = stream.at
            if len(stream.fields) > count:
                span.first_inner = stream.fields[count].start
        return span.value


def _noting(construct: Construct) -> Construct:
    """Return a copy that records each named part and each element of an array."""
    seen = copy.copy(construct)
    match construct:
        case Renamed():
            seen.subcon = _Noted(_noting(construct.subcon))
        case Struct():
            seen.subcons = [_noting(part) for part in construct.subcons]
        case Elements():
            seen.item = _Noted(_noting(construct.item))
        case TaggedFields():
            seen.known = {
                tag: (name, _Noted(_noting(part)), default) for tag, (name, part, default) in construct.known.items()
            }
        case Subconstruct():
            seen.subcon = _noting(construct.subcon)
    return seen


def _construct(kind: Kind, api_key: int, version: int) -> Construct:
    if kind == "request_header" or kind == "response_header":
        return (RequestHeader if kind == "request_header" else ResponseHeader).at(version)
    construct: Construct = message_class(api_key, kind).at(version)
    return construct


def trace(
    kind: Kind, api_key: int, version: int, data: Buffer, *, strict: bool = False
) -> tuple[list[FieldSpan], Any, int, DecodeError | None]:
    """Read a message or header from the start of a buffer and return its fields' positions.

    Args:
        kind: Request, response, or one of their headers.
        api_key: The message's API; -1 for headers.
        version: The version to read; a header's own.
        data: Any buffer.
        strict: Refuse what the protocol forbids although Kafka accepts it.

    Returns:
        The fields as far as they could be read; the message, None if it could not be read; the number of bytes read;
        the error, None if there is none.

    Raises:
        UnsupportedApi, UnsupportedVersion: The reference does not have it.
    """
    construct = _construct(kind, api_key, version)
    wire = _TracedWire(memoryview(data).tobytes(), strict, None if api_key < 0 else api_key, version)
    message = error = None
    try:
        message = _noting(construct).parse_stream(wire)
    except DecodeError as e:
        error = e
    except StreamError as e:
        error = wire.ended_early(e.path)
    return wire.fields, message, wire.at, error
