"""The selector over TLS: what it does with bytes that the transport has taken and cannot give out yet."""

import contextlib
import socket
import ssl
from collections import Counter

import pytest
from network_peers import SECURITY, EchoServer, cipher_builder, frame, until

from channel.network.frames import Send
from channel.network.selector import Selector
from channel.tls_contexts import server_context


class CountingSelector(Selector):
    """Counts how often it has looked at each channel."""

    def __init__(self, **settings):
        self.looks = Counter()
        super().__init__(**settings)

    def _process(self, channel, mask, now):
        self.looks[channel.id] += 1
        super()._process(channel, mask, now)


@pytest.fixture
def selector(clock):
    made = CountingSelector(clock=clock, channel_builder=cipher_builder(tls=True))
    with EchoServer(tls=True) as server:
        waiting = {"1", "2"}
        for channel_id in waiting:
            made.connect(channel_id, server.address)

        def step():
            made.poll(1000)
            waiting.difference_update(made.prepared)

        until(lambda: not waiting, step=step, what="connecting")
        yield made
        made.close()


def echo(selector, channel_id, payload):
    selector.send(Send.framed(channel_id, [payload]))
    received = []

    def step():
        selector.poll(1000)
        received.extend(bytes(each.payload) for each in selector.completed_receives if each.source == channel_id)

    until(lambda: received, step=step, what="an answer")
    assert received == [payload]


@pytest.mark.conformance("SSL-02")
def test_a_connection_that_is_closed_with_bytes_buffered_leaves_nothing(selector):
    selector.send(Send.framed("1", [bytes(100 * 1024)]))
    channel = selector.channels.get("1")
    until(lambda: channel.transport.has_bytes_buffered, step=lambda: selector.poll(1000), what="the first bytes")
    selector.close_channel("1")
    assert list(selector.channels) == ["2"]
    assert channel not in selector._reader.buffered
    echo(selector, "2", b"still here")


@pytest.mark.conformance("SSL-03")
@pytest.mark.conformance("SSL-04")
@pytest.mark.parametrize("muted", [False, True])
def test_a_byte_that_cannot_be_decrypted_yet_costs_one_look(selector, muted):
    channel = selector.channels.get("1")
    with channel.transport._lock:
        channel.transport._incoming.write(b"\x17")  # a record's first byte
    channel.transport.has_bytes_buffered = True
    selector._reader.buffered[channel] = None
    selector._progressed = True
    if muted:
        channel.connection.muted = True
    selector.looks.clear()
    for number in range(100):
        echo(selector, "2", b"%d" % number)
    assert selector.looks["1"] == 1
    assert channel not in selector._reader.buffered


@pytest.mark.parametrize("size", [10, 3_000])
def test_a_frame_in_many_records_is_handed_out_in_one_poll(clock, size):
    """Records that have arrived by the time of a poll; a record for each byte, or for each 20, and more than a read."""
    made = Selector(clock=clock, channel_builder=cipher_builder(tls=True))
    with (
        contextlib.closing(made),
        socket.create_server(("127.0.0.1", 0)) as listening,
        contextlib.ExitStack() as stack,
    ):
        made.connect("1", listening.getsockname())
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = server_context(SECURITY).wrap_bio(incoming, outgoing, server_side=True)
        sock = stack.enter_context(listening.accept()[0])
        sock.settimeout(0.01)
        waiting = {"1"}

        def step():
            made.poll(10)
            waiting.difference_update(made.prepared)
            with contextlib.suppress(ssl.SSLWantReadError, TimeoutError):
                incoming.write(sock.recv(65_536))
                tls.do_handshake()
            sock.sendall(outgoing.read())

        until(lambda: not waiting, step=step, what="connecting")
        with contextlib.suppress(ssl.SSLWantReadError, TimeoutError):
            tls.do_handshake()
        data = frame(bytes(i % 251 for i in range(size)))
        for at in range(0, len(data), 20):
            tls.write(data[at : at + 20])
        sock.settimeout(60)
        sock.sendall(outgoing.read())
        near = made.channels.get("1").transport
        wanted = len(data) + len(range(0, len(data), 20)) * 22
        until(lambda: len(near._sock.recv(1 << 20, socket.MSG_PEEK)) >= wanted, what="the records")
        made.poll(1000)
        assert [bytes(each.payload) for each in made.completed_receives] == [data[4:]]
