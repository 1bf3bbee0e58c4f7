"""ApiVersions (18): the APIs of an embedded broker with their versions, and its features."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from channel.broker.apis import RECORD_VERSIONS, SERVED
from kproto import messages
from kproto.api import CONTROL_APIS, ApiKey
from kproto.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_OF_ZOOKEEPER: Final = {*CONTROL_APIS, ApiKey.CONTROLLED_SHUTDOWN}
_LEVEL_0_SINCE: Final = 4  # older clients treat a lowest level of 0 as an error, so the feature is left out


def handle(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer with the served APIs and the features; error 42 if the client's name or version is malformed."""
    version = context.version
    if version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return messages.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    features = broker.features
    return messages.ApiVersionsResponse(
        api_keys=_ranges(
            key for key in SERVED | broker.announced_keys if broker.zookeeper_mode or key not in _OF_ZOOKEEPER
        ),
        supported_features=[
            messages.SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in features.supported.items()
            if lowest > 0 or version >= _LEVEL_0_SINCE
        ],
        finalized_features_epoch=features.finalized_epoch,
        finalized_features=[
            messages.FinalizedFeatureKey(name=name, min_version_level=lowest, max_version_level=highest)
            for name, (lowest, highest) in features.finalized.items()
        ],
        zk_migration_ready=broker.migration_enabled,
    )


def before_authentication(version: int, more: Iterable[int] = ()) -> Any:
    """Answer a client that is not authenticated yet, with the APIs, those of SASL and ``more`` among them."""
    if version > ApiKey.API_VERSIONS.info.max_version:
        return unsupported()
    return messages.ApiVersionsResponse(
        api_keys=_ranges({*SERVED, *more, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
    )


def unsupported() -> Any:
    """Answer an unknown version with error 35, to be encoded as version 0, and the range of this API alone."""
    return messages.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges([ApiKey.API_VERSIONS])
    )


def _ranges(keys: Iterable[int]) -> list[messages.ApiVersion]:
    ranges = {key: RECORD_VERSIONS.get(ApiKey(key), (0, ApiKey(key).info.max_version)) for key in sorted(keys)}
    return [messages.ApiVersion(api_key=k, min_version=low, max_version=high) for k, (low, high) in ranges.items()]
