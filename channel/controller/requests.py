"""What waits in a broker's queue: a control request, encoded at most once.

Requests with the same content differ between brokers in the broker epoch alone. ``SharedBody`` holds what is the same
once, as bytes, however many queues it waits in.
"""

from __future__ import annotations

import struct
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from channel.types import SecurityProtocol
from kproto import _codec
from kproto.api import ApiKey, api_name, check_version
from kproto.codec import decode_request, encode
from kproto.errors import UnsupportedVersion
from kproto.prefix import prefix_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel.network.transport import Bytes
    from kproto._codec import UpdateMetadataRequest
    from kproto.codec import Message

__all__ = ["ControlRequest", "ListenerNotExpressible", "SharedBody", "SharedRequest", "SingleRequest"]

_KNOWN: Final[set[tuple[int, int]]] = set()
_LISTENERS_BY_PROTOCOL: Final = ((ApiKey.UPDATE_METADATA, 1), (ApiKey.UPDATE_METADATA, 2))  # and not by its name
_broker_epoch_bytes: Final = struct.Struct(">q").pack


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

    api_key: int
    broker_epoch: int
    controller_epoch: int
    latest_version: int
    oldest_version: int

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

    __slots__ = ("_body", "_message", "_shared")

    def __init__(self, message: Message, version: int) -> None:
        m: Any = message
        api_key = m.api_key
        if (api_key, version) not in _KNOWN:
            check_version(api_key, version)
            _KNOWN.add((int(api_key), version))
        self.api_key = int(api_key)
        self.oldest_version = self.latest_version = version
        self.controller_epoch = m.controller_epoch
        self.broker_epoch = m.broker_epoch
        self._message: Any = m
        self._body: tuple[bytes] | None = None
        self._shared: SharedBody | None = None

    def for_broker(self, broker_epoch: int) -> ControlRequest:
        """The same request for another broker; with this one's body if it is built."""
        if self._shared is None:
            if self._body is None:
                message = copy(self._message)
                message.broker_epoch = broker_epoch
                return SingleRequest(message, self.latest_version)
            self._shared = SharedBody(self, self.latest_version, self._body)
        return SharedRequest(self._shared, broker_epoch)

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


class SharedBody:
    """What requests for several brokers share: all but the broker epoch.

    Args:
        around: Whose body it is: tells the api key, the controller epoch and the live brokers.
        version: The version it is written in.
        body: The encoded message, in pieces that follow each other.

    Attributes:
        api_key, version, controller_epoch: Of the request.
        start: The body's bytes before the broker epoch.
        has_epoch: Whether the version has a broker epoch.
        rest: The pieces behind it.
        doubtful: The message, if the version might not be able to say it; None if it is.
    """

    __slots__ = ("api_key", "controller_epoch", "doubtful", "has_epoch", "rest", "start", "version")

    def __init__(self, around: Any, version: int, body: Sequence[bytes]) -> None:
        self.api_key = int(around.api_key)
        self.version = version
        self.controller_epoch = around.controller_epoch
        prefix = prefix_of(self.api_key, version)
        assert prefix is not None
        self.start, epoch, rest = prefix.cut(body[0])
        self.has_epoch = epoch is not None
        self.rest: tuple[Bytes, ...] = (rest, *body[1:])
        self.doubtful = around if (self.api_key, version) in _LISTENERS_BY_PROTOCOL else None


class SharedRequest(ControlRequest):
    """One broker's request of several that are alike.

    Args:
        shared: What it shares with those for others.
        broker_epoch: The broker's.
    """

    __slots__ = ("_doubtful", "_pieces")

    def __init__(self, shared: SharedBody, broker_epoch: int) -> None:
        self.api_key = shared.api_key
        self.oldest_version = self.latest_version = shared.version
        self.controller_epoch = shared.controller_epoch
        self.broker_epoch = broker_epoch
        start = shared.start + _broker_epoch_bytes(broker_epoch) if shared.has_epoch else shared.start
        self._pieces = (start, *shared.rest)
        self._doubtful = shared.doubtful

    @property
    def message(self) -> Any:
        """What the version can express of it."""
        return decode_request(self.api_key, self.latest_version, b"".join(self._pieces))

    def build(self, version: int) -> Sequence[Bytes]:
        """The broker's own start, and the rest that all share.

        Raises:
            ListenerNotExpressible: A listener of UpdateMetadata 1 or 2 has another name than its security protocol.
        """
        if self._doubtful is not None:
            _check_listeners(self._doubtful, version)
        return self._pieces


def _check_listeners(message: UpdateMetadataRequest, version: int) -> None:
    for broker in message.live_brokers:
        for endpoint in broker.endpoints:
            if endpoint.listener != SecurityProtocol(endpoint.security_protocol).name:
                raise ListenerNotExpressible(version, broker.id, endpoint.listener)
