"""Simulated brokers in a real ZooKeeper, and a real Kafka controller that leads them.

The fleet has 50 brokers, in the long form 200; ``KPROTO_FLEET=20`` makes it smaller.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from free_ports import free_ports
from kazoo.client import KazooClient
from real_brokers import IS_LONG, PROTOCOL_VERSIONS, administrator, eventually, real_kafka

from channel.broker.fleet import Fleet
from channel.config import ChannelConfig
from channel.errors import NodeExists, NoNode
from channel.rehearsal.fleet_steps import Step, rehearse
from channel.zookeeper.cluster_state import cluster_id, create_persistent_nodes
from channel.zookeeper.session import ZooKeeperSession
from channel.zookeeper.znodes import (
    CLUSTER_ID,
    broker_path,
    decode_broker,
    decode_partition_state,
    partition_state_path,
)
from kproto.types import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.proof(3)]

COUNT = int(os.environ.get("KPROTO_FLEET", "200" if IS_LONG else "50"))
FIRST = 100
SESSION_MS = 10_000
newest_protocol = pytest.mark.parametrize("rehearsal", PROTOCOL_VERSIONS[-1:], indirect=True)
LAG_MS = 2_000


# ---- ZooKeeper alone -------------------------------------------------------------------------------------------------


def registrations(zookeeper: str) -> dict[int, tuple[dict[str, Any], int]]:
    """The contents and the czxid of each broker's znode."""
    with ZooKeeperSession(zookeeper) as session:
        found = {}
        for name in session.children("/brokers/ids"):
            with contextlib.suppress(NoNode):  # it may end in between
                data, stat = session.get(broker_path(int(name)))
                found[int(name)] = json.loads(data), stat.czxid
        return found


@pytest.mark.zookeeper
@pytest.mark.conformance("CIT-36")
@pytest.mark.parametrize(("ibp", "version"), [("2.6", 4), ("3.9", 5)])
def test_brokers_are_registered_in_the_form_of_their_protocol(zookeeper: str, ibp: str, version: int) -> None:
    config = ChannelConfig(inter_broker_protocol_version=ibp)
    with Fleet(zookeeper, [7, 8], config=config, advertised_host="tap.example") as fleet:
        found = registrations(zookeeper)
        assert {i: (value["version"], epoch) for i, (value, epoch) in found.items()} == {
            member.id: (version, member.epoch) for member in fleet
        }
        assert found[7][0]["endpoints"] == [f"PLAINTEXT://tap.example:{fleet[7].port}"]
        assert abs(int(found[7][0]["timestamp"]) / 1000 - time.time()) < 60
        with ZooKeeperSession(zookeeper) as session:
            assert json.loads(session.get(CLUSTER_ID)[0])["id"] == fleet[7].broker.cluster_id
    assert registrations(zookeeper) == {}


@pytest.mark.zookeeper
def test_a_new_cluster_gets_an_id_that_no_command_line_takes_for_an_option(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = iter([b"\xfb" + bytes(15), b"\xf8" + bytes(15), bytes(range(16))])  # the first two are written as "-..."
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(bytes=next(draws)))
    with ZooKeeperSession(zookeeper) as session:
        create_persistent_nodes(session)
        assert cluster_id(session) == cluster_id(session) == "AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.zookeeper
def test_an_id_that_another_process_has_is_refused(zookeeper: str) -> None:
    with Fleet(zookeeper, [7]), pytest.raises(NodeExists, match="broker id 7"):
        Fleet(zookeeper, [6, 7]).start()
    assert registrations(zookeeper) == {}  # broker 6 is gone too


@pytest.mark.zookeeper
def test_a_broker_whose_session_expired_registers_again(zookeeper: str) -> None:
    with Fleet(zookeeper, [7]) as fleet:
        first = fleet[7].epoch
        thief = KazooClient(zookeeper, client_id=fleet._links[7].session._client.client_id)
        thief.start(10)
        thief.stop()
        thief.close()
        eventually(lambda: fleet[7].epoch > first)
        assert registrations(zookeeper)[7][1] == fleet[7].epoch


@pytest.mark.zookeeper
def test_a_killed_broker_stays_registered_until_its_session_ends(zookeeper: str) -> None:
    with ZooKeeperSession(zookeeper) as session, Fleet(zookeeper, [7, 8], session_timeout_ms=4_000) as fleet:
        fleet.kill(7)
        assert {*session.children("/brokers/ids")} == {"7", "8"}
        eventually(lambda: set(registrations(zookeeper)) == {8})
        epoch = fleet.restart(7)
        assert registrations(zookeeper)[7][1] == epoch
        assert fleet.restart(7) > epoch  # without a pause between


# ---- a real controller -----------------------------------------------------------------------------------------------


class Rehearsal:
    """A real broker as controller over a fleet; each partition N of a topic has three replicas from broker N on."""

    def __init__(self, fleet: Fleet, zookeeper: str) -> None:
        self.fleet = fleet
        self.zookeeper = zookeeper
        self.admin = administrator({"bootstrap.servers": f"127.0.0.1:{fleet[FIRST].port}"})

    def up(self) -> list[Any]:
        return [m for m in self.fleet if m.is_up and not m.is_paused]

    def assignment(self, partition: int) -> list[int]:
        return [FIRST + (partition + i) % COUNT for i in range(3)]

    def create(self, topic: str) -> None:
        new = NewTopic(topic, COUNT, replica_assignment=[self.assignment(p) for p in range(COUNT)])
        self.admin.create_topics([new])[topic].result(120)

    def everywhere(self, topic: str, partition: int) -> set[tuple[int, frozenset[int]] | None]:
        """Leader and ISR of a partition as the brokers have them from UpdateMetadata; one value if all agree."""
        found = set()
        for member in self.up():
            row = member.broker.metadata.partition_info(topic, partition)
            found.add(None if row is None else (row.leader, frozenset(row.isr)))
        return found

    def isrs(self, topic: str, partition: int) -> set[frozenset[int] | None]:
        """The ISR of a partition as the brokers have it."""
        return {None if seen is None else seen[1] for seen in self.everywhere(topic, partition)}

    def state(self, topic: str, partition: int) -> tuple[int, frozenset[int]]:
        """Leader and ISR in ZooKeeper."""
        tp = TopicPartition(topic, partition)
        with ZooKeeperSession(self.zookeeper) as session:
            data, stat = session.get(partition_state_path(tp))
        state = decode_partition_state(tp, data, stat.version).leader_and_isr
        return state.leader, frozenset(state.isr)

    def hosts_as(self, topic: str, partition: int, role: str) -> set[int]:
        tp = TopicPartition(topic, partition)
        return {m.id for m in self.up() if (r := m.broker.replicas.hosted.get(tp)) is not None and r.role == role}


@pytest.fixture(scope="module", params=PROTOCOL_VERSIONS)
def rehearsal(
    request: pytest.FixtureRequest, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rehearsal]:
    folder, base = str(tmp_path_factory.mktemp("controller")), free_ports(3)
    zookeeper = f"127.0.0.1:{base + 2}"
    real_kafka("install", folder, "--jars", str(kafka_jars))
    try:
        real_kafka("start", folder, "--brokers", "1", "--ibp", request.param,
                   "--base-port", str(base), "--zk-port", str(base + 2))  # fmt: skip
        config = ChannelConfig(inter_broker_protocol_version=request.param)
        with Fleet(
            zookeeper, range(FIRST, FIRST + COUNT), config=config,
            session_timeout_ms=SESSION_MS, replica_lag_time_max_ms=LAG_MS,
        ) as fleet:  # fmt: skip
            eventually(lambda: all(len(m.broker.metadata.snapshot.alive_brokers) == COUNT + 1 for m in fleet))
            yield Rehearsal(fleet, zookeeper)
    finally:
        real_kafka("stop", folder, "--kill")


@pytest.mark.proof(4)
def test_leaders_and_isr_are_as_assigned_at_every_broker(rehearsal: Rehearsal) -> None:
    rehearsal.create("assigned")
    for partition in range(COUNT):
        leader, *followers = rehearsal.assignment(partition)
        expected = (leader, frozenset((leader, *followers)))
        eventually(lambda: rehearsal.everywhere("assigned", partition) == {expected})  # noqa: B023
        eventually(lambda: rehearsal.state("assigned", partition) == expected)  # noqa: B023
        assert rehearsal.hosts_as("assigned", partition, "leader") == {leader}
        assert rehearsal.hosts_as("assigned", partition, "follower") == set(followers)


def test_a_paused_follower_leaves_the_isr_and_comes_back(rehearsal: Rehearsal) -> None:
    rehearsal.create("paused")
    leader, silent, other = rehearsal.assignment(0)
    whole = (leader, frozenset((leader, silent, other)))
    eventually(lambda: rehearsal.everywhere("paused", 0) == {whole})
    rehearsal.fleet.pause(silent)
    try:
        eventually(lambda: rehearsal.state("paused", 0) == (leader, frozenset((leader, other))))
        eventually(lambda: rehearsal.everywhere("paused", 0) == {(leader, frozenset((leader, other)))})
    finally:
        rehearsal.fleet.resume(silent)
    eventually(lambda: rehearsal.state("paused", 0) == whole)
    eventually(lambda: rehearsal.everywhere("paused", 0) == {whole})


def test_ten_brokers_are_killed_at_once_and_come_back(rehearsal: Rehearsal) -> None:
    rehearsal.create("killed")
    fleet, ten = rehearsal.fleet, range(FIRST, FIRST + 10)
    # partition 8 keeps its third replica, partition 0 loses all of its replicas
    eventually(lambda: rehearsal.everywhere("killed", 8) == {(FIRST + 8, frozenset(rehearsal.assignment(8)))})
    for broker_id in ten:
        fleet.kill(broker_id)
    survivor = FIRST + 10
    eventually(lambda: rehearsal.everywhere("killed", 8) == {(survivor, frozenset({survivor}))})
    eventually(lambda: all(seen is not None and seen[0] == -1 for seen in rehearsal.everywhere("killed", 0)))
    for broker_id in ten:
        fleet.restart(broker_id)
    eventually(lambda: rehearsal.everywhere("killed", 8) == {(survivor, frozenset(rehearsal.assignment(8)))})
    eventually(lambda: rehearsal.isrs("killed", 0) == {frozenset(rehearsal.assignment(0))})
    assert rehearsal.hosts_as("killed", 8, "leader") == {survivor}


def test_ten_brokers_are_bounced_at_once(rehearsal: Rehearsal) -> None:
    rehearsal.create("bounced")
    eventually(lambda: None not in rehearsal.everywhere("bounced", COUNT - 1))
    before = {m.id: m.epoch for m in rehearsal.fleet}
    for broker_id in range(FIRST, FIRST + 10):
        assert rehearsal.fleet.restart(broker_id) > before[broker_id]
    for partition in (0, 5, 9):
        whole = frozenset(rehearsal.assignment(partition))
        eventually(lambda: rehearsal.isrs("bounced", partition) == {whole})  # noqa: B023
    eventually(lambda: all(len(m.broker.metadata.snapshot.alive_brokers) == COUNT + 1 for m in rehearsal.fleet))


def test_a_controlled_shutdown_moves_the_leaders_first(rehearsal: Rehearsal) -> None:
    rehearsal.create("left")
    eventually(lambda: rehearsal.everywhere("left", 12) == {(FIRST + 12, frozenset(rehearsal.assignment(12)))})
    leaving = FIRST + 12
    try:
        assert rehearsal.fleet.shut_down(leaving, timeout_s=60) == {}
        assert not rehearsal.fleet[leaving].is_up
        leader, isr = rehearsal.state("left", 12)
        assert leader in rehearsal.assignment(12)[1:]
        assert leaving not in isr
    finally:
        rehearsal.fleet.restart(leaving)
    eventually(lambda: rehearsal.isrs("left", 12) == {frozenset(rehearsal.assignment(12))})


def test_a_second_real_broker_takes_over_from_the_first(kafka_jars: Path, tmp_path: Path) -> None:
    """kill -9 of the controller: every simulated broker obeys the next one, which leads the same partitions."""
    folder, base = str(tmp_path), free_ports(3)
    real_kafka("install", folder, "--jars", str(kafka_jars))
    try:
        started = real_kafka("start", folder, "--brokers", "2", "--base-port", str(base), "--zk-port", str(base + 2))
        with Fleet(started["zookeeper_connect"], range(FIRST, FIRST + COUNT), session_timeout_ms=SESSION_MS) as fleet:
            eventually(lambda: all(len(m.broker.metadata.snapshot.alive_brokers) == COUNT + 2 for m in fleet))
            rehearsal = Rehearsal(fleet, started["zookeeper_connect"])
            rehearsal.create("kept")
            last = (FIRST + COUNT - 1, frozenset(rehearsal.assignment(COUNT - 1)))
            eventually(lambda: rehearsal.everywhere("kept", COUNT - 1) == {last})
            first = fleet[FIRST].broker.metadata.snapshot.controller.id  # type: ignore[union-attr]
            real_kafka("stop-broker", folder, str(first), "--kill")
            (event,) = rehearse(fleet, [Step("new-controller")])
            assert (event.heard, event.listening, event.is_complete) == (COUNT, COUNT, True)
            assert rehearsal.everywhere("kept", COUNT - 1) == {last}
            assert {m.broker.replicas.controller_epoch for m in fleet} == {2}
            fleet.kill(FIRST)
            follower = FIRST + 1
            eventually(lambda: rehearsal.everywhere("kept", 0) == {(follower, frozenset({follower, FIRST + 2}))})
    finally:
        real_kafka("stop", folder, "--kill")


@newest_protocol
def test_the_example_rehearses_without_a_complaint(rehearsal: Rehearsal) -> None:
    fleet = rehearsal.fleet
    path = Path(__file__).parents[2] / "examples" / "rehearse_fleet.py"
    first = max(m.id for m in fleet) + 400
    script = path.read_text(encoding="utf-8").replace("range(100, 150)", f"range({first}, {first + 50})")
    script = script.replace("100-149", f"{first}-{first + 49}")
    assert str(first) in script
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, rehearsal.zookeeper],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["step", "wait", "kill", "restart", "bounce"]
    assert done.stderr == ""


# ---- the command -----------------------------------------------------------------------------------------------------


@newest_protocol
def test_a_rehearsal_from_standard_input(rehearsal: Rehearsal) -> None:
    """Three more brokers in a process of their own: steps, reports, and a controlled shutdown in the end."""
    steps = "bounce 500-501\nkill 999\nkill 502\nrestart 502\nstop\n"
    done = subprocess.run(
        [sys.executable, "-m", "kproto", "brokers", "--zookeeper", rehearsal.zookeeper, "--count", "3",
         "--first-id", "500", "--session-timeout", "6", "--shutdown-timeout", "60", "--commands"],
        input=steps, capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["broker_id"] for line in lines[:3]] == [500, 501, 502]
    bounced, unknown, killed, restarted = lines[3:]
    assert "no broker 999 here" in unknown["error"]
    for event, listening in (bounced, 3), (killed, 2), (restarted, 3):
        assert (event["heard"], event["listening"], event["is_complete"]) == (listening, listening, True)
        assert event["requests"]["UpdateMetadata"] >= listening
    assert killed["heard_all_s"] > 1  # ZooKeeper waits for the session timeout
    assert "shutting down" in done.stderr
    assert "kill 502" in done.stderr
    assert "have left though" not in done.stderr


def test_sigterm_is_a_controlled_shutdown(rehearsal: Rehearsal) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "kproto", "brokers", "--zookeeper", rehearsal.zookeeper, "--count", "3",
         "--first-id", "500", "--shutdown-timeout", "60"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            for _ in range(3):
                process.stdout.readline()
            first = rehearsal.fleet[FIRST].broker.metadata
            eventually(lambda: {500, 501, 502} <= first.snapshot.alive_brokers.keys())  # the controller knows them
            topic = f"sigterm-{time.time_ns()}"
            replicas = [[500, 501, FIRST], [501, 500, FIRST]]
            rehearsal.admin.create_topics([NewTopic(topic, 2, replica_assignment=replicas)])[topic].result(120)
            process.terminate()
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert "have left though" not in errors
    for partition in (0, 1):
        eventually(lambda: rehearsal.state(topic, partition) == (FIRST, frozenset({FIRST})))  # noqa: B023


def test_the_registration_is_what_the_controller_announces(rehearsal: Rehearsal) -> None:
    with ZooKeeperSession(rehearsal.zookeeper) as session:
        for member in rehearsal.fleet:
            registered = decode_broker(member.id, session.get(broker_path(member.id))[0])
            (endpoint,) = registered.endpoints
            assert (endpoint.host, endpoint.port) == (member.host, member.port)
            known = rehearsal.fleet[FIRST].broker.metadata.snapshot.alive_brokers
            assert known[member.id].endpoints == registered.endpoints
