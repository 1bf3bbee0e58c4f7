"""Names for frames and bodies that depend on nothing but what was sent: 16 bytes of blake2b.

The same capture gives the same ids whatever way it is split, and the same body has one id however many brokers got it.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final

from kproto.prefix import prefix_of

if TYPE_CHECKING:
    from kproto.types import Buffer

__all__ = ["body_id", "frame_id"]

_BODY_KEY: Final = Struct(">hh?")
_OFFSET: Final = Struct(">q")
_ZERO_EPOCH: Final = bytes(8)


def frame_id(capture: str, conn_id: bytes, direction: str, offset: int) -> bytes:
    """The id of the frame that begins at a byte of one direction of a connection.

    Args:
        capture: The capture point.
        conn_id: The connection.
        direction: ``req`` or ``resp``.
        offset: Of its first byte in that direction's stream.
    """
    return blake2b(
        b"\0".join((capture.encode("utf-8", "surrogateescape"), conn_id, direction.encode(), _OFFSET.pack(offset))),
        digest_size=16,
    ).digest()


def body_id(api_key: int, version: int, direction: str, body: Buffer) -> bytes:
    """The id of a body: equal bodies to many brokers share it, whatever the broker epoch in them."""
    view = memoryview(body).cast("B")
    hasher = blake2b(_BODY_KEY.pack(api_key, version, direction == "req"), digest_size=16)
    prefix = prefix_of(api_key, version) if direction == "req" else None
    at = prefix.broker_epoch_at if prefix else None
    if at is not None and len(view) >= at + 8:
        hasher.update(view[:at])
        hasher.update(_ZERO_EPOCH)
        view = view[at + 8 :]
    hasher.update(view)
    return hasher.digest()
