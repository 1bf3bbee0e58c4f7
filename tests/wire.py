"""Writes bytes by hand for tests, from the protocol's description, without a codec.

Every function gives bytes; a test joins them in the order of the wire.
"""

import struct

__all__ = ["array", "boolean", "i8", "i16", "i32", "i64", "ids", "overlong", "string", "tags", "varint"]


def boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def i8(value: int) -> bytes:
    return struct.pack(">b", value)


def i16(value: int) -> bytes:
    return struct.pack(">h", value)


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


def i64(value: int) -> bytes:
    return struct.pack(">q", value)


def varint(value: int) -> bytes:
    """An unsigned varint in its shortest form; negative numbers as the 32 bits that Java makes of them."""
    value &= 0xFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def overlong(value: int, length: int, top_bits: int = 0) -> bytes:
    """The same number in more bytes than it needs; ``top_bits`` are set in the last byte."""
    out = bytearray(value >> 7 * i & 0x7F | 0x80 for i in range(length))
    out[-1] = out[-1] & 0x7F | top_bits
    return bytes(out)


def string(value: str | bytes | None, *, flexible: bool) -> bytes:
    """A string in the fixed or the compact form; bytes go out as they are, well-formed or not."""
    if value is None:
        return varint(0) if flexible else i16(-1)
    data = value.encode() if isinstance(value, str) else value
    return (varint(len(data) + 1) if flexible else i16(len(data))) + data


def array(elements: list[bytes], *, flexible: bool, count: int | None = None) -> bytes:
    """An array of elements that are bytes already; ``count`` lies about how many there are."""
    n = len(elements) if count is None else count
    return (varint(n + 1) if flexible else i32(n)) + b"".join(elements)


def ids(values: list[int], *, flexible: bool) -> bytes:
    return array([i32(v) for v in values], flexible=flexible)


def tags(*fields: tuple[int, bytes], count: int | None = None) -> bytes:
    """A tagged section with its fields in the order given, sorted or not."""
    out = varint(len(fields) if count is None else count)
    return out + b"".join(varint(tag) + varint(len(data)) + data for tag, data in fields)
