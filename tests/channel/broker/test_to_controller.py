"""The node-to-controller channel: finds the controller, sends again after a change of it, gives up in time."""

import contextlib

import pytest
from network_peers import InlineResolution, ScriptedSelector

from channel.broker.metadata_cache import MetadataCache
from channel.broker.to_controller import (
    ControllerInformation,
    NodeToControllerThread,
    controller_of_metadata,
)
from channel.clock import FOREVER
from channel.config import ChannelConfig
from channel.errors import IllegalState
from channel.network.client import MetadataUpdater, NetworkClient
from channel.network.request import MessageRequest
from channel.security import SecurityConfig
from channel.types import Node
from kproto.codec import encode
from kproto.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from kproto.node_versions import NodeApiVersions

NOBODY = ControllerInformation(None, "PLAINTEXT")
FIRST = ControllerInformation(Node(1, "localhost", 1234), "PLAINTEXT")
SECOND = ControllerInformation(Node(2, "localhost", 1235), "PLAINTEXT")
QUORUM = ControllerInformation(Node(7, "localhost", 1236), "CONTROLLER", is_zookeeper=False)
REQUEST = MessageRequest(AlterPartitionRequest(broker_id=5), 3)
GOOD = AlterPartitionResponse()
NOT_CONTROLLER = AlterPartitionResponse(error_code=41)


class ScriptedThread(NodeToControllerThread):
    """A thread with the clients that a test makes."""

    def __init__(self, new_client, information):
        self._make = new_client
        super().__init__("to-controller", "alter-partition", ChannelConfig(), SecurityConfig(), information)

    def new_client(self, information):
        return self._make()


class Channels:
    """A thread that a test turns by hand, over a scripted network, with one channel of broker 5."""

    def __init__(self, clock, information=NOBODY, retry_timeout_ms=30_000):
        self.clock = clock
        self.information = information
        self.networks: list[ScriptedSelector] = []
        self.versions: dict[str, NodeApiVersions] = {}
        self.thread = ScriptedThread(self._new_client, information)
        self.thread._refusal = lambda: None
        self.channel = self.thread.channel(5, lambda: self.information, retry_timeout_ms)
        self.completed: list = []
        self.timeouts = 0

    def _new_client(self):
        network = ScriptedSelector(self.clock)
        self.networks.append(network)
        return NetworkClient(
            network, MetadataUpdater(), "5", max_in_flight=1, reconnect_backoff_ms=50,
            reconnect_backoff_max_ms=50, request_timeout_ms=30_000, discover_versions=False,
            api_versions=self.versions, clock=self.clock, resolution=InlineResolution(),
        )  # fmt: skip

    @property
    def network(self):
        return self.networks[-1]

    def _timed_out(self):
        self.timeouts += 1

    def ask(self, request=REQUEST, channel=None):
        (channel or self.channel).send_request(request, self.completed.append, self._timed_out)

    def work(self, times=1):
        for _ in range(times):
            self.thread.do_work()

    def sent_to(self):
        """The nodes that got requests, in order."""
        return [send.destination for send in self.network.sends]

    def answer(self, answer, version=3):
        """Let the controller answer the last request, and take the answer."""
        self.answer_bytes(encode(answer, version))

    def answer_bytes(self, body):
        node_id = self.network.sends[-1].destination
        request = self.network.channels[node_id].connection.in_flight.requests[-1]
        self.network.answers(node_id, request.correlation_id, body)
        self.work()

    def until_sent(self, count):
        """Work until this number of requests is on the wire; the back-off passes meanwhile."""
        for _ in range(10):
            if len(self.network.sends) >= count:
                return
            self.work()
            self.clock.sleep(30)
        pytest.fail(f"{count} requests were not sent: {self.sent_to()}")


@pytest.fixture
def channels(clock):
    with contextlib.ExitStack() as stack:

        def make(*args, **kwargs):
            made = Channels(clock, *args, **kwargs)
            stack.callback(made.thread.shutdown)
            return made

        yield make


@pytest.mark.conformance("NTC-01")
def test_a_request_ends_in_time_while_no_controller_is_known(channels, clock):
    made = channels()
    made.ask()
    made.work()
    assert (made.channel.queue_size, made.timeouts) == (1, 0)
    assert made.network.polls[-1] == 100
    clock.sleep(30_000)
    made.work()
    assert (made.channel.queue_size, made.timeouts, made.completed) == (0, 1, [])


@pytest.mark.conformance("NTC-02")
def test_a_round_finds_the_controller_and_the_following_send(channels):
    made = channels(FIRST)
    made.ask()
    made.work()
    assert (made.channel.active_controller, made.network.attempts) == (FIRST.node, [])
    made.until_sent(1)
    assert made.network.attempts[0][1] == ("127.0.0.1", 1234)
    made.answer(GOOD)
    assert ([r.body for r in made.completed], made.channel.queue_size) == ([GOOD], 0)


def test_an_answer_before_its_request_is_whole_does_not_end_the_thread(channels):
    made = channels(FIRST)
    made.ask()
    made.ask()
    made.work()
    made.network.takes = 1
    made.until_sent(1)
    made.network.takes = 0  # the controller never reads the rest
    (connection,) = [channel.connection for channel in made.network.channels.values()]
    assert connection.outgoing is not None
    made.answer(GOOD)
    made.work(3)
    assert [r.body for r in made.completed] == [GOOD]
    made.network.takes = 2**31
    made.until_sent(2)
    made.answer(GOOD)
    assert [r.body for r in made.completed] == [GOOD, GOOD]
    assert len(made.network.attempts) == 2


@pytest.mark.conformance("NTC-03")
def test_a_request_goes_to_the_next_controller_if_the_first_cannot_be_reached(channels):
    made = channels(FIRST)
    made.network.refused.add(("127.0.0.1", 1234))
    made.ask()
    made.work(2)
    assert (made.channel.active_controller, made.channel.queue_size) == (None, 1)
    made.information = SECOND
    made.until_sent(1)
    assert made.sent_to() == ["5-to-controller-2"]
    made.answer(GOOD)
    assert [r.body for r in made.completed] == [GOOD]


def test_a_retry_does_not_cut_the_wait_for_the_back_off_short(channels):
    made = channels(FIRST)
    made.network.refused.add(("127.0.0.1", 1234))
    made.ask()
    woken = []
    made.network.wakeup = lambda: woken.append(1)
    made.work(2)
    assert made.channel.queue_size == 1
    assert not woken


@pytest.mark.conformance("NTC-04")
@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        (REQUEST, NOT_CONTROLLER),
        (
            REQUEST,
            AlterPartitionResponse(
                topics=[AlterPartitionResponseTopic(partitions=[AlterPartitionResponsePartition(error_code=41)])]
            ),
        ),
        (
            MessageRequest(CreatePartitionsRequest(), 3),
            CreatePartitionsResponse(
                results=[CreatePartitionsTopicResult(), CreatePartitionsTopicResult(error_code=41)]
            ),
        ),
        (
            MessageRequest(DeleteTopicsRequest(), 6),
            DeleteTopicsResponse(responses=[DeletableTopicResult(error_code=41)]),
        ),
    ],
    ids=["top level", "partition", "results of CreatePartitions", "responses of DeleteTopics"],
)
def test_a_node_that_is_not_the_controller_is_left_for_the_next(channels, asked, refusal):
    made = channels(FIRST)
    made.ask(asked)
    made.until_sent(1)
    assert made.channel.active_controller == FIRST.node
    made.answer(refusal, asked.latest_version)
    assert (made.channel.active_controller, made.channel.queue_size, made.completed) == (None, 1, [])
    made.information = SECOND
    made.work()
    assert made.channel.active_controller == SECOND.node
    made.until_sent(2)
    good = type(refusal)()
    made.answer(good, asked.latest_version)
    assert [r.body for r in made.completed] == [good]
    assert made.sent_to() == ["5-to-controller-1", "5-to-controller-2"]


@pytest.mark.conformance("NTC-05")
def test_an_envelope_that_reached_no_controller_is_sent_to_the_next(channels):
    made = channels(FIRST)
    made.ask(MessageRequest(EnvelopeRequest(request_data=b"", client_host_address=b"\x7f\0\0\1"), 0))
    made.until_sent(1)
    made.answer(EnvelopeResponse(error_code=41), 0)
    assert (made.channel.active_controller, made.channel.queue_size) == (None, 1)
    made.information = SECOND
    made.until_sent(2)
    made.answer(EnvelopeResponse(response_data=b"answer"), 0)
    assert [r.body.response_data for r in made.completed] == [b"answer"]


@pytest.mark.conformance("NTC-06")
def test_a_request_as_old_as_the_retry_timeout_ends(channels, clock):
    made = channels(FIRST)
    made.ask()
    made.work()
    clock.sleep(30_000)
    made.work()
    assert (made.timeouts, made.channel.queue_size, made.completed) == (1, 0, [])


@pytest.mark.conformance("NTC-07")
def test_a_version_that_the_controller_lacks_ends_the_request(channels):
    made = channels(FIRST)
    made.versions["5-to-controller-1"] = NodeApiVersions.of([(56, 0, 2)])
    made.ask()
    made.work(6)
    assert [r.version_mismatch is not None for r in made.completed] == [True]
    assert (made.channel.queue_size, made.network.sends) == (0, [])


@pytest.mark.conformance("NTC-09")
def test_a_thread_that_was_not_started_takes_no_request(channels):
    thread = ScriptedThread(channels(FIRST)._new_client, FIRST)
    assert not thread.is_serving
    channel = thread.channel(5, lambda: FIRST, 30_000)
    with pytest.raises(IllegalState, match="has not been started"):
        channel.send_request(REQUEST, lambda response: None)
    assert channel.queue_size == 0
    thread.client.close()


@pytest.mark.conformance("NTC-10")
def test_a_controller_of_the_other_kind_gets_a_new_client(channels):
    made = channels(FIRST)
    made.ask()
    made.until_sent(1)
    old = made.thread.client
    made.ask()
    made.information = QUORUM
    made.work()
    assert not old.active
    assert made.networks[0].closed
    assert made.thread.client is not old
    assert made.channel.active_controller == QUORUM.node
    assert made.channel.queue_size == 2  # the request that was in flight is sent again
    made.until_sent(1)
    assert made.sent_to() == ["5-to-controller-7"]


def cache(controller_id, *broker_ids, is_kraft=False, listener="PLAINTEXT"):
    """A metadata cache after one UpdateMetadata."""
    made = MetadataCache(5)
    brokers = [
        UpdateMetadataBroker(
            id=i,
            rack=None,
            endpoints=[UpdateMetadataEndpoint(port=9000 + i, host="host", listener=listener, security_protocol=0)],
        )
        for i in broker_ids
    ]
    request = UpdateMetadataRequest(
        controller_id=controller_id, is_kraft_controller=is_kraft, controller_epoch=1, live_brokers=brokers
    )
    made.update_metadata(0, request, version=8)
    return made


@pytest.mark.conformance("NTC-12")
@pytest.mark.parametrize(
    ("metadata", "quorum", "expected"),
    [
        (MetadataCache(5), None, NOBODY),
        (cache(3, 3, 4), None, ControllerInformation(Node(3, "host", 9003), "PLAINTEXT")),
        (cache(3, 4), None, NOBODY),
        (cache(3, 3, listener="OTHER"), None, NOBODY),
        (cache(3, 3, is_kraft=True), QUORUM, QUORUM),
        (cache(3, 3, is_kraft=True), None, NOBODY),
    ],
    ids=["no update yet", "alive", "not alive", "another listener", "KRaft", "KRaft, quorum unknown"],
)
def test_the_controller_is_found_by_the_metadata_cache(metadata, quorum, expected):
    assert controller_of_metadata(metadata, "PLAINTEXT", quorum=lambda: quorum)() == expected


# ---- many brokers on one thread --------------------------------------------------------------------------------------


def test_each_broker_has_a_connection_and_waits_for_nobody_else(channels):
    made = channels(FIRST)
    other = made.thread.channel(6, lambda: FIRST, FOREVER)
    made.ask()
    made.ask(channel=other)
    made.until_sent(2)
    assert sorted(made.sent_to()) == ["5-to-controller-1", "6-to-controller-1"]


def test_at_most_one_request_of_a_broker_is_in_flight(channels):
    made = channels(FIRST)
    made.ask()
    made.ask()
    made.until_sent(1)
    made.work(3)
    assert (len(made.network.sends), made.channel.queue_size) == (1, 1)
    made.answer(GOOD)
    made.until_sent(2)
    made.answer(GOOD)
    assert len(made.completed) == 2


def test_a_closed_channel_ends_its_connection_and_calls_nobody_back(channels):
    made = channels(FIRST)
    made.ask()
    made.ask()
    made.until_sent(1)
    made.channel.close()
    made.work()
    assert made.network.open == set()
    assert (made.completed, made.timeouts, made.channel.queue_size) == ([], 0, 0)
    with pytest.raises(IllegalState, match="closed"):
        made.ask()


def test_an_answer_that_cannot_be_read_is_asked_for_again(channels):
    made = channels(FIRST)
    made.ask()
    made.until_sent(1)
    made.answer_bytes(b"\xff")
    assert (made.completed, made.channel.queue_size) == ([], 1)
    made.until_sent(2)
    made.answer(GOOD)
    assert [r.body for r in made.completed] == [GOOD]


def test_a_lost_connection_is_made_again_by_a_real_thread(channels):
    """A running thread: queued from another thread, answered, ended by a shutdown while a request is in flight."""
    made = channels()
    made.thread.start()
    made.ask()
    made.thread.shutdown()
    assert made.thread.error is None
    assert made.networks[0].closed
