"""AddRaftVoter (80), RemoveRaftVoter (81) and UpdateRaftVoter (82): the voters of a KRaft quorum change.

An administrator adds and removes voters, a voter updates itself. Version 0 of each; flexible.
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Nullable, String, StructOf, UInt16, Uuid
from .fields import Fields, Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct


class RaftVoterListener(Struct):
    """A voter's address, by the listener's name."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "host" / String,
        "port" / UInt16,
    )
    name: str
    host: str
    port: int


class AddRaftVoterRequest(RequestMessage):
    """The voter to add."""

    api_key: int = ApiKey.ADD_RAFT_VOTER
    fields: ClassVar[Fields] = Fields(
        "cluster_id" / Nullable(String),
        "timeout_ms" / Int32,
        "voter_id" / Int32,
        "voter_directory_id" / Uuid,
        "listeners" / ArrayOf(RaftVoterListener),
    )
    cluster_id: str | None
    timeout_ms: int
    voter_id: int
    voter_directory_id: bytes
    listeners: list[RaftVoterListener]


class AddRaftVoterResponse(ResponseMessage):
    """Whether the voter is added."""

    api_key: int = ApiKey.ADD_RAFT_VOTER
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "error_message" / Since(0, Nullable(String), ignorable=True),
    )
    throttle_time_ms: int
    error_code: int
    error_message: str | None


class RemoveRaftVoterRequest(RequestMessage):
    """The voter to remove."""

    api_key: int = ApiKey.REMOVE_RAFT_VOTER
    fields: ClassVar[Fields] = Fields(
        "cluster_id" / Nullable(String),
        "voter_id" / Int32,
        "voter_directory_id" / Uuid,
    )
    cluster_id: str | None
    voter_id: int
    voter_directory_id: bytes


class RemoveRaftVoterResponse(ResponseMessage):
    """Whether the voter is removed."""

    api_key: int = ApiKey.REMOVE_RAFT_VOTER
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "error_message" / Since(0, Nullable(String), ignorable=True),
    )
    throttle_time_ms: int
    error_code: int
    error_message: str | None


class KRaftVersionFeature(Struct):
    """The levels of ``kraft.version`` that the voter can run."""

    fields: ClassVar[Fields] = Fields(
        "min_supported_version" / Int16,
        "max_supported_version" / Int16,
    )
    min_supported_version: int
    max_supported_version: int


class UpdateRaftVoterRequest(RequestMessage):
    """The voter's addresses and versions."""

    api_key: int = ApiKey.UPDATE_RAFT_VOTER
    fields: ClassVar[Fields] = Fields(
        "cluster_id" / Nullable(String),
        "current_leader_epoch" / Int32,
        "voter_id" / Int32,
        "voter_directory_id" / Uuid,
        "listeners" / ArrayOf(RaftVoterListener),
        "k_raft_version_feature" / StructOf(KRaftVersionFeature),
    )
    cluster_id: str | None
    current_leader_epoch: int
    voter_id: int
    voter_directory_id: bytes
    listeners: list[RaftVoterListener]
    k_raft_version_feature: KRaftVersionFeature


class RaftLeader(Struct):
    """The leader that the node knows, and its address."""

    fields: ClassVar[Fields] = Fields(
        "leader_id" / Since(0, Int32, default=-1),
        "leader_epoch" / Since(0, Int32, default=-1),
        "host" / String,
        "port" / Int32,
    )
    leader_id: int
    leader_epoch: int
    host: str
    port: int


class UpdateRaftVoterResponse(ResponseMessage):
    """Whether the voter is updated."""

    api_key: int = ApiKey.UPDATE_RAFT_VOTER
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "current_leader" / Tagged(0, StructOf(RaftLeader), since=0),
    )
    throttle_time_ms: int
    error_code: int
    current_leader: RaftLeader
