"""The clients of the controller's send threads, and the listeners over which they reach brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from channel.errors import BrokerNotAvailable
from channel.logs import get_logger
from channel.network.client import NetworkClient
from channel.network.secured import client_channels
from channel.network.selector import Selector
from channel.security import MECHANISMS
from channel.types import Node, SecurityProtocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.clock import Clock
    from channel.config import ChannelConfig
    from channel.network.client import MetadataUpdater
    from channel.network.recorder import Recorder
    from channel.network.selector_metrics import PollTimes, SelectorMetrics
    from channel.security import SecurityConfig
    from channel.types import Broker

    from .send_thread import ClientFactory

__all__ = ["BrokerClients"]

_log = get_logger(__name__)


class BrokerClients:
    """Makes the clients of send threads, and gives each broker its node: the listener that the controller talks to.

    Args:
        controller_id: The controller's broker id, the client id of every request.
        config: Timeouts, listeners and security.
        clock: Time.
        recorder: Records every frame.
        metrics_of: Returns the selector metrics of a broker, by its node id.
        factory: Makes the clients in place of this class, secured by its own means.

    Raises:
        ConfigurationError: The security protocol between brokers is not served.
    """

    def __init__(
        self,
        controller_id: int,
        config: ChannelConfig,
        clock: Clock,
        recorder: Recorder | None,
        metrics_of: Callable[[str], SelectorMetrics | None],
        factory: ClientFactory | None,
    ) -> None:
        self._controller_id = controller_id
        self._config = config
        self._clock = clock
        self._recorder = recorder
        self._metrics_of = metrics_of
        self._factory = factory
        self._listener = config.control_plane_listener_name or config.inter_broker_listener
        self._protocol = config.protocol_of(self._listener)
        self._channels = None
        if factory is None:
            self._channels = client_channels(self._protocol, _inter_broker_security(config), str(controller_id))

    def node(self, broker: Broker) -> Node:
        """Return the address of the broker's listener that the controller talks to.

        The security protocol of the connection is that of the controller's own settings. Another protocol in the
        broker's registration is logged, and never used: it could make the controller send its password in clear.

        Raises:
            BrokerNotAvailable: The broker does not have the listener that the controller talks to.
        """
        listener = self._listener
        endpoint = broker.endpoint(listener)
        if endpoint is None:
            raise BrokerNotAvailable(f"{broker} has no listener {listener} for the controller to talk to")
        if self._factory is None and endpoint.security_protocol != self._protocol:
            _log.warning(
                "broker %d has registered listener %s with security protocol %s; the controller connects with %s, "
                "as its own settings say (security.inter.broker.protocol, listener.security.protocol.map)",
                broker.id, listener, SecurityProtocol.name_of(endpoint.security_protocol), self._protocol.name,
            )  # fmt: skip
        return Node(broker.id, endpoint.host, endpoint.port, broker.rack, listener)

    def new_client(
        self, metadata: MetadataUpdater, on_invalid_answer: Callable[[str, Exception], None], polls: PollTimes
    ) -> NetworkClient:
        """Make a send thread's client.

        Args:
            metadata: Names the nodes.
            on_invalid_answer: Takes the node id and the error of bytes that are no answer.
            polls: Counts the times of the selector's polls.
        """
        if self._factory is not None:
            return self._factory(metadata, on_invalid_answer)
        assert self._channels is not None
        config = self._config
        selector = Selector(
            max_receive_size=config.receive_max,
            clock=self._clock,
            metrics_of=self._metrics_of,
            polls=polls,
            channel_builder=self._channels,
            recorder=self._recorder,
        )
        return NetworkClient(
            selector,
            metadata,
            str(self._controller_id),
            max_in_flight=1,
            reconnect_backoff_ms=0,
            reconnect_backoff_max_ms=0,
            request_timeout_ms=config.request_timeout_ms,
            setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
            discover_versions=False,
            on_invalid_answer=on_invalid_answer,
            clock=self._clock,
        )


def _inter_broker_security(config: ChannelConfig) -> SecurityConfig:
    """Return the security settings of connections between brokers, with the inter-broker SASL mechanism."""
    security, mechanism = config.security, config.sasl_mechanism_inter_broker_protocol
    if security.sasl_mechanism is not None or mechanism not in MECHANISMS:
        return security
    return replace(security, sasl_mechanism=mechanism)
