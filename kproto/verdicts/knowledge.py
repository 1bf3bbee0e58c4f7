"""Tracks the partition states that each broker was sent, and the changes that each request makes in them.

A broker keeps two states apart: its replicas, which LeaderAndIsr and StopReplica set, and its metadata cache,
which UpdateMetadata sets. So does this module: each is a snapshot of partition states. Snapshots never change; brokers
that were sent the same states share one, so that an update of 20,000 partitions to 300 brokers is compared once.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kproto.api import ApiKey
from kproto.verdicts.states import deletes

if TYPE_CHECKING:
    from collections.abc import Collection

    from kproto.tables.bodies import ControlBody, RequestPartition
    from kproto.types import BrokerId

_Partition = tuple[str, int]
_Told: TypeAlias = "tuple[bytes, frozenset[BrokerId] | None, int, bool, frozenset[_Partition]]"
"""A body, the live brokers before, since when the broker runs, whether it accepted it, and which partitions not."""


class PartitionChange(NamedTuple):
    """A partition's state in a request, and the state that its broker knew before.

    Attributes:
        kind: ``new``, ``first seen`` (the capture does not show what the broker knew), ``changed``, ``unchanged``,
            ``stopped``, ``deleted``, or ``refused``: the broker answered an error, so that nothing changed.
        state: The state in the request.
        before: The state that the broker knew, None if the capture does not show it.
    """

    kind: str
    state: RequestPartition
    before: RequestPartition | None


@dataclass(frozen=True, eq=False)  # they are many
class Changes:
    """The changes of a request at its broker; shared by all requests with the same changes.

    Attributes:
        partitions: All its partitions, in the order sent.
        brokers_before: The live brokers that the metadata cache held, None where the capture does not show it.
        brokers: The live brokers that an UpdateMetadata lists, None of other requests.
    """

    partitions: tuple[PartitionChange, ...] = ()
    brokers_before: frozenset[BrokerId] | None = None
    brokers: frozenset[BrokerId] | None = None

    @cached_property
    def any(self) -> bool:
        """Whether any state changed, or was seen for the first time."""
        if self.brokers is not None and self.brokers != self.brokers_before:
            return True
        return any(change.kind not in ("unchanged", "refused") for change in self.partitions)


class _Snapshot:
    """Partition states: its own, and those of its parent snapshot. None: the broker has dropped the partition.

    Each parent is larger, so that the chain is short and an entry is copied only a few times in all.
    """

    __slots__ = ("__weakref__", "_own", "_parent", "later")

    _own: dict[_Partition, RequestPartition | None]
    _parent: _Snapshot | None

    def __init__(
        self, parent: _Snapshot | None = None, own: dict[_Partition, RequestPartition | None] | None = None
    ) -> None:
        own = own or {}
        while parent is not None and len(own) >= len(parent._own):
            own = parent._own | own
            parent = parent._parent
        self._parent = parent
        self._own = own
        self.later: dict[_Told, tuple[weakref.ref[_Snapshot], Changes]] = {}

    def get(self, partition: _Partition) -> RequestPartition | None:
        snapshot: _Snapshot | None = self
        while snapshot is not None:
            if partition in snapshot._own:
                return snapshot._own[partition]
            snapshot = snapshot._parent
        return None


@dataclass(slots=True)
class _Broker:
    """The states that one broker was sent since it started."""

    began: int = 0
    epoch: int | None = None
    replicas: _Snapshot = field(default_factory=_Snapshot)
    metadata: _Snapshot = field(default_factory=_Snapshot)
    live_brokers: frozenset[BrokerId] | None = None


class Knowledge:
    """The state of every broker as a capture has shown it so far. Requests come in the order of their times."""

    def __init__(self) -> None:
        self._brokers: dict[object, _Broker] = {}
        self._created: dict[_Partition, int] = {}
        self._requests = 0
        self._empty = _Snapshot()

    def replica(self, broker: object, topic: str, partition: int) -> RequestPartition | None:
        """A partition's state in the last LeaderAndIsr to a broker; None if the capture does not show it."""
        known = self._brokers.get(broker)
        return None if known is None else known.replicas.get((topic, partition))

    def apply(
        self,
        broker: object,
        body: ControlBody,
        broker_epoch: int | None,
        *,
        accepted: bool,
        failed: Collection[_Partition] = (),
    ) -> Changes:
        """Apply a request.

        Args:
            broker: The receiving broker: its id, or its address where the id is not known.
            body: The request's decoded body.
            broker_epoch: The broker epoch that it is meant for; a new one means that the broker has started again.
            accepted: Whether the broker may have applied the request: it did not refuse all of it.
            failed: Partitions for which the response has an error.

        Returns:
            The changes.
        """
        self._requests += 1
        known = self._brokers.get(broker)
        if known is None or (
            accepted and broker_epoch not in (None, -1) and known.epoch is not None and broker_epoch != known.epoch
        ):
            began = 0 if known is None else self._requests
            known = self._brokers[broker] = _Broker(began, replicas=self._empty, metadata=self._empty)
        if accepted and broker_epoch not in (None, -1):
            known.epoch = broker_epoch
        is_metadata = body.api_key == ApiKey.UPDATE_METADATA
        snapshot = known.metadata if is_metadata else known.replicas
        key = (body.key, known.live_brokers if is_metadata else None, known.began, accepted, frozenset(failed))
        reference, changes = snapshot.later.get(key, (None, Changes()))
        after = reference() if reference is not None else None
        if after is None:
            changes = self._compared(body, snapshot, known, accepted=accepted, failed=key[-1])
            after = _applied(snapshot, changes)
            if after is not snapshot:
                snapshot.later[key] = (weakref.ref(after), changes)
        if is_metadata:
            known.metadata = after
            if accepted:
                known.live_brokers = body.live_brokers
        else:
            known.replicas = after
        return changes

    def _compared(
        self,
        body: ControlBody,
        snapshot: _Snapshot,
        broker: _Broker,
        *,
        accepted: bool,
        failed: Collection[_Partition],
    ) -> Changes:
        found = []
        for state in body.states:
            place = (state.topic, state.partition)
            before = snapshot.get(place)
            if not accepted or place in failed:
                kind = "refused"
            else:
                if state.is_new:
                    self._created.setdefault(place, self._requests)
                kind = self._kind(body.api_key, state, before, broker.began)
            found.append(PartitionChange(kind, state, before))
        if body.api_key != ApiKey.UPDATE_METADATA:
            return Changes(tuple(found))
        brokers = body.live_brokers if accepted else broker.live_brokers
        return Changes(tuple(found), broker.live_brokers, brokers)

    def _kind(self, api_key: int, state: RequestPartition, before: RequestPartition | None, began: int) -> str:
        if deletes(state):
            return "deleted"
        if api_key == ApiKey.STOP_REPLICA:
            return "stopped"
        if before is None:
            place = (state.topic, state.partition)
            # A broker that starts again is sent all partitions; only those created since are new.
            is_new = api_key == ApiKey.UPDATE_METADATA and self._created.get(place, -1) >= began
            return "new" if state.is_new or is_new else "first seen"
        same = (
            state.leader == before.leader
            and state.leader_epoch == before.leader_epoch
            and (set(state.isr) == set(before.isr) or not state.isr or not before.isr)
            and (state.replicas == before.replicas or not state.replicas or not before.replicas)
            and state.offline_replicas == before.offline_replicas
            and state.adding_replicas == before.adding_replicas
            and state.removing_replicas == before.removing_replicas
        )
        return "unchanged" if same else "changed"


def _applied(snapshot: _Snapshot, changes: Changes) -> _Snapshot:
    """A broker's states after some changes; the same snapshot if they change nothing."""
    own: dict[_Partition, RequestPartition | None] = {}
    for kind, state, _before in changes.partitions:
        place = (state.topic, state.partition)
        if kind in ("deleted", "stopped"):
            own[place] = None
        elif kind not in ("unchanged", "refused"):
            own[place] = state
    return _Snapshot(snapshot, own) if own else snapshot
