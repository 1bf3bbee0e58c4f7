"""What the controller reads from its store, and the results of its writes."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel.types import ReplicaAssignment
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
