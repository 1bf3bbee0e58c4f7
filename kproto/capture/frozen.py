"""The objects of a reading as bytes, from which a later process goes on.

The bytes are pickles. They name classes of ``kproto.capture`` and plain containers; others are refused, so that bytes
from elsewhere run no code.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter, deque
from functools import cache
from types import GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey

from . import (
    collector,
    cutter,
    detection,
    fragments,
    link,
    model,
    payloads,
    reassembly,
    resync,
    summary,
    wanted,
)

if TYPE_CHECKING:
    from types import ModuleType

_MODULES: Final[tuple[ModuleType, ...]] = (
    collector, cutter, detection, fragments, link, model, payloads, reassembly, resync, summary, wanted,
)  # fmt: skip
_OURS: Final = {
    value
    for module in _MODULES
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == module.__name__
}
_PLAIN: Final = {ApiKey, Counter, bytearray, deque, frozenset, set}


def freeze(objects: object) -> bytes | None:
    """Return objects as bytes; None if they hold one another so deeply that pickling gives up."""
    file = io.BytesIO()
    try:
        _Freezer(file, pickle.HIGHEST_PROTOCOL).dump(objects)
    except RecursionError:
        return None
    return file.getvalue()


def thaw(data: bytes) -> Any:
    """Return the objects that ``freeze`` was given.

    Raises:
        ValueError: The bytes are none of ``freeze``, or of another version of kproto.
    """
    try:
        return _Thawer(io.BytesIO(data)).load()
    except Exception as e:
        raise ValueError(f"this state cannot be read ({type(e).__name__}: {e})") from e


class _Freezer(pickle.Pickler):
    def reducer_override(self, given: Any) -> Any:
        kind = type(given)
        if kind not in _OURS or issubclass(kind, (tuple, int)) or "__reduce__" in vars(kind):
            return NotImplemented
        return _blank, (kind,), _values(given), None, None, _fill


class _Thawer(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _KNOWN.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a state")
        return found


def _blank(kind: Any) -> object:
    if kind not in _OURS:
        raise pickle.UnpicklingError(f"{kind} has no place in a state")
    blank: object = kind.__new__(kind)
    return blank


def _fill(blank: object, values: dict[str, Any]) -> None:
    for name, value in values.items():
        object.__setattr__(blank, name, value)


def _values(given: Any) -> dict[str, Any]:
    kind: Any = type(given)
    values = {name: getattr(given, name) for name in _attributes(kind) if hasattr(given, name)}
    return values | getattr(given, "__dict__", {})


@cache
def _attributes(kind: Any) -> list[str]:
    """The attributes of a class that are slots or, where it is compiled, fields; what it computes is left out."""
    blank = kind.__new__(kind)
    names = []
    for name, value in ((name, value) for each in kind.__mro__ for name, value in vars(each).items()):
        if isinstance(value, MemberDescriptorType):
            names.append(name)
        elif isinstance(value, GetSetDescriptorType) and not name.startswith("__"):
            try:
                setattr(blank, name, getattr(blank, name))
            except Exception:  # noqa: BLE001, S112  # it is computed
                continue
            names.append(name)
    return names


_KNOWN: Final[dict[tuple[str, str], Any]] = {
    **{(kind.__module__, kind.__qualname__): kind for kind in _OURS | _PLAIN},
    **{(function.__module__, function.__name__): function for function in (_blank, _fill, payloads.payload_again)},
}
