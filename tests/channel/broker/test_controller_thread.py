"""The brokers' requests to their controller: client ids, metrics and mechanism as Kafka's, over real sockets."""

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import BrokerHooks, RequestContext
from channel.broker.to_controller import ControllerInformation, NodeToControllerThread
from channel.clock import FOREVER
from channel.config import ChannelConfig
from channel.metrics import Metrics
from channel.network.request import MessageRequest
from channel.security import Password, SecurityConfig
from channel.types import Node, SecurityProtocol
from kproto.api import ApiKey
from kproto.messages import AlterPartitionRequest, AlterPartitionResponse

MECHANISM = "SCRAM-SHA-512"


class Controller:
    """Answers AlterPartition, and notes the client ids."""

    keys = frozenset({ApiKey.ALTER_PARTITION})

    def __init__(self) -> None:
        self.client_ids: list[str] = []

    def __call__(self, context: RequestContext, request: Any, answer: Callable[[Any], None]) -> None:
        self.client_ids.append(context.client_id)
        answer(AlterPartitionResponse())


@pytest.mark.parametrize("protocol", [SecurityProtocol.PLAINTEXT, SecurityProtocol.SASL_PLAINTEXT])
def test_each_broker_is_its_own_client_as_in_kafka(protocol: SecurityProtocol) -> None:
    served, metrics = Controller(), Metrics()
    theirs = SecurityConfig(sasl_enabled_mechanisms=(MECHANISM,), users={"broker": Password("secret")})
    ours = SecurityConfig(sasl_mechanism="PLAIN", sasl_username="broker", sasl_password=Password("secret"))
    hooks = BrokerHooks(controller=served)
    with EmbeddedCluster(1, hooks=lambda _: hooks, protocol=protocol, security=theirs) as cluster:
        node = Node(0, cluster[0].host, cluster[0].port)
        information = ControllerInformation(node, protocol.name, protocol, sasl_mechanism=MECHANISM)
        thread = NodeToControllerThread("to-controller", "alter-partition", ChannelConfig(), ours, information, metrics)
        thread.start()
        answers: SimpleQueue[Any] = SimpleQueue()
        try:
            for broker_id in (5, 70, 5):
                channel = thread.channel(broker_id, lambda: information, FOREVER)
                channel.send_request(MessageRequest(AlterPartitionRequest(broker_id=broker_id), 3), answers.put)
                assert answers.get(timeout=60).body == AlterPartitionResponse()
            counted = {
                broker: metrics.value("alter-partition-metrics", "request-total", {"BrokerId": broker})
                for broker in ("5", "70")
            }
        finally:
            thread.shutdown()
    assert served.client_ids == ["5", "70", "5"]
    assert counted["5"] > counted["70"] > 0
