"""The stream that a Construct reads: its position, the bytes left, and kproto's errors in place of Construct's."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from construct import ConstructError, StreamError

from kproto.errors import EncodeError, Malformed, Truncated

if TYPE_CHECKING:
    from construct import Construct

    from kproto.types import Buffer

TAGGED_SECTION = "_tagged"
"""The tagged section's name within a struct's Construct; it is not a field and appears in no error's path."""


def part_path(path: str) -> str:
    """Turn Construct's ``(parsing) -> topic_states[3] -> isr`` into ``topic_states[3].isr``; keep tagged sections."""
    return ".".join(path.split(" -> ")[1:])


def field_path(path: str) -> str:
    """Turn Construct's path into a field's path, in which tagged fields are fields like others."""
    return part_path(path.replace(f" -> {TAGGED_SECTION}", ""))


class Wire:
    """A stream over bytes for Construct to read, with the position for errors.

    Attributes:
        at: Bytes read so far.
        strict: Whether to refuse what the protocol forbids although Kafka accepts it.
        short_at: The offset of the read that found too few bytes.
    """

    __slots__ = ("api_key", "at", "data", "short_at", "strict", "version", "wanted")

    def __init__(self, data: bytes, strict: bool, api_key: int | None, version: int) -> None:
        self.data: bytes = data
        self.at: int = 0
        self.strict: bool = strict
        self.api_key: int | None = api_key
        self.version: int = version
        self.short_at: int = 0
        self.wanted: int = 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self.data) - self.at

    def read(self, size: int) -> bytes:
        """Return the next bytes; fewer at the end, as file objects do."""
        start = self.at
        piece = self.data[start : start + size]
        self.at = start + len(piece)
        if len(piece) < size:
            self.short_at, self.wanted = start, size
        return piece

    def malformed(self, reason: str, at: int, path: str) -> Malformed:
        """Make the error for bytes that contradict the protocol."""
        return Malformed(reason, at, field_path(path), self.api_key, self.version)

    def ended_early(self, path: str) -> Truncated:
        """Make the error for the read that found too few bytes."""
        left, plural = len(self.data) - self.short_at, "" if self.wanted == 1 else "s"
        return self.truncated(
            f"the input ends early: {self.wanted} byte{plural} needed, {left} left", self.short_at, path
        )

    def truncated(self, reason: str, at: int, path: str) -> Truncated:
        """Make the error for bytes that end too early."""
        return Truncated(reason, at, field_path(path), self.api_key, self.version)


def parse(
    construct: Construct, data: Buffer, *, api_key: int | None, version: int, strict: bool, alone: bool
) -> tuple[Any, int]:
    """Read one value from the start of a buffer; also return how many bytes it took.

    Args:
        strict: Refuse what the protocol forbids though Kafka lets it pass.
        alone: Whether that includes bytes after the value.

    Raises:
        DecodeError: The bytes are no such value.
        BufferError: The buffer's bytes do not lie side by side.
    """
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("the bytes to decode must be contiguous")
    wire = Wire(view.tobytes(), strict, api_key, version)
    try:
        value = construct.parse_stream(wire)
    except StreamError as e:
        raise wire.ended_early(e.path) from None
    if strict and alone and wire.left:
        raise wire.malformed(f"{wire.left} bytes after the message", wire.at, "")
    return value, wire.at


def build(construct: Construct, value: Any) -> bytes:
    """Write one value.

    Raises:
        EncodeError: It cannot be written.
    """
    out = io.BytesIO()
    try:
        construct.build_stream(value, out)
    except ConstructError as e:
        raise EncodeError(str(e).rpartition("\n")[2], field_path(e.path or "")) from e
    return out.getvalue()
