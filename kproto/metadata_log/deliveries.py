"""What a capture shows of the metadata log: the batches that replicas fetched, when each was told, committed, applied.

Three facts are kept apart. A replica was *told* of a batch when an answer to its fetch carried it. A batch is
*committed* when an answer names a high watermark beyond it. A broker has *applied* it when a heartbeat of that broker
names its offset. Followers are told of batches before these are committed.

Only fetches of the metadata log are read: they are chosen by the client id in the request's header before a body is
kept, and by the topic in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey
from kproto.capture import CaptureSummary, exchanges
from kproto.capture.wanted import WantedApis
from kproto.errors import CaptureError, DecodeError, UnsupportedApi, UnsupportedVersion
from kproto.metadata_log.batches import Fault, RecordBatch, batches_in
from kproto.metadata_log.files import snapshot_of
from kproto.metadata_log.finding import TOPIC
from kproto.reference import decode_request, decode_response

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kproto.capture import CapturePoint, Exchange
    from kproto.metadata_log.files import LogSnapshot

CLIENT: Final = "raft-client"
"""The client id of a node that fetches the metadata log begins so."""

_TOPIC_ID: Final = bytes(15) + b"\x01"
_LARGEST_SNAPSHOT: Final = 256 << 20
_MOST_FETCHED: Final = 4
"""The most snapshots that are put together at a time."""


@dataclass(slots=True)
class Delivery:
    """A batch that an answer carried to a replica.

    Attributes:
        node_id: The replica.
        time_ns: When the answer began, by the capture's clock.
        epoch, base_offset, last_offset: The batch.
    """

    node_id: int
    time_ns: int
    epoch: int
    base_offset: int
    last_offset: int


@dataclass(slots=True)
class MetadataTraffic:
    """What captures show of one cluster's metadata log.

    Attributes:
        batches: By (epoch, base offset), each with the name of the capture that showed it first.
        deliveries: The first delivery of each batch to each replica, in the order of time.
        committed: (time in ns, high watermark) where an answer named a higher one.
        applied: For each broker (time in ns, offset) where a heartbeat named a higher offset.
        fetches, refused: The number of fetches, and of those that were answered with an error.
        damaged: Pieces of answers that are no batch.
        snapshots: Those that a replica fetched whole, by end offset and epoch.
    """

    batches: dict[tuple[int, int], tuple[RecordBatch, str]] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    committed: list[tuple[int, int]] = field(default_factory=list)
    applied: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    fetches: int = 0
    refused: int = 0
    damaged: int = 0
    snapshots: dict[tuple[int, int], LogSnapshot] = field(default_factory=dict)
    _parts: dict[tuple[int, int, int], bytearray] = field(default_factory=dict)
    _told: set[tuple[int, int, int]] = field(default_factory=set)

    def shown(self) -> Iterator[tuple[RecordBatch, str]]:
        """Yield the batches, each with where it was seen."""
        yield from self.batches.values()

    def add(self, exchange: Exchange, capture: str) -> None:
        """Add a Fetch or a BrokerHeartbeat; what cannot be read is passed over."""
        request, response = exchange.request, exchange.response
        if request is None or request.api_key is None or request.api_version is None:
            return
        version = request.api_version
        try:
            if request.api_key == ApiKey.BROKER_HEARTBEAT:
                self._add_heartbeat(decode_request(request.api_key, version, request.body), exchange.time_ns)
            elif request.api_key == ApiKey.FETCH and response is not None:
                asked = decode_request(request.api_key, version, request.body)
                answer = decode_response(request.api_key, version, response.body)
                self._add_fetch(asked, answer, response.time_ns, capture)
            elif request.api_key == ApiKey.FETCH_SNAPSHOT and response is not None:
                asked = decode_request(request.api_key, version, request.body)
                self.add_snapshot_part(asked, decode_response(request.api_key, version, response.body), capture)
        except (DecodeError, UnsupportedVersion, UnsupportedApi):
            self.damaged += 1

    def add_snapshot_part(self, asked: Any, answer: Any, capture: str) -> None:
        """Add a FetchSnapshot and its answer; the parts of a snapshot come one after the other."""
        for topic in answer.topics:
            for partition in topic.partitions if topic.name == TOPIC else ():
                of = partition.snapshot_id
                key = asked.replica_id, of.end_offset, of.epoch
                held = self._parts.pop(key, bytearray())
                if partition.position == 0:
                    held.clear()
                if partition.error_code or partition.position != len(held) or partition.size > _LARGEST_SNAPSHOT:
                    continue
                held += partition.unaligned_records
                if len(held) < partition.size:
                    self._parts[key] = held
                    while len(self._parts) > _MOST_FETCHED:
                        self._parts.pop(next(iter(self._parts)))
                    continue
                batches = [found for found in batches_in(bytes(held)) if isinstance(found, RecordBatch)]
                snapshot = snapshot_of(of.end_offset, of.epoch, capture, batches)
                if snapshot is not None:
                    self.snapshots.setdefault((of.end_offset, of.epoch), snapshot)

    def _add_heartbeat(self, request: Any, time_ns: int) -> None:
        steps = self.applied.setdefault(request.broker_id, [])
        if request.current_metadata_offset >= 0 and (not steps or steps[-1][1] < request.current_metadata_offset):
            steps.append((time_ns, request.current_metadata_offset))

    def _add_fetch(self, asked: Any, answer: Any, time_ns: int, capture: str) -> None:
        node_id = asked.replica_id if asked.replica_id >= 0 else asked.replica_state.replica_id
        for topic in answer.responses:
            if topic.topic_id != _TOPIC_ID and topic.topic != TOPIC:
                continue
            for partition in topic.partitions:
                self.fetches += 1
                if partition.error_code or answer.error_code:
                    self.refused += 1
                    continue
                mark = partition.high_watermark
                if mark >= 0 and (not self.committed or self.committed[-1][1] < mark):
                    self.committed.append((time_ns, mark))
                for found in batches_in(partition.records or b"", partial_end=True):
                    if isinstance(found, Fault):
                        self.damaged += 1
                        continue
                    self.batches.setdefault((found.epoch, found.base_offset), (found, capture))
                    key = node_id, found.epoch, found.base_offset
                    if key not in self._told:
                        self._told.add(key)
                        self.deliveries.append(
                            Delivery(node_id, time_ns, found.epoch, found.base_offset, found.last_offset)
                        )


def read_traffic(
    points: Iterable[CapturePoint],
    *,
    ports: tuple[int, ...] | None = None,
) -> MetadataTraffic:
    """Read what captures show of a metadata log; a capture that cannot be read adds nothing.

    Args:
        points: The capture points of one cluster.
        ports: The listeners' ports; None finds them.
    """
    traffic = MetadataTraffic()
    wanted = WantedApis({ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT, ApiKey.BROKER_HEARTBEAT}, fetch_client=CLIENT)
    for point in points:
        try:
            for exchange in exchanges(point, ports=ports, apis=wanted, summary=CaptureSummary()):
                traffic.add(exchange, point.name)
        except CaptureError:
            continue
    traffic.deliveries.sort(key=lambda delivery: delivery.time_ns)
    return traffic
