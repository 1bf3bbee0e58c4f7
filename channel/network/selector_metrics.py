"""The selector's metrics under Kafka's names. The selector adds to plain numbers; rates are worked out by who reads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.metrics import Meter, Metrics

    from .channel import Channel

__all__ = ["NodeMetrics", "SelectorMetrics"]

_COMBINATIONS: Final = 100
_UNKNOWN: Final = ("unknown", "unknown")


class NodeMetrics:
    """One connection's own metrics: group ``<prefix>-node-metrics``, tag ``node-id=node-<id>``."""

    __slots__ = ("incoming", "latency", "outgoing", "request", "response", "size")

    def __init__(self, metrics: Metrics, group: str, tags: dict[str, str]) -> None:
        self.request = metrics.meter(group, "request", tags, "requests sent")
        self.response = metrics.meter(group, "response", tags, "responses received")
        self.outgoing = metrics.meter(group, "outgoing-byte", tags, "bytes sent")
        self.incoming = metrics.meter(group, "incoming-byte", tags, "bytes received")
        self.size = metrics.histogram(group, "request-size", tags, "size of requests in bytes")
        self.latency = metrics.histogram(group, "request-latency", tags, "time from sending to answer in ms")


class SelectorMetrics:
    """What one selector counts.

    Args:
        metrics: Where it can be read.
        prefix: Kafka's metric group prefix, e.g. ``controller-channel``.
        tags: E.g. ``{"broker-id": "2"}``.
        per_connection: Whether each connection gets metrics of its own.

    Attributes:
        per_connection: Whether it does.
    """

    def __init__(
        self, metrics: Metrics, prefix: str, tags: dict[str, str] | None = None, *, per_connection: bool = False
    ) -> None:
        self._metrics = metrics
        self._tags = tags = dict(tags or {})
        self.group = f"{prefix}-metrics"
        self._node_group = f"{prefix}-node-metrics"
        self.per_connection = per_connection
        self._clients: dict[tuple[str, str], int] = {}

        def meter(name: str, doc: str) -> Meter:
            return metrics.meter(self.group, name, tags, doc)

        self.closed = meter("connection-close", "connections closed")
        self.created = meter("connection-creation", "connections made")
        self.authenticated = meter("successful-authentication", "connections that passed authentication")
        self.reauthenticated = meter("successful-reauthentication", "authentications renewed")
        self.not_authenticated = meter("failed-authentication", "connections that failed authentication")
        self.not_reauthenticated = meter("failed-reauthentication", "authentications that could not be renewed")
        self.io = meter("network-io", "reads and writes")
        self.outgoing = meter("outgoing-byte", "bytes sent")
        self.incoming = meter("incoming-byte", "bytes received")
        self.requests = meter("request", "frames sent")
        self.responses = meter("response", "frames received")
        self.selects = meter("select", "times the selector looked for ready connections")
        self.request_size_max = 0
        self.io_ns = 0
        self.io_wait_ns = 0
        self._began_ns = metrics.clock.nanoseconds()
        gauges: list[tuple[str, Callable[[], float], str]] = [
            ("successful-authentication-no-reauth-total", lambda: self.authenticated.value,
             "connections that passed authentication and need not renew it"),
            ("reauthentication-latency-avg", lambda: 0.0, "mean time of renewing an authentication in ms"),
            ("reauthentication-latency-max", lambda: 0.0, "longest time of renewing an authentication in ms"),
            ("request-size-avg", lambda: self.outgoing.value / max(1, self.requests.value), "mean size of frames sent"),
            ("request-size-max", lambda: self.request_size_max, "largest frame sent in bytes"),
            ("io-wait-time-ns-avg", lambda: self.io_wait_ns / max(1, self.selects.value), "mean wait for a connection"),
            ("io-time-ns-avg", lambda: self.io_ns / max(1, self.selects.value), "mean time of reading and writing"),
            ("io-wait-ratio", lambda: self.io_wait_ns / self._age_ns(), "share of time spent waiting"),
            ("io-ratio", lambda: self.io_ns / self._age_ns(), "share of time spent reading and writing"),
            ("io-wait-time-ns-total", lambda: self.io_wait_ns, "time spent waiting in ns"),
            ("io-time-ns-total", lambda: self.io_ns, "time spent reading and writing in ns"),
            ("io-waittime-total", lambda: self.io_wait_ns, "*Deprecated*: see io-wait-time-ns-total"),
            ("iotime-total", lambda: self.io_ns, "*Deprecated*: see io-time-ns-total"),
        ]  # fmt: skip
        for name, read, doc in gauges:
            metrics.gauge(self.group, name, read, tags, doc)

    def _age_ns(self) -> int:
        return max(1, self._metrics.clock.nanoseconds() - self._began_ns)

    def count_connections(self, read: Callable[[], float]) -> None:
        """Publish the number of open connections. It outlives ``close``, which a selector checks itself by."""
        self._metrics.gauge(self.group, "connection-count", read, self._tags, "connections that are open now")

    def node(self, channel_id: str) -> NodeMetrics | None:
        """Metrics of one connection, if they are wanted."""
        if not self.per_connection:
            return None
        return NodeMetrics(self._metrics, self._node_group, self._node_tags(channel_id))

    def forget_node(self, channel_id: str) -> None:
        """Remove one connection's metrics."""
        if self.per_connection:
            self._metrics.remove(self._node_group, tags=self._node_tags(channel_id))

    def _node_tags(self, channel_id: str) -> dict[str, str]:
        return {**self._tags, "node-id": f"node-{channel_id}"}

    def client_changed(self, channel: Channel, to: tuple[str, str] | None) -> None:
        """Count a connection under its client's software name and version, None when it closes.

        At most 100 combinations are told apart: a client may call itself anything.
        """
        for client, change in ((channel.client_information, -1), (to, 1)):
            if client is None:
                continue
            if client not in self._clients and len(self._clients) >= _COMBINATIONS:
                client = _UNKNOWN
            if client not in self._clients:
                tags = {**self._tags, "clientSoftwareName": client[0], "clientSoftwareVersion": client[1]}
                self._clients[client] = 0
                read = partial(self._clients.__getitem__, client)
                self._metrics.gauge(self.group, "connections", read, tags, "connections of this client")
            self._clients[client] = max(0, self._clients[client] + change)
        channel.client_information = to

    def close(self) -> None:
        """Remove everything but the number of open connections."""
        self._metrics.remove(self._node_group)
        for name in self._metrics.names():
            if name.group == self.group and name.name != "connection-count":
                self._metrics.remove(name.group, name.name, dict(name.tags))
