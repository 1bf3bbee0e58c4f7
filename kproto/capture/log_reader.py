"""Bytes of a log -> frames and exchanges, as a capture gives them; does no I/O.

A request log's line holds both bodies in Kafka's JSON form, or as text of its structs; both frames are encoded from it
as Kafka encodes them, without unknown tagged fields, which the log lacks. It has the time of the answer and the
duration.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Literal

from kproto import codec
from kproto.api import CONTROL_APIS, ApiKey, request_header_version, response_header_version
from kproto.error_codes import ErrorCode
from kproto.errors import CaptureError, EncodeError, KprotoError, UnsupportedApi, UnsupportedVersion
from kproto.headers import encode_request_header, encode_response_header, request_header, response_header
from kproto.logs.reading import LogReading
from kproto.logs.request_lines import MARK, NOT_LOGGED, parse_request, present_form
from kproto.logs.state_lines import WRITER_MARKS, LoggedRequest, StateLog, with_writer
from kproto.logs.times import LATEST_NS, LogClock, Stamp, UnusableLine, stamps_in
from kproto.logs.wrappers import HAS_TIME, LONGEST_LINE, CutWidths, Lines, LogLine, Unwrapper, with_long_words

from .model import GAP, WHOLE, Connection, Endpoint, Exchange, Frame
from .summary import StreamLoss
from .wanted import NAMING, WantedApis

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .model import Direction, FrameStatus
    from .summary import CaptureSummary

_VERSION: Final = re.compile(rb'"requestApiVersion":\s*(-?\d{1,9})(?!\d)')
_API: Final = re.compile(rb'"requestApiKey":\s*(-?\d{1,9})(?!\d)')
_BROKER: Final = re.compile(rb'"brokerId":\s*(\d{1,9})(?!\d)')
_NAME: Final = re.compile(rb'"connection":\s*"([^"]{1,300})"')
_CONNECTION: Final = re.compile(r"(.+):(\d{1,5})-(.+):(\d{1,5})(?:-\d+){0,2}")
_LONGEST_CONNECTION: Final = 300
"""Longest connection name (two addresses with zones, two ports, a number); the pattern refuses longer text slowly."""

_NAMES_WRITER: Final = re.compile(
    rb"\b(?:Broker|Controller)(?: id=|[ -])\d|\[Topic Deletion Manager |\[RequestSendThread "
)
"""Who writes a line, of any release; threads that send a controller's requests among them."""

_DETAILED: Final = re.compile(rb"\b(?:TRACE|DEBUG)\b")
"""Levels at which a controller prints what it sends, where they stand before a line."""

_LONGEST_PREFIX: Final = 300
"""The bytes before a line among which its level stands."""

_LONGEST_STATE: Final = 512
"""Most lines are no longer."""

_LATEST_PLACE: Final = 80
_LATEST_WRITER: Final = 35
"""Farther behind the time than a level stands something else beside it, such as a zone."""

_LONGEST_HEAD: Final = 48
"""A line that is no longer may be the time and level of the next one, which a mail client put apart."""

_CHOPPED: Final = re.compile(rb"(?:\.\.\.|\xe2\x80\xa6|[^<]{8}[^-=<]>)\s*$")
"""What programs put where they cut a line: a value at the end may lack digits."""

_BASE64: Final = re.compile(rb"(?i)content-transfer-encoding:\s*base64\b")
"""Of a mail's source."""

_PART_BYTES: Final = 50
"""Estimated memory of a part beside its bytes."""

_BRACKET: Final = 91
_COLON: Final = 58
_LONGEST_LOGGER: Final = 200

_LONGEST_CUT: Final = 1 << 20
"""The longest line that is put together of the parts into which a mail client or a terminal broke it."""

_TELLS: Final = (
    rb"(?:ched leader info |ceived (?:LeaderAndIsr|StopReplica) request "
    rb"| Partition \S+ state changed to \(|to OnlinePartition with state LeaderAndIsr\("
    rb"|broker epochs cache: |successfully elected as the controller\. E"
    rb"|[Ii]gnoring (?:LeaderAndIsr|StopReplica|UpdateMetadata) request |(?<!inished )[Hh]andling stop replica "
    rb"|[Dd]eleted partition \S{1,300} from metadata cache |Sent LeaderAndIsr request \(L.{1,200} ReplicaAssignment\("
    rb"|Newly added brokers: (?!.{0,900} all live brokers: (?:\(|$))"
    rb"|Broker id=\d{1,10}\] (?:Leader |Follower |Transitioning \d"
    rb"|Skipped the become-\w{1,8} state change for \S{1,300} with topic id (?!None)"
    rb"|Handling LeaderAndIsr request correlationId (?!.{0,300} starting the become))"
    rb"|((?<=[ \[(<])(?:\.\.\.|\xe2\x80\xa6)[ \])>]"
    rb"|(?<=[\[(<])(?:snip|cut|omitted|truncated|elided)[^\])>]{0,40}[\])>]))"
)
"""How lines begin that tell of a partition's state; in the group, what programs put for the middle of a line."""

_OF_STATES: Final = re.compile(rb"[ae \[\](<]" + _TELLS)
_OF_STATES_CUT: Final = re.compile(_TELLS.replace(b" ", b""))
"""Where they do; and where all spaces were taken out: what was cut twice lacks some, and has others, in every form."""

_CUT_START: Final = re.compile(
    rb"\] (?:Leader|Follower) \S{1,300} (?:with topic id \S{1,60} )?starts at leader epoch (?!.{0,3000}?"
    rb"(?:removing ?[rR]eplicas \[[\d,]*\]|Current leader is -?\d+[^\d]|revious leader epoch was -?\d+[^\d]))"
)
"""A line of a broker that leads or follows from now on, up to a place before its ISR or leader ends."""

_THROWN: Final = re.compile(rb"(?:Caused by: )?[\w.$]{1,200}(?:Exception|Error): ")
"""How the text of an exception begins that follows a line."""

_MOST_WAITING: Final = 64 << 20
_LINE_BYTES: Final = 300
"""The most memory of lines that stand newest first, and that of one beside its bytes, both estimated."""

_NONE: Final[list[Any]] = []
"""Nothing, of lines that wait."""

_LONGEST_WHY: Final = 300
"""Of an error that may hold a value of any length."""

_NO_STATE: Final = "a line of a state change with a number that is none"
_UNWRITABLE: Final = "a logged state that cannot be written: "
_CUT: Final = "a line whose end is missing: a program cut it to show it"
_NOT_JOINED: Final = "a line of a state change that was cut where its parts cannot be put together"

_STEP: Final = 128
_MOST_SEEN: Final = 1 << 22
_MOST_COMPARED: Final = 1 << 12
"""Of so many lines the latest time is remembered once; the most lines of which it is remembered that they were read,
and of these that one is compared with."""

_SHUFFLED: Final = (
    "lines of one millisecond stand in another order than they were written in: which request told of a partition "
    "is not certain; read the broker's own file"
)

_GOES_BACK: Final = (
    "lines of a broker stand behind later ones of its own: parts of a log, one behind the other in another order; what "
    "their borders cut is told in part, so name them as files of their own"
)

_CONNECTIONS: Final = 100_000
"""The most connections whose stream offsets and ids are remembered."""


class _Streams:
    """A connection of the log, and the current offsets of its two streams."""

    __slots__ = ("connection", "is_partial", "request", "response")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.request = self.response = 0
        self.is_partial = False


_ENDS: Final = (b"r)\n", b"r)\r\n")
"""What ends nearly every line in Kafka's own layout: the logger."""

_LOGGER: Final = re.compile(rb" \([A-Za-z][\w.$]{2,200}(?::\d{1,6})?\)(?:</?[\w:.-]{1,60}/?>|\\[nr]|[^\w<>(])*$")
"""What ends a line, perhaps with what a page or a program put behind it."""


def _ends_with_logger(line: bytes) -> bool:
    return line.endswith(_ENDS) or _LOGGER.search(line, max(len(line) - _LONGEST_LOGGER, 0)) is not None


def _is_thrown(line: bytes) -> bool:
    return _THROWN.match(line) is not None and HAS_TIME.search(line, 0, _LONGEST_PREFIX) is None


_TAGS: Final = re.compile(rb"(?:\]\]>)?(?:\s{0,9}</?[\w:.-]{1,60} ?/?>)+\s*$")
_TAGS_BYTES: Final = 300
"""Of XML and HTML, behind a line."""


class _HeldLine:
    """A line without the logger that ends it, and the lines behind it that may be its rest.

    A terminal cuts all lines at one width and keeps the spaces, a mail client cuts them at spaces, which it leaves out.

    Attributes:
        first: The line; None if none is held.
    """

    def __init__(self) -> None:
        self.first: LogLine | None = None
        self._parts: list[bytes] = []
        self._widths: list[int] = []
        self._size = 0
        self._cut = CutWidths()

    def begin(self, first: LogLine) -> None:
        """Hold a line."""
        self.first, self._parts, self._widths = first, [first.text.rstrip(b"\r\n")], [first.length]
        self._size = len(first.text)

    def takes(self, message: LogLine) -> bool:
        """Whether a line may go on with the one that is held; if so it is added."""
        text = message.text
        begin = text[:_LONGEST_PREFIX]
        if not text.strip():
            return not message.stamps  # an empty line, perhaps with the mark of a quote, may stand amid a line
        if (
            message.stamps
            or b"Exception" in text[:200]
            or stamps_in(text[:40])
            or (HAS_TIME.search(begin) and with_writer(begin)[1] >= 0)
            or self._size + len(text) > _LONGEST_CUT
        ):
            return False
        self._parts.append(text)
        self._widths.append(message.length)
        self._size += len(text) + _PART_BYTES
        return True

    def is_whole(self) -> bool:
        """Whether the logger's name has come, perhaps in two parts."""
        return _LOGGER.search(b"".join(self._cut.unindented(self._parts[-2:]))) is not None

    def forms(self) -> list[bytes]:
        """The texts that the line may have; the first one that tells something counts."""
        parts = self._cut.unindented(self._parts)
        if len(parts) == 1:
            return parts
        joined = [b" ".join(each.strip() for each in parts), b"".join(parts)]
        mixed = with_long_words(parts)
        widths = self._widths[:-1]
        if len({*widths}) > 1:  # perhaps an editor put spaces before all but the first
            widths = [len(part) + 1 for part in parts[:-1]]
        if self._cut.are_of_terminal(widths):
            joined.reverse()
        return [*joined, mixed] if self.is_whole() else [parts[0], *joined, mixed]


def _writer_of(forms: list[bytes]) -> tuple[bytes, int]:
    """The first form of a line that names its writer, and where it does."""
    return next((found for form in forms if (found := with_writer(form))[1] >= 0), (b"", -1))


class SeenLines:
    """Tells which lines of files stand in them again, as a log does that was saved or pasted twice.

    Lines may be equal without being copies. A copy follows its line at once, as where a shipper sent it again, or an
    export has it in two fields. Or copies begin where the time goes back, or somewhere behind that, with a line that
    was there at that time, and go on from there line by line.
    """

    def __init__(self) -> None:
        self._keys = array("q")
        self._known = bytearray(0x100000)  # a bit for each key: most lines behind the latest time are no copies
        self._times: list[int] = []  # the latest time until each line whose number is a multiple of _STEP
        self._latest_ns = 0
        self._next = -1  # of the line that comes next if copies go on
        self._last = 0  # the key of the line before
        self._is_behind = False  # whether a file has begun, or the time gone back, since the latest time

    def is_copy(self, text: bytes, time_ns: int) -> bool:
        """Take the next line; whether it is a copy."""
        key = hash(text) ^ time_ns
        keys, at = self._keys, self._next
        count = len(keys)
        known, place, bit = self._known, (key >> 3) & 0xFFFFF, 1 << (key & 7)
        self._is_behind = time_ns < self._latest_ns or (self._is_behind and time_ns == self._latest_ns)
        if key == self._last:
            return True
        self._last = key
        if at < 0 or at >= count or keys[at] != key:
            at = self._find(key, time_ns) if self._is_behind and known[place] & bit else -1
        if at >= 0:
            self._next = at + 1
            return True
        self._next = -1
        self._latest_ns = max(time_ns, self._latest_ns)
        if not count & 0x7F:  # each _STEP: numbers in place of names are C's
            if count == _MOST_SEEN:
                del keys[: count // 2], self._times[: count // 2 // _STEP]
            self._times.append(self._latest_ns)
        keys.append(key)
        known[place] |= bit
        return False

    def pass_over(self) -> None:
        """Take a line without a time: the next one does not follow that before it at once."""
        self._last = 0

    def begin_file(self) -> None:
        """Begin another file, which may begin with lines of the latest time."""
        self._is_behind = True

    def _find(self, key: int, time_ns: int) -> int:
        keys = self._keys
        begin = max(bisect_left(self._times, time_ns) - 1, 0) * _STEP
        end = min(bisect_right(self._times, time_ns, begin // _STEP) * _STEP, begin + _MOST_COMPARED, len(keys))
        for at in range(begin, end):
            if keys[at] == key:
                return at
        return -1


class LogReader:
    """Bytes of a log -> frames and exchanges, each when its line is whole.

    Lines of other loggers are ignored. A line that cannot be read is noted, and reading goes on with the next one.

    Args:
        summary: Counts and damage go there.
        capture: Name of the capture point, part of the connections' ids.
        apis: API keys whose frames are wanted; None for all.
        reading: What the logs do not say.

    Attributes:
        file: Name of the file, which frames carry.
        time_ns: Time at which the last request was answered, ns since the epoch.
        summary: As given; another one may take its place between files.
    """

    def __init__(
        self,
        summary: CaptureSummary,
        *,
        capture: str,
        apis: Collection[int] | WantedApis | None,
        reading: LogReading | None = None,
    ) -> None:
        self.file: str = ""
        self.time_ns: int = 0
        self.summary: CaptureSummary = summary
        self._capture = capture
        self._wanted = apis if isinstance(apis, WantedApis) else WantedApis(apis)
        self._clock = LogClock(reading or LogReading())
        self._streams: OrderedDict[object, _Streams] = OrderedDict()
        self._lines = Lines()
        self._unwrapper = Unwrapper()
        self._logged: list[LoggedRequest] = []
        self._states = StateLog(self._logged.append, lambda event: self.summary.told_by_controller(event))
        self._numbers: set[tuple[object, int]] = set()  # of the decisions of one time
        self._numbered_ns = 0
        self._controller_epoch = -1
        self._has_requests = False  # whether any line was one of a request log
        self._held = _HeldLine()
        self._waiting: list[tuple[LogLine, list[bytes] | None]] = []
        self._waiting_bytes = self._waiting_ns = self._rises = 0
        self._seen = SeenLines()
        self._stamp = b""  # of the last line in Kafka's own layout, and its time
        self._stamp_ns = -1
        self._is_ordered = False  # whether it is known that the oldest line of the file stands first

    def begin_file(self, name: str) -> None:
        """Name the file whose bytes come next."""
        self.file = name
        self._clock.begin_file(name)
        self._seen.begin_file()

    def feed(self, data: bytes) -> list[Frame | Exchange]:
        """Take the next bytes of the file."""
        events: list[Frame | Exchange] = []
        self._take(self._lines.feed(data), events)
        return events

    def end_file(self, damage: str | None = None) -> list[Frame | Exchange]:
        """Say that the file has ended; its last line may lack its end. A request may go on in the next file.

        Args:
            damage: Why the file could not be read to its end, None if it was.
        """
        events: list[Frame | Exchange] = []
        if damage:
            self.summary.bad(damage, self._lines.offset)
        self._take(self._lines.feed(b"", last=True), events)
        for message in self._unwrapper.end():
            self._message(message, events)
        self._end_held(events)
        self._settle(events)
        self._is_ordered = False
        self._give_logged(events)
        if self._states.is_shuffled:
            self.summary.bad(_SHUFFLED, 0)
        if self._states.goes_back:
            self.summary.bad(_GOES_BACK, 0)
        self._states.is_shuffled = self._states.goes_back = False
        self._lines, self._unwrapper = Lines(), Unwrapper()
        return events

    def end(self) -> list[Frame | Exchange]:
        """End the last file: give the requests that no further line has ended."""
        events = self.end_file()
        self._states.end()
        self._give_logged(events)
        return events

    def _take(self, lines: Iterable[tuple[bytes | None, int, int]], events: list[Frame | Exchange]) -> None:
        unwrapper, held = self._unwrapper, self._held
        for line, offset, length in lines:
            if line is None:
                self.summary.bad(f"a line of more than {LONGEST_LINE >> 20} MiB", offset, length)
                continue
            if not unwrapper.is_open:
                if len(line) > _LONGEST_HEAD and line[0] == _BRACKET and line[17] == _COLON and line[24:26] == b"] ":
                    if self._plain(line, offset, length, events):
                        continue
                elif line.startswith(b"\tat ") or (held.first is None and _is_thrown(line)):
                    continue  # an exception, and where it was thrown
            for message in unwrapper.line(line, offset, length):
                self._message(message, events)
        if self._clock.assumed:
            self.summary.assumed_zone = True

    def _plain(self, line: bytes, offset: int, length: int, events: list[Frame | Exchange]) -> bool:
        """Take a line in Kafka's own layout; whether it is one line, of which no other is a part."""
        if not line.isascii() or b"&" in line or b"\x1b" in line:
            return False
        if len(line) > _LONGEST_STATE and line.find(line[:12], 12) >= 0:
            return False  # several lines
        if self._held.first is not None:
            self._end_held(events)
        at = line.find(b"[", 26, _LATEST_PLACE)
        if at >= 0 and line.startswith(WRITER_MARKS, at):
            if not self._is_ordered or at >= _LATEST_WRITER or not self._plain_state(line, at, offset, length):
                self._message(LogLine(line, _NONE, None, offset, length), events)
            elif self._logged:
                self._give_logged(events)
            return True
        at = line.find(MARK)
        if at < 0:
            if not self._has_requests and b"ontroller" in line[26:60]:
                self.summary.format = "state-change log"
            if not _NAMES_WRITER.search(line, 26, 26 + _LONGEST_PREFIX):
                return _ends_with_logger(line)
        else:
            logged = line[at + len(MARK) :].lstrip()
            if b"\\" in logged:
                return False
            if b";totalTime:" not in logged if logged[:1] != b"{" else line.count(b"{", at) != line.count(b"}", at):
                return False
        self._message(LogLine(line, [], None, offset, length), events)
        return True

    def _plain_state(self, line: bytes, at: int, offset: int, length: int) -> bool:
        """Take a line of a state change in Kafka's own layout, if its time is one."""
        problem = ""
        try:
            stamp = line[:25]
            if stamp != self._stamp:
                self._stamp_ns = self._clock.kafka_ns(line)
                self._stamp = stamp
            time_ns = self._stamp_ns
            if time_ns < 0:
                return False
            if not _ends_with_logger(line):
                self._held.begin(LogLine(line, [], None, offset, length))
            elif self._seen.is_copy(line[at:], time_ns):
                self.summary.resent += 1
            elif not self._states.line(line, at, time_ns) and _OF_STATES.search(line, at, _LONGEST_STATE):
                problem = _CUT
        except UnusableLine as e:
            problem = str(e)
        except (ValueError, OverflowError):
            problem = _NO_STATE
        except KprotoError as e:
            problem = _UNWRITABLE + str(e)[:_LONGEST_WHY]
        if problem:
            self._lost(problem, [line], offset, length)
        return True

    def _message(self, message: LogLine, events: list[Frame | Exchange]) -> None:
        mark = 0
        if message.fields is None:
            mark = message.text.find(MARK)
            if mark < 0:
                self._state_message(message, events)
                return
        if self._is_ordered:
            self._request(message, events)
        else:
            self._wait(message, None, mark, events)

    def _request(self, message: LogLine, events: list[Frame | Exchange]) -> None:
        """Take a line of a request log."""
        mark = max(message.text.find(MARK), 0)
        self._has_requests = True
        summary = self.summary
        try:
            is_plain = message.text[24:32] in (b"] DEBUG ", b"] TRACE ") and not message.stamps
            time_ns = self._clock.kafka_ns(message.text) if is_plain else -1
            if time_ns < 0:
                time_ns = self._clock.time_ns(message.stamps + stamps_in(message.text[:mark]))
        except UnusableLine as e:
            self._seen.pass_over()
            summary.packets += 1
            summary.bad(str(e), message.offset, message.length)
            return
        if self._seen.is_copy(message.text[mark:] or repr(message.fields).encode(), time_ns):
            summary.resent += 1
            return
        summary.packets += 1
        api = _API.search(message.text, mark)
        if api is not None and int(api[1]) not in self._wanted and 0 <= int(api[1]) < 1 << 15:
            version = _VERSION.search(message.text, mark)
            number = int(version[1]) if version else 0
            if -1 << 15 <= number < 1 << 15:
                summary.requests[int(api[1]), number] += 1
                if int(api[1]) in NAMING:
                    self._note_sender(message.text, mark)
                return
        try:
            entry = message.fields
            if entry is None:
                entry = parse_request(message.text[mark + len(MARK) :].decode("utf-8", "replace"))
            self._exchange(entry, time_ns, events)
        except UnusableLine as e:
            summary.bad(str(e), message.offset, message.length)
        except KprotoError as e:
            why = str(e)[:_LONGEST_WHY]
            summary.bad(f"a logged message that cannot be written: {why}", message.offset, message.length)
        except KeyError as e:
            summary.bad(f"a logged request without {e.args[0]}", message.offset, message.length)
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            summary.bad("a logged request with a field of another kind of value", message.offset, message.length)

    def _note_sender(self, line: bytes, mark: int) -> None:
        """Note from where a broker sent its own request."""
        broker, name = _BROKER.search(line, mark), _NAME.search(line, mark)
        if broker is not None and name is not None:
            try:
                server, client = _ends(name[1].decode("utf-8", "replace"))
            except UnusableLine:
                return
            self.summary.sent_by(client, server, int(broker[1]), self.time_ns)

    def _state_message(self, message: LogLine, events: list[Frame | Exchange]) -> None:
        """Take a line of a state-change log or a controller's log, if it is one, out of whatever stood around it."""
        held = self._held
        if held.first is not None and held.takes(message):
            if held.is_whole():
                self._end_held(events)
        else:
            self._end_held(events)
            held.begin(message)
            if held.is_whole() or not (message.stamps or HAS_TIME.search(message.text, 0, _LONGEST_PREFIX)):
                self._end_held(events)
        self._give_logged(events)

    def _end_held(self, events: list[Frame | Exchange]) -> None:
        """Take the line that was held for its rest."""
        first, self._held.first = self._held.first, None
        if first is None:
            return
        forms = self._held.forms()
        if not self._is_ordered and (at := _writer_of(forms)[1]) >= 0:
            self._wait(first, forms if len(forms) > 1 else _NONE, at, events)
        else:
            self._state(first, forms)

    def _wait(self, line: LogLine, forms: list[bytes] | None, at: int, events: list[Frame | Exchange]) -> None:
        """Hold a line as long as it is not known whether the oldest line of the file stands first, or the newest one.

        Args:
            line: The line.
            forms: The texts that it may have if it tells of a state, none if it is as it stands; None: of a request.
            at: Where its message begins, behind its time.
            events: Frames go there, once it is known.
        """
        try:
            time_ns = self._clock.time_ns(line.stamps + stamps_in((forms[0] if forms else line.text)[:at]))
        except UnusableLine:
            time_ns = self._waiting_ns
        if self._waiting:
            self._rises += (time_ns > self._waiting_ns) - (time_ns < self._waiting_ns)
        self._waiting.append((line, forms))
        self._waiting_ns = time_ns
        self._waiting_bytes += len(line.text or repr(line.fields)) + _LINE_BYTES
        if self._rises > 0:
            self._settle(events)
        elif self._waiting_bytes > _MOST_WAITING:
            raise CaptureError(
                f"{self.file}: a log of more than {_MOST_WAITING >> 20} MiB whose newest line stands first; "
                "turn its lines round: tac FILE"
            )

    def _settle(self, events: list[Frame | Exchange]) -> None:
        """Take the lines that waited, from the oldest one on."""
        waiting, self._waiting = self._waiting, []
        if self._rises >= 0:
            waiting.reverse()
        self._is_ordered = True
        self._waiting_bytes = self._rises = 0
        while waiting:  # each line ends as its frames begin
            line, forms = waiting.pop()
            if forms is None:
                self._request(line, events)
            else:
                self._state(line, forms or [line.text])
                self._give_logged(events)

    def _state(self, first: LogLine, forms: list[bytes]) -> None:
        """Take a line of a state change, in the first form that tells anything."""
        problem = _CUT if len(forms) == 1 and _CUT_START.search(forms[0]) else ""
        for form in () if problem else forms:
            try:
                if self._tells(form, first.stamps):
                    return
            except UnusableLine as e:
                problem = str(e)
            except (ValueError, OverflowError):  # perhaps a space was put into a number
                problem = _NO_STATE
            except KprotoError as e:
                problem = _UNWRITABLE + str(e)[:_LONGEST_WHY]
        told = [found for form in forms if (found := _OF_STATES.search(form, 0, _LONGEST_STATE))]
        if not problem and any(found[1] is None or found.string is forms[0] for found in told):
            problem = _CUT if len(forms) == 1 else _NOT_JOINED
        elif not problem and len(forms) > 1 and _OF_STATES_CUT.search(b"".join(forms[0].split()), 0, _LONGEST_STATE):
            problem = _NOT_JOINED
        if problem:
            self._lost(problem, forms, first.offset, first.length)

    def _lost(self, problem: str, forms: list[bytes], offset: int, length: int) -> None:
        """Note a line of a state change that cannot be read; the request that it tells of lacks it."""
        self.summary.bad(problem, offset, length)
        text, at = _writer_of(forms)
        if at >= 0:
            self._states.lost(text, at)

    def _tells(self, text: bytes, stamps: list[Stamp]) -> bool:
        """Give a line to the states; whether it tells anything."""
        text = text.rstrip(b'"')  # of a quoted value
        if text[-1:] == b">" and (tags := _TAGS.search(text, max(len(text) - _TAGS_BYTES, 0))):
            text = text[: tags.start()]
        text, at = with_writer(text)
        if at < 0:
            if _BASE64.match(text):
                raise UnusableLine("a part of a mail that is in base64: save it as a file of its own")
            return False
        if _CHOPPED.search(text, max(len(text) - 18, 0)):
            raise UnusableLine(_CUT)
        stamps = stamps + stamps_in(text[:at])
        if not stamps and _THROWN.search(text[:at]):
            return False
        if level := _DETAILED.search(text, max(at - _LONGEST_PREFIX, 0), at):
            text, at = b"%b %b" % (level[0], text[at:]), len(level[0]) + 1
        time_ns = self._clock.time_ns(stamps)
        if self._seen.is_copy(text[at:], time_ns):
            self.summary.resent += 1
            return True
        return self._states.line(text, at, time_ns)

    def _give_logged(self, events: list[Frame | Exchange]) -> None:
        """Make frames of the requests that lines of state changes told."""
        if not self._logged:
            return
        logged, self._logged[:] = self._logged[:], []
        summary = self.summary
        summary.packets += len(logged)
        if not self._has_requests:
            summary.format = "state-change log"
        for request in logged:
            version = request.version
            if request.controller_epoch < 0 and request.topic_ids is None:
                continue  # the lines do not tell whose request it is
            summary.requests[request.api_key, version] += 1
            if request.api_key not in self._wanted:
                continue
            try:
                body = codec.encode(request.message(), version)
                if request.api_key == ApiKey.UPDATE_METADATA and not request.error_code:
                    answer = _ACCEPTED
                else:
                    answer = codec.encode(request.answer(), version)
                if request.is_short:
                    body = answer = b""
                correlation_id = request.correlation_id
                if correlation_id is None:
                    correlation_id = self._number(request)
                number = correlation_id.to_bytes(4, "big", signed=True)
            except (KprotoError, OverflowError) as e:
                summary.bad(_UNWRITABLE + str(e)[:_LONGEST_WHY], self._lines.offset)
                continue
            client_id = str(request.controller_id)
            head, answer_head = _logged_heads(request.api_key, version, client_id)
            head, answer_head = head[:4] + number + head[8:], number + answer_head[4:]
            key = request.broker_id, request.controller_id, request.correlation_id is None
            streams = self._streams.get(key)
            if streams is None:
                ends = Endpoint(f"broker-{request.broker_id}", 0), Endpoint(f"controller-{request.controller_id}", 0)
                streams = self._connection(key, ends, request.time_ns)
            names = request.api_key, version, correlation_id, client_id
            status = GAP if request.is_short else WHOLE
            if (request.is_short or not request.detailed) and not streams.is_partial:  # INFO does not show every one
                streams.is_partial = True
                summary.lost(StreamLoss(streams.connection, "request", "gap", request.time_ns, 0))
            summary.first_ns = summary.first_ns or request.time_ns
            missing = "" if request.answered else "the log ends before the answer"
            times = request.time_ns, request.last_ns
            self._pair(streams, times, names, (head, body, status), (answer_head, answer, status), missing, events)

    def _number(self, request: LoggedRequest) -> int:
        """Return what stands for the correlation id of a decision, which has none: the same in every log."""
        if request.time_ns != self._numbered_ns:
            self._numbers.clear()
            self._numbered_ns = request.time_ns
        number = request.mark()
        while (request.broker_id, number) in self._numbers:
            number -= 1
        self._numbers.add((request.broker_id, number))
        return number

    def _exchange(self, entry: dict[str, Any], answered_ns: int, events: list[Frame | Exchange]) -> None:
        """Make both frames of a line."""
        header = entry["requestHeader"]
        api_key, version = int(header["requestApiKey"]), int(header["requestApiVersion"])
        correlation_id, client_id = int(header["correlationId"]), header.get("clientId")
        if not (0 <= api_key < 1 << 15 and -1 << 15 <= version < 1 << 15):
            raise UnusableLine(f"a logged request of API {str(api_key)[:20]} version {str(version)[:20]}")
        if not self._wanted.takes(api_key, client_id):
            self.summary.requests[api_key, version] += 1
            return
        sent_ns = answered_ns - round(float(entry.get("totalTimeMs") or 0) * 1_000_000)
        if not 0 <= sent_ns < LATEST_NS:
            raise UnusableLine("a logged request whose time lies before 1970 or after 2262")
        name = str(entry["connection"])
        ends = _ends(name)
        head, answer_head = _heads(api_key, version, correlation_id, client_id)
        body, status = _body(api_key, version, "request", entry.get("request"))
        form = entry.get("response")
        missing = "the log has no response" if form is None else ""
        if form is NOT_LOGGED:
            form = self._unlogged_answer(api_key, entry)
        answer = (b"", GAP) if form is None else _body(api_key, version, "response", form)
        self.summary.requests[api_key, version] += 1
        self.summary.first_ns = self.summary.first_ns or answered_ns
        streams = self._connection(name, ends, sent_ns)
        names = api_key, version, correlation_id, client_id
        self._pair(
            streams, (sent_ns, answered_ns), names, (head, body, status), (answer_head, *answer), missing, events
        )

    def _pair(
        self,
        streams: _Streams,
        times: tuple[int, int],
        names: tuple[int, int, int, str | None],
        asked: tuple[bytes, bytes, FrameStatus],
        answered: tuple[bytes, bytes, FrameStatus],
        missing: str,
        events: list[Frame | Exchange],
    ) -> None:
        """Give an exchange, each half with its header, body and status; without an answer where one is missing."""
        sent_ns, self.time_ns = times
        summary = self.summary
        request, response = self._frame(streams, "request", sent_ns, asked, names), None
        if missing:
            request.unmatched_reason = missing
            summary.unmatched_requests += 1
        else:
            response = self._frame(streams, "response", self.time_ns, answered, names)
            response.request = request
            summary.responses += 1
        events += [request, Exchange(request, response)]
        summary.last_ns = self.time_ns

    def _unlogged_answer(self, api_key: int, entry: dict[str, Any]) -> dict[str, Any] | None:
        """What a broker of a release before 1.0, which logs no answers, answered a control request; None of others.

        It accepts all but those of a controller with a lower epoch than one before.
        """
        if api_key not in CONTROL_APIS:
            return None
        epoch = int(entry["request"]["controllerEpoch"])
        self._controller_epoch = max(epoch, self._controller_epoch)
        code = int(ErrorCode.STALE_CONTROLLER_EPOCH) if epoch < self._controller_epoch else 0
        return {"errorCode": code} if api_key == ApiKey.UPDATE_METADATA else {"errorCode": code, "partitionErrors": []}

    def _connection(self, name: object, ends: tuple[Endpoint, Endpoint], time_ns: int) -> _Streams:
        streams = self._streams.get(name)
        if streams is None:
            server, client = ends
            streams = _Streams(Connection(client, server, time_ns, self._capture, saw_open=False))
            self._streams[name] = streams
            self.summary.connections += 1
            self.summary.recognised("kafka", server)
            if len(self._streams) > _CONNECTIONS:
                self._streams.popitem(last=False)
        return streams

    def _frame(
        self,
        streams: _Streams,
        direction: Direction,
        time_ns: int,
        half: tuple[bytes, bytes, FrameStatus],
        names: tuple[int, int, int, str | None],
    ) -> Frame:
        head, body, status = half
        offset: int = getattr(streams, direction)
        length = len(head) + len(body)
        setattr(streams, direction, offset + 4 + length)
        return Frame(
            streams.connection,
            direction,
            offset,
            time_ns,
            time_ns,
            status,
            length + (status != WHOLE),
            head + body,
            *names,
            len(head),
            self.file,
        )


_ACCEPTED: Final = codec.encode(codec.message_class(ApiKey.UPDATE_METADATA, "response")(), 6)
"""The answer to an UpdateMetadata of the version in which logged ones are written."""


def _heads(api_key: int, version: int, correlation_id: int, client_id: str | None) -> tuple[bytes, bytes]:
    """Both headers; of an API or a version that is not known those of version 1 and 0."""
    try:
        versions = request_header_version(api_key, version), response_header_version(api_key, version)
    except (UnsupportedApi, UnsupportedVersion):
        if api_key in CONTROL_APIS:
            raise
        versions = 1, 0
    head = encode_request_header(request_header(api_key, version, correlation_id, client_id), versions[0])
    return head, encode_response_header(response_header(correlation_id), versions[1])


@lru_cache(maxsize=1000)
def _logged_heads(api_key: int, version: int, client_id: str) -> tuple[bytes, bytes]:
    """Both headers of a request that a state-change log tells of; the correlation id stands at 4, and at 0."""
    return _heads(api_key, version, 0, client_id)


def _body(api_key: int, version: int, kind: Literal["request", "response"], form: Any) -> tuple[bytes, FrameStatus]:
    """Write a body; it is missing where no codec writes it, or, of other APIs, where the log does not show it whole."""
    try:
        message = _message_class(api_key, kind).from_json(present_form(form, api_key, kind), version)
        return codec.encode(message, version), WHOLE
    except (UnsupportedApi, UnsupportedVersion):
        if api_key in CONTROL_APIS:
            raise
        return b"", WHOLE  # decoding says the same of it
    except (EncodeError, TypeError, AttributeError, KeyError):
        if api_key in CONTROL_APIS:
            raise
        return b"", GAP


_message_class: Final = lru_cache(maxsize=1000)(codec.message_class)


def _ends(name: str) -> tuple[Endpoint, Endpoint]:
    """Server and client of a connection, as its name in the log says."""
    found = _CONNECTION.fullmatch(name) if len(name) <= _LONGEST_CONNECTION else None
    if found is None or int(found[2]) > 0xFFFF or int(found[4]) > 0xFFFF:
        raise UnusableLine(f"a connection named {name[:100]!r}")
    return Endpoint(_address(found[1]), int(found[2])), Endpoint(_address(found[3]), int(found[4]))


def _address(text: str) -> str:
    """An address as Java prints it, in the usual short form."""
    try:
        return str(ip_address(text.strip("[]/").partition("%")[0]))
    except ValueError:
        return text
