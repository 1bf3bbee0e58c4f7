"""Topics that clients create while one controller after the other is elected: none is lost, and none is half made."""

import itertools
from collections import Counter

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from real_brokers import IS_LONG, elected, eventually

from channel.broker.fleet import Fleet
from channel.node.controller_node import candidates
from channel.zookeeper.cluster_state import read_controller_epoch
from channel.zookeeper.session import ZooKeeperSession
from channel.zookeeper.znodes import CONTROLLER, partition_state_path, topic_path
from kproto.types import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]

TOPICS = 1_000 if IS_LONG else 100
AT_ONCE = 10
ELECTIONS = 3
PARTITIONS = 3


def create(admin: AdminClient, names: list[str]) -> None:
    """Create topics, and try those again that were not acknowledged."""
    left = names

    def are_created() -> bool:
        nonlocal left
        futures = admin.create_topics([NewTopic(name, PARTITIONS, 2) for name in left])
        left = [name for name, future in futures.items() if not is_created(future)]
        if left:
            admin.list_topics(timeout=60)  # by which the client learns of another controller
        return not left

    eventually(are_created)


def is_created(future: object) -> bool:
    try:
        future.result(60)  # type: ignore[attr-defined]
    except KafkaException as e:
        return bool(e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True


def roles(fleet: Fleet) -> Counter[str]:
    """How many replicas the brokers have in each role."""
    return Counter(replica.role for m in fleet for replica in list(m.broker.replicas.hosted.values()))


def test_no_topic_is_lost_or_half_made_while_controllers_change(zookeeper: str) -> None:
    names = [f"t{number}" for number in range(TOPICS)]
    with (
        Fleet(zookeeper, range(1, 6), session_timeout_ms=8_000, stand=candidates()) as fleet,
        ZooKeeperSession(zookeeper) as session,
    ):
        elected(fleet)
        eventually(lambda: all(len(m.broker.metadata.snapshot.alive_brokers) == 5 for m in fleet))
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{fleet[1].port}", "log_level": 0})
        groups = [names[at : at + AT_ONCE] for at in range(0, TOPICS, AT_ONCE)]
        elections = {len(groups) * number // (ELECTIONS + 1) for number in range(1, ELECTIONS + 1)}
        for number, group in enumerate(groups):
            if number in elections:
                session.ensure(CONTROLLER)
                session.delete(CONTROLLER)  # any of the five is elected
            create(admin, group)
        found = read_controller_epoch(session)
        assert found is not None
        assert found[0] >= 1 + ELECTIONS
        assert all(session.exists_many([topic_path(name) for name in names]))
        tps = [TopicPartition(name, p) for name, p in itertools.product(names, range(PARTITIONS))]
        eventually(lambda: all(session.exists_many([partition_state_path(tp) for tp in tps])))
        wanted = TOPICS * PARTITIONS
        eventually(lambda: all(m.broker.metadata.snapshot.partition_count == wanted for m in fleet))
        eventually(lambda: roles(fleet) == {"leader": wanted, "follower": wanted})
