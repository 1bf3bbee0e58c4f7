"""DeleteAcls (31): an administrator removes access control entries. Versions 0 to 3; flexible since 2.

1  the type of a resource's name: literal, or a prefix
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Nullable, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class DeleteAclsFilter(Struct):
    """Which entries to remove; null matches any name, principal or host."""

    resource_type_filter: int = Int8
    resource_name_filter: str | None = Nullable(String)
    pattern_type_filter: int = Since(1, Int8, default=3)
    principal_filter: str | None = Nullable(String)
    host_filter: str | None = Nullable(String)
    operation: int = Int8
    permission_type: int = Int8


class DeleteAclsRequest(RequestMessage, api_key=ApiKey.DELETE_ACLS):
    """The filters whose entries are removed."""

    filters: list[DeleteAclsFilter] = ArrayOf(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    """An entry that a filter matched, and whether it is removed."""

    error_code: int = Int16
    error_message: str | None = Nullable(String)
    resource_type: int = Int8
    resource_name: str = String
    pattern_type: int = Since(1, Int8, default=3)
    principal: str = String
    host: str = String
    operation: int = Int8
    permission_type: int = Int8


class DeleteAclsFilterResult(Struct):
    """The result for one filter."""

    error_code: int = Int16
    error_message: str | None = Nullable(String)
    matching_acls: list[DeleteAclsMatchingAcl] = ArrayOf(DeleteAclsMatchingAcl)


class DeleteAclsResponse(ResponseMessage, api_key=ApiKey.DELETE_ACLS):
    """The results, in the order of the filters."""

    throttle_time_ms: int = Int32
    filter_results: list[DeleteAclsFilterResult] = ArrayOf(DeleteAclsFilterResult)
