"""An embedded broker without its sockets: its registration, its replicas and its metadata.

A process can hold a thousand brokers, as they share decoded messages and metadata snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel.types import NO_BROKER_EPOCH

from .apis import LARGEST_RECORD_BODY
from .hooks import BrokerHooks
from .metadata_cache import MetadataCache
from .replicas import BrokerReplicas

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from kproto.types import TopicPartition

    from .hooks import RecordApis
    from .metadata_cache import SharedUpdates


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The features that a broker announces in ApiVersions from version 3 on.

    The defaults are those of a Kafka 3.9 broker with ZooKeeper: it has no feature of its own, and finds the cluster's
    features, none, at epoch 0.

    Attributes:
        supported: The broker's features by name: lowest and highest level.
        finalized: The cluster's features by name: lowest and highest level.
        finalized_epoch: Counts the changes of ``finalized``; -1 while the broker does not know them.
    """

    supported: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    finalized: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    finalized_epoch: int = 0


class EmbeddedBroker:
    """A broker that serves the control plane, and producers and consumers if it is given ``records``.

    Args:
        broker_id: The broker's id.
        broker_epoch: The epoch of its registration in ZooKeeper (the znode's czxid).
        cluster_id: The cluster id in Metadata answers.
        kraft_epoch: The epoch of its registration with a KRaft controller, where a migration is enabled.
        zookeeper_mode: False for a KRaft broker, which should never receive the three control requests.
        features: The features that the broker announces.
        hooks: The owner's callables.
        updates: The decoded UpdateMetadata requests that the brokers of a process share.

    Attributes:
        records: Serves Produce, Fetch, ListOffsets and InitProducerId; None if the broker stores no records.
    """

    def __init__(
        self,
        broker_id: int,
        *,
        broker_epoch: int = 0,
        cluster_id: str = "kproto",
        kraft_epoch: int | None = None,
        zookeeper_mode: bool = True,
        features: Features | None = None,
        hooks: BrokerHooks | None = None,
        updates: SharedUpdates | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.cluster_id = cluster_id
        self.kraft_epoch = kraft_epoch
        self.zookeeper_mode = zookeeper_mode
        self.features = features or Features()
        self.hooks = hooks or BrokerHooks()
        self.records: RecordApis | None = None
        self.metadata = MetadataCache(broker_id, migration_enabled=self.migration_enabled, updates=updates)
        self.replicas = BrokerReplicas(
            broker_id,
            self.metadata.has_alive_broker,
            migration_enabled=self.migration_enabled,
            create_log=self._create_log,
            delete_log=self._delete_log,
            complete_requests=self._complete_requests,
        )

    @property
    def controller_keys(self) -> Set[int]:
        """The API keys that ``hooks.controller`` serves; every broker of a fleet has some, none without that hook."""
        return frozenset() if self.hooks.controller is None else self.hooks.controller.keys

    @property
    def announced_keys(self) -> Set[int]:
        """The API keys that the broker announces besides those that every embedded broker serves."""
        passed_on = self.hooks.passed_on
        own = self.controller_keys | self.record_keys
        return own if passed_on is None else own | passed_on.keys

    @property
    def record_keys(self) -> Set[int]:
        """The API keys that ``records`` serves."""
        return frozenset() if self.records is None else frozenset(LARGEST_RECORD_BODY)

    @property
    def is_led_by_kraft(self) -> bool:
        """Whether the broker's controller is a KRaft controller."""
        controller = self.metadata.snapshot.controller
        return controller is not None and controller.is_kraft

    @property
    def epoch_for_controller(self) -> int:
        """The epoch of the broker's registration with its controller."""
        return self.kraft_epoch if self.is_led_by_kraft and self.kraft_epoch is not None else self.broker_epoch

    @property
    def migration_enabled(self) -> bool:
        """Whether the broker takes part in a migration to KRaft."""
        return self.kraft_epoch is not None

    def is_stale(self, request_epoch: int, *, is_kraft: bool) -> bool:
        """Whether a request is for an earlier registration of this broker.

        -1 is never stale, and a larger epoch is accepted: the controller may know of a registration before the broker.

        Raises:
            RuntimeError: A KRaft controller sent the request, but this broker is not registered with it.
        """
        if request_epoch == NO_BROKER_EPOCH:
            return False
        if is_kraft:
            if self.kraft_epoch is None:
                raise RuntimeError("a KRaft controller's request, but migration to KRaft is not enabled here")
            return request_epoch < self.kraft_epoch
        return request_epoch < self.broker_epoch

    # The hooks may be replaced while the broker lives, so they are looked up at each call.

    def _create_log(self, tp: TopicPartition) -> None:
        if self.hooks.create_log is not None:
            self.hooks.create_log(tp)

    def _delete_log(self, tp: TopicPartition) -> None:
        if self.hooks.delete_log is not None:
            self.hooks.delete_log(tp)

    def _complete_requests(self, tp: TopicPartition, code: int) -> None:
        if self.hooks.complete_requests is not None:
            self.hooks.complete_requests(tp, code)
