"""A client over real sockets, and peers that misbehave: the right error, the order kept, nothing left behind."""

import contextlib
import random
import socket
import struct
import threading
import time
from functools import partial

import pytest
from network_peers import PLAIN_OR_TLS, SECURITY, BodyRequest, accepted, frame, greet, until

from channel.errors import ClientClosed, CorrelationIdMismatch, Disconnected, RequestTimeout
from channel.network.client import MetadataUpdater, NetworkClient
from channel.network.node_client import await_ready, send_and_receive
from channel.network.recorder import PcapngRecorder
from channel.network.secured import client_channels, server_channels
from channel.network.selector import Selector
from channel.network.server import SocketServer
from channel.types import Node
from kproto.capture import exchanges
from kproto.errors import DecodeError

UPDATE = BodyRequest(6, 8, [b"body"])
UPDATED = b"\0\0\0"


@pytest.fixture(params=PLAIN_OR_TLS, ids=lambda protocol: protocol.name)
def protocol(request):
    return request.param


@pytest.fixture
def new_server(protocol):
    return partial(SocketServer, "test", channel_builder=server_channels(protocol, SECURITY, None))


@pytest.fixture
def server(new_server):
    with new_server() as server:
        yield server


@pytest.fixture
def clients(protocol):
    made = []

    def make(port, *, recorder=None, **settings):
        node = Node(1, "127.0.0.1", port)
        defaults = {"max_in_flight": 1, "reconnect_backoff_ms": 0, "reconnect_backoff_max_ms": 0}
        client = NetworkClient(
            Selector(recorder=recorder, channel_builder=client_channels(protocol, SECURITY, None)),
            MetadataUpdater([node]),
            "1001",
            **{**defaults, "discover_versions": False, **settings},
        )
        made.append(client)
        return client, node

    yield make
    for client in made:
        if client.active:
            client.close()


def correlation_id(payload):
    return struct.unpack_from(">i", payload, 4)[0]


def answer(payload, body=UPDATED):
    return struct.pack(">iB", correlation_id(payload), 0) + body


def echo(request):
    request.respond([answer(request.payload)])


def sends(client, node, builder=UPDATE, **options):
    assert await_ready(client, node, 30_000)
    return send_and_receive(client, client.new_request(node.key, builder, **options))


def test_requests_are_answered_over_one_connection(server, clients):
    listener = server.listen(echo)
    client, node = clients(listener.port)
    for number in range(20):
        response = sends(client, node)
        assert response.request.correlation_id == number
        assert response.body.error_code == 0
    assert len(listener.connections) == 1


def test_nobody_there(clients):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        client, node = clients(sock.getsockname()[1])
        with pytest.raises(Disconnected, match=r"Connection to 127\.0\.0\.1"):
            await_ready(client, node, 30_000)


def test_no_answer_in_time_ends_the_connection_and_the_next_attempt_makes_another(server, clients):
    held = []
    listener = server.listen(lambda request: echo(request) if held else held.append(request))
    client, node = clients(listener.port)
    with pytest.raises(RequestTimeout, match="within 50 ms"):
        sends(client, node, timeout_ms=50)
    assert sends(client, node).request.correlation_id == 1
    echo(held[0])
    until(lambda: len(listener.connections) == 1)


class Scripted:
    """Accepts one connection after the other; each is dealt with by one step of a script, given the first request."""

    def __init__(self, protocol, *steps):
        self._protocol = protocol
        self._steps = steps
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="scripted")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()
        self._listening.close()

    def _run(self):
        for step in self._steps:
            with accepted(self._listening.accept()[0], self._protocol) as sock, sock.makefile("rb") as stream:
                greet(sock)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                size = struct.unpack(">i", stream.read(4))[0]
                step(sock, stream.read(size))


def await_end(sock):
    with contextlib.suppress(ConnectionResetError):  # the client has given a request up
        sock.recv(1)


def answers(sock, payload):
    sock.sendall(frame(answer(payload)))
    await_end(sock)


def closes(sock, payload):
    pass


def resets(sock, payload):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def breaks_off(sock, payload):
    sock.sendall(frame(answer(payload))[:-1])


def resets_inside_the_frame(sock, payload):
    breaks_off(sock, payload)
    time.sleep(0.01)
    resets(sock, payload)


def announces(size):
    def step(sock, payload):
        sock.sendall(struct.pack(">i", size))
        await_end(sock)

    return step


def answers_another(sock, payload):
    sock.sendall(frame(struct.pack(">iB", 4711, 0) + UPDATED))
    await_end(sock)


def answers_nonsense(sock, payload):
    sock.sendall(frame(answer(payload, b"")))
    await_end(sock)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (closes, Disconnected),
        (resets, Disconnected),
        (breaks_off, Disconnected),
        (resets_inside_the_frame, Disconnected),
        (announces(-1), Disconnected),
        (answers_another, CorrelationIdMismatch),
        (answers_nonsense, DecodeError),
    ],
)
def test_a_peer_that_misbehaves_is_an_error_and_the_next_connection_is_good(protocol, clients, step, error):
    with Scripted(protocol, step, answers) as peer:
        client, node = clients(peer.port)
        with pytest.raises(error):
            sends(client, node)
        client.close_node(node.key)
        assert sends(client, node).body.error_code == 0
        client.close()


def test_an_answer_above_the_limit_is_never_allocated(protocol, clients, caplog):
    caplog.set_level("DEBUG")
    with Scripted(protocol, announces(2**31 - 1)) as peer:
        client, node = clients(peer.port)
        client._selector._max_receive_size = 1000
        with pytest.raises(Disconnected):
            sends(client, node)
    assert "limit is 1000" in caplog.text


def test_a_slow_reader_gets_every_byte_of_a_large_request(protocol, clients):
    seen = []

    def slowly(sock, payload):
        seen.append(payload)
        answers(sock, payload)

    shared = memoryview(random.Random(1).randbytes(1 << 20))
    with Scripted(protocol, slowly) as peer:
        client, node = clients(peer.port)
        sends(client, node, BodyRequest(6, 8, [b"own", *[shared] * 16]))
        client.close()
    assert seen[0][15:] == b"own" + bytes(shared) * 16


def test_a_connection_that_ended_while_idle_is_noticed_before_the_next_request(server, clients):
    listener = server.listen(echo)
    client, node = clients(listener.port)
    sends(client, node)
    listener.close()
    again = server.listen(echo, port=listener.port)
    until(lambda: not client.is_ready(node), step=lambda: client.poll(1))
    sends(client, node)
    assert len(again.connections) == 1


def test_closing_ends_a_wait_from_another_thread(server, clients):
    listener = server.listen(lambda request: client.initiate_close())
    client, node = clients(listener.port, request_timeout_ms=120_000)
    began = time.monotonic()
    with pytest.raises(ClientClosed, match="Client was shutdown before response was read"):
        sends(client, node)
    assert time.monotonic() - began < 60
    client.close()


def test_what_passes_is_recorded_at_either_end(tmp_path, clients, new_server):
    here, there = tmp_path / "client.pcapng", tmp_path / "server.pcapng"
    with (
        PcapngRecorder(here) as recorder,
        PcapngRecorder(there) as theirs,
        new_server(recorder=theirs) as server,
    ):
        listener = server.listen(echo)
        client, node = clients(listener.port, recorder=recorder)
        body = bytes(8) + struct.pack(">iiq", 1, 1, 1)
        for _ in range(3):
            sends(client, node, BodyRequest(6, 8, [body]))
        client.close()
        until(lambda: not listener.connections)
    for path in (here, there):
        found = list(exchanges(path))
        assert [(e.request.correlation_id, e.response.correlation_id) for e in found] == [(n, n) for n in range(3)]
        assert [bytes(e.request.payload[15:]) for e in found] == [body] * 3
        assert found[0].request.connection.server.port == listener.port
