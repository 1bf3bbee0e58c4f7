"""ListGroups (16): the consumer groups that a broker coordinates. Versions 0 to 5; flexible since 3.

What each version brought:

    1  throttle time
    2  (the broker throttles after its answer instead of before it)
    4  states of groups
    5  types of groups
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class ListGroupsRequest(RequestMessage, api_key=ApiKey.LIST_GROUPS):
    """The states and types of the groups to list; empty for all."""

    states_filter: tuple[str, ...] = Since(4, ArrayOf(String))
    types_filter: tuple[str, ...] = Since(5, ArrayOf(String))


class ListedGroup(Struct):
    """One group."""

    group_id: str = String
    protocol_type: str = String
    group_state: str = Since(4, String, ignorable=True)
    group_type: str = Since(5, String, ignorable=True)


class ListGroupsResponse(ResponseMessage, api_key=ApiKey.LIST_GROUPS):
    """The groups."""

    throttle_time_ms: int = Since(1, Int32, ignorable=True)
    error_code: int = Int16
    groups: list[ListedGroup] = ArrayOf(ListedGroup)
