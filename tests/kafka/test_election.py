"""Simulated brokers that elect their controller among themselves in a real ZooKeeper: a cluster without Kafka."""

import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from asking import ask_port
from confluent_kafka.admin import AdminClient, NewTopic
from network_peers import until
from real_brokers import elected
from tls_certificates import certificates
from zookeeper_faults import expire

from channel.broker.fleet import Fleet
from channel.node.controller_node import candidates
from channel.rehearsal.fleet_steps import Step, rehearse
from channel.types import Node, ReplicaAssignment
from channel.zookeeper import znodes
from channel.zookeeper.session import ZooKeeperSession
from kproto.error_codes import ErrorCode
from kproto.messages import CreatableTopic, CreateTopicsRequest, MetadataRequest
from kproto.types import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]

SESSION_MS = 8_000


class Process:
    """``kproto brokers --elect`` in a process of its own."""

    def __init__(self, zookeeper: str, first_id: int, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kproto", "brokers", "--zookeeper", zookeeper, "--count", "3",
             "--first-id", str(first_id), "--session-timeout", "8", "--replica-lag", "10", "--elect", *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._lines: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._drain)]
        self.errors: list[str] = []
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))

    def _drain(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def line(self, key: str, value: Any = None) -> dict[str, Any]:
        """The next line that has such a field, with this value if one is given."""
        while True:
            try:
                found = self._lines.get(timeout=120)
            except Empty:
                raise AssertionError(f"no line with {key}; {self.errors}") from None
            if key in found and value in (None, found[key]):
                return found

    def take(self, step: str) -> None:
        """Have the brokers take a step (``--commands``)."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{step}\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(120)
        for reader in self._readers:
            reader.join(60)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def admin(zookeeper: str) -> Iterator[ZooKeeperSession]:
    with ZooKeeperSession(zookeeper) as session:
        yield session


def create_topic(admin: ZooKeeperSession, topic: str, *replicas: tuple[int, ...]) -> None:
    contents = znodes.encode_topic({p: ReplicaAssignment(r) for p, r in enumerate(replicas)}, None)
    admin.create(znodes.topic_path(topic), contents)


def leadership(admin: ZooKeeperSession, topic: str, partition: int = 0) -> tuple[int, set[int], int] | None:
    """Leader, ISR and controller epoch of a partition in ZooKeeper."""
    tp = TopicPartition(topic, partition)
    found = admin.get_many([znodes.partition_state_path(tp)])[0]
    if found is None:
        return None
    state, epoch = znodes.decode_partition_state(tp, found[0], found[1].version)
    return state.leader, set(state.isr), epoch


def test_the_winner_leads_itself_and_the_others(zookeeper: str, admin: ZooKeeperSession) -> None:
    with Fleet(zookeeper, [1, 2, 3], session_timeout_ms=SESSION_MS, stand=candidates()) as fleet:
        leader = elected(fleet)
        create_topic(admin, "t", (leader, *{1, 2, 3} - {leader}))
        until(lambda: all(member.broker.metadata.contains("t") for member in fleet))
        assert leadership(admin, "t") == (leader, {1, 2, 3}, 1)
        assert {m.broker.metadata.snapshot.controller.id for m in fleet} == {leader}  # type: ignore[union-attr]
        assert fleet[leader].broker.replicas.hosted[TopicPartition("t", 0)].role == "leader"
    assert admin.get_many([znodes.CONTROLLER]) == [None]  # resigned, and no other broker took over


def test_new_topics_are_spread_over_the_racks(zookeeper: str, admin: ZooKeeperSession) -> None:
    with Fleet(zookeeper, range(4), session_timeout_ms=SESSION_MS, racks="ab", stand=candidates()) as fleet:
        leader = elected(fleet)
        until(lambda: len(fleet[leader].broker.metadata.snapshot.alive_brokers) == 4)
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{fleet[leader].port}"})
        client.create_topics([NewTopic("t", 8, 2)])["t"].result(120)
        data, _ = admin.get(znodes.topic_path("t"))
        replicas = [each.replicas for each in znodes.decode_topic("t", data).partitions.values()]
        assert len(replicas) == 8
        assert all(first % 2 != second % 2 for first, second in replicas)  # one of each rack


def test_each_controller_has_its_own_settings(zookeeper: str, admin: ZooKeeperSession, tmp_path: Path) -> None:
    """A topic without a replication factor: broker 1 asks for three replicas of two brokers, broker 2 for one."""
    path = tmp_path / "brokers.properties"
    path.write_text("default.replication.factor=3\nbroker.2.default.replication.factor=1\n")
    brokers = Process(zookeeper, 1, "--count", "2", "--config", str(path), "--commands")
    try:
        if brokers.line("leading", True)["controller"] == 2:
            brokers.take("kill 2")
            assert brokers.line("leading", True)["controller"] == 1
            brokers.take("restart 2")
        port = port_of(admin, 1)
        until(lambda: len(ask_port(port, MetadataRequest(topics=[]), 12).brokers) == 2)
        refused = create_by_default(port)
        assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        brokers.take("kill 1")
        assert brokers.line("leading", True)["controller"] == 2
        created = create_by_default(port_of(admin, 2))
        assert (created.error_code, created.replication_factor) == (0, 1)
    finally:
        brokers.close()


def port_of(admin: ZooKeeperSession, broker_id: int) -> int:
    return znodes.decode_broker(broker_id, admin.get(znodes.broker_path(broker_id))[0]).endpoints[0].port


def create_by_default(port: int) -> Any:
    """Ask a broker to create a topic with the controller's own number of replicas."""
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=-1, replication_factor=-1)])
    (topic,) = ask_port(port, request, 7).topics
    return topic


def test_a_killed_winner_is_followed_by_another_with_the_next_epoch(zookeeper: str, admin: ZooKeeperSession) -> None:
    elections: list[tuple[int, int]] = []
    stand = candidates(on_elected=lambda broker_id, epoch: elections.append((broker_id, epoch)))
    with Fleet(zookeeper, [1, 2, 3], session_timeout_ms=SESSION_MS, stand=stand) as fleet:
        first = elected(fleet)
        follower, other = sorted({1, 2, 3} - {first})
        create_topic(admin, "t", (first, follower, other))
        until(lambda: all(member.broker.metadata.contains("t") for member in fleet))
        (event,) = rehearse(fleet, [Step("kill", "controller")])
        assert (event.broker_ids, event.heard, event.is_complete) == ([first], 2, True)
        second = elected(fleet)
        assert second != first
        until(lambda: leadership(admin, "t") == (follower, {follower, other}, 2))
        assert elections == [(first, 1), (first, 0), (second, 2)]
        fleet.restart(first)
        until(lambda: (leadership(admin, "t") or ())[1:2] == ({1, 2, 3},))
        assert fleet.controller_id == second


def test_an_expired_winner_resigns_and_registers_again(zookeeper: str, admin: ZooKeeperSession) -> None:
    with Fleet(zookeeper, [1, 2], session_timeout_ms=SESSION_MS, stand=candidates()) as fleet:
        first = elected(fleet)
        before = fleet[first].epoch
        expire(fleet._links[first].session)
        until(lambda: fleet[first].epoch > before)
        until(lambda: admin.get(znodes.CONTROLLER_EPOCH)[0] == b"2")
        second = elected(fleet)
        create_topic(admin, "t", (1, 2), (2, 1))
        until(lambda: [leadership(admin, "t", p) for p in (0, 1)] == [(1, {1, 2}, 2), (2, {1, 2}, 2)])
        assert fleet.controller_id == second


def test_brokers_of_a_migration_forward_to_the_elected_broker_and_others_refuse(zookeeper: str) -> None:
    def create(broker_id: int, topic: str) -> int:
        """Ask a broker, the controller or not, for a topic; returns the error code."""
        topics = [CreatableTopic(name=topic, num_partitions=1, replication_factor=2)]
        answer = ask_port(fleet[broker_id].port, CreateTopicsRequest(topics=topics), 7)
        return int(answer.topics[0].error_code)

    nowhere = [Node(3000, "127.0.0.1", 1)]  # the migration's KRaft controller is not started
    settings: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "stand": candidates()}
    with Fleet(zookeeper, [1, 2, 3], quorum=nowhere, **settings) as fleet:
        leader = elected(fleet)
        until(lambda: all(len(m.broker.metadata.snapshot.alive_brokers) == 3 for m in fleet))
        others = sorted({1, 2, 3} - {leader})
        assert create(leader, "t") == ErrorCode.NONE
        assert create(others[0], "t") == ErrorCode.TOPIC_ALREADY_EXISTS
        assert create(others[1], "u") == ErrorCode.NONE
        until(lambda: all(member.broker.metadata.contains("u") for member in fleet))
    with Fleet(zookeeper, [1, 2], **settings) as fleet:
        leader = elected(fleet)
        assert create(3 - leader, "v") == ErrorCode.NOT_CONTROLLER
    with Fleet(zookeeper, [1], session_timeout_ms=SESSION_MS) as fleet:  # no controller at all
        assert create(1, "v") == ErrorCode.NOT_CONTROLLER


def test_the_controller_leaves_last_in_a_controlled_shutdown(zookeeper: str, admin: ZooKeeperSession) -> None:
    with Fleet(zookeeper, [1, 2, 3], session_timeout_ms=SESSION_MS, stand=candidates()) as fleet:
        leader = elected(fleet)
        first = next(i for i in (1, 2, 3) if i != leader)
        create_topic(admin, "t", (first, leader))
        until(lambda: all(member.broker.metadata.contains("t") for member in fleet))
        failures = fleet.shut_down()
        assert set(failures) == {leader}
        assert "still leads 1 partitions" in failures[leader]
        assert leadership(admin, "t") == (leader, {leader}, 1)
        assert not [member for member in fleet if member.is_up]


def security_options(folder: Path, protocol: str) -> list[str]:
    """The options of brokers whose listeners and clients are secured by certificates of this test run."""
    if protocol == "PLAINTEXT":
        return []
    files = {"authority": certificates().authority, "server": certificates().server}
    for name, pem in files.items():
        (folder / f"{name}.pem").write_text(pem)
    settings = folder / "brokers.properties"
    settings.write_text(f"""security.protocol={protocol}
ssl.truststore.location={folder}/authority.pem
ssl.keystore.location={folder}/server.pem
sasl.mechanism=SCRAM-SHA-512
sasl.enabled.mechanisms=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="broker" password="secret" user_broker="secret";
""")
    return ["--security", str(settings)]


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_SSL"])
def test_two_processes_are_one_cluster_and_outlive_a_kill_9(
    zookeeper: str, admin: ZooKeeperSession, tmp_path: Path, protocol: str
) -> None:
    secured = security_options(tmp_path, protocol)
    one = Process(zookeeper, 10, *secured)
    try:
        assert one.line("leading", True)["controller_epoch"] == 1
        two = Process(zookeeper, 20, "--http", "0", *secured)
        try:
            commands = two.line("commands")["commands"]
            create_topic(admin, "t", (10, 20, 21), (20, 10, 11), (11, 12, 22))
            until(lambda: leadership(admin, "t", 2) == (11, {11, 12, 22}, 1))
            one.process.send_signal(signal.SIGKILL)
            won = two.line("leading", True)
            assert won["controller_epoch"] == 2
            assert won["controller"] in (20, 21, 22)
            until(lambda: [(leadership(admin, "t", p) or (-1,))[0] for p in range(3)] == [20, 20, 22])
            steps = f"{commands}/steps"
            body = json.dumps({"step": "bounce controller"}).encode()
            request = urllib.request.Request(steps, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=120) as response:
                assert json.load(response)["is_complete"]
            assert two.line("leading", True)["controller_epoch"] == 3
            two.process.send_signal(signal.SIGTERM)
            assert two.process.wait(120) == 0
        finally:
            two.close()
    finally:
        one.close()
    until(lambda: admin.get_many([znodes.CONTROLLER]) == [None])
