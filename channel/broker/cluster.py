"""A cluster of embedded brokers in one process, on one network thread: start, kill, restart, pause, and faults."""

from __future__ import annotations

import dataclasses
import itertools
import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from channel.addresses import show_address
from channel.clock import SYSTEM_CLOCK, Clock
from channel.config import ChannelConfig
from channel.errors import BrokerNotAvailable, IllegalState
from channel.logs import bounded
from channel.network.secured import server_channels
from channel.network.server import SocketServer
from channel.security import SecurityConfig
from channel.threads import Startable, close_all, first_error, time_left
from channel.types import NO_BROKER_EPOCH, SecurityProtocol
from kproto.errors import ConfigurationError

from .delayed_answers import DelayedAnswers
from .embedded import EmbeddedBroker, Features
from .handlers import api_versions_before_authentication
from .hooks import BrokerHooks, Interception, PlannedFaults
from .metadata_cache import MetadataCache, SharedUpdates
from .records import BrokerRecords, RecordConfig, RecordStore
from .service import BrokerService, settings_worker
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from channel.network.recorder import Recorder
    from channel.network.server import ListeningSocket

    from .hooks import ClusterController

_LAST_PORT: Final = 65_535


def raise_file_limit(brokers: int, files_a_broker: int) -> None:
    """Raise this process's limit of open files to the number that this many brokers need.

    Raises:
        BrokerNotAvailable: The hard limit is too low; the text names the limit that is needed.
    """
    wanted = 256 + brokers * files_a_broker
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise BrokerNotAvailable(
                f"{brokers} brokers need {wanted} open files, the limit is {hard}; raise it: ulimit -Hn {wanted}"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@dataclass(slots=True)
class ClusterMember:
    """One broker of the cluster.

    Attributes:
        broker: The broker's state; a new object after each restart.
        listener: The listening socket; None while the broker is down.
        host, port: The address of its listener, the same after a restart.
    """

    broker: EmbeddedBroker
    listener: ListeningSocket | None
    host: str
    port: int

    @property
    def id(self) -> int:
        """The broker's id."""
        return self.broker.broker_id

    @property
    def epoch(self) -> int:
        """The broker epoch of its present registration."""
        return self.broker.broker_epoch

    @property
    def hooks(self) -> BrokerHooks:
        """The broker's hooks: each may be set at any time, and stays set when the broker restarts.

        A cluster that was given a function for hooks asks it for new ones at each restart.
        """
        return self.broker.hooks

    @hooks.setter
    def hooks(self, hooks: BrokerHooks) -> None:
        self.broker.hooks = hooks

    def intercept(self, plan: Interception, *api_keys: int, times: int | None = None) -> None:
        """Make the broker treat its next requests by a plan; ``hooks.intercept = None`` ends all plans.

        Args:
            plan: The plan, such as ``Interception(error=ErrorCode.KAFKA_STORAGE_ERROR)``.
            api_keys: The APIs of the requests; all if none is named.
            times: The number of requests; all that follow by default.
        """
        hooks = self.broker.hooks
        if not isinstance(hooks.intercept, PlannedFaults):
            hooks.intercept = PlannedFaults(hooks.intercept)
        hooks.intercept.add(plan, api_keys, times)

    @property
    def is_up(self) -> bool:
        """Whether the broker listens."""
        return self.listener is not None

    @property
    def is_paused(self) -> bool:
        """Whether the broker hangs, though it is up."""
        listener = self.listener
        return listener is not None and listener.paused


class EmbeddedCluster(Startable):
    """Brokers that serve a controller's requests, on loopback by default; ``EmbeddedBroker`` describes each broker.

    >>> with EmbeddedCluster(3) as cluster:
    ...     [member.is_up for member in cluster]
    [True, True, True]

    Args:
        brokers: The number of brokers, from 1 (ids from 0), or their ids.
        base_port: Broker N listens at this port + N; 0 lets the system choose.
        host: The address to listen at.
        first_epoch: The first registration's broker epoch; each registration takes the next number.
        hooks: Returns a broker's hooks by its id; None for no hooks.
        config: Limits of the network, under Kafka's names.
        clock: The clock of timers and idle limits.
        recorder: Records every frame, sent and received.
        listener_name: The name of every listener; the protocol's name by default.
        kraft: Whether brokers take part in a migration to KRaft; their KRaft epoch is their broker epoch.
        features: The features that all brokers announce.
        cluster_id: The cluster id in Metadata answers.
        records: Whether brokers store the records of producers in memory, and with what limits; off by default:
            Produce, Fetch, ListOffsets and InitProducerId are refused with POLICY_VIOLATION then.
        register: Registers a broker whose port is open and returns its broker epoch; the broker serves no request
            before. By default no registry is used, and the broker epoch is the next number.
        protocol: The security protocol of every listener.
        security: The certificate of the brokers, and the users to accept; by default those of ``config``.
        waits_for_all: Whether a controller's answer that topics were created or deleted, partitions added or leaders
            elected waits until all brokers that are up and not paused know of it; by default until the broker that
            answers does.

    Attributes:
        failures: What hooks and handlers have raised, the first hundred; the pytest plugin fails a test by it.

    Raises:
        ConfigurationError: There is no broker, or an id is negative or given twice.
    """

    _ANSWERS_GROUPS = True

    _FILES_A_BROKER = 6
    """A listening socket; the connection of a controller in this process, at both ends; epoll and eventfd of its send
    thread; and one in reserve."""

    def __init__(
        self,
        brokers: int | Iterable[int],
        *,
        base_port: int = 0,
        host: str = "127.0.0.1",
        first_epoch: int = 1,
        hooks: Callable[[int], BrokerHooks] | None = None,
        config: ChannelConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        recorder: Recorder | None = None,
        listener_name: str | None = None,
        kraft: bool = False,
        features: Features | None = None,
        cluster_id: str = "kproto",
        records: bool | RecordConfig = False,
        register: Callable[[ClusterMember], int] | None = None,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        security: SecurityConfig | None = None,
        waits_for_all: bool = False,
    ) -> None:
        self._ids = _broker_ids(brokers)
        self._is_started = self._is_closed = False
        self.failures: list[BaseException] = []
        self._controller_for: Callable[[int], ClusterController] | None = None
        self._base_port = base_port
        self._host = host
        epochs = itertools.count(first_epoch)
        self._hooks = hooks
        self._listener_name = listener_name or protocol.name
        self._kraft = kraft
        self._features = features
        self._cluster_id = cluster_id
        self._register = register or (lambda _: next(epochs))
        self._updates = SharedUpdates()
        self._worker = Worker("embedded-cluster-worker-thread")
        self._settings = settings_worker("embedded-cluster")
        config = config or ChannelConfig()
        if security is not None:
            config = dataclasses.replace(config, security=security)
        channels = server_channels(protocol, config.security, self._apis_before_authentication)
        self._server = SocketServer(
            "embedded-cluster", config=config, clock=clock, recorder=recorder, channel_builder=channels
        )
        limits = RecordConfig() if isinstance(records, bool) else records
        self._records = RecordStore(
            limits,
            self._worker.submit,
            self._server.call_later,
            stores=bool(records),
            answers_groups=self._ANSWERS_GROUPS,
        )
        self._waits_for_all = waits_for_all
        self._delayed = DelayedAnswers(self._server.call_later, self._worker.submit, self._who_must_show)
        self.members: dict[int, ClusterMember] = {}

    def start(self) -> Self:
        """Open every broker's port and start to serve.

        Raises:
            ConfigurationError: A port is taken, or above 65535.
            BrokerNotAvailable: The limit of open files is too low for this many brokers.
            IllegalState: It was started before.
        """
        self._must_be_new()
        self._is_started = True
        last = max(self._ids, default=0)
        if self._base_port and self._base_port + last > _LAST_PORT:
            port = self._base_port + last
            raise ConfigurationError(f"broker {last} would listen at port {port}; choose a lower base port")
        raise_file_limit(len(self._ids), self._FILES_A_BROKER)
        try:
            for broker_id in self._ids:
                broker = self._broker(broker_id)
                port = self._base_port + broker_id if self._base_port else 0
                listener = self._listen(broker, port)
                self.members[broker_id] = ClusterMember(broker, listener, self._host, listener.port)
            for member in self.members.values():
                self._enter(member)
            self._server.start()
        except BaseException:
            self._server.close()
            raise
        return self

    def _must_be_new(self) -> None:
        if self._is_started:
            raise IllegalState(
                f"this cluster is {'closed' if self._is_closed else 'started already'}; a cluster starts once: make "
                "another, or restart its brokers"
            )

    def __enter__(self) -> Self:
        if self._is_closed or not self._is_started:
            self.start()
        return self

    def close(self, timeout_s: float | None = 10.0) -> None:
        """Close every socket and end the threads. Harmless if closed.

        Args:
            timeout_s: The longest time to wait; a line in the log names a thread that has not ended then.
        """
        self._is_started = self._is_closed = True
        left_s = time_left(timeout_s)
        try:
            close_all(
                lambda: self._server.close(left_s()),
                lambda: self._worker.close(left_s()),
                lambda: self._settings.close(left_s()),
            )
        finally:
            for member in self.members.values():
                member.listener = None

    @property
    def error(self) -> BaseException | None:
        """The error that has ended one of the cluster's threads, after which no broker serves; None while all go on."""
        return first_error(self._server, self._worker, self._settings)

    def __iter__(self) -> Iterator[ClusterMember]:
        return iter(self.members.values())

    def __getitem__(self, broker_id: int) -> ClusterMember:
        try:
            return self.members[broker_id]
        except KeyError:
            if broker_id in self._ids:
                raise BrokerNotAvailable(f"broker {broker_id} is not started; call start() first") from None
            raise BrokerNotAvailable(f"no broker {broker_id!r} here; there are {bounded(self._ids)}") from None

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as clients take them: host and port of each, with commas."""
        return ",".join(show_address((member.host, member.port)) for member in self)

    def lead_by(self, controller_for: Callable[[int], ClusterController]) -> None:
        """Have requests to the controller served, in place of an earlier controller.

        Args:
            controller_for: Returns the controller as the broker of an id sees it.
        """
        self._controller_for = controller_for
        for member in self:
            member.broker.cluster_controller = controller_for(member.id)

    def end_lead(self, controller_for: Callable[[int], ClusterController]) -> None:
        """Have this controller serve no more requests; harmless if another has taken its place."""
        if self._controller_for is controller_for:
            self._controller_for = None
            for member in self:
                member.broker.cluster_controller = None

    # ---- single brokers ----------------------------------------------------------------------------------------------

    def kill(self, broker_id: int) -> None:
        """End a broker as kill -9 does: its port closes, its connections break, unsent answers are lost."""
        member = self[broker_id]
        if member.listener is None:
            raise IllegalState(f"broker {broker_id} is down already")
        member.listener.close()
        member.listener = None
        self._records.stop(broker_id)

    def restart(self, broker_id: int) -> int:
        """Bring a broker back on its port, killing it first if it is up.

        The broker keeps its logs and forgets its leaderships, its fetchers and its metadata.

        Returns:
            The new broker epoch.
        """
        member = self[broker_id]
        if member.listener is not None:
            self.kill(broker_id)
        former = member.broker.replicas
        member.broker = self._broker(broker_id, member.broker.hooks)
        member.broker.replicas.take_logs(former)
        self._records.restart(broker_id)
        self._server.call(lambda: self._reopen(member))
        try:
            self._enter(member)
        except BaseException:
            self.kill(broker_id)
            raise
        self.resume(broker_id)
        return member.epoch

    def pause(self, broker_id: int) -> None:
        """Make a broker hang: it neither accepts nor reads, and its connections stay open."""
        self._listener(broker_id).pause()
        self._records.stop(broker_id)

    def resume(self, broker_id: int) -> None:
        """Let a paused broker continue."""
        self._listener(broker_id).resume()
        self._records.resume(broker_id)

    def call_later(self, delay_ms: int, function: Callable[[], None]) -> None:
        """Call a non-blocking function on the network thread after a delay; never once the cluster is closed."""
        self._server.call_later(delay_ms, function)

    def _who_must_show(self, answering: MetadataCache) -> list[MetadataCache]:
        """The metadata that must show a change before it is answered; of a scripted controller all brokers must."""
        if not self._waits_for_all and self._controller_for is None:
            return [answering]
        return [m.broker.metadata for m in list(self.members.values()) if m.is_up and not m.is_paused]

    def _apis_before_authentication(self, version: int) -> Any:
        """Answer ApiVersions of a client that is not authenticated yet; every broker serves the same APIs."""
        first = next(iter(self.members.values()), None)
        return api_versions_before_authentication(version, () if first is None else first.broker.announced_keys)

    def _reopen(self, member: ClusterMember) -> None:
        """Open a broker's port; on the network thread, so that no request is read before the registration."""
        member.listener = self._listen(member.broker, member.port)
        member.listener.pause()

    def _enter(self, member: ClusterMember) -> None:
        member.broker.broker_epoch = self._register(member)
        if self._kraft:
            member.broker.kraft_epoch = member.broker.broker_epoch

    def _listener(self, broker_id: int) -> ListeningSocket:
        listener = self[broker_id].listener
        if listener is None:
            raise IllegalState(f"broker {broker_id} is down")
        return listener

    def _broker(self, broker_id: int, hooks: BrokerHooks | None = None) -> EmbeddedBroker:
        broker = EmbeddedBroker(
            broker_id,
            cluster_id=self._cluster_id,
            kraft_epoch=NO_BROKER_EPOCH if self._kraft else None,
            hooks=self._hooks(broker_id) if self._hooks else hooks,
            features=self._features,
            updates=self._updates,
        )
        broker.records = BrokerRecords(broker, self._records)
        broker.failures = self.failures
        if self._controller_for is not None:
            broker.cluster_controller = self._controller_for(broker_id)
        return broker

    def _listen(self, broker: EmbeddedBroker, port: int) -> ListeningSocket:
        service = BrokerService(broker, self._server, self._worker, self._settings, self._delayed)
        return self._server.listen(service, self._host, port, name=self._listener_name)


def _broker_ids(brokers: Any) -> list[int]:
    """Return the ids of a cluster's brokers.

    Raises:
        ConfigurationError: There is no broker, or an id is no id or given twice.
    """
    try:
        ids = list(range(brokers)) if isinstance(brokers, int) else list(brokers)
    except TypeError:
        ids = []
    if not ids:
        raise ConfigurationError(f"a cluster of {bounded(brokers)} brokers; give their number, from 1, or their ids")
    wrong = [each for each in ids if not isinstance(each, int) or not 0 <= each < 1 << 31]
    if wrong:
        raise ConfigurationError(f"{bounded(wrong)}: a broker's id is a whole number from 0 to 2147483647")
    if len(set(ids)) < len(ids):
        raise ConfigurationError(f"brokers {bounded(ids)}: an id is given twice")
    return ids
