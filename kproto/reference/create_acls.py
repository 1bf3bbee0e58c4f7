"""CreateAcls (30): an administrator adds access control entries. Versions 0 to 3; flexible since 2.

1  the type of a resource's name: literal, or a prefix
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class AclCreation(Struct):
    """An entry to add. ``resource_pattern_type`` is 3 for a literal name, 4 for a prefix."""

    fields: ClassVar[Fields] = Fields(
        "resource_type" / Int8,
        "resource_name" / String,
        "resource_pattern_type" / Since(1, Int8, default=3),
        "principal" / String,
        "host" / String,
        "operation" / Int8,
        "permission_type" / Int8,
    )
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class CreateAclsRequest(RequestMessage):
    """The entries to add."""

    api_key: int = ApiKey.CREATE_ACLS
    fields: ClassVar[Fields] = Fields(
        "creations" / ArrayOf(AclCreation),
    )
    creations: list[AclCreation]


class AclCreationResult(Struct):
    """The result for one entry."""

    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "error_message" / Nullable(String),
    )
    error_code: int
    error_message: str | None


class CreateAclsResponse(ResponseMessage):
    """The results, in the order of the request."""

    api_key: int = ApiKey.CREATE_ACLS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "results" / ArrayOf(AclCreationResult),
    )
    throttle_time_ms: int
    results: list[AclCreationResult]
