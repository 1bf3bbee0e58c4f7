"""A fleet broker's links to the rest of its cluster: registration, election, requests to the controller, and ISR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from channel.errors import ChannelError
from channel.logs import get_logger

from .controlled_shutdown import ShutdownRequest, ask_kraft_controller, ask_zookeeper_controller

if TYPE_CHECKING:
    from channel.zookeeper.session import ZooKeeperSession

    from .embedded import EmbeddedBroker
    from .hooks import ControllerApis
    from .isr import LedPartitions
    from .isr_changes import IsrChanges
    from .kraft_registration import KRaftRegistration
    from .registration import BrokerRegistration
    from .to_controller import NodeToControllerChannel

__all__ = ["BrokerLinks", "Candidacy", "Stand"]

_log = get_logger(__name__)


class Candidacy(Protocol):
    """A broker's part in the election of the controller, in the session of its registration."""

    @property
    def apis(self) -> ControllerApis:
        """Serves the requests to a controller that arrive at the broker's listener."""

    @property
    def is_active(self) -> bool:
        """Whether the broker leads the cluster."""

    def start(self) -> None:
        """Stand for election; the broker has registered."""

    def session_expired(self) -> None:
        """Resign, before the next session begins."""

    def session_began(self) -> None:
        """Stand for election again; the broker has registered in the new session."""

    def abandon(self) -> None:
        """End as kill -9 does: ZooKeeper learns of it by the end of the session. Harmless if ended."""

    def close(self) -> None:
        """Resign, and stand no more. Harmless if ended."""


class Stand(Protocol):
    """Makes a broker's candidacy."""

    def __call__(self, broker_id: int, session: ZooKeeperSession) -> Candidacy:
        """Make it; ``session`` has not begun."""


@dataclass(slots=True)
class BrokerLinks:
    """One broker's links, from its registration to its end.

    Attributes:
        registration: Its session with ZooKeeper, and its znode.
        channel: Its requests to the controller.
        led: The partitions that it leads.
        changes: Tells the cluster of changes of their ISR.
        candidacy: Its part in the election of the controller; None if it does not stand.
        kraft: Its registration with the KRaft controller of a migration; None without a migration.
    """

    registration: BrokerRegistration
    channel: NodeToControllerChannel
    led: LedPartitions
    changes: IsrChanges
    candidacy: Candidacy | None
    kraft: KRaftRegistration | None

    @property
    def leads_cluster(self) -> bool:
        """Whether the broker is the active controller."""
        return self.candidacy is not None and self.candidacy.is_active

    def register(self) -> int:
        """Register, and stand for election; gives the broker epoch.

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
        """The request by which the broker asks its controller to be let go."""
        if self.kraft is not None and broker.is_led_by_kraft:
            return ask_kraft_controller(self.kraft.channel, broker)
        return ask_zookeeper_controller(self.channel, broker.broker_id, broker.broker_epoch)

    def break_off(self) -> None:
        """End all but the session as kill -9 does."""
        self._hang_up()
        if self.candidacy is not None:
            self.candidacy.abandon()

    def leave(self) -> None:
        """Give the cluster's leadership up, and send nothing more."""
        self._hang_up()
        if self.candidacy is not None:
            self.candidacy.close()

    def _hang_up(self) -> None:
        self.channel.close()
        if self.kraft is not None:
            self.kraft.close()

    def check_followers(self, now: int) -> None:
        """Have followers dropped from the ISR, or taken back, that went silent or fetch again; ``now`` in ms."""
        proposals = self.led.proposals(now)
        if not proposals:
            return
        try:
            self.changes.propose(self.led, proposals)
        except ChannelError as e:
            _log.info("broker %d cannot propose an ISR now: %s", self.led.broker.broker_id, e)
            for proposal in proposals:
                self.led.refused(proposal)
