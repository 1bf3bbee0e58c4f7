"""Turns a fleet's history into exchanges: each request with its connection, its times and the broker's answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .cluster import Cluster
from .fleet import Address, random_of
from .plants import SLOW_BROKER, Planter
from .schedule import events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .content import Content, PlannedController
    from .fleet import Event, PlannedFleet

_US: Final = 1000
_BETWEEN_REQUESTS_NS: Final = 20 * _US
"""Time between two requests of an event, which the controller queues one after the other."""
_HANDSHAKE_NS: Final = 300 * _US
_PAUSE_NS: Final = 100 * _US
"""Time between a response and the next request on its connection."""
_REQUEST_ROW_NS: Final = 100
_RESPONSE_ROW_NS: Final = 10
"""Time of a partition on the wire. Times follow from rows, not bytes, so that they are known without encoding."""
_LEAST_LATENCY_US: Final = 200
_MORE_LATENCY_US: Final = 20_000
_FIRST_PORT: Final = 32_768
_PORTS: Final = 28_000


@dataclass(eq=False, slots=True)
class PlannedConnection:
    """A TCP connection from a controller to a broker.

    Attributes:
        broker: The receiving broker.
        client: The controller's address and port.
        server: The broker's listener.
        opened_ns: The time of its first packet, ns since 1970.
    """

    broker: int
    client: Address
    server: Address
    opened_ns: int


@dataclass(eq=False, slots=True)
class PlannedExchange:
    """One request to one broker, and the response.

    Attributes:
        content: The request's content.
        broker_epoch: The broker's epoch, as the request names it.
        connection: The connection that carries it.
        opens: Whether it is the connection's first request.
        correlation_id: Of request and response.
        time_ns, last_ns: The times of the request's first and last bytes, ns since 1970.
        answer_ns, answer_last_ns: The same of the response; where it is lost, when the broker resets the connection.
        lost: Whether the connection breaks before the response.
        missed, answer_missed: Whether the capture misses the packets of the request, of the response.
    """

    content: Content
    broker_epoch: int
    connection: PlannedConnection
    opens: bool
    correlation_id: int
    time_ns: int
    last_ns: int
    answer_ns: int
    answer_last_ns: int
    lost: bool = False
    missed: bool = False
    answer_missed: bool = False

    @property
    def broker(self) -> int:
        """The receiving broker."""
        return self.connection.broker


@dataclass(eq=False, slots=True)
class PlannedStep:
    """The traffic of one event.

    Attributes:
        event: The event.
        exchanges: The exchanges, none of which begins before the event.
        closed: Connections that end, each with the time.
    """

    event: Event
    exchanges: list[PlannedExchange]
    closed: list[tuple[PlannedConnection, int]]


@dataclass(slots=True)
class _Channel:
    """A controller's channel to one broker."""

    connection: PlannedConnection | None = None
    correlation_id: int = 0
    free_ns: int = 0


class TrafficPlanner:
    """Makes the traffic of a fleet's events.

    Args:
        fleet: The fleet.

    Attributes:
        cluster: The cluster.
        planter: Plants the fleet's faults.
        slow: The broker that answers slowly; 0 for none.
    """

    def __init__(self, fleet: PlannedFleet) -> None:
        self._fleet = fleet
        self.cluster = Cluster(fleet)
        self.planter = Planter(self.cluster)
        self._channels: dict[tuple[PlannedController, int], _Channel] = {}  # by controller and broker
        self._opened: dict[tuple[int, int], int] = {}  # connections so far, by controller id and broker
        self._stopped_ns: dict[int, int] = {}  # when brokers that stopped were heard last
        self._missed_on: dict[int, PlannedConnection | None] = {}  # by broker: where its last exchange was missed
        self.slow: int = random_of(fleet.seed, "slow").choice(fleet.broker_ids)
        if fleet.plants and SLOW_BROKER not in fleet.plants:
            self.slow = 0  # nobody: a fleet with planted faults has no others

    def steps(self) -> Iterator[PlannedStep]:
        """Yield the fleet's history, event by event."""
        return map(self._step, events(self._fleet))

    def _step(self, event: Event) -> PlannedStep:
        before = list(self.cluster.live)
        contents = (self.planter if event.kind == "plant" else self.cluster).apply(event)
        random = random_of(self._fleet.seed, "traffic", event.number)
        told = [(content, broker) for content in contents for broker in content.recipients]
        loss = 0.0 if event.kind == "plant" else self._fleet.loss  # who is not told is known where connections hold
        exchanges = []
        for place, (content, broker) in enumerate(told):
            ready_ns = event.time_ns + place * _BETWEEN_REQUESTS_NS + content.delay_ns
            exchange = self._exchange(content, broker, ready_ns, random.random())
            if content.is_lost:
                self._lose(exchange)
            again = content.is_sent_again
            while again or (loss and random.random() < loss):
                again = False
                exchanges.append(exchange)
                self._lose(exchange)
                exchange = self._exchange(content, broker, exchange.answer_ns + _PAUSE_NS, random.random())
            exchanges.append(exchange)
        self._miss(exchanges, event)
        stopped = set(before).difference(self.cluster.live)
        oldest = self.cluster.controller.epoch - 1  # the former controller's connections live until the next failover
        closed = [self._close(key, event) for key in list(self._channels) if key[0].epoch < oldest or key[1] in stopped]
        return PlannedStep(event, exchanges, [end for end in closed if end is not None])

    def _exchange(self, content: Content, broker: int, ready_ns: int, chance: float) -> PlannedExchange:
        controller = content.controller
        channel = self._channels.get((controller, broker))
        if channel is None:
            channel = self._channels[controller, broker] = _Channel(free_ns=self._stopped_ns.get(broker, 0))
        time_ns = max(ready_ns, channel.free_ns + _PAUSE_NS)
        opens = channel.connection is None
        if channel.connection is None:
            channel.connection = self._open(controller.id, broker, time_ns)
            time_ns += _HANDSHAKE_NS
        slow = 20 if broker == self.slow else 1
        latency_ns = slow * (_LEAST_LATENCY_US + int(_MORE_LATENCY_US * chance**4)) * _US
        last_ns = time_ns + content.partitions * _REQUEST_ROW_NS // _US * _US
        answer_ns = last_ns + latency_ns
        answer_last_ns = answer_ns + content.partitions * _RESPONSE_ROW_NS // _US * _US
        epoch = self.cluster.broker_epochs[broker] if content.broker_epoch is None else content.broker_epoch
        exchange = PlannedExchange(
            content, epoch, channel.connection, opens, channel.correlation_id,
            time_ns, last_ns, answer_ns, answer_last_ns,
        )  # fmt: skip
        channel.correlation_id += 1
        channel.free_ns = answer_last_ns
        return exchange

    def _lose(self, exchange: PlannedExchange) -> None:
        """Let the broker reset the connection instead of answering; the next request opens another connection."""
        exchange.lost = True
        exchange.answer_last_ns = exchange.answer_ns
        channel = self._channels[exchange.content.controller, exchange.broker]
        channel.connection = None

    def _miss(self, exchanges: list[PlannedExchange], event: Event) -> None:
        """Choose the packets that the capture misses; the traffic itself is the same whatever it misses.

        Misses are apart, as a reader needs them to find the next frame for certain: the exchange that follows a miss on
        a connection is whole.
        """
        share = self._fleet.capture_loss
        if share:
            random = random_of(self._fleet.seed, "capture", event.number)
            for exchange in exchanges:
                request, answer = random.random() < share, random.random() < share
                if exchange.connection is not self._missed_on.get(exchange.broker):
                    exchange.missed, exchange.answer_missed = request, answer and not request and not exchange.lost
                is_missed = exchange.missed or exchange.answer_missed
                self._missed_on[exchange.broker] = exchange.connection if is_missed else None

    def _open(self, controller: int, broker: int, time_ns: int) -> PlannedConnection:
        number = self._opened.get((controller, broker), 0)
        self._opened[controller, broker] = number + 1
        client = Address(self._fleet.address(controller).ip, _FIRST_PORT + (broker * 7 + number) % _PORTS)
        return PlannedConnection(broker, client, self._fleet.address(broker), time_ns)

    def _close(self, key: tuple[PlannedController, int], event: Event) -> tuple[PlannedConnection, int] | None:
        channel = self._channels.pop(key)
        if channel.connection is None:
            return None
        time_ns = max(event.time_ns, channel.free_ns) + _PAUSE_NS
        self._stopped_ns[key[1]] = max(time_ns, self._stopped_ns.get(key[1], 0))
        return channel.connection, time_ns
