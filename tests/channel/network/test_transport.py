"""The plaintext transport: small and large frames, full, empty and closed sockets, compiled or not."""

import select
import socket
from collections.abc import Iterator

import pytest

from channel.network import transport
from channel.network.transport import IOV_MAX, PlaintextTransport


@pytest.fixture(params=["as built", "by the socket's methods"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames pass by the compiled functions where there are any, or by the socket's methods alone."""
    if request.param == "by the socket's methods":
        monkeypatch.setattr(transport, "send_small", lambda fd, buffers: -1)
        monkeypatch.setattr(transport, "receive_small", lambda fd, buffer: -1)


@pytest.fixture
def ends() -> Iterator[tuple[PlaintextTransport, socket.socket]]:
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    peer, _ = server.accept()
    server.close()
    client.setblocking(False)
    peer.settimeout(30)
    with client, peer:
        yield PlaintextTransport(client, connected=True), peer


def _received(peer: socket.socket, size: int) -> bytes:
    parts = []
    while size and (part := peer.recv(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    "buffers",
    [
        [b"one"],
        [b"head", b"", bytearray(b"body"), memoryview(b"-tail-")[1:5]],
        [bytes([i]) for i in range(8)],
        [bytes([i]) for i in range(9)],
        [b"h" * 12, b"b" * 1_011, b"t"],
        [b"h" * 12, b"b" * 1_011, b"t", b"!"],
        [b"h" * 12, b"b" * 16_372],
        [b"h" * 12, b"b" * 16_373],
    ],
    ids=[
        "one buffer",
        "kinds of buffers",
        "8 buffers",
        "9 buffers",
        "1 KiB",
        "a byte above 1 KiB",
        "16 KiB",
        "a byte above 16 KiB",
    ],
)
def test_buffers_arrive_one_after_the_other(
    ends: tuple[PlaintextTransport, socket.socket], buffers: list[bytes]
) -> None:
    sender, peer = ends
    whole = b"".join(buffers)
    assert sender.write(buffers) == len(whole)
    assert _received(peer, len(whole)) == whole


@pytest.mark.usefixtures("calls")
def test_more_buffers_than_the_system_takes_at_once_are_written_in_part(
    ends: tuple[PlaintextTransport, socket.socket],
) -> None:
    sender, peer = ends
    assert sender.write([b"x"] * (IOV_MAX + 1)) == IOV_MAX
    assert _received(peer, IOV_MAX) == b"x" * IOV_MAX


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("size", [1_000, 100_000])
def test_a_full_socket_takes_nothing_until_its_peer_reads(
    ends: tuple[PlaintextTransport, socket.socket], size: int
) -> None:
    sender, peer = ends
    sent = 0
    while count := sender.write([b"x" * size]):
        sent += count
    assert sender.write([b"x"]) == 0
    assert _received(peer, sent) == b"x" * sent
    assert sender.write([b"more"]) == 4
    assert _received(peer, 4) == b"more"


@pytest.mark.usefixtures("calls")
def test_a_write_to_a_connection_that_is_gone_is_an_os_error(ends: tuple[PlaintextTransport, socket.socket]) -> None:
    sender, peer = ends
    transport.reset_on_close(peer)
    peer.close()
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        sender.write([b"x"])


@pytest.mark.usefixtures("calls")
def test_a_closed_transport_writes_to_no_socket_that_has_got_its_descriptor(
    ends: tuple[PlaintextTransport, socket.socket],
) -> None:
    sender, _ = ends
    descriptor = sender.fileno()
    sender.close()
    left, right = socket.socketpair()
    with left, right:
        assert descriptor in (left.fileno(), right.fileno())
        with pytest.raises(OSError, match="Bad file descriptor"):
            sender.write([b"meant for the old connection"])
        for end in (left, right):
            end.setblocking(False)
            with pytest.raises(BlockingIOError):
                end.recv(1)


def _read(receiver: PlaintextTransport, buffer: memoryview) -> int:
    """Read into a buffer as soon as bytes arrive."""
    while not (count := receiver.read_into(buffer)):
        select.select([receiver], [], [], 30)
    return count


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("size", [1, 64, 65_536, 65_537], ids=["1 byte", "64 bytes", "64 KiB", "a byte above 64 KiB"])
def test_a_read_takes_what_has_arrived_and_at_most_the_size_of_the_buffer(
    ends: tuple[PlaintextTransport, socket.socket], size: int
) -> None:
    receiver, peer = ends
    buffer = bytearray(size + 1)
    assert receiver.read_into(memoryview(buffer)[:size]) == 0
    sent = bytes(i % 251 for i in range(size + 1))
    peer.sendall(sent)
    read = 0
    while read < size:
        read += _read(receiver, memoryview(buffer)[read:size])
    assert buffer == sent[:size] + b"\0"
    last = memoryview(bytearray(9))
    assert last[: _read(receiver, last)] == sent[size:]


@pytest.mark.usefixtures("calls")
def test_the_end_of_the_peers_bytes_is_read_after_the_last_of_them(
    ends: tuple[PlaintextTransport, socket.socket],
) -> None:
    receiver, peer = ends
    peer.sendall(b"last")
    peer.shutdown(socket.SHUT_WR)
    buffer, read = memoryview(bytearray(16)), 0
    while read < 4:
        read += _read(receiver, buffer[read:])
    assert buffer[:read] == b"last"
    with pytest.raises(EOFError, match="the peer has closed the connection"):
        _read(receiver, buffer)


@pytest.mark.usefixtures("calls")
def test_a_read_from_a_connection_that_was_reset_is_an_os_error(ends: tuple[PlaintextTransport, socket.socket]) -> None:
    receiver, peer = ends
    transport.reset_on_close(peer)
    peer.close()
    with pytest.raises(ConnectionResetError):
        _read(receiver, memoryview(bytearray(16)))


@pytest.mark.usefixtures("calls")
def test_a_closed_transport_reads_from_no_socket_that_has_got_its_descriptor(
    ends: tuple[PlaintextTransport, socket.socket],
) -> None:
    receiver, _ = ends
    receiver.close()
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"meant for another")
        right.sendall(b"meant for another")
        with pytest.raises(OSError, match="Bad file descriptor"):
            receiver.read_into(memoryview(bytearray(16)))
