"""Writes a controller's stream of small updates of which no two are equal, as a pcap on standard output.

    python benches/growing_stream.py BODIES | kproto summary -

Each update tells a broker the next state of a partition and is answered. The packets are written from templates, so
that writing costs less than reading.
"""

from __future__ import annotations

import struct
import sys
from io import BytesIO
from typing import TYPE_CHECKING

from pipeline_input import START_NS, Connection

from kproto import codec, messages
from kproto.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BROKERS", "PARTITIONS", "pieces"]

BROKERS = 20
PARTITIONS = 1000
_PIECE = 1000
_PARTITION, _EPOCH = 0x7ABBCC01, 0x7ABBCC02
"""What stands for a partition's number and its epoch in a template."""
_STEP_US = 1000
_HEADERS = 16 + 14 + 20 + 20
"""Bytes of a packet before its payload, the record's header included."""


class _Updates:
    """The updates of one broker: a template of the packets of a request and its answer, and what differs in each."""

    def __init__(self, broker: int) -> None:
        file = BytesIO()
        connection = Connection(file, broker)
        connection.open()
        self.opening = file.getvalue()
        connection.exchange(ApiKey.UPDATE_METADATA, _body())
        self._packets = bytearray(file.getvalue()[len(self.opening) :])
        answer = 16 + struct.unpack_from("<I", self._packets, 8)[0]
        self._starts = 0, answer
        self._lengths = answer - _HEADERS, len(self._packets) - answer - _HEADERS
        self._sequences = struct.unpack_from(">II", self._packets, _HEADERS - 16)
        self._partition, self._epoch = (self._packets.index(struct.pack(">i", mark)) for mark in (_PARTITION, _EPOCH))
        self._correlation = 0

    def next(self, now_us: int, partition: int, epoch: int) -> bytes:
        """The packets of the next update and its answer."""
        packets = self._packets
        client, server = self._sequences
        asked, answered = client + self._lengths[0], server + self._lengths[1]
        for at, us, sequence, acknowledged, correlation_at in (
            (0, now_us, client, server, 8),
            (self._starts[1], now_us + 1, server, asked, 4),
        ):
            struct.pack_into("<II", packets, at, *divmod(us, 1_000_000))
            struct.pack_into(">II", packets, at + _HEADERS - 16, sequence & 0xFFFFFFFF, acknowledged & 0xFFFFFFFF)
            struct.pack_into(">i", packets, at + _HEADERS + correlation_at, self._correlation)
        struct.pack_into(">i", packets, self._partition, partition)
        struct.pack_into(">i", packets, self._epoch, epoch)
        self._sequences = asked, answered
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        return bytes(packets)


def _body() -> bytes:
    state = messages.UpdateMetadataPartitionState(
        partition_index=_PARTITION, controller_epoch=1, leader=1, leader_epoch=1, isr=[1, 2, 3], zk_version=_EPOCH,
        replicas=[1, 2, 3],
    )  # fmt: skip
    topic = messages.UpdateMetadataTopicState(topic_name="orders", topic_id=bytes(range(16)), partition_states=[state])
    brokers = [
        messages.UpdateMetadataBroker(
            id=broker,
            endpoints=[
                messages.UpdateMetadataEndpoint(port=9092, host=f"10.0.0.{broker}", listener="A", security_protocol=0)
            ],
        )
        for broker in range(1, BROKERS + 1)
    ]
    update = messages.UpdateMetadataRequest(
        controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic], live_brokers=brokers
    )
    return codec.encode(update, 8)


def pieces(bodies: int) -> Iterator[bytes]:
    """Yield the pcap in pieces, each of up to 1,000 updates."""
    brokers = [_Updates(broker) for broker in range(1, BROKERS + 1)]
    yield struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1) + b"".join(one.opening for one in brokers)
    now_us = START_NS // 1000 + 1_000_000
    for first in range(0, bodies, _PIECE):
        yield b"".join(
            brokers[number % BROKERS].next(now_us + number * _STEP_US, number % PARTITIONS, number // PARTITIONS)
            for number in range(first, min(first + _PIECE, bodies))
        )


if __name__ == "__main__":
    for piece in pieces(int(sys.argv[1])):
        sys.stdout.buffer.write(piece)
