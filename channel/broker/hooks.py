"""The callables by which the owner of an embedded broker watches it, scripts its answers and makes it fail."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from channel.network.server import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from kproto.types import TopicPartition

    from .metadata_cache import CachedCluster

_LONGEST_DELAY_S: Final = 86_400.0


class RequestContext(NamedTuple):
    """A request's header and connection.

    Attributes:
        api_key, version, correlation_id, client_id: The fields of the header.
        listener: The name of the listener that received the request.
        peer: The sender's host and port.
        size: Bytes of header and body.
        principal: The sender: ``User:`` and its SASL user, or the subject of its certificate.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    listener: str
    peer: str = ""
    size: int = 0
    principal: str = ANONYMOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class Interception:
    """An interceptor's order for one request; without any fields the request is handled as usual.

    Attributes:
        delay_s: Seconds to wait before the request is handled.
        drop: Neither handle nor answer the request; the connection stays open and is not read any more.
        drop_answer: Handle the request, and send no answer; the connection stays open and is not read any more.
        disconnect: Close the connection: "before" the request is handled, or "after", its answer lost.
        error: Do not handle the request, answer with this error code.
        answer: Do not handle the request, answer with this message.

    Raises:
        TypeError: ``error`` is no number.
        ValueError: ``disconnect`` is another word, ``delay_s`` is negative, or two fields contradict each other.
    """

    delay_s: float = 0.0
    drop: bool = False
    drop_answer: bool = False
    disconnect: Literal["", "before", "after"] = ""
    error: int | None = None
    answer: Any = None

    def __post_init__(self) -> None:
        if self.disconnect not in ("", "before", "after"):
            raise ValueError(
                f'disconnect is {self.disconnect!r}; it must be "before" or "after" the request is handled'
            )
        if not 0 <= self.delay_s <= _LONGEST_DELAY_S:
            raise ValueError(f"delay_s is {self.delay_s}; it must be 0 to {_LONGEST_DELAY_S} seconds")
        if self.error is not None and not isinstance(self.error, int):
            raise TypeError(f"error: expected an ErrorCode, got {self.error!r}; try e.g. ErrorCode.KAFKA_STORAGE_ERROR")
        given = [each.name for each in fields(self)[1:] if getattr(self, each.name) != each.default]  # not the delay
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} contradict each other; give one of them")


class PlannedFaults:
    """An interceptor made of plans: the first plan that has a request's API and is not used up decides.

    Args:
        otherwise: Asked for requests that no plan takes; None handles them as usual.
    """

    def __init__(self, otherwise: Callable[[RequestContext, Any], Interception | None] | None = None) -> None:
        self._otherwise = otherwise
        self._plans: list[tuple[Interception, frozenset[int], list[None] | None]] = []

    def add(self, plan: Interception, api_keys: Iterable[int], times: int | None) -> None:
        """Follow a plan for the next ``times`` requests of these APIs; for all APIs if none is named, None: for ever.

        Raises:
            TypeError: The plan is no ``Interception``, or an API no key.
            ValueError: ``times`` is below 1.
        """
        if not isinstance(plan, Interception):
            raise TypeError(f"plan: expected an Interception, got {plan!r}; try e.g. Interception(drop=True)")
        keys: list[Any] = list(api_keys)
        if wrong := [key for key in keys if not isinstance(key, int)]:
            raise TypeError(f"api_keys: expected an ApiKey, got {wrong[0]!r}; try e.g. ApiKey.METADATA")
        if times is not None and times < 1:
            raise ValueError(f"times is {times}; give the number of requests, or None for all")
        self._plans.append((plan, frozenset(keys), None if times is None else [None] * times))

    def __call__(self, context: RequestContext, request: Any) -> Interception | None:
        """Return the plan for a request."""
        for plan, api_keys, left in self._plans:
            if not api_keys or context.api_key in api_keys:
                if left is None:
                    return plan
                try:
                    left.pop()  # two threads may ask at the same time
                except IndexError:
                    continue
                return plan
        return None if self._otherwise is None else self._otherwise(context, request)


class ControllerApis(Protocol):
    """Serves the requests that brokers and administrators send to the controller; their answers may come later.

    Attributes:
        keys: The API keys that are passed to this service instead of the broker's own handlers.
    """

    keys: Set[int]

    def __call__(self, context: RequestContext, request: Any, answer: Callable[[Any], None]) -> None:
        """Take a request; call ``answer`` with the response, once, from any thread; None closes the connection."""


class ClusterController(ControllerApis, Protocol):
    """The controller of a cluster without ZooKeeper, as one of its brokers sees it."""

    def create_missing(self, topics: Sequence[str]) -> bool:
        """Create topics that a client has asked for and that do not exist; False if clients cannot create topics."""

    def settings(self, entity: str) -> Mapping[str, str]:
        """The settings of an entity, such as "topics/orders"."""


class RecordApis(Protocol):
    """Serves the requests of producers and consumers; their answers may come later.

    Attributes:
        keys: The API keys that are announced and served here.
    """

    keys: Set[int]

    def update(self, partitions: Iterable[TopicPartition]) -> None:
        """Take the state of this broker's replicas after a LeaderAndIsr or StopReplica."""

    def __call__(self, context: RequestContext, request: Any, answer: Callable[[Any], None]) -> None:
        """Take a request; call ``answer`` once, from any thread: a response, ``NO_RESPONSE``, or None to close."""

    def error_response(self, context: RequestContext, request: Any, code: int) -> Any:
        """Return an answer with this error for every partition; None closes the connection."""


NO_RESPONSE: Final = object()
"""The answer to a Produce request with acks=0: the connection's next request is read."""


class PassedOn(Protocol):
    """Passes requests on to another broker, frame by frame.

    Attributes:
        keys: The API keys of which some or all requests are passed on.
    """

    keys: Set[int]

    def takes(self, context: RequestContext, body: memoryview) -> bool:
        """Whether a request is passed on; ``DecodeError`` closes its connection."""

    def __call__(self, context: RequestContext, frame: bytes, answer: Callable[[bytes | None], None]) -> None:
        """Take a frame without its size; call ``answer`` with the response's, once; None closes the connection."""


@dataclass(slots=True, kw_only=True)
class BrokerHooks:
    """Callables that an embedded broker calls; each may be left out.

    They run on the cluster's network thread, and for Metadata requests on the thread that serves Metadata: they must
    not block for long. No lock is held meanwhile.

    Attributes:
        authorize: Whether a request may act on the cluster; a refusal is error 31.
        intercept: Called first, for faults and scripted answers; None handles the request as usual.
        answered: Called with every request and its answer (None if no answer was sent).
        partitions_deleted: Called with partitions that an UpdateMetadata deleted, as Kafka's group coordinator is.
        topics_changed: Called with the topics of an UpdateMetadata, as Kafka's delayed topic operations are.
        quotas_changed: Called with the cluster after each UpdateMetadata, as Kafka's client-quota callback is.
        partitions_changed: Called with the partitions of an UpdateMetadata, as Kafka's delayed elections are.
        leadership: Called with partitions that this broker now leads and follows, as both of Kafka's coordinators are.
        resigned: Called when a coordinator's partition was deleted: topic, partition, leader epoch or None.
        controller: Serves requests to the controller that arrive at this broker; a fleet gives it to each of its
            brokers, which refuses or forwards them where the broker does not lead.
        settings: Returns the settings of an entity, such as "topics/orders". It may wait, on threads of its own; a
            request whose settings are not read within 10 s is answered REQUEST_TIMED_OUT.
        passed_on: Takes requests that another broker is to answer, before they are decoded.
        controlled_shutdown: Returns (error code, partitions still led) where this broker plays the controller.
        create_log: Called before a partition's log is created; raise OSError to take the partition offline (error 56).
        delete_log: Called when a partition's log was unlinked; raise OSError for a storage error (56).
        complete_requests: Called with (partition, error code) when a deleted partition's waiting requests must end.
    """

    authorize: Callable[[RequestContext], bool] | None = None
    intercept: Callable[[RequestContext, Any], Interception | None] | None = None
    answered: Callable[[RequestContext, Any, Any], None] | None = None
    partitions_deleted: Callable[[Sequence[TopicPartition]], None] | None = None
    topics_changed: Callable[[Sequence[str]], None] | None = None
    quotas_changed: Callable[[CachedCluster], None] | None = None
    partitions_changed: Callable[[Sequence[TopicPartition]], None] | None = None
    leadership: Callable[[Sequence[TopicPartition], Sequence[TopicPartition]], None] | None = None
    resigned: Callable[[str, int, int | None], None] | None = None
    controller: ControllerApis | None = None
    settings: Callable[[str], Mapping[str, str]] | None = None
    passed_on: PassedOn | None = None
    controlled_shutdown: Callable[[int, int], tuple[int, Sequence[TopicPartition]]] | None = None
    create_log: Callable[[TopicPartition], None] | None = None
    delete_log: Callable[[TopicPartition], None] | None = None
    complete_requests: Callable[[TopicPartition, int], None] | None = None
