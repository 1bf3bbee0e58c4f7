"""Determines a broker's answer to a control request: for the whole request, and for single partitions."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kproto.api import ApiKey
from kproto.codec import message_class
from kproto.error_codes import ErrorCode, error_name
from kproto.errors import UnsupportedApi
from kproto.json_form import uuid_to_json
from kproto.verdicts.epochs import NOT_NEWER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.capture import Exchange
    from kproto.tables.bodies import ControlBody
    from kproto.verdicts.knowledge import Knowledge

Outcome = Literal["ok", "partition errors", "refused", "unanswered", "unreadable", "not decoded"]
"""``partition errors``: accepted as a whole, with errors of single partitions; ``not decoded``: the response's body is
of an API that kproto does not decode."""


@dataclass(frozen=True, slots=True)
class PartitionError:
    """An error of one partition.

    Attributes:
        topic: Topic; its id as text where the request does not name it.
        partition: Partition.
        error_code: Never 0.
    """

    topic: str
    partition: int
    error_code: int

    @property
    def error(self) -> str:
        """The error's name."""
        return error_name(self.error_code)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a request.

    Attributes:
        outcome: In one word. Outcomes do not overlap.
        error_code: Error of the whole request, 0 for none; None where there is no response that can be read.
        partition_errors: Errors of single partitions.
        problem: The reason why a body cannot be read, None if both can.
    """

    outcome: Outcome
    error_code: int | None = None
    partition_errors: tuple[PartitionError, ...] = ()
    problem: str | None = None

    @property
    def accepted(self) -> bool:
        """Whether the broker may have acted on the request: it did not refuse all of it."""
        return not self.error_code

    @property
    def failed(self) -> bool:
        """Whether the request failed as a whole, or cannot be read."""
        return self.outcome in ("refused", "unreadable")

    def error_counts(self) -> Counter[int]:
        """The number of partitions with each error."""
        return Counter(error.error_code for error in self.partition_errors)


def verdict_of(exchange: Exchange, body: ControlBody | None) -> Verdict:
    """Return the broker's answer to a request.

    Args:
        exchange: The request and its response.
        body: The request's decoded body, where the request is a control request that can be read.
    """
    problem = _unreadable(exchange, body)
    if problem is not None:
        return Verdict("unreadable", problem=problem)
    if exchange.response is None:
        return Verdict("unanswered")
    response = exchange.response_message
    if response is None:
        return Verdict("not decoded")
    errors = tuple(_partition_errors(exchange.api_key, response, body))
    code = getattr(response, "error_code", 0)
    if code:
        return Verdict("refused", code, errors)
    return Verdict("partition errors" if errors else "ok", 0, errors)


def _unreadable(exchange: Exchange, body: ControlBody | None) -> str | None:
    """Explain why a body cannot be read; None if every body can, or belongs to an API that kproto does not decode."""
    if exchange.api_key is None or not _is_decoded(exchange.api_key):
        return None
    # Of a request that is known to be readable only the response has to be decoded.
    if (
        body is not None
        and not exchange.strict
        and (exchange.response is None or exchange.response_message is not None)
    ):
        return None
    return None if exchange.error is None else str(exchange.error)


@functools.cache
def _is_decoded(api_key: int) -> bool:
    try:
        message_class(api_key, "request")
    except UnsupportedApi:
        return False
    return True


def _partition_errors(api_key: int | None, response: Any, body: ControlBody | None) -> Iterator[PartitionError]:
    """Return the partitions for which a response to LeaderAndIsr or StopReplica has an error.

    From LeaderAndIsr version 5 on responses name topics by id; the request maps ids to names.
    """
    if api_key not in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA):
        return
    if api_key == ApiKey.LEADER_AND_ISR and response.topics:
        names = {uuid: name for name, uuid in body.message.topic_ids.items()} if body is not None else {}
        for topic in response.topics:
            name = names.get(topic.topic_id, uuid_to_json(topic.topic_id))
            for error in topic.partition_errors:
                if error.error_code:
                    yield PartitionError(name, error.partition_index, error.error_code)
    for error in response.partition_errors:
        if error.error_code:
            yield PartitionError(error.topic_name, error.partition_index, error.error_code)


def partition_reason(error: PartitionError, body: ControlBody, knowledge: Knowledge, broker: object) -> str:
    """Explain in one clause why a broker refused a partition; empty where the error's name says it all.

    Args:
        error: The partition's error.
        body: The request.
        knowledge: The states that brokers were sent before this request.
        broker: The receiving broker, as ``knowledge`` has it.
    """
    state = next((s for s in body.states if (s.topic, s.partition) == (error.topic, error.partition)), None)
    known = knowledge.replica(broker, error.topic, error.partition)
    if error.error_code in (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH) and state is not None:
        than = "the broker's" if known is None else str(known.leader_epoch)
        not_newer = NOT_NEWER.replace("the broker's", than)
        if error.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            equal = known is not None and state.leader_epoch == known.leader_epoch  # Kafka refuses the same epoch too
            return f"leader epoch {state.leader_epoch} is {'not newer' if equal else 'older'} than {than}"
        return f"leader epoch {state.leader_epoch} is {not_newer}"
    match error.error_code:
        case ErrorCode.INCONSISTENT_TOPIC_ID:
            return "the broker has this topic with another id"
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return "the broker is none of the replicas" if body.api_key == ApiKey.LEADER_AND_ISR else ""
        case ErrorCode.UNKNOWN_SERVER_ERROR:
            return "the broker failed on it; its log says why"
    return ""
