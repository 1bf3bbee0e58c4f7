"""The Grafana dashboard of a controller asks for metrics that ``kproto controller --metrics`` has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from network_peers import until
from prometheus_client import CollectorRegistry, generate_latest

from channel.broker.fleet import Fleet
from channel.metrics import prometheus_collector
from channel.node.controller_node import ControllerNode

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]

DASHBOARD = Path(__file__).parents[2] / "examples" / "controller-dashboard.json"


def test_every_query_finds_its_metrics_at_a_controller(zookeeper: str) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = {target["expr"] for panel in panels for target in panel["targets"]}
    with ControllerNode(77, zookeeper) as node, Fleet(zookeeper, [1]):
        registry = CollectorRegistry()
        registry.register(prometheus_collector(node.metrics))

        def missing() -> set[str]:
            page = generate_latest(registry).decode()
            there = set(re.findall(r"^(\w+)[ {]", page, re.MULTILINE))
            asked = {name for query in queries for name in re.findall(r"(?:kafka|controller)_\w+", query)}
            assert len(asked) > 30
            return asked - there

        until(lambda: not missing())  # once it leads, and has a channel to the broker
        assert node.metrics.value("kafka.server:type=SessionExpireListener", "ZooKeeperSyncConnectsPerSec-total") == 1
        assert node.metrics.value("kafka.server:type=SessionExpireListener", "ZooKeeperExpiresPerSec-total") == 0
    assert not [name for name in node.metrics.names() if "SessionExpire" in name.group]
