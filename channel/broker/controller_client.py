"""The network client of the brokers' requests to their controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel.network.client import NetworkClient
from channel.network.metadata import ManualMetadataUpdater
from channel.network.secured import ListenerChannels
from channel.network.selector import Selector

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.config import ChannelConfig
    from channel.security import SecurityConfig

    from .to_controller import ControllerClientFactory, ControllerInformation

__all__ = ["controller_clients"]


def controller_clients(config: ChannelConfig, security: SecurityConfig, client_id: str) -> ControllerClientFactory:
    """The function that makes a node-to-controller thread's client, with Kafka's limits for it."""

    def make(information: ControllerInformation, on_invalid_answer: Callable[[str, Exception], None]) -> NetworkClient:
        channels = ListenerChannels(security, client_id)
        channels.use(information.listener, information.security_protocol)
        return NetworkClient(
            Selector(max_receive_size=config.receive_max, channel_builder=channels),
            ManualMetadataUpdater(),
            client_id,
            max_in_flight=1,
            reconnect_backoff_ms=50,
            reconnect_backoff_max_ms=50,
            request_timeout_ms=config.controller_socket_timeout_ms,
            setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
            on_invalid_answer=on_invalid_answer,
        )

    return make
