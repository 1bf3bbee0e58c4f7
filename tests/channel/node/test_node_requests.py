"""What a controller's node answers as a broker without records, and what it passes on to a live broker."""

from typing import Any

import pytest

from channel.broker.embedded import EmbeddedBroker
from channel.broker.hooks import RequestContext
from channel.config import ChannelConfig
from channel.node.node_requests import NodeRequests, PassedRequests, SuperUsers, _partition_of
from kproto import codec, headers
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    ControlledShutdownRequest,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    EnvelopeRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    InitProducerIdRequest,
    ListPartitionReassignmentsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    UpdateFeaturesRequest,
)

OPEN = SuperUsers(ChannelConfig())
SECURED = SuperUsers(
    ChannelConfig.of(
        {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:b;User:admin"}
    )
)


def context(api_key: int, version: int, user: str = "User:ANONYMOUS") -> RequestContext:
    return RequestContext(api_key, version, 1, "client", "PLAINTEXT", principal=user)


def takes(request: Any, version: int, super_users: SuperUsers = OPEN, user: str = "User:ANONYMOUS") -> bool:
    body = memoryview(codec.encode(request, version))
    passed = PassedRequests(EmbeddedBroker(77), None, super_users)  # type: ignore[arg-type]
    return passed.takes(context(request.api_key, version, user), body)


class Asked:
    """A controller that keeps what it is asked."""

    controller_id = 77
    is_active = True

    def __init__(self) -> None:
        self.events: list[Any] = []

    def ask(self, event: Any) -> None:
        self.events.append(event)


def answer(request: Any, version: int, super_users: SuperUsers = OPEN, user: str = "User:ANONYMOUS") -> Any:
    """What the node answers; None where it asks its controller."""
    found: list[Any] = []
    controller = Asked()
    node = NodeRequests(EmbeddedBroker(77), controller, super_users)  # type: ignore[arg-type]
    node(context(request.api_key, version, user), request, found.append)
    assert len(found) + len(controller.events) == 1
    if not found:
        return None
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


@pytest.mark.parametrize(("written", "code"), [({}, 0), ({"throttle_time_ms": 1 << 40}, -1)])
def test_a_forwarded_request_is_answered_whatever_its_answer_is(written: dict[str, int], code: int) -> None:
    inner = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
    header = headers.encode_request_header(headers.request_header(inner.api_key, 0, 3, "broker"))
    envelope = EnvelopeRequest(request_data=header + codec.encode(inner, 0), client_host_address=bytes(4))
    controller, found = Asked(), []
    node = NodeRequests(EmbeddedBroker(77), controller, OPEN)  # type: ignore[arg-type]
    node(context(envelope.api_key, 0), envelope, found.append)
    (event,) = controller.events
    event.callback(AllocateProducerIdsResponse(**written))
    (response,) = found
    assert response.error_code == code
    assert (response.response_data is not None) == (code == 0)


def test_records_are_none_of_its_business() -> None:
    announced = NodeRequests.keys | PassedRequests.keys
    assert not announced & {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.ADD_PARTITIONS_TO_TXN}


REFUSED = [
    (CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]), 7),
    (DeleteTopicsRequest(topic_names=["t"]), 5),
    (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3)]), 3),
    (AlterPartitionRequest(), 3),
    (AllocateProducerIdsRequest(), 0),
    (ControlledShutdownRequest(), 3),
    (ElectLeadersRequest(topic_partitions=None), 2),
    (AlterPartitionReassignmentsRequest(), 0),
    (ListPartitionReassignmentsRequest(topics=None), 0),
    (UpdateFeaturesRequest(), 1),
    (EnvelopeRequest(request_data=b"", request_principal=b"", client_host_address=bytes(4)), 0),
]


@pytest.mark.parametrize(("request_", "version"), REFUSED, ids=lambda value: type(value).__name__)
def test_with_an_authorizer_the_controller_serves_super_users_alone(request_: Any, version: int) -> None:
    refused = answer(request_, version, SECURED, "User:alice").to_json(version)
    topics = refused.get("topics") or refused.get("responses") or refused.get("results") or [refused]
    of_topics = request_.api_key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if of_topics else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [topic["errorCode"] for topic in topics] == [code]
    assert answer(request_, version, SECURED, "User:ANONYMOUS") is not None
    if request_.api_key != ApiKey.ENVELOPE:
        assert answer(request_, version, SECURED, "User:admin") is None
        assert answer(request_, version, OPEN, "User:alice") is None


def test_with_an_authorizer_a_broker_decides_what_a_client_learns() -> None:
    own = [DescribeConfigsResource(resource_type=4, resource_name="77")]
    for request, version in [
        (MetadataRequest(topics=None), 12),
        (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4),
        (FindCoordinatorRequest(coordinator_keys=["g"]), 6),
        (DescribeConfigsRequest(resources=own), 4),
        (
            IncrementalAlterConfigsRequest(
                resources=[IncrementalAlterConfigsResource(resource_type=4, resource_name="77")]
            ),
            1,
        ),
    ]:
        assert takes(request, version, SECURED, "User:alice")
        if request.api_key != ApiKey.FIND_COORDINATOR:
            assert not takes(request, version, SECURED, "User:admin")
            assert not takes(request, version, OPEN, "User:alice")


@pytest.mark.parametrize("told", ["by its settings", "by ZooKeeper"])
def test_with_an_authorizer_nothing_is_passed_on_under_the_address_of_the_node(
    told: str, caplog: pytest.LogCaptureFixture
) -> None:
    relayed: list[bytes] = []
    answers: list[bytes | None] = []

    def relay(principal: str, frame: bytes, answer: Any) -> None:
        relayed.append(frame)
        answer(b"passed on")

    passed = PassedRequests(EmbeddedBroker(77), relay, SECURED if told == "by its settings" else OPEN)  # type: ignore[arg-type]
    passed.brokers_authorize |= told == "by ZooKeeper"
    for user in ("User:alice", "User:admin", "User:alice"):
        passed(context(ApiKey.METADATA, 12, user), b"frame", answers.append)
    assert (relayed, answers) == ([], [None] * 3)
    assert len(caplog.records) == 1
    open_to_all = PassedRequests(EmbeddedBroker(77), relay, OPEN)  # type: ignore[arg-type]
    open_to_all(context(ApiKey.DESCRIBE_ACLS, 3, "User:alice"), b"frame", answers.append)
    assert (relayed, answers[-1]) == ([b"frame"], b"passed on")


def test_brokers_and_controller_are_no_secret() -> None:
    assert not takes(MetadataRequest(topics=[]), 12, SECURED, "User:alice")
    assert takes(MetadataRequest(topics=[]), 0, SECURED, "User:alice"), "in version 0 it asks for all topics"


def test_only_super_users_may_send_a_secured_node_the_requests_of_a_controller() -> None:
    assert context(ApiKey.UPDATE_METADATA, 8, "User:b") in SECURED
    assert context(ApiKey.UPDATE_METADATA, 8, "User:alice") not in SECURED
    assert context(ApiKey.UPDATE_METADATA, 8, "User:alice") in OPEN
