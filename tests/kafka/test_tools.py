"""Kafka's own tools against brokers that ``kproto controller`` leads, and against the same ones without it."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import ask_port
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewTopic
from led_cluster import CONTROLLER, LedCluster
from real_brokers import elected, eventually

from channel.broker.fleet import Fleet
from channel.node.controller_node import candidates
from channel.zookeeper import cluster_state as zk
from channel.zookeeper import znodes
from kproto.messages import MetadataRequest
from kproto.types import TopicPartition

pytestmark = pytest.mark.kafka

_TOOLS = "org.apache.kafka.tools"
_REASSIGN = f"{_TOOLS}.reassign.ReassignPartitionsCommand"
_CONFIGS = "kafka.admin.ConfigCommand"


def create(cluster: LedCluster, topic: str, *replicas: list[int]) -> None:
    admin = cluster.admin()
    new = NewTopic(topic, len(replicas), replica_assignment=list(replicas))
    admin.create_topics([new])[topic].result(60)
    eventually(lambda: cluster.session.exists(znodes.topic_path(topic)) is not None)
    eventually(lambda: cluster.is_in_sync(topic, 1, set(replicas[0])))
    eventually(lambda: all(topic in known_topics(cluster.base + broker) for broker in range(cluster.count)))


def known_topics(port: int) -> set[str]:
    """The topics that a broker knows: Kafka's tools ask any of them."""
    return {known.name for known in ask_port(port, MetadataRequest(topics=None), 8).topics}


class Tools:
    """Runs Kafka's tools, each in a JVM of its own."""

    def __init__(self, folder: Path, jars: Path, bootstrap: str) -> None:
        self._folder, self._jars, self.bootstrap = folder, jars, bootstrap

    def __call__(self, tool: str, *arguments: str) -> str:
        """The lines that a tool prints in a fixed order, without its log, its stack traces and the broker's address."""
        command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{self._jars}/*", tool]
        done = subprocess.run(
            [*command, "--bootstrap-server", self.bootstrap, *arguments],
            capture_output=True, text=True, timeout=150, check=False,
        )  # fmt: skip
        lines = (done.stdout + done.stderr).replace(self.bootstrap, "BROKER").splitlines()
        return "\n".join(sorted(line for line in lines if line and not line.startswith(("log4j:", "\tat "))))

    def reassignment(self, targets: dict[int, list[int]]) -> str:
        """A file that tells kafka-reassign-partitions the replicas of the topic's partitions."""
        file = self._folder / "reassignment.json"
        partitions = [{"topic": "moved", "partition": p, "replicas": r} for p, r in targets.items()]
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return str(file)


@pytest.fixture(scope="module")
def led(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedCluster]:
    options = ("--prop", "offsets.topic.replication.factor=1", "--prop", "transaction.state.log.replication.factor=1",
               "--prop", "transaction.state.log.min.isr=1", "--prop", "offsets.topic.num.partitions=5",
               "--prop", "transaction.state.log.num.partitions=5")  # fmt: skip
    with LedCluster(tmp_path_factory.mktemp("led"), kafka_jars, options=options) as made:
        made.lead()
        made.start(0, 1, 2)
        yield made


def node_port(cluster: LedCluster) -> int:
    data = cluster.session.get(znodes.broker_path(CONTROLLER))[0]
    return znodes.decode_broker(CONTROLLER, data).endpoints[0].port


def outputs(tools: Tools, cluster: LedCluster) -> dict[str, str]:
    """What each tool prints; without the numbers of the controller's node, which keeps nothing."""
    create(cluster, "moved", [0, 1], [1, 2], [2, 0])
    plan = tools.reassignment({0: [1, 2], 1: [2, 0], 2: [0, 1]})
    done: dict[str, str] = {}
    done["execute"] = tools(_REASSIGN, "--reassignment-json-file", plan, "--execute", "--throttle", "50000000")

    def verified() -> bool:
        done["verify"] = tools(_REASSIGN, "--reassignment-json-file", plan, "--verify")
        return "still in progress" not in done["verify"]

    eventually(verified)
    done["list"] = tools(_REASSIGN, "--list")
    done["cancel"] = tools(_REASSIGN, "--reassignment-json-file", plan, "--cancel")
    wrong = tools.reassignment({0: [1, 99]})
    done["wrong broker"] = tools(_REASSIGN, "--reassignment-json-file", wrong, "--execute")
    one = ("--election-type", "preferred", "--topic", "moved", "--partition")
    done["elect"] = tools(f"{_TOOLS}.LeaderElectionCommand", *one, "0")
    done["elect unknown"] = tools(f"{_TOOLS}.LeaderElectionCommand", *one, "7")
    done["topics"] = tools(f"{_TOOLS}.TopicCommand", "--describe", "--topic", "moved")
    done["groups"] = tools(f"{_TOOLS}.consumer.group.ConsumerGroupCommand", "--list")
    log_dirs = tools(f"{_TOOLS}.LogDirsCommand", "--describe", "--topic-list", "moved")
    done["log dirs"] = next(line for line in log_dirs.split("\n") if line.startswith("Received"))
    done["transactions"] = tools(f"{_TOOLS}.TransactionsCommand", "list")
    topic, user = (
        ("--entity-type", "topics", "--entity-name", "moved"),
        ("--entity-type", "users", "--entity-name", "alice"),
    )
    done["alter topic"] = tools(_CONFIGS, *topic, "--alter", "--add-config", "retention.ms=5000")
    done["describe topic"] = tools(_CONFIGS, *topic, "--describe")
    done["wrong setting"] = tools(_CONFIGS, *topic, "--alter", "--add-config", "retention.ms=never")
    scram = "SCRAM-SHA-256=[iterations=4096,password=secret]"
    done["scram"] = tools(_CONFIGS, *user, "--alter", "--add-config", scram)
    done["quota"] = tools(_CONFIGS, *user, "--alter", "--add-config", "producer_byte_rate=1000")
    done["describe user"] = tools(_CONFIGS, *user, "--describe")
    done["scram deleted"] = tools(_CONFIGS, *user, "--alter", "--delete-config", "SCRAM-SHA-256")
    done["quota deleted"] = tools(_CONFIGS, *user, "--alter", "--delete-config", "producer_byte_rate")
    done["acls"] = tools("kafka.admin.AclCommand", "--list")
    done["feature"] = tools(f"{_TOOLS}.FeatureCommand", "upgrade", "--feature", "metadata.version=4")
    return {name: re.sub(r",\s?77\b|TopicId: \S+", "", text) for name, text in done.items()}


def settings(cluster: LedCluster) -> dict[str, Any]:
    """The znodes of settings, without those of the controller's node."""
    found = {}
    for kind in ("topics", "users", "brokers"):
        for name in cluster.session.children(f"/config/{kind}"):
            if name != str(CONTROLLER) and not name.startswith("__"):
                found[kind, name] = json.loads(cluster.session.get(f"/config/{kind}/{name}")[0])
    return found


def test_transactions_and_groups_meet_the_node_and_go_on(led: LedCluster) -> None:
    create(led, "written", [0, 1, 2])
    bootstrap = f"127.0.0.1:{node_port(led)}"
    for i in range(4):  # the node is the first that these clients meet, and any broker may be the next
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t{i}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("written", str(i))
        producer.commit_transaction(60)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["written"])
    values: set[bytes | None] = set()
    try:
        eventually(
            lambda: values.update(m.value() for m in consumer.consume(10, 0.5) if not m.error()) or len(values) == 4
        )
    finally:
        consumer.close()


def test_many_partitions_are_reassigned_in_the_leader_epochs_that_kafka_uses(led: LedCluster) -> None:
    count = 120
    create(led, "many", *[[0, 1]] * count)
    eventually(lambda: led.is_in_sync("many", count, {0, 1}))
    targets = {TopicPartition("many", p): (1, 2) for p in range(count)}
    led.session.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments(targets))
    eventually(lambda: led.session.exists(znodes.REASSIGN_PARTITIONS) is None)
    states = [led.state("many", p) for p in range(count)]
    assert {(s.leader, frozenset(s.isr), s.leader_epoch) for s in states} == {(1, frozenset({1, 2}), 3)}
    begun = (led.folder / "controller.log").read_text().count('"message": "[Controller id=77] reassigning many-')
    assert begun == count


def test_the_tools_give_the_same_results_under_both_controllers(led: LedCluster, kafka_jars: Path) -> None:
    ours = outputs(Tools(led.folder, kafka_jars, f"127.0.0.1:{node_port(led)}"), led)
    (led.folder / "tools-ours.json").write_text(json.dumps(ours, indent=1))
    left = settings(led)
    admin = led.admin()
    admin.delete_topics(["moved"])["moved"].result(60)
    led.end_controller()

    def is_led_by_kafka() -> bool:
        found = zk.read_controller(led.session)
        return found is not None and found[0].broker_id != CONTROLLER

    eventually(is_led_by_kafka)
    eventually(lambda: led.session.exists(znodes.topic_path("moved")) is None)
    theirs = outputs(Tools(led.folder, kafka_jars, led.bootstrap.split(",")[0]), led)
    (led.folder / "tools-theirs.json").write_text(json.dumps(theirs, indent=1))
    assert {name: text for name, text in ours.items() if text != theirs[name]} == {}
    assert left == settings(led)


def test_kafka_topics_works_with_a_fleet_that_elects_its_controller(
    zookeeper: str, kafka_jars: Path, tmp_path: Path
) -> None:
    topics = f"{_TOOLS}.TopicCommand"
    with Fleet(zookeeper, [1, 2, 3], session_timeout_ms=8_000, stand=candidates()) as fleet:
        leader = elected(fleet)
        eventually(lambda: all(len(m.broker.metadata.snapshot.alive_brokers) == 3 for m in fleet))
        tools = Tools(tmp_path, kafka_jars, f"127.0.0.1:{fleet[leader % 3 + 1].port}")
        created = tools(
            topics, "--create", "--topic", "t", "--replica-assignment", "1:2,2:3", "--config", "retention.ms=5"
        )
        assert created == "Created topic t."
        described = re.sub(r"TopicId: \S+", "", tools(topics, "--describe", "--topic", "t"))
        assert described.split("\n") == [
            "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: N/A\tLastKnownElr: N/A",
            "\tTopic: t\tPartition: 1\tLeader: 2\tReplicas: 2,3\tIsr: 2,3\tElr: N/A\tLastKnownElr: N/A",
            "Topic: t\t\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: retention.ms=5",
        ]
        assert tools(topics, "--list") == "t"
        assert tools(topics, "--delete", "--topic", "t") == ""
