"""UpdateFeatures (57): an administrator changes the levels of the cluster's features. Versions 0 to 2; flexible.

1  ``upgrade_type`` in place of ``allow_downgrade``; requests that only validate
2  no results for single features (Kafka 4)
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Nullable, String
from .fields import Fields, Since, Until
from .struct import RequestMessage, ResponseMessage, Struct


class FeatureUpdateKey(Struct):
    """A feature and its new level; a level below 1 removes it.

    ``upgrade_type`` is 1 for an upgrade, 2 for a downgrade without loss of metadata, 3 for a downgrade with loss.
    """

    fields: ClassVar[Fields] = Fields(
        "feature" / String,
        "max_version_level" / Int16,
        "allow_downgrade" / Until(0, Bool),
        "upgrade_type" / Since(1, Int8, default=1),
    )
    feature: str
    max_version_level: int
    allow_downgrade: bool
    upgrade_type: int


class UpdateFeaturesRequest(RequestMessage):
    """The features to change."""

    api_key: int = ApiKey.UPDATE_FEATURES
    fields: ClassVar[Fields] = Fields(
        "timeout_ms" / Since(0, Int32, default=60_000),
        "feature_updates" / ArrayOf(FeatureUpdateKey),
        "validate_only" / Since(1, Bool),
    )
    timeout_ms: int
    feature_updates: list[FeatureUpdateKey]
    validate_only: bool


class UpdatableFeatureResult(Struct):
    """The result for one feature."""

    fields: ClassVar[Fields] = Fields(
        "feature" / String,
        "error_code" / Int16,
        "error_message" / Nullable(String),
    )
    feature: str
    error_code: int
    error_message: str | None


class UpdateFeaturesResponse(ResponseMessage):
    """The results, one for each feature, or an error for the whole request."""

    api_key: int = ApiKey.UPDATE_FEATURES
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "error_message" / Nullable(String),
        "results" / Until(1, ArrayOf(UpdatableFeatureResult), ignorable=True),
    )
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[UpdatableFeatureResult]
