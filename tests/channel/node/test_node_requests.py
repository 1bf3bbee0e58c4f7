"""What a controller's node answers as a broker without records, and what it passes on to a live broker."""

from __future__ import annotations

from typing import Any

import pytest

from channel.broker.embedded import EmbeddedBroker
from channel.broker.hooks import RequestContext
from channel.node.node_requests import NodeRequests, PassedRequests, _partition_of
from kproto import codec
from kproto.api import ApiKey
from kproto.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeLogDirsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListTransactionsRequest,
)


def context(api_key: int, version: int) -> RequestContext:
    return RequestContext(api_key, version, 1, "client", "PLAINTEXT")


def takes(request: Any, version: int) -> bool:
    body = memoryview(codec.encode(request, version))
    return PassedRequests(EmbeddedBroker(77), None).takes(context(request.api_key, version), body)


def answer(request: Any, version: int) -> Any:
    found: list[Any] = []
    NodeRequests(EmbeddedBroker(77), None)(context(request.api_key, version), request, found.append)  # type: ignore[arg-type]
    codec.encode(found[0], version)
    return found[0]


@pytest.mark.parametrize(
    ("key", "partition"), [("test", 48), ("", 0), ("polygenelubricants", 0), ("größe", 7), ("\U0001f600", 49)]
)
def test_a_coordinator_is_found_by_javas_hash_code(key: str, partition: int) -> None:
    assert _partition_of(key, 50) == partition


@pytest.mark.parametrize("version", range(7))
def test_coordinators_without_a_topic_are_for_a_broker_to_create(version: int) -> None:
    request = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g"])
    assert takes(request, version)
    response = answer(request, version)
    found = response if version < 4 else response.coordinators[0]
    assert (found.error_code, found.node_id) == (15, -1)


def test_settings_of_the_node_itself_are_not_passed_on() -> None:
    def asked(kind: int, name: str) -> bool:
        describe = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=kind, resource_name=name)])
        resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name)
        passed = takes(describe, 4)
        assert takes(IncrementalAlterConfigsRequest(resources=[resource]), 1) is passed
        return passed

    assert asked(2, "77")  # a topic
    assert asked(4, "")
    assert asked(4, "7")
    assert not asked(4, "77")


def test_what_the_node_does_not_have_is_an_empty_list() -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing", "Unheard"])
    assert answer(request, 1).unknown_state_filters == ("Unheard",)
    assert not takes(request, 1)


def test_a_client_takes_the_one_empty_log_directory_for_an_answer() -> None:
    for version in range(5):
        (found,) = answer(DescribeLogDirsRequest(topics=None), version).results
        assert (found.error_code, list(found.topics)) == (0, [])


def test_records_are_none_of_its_business() -> None:
    announced = NodeRequests.keys | PassedRequests.keys
    assert not announced & {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.ADD_PARTITIONS_TO_TXN}
