"""A controller's store over a ZooKeeper in memory: the simulation's model of one, which answers at once.

The methods of ``ZooKeeperStore`` are the controller's. The others are the hands of brokers and administrators; their
caller gives the controller the event that ZooKeeper's watches would give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from simulation import zookeeper as model

from channel.errors import NoNode
from channel.lead.zookeeper_store import ZooKeeperStore
from channel.types import Broker, ReplicaAssignment
from channel.zookeeper import znodes
from channel.zookeeper.session import (
    Check,
    Create,
    Delete,
    Operation,
    SetData,
    Stat,
    Transaction,
    stat_of,
    transaction_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kproto.types import TopicPartition, Uuid

__all__ = ["MemoryStore"]


def _asked(operation: Operation) -> model.Request:
    match operation:
        case Create(path, data, ephemeral, sequence):
            return model.Create(path, data, ephemeral | sequence << 1)
        case SetData(path, data, version):
            return model.Set(path, data, version)
        case Delete(path, version):
            return model.Delete(path, version)
        case Check(path, version):
            return model.Check(path, version)


class _Session:
    """A session with the model, in which nothing is watched."""

    def __init__(self) -> None:
        self._ensemble = model.Ensemble(cast("Any", None))

    def get_unwatched(self, paths: Iterable[str]) -> Iterator[tuple[bytes, Stat] | None]:
        for path in paths:
            node = self._ensemble.tree.nodes.get(path)
            yield None if node is None else (node.data or b"", stat_of(node.stat()))

    def get_many(self, paths: Iterable[str], timeout_s: float | None = None) -> list[tuple[bytes, Stat] | None]:
        return list(self.get_unwatched(paths))

    def exists_many(self, paths: Iterable[str]) -> list[Stat | None]:
        return [None if found is None else found[1] for found in self.get_unwatched(paths)]

    def children_of_many(self, paths: Iterable[str]) -> list[list[str] | None]:
        nodes = map(self._ensemble.tree.nodes.get, paths)
        return [None if node is None else sorted(node.children) for node in nodes]

    def children(self, path: str) -> list[str]:
        found = self.children_of_many([path])[0]
        if found is None:
            raise NoNode(path)
        return found

    def transactions(self, many: Sequence[Sequence[Operation]]) -> list[Transaction]:
        outcomes = []
        for operations in many:
            _, _, results = self._ensemble.write(model.Multi(tuple(map(_asked, operations))), cast("Any", None))
            outcomes.append(transaction_of(operations, results))
        return outcomes

    def apply(self, *operations: Operation) -> None:
        (outcome,) = self.transactions([operations])
        if outcome.error is not None:
            raise outcome.error

    def put(self, path: str, data: bytes) -> None:
        """Replace a znode's data, or create the znode."""
        is_there = self.exists_many([path]) != [None]
        self.apply(SetData(path, data) if is_there else Create(path, data))

    def ensure(self, path: str) -> None:
        if path and self.exists_many([path]) == [None]:
            self.ensure(path.rpartition("/")[0])
            self.apply(Create(path, b""))

    def watch_node(self, path: str, handler: object) -> None:
        """Does nothing, as ``watch_children`` and ``unwatch``."""

    watch_children = watch_node

    def unwatch(self, path: str) -> None:
        """Does nothing."""


class MemoryStore(ZooKeeperStore):
    """The store of the controller that was elected last, at first of none."""

    def __init__(self) -> None:
        self._znodes = _Session()
        super().__init__(cast("Any", self._znodes), lambda event: None, 0)
        for path in znodes.PERSISTENT:
            self._znodes.ensure(path)
        self._znodes.put(znodes.CONTROLLER_EPOCH, b"0")

    def elect(self) -> int:
        """Elect the controller of this store; its epoch."""
        self.fence = self.depose()
        return self.fence

    def depose(self) -> int:
        """Elect another controller; its epoch, which is the version of its znode too."""
        (found,) = self._znodes.exists_many([znodes.CONTROLLER_EPOCH])
        assert found is not None
        self._znodes.put(znodes.CONTROLLER_EPOCH, str(found.version + 1).encode())
        return found.version + 1

    def register_broker(self, broker: Broker) -> int:
        """Register a broker, anew if it is registered; its new epoch."""
        if self._znodes.exists_many([znodes.broker_path(broker.id)]) != [None]:
            self.unregister_broker(broker.id)
        self.modify_broker(broker)
        return self.read_brokers()[broker]

    def modify_broker(self, broker: Broker) -> None:
        """Replace the data of a registration, keeping its epoch."""
        self._znodes.put(znodes.broker_path(broker.id), znodes.encode_broker(broker, "3.9", 0))

    def unregister_broker(self, broker_id: int) -> None:
        """Remove a broker's registration, as the end of its session does."""
        self._znodes.apply(Delete(znodes.broker_path(broker_id)))

    def create_topic(
        self,
        topic: str,
        assignment: Mapping[int, Sequence[int]],
        topic_id: Uuid | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic's znode, or replace it to add partitions.

        Args:
            topic: The topic's name.
            assignment: The replicas of each partition.
            topic_id: Its id, if it has one.
            config: Its settings.
        """
        partitions = {p: ReplicaAssignment(tuple(replicas)) for p, replicas in assignment.items()}
        self._znodes.put(znodes.topic_path(topic), znodes.encode_topic(partitions, topic_id))
        self.configure(f"topics/{topic}", config or {})

    def configure(self, entity: str, config: Mapping[str, str]) -> None:
        """Write the settings of an entity."""
        self._znodes.put(f"/config/{entity}", znodes.encode_config(config))

    def notify_of_settings(self, *entities: str) -> None:
        """Notify of changed settings."""
        for entity in entities:
            self._notify(znodes.CONFIG_CHANGES, "config_change_", znodes.encode_config_change(entity))

    def change_isr(self, tp: TopicPartition, isr: Sequence[int]) -> None:
        """Write a partition's ISR as its leader does below inter.broker.protocol.version 2.7-IV2, and notify."""
        state, epoch = self.read_partition_states([tp])[tp]
        data = znodes.encode_partition_state(state._replace(isr=tuple(isr)), epoch)
        self._znodes.put(znodes.partition_state_path(tp), data)
        self._notify(znodes.ISR_CHANGES, "isr_change_", znodes.encode_partitions([tp]))

    def fail_log_dir(self, broker_id: int) -> None:
        """Notify of a failed log directory of a broker."""
        data = znodes.json_bytes({"version": 1, "broker": broker_id, "event": 1})
        self._notify(znodes.LOG_DIR_EVENTS, "log_dir_event_", data)

    def mark_for_deletion(self, topic: str) -> None:
        """Ask for the deletion of a topic."""
        self._znodes.ensure(f"{znodes.ADMIN_DELETE_TOPICS}/{topic}")

    def elect_preferred(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask for the election of preferred replicas."""
        self._znodes.put(znodes.PREFERRED_ELECTION, znodes.encode_partitions(list(partitions)))

    def reassign(self, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Ask for reassignments, beside those that are asked for."""
        asked = {**self.read_reassignments(), **targets}
        self._znodes.put(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments(asked))

    def _notify(self, parent: str, prefix: str, data: bytes) -> None:
        self._znodes.apply(Create(f"{parent}/{prefix}", data, sequence=True))
