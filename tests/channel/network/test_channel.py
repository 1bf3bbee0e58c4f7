"""One connection: a send at a time, an end that gives everything back."""

import struct

import pytest

from channel.errors import AuthenticationFailed, IllegalState
from channel.network.channel import Channel, ChannelState, KafkaConnection
from channel.network.frames import MemoryPool, Send
from channel.network.transport import EVENT_READ, EVENT_WRITE


class FakeTransport:
    """A transport that takes and gives what a test says."""

    local = remote = ("127.0.0.1", 9092)
    ready = True
    has_bytes_buffered = False

    def __init__(self, *room: int, reads: tuple[bytes, ...] = ()) -> None:
        self.room = list(room)
        self.reads = list(reads)
        self.pending = 0
        self.flushed = 0
        self.closed = 0
        self.handshakes: list[int] = []

    @property
    def has_pending_writes(self) -> bool:
        return self.pending > 0

    def finish_connect(self) -> bool:
        return True

    def handshake(self) -> int:
        wanted = self.handshakes.pop(0)
        self.ready = not wanted
        return wanted

    def write(self, buffers):
        return min(self.room.pop(0), sum(map(len, buffers)))

    def flush(self) -> None:
        self.flushed += 1
        self.pending = 0

    def read_into(self, buffer):
        data = self.reads.pop(0)
        buffer[: len(data)] = data
        return len(data)

    def reset_on_close(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        self.closed += 1


def channel_over(transport, authenticator=None, **settings):
    return Channel(KafkaConnection("0", **settings), transport, authenticator)


@pytest.mark.conformance("KCH-01")
def test_a_send_is_complete_when_all_of_it_is_written_and_not_before():
    channel = channel_over(FakeTransport(4, 64, 64))
    send = Send.framed("0", [bytes(128)])
    channel.connection.start(send)
    with pytest.raises(IllegalState, match="has not gone out"):
        channel.connection.start(send)
    for remaining in (128, 64, 0):
        assert not send.completed
        _, whole = channel.write()
        assert send.remaining == remaining
        assert (whole is send) == send.completed == (remaining == 0)
    channel.connection.start(Send("0", [b""]))


def test_a_send_is_not_complete_while_its_transport_holds_encrypted_bytes():
    transport = FakeTransport(8)
    channel = channel_over(transport)
    channel.finish_connect()
    send = Send("0", [bytes(8)])
    channel.connection.start(send)
    transport.pending = 20
    assert channel.write() == (8, None)
    assert (send.remaining, send.completed) == (0, False)
    assert channel.interest & EVENT_WRITE
    assert channel.write() == (0, send)  # nothing of the frame is left; the transport goes on
    assert transport.flushed == 1
    assert send.completed
    assert not channel.interest & EVENT_WRITE


def test_a_channel_mutes_itself_while_its_pool_has_nothing_and_gives_its_buffer_back_at_its_end():
    pool = MemoryPool(10, 10)
    held = pool.allocate(10)
    transport = FakeTransport(reads=(struct.pack(">i", 10), b"ab"))
    channel = channel_over(transport, pool=pool)
    channel.finish_connect()
    assert channel.read() == (4, None)
    assert channel.connection.muted
    assert not channel.connection.explicitly_muted
    assert not channel.interest & EVENT_READ
    pool.release(held)
    channel.connection.muted = False
    assert channel.interest & EVENT_READ
    assert channel.read() == (2, None)
    assert pool.available == 0
    channel.close()
    channel.close()
    assert pool.available == 10
    assert transport.closed == 1


def test_a_handshake_waits_for_what_it_wants_and_requests_pass_only_after_it():
    transport = FakeTransport()
    transport.ready = False
    transport.handshakes = [EVENT_WRITE, EVENT_READ, 0]
    channel = channel_over(transport)
    assert channel.finish_connect()
    assert channel.state is ChannelState.AUTHENTICATE
    channel.connection.start(Send("0", [b"first"]))
    for wanted in (EVENT_WRITE, EVENT_READ):
        assert not channel.prepare()
        assert channel.interest == wanted
    assert channel.prepare()
    assert channel.state is ChannelState.READY
    assert channel.interest == EVENT_READ | EVENT_WRITE


class Refusing:
    """An authenticator that refuses at its second step."""

    complete = False
    closed = False
    steps = 0

    def authenticate(self) -> int:
        self.steps += 1
        if self.steps == 2:
            raise AuthenticationFailed("wrong password")
        return EVENT_READ

    def close(self) -> None:
        self.closed = True


def test_a_failed_authentication_is_the_channels_state_and_its_reason_is_kept():
    authenticator = Refusing()
    channel = channel_over(FakeTransport(), authenticator)
    channel.finish_connect()
    assert not channel.prepare()
    with pytest.raises(AuthenticationFailed) as caught:
        channel.prepare()
    channel.authentication_failed(caught.value)
    assert channel.interest == 0
    assert channel.state is ChannelState.AUTHENTICATION_FAILED
    assert "wrong password" in str(channel.authentication_error)
    assert not channel.connection.usable
    channel.close()
    assert authenticator.closed
