"""One control request for many brokers: encoded once, with a few bytes of its own in front for each broker.

A controller sends the same UpdateMetadata to every broker; only the correlation id and the broker epoch differ, and
both stand within the first hundred bytes. ``SharedBody`` holds the encoded body once and gives each broker's body in
pieces; ``Fanout`` puts the frame's size and the header before them. The pieces are meant for ``socket.sendmsg``: the
bytes that brokers share are never copied.

>>> from kproto import UpdateMetadataRequest
>>> fanout = Fanout(UpdateMetadataRequest(controller_id=1), 8, client_id="1")
>>> [len(piece) for piece in fanout.buffers(7, broker_epoch=25)]
[33, 3]
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from .codec import encode
from .headers import encode_request_header, request_header
from .prefix import prefix_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .codec import Message

_MAX_FRAME: Final = 2**31 - 1
_int64_bytes: Final = struct.Struct(">q").pack


class SharedBody:
    """An encoded control request, held once for brokers that differ in the broker epoch alone.

    Args:
        api_key, version: Of the request.
        body: Its encoded body, in pieces that follow each other; the first holds the broker epoch.

    Attributes:
        api_key, version: Of the request.
        start: The bytes before the broker epoch.
        broker_epoch: The broker epoch in ``body``; None where the version has no such field.
        rest: The pieces behind the broker epoch: views, not copies.

    Raises:
        ValueError: No control request, or a version that has no known layout.
    """

    __slots__ = ("api_key", "broker_epoch", "rest", "start", "version")

    def __init__(self, api_key: int, version: int, body: Sequence[bytes]) -> None:
        prefix = prefix_of(api_key, version)
        if prefix is None:
            raise ValueError("only control requests differ between brokers by their broker epoch alone")
        self.api_key: int = int(api_key)
        self.version: int = version
        self.start, self.broker_epoch, first = prefix.cut(body[0])
        self.rest: tuple[bytes | memoryview, ...] = (first, *body[1:])

    def pieces(self, broker_epoch: int) -> tuple[bytes | memoryview, ...]:
        """One broker's whole body: a short start of its own, and the pieces that all brokers share.

        A version without the field has no place for ``broker_epoch`` and drops it, as encoding does.

        Raises:
            struct.error: ``broker_epoch`` is no int64.
        """
        own = self.start if self.broker_epoch is None else self.start + _int64_bytes(broker_epoch)
        return own, *self.rest


class Fanout:
    """A control request, encoded once, as whole frames for many brokers.

    Args:
        message: A LeaderAndIsr, StopReplica or UpdateMetadata request. Later changes to it do not reach the bytes.
        version: The version to write, the same for all brokers.
        client_id: As it stands in every header; None for null.

    Attributes:
        api_key, version: Of the request.
        body: The encoded body, with the message's own broker epoch.
        broker_epoch: The message's own; None where the version has no such field.

    Raises:
        EncodeError: As ``encode``.
        ValueError: No control request, or one too large for a frame.
    """

    __slots__ = ("_lead", "_rest", "_start", "_struct", "api_key", "body", "broker_epoch", "version")

    def __init__(self, message: Message, version: int, *, client_id: str | None = "") -> None:
        self.body: bytes = encode(message, version)
        if message.kind != "request":
            raise ValueError(f"a {message.kind} is for one peer; only control requests can be shared by brokers")
        shared = SharedBody(message.api_key, version, [self.body])
        self.api_key, self.version, self.broker_epoch = shared.api_key, version, shared.broker_epoch
        header = encode_request_header(request_header(self.api_key, version, 0, client_id))
        size = len(header) + len(self.body)
        if size > _MAX_FRAME:
            raise ValueError(f"a request of {size} bytes does not fit a frame")
        # size, api key, version | correlation id | client id, header's tags, fields up to the epoch | broker epoch
        self._lead = size.to_bytes(4) + header[:4]
        self._start = header[8:] + shared.start
        self._rest = shared.rest[0]
        self._struct = struct.Struct(f">8si{len(self._start)}s{'' if self.broker_epoch is None else 'q'}")

    def buffers(self, correlation_id: int, broker_epoch: int | None = None) -> list[bytes | memoryview]:
        """One broker's whole frame: its own bytes, and the view that all brokers share.

        Args:
            correlation_id: int32.
            broker_epoch: int64; None for the message's own. Versions without the field have no place for one and
                drop it, as encoding does.

        Raises:
            ValueError: A number that its field cannot hold.
        """
        if broker_epoch is None:
            broker_epoch = self.broker_epoch
        try:
            if self.broker_epoch is None:
                return [self._struct.pack(self._lead, correlation_id, self._start), self._rest]
            return [self._struct.pack(self._lead, correlation_id, self._start, broker_epoch), self._rest]
        except struct.error:
            raise ValueError(
                f"correlation id {correlation_id!r} or broker epoch {broker_epoch!r} is no int32 or int64"
            ) from None

    @property
    def frame_size(self) -> int:
        """Bytes of each broker's frame, the size field included."""
        return self._struct.size + len(self._rest)
