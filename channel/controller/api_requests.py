"""Requests of brokers and administrators to the controller, as events, and the error responses to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.messages import (
    AllocateProducerIdsResponse,
    AlterPartitionResponse,
    ControlledShutdownResponse,
    CreatableTopicResult,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsResponse,
    InitProducerIdResponse,
)

from .events import ControllerEvent, ControllerState

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CONTROLLER_APIS",
    "AlterPartitionReceived",
    "ApiRequest",
    "ShutdownReceived",
    "api_request",
    "error_response",
]

CONTROLLER_APIS: Final = frozenset(
    {
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.INIT_PRODUCER_ID,
    }
)
"""The APIs that a controller serves, each as an event."""


@dataclass(frozen=True, slots=True)
class ApiRequest(ControllerEvent):
    """A request about topics, partitions or producer ids.

    Attributes:
        api_key, version: The API and the version of the request.
        request: The message.
        callback: Takes the response, once.
    """

    state: ClassVar[ControllerState] = ControllerState.TOPIC_CHANGE
    api_key: int
    version: int
    request: Any
    callback: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class AlterPartitionReceived(ApiRequest):
    """An AlterPartition request of a leader."""

    state: ClassVar[ControllerState] = ControllerState.ISR_CHANGE


@dataclass(frozen=True, slots=True)
class ShutdownReceived(ApiRequest):
    """A ControlledShutdown request of a broker."""

    state: ClassVar[ControllerState] = ControllerState.CONTROLLED_SHUTDOWN


_KINDS: Final[dict[int, type[ApiRequest]]] = {
    ApiKey.ALTER_PARTITION: AlterPartitionReceived,
    ApiKey.CONTROLLED_SHUTDOWN: ShutdownReceived,
}


def api_request(api_key: int, version: int, request: Any, callback: Callable[[Any], None]) -> ApiRequest:
    """Make the event of a request of ``CONTROLLER_APIS``."""
    return _KINDS.get(api_key, ApiRequest)(api_key, version, request, callback)


def error_response(api_key: int, request: Any, code: ErrorCode) -> Any:
    """Make the response that answers the whole request with an error code."""
    match api_key:
        case ApiKey.CREATE_TOPICS:
            topics = [CreatableTopicResult(name=name, error_code=code) for name in _names(request.topics)]
            return CreateTopicsResponse(topics=topics)
        case ApiKey.CREATE_PARTITIONS:
            results = [CreatePartitionsTopicResult(name=name, error_code=code) for name in _names(request.topics)]
            return CreatePartitionsResponse(results=results)
        case ApiKey.DELETE_TOPICS:
            asked = [(t.name, t.topic_id) for t in request.topics]
            named = [DeletableTopicResult(name=name, error_code=code) for name in request.topic_names]
            by_either = [DeletableTopicResult(name=n, topic_id=i, error_code=code) for n, i in asked]
            return DeleteTopicsResponse(responses=named + by_either)
        case ApiKey.ALTER_PARTITION:
            return AlterPartitionResponse(error_code=code)
        case ApiKey.ALLOCATE_PRODUCER_IDS:
            return AllocateProducerIdsResponse(error_code=code)
        case ApiKey.INIT_PRODUCER_ID:
            return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)  # clients retry
        case ApiKey.CONTROLLED_SHUTDOWN:
            return ControlledShutdownResponse(error_code=code)
    raise ValueError(f"the controller does not serve API {api_key}")


def _names(topics: Any) -> list[str]:
    return list(dict.fromkeys(topic.name for topic in topics))
