"""ApiVersions (18): the APIs and versions of a node; the first request on most connections. Versions 0 to 4.

What each version brought:

    1  throttle time
    2  (the broker throttles after its answer instead of before it)
    3  flexible; the client's software in the request; features of broker and cluster as tagged fields in the response
    4  features whose lowest version is 0 are no longer left out

Responses always have header version 0: the asker does not know yet whether the answerer is flexible.
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Int64, String
from .fields import Since, Tagged
from .struct import RequestMessage, ResponseMessage, Struct


class ApiVersionsRequest(RequestMessage, api_key=ApiKey.API_VERSIONS):
    """The request; below version 3 it has no fields."""

    client_software_name: str = Since(3, String, ignorable=True)
    client_software_version: str = Since(3, String, ignorable=True)


class ApiVersion(Struct):
    """One API and the versions of it, both ends included."""

    api_key: int = Int16
    min_version: int = Int16
    max_version: int = Int16


class SupportedFeatureKey(Struct):
    """A feature and the levels that the broker can run."""

    name: str = Since(3, String)
    min_version: int = Since(3, Int16)
    max_version: int = Since(3, Int16)


class FinalizedFeatureKey(Struct):
    """A feature and the levels that the whole cluster runs."""

    name: str = Since(3, String)
    max_version_level: int = Since(3, Int16)
    min_version_level: int = Since(3, Int16)


class ApiVersionsResponse(ResponseMessage, api_key=ApiKey.API_VERSIONS):
    """The APIs and features of the broker. ``finalized_features_epoch`` is -1 if it is unknown."""

    error_code: int = Int16
    api_keys: list[ApiVersion] = ArrayOf(ApiVersion)
    throttle_time_ms: int = Since(1, Int32, ignorable=True)
    supported_features: list[SupportedFeatureKey] = Tagged(0, ArrayOf(SupportedFeatureKey), since=3, ignorable=True)
    finalized_features_epoch: int = Tagged(1, Int64, since=3, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = Tagged(2, ArrayOf(FinalizedFeatureKey), since=3, ignorable=True)
    zk_migration_ready: bool = Tagged(3, Bool, since=3, ignorable=True)
