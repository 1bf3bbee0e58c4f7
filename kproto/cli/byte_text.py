"""Converts bytes from text and back: hex, base64, dumps of xxd, hexdump, od, tcpdump, Wireshark and Netty, and what
programs print of bytes: strings with escapes (Python, Go, C), lists of numbers (Node, Go, Java, Erlang, Rust, C).
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final, Literal, get_args

from kproto.errors import ConfigurationError
from kproto.framing import DEFAULT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

Form = Literal["auto", "hex", "hexdump", "list", "escaped", "base64", "raw"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)

_TEXT: Final = re.compile(rb"[\t\n\r\x20-\x7e]*")
_HEX_MARKS: Final = re.compile(r"^b(?=['\"])|\\x|0x|[\s:,;'\"]|(?<=[0-9a-fA-F])-(?=[0-9a-fA-F])")
_DUMP_LINE: Final = re.compile(r"\s*(?:0x)?([0-9a-fA-F]{4,16})(?:(:)\s|\s|$)(.*)")
_NETTY_LINE: Final = re.compile(r"^\s*\|([0-9a-fA-F]{8})\|((?: {1,3}[0-9a-fA-F]{2})+) *\|", re.M)
_HEX_WITHIN: Final = re.compile(
    r"(?<![0-9a-zA-Z])(?:0x)?[0-9a-fA-F]{2}(?:[ :.|_-]?[0-9a-fA-F]{2}){16,}(?=[^0-9a-zA-Z]|$)"
)
"""Hex in other text; longer than a UUID."""

_LINES_OF_BOXES: Final = dict.fromkeys(range(9472, 9600), "-") | {
    **dict.fromkeys(map(ord, "\u2502\u2503\u2551"), "|"),
    **dict.fromkeys(map(ord, "\u2506\u2507\u250a\u250b"), " "),
}
_QUOTED: Final = re.compile(r"^[ \t]*(?:>[ \t]?)+", re.M)
_LITERAL: Final = re.compile(r"[bB]?(?:'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\")", re.S)
_ESCAPE: Final = re.compile(
    r"\\(?:x(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]{1,2})\})|([0-7]{1,3})|u00([0-7][0-9a-fA-F])|(.))", re.S
)
_CHARACTERS: Final = {
    "n": 10, "r": 13, "t": 9, "a": 7, "b": 8, "f": 12, "v": 11, "e": 27, "\\": 92, "'": 39, '"': 34, "/": 47,
}  # fmt: skip
_LIST: Final = re.compile(
    r"""\s*(?:<Buffer\b|<<|\{\s*"type"\s*:\s*"Buffer"\s*,\s*"data"\s*:\s*\["""
    r"""|(?:[\w*]{1,40}(?:\s{1,9}[\w*]{1,40}){0,5}(?:\[\d{0,9}\])?\s*:?=\s*)?(?:&?\[\]u?\w+|(?:new\s+)?s?byte\s*\[\d*\]"""
    r"""|Uint8Array(?:\(\d+\))?|bytes|bytearray|byteArrayOf|\w{0,9}Array(?:Seq)?(?:\[Byte\])?|ArraySeq|vec!)?\s*(?:\(?\s*[\[{]|\())"""
    r"""(.*?)(?:>>|[\]})>])[\]})>\s]*+;?\s*+(?:unsigned\s+int\s+\w+\s*=\s*\d+;\s*)?""",
    re.S,
)
"""A list of numbers: what programs print before the first, the numbers, and what ends them."""

_NUMBER: Final = re.compile(r"0[xX]([0-9a-fA-F]{1,2})|(-?\d{1,3})|([0-9a-fA-F]{2})")
_ITEM: Final = re.compile(r'"((?:\\.|[^"\\])*)"(?:/utf8)?|(?:\(s?byte\)\s*)?([^\s,"]+)', re.S)
_BARE_LIST: Final = re.compile(
    r"0[xX][0-9a-fA-F]{1,2}(?:\s*[,\s]\s*0[xX][0-9a-fA-F]{1,2})*,?|-?\d{1,3}(?:\s*,\s*-?\d{1,3})+,?"
)
_DECIMALS: Final = re.compile(r"(?:\\\d{3}|[^\\\d])*")
_NOT_OCTAL: Final = re.compile(r"\\\d?[89]|\\\d\d[89]")
"""Escapes of Lua and OCaml, all of three decimal digits."""

_OCTAL: Final = re.compile(r"(?:\\[0-7]{3}){2}")
_BYTEA: Final = re.compile(r"""\s*['"]?\\{1,2}x(?:[0-9a-fA-F]{2}){4,}['"]?\s*""")
"""How PostgreSQL prints bytes."""

_CUT_OFF: Final = re.compile(r"\.\.\.|\u2026|more bytes?")
_PAIRS: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")


def parse_bytes(data: bytes, form: Form = "auto") -> bytes:
    """Read bytes from a file's content or from pasted text.

    Args:
        data: The content or the text.
        form: How the bytes are written. ``auto`` recognises the form: input that is not text is raw; text that begins
            with an offset is a hex dump; numbers in brackets, or with commas between them, are a list; a string with
            backslashes is escaped; text of hex digits alone is hex, as is other text that holds hex in one place
            only; other text is base64. ``> `` of a quoted mail before each line is left out, and what word processors
            put for spaces and quotes is read as these.

    Raises:
        ConfigurationError: The input is in none of these forms, or not in the form that was named.
    """
    if form == "auto":
        form = recognised(data)
    if form == "raw":
        return data
    text = _text(data)
    if form == "hexdump":
        return _from_dump(_NETTY_LINE.sub(lambda line: f"{line[1]} {' '.join(line[2].split())}|", text))
    if form == "list":
        return _from_list(text)
    if form == "escaped":
        return _from_escaped(text)
    if form == "hex":
        try:
            return binascii.unhexlify(_HEX_MARKS.sub("", text) if _is_hex(text) else _within(text) or text)
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
    text = _text(data)
    if not _TEXT.fullmatch(data) and ("\ufffd" in text or not _TEXT.fullmatch(text.encode())):
        return "raw"
    if _NETTY_LINE.search(text) or _is_dump(text):
        return "hexdump"
    if _BYTEA.fullmatch(text):
        return "hex"
    has_escapes = _LITERAL.search(text) or "\\x" in text or _OCTAL.search(text)
    if "\\" in text and not text.lstrip().startswith("<<") and has_escapes:
        return "escaped"
    if re.search(r"[0-9a-fA-F]{34}", text) and not _is_hex(text) and _within(text) is not None:
        return "hex"
    if _LIST.fullmatch(text) or (_BARE_LIST.fullmatch(text.strip()) and not _is_pairs(text)):
        return "list"
    if _is_hex(text):
        return "hex"
    padded = _padded(text)
    try:
        if base64.b64encode(base64.b64decode(padded, validate=True)).decode() == padded:
            return "base64"
    except ValueError:
        pass
    if _within(text) is not None:
        return "hex"
    raise _no_form()


def _is_hex(text: str) -> bool:
    return re.fullmatch(r"[0-9a-fA-F]*", _HEX_MARKS.sub("", text)) is not None


def _within(text: str) -> str | None:
    """Return the digits of the only hex that stands in other text, such as a line of a log or a call."""
    found = _HEX_WITHIN.findall(text)
    return re.sub(r"^0x|[^0-9a-fA-F]", "", found[0]) if len(found) == 1 else None


def named(data: bytes, form: Form) -> str | None:
    """Return the name of what prints bytes so, for a form that ``recognised`` found; None: hex, dumps, raw bytes."""
    if form == "raw":
        return None
    text = _text(data)
    name: str | None = None
    if form == "base64":
        name = "base64"
    elif form == "escaped":
        name = "a string with escapes, as Python, Go and C print it"
    elif form == "hexdump" and _NETTY_LINE.search(text):
        name = "Netty's table"
    elif form == "list":
        name = next((words for mark, words in _PRINTED_BY if mark.search(text)), "a list of numbers")
    if _unquoted(data.decode("utf-8", "replace")) is not None:
        return f"quoted mail: {name or 'a hex dump' if form == 'hexdump' else name or 'hex'}"
    return name


_PRINTED_BY: Final = (
    (re.compile(r"^\s*<Buffer"), "Node's <Buffer ...>"),
    (re.compile(r'"type"\s*:\s*"Buffer"'), "Node's JSON of a Buffer"),
    (re.compile(r"\[\]u?(?:byte|int8)\s*\{"), "Go's []byte{...}"),
    (re.compile(r"^\s*<<"), "Erlang's <<...>>"),
    (re.compile(r"-\d|\(byte\)|new\s+byte"), "Java's signed bytes"),
    (re.compile(r"^\s*\[\d+(?: \d+)+\]\s*$"), "Go's list of decimal numbers"),
)


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "replace").strip("\ufeff\r\n")
    if not text.isascii():
        from kproto.logs.wrappers import TYPOGRAPHY

        text = text.translate(_LINES_OF_BOXES).translate(TYPOGRAPHY).strip()
        text = re.sub("^[\u201c\u201d]|[\u201c\u201d]$", '"', text)
    return _unquoted(text) or text


def _unquoted(text: str) -> str | None:
    """Return text without the marks of quoted mail; None if it has none."""
    lines = [line for line in text.splitlines() if line.strip()]
    return _QUOTED.sub("", text) if lines and all(_QUOTED.match(line) for line in lines) else None


def _is_pairs(text: str) -> bool:
    """Whether a list without brackets is one of hex digits in pairs: 00,0b,01."""
    return all(len(item) == 2 for item in re.split(r"[\s,]+", text.strip().rstrip(",")))


def _from_list(text: str) -> bytes:
    """Read a list of numbers: hex with 0x, pairs of hex digits, decimals from -128 to 255; in Erlang's also strings."""
    whole = _LIST.fullmatch(text)
    inner = whole[1] if whole else text
    if _CUT_OFF.search(inner):
        raise ConfigurationError("the list is cut off where it was printed; print all of its bytes")
    out = bytearray()
    items = [*_ITEM.finditer(inner)]
    plain = [item[2] for item in items if item[2] is not None]
    is_hex = "<Buffer" in text[:20] or (
        all(re.fullmatch(r"[0-9a-fA-F]{2}", item) for item in plain)
        and any(re.search(r"[a-fA-F]|^0\d", item) for item in plain)
    )
    for item in items:
        if item[1] is not None:
            out += _from_escaped(f'"{item[1]}"')
            continue
        digits = re.sub(r"(?:_?u8|:8)$", "", item[2])
        found = _NUMBER.fullmatch(digits)
        try:
            value = int(digits, 16 if is_hex or (found and found[1]) else 10)
        except ValueError:
            value = 256
        if found is None or not -128 <= value <= 255:
            raise ConfigurationError(f"{item[2]!r} is no byte; try --input hex, hexdump, escaped, base64 or raw")
        out.append(value & 255)
    return bytes(out)


def _from_escaped(text: str) -> bytes:
    """Read strings with escapes; several beside one another are one."""
    literals = [found[1] if found[1] is not None else found[2] for found in _LITERAL.finditer(text)] or [text]
    out = bytearray()
    base = 10 if all(_DECIMALS.fullmatch(each) for each in literals) and _NOT_OCTAL.search(text) else 8
    for literal in literals:
        if base == 10:
            literal = re.sub(r"\\(\d{3})", lambda found: f"\\x{int(found[1]):02x}", literal)
        at = 0
        for found in _ESCAPE.finditer(literal):
            out += literal[at : found.start()].encode()
            at = found.end()
            pair, braced, octal, unicode, other = found.groups()
            if other is not None and other not in _CHARACTERS:
                raise ConfigurationError(f"\\{other} is no escape of a byte; try --input hex, list, base64 or raw")
            digits = pair or braced or unicode
            value = int(digits, 16) if digits else int(octal, 8) if octal else _CHARACTERS[str(other)]
            if value > 255:
                raise ConfigurationError(f"{found[0]} is no byte; try --input hex, list, base64 or raw")
            out.append(value)
        out += literal[at:].encode()
    return bytes(out)


def _padded(text: str) -> str:
    """Return base64 in the plain alphabet, with its padding."""
    bare = "".join(text.split()).translate({ord("-"): "+", ord("_"): "/"})
    return bare + "=" * (-len(bare) % 4)


def _no_form() -> ConfigurationError:
    return ConfigurationError(
        "the input is neither hex, a hex dump nor base64, and no list or string of bytes; check the text, or use "
        "--input raw for a binary file"
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
                digits = "".join(part.partition("  ")[0].replace("0x", "").split())  # gdb's bytes have 0x each
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
