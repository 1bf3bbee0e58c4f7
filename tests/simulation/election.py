"""The simulation of controller candidates, a fleet of brokers, and the ZooKeeper in which all of them register."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient

from channel.broker.fleet import Fleet
from channel.config import ChannelConfig
from channel.errors import ChannelError, Disconnected, IllegalState, SessionExpired
from channel.node.controller_node import ControllerNode
from channel.types import ReplicaAssignment
from channel.zookeeper.session import ZooKeeperSession
from channel.zookeeper.znodes import (
    ADMIN_DELETE_TOPICS,
    BROKER_IDS,
    CONTROLLER,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    TOPICS,
    decode_controller,
    decode_partition_state,
    decode_topic,
    encode_partitions,
    encode_reassignments,
    encode_topic,
    partition_state_path,
    topic_path,
)
from kproto.types import TopicPartition

from .cluster import PORT, SETTLING_S, Simulation
from .scheduler import Process
from .threads import Primitives
from .zookeeper import Ensemble
from .zookeeper_client import client_class

if TYPE_CHECKING:
    from .cluster import Broker
    from .plan import Action, Plan

__all__ = ["ElectionSimulation"]

ZOOKEEPER = "10.0.3.1:2181"
FIRST_CANDIDATE = 1_000
SESSION_MS = 6_000
CLOSE_S = 20.0


class _Candidate:
    """A candidate's process, which may end and begin again."""

    def __init__(self, number: int) -> None:
        self.id = FIRST_CANDIDATE + number
        self.address = f"10.0.1.{number + 1}"
        self.process: Process | None = None
        self.node: ControllerNode | None = None
        self.pauses = 0


class ElectionSimulation(Simulation):
    """Candidates of which one leads a fleet's brokers, while any of them and ZooKeeper fail.

    Args:
        plan: What is done.
        capture: Where the frames that pass are written, None for nowhere.
    """

    def __init__(self, plan: Plan, capture: str | None) -> None:
        super().__init__(plan, capture)
        self.ensemble = Ensemble(self.world, 1 + 2 * (plan.seed % 2), 50_000_000)
        self.config = ChannelConfig(
            inter_broker_protocol_version=plan.ibp,
            send_threads=plan.send_threads,
            zookeeper_session_timeout_ms=SESSION_MS,
        )
        self.candidates = [_Candidate(number) for number in range(2 + plan.seed % 2)]
        self.fleet_process = Process("brokers", "10.0.0.1")
        for broker in self.brokers:
            broker.address = broker.host = self.fleet_process.address
        self.fleet: Fleet
        self.controller_epochs: dict[int, int] = {}
        self.is_closing = False
        self.disturbances = 0  # of the way to ZooKeeper
        self.director_process = self.operator

    def substitutions(self) -> dict[int, Any]:
        """Put the model's client in place of kazoo's."""
        return {id(KazooClient): client_class(self.world, Primitives(self.world), self.ensemble)}

    # ---- processes

    def _start_candidate(self, candidate: _Candidate) -> None:
        process = candidate.process = Process(f"controller-{candidate.id}", candidate.address)

        def start() -> None:
            while not process.dead:
                node = ControllerNode(
                    candidate.id, ZOOKEEPER, host=candidate.address, config=self.config, recorder=self.recorder
                )
                try:
                    node.start()
                except (Disconnected, SessionExpired):  # who runs the process starts it again
                    node.close()
                    self.world.sleep(0.5)
                else:
                    candidate.node = node
                    self.world.note(f"candidate {candidate.id} is up")
                    return

        self.world.spawn("main", start, process)

    def _kill_candidate(self, candidate: _Candidate, *, reset: bool) -> None:
        if candidate.node is None or candidate.process is None:
            return  # it starts
        candidate.node = None
        self.network.kill(candidate.process, reset=reset)
        candidate.process.dead = True

    def _close_candidate(self, candidate: _Candidate, pause_s: float) -> None:
        """Close a candidate in an orderly way whatever it does, and start it again in a new process."""
        node, process = candidate.node, candidate.process
        if node is None or process is None:
            return  # it is killed meanwhile
        candidate.node = None
        began, pauses = self.world.elapsed_s(), candidate.pauses
        disturbances = -1 if self.ensemble.is_away else self.disturbances
        node.close(CLOSE_S)
        took = self.world.elapsed_s() - began
        if took > CLOSE_S + 1 and pauses == candidate.pauses:
            self.world.problem(f"close({CLOSE_S:g}) of candidate {candidate.id} took {took:.1f} s")
        end = self.world.elapsed_s() + 30
        while (left := self._left_by(candidate, disturbances)) and self.world.elapsed_s() < end:
            self.world.sleep(0.1)
        if left and pauses == candidate.pauses:
            self.world.problem(f"candidate {candidate.id} is closed, and {left}")
        process.dead = True
        self.world.after(pause_s * 1e9, partial(self._revive_candidate, candidate))

    def _left_by(self, candidate: _Candidate, disturbances: int) -> str | None:
        """What a closed candidate has not given back; its znodes only if ZooKeeper could be reached all the time."""
        process = candidate.process
        assert process is not None
        threads = [task for task in self.world.tasks if task.process is process and task is not self.world.current]
        if threads:
            return f"{threads} have not ended"
        if process.sockets:
            return f"{len(process.sockets)} sockets are open"
        tree = self.ensemble.tree.nodes
        controller = tree.get(CONTROLLER)
        if disturbances == self.disturbances:
            if controller is not None and decode_controller(controller.data or b"").broker_id == candidate.id:
                return f"{CONTROLLER} names it"
            if f"{BROKER_IDS}/{candidate.id}" in tree:
                return "it is registered"
        return None

    def _revive_candidate(self, candidate: _Candidate) -> None:
        if candidate.process is not None and candidate.process.dead and not self.is_closing:
            self._start_candidate(candidate)

    def _answered(self, broker: Broker, context: Any, request: Any, answer: Any) -> None:
        """Check what a broker has accepted, and from whom."""
        broker.cluster = self.fleet
        if context.api_key in (4, 5, 6) and answer is not None and not answer.error_code:
            life = broker.broker.broker_epoch
            if request.controller_epoch < self.controller_epochs.get(life, 0):
                self.world.problem(f"broker {broker.id} takes a request of the old controller {request.controller_id}")
            self.controller_epochs[life] = request.controller_epoch
        super()._answered(broker, context, request, answer)

    # ---- faults

    def fault(self, action: Action) -> None:
        """Bring a fault about; called by the scheduler."""
        if self.settling:
            return
        world, (a, b, c) = self.world, action.draws
        candidate = self.candidates[int(a * len(self.candidates))]
        broker = self.brokers[int(a * len(self.brokers))]
        sessions = list(self.ensemble.sessions)
        match action.kind:
            case "kill candidate":
                world.note(f"kill candidate {candidate.id}")
                self._kill_candidate(candidate, reset=c < 0.5)
                world.after((0.1 + b * 15) * 1e9, partial(self._revive_candidate, candidate))
            case "close candidate" if candidate.node is not None and candidate.process is not None:
                world.note(f"close candidate {candidate.id}")
                world.spawn("closing", partial(self._close_candidate, candidate, b * 15), candidate.process)
            case "pause candidate" if candidate.process is not None:
                candidate.pauses += 1
                world.note(f"pause candidate {candidate.id} for {b * 15:.1f} s")
                world.pause(candidate.process)
                world.after(b * 15e9, partial(world.resume, candidate.process))
            case "kill broker" | "pause broker":
                world.spawn(
                    "operator", partial(self._disturb, action.kind, broker, b * b * 20 + 0.1), self.fleet_process
                )
            case "expire" if sessions:
                self.disturbances += 1
                world.note("a ZooKeeper session is expired")
                self.ensemble.expire(sessions[int(b * len(sessions))])
            case "lose ZooKeeper" if self.ensemble.connections:
                self.disturbances += 1
                connections = list(self.ensemble.connections)
                world.note("a connection to ZooKeeper is lost")
                connections[int(b * len(connections))].cut(arrives=c < 0.5)
            case "ZooKeeper away":
                self.disturbances += 1
                world.note(f"ZooKeeper is away for {b * b * 20:.1f} s")
                self.ensemble.go_away()
                world.after(b * b * 20e9, self.ensemble.come_back)
            case _:
                super().fault(action)
                return
        self.faults += 1

    def _disturb(self, what: str, broker: Broker, seconds: float) -> None:
        """Kill a broker and start it again, or let it hang for a while."""
        if broker.id in self._disturbed:
            return
        self._disturbed.add(broker.id)
        try:
            self.world.note(f"{what} {broker.id} for {seconds:.1f} s")
            if what == "pause broker":
                self.fleet.pause(broker.id)
                self.world.sleep(seconds)
                self.fleet.resume(broker.id)
            else:
                self.fleet.kill(broker.id)
                self.world.sleep(seconds)
                while True:
                    try:
                        self.fleet.restart(broker.id)
                        break
                    except ChannelError as e:  # ZooKeeper is away
                        if self.settling and isinstance(e, IllegalState):
                            raise
                        self.world.note(f"broker {broker.id} does not start: {type(e).__name__}")
                        self.world.sleep(1)
        except IllegalState:
            if not self.settling:
                raise  # else the fleet is closed meanwhile
        finally:
            self._disturbed.discard(broker.id)

    # ---- the run

    def direct(self) -> None:
        """Start everything, carry out the plan's work, settle, check, and end everything."""
        world = self.world
        self._disturbed: set[int] = set()
        self.fleet = Fleet(
            ZOOKEEPER,
            range(len(self.brokers)),
            base_port=PORT,
            host=self.fleet_process.address,
            config=self.config,
            session_timeout_ms=SESSION_MS,
            hooks=lambda broker_id: self._hooks(self.brokers[broker_id]),
            replica_lag_time_max_ms=4_000,
        )
        self._wait_for(world.spawn("main", self.fleet.start, self.fleet_process))
        for candidate in self.candidates:
            self._start_candidate(candidate)
        with ZooKeeperSession(ZOOKEEPER) as session:
            self._carry_out(session)
        self.calm()
        if self.plan.seed % 4 != 1:  # else the fleet and the candidates are closed in the midst of their work
            self._settle()
        self._close()
        self.done = True

    def _wait_for(self, *tasks: Any) -> None:
        end = self.world.elapsed_s() + SETTLING_S
        while not all(task.is_over for task in tasks) and self.world.elapsed_s() < end:
            self.world.sleep(0.05)
        for task in tasks:
            if not task.is_over:
                self.world.problem(f"{task} does not end; {self.world.waiting()}")

    def _carry_out(self, session: ZooKeeperSession) -> None:
        self._names = iter(f"t{i}" for i in range(1_000_000))
        for action in self.plan.actions:
            if action.is_fault:
                continue
            self.world.sleep(max(0.0, action.at_s - self.world.elapsed_s()))
            try:
                self._work(session, action.kind, action.draws)
            except (ChannelError, IllegalState) as e:
                self.world.note(f"{action.kind}: {type(e).__name__}")

    def _work(self, session: ZooKeeperSession, kind: str, draws: tuple[float, float, float]) -> None:
        """Do one piece of administration, as Kafka's tools do it in ZooKeeper."""
        a, b, c = draws
        brokers = [broker.id for broker in self.brokers]

        def replicas(start: float, count: float) -> tuple[int, ...]:
            first = int(start * len(brokers))
            return tuple(brokers[(first + i) % len(brokers)] for i in range(1 + int(count * 3)))

        topics = sorted(session.children(TOPICS))
        if kind == "create" or not topics:
            name = next(self._names)
            partitions = {p: ReplicaAssignment(replicas((a + p / 7) % 1, b)) for p in range(1 + int(c * 4))}
            session.create(topic_path(name), encode_topic(partitions, None))
            self.world.note(f"create {name}")
            return
        name = topics[int(a * len(topics))]
        data, stat = session.get(topic_path(name))
        found = decode_topic(name, data)
        partition = sorted(found.partitions)[int(b * len(found.partitions))]
        tp = TopicPartition(name, partition)
        match kind:
            case "elect":
                session.create(PREFERRED_ELECTION, encode_partitions([tp]))
            case "reassign":
                session.create(REASSIGN_PARTITIONS, encode_reassignments({tp: replicas(c, b)}))
            case "delete":
                session.create(f"{ADMIN_DELETE_TOPICS}/{name}")
            case "add partitions":
                more = {**found.partitions, len(found.partitions): ReplicaAssignment(replicas(c, b))}
                session.set(topic_path(name), encode_topic(more, found.topic_id), stat.version)
        self.world.note(f"{kind} {tp}")

    # ---- the end

    def calm(self) -> None:
        """End all faults."""
        super().calm()
        self.ensemble.come_back()
        for candidate in self.candidates:
            if candidate.process is not None:
                self.world.resume(candidate.process)
            self._revive_candidate(candidate)

    def _settle(self) -> None:
        """Wait until ZooKeeper, the controller and the brokers agree."""
        end = self.world.elapsed_s() + SETTLING_S
        while (difference := self._difference()) is not None:
            self.world.sleep(0.5)
            if self.world.elapsed_s() > end:
                self.world.problem(f"{SETTLING_S:.0f} s after the last fault {difference}")
                return

    def _difference(self) -> str | None:
        """What does not agree yet, None if all does."""
        tree = self.ensemble.tree.nodes
        if self._disturbed or not all(candidate.node is not None for candidate in self.candidates):
            return f"processes are not up: brokers {sorted(self._disturbed)}"
        nodes = [candidate.node for candidate in self.candidates if candidate.node is not None]
        active = [node.controller.controller_id for node in nodes if node.controller.is_active]
        if len(active) != 1:
            return f"{len(active)} controllers are active"
        for path in (PREFERRED_ELECTION, REASSIGN_PARTITIONS):
            if path in tree:
                return f"{path} still asks for {tree[path].data!r}"
        if tree[ADMIN_DELETE_TOPICS].children:
            return f"topics {sorted(tree[ADMIN_DELETE_TOPICS].children)} are not deleted"
        alive = {broker.id for broker in self.brokers} | set(active)
        for name in sorted(tree[TOPICS].children):
            topic = decode_topic(name, tree[topic_path(name)].data or b"")
            for partition, assignment in topic.partitions.items():
                tp = TopicPartition(name, partition)
                znode = tree.get(partition_state_path(tp))
                if znode is None:
                    return f"{tp} has no state"
                state = decode_partition_state(tp, znode.data or b"", znode.version).leader_and_isr
                if state.leader not in assignment.replicas or assignment.adding or assignment.removing:
                    return f"{tp} has {assignment} and {state}"
                for broker in self.brokers:
                    cached = self.fleet[broker.id].broker.metadata.snapshot.partition(name, partition)
                    if cached is None or (cached.leader, cached.leader_epoch) != (state.leader, state.leader_epoch):
                        return f"broker {broker.id} knows {cached} of {tp}, ZooKeeper {state}"
                for broker_id in assignment.replicas:
                    replica = self.fleet[broker_id].broker.replicas.hosted.get(tp)
                    role = "leader" if state.leader == broker_id else "follower"
                    if replica is None or (replica.role, replica.leader_epoch) != (role, state.leader_epoch):
                        return f"broker {broker_id} has {replica} of {tp}, ZooKeeper {state}"
        for broker in self.brokers:
            known = set(self.fleet[broker.id].broker.metadata.snapshot.alive_brokers)
            if known != alive:
                return f"broker {broker.id} takes {sorted(known)} for alive, and {sorted(alive)} are"
        return None

    def _close(self) -> None:
        """End all processes in an orderly way; no thread of any may be left."""
        self.is_closing = True
        ending = [self.world.spawn("closing", self.fleet.close, self.fleet_process)]
        for candidate in self.candidates:
            if candidate.node is None and candidate.process is not None:
                candidate.process.dead = True  # it starts, or is closed already
            elif candidate.node is not None and candidate.process is not None:
                close = partial(candidate.node.close, CLOSE_S)
                ending.append(self.world.spawn("closing", close, candidate.process))
        self._wait_for(*ending)
        self.close_brokers()
