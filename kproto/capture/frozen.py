"""The objects of a reading as bytes, from which a later process goes on.

The format is our own and holds nothing but values: a tag, a length and the content of each. Objects are of the classes
of recorded traffic alone; reading makes blank ones and fills their fields. So bytes from elsewhere run no code, change
nothing but the new objects, and take memory in proportion to their length.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from enum import IntEnum
from functools import cache
from types import GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey

from . import (
    borders,
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
    from collections.abc import Callable, Iterable
    from types import ModuleType

_MODULES: Final[tuple[ModuleType, ...]] = (
    borders, collector, cutter, detection, fragments, link, model, payloads, reassembly, resync, summary, wanted,
)  # fmt: skip
_CLASSES: Final[list[Any]] = sorted(
    {
        ApiKey,
        *(
            value
            for module in _MODULES
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__ == module.__name__ and not issubclass(value, BaseException)
        ),
    },
    key=lambda kind: (kind.__module__, kind.__qualname__),
)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_CLASSES)}
_MANY: Final[dict[bytes, Callable[[Iterable[Any]], Any]]] = {b"t": tuple, b"z": frozenset}
_FILLED: Final[dict[bytes, type]] = {b"l": list, b"d": dict, b"c": Counter, b"q": deque, b"e": set}
_TAGS: Final = {kind: tag for tag, kind in {**_FILLED, b"t": tuple, b"z": frozenset}.items()}
_NUMBER: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">cq")
_KNOWN: Final = struct.Struct(">cI")
_REAL: Final = struct.Struct(">d")
_LENGTH: Final = struct.Struct(">I")
_MISSING: Final = object()


def freeze(objects: object) -> bytes | None:
    """Return objects as bytes; None if they hold one another so deeply that it gives up."""
    out = _Out()
    try:
        out.add(objects)
    except RecursionError:
        return None
    return b"".join(out.parts)


def thaw(data: bytes) -> Any:
    """Return the objects that ``freeze`` was given.

    Raises:
        ValueError: The bytes are none of ``freeze``, or of another version of kproto.
    """
    found = _In(data)
    try:
        value = found.take()
    except Exception as e:
        raise ValueError(f"this state cannot be read ({type(e).__name__}: {e})") from e
    if found.at != len(data):
        raise ValueError("this state cannot be read (there is more behind it)")
    return value


class _Out:
    """Writes values; an object that was written before is named by its number."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._known: dict[int, tuple[int, Any]] = {}  # by identity: number, and the object, so that it stays alive
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}  # of fields: written once

    def add(self, value: Any) -> None:
        parts = self.parts
        kind = type(value)
        if kind is int:
            if -1 << 63 <= value < 1 << 63:
                parts.append(_INT.pack(b"i", value))
            else:
                self._sized(b"I", str(value).encode())
        elif value is None or kind is bool:
            parts.append(b"n" if value is None else b"1" if value else b"0")
        elif kind is float:
            parts += (b"f", _REAL.pack(value))
        elif id(value) in self._known:
            parts.append(_KNOWN.pack(b"r", self._known[id(value)][0]))
        elif kind is str:
            self._sized(b"s", value.encode("utf-8", "surrogatepass"))
            self._remember(value)
        elif kind is bytes or kind is bytearray:
            self._sized(b"b" if kind is bytes else b"B", bytes(value))
            self._remember(value)
        elif kind in _TAGS:
            self._many(_TAGS[kind], value)
        elif issubclass(kind, IntEnum):
            parts += (b"E", _LENGTH.pack(_NUMBERS[kind]), _NUMBER.pack(value))
        elif issubclass(kind, tuple):
            parts += (b"T", _LENGTH.pack(_NUMBERS[kind]))
            self.add(tuple(value))
            self._remember(value)
        elif kind is payloads.SharedPayload:
            parts.append(b"P")
            self.add(value.__reduce__()[1])
            self._remember(value)
        else:
            self._remember(value)
            fields = {} if kind is payloads.PayloadStore else _values(value)
            parts += (b"o", _LENGTH.pack(_NUMBERS[kind]))
            names = tuple(fields)
            self.add(self._names.setdefault(names, names))
            for field in fields.values():
                self.add(field)

    def _sized(self, tag: bytes, data: bytes) -> None:
        self.parts += (tag, _LENGTH.pack(len(data)), data)

    def _many(self, tag: bytes, value: Any) -> None:
        if tag in _FILLED:
            self._remember(value)
        self.parts += (tag, _LENGTH.pack(len(value)))
        for item in value.items() if isinstance(value, dict) else value:
            if isinstance(value, dict):
                self.add(item[0])
                self.add(item[1])
            else:
                self.add(item)
        if tag not in _FILLED:
            self._remember(value)

    def _remember(self, value: Any) -> None:
        self._known[id(value)] = len(self._known), value


class _In:
    """Reads values.

    Attributes:
        at: How many bytes were read.
    """

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data
        self._known: list[Any] = []
        self._sizes: dict[int, int] = {}  # by identity: the values that are compared with a value, one by one
        self._most = 65_536 + 16 * len(data)

    def take(self) -> Any:
        tag = self._bytes(1)
        match tag:
            case b"n":
                return None
            case b"0" | b"1":
                return tag == b"1"
            case b"i":
                return _NUMBER.unpack(self._bytes(8))[0]
            case b"I":
                return int(self._bytes(min(self._count(), 100)))
            case b"f":
                return _REAL.unpack(self._bytes(8))[0]
            case b"r":
                return self._known[self._count()]
            case b"s":
                return self._kept(self._bytes(self._count()).decode("utf-8", "surrogatepass"))
            case b"b":
                return self._kept(self._bytes(self._count()))
            case b"B":
                return self._kept(bytearray(self._bytes(self._count())))
            case b"t" | b"z":
                count = self._count()
                return self._kept(self._sized(_MANY[tag]([self.take() for _ in range(count)])))
            case b"E":
                kind = self._class(IntEnum)
                return kind(_NUMBER.unpack(self._bytes(8))[0])
            case b"T":
                kind = self._class(tuple)
                return self._kept(self._sized(kind(*self.take())))
            case b"P":
                store, (size, start), parts, released = self.take()
                if type(store) is not payloads.PayloadStore or type(size) is not int or not isinstance(start, bytes):
                    raise ValueError("no payload")
                if sum(map(len, parts)) > size:
                    raise ValueError("a payload that is longer than it says")
                return self._kept(payloads.payload_again(store, (size, start), parts, bool(released)))
            case b"o":
                return self._object()
            case _ if tag in _FILLED:
                return self._filled(tag)
        raise ValueError(f"no tag {tag!r}")

    def _object(self) -> Any:
        kind = self._class(object)
        if issubclass(kind, (tuple, int)) or kind is payloads.SharedPayload:
            raise ValueError(f"{kind.__name__} is no object with fields")
        blank: Any = payloads.PayloadStore() if kind is payloads.PayloadStore else kind.__new__(kind)
        self._known.append(blank)
        allowed = _attributes(kind)
        for name in self.take():
            if name not in allowed:
                raise ValueError(f"{kind.__name__} has no field {name!r}")
            object.__setattr__(blank, name, self.take())
        if kind.__eq__ is not object.__eq__:
            self._sized(blank, _values(blank).values())
        if kind is reassembly.Stream and not 0 <= blank._held_from <= len(blank._held or ()):
            raise ValueError("a stream that holds less than it says")  # compiled code goes by that number
        return blank

    def _filled(self, tag: bytes) -> Any:
        count = self._count()
        made: Any = _FILLED[tag]()
        self._known.append(made)
        for _ in range(count):
            if isinstance(made, dict):
                key = self.take()
                made[key] = self.take()
            elif isinstance(made, set):
                made.add(self.take())
            else:
                made.append(self.take())
        return self._sized(made, (*made.keys(), *made.values()) if isinstance(made, dict) else made)

    def _sized(self, value: Any, items: Iterable[Any] | None = None) -> Any:
        """Note how much a comparison of a value, or its hash, goes through: what it holds twice it goes through twice.

        Raises:
            ValueError: That is far more than the bytes that it was read from.
        """
        size = 1 + sum(self._sizes.get(id(item), 1) for item in (value if items is None else items))
        if size > self._most:
            raise ValueError("values that hold one another too often")
        self._sizes[id(value)] = size
        return value

    def _class(self, base: type) -> Any:
        kind = _CLASSES[self._count()]
        if not issubclass(kind, base):
            raise TypeError(f"{kind.__name__} stands in a wrong place")
        return kind

    def _kept(self, value: Any) -> Any:
        self._known.append(value)
        return value

    def _count(self) -> int:
        count: int = _LENGTH.unpack(self._bytes(4))[0]
        return count

    def _bytes(self, count: int) -> bytes:
        found = self._data[self.at : self.at + count]
        if len(found) != count:
            raise ValueError("it ends too early")
        self.at += count
        return found


def _values(given: Any) -> dict[str, Any]:
    kind: Any = type(given)
    names = _attributes(kind)
    return {name: each for name in names if (each := getattr(given, name, _MISSING)) is not _MISSING}


@cache
def _attributes(kind: Any) -> dict[str, None]:
    """The fields of a class: slots, fields where it is compiled, and what its ``__init__`` sets; nothing computed."""
    blank = kind.__new__(kind)
    names: dict[str, None] = {}
    for name, value in ((name, value) for each in kind.__mro__ for name, value in vars(each).items()):
        if isinstance(value, MemberDescriptorType):
            names[name] = None
        elif isinstance(value, GetSetDescriptorType) and not name.startswith("__"):
            try:
                setattr(blank, name, getattr(blank, name))
            except Exception:  # noqa: BLE001, S112  # it is computed
                continue
            names[name] = None
    for each in kind.__mro__:
        init = getattr(each.__init__, "__code__", None)
        set_there = [*getattr(each, "__dataclass_fields__", ()), *(init.co_names if init else ())]
        names |= {
            name: None
            for name in set_there
            if not hasattr(kind, name) or name in getattr(kind, "__dataclass_fields__", ())
        }
    return names
