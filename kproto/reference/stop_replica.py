"""StopReplica (5): the controller makes a broker stop replicas, and delete those that it names. Versions 0 to 4.

What each version brought:

    0  one flag for all, and partitions one by one
    1  the broker's epoch; partitions grouped by topic
    2  flexible: compact forms, tagged fields
    3  for each partition its own flag and the leader epoch, by which a broker tells old requests from new ones
    4  ``is_kraft_controller``: for brokers on their way from ZooKeeper
"""

from __future__ import annotations

from typing import NamedTuple

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Int64, String
from .fields import Between, Since, Until
from .struct import RequestMessage, ResponseMessage, Struct


class StopReplicaState(NamedTuple):
    """One partition to stop, whatever the version: a row of ``StopReplicaRequest.partition_states``."""

    topic_name: str
    partition_index: int
    leader_epoch: int
    delete_partition: bool


class StopReplicaPartitionV0(Struct):
    """One partition, version 0."""

    topic_name: str = Until(0, String)
    partition_index: int = Until(0, Int32)


class StopReplicaTopicV1(Struct):
    """One topic's partitions, versions 1 and 2."""

    name: str = Between(1, 2, String)
    partition_indexes: tuple[int, ...] = Between(1, 2, ArrayOf(Int32))


class StopReplicaPartitionState(Struct):
    """One partition, versions 3 and above. ``leader_epoch``: -1 unknown, -2 the topic is being deleted."""

    partition_index: int = Since(3, Int32)
    leader_epoch: int = Since(3, Int32, default=-1)
    delete_partition: bool = Since(3, Bool)


class StopReplicaTopicState(Struct):
    """One topic's partitions, versions 3 and above."""

    topic_name: str = Since(3, String)
    partition_states: list[StopReplicaPartitionState] = Since(3, ArrayOf(StopReplicaPartitionState))


class StopReplicaRequest(RequestMessage, api_key=ApiKey.STOP_REPLICA):
    """The replicas that a broker is to stop."""

    controller_id: int = Int32
    is_kraft_controller: bool = Since(4, Bool)
    controller_epoch: int = Int32
    broker_epoch: int = Since(1, Int64, default=-1, ignorable=True)
    delete_partitions: bool = Until(2, Bool)
    ungrouped_partitions: list[StopReplicaPartitionV0] = Until(0, ArrayOf(StopReplicaPartitionV0))
    topics: list[StopReplicaTopicV1] = Between(1, 2, ArrayOf(StopReplicaTopicV1))
    topic_states: list[StopReplicaTopicState] = Since(3, ArrayOf(StopReplicaTopicState))

    @property
    def partition_states(self) -> tuple[StopReplicaState, ...]:
        """All partitions whatever the version, read-only; a partition that version 3 and above names twice counts once.

        Below version 3 the leader epoch is -1 and the flag is the request's. The last mention of a partition wins and
        keeps the place of the first.
        """
        merged = {(row.topic_name, row.partition_index): row for row in self._grouped()}
        return (*self._flat(), *merged.values())

    def _flat(self) -> list[StopReplicaState]:
        return [
            *(
                StopReplicaState(row.topic_name, row.partition_index, -1, self.delete_partitions)
                for row in self.ungrouped_partitions
            ),
            *(
                StopReplicaState(topic.name, index, -1, self.delete_partitions)
                for topic in self.topics
                for index in topic.partition_indexes
            ),
        ]

    def _grouped(self) -> list[StopReplicaState]:
        return [
            StopReplicaState(topic.topic_name, row.partition_index, row.leader_epoch, row.delete_partition)
            for topic in self.topic_states
            for row in topic.partition_states
        ]

    def error_response(self, error_code: int) -> StopReplicaResponse:
        """Make the answer that refuses the whole request, with ``error_code`` for it and for every partition."""
        errors = [
            StopReplicaPartitionError(
                topic_name=row.topic_name, partition_index=row.partition_index, error_code=error_code
            )
            for row in [*self._flat(), *self._grouped()]
        ]
        return StopReplicaResponse(version=self.version, error_code=error_code, partition_errors=errors)


class StopReplicaPartitionError(Struct):
    """The result for one partition; 0 means success."""

    topic_name: str = String
    partition_index: int = Int32
    error_code: int = Int16


class StopReplicaResponse(ResponseMessage, api_key=ApiKey.STOP_REPLICA):
    """The broker's answer: an error code for the request, and one for each partition; flexible since version 2."""

    is_error_of_all = True
    error_code: int = Int16
    partition_errors: list[StopReplicaPartitionError] = ArrayOf(StopReplicaPartitionError)
