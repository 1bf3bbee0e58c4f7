"""Faults of a cluster of three real brokers that ``kproto controller`` leads: every change arrives, once and in order.

``KPROTO_FORM=long`` makes the outages as long as 10 and 30 seconds.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control_traffic import ControlRequest, control_requests
from led_cluster import CONTROLLER, LedCluster
from network_namespace import NetworkNamespace
from real_brokers import IS_LONG, eventually, paused, real_kafka

from channel.types import ReplicaAssignment
from channel.zookeeper import cluster_state as zk
from channel.zookeeper import znodes
from kproto.types import TopicPartition

_missing = NetworkNamespace.missing()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.proof(6),
    pytest.mark.skipif(_missing is not None, reason=str(_missing)),
]

ZOOKEEPER_OUT_S = 10 if IS_LONG else 6
UNREACHABLE_S = 30 if IS_LONG else 16
REQUEST_TIMEOUT_MS = 10_000
"""After so long without an answer the controller gives a connection up, and tries the request again on a new one.

A broker that a busy machine keeps from answering for longer is told twice; the outage is longer than this time.
"""


class Faults(LedCluster):
    """The cluster with the requests that its brokers have logged."""

    def has_session(self, session_id: int) -> bool:
        """Whether a session of ZooKeeper has not ended."""
        return f"{session_id:#x}" in self.session._client.command(b"dump")

    def requests(self, broker_id: int, since: int = 0) -> list[ControlRequest]:
        """The control requests that a broker has answered, without the first ``since``."""
        return control_requests(self.request_log(broker_id))[since:]

    def counts(self) -> list[int]:
        """How many control requests each broker has answered."""
        return [len(self.requests(broker_id)) for broker_id in range(self.count)]

    def settled(self) -> list[int]:
        """``counts`` once they have stayed the same for a second."""
        counts, before = self.counts(), None
        deadline = time.monotonic() + 120
        while counts != before:
            assert time.monotonic() < deadline, "control requests go on and on"
            time.sleep(1)
            counts, before = self.counts(), counts
        return counts

    def create(self, topic: str) -> None:
        """Create a topic of one partition for each broker, whose preferred leader it is, with replicas on all."""
        ids = [*range(self.count)] * 2
        replicas = {p: ReplicaAssignment(tuple(ids[p : p + self.count])) for p in range(self.count)}
        self.session.create(znodes.topic_path(topic), znodes.encode_topic(replicas, None))

    def has_leaders(self, topic: str) -> bool:
        """Whether each partition of a topic has a state in ZooKeeper."""
        paths = [znodes.partition_state_path(TopicPartition(topic, p)) for p in range(self.count)]
        return all(self.session.exists_many(paths))

    def leaders(self, topic: str) -> set[int]:
        """The leaders of a topic's partitions."""
        return {self.state(topic, p).leader for p in range(self.count)}

    def active(self) -> tuple[int, int] | None:
        """The controller's epoch and broker id, by ZooKeeper."""
        found = zk.read_controller(self.session)
        return found and (zk.read_controller_epoch(self.session)[0], found[0].broker_id)


@pytest.fixture(scope="module")
def network(kafka_jars: Path) -> Iterator[NetworkNamespace]:
    with NetworkNamespace() as made:
        yield made


@pytest.fixture(scope="module")
def led(kafka_jars: Path, network: NetworkNamespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    settings = {
        "zookeeper.session.timeout.ms": 2000 * ZOOKEEPER_OUT_S,
        "request.timeout.ms": REQUEST_TIMEOUT_MS,
    }
    options = ("--request-log", "--prop", "zookeeper.session.timeout.ms=6000")
    with Faults(tmp_path_factory.mktemp("faults"), kafka_jars, options=options, settings=settings) as made:
        made.lead()
        made.start(0, 1, 2)
        made.create("first")
        eventually(lambda: made.has_leaders("first") and made.is_in_sync("first", 3, {0, 1, 2}))
        yield made


def test_an_unreachable_broker_gets_every_request_once_and_in_order(led: Faults, network: NetworkNamespace) -> None:
    port, before = led.base + 2, led.settled()
    ends = time.monotonic() + UNREACHABLE_S
    with network.dropped(port):
        for number in range(4):
            led.create(f"dropped-{number}")
            eventually(lambda: led.has_leaders(f"dropped-{number}"))  # noqa: B023
            time.sleep(0.5)
        time.sleep(max(0, ends - time.monotonic()))
        assert led.counts()[2] == before[2]
        assert led.session.exists(znodes.broker_path(2)) is not None  # its session lives: it is retried, not dead
    eventually(lambda: all(led.is_in_sync(f"dropped-{n}", 3, {0, 1, 2}) for n in range(4)))
    eventually(lambda: not network.unacknowledged(port))  # nothing of a given-up connection is still on its way
    led.settled()

    def told(broker_id: int) -> list[tuple[str, dict[str, Any]]]:
        return [(r.api, r.content) for r in led.requests(broker_id, before[broker_id])]

    with contextlib.suppress(AssertionError):  # the comparisons below show what differs
        eventually(lambda: told(2) == told(0) == told(1), 30)  # a request that came twice would stay
    assert told(1) == told(0)
    assert told(2) == told(0)
    assert len(told(0)) > 8


def test_a_broker_whose_znode_is_deleted_is_dead_until_it_registers_again(led: Faults) -> None:
    registered = led.session.exists(znodes.broker_path(1))
    assert registered is not None
    led.session.delete(znodes.broker_path(1))
    eventually(lambda: led.leaders("first") <= {0, 2} and led.is_in_sync("first", 3, {0, 2}))
    silent = led.settled()[1]
    led.create("without")
    eventually(lambda: led.has_leaders("without"))
    assert led.settled()[1] == silent
    for topic in ("without", "first"):
        assert all(1 not in led.state(topic, p).isr for p in range(led.count))  # though broker 1 runs and fetches
        eventually(lambda: led.is_in_sync(topic, 3, {0, 2}))  # noqa: B023  # another may lag for a while
    with paused(led.pid("broker-1")):
        eventually(lambda: not led.has_session(registered.owner))  # without which it would not register again
    eventually(lambda: led.session.exists(znodes.broker_path(1)))
    for topic in ("first", "without"):
        eventually(lambda: led.is_in_sync(topic, 3, {0, 1, 2}))  # noqa: B023
    eventually(lambda: led.counts()[1] > silent)


def stop_zookeeper(led: Faults) -> None:
    with paused(led.pid("zookeeper")):
        time.sleep(ZOOKEEPER_OUT_S)


def restart_zookeeper(led: Faults) -> None:
    real_kafka("stop-zookeeper", str(led.folder), "--kill")
    time.sleep(ZOOKEEPER_OUT_S - 2)
    real_kafka("start-zookeeper", str(led.folder))


@pytest.mark.parametrize("fault", [stop_zookeeper, *([restart_zookeeper] if IS_LONG else [])])
def test_zookeeper_fails_for_a_while(led: Faults, fault) -> None:
    """The controller's session outlives it: the leadership and its epoch stay; brokers may have expired."""
    epoch, topic = led.active(), fault.__name__
    assert epoch == (1, CONTROLLER)
    fault(led)
    led.create(topic)
    eventually(lambda: led.has_leaders(topic))
    eventually(lambda: all(led.is_in_sync(t, 3, {0, 1, 2}) for t in ("first", topic)))
    assert led.active() == epoch
    assert all(request.sender == epoch for b in range(3) for request in led.requests(b))
    one_send_path(led)


def test_a_controller_that_was_paused_for_longer_than_its_session_resigns(led: Faults) -> None:
    assert led.process is not None
    with paused(led.process.pid):
        eventually(lambda: led.active() not in (None, (1, CONTROLLER)))
    told = {}
    while "leading" not in told or told["leading"]:
        told = led.line()
    before = led.settled()
    led.create("later")
    eventually(lambda: led.has_leaders("later") and led.is_in_sync("later", 3, {0, 1, 2}))
    eventually(lambda: all(count > b for count, b in zip(led.counts(), before, strict=True)))
    active = led.active()
    assert active is not None
    assert active[0] == 2
    assert {r.sender for b in range(3) for r in led.requests(b, before[b])} == {active}
    one_send_path(led)


def one_send_path(led: Faults) -> None:
    """The latest requests of each broker came from one connection, and from the controller that leads."""
    before = led.settled()
    topic = f"path-{time.time_ns()}"
    led.create(topic)
    eventually(lambda: led.has_leaders(topic) and led.is_in_sync(topic, 3, {0, 1, 2}))
    eventually(lambda: all(count > b for count, b in zip(led.counts(), before, strict=True)))
    for broker_id in range(3):
        latest = led.requests(broker_id, before[broker_id])
        assert len({request.source for request in latest}) == 1
        assert {request.sender for request in latest} == {led.active()}
