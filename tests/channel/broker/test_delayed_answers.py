"""A controller's answers wait until the metadata of the broker that answers shows the change, or their time is over."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asking import ask_port
from network_peers import until

from channel.broker.cluster import EmbeddedCluster
from channel.broker.delayed_answers import DelayedAnswers
from channel.broker.hooks import BrokerHooks, RequestContext
from channel.errors import IllegalState
from channel.rehearsal.scripted_controller import ScriptedController
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.messages import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    PartitionElectionResult,
    ReplicaElectionResult,
)

LATE = ErrorCode.REQUEST_TIMED_OUT


class Accepting:
    """A controller that accepts each request and tells nobody: the test does."""

    keys = frozenset({ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS, ApiKey.ELECT_LEADERS})

    def __init__(self) -> None:
        self.accepted = threading.Semaphore(0)

    def __call__(self, context: RequestContext, request: Any, answer: Callable[[Any], None]) -> None:
        answer(self.response(context.api_key, request))
        self.accepted.release()

    def response(self, api_key: int, request: Any) -> Any:
        match api_key:
            case ApiKey.CREATE_TOPICS:
                rows = [CreatableTopicResult(name=t.name, num_partitions=t.num_partitions) for t in request.topics]
                rows.append(CreatableTopicResult(name="known", error_code=ErrorCode.TOPIC_ALREADY_EXISTS))
                return CreateTopicsResponse(topics=rows)
            case ApiKey.CREATE_PARTITIONS:
                return CreatePartitionsResponse(
                    results=[CreatePartitionsTopicResult(name=each.name) for each in request.topics]
                )
            case ApiKey.DELETE_TOPICS:
                return DeleteTopicsResponse(responses=[DeletableTopicResult(name=each) for each in request.topic_names])
        return ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(
                    topic=t.topic, partition_result=[PartitionElectionResult(partition_id=p) for p in t.partitions]
                )
                for t in request.topic_partitions
            ]
        )


def create(timeout_ms: int, *, validate_only: bool = False) -> tuple[Any, int]:
    topics = [CreatableTopic(name="new", num_partitions=2, replication_factor=1)]
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only), 4


def add(timeout_ms: int) -> tuple[Any, int]:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="old", count=3)], timeout_ms=timeout_ms), 1


def delete(timeout_ms: int) -> tuple[Any, int]:
    return DeleteTopicsRequest(topic_names=["old"], timeout_ms=timeout_ms), 3


def elect(timeout_ms: int) -> tuple[Any, int]:
    asked = [ElectLeadersTopic(topic="old", partitions=[0])]
    return ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=timeout_ms), 2


def codes(response: Any) -> list[int]:
    if hasattr(response, "replica_election_results"):
        return [row.error_code for t in response.replica_election_results for row in t.partition_result]
    rows = getattr(response, "topics", None) or getattr(response, "results", None) or response.responses
    return [row.error_code for row in rows]


CASES: list[tuple[Callable[[int], tuple[Any, int]], Callable[[ScriptedController], object]]] = [
    (create, lambda controller: controller.create_topic("new", partitions=2)),
    (add, lambda controller: controller.add_partitions("old", 3)),
    (delete, lambda controller: controller.delete_topic("old")),
    (elect, lambda controller: controller.elect("old", 0, 0)),
]


@pytest.fixture
def accepting() -> Accepting:
    return Accepting()


@pytest.fixture
def cluster(accepting: Accepting, request: pytest.FixtureRequest) -> Any:
    with EmbeddedCluster(
        2, hooks=lambda _: BrokerHooks(controller=accepting), waits_for_all=getattr(request, "param", False)
    ) as made:
        yield made


@pytest.fixture
def controller(cluster: EmbeddedCluster) -> Any:
    with ScriptedController(cluster) as made:
        made.create_topic("old", partitions=2, replication_factor=2)
        made.elect("old", 0, 1)
        made.wait_all()
        yield made


@pytest.mark.parametrize(("ask", "change"), CASES)
def test_an_answer_comes_when_the_brokers_metadata_shows_the_change(
    ask: Any, change: Any, cluster: EmbeddedCluster, controller: ScriptedController, accepting: Accepting
) -> None:
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(ask_port, cluster[0].port, *ask(60_000))
        assert accepting.accepted.acquire(timeout=30)
        until(lambda: bool(cluster._delayed._waiting))
        assert not answer.done()
        change(controller)
        assert codes(answer.result(30))[0] == ErrorCode.NONE
    assert not cluster._delayed._waiting


@pytest.mark.parametrize(("ask", "change"), CASES)
@pytest.mark.parametrize("timeout_ms", [0, 30])
def test_what_the_metadata_does_not_show_in_time_is_timed_out(
    timeout_ms: int, ask: Any, change: Any, cluster: EmbeddedCluster, controller: ScriptedController
) -> None:
    expected = [LATE, ErrorCode.TOPIC_ALREADY_EXISTS] if ask is create else [LATE]
    assert codes(ask_port(cluster[0].port, *ask(timeout_ms))) == expected
    assert not cluster._delayed._waiting


def test_nothing_waits_for_a_request_that_only_asks_whether_it_would_be_accepted(
    cluster: EmbeddedCluster, controller: ScriptedController
) -> None:
    answer = ask_port(cluster[0].port, *create(60_000, validate_only=True))
    assert codes(answer) == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_an_answer_is_sent_though_the_worker_is_closed(
    cluster: EmbeddedCluster, controller: ScriptedController
) -> None:
    answers: list[Any] = []

    def closed(work: Callable[[], None]) -> None:
        raise IllegalState("closed")

    delayed = DelayedAnswers(cluster.call_later, closed)
    request, _ = create(0)
    take = delayed.until_shown(ApiKey.CREATE_TOPICS, request, cluster[0].broker.metadata, answers.append)
    take(Accepting().response(ApiKey.CREATE_TOPICS, request))
    assert codes(answers[0]) == [LATE, ErrorCode.TOPIC_ALREADY_EXISTS]


@pytest.mark.parametrize("cluster", [True], indirect=True)
def test_a_rehearsal_may_wait_for_all_brokers(
    cluster: EmbeddedCluster, controller: ScriptedController, accepting: Accepting
) -> None:
    with ThreadPoolExecutor() as pool:
        cluster[1].broker.hooks.authorize = lambda context: context.api_key != ApiKey.UPDATE_METADATA
        answer = pool.submit(ask_port, cluster[0].port, *create(60_000))
        assert accepting.accepted.acquire(timeout=30)
        controller.create_topic("new", partitions=2)
        controller.wait_all(allow_refused=True)
        assert cluster[0].broker.metadata.contains("new")
        assert not answer.done()
        cluster.kill(1)
        assert codes(answer.result(30))[0] == ErrorCode.NONE
