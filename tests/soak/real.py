"""Soaks real brokers: ``make soak REAL=1``, and with ``CONTROL=1`` the same brokers led by Kafka's own controller.

A real ZooKeeper and three brokers of Kafka 3.9.1 with two candidates of ``kproto controller``; in a control run, with
none. Any of the nodes may be elected; before each fault a broker that leads hands over to a candidate. Clients of
librdkafka write, some of them in transactions, read as a group and create topics, while faults come that the seed
decides. At the end every record that was acknowledged is read, once and in order.
"""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka.admin import NewTopic
from free_ports import free_ports
from real_brokers import administrator, client_settings, eventually, jars, paused, real_kafka
from real_clients import Clients

from channel.errors import ChannelError, NoNode
from channel.zookeeper import cluster_state as zk
from channel.zookeeper import znodes
from channel.zookeeper.session import ZooKeeperSession
from kproto.types import TopicPartition

from . import checks
from .faults import Fault
from .processes import CONTROLLERS, SESSION_S, Program

__all__ = ["FAULTS", "RealCluster", "run"]

BROKERS: Final = (0, 1, 2)
TOPICS: Final = ("idempotent", "transactions")
PARTITIONS: Final = 3
REST_S: Final = 240
"""How long the replicas may take to be in sync again when the faults are over."""

WARM_UP_S: Final = 60
"""How long after its start the first look at a candidate's memory, threads and descriptors is taken."""

_SETTINGS: Final = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "min.insync.replicas": 2,
    "zookeeper.session.timeout.ms": 1000 * SESSION_S,
}


class RealCluster:
    """ZooKeeper, three real brokers and the candidates, in a folder; a context manager.

    Args:
        folder: For data and logs.
        led: Whether candidates of ``kproto controller`` stand for election.
    """

    def __init__(self, folder: Path, *, led: bool) -> None:
        self.folder = folder
        (folder / "logs").mkdir(parents=True)
        base = free_ports(len(BROKERS) + 1)
        self.zookeeper = f"127.0.0.1:{base + len(BROKERS)}"
        self.bootstrap = ",".join(f"127.0.0.1:{base + i}" for i in BROKERS)
        self._options = ["--brokers", str(len(BROKERS)), "--base-port", str(base)]
        self._options += ["--zk-port", str(base + len(BROKERS)), "--heap", "512m"]
        self._options += [word for item in _SETTINGS.items() for word in ("--prop", "{}={}".format(*item))]
        self.session = ZooKeeperSession(self.zookeeper, timeout_ms=40_000)  # the faults must not end it
        config = folder / "controller.properties"
        config.write_text(f"zookeeper.session.timeout.ms={1000 * SESSION_S}\ndefault.replication.factor=3\n")
        self.candidates = {
            each: Program(
                f"controller-{each}", folder / "logs",
                ["controller", "--zookeeper", self.zookeeper, "--id", str(each), "--log-json", "--config", str(config)],
            )
            for each in (CONTROLLERS if led else ())
        }  # fmt: skip

    def __enter__(self) -> Self:
        real_kafka("install", str(self.folder / "kafka"), "--jars", str(jars()))
        try:
            real_kafka("start", str(self.folder / "kafka"), "--no-brokers", *self._options)
            self.session.start()
            for program in self.candidates.values():
                program.start()
            if self.candidates:
                eventually(lambda: self.controller() is not None)
            real_kafka("start-broker", str(self.folder / "kafka"), *map(str, BROKERS))
            admin = administrator(self.client())  # kept: without it the answers do not come
            for future in admin.create_topics([NewTopic(each, PARTITIONS, 3) for each in TOPICS]).values():
                future.result(60)
            eventually(lambda: not list(self.unsettled()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.candidates.values():
            if program.is_running:
                program.go_on()
                program.kill()
        self.session.close()
        real_kafka("stop", str(self.folder / "kafka"), "--kill")

    def client(self) -> dict[str, Any]:
        """The settings of a client of librdkafka."""
        return client_settings(self.folder / "kafka", "PLAINTEXT", self.bootstrap)

    def controller(self) -> int | None:
        """The id of the node that leads."""
        found = zk.read_controller(self.session)
        return None if found is None else found[0].broker_id

    def registered(self) -> set[int]:
        """The ids that are registered in ZooKeeper."""
        return {int(name) for name in self.session.children("/brokers/ids")}

    def unsettled(self) -> Iterator[str]:
        """What is not at rest: a broker that is away, a replica out of sync, no controller."""
        if self.controller() is None:
            yield "nobody leads"
        if missing := {*BROKERS} - self.registered():
            yield f"brokers {sorted(missing)} are not registered"
        for topic in (*TOPICS, "__consumer_offsets"):
            with contextlib.suppress(NoNode):
                for name in self.session.children(f"/brokers/topics/{topic}/partitions"):
                    tp = TopicPartition(topic, int(name))
                    data, stat = self.session.get(znodes.partition_state_path(tp))
                    state = znodes.decode_partition_state(tp, data, stat.version).leader_and_isr
                    if {*state.isr} != {*BROKERS}:
                        yield f"{topic}-{name} has the ISR {sorted(state.isr)}"

    def broker(self, command: str, broker_id: int, *more: str) -> None:
        """Start or stop a broker."""
        real_kafka(command, str(self.folder / "kafka"), str(broker_id), *more)

    def restart(self, broker_id: int, away_s: float, *, kill: bool) -> None:
        """End a broker and start it again once its registration is gone."""
        self.broker("stop-broker", broker_id, *(["--kill"] if kill else []))
        time.sleep(away_s)
        eventually(lambda: broker_id not in self.registered())
        self.broker("start-broker", broker_id)

    def hand_over(self) -> None:
        """Give a candidate the lead if a broker has it: the brokers stand still while all nodes are asked to elect."""
        if not self.candidates or self.controller() in self.candidates:
            return
        with contextlib.ExitStack() as stack:
            for node in BROKERS:
                stack.enter_context(paused(self.pid(f"broker-{node}")))
            with contextlib.suppress(NoNode):
                self.session.delete(znodes.CONTROLLER)
            deadline = time.monotonic() + SESSION_S / 2
            while self.controller() is None and time.monotonic() < deadline:
                time.sleep(0.02)

    def pid(self, name: str) -> int:
        """The process of ``zookeeper``, or of ``broker-N``."""
        return int((self.folder / "kafka" / "run" / f"{name}.pid").read_text())

    def pid_of(self, node: int) -> int:
        """The process of a broker or candidate."""
        return self.candidates[node].pid if node in self.candidates else self.pid(f"broker-{node}")


def _leader(cluster: RealCluster) -> int:
    found: list[int] = []

    def somebody_leads() -> bool:
        node = cluster.controller()
        found.extend([] if node is None else [node])
        return bool(found)

    eventually(somebody_leads)
    return found[0]


def _name(cluster: RealCluster, node: int) -> str:
    return f"controller-{node}" if node in cluster.candidates else f"broker-{node}"


def kill_controller(cluster: RealCluster, fault: Fault) -> str:
    """kill -9 of the node that leads, which is started again."""
    node = _leader(cluster)
    if node in cluster.candidates:
        cluster.candidates[node].kill()
        time.sleep(fault.lasts_s)
        eventually(lambda: node not in cluster.registered())
        cluster.candidates[node].start()
    else:
        cluster.restart(node, fault.lasts_s, kill=True)
    return _name(cluster, node)


def stop_controller(cluster: RealCluster, fault: Fault) -> str:
    """SIGSTOP of the node that leads, for less or more than its session."""
    node = _leader(cluster)
    with paused(cluster.pid_of(node)):
        time.sleep(fault.lasts_s * 1.5)
    return _name(cluster, node)


def depose_controller(cluster: RealCluster, _: Fault) -> str:
    """``/controller`` is deleted, by which an administrator makes the nodes elect again."""
    node = _leader(cluster)
    with contextlib.suppress(NoNode):
        cluster.session.delete(znodes.CONTROLLER)
    return _name(cluster, node)


def kill_broker(cluster: RealCluster, fault: Fault) -> str:
    """kill -9 of a broker, which is started again."""
    node = fault.target % len(BROKERS)
    cluster.restart(node, fault.lasts_s, kill=True)
    return f"broker-{node}"


def restart_broker(cluster: RealCluster, fault: Fault) -> str:
    """A controlled shutdown of a broker, which is started again."""
    node = fault.target % len(BROKERS)
    cluster.restart(node, fault.lasts_s, kill=False)
    return f"broker-{node}"


def stop_broker(cluster: RealCluster, fault: Fault) -> str:
    """SIGSTOP of a broker, for less or more than its session."""
    node = fault.target % len(BROKERS)
    with paused(cluster.pid(f"broker-{node}")):
        time.sleep(fault.lasts_s * 1.5)
    return f"broker-{node}"


def stop_zookeeper(cluster: RealCluster, fault: Fault) -> str:
    """SIGSTOP of ZooKeeper."""
    with paused(cluster.pid("zookeeper")):
        time.sleep(fault.lasts_s)
    return f"{fault.lasts_s:.1f} s"


def restart_zookeeper(cluster: RealCluster, fault: Fault) -> str:
    """kill -9 of ZooKeeper, which is started again with its data."""
    real_kafka("stop-zookeeper", str(cluster.folder / "kafka"), "--kill")
    time.sleep(min(fault.lasts_s, SESSION_S / 2))
    real_kafka("start-zookeeper", str(cluster.folder / "kafka"))
    return ""


FAULTS: Final[dict[str, Callable[[RealCluster, Fault], str]]] = {
    "kill-controller": kill_controller,
    "stop-controller": stop_controller,
    "depose-controller": depose_controller,
    "kill-broker": kill_broker,
    "restart-broker": restart_broker,
    "stop-broker": stop_broker,
    "stop-zookeeper": stop_zookeeper,
    "restart-zookeeper": restart_zookeeper,
}


def drawn(seed: int) -> Iterator[Fault]:
    """Draw faults without an end: each kind comes once before any comes twice."""
    chance = random.Random(f"real {seed}")
    while True:
        for name in chance.sample(sorted(FAULTS), len(FAULTS)):
            yield Fault(chance.uniform(4, 10), name, chance.randrange(1 << 30), chance.uniform(1, 9))


def run(folder: Path, seed: int, seconds: float, *, led: bool, explained: list[Any]) -> tuple[int, list[str]]:
    """Soak real brokers; gives the number of faults, and what is wrong.

    Args:
        folder: An empty directory.
        seed: Of the faults.
        seconds: How long there are faults.
        led: Whether ``kproto controller`` leads, or Kafka's own controller.
        explained: What the candidates' logs may say.
    """
    began = time.monotonic()
    wrong: list[str] = []
    made = 0

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:8.1f} s  {text}", flush=True)

    def check(name: str, found: list[str]) -> None:
        wrong.extend(found)
        say(f"{name}: {'as it must be' if not found else f'{len(found)} WRONG'}")
        for line in found[:10]:
            print(f"            {line}", flush=True)

    with RealCluster(folder, led=led) as cluster:
        say("three brokers and the topics are there")
        clients = Clients(cluster.client(), TOPICS)
        end = time.monotonic() + seconds
        leaders: Counter[str] = Counter()
        watched = checks.Resources(cluster.candidates.values(), connections=2 * len(BROKERS), warm_s=WARM_UP_S)
        try:
            for fault in drawn(seed):
                if time.monotonic() + fault.pause_s + fault.lasts_s > end:
                    break
                with contextlib.suppress(ChannelError):
                    cluster.hand_over()
                time.sleep(fault.pause_s)
                watched.look()
                say(f"{fault.name} {FAULTS[fault.name](cluster, fault)}")
                made += 1
                leaders[_name(cluster, _leader(cluster))] += 1
            time.sleep(max(0.0, end - time.monotonic()))
        finally:
            clients.end()
        deadline = time.monotonic() + REST_S
        unsettled = ["not looked at"]
        while unsettled and time.monotonic() < deadline:
            with contextlib.suppress(ChannelError):
                unsettled = list(cluster.unsettled())
            time.sleep(0.5)
        check("every replica in sync", unsettled)
        check("errors that clients met", clients.faults)
        for topic in TOPICS:
            try:
                found = clients.read_all(topic, PARTITIONS)
            except AssertionError as e:
                check(f"{topic}: once and in order", [str(e)[:1000]])
            else:
                lost = [number for number in clients.written[topic] if number not in found]
                check(
                    f"{topic}: {len(clients.written[topic]):,} acknowledged records",
                    [f"lost: {lost[:20]}"] * bool(lost),
                )
        watched.look()
        grown = []
        for told, found_grown in watched.compared():
            say(told)
            grown += found_grown
        check("memory, threads, descriptors", grown)
        _, stat = cluster.session.get("/controller_epoch")
        for program in cluster.candidates.values():
            program.end()
            check(f"log of {program.name}", list(checks.log_lines(program, explained)))
        say(
            f"{stat.version + 1} controller epochs, led after a fault by {dict(leaders)}, "
            f"{len(clients.created)} topics made, longest time without an acknowledgement {clients.longest_gap_s:.1f} s"
        )
    return made, wrong
