"""The thread of requests to controllers: they wait for their nodes, and end if a node cannot be reached in time."""

import pytest
from network_peers import BodyRequest

from channel.broker.to_controller import ControllerInformation, NodeToControllerThread
from channel.clock import FOREVER
from channel.config import ChannelConfig
from channel.errors import AuthenticationFailed, ClientClosed
from channel.network.request import ClientRequest
from channel.security import SecurityConfig
from channel.threads import FatalExit
from channel.types import Node
from kproto.api import ApiKey

NODE = Node(1, "localhost", 9092)
BODY = BodyRequest(ApiKey.ALTER_PARTITION, 3, [b"body"])


class FakeClient:
    """A client that notes its calls, with a node as a test says."""

    def __init__(self, clock) -> None:
        self.clock = clock
        self.calls: list[str] = []
        self.polls: list[int] = []
        self.sent: list[ClientRequest] = []
        self.active = True
        self.is_ready = self.failed = False
        self.reachable: set[Node] = set()
        self.error: AuthenticationFailed | None = None
        self.poll_raises: Exception | None = None

    def new_request(self, node_id, builder, *, callback, created_ms):
        self.calls.append("new_request")
        return ClientRequest(node_id, builder, 0, created_ms, 1000, callback=callback)

    def ready(self, node):
        self.calls.append("ready")
        return self.is_ready

    def send(self, request):
        self.calls.append("send")
        self.sent.append(request)

    def poll(self, timeout_ms):
        self.calls.append("poll")
        self.polls.append(timeout_ms)
        if self.poll_raises is not None:
            raise self.poll_raises
        return []

    def connection_delay(self, node):
        self.calls.append("connection_delay")
        return 70

    def connection_failed(self, node):
        return self.failed and node not in self.reachable

    def disconnect(self, node_id):
        self.calls.append("disconnect")

    def wakeup(self):
        pass

    def authentication_error(self, node):
        return self.error

    def initiate_close(self):
        self.calls.append("initiate_close")
        self.active = False

    def close(self):
        self.calls.append("close")


class Thread(NodeToControllerThread):
    """A thread whose brokers ask the controllers that a test names."""

    def __init__(self, client):
        self._scripted = client
        nobody = ControllerInformation(None, "PLAINTEXT")
        super().__init__("test-send-thread", "alter-partition", ChannelConfig(), SecurityConfig(), nobody)
        self._refusal = lambda: None

    def new_client(self, information):
        return self._scripted

    def asks(self, broker_id, on_complete, node=NODE):
        """Queue a request of a broker, and find its controller; the next round sends."""
        made = self.channel(broker_id, lambda: ControllerInformation(node, "PLAINTEXT"), FOREVER)
        made.send_request(BODY, on_complete)
        self.do_work()
        assert made.active_controller == node
        return made


@pytest.fixture
def client(clock):
    return FakeClient(clock)


@pytest.fixture
def thread(client):
    made = Thread(client)
    yield made
    made.shutdown()


@pytest.fixture
def responses(thread):
    """The responses to the one request that the thread has to send."""
    taken = []
    thread.asks(5, taken.append)
    return taken


@pytest.mark.conformance("IBS-01")
def test_a_poll_that_ends_by_the_shutdown_is_no_error(client, thread):
    client.poll_raises = ClientClosed("closing")
    thread.shutdown()
    thread.do_work()
    assert client.calls == ["initiate_close", "close", "poll"]


def test_a_second_shutdown_does_nothing(client, thread):
    thread.shutdown()
    thread.shutdown()
    assert client.calls == ["initiate_close", "close"]


@pytest.mark.conformance("IBS-02")
def test_a_poll_that_ends_without_a_shutdown_is_fatal(client, thread):
    client.poll_raises = ClientClosed("nobody asked for it")
    with pytest.raises(FatalExit):
        thread.do_work()


def test_any_other_failure_of_the_client_is_fatal(client, thread):
    client.poll_raises = ValueError("a bug")
    with pytest.raises(FatalExit):
        thread.do_work()


@pytest.mark.conformance("IBS-03")
def test_without_requests_it_only_polls(client, thread):
    thread.do_work()
    assert client.calls == ["poll"]


@pytest.mark.conformance("IBS-04")
def test_a_request_to_a_ready_node_is_sent(client, thread, responses):
    client.is_ready = True
    thread.do_work()
    assert client.calls == ["new_request", "ready", "send", "poll"]
    assert [sent.destination for sent in client.sent] == ["5-to-controller-1"]
    assert responses == []
    assert not thread.unsent


@pytest.mark.conformance("IBS-04")
def test_a_request_has_the_time_limit_of_the_settings():
    config = ChannelConfig(controller_socket_timeout_ms=1234)
    nobody = ControllerInformation(None, "PLAINTEXT")
    thread = NodeToControllerThread("test-send-thread", "alter-partition", config, SecurityConfig(), nobody)
    assert thread.client.new_request("1", BODY).timeout_ms == 1234
    thread.shutdown()


@pytest.mark.conformance("IBS-05")
def test_a_request_to_a_node_that_cannot_be_reached_ends_as_disconnected(client, thread, responses):
    client.failed, client.error = True, AuthenticationFailed("no such user")
    thread.do_work()
    assert client.calls == ["new_request", "ready", "connection_delay", "poll", "disconnect"]
    assert client.polls == [70]
    assert [(r.disconnected, r.authentication_error) for r in responses] == [(True, client.error)]
    assert not thread.unsent


def test_a_node_that_cannot_be_reached_ends_its_own_requests_alone(client, thread, responses):
    waiting, unreachable = [], Node(2, "localhost", 9093)
    client.failed, client.error, client.reachable = True, AuthenticationFailed("no such user"), {NODE}
    thread.asks(6, waiting.append, unreachable)
    thread.do_work()
    assert responses == []
    assert [r.disconnected for r in waiting] == [True]
    assert [channel.broker_id for channel in thread.unsent] == [5]


@pytest.mark.conformance("IBS-06")
def test_a_request_that_waited_too_long_ends_as_disconnected(clock, thread, responses):
    clock.sleep(1500)
    thread.do_work()
    assert not thread.unsent
    assert [channel.broker_id for channel in thread._waiting] == [5]  # its broker tries again


def test_a_request_as_old_as_the_timeout_waits_on(clock, thread, responses):
    clock.sleep(1000)
    thread.do_work()
    assert responses == []
    assert thread.unsent


@pytest.mark.conformance("IBS-08")
def test_one_expired_request_of_a_node_ends_in_each_round(client, clock, thread):
    channel = thread.asks(5, pytest.fail)
    for _ in range(2):
        channel.send_request(BODY, pytest.fail)
    clock.sleep(1500)
    for round_ in (1, 2, 3):
        thread.do_work()
        assert client.calls.count("new_request") == round_
        assert (channel.active_controller, channel.queue_size) == (None, 3)
        thread.do_work()  # finds the controller again


def test_a_handler_that_fails_costs_the_others_nothing(client, thread):
    def fails(response):
        raise ValueError("a bug in a handler")

    taken = []
    thread.asks(5, fails)
    client.failed, client.error = True, AuthenticationFailed("no such user")
    thread.asks(6, taken.append)
    thread.do_work()
    assert len(taken) == 1
