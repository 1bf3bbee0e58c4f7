"""The accepting side over real sockets: one request of a connection at a time, limits, pausing, ends of all kinds."""

import errno
import socket
import struct
import threading
import time

import pytest
from network_peers import FakeClock, frame, until

from channel.config import ChannelConfig
from channel.errors import IllegalState
from channel.network.server import SocketServer
from channel.network.sockets import plaintext_channel
from kproto.errors import ConfigurationError


def echo(request):
    request.respond([bytes(request.payload)])


@pytest.fixture
def server():
    with SocketServer("test") as server:
        yield server


class Peer:
    """A plain client."""

    def __init__(self, listener, timeout=30):
        self.sock = socket.create_connection((listener.host, listener.port), timeout=timeout)
        self.ended = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, *payloads):
        self.sock.sendall(b"".join(map(frame, payloads)))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def receive(self):
        return self.exactly(struct.unpack(">i", self.exactly(4))[0])

    def sees_the_end(self):
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True


def test_requests_are_answered(server):
    listener = server.listen(echo)
    with Peer(listener) as one, Peer(listener) as two:
        for number in range(50):
            for peer in (one, two):
                peer.send(b"%d" % number)
                assert peer.receive() == b"%d" % number
        assert len(listener.connections) == 2
    until(lambda: not listener.connections)


def test_listeners_take_free_ports_unless_one_is_named(server):
    ports = [server.listen(echo).port for _ in range(2)]
    assert len(set(ports)) == 2
    assert min(ports) > 1023


def test_requests_of_one_connection_are_handed_over_one_at_a_time_in_order(server):
    taken = []
    listener = server.listen(taken.append)
    with Peer(listener) as peer:
        peer.send(*[b"%d" % number for number in range(5)])
        for number in range(5):
            until(lambda: taken, what="a request")
            time.sleep(0.01)
            (request,) = taken
            taken.clear()
            assert request.payload == b"%d" % number
            request.respond([b"answer ", bytes(request.payload)])
        assert [peer.receive() for _ in range(5)] == [b"answer %d" % number for number in range(5)]
        with pytest.raises(IllegalState, match="answered already"):
            request.respond([b"again"])


def test_an_answer_larger_than_the_sockets_buffers_goes_out_in_shared_pieces(server):
    shared = memoryview(bytes(1 << 20))
    listener = server.listen(lambda request: request.respond([b"head", *[shared] * 8]))
    with Peer(listener) as slow:
        slow.send(b"1", b"2")
        for _ in range(2):
            time.sleep(0.02)
            assert slow.receive() == b"head" + bytes(8 << 20)


@pytest.mark.parametrize(
    "sent",
    [b"\xff\xff\xff\xff", struct.pack(">i", 101), b"GET / HTTP/1.1\r\n\r\n"],
    ids=["negative length", "above the limit", "http"],
)
def test_garbage_ends_its_connection_and_no_other(sent):
    with SocketServer("test", config=ChannelConfig(socket_request_max_bytes=100)) as server:
        listener = server.listen(echo)
        with Peer(listener) as good, Peer(listener) as bad:
            bad.sock.sendall(sent)
            assert bad.sees_the_end()
            good.send(bytes(100))
            assert good.receive() == bytes(100)


def test_a_frame_that_never_ends_is_waited_for_while_others_are_served(server):
    listener = server.listen(echo)
    with Peer(listener) as half, Peer(listener) as other:
        half.sock.sendall(struct.pack(">i", 10) + b"12345")
        other.send(b"hello")
        assert other.receive() == b"hello"
        half.sock.sendall(b"67890")
        assert half.receive() == b"1234567890"


def test_a_handler_that_fails_ends_its_connection_and_no_other(server, caplog):
    def fails(request):
        if request.payload == b"bad":
            raise RuntimeError("cannot read this")
        echo(request)

    listener = server.listen(fails)
    with Peer(listener) as good, Peer(listener) as bad:
        bad.send(b"bad")
        assert bad.sees_the_end()
        good.send(b"good")
        assert good.receive() == b"good"
    assert "cannot read this" in caplog.text


def test_a_request_may_be_answered_by_closing(server):
    listener = server.listen(lambda request: request.close_connection())
    with Peer(listener) as peer:
        peer.send(b"version 99")
        assert peer.sees_the_end()
    until(lambda: not listener.connections)


def test_answers_may_come_later_and_from_other_threads(server):
    threads = []

    def later(request):
        if request.payload == b"thread":
            threads.append(threading.Thread(target=request.respond, args=([b"from a thread"],)))
            threads[-1].start()
        else:
            server.call_later(20, lambda: request.respond([b"after 20 ms"]))

    listener = server.listen(later)
    with Peer(listener) as one, Peer(listener) as two:
        began = time.monotonic()
        one.send(b"delay")
        two.send(b"thread")
        assert two.receive() == b"from a thread"
        assert one.receive() == b"after 20 ms"
        assert time.monotonic() - began >= 0.015
    for thread in threads:
        thread.join()


def test_an_answer_to_a_connection_that_has_gone_is_dropped(server):
    taken = []
    listener = server.listen(taken.append)
    with Peer(listener) as peer:
        peer.send(b"question")
        until(lambda: taken)
        listener.close()
        assert peer.sees_the_end()
    taken[0].respond([b"too late"])
    server.call(lambda: None)
    assert not server.listeners


def test_a_client_that_leaves_with_requests_unread_leaves_nothing(server):
    taken = []
    listener = server.listen(taken.append)
    with Peer(listener) as peer:
        peer.send(b"1", b"2", b"3")
        until(lambda: taken)
    time.sleep(0.01)
    while listener.connections:
        for _ in range(3):
            server.call(lambda: None)  # let it turn: it must not read on before the answer
        waiting = [request for request in taken if not request._answered]
        assert len(waiting) <= 1
        for request in waiting:
            request.respond([b"too late"])
        time.sleep(0.001)
    assert [bytes(request.payload) for request in taken] == [b"1", b"2", b"3"][: len(taken)]
    assert server.selector.channels == {}
    assert server.selector.closing == {}


@pytest.mark.conformance("KCH-03")
def test_a_connection_is_read_again_only_when_its_request_is_answered_and_its_listener_goes_on(server):
    taken = []
    listener = server.listen(taken.append)

    def assert_read(count):
        for _ in range(3):
            server.call(lambda: None)  # let it turn
        assert len(taken) == count

    with Peer(listener) as peer:
        peer.send(b"1", b"2")
        until(lambda: taken)
        listener.pause()
        listener.resume()
        assert_read(1)
        listener.pause()
        taken[0].respond([b"answer"])
        assert peer.receive() == b"answer"
        assert_read(1)
        listener.resume()
        until(lambda: len(taken) == 2)


def test_pausing_passes_over_a_connection_that_has_just_ended(server):
    listener = server.listen(echo)
    with Peer(listener) as first, Peer(listener) as second:
        for peer in (first, second):
            peer.send(b"1")
            assert peer.receive() == b"1"
        ended = next(iter(listener.connections))

        def in_one_turn():  # the selector has let go of it, the listener not yet
            server.selector.close_channel(ended)
            listener.pause()

        server.call(in_one_turn)
        second.send(b"2")
        second.sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            second.receive()
        listener.resume()
        second.sock.settimeout(30)
        assert second.receive() == b"2"


def test_a_call_raises_what_went_wrong_on_the_servers_thread(server):
    def fails():
        raise ValueError(threading.current_thread().name)

    with pytest.raises(ValueError, match="test-network-thread"):
        server.call(fails)
    with Peer(server.listen(echo)) as peer:  # which goes on
        peer.send(b"1")
        assert peer.receive() == b"1"


def test_the_end_of_a_server_goes_on_over_a_connection_that_cannot_be_closed(server, monkeypatch, caplog):
    listener, other = server.listen(echo), server.listen(echo)
    really = server.close_connection

    def refuses(connection):
        really(connection)
        raise OSError("not now")

    with Peer(listener) as peer, Peer(other) as second:
        for each in (peer, second):
            each.send(b"1")
            assert each.receive() == b"1"
        monkeypatch.setattr(server, "close_connection", refuses)
        server.close()
        assert peer.sees_the_end()
        assert second.sees_the_end()
    assert "not now" in caplog.text  # sockets and the thread are counted by the fixture of all channel tests


def test_a_paused_listener_reads_nothing_and_goes_on_where_it_was(server):
    taken = []

    def handler(request):
        taken.append(bytes(request.payload))
        echo(request)

    listener = server.listen(handler)
    with Peer(listener) as peer:
        peer.send(b"before")
        assert peer.receive() == b"before"
        listener.pause()
        peer.send(b"during")
        with Peer(listener) as late:
            late.send(b"late")
            time.sleep(0.05)
            assert taken == [b"before"]
            listener.resume()
            assert peer.receive() == b"during"
            assert late.receive() == b"late"


def test_a_closed_listener_ends_its_connections_and_no_others(server):
    first, second = server.listen(echo), server.listen(echo)
    with Peer(first) as gone, Peer(second) as stays:
        until(lambda: first.connections)
        first.close()
        assert gone.sees_the_end()
        with pytest.raises(ConnectionRefusedError):
            Peer(first)
        stays.send(b"still")
        assert stays.receive() == b"still"
        again = server.listen(echo, port=first.port)  # a broker that comes back
        with Peer(again) as back:
            back.send(b"back")
            assert back.receive() == b"back"


def test_connections_above_the_limits_are_refused():
    with SocketServer("test", config=ChannelConfig(max_connections=2)) as server:
        listener = server.listen(echo)
        with Peer(listener), Peer(listener) as second:
            until(lambda: len(listener.connections) == 2)
            with Peer(listener) as third:
                assert third.sees_the_end()
            second.send(b"fine")
            assert second.receive() == b"fine"
        until(lambda: not listener.connections)
        with Peer(listener) as next_one:
            next_one.send(b"room again")
            assert next_one.receive() == b"room again"
    with SocketServer("test", config=ChannelConfig(max_connections_per_ip=1)) as server:
        listener = server.listen(echo)
        with Peer(listener):
            until(lambda: listener.connections)
            with Peer(listener) as second:
                assert second.sees_the_end()


def test_requests_share_a_byte_budget_and_all_are_answered():
    config = ChannelConfig(socket_request_max_bytes=1000, queued_max_request_bytes=1500)
    with SocketServer("test", config=config) as server:
        taken = []
        listener = server.listen(taken.append)
        with Peer(listener) as one, Peer(listener) as two, Peer(listener) as three:
            peers = [one, two, three]
            for peer in peers:
                peer.send(bytes(1000))
            until(lambda: len(taken) == 2)
            time.sleep(0.03)
            assert len(taken) == 2  # the third waits: 500 bytes below zero are out
            for at in range(3):
                until(lambda at=at: len(taken) > at)
                taken[at].respond([b"done"])
            for peer in peers:
                assert peer.receive() == b"done"
        pool = server.selector._reader.pool
        until(lambda: not listener.connections)
        assert pool.available == 1500


def test_a_port_in_use_is_said_to_be(server):
    listener = server.listen(echo)
    with pytest.raises(ConfigurationError, match=rf"127.0.0.1:{listener.port}: the port is in use"):
        server.listen(echo, port=listener.port)


def test_an_address_of_another_machine_is_said_to_be_none_of_this(server):
    with pytest.raises(ConfigurationError, match=r"cannot listen at 192.0.2.1:0: this machine has no such address"):
        server.listen(echo, host="192.0.2.1")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "this machine has no such address"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
    ],
)
def test_what_keeps_a_server_from_listening_is_told(server, monkeypatch, error, says):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(socket, "create_server", fail)
    with pytest.raises(ConfigurationError, match=rf"cannot listen at 127\.0\.0\.1:0: {says}"):
        server.listen(echo)


def test_a_handler_that_blocks_the_end_is_told(caplog):
    entered, go_on = threading.Event(), threading.Event()

    def block(_request):
        entered.set()
        go_on.wait(60)

    blocked = SocketServer("blocked")
    listener = blocked.listen(block)
    blocked.start()
    with Peer(listener) as peer:
        peer.sock.sendall(frame(b"stay"))
        assert entered.wait(60)
        assert not blocked.close(0.01)
        assert "blocked-network-thread has not ended within 0.01 s" in caplog.text
        go_on.set()
        assert blocked.close()


def test_a_server_that_was_never_started_closes():
    server = SocketServer("test")
    listener = server.listen(echo)
    server.close()
    server.close()
    assert listener.closed


def test_many_listeners_share_one_thread():
    before = set(threading.enumerate())
    with SocketServer("test") as server:
        listeners = [server.listen(echo, name=f"BROKER-{number}") for number in range(50)]
        peers = [Peer(listener) for listener in listeners]
        for number, peer in enumerate(peers):
            peer.send(b"%d" % number)
        for number, peer in enumerate(peers):
            assert peer.receive() == b"%d" % number
            peer.sock.close()
        assert len(set(threading.enumerate()) - before) == 1


def test_a_failing_timer_keeps_no_other_from_its_time(server, caplog):
    done = threading.Event()

    def fails():
        raise RuntimeError("timer")

    server.call_later(1, fails)
    server.call_later(2, done.set)
    assert done.wait(60)
    assert "timer" in caplog.text


def test_silent_connections_expire_although_nothing_else_happens():
    with SocketServer("test", config=ChannelConfig(connections_max_idle_ms=1500)) as server:
        listener = server.listen(echo)
        with Peer(listener) as one, Peer(listener) as two:
            for peer in (one, two):
                peer.send(b"used")
                assert peer.receive() == b"used"
            assert one.sees_the_end()
            assert two.sees_the_end()
        until(lambda: not listener.connections)


class FailingRecorder:
    """A recorder that raises, at one of its calls."""

    def __init__(self, failing):
        self.failing = failing

    def __getattr__(self, name):
        def call(*args, **settings):
            if name == self.failing:
                raise RuntimeError(f"{name} failed")

        return call


@pytest.mark.parametrize("call", ["opened", "record", "closed"])
def test_a_recorder_that_fails_costs_the_recording_and_no_connection(call, caplog):
    with SocketServer("test", recorder=FailingRecorder(call)) as server:
        listener = server.listen(echo)
        for _ in range(3):
            with Peer(listener) as peer:
                for _ in range(2):
                    peer.send(b"hello")
                    assert peer.receive() == b"hello"
            until(lambda: not listener.connections)
    assert caplog.text.count("nothing more is recorded") == 1


@pytest.mark.parametrize("error", [ValueError("no certificate"), OSError("it has left")], ids=repr)
def test_a_channel_builder_that_fails_costs_its_connection_and_no_other(error, caplog):
    refusing = [True]

    def builder(sock, peer):
        assert peer.accepted
        assert peer.listener == "SECURED"
        if refusing.pop() if refusing else False:
            raise error
        return plaintext_channel(sock, peer)

    with SocketServer("test", channel_builder=builder) as server:
        listener = server.listen(echo, name="SECURED")
        with Peer(listener) as refused:
            assert refused.sees_the_end()
        with Peer(listener) as peer:
            peer.send(b"hello")
            assert peer.receive() == b"hello"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_poll_that_fails_is_tried_again(server, monkeypatch, caplog):
    listener = server.listen(echo)
    really, failures = server.selector._poller.wait, [OSError("not now"), RuntimeError("a fault of ours")]

    class Failing:
        def __getattr__(self, name):
            return getattr(poller, name)

        def wait(self, timeout_ms):
            if failures:
                raise failures.pop()
            return really(timeout_ms)

    poller = server.selector._poller
    monkeypatch.setattr(server.selector, "_poller", Failing())
    with Peer(listener) as peer:
        for _ in range(3):
            peer.send(b"hello")
            assert peer.receive() == b"hello"
    until(lambda: not failures)
    assert "not now" in caplog.text
    monkeypatch.undo()


@pytest.mark.parametrize("budget", [-1, 1 << 20])
def test_a_peer_that_announces_a_frame_and_does_not_send_it_is_closed_and_starves_nobody(budget):
    config = ChannelConfig(socket_request_max_bytes=1 << 20, queued_max_request_bytes=budget, receive_stall_max_ms=100)
    with SocketServer("test", config=config) as server:
        listener = server.listen(echo)
        with Peer(listener) as idle, Peer(listener) as stalls, Peer(listener) as other:
            until(lambda: len(listener.connections) == 3)
            stalls.sock.sendall(struct.pack(">i", 1 << 20) + b"a little of it")
            other.send(b"hello")
            assert other.receive() == b"hello"  # at once, or when the budget is back
            assert stalls.sees_the_end()
            idle.send(b"between two frames a connection may be silent")
            assert idle.receive()


def test_a_frame_that_goes_on_arriving_is_waited_for():
    config, clock = ChannelConfig(receive_stall_max_ms=600), FakeClock()
    with SocketServer("test", config=config, clock=clock) as server, Peer(server.listen(echo)) as peer:
        payload = bytes(range(200))
        peer.sock.sendall(struct.pack(">i", len(payload)))
        until(lambda: server.selector.channels)
        (channel,) = server.selector.channels.values()
        for at in range(0, len(payload), 20):
            until(lambda at=at: channel.connection.reader.bytes_read == 4 + at)
            clock.sleep(400)
            server.call(lambda: None)  # let it look for frames that have stalled
            peer.sock.sendall(payload[at : at + 20])
        assert peer.receive() == payload


def test_many_announcements_take_little_memory(server):
    listener = server.listen(echo)
    peers = [Peer(listener) for _ in range(50)]
    for peer in peers:
        peer.sock.sendall(struct.pack(">i", 100_000_000))
    until(lambda: len(listener.connections) == 50)
    readers = [channel.connection.reader for channel in server.selector.channels.values()]
    until(lambda: all(reader.requested > 0 for reader in readers))
    assert sum(reader.memory for reader in readers) <= 50 * 4096
    for peer in peers:
        peer.sock.close()
    until(lambda: not listener.connections)


def test_a_network_thread_that_dies_says_so_and_closes_its_sockets(caplog: pytest.LogCaptureFixture) -> None:
    def die() -> None:
        raise SystemExit("the thread ends")

    server = SocketServer("dying")
    listener = server.listen(lambda request: None)
    server.start()
    server.call_soon(die)
    server.join(60)
    assert "[dying-network-thread]: ended by an error" in caplog.text
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", listener.port), timeout=60)
    server.close()
    server.close()
