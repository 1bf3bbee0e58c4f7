"""Every error that kproto raises on purpose.

    KprotoError                     the root; never raised itself
    +-- DecodeError                 bytes that are no such message; has offset, path, api_key, version
    |   +-- Truncated               they end too early
    |   +-- Malformed               they contradict the protocol
    |   +-- FrameTooLarge           a length prefix above the limit, or below zero
    +-- EncodeError                 a message that cannot be written (also: JSON that is not a message)
    |   +-- FieldNotInVersion       a value that the chosen version has no place for
    |   +-- OutOfRange              a value that does not fit its field
    +-- UnsupportedApi              no such API key, or not one this codec knows
    +-- UnsupportedVersion          the API has no such version
    +-- CaptureError                a file that cannot be read as a capture; says what to try
    +-- ConfigurationError          a setting or option that makes no sense; says what would

Hostile or damaged input is a ``DecodeError`` and nothing else. Wrong use by the caller is ``ValueError``,
``TypeError`` or one of the others. Like Python's own ``UnicodeDecodeError`` and ``JSONDecodeError``, every error of
this module is a ``ValueError`` too: bytes, a message, a key, a file or a setting was given that is not what it should
be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def first_reasons(reasons: Iterable[str], most: int = 3) -> str:
    """Join the first of many reasons into one line, with the number of the others.

    >>> first_reasons(["a", "b", "a", "c", "d", "e"])
    'a; b; c; and 2 more'
    """
    distinct = list(dict.fromkeys(reasons))
    more = [f"and {len(distinct) - most} more"] if len(distinct) > most else []
    return "; ".join([*distinct[:most], *more])


class KprotoError(Exception):
    """The root of kproto's errors."""


class DecodeError(KprotoError, ValueError):
    """Bytes that cannot be read as the message that the caller named.

    Attributes:
        reason: The fault, in one line.
        offset: Position of the fault in bytes from the start of the input, None if it has no single position.
        path: The field, e.g. ``topic_states[3].partition_states[0].isr``; empty for the message itself.
        api_key, version: The message's API and version, None for frames and headers.
    """

    def __init__(
        self,
        reason: str,
        offset: int | None = None,
        path: str = "",
        api_key: int | None = None,
        version: int | None = None,
    ) -> None:
        super().__init__(reason, offset, path, api_key, version)
        self.reason = reason
        self.offset = offset
        self.path = path
        self.api_key = api_key
        self.version = version

    def __str__(self) -> str:
        where = [self.path] if self.path else []
        if self.offset is not None:
            where.append(f"offset {self.offset}")
        if self.api_key is not None:
            where.append(f"api {self.api_key} version {self.version}")
        return f"{self.reason} ({', '.join(where)})" if where else self.reason


class Truncated(DecodeError):
    """The bytes end before the message does."""


class Malformed(DecodeError):
    """The bytes contradict the protocol."""


class FrameTooLarge(DecodeError):
    """A frame's length prefix is above the limit, or negative."""


class EncodeError(KprotoError, ValueError):
    """A message that cannot be written.

    Attributes:
        reason: The fault, in one line.
        path: The field, e.g. ``topic_states[3].topic_name``.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class FieldNotInVersion(EncodeError):
    """A field that the chosen version lacks holds a value that may not be dropped."""


class OutOfRange(EncodeError):
    """A value does not fit its field: an int32 of 2**31, a string of more than 32,767 bytes."""


class UnsupportedApi(KprotoError, ValueError):
    """Kafka 3.9.1 has no such API, or the codec does not read its bodies."""

    def __init__(self, api_key: int, detail: str = "") -> None:
        super().__init__(api_key, detail)
        self.api_key = api_key
        self.detail = detail

    def __str__(self) -> str:
        return self.detail or f"api key {self.api_key} is not one of Kafka 3.9.1's"


class UnsupportedVersion(KprotoError, ValueError):
    """The API has no such version in Kafka 3.9.1."""

    def __init__(
        self, api_key: int, version: int, name: str = "", lowest: int = 0, highest: int = -1, detail: str = ""
    ) -> None:
        super().__init__(api_key, version, name, lowest, highest, detail)
        self.api_key = api_key
        self.version = version
        self.name = name
        self.lowest = lowest
        self.highest = highest
        self.detail = detail

    def __str__(self) -> str:
        if self.detail:
            return self.detail
        known = f"; it has {self.lowest} to {self.highest}" if self.highest >= self.lowest else ""
        key = f" ({self.api_key})" if self.api_key >= 0 else ""  # a header has a version and no key
        return f"{self.name or 'api'}{key} has no version {self.version}{known}"


class CaptureError(KprotoError, ValueError):
    """A file that cannot be read as a capture; the text says what to try."""


class ConfigurationError(KprotoError, ValueError):
    """A setting or option that makes no sense; the text says which values do."""
