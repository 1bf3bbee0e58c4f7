"""The handlers of an embedded broker, one file for each API, and the function that calls the request's handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from channel.logs import get_logger
from kproto.api import CONTROL_APIS, ApiKey, api_name
from kproto.error_codes import ErrorCode
from kproto.errors import UnsupportedVersion

from . import (
    api_versions,
    controlled_shutdown,
    describe_configs,
    leader_and_isr,
    metadata,
    stop_replica,
    update_metadata,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext

__all__ = ["HANDLERS", "handle"]

_log = get_logger(__name__)

HANDLERS: Final[dict[int, Callable[..., Any]]] = {
    ApiKey.METADATA: metadata.handle,
    ApiKey.LEADER_AND_ISR: leader_and_isr.handle,
    ApiKey.STOP_REPLICA: stop_replica.handle,
    ApiKey.UPDATE_METADATA: update_metadata.handle,
    ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown.handle,
    ApiKey.API_VERSIONS: api_versions.handle,
    ApiKey.DESCRIBE_CONFIGS: describe_configs.handle,
}
"""(broker, context, request) -> answer, by API key."""


def handle(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Return the broker's answer to a request; an exception becomes an error answer, as in Kafka.

    Raises:
        UnsupportedVersion: No handler for this API, or not in this mode: the connection must be closed.
    """
    handler = HANDLERS.get(context.api_key)
    if handler is None:
        raise UnsupportedVersion(
            context.api_key, context.version, detail=f"no handler for api {context.api_key} in an embedded broker"
        )
    try:
        return handler(broker, context, request)
    except UnsupportedVersion:
        raise
    except Exception:
        _log.exception("broker %d: error while handling %s", broker.broker_id, api_name(context.api_key))
        if context.api_key not in CONTROL_APIS:
            raise  # only the control requests list the partitions that an error answer must name
        return request.error_response(ErrorCode.UNKNOWN_SERVER_ERROR)
