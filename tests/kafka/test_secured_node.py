"""Clients over SASL_SSL with an authorizer ask the controller's node: it serves super users, and passes nothing on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from led_cluster import CONTROLLER, LedCluster
from real_brokers import administrator, eventually

from channel.errors import Disconnected
from channel.network.node_client import NodeClient
from channel.security import read_security
from channel.zookeeper import znodes
from kproto.error_codes import ErrorCode
from kproto.messages import (
    AlterableConfig,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    MetadataRequest,
)

pytestmark = pytest.mark.kafka

BINDING = (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.DESCRIBE_CONFIGS,
           AclPermissionType.ALLOW)  # fmt: skip


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


def node_port(led: LedCluster) -> int:
    data = led.session.get(znodes.broker_path(CONTROLLER))[0]
    return znodes.decode_broker(CONTROLLER, data).endpoints[0].port


def as_user(led: LedCluster, user: str) -> dict[str, Any]:
    """The settings of a client that meets the node first."""
    return {
        **led.client(), "bootstrap.servers": f"127.0.0.1:{node_port(led)}", "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }  # fmt: skip


def ask(led: LedCluster, port: int, user: str, message: Any, version: int) -> Any:
    """Send one request to a port as a user; gives the answer."""
    file = led.folder / f"{user}.properties"
    file.write_text(
        f"security.protocol={led.protocol}\nssl.truststore.location={led.folder}/conf/ca.pem\n"
        f"sasl.mechanism=PLAIN\nsasl.username={user}\nsasl.password={user}-secret\n"
    )
    protocol, security = read_security(file)
    with NodeClient(("127.0.0.1", port), "test", protocol=protocol, security=security, timeout_ms=60_000) as client:
        return client.ask(message, version)


def refusal(future: Any) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(60)
    return int(refused.value.args[0].code())


def test_what_brokers_decide_by_rights_is_asked_of_brokers(led: LedCluster) -> None:
    admin, alice = administrator(as_user(led, "admin")), AdminClient(as_user(led, "alice"))
    admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(60)
    setting = AlterableConfig(name="retention.ms", config_operation=0, value="5000")
    orders = IncrementalAlterConfigsResource(resource_type=2, resource_name="orders", configs=[setting])
    alter = IncrementalAlterConfigsRequest(resources=[orders])
    asked = DescribeConfigsResource(resource_type=2, resource_name="orders", configuration_keys=["retention.ms"])
    describe = DescribeConfigsRequest(resources=[asked])
    # The node closes the connection: a broker would decide by the node's address.
    for user in ("alice", "admin"):
        for message, version in ((alter, 1), (describe, 4)):
            with pytest.raises(Disconnected, match="closed the connection"):
                ask(led, node_port(led), user, message, version)
    # librdkafka sends these to the controller alone.
    binding = AclBinding(*BINDING)
    assert refusal(alice.create_acls([binding])[binding]) == KafkaError._TRANSPORT

    def code(user: str, message: Any, version: int) -> int:
        answer = ask(led, led.base, user, message, version)
        (found,) = answer.responses if message is alter else answer.results
        return int(found.error_code)

    assert code("alice", alter, 1) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert code("alice", describe, 4) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    eventually(lambda: code("admin", alter, 1) == ErrorCode.NONE)  # once the broker has heard of the topic
    eventually(lambda: ask(led, led.base, "admin", describe, 4).results[0].configs[0].value == "5000")


def test_a_client_without_rights_is_refused_by_the_node_as_by_a_broker(led: LedCluster) -> None:
    admin, alice = administrator(as_user(led, "admin")), AdminClient(as_user(led, "alice"))
    admin.create_topics([NewTopic("hidden", 1, 1)])["hidden"].result(60)
    everything = MetadataRequest(topics=None)

    def shown(port: int, user: str) -> set[str | None]:
        return {topic.name for topic in ask(led, port, user, everything, 12).topics}

    eventually(lambda: all("hidden" in shown(port, "admin") for port in (led.base, node_port(led))))
    assert "hidden" not in shown(led.base, "alice")
    with pytest.raises(Disconnected, match="closed the connection"):
        shown(node_port(led), "alice")
    unwanted = NewTopic("unwanted", 1, 1)
    assert refusal(alice.create_topics([unwanted])["unwanted"]) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert refusal(alice.delete_topics(["hidden"])["hidden"]) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    topics = set(led.session.children(znodes.TOPICS))
    assert "hidden" in topics
    assert "unwanted" not in topics


def test_records_and_groups_pass_a_secured_node(led: LedCluster) -> None:
    admin = administrator(as_user(led, "admin"))
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
