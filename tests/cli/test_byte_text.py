"""Bytes in every dress in which people paste them."""

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproto.cli.byte_text import hexdump, named, parse_bytes, recognised
from kproto.errors import ConfigurationError

HEADER = bytes.fromhex("d4c3b2a10200040000000000000000000000040001000000d5a0006ba60d0a004a0000004a000000")

XXD = """\
00000000: d4c3 b2a1 0200 0400 0000 0000 0000 0000  ................
00000010: 0000 0400 0100 0000 d5a0 006b a60d 0a00  ...........k....
00000020: 4a00 0000 4a00 0000                      J...J...
"""
HEXDUMP_C = """\
00000000  d4 c3 b2 a1 02 00 04 00  00 00 00 00 00 00 00 00  |................|
00000010  00 00 04 00 01 00 00 00  d5 a0 00 6b a6 0d 0a 00  |...........k....|
00000020  4a 00 00 00 4a 00 00 00                           |J...J...|
00000028
"""
OD = """\
000000 d4 c3 b2 a1 02 00 04 00 00 00 00 00 00 00 00 00
000010 00 00 04 00 01 00 00 00 d5 a0 00 6b a6 0d 0a 00
000020 4a 00 00 00 4a 00 00 00
000028
"""
OD_Z = """\
000000 d4 c3 b2 a1 02 00 04 00 00 00 00 00 00 00 00 00  >................<
000010 00 00 04 00 01 00 00 00 d5 a0 00 6b a6 0d 0a 00  >...........k....<
000020 4a 00 00 00 4a 00 00 00                          >J...J...<
000028
"""
WIRESHARK = """\
0000   d4 c3 b2 a1 02 00 04 00 00 00 00 00 00 00 00 00   ................
0010   00 00 04 00 01 00 00 00 d5 a0 00 6b a6 0d 0a 00   ...........k....
0020   4a 00 00 00 4a 00 00 00                           J...J...
"""
TCPDUMP = """\
05:58:27.000001 IP 127.0.0.1.1 > 127.0.0.1.2: Flags [P.], length 40
\t0x0000:  d4c3 b2a1 0200 0400 0000 0000 0000 0000  ................
\t0x0010:  0000 0400 0100 0000 d5a0 006b a60d 0a00  ...........k....
\t0x0020:  4a00 0000 4a00 0000                      J...J...
"""
SQUEEZED = """\
00000000  61 62 63 64 00 00 00 00  00 00 00 00 00 00 00 00  |abcd............|
00000010  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|
*
00000040  00 00 00 00 00 00 00 00  00 00 c3 a9 7c 20 20 31  |............|  1|
00000050  32 20 33 34                                       |2 34|
00000054
"""


@pytest.mark.parametrize(
    "text",
    [XXD, HEXDUMP_C, OD, OD_Z, WIRESHARK, TCPDUMP, HEXDUMP_C.replace("\n", "\r\n"), XXD.upper().replace("X", "x")],
    ids=["xxd", "hexdump -C", "od", "od z", "wireshark", "tcpdump -X", "crlf", "capitals"],
)
def test_dumps_of_every_tool_are_told_by_their_looks(text: str) -> None:
    assert parse_bytes(text.encode()) == HEADER


def test_a_dump_of_a_files_middle_begins_where_it_was_cut_out() -> None:
    text = XXD.replace("00000020", "00000066").replace("00000010", "00000056").replace("00000000", "00000046", 1)
    assert parse_bytes(text.encode()) == HEADER


def test_lines_that_hexdump_leaves_out_are_filled_in() -> None:
    assert parse_bytes(SQUEEZED.encode()) == b"abcd" + bytes(70) + "é|  12 34".encode()


@pytest.mark.parametrize(
    "text",
    [
        "000b0100",
        "00 0B 01 00",
        "0x00 0x0b 0x01 0x00",
        "0x000b0100",
        "00:0b:01:00",
        "00-0b-01-00",
        "00,0b,\n01,00",
        r"\x00\x0b\x01\x00",
        r"b'\x00\x0b\x01\x00'",
        '"000b0100"\n',
        "AAsBAA==",
        "AAsBAA",
        "AAsB\nAA==\n",
    ],
)
def test_hex_and_base64_in_any_dress(text: str) -> None:
    assert parse_bytes(text.encode()) == bytes.fromhex("000b0100")


def test_hex_that_begins_with_zeros_or_a_b_is_no_dump() -> None:
    assert parse_bytes(b"0006:0008") == bytes.fromhex("00060008")
    assert parse_bytes(b"0000 005a 0006 0008") == bytes.fromhex("0000005a00060008")
    assert parse_bytes(b"00000000") == bytes(4)
    assert parse_bytes(b"b00b") == b"\xb0\x0b"


@pytest.mark.parametrize("text", ["zz", "zzz", "leader", "UpdateMetadata!"])
def test_words_are_not_guessed_to_be_base64(text: str) -> None:
    with pytest.raises(ConfigurationError, match="neither hex, a hex dump nor base64"):
        parse_bytes(text.encode())


def test_url_safe_base64_is_base64() -> None:
    data = bytes(range(240, 256))
    assert parse_bytes(base64.urlsafe_b64encode(data)) == data


def test_what_is_not_text_is_raw_and_text_can_be_called_raw() -> None:
    assert parse_bytes(b"\x00\x06\x00\x08") == b"\x00\x06\x00\x08"
    assert parse_bytes(b"000b", "raw") == b"000b"
    assert parse_bytes(b"") == b""


def ipv4(payload: bytes, options: int = 0) -> bytes:
    tcp = bytes(12) + bytes([(5 + options) << 4]) + bytes(7 + 4 * options)
    return (
        bytes([0x45, 0]) + (20 + len(tcp) + len(payload)).to_bytes(2) + bytes(5) + b"\x06" + bytes(10) + tcp + payload
    )


def ipv6(payload: bytes) -> bytes:
    tcp = bytes(12) + b"\x50" + bytes(7)
    return b"\x60\0\0\0" + (len(tcp) + len(payload)).to_bytes(2) + b"\x06\x40" + bytes(32) + tcp + payload


@pytest.mark.parametrize("packet", [ipv4(HEADER), ipv4(HEADER, 3), ipv6(HEADER)], ids=["v4", "v4 options", "v6"])
def test_of_a_packet_that_tcpdump_printed_the_payload_is_taken(packet: bytes) -> None:
    lines = (f"\t{at:#06x}:  {packet[at : at + 16].hex(' ', 2)}  text" for at in range(0, len(packet), 16))
    assert parse_bytes("\n".join(lines).encode()) == HEADER


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("000", "hex"),
        ("00 0g", "hex"),
        ("no dump at all", "hexdump"),
        ("", "hexdump"),
        ("hello world!", "auto"),
        ("*", "hexdump"),
        (XXD.replace("00000010", "00000020"), "auto"),
        (XXD + XXD, "auto"),
        (XXD.replace("d4c3", "d4c"), "auto"),
        ("0000000 c3d4 a1b2 0002 0004\n0000008\n", "hexdump"),
        (SQUEEZED.replace("00000040", "ffffffffffffff40"), "auto"),
    ],
)
def test_what_is_none_of_these_is_refused_with_what_to_try(text: str, form: str) -> None:
    with pytest.raises(ConfigurationError, match=r"try|check|give|make|pairs"):
        parse_bytes(text.encode(), form)  # type: ignore[arg-type]


@given(st.binary(max_size=200))
@example(b"")
def test_what_is_printed_as_a_dump_is_read_again(data: bytes) -> None:
    assert parse_bytes(hexdump(data).encode(), "hexdump") == data if data else hexdump(data) == "00000000"


def outcome(data: bytes, form: Any = "auto") -> bytes | str:
    try:
        return parse_bytes(data, form)
    except ConfigurationError as e:
        return str(e)


@given(st.binary(max_size=80), st.sampled_from(["auto", "hex", "hexdump", "base64", "raw"]))
def test_any_input_gives_bytes_or_one_clear_error(data: bytes, form: str) -> None:
    assert outcome(data, form) is not None


@given(st.text(alphabet="0123456789abcdef:|*> x\n\t", max_size=120))
def test_any_text_that_looks_like_a_dump_gives_bytes_or_one_clear_error(text: str) -> None:
    assert len(outcome(text.encode())) <= 100 << 20


# ---- what programs print ---------------------------------------------------------------------------------------------


def netty(data: bytes) -> str:
    line = "         +" + "-" * 49 + "+"
    rows = [
        line,
        "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |",
        "+--------" + line[9:] + "-" * 16 + "+",
    ]
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        shown = "".join(chr(b) if 0x20 <= b < 0x7F else "." for b in row)
        rows.append(f"|{at:08x}| {row.hex(' '):47} |{shown:16}|")
    return "\n".join([*rows, rows[2]])


def go_quoted(data: bytes) -> str:
    named = {7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 34: '\\"', 92: "\\\\"}
    return '"' + "".join(named.get(b) or (chr(b) if 0x20 <= b < 0x7F else f"\\x{b:02x}") for b in data) + '"'


def erlang(data: bytes) -> str:
    """As the shell prints a binary: numbers, but for a printable run, which is written as a string."""
    head, name, rest = data[:14], data[14:24], data[24:]
    shown = [*map(str, head), '"' + name.decode() + '"', *map(str, rest)]
    return "<<" + ",".join(shown[:12]) + ",\n  " + ",".join(shown[12:]) + ">>"


def signed(data: bytes) -> list[int]:
    return [b - 256 if b > 127 else b for b in data]


PRINTED = {
    "a string with escapes, as Python, Go and C print it": [
        repr, lambda d: repr(bytearray(d)), go_quoted, lambda d: f"({d[:20]!r}\n {d[20:]!r})",
    ],
    "Node's <Buffer ...>": [lambda d: f"<Buffer {d.hex(' ')}>"],
    "Node's JSON of a Buffer": [lambda d: '{"type":"Buffer","data":[' + ",".join(map(str, d)) + "]}"],
    "Go's []byte{...}": [
        lambda d: "[]byte{" + ", ".join(f"{b:#x}" for b in d) + "}",
        lambda d: "[]byte{\n\t" + ",\n\t".join(f"{b:#04x}" for b in d) + ",\n}",
        lambda d: "[]uint8{" + ", ".join(map(str, d)) + "}",
    ],
    "Go's list of decimal numbers": [lambda d: "[" + " ".join(map(str, d)) + "]"],
    "Java's signed bytes": [
        lambda d: str(signed(d)),
        lambda d: "new byte[] {" + ", ".join(f"(byte) {b:#04x}" for b in d) + "};",
    ],
    "Erlang's <<...>>": [erlang, lambda d: "<<" + ",".join(map(str, d)) + ">>"],
    "Netty's table": [netty],
    "a list of numbers": [
        lambda d: str([*d]), lambda d: ", ".join(f"{b:#x}" for b in d), lambda d: "{" + d.hex(",") + "}",
    ],
}  # fmt: skip
FRAME = bytes.fromhex(
    "0000002a0012000300000011000a636f6e73756d65722d37000b6c696272646b61666b6106322e332e3000ff80fe5c22270a0d"
)


@pytest.mark.parametrize("quoted", [False, True], ids=["plain", "quoted"])
@pytest.mark.parametrize(("name", "printed"), [(name, printed) for name, every in PRINTED.items() for printed in every])
def test_bytes_as_programs_print_them_are_read_and_the_form_is_named(name: str, printed: Any, quoted: bool) -> None:
    frame = FRAME
    text = printed(frame)
    if quoted:
        text = "> " + text.replace("\n", "\n> ")
    data = text.encode()
    assert parse_bytes(data) == frame
    told = named(data, recognised(data))
    assert told == (f"quoted mail: {name}" if quoted else name)


@pytest.mark.parametrize("dump", [XXD, HEXDUMP_C, WIRESHARK], ids=["xxd", "hexdump", "wireshark"])
def test_a_quoted_dump_is_a_dump(dump: str) -> None:
    data = ("> > " + dump.strip().replace("\n", "\n> > ")).encode()
    assert parse_bytes(data) == HEADER
    assert named(data, recognised(data)) == "quoted mail: a hex dump"


@pytest.mark.parametrize(
    "text",
    [
        "<Buffer 00 0b 01 ... 12 more bytes>", "[0, 11, 256]", "[0, -129]", "<<0,18,...>>", r"b'\x00\N'", "[0, eleven]",
        r"'\777'",
    ],
)  # fmt: skip
def test_what_is_cut_off_or_no_byte_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cut off|no byte|no escape"):
        parse_bytes(text.encode())


@given(
    st.binary(min_size=2, max_size=60),
    st.sampled_from([p for every in PRINTED.values() for p in every if p is not erlang]),
)
def test_whatever_bytes_are_printed_are_read_again(data: bytes, printed: Any) -> None:
    text = printed(data)
    if all(item.isdigit() and len(item) == 2 for item in text.strip("{}").split(",")):
        return  # {10,11}: hex or decimal, nobody can tell
    if "\\" not in text and ("'" in text or '"' in text[:1]):
        return  # a string without escapes may be hex or base64
    if printed is PRINTED["a string with escapes, as Python, Go and C print it"][3] and "\\" not in text:
        return
    assert parse_bytes(text.encode()) == data


@given(st.text(alphabet="0123456789abx<>[]{}(),\"'\\ .-\n", max_size=80))
def test_any_text_that_looks_like_a_list_gives_bytes_or_one_clear_error(text: str) -> None:
    assert outcome(text.encode()) is not None


WITHIN = {
    "a log": lambda data: f"2023-11-20 10:00:00,000 DEBUG sent {len(data)} bytes: {data.hex()}",
    "Wireshark's tree": lambda data: f"    Data (51 bytes)\n        Data: {data.hex()}\n        [Length: 51]",
    "a filter": lambda data: f"tcp.payload == {data.hex(':')}",
    "a call": lambda data: f"bytes.fromhex('{data.hex()}')",
    "SQL": lambda data: f"X'{data.hex()}'",
    "Swift": lambda data: f"{{length = {len(data)}, bytes = 0x{data.hex()} }}",
    "Objective-C": lambda data: f"<{data.hex(' ', -4)}>",
    "JSON": lambda data: json.dumps({"payload": data.hex()}),
    "brackets": lambda data: f"[{data.hex()}]",
    "points": lambda data: data.hex("."),
    "markdown": lambda data: f"```\n{data.hex(' ')}\n```",
    "HTML": lambda data: f"<pre>{data.hex(' ')}</pre>",
    "spaces of a browser": lambda data: data.hex(" ").replace(" ", "\u00a0"),
    "wide spaces": lambda data: data.hex(" ").replace(" ", "\u3000"),
    "no width": lambda data: f"\u200b{data.hex()}",
    "quotes of a word processor": lambda data: f"\u201c{data.hex()}\u201d",
    "Lua": lambda data: '"' + "".join(f"\\{byte:03}" for byte in data) + '"',
    "Scala's ArraySeq": lambda data: f"ArraySeq({str(signed(data))[1:-1]})",
    "hexyl": lambda data: "\u250c\u2500\u2500\u2510\n" + "\n".join(
        f"\u2502{at:08x}\u2502 {data[at : at + 8].hex(' '):23} \u250a {data[at + 8 : at + 16].hex(' '):23} \u2502"
        for at in range(0, len(data), 16)
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", WITHIN)
def test_bytes_within_other_text_are_read(form: str) -> None:
    assert parse_bytes(WITHIN[form](FRAME).encode()) == FRAME


def test_hex_in_two_places_is_not_guessed() -> None:
    with pytest.raises(ConfigurationError, match="neither hex"):
        parse_bytes(f"sent {FRAME.hex()}, received {FRAME.hex()}".encode())
    with pytest.raises(ConfigurationError, match="neither hex"):
        parse_bytes(b"unknown: 550e8400-e29b-41d4-a716-446655440000")


PASTED = {
    "Node's JSON over lines": lambda data: json.dumps({"type": "Buffer", "data": list(data)}, indent=2),
    "C": lambda data: (
        "unsigned char buf[] = {\n  " + ", ".join(map(hex, data)) + "\n};\nunsigned int buf_len = 40;\n"
    ),
    "C#": lambda data: "byte[] { " + ", ".join(f"0x{byte:02X}" for byte in data) + " }",
    "Kotlin": lambda data: f"byteArrayOf({signed(data)})",
    "Scala": lambda data: f"Array({signed(data)})",
    "octal": lambda data: "".join(f"\\{byte:03o}" for byte in data),
    "Perl": lambda data: '"' + "".join(f"\\x{{{byte:02x}}}" for byte in data) + '"',
    "PostgreSQL": lambda data: f"\\x{data.hex()}",
    "gdb": lambda data: "\n".join(
        f"0x{0x7FFF0000 + at:x}:\t" + "\t".join(f"0x{byte:02x}" for byte in data[at : at + 8])
        for at in range(0, len(data), 8)
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", PASTED)
@given(st.binary(min_size=8, max_size=60))
@example(HEADER)
def test_what_programs_print_is_read_back(form: str, data: bytes) -> None:
    assert parse_bytes(PASTED[form](data).encode()) == data
