"""JSON contents of znodes, written compactly and read with checks of their types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kproto.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Decoding", "json_bytes", "json_object", "string", "whole_number", "whole_numbers"]


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


def json_object(data: bytes) -> dict[str, Any]:
    """Read an object; a ``ValueError`` or ``TypeError`` for anything else."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError(f"not a JSON object but {type(value).__name__}")
    return value


def whole_number(value: object) -> int:
    """Return a number of the contents; ``TypeError`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def whole_numbers(values: Iterable[object]) -> tuple[int, ...]:
    """Return an array of numbers of the contents; ``TypeError`` for anything else."""
    return tuple([whole_number(v) for v in values])


def string(value: object) -> str:
    """Return a text of the contents; ``TypeError`` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
