"""The thread that sends the brokers' requests to their controller, and its network client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from channel.logs import get_logger
from channel.network.client import NetworkClient
from channel.network.secured import client_channels
from channel.network.selector import Selector
from channel.network.updater import ManualMetadataUpdater

from .to_controller import NodeToControllerThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.config import ChannelConfig
    from channel.security import SecurityConfig

    from .to_controller import ControllerInformation

__all__ = ["controller_thread"]

_log = get_logger(__name__)
_CLIENT_ID: Final = "kproto-fleet"


def controller_thread(
    name: str,
    config: ChannelConfig,
    security: SecurityConfig,
    controller: ControllerInformation,
    reconnect_backoff_max_ms: int = 50,
) -> NodeToControllerThread:
    """Make a thread for the brokers' requests to a controller, at first of this kind; Kafka's limits by default."""

    def make(information: ControllerInformation, on_invalid_answer: Callable[[str, Exception], None]) -> NetworkClient:
        channels = client_channels(information.security_protocol, security, _CLIENT_ID)
        return NetworkClient(
            Selector(max_receive_size=config.receive_max, channel_builder=channels),
            ManualMetadataUpdater(),
            _CLIENT_ID,
            max_in_flight=1,
            reconnect_backoff_ms=50,
            reconnect_backoff_max_ms=reconnect_backoff_max_ms,
            request_timeout_ms=config.controller_socket_timeout_ms,
            setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
            on_invalid_answer=on_invalid_answer,
        )

    return NodeToControllerThread(
        name,
        make,
        controller,
        config.controller_socket_timeout_ms,
        exit_procedure=lambda status: _log.critical("%s has failed: brokers cannot ask their controller", name),
    )
