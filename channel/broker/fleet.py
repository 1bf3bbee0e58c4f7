"""A fleet of simulated brokers for a real controller, each with a ZooKeeper session and a channel to the controller.

>>> def rehearse(zookeeper):
...     with Fleet(zookeeper, range(100, 150)) as fleet:  # the controller creates its topics on these brokers
...         fleet.kill(101)  # its registration ends one session timeout later
...         fleet.restart(101)
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from channel.clock import FOREVER, SYSTEM_CLOCK
from channel.config import BrokerConfigs, ChannelConfig
from channel.errors import IllegalState, RequestTimeout
from channel.logs import get_logger
from channel.threads import Startable, close_all
from channel.types import Broker, EndPoint, Node, SecurityProtocol
from channel.zookeeper.cluster_state import cluster_id, create_persistent_nodes, read_settings
from channel.zookeeper.session import ZooKeeperSession
from kproto.api import ibp_at_least
from kproto.errors import ConfigurationError

from .administrator_requests import AdministratorRequests
from .cluster import EmbeddedCluster, raise_file_limit
from .controlled_shutdown import controlled_shutdown
from .hooks import BrokerHooks, Interception
from .isr import AlterPartitionSender, LedPartitions, ZooKeeperIsr
from .kraft_registration import KRaftRegistration, QuorumProvider
from .links import BrokerLinks, BrokerRegistration
from .to_controller import ControllerInformation, NodeToControllerThread, controller_of_metadata, controller_thread
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
    from typing import Any

    from channel.metrics import Metrics
    from channel.network.recorder import Recorder
    from channel.security import SecurityConfig
    from kproto.types import TopicPartition

    from .cluster import ClusterMember
    from .embedded import EmbeddedBroker
    from .hooks import RequestContext
    from .isr import IsrSender
    from .links import Stand
    from .replicas import HostedReplica


_log = get_logger(__name__)

_FILES_A_BROKER: Final = 14
"""Open files of a broker: an embedded broker's, and those of its ZooKeeper session and its controller connection."""

_QUORUM_BACKOFF_MS: Final = 2_000
"""The quorum may be started long after the brokers."""

_LOOK_S: Final = 0.02


class Fleet(Startable):
    """Simulated brokers that a controller finds in ZooKeeper; they store no records.

    A leader drops a follower that is down or paused for longer than ``replica_lag_time_max_ms`` from the ISR, and takes
    it back once it follows again: by AlterPartition, or before IBP 2.7-IV2 by a write to ZooKeeper. Brokers outside of
    the fleet fetch nothing from its leaders, and leave the ISR too.

    ZooKeeper must allow a connection for each broker: ``maxClientCnxns`` is 60 by default, and 0 means no limit.

    Args:
        zookeeper: ``HOST:PORT``, several with commas between them, and ``/PATH`` at the end for a chroot.
        broker_ids: The ids of the brokers.
        base_port: Broker N listens at this port + N; 0 lets the system choose.
        host: The address to listen at, and to register.
        advertised_host: The host to register in place of ``host``, such as that of a tap, with the same ports.
        config: ``inter.broker.protocol.version``, the listener's name, time limits of the channel to the controller;
            ``BrokerConfigs`` where single brokers have others.
        session_timeout_ms: ZooKeeper's session timeout.
        replica_lag_time_max_ms: The time after which a silent follower leaves the ISR.
        hooks: Returns a broker's hooks by its id, at each of its starts; ``controller`` is the fleet's own. None for no
            hooks.
        recorder: Records every frame that the brokers receive and send.
        protocol: The security protocol of every listener.
        security: The certificate of the brokers, and the users to accept; by default those of ``config``.
        racks: The racks, assigned to the brokers in turn; by default brokers have none.
        quorum: The voters of a KRaft controller, with which the brokers register too, as in a migration to KRaft;
            their listener has the same security protocol as the brokers' own.
        stand: Makes each broker's candidacy in the controller election; by default no broker stands.
        metrics: Takes the metrics of the brokers' channels to their controller; None for no metrics.

    Attributes:
        cluster: The brokers, by id; for reading.
        on_answered: Called with a broker's id and each request that it has answered, after the broker's own hook;
            None for no call. It runs on the network thread and must not block.
    """

    def __init__(
        self,
        zookeeper: str,
        broker_ids: Iterable[int],
        *,
        base_port: int = 0,
        host: str = "127.0.0.1",
        advertised_host: str | None = None,
        config: ChannelConfig | BrokerConfigs | None = None,
        session_timeout_ms: int = 18_000,
        replica_lag_time_max_ms: int = 30_000,
        hooks: Callable[[int], BrokerHooks] | None = None,
        recorder: Recorder | None = None,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        security: SecurityConfig | None = None,
        racks: Sequence[str] = (),
        quorum: Sequence[Node] = (),
        stand: Stand | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._stand = stand
        self._zookeeper = zookeeper
        self._advertised_host = advertised_host
        self._broker_ids = list(broker_ids)
        self._racks = dict(zip(self._broker_ids, itertools.cycle(racks), strict=False))
        self._configs = config if isinstance(config, BrokerConfigs) else BrokerConfigs(config or ChannelConfig())
        config = self._configs.common
        self._security = security or config.security
        self._protocol = protocol
        self._listener_name = config.inter_broker_listener_name or protocol.name
        self._session_timeout_ms = session_timeout_ms
        self._lag_max_ms = replica_lag_time_max_ms
        self._cluster_settings: dict[str, Any] = {
            "base_port": base_port, "host": host, "config": config, "recorder": recorder,
            "protocol": protocol, "security": security,
        }  # fmt: skip
        self._links: dict[int, BrokerLinks] = {}
        self._paused: set[int] = set()
        self._followers = FollowerChecks(
            lambda: self.cluster, self._links, self._paused, replica_lag_time_max_ms, self._submit
        )
        self._hooks = FleetHooks(hooks, lambda: self.on_answered)
        self._worker = Worker("fleet-worker-thread")
        self._is_closed = False
        self._is_ending = False
        nobody = ControllerInformation(
            None, self._listener_name, protocol, sasl_mechanism=self._security.sasl_mechanism
        )
        self._to_controller = controller_thread(
            "fleet-to-controller-thread", "alter-partition", config, self._security, nobody, metrics
        )
        self._quorum: QuorumProvider | None = None
        self._to_quorum: NodeToControllerThread | None = None
        self._forwarding: NodeToControllerThread | None = None
        if quorum:
            if not ibp_at_least(config.inter_broker_protocol_version, "3.4-IV0"):
                raise ConfigurationError(
                    f"a migration to KRaft needs inter.broker.protocol.version 3.4 or newer, "
                    f"not {config.inter_broker_protocol_version}"
                )
            self._quorum = QuorumProvider(quorum, "CONTROLLER", protocol, SYSTEM_CLOCK, self._security.quorum_mechanism)
            self._to_quorum = controller_thread(
                "fleet-to-quorum-thread",
                "quorum",
                config,
                self._security,
                self._quorum(),
                metrics,
                reconnect_backoff_max_ms=_QUORUM_BACKOFF_MS,
            )
            self._forwarding = controller_thread(
                "fleet-forwarding-thread", "forwarding", config, self._security, nobody, metrics
            )
        self.on_answered: Callable[[int, RequestContext], None] | None = None
        self.cluster: EmbeddedCluster

    # ---- starting and ending -----------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Open every broker's port, register the brokers, and serve.

        Raises:
            Disconnected: No ZooKeeper answers.
            NodeExists: Another process has registered one of the ids.
            ConfigurationError: A port is taken, or above 65535.
            BrokerNotAvailable: The limit of open files is too low for this many brokers.
        """
        raise_file_limit(len(self._broker_ids), _FILES_A_BROKER)
        try:
            with ZooKeeperSession(self._zookeeper) as session:
                create_persistent_nodes(session)
                cluster = cluster_id(session)
            for thread in self._threads:
                thread.start()
            self.cluster = EmbeddedCluster(
                self._broker_ids,
                hooks=self._hooks,
                cluster_id=cluster,
                register=self._register,
                listener_name=self._listener_name,
                kraft=self._quorum is not None,
                **self._cluster_settings,
            )
            self.cluster.start()
        except BaseException:
            self.close()
            raise
        self._followers.check_later()
        return self

    def close(self, timeout_s: float | None = 10.0) -> None:
        """End all brokers and their registrations at once, without a controlled shutdown. Harmless if closed.

        Args:
            timeout_s: The longest time to wait for each part; a line in the log names a thread that has not ended then.

        Raises:
            Exception: The first failure of a part, once all were closed; a second call tries the failed parts again.
        """
        if self._is_closed:
            return
        self._is_ending = True
        ends: list[Callable[[], object]] = [lambda: self.cluster.close(timeout_s)] if hasattr(self, "cluster") else []
        for links in sorted(self._links.values(), key=lambda links: links.leads_cluster):  # so that no other is elected
            ends += [partial(links.leave, timeout_s), partial(links.registration.close, timeout_s)]
        ends += [partial(thread.shutdown, timeout_s) for thread in self._threads]
        # The worker last: its task may wait for a ZooKeeper that is away, until its session is closed.
        close_all(*ends, partial(self._worker.close, timeout_s))
        self._is_closed = True

    @property
    def _threads(self) -> list[NodeToControllerThread]:
        threads = self._to_controller, self._to_quorum, self._forwarding
        return [thread for thread in threads if thread is not None]

    def shut_down(self, *broker_ids: int, timeout_s: float = 10.0) -> dict[int, str]:
        """Shut brokers down as on SIGTERM, by default all that are up: the controller moves their leaders away first.

        A broker leaves as soon as the controller consents, and at the latest after ``timeout_s``, even if it still
        leads partitions. A broker of the fleet that is the active controller leaves after the others.

        Returns:
            The reasons of the brokers that left without the controller's consent, by broker id.
        """
        leaving = [i for i in broker_ids or self._broker_ids if self.cluster[i].is_up]
        controllers = [i for i in leaving if self._links[i].leads_cluster]
        failures: dict[int, str] = {}
        deadline = time.monotonic() + timeout_s
        for group in ([i for i in leaving if i not in controllers], controllers):
            asking = {i: self._links[i].ask_to_leave(self.cluster[i].broker) for i in group}
            failed = controlled_shutdown(asking, self._leave, max(0.0, deadline - time.monotonic()))
            for broker_id in failed:
                self._leave(broker_id)
            failures |= failed
        return failures

    def __iter__(self) -> Iterator[ClusterMember]:
        return iter(self.cluster)

    def __getitem__(self, broker_id: int) -> ClusterMember:
        return self.cluster[broker_id]

    @property
    def controller_id(self) -> int | None:
        """The broker of this fleet that is the active controller; None if there is none."""
        return next((i for i, links in list(self._links.items()) if links.leads_cluster), None)

    def wait_for_controller(self, timeout_s: float = 30.0) -> int:
        """Wait until a broker of this fleet is the active controller; returns its id.

        Raises:
            RequestTimeout: No broker is after ``timeout_s`` seconds.
        """
        deadline = time.monotonic() + timeout_s
        while (leader := self.controller_id) is None:
            if time.monotonic() >= deadline:
                raise RequestTimeout(f"no broker of this fleet leads the cluster after {timeout_s:g} s")
            time.sleep(_LOOK_S)
        return leader

    # ---- single brokers ----------------------------------------------------------------------------------------------

    def kill(self, broker_id: int) -> None:
        """End a broker as kill -9 does: its port closes now, its registration ends one session timeout later.

        Raises:
            IllegalState: It is down already.
        """
        self.cluster.kill(broker_id)
        self._paused.discard(broker_id)
        links = self._links[broker_id]
        links.break_off()
        self.cluster.call_later(self._session_timeout_ms, lambda: self._submit(links.registration.close))

    def restart(self, broker_id: int) -> int:
        """Bring a broker back on its port, killing it first if it is up; it keeps its logs.

        Returns:
            The new broker epoch.

        Raises:
            IllegalState: The fleet is closed.
        """
        if self._is_ending:
            raise IllegalState(f"broker {broker_id} cannot be restarted: its fleet is closed")
        self._paused.discard(broker_id)
        links = self._links[broker_id]
        links.break_off()
        links.registration.close()
        return self.cluster.restart(broker_id)

    def pause(self, broker_id: int) -> None:
        """Make a broker hang: it serves, fetches and sends nothing; its ZooKeeper session lives on.

        Raises:
            IllegalState: It is down.
        """
        self.cluster.pause(broker_id)
        self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """Let a paused broker continue.

        Raises:
            IllegalState: It is down.
        """
        self.cluster.resume(broker_id)
        self._paused.discard(broker_id)

    def is_paused(self, broker_id: int) -> bool:
        """Whether a broker hangs."""
        return broker_id in self._paused

    def slow(self, broker_id: int, delay_s: float) -> None:
        """Delay every request of a broker by this many seconds; 0 for no delay.

        Raises:
            BrokerNotAvailable: The fleet has no such broker.
            ValueError: The delay is negative or longer than a day.
        """
        self.cluster[broker_id]
        self._hooks.slow(broker_id, delay_s)

    # ---- registration ------------------------------------------------------------------------------------------------

    def _register(self, member: ClusterMember) -> int:
        broker = member.broker
        endpoint = EndPoint(self._advertised_host or member.host, member.port, self._listener_name, self._protocol)

        def registered_again(epoch: int) -> None:
            broker.broker_epoch = epoch
            if candidacy is not None:
                candidacy.session_began()

        def expired() -> None:
            if candidacy is not None:
                candidacy.session_expired()

        config = self._configs.of_broker(member.id)
        described = Broker(member.id, (endpoint,), self._racks.get(member.id))
        registration = BrokerRegistration(
            self._zookeeper,
            described,
            config.inter_broker_protocol_version,
            timeout_ms=self._session_timeout_ms,
            on_registered=registered_again,
            on_expired=expired,
        )
        candidacy = self._stand(member.id, registration.session) if self._stand is not None else None
        quorum = self._quorum or (lambda: None)
        provider = controller_of_metadata(
            broker.metadata, self._listener_name, self._protocol, quorum, self._security.sasl_mechanism
        )
        channel = self._to_controller.channel(member.id, provider, FOREVER)
        forwarding = (
            None
            if self._forwarding is None
            else self._forwarding.channel(member.id, provider, config.request_timeout_ms)
        )
        broker.hooks.controller = AdministratorRequests(candidacy, forwarding)
        if broker.hooks.settings is None:
            broker.hooks.settings = partial(read_settings, registration.session)
        changes: IsrSender = (
            AlterPartitionSender(channel)
            if ibp_at_least(config.inter_broker_protocol_version, "2.7-IV2")
            else ZooKeeperIsr(registration.session)
        )
        led = LedPartitions(broker, self._followers.is_fetching, self._lag_max_ms)
        links = self._links[member.id] = BrokerLinks(
            registration, channel, led, changes, candidacy, forwarding, self._kraft_registration(broker, described)
        )
        if self._is_ending:  # what close has not seen may not begin
            raise IllegalState(f"broker {member.id} cannot be registered: its fleet is closed")
        return links.register()

    def _kraft_registration(self, broker: EmbeddedBroker, described: Broker) -> KRaftRegistration | None:
        if self._quorum is None or self._to_quorum is None:
            return None
        ibp, channel = (
            self._configs.of_broker(broker.broker_id).inter_broker_protocol_version,
            self._to_quorum.channel(broker.broker_id, self._quorum, FOREVER),
        )
        return KRaftRegistration(broker, described, ibp, channel, self.cluster.call_later)

    def _leave(self, broker_id: int) -> None:
        links = self._links[broker_id]
        links.leave()
        if self.cluster[broker_id].is_up:
            self.cluster.kill(broker_id)
        links.registration.close()

    def _submit(self, work: Callable[[], None]) -> None:
        try:
            self._worker.submit(work)
        except IllegalState:
            _log.debug("the fleet is closed; work that was due is dropped")


class FleetHooks:
    """Makes the hooks of each broker of a fleet.

    Args:
        hooks: Returns the owner's hooks of a broker by its id; None for no hooks.
        observer: Returns the fleet's present observer of answered requests, None if there is none.
    """

    def __init__(
        self,
        hooks: Callable[[int], BrokerHooks] | None,
        observer: Callable[[], Callable[[int, RequestContext], None] | None],
    ) -> None:
        self._hooks = hooks
        self._observer = observer
        self._delays_s: dict[int, float] = {}

    def slow(self, broker_id: int, delay_s: float) -> None:
        """Delay every request of a broker by this many seconds; 0 for no delay.

        Raises:
            ValueError: The delay is negative or longer than a day.
        """
        Interception(delay_s=delay_s)  # it raises the error of an invalid delay
        self._delays_s[broker_id] = delay_s

    def __call__(self, broker_id: int) -> BrokerHooks:
        """Return a copy of the owner's hooks of a broker, with its delay and the observer added."""
        hooks = self._hooks(broker_id) if self._hooks is not None else BrokerHooks()
        intercept, answered = hooks.intercept, hooks.answered

        def slow_or(context: RequestContext, request: Any) -> Interception | None:
            plan = intercept(context, request) if intercept is not None else None
            delay_s = self._delays_s.get(broker_id, 0.0)
            return Interception(delay_s=delay_s) if plan is None and delay_s else plan

        def report(context: RequestContext, request: Any, answer: Any) -> None:
            if answered is not None:
                answered(context, request, answer)
            observer = self._observer()
            if observer is not None:
                observer(broker_id, context)

        return replace(hooks, intercept=slow_or, answered=report)


_LONGEST_MS: Final = 1_000
"""The longest interval between two checks of a leader's followers."""


class FollowerChecks:
    """Checks the followers of every leader of a fleet, again and again until the fleet closes.

    Args:
        cluster: Returns the fleet's brokers.
        links: The links of each broker.
        paused: The brokers that hang.
        lag_max_ms: The time after which a silent follower leaves the ISR.
        submit: Has a check made on another thread than the network thread; drops it once the fleet is closed.
    """

    def __init__(
        self,
        cluster: Callable[[], EmbeddedCluster],
        links: Mapping[int, BrokerLinks],
        paused: Set[int],
        lag_max_ms: int,
        submit: Callable[[Callable[[], None]], None],
    ) -> None:
        self._cluster = cluster
        self._links = links
        self._paused = paused
        self._interval_ms = min(_LONGEST_MS, max(1, lag_max_ms // 2))
        self._submit = submit

    def is_fetching(self, follower: int, tp: TopicPartition, led: HostedReplica) -> bool:
        """Whether a broker fetches a partition from this leader in this leader epoch."""
        member = self._cluster().members.get(follower)
        if member is None or not member.is_up or follower in self._paused:
            return False
        fetcher = member.broker.replicas.fetchers.get(tp)
        return fetcher is not None and (fetcher.leader, fetcher.leader_epoch) == (led.leader, led.leader_epoch)

    def check_later(self) -> None:
        """Check the followers after the interval, and then at each interval."""
        self._cluster().call_later(self._interval_ms, lambda: self._submit(self._check))

    def _check(self) -> None:
        now, cluster = SYSTEM_CLOCK.milliseconds(), self._cluster()
        try:
            for broker_id, links in list(self._links.items()):
                if cluster[broker_id].is_up and broker_id not in self._paused:
                    links.check_followers(now)
        finally:
            self.check_later()
