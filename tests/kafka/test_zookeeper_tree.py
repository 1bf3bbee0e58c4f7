"""What administrative operations leave in ZooKeeper under ``kproto controller``, and under Kafka's own controller.

The operations run on one cluster of three real brokers, first under the one and then under the other. After each of
them the whole tree is compared, without times, topic ids, salts and the numbers of notifications. Leader epochs and
ISRs are compared as they are.
"""

import base64
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import ask_port
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from led_cluster import CONTROLLER, LedCluster
from real_brokers import IS_LONG, eventually

from channel.errors import NodeExists
from channel.types import ReplicaAssignment
from channel.zookeeper import cluster_state as zk
from channel.zookeeper import znodes
from kproto import types
from kproto.messages import (
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ElectLeadersTopic,
    ReassignablePartition,
    ReassignableTopic,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

pytestmark = pytest.mark.kafka

Tree = dict[str, Any]

_IGNORED = (
    "/zookeeper", "/controller", "/controller_epoch", "/brokers/ids", "/brokers/seqid", "/cluster", "/config/changes",
    "/isr_change_notification", "/log_dir_event_notification", "/latest_producer_id_block", "/feature", "/migration",
    f"/config/brokers/{CONTROLLER}",
)  # fmt: skip
_STABLE_S = 1.0


class Operations:
    """The operations; each method is one of them, in the order in which they run."""

    def __init__(self, led: LedCluster) -> None:
        self._led = led
        self._admin = led.admin()

    # ---- steps of operations

    def _controller_port(self) -> int:
        found = zk.read_controller(self._led.session)
        assert found is not None
        data = self._led.session.get(znodes.broker_path(found[0].broker_id))[0]
        return znodes.decode_broker(found[0].broker_id, data).endpoints[0].port

    def _ask(self, message: Any, version: int) -> Any:
        return ask_port(self._controller_port(), message, version)

    def _done(self, futures: Any) -> None:
        for future in futures.values():
            with contextlib.suppress(KafkaException):  # what both controllers refuse leaves the tree as it was
                future.result(60)

    def _create(self, name: str, *replicas: list[int], **config: str) -> None:
        self._done(
            self._admin.create_topics([NewTopic(name, len(replicas), replica_assignment=list(replicas), config=config)])
        )

    def _configure(self, kind: ResourceType, name: str, *entries: ConfigEntry) -> None:
        resource = ConfigResource(kind, name, incremental_configs=list(entries))
        self._done(self._admin.incremental_alter_configs([resource]))

    def _reassign(self, **targets: dict[int, tuple[int, ...]]) -> None:
        named = {types.TopicPartition(topic, p): r for topic, of in targets.items() for p, r in of.items()}
        self._led.session.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments(named))

    def _reassign_by_request(self, topic: str, targets: dict[int, list[int] | None]) -> None:
        rows = [ReassignablePartition(partition_index=p, replicas=r) for p, r in targets.items()]
        self._ask(AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=rows)]), 0)

    def _elect(self, kind: int, **partitions: list[int]) -> None:
        rows = [ElectLeadersTopic(topic=topic, partitions=found) for topic, found in partitions.items()]
        self._ask(ElectLeadersRequest(election_type=kind, topic_partitions=rows), 2)

    # ---- the operations

    def create_a_topic(self) -> None:
        self._create("a", [0, 1], [1, 2], [2, 0])

    def create_a_topic_with_settings(self) -> None:
        self._create("b", [2, 1, 0], **{"retention.ms": "5000", "cleanup.policy": "compact"})

    def create_a_topic_that_exists(self) -> None:
        self._create("a", [0])

    def create_a_topic_with_a_wrong_setting(self) -> None:
        self._create("wrong", [0], **{"retention.ms": "never"})

    def create_a_topic_by_its_znode(self) -> None:
        contents = znodes.encode_topic({0: ReplicaAssignment((1, 0)), 1: ReplicaAssignment((0, 2))}, None)
        self._led.session.create(znodes.topic_path("z"), contents)

    def add_partitions(self) -> None:
        self._done(self._admin.create_partitions([NewPartitions("a", 5, replica_assignment=[[1, 0], [0, 2]])]))

    def add_fewer_partitions_than_there_are(self) -> None:
        self._done(self._admin.create_partitions([NewPartitions("a", 2)]))

    def reassign_by_the_znode(self) -> None:
        self._reassign(a={0: (1, 2)}, z={1: (0, 1)})

    def reassign_by_a_request(self) -> None:
        self._reassign_by_request("a", {1: [2, 0], 2: [2, 0, 1]})

    def elect_preferred_leaders_by_the_znode(self) -> None:
        tps = [types.TopicPartition("a", p) for p in range(5)]
        self._led.session.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions(tps))

    def delete_a_topic(self) -> None:
        self._done(self._admin.delete_topics(["z"]))

    def reassign_to_the_present_replicas(self) -> None:
        self._reassign(a={3: (1, 0)})

    def reassign_to_an_unknown_broker(self) -> None:
        self._reassign_by_request("a", {0: [1, 99]})

    def reassign_to_no_replicas(self) -> None:
        self._reassign_by_request("a", {0: []})

    def cancel_a_reassignment_that_is_not_there(self) -> None:
        self._reassign_by_request("a", {0: None})

    def reassign_an_unknown_partition(self) -> None:
        self._reassign(nowhere={7: (0, 1)})

    def reassign_in_another_order(self) -> None:
        self._reassign_by_request("b", {0: [0, 2, 1]})

    def reassign_to_fewer_replicas(self) -> None:
        self._reassign_by_request("b", {0: [1, 2]})

    def elect_preferred_leaders_by_a_request(self) -> None:
        self._elect(0, a=[0, 1, 2], b=[0])

    def elect_an_unclean_leader_that_is_not_needed(self) -> None:
        self._elect(1, a=[0])

    def elect_for_an_unknown_partition(self) -> None:
        tps = [types.TopicPartition("nowhere", 0)]
        self._led.session.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions(tps))

    def set_a_topics_settings(self) -> None:
        self._configure(
            ResourceType.TOPIC, "a",
            ConfigEntry("retention.ms", "7000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        )  # fmt: skip

    def delete_a_topics_setting(self) -> None:
        entry = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
        self._configure(ResourceType.TOPIC, "a", entry)

    def set_a_brokers_setting(self) -> None:
        entry = ConfigEntry("follower.replication.throttled.rate", "9", incremental_operation=AlterConfigOpType.SET)
        self._configure(ResourceType.BROKER, "1", entry)

    def create_scram_credentials(self) -> None:
        upsertion = ScramCredentialUpsertion(
            name="carol", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
        )
        self._ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)

    def delete_scram_credentials(self) -> None:
        deletion = ScramCredentialDeletion(name="carol", mechanism=1)
        self._ask(AlterUserScramCredentialsRequest(deletions=[deletion]), 0)

    def mark_an_unknown_topic_for_deletion(self) -> None:
        with contextlib.suppress(NodeExists):
            self._led.session.create(f"{znodes.ADMIN_DELETE_TOPICS}/nowhere")

    def add_partitions_by_the_topics_znode(self) -> None:
        path = znodes.topic_path("b")
        data, _ = self._led.session.get(path)
        contents = znodes.decode_topic("b", data)
        self._led.session.set(
            path, znodes.encode_topic({**contents.partitions, 1: ReplicaAssignment((2, 0))}, contents.topic_id)
        )

    def delete_two_topics_at_once(self) -> None:
        self._ask(DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=60_000), 5)

    def create_a_deleted_topic_again(self) -> None:
        self._create("a", [2, 1])


NAMES = [name for name in vars(Operations) if not name.startswith("_")]
SHORT = NAMES[:11]


def read_tree(led: LedCluster) -> Tree:
    """Every znode that counts, with its contents."""
    found: Tree = {}
    level = [""]
    while level:
        names = led.session.children_of_many([path or "/" for path in level])
        paths = [f"{parent}/{name}" for parent, below in zip(level, names, strict=True) for name in below or ()]
        level = [path for path in paths if path not in _IGNORED]
        for path, read in zip(level, led.session.get_many(level), strict=True):
            if read is not None:
                found[path] = contents_of(path, read[0])
    return {path: contents for path, contents in found.items() if not path.startswith("/brokers/topics/__")}


def contents_of(path: str, data: bytes) -> Any:
    """A znode's contents, without what differs from run to run."""
    try:
        contents = json.loads(data)
    except ValueError:
        return data.decode()
    if isinstance(contents, dict):
        if "topic_id" in contents:
            assert len(base64.urlsafe_b64decode(contents["topic_id"] + "==")) == 16
            contents["topic_id"] = "any"
        if path.endswith("/state"):
            contents.pop("controller_epoch")
            contents["isr"] = sorted(contents["isr"])  # replicas come back in any order
    return contents


def is_pending(tree: Tree) -> bool:
    """Whether the controller has work left."""
    topics = [
        contents for path, contents in tree.items() if path.startswith("/brokers/topics/") and path.count("/") == 3
    ]
    moving = any(each.get("adding_replicas") or each.get("removing_replicas") for each in topics)
    waits = any(path.startswith(f"{znodes.ADMIN_DELETE_TOPICS}/") for path in tree)
    without_states = any(
        f"/brokers/topics/{path.split('/')[3]}/partitions/{p}/state" not in tree
        for path, contents in tree.items()
        if path.startswith("/brokers/topics/") and path.count("/") == 3
        for p in contents["partitions"]
    )
    return (
        moving
        or waits
        or without_states
        or {znodes.REASSIGN_PARTITIONS, znodes.PREFERRED_ELECTION} & tree.keys() != set()
    )


def settled(led: LedCluster) -> Tree:
    """The tree once it has not changed for a second, and nothing is under way."""
    deadline, since, tree = time.monotonic() + 120, time.monotonic(), read_tree(led)
    while is_pending(tree) or time.monotonic() - since < _STABLE_S:
        assert time.monotonic() < deadline, f"the controller does not finish: {tree}"
        time.sleep(0.1)
        if (now := read_tree(led)) != tree:
            tree, since = now, time.monotonic()
    return tree


def trees_after(led: LedCluster, names: list[str]) -> dict[str, Tree]:
    """The tree after each operation."""
    operations, trees = Operations(led), {}
    for name in names:
        getattr(operations, name)()
        trees[name] = settled(led)
    return trees


def knows_its_controller(address: str) -> bool:
    """Whether a broker tells clients of the new controller: they would wait for the former one for long."""
    return AdminClient({"bootstrap.servers": address}).list_topics(timeout=60).controller_id != CONTROLLER


@pytest.fixture(scope="module")
def trees(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Tree], ...]]:
    names = NAMES if IS_LONG else SHORT
    with LedCluster(tmp_path_factory.mktemp("trees"), kafka_jars) as led:
        led.lead()
        led.start(0, 1, 2)
        ours = trees_after(led, names)
        left = [
            path.rpartition("/")[2]
            for path in read_tree(led)
            if path.startswith("/brokers/topics/") and path.count("/") == 3
        ]
        admin = led.admin()
        for future in admin.delete_topics(left).values():
            future.result(60)
        eventually(lambda: led.session.children(znodes.TOPICS) == [])
        led.end_controller()

        def is_led_by_kafka() -> bool:
            found = zk.read_controller(led.session)
            return found is not None and found[0].broker_id != CONTROLLER

        eventually(is_led_by_kafka)
        eventually(lambda: all(knows_its_controller(address) for address in led.bootstrap.split(",")))
        for kind in ("topics", "users", "brokers"):
            for name in led.session.children(f"/config/{kind}"):
                led.session.delete_tree(f"/config/{kind}/{name}")
        yield ours, trees_after(led, names)


@pytest.mark.parametrize("name", NAMES if IS_LONG else SHORT)
def test_the_tree_is_as_kafkas_controller_leaves_it(trees: tuple[dict[str, Tree], ...], name: str) -> None:
    ours, theirs = (each[name] for each in trees)
    paths = sorted(ours.keys() | theirs.keys())
    assert {path: (ours.get(path), theirs.get(path)) for path in paths if ours.get(path) != theirs.get(path)} == {}
