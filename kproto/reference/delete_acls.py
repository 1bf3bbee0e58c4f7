"""DeleteAcls (31): an administrator removes access control entries. Versions 0 to 3; flexible since 2.

1  the type of a resource's name: literal, or a prefix
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class DeleteAclsFilter(Struct):
    """Which entries to remove; null matches any name, principal or host."""

    fields: ClassVar[Fields] = Fields(
        "resource_type_filter" / Int8,
        "resource_name_filter" / Nullable(String),
        "pattern_type_filter" / Since(1, Int8, default=3),
        "principal_filter" / Nullable(String),
        "host_filter" / Nullable(String),
        "operation" / Int8,
        "permission_type" / Int8,
    )
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DeleteAclsRequest(RequestMessage):
    """The filters whose entries are removed."""

    api_key: int = ApiKey.DELETE_ACLS
    fields: ClassVar[Fields] = Fields(
        "filters" / ArrayOf(DeleteAclsFilter),
    )
    filters: list[DeleteAclsFilter]


class DeleteAclsMatchingAcl(Struct):
    """An entry that a filter matched, and whether it is removed."""

    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "error_message" / Nullable(String),
        "resource_type" / Int8,
        "resource_name" / String,
        "pattern_type" / Since(1, Int8, default=3),
        "principal" / String,
        "host" / String,
        "operation" / Int8,
        "permission_type" / Int8,
    )
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class DeleteAclsFilterResult(Struct):
    """The result for one filter."""

    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "error_message" / Nullable(String),
        "matching_acls" / ArrayOf(DeleteAclsMatchingAcl),
    )
    error_code: int
    error_message: str | None
    matching_acls: list[DeleteAclsMatchingAcl]


class DeleteAclsResponse(ResponseMessage):
    """The results, in the order of the filters."""

    api_key: int = ApiKey.DELETE_ACLS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "filter_results" / ArrayOf(DeleteAclsFilterResult),
    )
    throttle_time_ms: int
    filter_results: list[DeleteAclsFilterResult]
