"""Registration with a KRaft controller: repeated until it is accepted, then heartbeats, then again if it is lost."""

from types import SimpleNamespace

import pytest
from network_peers import FakeClock

from channel.broker.embedded import EmbeddedBroker
from channel.broker.kraft_registration import KRaftRegistration, heartbeat, quorum_provider
from channel.errors import IllegalState
from channel.security import SecurityConfig
from channel.types import Broker, EndPoint, Node, SecurityProtocol
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.errors import ConfigurationError
from kproto.messages import BrokerHeartbeatResponse, BrokerRegistrationResponse

BROKER = Broker(5, (EndPoint("localhost", 9092, "SECURE", SecurityProtocol.SASL_SSL),), "rack-1")


class Quorum:
    """Takes the requests of one broker, and answers when the test says so."""

    def __init__(self):
        self.requests = []
        self.is_closed = False
        self.delays = []
        self.due = []

    def send_request(self, request, on_complete):
        if self.is_closed:
            raise IllegalState("closed")
        self.requests.append(request.message)
        self.on_complete = on_complete

    def close(self):
        self.is_closed = True

    def call_later(self, delay_ms, function):
        self.delays.append(delay_ms)
        self.due.append(function)

    def answer(self, body):
        """Answer the latest request, and let time pass until what is due then."""
        self.on_complete(SimpleNamespace(body=body))
        if self.due:
            self.due.pop()()


@pytest.fixture
def quorum():
    return Quorum()


@pytest.fixture
def broker():
    return EmbeddedBroker(5, cluster_id="cluster", kraft_epoch=99)


@pytest.fixture
def registration(broker, quorum):
    return KRaftRegistration(broker, BROKER, "3.9", quorum, quorum.call_later)


def test_a_registration_says_all_of_the_broker(registration, broker, quorum):
    assert broker.kraft_epoch == -1
    registration.start()
    (request,) = quorum.requests
    (listener,) = request.listeners
    (feature,) = request.features
    assert (request.broker_id, request.cluster_id, request.rack) == (5, "cluster", "rack-1")
    assert request.is_migrating_zk_broker
    assert (listener.name, listener.host, listener.port, listener.security_protocol) == ("SECURE", "localhost", 9092, 3)
    assert (feature.name, feature.min_supported_version, feature.max_supported_version) == ("metadata.version", 21, 21)


def test_a_refused_registration_is_repeated_and_an_accepted_one_followed_by_heartbeats(registration, broker, quorum):
    registration.start()
    quorum.answer(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION))
    quorum.answer(None)
    first, second, third = quorum.requests
    assert first == second == third  # one incarnation
    quorum.answer(BrokerRegistrationResponse(broker_epoch=17))
    assert broker.kraft_epoch == 17
    for _ in range(2):
        beat = quorum.requests[-1]
        assert (beat.api_key, beat.broker_id, beat.broker_epoch) == (ApiKey.BROKER_HEARTBEAT, 5, 17)
        assert not beat.want_shut_down
        quorum.answer(BrokerHeartbeatResponse(is_fenced=False))
    assert quorum.delays == [500, 500, 2_000, 2_000]


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_lost_registration_is_made_again(registration, broker, quorum, code):
    registration.start()
    quorum.answer(BrokerRegistrationResponse(broker_epoch=17))
    quorum.answer(BrokerHeartbeatResponse(error_code=code))
    assert quorum.requests[-1].api_key == ApiKey.BROKER_REGISTRATION
    quorum.answer(BrokerRegistrationResponse(broker_epoch=18))
    assert broker.kraft_epoch == 18


def test_nothing_is_sent_after_the_end(registration, quorum):
    registration.start()
    registration.close()
    quorum.answer(BrokerRegistrationResponse(broker_epoch=17))
    assert len(quorum.requests) == 1
    assert quorum.is_closed


def test_a_heartbeat_may_ask_for_the_end(broker):
    assert heartbeat(broker, wants_shutdown=True).want_shut_down
    assert heartbeat(EmbeddedBroker(5)).broker_epoch == -1


def test_brokers_authenticate_at_the_quorum_by_its_own_mechanism():
    both = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.mechanism.controller.protocol": "PLAIN"}
    for settings, mechanism in ((both, "PLAIN"), ({"sasl.mechanism": "SCRAM-SHA-512"}, "SCRAM-SHA-512"), ({}, None)):
        security = SecurityConfig.of(settings)
        voters = [Node(1, "a", 1)]
        provider = quorum_provider(voters, SecurityProtocol.SASL_SSL, security.quorum_mechanism, FakeClock())
        assert provider().sasl_mechanism == mechanism


def test_voters_are_named_in_turn_with_their_listener():
    clock = FakeClock()
    provider = quorum_provider([Node(1, "a", 1), Node(2, "b", 2)], SecurityProtocol.SSL, None, clock)
    first = provider()
    clock.sleep(1_000)
    second = provider()
    assert {first.node.id, second.node.id} == {1, 2}
    assert (first.listener, first.node.listener, first.security_protocol) == ("CONTROLLER",) * 2 + (
        SecurityProtocol.SSL,
    )
    assert not first.is_zookeeper
    clock.sleep(1_000)
    assert provider() == first


def test_a_protocol_version_before_kraft_is_refused(broker, quorum):
    with pytest.raises(ConfigurationError, match=r"3\.0-IV1"):
        KRaftRegistration(broker, BROKER, "2.8", quorum, quorum.call_later)
