"""The checks that the three control requests share, in Kafka's order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel.logs import get_logger
from kproto.api import api_name
from kproto.error_codes import ErrorCode
from kproto.errors import UnsupportedVersion

if TYPE_CHECKING:
    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext

__all__ = ["must_be_zookeeper_mode", "refusal"]

_log = get_logger(__name__)


def must_be_zookeeper_mode(broker: EmbeddedBroker, context: RequestContext) -> None:
    """Raise ``UnsupportedVersion`` on a KRaft broker, for APIs that only a ZooKeeper controller sends."""
    if not broker.zookeeper_mode:
        name = api_name(context.api_key)
        raise UnsupportedVersion(
            context.api_key, context.version, name, detail=f"should never receive {name} when running with KRaft"
        )


def refusal(broker: EmbeddedBroker, context: RequestContext, request: Any) -> int | None:
    """Return the error code of a refused control request, 31 (authorization) or 77 (broker epoch), else None."""
    must_be_zookeeper_mode(broker, context)
    authorize = broker.hooks.authorize
    if authorize is not None and not authorize(context):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if broker.is_stale(request.broker_epoch, is_kraft=bool(request.is_kraft_controller)):
        _log.info(
            "broker %d refuses %s of controller %d (epoch %d): it names broker epoch %d, this broker has epoch %d",
            broker.broker_id,
            api_name(context.api_key),
            request.controller_id,
            request.controller_epoch,
            request.broker_epoch,
            broker.kraft_epoch if request.is_kraft_controller else broker.broker_epoch,
        )
        return ErrorCode.STALE_BROKER_EPOCH
    return None
