"""Responses that answer a whole request to the controller with an error code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kproto import messages
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["error_response"]


def error_response(api_key: int, request: Any, code: ErrorCode) -> Any:
    """Make the response that answers the whole request with an error code."""
    match api_key:
        case ApiKey.CREATE_TOPICS:
            topics = [messages.CreatableTopicResult(name=name, error_code=code) for name in _names(request.topics)]
            return messages.CreateTopicsResponse(topics=topics)
        case ApiKey.CREATE_PARTITIONS:
            results = [
                messages.CreatePartitionsTopicResult(name=name, error_code=code) for name in _names(request.topics)
            ]
            return messages.CreatePartitionsResponse(results=results)
        case ApiKey.DELETE_TOPICS:
            asked = [(t.name, t.topic_id) for t in request.topics]
            named = [messages.DeletableTopicResult(name=name, error_code=code) for name in request.topic_names]
            by_either = [messages.DeletableTopicResult(name=n, topic_id=i, error_code=code) for n, i in asked]
            return messages.DeleteTopicsResponse(responses=named + by_either)
        case ApiKey.ALTER_PARTITION:
            return messages.AlterPartitionResponse(error_code=code)
        case ApiKey.ALLOCATE_PRODUCER_IDS:
            return messages.AllocateProducerIdsResponse(error_code=code)
        case ApiKey.INIT_PRODUCER_ID:
            return messages.InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)  # clients retry
        case ApiKey.CONTROLLED_SHUTDOWN:
            return messages.ControlledShutdownResponse(error_code=code)
    raise ValueError(f"the controller does not serve API {api_key}")


def _names(topics: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(topic.name for topic in topics))
