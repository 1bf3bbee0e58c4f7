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

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Nullable, String, Uuid
from .fields import Fields, Since, Until
from .struct import RequestMessage, ResponseMessage, Struct


class DeleteTopicState(Struct):
    """A topic to be deleted, by name or, with a null name, by id."""

    fields: ClassVar[Fields] = Fields(
        "name" / Since(6, Nullable(String), default=None),
        "topic_id" / Since(6, Uuid),
    )
    name: str | None
    topic_id: bytes


class DeleteTopicsRequest(RequestMessage):
    """Delete these topics."""

    api_key: int = ApiKey.DELETE_TOPICS
    fields: ClassVar[Fields] = Fields(
        "topics" / Since(6, ArrayOf(DeleteTopicState)),
        "topic_names" / Until(5, ArrayOf(String), ignorable=True),
        "timeout_ms" / Int32,
    )
    topics: list[DeleteTopicState]
    topic_names: tuple[str, ...]
    timeout_ms: int


class DeletableTopicResult(Struct):
    """The result for one topic."""

    fields: ClassVar[Fields] = Fields(
        "name" / Nullable(String, since=6),
        "topic_id" / Since(6, Uuid, ignorable=True),
        "error_code" / Int16,
        "error_message" / Since(5, Nullable(String), default=None, ignorable=True),
    )
    name: str | None
    topic_id: bytes
    error_code: int
    error_message: str | None


class DeleteTopicsResponse(ResponseMessage):
    """The result for each topic."""

    api_key: int = ApiKey.DELETE_TOPICS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Since(1, Int32, ignorable=True),
        "responses" / ArrayOf(DeletableTopicResult),
    )
    throttle_time_ms: int
    responses: list[DeletableTopicResult]
