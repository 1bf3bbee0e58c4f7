"""IncrementalAlterConfigs (44): an administrator changes single settings. Versions 0 and 1; flexible since 1."""

from __future__ import annotations

from kproto.api import ApiKey

from .alter_configs import AlterConfigsResourceResponse
from .datatypes import ArrayOf, Bool, Int8, Int32, Nullable, String
from .struct import RequestMessage, ResponseMessage, Struct


class AlterableConfig(Struct):
    """A change of a setting. ``config_operation`` is 0 to set, 1 to delete, 2 to append, 3 to subtract."""

    name: str = String
    config_operation: int = Int8
    value: str | None = Nullable(String)


class IncrementalAlterConfigsResource(Struct):
    """Settings of one resource. ``resource_type`` is 2 for a topic, 4 for a broker."""

    resource_type: int = Int8
    resource_name: str = String
    configs: list[AlterableConfig] = ArrayOf(AlterableConfig)


class IncrementalAlterConfigsRequest(RequestMessage, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    """The resources to change; ``validate_only`` asks only whether it is possible."""

    resources: list[IncrementalAlterConfigsResource] = ArrayOf(IncrementalAlterConfigsResource)
    validate_only: bool = Bool


class IncrementalAlterConfigsResponse(ResponseMessage, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    """The results, one for each resource."""

    throttle_time_ms: int = Int32
    responses: list[AlterConfigsResourceResponse] = ArrayOf(AlterConfigsResourceResponse)
