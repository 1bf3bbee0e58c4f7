"""UpdateFeatures (57): an administrator changes the levels of the cluster's features. Versions 0 to 2; flexible.

1  ``upgrade_type`` in place of ``allow_downgrade``; requests that only validate
2  no results for single features (Kafka 4)
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Nullable, String
from .fields import Since, Until
from .struct import RequestMessage, ResponseMessage, Struct


class FeatureUpdateKey(Struct):
    """A feature and its new level; a level below 1 removes it.

    ``upgrade_type`` is 1 for an upgrade, 2 for a downgrade without loss of metadata, 3 for a downgrade with loss.
    """

    feature: str = String
    max_version_level: int = Int16
    allow_downgrade: bool = Until(0, Bool)
    upgrade_type: int = Since(1, Int8, default=1)


class UpdateFeaturesRequest(RequestMessage, api_key=ApiKey.UPDATE_FEATURES):
    """The features to change."""

    timeout_ms: int = Since(0, Int32, default=60_000)
    feature_updates: list[FeatureUpdateKey] = ArrayOf(FeatureUpdateKey)
    validate_only: bool = Since(1, Bool)


class UpdatableFeatureResult(Struct):
    """The result for one feature."""

    feature: str = String
    error_code: int = Int16
    error_message: str | None = Nullable(String)


class UpdateFeaturesResponse(ResponseMessage, api_key=ApiKey.UPDATE_FEATURES):
    """The results, one for each feature, or an error for the whole request."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    error_message: str | None = Nullable(String)
    results: list[UpdatableFeatureResult] = Until(1, ArrayOf(UpdatableFeatureResult), ignorable=True)
