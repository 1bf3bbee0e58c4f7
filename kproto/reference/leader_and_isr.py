"""LeaderAndIsr (4): the controller makes a broker leader or follower of partitions. Versions 0 to 7.

What each version brought:

    0  partition states one by one, each with its topic's name; leaders' addresses beside them
    1  ``is_new``: the replica has never been there before, so a broker with a failed disk knows that it may create it
    2  states grouped by topic; the broker's epoch, so that a restarted broker can refuse what was meant for its past
    3  the replicas that a reassignment adds and removes
    4  flexible: compact forms, tagged fields
    5  topic ids, and ``type`` (1 some partitions, 2 all of them); the response names topics by id, no longer by name
    6  ``leader_recovery_state``: 1 while a leader that was elected uncleanly still recovers
    7  ``is_kraft_controller``: for brokers on their way from ZooKeeper
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Int64, String, Uuid
from .fields import Fields, Since, Until
from .struct import RequestMessage, ResponseMessage, Struct, count_errors

if TYPE_CHECKING:
    from kproto.types import Uuid as UuidBytes


class LeaderAndIsrPartitionState(Struct):
    """One partition: leader, in-sync replicas, assigned replicas.

    ``partition_epoch`` is the version of the partition's state in ZooKeeper.
    """

    fields: ClassVar[Fields] = Fields(
        "topic_name" / Until(1, String, ignorable=True),
        "partition_index" / Int32,
        "controller_epoch" / Int32,
        "leader" / Int32,
        "leader_epoch" / Int32,
        "isr" / ArrayOf(Int32),
        "partition_epoch" / Int32,
        "replicas" / ArrayOf(Int32),
        "adding_replicas" / Since(3, ArrayOf(Int32), ignorable=True),
        "removing_replicas" / Since(3, ArrayOf(Int32), ignorable=True),
        "is_new" / Since(1, Bool, ignorable=True),
        "leader_recovery_state" / Since(6, Int8),
    )
    topic_name: str
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    is_new: bool
    leader_recovery_state: int


class LeaderAndIsrTopicState(Struct):
    """The partitions of one topic, versions 2 and above."""

    fields: ClassVar[Fields] = Fields(
        "topic_name" / Since(2, String),
        "topic_id" / Since(5, Uuid, ignorable=True),
        "partition_states" / Since(2, ArrayOf(LeaderAndIsrPartitionState)),
    )
    topic_name: str
    topic_id: bytes
    partition_states: list[LeaderAndIsrPartitionState]


class LeaderAndIsrLiveLeader(Struct):
    """The address at which followers reach a leader of the partitions."""

    fields: ClassVar[Fields] = Fields(
        "broker_id" / Int32,
        "host_name" / String,
        "port" / Int32,
    )
    broker_id: int
    host_name: str
    port: int


class LeaderAndIsrRequest(RequestMessage):
    """The partitions that a broker is to lead or follow."""

    api_key: int = ApiKey.LEADER_AND_ISR
    fields: ClassVar[Fields] = Fields(
        "controller_id" / Int32,
        "is_kraft_controller" / Since(7, Bool),
        "controller_epoch" / Int32,
        "broker_epoch" / Since(2, Int64, default=-1, ignorable=True),
        "type" / Since(5, Int8),
        "ungrouped_partition_states" / Until(1, ArrayOf(LeaderAndIsrPartitionState)),
        "topic_states" / Since(2, ArrayOf(LeaderAndIsrTopicState)),
        "live_leaders" / ArrayOf(LeaderAndIsrLiveLeader),
    )
    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int
    type: int
    ungrouped_partition_states: list[LeaderAndIsrPartitionState]
    topic_states: list[LeaderAndIsrTopicState]
    live_leaders: list[LeaderAndIsrLiveLeader]

    @property
    def partition_states(self) -> tuple[LeaderAndIsrPartitionState, ...]:
        """All partition states in wire order, each with its topic's name, whatever the version: a read-only view."""
        return (
            *(state.view() for state in self.ungrouped_partition_states),
            *(
                state.view(topic_name=topic.topic_name)
                for topic in self.topic_states
                for state in topic.partition_states
            ),
        )

    @property
    def topic_ids(self) -> dict[str, UuidBytes]:
        """Topic names to ids: empty below version 2, zero ids below version 5."""
        return {topic.topic_name: topic.topic_id for topic in self.topic_states}

    def error_response(self, error_code: int) -> LeaderAndIsrResponse:
        """Make the answer that refuses the whole request, with ``error_code`` for it and for every partition."""
        if self.version < 5:
            errors = [
                LeaderAndIsrPartitionError(
                    topic_name=state.topic_name, partition_index=state.partition_index, error_code=error_code
                )
                for state in self.partition_states
            ]
            return LeaderAndIsrResponse(version=self.version, error_code=error_code, partition_errors=errors)
        topics = [
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=error_code)
                    for state in topic.partition_states
                ],
            )
            for topic in self.topic_states
        ]
        return LeaderAndIsrResponse(version=self.version, error_code=error_code, topics=topics)


class LeaderAndIsrPartitionError(Struct):
    """The result for one partition; 0 means success."""

    fields: ClassVar[Fields] = Fields(
        "topic_name" / Until(4, String, ignorable=True),
        "partition_index" / Int32,
        "error_code" / Int16,
    )
    topic_name: str
    partition_index: int
    error_code: int


class LeaderAndIsrTopicError(Struct):
    """The results for one topic's partitions, versions 5 and above."""

    fields: ClassVar[Fields] = Fields(
        "topic_id" / Since(5, Uuid),
        "partition_errors" / Since(5, ArrayOf(LeaderAndIsrPartitionError)),
    )
    topic_id: bytes
    partition_errors: list[LeaderAndIsrPartitionError]


class LeaderAndIsrResponse(ResponseMessage):
    """The broker's answer: an error code for the request, and one for each partition."""

    api_key: int = ApiKey.LEADER_AND_ISR
    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "partition_errors" / Until(4, ArrayOf(LeaderAndIsrPartitionError)),
        "topics" / Since(5, ArrayOf(LeaderAndIsrTopicError)),
    )
    error_code: int
    partition_errors: list[LeaderAndIsrPartitionError]
    topics: list[LeaderAndIsrTopicError]

    def error_counts(self) -> dict[int, int]:
        """Count each error code; an error of the whole request counts for every partition too."""
        errors = [*self.partition_errors, *(error for topic in self.topics for error in topic.partition_errors)]
        return count_errors(self.error_code, errors)
