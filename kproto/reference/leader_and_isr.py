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

from typing import TYPE_CHECKING

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Int64, String, Uuid
from .fields import Since, Until
from .struct import RequestMessage, ResponseMessage, Struct, flat_view

if TYPE_CHECKING:
    from kproto.types import Uuid as UuidBytes


class LeaderAndIsrPartitionState(Struct):
    """One partition: leader, in-sync replicas, assigned replicas.

    ``partition_epoch`` is the version of the partition's state in ZooKeeper.
    """

    topic_name: str = Until(1, String, ignorable=True)
    partition_index: int = Int32
    controller_epoch: int = Int32
    leader: int = Int32
    leader_epoch: int = Int32
    isr: tuple[int, ...] = ArrayOf(Int32)
    partition_epoch: int = Int32
    replicas: tuple[int, ...] = ArrayOf(Int32)
    adding_replicas: tuple[int, ...] = Since(3, ArrayOf(Int32), ignorable=True)
    removing_replicas: tuple[int, ...] = Since(3, ArrayOf(Int32), ignorable=True)
    is_new: bool = Since(1, Bool, ignorable=True)
    leader_recovery_state: int = Since(6, Int8)


class LeaderAndIsrTopicState(Struct):
    """The partitions of one topic, versions 2 and above."""

    topic_name: str = Since(2, String)
    topic_id: bytes = Since(5, Uuid, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = Since(2, ArrayOf(LeaderAndIsrPartitionState))


class LeaderAndIsrLiveLeader(Struct):
    """The address at which followers reach a leader of the partitions."""

    broker_id: int = Int32
    host_name: str = String
    port: int = Int32


class LeaderAndIsrRequest(RequestMessage, api_key=ApiKey.LEADER_AND_ISR):
    """The partitions that a broker is to lead or follow."""

    controller_id: int = Int32
    is_kraft_controller: bool = Since(7, Bool)
    controller_epoch: int = Int32
    broker_epoch: int = Since(2, Int64, default=-1, ignorable=True)
    type: int = Since(5, Int8)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = Until(1, ArrayOf(LeaderAndIsrPartitionState))
    topic_states: list[LeaderAndIsrTopicState] = Since(2, ArrayOf(LeaderAndIsrTopicState))
    live_leaders: list[LeaderAndIsrLiveLeader] = ArrayOf(LeaderAndIsrLiveLeader)

    @property
    def partition_states(self) -> tuple[LeaderAndIsrPartitionState, ...]:
        """All partition states in wire order, each with its topic's name, whatever the version: a read-only view."""
        return flat_view(self.ungrouped_partition_states, self.topic_states)

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

    topic_name: str = Until(4, String, ignorable=True)
    partition_index: int = Int32
    error_code: int = Int16


class LeaderAndIsrTopicError(Struct):
    """The results for one topic's partitions, versions 5 and above."""

    topic_id: bytes = Since(5, Uuid)
    partition_errors: list[LeaderAndIsrPartitionError] = Since(5, ArrayOf(LeaderAndIsrPartitionError))


class LeaderAndIsrResponse(ResponseMessage, api_key=ApiKey.LEADER_AND_ISR):
    """The broker's answer: an error code for the request, and one for each partition."""

    is_error_of_all = True
    error_code: int = Int16
    partition_errors: list[LeaderAndIsrPartitionError] = Until(4, ArrayOf(LeaderAndIsrPartitionError))
    topics: list[LeaderAndIsrTopicError] = Since(5, ArrayOf(LeaderAndIsrTopicError))
