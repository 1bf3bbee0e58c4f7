"""Controlled shutdown: brokers ask the controller to move their leaders away before they leave."""

from __future__ import annotations

import heapq
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from channel.errors import IllegalState
from channel.network.request import MessageRequest
from kproto import messages
from kproto.error_codes import ErrorCode, error_name

from .kraft_registration import heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel.network.request import ClientResponse

    from .embedded import EmbeddedBroker
    from .to_controller import NodeToControllerChannel

_MOST_ATTEMPTS: Final = 4
_RETRY_S: Final = 0.5


class ShutdownRequest(NamedTuple):
    """A broker's request for a controlled shutdown.

    Attributes:
        channel: The broker's channel to its controller.
        request: The request.
        refusal: Returns an answer's reason why the broker may not leave yet; None if it may leave.
    """

    channel: NodeToControllerChannel
    request: MessageRequest
    refusal: Callable[[Any], str | None]


def ask_zookeeper_controller(channel: NodeToControllerChannel, broker_id: int, broker_epoch: int) -> ShutdownRequest:
    """Make the request to a controller that was elected in ZooKeeper: ControlledShutdown."""
    message = messages.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    return ShutdownRequest(channel, MessageRequest(message, oldest_version=1), _leads_still)


def ask_kraft_controller(channel: NodeToControllerChannel, broker: EmbeddedBroker) -> ShutdownRequest:
    """Make the request to a KRaft controller: a heartbeat that requests the shutdown."""
    request = MessageRequest(heartbeat(broker, wants_shutdown=True))
    return ShutdownRequest(channel, request, lambda answer: None if answer.should_shut_down else "it is still needed")


def controlled_shutdown(
    brokers: Mapping[int, ShutdownRequest], on_leaving: Callable[[int], None], timeout_s: float
) -> dict[int, str]:
    """Request the shutdown of all brokers at once; each is asked for again, four times at most, while its broker leads.

    Args:
        brokers: The request of each broker, by its id.
        on_leaving: Called with each broker that leads no partition any more, on the calling thread.
        timeout_s: The time limit for all brokers.

    Returns:
        The reasons of the brokers that may not leave, by broker id.
    """
    deadline = time.monotonic() + timeout_s
    answers: SimpleQueue[tuple[int, ClientResponse | None]] = SimpleQueue()
    failures = dict.fromkeys(brokers, f"the controller did not answer within {timeout_s:.3g} s")
    attempts = dict.fromkeys(brokers, 0)
    due = [(0.0, broker_id) for broker_id in brokers]  # the time of each broker's next request
    unanswered = 0
    while due or unanswered:
        now = time.monotonic()
        while due and due[0][0] <= now:
            broker_id = heapq.heappop(due)[1]
            attempts[broker_id] += 1
            asking = brokers[broker_id]
            try:
                asking.channel.send_request(
                    asking.request,
                    lambda response, i=broker_id: answers.put((i, response)),  # type: ignore[misc]
                    lambda i=broker_id: answers.put((i, None)),  # type: ignore[misc]
                )
            except IllegalState as e:  # the broker was killed meanwhile
                failures[broker_id] = str(e)
            else:
                unanswered += 1
        wait_s = min(deadline, due[0][0] if due else deadline) - time.monotonic()
        try:
            broker_id, response = answers.get(timeout=max(0.0, wait_s))
        except Empty:
            if time.monotonic() >= deadline:
                break
            continue
        unanswered -= 1
        failure = _failure(response, brokers[broker_id].refusal)
        if failure is None:
            del failures[broker_id]
            on_leaving(broker_id)
        else:
            failures[broker_id] = failure
            if attempts[broker_id] < _MOST_ATTEMPTS:
                heapq.heappush(due, (time.monotonic() + _RETRY_S, broker_id))
    return failures


def _failure(response: ClientResponse | None, refusal: Callable[[Any], str | None]) -> str | None:
    """The reason why a broker may not leave yet; None if it may."""
    answer = None if response is None else response.body
    if answer is None:
        return "the controller could not be asked"
    if answer.error_code != ErrorCode.NONE:
        return f"the controller refused: {error_name(answer.error_code)}"
    return refusal(answer)


def _leads_still(answer: Any) -> str | None:
    if answer.remaining_partitions:
        return f"it still leads {len(answer.remaining_partitions)} partitions that no other replica can lead"
    return None
