"""Controlled shutdown: brokers leave when the controller lets them, and at the latest when the time is over."""

import threading

import pytest

from channel.broker import links
from channel.broker.embedded import EmbeddedBroker
from channel.broker.links import ask_kraft_controller, ask_zookeeper_controller, controlled_shutdown
from channel.errors import IllegalState
from channel.network.request import ClientRequest, ClientResponse
from kproto import codec
from kproto.api import ApiKey
from kproto.messages import BrokerHeartbeatResponse, ControlledShutdownResponse, RemainingPartition

FREE = ControlledShutdownResponse()
LEADS = ControlledShutdownResponse(remaining_partitions=[RemainingPartition(topic_name="orders", partition_index=0)])
REFUSED = ControlledShutdownResponse(error_code=11)


class Channel:
    """A channel whose controller gives these answers in turn, the last one again and again; none: silence."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.api_key, self.version = ApiKey.CONTROLLED_SHUTDOWN, 3

    def send_request(self, builder, on_complete, on_timeout):
        self.requests.append(codec.decode_request(self.api_key, self.version, b"".join(builder.build(self.version))))
        if not self.answers:
            return
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            work = on_timeout
        else:
            request = ClientRequest("5-to-controller-9", builder, 0, 0, 1000)
            work = lambda: on_complete(ClientResponse(request, 0, answer))  # noqa: E731
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(links, "_RETRY_S", 0.0)


def leave(channels, timeout_s=60.0):
    left = []
    asking = {i: ask_zookeeper_controller(c, i, 100 + i) for i, c in channels.items()}
    failures = controlled_shutdown(asking, left.append, timeout_s)
    return left, failures


def test_brokers_that_lead_nothing_leave():
    channels = {5: Channel(FREE), 6: Channel(FREE)}
    left, failures = leave(channels)
    assert (sorted(left), failures) == ([5, 6], {})
    request = channels[5].requests[0]
    assert (request.broker_id, request.broker_epoch) == (5, 105)


def test_a_kraft_controller_is_asked_by_heartbeats():
    channel = Channel(BrokerHeartbeatResponse(), BrokerHeartbeatResponse(should_shut_down=True))
    channel.api_key, channel.version = ApiKey.BROKER_HEARTBEAT, 1
    left = []
    assert (
        controlled_shutdown({5: ask_kraft_controller(channel, EmbeddedBroker(5, kraft_epoch=17))}, left.append, 10.0)
        == {}
    )
    assert left == [5]
    assert [(r.broker_epoch, r.want_shut_down) for r in channel.requests] == [(17, True)] * 2


def test_a_broker_that_still_leads_asks_again():
    channels = {5: Channel(LEADS, REFUSED, FREE)}
    assert leave(channels) == ([5], {})
    assert len(channels[5].requests) == 3


@pytest.mark.parametrize(
    ("answer", "reason", "requests"),
    [
        (LEADS, "it still leads 1 partitions that no other replica can lead", 4),
        (REFUSED, "the controller refused: STALE_CONTROLLER_EPOCH", 4),
        (None, "the controller could not be asked", 4),
        (IllegalState("its channel is closed"), "its channel is closed", 1),
    ],
)
def test_a_broker_that_is_not_let_go_says_why(answer, reason, requests):
    channels = {5: Channel(answer), 6: Channel(FREE)}
    assert leave(channels) == ([6], {5: reason})
    assert len(channels[5].requests) == requests


def test_a_controller_that_is_silent_is_not_waited_for_for_ever():
    assert leave({5: Channel()}, 0.0499999) == ([], {5: "the controller did not answer within 0.05 s"})


def test_a_broker_waits_before_it_asks_again(monkeypatch):
    monkeypatch.setattr(links, "_RETRY_S", 0.02)
    assert leave({5: Channel(LEADS, FREE)}) == ([5], {})


def test_nobody_has_nothing_to_ask():
    assert leave({}) == ([], {})
