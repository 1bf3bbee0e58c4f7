"""DeleteTopics (20). Versions 0 to 6; flexible since 4.

What each version brought:

    1  throttle time
    2  (the broker throttles after its answer instead of before it)
    3  (a broker that may not delete says so)
    4  flexible
    5  messages beside error codes
    6  topics by name or by id
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Nullable, String, Uuid
from .fields import Since, Until
from .struct import RequestMessage, ResponseMessage, Struct


class DeleteTopicState(Struct):
    """A topic to be deleted, by name or, with a null name, by id."""

    name: str | None = Since(6, Nullable(String), default=None)
    topic_id: bytes = Since(6, Uuid)


class DeleteTopicsRequest(RequestMessage, api_key=ApiKey.DELETE_TOPICS):
    """Delete these topics."""

    topics: list[DeleteTopicState] = Since(6, ArrayOf(DeleteTopicState))
    topic_names: tuple[str, ...] = Until(5, ArrayOf(String), ignorable=True)
    timeout_ms: int = Int32


class DeletableTopicResult(Struct):
    """The result for one topic."""

    name: str | None = Nullable(String, since=6)
    topic_id: bytes = Since(6, Uuid, ignorable=True)
    error_code: int = Int16
    error_message: str | None = Since(5, Nullable(String), default=None, ignorable=True)


class DeleteTopicsResponse(ResponseMessage, api_key=ApiKey.DELETE_TOPICS):
    """The result for each topic."""

    throttle_time_ms: int = Since(1, Int32, ignorable=True)
    responses: list[DeletableTopicResult] = ArrayOf(DeletableTopicResult)
