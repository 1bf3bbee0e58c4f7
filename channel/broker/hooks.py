"""What an embedded broker tells and asks its owner: authorization, what Kafka's other parts would be told, faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["BrokerHooks", "Interception", "RequestContext"]


class RequestContext(NamedTuple):
    """What is known of a request beside its body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    listener: str
    peer: str = ""


class Interception(NamedTuple):
    """What an interceptor wants done with a request instead of (or before) answering it.

    Attributes:
        delay_s: Wait so long before the request is handled.
        drop: Handle nothing and answer nothing; the connection stays open and muted.
        disconnect: Close the connection: "before" the request is handled, or "after", its answer lost.
        error: Do not handle it, answer with this error code.
        answer: Do not handle it, answer with this message.
    """

    delay_s: float = 0.0
    drop: bool = False
    disconnect: str = ""
    error: int | None = None
    answer: Any = None


@dataclass(slots=True)
class BrokerHooks:
    """Callables that an embedded broker calls; every one may be left out.

    They run on the broker's thread, so they must not block for long.

    Attributes:
        authorize: Whether this request may act on the cluster; refusal is error 31.
        intercept: Asked first, for faults and scripted answers; None lets the request through.
        answered: Told every request with its answer (None: none was sent).
        partitions_deleted: What UpdateMetadata deleted, as the group coordinator is told.
        topics_changed: Topics of an UpdateMetadata, as waiting topic operations are told.
        quotas_changed: An UpdateMetadata came, as the client-quota callback is told.
        partitions_changed: Partitions of an UpdateMetadata, as waiting elections are told.
        leadership: Partitions that this broker now leads and follows, as both coordinators are told.
        resigned: A coordinator's partition was deleted: topic, partition, leader epoch or None.
        controlled_shutdown: Answers (error code, partitions still led) where this broker plays the controller.
    """

    authorize: Callable[[RequestContext], bool] | None = None
    intercept: Callable[[RequestContext, Any], Interception | None] | None = None
    answered: Callable[[RequestContext, Any, Any], None] | None = None
    partitions_deleted: Callable[[Sequence[TopicPartition]], None] | None = None
    topics_changed: Callable[[Sequence[str]], None] | None = None
    quotas_changed: Callable[[], None] | None = None
    partitions_changed: Callable[[Sequence[TopicPartition]], None] | None = None
    leadership: Callable[[Sequence[TopicPartition], Sequence[TopicPartition]], None] | None = None
    resigned: Callable[[str, int, int | None], None] | None = None
    controlled_shutdown: Callable[[int, int], tuple[int, Sequence[TopicPartition]]] | None = None
