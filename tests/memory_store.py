"""A controller's store in memory, with the versions and the fence that ZooKeeper has.

The methods of ``ZooKeeperStore`` are the controller's. The others are the hands of brokers and administrators; their
caller gives the controller the event that ZooKeeper's watches would give.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any

from channel.errors import ControllerMoved
from channel.lead.zookeeper_store import ConfigChanges, StateWrite
from channel.types import Broker, LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from channel.zookeeper.znodes import ADMIN_DELETE_TOPICS, ISR_CHANGES, LOG_DIR_EVENTS, TopicZnode
from kproto.types import TopicPartition, Uuid

__all__ = ["MemoryStore"]


class MemoryStore:
    """The znodes of a cluster, as values.

    Attributes:
        controller_epoch: The number in ``/controller_epoch``; 0 before the first election.
        version: The version of that znode; each election raises it.
        fence: The version that the controller of this store was elected with.
        default_config: The settings of all brokers that were changed while they run.
        config_changes: The entities whose settings have changed, in the order of their notifications.
    """

    def __init__(self) -> None:
        self.controller_epoch = 0
        self.version = 0
        self.fence = 0
        self.default_config: dict[str, str] = {}
        self.config_changes: list[str] = []
        self._zxid = 0
        self._brokers: dict[int, tuple[Broker, int]] = {}
        self._topics: dict[str, TopicZnode] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._states: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        self._deletions: dict[str, None] = {}
        self._reassignments: dict[TopicPartition, tuple[int, ...]] = {}
        self._elections: set[TopicPartition] = set()
        self._isr_changes: dict[str, tuple[TopicPartition, ...]] = {}
        self._log_dir_failures: dict[str, int] = {}

    # ---- the hands of brokers and administrators

    def elect(self) -> int:
        """Elect the controller of this store; its epoch."""
        self.depose()
        self.fence = self.version
        return self.controller_epoch

    def depose(self) -> None:
        """Elect another controller."""
        self.controller_epoch += 1
        self.version += 1

    def register_broker(self, broker: Broker) -> int:
        """Register a broker, anew if it is registered; its new epoch."""
        epoch = self._next_zxid()
        self._brokers[broker.id] = broker, epoch
        return epoch

    def modify_broker(self, broker: Broker) -> None:
        """Replace the data of a registration, keeping its epoch."""
        self._brokers[broker.id] = broker, self._brokers[broker.id][1]

    def unregister_broker(self, broker_id: int) -> None:
        """Remove a broker's registration, as the end of its session does."""
        del self._brokers[broker_id]

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
        self._topics[topic] = TopicZnode(partitions, topic_id)
        self._configs[topic] = dict(config or {})

    def change_isr(self, tp: TopicPartition, isr: Sequence[int]) -> None:
        """Write a partition's ISR as its leader does below inter.broker.protocol.version 2.7-IV2, and notify."""
        (state, epoch) = self._states[tp]
        changed = state._replace(isr=tuple(isr), partition_epoch=state.partition_epoch + 1)
        self._states[tp] = LeaderIsrAndControllerEpoch(changed, epoch)
        self._isr_changes[f"isr_change_{self._next_zxid():010}"] = (tp,)

    def fail_log_dir(self, broker_id: int) -> None:
        """Notify of a failed log directory of a broker."""
        self._log_dir_failures[f"log_dir_event_{self._next_zxid():010}"] = broker_id

    def mark_for_deletion(self, topic: str) -> None:
        """Ask for the deletion of a topic."""
        self._deletions[topic] = None

    def elect_preferred(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask for the election of preferred replicas."""
        self._elections.update(partitions)

    def reassign(self, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Ask for reassignments."""
        self._reassignments.update({tp: tuple(replicas) for tp, replicas in targets.items()})

    def _next_zxid(self) -> int:
        self._zxid += 1
        return self._zxid

    def _fenced(self) -> None:
        if self.fence != self.version:
            raise ControllerMoved(
                f"/controller_epoch has version {self.version}, this controller was elected with {self.fence}: another "
                "controller has been elected"
            )

    def create_features(self) -> None:
        """Does nothing: no broker of these tests reads them."""
        self._fenced()

    def unwatch(self) -> None:
        """Does nothing: nothing is watched."""

    # ---- brokers

    def read_brokers(self) -> Mapping[Broker, int]:
        """All registered brokers with their epochs."""
        return dict(self._brokers.values())

    def read_broker(self, broker_id: int) -> Broker | None:
        """The registration of one broker, None if there is none."""
        broker, _ = self._brokers.get(broker_id, (None, 0))
        return broker

    # ---- topics

    def read_topics(self) -> Set[str]:
        """The names of all topics."""
        return set(self._topics)

    def read_assignments(self, topics: Collection[str]) -> Mapping[str, TopicZnode]:
        """The assignments of those topics that exist."""
        return {topic: self._topics[topic] for topic in topics if topic in self._topics}

    def write_assignment(self, topic: str, assignment: TopicZnode) -> bool:
        """Replace the assignment of a topic; False if the topic does not exist."""
        self._fenced()
        if topic not in self._topics:
            return False
        self._topics[topic] = TopicZnode(dict(assignment.partitions), assignment.topic_id)
        return True

    def read_topic_configs(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """The settings of topics that differ from the brokers' defaults; a topic without any may be left out."""
        return {topic: dict(self._configs[topic]) for topic in topics if self._configs.get(topic)}

    def read_default_config(self) -> Mapping[str, str]:
        """The settings of all brokers that were changed while they run."""
        return dict(self.default_config)

    def read_config_changes(self, after: int | None) -> ConfigChanges:
        """The notifications with a higher number than ``after``; for None the latest number alone."""
        new = [] if after is None else self.config_changes[after + 1 :]
        topics = tuple(entity.removeprefix("topics/") for entity in new if entity.startswith("topics/"))
        return ConfigChanges(len(self.config_changes) - 1, topics, "brokers/<default>" in new)

    def delete_topics(self, topics: Collection[str]) -> None:
        """Delete topics with the states of their partitions, their configurations, and their deletion markers."""
        self._fenced()
        for topic in topics:
            self._topics.pop(topic, None)
            self._configs.pop(topic, None)
            self._states = {tp: state for tp, state in self._states.items() if tp.topic != topic}
            self._deletions.pop(topic, None)

    # ---- partition states

    def read_partition_states(
        self, partitions: Collection[TopicPartition], *, watch: bool = False
    ) -> Mapping[TopicPartition, LeaderIsrAndControllerEpoch]:
        """The states of those partitions that have one; ``watch`` changes nothing here."""
        return {tp: self._states[tp] for tp in partitions if tp in self._states}

    def create_partition_states(
        self, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch]
    ) -> Mapping[TopicPartition, StateWrite]:
        """Create the states of new partitions, with version 0."""
        self._fenced()
        results: dict[TopicPartition, StateWrite] = {}
        for tp, state in states.items():
            if tp in self._states:
                results[tp] = None
                continue
            self._states[tp] = _at_version(state.leader_and_isr, 0, state.controller_epoch)
            results[tp] = 0
        return results

    def update_partition_states(
        self, states: Mapping[TopicPartition, LeaderAndIsr], controller_epoch: int
    ) -> Mapping[TopicPartition, StateWrite]:
        """Replace states whose version is the expected one."""
        self._fenced()
        results: dict[TopicPartition, StateWrite] = {}
        for tp, state in states.items():
            known = self._states.get(tp)
            if known is None or known.leader_and_isr.partition_epoch != state.partition_epoch:
                results[tp] = None
                continue
            self._states[tp] = _at_version(state, state.partition_epoch + 1, controller_epoch)
            results[tp] = state.partition_epoch + 1
        return results

    # ---- requests of administrators

    def read_topic_deletions(self) -> Set[str]:
        """The topics that are marked for deletion."""
        return set(self._deletions)

    def check_leadership(self) -> None:
        """Write nothing, but raise ``ControllerMoved`` as a write would."""
        self._fenced()

    def read_reassignments(self, *, watch: bool = True) -> Mapping[TopicPartition, tuple[int, ...]]:
        """The target replicas that administrators asked for; ``watch`` changes nothing here."""
        return dict(self._reassignments)

    def write_reassignments(self, reassignments: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Replace the reassignments that administrators asked for."""
        self._fenced()
        self._reassignments = dict(reassignments)

    def read_preferred_elections(self) -> Set[TopicPartition]:
        """The partitions whose preferred replica administrators want to lead."""
        return set(self._elections)

    def delete_preferred_elections(self) -> None:
        """Forget the elections that administrators asked for."""
        self._fenced()
        self._elections.clear()

    # ---- notifications of brokers

    def read_isr_changes(self) -> tuple[list[str], list[TopicPartition]]:
        """The ISR changes that brokers have written themselves: names of notifications, and partitions."""
        return list(self._isr_changes), [tp for tps in self._isr_changes.values() for tp in tps]

    def read_log_dir_failures(self) -> tuple[list[str], list[int]]:
        """The names of the notifications of failed log directories, and the brokers that they name."""
        return list(self._log_dir_failures), list(self._log_dir_failures.values())

    def delete_children(self, parent: str, names: Iterable[str]) -> None:
        """Remove notifications or markers of deleted topics by their names."""
        self._fenced()
        there: dict[str, Any] = {
            ADMIN_DELETE_TOPICS: self._deletions,
            ISR_CHANGES: self._isr_changes,
            LOG_DIR_EVENTS: self._log_dir_failures,
        }
        for name in names:
            there[parent].pop(name, None)


def _at_version(state: LeaderAndIsr, version: int, controller_epoch: int) -> LeaderIsrAndControllerEpoch:
    return LeaderIsrAndControllerEpoch(state._replace(partition_epoch=version), controller_epoch)
