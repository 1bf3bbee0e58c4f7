"""The simulated processes and their faults; what sends to the brokers is a subclass's own."""

from __future__ import annotations

import logging
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

import lock_checks

from channel import locks
from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import BrokerHooks, Interception
from channel.errors import IllegalState
from channel.network.recorder import PcapngRecorder
from kproto.api import ApiKey
from kproto.types import ZERO_UUID, TopicPartition

from .plan import Result
from .scheduler import Process, World
from .secured import security_of
from .secured import substitutions as substitutions_for_security
from .substitution import installed
from .wire import Wires

if TYPE_CHECKING:
    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext

    from .network import Network
    from .plan import Action, Plan

__all__ = ["PLANNED", "SETTLING_S", "Broker", "Simulation"]

PORT = 9_000
PLANNED = "planned: "
"""Begins the errors that a plan asks for; the product is right to log them."""
SETTLING_S = 240.0
"""The time in virtual s after the last fault within which all requests must be answered."""


class _Errors(logging.Handler):
    """Takes the errors that the product logs and does not expect."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            if PLANNED in str(error):
                return
            where = traceback.extract_tb(error.__traceback__)[-1:]
            place = f" ({where[0].filename.rpartition('/channel/')[2]}:{where[0].lineno})" if where else ""
            self._world.problem(f"logged: {text}: {type(error).__name__}: {error}{place}"[:600])
        elif record.levelno >= logging.CRITICAL and "has died; brokers" not in text and PLANNED not in text:
            self._world.problem(f"logged: {text}"[:600])


class Broker:
    """A broker's process, and what is kept from one life to the next."""

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.address = f"10.0.0.{broker_id + 1}"
        self.port = PORT + broker_id
        self.host = self.address
        self.epoch = 0
        self.process: Process | None = None
        self.cluster: EmbeddedCluster | None = None
        self.is_up = False
        self.plans: list[Interception] = []

    @property
    def broker(self) -> EmbeddedBroker:
        """The broker itself."""
        assert self.cluster is not None
        return self.cluster[self.id].broker


class Simulation:
    """A cluster of embedded brokers, each a process of its own, and the process that sends to them.

    Args:
        plan: What is done.
        capture: Where the frames that pass are written, None for nowhere.
    """

    def __init__(self, plan: Plan, capture: str | None) -> None:
        self.plan = plan
        self.world = World(plan.order)
        self.world.preemption = plan.preemption
        self.controller_process = Process("controller", "10.0.1.1")
        self.operator = Process("operator", "10.0.2.1")
        self.director_process = self.controller_process
        self.brokers = [Broker(i) for i in range(plan.brokers)]
        self.network: Network
        self.wires: Wires
        self.recorder = PcapngRecorder(capture) if capture else None
        self.done = False
        self.settling = False
        self.epochs = iter(range(1, 1_000_000))
        self.faults = 0
        self.leaders: dict[tuple[Any, int, int], int] = {}
        self.told: dict[tuple[int, TopicPartition], tuple[Any, int]] = {}
        self.protocol, self.security = security_of(plan)

    # ---- brokers

    def start_broker(self, broker: Broker) -> None:
        """Start a broker's process, with the logs of its last life."""
        logs = dict(broker.broker.replicas.logs) if broker.cluster is not None else {}
        process = Process(f"broker-{broker.id}", broker.address)

        def start() -> None:
            cluster = EmbeddedCluster(
                [broker.id],
                base_port=PORT,
                host=broker.address,
                hooks=lambda _: self._hooks(broker),
                register=lambda _: next(self.epochs),
                kraft=self.plan.is_migration,
                protocol=self.protocol,
                security=self.security,
            )
            cluster.start()
            broker.process, broker.cluster = process, cluster
            broker.epoch = cluster[broker.id].epoch
            broker.broker.replicas.logs.update(logs)
            broker.is_up = True
            self.world.note(f"broker {broker.id} is up, epoch {broker.epoch}")

        self.world.spawn("main", start, process)

    def _hooks(self, broker: Broker) -> BrokerHooks:
        return BrokerHooks(
            intercept=partial(self._intercept, broker),
            answered=partial(self._answered, broker),
            settings=self._settings,
        )

    def _settings(self, entity: str) -> dict[str, str]:
        """Read settings, sometimes from a ZooKeeper that does not answer."""
        if self.world.draw() < 0.5:
            self.world.sleep(self.world.draw() * 40)
        return {}

    def _intercept(self, broker: Broker, context: RequestContext, request: Any) -> Interception | None:
        return broker.plans.pop() if broker.plans and not self.settling else None

    def _answered(self, broker: Broker, context: RequestContext, request: Any, answer: Any) -> None:
        """Check what a broker has accepted."""
        if context.api_key == ApiKey.STOP_REPLICA:
            life, hosted = broker.broker.broker_epoch, broker.broker.replicas.hosted
            for gone in [known for known in self.told if known[0] == life and known[1] not in hosted]:
                del self.told[gone]
        if context.api_key != ApiKey.LEADER_AND_ISR or answer is None or answer.error_code:
            return
        ids = request.topic_ids
        hosted = broker.broker.replicas.hosted
        for state in request.partition_states:
            tp = TopicPartition(state.topic_name, state.partition_index)
            replica = hosted.get(tp)
            if replica is None:
                continue
            incarnation = tp.topic if ids.get(tp.topic, ZERO_UUID) == ZERO_UUID else ids[tp.topic]
            before, epoch = self.told.get((broker.broker.broker_epoch, tp), (incarnation, -1))
            if before == incarnation and replica.leader_epoch < epoch:
                self.world.problem(f"broker {broker.id} goes back from leader epoch {epoch} of {tp}")
            self.told[broker.broker.broker_epoch, tp] = (incarnation, replica.leader_epoch)
            if replica.role == "leader":
                other = self.leaders.setdefault((incarnation, tp.partition, replica.leader_epoch), broker.id)
                if other != broker.id:
                    self.world.problem(
                        f"brokers {other} and {broker.id} both lead {tp} in leader epoch {replica.leader_epoch}"
                    )

    # ---- for the subclass

    def direct(self) -> None:
        """Start everything, carry out the plan's work, settle, check, and end everything; in a task of its own."""
        raise NotImplementedError

    def substitutions(self) -> dict[int, Any]:
        """Return what else is put in place of objects of the product's modules, by ``id``."""
        return {}

    def left(self, broker: Broker, within_s: float) -> None:
        """Take note of a broker that has ended, and whose registration ends within this time."""

    def came(self, broker: Broker) -> None:
        """Take note of a broker that has been started again."""

    # ---- faults

    def fault(self, action: Action) -> None:
        """Bring a fault about; called by the scheduler."""
        if self.settling:
            return
        world, (a, b, c) = self.world, action.draws
        broker = self.brokers[int(a * len(self.brokers))]
        process = broker.process
        wires = sorted((w for s, w in self.wires.open.items() if not s.closed), key=lambda wire: wire.sock.fd)
        wire = wires[int(a * len(wires))] if wires else None
        can_inject = wire is not None and not self.protocol.uses_tls
        can_inject = can_inject and (wire.correlation_id >= 0 or not self.protocol.uses_sasl)
        self.faults += 1
        match action.kind:
            case "kill" | "crash" if broker.is_up and process is not None:
                broker.is_up = False
                world.note(f"{action.kind} broker {broker.id}")
                if action.kind == "crash":
                    process.dead = True
                    self.network.silent.add(broker.address)
                    for sock in list(process.sockets.values()):
                        self.network.cut_off(sock)
                        self.network.listeners.pop(sock.name, None)
                else:
                    self.network.kill(process, reset=c < 0.3)
                self.left(broker, 0.2 + b * 8)
                world.after((0.1 + c * 12) * 1e9, partial(self._come_back, broker))
            case "product kill" if broker.is_up and process is not None:
                world.note(f"broker {broker.id} is restarted within its process")
                world.spawn("operator", partial(self._restart, broker, b * 3), process)
            case "pause" if process is not None:
                world.note(f"pause broker {broker.id} for {b * b * 50:.1f} s")
                world.pause(process)
                world.after(b * b * 50e9, partial(world.resume, process))
            case "pause controller":
                world.note(f"pause the controller for {b * b * 20:.1f} s")
                world.pause(self.controller_process)
                world.after(b * b * 20e9, partial(world.resume, self.controller_process))
            case "reset" if wire is not None:
                world.note(f"reset {wire.channel}")
                self.network.reset(wire.sock)
            case "stall" if wire is not None:
                world.note(f"stall {wire.channel} for {b * b * 45:.1f} s")
                self.network.stall(wire.sock, int(b * b * 45e9))
            case "cut off" if wire is not None:
                world.note(f"cut off {wire.channel} silently")
                self.network.cut_off(wire.sock)
            case "slow network":
                before = self.network.latency_ns
                self.network.latency_ns = (1_000_000, int(1e9 * (0.01 + b)))
                world.note(f"latencies up to {0.01 + b:.2f} s")
                world.after(c * 10e9, partial(setattr, self.network, "latency_ns", before))
            case "early answer" if wire is not None and can_inject:
                world.note(f"{wire.channel}: the next request is answered before it is whole")
                wire.early = True
                wire.sock.window = wire.sock.outstanding + 16
            case "answer before request" if (
                wire is not None and can_inject and not wire.sock.outstanding + len(wire.got)
            ):
                world.note(f"{wire.channel}: takes no byte of its next request, and answers it")
                wire.sock.window = 0
                world.after(c * 3e9, partial(self._answer_next, wire))
            case "close fails":
                world.note("the controller's next close fails")
                if b < 0.5:
                    self.network.failing_close = self.controller_process
                else:
                    self.network.failing_epoll = self.controller_process
            case "unsolicited answer" if wire is not None and can_inject and wire.sock.window > 60_000:
                world.note(f"{wire.channel}: an answer that nobody asked for")
                self.wires.inject(wire, 6, self._update_version(), wire.correlation_id + (b < 0.7))
            case "intercept":
                orders = (
                    Interception(drop=True),
                    Interception(disconnect="before"),
                    Interception(disconnect="after"),
                )
                order = orders[int(b * len(orders))]
                world.note(f"broker {broker.id}: {order}")
                broker.plans.append(order)
            case "jump":
                world.wall_offset += int((b - 0.5) * 7_200e9)
                world.note("the wall clock jumps")

    def _answer_next(self, wire: Any) -> None:
        if not wire.sock.closed and not wire.odd:
            self.wires.inject(wire, ApiKey.UPDATE_METADATA, self._update_version(), wire.correlation_id + 1)

    def _update_version(self) -> int:
        entries = [e for channel in self.wires.channels.values() for e in channel.entries[-20:]]
        return next((e.request.latest_version for e in entries if e.request.api_key == 6), 8)

    def _come_back(self, broker: Broker) -> None:
        if broker.is_up:
            return
        self.network.silent.discard(broker.address)
        self.start_broker(broker)
        self.came(broker)

    def _restart(self, broker: Broker, after_s: float) -> None:
        assert broker.cluster is not None
        process = broker.process
        cluster = broker.cluster
        if not broker.is_up:
            return  # two restarts at a time
        broker.is_up = False
        try:
            cluster.kill(broker.id)
            self.left(broker, 1.0)
            self.world.sleep(after_s)
            broker.epoch = cluster.restart(broker.id)
        except IllegalState:
            if not self.settling:
                raise
            return  # the cluster is closed meanwhile
        if broker.process is process and process is not None and not process.dead:
            broker.is_up = True
            self.came(broker)

    # ---- the end

    def calm(self) -> None:
        """End all faults: the network is quick, and paused processes go on."""
        self.settling = True
        self.network.latency_ns = (20_000, 2_000_000)
        self.network.silent.clear()
        for broker in self.brokers:
            if broker.process is not None:
                self.world.resume(broker.process)
        self.world.note("the faults are over")

    def start_dead_brokers(self) -> None:
        """Start the brokers that are down, and wait for them."""
        for broker in self.brokers:
            if not broker.is_up and (broker.process is None or broker.process.dead):
                self.start_broker(broker)
                while not broker.is_up:
                    self.world.sleep(0.01)

    def close_brokers(self) -> None:
        """End the brokers; no thread of any process may be left."""
        for broker in self.brokers:
            if broker.cluster is not None and broker.process is not None and not broker.process.dead:
                self.world.spawn("closing", broker.cluster.close, broker.process)
        end = self.world.elapsed_s() + 60
        while self.world.elapsed_s() < end:
            left = [t for t in self.world.tasks if not t.process.dead and t is not self.world.current]
            if not left:
                return
            self.world.sleep(0.1)
        self.world.problem(f"threads have not ended: {left}; {self.world.waiting()}")

    def go(self) -> Result:
        """Run the plan."""
        world = self.world
        logger = logging.getLogger("channel")
        state_log = logging.getLogger("state.change.logger")
        handler = _Errors(world)
        before = logger.level, logger.propagate, logging.lastResort, state_log.disabled
        logger.addHandler(handler)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        state_log.disabled = True
        checks, locks.checks = locks.checks, lock_checks if self.plan.checks_locks else None
        try:
            with installed(world, self.substitutions() | substitutions_for_security(world)) as self.network:
                addresses = {(b.address, b.port): b.id for b in self.brokers}
                self.wires = Wires(world, self.network, addresses, is_encrypted=self.protocol.uses_tls)
                for action in self.plan.actions:
                    if action.is_fault:
                        world.after(action.at_s * 1e9, partial(self.fault, action))
                world.spawn("director", self.direct, self.director_process)
                world.run(lambda: self.done)
        finally:
            locks.checks = checks
            logger.removeHandler(handler)
            logger.setLevel(before[0])
            logger.propagate = before[1]
            state_log.disabled = before[3]
            if self.recorder is not None:
                self.recorder.close()
        return Result(
            self.plan,
            list(world.problems),
            sorted([*world.events, *self.wires.recent], key=lambda event: event[0]),
            world.steps,
            world.elapsed_s(),
            self.wires.frames,
            self.faults,
        )
