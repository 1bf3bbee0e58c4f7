"""A client that follows its cluster by itself: whom it asks, when, and what wakes it."""

import contextlib
import random
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from network_peers import SCRIPTED, BodyRequest, FakeClock, InlineResolution, ScriptedSelector

from channel.broker.cluster import EmbeddedCluster
from channel.clock import FOREVER
from channel.errors import AuthenticationFailed, ClientClosed
from channel.metadata.clients import DefaultMetadataUpdater
from channel.metadata.cluster_metadata import Metadata, MetadataQuestion
from channel.network.client import NetworkClient
from channel.network.selector import Selector
from channel.rehearsal.scripted_controller import ScriptedController
from channel.types import Node
from kproto.api import ApiKey
from kproto.codec import decode_request, encode
from kproto.errors import UnsupportedVersion
from kproto.headers import decode_request_header_from
from kproto.messages import MetadataResponse, MetadataResponseBroker
from kproto.types import TopicPartition

UPDATE = BodyRequest(ApiKey.UPDATE_METADATA, 8, [b"body"])
UPDATED = b"\0\0\0"
ADDRESSES = [("first", 9092), ("second", 9093)]


def cluster_of(*ids: int) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=i, host=f"host-{i}", port=9092) for i in ids]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=ids[0] if ids else -1)


class Followed:
    """A client with the default updater, over a network that the test scripts."""

    def __init__(
        self, clock: FakeClock, habits: dict[str, Any], metadata: Metadata | None = None, **settings: Any
    ) -> None:
        self.clock = clock
        self.selector = ScriptedSelector(clock, **habits)
        self.metadata = metadata or Metadata(
            refresh_backoff_ms=50, refresh_backoff_max_ms=50, max_age_ms=5_000, clock=clock
        )
        self.updater = DefaultMetadataUpdater(self.metadata, request_timeout_ms=1000, **settings)
        self.client = NetworkClient(
            self.selector,
            self.updater,
            "mock",
            reconnect_backoff_ms=10_000,
            reconnect_backoff_max_ms=10_000,
            request_timeout_ms=1000,
            setup_timeout_ms=5000,
            discover_versions=False,
            clock=clock,
            resolution=InlineResolution(lambda host: ["127.0.0.1"]),
            randomness=random.Random(1),
        )

    def poll(self, times: int = 8) -> list[Any]:
        return [response for _ in range(times) for response in self.client.poll(0)]

    @property
    def asked(self) -> list[tuple[str, Any]]:
        """Who was asked for metadata, and the topics asked for."""
        found: list[tuple[str, Any]] = []
        for send in self.selector.sends:
            data = b"".join(send.buffers)[4:]
            header, at = decode_request_header_from(data)
            if header.request_api_key == ApiKey.METADATA:
                topics = decode_request(ApiKey.METADATA, header.request_api_version, data[at:]).topics
                found.append((send.destination, None if topics is None else [topic.name for topic in topics]))
        return found

    def answers(self, body: Any) -> None:
        """Let the last node that was asked answer."""
        send = self.selector.sends[-1]
        correlation_id = struct.unpack_from(">i", b"".join(send.buffers), 8)[0]
        data = body if isinstance(body, bytes) else encode(body, 12)
        self.selector.answers(send.destination, correlation_id, data)
        self.poll()


@pytest.fixture(params=SCRIPTED)
def habits(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SCRIPTED[request.param]


@pytest.fixture
def followed(clock: FakeClock, habits: dict[str, Any]) -> Iterator[Followed]:
    made = Followed(clock, habits)
    made.metadata.bootstrap(ADDRESSES)
    yield made
    if made.client.active:
        made.client.close()


def known(followed: Followed, *ids: int) -> None:
    """Let the cluster tell of these brokers."""
    followed.poll()
    followed.answers(cluster_of(*ids))
    assert sorted(followed.metadata.snapshot.nodes) == list(ids)


def test_a_bootstrap_address_is_asked_and_the_brokers_take_its_place(followed: Followed) -> None:
    followed.poll()
    ((asked, topics),) = followed.asked
    assert (asked in ("-1", "-2"), topics) == (True, None)
    assert followed.updater.source is None
    followed.answers(cluster_of(0, 1, 2))
    assert [node.id for node in followed.updater.nodes()] == [0, 1, 2]
    assert followed.updater.source == Node(int(asked), *ADDRESSES[-int(asked) - 1])
    assert followed.client.poll(0) == []
    assert followed.selector.polls[-1] == 0
    followed.client.poll(FOREVER)
    assert followed.selector.polls[-1] <= 5_000  # until the metadata is old


def test_nothing_else_is_sent_while_an_update_is_due(followed: Followed) -> None:
    known(followed, 0)
    node = followed.updater.nodes()[0]
    followed.client.ready(node)
    followed.poll()
    assert followed.client.is_ready(node)
    followed.metadata.request_update()
    followed.clock.sleep(200)
    assert not followed.client.is_ready(node)
    followed.poll()
    assert len(followed.asked) == 2
    followed.answers(cluster_of(0))
    assert followed.client.is_ready(node)


def test_old_metadata_is_asked_for_again(followed: Followed) -> None:
    known(followed, 0)
    followed.clock.sleep(4_999)
    followed.poll()
    assert len(followed.asked) == 1
    followed.clock.sleep(1)
    followed.poll()
    assert followed.asked[1:] == [("0", None)]


def test_the_next_address_is_tried_when_one_is_refused(followed: Followed) -> None:
    followed.selector.refused.add(("127.0.0.1", 9092))
    for _ in range(4):
        followed.poll()
        followed.clock.sleep(100)
    assert [node_id for node_id, _ in followed.asked] == ["-2"]


def test_without_any_address_the_client_waits_and_looks_again(clock: FakeClock, habits: dict[str, Any]) -> None:
    followed = Followed(clock, habits)
    followed.metadata.request_update()
    clock.sleep(100)
    followed.client.poll(FOREVER)
    assert followed.selector.polls == [50]
    followed.client.close()


@pytest.mark.conformance("NWC-21")
def test_one_nodes_failed_authentication_keeps_no_other_from_telling_the_cluster(followed: Followed) -> None:
    known(followed, 0, 1)
    node, other = followed.updater.nodes()
    followed.client.ready(node)
    followed.poll()
    followed.metadata.request_update()
    followed.clock.sleep(100)
    followed.poll()
    assert followed.asked[-1][0] == "0"
    version = followed.metadata.update_version
    error = followed.selector.failing["1"] = AuthenticationFailed("wrong password")
    followed.client.ready(other)
    followed.poll()
    assert followed.client.authentication_error(other) is error
    assert followed.metadata.update_version == version
    followed.answers(cluster_of(0, 1))
    assert followed.metadata.update_version == version + 1
    with pytest.raises(AuthenticationFailed):
        followed.metadata.raise_fatal_error()
    followed.metadata.raise_fatal_error()  # told once


def test_a_lost_connection_asks_for_new_metadata_of_another_broker(followed: Followed) -> None:
    known(followed, 0, 1)
    node, other = followed.updater.nodes()
    for each in (node, other):
        followed.client.ready(each)
    followed.poll()
    followed.selector.drops("0")
    followed.clock.sleep(100)
    followed.poll()
    assert [node_id for node_id, _ in followed.asked[1:]] == ["1"]
    followed.answers(cluster_of(1))
    assert [each.id for each in followed.updater.nodes()] == [1]


def test_a_lost_connection_does_not_shorten_the_back_off_of_equal_responses_as_in_kafka(
    clock: FakeClock, habits: dict[str, Any]
) -> None:
    followed = Followed(clock, habits, Metadata(refresh_backoff_max_ms=10_000, clock=clock))
    followed.metadata.bootstrap(ADDRESSES)
    known(followed, 0)
    for _ in range(4):
        followed.metadata.update(MetadataQuestion(None, 0, False), cluster_of(0), clock.milliseconds())
    followed.updater.handle_server_disconnect(clock.milliseconds(), "0", None)
    assert followed.metadata.time_to_next_update(clock.milliseconds()) >= 640
    followed.client.close()


def test_a_question_that_is_lost_with_its_connection_is_asked_again_after_the_backoff(followed: Followed) -> None:
    known(followed, 0, 1)
    for each in followed.updater.nodes():
        followed.client.ready(each)
    followed.poll()
    followed.metadata.request_update()
    followed.clock.sleep(100)
    followed.poll()
    asked = followed.asked[-1][0]
    followed.selector.drops(asked)
    followed.poll()
    assert len(followed.asked) == 2  # the back-off is not over
    followed.clock.sleep(100)
    followed.poll()
    assert followed.asked[2:] == [("1" if asked == "0" else "0", None)]


@pytest.mark.parametrize(
    "answer", [b"\0\0", bytes.fromhex("00000000 7f"), cluster_of()], ids=["cut", "too many brokers", "no brokers"]
)
def test_an_answer_that_says_nothing_is_a_failed_update(followed: Followed, answer: bytes | MetadataResponse) -> None:
    followed.poll()
    followed.answers(answer)
    assert followed.metadata.snapshot.is_bootstrap
    assert len(followed.asked) == 1
    followed.clock.sleep(100)
    followed.poll()
    assert len(followed.asked) == 2
    followed.answers(cluster_of(0))
    assert followed.metadata.snapshot.controller_id == 0


def test_a_node_too_old_for_the_question_fails_the_update_for_good(followed: Followed) -> None:
    followed.updater.handle_failed_request(0, UnsupportedVersion(3, 4, "too old"))
    with pytest.raises(UnsupportedVersion, match="too old"):
        followed.metadata.raise_fatal_error()


@pytest.mark.parametrize("rebootstraps", [False, True])
def test_the_bootstrap_addresses_are_tried_again_if_that_is_wanted(
    clock: FakeClock, habits: dict[str, Any], rebootstraps: bool
) -> None:
    followed = Followed(clock, habits, rebootstraps=rebootstraps)
    followed.metadata.bootstrap([("first", 9093)])
    known(followed, 0)
    followed.selector.drops("-1")
    followed.selector.refused.add(("127.0.0.1", 9092))
    for wait in (100, 100, 10_001, 100, 100):  # the first address has a back-off too
        followed.poll()
        clock.sleep(wait)
    assert followed.metadata.snapshot.is_bootstrap == rebootstraps
    assert [node_id for node_id, _ in followed.asked] == ["-1"] * (1 + rebootstraps)
    followed.client.close()


# ---- over real sockets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["orders", "later"])
def test_a_wait_for_a_topic_wakes_the_poll_in_progress(topic: str) -> None:
    """The client's thread sleeps in a poll without end; the waiting thread's question goes out all the same."""
    with EmbeddedCluster(2) as cluster, ScriptedController(cluster) as controller:
        controller.create_topic("orders", partitions=3)
        controller.wait_all()
        metadata = Metadata(300_000, refresh_backoff_ms=20, refresh_backoff_max_ms=20)
        metadata.bootstrap([(cluster[0].host, cluster[0].port)])
        client = NetworkClient(Selector(), DefaultMetadataUpdater(metadata), "producer")

        def run() -> None:
            with contextlib.suppress(ClientClosed):
                while True:
                    client.poll(FOREVER)

        thread = threading.Thread(target=run)
        version = metadata.update_version  # before the thread starts: its first response may come at once
        thread.start()
        try:
            metadata.await_update(version, 10_000)
            assert sorted(metadata.snapshot.nodes) == [0, 1]
            creation = threading.Timer(0.1, controller.create_topic, ("later",), {"partitions": 3})
            creation.start()
            count, info = metadata.wait_for_topic(topic, 10_000, client.wakeup, partition=2)
            creation.join()
            assert count == 3
            assert info == metadata.snapshot.partition(TopicPartition(topic, 2))
            assert metadata.question(0).topics == (topic,)
        finally:
            client.initiate_close()
            thread.join()
            client.close()
