"""Converts bytes from text and back: hex, base64, and the dumps of xxd, hexdump, od, tcpdump and Wireshark."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final, Literal

from kproto.errors import ConfigurationError
from kproto.framing import DEFAULT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

Form = Literal["auto", "hex", "hexdump", "base64", "raw"]
FORMS: Final = ("auto", "hex", "hexdump", "base64", "raw")

_TEXT: Final = re.compile(rb"[\t\n\r\x20-\x7e]*")
_HEX_MARKS: Final = re.compile(r"^b(?=['\"])|\\x|0x|[\s:,;'\"]|(?<=[0-9a-fA-F])-(?=[0-9a-fA-F])")
_DUMP_LINE: Final = re.compile(r"\s*(?:0x)?([0-9a-fA-F]{4,16})(?:(:)\s|\s|$)(.*)")
_PAIRS: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")


def parse_bytes(data: bytes, form: Form = "auto") -> bytes:
    """Read bytes from a file's content or from pasted text.

    Args:
        data: The content or the text.
        form: How the bytes are written. ``auto`` recognises the form: input that is not text is raw; text that begins
            with an offset is a hex dump; text of hex digits alone is hex; other text is base64.

    Raises:
        ConfigurationError: The input is in none of these forms, or not in the form that was named.
    """
    if form == "auto":
        form = recognised(data)
    if form == "raw":
        return data
    text = _text(data)
    if form == "hexdump":
        return _from_dump(text)
    if form == "hex":
        try:
            return binascii.unhexlify(_HEX_MARKS.sub("", text))
        except ValueError as e:
            raise ConfigurationError(f"the input is not hex: {e}; try --input hexdump, base64 or raw") from None
    try:
        return base64.b64decode(_padded(text), validate=True)
    except ValueError:
        raise _no_form() from None


def recognised(data: bytes) -> Form:
    """Return the form in which bytes are written, as ``auto`` of ``parse_bytes`` finds it.

    Text counts as base64 only if encoding its bytes again gives the same text: of short words few do.

    Raises:
        ConfigurationError: It is none of the forms.
    """
    if not _TEXT.fullmatch(data):
        return "raw"
    text = _text(data)
    if _is_dump(text):
        return "hexdump"
    if re.fullmatch(r"[0-9a-fA-F]*", _HEX_MARKS.sub("", text)):
        return "hex"
    padded = _padded(text)
    try:
        if base64.b64encode(base64.b64decode(padded, validate=True)).decode() == padded:
            return "base64"
    except ValueError:
        pass
    raise _no_form()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip("\ufeff\r\n")


def _padded(text: str) -> str:
    """Return base64 in the plain alphabet, with its padding."""
    bare = "".join(text.split()).translate({ord("-"): "+", ord("_"): "/"})
    return bare + "=" * (-len(bare) % 4)


def _no_form() -> ConfigurationError:
    return ConfigurationError(
        "the input is neither hex, a hex dump nor base64; check the text, or use --input raw for a binary file"
    )


def hexdump(data: bytes) -> str:
    """Write bytes as ``hexdump -C`` does, 16 a line; ``parse_bytes`` reads the text back."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        shown = "".join(chr(b) if 0x20 <= b < 0x7F else "." for b in row)
        lines.append(f"{at:08x}  {left:23}  {right:23}  |{shown}|")
    return "\n".join([*lines, f"{len(data):08x}"])


def _is_dump(text: str) -> bool:
    """Tell a hex dump from other text by the first line that begins with an offset and has bytes after it.

    An offset without a colon must be 0 and be followed by single bytes: otherwise the text is hex in groups.
    """
    for line in text.splitlines():
        if match := _DUMP_LINE.match(line):
            first = next(iter(match[3].split()), "")
            return bool(first) and (match[2] == ":" or (int(match[1], 16) == 0 and len(first) == 2))
    return False


def _from_dump(text: str) -> bytes:
    out = bytearray()
    base: int | None = None  # a dump of the middle of a file does not begin at offset 0
    squeezed = False
    for number, at, row in _rows(text):
        if row is None:
            squeezed = True
            continue
        base = at if base is None else base
        offset = at - base
        if squeezed and offset <= DEFAULT_LIMIT:  # an asterisk stands for repeated lines
            last = bytes(out[-16:])
            while last and len(out) + len(last) <= offset:
                out += last
            squeezed = False
        if offset != len(out):
            raise ConfigurationError(
                f"line {number} of the dump is at offset {at:#x} where {base + len(out):#x} was expected; "
                "give one whole dump (of od: -A x -t x1)"
            )
        out += row
    if not out:
        raise ConfigurationError("the input has no line of a hex dump; try --input hex, base64 or raw")
    return _without_ip(bytes(out)) if "0x0000:" in text else bytes(out)


def _rows(text: str) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield line number, offset and bytes of each line of a dump, None for an asterisk; skip other lines."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() == "*":
            yield number, -1, None
        elif match := _DUMP_LINE.match(line):
            part = match[3].strip(" ")
            if match[2] == ":":  # xxd, tcpdump: one space between groups, two before the text
                digits = "".join(part.partition("  ")[0].split())
            else:  # hexdump -C and od mark the text, Wireshark puts three spaces before it
                pairs = re.split(r"[|>]|   ", part, maxsplit=1)[0].split()
                if any(len(pair) != 2 for pair in pairs):
                    raise ConfigurationError(
                        f"line {number} of the dump does not show single bytes, so their order is unknown; "
                        "make it with xxd, hexdump -C or od -A x -t x1"
                    )
                digits = "".join(pairs)
            if not _PAIRS.fullmatch(digits):
                raise ConfigurationError(f"line {number} of the dump does not hold pairs of hex digits: {part[:40]!r}")
            yield number, int(match[1], 16), bytes.fromhex(digits)


def _without_ip(packet: bytes) -> bytes:
    """Cut the TCP payload out of a whole IP packet, as tcpdump dumps it; return other bytes unchanged."""
    version = packet[0] >> 4
    if version == 4 and len(packet) >= 40 and packet[9] == 6:
        start, end = (packet[0] & 15) * 4, int.from_bytes(packet[2:4])
    elif version == 6 and len(packet) >= 60 and packet[6] == 6:
        start, end = 40, 40 + int.from_bytes(packet[4:6])
    else:
        return packet
    if end > len(packet) or start + 20 > end:
        return packet
    return packet[start + (packet[start + 12] >> 4) * 4 : end]
