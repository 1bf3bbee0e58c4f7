"""AddRaftVoter (80), RemoveRaftVoter (81) and UpdateRaftVoter (82): the voters of a KRaft quorum change.

An administrator adds and removes voters, a voter updates itself. Version 0 of each; flexible.
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Nullable, String, StructOf, UInt16, Uuid
from .fields import Fields, Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct


class RaftVoterListener(Struct):
    """A voter's address, by the listener's name."""

    fields = Fields(
        "name" / String,
        "host" / String,
        "port" / UInt16,
    )


class AddRaftVoterRequest(RequestMessage):
    """The voter to add."""

    api_key = ApiKey.ADD_RAFT_VOTER
    fields = Fields(
        "cluster_id" / Nullable(String),
        "timeout_ms" / Int32,
        "voter_id" / Int32,
        "voter_directory_id" / Uuid,
        "listeners" / ArrayOf(RaftVoterListener),
    )


class AddRaftVoterResponse(ResponseMessage):
    """Whether the voter is added."""

    api_key = ApiKey.ADD_RAFT_VOTER
    fields = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "error_message" / Since(0, Nullable(String), ignorable=True),
    )


class RemoveRaftVoterRequest(RequestMessage):
    """The voter to remove."""

    api_key = ApiKey.REMOVE_RAFT_VOTER
    fields = Fields(
        "cluster_id" / Nullable(String),
        "voter_id" / Int32,
        "voter_directory_id" / Uuid,
    )


class RemoveRaftVoterResponse(ResponseMessage):
    """Whether the voter is removed."""

    api_key = ApiKey.REMOVE_RAFT_VOTER
    fields = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "error_message" / Since(0, Nullable(String), ignorable=True),
    )


class KRaftVersionFeature(Struct):
    """The levels of ``kraft.version`` that the voter can run."""

    fields = Fields(
        "min_supported_version" / Int16,
        "max_supported_version" / Int16,
    )


class UpdateRaftVoterRequest(RequestMessage):
    """The voter's addresses and versions."""

    api_key = ApiKey.UPDATE_RAFT_VOTER
    fields = Fields(
        "cluster_id" / Nullable(String),
        "current_leader_epoch" / Int32,
        "voter_id" / Int32,
        "voter_directory_id" / Uuid,
        "listeners" / ArrayOf(RaftVoterListener),
        "k_raft_version_feature" / StructOf(KRaftVersionFeature),
    )


class RaftLeader(Struct):
    """The leader that the node knows, and its address."""

    fields = Fields(
        "leader_id" / Since(0, Int32, default=-1),
        "leader_epoch" / Since(0, Int32, default=-1),
        "host" / String,
        "port" / Int32,
    )


class UpdateRaftVoterResponse(ResponseMessage):
    """Whether the voter is updated."""

    api_key = ApiKey.UPDATE_RAFT_VOTER
    fields = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "current_leader" / Tagged(0, StructOf(RaftLeader), since=0),
    )
