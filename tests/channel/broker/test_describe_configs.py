"""DescribeConfigs at embedded brokers: the settings of topics, and of the broker itself."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask_port

from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import BrokerHooks
from channel.rehearsal.scripted_controller import ScriptedController
from kproto.error_codes import ErrorCode
from kproto.messages import DescribeConfigsRequest, DescribeConfigsResource

TOPIC, BROKER = 2, 4
SETTINGS = {
    "topics/orders": {"retention.ms": "5", "cleanup.policy": "compact"},
    "brokers/0": {"num.io.threads": "2"},
}


@pytest.mark.parametrize("version", range(5))
def test_settings_of_topics_and_of_the_broker_itself(version: int) -> None:
    hooks = BrokerHooks(settings=lambda entity: SETTINGS.get(entity, {}))
    with EmbeddedCluster(1, hooks=lambda _: hooks) as cluster, ScriptedController(cluster) as controller:
        controller.create_topic("orders")
        controller.wait_all()

        def described(kind: int, name: str, *keys: str) -> Any:
            resource = DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
            )
            found = ask_port(cluster[0].port, DescribeConfigsRequest(resources=[resource]), version).results[0]
            assert (found.resource_type, found.resource_name) == (kind, name)
            if found.error_code:
                return found.error_code
            return {c.name: (c.value, c.read_only, c.config_source) for c in found.configs}

        of_topic, of_broker, of_file = (1, 2, 4) if version else (-1, -1, -1)
        assert described(TOPIC, "orders") == {
            "cleanup.policy": ("compact", False, of_topic),
            "retention.ms": ("5", False, of_topic),
        }
        assert described(TOPIC, "orders", "retention.ms", "none") == {"retention.ms": ("5", False, of_topic)}
        assert described(BROKER, "0") == {
            "num.io.threads": ("2", False, of_broker),
            "broker.id": ("0", True, of_file),
        }
        assert described(TOPIC, "unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert described(BROKER, "1") == ErrorCode.INVALID_REQUEST


def test_a_broker_without_settings_describes_none() -> None:
    with EmbeddedCluster(1) as cluster:
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name="0", configuration_keys=None)
        (found,) = ask_port(cluster[0].port, DescribeConfigsRequest(resources=[resource]), 4).results
        assert [c.name for c in found.configs] == ["broker.id"]
