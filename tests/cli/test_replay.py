"""A captured controller's requests, sent to an embedded broker again: same answers, no captured address."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import run_kproto

from channel import BrokerHooks, EmbeddedCluster, Interception
from channel.rehearsal.replay import rewrite
from kproto.api import ApiKey
from kproto.capture import exchanges

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
CAPTURE = CAPTURES / "ibp-3.9-a.pcap.gz"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster([1]) as cluster:
        yield cluster


def replay(cluster: EmbeddedCluster, *arguments: str, capture: Path = CAPTURE) -> Any:
    member = next(iter(cluster))
    return run_kproto("replay", capture, "--to", f"{member.host}:{member.port}", *arguments)


def test_a_broker_answers_as_the_captured_broker_did_and_ends_in_its_state(cluster: EmbeddedCluster) -> None:
    result = replay(cluster, "--broker", "1")
    assert result.exit_code == 0, result.output
    assert "0 left out as not whole; 0 answers differ" in result.output
    updates = [
        e.request_message for e in exchanges(CAPTURE) if e.api_key == ApiKey.UPDATE_METADATA and e.server.port == 19093
    ]
    wanted = {(s.topic_name, s.partition_index): s for update in updates for s in update.partition_states}
    cache = cluster[1].broker.metadata
    for (topic, partition), state in wanted.items():
        if cache.contains(topic):
            found = cache.partition_info(topic, partition)
            assert found is None or (found.leader, found.leader_epoch) == (state.leader, state.leader_epoch)
    hosts = {endpoint.host for update in updates for broker in update.live_brokers for endpoint in broker.endpoints}
    assert hosts, "the captured updates name addresses"


def addresses(request: Any, version: int) -> list[tuple[str, int]]:
    if request.api_key == ApiKey.LEADER_AND_ISR:
        return [(leader.host_name, leader.port) for leader in request.live_leaders]
    if request.api_key == ApiKey.UPDATE_METADATA and version == 0:
        return [(broker.v0_host, broker.v0_port) for broker in request.live_brokers]
    brokers = request.live_brokers if request.api_key == ApiKey.UPDATE_METADATA else ()
    return [(endpoint.host, endpoint.port) for broker in brokers for endpoint in broker.endpoints]


@pytest.mark.parametrize("capture", sorted(CAPTURES.glob("ibp-*-a.pcap.gz")), ids=lambda path: path.name[:-10])
def test_no_request_keeps_an_address_or_a_broker_epoch_of_the_captured_cluster(capture: Path) -> None:
    for exchange in exchanges(capture):
        request = exchange.request_message
        if request is None:
            continue
        version = exchange.api_version
        before = request.to_json(version)
        other = rewrite(request, version, {}, 77)
        assert request.to_json(version) == before, "the captured request stays as it is"
        assert {host for host, _port in addresses(other, version)} <= {"127.0.0.1"}
        moved = {address: ("replica", number) for number, address in enumerate(addresses(request, version))}
        assert {host for host, _port in addresses(rewrite(request, version, moved, 77), version)} <= {"replica"}
        if before.get("brokerEpoch", -1) != -1:
            assert other.broker_epoch == 77


def test_addresses_of_the_map_are_put_in(cluster: EmbeddedCluster) -> None:
    result = replay(cluster, "--broker", "1", "--map", "127.0.0.1:19094=10.9.8.7:1234", "--broker-epoch", "-1")
    assert result.exit_code == 0, result.output
    endpoints = {
        (endpoint.host, endpoint.port)
        for broker in cluster[1].broker.metadata.snapshot.alive_brokers.values()
        for endpoint in broker.endpoints
    }
    assert ("10.9.8.7", 1234) in endpoints


def test_an_answer_that_differs_is_shown_and_makes_the_exit_code_1(cluster: EmbeddedCluster) -> None:
    def refuse(context: Any, _request: Any) -> Interception | None:
        return Interception(error=56) if context.api_key == ApiKey.STOP_REPLICA else None

    cluster[1].broker.hooks = BrokerHooks(intercept=refuse)
    result = replay(cluster, "--broker", "1", "--until", "19:35:30")
    lines = result.output.splitlines()
    assert result.exit_code == 1
    assert "StopReplica v4" in lines[0]
    assert "captured: ok; now: KAFKA_STORAGE_ERROR, " in lines[0]


def test_json_has_an_object_for_each_request(cluster: EmbeddedCluster) -> None:
    result = replay(cluster, "--broker", "1", "--format", "json", "--timeout", "20")
    records = [json.loads(line) for line in result.output.splitlines()]
    assert len(records) > 50
    assert {record["differs"] for record in records} == {False}
    assert records[0].keys() == {"time", "request", "correlation_id", "captured", "response", "differs"}


def test_the_captured_pace_keeps_the_pauses(cluster: EmbeddedCluster) -> None:
    arguments = ["--broker", "1", "--since", "19:34:59.9", "--until", "19:35:00.1", "--pace"]
    fast = replay(cluster, *arguments, "captured", "--format", "json")
    records = [json.loads(line) for line in fast.output.splitlines()]
    assert fast.exit_code == 0
    assert len(records) == 2
    assert records[0]["time"] < records[1]["time"]


def test_another_broker_is_refused(cluster: EmbeddedCluster) -> None:
    result = replay(cluster, "--broker", "2")
    assert result.exit_code == 2
    assert "is not broker 2: Unexpected broker id, expected 1" in result.output
    assert not cluster[1].broker.metadata.snapshot.alive_brokers


def test_a_broker_that_has_a_controller_is_refused_unless_told(cluster: EmbeddedCluster) -> None:
    assert replay(cluster, "--broker", "1").exit_code == 0
    result = replay(cluster, "--broker", "1")
    assert result.exit_code == 2
    assert "has a controller, 2" in result.output
    forced = replay(cluster, "--broker", "1", "--force", "--format", "json")
    assert '"differs"' in forced.output


def test_requests_to_several_brokers_are_refused(cluster: EmbeddedCluster) -> None:
    result = replay(cluster, "--since", "19:35:00")
    assert result.exit_code == 2
    assert "name one: --broker" in result.output or "is not broker" in result.output
