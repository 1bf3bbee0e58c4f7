"""Clients over SASL_SSL with an authorizer ask the controller's node: brokers decide by the client's user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from led_cluster import CONTROLLER, LedCluster
from real_brokers import eventually

from channel.zookeeper import znodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.kafka

BINDING = (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.DESCRIBE_CONFIGS,
           AclPermissionType.ALLOW)  # fmt: skip
RETENTION = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)


@pytest.fixture(scope="module")
def led(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedCluster]:
    options = ("--prop", "offsets.topic.replication.factor=1", "--prop", "offsets.topic.num.partitions=3",
               "--prop", "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
               "--prop", "super.users=User:admin")  # fmt: skip
    with LedCluster(
        tmp_path_factory.mktemp("secured"), kafka_jars, 2, options=options, protocol="SASL_SSL",
        settings={
            "default.replication.factor": 1, "super.users": "User:admin",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        },
    ) as made:  # fmt: skip
        made.lead()
        made.start(0, 1)
        yield made


def as_user(led: LedCluster, user: str) -> dict[str, Any]:
    """The settings of a client that meets the node first."""
    data = led.session.get(znodes.broker_path(CONTROLLER))[0]
    port = znodes.decode_broker(CONTROLLER, data).endpoints[0].port
    return {
        **led.client(), "bootstrap.servers": f"127.0.0.1:{port}", "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }  # fmt: skip


def succeeds(ask: Callable[[], Any]) -> bool:
    """Whether a request succeeds: brokers hear of a new topic or ACL one after the other."""
    try:
        return bool(ask())
    except KafkaException:
        return False


def refusal(future: Any) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(60)
    return int(refused.value.args[0].code())


def test_a_client_has_its_own_rights_at_brokers_that_the_node_asks_for_it(led: LedCluster) -> None:
    admin, alice = AdminClient(as_user(led, "admin")), AdminClient(as_user(led, "alice"))
    admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(60)
    topic, binding = ConfigResource(ResourceType.TOPIC, "orders"), AclBinding(*BINDING)
    # These go to the controller by librdkafka's choice, which is the node; it passes them on to a broker.
    assert refusal(alice.create_acls([binding])[binding]) == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    denied = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[RETENTION])
    assert refusal(alice.incremental_alter_configs([denied])[denied]) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    eventually(lambda: succeeds(lambda: admin.incremental_alter_configs([denied])[denied].result(60) is None))
    admin.create_acls([binding])[binding].result(60)
    everything = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
                                  AclPermissionType.ANY)  # fmt: skip
    eventually(lambda: admin.describe_acls(everything).result(60) == [binding])
    eventually(
        lambda: succeeds(lambda: alice.describe_configs([topic])[topic].result(60)["retention.ms"].value == "5000")
    )


def test_a_client_without_rights_is_refused_by_the_node_as_by_a_broker(led: LedCluster) -> None:
    admin, alice = AdminClient(as_user(led, "admin")), AdminClient(as_user(led, "alice"))
    admin.create_topics([NewTopic("hidden", 1, 1)])["hidden"].result(60)
    eventually(lambda: "hidden" in admin.list_topics(timeout=60).topics)
    assert "hidden" not in alice.list_topics(timeout=60).topics
    unwanted = NewTopic("unwanted", 1, 1)
    assert refusal(alice.create_topics([unwanted])["unwanted"]) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert refusal(alice.delete_topics(["hidden"])["hidden"]) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    topics = set(led.session.children(znodes.TOPICS))
    assert "hidden" in topics
    assert "unwanted" not in topics


def test_records_and_groups_pass_a_secured_node(led: LedCluster) -> None:
    admin = AdminClient(as_user(led, "admin"))
    admin.create_topics([NewTopic("read", 1, 1)])["read"].result(60)
    failures: list[Any] = []
    producer = Producer(as_user(led, "admin"))
    producer.produce("read", "value", on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failures == []
    consumer = Consumer({**as_user(led, "admin"), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["read"])
    try:
        eventually(lambda: any(m.value() == b"value" for m in consumer.consume(1, 0.5) if not m.error()))
    finally:
        consumer.close()
