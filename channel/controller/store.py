"""The protocol of the controller's store: the durable state of the cluster, which ZooKeeper's store implements.

Every write names the version of ``/controller_epoch`` that the controller was elected with. If another controller has
been elected since, the write raises ``ControllerMoved`` and changes nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Set

    from channel.types import Broker, LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
    from kproto.types import TopicPartition, Uuid


class TopicAssignment(NamedTuple):
    """The znode of a topic.

    Attributes:
        partitions: The replicas of each partition, with those that a reassignment adds and removes.
        topic_id: The topic's id; None for a topic that was created before topic ids existed (Kafka 2.8).
    """

    partitions: Mapping[int, ReplicaAssignment]
    topic_id: Uuid | None = None


class Notifications(NamedTuple):
    """The children of a notification znode.

    Attributes:
        names: The children's names, to be deleted once their work is done.
        partitions: The partitions that ISR change notifications name.
        broker_ids: The brokers that log directory notifications name.
    """

    names: tuple[str, ...]
    partitions: tuple[TopicPartition, ...] = ()
    broker_ids: tuple[int, ...] = ()


class ConfigChanges(NamedTuple):
    """The latest notifications of changed settings.

    Attributes:
        last: The number of the latest notification; -1 if there is none.
        topics: The topics that the new notifications name.
        of_default: Whether a new notification names the default of all brokers.
    """

    last: int
    topics: tuple[str, ...] = ()
    of_default: bool = False


class WriteOutcome(Enum):
    """The outcome of writing one partition's state."""

    WRITTEN = "written"
    CONFLICT = "conflict"
    FAILED = "failed"


class StateWrite(NamedTuple):
    """The result of writing one partition's state.

    Attributes:
        outcome: WRITTEN; CONFLICT if the znode has another version than the write expected, exists already or does
            not exist: its state has to be read again; FAILED for any other reason.
        partition_epoch: The znode's new version; only of WRITTEN.
        reason: An explanation for the log; only of FAILED.
    """

    outcome: WriteOutcome
    partition_epoch: int = -1
    reason: str = ""


class ControllerStore(Protocol):
    """The controller's access to the cluster's durable state; called on the event thread only.

    A read also watches its znodes if the controller has an event for their changes: the children of
    broker ids, topics, deletions and notifications, the data of each broker id and of each topic, the znodes of
    reassignments and preferred elections. Every change of such a znode after the read becomes an event. Calls about
    many znodes are pipelined. ``fence`` is the version of ``/controller_epoch``, in the context ``epoch_zk_version``.

    Every method raises ``ChannelError`` if ZooKeeper cannot be reached, every write ``ControllerMoved`` if the
    fence fails.
    """

    # ---- brokers

    def read_brokers(self) -> Mapping[Broker, int]:
        """All registered brokers with their epochs."""

    def read_broker(self, broker_id: int) -> Broker | None:
        """The registration of one broker, None if there is none."""

    # ---- topics

    def read_topics(self) -> Set[str]:
        """The names of all topics."""

    def read_assignments(self, topics: Collection[str]) -> Mapping[str, TopicAssignment]:
        """The assignments of those topics that exist."""

    def write_assignment(self, topic: str, assignment: TopicAssignment, fence: int) -> bool:
        """Replace the assignment of a topic; False if the topic does not exist."""

    def read_topic_configs(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """The settings of topics that differ from the brokers' defaults; a topic without any may be left out."""

    def read_default_config(self) -> Mapping[str, str]:
        """The settings of all brokers that were changed while they run."""

    def read_config_changes(self, after: int | None) -> ConfigChanges:
        """The notifications with a higher number than ``after``; for None the latest number alone."""

    def delete_topics(self, topics: Collection[str], fence: int) -> None:
        """Delete all znodes of topics: a topic's own with those below it, its configuration, last its marker."""

    # ---- partition states

    def read_partition_states(
        self, partitions: Collection[TopicPartition], *, watch: bool = False
    ) -> Mapping[TopicPartition, LeaderIsrAndControllerEpoch]:
        """The states of those partitions that have one; the partition epoch is the version of the znode.

        Args:
            partitions: The partitions.
            watch: Watch the znodes: a change becomes ``PartitionReassignmentIsrChange``.
        """

    def create_partition_states(
        self, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch], fence: int
    ) -> Mapping[TopicPartition, StateWrite]:
        """Create the states of new partitions, with the znodes above them."""

    def update_partition_states(
        self, states: Mapping[TopicPartition, LeaderAndIsr], controller_epoch: int, fence: int
    ) -> Mapping[TopicPartition, StateWrite]:
        """Replace states; each write expects the znode's version to be the state's ``partition_epoch``."""

    # ---- requests of administrators

    def read_topic_deletions(self) -> Set[str]:
        """The topics that are marked for deletion."""

    def delete_topic_deletions(self, topics: Iterable[str], fence: int) -> None:
        """Remove deletion markers; those that do not exist are passed over."""

    def check_leadership(self, fence: int) -> None:
        """Write nothing, but raise ``ControllerMoved`` as a write would."""

    def read_reassignments(self, *, watch: bool = True) -> Mapping[TopicPartition, tuple[int, ...]]:
        """The target replicas in ``/admin/reassign_partitions``; empty without the znode.

        Args:
            watch: Watch the znode: a change becomes ``ZkPartitionReassignment``.
        """

    def write_reassignments(self, reassignments: Mapping[TopicPartition, tuple[int, ...]], fence: int) -> None:
        """Replace the content of ``/admin/reassign_partitions``; the znode is deleted if there is none left."""

    def read_preferred_elections(self) -> Set[TopicPartition]:
        """The partitions in ``/admin/preferred_replica_election``; empty without the znode."""

    def delete_preferred_elections(self, fence: int) -> None:
        """Delete ``/admin/preferred_replica_election``; its next creation becomes an event."""

    # ---- notifications of brokers

    def read_isr_changes(self) -> Notifications:
        """The ISR changes that brokers below inter.broker.protocol.version 2.7-IV2 have written themselves."""

    def delete_isr_changes(self, names: Iterable[str], fence: int) -> None:
        """Remove ISR change notifications by their names."""

    def read_log_dir_failures(self) -> Notifications:
        """The brokers with a failed log directory."""

    def delete_log_dir_failures(self, names: Iterable[str], fence: int) -> None:
        """Remove log directory notifications by their names."""
