"""The floor of the small requests in Python: the same workloads with bare sockets, threads and wake-ups.

A request is a frame that is ready, and an answer is whatever is read: no versions, no correlation ids, no messages. As
the channel does, the calling thread writes to a broker that is idle, and a thread that waits by epoll reads the answer,
calls back, and writes the broker's next request. A recording is a block of pcapng's shape for each frame.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections import deque
from typing import TYPE_CHECKING, BinaryIO

import crc32c
from channel_cluster import EPOCH, Cluster, Latch
from plain_sockets import at_once

from kproto import headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel.send.encoded_requests import ControlRequest

_MOST = 65536
"""The bytes that are read at once: an answer of the sink is far shorter."""

_BLOCK = struct.Struct("<IIIIIII")


class _Broker:
    """A connection, and the requests that wait for it; the first of them is in flight."""

    def __init__(self, port: int) -> None:
        self.sock = at_once(socket.create_connection(("127.0.0.1", port)))
        self.waiting: deque[tuple[bytes, Callable[[object], None]]] = deque()
        self.lock = threading.Lock()


class BareCluster:
    """Takes the place of ``Cluster``, its channel and its batch for the workloads of small requests; close it.

    Args:
        ports: One port a broker.
        per_broker: Whether each broker has a thread of its own; else one thread serves them all.
        recording: Takes a block for each frame; None for no recording.
    """

    def __init__(self, ports: Sequence[int], *, per_broker: bool = False, recording: BinaryIO | None = None) -> None:
        self.channel = self.batch = self
        self._of_batch: list[tuple[int, bytes]] = []
        like = Cluster(ports, 1, 1, sender=_Frames(self._of_batch))
        self.ids, self.all, self.latch = like.ids, like.all, Latch(0)
        self._alone = _frame(like.leader_and_isr(0, 0))
        like.batch.new_batch()
        like.add_leader_and_isr(like.all[0])
        like.batch.send_requests_to_brokers(EPOCH)
        self._recording, self._of_recording = recording, threading.Lock()
        self._brokers = [_Broker(port) for port in ports]
        for group in [[each] for each in self._brokers] if per_broker else [self._brokers]:
            threading.Thread(target=self._serve, args=(group,), daemon=True).start()

    def leader_and_isr(self, i: int, broker_id: int) -> bytes:
        """The frame of a LeaderAndIsr of one partition."""
        return self._alone

    def send_request(self, broker_id: int, frame: bytes, callback: Callable[[object], None]) -> None:
        """Write the frame if the broker is idle, else its thread does."""
        broker = self._brokers[broker_id]
        with broker.lock:
            broker.waiting.append((frame, callback))
            if len(broker.waiting) == 1:
                self._write(broker, frame)

    def new_batch(self) -> None:
        """Begin a batch of one partition: its frames are ready."""

    def add_leader_and_isr(self, tp: object) -> None:
        """Add the partition."""

    def send_requests_to_brokers(self, epoch: int) -> None:
        """Send the frames of a batch of one partition."""
        for broker_id, frame in self._of_batch:
            self.send_request(broker_id, frame, self.latch.down)

    def _write(self, broker: _Broker, frame: bytes) -> None:
        self._record(frame)
        broker.sock.sendall(frame)

    def _record(self, data: bytes) -> None:
        if self._recording is not None:
            with self._of_recording:
                head = _BLOCK.pack(6, len(data), 0, 0, 0, crc32c.crc32c(data), len(data))
                self._recording.write(b"".join((head, data)))

    def _serve(self, brokers: list[_Broker]) -> None:
        poll, by_number = select.epoll(), {broker.sock.fileno(): broker for broker in brokers}
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        while True:
            for number, _ in poll.poll():
                broker = by_number[number]
                answer = broker.sock.recv(_MOST)
                if not answer:
                    return
                self._record(answer)
                with broker.lock:
                    _, callback = broker.waiting.popleft()
                    if broker.waiting:
                        self._write(broker, broker.waiting[0][0])
                callback(answer)


class _Frames:
    """Takes requests in the channel manager's place and keeps their frames."""

    def __init__(self, frames: list[tuple[int, bytes]]) -> None:
        self._frames = frames

    def send_request(self, broker_id: int, request: ControlRequest, callback: object = None) -> None:
        self._frames.append((broker_id, _frame(request)))


def _frame(request: ControlRequest) -> bytes:
    header = headers.request_header(request.api_key, request.latest_version, 1, "bare")
    data = b"".join([headers.encode_request_header(header), *map(bytes, request.build(request.latest_version))])
    return struct.pack(">i", len(data)) + data
