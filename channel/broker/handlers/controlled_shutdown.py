"""ControlledShutdown (7): a broker asks the controller to move its leaders away; this broker is no controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kproto import messages
from kproto.error_codes import ErrorCode

from .checks import must_be_zookeeper_mode

if TYPE_CHECKING:
    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.hooks import RequestContext

__all__ = ["handle"]


def handle(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer as the owner's hook decides; without a hook with 11, as a broker that is not the active controller."""
    must_be_zookeeper_mode(broker, context)
    ask = broker.hooks.controlled_shutdown
    code, remaining = ask(request.broker_id, request.broker_epoch) if ask else (ErrorCode.STALE_CONTROLLER_EPOCH, ())
    return messages.ControlledShutdownResponse(
        error_code=code,
        remaining_partitions=[
            messages.RemainingPartition(topic_name=tp.topic, partition_index=tp.partition) for tp in remaining
        ],
    )
