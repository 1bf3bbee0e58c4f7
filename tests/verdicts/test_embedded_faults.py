"""Faults that embedded brokers and a directed controller make come to be found: their bytes are the channel's own."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA

from channel import BrokerHooks, EmbeddedCluster, Interception, PcapngRecorder, ScriptedController
from kproto import ApiKey, ErrorCode
from kproto.generate.plants import PLANTS
from kproto.verdicts import RULES, assert_only, findings_of

QUICK = {"offline": 0, "under-replicated": 0, "failover": 0}
"""Limits of 0 s: what holds at the end of a recording is found."""

LATE = {"KP014", "KP015", "KP030", "KP031", "KP032"}
"""Rules that find something wherever one broker is told after another, if ``told`` is 0 s."""


@contextmanager
def recorded_cluster(path: Path) -> Iterator[tuple[EmbeddedCluster, ScriptedController]]:
    """Three brokers, whose connections are recorded, and their controller."""
    with (
        PcapngRecorder(path) as recorder,
        EmbeddedCluster(3, recorder=recorder) as cluster,
        ScriptedController(cluster) as controller,
    ):
        yield cluster, controller


@contextmanager
def other_controller(cluster: EmbeddedCluster, **options: Any) -> Iterator[ScriptedController]:
    with ScriptedController(cluster, **options) as other:
        other.wait_all()
        yield other


def intercept(cluster: EmbeddedCluster, broker: int, api: ApiKey, order: Interception, times: int = 1) -> None:
    """Give the next requests of an API to a broker an order."""
    left = [order] * times

    def next_order(context: Any, _request: Any) -> Interception | None:
        return left.pop() if left and context.api_key == api else None

    cluster[broker].broker.hooks = BrokerHooks(intercept=next_order)


def no_leader(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.create_topic("orders", assignment=[[0]])
    controller.wait_all()
    cluster.kill(0)
    controller.mark_dead(0)


def under_replicated(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.create_topic("orders", assignment=[[1, 0]])
    controller.wait_all()
    cluster.kill(0)
    controller.mark_dead(0)


def zombie_refused(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.create_topic("orders", assignment=[[0, 1]])
    controller.wait_all()
    with other_controller(cluster, controller_id=101, controller_epoch=2):
        controller.elect("orders", 0, leader=1)
        controller.wait_all(allow_refused=True)


def two_controllers(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.wait_all()
    with other_controller(cluster, controller_id=101, controller_epoch=1):
        pass


def registered_again(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.wait_all()
    cluster.kill(2)
    controller.mark_dead(2)
    controller.wait_all()
    cluster.restart(2)
    controller.register(cluster[2])
    controller.wait_all()
    controller.announce()


def refused(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.wait_all()
    intercept(cluster, 1, ApiKey.UPDATE_METADATA, Interception(error=ErrorCode.UNKNOWN_SERVER_ERROR))
    controller.announce(1)


def storage_error(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    def disk_full(_tp: Any) -> None:
        raise OSError("no space left on device")

    controller.wait_all()
    cluster[1].broker.hooks = BrokerHooks(create_log=disk_full)
    controller.create_topic("orders", assignment=[[0, 1]])


def sent_again(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.wait_all()
    intercept(cluster, 1, ApiKey.UPDATE_METADATA, Interception(disconnect="after"))
    controller.create_topic("orders", assignment=[[0]])


def deletion_waiting(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.create_topic("orders", assignment=[[0, 1]])
    controller.wait_all()
    cluster.kill(1)
    controller.mark_dead(1)
    controller.wait_all()
    controller.delete_topic("orders")
    controller.wait_all()
    controller.announce()


def leader_flapping(_cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.create_topic("orders", assignment=[[0, 1]])
    for number in range(5):
        controller.elect("orders", 0, leader=1 - number % 2)
        controller.wait_all()


def topic_ids_differ(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.create_topic("orders", assignment=[[0, 1]])
    controller.wait_all()
    with other_controller(cluster, controller_id=101, controller_epoch=2) as other:
        other.create_topic("orders", assignment=[[0, 1]])
        other.wait_all(allow_refused=True)


FAULTS: dict[str, tuple[Any, set[str]]] = {
    "KP002": (zombie_refused, set()),
    "KP003": (two_controllers, set()),
    "KP010": (no_leader, {"KP020"}),
    "KP016": (leader_flapping, set()),
    "KP020": (under_replicated, set()),
    "KP035": (registered_again, set()),
    "KP040": (deletion_waiting, LATE),
    "KP043": (topic_ids_differ, {"KP012", "KP013", "KP042", "KP051"}),
    "KP050": (refused, set()),
    "KP051": (storage_error, set()),
    "KP052": (sent_again, set()),
}
"""By rule: what makes the fault, and other rules that may find another side of it."""


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_of_embedded_brokers_is_found_and_nothing_else(rule: str, tmp_path: Path) -> None:
    fault, others = FAULTS[rule]
    path = tmp_path / "recording.pcapng"
    with recorded_cluster(path) as (cluster, controller):
        fault(cluster, controller)
        controller.wait_all(allow_refused=True)
    found = findings_of(path, limits=QUICK | ({"told": 0} if others is LATE else {}))
    assert_only([finding for finding in found if finding.rule not in others], rule)


def test_a_cluster_without_faults_has_no_findings(tmp_path: Path) -> None:
    path = tmp_path / "recording.pcapng"
    with recorded_cluster(path) as (_cluster, controller):
        controller.create_topic("orders", partitions=6, replication_factor=3)
        controller.wait_all()
    assert findings_of(path, limits=QUICK) == []
    with pytest.raises(AssertionError, match="not found: KP010 no-leader"):
        assert_only(findings_of(path), "KP010")
    with pytest.raises(ValueError, match="no rule 'KP999'"):
        assert_only([], "KP999")


def test_a_third_of_the_faults_come_from_embedded_clusters_or_real_brokers() -> None:
    written = json.loads((DATA / "captures" / "findings.json").read_text(encoding="utf-8"))
    by_brokers = FAULTS.keys() | {row[0] for rows in written.values() for row in rows}
    planted = {rule for rule in RULES if RULES[rule].name in PLANTS}
    assert 3 * len(by_brokers) >= len(planted | by_brokers)
