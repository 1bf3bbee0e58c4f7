"""ApiVersions (18): the APIs and versions of a node; the first request on most connections. Versions 0 to 4.

What each version brought:

    1  throttle time
    2  (the broker throttles after its answer instead of before it)
    3  flexible; the client's software in the request; features of broker and cluster as tagged fields in the response
    4  features whose lowest version is 0 are no longer left out

Responses always have header version 0: the asker does not know yet whether the answerer is flexible.
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Int64, String
from .fields import Fields, Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct


class ApiVersionsRequest(RequestMessage):
    """The request; below version 3 it has no fields."""

    api_key: int = ApiKey.API_VERSIONS
    fields: ClassVar[Fields] = Fields(
        "client_software_name" / Since(3, String, ignorable=True),
        "client_software_version" / Since(3, String, ignorable=True),
    )
    client_software_name: str
    client_software_version: str


class ApiVersion(Struct):
    """One API and the versions of it, both ends included."""

    fields: ClassVar[Fields] = Fields(
        "api_key" / Int16,
        "min_version" / Int16,
        "max_version" / Int16,
    )
    api_key: int
    min_version: int
    max_version: int


class SupportedFeatureKey(Struct):
    """A feature and the levels that the broker can run."""

    fields: ClassVar[Fields] = Fields(
        "name" / Since(3, String),
        "min_version" / Since(3, Int16),
        "max_version" / Since(3, Int16),
    )
    name: str
    min_version: int
    max_version: int


class FinalizedFeatureKey(Struct):
    """A feature and the levels that the whole cluster runs."""

    fields: ClassVar[Fields] = Fields(
        "name" / Since(3, String),
        "max_version_level" / Since(3, Int16),
        "min_version_level" / Since(3, Int16),
    )
    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsResponse(ResponseMessage):
    """The APIs and features of the broker. ``finalized_features_epoch`` is -1 if it is unknown."""

    api_key: int = ApiKey.API_VERSIONS
    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "api_keys" / ArrayOf(ApiVersion),
        "throttle_time_ms" / Since(1, Int32, ignorable=True),
        "supported_features" / Tagged(0, ArrayOf(SupportedFeatureKey), since=3, ignorable=True),
        "finalized_features_epoch" / Tagged(1, Int64, since=3, default=-1, ignorable=True),
        "finalized_features" / Tagged(2, ArrayOf(FinalizedFeatureKey), since=3, ignorable=True),
        "zk_migration_ready" / Tagged(3, Bool, since=3, ignorable=True),
    )
    error_code: int
    api_keys: list[ApiVersion]
    throttle_time_ms: int
    supported_features: list[SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: list[FinalizedFeatureKey]
    zk_migration_ready: bool
