"""The selector's metrics under Kafka's names. The selector adds to plain numbers; rates are computed when read."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from channel.metrics import Counter, Histogram, Meter

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.clock import Clock
    from channel.metrics import Metrics

    from .authenticator import SaslAuthenticator

_COMBINATIONS: Final = 100
_UNKNOWN: Final = ("unknown", "unknown")
_CLIENT: Final = ("clientSoftwareName", "clientSoftwareVersion")
_CIPHER: Final = ("cipher", "protocol")


class _Counted(Protocol):
    """The parts of a channel that it is counted under: its client's software, and its cipher suite and TLS version."""

    client_information: tuple[str, str] | None
    cipher_information: tuple[str, str] | None


class PollTimes:
    """The number of a selector's polls, and the times it waited and worked; several metrics may show them.

    Args:
        clock: The source of time.
    """

    __slots__ = ("began_ns", "clock", "io_ns", "io_wait_ns", "selects")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.began_ns = clock.nanoseconds()
        self.selects = Meter(clock)
        self.io_ns = 0
        self.io_wait_ns = 0

    def age_ns(self) -> int:
        """Return the time in ns since the selector began."""
        return max(1, self.clock.nanoseconds() - self.began_ns)


class SelectorMetrics:
    """The metrics of some connections: all of a selector's, or those to one broker.

    Each figure has one writer at a time: the selector's thread, or the thread that holds the channel's lock to write.

    Args:
        metrics: The registry to add the metrics to.
        prefix: Kafka's metric group prefix, e.g. ``controller-channel``.
        tags: E.g. ``{"broker-id": "2"}``.
        polls: The polls of the selector, if several metrics show them; None makes new ones.

    Attributes:
        connections: The number of open connections.
    """

    def __init__(
        self,
        metrics: Metrics,
        prefix: str,
        tags: dict[str, str] | None = None,
        *,
        polls: PollTimes | None = None,
    ) -> None:
        self._metrics = metrics
        self._tags = tags = dict(tags or {})
        self.group = f"{prefix}-metrics"
        self.polls = polls = PollTimes(metrics.clock) if polls is None else polls
        self._counts: dict[tuple[str, str], dict[tuple[str, str], int]] = {_CLIENT: {}, _CIPHER: {}}
        self.connections = 0
        self.reads = 0
        self.writes = 0
        self.request_size_max = 0
        self._io = Meter(metrics.clock)

        self.closed, self.created = Meter(metrics.clock), Meter(metrics.clock)
        self.authenticated, self.not_authenticated = Meter(metrics.clock), Meter(metrics.clock)
        self.reauthenticated, self.not_reauthenticated = Meter(metrics.clock), Meter(metrics.clock)
        self.outgoing, self.incoming = Meter(metrics.clock), Meter(metrics.clock)
        self.requests, self.responses = Meter(metrics.clock), Meter(metrics.clock)
        self.without_renewal = 0
        self.renewals = Histogram()
        self.throttles = Histogram()
        self.expired = Counter()
        self._names = metrics.gauges(self.group, _GAUGES, self, tags)
        # This metric outlives ``close``: it shows whether a closed selector has closed all its connections.
        metrics.gauge(self.group, "connection-count", lambda: self.connections, tags, "connections that are open now")

    def io_rate(self) -> float:
        """Return the number of reads and writes per second."""
        self._io.value = self.reads + self.writes
        return self._io.rate()

    def authentication_succeeded(self, authenticator: SaslAuthenticator | None) -> None:
        """Count an authentication, or its renewal, that succeeded."""
        if authenticator is not None and authenticator.renewal_took_ns is not None:
            self.reauthenticated.value += 1
            self.renewals.record(authenticator.renewal_took_ns / 1e6)
            return
        self.authenticated.value += 1
        if authenticator is None or not authenticator.renewable:
            self.without_renewal += 1

    def authentication_failed(self, authenticator: SaslAuthenticator | None) -> None:
        """Count an authentication, or its renewal, that failed."""
        renewing = authenticator is not None and authenticator.renewing
        failed = self.not_reauthenticated if renewing else self.not_authenticated
        failed.value += 1

    def client_changed(self, channel: _Counted, to: tuple[str, str] | None) -> None:
        """Count a connection under its client's software name and version, None when it closes."""
        self._count(_CLIENT, channel.client_information, -1)
        self._count(_CLIENT, to, 1)
        channel.client_information = to

    def cipher_changed(self, channel: _Counted, to: tuple[str, str] | None) -> None:
        """Count a TLS connection under its cipher suite and protocol version, None when it closes."""
        self._count(_CIPHER, channel.cipher_information, -1)
        self._count(_CIPHER, to, 1)
        channel.cipher_information = to

    def _count(self, tags: tuple[str, str], values: tuple[str, str] | None, change: int) -> None:
        """Change the number of connections with these values of two tags.

        At most 100 combinations are told apart: a client may call itself anything.
        """
        if values is None:
            return
        counts = self._counts[tags]
        if values not in counts and len(counts) >= _COMBINATIONS:
            values = _UNKNOWN
        if values not in counts:
            counts[values] = 0
            read = partial(counts.__getitem__, values)
            named = {**self._tags, **dict(zip(tags, values, strict=True))}
            text = f"connections with this {' and '.join(tags)}"
            self._names.append(self._metrics.gauge(self.group, "connections", read, named, text))
        counts[values] = max(0, counts[values] + change)

    def close(self) -> None:
        """Remove all metrics but the number of open connections; metrics with other tags stay."""
        for name in self._names:
            self._metrics.remove(name.group, name.name, dict(name.tags))
        self._names.clear()

    def remove(self) -> None:
        """Remove all metrics."""
        self.close()
        self._metrics.remove(self.group, "connection-count", self._tags)


def _rate(meter: str, metrics: SelectorMetrics) -> float:
    return getattr(metrics, meter).rate()  # type: ignore[no-any-return]


_METERS: Final = (
    ("closed", "connection-close", "connections closed"),
    ("created", "connection-creation", "connections made"),
    ("authenticated", "successful-authentication", "connections that passed authentication"),
    ("reauthenticated", "successful-reauthentication", "authentications renewed"),
    ("not_authenticated", "failed-authentication", "connections that failed authentication"),
    ("not_reauthenticated", "failed-reauthentication", "authentications that could not be renewed"),
    ("outgoing", "outgoing-byte", "bytes sent"),
    ("incoming", "incoming-byte", "bytes received"),
    ("requests", "request", "frames sent"),
    ("responses", "response", "frames received"),
)
"""The meters of ``SelectorMetrics``: attribute, name and description."""

_GAUGES: Final[tuple[tuple[str, Callable[[SelectorMetrics], float], str], ...]] = (
    *((f"{name}-rate", partial(_rate, meter), f"{doc} per second") for meter, name, doc in _METERS),
    *((f"{name}-total", attrgetter(f"{meter}.value"), f"{doc} in total") for meter, name, doc in _METERS),
    ("network-io-rate", lambda m: m.io_rate(), "reads and writes per second"),
    ("network-io-total", lambda m: m.reads + m.writes, "reads and writes in total"),
    ("select-rate", lambda m: m.polls.selects.rate(), "times the selector looked for ready connections per second"),
    ("select-total", lambda m: m.polls.selects.value, "times the selector looked for ready connections in total"),
    ("successful-authentication-no-reauth-total", lambda m: m.without_renewal,
     "connections that passed authentication and cannot renew it"),
    ("reauthentication-latency-avg", lambda m: m.renewals.mean(), "mean time of renewing an authentication in ms"),
    ("reauthentication-latency-max", lambda m: m.renewals.maximum, "longest time of renewing an authentication in ms"),
    ("throttle-time-avg", lambda m: m.throttles.mean(), "mean throttle time of answers in ms"),
    ("throttle-time-max", lambda m: m.throttles.maximum, "longest throttle time of an answer in ms"),
    ("expired-connections-killed-count", lambda m: m.expired.value,
     "connections closed because a request came after the end of the session"),
    ("request-size-avg", lambda m: m.outgoing.value / max(1, m.requests.value), "mean size of frames sent"),
    ("request-size-max", lambda m: m.request_size_max, "largest frame sent in bytes"),
    ("io-wait-time-ns-avg", lambda m: m.polls.io_wait_ns / max(1, m.polls.selects.value), "mean wait for a connection"),
    ("io-time-ns-avg", lambda m: m.polls.io_ns / max(1, m.polls.selects.value), "mean time of reading and writing"),
    ("io-wait-ratio", lambda m: m.polls.io_wait_ns / m.polls.age_ns(), "share of time spent waiting"),
    ("io-ratio", lambda m: m.polls.io_ns / m.polls.age_ns(), "share of time spent reading and writing"),
    ("io-wait-time-ns-total", lambda m: m.polls.io_wait_ns, "time spent waiting in ns"),
    ("io-time-ns-total", lambda m: m.polls.io_ns, "time spent reading and writing in ns"),
    ("io-waittime-total", lambda m: m.polls.io_wait_ns, "*Deprecated*: see io-wait-time-ns-total"),
    ("iotime-total", lambda m: m.polls.io_ns, "*Deprecated*: see io-time-ns-total"),
)  # fmt: skip
"""The gauges of ``SelectorMetrics``: name, reader and description. One reader serves the metrics of all brokers."""
