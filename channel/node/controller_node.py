"""Candidates for the controller of a real cluster: a node with a listener of its own, and brokers of a fleet.

A ``ControllerNode`` has a listener like a broker's. While it is the active controller, it is registered in
``/brokers/ids``, so that brokers and clients find its address in their metadata. It keeps no records, and gets no
replicas.

A fleet's candidates are brokers; the elected one sends to all brokers, its own too, over sockets:

>>> from channel.broker.fleet import Fleet
>>> def lead_each_other(zookeeper):
...     with Fleet(zookeeper, range(3), stand=candidates()) as fleet:
...         return fleet.controller_id  # None until one of them is elected
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from channel.broker.delayed_answers import DelayedAnswers
from channel.broker.embedded import EmbeddedBroker
from channel.broker.handlers import api_versions_before_authentication
from channel.broker.hooks import BrokerHooks
from channel.broker.kraft_registration import Quorum
from channel.broker.service import SETTINGS_READ_S, BrokerService, settings_worker
from channel.broker.worker import Worker
from channel.config import BrokerConfigs, ChannelConfig
from channel.errors import IllegalState, ZooKeeperError
from channel.lead.election import Controller
from channel.lead.leadership import LeadershipSettings
from channel.logs import get_logger
from channel.metrics import Metrics
from channel.network.request import MessageRequest
from channel.network.secured import server_channels
from channel.network.server import SocketServer
from channel.send.manager import ControllerChannelManager
from channel.threads import Startable, close_all, first_error, time_left
from channel.types import NO_BROKER_EPOCH, Broker, EndPoint, Node
from channel.zookeeper.cluster_state import cluster_id, read_settings, register_broker
from channel.zookeeper.znodes import ACLS, broker_path, encode_broker
from kproto import messages

from .frame_relay import FrameRelay, channels_of_clients
from .node_requests import ForwardedRequests, NodeRequests, PassedRequests, SuperUsers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel.broker.kraft_registration import KRaftRegistration
    from channel.broker.links import Stand
    from channel.network.recorder import Recorder
    from channel.network.request import ClientResponse
    from channel.zookeeper.session import ZooKeeperSession

_log = get_logger(__name__)

_LEAVE_S: Final = 10.0


class ControllerNode(Startable):
    """A candidate for the controller with its listener; ``start`` to ``close``, or a context manager.

    Args:
        controller_id: Its broker id, which no broker of the cluster may have.
        zookeeper: ``HOST:PORT``, several with commas between them, and ``/PATH`` at the end for a chroot.
        host, port: The listener's address; port 0 for any free port. Brokers and clients must reach the node there.
        config: Kafka's settings; ``inter.broker.listener.name`` names the listener.
        metrics: Takes the figures.
        quorum: The voters of a KRaft controller that is to take the cluster over in a migration: the node registers
            there while it leads, and leaves at its end; their listener has the same security protocol as the node's.
        recorder: Sees every frame, to and from brokers and on the listener.
        on_change: See ``Controller``.
        make_channels: Makes the channels of the elected controller to the brokers.

    Attributes:
        metrics: As given, or its own.
        endpoint: The listener's address, from ``start`` on.
    """

    def __init__(
        self,
        controller_id: int,
        zookeeper: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        config: ChannelConfig | None = None,
        quorum: Sequence[Node] = (),
        metrics: Metrics | None = None,
        recorder: Recorder | None = None,
        on_change: Callable[[int, int], None] | None = None,
        make_channels: Callable[..., ControllerChannelManager] = ControllerChannelManager,
    ) -> None:
        self._config = config = config or ChannelConfig()
        self._id = controller_id
        self._host, self._port = host, port
        self.metrics = metrics = metrics or Metrics()
        self._listener_name = config.inter_broker_listener
        self._protocol = config.protocol_of(self._listener_name)
        channels = server_channels(
            self._protocol,
            config.security,
            lambda version: api_versions_before_authentication(version, NodeRequests.keys | PassedRequests.keys),
        )
        name = f"controller-{controller_id}"
        self._server = SocketServer(name, config=config, recorder=recorder, channel_builder=channels)
        self._worker = Worker(f"{name}-worker-thread")
        self._settings = settings_worker(name)
        self._broker = EmbeddedBroker(controller_id, kraft_epoch=NO_BROKER_EPOCH if quorum else None)
        self._kraft: KRaftRegistration | None = None
        self._quorum = Quorum(name, quorum, self._protocol, config, config.security, metrics) if quorum else None
        self.controller = Controller(
            controller_id,
            zookeeper,
            LeadershipSettings(
                controller_id=controller_id, config=config, metrics=metrics, recorder=recorder, channels=make_channels
            ),
            metrics,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            can_register=self._can_register,
            register_broker=self._register,
            unregister_broker=self._unregister,
            on_change=on_change,
        )
        self._relay = FrameRelay(
            f"{name}-relay-thread", self._other_brokers, channels_of_clients(self._protocol, config.security)
        )
        self._super_users = super_users = SuperUsers(config)
        self._passed = PassedRequests(self._broker, self._relay, super_users)
        self._broker.hooks = BrokerHooks(
            authorize=super_users.__contains__,
            controller=NodeRequests(self._broker, self.controller, super_users),
            settings=lambda entity: read_settings(self.controller.session, entity, SETTINGS_READ_S),
            passed_on=self._passed,
        )
        self.endpoint: EndPoint | None = None
        self._has_told = False

    def start(self) -> None:
        """Listen, and stand for election.

        Raises:
            ConfigurationError: The port is taken.
            Disconnected: No ZooKeeper answers.
            SessionExpired: The session has expired before the start was over.
        """
        delayed = DelayedAnswers(self._server.call_later, self._worker.submit)
        service = BrokerService(self._broker, self._server, self._worker, self._settings, delayed)
        listener = self._server.listen(service, self._host, self._port, name=self._listener_name)
        self.endpoint = EndPoint(self._host, listener.port, self._listener_name, self._protocol)
        try:
            self._server.start()
            self._relay.start()
            if self._quorum is not None:
                self._quorum.thread.start()
            self.controller.start()
        except BaseException:
            self.close(_LEAVE_S)
            raise

    def close(self, timeout_s: float | None = None) -> None:
        """Resign if active, leave the cluster, and close every socket. Harmless if closed.

        Args:
            timeout_s: The longest time to wait; a line in the log names a thread that has not ended then.
        """
        quorum, left_s = self._quorum, time_left(timeout_s)
        close_all(
            lambda: self.controller.close(left_s()),
            lambda: self._leave_quorum(left_s()),
            lambda: None if quorum is None else quorum.thread.shutdown(left_s()),
            lambda: self._relay.close(left_s()),
            lambda: self._server.close(left_s()),
            lambda: self._worker.close(left_s()),
            lambda: self._settings.close(left_s()),
        )

    @property
    def error(self) -> BaseException | None:
        """The error that has ended one of the node's threads or its session, after which it must end; None for none."""
        quorum = None if self._quorum is None else self._quorum.thread
        return first_error(self.controller, self._server, quorum, self._relay, self._worker, self._settings)

    def _other_brokers(self) -> list[Node]:
        """The live brokers that clients of the listener can reach."""
        return [node for node in self._broker.metadata.nodes(self._listener_name)[0] if node.id != self._id]

    def _can_register(self, session: ZooKeeperSession) -> bool:
        """Whether no other session has registered this id: a live broker's, or that of an earlier process."""
        found = session.exists(broker_path(self._id))
        if found is None or found.owner == session.id or found.owner in session.previous_ids:
            self._has_told = False
            return True
        if not self._has_told:
            self._has_told = True
            _log.error(
                "broker id %d is registered in ZooKeeper by another process, so this one does not stand for election. "
                "If that is an earlier run, its session ends within its time-out; otherwise choose another id",
                self._id,
            )
        return False

    def _register(self, session: ZooKeeperSession) -> None:
        """Register as a broker."""
        assert self.endpoint is not None
        self._broker.cluster_id = cluster_id(session)
        if not self._super_users.has_authorizer and session.exists(ACLS) is not None:
            self._passed.brokers_authorize = True
            _log.warning(
                "ZooKeeper holds %s: brokers have an authorizer. This node reads no ACLs, and serves everybody; set "
                "authorizer.class.name and super.users, as the brokers do, and it serves those users alone",
                ACLS,
            )
        ibp = self._config.inter_broker_protocol_version
        described = Broker(self._id, (self.endpoint,))
        contents = encode_broker(described, ibp, time.time_ns() // 1_000_000)
        self._broker.broker_epoch = register_broker(session, self._id, contents)
        if self._quorum is not None and self._kraft is None:
            self._kraft = self._quorum.registration(self._broker, described, ibp, self._server.call_later)
            self._kraft.start()

    def _leave_quorum(self, timeout_s: float | None) -> None:
        """Have the KRaft controller forget the node, which comes back no more."""
        kraft, self._kraft = self._kraft, None
        if kraft is None or (self._broker.kraft_epoch or NO_BROKER_EPOCH) < 0:
            return
        answered = threading.Event()

        def left(response: ClientResponse) -> None:
            _log.info("the KRaft controller was asked to forget broker %d: %s", self._id, response.body)
            answered.set()

        with contextlib.suppress(IllegalState):
            kraft.channel.send_request(MessageRequest(messages.UnregisterBrokerRequest(broker_id=self._id)), left)
            answered.wait(_LEAVE_S if timeout_s is None else min(_LEAVE_S, timeout_s))
        kraft.close()

    def _unregister(self, session: ZooKeeperSession) -> None:
        """End the registration as a broker; an expired session's registration has ended by itself."""
        path = broker_path(self._id)
        with contextlib.suppress(ZooKeeperError, IllegalState):
            found = session.exists(path)
            if found is not None and found.owner == session.id:
                session.delete(path)


# ---- brokers of a fleet ----------------------------------------------------------------------------------------------


class Candidate(Controller):
    """A broker that stands for election as controller: the ``Candidacy`` of a fleet's broker.

    Args:
        session: The session of its registration.
        config: The controller's settings.
        on_elected: See ``candidates``.

    Attributes:
        apis: Serves requests that clients and brokers send to the controller.
    """

    def __init__(
        self, broker_id: int, session: ZooKeeperSession, config: ChannelConfig, on_elected: Callable[[int, int], None]
    ) -> None:
        last_epoch = 0

        def changed(active_id: int, epoch: int) -> None:
            nonlocal last_epoch
            if epoch != last_epoch:
                last_epoch = epoch
                on_elected(broker_id, epoch)

        metrics = Metrics()
        leadership = LeadershipSettings(controller_id=broker_id, config=config, metrics=metrics, stores_records=True)
        super().__init__(broker_id, session, leadership, metrics, on_change=changed)
        self.apis = ForwardedRequests(self)


def candidates(
    config: ChannelConfig | BrokerConfigs | None = None,
    on_elected: Callable[[int, int], None] = lambda broker_id, epoch: None,
) -> Stand:
    """Return the function that makes a fleet's controller candidates.

    Args:
        config: The settings of each broker's controller, ``BrokerConfigs`` where they differ; by default Kafka's own.
        on_elected: Called on the controller's event thread: with the broker's id and its controller epoch when it
            is elected, with its id and 0 when it resigns.
    """
    configs = config if isinstance(config, BrokerConfigs) else BrokerConfigs(config or ChannelConfig())
    return lambda broker_id, session: Candidate(broker_id, session, configs.of_broker(broker_id), on_elected)
