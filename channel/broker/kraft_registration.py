"""A ZooKeeper broker's registration with the KRaft controller of a migration, and the heartbeats that keep it alive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from channel.errors import IllegalState
from channel.logs import get_logger
from channel.network.request import MessageRequest
from channel.types import NO_BROKER_EPOCH, Node, SecurityProtocol, random_uuid
from kproto import messages
from kproto.api import metadata_version_level
from kproto.error_codes import ErrorCode, error_name

from .to_controller import ControllerInformation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel.clock import Clock
    from channel.network.request import ClientResponse
    from channel.types import Broker

    from .embedded import EmbeddedBroker
    from .to_controller import NodeToControllerChannel

_log = get_logger(__name__)

_HEARTBEAT_MS: Final = 2_000
_RETRY_MS: Final = 500
_VOTER_MS: Final = 1_000
_CAUGHT_UP: Final = (1 << 63) - 1
"""The metadata offset in heartbeats: a ZooKeeper broker reads no metadata log, and so never lags behind."""


class QuorumProvider:
    """Provides the address of a KRaft controller; a ``ControllerProvider``.

    It does not follow the voters' elections. Until a voter accepts requests, it names each voter for a second in turn.

    Args:
        voters: The controllers.
        listener: The name of their listener.
        security_protocol: The security protocol of that listener.
        clock: Time.
        sasl_mechanism: The SASL mechanism of that listener; None for that of the broker's security settings.
    """

    def __init__(
        self,
        voters: Sequence[Node],
        listener: str,
        security_protocol: SecurityProtocol,
        clock: Clock,
        sasl_mechanism: str | None = None,
    ) -> None:
        named = [Node(node.id, node.host, node.port, node.rack, listener) for node in voters]
        self._controllers = [
            ControllerInformation(node, listener, security_protocol, False, sasl_mechanism) for node in named
        ]
        self._clock = clock

    def __call__(self) -> ControllerInformation:
        """Return the controller to ask now."""
        return self._controllers[self._clock.milliseconds() // _VOTER_MS % len(self._controllers)]


@dataclass(frozen=True, slots=True)
class _Description:
    """The part of a registration that stays the same for a broker's process."""

    cluster_id: str
    incarnation_id: bytes
    log_dir: bytes


class KRaftRegistration:
    """Registers one broker again and again until it is accepted, then sends its heartbeats.

    Args:
        embedded: The broker; the registration sets its ``kraft_epoch``.
        broker: The broker's endpoints and rack.
        ibp: The broker's inter.broker.protocol.version, announced as its metadata version.
        channel: The broker's channel to the quorum.
        call_later: Calls a non-blocking function after a delay in ms.
    """

    def __init__(
        self,
        embedded: EmbeddedBroker,
        broker: Broker,
        ibp: str,
        channel: NodeToControllerChannel,
        call_later: Callable[[int, Callable[[], None]], None],
    ) -> None:
        self._embedded = embedded
        self._broker = broker
        self._level = metadata_version_level(ibp)
        self.channel = channel
        self._call_later = call_later
        self._description = _Description(embedded.cluster_id, random_uuid(), random_uuid())
        self._is_closed = False
        embedded.kraft_epoch = NO_BROKER_EPOCH

    def start(self) -> None:
        """Request the registration, which may be accepted later."""
        broker, level = self._broker, self._level
        request = messages.BrokerRegistrationRequest(
            broker_id=broker.id,
            cluster_id=self._description.cluster_id,
            incarnation_id=self._description.incarnation_id,
            listeners=[
                messages.Listener(
                    name=e.listener_name, host=e.host, port=e.port, security_protocol=int(e.security_protocol)
                )
                for e in broker.endpoints
            ],
            features=[
                messages.Feature(name="metadata.version", min_supported_version=level, max_supported_version=level)
            ],
            rack=broker.rack,
            is_migrating_zk_broker=True,
            log_dirs=[self._description.log_dir],
        )
        self._send(MessageRequest(request, oldest_version=1), self._registered)

    def close(self) -> None:
        """Send nothing more; the controller fences the broker when its heartbeats are missed. Harmless if closed."""
        self._is_closed = True
        self.channel.close()

    def _send(self, request: MessageRequest, on_complete: Callable[[Any], None]) -> None:
        def answered(response: ClientResponse) -> None:
            on_complete(response.body)

        if not self._is_closed:
            try:
                self.channel.send_request(request, answered)
            except IllegalState:
                _log.debug("broker %d is closed; it sends nothing to the quorum any more", self._broker.id)

    def _registered(self, answer: Any) -> None:
        if answer is None or answer.error_code != ErrorCode.NONE:
            reason = "no answer" if answer is None else error_name(answer.error_code)
            _log.warning("broker %d is not registered by the KRaft controller yet: %s", self._broker.id, reason)
            self._call_later(_RETRY_MS, self.start)
            return
        self._embedded.kraft_epoch = answer.broker_epoch
        _log.info("broker %d is registered by the KRaft controller with epoch %d", self._broker.id, answer.broker_epoch)
        self._beat()

    def _beat(self) -> None:
        self._send(MessageRequest(heartbeat(self._embedded)), self._heard)

    def _heard(self, answer: Any) -> None:
        code = None if answer is None else answer.error_code
        if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            _log.warning("broker %d registers again: %s", self._broker.id, error_name(answer.error_code))
            self._call_later(_RETRY_MS, self.start)
        else:
            self._call_later(_HEARTBEAT_MS, self._beat)


def heartbeat(broker: EmbeddedBroker, *, wants_shutdown: bool = False) -> messages.BrokerHeartbeatRequest:
    """Build a broker's heartbeat, which may request a controlled shutdown."""
    return messages.BrokerHeartbeatRequest(
        broker_id=broker.broker_id,
        broker_epoch=NO_BROKER_EPOCH if broker.kraft_epoch is None else broker.kraft_epoch,
        current_metadata_offset=_CAUGHT_UP,
        want_shut_down=wants_shutdown,
    )
