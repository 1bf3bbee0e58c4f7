"""The network client: connecting, versions, answers, time-outs, disconnects, and which node to ask."""

import gc
import random
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_peers import SCRIPTED, BodyRequest, FakeClock, InlineResolution, ScriptedSelector
from tls_network import TlsSelector

from channel.clock import FOREVER
from channel.errors import AuthenticationFailed, ClientClosed, CorrelationIdMismatch, IllegalState, NoUsableVersion
from channel.network.client import MetadataUpdater, NetworkClient
from channel.network.request import (
    FIRST_SASL_CORRELATION_ID,
    ClientRequest,
    CorrelationIds,
    MessageRequest,
    RequestFramer,
)
from channel.network.transport import EVENT_READ
from channel.types import Node
from kproto.api import ApiKey
from kproto.codec import message_class
from kproto.errors import Malformed, Truncated, UnsupportedVersion

NODE, OTHER = Node(0, "localhost", 9092), Node(1, "localhost", 9093)
UPDATE = BodyRequest(ApiKey.UPDATE_METADATA, 8, [b"body"])
UPDATED = b"\0\0\0"  # no error, no tags
METADATA = BodyRequest(ApiKey.METADATA, 12, [b"body"])
DEFAULT_RANGES = [(key, 0, key.info.max_version) for key in ApiKey]


def metadata_answer(throttle_ms=0):
    """Metadata v12 without brokers and topics."""
    return struct.pack(">i", throttle_ms) + bytes.fromhex("01 00 ffffffff 01 00")


def versions_answer(error=0, ranges=DEFAULT_RANGES, version=4):
    if version < 3:
        return struct.pack(">hi", error, len(ranges)) + b"".join(struct.pack(">hhh", *each) for each in ranges)
    entries = b"".join(struct.pack(">hhhB", *each, 0) for each in ranges)
    return struct.pack(">hB", error, len(ranges) + 1) + entries + struct.pack(">iB", 0, 0)


class RecordingUpdater(MetadataUpdater):
    """A manual updater that notes what it is told, and counts the answers to its own requests."""

    def __init__(self, nodes=()):
        super().__init__(nodes)
        self.disconnects = []
        self.failures = []
        self.answers = []
        self.closed = False

    def set_nodes(self, nodes):
        self._nodes = nodes

    def handle_server_disconnect(self, now, node_id, error):
        self.disconnects.append((node_id, error))

    def handle_failed_request(self, now, error):
        self.failures.append(error)

    def handle_successful_response(self, request, now, response):
        self.answers.append(response)

    def close(self):
        self.closed = True


@pytest.fixture(params=[*SCRIPTED, "TLSv1.2", "TLSv1.3"])
def selector(clock, request):
    """Every kind of network that a row runs over.

    Of the rows only NWC-05, NWC-23, NWC-26, NWC-34 and NWC-35 have no connection at all.
    """
    if request.param in SCRIPTED:
        made = ScriptedSelector(clock, **SCRIPTED[request.param])
    else:
        made = TlsSelector(clock, request.param)
    yield made
    if not made.closed:
        made.close()


@pytest.fixture
def updater():
    return RecordingUpdater([NODE])


@pytest.fixture
def new_client(clock, selector, updater):
    def make(**settings):
        defaults = {
            "max_in_flight": 1 << 30,
            "reconnect_backoff_ms": 10_000,
            "reconnect_backoff_max_ms": 100_000,
            "request_timeout_ms": 1000,
            "setup_timeout_ms": 5000,
            "setup_timeout_max_ms": 127_000,
            "clock": clock,
            "resolution": InlineResolution(lambda host: ["127.0.0.1"]),
            "randomness": random.Random(1),
        }
        return NetworkClient(selector, updater, "mock", **{**defaults, **settings})

    return make


@pytest.fixture
def client(new_client):
    return new_client()


@pytest.fixture
def plain(new_client):
    return new_client(discover_versions=False)


def client_alone(clock, updater, **settings):
    """A client that asks for no versions and waits before no connection, over plaintext, and its network."""
    selector = ScriptedSelector(clock)
    client = NetworkClient(
        selector, updater, "alone", reconnect_backoff_ms=0, reconnect_backoff_max_ms=0, discover_versions=False,
        clock=clock, resolution=InlineResolution(lambda host: ["127.0.0.1"]), **settings,
    )  # fmt: skip
    return client, selector


def make_ready(client, selector, *nodes, ranges=DEFAULT_RANGES):
    for node in nodes or (NODE,):
        sent = len(selector.sends)
        client.ready(node)
        for _ in range(6):  # a handshake takes some
            if not client.is_ready(node) and len(selector.sends) == sent:
                client.poll(1)
        if not client.is_ready(node):
            answer_versions(client, selector, node, versions_answer(ranges=ranges))
        assert client.is_ready(node)


def answer_versions(client, selector, node, body):
    selector.answers(node.key, correlation_of(selector.sends[-1]), body, flexible=False)
    client.poll(1)


def header_of(send):
    """(api key, version, correlation id) of a frame."""
    return struct.unpack_from(">hhi", b"".join(send.buffers), 4)


def correlation_of(send):
    return header_of(send)[2]


def sends_request(client, builder=UPDATE, node=NODE, **settings):
    request = client.new_request(node.key, builder, **settings)
    client.send(request)
    return request


# ---- sending and answers ---------------------------------------------------------------------------------------------


class RefusesOnce:
    """The system's poller, whose next poll fails."""

    def __init__(self, poller):
        self._poller, self._system = poller, poller._system
        poller._system = self

    def __getattr__(self, name):
        return getattr(self._system, name)

    def poll(self, *_):
        self._poller._system = self._system
        raise OSError(12, "Cannot allocate memory")


def test_a_poll_that_the_system_refuses_is_logged_and_the_next_goes_on(plain, selector, caplog):
    make_ready(plain, selector)
    request = plain.new_request(NODE.key, UPDATE)
    plain.send(request)
    RefusesOnce(selector._poller)
    assert plain.poll(1) == []
    assert "the selector failed: [Errno 12] Cannot allocate memory" in caplog.text
    assert plain.in_flight_count() == 1
    selector.answers(NODE.key, request.correlation_id, UPDATED)
    (response,) = plain.poll(1000) or plain.poll(1000)
    assert response.body.error_code == 0


@pytest.mark.conformance("NWC-01")
def test_nothing_can_be_sent_to_a_node_that_is_not_ready(client):
    with pytest.raises(IllegalState, match="node 5 can take no request now"):
        sends_request(client, METADATA, Node(5, "localhost", 9092))
    assert client.in_flight_count() == 0


def simple_exchange(client, selector):
    called = []
    request = sends_request(client, callback=called.append)
    assert client.poll(1) == []
    assert client.in_flight_count() == client.in_flight_count("0") == 1
    selector.answers("0", request.correlation_id, UPDATED)
    responses = client.poll(1)
    assert len(responses) == 1
    assert called == responses
    assert responses[0].request is request
    assert responses[0].body.error_code == 0
    assert not responses[0].disconnected
    assert client.in_flight_count() == 0


@pytest.mark.conformance("NWC-02")
def test_an_answer_completes_its_request_and_calls_back(client, selector):
    make_ready(client, selector)
    simple_exchange(client, selector)


@pytest.mark.conformance("NWC-04")
def test_without_discovery_no_versions_are_asked_for(plain, selector):
    make_ready(plain, selector)
    simple_exchange(plain, selector)
    assert [header_of(send)[0] for send in selector.sends] == [ApiKey.UPDATE_METADATA]


@pytest.mark.conformance("NWC-05")
def test_a_name_that_cannot_be_resolved_is_a_failed_connection_not_an_error(new_client, updater):
    def fails(host):
        raise OSError(f"{host}: name not known")

    client = new_client(resolution=InlineResolution(fails))
    node = Node(1234, "badhost", 1234)
    assert not client.ready(node)
    assert client.connection_failed(node)
    assert updater.disconnects == [("1234", None)]


def test_no_node_cannot_be_connected_to(client):
    with pytest.raises(ValueError, match="no host or port"):
        client.ready(Node(-1, "", -1))


@pytest.mark.conformance("NWC-07")
def test_an_internal_request_that_no_version_suits_is_a_failed_update(plain, selector, updater):
    make_ready(plain, selector)
    request = message_class(ApiKey.METADATA, "request")(topics=None, allow_auto_topic_creation=False)
    plain.send_internal_metadata_request("0", MessageRequest(request, 3))
    assert len(updater.failures) == 1
    assert isinstance(updater.failures[0], UnsupportedVersion)
    assert plain.in_flight_count() == 0
    assert plain.poll(1) == []


def test_an_internal_requests_answer_goes_to_the_updater_alone(plain, selector, updater):
    make_ready(plain, selector)
    plain.send_internal_metadata_request("0", METADATA)
    selector.answers("0", correlation_of(selector.sends[-1]), metadata_answer())
    assert plain.poll(1) == []
    assert len(updater.answers) == 1
    plain.send_internal_metadata_request("0", METADATA)
    selector.drops("0")
    assert plain.poll(1) == []
    assert updater.failures == [None]


@pytest.mark.conformance("IFR-07")
def test_a_request_that_expects_no_answer_completes_when_it_has_gone_out(plain, selector):
    make_ready(plain, selector)
    first = sends_request(plain)
    assert plain.poll(1) == []
    silent = sends_request(plain, expects_response=False)
    responses = plain.poll(1)
    assert [(r.request, r.body) for r in responses] == [(silent, None)]
    assert plain.in_flight_count() == 1
    selector.answers("0", first.correlation_id, UPDATED)
    assert [r.request for r in plain.poll(1)] == [first]


def test_a_failing_callback_keeps_nobody_from_his_answer(plain, selector, updater, caplog):
    updater.set_nodes([NODE, OTHER])
    make_ready(plain, selector, NODE, OTHER)

    def fails(response):
        raise RuntimeError("mine")

    called = []
    first = sends_request(plain, callback=fails)
    second = sends_request(plain, node=OTHER, callback=called.append)
    selector.answers("0", first.correlation_id, UPDATED)
    selector.answers("1", second.correlation_id, UPDATED)
    responses = plain.poll(1)
    assert {r.request.destination: r.request for r in responses} == {"0": first, "1": second}
    assert [r.request for r in called] == [second]
    assert "mine" in caplog.text


@pytest.mark.conformance("IFR-03")
@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (struct.pack(">i", 4711) + b"\0" + UPDATED, CorrelationIdMismatch),
        (b"\0\0", Truncated),
        (struct.pack(">i", 0) + b"\0" + b"\0", Truncated),
    ],
)
def test_what_is_no_answer_is_an_error_and_the_others_are_answered(plain, selector, updater, payload, error):
    updater.set_nodes([NODE, OTHER])
    make_ready(plain, selector, NODE, OTHER)
    called = []
    first = sends_request(plain, callback=called.append)
    plain.poll(1)
    second = sends_request(plain, callback=called.append)
    other = sends_request(plain, node=OTHER, callback=called.append)
    selector.receives("0", payload)
    selector.answers("1", other.correlation_id, UPDATED)
    plain.poll(1)
    assert {r.request: (type(r.error), r.disconnected) for r in called} == {
        first: (error, True), second: (type(None), True), other: (type(None), False),
    }  # fmt: skip
    assert plain.connection_failed(NODE)


def test_what_is_no_answer_to_the_clients_own_question_ends_the_connection(client, selector, updater):
    make_ready(client, selector)
    client.send_internal_metadata_request("0", UPDATE)
    selector.receives("0", struct.pack(">i", 4711) + UPDATED)
    assert client.poll(1) == []
    assert updater.failures == [None]
    assert client.connection_failed(NODE)


def test_versions_under_another_correlation_id_end_the_connection(client, selector, updater, caplog):
    client.ready(NODE)
    for _ in range(6):
        client.poll(1)
    selector.receives("0", struct.pack(">i", 4711) + versions_answer())
    assert client.poll(1) == []
    assert client.connection_failed(NODE)
    assert updater.disconnects == [("0", None)]
    assert "does not tell its versions" in caplog.text


@pytest.mark.conformance("IFR-04")
def test_a_frame_that_nobody_asked_for_ends_the_connection(plain, selector, caplog):
    make_ready(plain, selector)
    selector.answers("0", 0, UPDATED)
    assert plain.poll(1) == []
    assert plain.connection_failed(NODE)
    assert "nobody has asked for: no request is in flight to node 0" in caplog.text


@pytest.mark.parametrize("taken", [1, 20, 23])
def test_an_answer_to_a_part_of_a_request_counts_and_ends_the_connection(clock, updater, taken):
    client, selector = client_alone(clock, updater)
    make_ready(client, selector)
    selector.takes = taken
    responses = []
    request = client.request("0", UPDATE, responses.append)
    assert 0 < request.send.remaining < request.send.size
    selector.takes = 0  # the node never reads the rest
    selector.answers("0", request.correlation_id, UPDATED)
    client.poll(1)
    assert [response.body is not None for response in responses] == [True]
    assert not client.can_send(NODE)
    with pytest.raises(IllegalState, match="node 0 can take no request now"):
        client.request("0", UPDATE, responses.append)
    client.poll(1)
    assert selector.open == set()
    assert [node_id for node_id, _ in updater.disconnects] == ["0"]
    selector.takes = 2**31
    make_ready(client, selector)
    request = client.request("0", UPDATE, responses.append)
    selector.answers("0", request.correlation_id, UPDATED)
    client.poll(1)
    assert len(responses) == 2
    client.close()


def test_an_answer_before_the_first_byte_of_its_request_is_an_error(clock, updater):
    client, selector = client_alone(clock, updater)
    make_ready(client, selector)
    selector.takes = 0
    responses = []
    request = client.request("0", UPDATE, responses.append)
    selector.answers("0", request.correlation_id, UPDATED)
    client.poll(1)
    (response,) = responses
    assert response.disconnected
    assert "before its request was sent" in response.failure
    client.close()


@pytest.mark.parametrize("begun", [False, True], ids=["whole", "begun"])
def test_an_answer_that_came_with_the_one_before_it_answers_no_later_request(clock, updater, begun):
    """The node may guess the next correlation id."""
    client, selector = client_alone(clock, updater)
    make_ready(client, selector)
    responses = []
    first = client.request("0", UPDATE, responses.append)
    selector.answers("0", first.correlation_id, UPDATED)
    selector.answers("0", first.correlation_id + 1, UPDATED)
    if begun:
        del selector.channels["0"].transport.inbox[-2:]
    client.poll(1)
    assert [response.request for response in responses] == [first]
    with pytest.raises(IllegalState, match="node 0 can take no request now"):
        client.request("0", UPDATE, responses.append)
    client.poll(1)
    assert selector.open == set()
    assert len(responses) == 1
    client.close()


def test_an_ordinary_answer_to_a_sasl_request_breaks_the_protocol(plain, selector):
    make_ready(plain, selector)
    request = ClientRequest("0", UPDATE, FIRST_SASL_CORRELATION_ID, 0, 1000)
    plain.send(request)
    selector.answers("0", 3, UPDATED)
    (response,) = plain.poll(1)
    assert isinstance(response.error, Malformed)
    assert "reserved range" in response.failure


def test_the_header_before_the_body_is_kafkas_and_the_body_is_not_touched(new_client, selector, updater):
    client = new_client(discover_versions=False)
    make_ready(client, selector)
    shared = memoryview(b"shared by many")
    sends_request(client, BodyRequest(ApiKey.UPDATE_METADATA, 8, [b"own", shared]))
    frame = selector.sends[-1].buffers
    assert frame[0] == struct.pack(">ihhih4sB", 4 + 8 + 2 + 4 + 1 + 13, 6, 8, 0, 4, b"mock", 0)
    assert frame[1:] == [b"own", shared]
    assert frame[2] is shared
    old = RequestFramer(None)
    for api_key, version, correlation_id, head in (
        (ApiKey.UPDATE_METADATA, 5, -1, struct.pack(">ihhih", 10, 6, 5, -1, -1)),
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 7, struct.pack(">ihhi", 8, 7, 0, 7)),
    ):
        request = ClientRequest("0", BodyRequest(api_key, version, []), correlation_id, 0, 1000)
        assert old.frame(request, []).buffers == [head]


@pytest.mark.conformance("NWC-34")
def test_correlation_ids_are_distinct_and_outside_the_reserved_range(client):
    ids = [client.next_correlation_id("0") for _ in range(100)]
    assert len(set(ids)) == 100
    assert max(ids) < FIRST_SASL_CORRELATION_ID == 2147483640
    assert client.next_correlation_id("1") == 0  # each node sees its own


@pytest.mark.conformance("NWC-35")
def test_correlation_ids_jump_over_the_reserved_range():
    ids = CorrelationIds(2147483639)
    assert [ids.take() for _ in range(3)] == [2147483639, -2147483648, -2147483647]


# ---- versions --------------------------------------------------------------------------------------------------------


def asks_for_versions(client, selector):
    client.ready(NODE)
    for _ in range(6):
        if not selector.sends:
            client.poll(1)
    assert client.in_flight_count() == 1
    assert header_of(selector.sends[-1])[:2] == (ApiKey.API_VERSIONS, 4)
    assert not client.is_ready(NODE)


@pytest.mark.conformance("NWC-08")
def test_a_node_that_refuses_to_tell_its_versions_is_disconnected(client, selector, updater):
    asks_for_versions(client, selector)
    answer_versions(client, selector, NODE, versions_answer(error=42))
    assert client.in_flight_count() == 0
    assert not client.is_ready(NODE)
    assert client.connection_failed(NODE)
    assert updater.disconnects == [("0", None)]


def test_a_node_whose_versions_cannot_be_read_is_disconnected(client, selector):
    asks_for_versions(client, selector)
    answer_versions(client, selector, NODE, b"\0")
    assert client.connection_failed(NODE)
    assert "0" not in selector.open


@pytest.mark.conformance("NWC-09")
def test_a_node_is_ready_when_it_has_told_its_versions(client, selector):
    asks_for_versions(client, selector)
    answer_versions(client, selector, NODE, versions_answer())
    assert client.in_flight_count() == 0
    assert client.is_ready(NODE)


@pytest.mark.conformance("NWC-11")
@pytest.mark.parametrize("ranges", [[], [(18, -5, -1)]])
def test_a_node_too_old_for_the_question_is_asked_in_version_0(client, selector, ranges):
    asks_for_versions(client, selector)
    answer_versions(client, selector, NODE, versions_answer(error=35, ranges=ranges, version=0))
    assert header_of(selector.sends[-1])[:2] == (ApiKey.API_VERSIONS, 0)
    answer_versions(client, selector, NODE, versions_answer(version=0))
    assert client.is_ready(NODE)


def test_a_node_is_asked_again_in_the_version_that_it_announces(client, selector):
    asks_for_versions(client, selector)
    answer_versions(client, selector, NODE, versions_answer(error=35, ranges=[(18, 0, 2)], version=0))
    assert header_of(selector.sends[-1])[:2] == (ApiKey.API_VERSIONS, 2)
    assert not client.is_ready(NODE)


def test_a_node_that_refuses_every_version_is_given_up(client, selector):
    asks_for_versions(client, selector)
    asked = 1
    while not client.connection_failed(NODE):
        answer_versions(client, selector, NODE, versions_answer(error=35, ranges=[(18, 0, 9)], version=0))
        asked += 1
        assert asked < 10
    assert client.in_flight_count() == 0


@pytest.mark.conformance("NWC-41")
def test_a_request_that_no_version_suits_is_answered_by_the_next_poll_without_io(client, selector):
    make_ready(client, selector, ranges=[(0, 0, 3)])
    called = []
    request = sends_request(client, BodyRequest(ApiKey.PRODUCE, 9, [b"records"]), callback=called.append)
    polls = len(selector.polls)
    responses = client.poll(1)
    assert [r.request for r in responses] == [request]
    assert called == responses
    assert isinstance(responses[0].version_mismatch, NoUsableVersion)
    assert "0 to 3" in str(responses[0].version_mismatch)
    assert len(selector.polls) == polls
    assert client.in_flight_count() == 0


def test_a_request_is_written_in_the_latest_version_that_both_sides_have(client, selector):
    make_ready(client, selector, ranges=[(3, 2, 9), (18, 0, 4)])
    message = message_class(ApiKey.METADATA, "request")(topics=None)
    sends_request(client, MessageRequest(message))
    assert header_of(selector.sends[-1])[:2] == (ApiKey.METADATA, 9)
    client.poll(1)
    sends_request(client, UPDATE)  # which the node did not announce
    (response,) = client.poll(1)
    assert isinstance(response.version_mismatch, NoUsableVersion)
    assert len(selector.sends) == 2


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.conformance("NWC-12")
def test_a_request_that_is_not_answered_in_time_ends_its_connection(plain, selector, updater, clock):
    make_ready(plain, selector)
    first = sends_request(plain, timeout_ms=6000)
    plain.poll(1)
    selector.answers("0", first.correlation_id, UPDATED)
    (answered,) = plain.poll(1)
    assert not answered.disconnected
    assert not answered.timed_out
    assert updater.disconnects == []

    called = []
    late = sends_request(plain, timeout_ms=6000, callback=called.append)
    plain.poll(1)
    clock.sleep(6000)  # the client's own timeout of 1000 ms is for requests that bring none
    assert plain.poll(1) == []
    clock.sleep(1)
    (response,) = plain.poll(1)
    assert response.request is late
    assert response.disconnected
    assert response.timed_out
    assert called == [response]
    assert updater.disconnects == [("0", None)]  # which asks for new metadata
    assert "0" not in selector.open
    assert plain.in_flight_count() == 0
    assert plain.connection_failed(NODE)
    assert plain.connection_delay(NODE) == pytest.approx(10_000, rel=0.2)


@pytest.mark.conformance("NWC-12")
def test_a_request_without_a_timeout_has_the_clients(plain, selector, updater, clock):
    make_ready(plain, selector)
    late = sends_request(plain)
    plain.poll(1)
    clock.sleep(1000)
    assert plain.poll(1) == []
    clock.sleep(1)
    assert [(r.request, r.timed_out) for r in plain.poll(1)] == [(late, True)]
    assert updater.disconnects == [("0", None)]


def test_one_late_request_ends_all_of_its_connection_and_none_of_another(plain, selector, updater, clock):
    updater.set_nodes([NODE, OTHER])
    make_ready(plain, selector, NODE, OTHER)
    late = sends_request(plain, timeout_ms=100)
    plain.poll(0)
    patient = sends_request(plain, timeout_ms=10_000)
    other = sends_request(plain, node=OTHER, timeout_ms=10_000)
    clock.sleep(101)
    assert [(r.request, r.timed_out) for r in plain.poll(0)] == [(late, True), (patient, True)]
    assert plain.in_flight_count() == 1
    clock.sleep(10_000)
    assert [(r.request, r.timed_out) for r in plain.poll(0)] == [(other, True)]


@pytest.mark.conformance("NWC-14")
def test_connecting_ends_when_it_takes_too_long(client, selector, updater, clock):
    updater.set_nodes([NODE, OTHER])
    selector.blocked.update({"0", "1"})
    client.ready(NODE)
    client.ready(OTHER)
    client.poll(0)
    assert not client.connection_failed(NODE)
    assert not client.connection_failed(OTHER)
    clock.sleep(6001)
    client.poll(0)
    assert client.connection_failed(NODE)
    assert client.connection_failed(OTHER)
    assert selector.open == set()
    assert sorted(updater.disconnects) == [("0", None), ("1", None)]


@pytest.mark.conformance("NWC-15")
def test_a_throttled_nodes_requests_have_that_much_longer(client, selector, clock):
    make_ready(client, selector)
    first = sends_request(client, METADATA)
    client.poll(1)
    second = sends_request(client, METADATA)
    selector.answers("0", first.correlation_id, metadata_answer(throttle_ms=1000))
    assert [r.request for r in client.poll(1)] == [first]
    clock.sleep(1000)
    assert client.poll(1) == []
    clock.sleep(1000)
    assert client.poll(1) == []
    assert client.in_flight_count() == 1
    assert not client.connection_failed(NODE)
    clock.sleep(1)
    assert [(r.request, r.timed_out) for r in client.poll(1)] == [(second, True)]


@pytest.mark.conformance("NWC-22")
def test_a_throttled_node_is_not_asked_until_the_throttle_is_over(client, selector, clock):
    make_ready(client, selector)
    request = sends_request(client, METADATA)
    selector.answers("0", request.correlation_id, metadata_answer(throttle_ms=100))
    client.poll(1)
    assert client.least_loaded_node().node is None
    assert not client.is_ready(NODE)
    clock.sleep(99)
    assert client.least_loaded_node().node is None
    clock.sleep(1)
    assert client.least_loaded_node().node == NODE


# ---- connections -----------------------------------------------------------------------------------------------------


@pytest.mark.conformance("NWC-19")
def test_a_connection_counts_as_ready_also_when_it_can_take_no_more(new_client, selector):
    client = new_client(max_in_flight=1)
    make_ready(client, selector)
    assert client.least_loaded_node() == (NODE, True)
    sends_request(client)
    client.poll(1)
    assert client.least_loaded_node() == (None, True)
    with pytest.raises(IllegalState):
        sends_request(client)


@pytest.mark.conformance("NWC-20")
def test_nodes_without_connection_are_tried_in_turn(new_client, updater, clock):
    client = new_client(reconnect_backoff_max_ms=0)
    nodes = [Node(number, "localhost", 9092 + number) for number in range(3)]
    updater.set_nodes(nodes)
    chosen = []
    for _ in range(30):
        node = client.least_loaded_node().node
        chosen.append(node)
        client.ready(node)
        client.disconnect(node.key)
        clock.sleep(5001)
        client.poll(0)
    for at in range(0, 30, 3):
        assert set(chosen[at : at + 3]) == set(nodes)


def test_a_ready_node_is_preferred_to_one_on_its_way_and_that_to_one_that_must_be_connected(client, selector, updater):
    nodes = [Node(number, "localhost", 9092) for number in range(3)]
    updater.set_nodes(nodes)
    assert client.least_loaded_node().node in nodes
    selector.blocked.add("1")
    client.ready(nodes[1])
    assert client.least_loaded_node() == (nodes[1], False)
    make_ready(client, selector, nodes[2])
    assert client.least_loaded_node() == (nodes[2], True)
    sends_request(client, node=nodes[2])
    client.poll(0)
    make_ready(client, selector, nodes[0])
    assert client.least_loaded_node() == (nodes[0], True)
    updater.set_nodes([])
    with pytest.raises(IllegalState, match="no nodes"):
        client.least_loaded_node()


@pytest.mark.conformance("NWC-21")
def test_one_nodes_failed_authentication_keeps_no_other_from_answering(plain, selector, updater):
    updater.set_nodes([NODE, OTHER])
    make_ready(plain, selector, NODE)
    plain.send_internal_metadata_request("0", METADATA)
    plain.poll(0)
    error = selector.failing["1"] = AuthenticationFailed("wrong password")
    plain.ready(OTHER)
    for _ in range(6):
        plain.poll(0)
    assert plain.connection_failed(OTHER)
    assert plain.connection_delay(OTHER) > 0
    assert plain.authentication_error(OTHER) is error
    assert updater.disconnects == [("1", error)]
    selector.answers("0", correlation_of(selector.sends[-1]), metadata_answer())
    plain.poll(0)
    (metadata,) = updater.answers
    assert (list(metadata.brokers), list(metadata.topics), metadata.controller_id) == ([], [], -1)
    assert plain.authentication_error(NODE) is None
    assert plain.is_ready(NODE)
    assert plain.in_flight_count() == 0


@pytest.mark.conformance("NWC-23")
def test_with_constant_backoff_a_node_never_connected_may_be_at_once(new_client):
    assert new_client(reconnect_backoff_max_ms=10_000).connection_delay(NODE) == 0


@pytest.mark.conformance("NWC-26")
def test_a_node_never_connected_may_be_at_once(client):
    assert client.connection_delay(NODE) == 0


@pytest.mark.conformance("NWC-27")
def test_a_ready_node_needs_no_looking_after(client, selector):
    make_ready(client, selector)
    assert client.connection_delay(NODE) == FOREVER


@pytest.mark.conformance("NWC-28")
def test_the_backoff_grows_when_connecting_fails_again(client, selector, clock):
    make_ready(client, selector)
    selector.drops("0")
    client.poll(1)
    first = client.connection_delay(NODE)
    assert first == pytest.approx(10_000, rel=0.2)
    assert not client.ready(NODE)
    assert "0" not in selector.open
    clock.sleep(first)
    assert client.connection_delay(NODE) == 0
    client.ready(NODE)
    selector.drops("0")
    client.poll(1)
    second = client.connection_delay(NODE)
    assert second == pytest.approx(20_000, rel=0.2)
    clock.sleep(second)
    make_ready(client, selector)
    selector.drops("0")
    client.poll(1)
    assert client.connection_delay(NODE) == pytest.approx(10_000, rel=0.2)  # being ready forgets what failed before


@pytest.mark.conformance("NWC-31")
def test_disconnecting_while_versions_are_asked_for_is_seen_by_nobody(client, selector):
    asks_for_versions(client, selector)
    client.disconnect("0")
    assert client.poll(1) == []
    assert client.in_flight_count() == 0


@pytest.mark.conformance("NWC-32", "IFR-01")
def test_disconnecting_gives_the_requests_back_in_order_with_the_next_poll(plain, selector):
    make_ready(plain, selector)
    called = []
    first = sends_request(plain, callback=called.append)
    plain.poll(0)
    second = sends_request(plain, callback=called.append)
    plain.disconnect("0")
    assert called == []
    assert plain.in_flight_count() == 0
    responses = plain.poll(0)
    assert [(r.request, r.disconnected, r.timed_out) for r in responses] == [
        (first, True, False),
        (second, True, False),
    ]
    assert called == responses
    delay = plain.connection_delay(NODE)
    plain.disconnect("0")  # once more: nothing, and the backoff is not renewed
    assert plain.connection_delay(NODE) == delay


def test_a_node_never_seen_cannot_be_disconnected(client):
    with pytest.raises(IllegalState, match="node 77"):
        client.disconnect("77")


def test_closing_a_node_forgets_it_its_requests_and_its_backoff(plain, selector, updater):
    make_ready(plain, selector)
    called = []
    sends_request(plain, callback=called.append)
    plain.poll(0)
    plain.send_internal_metadata_request("0", METADATA)
    plain.close_node("0")
    assert plain.poll(0) == []
    assert called == []
    assert plain.in_flight_count() == 0
    assert updater.failures == [None]
    assert plain.connection_delay(NODE) == 0
    assert not plain.connection_failed(NODE)


def resolving(*answers):
    """A resolver that gives one answer after the other, and what it was asked."""
    asked = []

    def resolve(host):
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    return resolve, asked


SET_A, SET_B = ["10.200.20.100", "10.200.20.101", "10.200.20.102"], ["10.200.30.100", "10.200.30.101"]


def attempts(selector, addresses):
    return [address for _, (address, _) in selector.attempts if address in addresses]


def wait_and_connect(client, clock):
    clock.sleep(client.connection_delay(NODE) + 1)
    client.ready(NODE)
    for _ in range(6):
        client.poll(0)


@pytest.mark.conformance("NWC-36")
def test_after_a_lost_connection_the_host_is_resolved_again(new_client, selector, clock):
    resolve, asked = resolving(SET_A, SET_B)
    client = new_client(resolution=InlineResolution(resolve), discover_versions=False)
    make_ready(client, selector)
    selector.drops("0")
    client.poll(0)
    assert not client.is_ready(NODE)
    wait_and_connect(client, clock)
    assert client.is_ready(NODE)
    assert (len(attempts(selector, SET_A)), len(attempts(selector, SET_B)), len(asked)) == (1, 1, 2)


@pytest.mark.conformance("NWC-37")
def test_after_a_refused_attempt_the_hosts_next_address_is_tried(new_client, selector, clock):
    resolve, asked = resolving(SET_A)
    client = new_client(resolution=InlineResolution(resolve), discover_versions=False)
    selector.refused.add((SET_A[0], NODE.port))
    client.ready(NODE)
    assert client.connection_failed(NODE)
    wait_and_connect(client, clock)
    assert client.is_ready(NODE)
    assert attempts(selector, SET_A) == SET_A[:2]
    assert len(asked) == 1


@pytest.mark.conformance("NWC-38")
def test_after_moving_and_a_refused_attempt_the_new_hosts_next_address_is_tried(new_client, selector, clock):
    resolve, asked = resolving(SET_A, SET_B)
    client = new_client(resolution=InlineResolution(resolve), discover_versions=False)
    make_ready(client, selector)
    selector.drops("0")
    client.poll(0)
    selector.refused.add((SET_B[0], NODE.port))
    wait_and_connect(client, clock)
    assert not client.is_ready(NODE)
    wait_and_connect(client, clock)
    assert client.is_ready(NODE)
    assert (len(attempts(selector, SET_A)), attempts(selector, SET_B), len(asked)) == (1, SET_B, 2)


@pytest.mark.conformance("NWC-39")
def test_closing_a_node_that_is_connecting_disturbs_no_other(client, selector, updater):
    updater.set_nodes([NODE, OTHER])
    selector.blocked.add("0")
    client.ready(NODE)
    client.close_node("0")
    client.poll(0)
    selector.blocked.clear()
    make_ready(client, selector, OTHER)
    make_ready(client, selector, NODE)


# ---- ending ----------------------------------------------------------------------------------------------------------


def test_a_client_that_is_being_closed_takes_nothing_any_more(client, selector, updater, caplog):
    make_ready(client, selector)
    request = client.new_request("0", UPDATE)
    client.initiate_close()
    assert not client.active
    for call in (lambda: client.send(request), lambda: client.poll(0)):
        with pytest.raises(ClientClosed, match="closing"):
            call()
    client.close()
    assert selector.closed
    assert updater.closed
    client.close()
    assert "closed already" in caplog.text
    with pytest.raises(ClientClosed, match="closed"):
        client.poll(0)


@pytest.mark.conformance("IFR-05")
@given(st.lists(st.sampled_from(["send", "silent", "answer", "drop", "connect", "poll", "late"]), max_size=60))
def test_every_request_that_was_taken_ends_exactly_once(script):
    clock = FakeClock()
    client, selector = client_alone(clock, MetadataUpdater([NODE]), request_timeout_ms=1000)
    ended = []
    taken = []
    waiting = []  # what the node has seen and not answered
    for step in [*script, "drop", "poll"]:
        if step in ("send", "silent") and client.is_ready(NODE):
            taken.append(sends_request(client, expects_response=step == "send", callback=ended.append))
            if step == "send":
                waiting.append(taken[-1])
        elif step == "answer" and waiting and "0" in selector.open:
            selector.answers("0", waiting.pop(0).correlation_id, UPDATED)
        elif step == "drop" and "0" in selector.open:
            selector.drops("0")
            waiting.clear()
        elif step == "connect":
            client.ready(NODE)
        elif step == "late":
            clock.sleep(1001)
        client.poll(0)
        if "0" not in selector.open:
            waiting.clear()
    while "0" in selector.open or selector.channel("0"):
        client.poll(0)
    client.poll(0)
    assert sorted(r.request.correlation_id for r in ended) == [r.correlation_id for r in taken]
    assert client.in_flight_count() == 0
    client.close()


def test_a_handshake_that_fails_is_a_failed_authentication_with_its_back_off(client, selector, updater):
    error = selector.failing["0"] = AuthenticationFailed("certificate has expired")
    client.ready(NODE)
    for _ in range(6):
        client.poll(0)
    assert client.authentication_error(NODE) is error
    assert client.connection_failed(NODE)
    assert client.connection_delay(NODE) > 0
    assert updater.disconnects == [("0", error)]
    assert selector.open == set()


def is_no_error(response):
    assert response.body.error_code == 0


@pytest.mark.slow
def test_what_a_request_leaves_behind_needs_no_collector(plain, selector):
    def requests():
        return sum(isinstance(each, ClientRequest) for each in gc.get_objects())

    make_ready(plain, selector)
    gc.collect()
    before = requests()
    gc.disable()
    try:
        for _ in range(20):
            selector.answers("0", plain.request("0", UPDATE, is_no_error).correlation_id, UPDATED)
            for _ in range(4):
                plain.poll(0)
        selector.sends.clear()
        assert plain.in_flight_count() == 0
        assert requests() == before
    finally:
        gc.enable()


def test_a_turn_of_a_thousand_nodes_looks_at_those_that_have_something_to_say(clock, updater, monkeypatch):
    selector = ScriptedSelector(clock)
    nodes = [Node(number, "127.0.0.1", 9092) for number in range(1000)]
    client = NetworkClient(selector, updater, "mock", discover_versions=False, clock=clock)
    for node in nodes:
        client.ready(node)
    client.poll(0)
    assert all(client.is_ready(node) for node in nodes)
    request = sends_request(client, node=nodes[500])
    client.poll(0)
    selector.answers("500", request.correlation_id, UPDATED)
    ready = [(selector.channels["500"].fd, EVENT_READ)]
    monkeypatch.setattr(selector._poller, "_system", type("Ready", (), {"poll": lambda *_: ready, "close": id})())
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        responses = client.poll(0)
    finally:
        sys.setprofile(None)
    assert [r.request for r in responses] == [request]
    assert calls < 100
    monkeypatch.undo()
    client.close()
