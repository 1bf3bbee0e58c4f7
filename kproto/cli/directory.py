"""Who listens where: broker ids of the addresses that a capture shows."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from kproto.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproto.capture import Endpoint, Exchange
    from kproto.types import BrokerId

__all__ = ["BrokerDirectory"]


class BrokerDirectory:
    """Learns ids from what the controller says, and answers for an address.

    In this order: what the user told; the live brokers of UpdateMetadata, by address, or by port where a port is one
    broker's alone (brokers advertise names, packets show addresses); and LeaderAndIsr itself, which tells a broker only
    of partitions that it has a replica of: the one id that all partitions sent to an address share is its id.

    Args:
        told: ``(ip, port)`` -> id, as ``--brokers`` says.
    """

    def __init__(self, told: Mapping[tuple[str, int], BrokerId] | None = None) -> None:
        self._told = dict(told or {})
        self._by_address: dict[tuple[str, int], BrokerId] = {}
        self._by_port: dict[int, BrokerId | None] = {}  # None: more than one broker has it
        self._candidates: dict[tuple[str, int], set[BrokerId]] = {}

    def id_of(self, endpoint: Endpoint) -> BrokerId | None:
        """The id of the broker that listens there, None if nothing tells."""
        found = self._told.get(endpoint)
        if found is None:
            found = self._by_address.get(endpoint)
        if found is None:
            found = self._by_port.get(endpoint.port)
        if found is None:
            candidates = self._candidates.get(endpoint, ())
            if len(candidates) == 1:
                (found,) = candidates
        return found

    def learn(self, exchange: Exchange) -> None:
        """Take what a control request tells; others tell nothing."""
        if exchange.api_key == ApiKey.UPDATE_METADATA:
            if exchange.request_message is not None:
                self._learn_live_brokers(exchange.request_message)
        elif (
            exchange.api_key == ApiKey.LEADER_AND_ISR
            and self.id_of(exchange.server) is None
            and exchange.request_message is not None
        ):
            self._learn_replicas(exchange.server, exchange.request_message)

    def _learn_live_brokers(self, request: Any) -> None:
        for broker, endpoints, _rack in request.broker_endpoints:
            for endpoint in endpoints:
                try:
                    ip = str(ipaddress.ip_address(endpoint.host))
                except ValueError:
                    if self._by_port.setdefault(endpoint.port, broker) != broker:
                        self._by_port[endpoint.port] = None
                else:
                    self._by_address[ip, endpoint.port] = broker

    def _learn_replicas(self, server: Endpoint, request: Any) -> None:
        for state in request.partition_states:
            known = self._candidates.get(server)
            if known is None:
                self._candidates[server] = set(state.replicas)
            else:
                known.intersection_update(state.replicas)
