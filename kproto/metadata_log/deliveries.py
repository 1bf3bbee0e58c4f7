"""What a capture shows of the metadata log: the batches that replicas fetched, when each was told, committed, applied.

Three facts are kept apart. A replica was *told* of a batch when an answer to its fetch carried it. A batch is
*committed* when an answer names a high watermark beyond it. A broker has *applied* it when a heartbeat of that broker
names its offset. Followers are told of batches before these are committed.

Of fetches only those of the metadata log are read: they are chosen by the client id in the request's header before a
body is kept, and by the topic in it. Heartbeats, the quorum's own requests, and administrative requests are read with
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey
from kproto.errors import DecodeError, UnsupportedApi, UnsupportedVersion
from kproto.metadata_log import admin_requests, quorum
from kproto.metadata_log.admin_requests import AdminTraffic
from kproto.metadata_log.batches import RecordBatch, batches_in
from kproto.metadata_log.files import ShownLog, snapshot_of
from kproto.metadata_log.finding import TOPIC
from kproto.metadata_log.heartbeats import Heartbeats
from kproto.metadata_log.quorum import QuorumTraffic
from kproto.reference import decode_request, decode_response

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kproto.capture import Exchange
    from kproto.metadata_log.files import LogSnapshot

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
        sent_in: The last epoch whose leader sent each of them, where it is a later one than its own.
        deliveries: The first delivery of each batch to each replica, in the order of time; a batch that the replica had
            before the captures begin, and is told again, has none.
        committed: (time in ns, high watermark) where an answer named a higher one.
        applied: For each broker (time in ns, offset) where a heartbeat named a higher offset.
        snapshots: Those that a replica fetched whole, by end offset and epoch.
        heartbeats: The brokers' registrations and heartbeats.
        quorum: The requests of the quorum's nodes to each other, and refused fetches.
        admin: Administrative requests.
        last_ns: When the captures end, as far as these requests tell.
        shown_by: The names of the captures that show any of it.
    """

    batches: dict[tuple[int, int], tuple[RecordBatch, str]] = field(default_factory=dict)
    sent_in: dict[tuple[int, int], int] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    committed: list[tuple[int, int]] = field(default_factory=list)
    applied: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    snapshots: dict[tuple[int, int], LogSnapshot] = field(default_factory=dict)
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    quorum: QuorumTraffic = field(default_factory=QuorumTraffic)
    admin: AdminTraffic = field(default_factory=AdminTraffic)
    last_ns: int = 0
    shown_by: set[str] = field(default_factory=set)
    _parts: dict[tuple[int, int, int], bytearray] = field(default_factory=dict)
    _had: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each replica the end of what it was told, and the epoch of the last record in it."""

    def shown(self) -> ShownLog:
        """What the captures show of the log itself."""
        return ShownLog(self.batches, self.sent_in, self.snapshots, self.quorum.diverged)

    def add(self, exchange: Exchange, capture: str) -> None:
        """Add an exchange; what cannot be read is passed over."""
        request, response = exchange.request, exchange.response
        if request is None or request.api_key is None or request.api_version is None:
            return
        key, version = request.api_key, request.api_version
        self.shown_by.add(capture)
        self.last_ns = max(self.last_ns, exchange.time_ns, 0 if response is None else response.time_ns)
        try:
            if key == ApiKey.ENVELOPE or key in admin_requests.APIS:
                self.admin.add(exchange)
                return
            asked = decode_request(key, version, request.body)
            answer = None if response is None else decode_response(key, version, response.body)
            if key == ApiKey.BROKER_HEARTBEAT:
                self._add_heartbeat(asked, answer, exchange.time_ns)
            elif key == ApiKey.BROKER_REGISTRATION:
                self.heartbeats.add_registration(asked, answer, exchange.client.ip, exchange.time_ns)
            elif key == ApiKey.FETCH:
                answered = 0 if response is None else response.time_ns
                self._add_fetch(asked, answer, exchange.time_ns, answered, capture)
            elif key in quorum.APIS:
                self.quorum.add(asked, answer, exchange)
            elif answer is not None:
                self.add_snapshot_part(asked, answer, capture)
        except (DecodeError, UnsupportedVersion, UnsupportedApi):
            return

    def finish(self) -> None:
        """Put what several captures show in the order of time."""
        self.deliveries.sort(key=lambda delivery: delivery.time_ns)
        self.heartbeats.finish()
        for answer, time_ns in self.admin.described:
            self.quorum.describe(answer, time_ns)
        self.quorum.finish()
        self.admin.finish()

    def take_log(self, other: MetadataTraffic) -> None:
        """Take what others show of the log itself; their times cannot be compared with these."""
        self.batches |= {of: found for of, found in other.batches.items() if of not in self.batches}
        self.snapshots |= {of: found for of, found in other.snapshots.items() if of not in self.snapshots}
        self.quorum.leaders = other.quorum.leaders | self.quorum.leaders
        for of, epoch in other.sent_in.items():
            self.sent_in[of] = max(epoch, self.sent_in.get(of, epoch))
        self.quorum.diverged |= other.quorum.diverged
        self.shown_by |= other.shown_by

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

    def _add_heartbeat(self, request: Any, answer: Any, time_ns: int) -> None:
        self.heartbeats.add(request, answer, time_ns)
        steps = self.applied.setdefault(request.broker_id, [])
        if request.current_metadata_offset >= 0 and (not steps or steps[-1][1] < request.current_metadata_offset):
            steps.append((time_ns, request.current_metadata_offset))

    def _add_fetch(self, asked: Any, answer: Any, asked_ns: int, time_ns: int, capture: str) -> None:
        node_id = asked.replica_id if asked.replica_id >= 0 else asked.replica_state.replica_id
        wanted = {part.partition: part for part in _partitions(asked.topics)}
        if answer is None:
            for part in wanted.values():
                self.quorum.add_fetch(node_id, part, None, asked_ns)
            return
        for partition in _partitions(answer.responses):
            error_code = partition.error_code or answer.error_code
            part = wanted.get(partition.partition_index)
            if part is not None:
                self.quorum.add_fetch(node_id, part, partition, asked_ns, time_ns, error_code)
            if error_code:
                continue
            mark = partition.high_watermark
            if mark >= 0 and (not self.committed or self.committed[-1][1] < mark):
                self.committed.append((time_ns, mark))
            had = self._had.get(node_id, (0, -1))
            if partition.diverging_epoch.epoch >= 0:
                had = partition.diverging_epoch.end_offset, partition.diverging_epoch.epoch
            for found in _batches(partition):
                of = found.epoch, found.base_offset
                self.batches.setdefault(of, (found, capture))
                if partition.current_leader.leader_epoch > self.sent_in.get(of, found.epoch):
                    self.sent_in[of] = partition.current_leader.leader_epoch
                if found.last_offset >= had[0] or found.epoch > had[1]:
                    had = found.end_offset, found.epoch
                    self.deliveries.append(Delivery(node_id, time_ns, *of, found.last_offset))
            self._had[node_id] = had


def _partitions(topics: Iterable[Any]) -> Iterator[Any]:
    """The partitions of the metadata log in a fetch or its answer."""
    return (
        part for topic in topics if topic.topic_id == _TOPIC_ID or topic.topic == TOPIC for part in topic.partitions
    )


def _batches(partition: Any) -> Iterator[RecordBatch]:
    found = batches_in(partition.records or b"", partial_end=True)
    return (each for each in found if isinstance(each, RecordBatch))


APIS: Final = frozenset(
    {
        ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.ENVELOPE,
        *quorum.APIS, *admin_requests.APIS,
    }
)  # fmt: skip
"""The requests that tell of a metadata log."""


def batches_told(exchange: Exchange) -> Iterator[RecordBatch]:
    """Yield the batches of the metadata log that the answer to a fetch carries; none of what is not that."""
    request, response = exchange.request, exchange.response
    if request is None or response is None or request.api_key != ApiKey.FETCH or request.api_version is None:
        return
    try:
        answer = decode_response(ApiKey.FETCH, request.api_version, response.body)
    except (DecodeError, UnsupportedVersion):
        return
    for partition in _partitions(answer.responses):
        yield from _batches(partition)
