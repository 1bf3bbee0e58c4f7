"""Refusals of requests to a broker that is not the active controller, or not any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel.api_errors import error_response
from channel.errors import ControllerMoved
from kproto.error_codes import ErrorCode

from .api_requests import ApiRequest, ShutdownReceived
from .cluster_events import (
    AlterPartition,
    AlterPartitionResult,
    ApiPartitionReassignment,
    ControlledShutdown,
    ListPartitionReassignments,
    ReplicaLeaderElection,
)

if TYPE_CHECKING:
    from .events import ControllerEvent

__all__ = ["refuse"]


def refuse(event: ControllerEvent) -> None:
    """Answer the request of an event with the error that makes its sender look for the active controller.

    Events without a callback need no answer.
    """
    match event:
        case ControlledShutdown():
            event.callback(ControllerMoved("this broker is not the controller"))
        case AlterPartition():
            event.callback(AlterPartitionResult(ErrorCode.NOT_CONTROLLER))
        case ReplicaLeaderElection():
            event.callback(dict.fromkeys(event.partitions or (), ErrorCode.NOT_CONTROLLER))
        case ApiPartitionReassignment() | ListPartitionReassignments():
            event.callback(ErrorCode.NOT_CONTROLLER, {})
        case ApiRequest():
            code = ErrorCode.NOT_CONTROLLER
            if isinstance(event, ShutdownReceived):  # Kafka's brokers give this answer when their controller has moved
                code = ErrorCode.STALE_CONTROLLER_EPOCH
            event.callback(error_response(event.api_key, event.request, code))
