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

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Bytes, Int16, Int32, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class JoinGroupRequestProtocol(Struct):
    """A way to assign partitions that the consumer supports, with what it says for it."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "metadata" / Bytes,
    )
    name: str
    metadata: bytes


class JoinGroupRequest(RequestMessage):
    """The group, the member and the protocols that it supports."""

    api_key: int = ApiKey.JOIN_GROUP
    fields: ClassVar[Fields] = Fields(
        "group_id" / String,
        "session_timeout_ms" / Int32,
        "rebalance_timeout_ms" / Since(1, Int32, default=-1, ignorable=True),
        "member_id" / String,
        "group_instance_id" / Since(5, Nullable(String), default=None),
        "protocol_type" / String,
        "protocols" / ArrayOf(JoinGroupRequestProtocol),
        "reason" / Since(8, Nullable(String), default=None, ignorable=True),
    )
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: str | None


class JoinGroupResponseMember(Struct):
    """A member of the group, as the group's leader learns of it."""

    fields: ClassVar[Fields] = Fields(
        "member_id" / String,
        "group_instance_id" / Since(5, Nullable(String), default=None, ignorable=True),
        "metadata" / Bytes,
    )
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(ResponseMessage):
    """The group's generation, protocol and leader; its members, for the leader alone."""

    api_key: int = ApiKey.JOIN_GROUP
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Since(2, Int32, ignorable=True),
        "error_code" / Int16,
        "generation_id" / Since(0, Int32, default=-1),
        "protocol_type" / Since(7, Nullable(String), default=None, ignorable=True),
        "protocol_name" / Nullable(String, since=7),
        "leader" / String,
        "skip_assignment" / Since(9, Bool),
        "member_id" / String,
        "members" / ArrayOf(JoinGroupResponseMember),
    )
    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: list[JoinGroupResponseMember]
