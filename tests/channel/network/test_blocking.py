"""The helpers that wait: for a connection, for an answer, and never for ever."""

import pytest
from network_peers import BodyRequest

from channel.errors import AuthenticationFailed, ClientClosed, Disconnected, NoUsableVersion, RequestTimeout
from channel.network import node_client as network_client
from channel.network.request import ClientRequest, ClientResponse
from channel.types import Node

NODE = Node(7, "localhost", 9092)


class FakeClient:
    """A client whose polls are scripted: each step is what happens in one, the last one goes on for ever."""

    def __init__(self, clock, *steps) -> None:
        self.clock = clock
        self.steps = list(steps)
        self.calls: list[str] = []
        self.timeouts: list[int] = []
        self.became_ready = self.failed = False
        self.active = True
        self.error: AuthenticationFailed | None = None
        self.sent: list[ClientRequest] = []

    def poll(self, timeout_ms):
        self.calls.append("poll")
        self.timeouts.append(timeout_ms)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        return (step(self) if callable(step) else step) or []

    def ready(self, node):
        self.calls.append("ready")
        return self.became_ready

    def is_ready(self, node):
        return self.became_ready

    def connection_failed(self, node):
        return self.failed

    def authentication_error(self, node):
        return self.error

    def send(self, request):
        if not self.active:
            raise ClientClosed("closed")
        self.sent.append(request)


def nothing(client):
    client.clock.sleep(client.timeouts[-1])


def becomes_ready(client):
    client.became_ready = True


def fails(client):
    client.failed = True


def request(correlation_id=0):
    return ClientRequest(NODE.key, BodyRequest(4, 7, [b""]), correlation_id, 0, 1000)


@pytest.mark.conformance("NCU-02")
def test_waiting_connects_once_and_ends_when_the_node_is_ready(clock):
    client = FakeClient(clock, [], [], becomes_ready)
    assert network_client.await_ready(client, NODE, 1000)
    assert client.calls == ["poll", "ready", "poll", "poll"]


@pytest.mark.conformance("NCU-03")
def test_waiting_ends_in_time_and_each_poll_gets_what_is_left(clock):
    def a_while(client):
        clock.sleep(min(300, client.timeouts[-1]))

    client = FakeClient(clock, a_while)
    began = clock.milliseconds()
    assert not network_client.await_ready(client, NODE, 1000)
    assert clock.milliseconds() - began == 1000
    assert client.timeouts == [0, 1000, 700, 400, 100]


@pytest.mark.conformance("NCU-04")
def test_a_connection_that_cannot_be_made_is_an_error(clock):
    client = FakeClient(clock, [], fails)
    with pytest.raises(OSError, match=r"Connection to localhost:9092 \(id: 7 rack: None\) failed\."):
        network_client.await_ready(client, NODE, 1000)


def test_a_failed_authentication_ends_the_wait_with_its_reason(clock):
    def refused(client):
        client.error = AuthenticationFailed("no such user")

    client = FakeClient(clock, [], refused)
    with pytest.raises(AuthenticationFailed, match="no such user"):
        network_client.await_ready(client, NODE, 1000)


@pytest.mark.conformance("NCU-06")
def test_a_negative_wait_is_refused(clock):
    client = FakeClient(clock, nothing)
    with pytest.raises(ValueError, match="-1 ms"):
        network_client.await_ready(client, NODE, -1)
    assert client.calls == []


@pytest.mark.conformance("NCU-07")
def test_the_answer_is_the_one_to_this_request(clock):
    mine, other = request(5), request(4)
    answers = [ClientResponse(other, 0, "theirs")], [ClientResponse(mine, 0, "mine")]
    response = network_client.send_and_receive(FakeClient(clock, *answers), mine)
    assert (response.request, response.body) == (mine, "mine")


@pytest.mark.conformance("NCU-09")
def test_a_client_that_is_closed_meanwhile_says_so(clock):
    def closed(client):
        client.active = False
        raise ClientClosed("client is closing")

    with pytest.raises(OSError, match="Client was shutdown before response was read"):
        network_client.send_and_receive(FakeClient(clock, closed), request())

    def strange(client):
        raise ClientClosed("although it is active")

    with pytest.raises(Disconnected, match="although it is active"):
        network_client.send_and_receive(FakeClient(clock, strange), request())

    def stops(client):
        client.active = False

    with pytest.raises(OSError, match="Client was shutdown before response was read"):
        network_client.send_and_receive(FakeClient(clock, stops), request())


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ({"disconnected": True}, Disconnected, "was disconnected before the response was read"),
        ({"disconnected": True, "timed_out": True}, RequestTimeout, "no answer within 1000 ms"),
        ({"version_mismatch": NoUsableVersion(4, 7, "the node has 0 to 3")}, NoUsableVersion, "0 to 3"),
    ],
)
def test_an_end_without_an_answer_is_an_error(clock, how, error, text):
    mine = request()
    with pytest.raises(error, match=text):
        network_client.send_and_receive(FakeClient(clock, [ClientResponse(mine, 0, **how)]), mine)
