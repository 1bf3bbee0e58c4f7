"""Whether a file is a log, by its first bytes, and when its first and last lines were written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .table_rows import MOST_TRIED, columns_of
from .times import stamps_in
from .wrappers import LONGEST_HEAD, Lines, cleaned

if TYPE_CHECKING:
    from collections.abc import Iterator

_DATED: Final = re.compile(
    rb"^__CURSOR="
    rb"|^(?:\x1b\[[\d;]*m)*\[?\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d"
    rb"|^\[?\d\d:\d\d:\d\d[.,]\d{3}\]? +(?:\[|TRACE|DEBUG|INFO|WARN|ERROR)"
    rb"|^(?:[\w./-]{1,200} {0,40}\| ?|\[pod/[^\]]{1,300}\] ?|[\w./-]{1,200}\.log[\w.-]{0,50}:(?:\d{1,9}:)?)"
    rb"\[?\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:"
    rb"|^(?:<\d{1,3}>)?(?:1 \d{4}-\d\d-\d\dT|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )"
    rb"|^[^\S\n]*(?:\[\s*)?(?:data: |\x1e)?\{\s*\"(?:[^\n]{0,3000}\")?"
    rb"(?:log|message|MESSAGE|msg|_raw|@message|textPayload)\"\s*:",
    re.M,
)
"""How lines of logs begin."""

_MARK: Final = re.compile(
    rb"Completed request:|\brequest:(?:RequestHeader\(|\{api_key=)|requestHeader\\*\""
    rb"|(?:\[|\bon )(?:Broker|Controller) (?:id=)?\d{1,10}[\] ]"
    rb"|\b(?:Broker \d{1,10}|Controller \d{1,10} epoch \d{1,10}) "
    rb"(?:cached|received|handling|completed|ignoring|deleted|stopped|sending|changed|started|skipped) "
)
"""What the lines that are read hold, each behind a time."""

_LINE: Final = re.compile(
    rb"Completed request: ?(?:\{\"\w{1,40}\":|RequestHeader\()|\((?:kafka\.request|state\.change)\.logger"
    rb"|\[(?:Broker|Controller) id=\d{1,10}(?: epoch=\d{1,10})?\] [A-Z][\w-]* \w"
)
"""What only lines of Kafka's hold."""

_TIME: Final = re.compile(
    rb"\d:\d\d:\d\d|(?<!\d)1\d{9}(?:\d{3}|\d{6}|\d{9}|\.\d{1,9})?(?!\d)|(?<!\d)20\d{6}T?\d{6}[.,]?\d{3}"
)

_QUOTE: Final = re.compile(rb"^(?:> ?)+", re.M)
_EMPTY: Final = re.compile(rb"\n(?:[> \t]*\r?\n)+")
_END: Final = re.compile(rb"\r?\n")

_EXPORT: Final = b"__CURSOR="
_CONTROL: Final = re.compile(rb"[\1-\10\16-\32]")
_MOST_LINES: Final = 50


def looks_like_log(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a log."""
    text = _EMPTY.sub(b"\n", _text(head))
    if any(map(columns_of, _lines(head)[:MOST_TRIED])) and _MARK.search(text):
        return True
    if b"\0" in head.rstrip(b"\0") and _CONTROL.search(text) and not text.startswith(_EXPORT):
        return False
    if _DATED.search(text):
        return True
    if (record := _QUOTE.sub(b"", text).lstrip()).startswith(b'{"') and _DATED.match(_END.sub(b"", record)):
        return True  # a record that was cut into several lines
    is_json = text.lstrip()[:1] in (b"{", b"[")
    return any(
        is_json or _TIME.search(text, _begin(text, found.start()), found.start()) for found in _MARK.finditer(text)
    )


def holds_line(head: bytes) -> bool:
    """Whether a file that begins with these bytes holds the end of a line of Kafka's, whatever stands before it."""
    return _LINE.search(_text(head)) is not None


def _begin(text: bytes, at: int) -> int:
    """Where a line begins, with the one before it that may hold its time alone, as mail clients break lines."""
    begin = text.rfind(b"\n", 0, at) + 1
    before = text.rfind(b"\n", 0, max(begin - 1, 0)) + 1
    return before if begin - before <= LONGEST_HEAD else begin


def first_time_ns(head: bytes) -> int:
    """When the first line with a time was written, ns since 1970 on the log's own clock; 0 if none has one."""
    return next(_times(_text(head).splitlines()[:_MOST_LINES]), 0)


def last_time_ns(tail: bytes) -> int:
    """When the last whole line was written, likewise."""
    return next(_times(_text(tail).splitlines()[:-_MOST_LINES:-1]), 0)


def _times(lines: list[bytes]) -> Iterator[int]:
    for line in lines:
        for stamp in stamps_in(line[:300]):
            if not stamp.lacks:
                yield stamp.ns - (stamp.offset_s or 0) * 1_000_000_000
                break


def _lines(data: bytes) -> list[bytes]:
    return [line for line, _, _ in Lines().feed(data, last=True) if line is not None]


def _text(data: bytes) -> bytes:
    return cleaned(b"".join(_lines(data)))
