"""A fleet broker's links to its cluster: registration, controller election, requests to the controller, ISR changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeAlias

from channel.errors import ChannelError, SessionExpired
from channel.logs import get_logger
from channel.threads import close_all
from channel.zookeeper.cluster_state import register_broker
from channel.zookeeper.session import ZooKeeperSession
from channel.zookeeper.znodes import encode_broker

from .controlled_shutdown import ShutdownRequest, ask_kraft_controller, ask_zookeeper_controller

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.types import Broker

    from .embedded import EmbeddedBroker
    from .hooks import ControllerApis
    from .isr import LedPartitions
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
        session: The session with ZooKeeper.
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
