"""Control requests in a broker's queue, each in one version and encoded at most once.

``SingleRequest`` is a message for one broker. ``SharedRequest`` is one broker's request of several with the same
content: these differ in the broker epoch alone and share one encoded body (``kproto.fanout.SharedBody``), however many
queues it is in.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Final

from channel.types import SecurityProtocol
from kproto.api import CONTROL_APIS, ApiKey, api_name, check_version
from kproto.codec import decode_request, encode
from kproto.errors import UnsupportedVersion
from kproto.fanout import SharedBody

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel.network.transport import Bytes
    from kproto.codec import Message

_KNOWN: Final[dict[tuple[type, int], int]] = {}  # message classes and versions that can be sent, with the API's key
_LISTENERS_SINCE: Final = 3  # UpdateMetadata; 1 and 2 have security protocols instead, 0 one PLAINTEXT address


class ListenerNotExpressible(UnsupportedVersion):
    """A version of UpdateMetadata below 3 that has no field for a broker's listeners.

    Version 0 carries one PLAINTEXT address of each broker; 1 and 2 name a listener by its security protocol.

    Attributes:
        listener: Its listener, or all of its listeners, as text.
    """

    def __init__(self, version: int, broker_id: int, listener: str) -> None:
        super().__init__(ApiKey.UPDATE_METADATA, version, f"listener {listener} of broker {broker_id}")
        self.broker_id = broker_id
        self.listener = listener

    def __str__(self) -> str:
        if self.version == 0:
            return (
                f"UpdateMetadata 0 carries one PLAINTEXT address of each broker, broker {self.broker_id} has "
                f"{self.listener}; give it one PLAINTEXT endpoint, or raise inter.broker.protocol.version to 0.9.0"
            )
        return (
            f"UpdateMetadata {self.version} cannot name listener {self.listener} of broker {self.broker_id}; "
            "call it as its security protocol, or raise inter.broker.protocol.version to 0.10.2"
        )


def with_version_addresses(message: Any, version: int) -> Any:
    """Give an UpdateMetadata request the addresses that its version has fields for.

    The rule holds for every control request, made by a batch or by a caller: version 0 takes the host and port of a
    broker's only endpoint, versions 1 and 2 need listeners with the name of their security protocol.

    Returns:
        The message itself; for version 0 a copy with the addresses in its own fields.

    Raises:
        ListenerNotExpressible: The version has no field for a broker's endpoints.
    """
    if message.api_key != ApiKey.UPDATE_METADATA or version >= _LISTENERS_SINCE:
        return message
    if version == 0:
        message = copy(message)
        message.live_brokers = [_with_v0_address(broker) for broker in message.live_brokers]
        return message
    for broker in message.live_brokers:
        for endpoint in broker.endpoints:
            if endpoint.listener and endpoint.listener != _protocol_name(endpoint):
                raise ListenerNotExpressible(version, broker.id, endpoint.listener)
    return message


def _with_v0_address(broker: Any) -> Any:
    endpoints = broker.endpoints
    if not endpoints and broker.v0_host:
        return broker  # in the form of a decoded message of version 0
    if len(endpoints) != 1 or endpoints[0].security_protocol != SecurityProtocol.PLAINTEXT:
        names = ", ".join(f"{e.listener or _protocol_name(e)}://{e.host}:{e.port}" for e in endpoints)
        raise ListenerNotExpressible(0, broker.id, names or "no endpoint")
    broker = copy(broker)
    broker.v0_host, broker.v0_port = endpoints[0].host, endpoints[0].port
    return broker


def _protocol_name(endpoint: Any) -> str:
    return SecurityProtocol.name_of(endpoint.security_protocol)


class ControlRequest:
    """One request for one broker; its version is fixed, as a controller never negotiates.

    A network client takes it as the builder of a request's body.

    Attributes:
        oldest_version, latest_version: The one version that it is written in.
        controller_epoch, broker_epoch: The epochs in the request, for the log; -1 for no broker epoch.
    """

    __slots__ = ("api_key", "broker_epoch", "controller_epoch", "latest_version", "oldest_version")

    api_key: int
    broker_epoch: int
    controller_epoch: int
    latest_version: int
    oldest_version: int

    @property
    def message(self) -> Any:
        """The message. Once the body is built, the message is decoded from it, with the fields of its version."""
        raise NotImplementedError

    def build(self, version: int) -> Sequence[Bytes]:
        """Return the body in pieces, to be sent one after the other; encoded at the first call.

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
        message: A LeaderAndIsr, StopReplica or UpdateMetadata request of either codec.
        version: The version to write it in.

    Raises:
        TypeError: The message is not one of the three control requests.
        UnsupportedVersion: The API has no such version.
        ListenerNotExpressible: An UpdateMetadata whose version has no field for a broker's endpoints.
    """

    __slots__ = ("_body", "_message", "_shared")

    def __init__(self, message: Message, version: int) -> None:
        m: Any = message
        try:
            self.api_key = _KNOWN[type(m), version]
        except KeyError:
            self.api_key = _KNOWN[type(m), version] = _api_of(m, version)
        self.oldest_version = self.latest_version = version
        self.controller_epoch = m.controller_epoch
        self.broker_epoch = m.broker_epoch
        self._message: Any = with_version_addresses(m, version) if version < _LISTENERS_SINCE else m
        self._body: tuple[bytes] | None = None
        self._shared: SharedBody | None = None

    def for_broker(self, broker_epoch: int) -> ControlRequest:
        """Return the same request for another broker; both share the body if it is built."""
        if self._shared is None:
            if self._body is None:
                message = copy(self._message)
                message.broker_epoch = broker_epoch
                return SingleRequest(message, self.latest_version)
            self._shared = SharedBody(self.api_key, self.latest_version, self._body)
        return SharedRequest(self._shared, self.controller_epoch, broker_epoch)

    @property
    def message(self) -> Any:
        """The message itself until the body is built, then the message decoded from the body."""
        message, body = self._message, self._body
        return message if body is None else decode_request(self.api_key, self.latest_version, body[0])

    def build(self, version: int) -> Sequence[Bytes]:
        """Return the whole body in one piece, and drop the message."""
        if self._body is None:
            self._body = (encode(self._message, version),)
            self._message = None
        return self._body


def _api_of(message: Any, version: int) -> int:
    """Return the API key of a control request, which must have this version."""
    api_key = getattr(message, "api_key", None)
    if api_key not in CONTROL_APIS or message.kind != "request":
        raise TypeError(
            f"{type(message).__name__} is no control request; give a LeaderAndIsrRequest, StopReplicaRequest or "
            "UpdateMetadataRequest"
        )
    check_version(api_key, version)
    return int(api_key)


class SharedRequest(ControlRequest):
    """A broker's request whose body other brokers' requests share.

    Args:
        shared: The body that the requests share.
        broker_epoch: This broker's epoch.
        error: Why the request's own version cannot express it, if ``shared`` is in another version, for readers alone:
            every attempt to send it fails, as in Kafka.
    """

    __slots__ = ("_error", "_pieces", "_version")

    def __init__(
        self,
        shared: SharedBody,
        controller_epoch: int,
        broker_epoch: int,
        error: ListenerNotExpressible | None = None,
    ) -> None:
        self.api_key = shared.api_key
        self.oldest_version = self.latest_version = shared.version if error is None else error.version
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch
        self._error = error
        self._version = shared.version
        self._pieces = shared.pieces(broker_epoch)

    @property
    def message(self) -> Any:
        """The message, decoded from the body."""
        return decode_request(self.api_key, self._version, b"".join(self._pieces))

    def build(self, version: int) -> Sequence[Bytes]:
        """Return the broker's own first piece, and the pieces that all brokers share.

        Raises:
            ListenerNotExpressible: The version cannot express the request.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._pieces
