"""Two kinds of brokers for one set of expectations: embedded ones, and real ones of Kafka 3.9.1."""

import itertools
import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import standstill
from free_ports import free_ports
from real_brokers import jars, real_kafka, zookeeper_alone

from channel.broker.cluster import EmbeddedCluster
from channel.send.encoded_requests import SingleRequest
from channel.send.manager import ControllerChannelManager
from channel.types import Broker, EndPoint
from channel.zookeeper.session import ZooKeeperSession

_chroots = itertools.count()

PROOFS = {
    1: "three real brokers are led from an empty ZooKeeper",
    2: "a real broker takes over and fences; the controller waits for its turn",
    3: "a real broker leads simulated brokers",
    4: "both with other inter-broker protocols, and over SASL_SSL",
    5: "control traffic beside that of Kafka's own controller",
    6: "ZooKeeper, a broker or the controller out of reach",
}


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(standstill)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have each report tell which proof its test belongs to."""
    for item in items:
        item.user_properties += [("proof", number) for marker in item.iter_markers("proof") for number in marker.args]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print a table of the proofs that ran: seconds with the start of their clusters, and outcomes of their tests."""
    seconds: Counter[int] = Counter()
    outcomes: dict[int, Counter[str]] = {}
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            for name, number in report.user_properties if isinstance(report, pytest.TestReport) else ():
                if name == "proof":
                    seconds[number] += report.duration
                    if outcome:  # the setup and teardown of a test that passed have none
                        outcomes.setdefault(number, Counter())[outcome] += 1
    if not outcomes:
        return
    terminalreporter.section("proofs against a real Kafka")
    for number in sorted(outcomes):
        found = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes[number].items()))
        terminalreporter.write_line(f"{number}  {seconds[number]:6.1f} s  {found:22}  {PROOFS[number]}")


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """A folder with Kafka's jars, fetched by Maven at its first use."""
    return jars()


@pytest.fixture(scope="session")
def zookeeper_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real ZooKeeper without brokers: the one that ``KPROTO_ZOOKEEPER`` names, else one of its own."""
    if running := os.environ.get("KPROTO_ZOOKEEPER"):
        yield running
        return
    request.getfixturevalue("kafka_jars")
    with zookeeper_alone(tmp_path_factory.mktemp("zookeeper")) as address:
        yield address


@pytest.fixture
def zookeeper(zookeeper_server: str) -> Iterator[str]:
    """The address of a real ZooKeeper under a chroot that this test alone uses."""
    chroot = f"/test-{os.getpid()}-{next(_chroots)}"
    with ZooKeeperSession(zookeeper_server) as session:
        session.ensure(chroot)
        yield zookeeper_server + chroot
        session.delete_tree(chroot)


@dataclass
class Cluster:
    """Brokers with their epochs, and a channel manager that sends to them."""

    manager: ControllerChannelManager
    epochs: dict[int, int]
    ports: dict[int, int]

    def ask(self, message: Any, version: int, broker_id: int = 0) -> Any:
        """Send one request through queue and send thread; gives the answer."""
        answered, answers = threading.Event(), []

        def callback(response: Any) -> None:
            answers.append(response)
            answered.set()

        self.manager.send_request(broker_id, SingleRequest(message, version), callback)
        assert answered.wait(60), f"no answer to {message!r}"
        return answers[0]


@pytest.fixture(scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers that a controller of ours rules."""
    if request.param == "embedded":
        with EmbeddedCluster(2, first_epoch=100) as made:
            yield from _ruled({m.id: m.epoch for m in made}, {m.id: m.port for m in made})
        return
    folder = str(tmp_path_factory.mktemp("kafka"))
    real_kafka("install", folder, "--jars", str(request.getfixturevalue("kafka_jars")))
    base = free_ports(3)
    try:
        started = real_kafka(
            "start", folder, "--brokers", "2", "--external-controller", "77",
            "--base-port", str(base), "--zk-port", str(base + 2),
        )  # fmt: skip
        epochs = {int(i): facts["broker_epoch"] for i, facts in started["brokers"].items()}
        yield from _ruled(epochs, {i: base + i for i in epochs})
    finally:
        real_kafka("stop", folder, "--kill")


def _ruled(epochs: dict[int, int], ports: dict[int, int]) -> Iterator[Cluster]:
    with ControllerChannelManager(77, lambda: 5) as manager:
        manager.start([Broker(i, (EndPoint("127.0.0.1", port),)) for i, port in ports.items()])
        yield Cluster(manager, epochs, ports)
