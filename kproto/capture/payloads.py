"""Payloads of large requests: what several of them have in common is held in memory once.

A controller sends the same update of many megabytes to all brokers at once, and only the beginnings differ. A payload
is cut into chunks of fixed places; payloads of equal size that are equal up to a chunk share that chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable
    from hashlib import blake2b

SHARED_FROM: Final = 64 << 10
"""Payloads of fewer bytes are not shared."""

_HEAD: Final = 512
"""The number of first bytes that payloads do not share: they hold the header and the broker epoch."""

LONGEST_HEADER: Final = _HEAD - 32
"""Payloads with more bytes before the body are not shared."""

_CHUNK: Final = 32 << 10

_RECENT: Final = 64 << 20
"""The bytes of released payloads that are kept, since the next ones are often equal."""

_OVERHEAD: Final = 400
"""Estimated memory of a payload without its bytes, and of a chunk, in bytes."""


_Key: TypeAlias = tuple[int, bytes]
"""Size of a payload, and its first bytes: API key and version."""


class _Chunk:
    """Bytes at one place of payloads that are equal up to the chunk's end, but for their heads.

    Attributes:
        data: The bytes.
        parent: The chunk before it; None of the first, which is empty.
        children: The chunks that follow in different payloads, by their bytes.
        latest: The child that was used last.
        users: How many payloads hold it.
        digests: Of payloads that end with this chunk: results of ``SharedPayload.digest``.
    """

    __slots__ = ("children", "data", "digests", "latest", "parent", "users")

    def __init__(self, data: bytes, parent: _Chunk | None) -> None:
        self.data = data
        self.parent = parent
        self.children: dict[bytes, _Chunk] = {}
        self.latest: _Chunk | None = None
        self.users = 0
        self.digests: dict[bytes, bytes] = {}


class PayloadStore:
    """The chunks of the payloads that are held at the moment, and of some that were released.

    Attributes:
        held_bytes: Their memory in bytes.
    """

    def __init__(self) -> None:
        self.held_bytes: int = 0
        self._first: dict[_Key, _Chunk] = {}
        self._recent: dict[_Chunk, _Key] = {}  # last chunks of released payloads, the longest released first
        self._recent_bytes = 0

    def __reduce__(self) -> tuple[type[PayloadStore], tuple[()]]:
        return PayloadStore, ()  # pickled payloads bring their chunks; released ones are not worth their bytes

    def begin(self, size: int, start: bytes) -> SharedPayload:
        """Begin a payload.

        Args:
            size: Its size in bytes.
            start: Its first bytes, API key and version: others do not share with it.
        """
        key = size, start
        first = self._first.get(key)
        if first is None:
            first = self._first[key] = _Chunk(b"", None)
        first.users += 1
        return SharedPayload(self, key, size, first)

    def follow(self, parent: _Chunk, data: bytearray) -> _Chunk:
        """The chunk with these bytes after another chunk, with one more reference."""
        chunk = parent.latest
        if chunk is None or chunk.data != data:  # a comparison is quicker than a hash
            own = bytes(data)
            chunk = parent.children.get(own)
            if chunk is None:
                chunk = parent.children[own] = _Chunk(own, parent)
                self.held_bytes += len(own) + _OVERHEAD
        parent.latest = chunk
        chunk.users += 1
        return chunk

    def end(self, key: _Key, last: _Chunk, *, is_whole: bool) -> None:
        """Release a payload that ends with a chunk: at once, or later if an equal one may come again."""
        if last in self._recent:
            self._recent[last] = self._recent.pop(last)
        elif is_whole and key[0] <= _RECENT:
            self._recent[last] = key
            self._recent_bytes += key[0]
            while self._recent_bytes > _RECENT:
                self._forget(next(iter(self._recent)))
            return
        self._end(key, last)

    def forget(self) -> None:
        """Forget the released payloads."""
        while self._recent:
            self._forget(next(iter(self._recent)))

    def _forget(self, last: _Chunk) -> None:
        key = self._recent.pop(last)
        self._recent_bytes -= key[0]
        self._end(key, last)

    def _end(self, key: _Key, last: _Chunk) -> None:
        """Release the last chunk of a payload, and those before it."""
        chunk: _Chunk | None = last
        while chunk is not None:
            parent = chunk.parent
            chunk.users -= 1
            if not chunk.users and parent is None:
                del self._first[key]
            elif not chunk.users and parent is not None:
                self.held_bytes -= len(chunk.data) + _OVERHEAD
                del parent.children[chunk.data]
                if parent.latest is chunk:
                    parent.latest = next(reversed(parent.children.values()), None)
            chunk = parent


class SharedPayload:
    """The payload of a large request, whole or as far as it has come.

    It counts in its store until it is released, and can be read after that.
    """

    __slots__ = ("_head", "_key", "_last", "_length", "_own", "_released", "_size", "_store")

    def __init__(self, store: PayloadStore, key: _Key, size: int, first: _Chunk) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._head = b""
        self._last = first
        self._own = bytearray()  # the bytes after the last chunk
        self._length = 0
        self._released = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Chunks that several pickled payloads share are pickled once: they are the same objects."""
        return payload_again, (self._store, self._key, tuple(map(bytes, self._parts())), self._released)

    def __len__(self) -> int:
        """The bytes that have come."""
        return self._length

    def __bytes__(self) -> bytes:
        return b"".join(self._parts())

    @property
    def missing(self) -> int:
        """How many bytes are still to come."""
        return self._size - self._length

    @property
    def head(self) -> bytes:
        """The first bytes, with header and broker epoch."""
        return self._head

    @property
    def held_bytes(self) -> int:
        """Memory in bytes, without the chunks."""
        return len(self._head) + len(self._own) + _OVERHEAD

    def append(self, buffer: bytes, begin: int, end: int) -> None:
        """Take the next bytes, at most the missing ones."""
        self._length += end - begin
        if len(self._head) < _HEAD:
            stop = min(end, begin + _HEAD - len(self._head))
            self._head += buffer[begin:stop]
            begin = stop
        while begin < end:
            stop = min(end, begin + _CHUNK - len(self._own))
            self._own += buffer[begin:stop]
            if len(self._own) == _CHUNK:
                self._seal()
            begin = stop
        if self._own and not self.missing:
            self._seal()

    def release(self) -> None:
        """Count no longer in the store."""
        if not self._released:
            self._released = True
            self._store.end(self._key, self._last, is_whole=not self.missing)

    def digest(self, hasher: blake2b) -> bytes:
        """The digest of a hash's input so far and the payload after its head, computed once for equal payloads."""
        start = hasher.digest()
        digests = self._last.digests
        digest = digests.get(start)
        if digest is None:
            for part in self._parts()[1:]:
                hasher.update(part)
            digest = hasher.digest()
            if not self.missing:
                digests[start] = digest
        return digest

    def _seal(self) -> None:
        """Make a chunk of the payload's own bytes."""
        self._last = self._store.follow(self._last, self._own)
        self._own.clear()

    def _parts(self) -> list[bytes | bytearray]:
        parts: list[bytes | bytearray] = [self._own]
        chunk: _Chunk | None = self._last
        while chunk is not None:
            parts.append(chunk.data)
            chunk = chunk.parent
        parts.append(self._head)
        parts.reverse()
        return parts


def payload_again(store: PayloadStore, key: _Key, parts: Iterable[bytes], is_released: bool) -> SharedPayload:
    """Return a payload that was pickled: it shares again with equal ones of its store."""
    payload = store.begin(*key)
    for part in parts:
        payload.append(part, 0, len(part))
    if is_released:
        payload.release()
    return payload


Payload: TypeAlias = bytes | SharedPayload
"""Header and body of a frame."""
