"""Kafka's primitive types for Construct: varints, compact lengths, tagged fields, text as Java reads and writes it.

Everything here is a Construct. Lengths are checked against the bytes that are left before anything is made of them, so
that no claim in the input can cost more memory than the input itself. Faults are raised as kproto's own errors, with
the field's path; what Construct raises by itself is translated in ``wire.py``.
"""

from __future__ import annotations

import codecs
import io
import re
from typing import TYPE_CHECKING, Any, Final

from construct import Construct, FormatField, stream_read, stream_write

from kproto.errors import EncodeError, OutOfRange

from .wire import field_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .wire import Wire

_LONGEST_TEXT: Final = 0x7FFF
_HIGHEST_TAG: Final = 0x7FFF_FFFF  # reserved by Kafka: it can be read, not written


def _int32(value: int) -> int:
    """Return the low 32 bits as a signed number, as Java's int arithmetic does."""
    return (value + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000


# ---- numbers ---------------------------------------------------------------------------------------------------------


class Integer(FormatField):  # type: ignore[misc]
    """A big-endian integer; its error names the value that does not fit."""

    def __init__(self, code: str) -> None:
        super().__init__(">", code)
        span = 1 << 8 * self.length
        self.low: int = 0 if code.isupper() else -span // 2
        self.high: int = self.low + span - 1

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if not hasattr(obj, "__index__"):
            raise EncodeError(f"expected an integer, got {type(obj).__name__}", field_path(path))
        if not self.low <= obj <= self.high:
            raise OutOfRange(f"{obj} is not in {self.low}..{self.high}", field_path(path))
        return super()._build(obj, stream, context, path)


class Double(FormatField):  # type: ignore[misc]
    """A big-endian IEEE 754 double."""

    def __init__(self) -> None:
        super().__init__(">", "d")

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if isinstance(obj, bool) or not isinstance(obj, int | float):
            raise EncodeError(f"expected a number, got {type(obj).__name__}", field_path(path))
        try:
            return super()._build(float(obj), stream, context, path)
        except OverflowError:
            raise OutOfRange(f"{obj} does not fit a double", field_path(path)) from None


class Bool(Construct):  # type: ignore[misc]
    """One byte. Every value but 0 is true, as in Java; ``strict`` allows only 0 and 1."""

    def _parse(self, stream: Wire, context: Any, path: str) -> bool:
        byte: int = stream_read(stream, 1, path)[0]
        if stream.strict and byte > 1:
            raise stream.malformed(f"a boolean of {byte:#04x}; only 0 and 1 are allowed", stream.at - 1, path)
        return byte != 0

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            raise EncodeError("null, where a boolean must be", field_path(path))
        stream_write(stream, b"\x01" if obj else b"\x00", 1, path)
        return obj


class Varint(Construct):  # type: ignore[misc]
    """An unsigned varint of up to five bytes, read into a Java int: 2**31 and above come out negative.

    Kafka accepts longer forms than needed, and drops what the fifth byte holds above the 32nd bit.
    """

    def _parse(self, stream: Wire, context: Any, path: str) -> int:
        start = stream.at
        value = 0
        for shift in (0, 7, 14, 21, 28):
            (byte,) = stream_read(stream, 1, path)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if stream.strict and (value >> 32 or (byte == 0 and shift)):
                    raise stream.malformed("a varint that is not in its shortest form", start, path)
                return _int32(value)
        raise stream.malformed("a varint of more than five bytes", start, path)

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        left = obj & 0xFFFF_FFFF
        out = bytearray()
        while left > 0x7F:
            out.append(left & 0x7F | 0x80)
            left >>= 7
        out.append(left)
        stream_write(stream, bytes(out), len(out), path)
        return obj


class CompactLength(Construct):  # type: ignore[misc]
    """A varint of length + 1, so that 0 means null. The subtraction wraps as Java's does: 2**31 means 2**31 - 1."""

    def _parse(self, stream: Wire, context: Any, path: str) -> int:
        return _int32(VARINT._parse(stream, context, path) - 1)

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        VARINT._build(obj + 1, stream, context, path)
        return obj


VARINT: Final = Varint()
COMPACT_LENGTH: Final = CompactLength()
INT16_LENGTH: Final = Integer("h")
INT32_LENGTH: Final = Integer("l")


class UuidBytes(Construct):  # type: ignore[misc]
    """The 16 bytes of a UUID, most significant first."""

    def _parse(self, stream: Wire, context: Any, path: str) -> bytes:
        return bytes(stream_read(stream, 16, path))

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if not isinstance(obj, bytes | bytearray | memoryview) or len(obj) != 16:
            raise EncodeError(f"expected the 16 bytes of a UUID, got {obj!r:.60}", field_path(path))
        stream_write(stream, bytes(obj), 16, path)
        return obj


# ---- what has a length in front --------------------------------------------------------------------------------------


class _LengthPrefixed(Construct):  # type: ignore[misc]
    """A length, and as many bytes or elements. Every negative length means null; ``strict`` allows only -1."""

    def __init__(self, length: Construct, nullable: bool) -> None:
        super().__init__()
        self.length = length
        self.nullable = nullable

    def _parse(self, stream: Wire, context: Any, path: str) -> Any:
        start = stream.at
        length = self.length._parse(stream, context, path)
        if length >= 0:
            return self._read(length, stream, context, path)
        if not self.nullable:
            raise stream.malformed("null, where null is not allowed", start, path)
        if stream.strict and length < -1:
            raise stream.malformed(f"null with length {length}", start, path)
        return None

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is not None:
            self._write(obj, stream, context, path)
        elif self.nullable:
            self.length._build(-1, stream, context, path)
        else:
            raise EncodeError("null, where null is not allowed", field_path(path))
        return obj

    def _read(self, length: int, stream: Wire, context: Any, path: str) -> Any:
        raise NotImplementedError

    def _write(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        raise NotImplementedError


class Text(_LengthPrefixed):
    """A string: UTF-8 of at most 32,767 bytes."""

    def _read(self, length: int, stream: Wire, context: Any, path: str) -> str:
        if length > _LONGEST_TEXT:
            raise stream.malformed(f"a string of {length} bytes; {_LONGEST_TEXT} is the most", stream.at, path)
        start = stream.at
        data = stream_read(stream, length, path)
        if stream.strict:
            try:
                return str(data, "utf-8")
            except UnicodeDecodeError as e:
                raise stream.malformed(f"ill-formed UTF-8: {e.reason}", start + e.start, path) from None
        return str(data, "utf-8", _AS_JAVA)

    def _write(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        if not isinstance(obj, str):
            raise EncodeError(f"expected a string, got {type(obj).__name__}", field_path(path))
        data = obj.encode("utf-8", _AS_JAVA)
        if len(data) > _LONGEST_TEXT:
            raise OutOfRange(f"a string of {len(data)} bytes in UTF-8; {_LONGEST_TEXT} is the most", field_path(path))
        self.length._build(len(data), stream, context, path)
        stream_write(stream, data, len(data), path)


class Bytes(_LengthPrefixed):
    """Opaque bytes."""

    def _read(self, length: int, stream: Wire, context: Any, path: str) -> bytes:
        return bytes(stream_read(stream, length, path))

    def _write(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        if not isinstance(obj, bytes | bytearray | memoryview):
            raise EncodeError(f"expected bytes, got {type(obj).__name__}", field_path(path))
        data = bytes(obj)
        self.length._build(len(data), stream, context, path)
        stream_write(stream, data, len(data), path)


class Elements(_LengthPrefixed):
    """An array, made a ``list`` or ``tuple``. A count above the number of bytes left is refused at once, as in Java."""

    def __init__(
        self, item: Construct, length: Construct, nullable: bool, sequence: type[list[Any] | tuple[Any, ...]]
    ) -> None:
        super().__init__(length, nullable)
        self.item = item
        self.sequence = sequence

    def _read(self, length: int, stream: Wire, context: Any, path: str) -> Any:
        if length > stream.left:
            raise stream.truncated(f"an array of {length} elements, {stream.left} bytes left", stream.at, path)
        return self.sequence(self.item._parsereport(stream, context, f"{path}[{i}]") for i in range(length))

    def _write(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        if isinstance(obj, str | bytes) or not hasattr(obj, "__len__"):
            raise EncodeError(f"expected a sequence, got {type(obj).__name__}", field_path(path))
        self.length._build(len(obj), stream, context, path)
        for i, value in enumerate(obj):
            self.item._build(value, stream, context, f"{path}[{i}]")


# ---- tagged fields ---------------------------------------------------------------------------------------------------


class TaggedFields(Construct):  # type: ignore[misc]
    """The section that ends every struct of a flexible version: a count, then tag, size and bytes of each field.

    Parses to the known fields by name, and ``unknown_tagged_fields``: those that Kafka 3.9.1 does not define, in wire
    order. A tag that only other versions of the struct define is refused. Known fields that hold their default are not
    written.

    Args:
        known: Name, Construct and default of the tags that this version defines. In every message that Kafka 3.9.1
            has, those tags count up from 0; so all of them stand before the unknown ones.
        elsewhere: Tags that other versions of this struct define.
    """

    def __init__(self, known: Mapping[int, tuple[str, Construct, object]], elsewhere: frozenset[int]) -> None:
        super().__init__()
        self.known = known
        self.elsewhere = elsewhere

    def _parse(self, stream: Wire, context: Any, path: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        unknown: list[tuple[int, bytes]] = []
        start = stream.at
        count = VARINT._parse(stream, context, path)
        if stream.strict and count < 0:
            raise stream.malformed(f"{count & 0xFFFF_FFFF} tagged fields", start, path)
        last = -1
        for _ in range(count):  # a negative count counts as none, and too high a one ends with the input
            start = stream.at
            tag = VARINT._parse(stream, context, path)
            if stream.strict:
                _check_order(tag, last, stream, start, path)
                last = tag
            size_at = stream.at
            size = VARINT._parse(stream, context, path)
            if tag in self.known:
                name, construct, _default = self.known[tag]
                start = stream.at
                values[name] = construct._parsereport(stream, context, f"{path} -> {name}")
                # Kafka reads the size of a known tag and forgets it: what follows the value is read as what comes next.
                if stream.strict and stream.at - start != size:
                    reason = f"tag {tag} claims {size & 0xFFFF_FFFF} bytes and has {stream.at - start}"
                    raise stream.malformed(reason, size_at, f"{path} -> {name}")
            elif tag in self.elsewhere:
                raise stream.malformed(f"tag {tag} belongs to other versions of this message", start, path)
            elif size < 0:
                raise stream.malformed(f"a tagged field of {size & 0xFFFF_FFFF} bytes", size_at, path)
            else:
                unknown.append((tag, bytes(stream_read(stream, size, path))))
        values["unknown_tagged_fields"] = tuple(unknown)
        return values

    def _build(self, obj: Mapping[str, Any], stream: Any, context: Any, path: str) -> Any:
        fields: list[tuple[int, bytes]] = []
        for tag, (name, construct, default) in sorted(self.known.items()):
            if obj[name] != default:
                value = io.BytesIO()
                construct._build(obj[name], value, context, f"{path} -> {name}")
                fields.append((tag, value.getvalue()))
        fields += _writable(obj["unknown_tagged_fields"], f"{path} -> unknown_tagged_fields")
        VARINT._build(len(fields), stream, context, path)
        for tag, data in fields:
            VARINT._build(tag, stream, context, path)
            VARINT._build(len(data), stream, context, path)
            stream_write(stream, data, len(data), path)
        return obj


def _check_order(tag: int, last: int, stream: Wire, at: int, path: str) -> None:
    if tag < 0:
        raise stream.malformed(f"tag {tag & 0xFFFF_FFFF} is above {_HIGHEST_TAG}", at, path)
    if tag == last:
        raise stream.malformed(f"tag {tag} twice", at, path)
    if tag < last:
        raise stream.malformed(f"tag {tag} after tag {last}", at, path)


def _writable(unknown: Any, path: str) -> list[tuple[int, bytes]]:
    """Return unknown tagged fields as Kafka would write them.

    Raises:
        EncodeError: A tag out of order or twice, or the highest one, which Kafka reserves.
    """
    last = -1
    for tag, _data in unknown:
        if tag <= last:
            raise EncodeError(f"tag {tag} comes after tag {last}; tags must rise", field_path(path))
        if tag >= _HIGHEST_TAG:
            raise EncodeError(f"tag {tag} cannot be written; {_HIGHEST_TAG - 1} is the highest", field_path(path))
        last = tag
    return list(unknown)


# ---- text as Java reads and writes it --------------------------------------------------------------------------------

_AS_JAVA: Final = "kproto.reference.java"
_PAIR_OR_ONE: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]|.", re.DOTALL)


def _as_java(error: UnicodeError) -> tuple[str | bytes, int]:
    """Java's replacements: as Python's ``replace``, but all of a surrogate's bytes become one U+FFFD.

    In writing, a lone surrogate becomes ``?``; a high and a low surrogate side by side are one character.
    """
    if isinstance(error, UnicodeDecodeError):
        data, end = error.object, error.end
        if data[error.start] == 0xED and data[end : end + 1] and 0xA0 <= data[end] <= 0xBF:
            end += 1
            if data[end : end + 1] and 0x80 <= data[end] <= 0xBF:
                end += 1
        return "\ufffd", end
    if not isinstance(error, UnicodeEncodeError):
        raise error
    pieces = _PAIR_OR_ONE.findall(error.object[error.start : error.end])
    return b"".join(
        piece.encode("utf-16", "surrogatepass").decode("utf-16").encode() if len(piece) == 2 else b"?"
        for piece in pieces
    ), error.end


codecs.register_error(_AS_JAVA, _as_java)
