"""What waits in a broker's queue: a control request, encoded at most once.

A full UpdateMetadata differs between brokers in the broker epoch alone. ``SharedUpdateMetadata`` holds what is the same
for all of them once, as bytes, however many queues it waits in.
"""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Any, Final

from kproto import _codec
from kproto._codec import Columns, UpdateMetadataRequest, encode_columns
from kproto.api import ApiKey, api_name, check_version
from kproto.codec import decode_request, encode
from kproto.errors import UnsupportedVersion
from kproto.prefix import prefix_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel.network.transport import Bytes
    from kproto.codec import Message

__all__ = ["ControlRequest", "ListenerNotExpressible", "SharedUpdateMetadata", "SingleRequest"]

_KNOWN: Final[set[tuple[int, int]]] = set()
_BROKER_EPOCH: Final = struct.Struct(">q")


class ListenerNotExpressible(UnsupportedVersion):
    """UpdateMetadata 1 and 2 name a listener by its security protocol, so it must be called like it."""

    def __init__(self, version: int, broker_id: int, listener: str) -> None:
        super().__init__(ApiKey.UPDATE_METADATA, version, f"listener {listener} of broker {broker_id}")
        self.broker_id = broker_id
        self.listener = listener

    def __str__(self) -> str:
        return (
            f"UpdateMetadata {self.version} cannot name listener {self.listener} of broker {self.broker_id}; "
            "call it as its security protocol, or raise inter.broker.protocol.version to 0.10.2"
        )


class ControlRequest:
    """One request for one broker; its version is fixed, as a controller never negotiates.

    It is what a network client calls a request builder.

    Attributes:
        api_key: Whose request.
        oldest_version, latest_version: The one version it is written in.
        controller_epoch, broker_epoch: What it says of them, for the log; -1 for no broker epoch.
    """

    __slots__ = ("api_key", "broker_epoch", "controller_epoch", "latest_version", "oldest_version")

    def __init__(self, api_key: int, version: int, controller_epoch: int, broker_epoch: int) -> None:
        if (api_key, version) not in _KNOWN:
            check_version(api_key, version)
            _KNOWN.add((int(api_key), version))
        self.api_key = int(api_key)
        self.oldest_version = self.latest_version = version
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch

    @property
    def message(self) -> Any:
        """The message. Once it is built it is read back from the bytes, so it holds what the version can express."""
        raise NotImplementedError

    def build(self, version: int) -> Sequence[Bytes]:
        """The body in pieces, to be sent one after the other; encoded at the first call.

        Raises:
            EncodeError, UnsupportedVersion: The message does not fit the version.
        """
        raise NotImplementedError

    def __str__(self) -> str:
        return (
            f"{api_name(self.api_key)} v{self.latest_version} (controller epoch {self.controller_epoch}, "
            f"broker epoch {self.broker_epoch})"
        )


class SingleRequest(ControlRequest):
    """A message that goes to one broker.

    Args:
        message: Any control request of either codec.
        version: The version to write it in.
    """

    __slots__ = ("_body", "_message")

    def __init__(self, message: Message, version: int) -> None:
        m: Any = message
        super().__init__(m.api_key, version, m.controller_epoch, m.broker_epoch)
        self._message: Any = message
        self._body: tuple[bytes] | None = None

    @property
    def message(self) -> Any:
        """The message itself until it is built."""
        message, body = self._message, self._body
        return message if body is None else decode_request(self.api_key, self.latest_version, body[0])

    def build(self, version: int) -> Sequence[Bytes]:
        """The whole body in one piece; the message is let go."""
        if self._body is None:
            message = self._message
            self._body = (
                _codec.encode(message, version) if isinstance(message, _codec.Message) else encode(message, version),
            )
            self._message = None
        return self._body


class SharedUpdateMetadata:
    """The part of an UpdateMetadata request that is the same for every broker.

    Args:
        version: The version to write it in.
        message: What stands around the partitions; its broker epoch is replaced for each broker.
        columns: The partitions.
    """

    def __init__(self, version: int, message: UpdateMetadataRequest, columns: Columns) -> None:
        self.version = version
        self.controller_epoch = message.controller_epoch
        self._unwritten: tuple[UpdateMetadataRequest, Columns] | None = (message, columns)
        self._lock = threading.Lock()
        self._pieces: tuple[bytes, memoryview] = (b"", memoryview(b""))
        prefix = prefix_of(ApiKey.UPDATE_METADATA, version)
        assert prefix is not None
        self._prefix = prefix

    def for_broker(self, broker_epoch: int) -> ControlRequest:
        """The request for one broker."""
        return _SharedRequest(self, broker_epoch)

    def pieces(self, broker_epoch: int) -> Sequence[Bytes]:
        """The body for one broker: its own start, and the rest that all share; encoded by the first who asks."""
        if self._unwritten is not None:
            self._write()
        start, rest = self._pieces
        if self._prefix.broker_epoch_at is None:
            return (start, rest)
        return (start + _BROKER_EPOCH.pack(broker_epoch), rest)

    def _write(self) -> None:
        with self._lock:
            if self._unwritten is None:
                return  # another broker's thread was first
            message, columns = self._unwritten
            check_listeners(message, self.version)
            body = encode_columns(message, self.version, columns)
            at = self._prefix.size if self._prefix.broker_epoch_at is None else self._prefix.broker_epoch_at
            self._pieces = (body[:at], memoryview(body)[self._prefix.size :])
            self._unwritten = None

    def message(self, broker_epoch: int) -> UpdateMetadataRequest:
        """The message for one broker."""
        unwritten = self._unwritten
        if unwritten is None:
            body = b"".join(self.pieces(broker_epoch))
            read: UpdateMetadataRequest = decode_request(ApiKey.UPDATE_METADATA, self.version, body)
            return read
        around, columns = unwritten
        message = UpdateMetadataRequest.from_columns(columns, self.version, around)
        message.broker_epoch = broker_epoch
        return message


class _SharedRequest(ControlRequest):
    __slots__ = ("_shared",)

    def __init__(self, shared: SharedUpdateMetadata, broker_epoch: int) -> None:
        super().__init__(ApiKey.UPDATE_METADATA, shared.version, shared.controller_epoch, broker_epoch)
        self._shared = shared

    @property
    def message(self) -> UpdateMetadataRequest:
        return self._shared.message(self.broker_epoch)

    def build(self, version: int) -> Sequence[Bytes]:
        return self._shared.pieces(self.broker_epoch)


def check_listeners(message: UpdateMetadataRequest, version: int) -> None:
    """Refuse listeners that the version cannot name.

    Raises:
        ListenerNotExpressible: The first such listener.
    """
    if version not in (1, 2):
        return
    from .types import SecurityProtocol

    for broker in message.live_brokers:
        for endpoint in broker.endpoints:
            if endpoint.listener != SecurityProtocol(endpoint.security_protocol).name:
                raise ListenerNotExpressible(version, broker.id, endpoint.listener)
