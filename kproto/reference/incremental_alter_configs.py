"""IncrementalAlterConfigs (44): an administrator changes single settings. Versions 0 and 1; flexible since 1."""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .alter_configs import AlterConfigsResourceResponse
from .datatypes import ArrayOf, Bool, Int8, Int32, Nullable, String
from .fields import Fields
from .struct import RequestMessage, ResponseMessage, Struct


class AlterableConfig(Struct):
    """A change of a setting. ``config_operation`` is 0 to set, 1 to delete, 2 to append, 3 to subtract."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "config_operation" / Int8,
        "value" / Nullable(String),
    )
    name: str
    config_operation: int
    value: str | None


class IncrementalAlterConfigsResource(Struct):
    """Settings of one resource. ``resource_type`` is 2 for a topic, 4 for a broker."""

    fields: ClassVar[Fields] = Fields(
        "resource_type" / Int8,
        "resource_name" / String,
        "configs" / ArrayOf(AlterableConfig),
    )
    resource_type: int
    resource_name: str
    configs: list[AlterableConfig]


class IncrementalAlterConfigsRequest(RequestMessage):
    """The resources to change; ``validate_only`` asks only whether it is possible."""

    api_key: int = ApiKey.INCREMENTAL_ALTER_CONFIGS
    fields: ClassVar[Fields] = Fields(
        "resources" / ArrayOf(IncrementalAlterConfigsResource),
        "validate_only" / Bool,
    )
    resources: list[IncrementalAlterConfigsResource]
    validate_only: bool


class IncrementalAlterConfigsResponse(ResponseMessage):
    """The results, one for each resource."""

    api_key: int = ApiKey.INCREMENTAL_ALTER_CONFIGS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "responses" / ArrayOf(AlterConfigsResourceResponse),
    )
    throttle_time_ms: int
    responses: list[AlterConfigsResourceResponse]
