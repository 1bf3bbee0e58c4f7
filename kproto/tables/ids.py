"""Computes the ids of frames and bodies, 16 bytes of blake2b over nothing but the bytes and their place.

The same capture gives the same ids however it is split, and a body has the same id however many brokers got it.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final

from kproto.prefix import prefix_of

if TYPE_CHECKING:
    from kproto.capture import Frame
    from kproto.types import Buffer

_BODY_KEY: Final = Struct(">hh?")
_OFFSET: Final = Struct(">q")
_ZERO_EPOCH: Final = bytes(8)


class FrameIds:
    """The ids of the frames in one direction of a connection.

    Args:
        capture: The capture point.
        conn_id: The connection.
        direction: ``request`` or ``response``.
    """

    def __init__(self, capture: str, conn_id: bytes, direction: str) -> None:
        side = b"req" if direction == "request" else b"resp"
        self._place = b"\0".join((capture.encode("utf-8", "surrogateescape"), conn_id, side, b""))

    def of(self, offset: int) -> bytes:
        """The id of the frame whose first byte stands at an offset of the stream."""
        return blake2b(self._place + _OFFSET.pack(offset), digest_size=16).digest()


def frame_id(capture: str, conn_id: bytes, direction: str, offset: int) -> bytes:
    """Return the id of the frame that begins at a byte of one direction of a connection.

    Args:
        capture, conn_id, direction: See ``FrameIds``.
        offset: The place of its first byte in that direction's stream.
    """
    return FrameIds(capture, conn_id, direction).of(offset)


def body_id(api_key: int, version: int, direction: str, body: Buffer) -> bytes:
    """Return the id of a body: equal bodies to many brokers share it, whatever their broker epoch."""
    return _begin_body(api_key, version, direction, memoryview(body).cast("B")).digest()


def frame_body_id(frame: Frame, api_key: int, version: int) -> bytes:
    """Return the id of a whole frame's body; of equal large bodies it is computed once."""
    start = _begin_body(api_key, version, frame.direction, memoryview(frame.start)[frame.body_at :])
    return start.digest() if isinstance(frame.content, bytes) else frame.content.digest(start)


def _begin_body(api_key: int, version: int, direction: str, start: memoryview) -> blake2b:
    """Begin a body's hash with its first bytes, at least those up to its broker epoch."""
    hasher = blake2b(_BODY_KEY.pack(api_key, version, direction == "request"), digest_size=16)
    prefix = prefix_of(api_key, version) if direction == "request" else None
    at = prefix.broker_epoch_at if prefix else None
    if at is not None and len(start) >= at + 8:
        hasher.update(start[:at])
        hasher.update(_ZERO_EPOCH)
        start = start[at + 8 :]
    hasher.update(start)
    return hasher
