"""AlterConfigs (33): an administrator replaces the settings of topics or brokers. Versions 0 to 2; flexible since 2.

1  (the broker throttles after its answer instead of before it)
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Nullable, String
from .fields import Fields
from .struct import RequestMessage, ResponseMessage, Struct


class AlterConfigsEntry(Struct):
    """A setting and its value."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "value" / Nullable(String),
    )
    name: str
    value: str | None


class AlterConfigsResource(Struct):
    """All settings of one resource. ``resource_type`` is 2 for a topic, 4 for a broker."""

    fields: ClassVar[Fields] = Fields(
        "resource_type" / Int8,
        "resource_name" / String,
        "configs" / ArrayOf(AlterConfigsEntry),
    )
    resource_type: int
    resource_name: str
    configs: list[AlterConfigsEntry]


class AlterConfigsRequest(RequestMessage):
    """The resources to change; ``validate_only`` asks only whether it is possible."""

    api_key: int = ApiKey.ALTER_CONFIGS
    fields: ClassVar[Fields] = Fields(
        "resources" / ArrayOf(AlterConfigsResource),
        "validate_only" / Bool,
    )
    resources: list[AlterConfigsResource]
    validate_only: bool


class AlterConfigsResourceResponse(Struct):
    """The result for one resource."""

    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "error_message" / Nullable(String),
        "resource_type" / Int8,
        "resource_name" / String,
    )
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class AlterConfigsResponse(ResponseMessage):
    """The results, one for each resource."""

    api_key: int = ApiKey.ALTER_CONFIGS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "responses" / ArrayOf(AlterConfigsResourceResponse),
    )
    throttle_time_ms: int
    responses: list[AlterConfigsResourceResponse]
