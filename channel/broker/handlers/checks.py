"""The checks that the three control requests share, in Kafka's order."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kproto.api import api_name
from kproto.error_codes import ErrorCode
from kproto.errors import UnsupportedVersion

if TYPE_CHECKING:
    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext

__all__ = ["must_be_zookeeper_mode", "refusal"]

_log = logging.getLogger(__name__)


def must_be_zookeeper_mode(broker: EmbeddedBroker, context: RequestContext) -> None:
    """Raises ``UnsupportedVersion`` on a KRaft broker, for APIs that only a ZooKeeper controller sends."""
    if not broker.zookeeper_mode:
        name = api_name(context.api_key)
        raise UnsupportedVersion(
            context.api_key, context.version, name, detail=f"should never receive {name} when running with KRaft"
        )


def refusal(broker: EmbeddedBroker, context: RequestContext, request: Any) -> int | None:
    """The code that refuses a control request unread: 31 (authorization), 77 (broker epoch); or None."""
    must_be_zookeeper_mode(broker, context)
    authorize = broker.hooks.authorize
    if authorize is not None and not authorize(context):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if broker.is_stale(request.broker_epoch, is_kraft=bool(request.is_kraft_controller)):
        _log.info(
            "Received %s request with broker epoch %d, current broker epoch %d, from controller %d with epoch %d",
            api_name(context.api_key),
            request.broker_epoch,
            broker.broker_epoch,
            request.controller_id,
            request.controller_epoch,
        )
        return ErrorCode.STALE_BROKER_EPOCH
    return None
