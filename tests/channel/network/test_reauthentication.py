"""Sessions end: clients renew them in time on the same connection, servers close connections that do not."""

import select
import struct
import threading

import pytest
from network_peers import SECURITY, BodyRequest, FakeClock, until

from channel.clock import SYSTEM_CLOCK
from channel.config import ChannelConfig
from channel.errors import AuthenticationFailed, Disconnected
from channel.metrics import Metrics
from channel.network import authenticator as authenticators
from channel.network.channel import Phase
from channel.network.client import MetadataUpdater, NetworkClient
from channel.network.frames import Send
from channel.network.node_client import await_ready, send_and_receive
from channel.network.recorder import PcapngRecorder
from channel.network.request import MessageRequest
from channel.network.sasl import SaslClient
from channel.network.secured import client_channels, server_channels
from channel.network.selector import Selector
from channel.network.selector_metrics import SelectorMetrics
from channel.network.server import SocketServer
from channel.network.transport import EVENT_READ
from channel.security import MECHANISMS, Credentials, Password, SecurityConfig
from channel.types import Node, SecurityProtocol
from kproto.api import ApiKey
from kproto.capture import exchanges
from kproto.codec import encode, message_class

LIFETIME_MS = 10_000
GROUP = "test-metrics"
UPDATE = BodyRequest(6, 8, [b"body"])
PROTOCOLS = [SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL]
USERS = {"admin": Password("admin-secret"), "other": Password("other-secret")}


def secured(**more):
    names = (
        "ssl_keystore_key", "ssl_keystore_certificate_chain", "ssl_truststore_certificates",
    )  # fmt: skip
    return SecurityConfig(**{name: getattr(SECURITY, name) for name in names} | more)


def versions(_):
    response = message_class(ApiKey.API_VERSIONS, "response")
    keys = [{"apiKey": int(key), "minVersion": 0, "maxVersion": key.info.max_version} for key in ApiKey]
    return response.from_json({"errorCode": 0, "apiKeys": keys}, 0)


def answer(request):
    request.respond([request.payload[4:8], b"\0\0\0\0"])


class End:
    """One end of the network with a clock and metrics of its own."""

    def __init__(self, clock=None):
        self.clock, self.metrics = clock or FakeClock(), Metrics()

    def counts(self):
        names = ("successful-authentication", "successful-reauthentication", "failed-authentication",
                 "failed-reauthentication")  # fmt: skip
        return [self.metrics.value(GROUP, f"{name}-total") for name in names]


class Serving(End):
    """A server whose clients must renew their sessions."""

    def __init__(self, protocol, lifetime_ms=LIFETIME_MS, delay_ms=0, recorder=None, clock=None, **config):
        super().__init__(clock)
        security = secured(
            sasl_enabled_mechanisms=MECHANISMS,
            users=dict(USERS),
            connections_max_reauth_ms=lifetime_ms,
            connection_failed_authentication_delay_ms=delay_ms,
        )
        self.users = security.users
        self.server = SocketServer(
            "test",
            config=ChannelConfig(security=security, **config),
            clock=self.clock,
            metrics=SelectorMetrics(self.metrics, "test"),
            recorder=recorder,
            channel_builder=server_channels(protocol, security, versions),
        )
        self.listener = self.server.listen(lambda request: self.handler(request), name=protocol.name)
        self.handler = answer

    def authenticator(self):
        (channel,) = self.server.selector.channels.values()
        return channel.authenticator


class Asking(End):
    """A client of one node."""

    def __init__(self, protocol, port, mechanism="SCRAM-SHA-256", password="admin-secret", recorder=None, **settings):
        super().__init__()
        security = secured(sasl_mechanism=mechanism, sasl_username="admin", sasl_password=Password(password))
        self.node = Node(1, "localhost", port)
        self.selector = Selector(
            clock=self.clock,
            metrics=SelectorMetrics(self.metrics, "test"),
            channel_builder=client_channels(protocol, security, "1"),
            recorder=recorder,
        )
        self.client = NetworkClient(
            self.selector,
            MetadataUpdater([self.node]),
            "1",
            **{"discover_versions": False, "clock": self.clock, "reconnect_backoff_ms": 0,
               "reconnect_backoff_max_ms": 0, **settings},
        )  # fmt: skip

    def ask(self):
        assert await_ready(self.client, self.node, 10_000)
        return send_and_receive(self.client, self.client.new_request("1", UPDATE))

    def authenticator(self):
        return self.selector.channels["1"].authenticator


@pytest.fixture(params=PROTOCOLS, ids=lambda each: each.name)
def protocol(request):
    return request.param


@pytest.fixture
def serve(protocol):
    made = []

    def make(**settings):
        serving = Serving(protocol, **settings)
        serving.server.start()
        made.append(serving)
        return serving

    yield make
    for serving in made:
        serving.server.close()


@pytest.fixture
def ask(protocol):
    made = []

    def make(serving, **settings):
        asking = Asking(protocol, serving.listener.port, **settings)
        made.append(asking)
        return asking

    yield make
    for asking in made:
        asking.client.close()


# ---- the client ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_session_is_renewed_on_its_connection_before_the_next_request(serve, ask, mechanism):
    serving = serve()
    asking = ask(serving, mechanism=mechanism)
    asking.ask()
    before = set(serving.listener.connections)
    for renewals in range(1, 4):
        for end in (serving, asking):
            end.clock.sleep(LIFETIME_MS * 0.95)
        asking.ask()
        asking.ask()
        assert asking.counts() == serving.counts() == [1, renewals, 0, 0]
    assert set(serving.listener.connections) == before
    assert asking.metrics.value(GROUP, "reauthentication-latency-max") >= 0
    assert serving.metrics.value(GROUP, "successful-authentication-no-reauth-total") == 0


@pytest.mark.parametrize(("chance", "share"), [(0.0, 0.85), (0.5, 0.9), (1.0, 0.95)])
def test_it_is_due_at_85_to_95_percent_of_the_lifetime(serve, ask, monkeypatch, chance, share):
    monkeypatch.setattr(authenticators.random, "random", lambda: chance)
    serving = serve()
    asking = ask(serving)
    asking.ask()
    asking.clock.sleep(LIFETIME_MS * share - 1)
    asking.ask()
    assert asking.counts() == [1, 0, 0, 0]
    asking.clock.sleep(1)
    asking.ask()
    assert asking.counts() == [1, 1, 0, 0]


def test_a_connection_without_requests_renews_nothing_and_may_do_so_after_the_sessions_end(serve, ask):
    serving = serve()
    asking = ask(serving)
    asking.ask()
    for end in (serving, asking):
        end.clock.sleep(5 * LIFETIME_MS)
    for _ in range(5):
        asking.client.poll(1)
    assert asking.counts() == [1, 0, 0, 0]
    asking.ask()
    assert asking.counts() == serving.counts() == [1, 1, 0, 0]


def test_a_negative_lifetime_is_no_limit():
    client = SaslClient("PLAIN", Credentials("admin", Password("admin-secret")), "1")
    authenticator = authenticators.SaslAuthenticator(None, client)
    for lifetime_ms, renews in ((LIFETIME_MS, True), (-1, False)):
        client.session_lifetime_ms = lifetime_ms
        authenticator.renewing = True
        authenticator.begin_session(1)
        assert (authenticator.renews_ns != 0) == renews


def test_without_a_limit_nothing_is_ever_renewed(serve, ask):
    serving = serve(lifetime_ms=0)
    asking = ask(serving)
    for _ in range(3):
        asking.ask()
        for end in (serving, asking):
            end.clock.sleep(500_000)
    assert asking.counts() == serving.counts() == [1, 0, 0, 0]


@pytest.mark.parametrize("discovers", [False, True])
def test_answers_in_flight_arrive_while_the_next_request_waits(serve, ask, discovers):
    serving, held, answered = serve(), [], []

    def hold(request):
        if request.payload[:2] == b"\0\x12":
            request.respond([request.payload[4:8], VERSIONS_BODY])
        elif held:
            answer(request)
        else:
            held.append(request)

    serving.handler = hold
    asking = ask(serving, discover_versions=discovers)
    assert await_ready(asking.client, asking.node, 10_000)
    connection = asking.selector.channels["1"].connection

    def callback(response):
        answered.append((response.request.correlation_id, connection.phase))

    first = asking.client.new_request("1", UPDATE, callback=callback)
    asking.client.send(first)
    until(lambda: held, step=lambda: asking.client.poll(10))
    asking.clock.sleep(LIFETIME_MS)
    second = asking.client.new_request("1", UPDATE, callback=callback)
    asking.client.send(second)
    for _ in range(5):
        asking.client.poll(5)
    assert connection.phase is Phase.REAUTHENTICATING
    assert not asking.client.is_ready(asking.node)
    assert list(connection.in_flight.requests) == [first, second]
    assert second.send.remaining == second.send.size  # not a byte of it has gone out
    answer(held[0])
    ready = []

    def step():
        asking.client.poll(10)
        ready.extend(asking.client.newly_ready)

    until(lambda: len(answered) == 2, step=step)
    assert answered == [(first.correlation_id, Phase.REAUTHENTICATING), (second.correlation_id, Phase.READY)]
    assert ready == ["1"]
    assert asking.counts() == [1, 1, 0, 0]


VERSIONS_BODY = struct.pack(">hB", 0, 2) + struct.pack(">hhhB", 6, 0, 8, 0) + struct.pack(">iB", 0, 0)


def test_requests_of_another_thread_pass_in_order_whenever_sessions_end(serve, ask, monkeypatch):
    """Written at once on the sending thread, while the client's own thread reads."""
    monkeypatch.setattr(authenticators, "_RENEWALS_APART_NS", 0)
    serving = serve()
    asking = ask(serving, max_in_flight=1)
    assert await_ready(asking.client, asking.node, 10_000)
    answered, turn = [], threading.Semaphore(0)

    def callback(response):
        answered.append((response.request.correlation_id, response.disconnected))
        turn.release()

    def sends():
        for number in range(200):
            if number % 3 == 0:
                asking.clock.sleep(LIFETIME_MS)
            asking.client.request("1", UPDATE, callback)
            assert turn.acquire(timeout=30)

    sending = threading.Thread(target=sends)
    sending.start()
    until(lambda: len(answered) == 200, step=lambda: asking.client.poll(1000))
    sending.join()
    assert answered == [(number, False) for number in range(200)]
    assert asking.counts() == [1, 67, 0, 0]


def test_a_server_that_does_not_answer_the_renewal_is_given_up_with_the_request_that_waits(serve, ask):
    serving, held = serve(), []
    serving.handler = held.append
    asking = ask(serving, request_timeout_ms=1000, max_in_flight=2)
    assert await_ready(asking.client, asking.node, 10_000)
    answers = []
    for timeout_ms in (100_000, 1000):
        request = asking.client.new_request("1", UPDATE, callback=answers.append, timeout_ms=timeout_ms)
        asking.client.send(request)
        until(lambda: held, step=lambda: asking.client.poll(10))
        asking.clock.sleep(LIFETIME_MS)
    until(lambda: len(answers) == 2, step=lambda: asking.client.poll(10))
    assert [(a.disconnected, a.timed_out) for a in answers] == [(True, True)] * 2


# ---- the server ------------------------------------------------------------------------------------------------------


def test_a_request_after_the_sessions_end_closes_the_connection_and_is_not_served(serve, ask):
    serving = serve()
    asking = ask(serving)
    asking.ask()
    served = []
    serving.handler = served.append
    asking.authenticator().renews_ns = 0
    serving.clock.sleep(LIFETIME_MS)
    request = asking.client.new_request("1", UPDATE)
    serving.clock.sleep(1)
    with pytest.raises(Disconnected):
        send_and_receive(asking.client, request)
    assert serving.metrics.value(GROUP, "expired-connections-killed-count") == 1
    until(lambda: not serving.listener.connections)
    assert served == []
    serving.handler = answer
    asking.ask()  # over a new connection
    assert serving.counts() == [2, 0, 0, 0]


@pytest.mark.parametrize("change", ["user", "mechanism", "password"])
def test_a_renewal_by_another_user_or_mechanism_or_a_wrong_password_ends_the_connection(serve, ask, change, caplog):
    caplog.set_level("DEBUG")
    serving = serve()
    asking = ask(serving)
    asking.ask()
    side = asking.authenticator()._side
    if change == "user":
        side._credentials = Credentials("other", USERS["other"])
        reason = "the session is that of user 'admin'; user 'other' cannot renew it"
    elif change == "mechanism":
        side._mechanism = "PLAIN"
        reason = "the session began with SCRAM-SHA-256; PLAIN cannot renew it"
    else:
        serving.users["admin"] = Password("changed-secret")
        reason = "invalid username or password"
    asking.clock.sleep(LIFETIME_MS)
    request = asking.client.new_request("1", UPDATE)
    with pytest.raises(Disconnected):
        send_and_receive(asking.client, request)
    error = asking.client.authentication_error(asking.node)
    assert reason in str(error)
    assert asking.counts() == serving.counts() == [1, 0, 0, 1]
    assert "secret" not in caplog.text
    assert "secret" not in repr([asking.selector.channels, serving.server.selector.channels, side, error])


def test_sessions_are_renewed_once_in_a_second(serve, ask):
    serving = serve()
    asking = ask(serving)
    asking.ask()
    asking.clock.sleep(LIFETIME_MS)
    asking.ask()
    serving.clock.sleep(999)
    asking.clock.sleep(LIFETIME_MS)
    with pytest.raises(Disconnected):
        asking.ask()
    assert "ILLEGAL_SASL_STATE" in str(asking.client.authentication_error(asking.node))
    assert serving.counts() == [1, 1, 0, 0]  # to the server that was a request like another
    until(lambda: asking.client.ready(asking.node), step=lambda: asking.client.poll(10), what="a new connection")
    asking.ask()
    serving.clock.sleep(1000)
    asking.clock.sleep(LIFETIME_MS)
    asking.ask()
    assert serving.counts() == [2, 2, 0, 0]


def test_sasl_requests_out_of_turn_are_answered_and_the_session_goes_on(serve, ask):
    serving = serve()
    asking = ask(serving, mechanism="PLAIN")
    asking.ask()
    token = b"\0admin\0admin-secret"
    request = asking.client.new_request("1", BodyRequest(36, 1, [struct.pack(">i", len(token)), token]))
    response = send_and_receive(asking.client, request)
    assert response.body.error_code == 34  # ILLEGAL_SASL_STATE
    asking.ask()
    assert serving.counts() == [1, 0, 0, 0]


def test_a_request_in_the_middle_of_a_renewal_is_not_served(serve, ask):
    serving = serve()
    asking = ask(serving)
    asking.ask()
    served = []
    serving.handler = served.append
    handshake = struct.pack(">hhih", 17, 1, 7, -1) + struct.pack(">h", 13) + b"SCRAM-SHA-256"
    update = struct.pack(">hhihB", 6, 8, 8, -1, 0) + b"body"
    frames = [struct.pack(">i", len(each)) + each for each in (handshake, update)]
    asking.selector.send(Send("1", frames))
    until(lambda: asking.selector.disconnected, step=lambda: asking.selector.poll(100))
    assert served == []
    assert serving.counts() == [1, 0, 0, 1]


def test_the_byte_budget_gets_the_bytes_of_renewals_back(serve, ask):
    serving = serve(queued_max_request_bytes=100_000, socket_request_max_bytes=100_000)
    asking = ask(serving)
    for _ in range(3):
        asking.ask()
        for end in (serving, asking):
            end.clock.sleep(LIFETIME_MS * 0.99)
    asking.ask()
    assert asking.counts() == [1, 3, 0, 0]
    until(lambda: serving.server.selector._reader.pool.available == 100_000)


def test_a_renewal_counts_from_its_arrival_and_not_from_the_beginning_of_a_poll(serve, ask):
    """A server's poll may look at a channel without an event, and find bytes that came after the poll's beginning."""
    serving = serve()
    asking = ask(serving)
    selector = serving.server.selector

    def renew():
        (channel,) = selector.channels.values()
        began = serving.clock.nanoseconds()
        for end in (serving, asking):
            end.clock.sleep(LIFETIME_MS * 0.99)
        request = asking.client.new_request("1", UPDATE)
        asking.client.send(request)
        near = channel.transport._sock
        until(
            lambda: select.select([near], [], [], 0)[0],
            step=lambda: asking.client.poll(1),
            what="the renewal's first frame",
        )
        selector._process(channel, EVENT_READ, began)

    asking.ask()
    for end in (serving, asking):
        end.clock.sleep(LIFETIME_MS * 0.99)
    asking.ask()
    serving.server.call(renew)
    until(lambda: not asking.client.in_flight_count(), step=lambda: asking.client.poll(10))
    assert asking.counts() == [1, 2, 0, 0]


def test_connections_are_counted_by_cipher_and_tls_version(protocol, serve, ask):
    def ciphers(end):
        named = [dict(name.tags) for name in end.metrics.names() if name.name == "connections"]
        return [
            (tags["cipher"], tags["protocol"], end.metrics.value(GROUP, "connections", tags))
            for tags in named
            if "cipher" in tags
        ]

    serving = serve()
    asking = ask(serving)
    asking.ask()
    open_now = [("TLS_AES_256_GCM_SHA384", "TLSv1.3", 1)] if protocol.uses_tls else []
    assert ciphers(serving) == ciphers(asking) == open_now
    asking.client.disconnect("1")
    closed = [(cipher, version, 0) for cipher, version, _ in open_now]
    assert ciphers(asking) == closed
    until(lambda: ciphers(serving) == closed)


def test_throttle_times_are_averaged_and_the_longest_is_kept(serve, ask):
    times = iter([40, 0])

    def throttle(request):
        response = message_class(ApiKey.METADATA, "response")(throttle_time_ms=next(times), controller_id=1)
        request.respond([request.payload[4:8], encode(response, 4)])

    serving = serve()
    serving.handler = throttle
    asking = ask(serving)
    question = MessageRequest(message_class(ApiKey.METADATA, "request")(), 4)
    for _ in range(2):
        assert await_ready(asking.client, asking.node, 10_000)
        send_and_receive(asking.client, asking.client.new_request("1", question))
    assert asking.metrics.value(GROUP, "throttle-time-avg") == 20
    assert asking.metrics.value(GROUP, "throttle-time-max") == 40


def test_a_paused_listener_renews_when_it_goes_on(serve, ask):
    serving = serve()
    asking = ask(serving)
    asking.ask()
    serving.listener.pause()
    asking.clock.sleep(LIFETIME_MS)
    request = asking.client.new_request("1", UPDATE)
    asking.client.send(request)
    for _ in range(5):
        asking.client.poll(5)
    assert serving.counts() == [1, 0, 0, 0]
    serving.listener.resume()
    until(lambda: request.send.completed and not asking.client.in_flight_count(), step=lambda: asking.client.poll(10))
    assert serving.counts() == [1, 1, 0, 0]


def test_what_renews_a_session_is_not_recorded(serve, ask, tmp_path):
    here, there = tmp_path / "client.pcapng", tmp_path / "server.pcapng"
    with PcapngRecorder(here) as ours, PcapngRecorder(there) as theirs:
        serving = serve(recorder=theirs)
        asking = ask(serving, mechanism="PLAIN", recorder=ours)
        for _ in range(3):
            asking.ask()
            for end in (serving, asking):
                end.clock.sleep(LIFETIME_MS)
        assert asking.counts() == [1, 2, 0, 0]
        asking.client.close()
        until(lambda: not serving.listener.connections)
    for path in (here, there):
        assert [e.request.correlation_id for e in exchanges(path)] == [0, 1, 2]
        assert b"secret" not in path.read_bytes()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_part_of_a_session_shows_a_secret(serve, ask, mechanism, caplog):
    caplog.set_level(0)
    serving = serve()
    asking = ask(serving, mechanism=mechanism)
    asking.ask()
    asking.clock.sleep(LIFETIME_MS)
    asking.ask()
    shown = []
    for end in (asking, serving):
        authenticator = end.authenticator()
        side = authenticator._side
        shown += [authenticator, side, *vars(side).values()]
    shown += [asking.selector.channels, serving.server.selector.channels, asking.client.new_request("1", UPDATE)]
    serving.users["admin"] = Password("changed-secret")
    serving.clock.sleep(2000)
    asking.clock.sleep(LIFETIME_MS)
    with pytest.raises(Disconnected) as caught:
        asking.ask()
    shown += [caught.value, asking.client.authentication_error(asking.node), asking.metrics.read()]
    users = serving.users
    assert "secret" not in f"{[repr(each) for each in shown if each is not users]} {users!r} {caplog.text}"


# ---- delayed closes --------------------------------------------------------------------------------------------------

DELAY_MS = 5000


@pytest.fixture
def delaying(serve):
    return serve(delay_ms=DELAY_MS)


def refused_client(ask, serving):
    """A client whose password the server has found wrong, and has not said so yet."""
    asking = ask(serving, password="guessed-secret")
    asking.client.ready(asking.node)

    before = serving.metrics.value(GROUP, "failed-authentication-total")

    def step():
        asking.client.poll(1)
        assert refusal(asking) is None

    until(lambda: serving.metrics.value(GROUP, "failed-authentication-total") > before, step=step)
    return asking


def refusal(asking):
    return asking.client.authentication_error(asking.node)


def test_a_refused_client_is_told_after_the_delay_and_others_are_served_meanwhile(delaying, ask):
    refused = refused_client(ask, delaying)
    good = ask(delaying)
    delaying.clock.sleep(DELAY_MS - 1)
    for _ in range(3):
        good.ask()
        refused.client.poll(1)
        assert refusal(refused) is None
    assert len(delaying.listener.connections) == 2
    delaying.clock.sleep(1)
    delaying.server.selector.wakeup()
    until(lambda: refusal(refused), step=lambda: refused.client.poll(10))
    assert "invalid username or password" in str(refusal(refused))
    until(lambda: len(delaying.listener.connections) == 1)
    good.ask()
    assert delaying.counts() == [1, 0, 1, 0]


def test_the_delay_is_waited_for_and_not_polled_for():
    """Nothing else happens on the server: its thread must wake by itself when the delay is over."""
    serving = Serving(SecurityProtocol.SASL_PLAINTEXT, clock=SYSTEM_CLOCK, delay_ms=50)
    with serving.server:
        asking = Asking(SecurityProtocol.SASL_PLAINTEXT, serving.listener.port, password="guessed")
        polls = serving.server.selector._polls.selects
        with pytest.raises(AuthenticationFailed, match="invalid username or password"):
            asking.ask()
        assert polls.value < 30
        asking.client.close()


def test_a_server_that_ends_waits_for_no_delay(delaying, ask):
    refused = refused_client(ask, delaying)
    delaying.server.close()
    until(lambda: refused.client.connection_failed(refused.node), step=lambda: refused.client.poll(10))


def test_a_refused_client_that_leaves_or_sends_on_costs_nothing(delaying, ask):
    leaving, sending = refused_client(ask, delaying), refused_client(ask, delaying)
    leaving.client.disconnect("1")
    transport = sending.selector.channels["1"].transport
    for _ in range(100):
        transport.write([bytes(1000)])
    polls = delaying.server.selector._polls.selects
    before = polls.value
    ask(delaying).ask()
    assert polls.value - before < 50  # bytes of a refused client wake nobody
    delaying.clock.sleep(DELAY_MS)
    delaying.server.selector.wakeup()
    until(lambda: len(delaying.listener.connections) == 1)


def test_a_refused_renewal_is_told_after_the_delay_too(delaying, ask):
    asking = ask(delaying)
    asking.ask()
    delaying.users["admin"] = Password("changed-secret")
    asking.clock.sleep(LIFETIME_MS)
    asking.client.send(asking.client.new_request("1", UPDATE))

    def step():
        asking.client.poll(5)

    until(lambda: delaying.metrics.value(GROUP, "failed-reauthentication-total"), step=step)
    asking.client.poll(5)
    assert asking.authenticator().renewing
    delaying.clock.sleep(DELAY_MS)
    delaying.server.selector.wakeup()
    until(lambda: refusal(asking), step=step)
