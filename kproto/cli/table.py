"""Formats a dissected message as a table: offset, bytes, field, value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kproto.api import api_name
from kproto.cli.text import LEADERS
from kproto.error_codes import named_error
from kproto.json_form import uuid_to_json
from kproto.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kproto.cli.dissection import Dissection, MessageDump
    from kproto.reference.trace import FieldSpan

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
