"""DescribeConfigs (32): the settings of topics and brokers. Versions 0 to 4; flexible since 4.

What each version brought:

    1  the source of each value, and its synonyms, in place of ``is_default``
    2  (the broker throttles after its answer instead of before it)
    3  types and documentation of settings
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Nullable, String
from .fields import Since, Until
from .struct import RequestMessage, ResponseMessage, Struct


class DescribeConfigsResource(Struct):
    """A resource and the names of its settings, null for all. ``resource_type`` is 2 for a topic, 4 for a broker."""

    resource_type: int = Int8
    resource_name: str = String
    configuration_keys: tuple[str, ...] | None = Nullable(ArrayOf(String))


class DescribeConfigsRequest(RequestMessage, api_key=ApiKey.DESCRIBE_CONFIGS):
    """The resources to describe."""

    resources: list[DescribeConfigsResource] = ArrayOf(DescribeConfigsResource)
    include_synonyms: bool = Since(1, Bool)
    include_documentation: bool = Since(3, Bool)


class DescribeConfigsSynonym(Struct):
    """A value that the setting would have without those before it, and its source."""

    name: str = Since(1, String)
    value: str | None = Since(1, Nullable(String))
    source: int = Since(1, Int8)


class DescribeConfigsResourceResult(Struct):
    """One setting.

    ``config_source`` is 1 for a topic's value, 2 for a broker's and 3 for all brokers' while they run, 4 for a value of
    the broker's file, 5 for Kafka's default.
    """

    name: str = String
    value: str | None = Nullable(String)
    read_only: bool = Bool
    is_default: bool = Until(0, Bool)
    config_source: int = Since(1, Int8, default=-1, ignorable=True)
    is_sensitive: bool = Bool
    synonyms: list[DescribeConfigsSynonym] = Since(1, ArrayOf(DescribeConfigsSynonym), ignorable=True)
    config_type: int = Since(3, Int8, ignorable=True)
    documentation: str | None = Since(3, Nullable(String), ignorable=True)


class DescribeConfigsResult(Struct):
    """The settings of one resource, or an error."""

    error_code: int = Int16
    error_message: str | None = Nullable(String)
    resource_type: int = Int8
    resource_name: str = String
    configs: list[DescribeConfigsResourceResult] = ArrayOf(DescribeConfigsResourceResult)


class DescribeConfigsResponse(ResponseMessage, api_key=ApiKey.DESCRIBE_CONFIGS):
    """The results, one for each resource."""

    throttle_time_ms: int = Int32
    results: list[DescribeConfigsResult] = ArrayOf(DescribeConfigsResult)
