"""The thread that sends the brokers' requests to their controller, and its network client."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from channel.logs import get_logger
from channel.network.client import ManualMetadataUpdater, NetworkClient
from channel.network.secured import client_channels
from channel.network.selector import Selector
from channel.network.selector_metrics import SelectorMetrics
from channel.types import SecurityProtocol

from .to_controller import NodeToControllerThread, broker_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.config import ChannelConfig
    from channel.metrics import Metrics
    from channel.security import SecurityConfig

    from .to_controller import ControllerInformation

__all__ = ["controller_thread"]

_log = get_logger(__name__)
_RECONNECT_BACKOFF_MS: Final = 50


def controller_thread(
    name: str,
    channel: str,
    config: ChannelConfig,
    security: SecurityConfig,
    controller: ControllerInformation,
    metrics: Metrics | None = None,
    *,
    reconnect_backoff_max_ms: int = _RECONNECT_BACKOFF_MS,
) -> NodeToControllerThread:
    """Make a thread for the brokers' requests to a controller, at first of this kind; Kafka's limits by default.

    As in Kafka the client id of a broker's requests is its id, and its metrics are the group ``<channel>-metrics`` with
    the tag ``BrokerId``.
    """
    of_broker: dict[str, SelectorMetrics] = {}

    def metrics_of(node_id: str) -> SelectorMetrics | None:
        if metrics is None:
            return None
        broker = broker_of(node_id)
        if broker not in of_broker:
            of_broker[broker] = SelectorMetrics(metrics, channel, {"BrokerId": broker})
        return of_broker[broker]

    def make(information: ControllerInformation, on_invalid_answer: Callable[[str, Exception], None]) -> NetworkClient:
        secured = security
        if information.sasl_mechanism is not None:
            secured = replace(security, sasl_mechanism=information.sasl_mechanism)
        channels = client_channels(SecurityProtocol(information.security_protocol), secured, broker_of)
        return NetworkClient(
            Selector(max_receive_size=config.receive_max, channel_builder=channels, metrics_of=metrics_of),
            ManualMetadataUpdater(),
            broker_of,
            max_in_flight=1,
            reconnect_backoff_ms=_RECONNECT_BACKOFF_MS,
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
