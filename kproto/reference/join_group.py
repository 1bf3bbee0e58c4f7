"""JoinGroup (11): a consumer asks to become a member of its group. Versions 0 to 9; flexible since 6.

What each version brought:

    1  the time that members have to join again
    2  throttle time
    3  (the broker throttles after its answer instead of before it)
    4  (a new member gets its id with an error code, and joins with it)
    5  static members
    6  flexible
    7  the type of the protocol in the answer, and no protocol where there is none
    8  the reason for joining
    9  a leader that need not assign partitions
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Bytes, Int16, Int32, Nullable, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class JoinGroupRequestProtocol(Struct):
    """A way to assign partitions that the consumer supports, with what it says for it."""

    name: str = String
    metadata: bytes = Bytes


class JoinGroupRequest(RequestMessage, api_key=ApiKey.JOIN_GROUP):
    """The group, the member and the protocols that it supports."""

    group_id: str = String
    session_timeout_ms: int = Int32
    rebalance_timeout_ms: int = Since(1, Int32, default=-1, ignorable=True)
    member_id: str = String
    group_instance_id: str | None = Since(5, Nullable(String), default=None)
    protocol_type: str = String
    protocols: list[JoinGroupRequestProtocol] = ArrayOf(JoinGroupRequestProtocol)
    reason: str | None = Since(8, Nullable(String), default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    """A member of the group, as the group's leader learns of it."""

    member_id: str = String
    group_instance_id: str | None = Since(5, Nullable(String), default=None, ignorable=True)
    metadata: bytes = Bytes


class JoinGroupResponse(ResponseMessage, api_key=ApiKey.JOIN_GROUP):
    """The group's generation, protocol and leader; its members, for the leader alone."""

    throttle_time_ms: int = Since(2, Int32, ignorable=True)
    error_code: int = Int16
    generation_id: int = Since(0, Int32, default=-1)
    protocol_type: str | None = Since(7, Nullable(String), default=None, ignorable=True)
    protocol_name: str | None = Nullable(String, since=7)
    leader: str = String
    skip_assignment: bool = Since(9, Bool)
    member_id: str = String
    members: list[JoinGroupResponseMember] = ArrayOf(JoinGroupResponseMember)
