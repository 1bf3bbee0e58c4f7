"""DescribeConfigs at embedded brokers: the settings of topics, and of the broker itself."""

import concurrent.futures
import threading
from typing import Any

import pytest
from asking import ask_port
from network_peers import until

from channel.broker import service
from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import BrokerHooks
from channel.errors import RequestTimeout
from channel.rehearsal.scripted_controller import ScriptedController
from kproto.error_codes import ErrorCode
from kproto.messages import DescribeConfigsRequest, DescribeConfigsResource, MetadataRequest

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


def describe(cluster: EmbeddedCluster, *names: str) -> list[int]:
    resources = [DescribeConfigsResource(resource_type=BROKER, resource_name=n, configuration_keys=None) for n in names]
    answer = ask_port(cluster[0].port, DescribeConfigsRequest(resources=resources), 4)
    return [result.error_code for result in answer.results]


def test_settings_that_cannot_be_read_hold_up_no_metadata_and_are_answered_in_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A read of ZooKeeper that ends never: Metadata goes on, further requests are refused at once, and all end."""
    monkeypatch.setattr(service, "SETTINGS_S", 0.5)
    release, waiting = threading.Event(), []
    hooks = BrokerHooks(settings=lambda entity: (waiting.append(entity), release.wait(60), {})[2])
    with EmbeddedCluster(1, hooks=lambda _: hooks) as cluster, concurrent.futures.ThreadPoolExecutor(8) as pool:
        try:
            asked = [pool.submit(describe, cluster, "0") for _ in range(6)]
            until(lambda: len(waiting) == 2)
            assert ask_port(cluster[0].port, MetadataRequest(topics=[]), 9).cluster_id == "kproto"
            assert [each.result(30) for each in asked] == [[ErrorCode.REQUEST_TIMED_OUT]] * 6
            monkeypatch.setattr(cluster._settings, "_most_waiting", 0)
            assert describe(cluster, "0", "1") == [ErrorCode.REQUEST_TIMED_OUT] * 2
            assert cluster.error is None
        finally:
            release.set()
    assert "settings were not read within 0.5 s" in caplog.text


def test_a_read_that_fails_is_told_of_the_resources_that_were_not_read() -> None:
    read = []

    def settings(entity: str) -> dict[str, str]:
        read.append(entity)
        raise RequestTimeout("ZooKeeper has not answered in time")

    with EmbeddedCluster(1, hooks=lambda _: BrokerHooks(settings=settings)) as cluster:
        assert describe(cluster, "9", "0", "0") == [ErrorCode.INVALID_REQUEST, *[ErrorCode.REQUEST_TIMED_OUT] * 2]
    assert read == ["brokers/0"]
