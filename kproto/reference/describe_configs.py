"""DescribeConfigs (32): the settings of topics and brokers. Versions 0 to 4; flexible since 4.

What each version brought:

    1  the source of each value, and its synonyms, in place of ``is_default``
    2  (the broker throttles after its answer instead of before it)
    3  types and documentation of settings
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Nullable, String
from .fields import Fields, Since, Until
from .struct import RequestMessage, ResponseMessage, Struct


class DescribeConfigsResource(Struct):
    """A resource and the names of its settings, null for all. ``resource_type`` is 2 for a topic, 4 for a broker."""

    fields: ClassVar[Fields] = Fields(
        "resource_type" / Int8,
        "resource_name" / String,
        "configuration_keys" / Nullable(ArrayOf(String)),
    )
    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None


class DescribeConfigsRequest(RequestMessage):
    """The resources to describe."""

    api_key: int = ApiKey.DESCRIBE_CONFIGS
    fields: ClassVar[Fields] = Fields(
        "resources" / ArrayOf(DescribeConfigsResource),
        "include_synonyms" / Since(1, Bool),
        "include_documentation" / Since(3, Bool),
    )
    resources: list[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool


class DescribeConfigsSynonym(Struct):
    """A value that the setting would have without those before it, and its source."""

    fields: ClassVar[Fields] = Fields(
        "name" / Since(1, String),
        "value" / Since(1, Nullable(String)),
        "source" / Since(1, Int8),
    )
    name: str
    value: str | None
    source: int


class DescribeConfigsResourceResult(Struct):
    """One setting.

    ``config_source`` is 1 for a topic's value, 2 for a broker's and 3 for all brokers' while they run, 4 for a value of
    the broker's file, 5 for Kafka's default.
    """

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "value" / Nullable(String),
        "read_only" / Bool,
        "is_default" / Until(0, Bool),
        "config_source" / Since(1, Int8, default=-1, ignorable=True),
        "is_sensitive" / Bool,
        "synonyms" / Since(1, ArrayOf(DescribeConfigsSynonym), ignorable=True),
        "config_type" / Since(3, Int8, ignorable=True),
        "documentation" / Since(3, Nullable(String), ignorable=True),
    )
    name: str
    value: str | None
    read_only: bool
    is_default: bool
    config_source: int
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: int
    documentation: str | None


class DescribeConfigsResult(Struct):
    """The settings of one resource, or an error."""

    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "error_message" / Nullable(String),
        "resource_type" / Int8,
        "resource_name" / String,
        "configs" / ArrayOf(DescribeConfigsResourceResult),
    )
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResponse(ResponseMessage):
    """The results, one for each resource."""

    api_key: int = ApiKey.DESCRIBE_CONFIGS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "results" / ArrayOf(DescribeConfigsResult),
    )
    throttle_time_ms: int
    results: list[DescribeConfigsResult]
