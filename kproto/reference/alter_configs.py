"""AlterConfigs (33): an administrator replaces the settings of topics or brokers. Versions 0 to 2; flexible since 2.

1  (the broker throttles after its answer instead of before it)
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Nullable, String
from .struct import RequestMessage, ResponseMessage, Struct


class AlterConfigsEntry(Struct):
    """A setting and its value."""

    name: str = String
    value: str | None = Nullable(String)


class AlterConfigsResource(Struct):
    """All settings of one resource. ``resource_type`` is 2 for a topic, 4 for a broker."""

    resource_type: int = Int8
    resource_name: str = String
    configs: list[AlterConfigsEntry] = ArrayOf(AlterConfigsEntry)


class AlterConfigsRequest(RequestMessage, api_key=ApiKey.ALTER_CONFIGS):
    """The resources to change; ``validate_only`` asks only whether it is possible."""

    resources: list[AlterConfigsResource] = ArrayOf(AlterConfigsResource)
    validate_only: bool = Bool


class AlterConfigsResourceResponse(Struct):
    """The result for one resource."""

    error_code: int = Int16
    error_message: str | None = Nullable(String)
    resource_type: int = Int8
    resource_name: str = String


class AlterConfigsResponse(ResponseMessage, api_key=ApiKey.ALTER_CONFIGS):
    """The results, one for each resource."""

    throttle_time_ms: int = Int32
    responses: list[AlterConfigsResourceResponse] = ArrayOf(AlterConfigsResourceResponse)
