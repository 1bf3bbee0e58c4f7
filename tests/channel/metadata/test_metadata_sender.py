"""From a caller to known metadata: the caller waits, the sender thread asks, and each setting has its effect."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from network_peers import until

from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import BrokerHooks, Interception, RequestContext
from channel.clock import SYSTEM_CLOCK
from channel.config import ChannelConfig
from channel.errors import IllegalState, InvalidTopic, TopicNotKnown
from channel.metadata.clients import MetadataSender, metadata_request
from channel.metadata.cluster_metadata import LeaderUpdate
from channel.metrics import Metrics
from channel.network import sockets
from channel.rehearsal.scripted_controller import ScriptedController
from kproto.api import ApiKey
from kproto.messages import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kproto.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
NOBODY = [("127.0.0.1", 1)]


class Asked:
    """Hooks that note the topics of each Metadata request."""

    def __init__(self) -> None:
        self.topics: list[list[str]] = []
        self.hooks = BrokerHooks(answered=self._note)

    def _note(self, context: RequestContext, request: Any, _: Any) -> None:
        if context.api_key == ApiKey.METADATA:
            self.topics.append([topic.name for topic in request.topics])


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def cluster(asked: Asked) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, hooks=lambda _: asked.hooks) as made:
        yield made


@pytest.fixture
def controller(cluster: EmbeddedCluster) -> Iterator[ScriptedController]:
    with ScriptedController(cluster) as made:
        made.announce()
        made.wait_all()
        yield made


def sender_to(cluster: EmbeddedCluster, **settings: Any) -> MetadataSender:
    return MetadataSender([(cluster[0].host, cluster[0].port)], ChannelConfig(retry_backoff_ms=10, **settings))


@pytest.mark.usefixtures("controller")
def test_connections_and_throttle_times_have_metrics(asked: Asked, cluster: EmbeddedCluster) -> None:
    def throttle(context: RequestContext, request: Any) -> Interception | None:
        if context.api_key != ApiKey.METADATA:
            return None
        return Interception(answer=MetadataResponse(throttle_time_ms=3))

    metrics = Metrics()
    asked.hooks.intercept = throttle
    with MetadataSender(
        [(cluster[0].host, cluster[0].port)], ChannelConfig(retry_backoff_ms=10), client_id="me", metrics=metrics
    ) as sender:
        tags = {"client-id": "me"}
        with pytest.raises(TopicNotKnown):
            sender.wait_for_topic("orders", max_block_ms=50)
        until(lambda: metrics.value("producer-metrics", "throttle-time-max", tags) == 3)
        assert metrics.value("producer-metrics", "connection-count", tags) >= 1
        assert metrics.value("producer-metrics", "request-total", tags) >= 2


def test_a_caller_waits_until_its_topic_is_created(
    cluster: EmbeddedCluster, controller: ScriptedController, asked: Asked
) -> None:
    known: list[Any] = []
    with sender_to(cluster) as sender:
        caller = threading.Thread(target=lambda: known.append(sender.wait_for_topic("orders", 1)))
        caller.start()
        until(lambda: ["orders"] in asked.topics)
        assert known == []
        controller.create_topic("orders", assignment=[[0, 1], [1, 0]])
        caller.join(60)
        ((count, info),) = known
        assert (count, info.leader, info.leader_epoch) == (2, 1, 0)
        so_far = len(asked.topics)
        assert sender.wait_for_topic("orders") == (2, None)
        assert len(asked.topics) == so_far, "what is known is not asked for"
        assert all(topics == ["orders"] for topics in asked.topics if topics), "only topics in use are asked for"
        view = sender.view()
        assert view is not None
        assert [broker.id for broker in view.brokers] == [0, 1]


@pytest.mark.usefixtures("controller")
def test_many_callers_share_one_sender(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    for name in ("a", "b", "c"):
        controller.create_topic(name, assignment=[[0]])
    known: dict[str, int] = {}
    with sender_to(cluster) as sender:
        callers = [
            threading.Thread(target=lambda name=name: known.update({name: sender.wait_for_topic(name)[0]}))
            for name in ("a", "b", "c") * 3
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)
    assert known == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("name", ["x" * 32_768, "\ud800"])
def test_a_name_that_no_request_can_hold_costs_other_callers_nothing(
    name: str, cluster: EmbeddedCluster, controller: ScriptedController
) -> None:
    controller.create_topic("orders", assignment=[[0]])
    with sender_to(cluster) as sender:
        with pytest.raises(InvalidTopic, match=f"{len(name)} characters"):
            sender.wait_for_topic(name)
        assert sender.wait_for_topic("orders") == (1, None)


def test_a_sender_outlives_its_node(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    controller.create_topic("orders", assignment=[[1]])
    controller.wait_all()
    with sender_to(cluster, reconnect_backoff_ms=10) as sender:
        sender.wait_for_topic("orders")
        cluster.kill(0)
        controller.create_topic("more", assignment=[[1]])
        assert sender.wait_for_topic("more") == (1, None)


def test_leaders_of_other_responses_are_known_at_once(
    cluster: EmbeddedCluster, controller: ScriptedController, asked: Asked
) -> None:
    controller.create_topic("orders", assignment=[[0, 1]])
    with sender_to(cluster) as sender:
        sender.wait_for_topic("orders")
        so_far = len(asked.topics)
        assert sender.metadata.update_partition_leadership({ORDERS: LeaderUpdate(1, 5)}) == {ORDERS}
        _, info = sender.wait_for_topic("orders", 0)
        assert info is not None
        assert (info.leader, info.leader_epoch) == (1, 5)
        assert len(asked.topics) == so_far


def test_a_newer_epoch_of_another_response_makes_the_sender_ask(
    cluster: EmbeddedCluster, controller: ScriptedController
) -> None:
    controller.create_topic("orders", assignment=[[0, 1]])
    with sender_to(cluster) as sender:
        sender.wait_for_topic("orders")
        leader = sender.leader(ORDERS)
        assert leader is not None
        assert leader.id == 0
        controller.elect("orders", 0, leader=1)
        controller.wait_all()
        assert sender.learn_epoch(ORDERS, 1)
        until(lambda: (node := sender.leader(ORDERS)) is not None and node.id == 1)
        assert not sender.learn_epoch(ORDERS, 1)


def test_closing_ends_the_waits_of_callers() -> None:
    errors: list[Exception] = []

    def wait() -> None:
        try:
            sender.wait_for_topic("orders")
        except IllegalState as e:
            errors.append(e)

    sender = MetadataSender(NOBODY)
    sender.start()
    caller = threading.Thread(target=wait)
    caller.start()
    until(lambda: "orders" in sender.metadata.new_topics)
    sender.close()
    caller.join(60)
    assert "after close" in str(errors[0])
    sender.close()
    assert not sender.is_alive()


def test_a_sender_that_was_not_started_can_be_closed() -> None:
    sender = MetadataSender(NOBODY)
    sender.close()
    assert not sender.client.active


# ---- settings --------------------------------------------------------------------------------------------------------


@pytest.fixture
def idle() -> Iterator[Any]:
    """Makes senders whose thread does not run."""
    made: list[MetadataSender] = []

    def make(bootstrap: Any = NOBODY, **settings: Any) -> MetadataSender:
        made.append(MetadataSender(bootstrap, ChannelConfig(**settings)))
        return made[-1]

    yield make
    for sender in made:
        sender.close()


def told(sender: MetadataSender, now: int, *names: str) -> None:
    topics = [MetadataResponseTopic(name=n, partitions=[MetadataResponsePartition(leader_id=0)]) for n in names]
    question = sender.metadata.question(now)
    sender.metadata.update(question, MetadataResponse(topics=topics), now)


def test_max_block_ms_limits_a_wait() -> None:
    with MetadataSender(NOBODY, ChannelConfig(max_block_ms=30)) as sender:
        with pytest.raises(TopicNotKnown, match="within 30 ms"):
            sender.wait_for_topic("orders")
        with pytest.raises(TopicNotKnown, match="within 1 ms"):
            sender.wait_for_topic("orders", max_block_ms=1)


def test_retry_backoff_ms_and_its_max_delay_the_next_try(idle: Any) -> None:
    metadata = idle(retry_backoff_ms=1_000, retry_backoff_max_ms=3_000).metadata
    waits = []
    for _ in range(3):
        metadata.failed_update(10_000)
        waits.append(metadata.time_to_next_update(10_000))
    assert 800 <= waits[0] <= 1_200
    assert 1_600 <= waits[1] <= 2_400
    assert waits[2] <= 3_000


def test_metadata_max_age_ms_refreshes(idle: Any) -> None:
    sender = idle(metadata_max_age_ms=7_000)
    told(sender, 10_000)
    assert sender.metadata.time_to_next_update(10_000) == 7_000


def test_metadata_max_idle_ms_forgets_topics(idle: Any) -> None:
    sender = idle(metadata_max_idle_ms=6_000)
    sender.metadata.add("orders", 10_000)
    told(sender, 10_000, "orders")
    assert sender.metadata.retain_topic("orders", 15_999)
    assert not sender.metadata.retain_topic("orders", 16_000)


@pytest.mark.parametrize(("first", "most", "waits"), [(20_000, 90_000, (16_000, 24_000)), (0, 0, (0, 0))])
def test_reconnect_backoff_ms_and_its_max_delay_the_next_connection(
    idle: Any, first: int, most: int, waits: tuple[int, int]
) -> None:
    sender = idle(reconnect_backoff_ms=first, reconnect_backoff_max_ms=most)
    (node,) = sender.metadata.snapshot.nodes.values()
    sender.client.ready(node)
    until(lambda: sender.client.poll(1) or sender.client.connection_failed(node))
    assert waits[0] - 5_000 <= sender.client.connection_delay(node) <= waits[1]


def test_max_in_flight_requests_per_connection_limits_what_is_sent(cluster: EmbeddedCluster, idle: Any) -> None:
    sender = idle([(cluster[0].host, cluster[0].port)], max_in_flight_requests_per_connection=2)
    client = sender.client
    told(sender, SYSTEM_CLOCK.milliseconds())  # nothing is due
    sender.metadata.bootstrap([(cluster[0].host, cluster[0].port)])
    (node,) = sender.metadata.snapshot.nodes.values()
    until(lambda: (client.poll(1) and False) or (client.can_send(node) and client.in_flight_count() == 0))
    for _ in range(2):
        client.request(node.key, metadata_request([]), lambda _: None)
    with pytest.raises(IllegalState):
        client.request(node.key, metadata_request([]), lambda _: None)


def test_socket_buffers_have_their_sizes(cluster: EmbeddedCluster, idle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []

    def note(sock: Any, send_buffer: int = -1, receive_buffer: int = -1) -> None:
        sizes.append((send_buffer, receive_buffer))
        configure(sock, send_buffer, receive_buffer)

    configure = sockets.configure
    monkeypatch.setattr(sockets, "configure", note)
    sender = idle([(cluster[0].host, cluster[0].port)], send_buffer_bytes=70_000, receive_buffer_bytes=50_000)
    until(lambda: sender.client.poll(1) or sizes)
    assert sizes[0] == (70_000, 50_000)
