"""A fleet broker's links to its cluster: registration, controller election, requests to the controller, ISR changes."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from channel.errors import ChannelError, SessionExpired
from channel.logs import get_logger
from channel.threads import close_all
from channel.zookeeper.cluster_state import register_broker
from channel.zookeeper.session import ZooKeeperSession
from channel.zookeeper.znodes import encode_broker

from .controlled_shutdown import ShutdownRequest, ask_kraft_controller, ask_zookeeper_controller

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel.types import Broker

    from .embedded import EmbeddedBroker
    from .hooks import ControllerApis
    from .isr import IsrSender, LedPartitions
    from .kraft_registration import KRaftRegistration
    from .to_controller import NodeToControllerChannel


_log = get_logger(__name__)


class Candidacy(Protocol):
    """A broker's part in the election of the controller, in the session of its registration."""

    @property
    def apis(self) -> ControllerApis:
        """The service of requests to a controller that arrive at the broker's listener."""

    @property
    def is_active(self) -> bool:
        """Whether the broker is the active controller."""

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


@dataclass(slots=True)
class BrokerLinks:
    """One broker's links, from its registration to its end.

    Attributes:
        registration: The broker's session with ZooKeeper, and its znode.
        channel: The broker's channel to the controller.
        led: The partitions that the broker leads.
        changes: Sends ISR changes of these partitions to the controller or to ZooKeeper.
        candidacy: The broker's part in the controller election; None if it does not stand.
        forwarding: The broker's channel for requests that it forwards to the controller; None without a migration.
        kraft: The broker's registration with the KRaft controller of a migration; None without a migration.
    """

    registration: BrokerRegistration
    channel: NodeToControllerChannel
    led: LedPartitions
    changes: IsrSender
    candidacy: Candidacy | None
    forwarding: NodeToControllerChannel | None
    kraft: KRaftRegistration | None

    @property
    def leads_cluster(self) -> bool:
        """Whether the broker is the active controller."""
        return self.candidacy is not None and self.candidacy.is_active

    def register(self) -> int:
        """Register, and stand for election; returns the broker epoch.

        Raises:
            Disconnected: No ZooKeeper answers.
            NodeExists: Another process has registered this id.
        """
        epoch = self.registration.start()
        if self.candidacy is not None:
            self.candidacy.start()
        if self.kraft is not None:
            self.kraft.start()
        return epoch

    def ask_to_leave(self, broker: EmbeddedBroker) -> ShutdownRequest:
        """Make the broker's request for a controlled shutdown."""
        if self.kraft is not None and broker.is_led_by_kraft:
            return ask_kraft_controller(self.kraft.channel, broker)
        return ask_zookeeper_controller(self.channel, broker.broker_id, broker.broker_epoch)

    def break_off(self) -> None:
        """End all links but the session, as kill -9 does."""
        self._hang_up()
        if self.candidacy is not None:
            self.candidacy.abandon()

    def leave(self, timeout_s: float | None = None) -> None:
        """Resign as controller, within this time, and send no more requests."""
        candidacy = self.candidacy
        close_all(self._hang_up, lambda: None if candidacy is None else candidacy.close(timeout_s))

    def _hang_up(self) -> None:
        self.channel.close()
        if self.forwarding is not None:
            self.forwarding.close()
        if self.kraft is not None:
            self.kraft.close()

    def check_followers(self, now: int) -> None:
        """Propose ISRs without followers that went silent, and with followers that fetch again; ``now`` is in ms."""
        proposals = self.led.proposals(now)
        if not proposals:
            return
        try:
            self.changes.propose(self.led, proposals)
        except ChannelError as e:
            _log.info("broker %d cannot propose an ISR now: %s", self.led.broker.broker_id, e)
            for proposal in proposals:
                self.led.forget(proposal)


class BrokerRegistration:
    """A broker's session with ZooKeeper and its znode in ``/brokers/ids``, which lives as long as the session.

    Each broker has a session of its own, so that its registration can end while other brokers live on. After the
    session has expired the broker registers again in a new session, with a new broker epoch.

    Args:
        zookeeper: ``HOST:PORT``, several with commas between them, and ``/PATH`` at the end for a chroot.
        broker: The broker's id, endpoints and rack.
        ibp: The broker's inter.broker.protocol.version, which decides the version of the znode's JSON.
        timeout_ms: The session timeout.
        features: The broker's features: name to lowest and highest level.
        on_registered: Takes the broker epoch of each later registration, on a thread of the session.
        on_expired: Called on that thread once the session has expired, before the next begins.

    Attributes:
        session: The session with ZooKeeper.
    """

    def __init__(
        self,
        zookeeper: str,
        broker: Broker,
        ibp: str,
        *,
        timeout_ms: int = 18_000,
        features: Mapping[str, tuple[int, int]] | None = None,
        on_registered: Callable[[int], None] = lambda epoch: None,
        on_expired: Callable[[], None] | None = None,
    ) -> None:
        self.session = ZooKeeperSession(
            zookeeper, timeout_ms=timeout_ms, on_expired=on_expired, on_new_session=self._register_again
        )
        self._broker = broker
        self._ibp = ibp
        self._features = features
        self._on_registered = on_registered
        self._closed = threading.Event()

    def start(self) -> int:
        """Begin the session and register.

        Returns:
            The broker epoch.

        Raises:
            Disconnected: No ZooKeeper answers.
            NodeExists: Another process has registered this id.
        """
        self.session.start()
        try:
            return self._register()
        except BaseException:
            self.close()
            raise

    def close(self, timeout_s: float | None = None) -> None:
        """End the session, which ends the registration at once; waits at most this long. Harmless if closed."""
        self._closed.set()
        self.session.close(timeout_s)

    def _register(self) -> int:
        data = encode_broker(self._broker, self._ibp, time.time_ns() // 1_000_000, self._features)
        return register_broker(self.session, self._broker.id, data)

    def _register_again(self) -> None:
        try:
            epoch = self._register()
        except SessionExpired:
            return  # the next session registers
        except ChannelError as e:
            if not self._closed.is_set():
                _log.error("broker %d cannot register again: %s", self._broker.id, e)
            return
        self._on_registered(epoch)
