"""AddRaftVoter (80), RemoveRaftVoter (81) and UpdateRaftVoter (82): the voters of a KRaft quorum change.

An administrator adds and removes voters, a voter updates itself. Version 0 of each; flexible.
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Nullable, String, StructOf, UInt16, Uuid
from .fields import Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct


class RaftVoterListener(Struct):
    """A voter's address, by the listener's name."""

    name: str = String
    host: str = String
    port: int = UInt16


class AddRaftVoterRequest(RequestMessage, api_key=ApiKey.ADD_RAFT_VOTER):
    """The voter to add."""

    cluster_id: str | None = Nullable(String)
    timeout_ms: int = Int32
    voter_id: int = Int32
    voter_directory_id: bytes = Uuid
    listeners: list[RaftVoterListener] = ArrayOf(RaftVoterListener)


class AddRaftVoterResponse(ResponseMessage, api_key=ApiKey.ADD_RAFT_VOTER):
    """Whether the voter is added."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    error_message: str | None = Since(0, Nullable(String), ignorable=True)


class RemoveRaftVoterRequest(RequestMessage, api_key=ApiKey.REMOVE_RAFT_VOTER):
    """The voter to remove."""

    cluster_id: str | None = Nullable(String)
    voter_id: int = Int32
    voter_directory_id: bytes = Uuid


class RemoveRaftVoterResponse(ResponseMessage, api_key=ApiKey.REMOVE_RAFT_VOTER):
    """Whether the voter is removed."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    error_message: str | None = Since(0, Nullable(String), ignorable=True)


class KRaftVersionFeature(Struct):
    """The levels of ``kraft.version`` that the voter can run."""

    min_supported_version: int = Int16
    max_supported_version: int = Int16


class UpdateRaftVoterRequest(RequestMessage, api_key=ApiKey.UPDATE_RAFT_VOTER):
    """The voter's addresses and versions."""

    cluster_id: str | None = Nullable(String)
    current_leader_epoch: int = Int32
    voter_id: int = Int32
    voter_directory_id: bytes = Uuid
    listeners: list[RaftVoterListener] = ArrayOf(RaftVoterListener)
    k_raft_version_feature: KRaftVersionFeature = StructOf(KRaftVersionFeature)


class RaftLeader(Struct):
    """The leader that the node knows, and its address."""

    leader_id: int = Since(0, Int32, default=-1)
    leader_epoch: int = Since(0, Int32, default=-1)
    host: str = String
    port: int = Int32


class UpdateRaftVoterResponse(ResponseMessage, api_key=ApiKey.UPDATE_RAFT_VOTER):
    """Whether the voter is updated."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    current_leader: RaftLeader = Tagged(0, StructOf(RaftLeader), since=0)
