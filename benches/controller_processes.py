"""What controllers are measured on: a real ZooKeeper, topics in it, and the processes of both controllers."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from free_ports import free_ports
from measure import CACHE, KAFKA_JVM

from channel.types import LeaderAndIsr, ReplicaAssignment
from channel.zookeeper.cluster_state import create_persistent_nodes
from channel.zookeeper.session import Create, ZooKeeperSession
from channel.zookeeper.znodes import (
    CONTROLLER,
    decode_partition_state,
    encode_partition_state,
    encode_topic,
    partition_path,
    partition_state_path,
    topic_path,
)
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL_KAFKA = Path(__file__).parents[1] / "tools" / "real_kafka" / "real-kafka"
HEAP = "-Xmx1G -Xms1G"
"""The heap with which Kafka's own scripts start a broker."""

CONTROLLER_ID = 0
REPLICAS = 3
_SCHEDULED = 2
"""CPUCLOCK_SCHED: with a process id the clock of that process's CPU time, as clock_getcpuclockid(3) makes it."""

_LOG4J = """\
log4j.rootLogger=INFO, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File=${bench.log}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


# ---- ZooKeeper -------------------------------------------------------------------------------------------------------


def jars() -> Path:
    """Kafka's jars, fetched by Maven's ordinary client at the first call."""
    lib = CACHE.parent / "kproto-real-kafka" / "lib"
    if not list(lib.glob("kafka_2.13-*.jar")):
        _real_kafka("install", str(lib.parent))
    return lib


def _real_kafka(*words: str) -> None:
    subprocess.run([sys.executable, str(REAL_KAFKA), *words], stdout=subprocess.DEVNULL, check=True, timeout=300)


@contextlib.contextmanager
def zookeeper(folder: Path) -> Iterator[str]:
    """A real ZooKeeper that keeps its files in the folder; gives its address."""
    port = free_ports(1)
    _real_kafka("install", str(folder), "--jars", str(jars()))
    try:
        _real_kafka("start", str(folder), "--no-brokers", "--zk-port", str(port), "--heap", "1g")
        yield f"127.0.0.1:{port}"
    finally:
        _real_kafka("stop", str(folder), "--kill")


class Shape(NamedTuple):
    """Topics and brokers; each partition has three replicas, on brokers that follow each other."""

    topics: int
    partitions: int
    brokers: range

    @property
    def total(self) -> int:
        """The number of partitions."""
        return self.topics * self.partitions

    def replicas(self, topic: int, partition: int) -> tuple[int, ...]:
        """The replicas of a partition, its leader first."""
        return tuple(self.brokers[(topic + partition + k) % len(self.brokers)] for k in range(REPLICAS))

    def on_broker(self, broker_id: int) -> list[TopicPartition]:
        """The partitions that have a replica on a broker."""
        each = itertools.product(range(self.topics), range(self.partitions))
        return [TopicPartition(name_of(t), p) for t, p in each if broker_id in self.replicas(t, p)]


def name_of(topic: int) -> str:
    """A topic's name."""
    return f"topic-{topic:05d}"


def write_topics(address: str, shape: Shape) -> None:
    """Write the topics as a controller leaves them: every partition led by its first replica."""
    root, _, chroot = address.partition("/")
    with ZooKeeperSession(root) as session:
        session.ensure(f"/{chroot}")
    with ZooKeeperSession(address) as session:
        create_persistent_nodes(session)
        for outcome in session.transactions([list(_znodes(shape, topic)) for topic in range(shape.topics)]):
            if outcome.error is not None:
                raise outcome.error


def _znodes(shape: Shape, topic: int) -> Iterator[Create]:
    name, path = name_of(topic), topic_path(name_of(topic))
    assignments = {p: ReplicaAssignment(shape.replicas(topic, p)) for p in range(shape.partitions)}
    yield Create(path, encode_topic(assignments, (topic + 1).to_bytes(16, "big")))
    yield Create(f"{path}/partitions")
    for partition, (replicas, *_) in assignments.items():
        tp = TopicPartition(name, partition)
        yield Create(partition_path(tp))
        yield Create(partition_state_path(tp), encode_partition_state(LeaderAndIsr(replicas[0], replicas), 0))


def check_failover(session: ZooKeeperSession, shape: Shape, failed: int) -> None:
    """Raise if a partition of a failed broker is still led by it, or still has it in its ISR."""
    lost = shape.on_broker(failed)
    for tp, found in zip(lost, session.get_many([partition_state_path(tp) for tp in lost]), strict=True):
        assert found is not None
        leader, isr, *_ = decode_partition_state(tp, found[0], 0).leader_and_isr
        if leader in (failed, -1) or failed in isr or len(isr) != REPLICAS - 1:
            raise AssertionError(f"{tp} has leader {leader} and ISR {isr} after the end of broker {failed}")


# ---- controllers -----------------------------------------------------------------------------------------------------


class ControllerProcess:
    """A controller in a process of its own.

    Attributes:
        elected: The time of the election, on the system's monotonic clock.
        cpu_at_election: What it had taken of the processors by then, in s.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.elected = self.cpu_at_election = 0.0

    @property
    def cpu_s(self) -> float:
        """CPU time so far, in s."""
        return time.clock_gettime((~self._process.pid << 3) | _SCHEDULED)

    @property
    def peak_mib(self) -> float:
        """The largest resident set so far, in MiB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def await_election(self, session: ZooKeeperSession) -> None:
        """Wait until it is elected.

        Raises:
            OSError: It has ended, or is not elected.
        """
        changed = threading.Event()

        def seen() -> None:
            self.elected, self.cpu_at_election = time.monotonic(), self.cpu_s
            changed.set()

        session.watch_node(CONTROLLER, seen)
        try:
            if session.exists(CONTROLLER) is None and not changed.wait(90):
                raise OSError(f"no controller was elected; the process: {self._process.poll()}")
            found = session.get(CONTROLLER)[0]
        finally:
            session.unwatch(CONTROLLER)
        if not self.elected or json.loads(found)["brokerid"] != CONTROLLER_ID:
            raise OSError(f"another controller leads: {found!r}")


@contextlib.contextmanager
def controller(program: str, address: str, folder: Path) -> Iterator[ControllerProcess]:
    """Start "kproto" or "kafka" as a candidate; it has not been elected yet."""
    folder.mkdir(parents=True, exist_ok=True)
    command = _kafka(address, folder) if program == "kafka" else _kproto(address, folder)
    with (folder / f"{program}.out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield ControllerProcess(process)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _kproto(address: str, folder: Path) -> list[str]:
    config = folder / "controller.properties"
    config.write_text("auto.leader.rebalance.enable=false\n", encoding="utf-8")
    options = ["--zookeeper", address, "--id", str(CONTROLLER_ID), "--config", str(config), "--verbose"]
    return [sys.executable, "-m", "kproto", "controller", *options]


def _kafka(address: str, folder: Path) -> list[str]:
    log4j, config = folder / "log4j.properties", folder / "server.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    properties = {
        "broker.id": CONTROLLER_ID,
        "zookeeper.connect": address,
        "listeners": f"PLAINTEXT://127.0.0.1:{free_ports(1)}",
        "log.dirs": folder / "data",
        "inter.broker.protocol.version": "3.9",
        "auto.leader.rebalance.enable": "false",
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
    logging = [f"-Dlog4j.configuration=file:{log4j}", f"-Dbench.log={folder / 'kafka.log'}"]
    return ["java", *HEAP.split(), *KAFKA_JVM.split(), *logging, "-cp", f"{jars()}/*", "kafka.Kafka", str(config)]
