"""Computes the ids of bodies: 16 bytes of blake2b, the same however many brokers got the body.

The ids of frames are those of ``kproto.capture.Frame``.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final

from kproto.prefix import prefix_of

if TYPE_CHECKING:
    from kproto.capture import Frame

_BODY_KEY: Final = Struct(">hh?")
_ZERO_EPOCH: Final = bytes(8)


def frame_body_id(frame: Frame, api_key: int, version: int) -> bytes:
    """Return the id of a whole frame's body: equal bodies to many brokers share it, whatever their broker epoch.

    Of equal large bodies it is computed once.
    """
    hasher = blake2b(_BODY_KEY.pack(api_key, version, frame.direction == "request"), digest_size=16)
    prefix = prefix_of(api_key, version) if frame.direction == "request" else None
    at = prefix.broker_epoch_at if prefix else None
    start = memoryview(frame.start)[frame.body_at :]  # at least the bytes up to the broker epoch
    if at is not None and len(start) >= at + 8:
        hasher.update(start[:at])
        hasher.update(_ZERO_EPOCH)
        start = start[at + 8 :]
    hasher.update(start)
    return hasher.digest() if isinstance(frame.content, bytes) else frame.content.digest(hasher)
