"""CreateAcls (30): an administrator adds access control entries. Versions 0 to 3; flexible since 2.

1  the type of a resource's name: literal, or a prefix
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Nullable, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class AclCreation(Struct):
    """An entry to add. ``resource_pattern_type`` is 3 for a literal name, 4 for a prefix."""

    resource_type: int = Int8
    resource_name: str = String
    resource_pattern_type: int = Since(1, Int8, default=3)
    principal: str = String
    host: str = String
    operation: int = Int8
    permission_type: int = Int8


class CreateAclsRequest(RequestMessage, api_key=ApiKey.CREATE_ACLS):
    """The entries to add."""

    creations: list[AclCreation] = ArrayOf(AclCreation)


class AclCreationResult(Struct):
    """The result for one entry."""

    error_code: int = Int16
    error_message: str | None = Nullable(String)


class CreateAclsResponse(ResponseMessage, api_key=ApiKey.CREATE_ACLS):
    """The results, in the order of the request."""

    throttle_time_ms: int = Int32
    results: list[AclCreationResult] = ArrayOf(AclCreationResult)
