"""Captures of a controller's requests to its brokers, made up for the pipeline's benches: as large as asked for.

A change of the cluster is an UpdateMetadata of ``PARTITIONS`` partitions and a LeaderAndIsr of a few of them. Each
change is new, so that no body occurs twice, unless it is sent to several brokers.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

from kproto import codec, headers, messages
from kproto.api import ApiKey, request_header_version, response_header_version
from kproto.columns import encode_columns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["PARTITIONS", "START_NS", "Connection", "rotate", "write_capture"]

PARTITIONS = 1000
_TOPICS = 50
_BROKERS = 100
START_NS = 1_700_000_000_000_000_000
_SEGMENT = 1448
_VERSIONS = {ApiKey.LEADER_AND_ISR: 7, ApiKey.UPDATE_METADATA: 8}


def write_capture(
    path: Path,
    size: int,
    *,
    copies: int = 1,
    seed: int = 1,
    first_epoch: int = 0,
    first_share: float = 0.0,
    partitions: int = PARTITIONS,
    brokers: int = _BROKERS,
) -> int:
    """Write a pcap of about ``size`` bytes, each change of which goes to ``copies`` brokers.

    Args:
        path: The file.
        size: The size at which to stop, in bytes.
        copies: The number of brokers to which each change is sent.
        seed: Of the random states.
        first_epoch: The epoch of the first change: other epochs make other bodies.
        first_share: The share of the changes that go to the first broker; the others go to each in turn.
        partitions: The number of partitions of the cluster, a multiple of the number of topics.
        brokers: The number of its brokers, at least 3.

    Returns:
        The rows of ``partition_states`` that a table with each distinct body once has.
    """
    rows = 0
    shares = random.Random(seed)
    changes = _changes(random.Random(seed), first_epoch, partitions, brokers)
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        connections = [Connection(file, broker) for broker in range(1, brokers + 1)]
        for connection in connections:
            connection.open()
        number = 0
        while file.tell() < size:
            bodies = next(changes)
            for _ in range(copies):
                connection = connections[0 if shares.random() < first_share else number % brokers]
                for api_key, body, _partitions in bodies:
                    connection.exchange(api_key, body)
                number += 1
            rows += sum(partitions for _api_key, _body, partitions in bodies)
    return rows


def rotate(capture: Path, directory: Path, count: int) -> None:
    """Cut a capture into files of about one size, between packets, with the names that ``tcpdump -C`` gives."""
    most = capture.stat().st_size // count + 1
    with capture.open("rb") as file:
        head = file.read(24)
        for number in range(count):
            with (directory / f"control.pcap{number or ''}").open("wb") as part:
                part.write(head)
                while part.tell() < most and (record := file.read(16)):
                    part.write(record + file.read(struct.unpack_from("<I", record, 8)[0]))


def _changes(rng: random.Random, epoch: int, partitions: int, brokers: int) -> Iterator[list[tuple[int, bytes, int]]]:
    """The bodies of one change after the other: API, body, partitions."""
    topics = [f"orders.of-region-{number:03d}" for number in range(_TOPICS)]
    ids = [rng.randbytes(16) for _ in topics]
    each = partitions // _TOPICS
    states: dict[str, list[Any]] = {
        "topic": [topic for topic in topics for _ in range(each)],
        "topic_id": [topic_id for topic_id in ids for _ in range(each)],
        "partition": [number for _ in topics for number in range(each)],
        "replicas": [rng.sample(range(1, brokers + 1), 3) for _ in range(partitions)],
    }
    while True:
        epoch += 1
        states["leader"] = [rng.choice(replicas) for replicas in states["replicas"]]
        states["isr"] = [r if rng.random() < 0.9 else r[:2] for r in states["replicas"]]
        states["leader_epoch"] = states["partition_epoch"] = [epoch] * partitions
        states["controller_epoch"] = [1] * partitions
        few = {name: values[:each] for name, values in states.items()}
        update = messages.UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=epoch)
        update.live_brokers = [
            messages.UpdateMetadataBroker(
                id=broker,
                endpoints=[
                    messages.UpdateMetadataEndpoint(
                        port=9092, host=_ip(broker), listener="PLAINTEXT", security_protocol=0
                    )
                ],
            )
            for broker in range(1, brokers + 1)
        ]
        leaders = messages.LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=epoch)
        yield [
            (ApiKey.LEADER_AND_ISR, encode_columns(leaders, 7, few), each),
            (ApiKey.UPDATE_METADATA, encode_columns(update, 8, states), partitions),
        ]


def _ip(broker: int) -> str:
    return f"10.0.{broker >> 8}.{broker & 255}"


class Connection:
    """The controller's connection to a broker, written packet by packet."""

    _now_ns = START_NS

    def __init__(self, file: BinaryIO, broker: int) -> None:
        ends = (bytes((10, 1, 0, 1)), struct.pack(">BBH", 10, 0, broker))
        self._file = file
        self._ports = (40_000 + broker, 9092)
        self._ends = ends
        self._sequence = [1000, 5000]
        self._correlation = 0
        self._answers = {
            api: codec.encode(codec.message_class(api, "response")(), version) for api, version in _VERSIONS.items()
        }

    def open(self) -> None:
        self._segment(0, 2)
        self._sequence[0] += 1
        self._segment(1, 18)
        self._sequence[1] += 1
        self._segment(0, 16)

    def exchange(self, api_key: int, body: bytes) -> None:
        version = _VERSIONS[ApiKey(api_key)]
        header = headers.request_header(api_key, version, self._correlation, "1")
        self._send(0, headers.encode_request_header(header, request_header_version(api_key, version)) + body)
        answer = headers.response_header(self._correlation)
        head = headers.encode_response_header(answer, response_header_version(api_key, version))
        self._send(1, head + self._answers[ApiKey(api_key)])
        self._correlation += 1

    def _send(self, side: int, payload: bytes) -> None:
        data = struct.pack(">i", len(payload)) + payload
        for at in range(0, len(data), _SEGMENT):
            piece = data[at : at + _SEGMENT]
            self._segment(side, 24, piece)
            self._sequence[side] += len(piece)

    def _segment(self, side: int, flags: int, data: bytes = b"") -> None:
        Connection._now_ns += 1000
        other = 1 - side
        packet = b"".join(
            (
                b"\0" * 12 + b"\x08\x00",
                struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(data), 0, 0x4000, 64, 6, 0),
                self._ends[side],
                self._ends[other],
                struct.pack(
                    ">HHIIBBHHH", self._ports[side], self._ports[other], self._sequence[side] & 0xFFFFFFFF,
                    self._sequence[other] & 0xFFFFFFFF, 80, flags, 65535, 0, 0,
                ),
                data,
            )
        )  # fmt: skip
        seconds, ns = divmod(Connection._now_ns, 1_000_000_000)
        self._file.write(struct.pack("<IIII", seconds, ns // 1000, len(packet), len(packet)) + packet)
