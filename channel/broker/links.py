"""A fleet broker's links to its cluster: its registration, controller election, channels and controlled shutdown."""

from __future__ import annotations

import heapq
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from channel.errors import ChannelError, IllegalState, SessionExpired
from channel.logs import get_logger
from channel.network.request import MessageRequest
from channel.threads import close_all, first_error
from channel.zookeeper.cluster_state import register_broker
from channel.zookeeper.session import ZooKeeperSession
from channel.zookeeper.znodes import encode_broker
from kproto import messages
from kproto.error_codes import ErrorCode, error_name

from .kraft_registration import heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel.network.request import ClientResponse
    from channel.types import Broker

    from .embedded import EmbeddedBroker
    from .hooks import ControllerApis
    from .isr import LedPartitions
    from .kraft_registration import KRaftRegistration
    from .to_controller import NodeToControllerChannel


_log = get_logger(__name__)

_MOST_ATTEMPTS: Final = 4
_RETRY_S: Final = 0.5


class Candidacy(Protocol):
    """A broker's part in the election of the controller, in the session of its registration."""

    @property
    def apis(self) -> ControllerApis:
        """The service of requests to a controller that arrive at the broker's listener."""

    @property
    def is_active(self) -> bool:
        """Whether the broker is the active controller."""

    @property
    def error(self) -> BaseException | None:
        """The error after which the broker can lead no more; None while all is well."""

    def start(self) -> None:
        """Stand for election, once the broker has registered."""

    def session_expired(self) -> None:
        """Resign, before the next session begins."""

    def session_began(self) -> None:
        """Stand for election again, once the broker has registered in the new session."""

    def abandon(self) -> None:
        """End as kill -9 does: ZooKeeper notices when the session expires. Harmless if ended."""

    def close(self, timeout_s: float | None = None) -> None:
        """Resign, and stop standing for election, within this time. Harmless if ended."""


Stand: TypeAlias = "Callable[[int, ZooKeeperSession], Candidacy]"
"""Makes the candidacy of a broker, by its id, in a session that has not begun."""


class BrokerLinks:
    """One broker's links to its cluster, from its registration in ZooKeeper to its end.

    Each broker has a session of its own, and a znode in ``/brokers/ids`` that lives as long as the session, so that its
    registration can end while other brokers live on. After the session has expired the broker registers again in a new
    session, with a new broker epoch.

    Args:
        zookeeper: ``HOST:PORT``, several with commas between them, and ``/PATH`` at the end for a chroot.
        embedded: The broker; a later registration sets its ``broker_epoch``.
        broker: The broker's id, endpoints and rack.
        ibp: The broker's inter.broker.protocol.version, which decides the version of the znode's JSON.
        timeout_ms: The session timeout.
        stand: Makes the broker's candidacy in the controller election; None if it does not stand.

    Attributes:
        candidacy: The broker's part in the controller election; None if it does not stand.
        to_controller: The broker's channel to the controller.
        led: The partitions that the broker leads.
        forwarding: The broker's channel for requests that it forwards to the controller; None without a migration.
        kraft: The broker's registration with the KRaft controller of a migration; None without a migration.
    """

    to_controller: NodeToControllerChannel
    led: LedPartitions

    def __init__(
        self, zookeeper: str, embedded: EmbeddedBroker, broker: Broker, ibp: str, timeout_ms: int, stand: Stand | None
    ) -> None:
        self.session = ZooKeeperSession(
            zookeeper, timeout_ms=timeout_ms, on_expired=self._expired, on_new_session=self._register_again
        )
        self.candidacy = None if stand is None else stand(broker.id, self.session)
        self.forwarding: NodeToControllerChannel | None = None
        self.kraft: KRaftRegistration | None = None
        self._embedded = embedded
        self._broker = broker
        self._ibp = ibp
        self._is_closed = False

    @property
    def leads_cluster(self) -> bool:
        """Whether the broker is the active controller."""
        return self.candidacy is not None and self.candidacy.is_active

    @property
    def error(self) -> BaseException | None:
        """The error of its session or candidacy, after which the broker has no part in its cluster; None for none."""
        return None if self._is_closed else first_error(self.session, self.candidacy)

    def register(self) -> int:
        """Begin the session, register, and stand for election; returns the broker epoch.

        Raises:
            Disconnected: No ZooKeeper answers.
            NodeExists: Another process has registered this id.
        """
        self.session.start()
        try:
            epoch = self._register()
        except BaseException:
            self.close()
            raise
        if self.candidacy is not None:
            self.candidacy.start()
        if self.kraft is not None:
            self.kraft.start()
        return epoch

    def ask_to_leave(self) -> ShutdownRequest:
        """Make the broker's request for a controlled shutdown."""
        broker = self._embedded
        if self.kraft is not None and broker.is_led_by_kraft:
            return ask_kraft_controller(self.kraft.channel, broker)
        return ask_zookeeper_controller(self.to_controller, broker.broker_id, broker.broker_epoch)

    def break_off(self) -> None:
        """End all links but the session, as kill -9 does."""
        self._hang_up()
        if self.candidacy is not None:
            self.candidacy.abandon()

    def leave(self, timeout_s: float | None = None) -> None:
        """Resign as controller, within this time, and send no more requests."""
        candidacy = self.candidacy
        close_all(self._hang_up, lambda: None if candidacy is None else candidacy.close(timeout_s))

    def close(self, timeout_s: float | None = None) -> None:
        """End the session, which ends the registration at once; waits at most this long. Harmless if closed."""
        self._is_closed = True
        self.session.close(timeout_s)

    def _hang_up(self) -> None:
        for channel in (self.to_controller, self.forwarding, self.kraft):
            if channel is not None:
                channel.close()

    def _register(self) -> int:
        return register_broker(
            self.session, self._broker.id, encode_broker(self._broker, self._ibp, time.time_ns() // 1_000_000)
        )

    def _expired(self) -> None:
        if self.candidacy is not None:
            self.candidacy.session_expired()

    def _register_again(self) -> None:
        try:
            epoch = self._register()
        except SessionExpired:
            return  # the next session registers
        except ChannelError as e:
            if not self._is_closed:
                _log.error("broker %d cannot register again: %s", self._broker.id, e)
            return
        self._embedded.broker_epoch = epoch
        if self.candidacy is not None:
            self.candidacy.session_began()


# ---- controlled shutdown ---------------------------------------------------------------------------------------------


class ShutdownRequest(NamedTuple):
    """A broker's request for a controlled shutdown.

    Attributes:
        channel: The broker's channel to its controller.
        refusal: Returns an answer's reason why the broker may not leave yet; None if it may leave.
    """

    channel: NodeToControllerChannel
    request: MessageRequest
    refusal: Callable[[Any], str | None]


def ask_zookeeper_controller(channel: NodeToControllerChannel, broker_id: int, broker_epoch: int) -> ShutdownRequest:
    """Make the request to a controller that was elected in ZooKeeper: ControlledShutdown."""
    message = messages.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    return ShutdownRequest(channel, MessageRequest(message, oldest_version=1), _leads_still)


def ask_kraft_controller(channel: NodeToControllerChannel, broker: EmbeddedBroker) -> ShutdownRequest:
    """Make the request to a KRaft controller: a heartbeat that requests the shutdown."""
    request = MessageRequest(heartbeat(broker, wants_shutdown=True))
    return ShutdownRequest(channel, request, lambda answer: None if answer.should_shut_down else "it is still needed")


def controlled_shutdown(
    brokers: Mapping[int, ShutdownRequest], on_leaving: Callable[[int], None], timeout_s: float
) -> dict[int, str]:
    """Request the shutdown of all brokers at once; each is asked for again, four times at most, while its broker leads.

    Args:
        brokers: The request of each broker, by its id.
        on_leaving: Called with each broker that leads no partition any more, on the calling thread.
        timeout_s: The time limit for all brokers.

    Returns:
        The reasons of the brokers that may not leave, by broker id.
    """
    deadline = time.monotonic() + timeout_s
    answers: SimpleQueue[tuple[int, ClientResponse | None]] = SimpleQueue()
    failures = dict.fromkeys(brokers, f"the controller did not answer within {timeout_s:.3g} s")
    attempts = dict.fromkeys(brokers, 0)
    due = [(0.0, broker_id) for broker_id in brokers]  # the time of each broker's next request
    unanswered = 0
    while due or unanswered:
        now = time.monotonic()
        while due and due[0][0] <= now:
            broker_id = heapq.heappop(due)[1]
            attempts[broker_id] += 1
            asking = brokers[broker_id]
            try:
                asking.channel.send_request(
                    asking.request,
                    lambda response, i=broker_id: answers.put((i, response)),  # type: ignore[misc]
                    lambda i=broker_id: answers.put((i, None)),  # type: ignore[misc]
                )
            except IllegalState as e:  # the broker was killed meanwhile
                failures[broker_id] = str(e)
            else:
                unanswered += 1
        wait_s = min(deadline, due[0][0] if due else deadline) - time.monotonic()
        try:
            broker_id, response = answers.get(timeout=max(0.0, wait_s))
        except Empty:
            if time.monotonic() >= deadline:
                break
            continue
        unanswered -= 1
        failure = _failure(response, brokers[broker_id].refusal)
        if failure is None:
            del failures[broker_id]
            on_leaving(broker_id)
        else:
            failures[broker_id] = failure
            if attempts[broker_id] < _MOST_ATTEMPTS:
                heapq.heappush(due, (time.monotonic() + _RETRY_S, broker_id))
    return failures


def _failure(response: ClientResponse | None, refusal: Callable[[Any], str | None]) -> str | None:
    """The reason why a broker may not leave yet; None if it may."""
    answer = None if response is None else response.body
    if response is not None and response.error is not None:
        return f"the controller could not be asked: {response.failure}"
    if answer is None:
        return "the controller could not be asked"
    if answer.error_code != ErrorCode.NONE:
        return f"the controller refused: {error_name(answer.error_code)}"
    return refusal(answer)


def _leads_still(answer: Any) -> str | None:
    if answer.remaining_partitions:
        return f"it still leads {len(answer.remaining_partitions)} partitions that no other replica can lead"
    return None
