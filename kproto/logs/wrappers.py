"""What stands around a log line: JSON of a logging system, headers of a container runtime, prefixes, pieces, colours.

Each form is recognised line by line, not by the file, so that a file may change its form, or hold several.
"""

from __future__ import annotations

import codecs
import html
import json
import quopri
import re
from collections import OrderedDict
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from .request_lines import MARK, STRUCTS, parse_request
from .table_rows import TableRows, holds_line
from .times import UNDECIDED, Stamp, UnusableLine, stamp_of, stamps_in, whole_stamp

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_LINE: Final = 16 << 20
"""A longer line, or a longer sum of a line's pieces, is not read."""


class LogLine(NamedTuple):
    """A log line without what stood around it.

    Attributes:
        text: The line, perhaps with a prefix; empty where ``fields`` has it.
        stamps: The times that stood around it, the outermost first.
        fields: The fields of a request that were logged as a JSON object.
        offset, length: Where it stands in the file; of several pieces the first one's offset.
    """

    text: bytes
    stamps: list[Stamp]
    fields: dict[str, Any] | None
    offset: int
    length: int


class Lines:
    """Cuts the bytes of a file into lines; reads UTF-16 as UTF-8, and leaves a byte order mark out.

    A zero ends a line, as in GELF over TCP; in journald's export it is part of a number.

    The source of a mail may be quoted-printable: ``=`` is written as ``=3D``, and ends a line that goes on in the next.

    Attributes:
        offset: Of the next line in the file.
    """

    def __init__(self) -> None:
        self.offset: int = 0
        self._parts: list[bytes] = []
        self._held = 0
        self._too_long = False
        self._decoder: codecs.IncrementalDecoder | None = None
        self._begun = False
        self._has_zeros = False  # in journald's export
        self._last = b""  # byte of the data before
        self._is_quoted = False  # whether quoted-printable was recognised
        self._soft: list[tuple[bytes, int, int]] = []  # lines that go on in the next

    def feed(self, data: bytes, *, last: bool = False) -> Iterator[tuple[bytes | None, int, int]]:
        """Yield each line that is whole with its end, its offset and its length; None for one that is too long."""
        if not self._begun and (data or last):
            data = b"".join(self._parts) + data
            self._parts = []
            if len(data) < 4 and not last:
                self._parts = [data]
                return
            self._begun = True
            data = self._begin(data)
        if self._decoder is not None:
            data = self._decoder.decode(data, last).encode("utf-8", "surrogatepass")
        elif not self._has_zeros and b"\0" in data:
            before, self._last = self._last, data[-1:]
            data = _ZERO.sub(b"\n", before + data)[len(before) :]
        else:
            self._last = data[-1:]
        end = len(data) if last else data.rfind(b"\n") + 1
        if end or last:
            self._parts.append(data[:end])
            whole = b"".join(self._parts)
            self._parts, self._held, held = [], 0, self._held
            lines = self._cut(whole, held)
            if self._is_quoted or self._soft or _ENCODED.search(whole):
                lines = self._unquoted(lines, last=last)
            yield from lines
        if end < len(data):
            self._held += len(data) - end
            if self._held > LONGEST_LINE:
                self._too_long = True
                self._parts = []
            else:
                self._parts.append(data[end:])

    def _begin(self, data: bytes) -> bytes:
        """Tell the encoding by the first bytes."""
        marks = ((codecs.BOM_UTF8, ""), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
        found = next(((mark, name) for mark, name in marks if data.startswith(mark)), None)
        if found is not None:
            mark, name = found
            self.offset = len(mark)
            data = data[len(mark) :]
        elif data[1:2] == b"\0" == data[3:4]:
            name = "utf-16-le"
        elif data[:1] == b"\0" == data[2:3]:
            name = "utf-16-be"
        else:
            name = ""
        self._has_zeros = data.startswith(b"__CU")
        if name:
            self._decoder = codecs.getincrementaldecoder(name)("replace")
        return data

    def _cut(self, data: bytes, held: int) -> Iterator[tuple[bytes | None, int, int]]:
        at = 0
        if self._too_long:
            at = data.find(b"\n") + 1 or len(data)
            length = self._length(data[:at]) + held
            self._too_long = False
            yield None, self.offset, length
            self.offset += length
        for line in data[at:].splitlines(keepends=True):
            length = len(line) if self._decoder is None else self._length(line)
            yield (line if len(line) <= LONGEST_LINE else None), self.offset, length
            self.offset += length

    def _unquoted(
        self, lines: Iterator[tuple[bytes | None, int, int]], *, last: bool
    ) -> Iterator[tuple[bytes | None, int, int]]:
        """Yield lines without the encoding of a mail's source, where they have it."""
        soft = self._soft
        for line, offset, length in lines:
            fits = _QUOTED.fullmatch(line) if line is not None and len(line) <= _LONGEST_QUOTED else None
            if line is not None and fits is not None:
                goes_on = bool(fits[1])
                self._is_quoted |= b"=3D" in line or (goes_on and bool(soft) and min(length, soft[-1][2]) > _SOFT)
                soft.append((line, offset, length))
                if goes_on and len(soft) < _MOST_SOFT:
                    continue
            yield from self._end_soft()
            if fits is None:
                yield line, offset, length
        if last:
            yield from self._end_soft()

    def _end_soft(self) -> Iterator[tuple[bytes | None, int, int]]:
        soft, self._soft[:] = self._soft[:], []
        if self._is_quoted and soft:
            yield quopri.decodestring(b"".join(line for line, _, _ in soft)), soft[0][1], sum(each[2] for each in soft)
        else:
            yield from soft

    def _length(self, line: bytes) -> int:
        if self._decoder is None:
            return len(line)
        return 2 * len(line) if line.isascii() else len(line.decode("utf-8", "replace").encode("utf-16-le", "replace"))


_ZERO: Final = re.compile(rb"(?<=[^\0\n])\0")
"""What ends a line; further ones are space that was never written."""

_QUOTED: Final = re.compile(rb"(?:[^=\r\n]|=(?:[2-9A-F][0-9A-F]|09))*(=?)[ \t]*\r?\n?")
"""A line of quoted-printable; what it escapes is no control character, as ``id=10`` would be one."""

_ENCODED: Final = re.compile(rb"=(?:\r?\n|3D)")
"""What may be a sign of it: one search is quicker than two for bytes."""

_LONGEST_QUOTED: Final = 80
"""A line of quoted-printable has at most 76 bytes, and its end."""

_SOFT: Final = 56
"""A line is broken where it would be longer; two in a row that are no longer than this are no sign."""

_MOST_SOFT: Final = 20_000
"""The most lines of quoted-printable that are put together."""

_COLOURS: Final = re.compile(
    rb"\x1b\[[0-9;:?]{0,30}[A-Za-z]|\x1b\][^\x07\x1b]{0,300}(?:\x07|\x1b\\)|\x1b[()][0-9A-Za-z]"
)
_CRI: Final = re.compile(
    rb"(\d{4}-\d\d-\d\dT[\d:]{8}(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)) (stdout|stderr) ([PF])(?::\S{0,50})? ?"
)
_PREFIX: Final = re.compile(
    rb"(?:> ?|[A-Z]{1,3}> |\| ?){1,9}"  # quoted in a mail or a report
    rb"|[\w./-]{1,200} {0,40}\| ?"  # docker compose logs
    rb"|\[pod/[^\]]{1,300}\] "  # kubectl logs --prefix
    rb"|\x1e|data: (?=\{)"  # journalctl -o json-seq, json-sse
)
_CONTINUED: Final = re.compile(rb'\s*(?:[\]}"\d-]|\{|\[|true|false|null)')
_BEGINS_RECORD: Final = re.compile(rb"\[?\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d")
_ENTITY: Final = re.compile(rb"&(?:quot|gt|lt|amp|apos|nbsp|#x?[0-9A-Fa-f]{1,6});")
_MOST_ESCAPED: Final = 3
"""How often a text may have been escaped for HTML."""

_TYPED: Final = {
    **dict.fromkeys(("\u00a0", *map(chr, range(0x2000, 0x200B)), "\u202f", "\u205f", "\u3000"), " "),
    **dict.fromkeys((*map(chr, range(0x200B, 0x2010)), "\u2060", "\ufeff", "\u00ad"), ""),
    **dict.fromkeys(map(chr, range(0x2018, 0x201C)), "'"),
    **dict.fromkeys((*map(chr, range(0x2010, 0x2016)), "\u2212", "\ufe63", "\uff0d"), "-"),
    **{chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)},
    **{chr(zero + digit): str(digit) for zero in (0x660, 0x6F0, 0x966, 0x9E6, 0xE50) for digit in range(10)},
    "\u2192": "->", "\u21d2": "=>", "\u2026": "...", "\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi",
    "\ufb04": "ffl",
}  # fmt: skip
"""What word processors, browsers and PDF put for spaces, apostrophes, dashes, arrows and letters, and between them."""

_CP1252: Final = {
    chr(0xDC00 + byte): _TYPED.get(char := bytes((byte,)).decode("cp1252", "replace"), char)
    for byte in range(0x80, 0x100)
}
"""What bytes stand for that are no UTF-8."""

TYPOGRAPHY: Final = str.maketrans(_TYPED | _CP1252)
_DAY: Final = re.compile("(\\d{4})\u5e74(\\d\\d?)\u6708(\\d\\d?)\u65e5")
"""A date in Chinese or Japanese."""

_BOX: Final = re.compile("(?m)^[\u2502\u2503\u2551] ?| ?[\u2502\u2503\u2551]$")
"""What programs draw at both ends of a line."""

_INLINE: Final = re.compile(rb"</?(?:a|b|code|em|font|i|span|strong)(?: [^<>]{0,300})?>", re.I)
_BLOCKS: Final = re.compile(
    rb"</?(?:blockquote|br|dd|div|dl|dt|li|ol|p|pre|table|tbody|tr|ul)(?: [^<>]{0,300})?/?>", re.I
)
_CELLS: Final = re.compile(rb"</?t[dh](?: [^<>]{0,300})?>", re.I)
"""Elements of HTML within a line, around lines, and beside one another."""

_LONG_DASH: Final = re.compile("(?<= )[\u2013\u2014](?= \\{)")
"""What they put for two of a request that is logged as text."""

_MARKDOWN: Final = re.compile(rb"(\\\\)|\\(?=[\[\]{}()_*<>#.!|~'+-])")
"""A character that markdown, Jira, RTF or Python escape; JSON escapes none of these."""

_DOUBLED: Final = re.compile(rb"(?<==)''([\w.-]+)''")
"""A value in apostrophes within a text of SQL or YAML."""

_BEGINS_LINE: Final = re.compile(rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] (?:TRACE|DEBUG|INFO|WARN|ERROR) ")
"""How a line of Kafka's own layout begins, wherever it stands."""

_TEXTS_BEGIN: Final = re.compile(rb"\s*(?:\w{0,20}!?[\[(]){0,2}(?:\]string\{)?\"")
"""How an array of texts begins in JSON and in several languages, or a text alone."""

_INNER_TAB: Final = re.compile(rb"(?<=\S)\t")
_PERCENT: Final = re.compile(rb"%(?:20|22|5B|7B)", re.I)
"""What is encoded as in a URL."""

_XML_BEGIN: Final = re.compile(rb"<(?:log4j:)?event\b", re.I)
_XML_END: Final = re.compile(rb"</(?:log4j:)?event>", re.I)
_XML_FIELD: Final = re.compile(rb"\b(level|timeMillis|timestamp)=.(\w{1,20})\b")
"""An event of log4j's XML layouts, and what it holds beside its message."""

_GOES_ON: Final = re.compile(rb"\t[ \t]*|[ \t]{2,}|[ \t]*\xe2(?:\x86[\xaa\xb3\xb5]|\x8f\x8e)[ \t]?")
"""What editors and terminals put before the rest of a line that they cut."""

_NUMBERED: Final = re.compile(rb"\s{0,9}\d{1,7}[:|)]?\s{1,4}(?=[\[{\d])")
"""The number of a line."""

_NESTING: Final = re.compile(rb'\\.|["{}\[\]]')
_STRUCTS: Final = tuple(begin.encode() for begin in STRUCTS)
_ENDS_STRUCT: Final = re.compile(rb";totalTime:[\d.]{1,30},")
"""What of a request logged as text the last field that is read ends with."""

_TORN: Final = re.compile(rb"(?<![,)])(?<! --) (?!-- )")
"""A space in a request logged as text where Kafka writes none, before its connection."""

HAS_TIME: Final = re.compile(rb"\d:\d\d:\d\d")
"""A time of day."""

_HEADLESS: Final = (
    MARK, b"request:", b"[Broker id=", b"[Controller id=", b"[Topic Deletion Manager ", b"Broker ", b"Controller ",
)  # fmt: skip
_MARK_BEGINS: Final = tuple(MARK[:length] for length in range(1, len(MARK)))
_HEAD_ENDS: Final = (b"TRACE", b"DEBUG", b"INFO", b"WARN", b"ERROR", b"]", *_MARK_BEGINS)
LONGEST_HEAD: Final = 100
"""A line of at most so many bytes may be the time and level of the next one, which a mail client put apart, or a
terminal that cut within a word."""

_BEGIN_OF_OBJECT: Final = b" \t,["
"""What may stand before the brace with which an object begins that is printed over several lines."""

_BEFORE_VALUE: Final = frozenset((b":", b",", b"["))
"""What stands before an object within a JSON record."""

_TERMINALS: Final = frozenset((80, 100, 120, 132, 140, 150, 160, 180, 200, 240))
"""Usual widths of terminals."""

_TEXTS: Final = (
    "log", "message", "msg", "MESSAGE", "_raw", "event", "body", "@message", "line", "text", "textPayload",
    "jsonPayload", "payload", "raw", "content", "data", "full_message", "short_message",
    "logmessage", "Message", "@m", "original",
)  # fmt: skip
"""Fields that hold a log line, or the object that holds it; the first one counts."""

_TIMES: Final = (
    "__REALTIME_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP", "_messagetime", "timeUnixNano", "TimeGenerated", "epoch",
    "epoch_ms", "_ts", "ts_ms", "event_time", "log_time", "timestamp_ms", "timestampMs",
    "@timestamp", "@t", "date", "_time", "time", "ts", "datetime", "eventTime", "timestamp", "Timestamp", "asctime",
    "logtime", "timeMillis", "instant",
)  # fmt: skip
"""Fields that hold the time of a line; of several the last one is nearest to it."""

_LATER: Final = re.compile("(?i)created|ingest|rece|index|observ|collect|process(?:ed|ing)")
"""What a field is named after that holds the time at which others took a line."""

_LEAST_NS: Final = 10**18
"""What is less is another number than a time of the last decades."""

_DAY_ALONE: Final = re.compile(r"\d{4}[-/.]\d\d[-/.]\d\d")
"""A date whose time stands in another field."""

_LEVELS: Final = ("level", "log.level", "severity", "severityText", "levelname", "loglevel", "@l")
"""Fields that hold a line's level."""

_DETAILED: Final = ("TRACE", "DEBUG")
"""Levels that show that a controller prints what it sends."""

_PIECE: Final = 16 << 10
"""Docker cuts lines after so many bytes."""

_BEHIND_BRACE: Final = frozenset((b'"', b" ", b"}", b"\n", b"\r", b"\t", b""))
"""What follows the brace that begins a JSON object."""

_DEEPEST: Final = 12
_LINE_BYTES: Final = 200
"""Estimated memory of a line that waits for others, beside its bytes."""

_MANY: Final = 4
"""A mail client does not cut a record into more parts than these at one width."""

_MOST_UNDECIDED: Final = 50
_LARGE: Final = 1 << 16
"""How many JSON records wait until one shows what cut them, and the estimated memory of one that does not."""

_MOST_OPEN: Final = 64
"""Of how many streams pieces are kept."""

_NAMES: Final = (("field", "value"), ("name", "value"), ("key", "value"))
"""How exports name the two parts of a field where a record is a list of its fields."""

_DEBUG_OF_SYSLOG: Final = 7

_raw_decode: Final = json.JSONDecoder().raw_decode


class _Pieces:
    """The pieces of one long line so far."""

    def __init__(self, first: LogLine) -> None:
        self.text = bytearray(first.text)
        self._first = self._last = first

    def add(self, piece: LogLine) -> None:
        """Add the next piece."""
        self.text += piece.text
        self._last = piece

    def joined(self) -> LogLine:
        """The line, as far as it is there."""
        return _spanning([self._first, self._last], bytes(self.text))


class CutWidths:
    """Tells whether a terminal cut lines: all at one width, with their spaces; a mail client cuts at spaces."""

    def __init__(self) -> None:
        self._count = self._least = self._most = 0
        self._is_exact = False  # whether a part began or ended with a space, or many of one record had one width
        self._indent = 0  # the least of what stood before the rest of a line

    def are_of_terminal(self, cut: list[int]) -> bool:
        """Take the lengths, with their ends, of the parts of one line without its last one."""
        self._count += 1
        self._least, self._most = min(self._least or cut[0], *cut), max(self._most, *cut)
        return self._least == self._most and (self._count > 1 or len(cut) > 1 or cut[0] - 1 in _TERMINALS)

    def are_sure(self, parts: list[LogLine]) -> bool:
        """Take the parts of a record; return whether it is certain by now what cut it."""
        self.are_of_terminal([part.length for part in parts[:-1]])
        self._is_exact |= len(parts) > _MANY or any(
            a.text[-1:] == b" " or b.text[:1] == b" " for a, b in pairwise(parts)
        )
        return self._is_exact or self._least != self._most

    def unindented(self, parts: list[bytes]) -> list[bytes]:
        """The parts of a line without what markdown, editors or terminals put before and behind them."""
        number = _NUMBERED.match(parts[0]) if len(parts) > 1 else None
        if number and not any(part[: number.end()].strip() for part in parts[1:]):  # the rest stands below the text
            return [part[number.end() :] for part in parts]
        width = len(parts[0]) - len(parts[0].lstrip())
        if width and not any(part[:width].strip() for part in parts):
            parts = [part[width:] for part in parts]
        if len(parts) < 2:
            return parts
        if all(part.endswith(b"\\") for part in parts[:-1]):
            parts = [part.removesuffix(b"\\") for part in parts]
            if any(part.lstrip().startswith(b"\\ ") for part in parts[1:]):  # as YAML writes a space at a border
                return [parts[0], *(part.lstrip().removeprefix(b"\\") for part in parts[1:])]
        begins = [found[0] if (found := _GOES_ON.match(part)) else b"" for part in parts[1:]]
        goes_on = min(begins, key=len)
        if not all(part.startswith(goes_on) for part in parts[1:]):
            goes_on = b""
        if goes_on and not goes_on.strip():
            even = len(goes_on) - (len(begins) == 1 and goes_on[-1:] == b" " and len(goes_on) % 2)
            self._indent = min(self._indent or even, len(goes_on))  # a space more is the line's own
            goes_on = goes_on[: self._indent]
        return [parts[0], *(part[len(goes_on) :] for part in parts[1:])]

    def are_likely_of_terminal(self) -> bool:
        """Whether a terminal cut the records so far."""
        return self._least == self._most and (self._is_exact or self._most - 1 in _TERMINALS)


class Unwrapper:
    """Takes off what stands around lines, puts pieces together, and reads the lines of journald's export format.

    Attributes:
        is_open: Whether lines are waiting for others.
    """

    def __init__(self) -> None:
        self._pieces: OrderedDict[bytes, _Pieces] = OrderedDict()
        self._open: list[LogLine] = []  # the lines of an object that is printed over several
        self._depth = 0
        self._in_string = False
        self._is_struct = False  # whether it is a request logged as text
        self._is_cut = False  # whether the object is one line that was cut, not one that is printed over several
        self._is_record = False  # whether it is a JSON record of one line that was cut
        self._widths = CutWidths()  # of such records
        self._undecided: list[list[LogLine]] = []  # such records, of which it is not known yet what cut them
        self._size = 0
        self._is_bare = False  # whether the last line was not quoted, and had a time or may end within "->"
        self._head: bytes = b""  # time and level, perhaps of the next line
        self._event: list[LogLine] = []  # the lines of an event of XML
        self._table = TableRows()
        self._row: list[LogLine] = []  # the lines of a row of a table
        self._export: dict[bytes, bytes] | None = None
        self._binary: bytearray | None = None
        self._binary_name = b""
        self._export_at = 0
        self.is_open: bool = False

    def line(self, line: bytes, offset: int, length: int) -> Iterator[LogLine]:
        """Take a line with its end; yield what it completes."""
        if self._export is None and not self._open and line.startswith(b"__CURSOR="):
            self._export, self._export_at = {}, offset
        if self._export is not None:
            self.is_open = True
            yield from self._exported(line, offset, length)
            return
        if self._row or self._table.may_have(line):
            self._row.append(LogLine(line, [], None, offset, length))
            if self._table.goes_on(line) and len(self._row) < _MOST_OPEN:
                self.is_open = True
                return
            messages = self._end_row()
        else:
            messages = self._line(LogLine(line.rstrip(b"\r\n"), [], None, offset, length), 0)
        for message in messages:
            if self._undecided:
                yield from self._end_records()
            yield message
        self.is_open = bool(self._open or self._undecided or self._event)

    def _end_row(self) -> Iterator[LogLine]:
        """Take the row of a table, or lines that are none."""
        row, self._row = self._row, []
        record = self._table.record(b"".join(each.text for each in row)) if row and not self._open else None
        if record is not None:
            yield from self._records(record, _spanning(row, b""), 1)
            return
        for each in row:
            yield from self._line(each._replace(text=each.text.rstrip(b"\r\n")), 0)

    def end(self) -> Iterator[LogLine]:
        """End the file; yield what can be read of lines that lack their end."""
        if self._export:
            yield from self._exported(b"\n", self._export_at, 0)
        yield from self._end_row()
        held, self._open, self._event = [*self._event, *self._open], [], []
        yield from self._end_records()
        for each in held:
            yield from self._whole(each, 0, gather=False)
        pieces, self._pieces = self._pieces, OrderedDict()
        for parts in pieces.values():
            yield parts.joined()

    def _line(self, message: LogLine, depth: int) -> Iterator[LogLine]:
        """Take off a runtime's header, and put pieces together."""
        text = cleaned(message.text)
        stamps, stream = message.stamps, b""
        prefix = _PREFIX.match(text)
        has_time = HAS_TIME.search(text, 0, LONGEST_HEAD) is not None
        if prefix and not (text[:1] == b">" and self._is_bare and not has_time):  # else the rest of a cut " -> "
            stream, text = prefix[0], text[prefix.end() :]
        self._is_bare = message.text[:1] != b">" and (has_time or text[-1:] == b"-")
        if text[:2] == b"20" and (cri := _CRI.match(text)):
            stream += cri[2]
            message = message._replace(text=text[cri.end() :], stamps=[*stamps, *stamps_in(cri[1])])
            yield from self._piece(message, stream, is_last=cri[3] == b"F", depth=depth)
            return
        if self._event or (text[-1:] == b">" and _XML_BEGIN.search(text)):
            yield from self._xml(message._replace(text=text), depth)
            return
        for each in text.splitlines() if b"\n" in text else (text,):
            if each.strip() or each is text:
                yield from self._whole(message._replace(text=each), depth)

    def _xml(self, message: LogLine, depth: int) -> Iterator[LogLine]:
        """Take a line of an event of XML; yield the events that it completes."""
        self._event.append(message)
        is_whole = _XML_END.search(message.text) is not None
        if not is_whole and len(self._event) < _MOST_OPEN and sum(len(each.text) for each in self._event) < _LARGE:
            return
        held, self._event = self._event, []
        span = _spanning(held, b"")
        for event in _XML_END.split(b"\n".join(each.text for each in held)) if is_whole else ():
            head, _, rest = event.partition(b"essage>")
            text = rest.partition(b"essage>")[0].rpartition(b"</")[0]
            if text:
                text = text.removeprefix(b"<![CDATA[").removesuffix(b"]]>")
                record = {name.decode(): value.decode() for name, value in _XML_FIELD.findall(head)}
                record["message"] = text.decode("utf-8", "surrogateescape")
                yield from self._records(record, span, depth + 1)
                held = []
        for line in held:
            yield from self._whole(line, depth, gather=False)

    def _piece(self, message: LogLine, stream: bytes, *, is_last: bool, depth: int) -> Iterator[LogLine]:
        parts = self._pieces.get(stream)
        if parts is None and is_last:
            yield from self._whole(message, depth)
            return
        if parts is None:
            parts = self._pieces[stream] = _Pieces(message)
            if len(self._pieces) > _MOST_OPEN:
                yield self._pieces.popitem(last=False)[1].joined()
        else:
            parts.add(message)
        if is_last or len(parts.text) > LONGEST_LINE:
            del self._pieces[stream]
            yield from self._whole(parts.joined(), depth)

    def _whole(self, message: LogLine, depth: int, *, gather: bool = True) -> Iterator[LogLine]:
        """Take a line of the log itself: text, JSON, or a line of an object that is printed over several."""
        text = message.text
        if self._open:
            wrapped = _json(text)[0] if not self._is_record and text[:2] == b'{"' else []
            if wrapped and any(isinstance(wrapped[0].get(name), str) for name in _TEXTS):
                yield from self._records(wrapped[0], message, depth + 1)
            else:
                yield from self._gather(message, depth)
            return
        if self._head and text.strip():
            size, bare = len(self._head), text.lstrip()
            is_headless = bare.startswith(_HEADLESS)
            joined = self._head + (b" " + bare if is_headless else text)
            if is_headless or joined.find(MARK, size - len(MARK), size + len(MARK)) >= 0:
                text = joined
                message = message._replace(text=text)
            self._head = joined.rstrip() if len(bare) < len(MARK) and joined.rstrip().endswith(_MARK_BEGINS) else b""
        elif len(text) <= LONGEST_HEAD and text.rstrip().endswith(_HEAD_ENDS) and HAS_TIME.search(text):
            self._head = text.rstrip()
        if _TEXTS_BEGIN.match(text) and depth < _DEEPEST:
            value = _quoted(text)
            if value is not None:
                yield from self._records(value, message, depth + 1)
                return
        begin = text.find(b"{")
        mark = text.find(MARK)
        is_record = begin >= 0 and text[begin : begin + 2] == b'{"' and not text[:begin].strip(_BEGIN_OF_OBJECT)
        if (
            gather
            and not is_record
            and (mark >= 0 or text.strip(_BEGIN_OF_OBJECT) == b"{")
            and self._begins_object(message, mark)
        ):
            return
        if begin >= 0 and (mark < 0 or begin < mark) and text[begin + 1 : begin + 2] in _BEHIND_BRACE:
            if text[begin + 1 : begin + 3] == b'""' and text[begin + 3 : begin + 4] != b":":  # within a field of CSV
                text = text[:begin] + text[begin:].replace(b'""', b'"')
            if text[begin - 1 : begin] == b"[" and text[: begin - 1].strip() == b"":
                begin -= 1
            values, rest = _json(text[begin:]) if depth < _DEEPEST else ([], "")
            if values:
                stamps = message.stamps + stamps_in(text[:begin])
                inner = message._replace(stamps=stamps)
                found = [each for value in values for each in self._records(value, inner, depth + 1)]
                yield from found
                if found or self._open or not (rest.strip() or holds_line(text[:begin].decode("utf-8", "replace"))):
                    return
            elif gather and is_record and self._begins_record(message, begin):
                return
        for each in _split(text):
            yield message._replace(text=each)

    def _begins_record(self, message: LogLine, begin: int) -> bool:
        """Begin a JSON record whose line was cut; return whether it goes on in the next one."""
        text = message.text
        depth, in_string = _nesting(text[begin:], in_string=False)
        if depth <= 0:
            return False
        self._open, self._depth, self._size = [message], depth, len(text) + _LINE_BYTES
        self._in_string, self._is_cut, self._is_struct, self._is_record = in_string, True, False, True
        return True

    def _begins_object(self, message: LogLine, mark: int) -> bool:
        """Begin an object that goes on in the next lines; return whether this line does."""
        text = message.text.rstrip()
        begin = text.find(b"{", max(mark, 0))
        is_struct = mark >= 0 and b'{"' not in text[:mark] and text[mark + len(MARK) :].lstrip().startswith(_STRUCTS)
        is_cut = is_struct or (mark >= 0 and text[begin : begin + 2] == b'{"')
        if is_struct:
            depth, in_string = 0 if _ENDS_STRUCT.search(text, mark) else 1, False
        elif not is_cut and text[-1:] not in b"{[,":
            return False
        else:
            depth, in_string = _nesting(text[begin:], in_string=False)
        if depth <= 0 or (in_string and not is_cut):
            return False
        self._open, self._depth, self._size = [message], depth, len(text) + _LINE_BYTES
        self._in_string, self._is_cut, self._is_struct, self._is_record = in_string, is_cut, is_struct, False
        return True

    def _gather(self, message: LogLine, depth: int) -> Iterator[LogLine]:
        text = message.text
        self._size += len(text) + _LINE_BYTES
        if self._is_record:
            last = self._open[-1].text.rstrip()[-1:]
            begins = text[:2] == b'{"' and (self._in_string or last not in _BEFORE_VALUE)
            goes_on = not begins and (last == b'"' or not _BEGINS_RECORD.match(text))
        elif self._is_cut:
            goes_on = MARK not in text and not HAS_TIME.search(text, 0, 200)
        else:
            goes_on = bool(_CONTINUED.match(text)) and not _BEGINS_RECORD.match(text)
        if (goes_on and self._size <= LONGEST_LINE) or not text.strip():
            self._open.append(message)
            if self._is_struct:
                self._depth = 0 if _ENDS_STRUCT.search(b"".join(each.text.strip() for each in self._open[-3:])) else 1
            else:
                before = self._open[-2].text if self._is_record else b""  # perhaps it ends within an escape
                before = before[len(before.rstrip(b"\\")) :]
                inner, self._in_string = _nesting(before + text, in_string=self._in_string)
                self._depth += inner
            if self._depth > 0:
                return
            held, self._open = self._open, []
            if self._is_record:
                self._undecided.append(held)
                is_large = self._size > _LARGE or len(self._undecided) == _MOST_UNDECIDED
                if self._widths.are_sure(held) or is_large:
                    yield from self._end_records()
                return
            parts = [each.text for each in held if each.text.strip()]
            joined = _joined(self._widths.unindented(parts)) if self._is_cut else b"\n".join(parts)
            if MARK not in parts[0] and not _json(joined[joined.find(b"{") :])[0]:  # as Ruby prints it
                for each in held:
                    yield from self._whole(each, depth, gather=False)
                return
            yield from self._whole(_spanning(held, joined.rstrip()), depth, gather=False)
            return
        held, self._open = self._open, []  # it was no such object
        for each in held:
            yield from self._whole(each, depth, gather=False)
        yield from self._whole(message, depth)

    def _end_records(self) -> Iterator[LogLine]:
        """Put JSON records together that were cut."""
        undecided, self._undecided = self._undecided, []
        is_terminal = self._widths.are_likely_of_terminal()
        for held in undecided:
            parts = self._widths.unindented([each.text for each in held])
            joined = b"".join(parts) if is_terminal else b" ".join(part.strip() for part in parts)
            yield from self._whole(_spanning(held, joined), 0, gather=False)

    def _records(self, value: Any, message: LogLine, depth: int) -> Iterator[LogLine]:
        """Find the log lines in JSON, and the times beside them."""
        if depth > _DEEPEST:
            return
        if isinstance(value, str):
            yield from self._text(value, message, depth)
            return
        if isinstance(value, list):
            if len(value) in (2, 3) and isinstance(value[0], str) and isinstance(value[1], str) and value[0].isdigit():
                stamp = stamp_of(value[0])  # Loki's form
                stamps = message.stamps if stamp is None else [*message.stamps, stamp]
                yield from self._text(value[1], message._replace(stamps=stamps), depth)
                return
            if sum(isinstance(each, str) and holds_line(each) for each in value) == 1:  # a row of a table
                yield from self._records({str(number): each for number, each in enumerate(value)}, message, depth)
                return
            fields = _fields_of(value)
            for each in value if fields is None else [fields]:
                if isinstance(each, (dict, list, str)):
                    yield from self._records(each, message, depth + 1)
            return
        if not isinstance(value, dict):
            return
        later, own = _stamps_of(value)
        message = message._replace(stamps=later + message.stamps + own)
        if isinstance(value.get("requestHeader"), dict):
            yield message._replace(text=b"", fields=value)
            return
        for name in _TEXTS:
            held = _only(value.get(name))
            if isinstance(held, list) and held and all(isinstance(byte, int) and 0 <= byte < 256 for byte in held):
                held = bytes(held).decode("utf-8", "replace")  # journald's form of text that is not UTF-8
            if isinstance(held, str):
                yield from self._held_text(_with_level(held, value), value, message, depth)
                return
        lines = [each for each in value.values() if isinstance(each, str) and holds_line(each)]
        if len(lines) > 1 and all(HAS_TIME.search(line[:LONGEST_HEAD].encode()) for line in lines):
            yield from self._records(lines, message, depth + 1)
            return
        for name, line in value.items():  # under a name that is not known
            if isinstance(line, str) and line in lines[:1]:
                of, dot, _ = name.rpartition(".")
                beside = {each.removeprefix(of + dot): value[each] for each in value if each.startswith(of + dot)}
                if dot and len(beside) > 1:  # as "json.message" beside "json.timestamp"
                    yield from self._records(beside, message, depth + 1)
                else:
                    yield from self._held_text(_with_level(line, value), value, message, depth)
                return
        for each in value.values():
            if isinstance(each, (dict, list)):
                level = _level_of(value)
                if level and "body" in value and isinstance(each, dict):
                    each = {"level": level, **each}  # OpenTelemetry's text stands one level deeper
                yield from self._records(each, message, depth + 1)

    def _held_text(self, text: str, beside: dict[str, Any], message: LogLine, depth: int) -> Iterator[LogLine]:
        """Take the text of a JSON record, perhaps a piece of a longer line."""
        stream = b"json " + repr([beside.get(name) for name in ("stream", "partial_id", "container_id")]).encode(
            "utf-8", "replace"
        )
        marked = beside.get("partial_message") in ("true", True) and beside.get("partial_last") not in ("true", True)
        marked = marked or beside.get("logtag") == "P" or beside.get("_LINE_BREAK") == "line-max"
        is_piece = marked or (
            "\n" not in text and len(text.encode("utf-8", "replace")) >= _PIECE - 8 and "log" in beside
        )
        if is_piece or stream in self._pieces:
            data = text.encode("utf-8", "surrogatepass").removesuffix(b"\n")
            yield from self._piece(message._replace(text=data), stream, is_last=not is_piece, depth=depth)
            return
        yield from self._text(text, message, depth)

    def _text(self, text: str, message: LogLine, depth: int) -> Iterator[LogLine]:
        data = text.encode("utf-8", "surrogatepass").rstrip(b"\r\n")
        if b"\n" not in data or (data.count(MARK) == 1 and data.find(MARK) < data.find(b"\n")):
            yield from self._line(message._replace(text=data), depth)
            return
        for line in data.splitlines():
            yield from self._line(message._replace(text=line), depth)

    # ---- journalctl -o export

    def _exported(self, line: bytes, offset: int, length: int) -> Iterator[LogLine]:
        entry = self._export
        assert entry is not None
        if self._binary is not None:
            self._binary += line
            size = int.from_bytes(self._binary[:8], "little")
            if len(self._binary) >= 8 and size > LONGEST_LINE:
                self._binary = None
            elif len(self._binary) > 8 + size:
                entry[self._binary_name], self._binary = bytes(self._binary[8 : 8 + size]), None
            return
        bare = line.rstrip(b"\r\n")
        name, equals, value = bare.partition(b"=")
        if not bare:
            text = entry.get(b"MESSAGE")
            if text is not None:
                stamps = [
                    stamp
                    for name in (b"__REALTIME_TIMESTAMP", b"_SOURCE_REALTIME_TIMESTAMP")
                    if (stamp := stamp_of(entry.get(name, b"").decode("ascii", "replace"))) is not None
                ]
                message = LogLine(text, stamps, None, self._export_at, max(offset + length - self._export_at, 1))
                yield from self._line(message, 1)
            entry.clear()
            self._export_at = offset + length
        elif equals:
            entry[name] = value
            if len(entry) > 1000:
                entry.clear()
        else:
            self._binary, self._binary_name = bytearray(), name


def _split(text: bytes) -> list[bytes]:
    """Cut a text before each line of Kafka's own layout in it but the first."""
    begins = [found.start() for found in _BEGINS_LINE.finditer(text)]
    return [text[at:end] for at, end in pairwise([0, *begins[1:], len(text)])]


def cleaned(text: bytes) -> bytes:
    """Undo what a terminal, a web page or a word processor made of a text: colours, escapes, spaces of other kinds."""
    if b"\x1b" in text:
        text = _COLOURS.sub(b"", text)
    if b"\t" in text:
        text = _INNER_TAB.sub(b" ", text)
    if b"%" in text and text[:1] not in (b"{", b"[") and b" " not in text.strip() and _PERCENT.search(text):
        text = unquote_to_bytes(text if b"%20" in text else text.replace(b"+", b" "))
    for _ in range(_MOST_ESCAPED):
        if b"&" not in text or not _ENTITY.search(text):
            break
        text = html.unescape(text.decode("utf-8", "replace")).encode("utf-8", "surrogatepass")
    if b"<" in text and b">" in text:
        text = _CELLS.sub(b" ", _BLOCKS.sub(b"\n", _INLINE.sub(b"", text)))
    if not text.isascii():
        typed = _BOX.sub("", _LONG_DASH.sub("--", text.decode("utf-8", "surrogateescape"))).translate(TYPOGRAPHY)
        typed = _DAY.sub(lambda day: "-".join(number.zfill(2) for number in day.groups()), typed)
        text = typed.encode("utf-8", "surrogateescape")
    if b"\\" in text:
        text = _MARKDOWN.sub(rb"\1", text)
    return _DOUBLED.sub(rb"'\1'", text) if b"=''" in text else text


def _fields_of(items: list[Any]) -> dict[str, Any] | None:
    """Return the record that a list of its fields makes; None of another list."""
    if not items or not all(isinstance(item, dict) for item in items):
        return None
    for name, value in _NAMES:
        if all(isinstance(item.get(name), str) and value in item for item in items):
            return {item[name]: item[value] for item in items}
    return None


def _stamps_of(record: dict[str, Any]) -> tuple[list[Stamp], list[Stamp]]:
    """The times in a record: when others took the line, and the line's own, the outermost first."""
    day = _only(record.get("date", record.get("Date")))
    day = f"{day} " if isinstance(day, str) and _DAY_ALONE.fullmatch(day) else ""
    times = [_only(record[name]) for name in _TIMES if name in record]
    own = [stamp for each in times if (stamp := stamp_of(day + each if isinstance(each, str) else each)) is not None]
    later = []
    for name in filter(_is_later, record):
        value = _only(record[name])
        stamp = _shown(value) if isinstance(value, str) else stamp_of(value)
        if stamp is not None and stamp.ns > _LEAST_NS:
            later.append(stamp)
    if not own:
        found = (_shown(_only(value)) for name, value in record.items() if not _is_later(name))
        own = [stamp for stamp in found if stamp is not None]
        if len(set(map(_utc_ns, own))) > 1:
            own = [UNDECIDED]
    return sorted(later, key=_utc_ns, reverse=True) if later else later, own


def _shown(value: object) -> Stamp | None:
    """The time that a text consists of, as a browser or a word processor may show it."""
    return whole_stamp(value[:100].translate(TYPOGRAPHY) if isinstance(value, str) and not value.isascii() else value)


@lru_cache(maxsize=1000)
def _is_later(name: str) -> bool:
    """Whether a field of a name holds when others took a line."""
    return name not in _TIMES and _LATER.search(name) is not None


def _utc_ns(stamp: Stamp) -> int:
    return stamp.ns - (stamp.offset_s or 0) * 1_000_000_000


def _only(value: Any) -> Any:
    """Return the text of a list that holds one text alone."""
    return value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) else value


def _level_of(beside: dict[str, Any]) -> str:
    """The level that stands beside a line."""
    log = beside.get("log")
    for of in (beside, log if isinstance(log, dict) else {}):
        for name in _LEVELS:
            level = of.get(name)
            if isinstance(level, str):
                return level.upper()
            if level == _DEBUG_OF_SYSLOG:
                return "DEBUG"
    short = (value.upper() for value in beside.values() if isinstance(value, str) and len(value) == len("DEBUG"))
    return next((level for level in short if level in _DETAILED), "")


def _with_level(text: str, beside: dict[str, Any]) -> str:
    """Put the level that stands beside a controller's line where it stands in the layout of Kafka."""
    if text.startswith(("[Controller ", "Controller ")):
        level = _level_of(beside)
        if level in _DETAILED:
            return f"{level} {text}"
    return text


def _nesting(text: bytes, *, in_string: bool) -> tuple[int, bool]:
    """Return by how much deeper the nesting of JSON is behind a part of it, and whether it ends within a text."""
    depth = 0
    for found in _NESTING.finditer(text):
        token = found[0]
        if token == b'"':
            in_string = not in_string
        elif not in_string:
            depth += 1 if token in b"{[" else -1 if token in b"}]" else 0
    return depth, in_string


def _json(text: bytes) -> tuple[list[Any], str]:
    """The objects and arrays that a text begins with, one behind the other, and what follows them."""
    whole = text.decode("utf-8", "replace")
    found: list[Any] = []
    at = 0
    while whole[at : at + 1] in ("{", "["):
        try:
            value, at = _raw_decode(whole, at)
        except (ValueError, RecursionError):
            break
        found.append(value)
        while whole[at : at + 1] in (",", " "):
            at += 1
    return found, whole[at:]


def _quoted(text: bytes) -> list[Any] | None:
    """The texts that a line consists of, as arrays, lists or slices are printed; None if there is anything else."""
    whole = text.decode("utf-8", "replace")
    found: list[Any] = []
    at = whole.index('"')
    while whole[at : at + 1] == '"':
        try:
            value, at = _raw_decode(whole, at)
        except ValueError:
            return None
        found.append(value)
        while whole[at : at + 1] in (",", " ", ";"):
            at += 1
    is_array = len(found) == 1 or text.lstrip()[:1] != b'"'  # else perhaps a row of CSV
    return found if is_array and not whole[at:].strip("])} \t") else None


def _joined(parts: list[bytes]) -> bytes:
    """Put a request's line together that was cut: by a terminal, at one width, or by a mail client, at spaces.

    What was cut by both may be told in no form: a space within a struct would be part of a value.
    """
    joined = b"".join(parts)
    if len(parts) > 2 and len({len(part) for part in parts[:-1]}) == 1:
        return joined
    spaced = b" ".join(part.strip() for part in parts)
    for form in (joined, spaced, with_long_words(parts)):
        logged = form[form.find(MARK) + len(MARK) :].lstrip()
        if logged.startswith(_STRUCTS) and _TORN.search(logged, 0, max(logged.rfind(b" from connection "), 0)):
            continue
        try:
            parse_request(logged.decode("utf-8", "replace"))
        except UnusableLine:
            continue
        return form
    return parts[0]


def with_long_words(parts: list[bytes]) -> bytes:
    """Put a line together that was cut at spaces, at hyphens, and within words that are longer than a line."""
    width = max(len(part) for part in parts[:-1])
    return b"".join(part if len(part) == width or part.endswith(b"-") else part + b" " for part in parts)


def _spanning(parts: list[LogLine], text: bytes) -> LogLine:
    first, last = parts[0], parts[-1]
    length = max(last.offset + last.length - first.offset, 1)
    return LogLine(text, first.stamps, None, first.offset, length)
