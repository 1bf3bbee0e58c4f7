"""JSON contents of znodes, written compactly and read with checks of their types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from channel.logs import bounded, get_logger
from kproto.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_log = get_logger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")

_LONGEST: Final = (1 << 15) - 1
"""The length in bytes of the longest text that every version of a control request can hold."""


def json_bytes(value: Any) -> bytes:
    """Write a value without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


class Decoding:
    """Turns any error while contents are decoded into a ``DecodeError`` that names the znode."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)):
            why = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise DecodeError(f"znode {self._path} holds no contents that Kafka would write there: {why}") from error


def decoded_or_none(decode: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
    """Decode contents; None, with a line in the log, if they are damaged."""
    try:
        return decode(*args, **kwargs)
    except DecodeError as e:
        _log.error("%s; the znode is passed over: correct or delete it", bounded(str(e)))
        return None


def json_object(data: bytes) -> dict[str, Any]:
    """Read an object; a ``ValueError`` or ``TypeError`` for anything else."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError(f"not a JSON object but {type(value).__name__}")
    return value


def whole_number(value: object) -> int:
    """Return a number of the contents, which fits into 32 bits; ``TypeError`` or ``ValueError`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise ValueError(f"{value} does not fit into 32 bits")
    return value


def natural_number(text: str) -> int:
    """Return the number that decimal digits spell, a partition or a port; ``ValueError`` for anything else."""
    value = whole_number(int(text))
    if str(value) != text or value < 0:
        raise ValueError(f"{text!r} is no number from 0")
    return value


def whole_numbers(values: Iterable[object]) -> tuple[int, ...]:
    """Return an array of such numbers; ``TypeError`` or ``ValueError`` for anything else."""
    return tuple([whole_number(v) for v in values])


def string(value: object) -> str:
    """Return a text of the contents that a request can hold; ``TypeError`` or ``ValueError`` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    if len(value.encode()) > _LONGEST:
        raise ValueError(f"a text of {len(value)} characters is too long")
    return value
