"""AlterConfigs (33): an administrator replaces the settings of topics or brokers. Versions 0 to 2; flexible since 2.

1  (the broker throttles after its answer instead of before it)
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Nullable, String
from .fields import Fields
from .struct import RequestMessage, ResponseMessage, Struct


class AlterConfigsEntry(Struct):
    """A setting and its value."""

    fields = Fields(
        "name" / String,
        "value" / Nullable(String),
    )


class AlterConfigsResource(Struct):
    """All settings of one resource. ``resource_type`` is 2 for a topic, 4 for a broker."""

    fields = Fields(
        "resource_type" / Int8,
        "resource_name" / String,
        "configs" / ArrayOf(AlterConfigsEntry),
    )


class AlterConfigsRequest(RequestMessage):
    """The resources to change; ``validate_only`` asks only whether it is possible."""

    api_key = ApiKey.ALTER_CONFIGS
    fields = Fields(
        "resources" / ArrayOf(AlterConfigsResource),
        "validate_only" / Bool,
    )


class AlterConfigsResourceResponse(Struct):
    """The result for one resource."""

    fields = Fields(
        "error_code" / Int16,
        "error_message" / Nullable(String),
        "resource_type" / Int8,
        "resource_name" / String,
    )


class AlterConfigsResponse(ResponseMessage):
    """The results, one for each resource."""

    api_key = ApiKey.ALTER_CONFIGS
    fields = Fields(
        "throttle_time_ms" / Int32,
        "responses" / ArrayOf(AlterConfigsResourceResponse),
    )
