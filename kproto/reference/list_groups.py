"""ListGroups (16): the consumer groups that a broker coordinates. Versions 0 to 5; flexible since 3.

What each version brought:

    1  throttle time
    2  (the broker throttles after its answer instead of before it)
    4  states of groups
    5  types of groups
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class ListGroupsRequest(RequestMessage):
    """The states and types of the groups to list; empty for all."""

    api_key: int = ApiKey.LIST_GROUPS
    fields: ClassVar[Fields] = Fields(
        "states_filter" / Since(4, ArrayOf(String)),
        "types_filter" / Since(5, ArrayOf(String)),
    )
    states_filter: tuple[str, ...]
    types_filter: tuple[str, ...]


class ListedGroup(Struct):
    """One group."""

    fields: ClassVar[Fields] = Fields(
        "group_id" / String,
        "protocol_type" / String,
        "group_state" / Since(4, String, ignorable=True),
        "group_type" / Since(5, String, ignorable=True),
    )
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class ListGroupsResponse(ResponseMessage):
    """The groups."""

    api_key: int = ApiKey.LIST_GROUPS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Since(1, Int32, ignorable=True),
        "error_code" / Int16,
        "groups" / ArrayOf(ListedGroup),
    )
    throttle_time_ms: int
    error_code: int
    groups: list[ListedGroup]
