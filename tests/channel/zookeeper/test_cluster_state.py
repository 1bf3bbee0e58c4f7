"""What a broker writes into ZooKeeper, beside the tests against a real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from channel.errors import NoNode
from channel.zookeeper.cluster_state import register_broker


def test_the_first_broker_of_a_cluster_makes_the_place_of_all() -> None:
    ensured: list[str] = []
    registered = SimpleNamespace(error=None, results=[None, SimpleNamespace(czxid=77)])
    outcomes = [SimpleNamespace(error=NoNode("/brokers/ids/5"), results=[]), registered]
    session = SimpleNamespace(transaction=lambda operations: outcomes.pop(0), ensure=ensured.append)
    assert register_broker(cast("Any", session), 5, b"{}") == 77
    assert ensured == ["/brokers/ids"]
    assert outcomes == []
