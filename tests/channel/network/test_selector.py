"""The selector over real sockets: order, limits, muting, expiry, closing, and what it counts."""

import select
import socket
import struct
import threading
import time

import pytest
from network_peers import TRANSPORTS, EchoServer, cipher_builder, until

from channel.clock import SYSTEM_CLOCK
from channel.errors import AuthenticationFailed, IllegalState
from channel.metrics import Metrics
from channel.network.channel import ChannelState
from channel.network.frames import MemoryPool, Send
from channel.network.selector import Closing, Deadlines, Selector
from channel.network.selector_metrics import SelectorMetrics
from channel.network.tls import TlsTransport
from channel.network.transport import EVENT_READ, EVENT_WRITE, PlaintextTransport

GROUP = "test-metrics"
BUFFER = 4096
IDLE_MS = 5000


@pytest.fixture
def server(habits):
    with EchoServer(tls=habits.get("tls", False)) as server:
        yield server


@pytest.fixture
def plain_server():
    with EchoServer() as server:
        yield server


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture(params=TRANSPORTS)
def habits(request):
    """The kinds of transports that the rows run over."""
    return TRANSPORTS[request.param]


@pytest.fixture
def selector(clock, metrics, habits):
    made = Selector(
        max_idle_ms=IDLE_MS,
        clock=clock,
        metrics=SelectorMetrics(metrics, "test"),
        channel_builder=cipher_builder(**habits),
    )
    yield made
    made.close()


def connect(selector, server, *ids):
    """Connect and wait until the connections stand."""
    for each in ids:
        selector.connect(each, server.address, BUFFER, BUFFER)
    waiting = set(ids)

    def step():
        selector.poll(1000)
        waiting.difference_update(selector.prepared)

    until(lambda: not waiting, step=step, what="connecting")


def send(selector, channel_id, payload):
    selector.send(Send.framed(channel_id, [payload]))


def echo(selector, channel_id, payload):
    """Send, and wait for the answer; nothing else may happen."""
    send(selector, channel_id, payload)
    return receive(selector, channel_id)


def receive(selector, channel_id):
    found = []

    def step():
        selector.poll(1000)
        assert not selector.disconnected
        found.extend(bytes(r.payload) for r in selector.completed_receives if r.source == channel_id)

    until(lambda: found, step=step, what="an answer")
    assert len(found) == 1
    return found[0]


def pending_answers(selector, channel_id, count):
    """Send ``count`` requests on a muted channel, so that their answers stay unread; return the channel."""
    selector.mute(channel_id)
    for number in range(count):
        send(selector, channel_id, b"%d" % number)
        selector.clear()
        until(lambda: selector.completed_sends, step=lambda: selector.poll(1000), what="sending")
    channel = selector.channels.get(channel_id)
    wanted = sum(4 + len(b"%d" % number) for number in range(count))
    until(lambda: arrived(channel.transport) >= wanted, what="the answers' arrival")
    selector.unmute(channel_id)
    return channel


def arrived(transport):
    """How many bytes of payload wait to be read, in the transport or in the socket."""
    waiting = peek(transport._sock)
    if not isinstance(transport, TlsTransport):
        return len(transport._in) + len(waiting)
    payload = 0
    while waiting:  # a record: type, version, length, then payload with its type and a tag of 16 bytes
        size = int.from_bytes(waiting[3:5], "big")
        payload += size - 17
        waiting = waiting[5 + size :]
    return payload


def peek(sock):
    try:
        return sock.recv(1 << 20, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


@pytest.mark.conformance("SEL-02")
def test_a_second_send_before_the_first_has_gone_out_closes_the_connection(selector, server):
    connect(selector, server, "0")
    send(selector, "0", b"test1")
    with pytest.raises(IllegalState, match="has not gone out"):
        send(selector, "0", b"test2")
    selector.poll(0)
    assert selector.disconnected["0"].state is ChannelState.FAILED_SEND
    assert selector.channels.get("0") is None
    selector.poll(0)
    assert not selector.disconnected


@pytest.mark.conformance("SEL-03")
def test_nothing_can_be_sent_without_a_connection(selector):
    with pytest.raises(IllegalState, match="no connection 0"):
        send(selector, "0", b"test")


@pytest.mark.conformance("SEL-04")
def test_a_name_is_no_address(selector):
    with pytest.raises(OSError, match=r"not known|not supported|resolution"):
        selector.connect("0", ("some.invalid.hostname.foo.bar.local", 1234))
    assert not selector.channels


@pytest.mark.conformance("SEL-05")
def test_a_refused_connection_was_never_connected(selector):
    with socket.socket() as sock:  # bound, but not listening: nobody else can take the port
        sock.bind(("127.0.0.1", 0))
        selector.connect("0", sock.getsockname())
        until(lambda: selector.disconnected, step=lambda: selector.poll(1000), what="the refusal")
    assert selector.disconnected["0"].state is ChannelState.NOT_CONNECTED
    assert not selector.connected


@pytest.mark.conformance("SEL-06")
def test_requests_of_many_connections_are_answered_in_order(selector, server, metrics, habits):
    ids, each = [str(number) for number in range(5)], 500
    connect(selector, server, *ids)
    sent = dict.fromkeys(ids, 0)
    received = dict.fromkeys(ids, 0)
    for channel_id in ids:
        send(selector, channel_id, f"{channel_id}-0".encode())
        sent[channel_id] = 1
    while any(count < each for count in received.values()):
        selector.poll(10_000)
        assert not selector.disconnected
        sources = [answer.source for answer in selector.completed_receives]
        assert len(sources) == len(set(sources))  # one frame of a connection a poll
        for answer in selector.completed_receives:
            assert bytes(answer.payload) == f"{answer.source}-{received[answer.source]}".encode()
            received[answer.source] += 1
        for done in selector.completed_sends:
            channel_id = done.destination
            if sent[channel_id] < each:
                send(selector, channel_id, f"{channel_id}-{sent[channel_id]}".encode())
                sent[channel_id] += 1
    assert set(sent.values()) == set(received.values()) == {each}
    assert [metrics.value(GROUP, f"{name}-total") for name in ("request", "response")] == [5 * each] * 2
    moved = sum(4 + len(f"{channel_id}-{number}") for channel_id in ids for number in range(each))
    assert [metrics.value(GROUP, f"{name}-byte-total") for name in ("outgoing", "incoming")] == [moved] * 2
    assert metrics.value(GROUP, "connection-count") == 5
    ciphers = [metrics.value(GROUP, n.name, dict(n.tags)) for n in metrics.names() if "cipher" in dict(n.tags)]
    assert ciphers == ([5] if habits.get("tls") else [])  # only TLS has a cipher


def test_frames_that_arrived_together_are_given_one_a_poll_without_a_wait_between(server, clock, habits):
    class Recording:
        """The system's poller, with the timeouts that it was asked to wait."""

        def __init__(self):
            self.epoll, self.timeouts = select.epoll(), []
            self.register, self.modify = self.epoll.register, self.epoll.modify
            self.unregister, self.close = self.epoll.unregister, self.epoll.close

        def poll(self, timeout=None):
            self.timeouts.append(timeout)
            return self.epoll.poll(timeout)

    system = Recording()
    selector = Selector(max_idle_ms=IDLE_MS, clock=clock, system=system, channel_builder=cipher_builder(**habits))
    connect(selector, server, "0")
    pending_answers(selector, "0", 5)
    received = [receive(selector, "0")]
    while len(received) < 5:
        selector.poll(1000)
        assert system.timeouts[-1] == 0
        received += [bytes(r.payload) for r in selector.completed_receives]
    assert received == [b"%d" % number for number in range(5)]
    selector.close()


@pytest.mark.conformance("SEL-07")
def test_a_frame_larger_than_the_sockets_buffers_passes(selector, server):
    connect(selector, server, "0")
    payload = bytes(range(256)) * 160
    assert echo(selector, "0", payload) == payload


@pytest.mark.conformance("SEL-08")
def test_bytes_are_counted_as_they_move_and_frames_when_they_are_whole(selector, server, metrics):
    connect(selector, server, "0")
    payload = bytes(81920)
    outgoing = Send.framed("0", [payload])
    selector.send(outgoing)
    channel = selector.channels.get("0")
    whole = None
    while whole is None:
        assert metrics.value(GROUP, "outgoing-byte-total") == outgoing.size - outgoing.remaining
        started = channel.connection.reader.bytes_read
        assert metrics.value(GROUP, "incoming-byte-total") == started
        assert metrics.value(GROUP, "request-total") == outgoing.completed
        selector.poll(1000)
        whole = selector.completed_receives[0] if selector.completed_receives else None
    assert metrics.value(GROUP, "outgoing-byte-total") == metrics.value(GROUP, "incoming-byte-total") == 81924
    assert metrics.value(GROUP, "request-total") == metrics.value(GROUP, "response-total") == 1
    assert metrics.value(GROUP, "request-size-max") == 81924


@pytest.mark.conformance("SEL-10")
def test_an_empty_frame_passes(selector, server):
    connect(selector, server, "0")
    assert echo(selector, "0", b"") == b""


@pytest.mark.conformance("SEL-11")
def test_results_are_dropped_when_they_are_cleared(selector, server):
    connect(selector, server, "0")
    send(selector, "0", bytes(1024))
    sends = receives = 0

    def step():
        nonlocal sends, receives
        selector.poll(1000)
        sends += len(selector.completed_sends)
        receives += len(selector.completed_receives)
        selector.clear()
        assert not selector.completed_sends
        assert not selector.completed_receives

    until(lambda: sends and receives, step=step)
    assert (sends, receives) == (1, 1)


@pytest.mark.conformance("SEL-12")
def test_a_name_is_given_to_one_connection(selector, server):
    connect(selector, server, "0")
    with pytest.raises(IllegalState, match="a connection 0 already"):
        selector.connect("0", server.address)
    assert echo(selector, "0", b"still there") == b"still there"


@pytest.mark.conformance("SEL-14", "SEL-31")
def test_closing_goes_on_over_a_failure_and_then_raises_it(clock, server, metrics):
    selector = Selector(clock=clock, metrics=SelectorMetrics(metrics, "test"))
    connect(selector, server, "0", "1")
    first, second = selector.channels.get("0"), selector.channels.get("1")
    really = first.transport
    first.transport = FailingClose(really)
    with pytest.raises(RuntimeError, match="at closing"):
        selector.close()
    assert first.closed
    assert second.closed
    assert not selector.channels
    assert [(name.name, value) for name, value in metrics.read().items()] == [("connection-count", 0)]
    really.close()


class FailingClose:
    """A transport that cannot be closed."""

    def __init__(self, transport):
        self._transport = transport

    def __getattr__(self, name):
        return getattr(self._transport, name)

    def close(self):
        raise RuntimeError("at closing")


@pytest.fixture
def connects_at_once(monkeypatch):
    """Connecting is over when it returns, as it may be on one host."""

    def connect(sock, target):
        sock.setblocking(True)
        super(socket.socket, sock).connect(target)
        sock.setblocking(False)

    monkeypatch.setattr(socket.socket, "connect", connect, raising=False)


@pytest.mark.conformance("SEL-18")
@pytest.mark.usefixtures("connects_at_once")
@pytest.mark.parametrize("poll_first", [True, False])
def test_a_connection_that_stands_at_once_is_told_by_the_next_poll_and_leaves_nothing(selector, server, poll_first):
    selector.connect("0", server.address)
    assert selector._immediate
    if poll_first:
        selector.poll(10_000)
        assert selector.connected == ["0"]
        assert not selector._immediate
        until(lambda: selector.channels["0"].connection.usable, step=lambda: selector.poll(1000))
        assert echo(selector, "0", b"works") == b"works"
    selector.close_channel("0")
    assert_empty(selector)


def assert_empty(selector):
    assert not selector.channels
    assert not selector._immediate
    assert not selector.closing
    assert not selector._reader.buffered
    assert not selector.connected
    assert not selector.disconnected
    assert not selector._poller.channels
    assert list(selector._poller.callbacks) == [selector._waker.fileno()]


@pytest.mark.conformance("SEL-19")
@pytest.mark.usefixtures("connects_at_once")
@pytest.mark.parametrize("error", [OSError("no memory for it"), KeyError("cancelled")])
@pytest.mark.parametrize("how", ["connect", "register"])
def test_a_connection_that_cannot_be_registered_leaves_nothing(selector, server, monkeypatch, error, how):
    """The system knows its descriptor already, and must not go on watching it for whoever gets the number next."""

    class Refusing(Deadlines):
        def add(self, channel, now):
            assert selector._poller.channels
            raise error

    monkeypatch.setattr(selector._expiry, "idle", Refusing(IDLE_MS))
    client, accepted = accepted_pair()
    begin = {
        "connect": lambda: selector.connect("x", server.address),
        "register": lambda: selector.register("x", accepted),
    }
    with client, accepted, pytest.raises(type(error)):
        begin[how]()
    monkeypatch.undo()
    assert_empty(selector)
    connect(selector, server, "x")  # most likely with the same descriptor
    assert echo(selector, "x", b"works") == b"works"


@pytest.mark.conformance("SEL-21")
@pytest.mark.parametrize("closed_by_server", [False, True])
def test_an_idle_connection_expires_also_with_answers_unread(selector, server, clock, closed_by_server):
    connect(selector, server, "0")
    channel = pending_answers(selector, "0", 5)
    if closed_by_server:
        server.close_connections()
    selector.mute("0")  # nothing is read, so that nothing counts as use
    clock.sleep(IDLE_MS + 1000)
    selector.poll(0)
    assert selector.channels.get("0") is None
    assert selector.closing.get("0") is None
    assert channel.state is ChannelState.EXPIRED
    assert selector.disconnected["0"].state is ChannelState.EXPIRED


@pytest.mark.conformance("SEL-22")
def test_an_idle_connection_delivers_all_that_has_arrived_before_it_expires(selector, server, clock):
    connect(selector, server, "0")
    pending_answers(selector, "0", 5)
    received = []

    def step():
        clock.sleep(IDLE_MS + 1000)
        selector.poll(0)
        received.extend(bytes(r.payload) for r in selector.completed_receives)

    until(lambda: selector.disconnected, step=step, what="expiry")
    assert received == [b"0", b"1", b"2", b"3", b"4"]
    assert selector.disconnected["0"].state is ChannelState.EXPIRED


def test_a_connection_in_use_does_not_expire_and_only_one_expires_a_poll(selector, server, clock):
    connect(selector, server, "0", "1", "2")
    clock.sleep(IDLE_MS - 1)
    assert echo(selector, "1", b"busy") == b"busy"
    clock.sleep(2)
    ended = []
    for _ in range(4):
        selector.poll(0)
        assert len(selector.disconnected) <= 1
        ended += selector.disconnected
    assert sorted(ended) == ["0", "2"]


@pytest.mark.conformance("SEL-23", "STL-15")
@pytest.mark.parametrize("count", [6, 20, 100])
def test_what_arrived_before_the_peer_closed_is_delivered_one_frame_a_poll(selector, server, count):
    connect(selector, server, "0")
    pending_answers(selector, "0", count)
    selector.poll(1000)
    assert [bytes(r.payload) for r in selector.completed_receives] == [b"0"]
    server.close_connections()
    received = []

    def step():
        selector.poll(1000)
        assert len(selector.completed_receives) <= 1
        received.extend(bytes(r.payload) for r in selector.completed_receives)

    until(lambda: selector.disconnected, step=step, what="the end")
    assert received == [b"%d" % number for number in range(1, count)]
    assert selector.disconnected["0"].state is ChannelState.READY


@pytest.mark.conformance("SEL-24")
def test_a_frame_of_which_only_a_part_arrived_does_not_delay_the_end(selector, server):
    connect(selector, server, "0")
    until(server.is_serving)
    server.sockets[0].sendall(struct.pack(">i", 100_000) + bytes(1000))
    until(lambda: selector.channels.get("0").connection.reader.bytes_read, step=lambda: selector.poll(1000))
    server.close_connections()
    received = []

    def step():
        selector.poll(1000)
        received.extend(selector.completed_receives)

    until(lambda: selector.disconnected, step=step, what="the end")
    assert not received
    assert selector.closing.get("0") is None


@pytest.mark.conformance("SEL-27")
def test_outbound_connections_are_counted(selector, server, metrics):
    connect(selector, server, *"01234")
    assert metrics.value(GROUP, "connection-creation-total") == 5
    assert metrics.value(GROUP, "connection-count") == 5
    selector.close_channel("3")
    assert metrics.value(GROUP, "connection-count") == 4
    assert metrics.value(GROUP, "connection-close-total") == 1


def accepted_pair():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        return client, listening.accept()[0]


@pytest.mark.conformance("SEL-29")
def test_accepted_connections_are_counted_under_their_clients_software(selector, metrics):
    def count(name, version):
        return metrics.value(GROUP, "connections", {"clientSoftwareName": name, "clientSoftwareVersion": version})

    client, accepted = accepted_pair()
    with client:
        selector.register("0", accepted)
        assert count("unknown", "unknown") == 1
        selector.client_information("0", "A", "B")
        assert (count("unknown", "unknown"), count("A", "B")) == (0, 1)
        selector.close_channel("0")
        assert count("A", "B") == 0


def test_a_client_that_calls_itself_ever_something_else_does_not_fill_the_metrics(selector, metrics):
    client, accepted = accepted_pair()
    with client:
        selector.register("0", accepted)
        for number in range(300):
            selector.client_information("0", f"name-{number}", "1")
        assert len([name for name in metrics.names() if name.name == "connections"]) <= 100


@pytest.mark.conformance("SEL-30")
def test_the_connection_to_give_up_is_one_that_closes_or_the_one_used_longest_ago(selector, server, clock):
    connect(selector, server, *"01234")
    for channel_id in "4310":  # all but 2, newest to oldest
        clock.sleep(1)
        echo(selector, channel_id, b"use")
    assert selector.lowest_priority_channel().id == "2"
    channel = selector.channels.get("3")
    selector.closing["3"] = channel
    assert selector.lowest_priority_channel().id == "3"
    del selector.closing["3"]
    for channel_id in "01234":
        selector.close_channel(channel_id)
    assert selector.lowest_priority_channel() is None


def test_a_connection_that_ends_with_unread_frames_is_closing_until_they_are_taken(selector, server, clock):
    connect(selector, server, "0")
    channel = pending_answers(selector, "0", 1)
    selector.mute("0")
    selector._close(channel, Closing.GRACEFUL)
    assert (selector.channels.get("0"), selector.closing.get("0")) == (None, channel)
    assert not channel.connection.usable
    assert selector.close_channel("0") == []
    assert selector.closing.get("0") is None


@pytest.mark.conformance("SEL-33")
def test_connections_may_be_closed_while_their_frames_are_looked_at(selector, server):
    ids = list("0123")
    connect(selector, server, *ids)
    for channel_id in ids:
        pending_answers(selector, channel_id, 1)
        selector.mute(channel_id)
    for channel_id in ids:
        selector.unmute(channel_id)
    selector.poll(1000)
    assert len(selector.completed_receives) == 4
    for at, received in enumerate(selector.completed_receives):
        if at % 2:
            selector.close_channel(received.source)
    selector.poll(0)
    assert len(selector.channels) == 2
    assert not selector.completed_receives
    assert not selector.disconnected


@pytest.mark.conformance("SEL-34")
def test_metrics_say_what_they_mean(selector, metrics):
    docs = {name.name: metrics.doc(name) for name in metrics.names()}
    for name in ("io-ratio", "io-wait-ratio"):
        assert docs[name]
        assert "deprecated" not in docs[name].lower()
    for name in ("iotime-total", "io-waittime-total"):
        assert "deprecated" in docs[name].lower()


@pytest.mark.conformance("SEL-36")
def test_a_poll_cannot_take_less_than_no_time(selector):
    with pytest.raises(ValueError, match="-1 ms"):
        selector.poll(-1)


def test_a_muted_connection_is_not_read_and_its_frames_wait_in_order(selector, server):
    connect(selector, server, "0", "1")
    pending_answers(selector, "0", 3)
    selector.mute("0")
    assert echo(selector, "1", b"other") == b"other"
    selector.poll(10)
    assert not selector.completed_receives
    selector.unmute("0")
    assert [receive(selector, "0") for _ in range(3)] == [b"0", b"1", b"2"]


def test_a_frame_above_the_limit_ends_its_connection_alone(clock, server, habits):
    selector = Selector(clock=clock, max_receive_size=100, channel_builder=cipher_builder(**habits))
    connect(selector, server, "0", "1")
    send(selector, "0", bytes(101))
    until(lambda: selector.disconnected, step=lambda: selector.poll(1000))
    assert list(selector.disconnected) == ["0"]
    assert echo(selector, "1", bytes(100)) == bytes(100)
    selector.close()


@pytest.mark.conformance("SSL-05")
def test_connections_share_a_byte_budget_and_all_get_their_frames(clock, server, habits):
    """Also when the bytes of the second frame wait above the socket, where no event tells of them."""
    pool = MemoryPool(900, 900)
    selector = Selector(clock=clock, pool=pool, channel_builder=cipher_builder(**habits))
    connect(selector, server, "0", "1")
    for channel_id in "01":
        send(selector, channel_id, bytes(900))
    first = []

    def step():
        selector.poll(100)
        first.extend(selector.completed_receives)

    until(lambda: first, step=step)
    other = "1" if first[0].source == "0" else "0"
    until(lambda: selector.channels.get(other).connection.muted, step=step, what="the pool's refusal")
    for _ in range(3):
        selector.poll(10)
        assert not selector.completed_receives  # the other is muted: there is no memory
        assert selector._reader.unmute_lacking_memory(selector.channels.values()) == []  # nor is it read in vain
    assert pool.available == 0
    first[0].close()
    answer = receive(selector, other)
    assert len(answer) == 900
    selector.close()


def test_a_wait_is_ended_from_another_thread(selector):
    began = time.monotonic()
    timer = threading.Timer(0.05, selector.wakeup)
    timer.start()
    selector.poll(60_000)
    timer.join()
    assert time.monotonic() - began < 30
    selector.wakeup()
    selector.wakeup()
    selector.poll(60_000)  # a wake-up that came before is not lost, two are one
    began = time.monotonic()
    selector.poll(20)
    assert time.monotonic() - began >= 0.015


def test_after_closing_a_wake_up_is_harmless():
    selector = Selector()
    selector.close()
    selector.wakeup()


def test_shared_buffers_reach_the_socket_as_they_are_however_many(plain_server):
    selector = Selector(clock=SYSTEM_CLOCK)
    connect(selector, plain_server, "0")
    shared = memoryview(b"x" * 7)
    payload = [shared] * 3000  # more than the system takes in one call
    selector.send(Send.framed("0", payload))
    assert receive(selector, "0") == b"x" * 21_000
    selector.close()


def test_what_a_connection_wants_is_told_to_the_system_once(clock, plain_server):
    selector = Selector(clock=clock)
    connect(selector, plain_server, "0")
    echo(selector, "0", b"first")
    changes = []
    system = selector._poller._system

    class Watching:
        def __getattr__(self, name):
            if name in ("register", "modify", "unregister"):
                changes.append(name)
            return getattr(system, name)

    selector._poller._system = Watching()
    for _ in range(20):
        echo(selector, "0", b"small")
    assert changes == []
    selector.close()


def test_an_accepted_connection_that_cannot_be_taken_is_closed(selector, monkeypatch):
    client, accepted = accepted_pair()

    def refuses(sock, peer):
        raise ValueError("no certificate")

    monkeypatch.setattr(selector, "_builder", refuses)
    with client, pytest.raises(OSError, match="no certificate"):
        selector.register("0", accepted)
    assert accepted.fileno() == -1
    assert_empty(selector)


@pytest.mark.parametrize("handshake", [[], [EVENT_READ], [EVENT_WRITE]], ids=["at-once", "after-read", "after-write"])
def test_a_handshake_that_fails_ends_its_connection_with_the_reason(clock, plain_server, metrics, handshake):
    error = AuthenticationFailed("certificate has expired")
    builder = cipher_builder(handshake=handshake, fails=error)
    selector = Selector(clock=clock, metrics=SelectorMetrics(metrics, "test"), channel_builder=builder)
    selector.connect("0", plain_server.address)
    until(lambda: selector.disconnected, step=lambda: selector.poll(1000), what="the end")
    ended = selector.disconnected["0"]
    assert (ended.state, ended.error) == (ChannelState.AUTHENTICATION_FAILED, error)
    assert metrics.value(GROUP, "failed-authentication-total") == 1
    assert metrics.value(GROUP, "successful-authentication-total") == 0
    assert_empty_but_results(selector)
    selector.close()


def assert_empty_but_results(selector):
    assert not selector.channels
    assert not selector._poller.channels


def test_a_handshake_waits_without_turning_in_vain(clock, plain_server):
    """What it waits for is what the system is asked for: neither a busy loop nor a stall."""
    selector = Selector(clock=clock, channel_builder=cipher_builder(handshake=[EVENT_WRITE, EVENT_READ]))
    selector.connect("0", plain_server.address)
    polls = 0

    def step():
        nonlocal polls
        selector.poll(1000)
        polls += 1

    until(lambda: selector.channels["0"].connection.usable, step=step)
    assert polls <= 6
    selector.close()


def test_the_channel_builder_is_told_the_hosts_name_and_the_listener(clock, plain_server):
    peers = []

    def builder(sock, peer):
        peers.append(peer)
        return PlaintextTransport(sock, connected=peer.accepted), None

    selector = Selector(clock=clock, channel_builder=builder)
    selector.connect("0", plain_server.address, host="broker-1.example", listener="INTERNAL")
    assert peers == [("broker-1.example", plain_server.address[1], "INTERNAL", False, "0")]
    selector.close()


class UncleanTransport(PlaintextTransport):
    """A transport whose first close fails, as a network file system's or a faulty driver's may."""

    failures = 0

    def close(self):
        super().close()
        type(self).failures += 1
        if self.failures == 1:
            raise OSError(5, "Input/output error")


def test_a_connection_that_cannot_be_closed_cleanly_costs_no_other(plain_server, clock):
    class Transport(UncleanTransport):
        pass

    selector = Selector(clock=clock, channel_builder=lambda sock, peer: (Transport(sock, connected=False), None))
    try:
        connect(selector, plain_server, "a", "b")
        selector.close_channel("a")
        assert Transport.failures == 1
        assert selector.channels.get("a") is None
        assert echo(selector, "b", b"still here") == b"still here"
    finally:
        selector.close()
