"""Reads a frame, header or body into fields with their values and positions, and shows them as a dissector does."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from kproto.api import (
    ApiKey,
    api_name,
    check_version,
    request_header_version,
    response_body_version,
    response_header_version,
)
from kproto.cli.message_options import request_header_at, size_field
from kproto.cli.text import LEADERS
from kproto.error_codes import named_error
from kproto.errors import DecodeError, Malformed, Truncated, UnsupportedApi
from kproto.json_form import uuid_to_json
from kproto.reference.trace import trace
from kproto.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kproto.cli.message_options import MessageOptions
    from kproto.reference.trace import FieldSpan
    from kproto.types import Json, Kind

_OTHER_KINDS: Final = (
    "if the input is not a request frame, name what it is: --kind, --api, --version; a capture: kproto inspect"
)

_BYTES: Final = 8
"""The number of bytes of a field that are shown; a string's characters are shown as its value."""

_TAGGED: Final = "_tagged"
_MEANINGS: Final[Mapping[str, Callable[[int], str | None]]] = {
    **dict.fromkeys(("request_api_key", "api_key"), api_name),
    **dict.fromkeys(("leader", "leader_id"), LEADERS.get),
    "security_protocol": {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}.get,
    "type": {0: "unknown", 1: "incremental", 2: "full"}.get,
}
"""What the numbers of a field mean."""


@dataclass(slots=True)
class MessageDump:
    """A header or a body.

    Attributes:
        title: Its name and version, e.g. ``UpdateMetadata request v8``.
        version: The version it was read with; for a header the header's own.
        start, end: Its position in the input; ``end`` is where reading stopped.
        fields: Its fields, a struct before the fields in it; offsets count from the start of the input.
        message: The header or message, None if it cannot be read.
        error: Why it cannot be read, None if it can; the offset counts from the start of the input.
    """

    title: str
    version: int
    start: int
    end: int
    fields: list[FieldSpan]
    message: Any
    error: DecodeError | None


@dataclass(slots=True)
class Dissection:
    """The whole input, read as far as it can be read.

    Attributes:
        data: The input.
        size: The value of the length prefix, None if the input has none.
        api_key, version: API and version of the message, None for a header alone.
        sections: The header, the body, or both in this order.
    """

    data: bytes
    size: int | None = None
    api_key: int | None = None
    version: int | None = None
    sections: list[MessageDump] = field(default_factory=list)

    @property
    def error(self) -> DecodeError | None:
        """The error that ended the reading, None if everything was read."""
        return self.sections[-1].error

    @property
    def left_over(self) -> int:
        """The number of bytes that follow the message in the input."""
        return len(self.data) - self.sections[-1].end

    def to_json(self, options: MessageOptions) -> Json:
        """Return Kafka's JSON form; for a frame an object with ``kind``, ``api``, ``version``, ``header``, ``body``.

        Raises:
            DecodeError: The input cannot be read.
        """
        if self.error is not None:
            raise self.error
        forms = [section.message.to_json(section.version) for section in self.sections]
        if not options.kind.endswith("-frame"):
            return forms[0]  # type: ignore[no-any-return]
        header, body = forms
        return {"kind": options.kind, "api": self.api_key, "version": self.version, "header": header, "body": body}

    def read(self, kind: Kind, api_key: int, version: int, start: int, *, strict: bool) -> MessageDump:
        """Read and append the section that begins at ``start``; a failure is kept as the section's ``error``."""
        if kind == "response":
            version = response_body_version(api_key, version, memoryview(self.data)[start:])
        title = kind.replace("_", " ") if api_key < 0 else f"{api_name(api_key)} {kind}"
        fields, message, used, error = trace(kind, api_key, version, memoryview(self.data)[start:], strict=strict)
        for span in fields:
            span.start += start
            span.end += start
            if span.first_inner is not None:
                span.first_inner += start
        if error is not None and error.offset is not None:
            error.offset += start
        left = len(self.data) - start - used
        if strict and error is None and left and kind in ("request", "response"):
            error = Malformed(f"{counted(left, 'byte')} after the message", start + used, "", api_key, version)
        section = MessageDump(f"{title} v{version}", version, start, start + used, fields, message, error)
        self.sections.append(section)
        return section


def dissect(options: MessageOptions, data: bytes, *, strict: bool) -> Dissection:
    """Read the input as far as possible, field by field.

    Raises:
        ConfigurationError: The options do not name an API and version, and the input needs them.
        DecodeError: A request frame is too short for API key and version.
        UnsupportedApi, UnsupportedVersion: Kafka 3.9.1 lacks the API or version that the options or the bytes name.
    """
    parts = Dissection(data)
    match options.kind:
        case "request" | "response":
            parts.api_key, parts.version = options.of_body()
            parts.read(options.kind, parts.api_key, parts.version, 0, strict=strict)
        case "request-header":
            version = options.header_version()
            parts.read("request_header", -1, _derived(data, 0) if version is None else version, 0, strict=strict)
        case "response-header":
            version = options.header_version()
            assert version is not None
            parts.read("response_header", -1, version, 0, strict=strict)
        case "request-frame":
            start = request_header_at(data)
            header = parts.read("request_header", -1, _derived(data, start), start, strict=strict)
            if header.error is None:
                parts.api_key, parts.version = header.message.request_api_key, header.message.request_api_version
                check_version(parts.api_key, parts.version)
                parts.read("request", parts.api_key, parts.version, header.end, strict=strict)
        case "response-frame":
            parts.api_key, parts.version = options.of_body()
            own = response_header_version(parts.api_key, parts.version)
            header = parts.read("response_header", -1, own, size_field(data), strict=strict)
            if header.error is None:
                parts.read("response", parts.api_key, parts.version, header.end, strict=strict)
    if parts.sections[0].start == 4:
        (parts.size,) = struct.unpack_from(">i", data)
    return parts


def _derived(data: bytes, start: int) -> int:
    """Return the version of the request header at ``start``, from the API key and version in it."""
    if len(data) < start + 4:
        size = counted(len(data) - start, "byte")
        raise Truncated(f"the input has {size}, and a request header at least 8; {_OTHER_KINDS}", start)
    api_key, version = struct.unpack_from(">hh", data, start)
    if api_key not in ApiKey._value2member_map_:
        raise UnsupportedApi(api_key, f"{UnsupportedApi(api_key)}; {_OTHER_KINDS}")
    return request_header_version(api_key, version)


def table(parts: Dissection, width: int | None, *, color: bool) -> Iterator[str]:
    """Return the lines of the table.

    Args:
        parts: The parts to show.
        width: Columns of the terminal, None for no limit.
        color: ANSI colours.
    """

    def paint(text: str, **style: Any) -> str:
        return click.style(text, **style) if color else text

    digits = max(len(str(len(parts.data))), 6)
    column = 3 * _BYTES + 1
    names = max((len(_label(span)) for section in parts.sections for span in _shown(section)), default=0)
    yield paint(f"{'offset':>{digits}}  {'bytes':<{column}}  {'field':<{names}}  value", dim=True)
    if parts.size is not None:
        rest = len(parts.data) - 4
        note = "" if parts.size == rest else f", but {counted(rest, 'byte')} follow"
        yield f"{0:>{digits}}  {_hex(parts.data[:4]):<{column}}  {'size':<{names}}  {parts.size}{note}"
    for section in parts.sections:
        yield paint(f"{'':{digits}}  {section.title}, {counted(section.end - section.start, 'byte')}", bold=True)
        for span in _shown(section):
            # The bytes of a struct or an array are shown beside the fields in it.
            shown_bytes = "" if _is_struct(span) else _hex(parts.data[span.start : _own_end(span)])
            value = _value(span)
            cells = f"{span.start:>{digits}}  {shown_bytes:<{column}}  {_label(span):<{names}}  "
            if width is not None and len(cells) + len(value) > width:
                value = value[: max(width - len(cells) - 1, 8)] + "…"
            yield (cells + value).rstrip()
        if section.error is not None:
            offset = "" if section.error.offset is None else section.error.offset
            yield paint(f"{offset:>{digits}}  {section.error.reason}", fg="red")
    if parts.left_over and parts.error is None:
        at = len(parts.data) - parts.left_over
        yield paint(f"{at:>{digits}}  {_hex(parts.data[at:]):<{column}}  left over", fg="yellow")


def _shown(section: MessageDump) -> Iterator[FieldSpan]:
    """Return the fields but for the elements of number arrays, which are shown side by side."""
    inside = ""
    for span in section.fields:
        if inside and span.path.startswith(inside):
            continue
        inside = f"{span.path}[" if _is_numbers(span.value) else ""
        yield span


def _is_numbers(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(type(item) is int for item in value)


def _is_struct(span: FieldSpan) -> bool:
    return span.path.endswith("]")


def _own_end(span: FieldSpan) -> int:
    """Return where a field's shown bytes end: behind an array's length, if its elements have lines of their own."""
    if span.first_inner is not None and not _is_numbers(span.value):
        return span.first_inner
    return span.end


def _label(span: FieldSpan) -> str:
    head, dot, name = span.path.rpartition(".")
    if _is_struct(span):
        name = name[name.rindex("[") :]
        head += dot
    depth = span.path.count(".") + span.path.count("[") - (1 if _is_struct(span) else 0)
    return "  " * depth + ("tagged fields" if name == _TAGGED else name)


def _hex(data: bytes) -> str:
    shown = data[:_BYTES].hex(" ")
    return f"{shown} …" if len(data) > _BYTES else shown


def _value(span: FieldSpan) -> str:
    name = span.path.rpartition(".")[2]
    match span.value:
        case None:
            return "null" if span.whole else "?"
        case bool():
            return "true" if span.value else "false"
        case int():
            return _number(name, span.value)
        case str():
            return f'"{printable(span.value)}"'
        case bytes():
            return uuid_to_json(span.value) if len(span.value) == 16 else span.value.hex()
        case list() | tuple():
            if _is_numbers(span.value):
                return ", ".join(map(str, span.value))
            return counted(len(span.value), "element") if span.value else "empty"
        case dict() if name == _TAGGED:
            unknown = span.value.get("unknown_tagged_fields", ())
            known = len(span.value) - ("unknown_tagged_fields" in span.value)
            parts = [counted(known, "known field")] if known else []
            parts += [f"tag {tag}: {data.hex() or 'no bytes'}" for tag, data in unknown]
            return ", ".join(parts) or "none"
    return ""


def _number(name: str, value: int) -> str:
    """Format a number with its meaning."""
    if name == "error_code" and value:
        return named_error(value)
    meaning = _MEANINGS[name](value) if name in _MEANINGS else None
    return f"{value} ({meaning})" if meaning else str(value)
