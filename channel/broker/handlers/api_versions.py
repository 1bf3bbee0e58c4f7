"""ApiVersions (18): which APIs this broker serves, in which versions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.messages import ApiVersion, ApiVersionsResponse

if TYPE_CHECKING:
    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext

__all__ = ["handle", "unsupported"]

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Announces what the handler table has; 42 for a client that names itself by no name."""
    if context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return _response(ErrorCode.INVALID_REQUEST, [])
    from . import HANDLERS  # the table holds this handler too

    control = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
    keys = [key for key in HANDLERS if broker.zookeeper_mode or key not in control]
    return _response(0, keys)


def unsupported() -> Any:
    """The answer to a version that is not known: 35, to be written as version 0, naming the range of this API alone."""
    return _response(ErrorCode.UNSUPPORTED_VERSION, [ApiKey.API_VERSIONS])


def _response(code: int, keys: list[int]) -> ApiVersionsResponse:
    ranges = [ApiVersion(api_key=k, min_version=0, max_version=ApiKey(k).info.max_version) for k in sorted(keys)]
    return ApiVersionsResponse(error_code=code, api_keys=ranges)
