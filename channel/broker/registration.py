"""A broker's registration in ZooKeeper: an ephemeral znode whose czxid is the broker epoch."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from channel.errors import ChannelError, SessionExpired
from channel.logs import get_logger
from channel.zookeeper.cluster import register_broker
from channel.zookeeper.session import ZooKeeperSession
from channel.zookeeper.znodes import encode_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel.types import Broker

__all__ = ["BrokerRegistration"]

_log = get_logger(__name__)


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
