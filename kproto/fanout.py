"""One request for many brokers: encoded once, each broker its own few bytes in front of what all share.

A controller sends the same UpdateMetadata to every broker; only the correlation id and the broker's epoch differ, and
both stand within the first hundred bytes. ``Fanout`` encodes the message once and gives, for each broker, its own start
and a view of the shared rest, to be sent by ``socket.sendmsg`` without a copy.

>>> from kproto import UpdateMetadataRequest
>>> shared = Fanout(UpdateMetadataRequest(controller_id=1), 8, client_id="1")
>>> [len(buffer) for buffer in shared.buffers(7, broker_epoch=25)]
[33, 3]
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from .codec import encode
from .headers import encode_request_header, request_header
from .prefix import prefix_of

if TYPE_CHECKING:
    from .codec import Message

__all__ = ["Fanout"]

_MAX_FRAME = 2**31 - 1


class Fanout:
    """A control request, encoded once, to be sent to many brokers.

    Args:
        message: A LeaderAndIsr, StopReplica or UpdateMetadata request. Later changes to it do not reach the bytes.
        version: The version to write, the same for all brokers.
        client_id: As it stands in every header; None for null.

    Attributes:
        api_key, version: Of the request.
        body: The encoded body, with the message's own broker epoch.
        broker_epoch: The message's own, for brokers that are given none; None where the version has no such field.

    Raises:
        EncodeError: As ``encode``.
        ValueError: No control request, or one too large for a frame.
    """

    __slots__ = ("_lead", "_rest", "_start", "_struct", "api_key", "body", "broker_epoch", "version")

    def __init__(self, message: Message, version: int, *, client_id: str | None = "") -> None:
        prefix = prefix_of(message.api_key, version) if message.kind == "request" else None
        self.api_key = int(message.api_key)
        self.version = version
        self.body = encode(message, version)
        if prefix is None:
            raise ValueError("only control requests differ between brokers by their broker epoch alone")
        header = encode_request_header(request_header(self.api_key, version, 0, client_id))
        size = len(header) + len(self.body)
        if size > _MAX_FRAME:
            raise ValueError(f"a request of {size} bytes does not fit a frame")
        # size, api key, version | correlation id | client id, header's tags, fields up to the epoch | broker epoch
        self._lead = size.to_bytes(4) + header[:4]
        start, self.broker_epoch, self._rest = prefix.cut(self.body)
        self._start = header[8:] + start
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
