"""Loggers of the channel: Kafka's prefixes, its state-change log, and lines that are printable and bounded."""

from __future__ import annotations

import json
import logging
import reprlib
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kproto.text import printable

if TYPE_CHECKING:
    from collections.abc import MutableMapping

STATE_CHANGE: Final = logging.getLogger("state.change.logger")
"""The logger of Kafka's state-change log. Check ``isEnabledFor`` once before building a line for each partition."""

TRACE: Final = 5
"""The level TRACE, below DEBUG, as in Kafka's state-change log."""
logging.addLevelName(TRACE, "TRACE")

LINE: Final = 400
"""Longest rendering of one object in a log line, in characters."""


_PEERS_MOST: Final = 100
_PEERS_EVERY_S: Final = 10.0


class PrefixLogger(logging.LoggerAdapter[logging.Logger]):
    """Puts a fixed text before every line, e.g. ``[RequestSendThread controllerId=1]``."""

    def __init__(self, logger: logging.Logger, prefix: str) -> None:
        super().__init__(logger, {})
        self.prefix = prefix

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Prefix one line."""
        return f"{self.prefix} {msg}", kwargs


class _Printable(logging.Filter):
    """Escapes and bounds the lines of a logger, as peers choose parts of them: hosts, topics, texts of errors.

    A line that needs no change keeps its format and arguments.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Make the record's message and traceback printable."""
        message = record.getMessage()
        shown = printable(message)
        if shown != message:
            record.msg, record.args = shown, ()
        if record.exc_info:
            lines = _tracebacks.formatException(record.exc_info).split("\n")
            record.exc_text = "\n".join(f"  {printable(line)}" for line in lines)  # so that none looks like a record
        return True


_tracebacks: Final = logging.Formatter()
_printable: Final = _Printable()


class JsonLines(logging.Formatter):
    """Formats each record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line: seconds since 1970, level, logger, thread, message, and the traceback if there is one."""
        line = {
            "time": round(record.created, 6),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(line)


Logger: TypeAlias = logging.Logger | PrefixLogger
"""The type that ``get_logger`` returns."""


def get_logger(module: str, prefix: str = "") -> Logger:
    """The logger of a module (its ``__name__``), with a prefix if one is given; its lines are printable."""
    logger = logging.getLogger(module)
    logger.addFilter(_printable)  # once, however often
    return PrefixLogger(logger, prefix) if prefix else logger


class PeerLines:
    """Lines of which peers decide how many there are: a flood of connections fills no disk.

    Of each kind, which is a level and a text without its arguments, a hundred are logged in ten seconds. The last says
    that others are left out, and before the next line of the kind after that time stands how many they were.

    Args:
        log: Takes the lines.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._counts: dict[tuple[int, str], tuple[float, int]] = {}

    def __call__(self, level: int, text: str, *args: object) -> None:
        """Log a line, or count it."""
        now = time.monotonic()
        began, count = self._counts.get((level, text), (now, 0))
        if now - began >= _PEERS_EVERY_S:
            if count > _PEERS_MOST:
                self._log.log(level, "%d lines like the next were left out", count - _PEERS_MOST)
            began, count = now, 0
        count += 1
        self._counts[level, text] = began, count
        if count < _PEERS_MOST:
            self._log.log(level, text, *args)
        elif count == _PEERS_MOST:
            self._log.log(level, f"{text}; more lines like this are left out for a while", *args)


def state_change_log(broker_id: int) -> Logger:
    """The state-change log of one broker; every line names the broker."""
    return get_logger(STATE_CHANGE.name, f"[Broker id={broker_id}]")


_short = reprlib.Repr()
_short.maxother = _short.maxstring = LINE


def bounded(thing: object, limit: int = LINE) -> str:
    """One line of at most ``limit`` characters about any object, however large.

    Byte strings, containers and messages are abbreviated before they are rendered, so that the cost is bounded too.
    """
    if isinstance(thing, (bytes, bytearray, memoryview)):
        return f"<{len(thing)} bytes>"
    if hasattr(thing, "to_json"):
        return f"<{type(thing).__name__}>"
    text = thing if isinstance(thing, str) else _short.repr(thing)
    return printable(text, limit)
