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
from channel.errors import ChannelError, IllegalState
from channel.logs import get_logger
from channel.threads import begin, close_all, close_together, first_error
from channel.types import Broker, EndPoint, Node, SecurityProtocol
from channel.zookeeper.cluster_state import cluster_id, create_persistent_nodes, read_settings
from channel.zookeeper.session import ZooKeeperSession
from channel.zookeeper.znodes import CONTROLLER
from kproto.api import ibp_at_least
from kproto.errors import ConfigurationError

from .administrator_requests import AdministratorRequests
from .cluster import EmbeddedCluster
from .hooks import BrokerHooks, Interception
from .isr import LedPartitions, propose_in_zookeeper, propose_to_controller
from .kraft_registration import Quorum
from .links import BrokerLinks, controlled_shutdown
from .service import SETTINGS_READ_S
from .to_controller import ControllerInformation, NodeToControllerThread, controller_of_metadata
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Any

    from channel.metrics import Metrics
    from channel.network.recorder import Recorder
    from channel.security import SecurityConfig
    from kproto.types import TopicPartition

    from .cluster import ClusterMember
    from .embedded import HostedReplica
    from .hooks import RequestContext
    from .links import Stand


_log = get_logger(__name__)

_LONGEST_MS: Final = 1_000
"""The longest interval between two checks of a leader's followers."""
_ELECTION_S: Final = 0.4
"""The time in which ZooKeeper answers, and in which candidates elect a controller once another has gone."""
_LEAVE_S: Final = 2.0
"""The time that a broker has to resign and to end its session, if no more is left: ZooKeeper may be away."""


class Fleet(EmbeddedCluster):
    """Simulated brokers that a controller finds in ZooKeeper; they store no records.

    A leader drops a follower that is down or paused for longer than ``replica_lag_time_max_ms`` from the ISR, and takes
    it back once it follows again: by AlterPartition, or before IBP 2.7-IV2 by a write to ZooKeeper. Brokers outside of
    the fleet fetch nothing from its leaders, and leave the ISR too.

    ZooKeeper must allow a connection for each broker: ``maxClientCnxns`` is 60 by default, and 0 means no limit.

    Args:
        zookeeper: ``HOST:PORT``, several with commas between them, and ``/PATH`` at the end for a chroot.
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
        waits_for_all: See ``EmbeddedCluster``.

    Attributes:
        on_answered: Called with a broker's id and each request that it has answered, after the broker's own hook;
            None for no call. It runs on the network thread and must not block.
    """

    _FILES_A_BROKER = 14
    """An embedded broker's open files, and those of its ZooKeeper session and its controller connection."""

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
        waits_for_all: bool = False,
    ) -> None:
        self._configs = config if isinstance(config, BrokerConfigs) else BrokerConfigs(config or ChannelConfig())
        config = self._configs.common
        if quorum and not ibp_at_least(config.inter_broker_protocol_version, "3.4-IV0"):
            raise ConfigurationError(
                f"a migration to KRaft needs inter.broker.protocol.version 3.4 or newer, "
                f"not {config.inter_broker_protocol_version}"
            )
        super().__init__(
            broker_ids,
            base_port=base_port,
            host=host,
            hooks=self._hooks_of,
            config=config,
            recorder=recorder,
            listener_name=config.inter_broker_listener_name or protocol.name,
            kraft=bool(quorum),
            register=self._register_in_zookeeper,
            protocol=protocol,
            security=security,
            waits_for_all=waits_for_all,
        )
        self._stand = stand
        self._zookeeper = zookeeper
        self._advertised_host = advertised_host
        self._racks = dict(zip(self._ids, itertools.cycle(racks), strict=False))
        self._protocol = protocol
        self._session_timeout_ms = session_timeout_ms
        self._lag_max_ms = replica_lag_time_max_ms
        self._owners_hooks = hooks
        self._delays_s: dict[int, float] = {}
        self._links: dict[int, BrokerLinks] = {}
        self._blocking = Worker("fleet-worker-thread")
        self._is_ending = False
        security = security or config.security
        self._unknown = ControllerInformation(
            None, self._listener_name, protocol, sasl_mechanism=security.sasl_mechanism
        )

        def thread_to(name: str, channel: str) -> NodeToControllerThread:
            return NodeToControllerThread(f"fleet-{name}-thread", channel, config, security, self._unknown, metrics)

        self._to_controller = thread_to("to-controller", "alter-partition")
        self._threads = [self._to_controller]
        self._quorum: Quorum | None = None
        self._forwarding: NodeToControllerThread | None = None
        if quorum:
            self._quorum = Quorum("fleet", quorum, protocol, config, security, metrics)
            self._forwarding = thread_to("forwarding", "forwarding")
            self._threads += [self._quorum.thread, self._forwarding]
        self.on_answered: Callable[[int, RequestContext], None] | None = None

    # ---- starting and ending -----------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Open every broker's port, register the brokers, and serve.

        Raises:
            Disconnected: No ZooKeeper answers.
            NodeExists: Another process has registered one of the ids.
            ConfigurationError: A port is taken, or above 65535.
            BrokerNotAvailable: The limit of open files is too low for this many brokers.
        """
        self._must_be_new()
        try:
            with ZooKeeperSession(self._zookeeper) as session:
                create_persistent_nodes(session)
                self._cluster_id = cluster_id(session)
            for thread in self._threads:
                thread.start()
            super().start()
        except BaseException:
            self.close()
            raise
        self._check_followers_later()
        return self

    def close(self, timeout_s: float | None = 10.0) -> None:
        """End all brokers and their registrations at once, without a controlled shutdown. Harmless if closed.

        Args:
            timeout_s: The longest time to wait for each part; a line in the log names a thread that has not ended then.

        Raises:
            Exception: The first failure of a part, once all were closed; a second call tries the failed parts again.
        """
        self._is_ending = True
        ends: list[Callable[[], object]] = [partial(super().close, timeout_s)]
        leading = [links for links in self._links.values() if links.leads_cluster]  # last, so that no other is elected
        others = [links for links in self._links.values() if links not in leading]
        ends += [partial(_leave_together, group, timeout_s) for group in (others, leading)]
        ends += [partial(thread.shutdown, timeout_s) for thread in self._threads]
        # The worker last: its task may wait for a ZooKeeper that is away, until its session is closed.
        close_all(*ends, partial(self._blocking.close, timeout_s))

    def shut_down(self, *broker_ids: int, timeout_s: float = 10.0) -> dict[int, str]:
        """Shut brokers down as on SIGTERM, by default all that are up: the controller moves their leaders away first.

        A broker leaves as soon as the controller consents, and at the latest after ``timeout_s``, even if it still
        leads partitions, or when ZooKeeper knows no controller. A broker of the fleet that is the active controller
        leaves after the others.

        Returns:
            The reasons of the brokers that left without the controller's consent, by broker id.
        """
        leaving = [i for i in broker_ids or self._ids if self[i].is_up]
        controllers = [i for i in leaving if self._links[i].leads_cluster]
        failures: dict[int, str] = {}
        ends: list[Callable[[], object]] = []
        deadline = time.monotonic() + timeout_s

        def leave(broker_id: int) -> None:  # the next may leave meanwhile
            ends.append(begin("fleet-leaving", lambda: self._leave([broker_id], deadline)))

        for group in filter(None, ([i for i in leaving if i not in controllers], controllers)):
            if not self._has_controller(group[0]):
                failed = dict.fromkeys(group, "there is no controller")
            else:
                asking = {i: self._links[i].ask_to_leave() for i in group}
                failed = controlled_shutdown(asking, leave, max(0.0, deadline - time.monotonic()))
            close_all(partial(self._leave, failed, deadline), *ends)
            ends.clear()
            failures |= failed
        return failures

    def _has_controller(self, broker_id: int) -> bool:
        """Whether a broker's controller can be asked; between two controllers its registration is away for moments."""
        session = self._links[broker_id].session
        try:
            if self[broker_id].broker.is_led_by_kraft or session.get_many([CONTROLLER], _ELECTION_S)[0] is not None:
                return True
            SYSTEM_CLOCK.sleep(round(_ELECTION_S * 1000))
            return session.get_many([CONTROLLER], _ELECTION_S)[0] is not None
        except ChannelError:
            return True  # it cannot be told

    def _leave(self, broker_ids: Collection[int], deadline: float) -> None:
        def go_down() -> None:
            for broker_id in broker_ids:
                if self[broker_id].is_up:
                    EmbeddedCluster.kill(self, broker_id)

        _leave_together([self._links[i] for i in broker_ids], max(_LEAVE_S, deadline - time.monotonic()), go_down)

    @property
    def controller_id(self) -> int | None:
        """The broker of this fleet that is the active controller; None if there is none."""
        return next((i for i, links in list(self._links.items()) if links.leads_cluster), None)

    @property
    def error(self) -> BaseException | None:
        """The error that has ended one of the fleet's threads, a broker's session or its candidacy; None for none."""
        return super().error or first_error(self._blocking, *self._threads, *list(self._links.values()))

    # ---- single brokers ----------------------------------------------------------------------------------------------

    def kill(self, broker_id: int) -> None:
        """End a broker as kill -9 does: its port closes now, its registration ends one session timeout later.

        Raises:
            IllegalState: It is down already.
        """
        super().kill(broker_id)
        links = self._links[broker_id]
        links.break_off()
        self.call_later(self._session_timeout_ms, lambda: self._submit(links.close))

    def restart(self, broker_id: int) -> int:
        """Bring a broker back on its port, killing it first if it is up; it keeps its logs.

        Returns:
            The new broker epoch.

        Raises:
            IllegalState: The fleet is closed.
        """
        if self._is_ending:
            raise IllegalState(f"broker {broker_id} cannot be restarted: its fleet is closed")
        if self[broker_id].is_up:
            super().kill(broker_id)
        links = self._links[broker_id]
        links.break_off()
        links.close()
        return super().restart(broker_id)

    def slow(self, broker_id: int, delay_s: float) -> None:
        """Delay every request of a broker by this many seconds; 0 for no delay.

        Raises:
            BrokerNotAvailable: The fleet has no such broker.
            ValueError: The delay is negative or longer than a day.
        """
        Interception(delay_s=delay_s)  # it raises the error of an invalid delay
        self._delays_s[self[broker_id].id] = delay_s

    def _hooks_of(self, broker_id: int) -> BrokerHooks:
        """Return a copy of the owner's hooks of a broker, with its delay and the observer added."""
        hooks = self._owners_hooks(broker_id) if self._owners_hooks is not None else BrokerHooks()
        intercept, answered = hooks.intercept, hooks.answered

        def slow_or(context: RequestContext, request: Any) -> Interception | None:
            plan = intercept(context, request) if intercept is not None else None
            delay_s = self._delays_s.get(broker_id, 0.0)
            return Interception(delay_s=delay_s) if plan is None and delay_s else plan

        def report(context: RequestContext, request: Any, answer: Any) -> None:
            if answered is not None:
                answered(context, request, answer)
            observer = self.on_answered
            if observer is not None:
                observer(broker_id, context)

        return replace(hooks, intercept=slow_or, answered=report)

    def _enter(self, member: ClusterMember) -> None:
        member.broker.broker_epoch = self._register(member)  # the KRaft epoch is the quorum's, which may have answered

    def _register_in_zookeeper(self, member: ClusterMember) -> int:
        broker, config = member.broker, self._configs.of_broker(member.id)
        ibp = config.inter_broker_protocol_version
        endpoint = EndPoint(self._advertised_host or member.host, member.port, self._listener_name, self._protocol)
        described = Broker(member.id, (endpoint,), self._racks.get(member.id))
        links = BrokerLinks(self._zookeeper, broker, described, ibp, self._session_timeout_ms, self._stand)
        quorum = self._quorum.provider if self._quorum is not None else lambda: None
        provider = controller_of_metadata(
            broker.metadata, self._listener_name, self._protocol, quorum, self._unknown.sasl_mechanism
        )
        links.to_controller = channel = self._to_controller.channel(member.id, provider, FOREVER)
        if self._forwarding is not None and self._quorum is not None:
            links.forwarding = self._forwarding.channel(member.id, provider, config.request_timeout_ms)
            links.kraft = self._quorum.registration(broker, described, ibp, self.call_later)
        broker.hooks.controller = AdministratorRequests(links.candidacy, links.forwarding)
        if broker.hooks.settings is None:
            broker.hooks.settings = partial(read_settings, links.session, timeout_s=SETTINGS_READ_S)
        propose = (
            partial(propose_to_controller, channel)
            if ibp_at_least(ibp, "2.7-IV2")
            else partial(propose_in_zookeeper, links.session)
        )
        links.led = LedPartitions(broker, self._is_fetching, self._lag_max_ms, propose)
        self._links[member.id] = links
        if self._is_ending:  # what close has not seen may not begin
            raise IllegalState(f"broker {member.id} cannot be registered: its fleet is closed")
        return links.register()

    # ---- in-sync replicas --------------------------------------------------------------------------------------------

    def _is_fetching(self, follower: int, tp: TopicPartition, led: HostedReplica) -> bool:
        """Whether a broker fetches a partition from this leader in this leader epoch."""
        member = self.members.get(follower)
        if member is None or not member.is_up or member.is_paused:
            return False
        fetcher = member.broker.replicas.fetchers.get(tp)
        return fetcher is not None and (fetcher.leader, fetcher.leader_epoch) == (led.leader, led.leader_epoch)

    def _check_followers_later(self) -> None:
        """Check the followers of every leader after an interval, and then at each interval until the fleet closes."""
        interval_ms = min(_LONGEST_MS, max(1, self._lag_max_ms // 2))
        self.call_later(interval_ms, lambda: self._submit(self._check_followers))

    def _check_followers(self) -> None:
        now = SYSTEM_CLOCK.milliseconds()
        try:
            for broker_id, links in list(self._links.items()):
                if self[broker_id].is_up and not self[broker_id].is_paused:
                    links.led.check(now)
        finally:
            self._check_followers_later()

    def _submit(self, work: Callable[[], None]) -> None:
        """Have work that waits for ZooKeeper done on another thread than the network thread."""
        try:
            self._blocking.submit(work)
        except IllegalState:
            _log.debug("the fleet is closed; work that was due is dropped")


def _leave_together(
    links: Collection[BrokerLinks], timeout_s: float | None, go_down: Callable[[], object] = lambda: None
) -> None:
    """End brokers' links side by side, as each may wait for a ZooKeeper that is away; the registrations end last."""
    close_all(
        lambda: close_together("fleet-leaving", [partial(each.leave, timeout_s) for each in links]),
        go_down,
        lambda: close_together("fleet-leaving", [partial(each.close, timeout_s) for each in links]),
    )
