"""A ZooKeeper broker's registration with the KRaft controller of a migration, and the heartbeats that keep it alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from channel.clock import FOREVER, SYSTEM_CLOCK
from channel.errors import IllegalState
from channel.logs import get_logger
from channel.network.request import MessageRequest
from channel.types import NO_BROKER_EPOCH, Node, SecurityProtocol, random_uuid
from kproto import messages
from kproto.api import metadata_version_level
from kproto.error_codes import ErrorCode, error_name

from .to_controller import ControllerInformation, NodeToControllerThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel.clock import Clock
    from channel.config import ChannelConfig
    from channel.metrics import Metrics
    from channel.security import SecurityConfig
    from channel.types import Broker

    from .embedded import EmbeddedBroker
    from .to_controller import ControllerProvider, NodeToControllerChannel

_log = get_logger(__name__)

_LISTENER: Final = "CONTROLLER"
_HEARTBEAT_MS: Final = 2_000
_RETRY_MS: Final = 500
_VOTER_MS: Final = 1_000
_BACKOFF_MS: Final = 2_000
"""The longest back-off of a connection: the quorum may be started long after the brokers."""

_CAUGHT_UP: Final = (1 << 63) - 1
"""The metadata offset in heartbeats: a ZooKeeper broker reads no metadata log, and so never lags behind."""


def quorum_provider(
    voters: Sequence[Node], security_protocol: SecurityProtocol, sasl_mechanism: str | None, clock: Clock = SYSTEM_CLOCK
) -> ControllerProvider:
    """Make the provider of a KRaft controller's address, on the voters' listener ``CONTROLLER``.

    It does not follow the voters' elections. Until a voter accepts requests, it names each voter for a second in turn.

    Args:
        security_protocol: The security protocol of their listener.
        sasl_mechanism: The SASL mechanism of that listener; None for that of the broker's security settings.
    """
    named = [Node(node.id, node.host, node.port, node.rack, _LISTENER) for node in voters]
    known = [ControllerInformation(node, _LISTENER, security_protocol, False, sasl_mechanism) for node in named]
    return lambda: known[clock.milliseconds() // _VOTER_MS % len(known)]


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
        self.channel = channel
        self._call_later = call_later
        self._is_closed = False
        level = metadata_version_level(ibp)
        request = messages.BrokerRegistrationRequest(
            broker_id=broker.id,
            cluster_id=embedded.cluster_id,
            incarnation_id=random_uuid(),
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
            log_dirs=[random_uuid()],
        )
        self._request = MessageRequest(request, oldest_version=1)
        embedded.kraft_epoch = NO_BROKER_EPOCH

    def start(self) -> None:
        """Request the registration, which may be accepted later."""
        self._send(self._request, self._registered)

    def close(self) -> None:
        """Send nothing more; the controller fences the broker when its heartbeats are missed. Harmless if closed."""
        self._is_closed = True
        self.channel.close()

    def _send(self, request: MessageRequest, on_complete: Callable[[Any], None]) -> None:
        if not self._is_closed:
            try:
                self.channel.send_request(request, lambda response: on_complete(response.body))
            except IllegalState:
                _log.debug("broker %d is closed; it sends nothing to the quorum any more", self._embedded.broker_id)

    def _registered(self, answer: Any) -> None:
        broker = self._embedded
        if answer is None or answer.error_code != ErrorCode.NONE:
            reason = "no answer" if answer is None else error_name(answer.error_code)
            _log.warning("broker %d is not registered by the KRaft controller yet: %s", broker.broker_id, reason)
            self._call_later(_RETRY_MS, self.start)
            return
        broker.kraft_epoch = answer.broker_epoch
        _log.info("broker %d is registered by the KRaft controller with epoch %d", broker.broker_id, broker.kraft_epoch)
        self._beat()

    def _beat(self) -> None:
        self._send(MessageRequest(heartbeat(self._embedded)), self._heard)

    def _heard(self, answer: Any) -> None:
        code = None if answer is None else answer.error_code
        if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            _log.warning("broker %d registers again: %s", self._embedded.broker_id, error_name(answer.error_code))
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


class Quorum:
    """The KRaft controller of a migration, with the thread that asks it; its listener is named ``CONTROLLER``.

    Args:
        name: Names the thread.
        protocol: The security protocol of their listener.
        config: Limits of the network.
        security: The brokers' security settings.
        metrics: Takes the metrics of the channels; None for no metrics.

    Attributes:
        provider: Provides the controller to ask now.
        thread: Serves the brokers' channels; its owner starts it and shuts it down.
    """

    def __init__(
        self,
        name: str,
        voters: Sequence[Node],
        protocol: SecurityProtocol,
        config: ChannelConfig,
        security: SecurityConfig,
        metrics: Metrics | None,
    ) -> None:
        self.provider = quorum_provider(voters, protocol, security.quorum_mechanism)
        self.thread = NodeToControllerThread(
            f"{name}-to-quorum-thread",
            "quorum",
            config,
            security,
            self.provider(),
            metrics,
            reconnect_backoff_max_ms=_BACKOFF_MS,
        )

    def registration(
        self, embedded: EmbeddedBroker, broker: Broker, ibp: str, call_later: Callable[[int, Callable[[], None]], None]
    ) -> KRaftRegistration:
        """Make a broker's registration, which begins with its ``start``."""
        channel = self.thread.channel(broker.id, self.provider, FOREVER)
        return KRaftRegistration(embedded, broker, ibp, channel, call_later)
