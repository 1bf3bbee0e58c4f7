"""Decodes each body of control requests once, since the same body goes to many brokers."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kproto import codec
from kproto.api import ApiKey
from kproto.capture import WHOLE
from kproto.errors import DecodeError, UnsupportedVersion
from kproto.logs.reading import UNKNOWN, UNKNOWN_IDS
from kproto.prefix import prefix_of
from kproto.tables.ids import frame_body_id

if TYPE_CHECKING:
    from kproto.capture import Frame
    from kproto.types import BrokerId

_OBJECT_BYTES: Final = 8192
"""Estimated memory of a decoded body beside its bytes: its objects, and those that are made when they are looked at."""

_CACHED_BYTES: Final = 64 << 20
"""Bytes of bodies whose decoded form is kept; decoded they take some ten times as much."""


class RequestPartition(NamedTuple):
    """One partition in a control request. Fields that the API lacks are empty.

    Attributes:
        topic, partition: The partition.
        leader: Leader; -1 none, -2 the topic is being deleted; None of StopReplica.
        leader_epoch: Leader epoch; -1 where StopReplica's version has none, -2 on deletion.
        isr, replicas: In-sync replicas and all replicas.
        offline_replicas, adding_replicas, removing_replicas: Replicas that are offline, being added, being removed.
        is_new: Whether the replica is new (LeaderAndIsr).
        recovering: Whether the leader was elected uncleanly (LeaderAndIsr).
        delete: Whether the log is to be deleted (StopReplica).
    """

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    is_new: bool = False
    recovering: bool = False
    delete: bool = False


class RequestPrefix(NamedTuple):
    """The fields that open a control request, read without decoding the rest.

    Attributes:
        controller_id, controller_epoch: The sender.
        broker_epoch: The broker epoch that the request is meant for; None where the version has none.
        is_kraft_controller: Whether the sender is a KRaft controller.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int | None
    is_kraft_controller: bool


def prefix_fields(frame: Frame) -> RequestPrefix | None:
    """The first fields of a control request; None of another API or version, or where they are cut off."""
    if frame.api_key is None or frame.api_version is None:
        return None
    prefix = prefix_of(frame.api_key, frame.api_version)
    body = memoryview(frame.start)[frame.body_at :]
    if prefix is None or len(body) < prefix.size:
        return None

    def number(at: int, size: int) -> int:
        return int.from_bytes(body[at : at + size], "big", signed=True)

    return RequestPrefix(
        number(0, 4),
        number(prefix.controller_epoch_at, 4),
        None if prefix.broker_epoch_at is None else number(prefix.broker_epoch_at, 8),
        prefix.kraft_at is not None and bool(body[prefix.kraft_at]),
    )


class ControlBody:
    """A decoded body of LeaderAndIsr, StopReplica or UpdateMetadata, shared by all requests that have it.

    Attributes:
        key: Names the body: bodies that differ in their broker epoch alone have the same key.
        api_key: The API.
        message: The decoded message; its broker epoch is that of the request that was decoded.
    """

    def __init__(self, key: bytes, api_key: int, message: Any) -> None:
        self.key = key
        self.api_key = api_key
        self.message = message

    @property
    def update_type(self) -> int:
        """0 unknown, 1 incremental, 2 full; 0 where the API or version has no type."""
        return int(getattr(self.message, "type", 0))

    @cached_property
    def states(self) -> tuple[RequestPartition, ...]:
        """The partitions, in the order sent."""
        read = {ApiKey.LEADER_AND_ISR: _led, ApiKey.UPDATE_METADATA: _published}.get(ApiKey(self.api_key), _stopped)
        return tuple(map(read, self.message.partition_states))

    @cached_property
    def listeners(self) -> tuple[tuple[BrokerId, str, int], ...]:
        """Id, host and port of each listener of the live brokers, of UpdateMetadata."""
        if self.api_key != ApiKey.UPDATE_METADATA:
            return ()
        return tuple((broker, e.host, e.port) for broker, ends, _rack in self.message.broker_endpoints for e in ends)

    @cached_property
    def live_brokers(self) -> frozenset[BrokerId]:
        """Ids of the live brokers, of UpdateMetadata."""
        return frozenset(broker for broker, _host, _port in self.listeners)

    @cached_property
    def common_replicas(self) -> frozenset[BrokerId]:
        """The replicas that all partitions have in common."""
        return frozenset.intersection(*(frozenset(s.replicas) for s in self.states)) if self.states else frozenset()


def _told(ids: tuple[int, ...]) -> tuple[int, ...]:
    """Ids, none where a log did not tell them."""
    return () if ids[:1] == (UNKNOWN,) and list(ids) == UNKNOWN_IDS else ids


def _led(state: Any) -> RequestPartition:
    return RequestPartition(
        state.topic_name, state.partition_index, state.leader, state.leader_epoch, _told(state.isr),
        _told(state.replicas), (),
        state.adding_replicas, state.removing_replicas, bool(state.is_new), bool(state.leader_recovery_state),
    )  # fmt: skip


def _published(state: Any) -> RequestPartition:
    return RequestPartition(
        state.topic_name, state.partition_index, state.leader, state.leader_epoch, _told(state.isr),
        _told(state.replicas), state.offline_replicas,
    )  # fmt: skip


def _stopped(state: Any) -> RequestPartition:
    return RequestPartition(
        state.topic_name, state.partition_index, None, state.leader_epoch, delete=bool(state.delete_partition)
    )


class BodyCache:
    """Decodes bodies, and caches the most recent ones."""

    def __init__(self) -> None:
        self._bodies: OrderedDict[bytes, tuple[ControlBody | None, int]] = OrderedDict()
        self._bytes = 0
        self.decoded: int = 0

    def of(self, frame: Frame | None) -> ControlBody | None:
        """The body of a control request's frame; None where it cannot be read, or is of another API."""
        if frame is None or frame.status != WHOLE or frame.api_key is None or frame.api_version is None:
            return None
        if prefix_of(frame.api_key, frame.api_version) is None:
            return None
        key = frame_body_id(frame, frame.api_key, frame.api_version)
        known = self._bodies.get(key)
        if known is not None:
            self._bodies.move_to_end(key)
            return known[0]
        body = self._decode(key, frame.api_key, frame.api_version, frame)
        size = len(frame.content) + _OBJECT_BYTES
        self._bodies[key] = (body, size)
        self._bytes += size
        while self._bytes > _CACHED_BYTES and len(self._bodies) > 1:
            self._bytes -= self._bodies.popitem(last=False)[1][1]
        return body

    def _decode(self, key: bytes, api_key: int, version: int, frame: Frame) -> ControlBody | None:
        self.decoded += 1
        try:
            return ControlBody(key, api_key, codec.decode_request(api_key, version, frame.body))
        except (DecodeError, UnsupportedVersion):
            return None
