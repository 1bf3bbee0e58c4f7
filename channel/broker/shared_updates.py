"""UpdateMetadata requests that brokers of one process share: equal bodies are decoded once and applied once.

A controller sends every broker the same UpdateMetadata but for the broker epoch. The memory of the cache is bounded in
bytes: the last bodies are kept up to a budget, and a metadata snapshot as long as it is a broker's present snapshot.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from channel.locks import new_lock
from kproto import codec
from kproto.api import ApiKey
from kproto.prefix import prefix_of

from .metadata_snapshot import LiveBrokers, Update, apply_update, live_brokers

if TYPE_CHECKING:
    from .metadata_snapshot import MetadataSnapshot

_BUDGET: Final = 8 * 1024 * 1024
_SHARED_FROM: Final = 4096
"""Smaller bodies are cheaper to decode again than to keep."""


class _Body:
    """A decoded body, and its live brokers once a broker has applied the body: even different snapshots share them."""

    __slots__ = ("brokers", "message")

    def __init__(self, message: Any) -> None:
        self.message = message
        self.brokers: LiveBrokers | None = None


class SharedUpdateMetadata:
    """One broker's UpdateMetadata request: a message that other brokers share, with this broker's own epoch.

    Attributes:
        message: The request as it was decoded for the first broker.
        broker_epoch: The epoch that this broker's request names.
        content_hash: Equal for equal bodies, whatever the broker epoch.
    """

    __slots__ = ("_body", "broker_epoch", "content_hash", "message")

    def __init__(self, body: _Body, broker_epoch: int, content_hash: int) -> None:
        self._body = body
        self.message = body.message
        self.broker_epoch = broker_epoch
        self.content_hash = content_hash

    def __getattr__(self, name: str) -> Any:
        return getattr(self.message, name)

    @property
    def brokers(self) -> LiveBrokers:
        """The live brokers of the request, one object for all brokers that received the body."""
        if self._body.brokers is None:
            self._body.brokers = live_brokers(self.message)
        return self._body.brokers

    def to_json(self, version: int) -> dict[str, Any]:
        """Return Kafka's JSON form, with this broker's epoch."""
        form: dict[str, Any] = self.message.to_json(version)
        form["brokerEpoch"] = self.broker_epoch
        return form


class SharedUpdates:
    """A cache of the latest UpdateMetadata requests to brokers of one process, and of the snapshots after them.

    Args:
        budget: The bytes of bodies that are kept; the newest body is kept even if it is larger. 0 keeps none, for a
            broker that shares updates with no other.
    """

    def __init__(self, budget: int = _BUDGET) -> None:
        self._budget = budget
        self._lock = new_lock("shared updates")
        self._bodies: OrderedDict[tuple[int, bytes, bytes], _Body] = OrderedDict()
        self._kept = 0
        self._updates: WeakValueDictionary[int, Update] = WeakValueDictionary()
        self._unshared = itertools.count(1)

    def decode(self, version: int, body: memoryview) -> Any:
        """Decode the request in ``body``; a body that differs from an earlier one only in the broker epoch is shared.

        Raises:
            DecodeError: The bytes are no UpdateMetadata request of this version.
        """
        prefix = prefix_of(ApiKey.UPDATE_METADATA, version) if self._budget else None
        if prefix is None or len(body) < prefix.size:
            return codec.decode_request(ApiKey.UPDATE_METADATA, version, body)
        head, epoch, rest = prefix.cut(body)
        tail = bytes(rest)  # views compare item by item, a hundred times slower
        key = (version, head, tail)
        with self._lock:
            known = self._bodies.get(key)
            if known is not None:
                self._bodies.move_to_end(key)
        if known is None:
            known = _Body(codec.decode_request(ApiKey.UPDATE_METADATA, version, body))
            if len(tail) >= _SHARED_FROM:
                self._keep(key, known)
        return SharedUpdateMetadata(known, known.message.broker_epoch if epoch is None else epoch, hash(key))

    def _keep(self, key: tuple[int, bytes, bytes], body: _Body) -> None:
        with self._lock:
            if key in self._bodies:
                return
            self._bodies[key] = body
            self._kept += len(key[2])
            while self._kept > self._budget and len(self._bodies) > 1:
                (_, _, oldest), _ = self._bodies.popitem(last=False)
                self._kept -= len(oldest)

    def apply(self, snapshot: MetadataSnapshot, request: Any, *, version: int, migration_enabled: bool) -> Update:
        """Do ``apply_update``; brokers that received equal requests in the same order get the same snapshot object.

        A snapshot is shared as long as it is some broker's present snapshot, and not kept longer.
        """
        if not isinstance(request, SharedUpdateMetadata):
            lineage = -next(self._unshared)
            return apply_update(
                snapshot, request, version=version, migration_enabled=migration_enabled, lineage=lineage
            )
        lineage = hash((snapshot.lineage, request.content_hash, migration_enabled))
        with self._lock:
            known = self._updates.get(lineage)
        if known is not None:
            return known
        update = apply_update(
            snapshot,
            request.message,
            version=version,
            migration_enabled=migration_enabled,
            lineage=lineage,
            brokers=request.brokers,
        )
        with self._lock:
            return self._updates.setdefault(lineage, update)
