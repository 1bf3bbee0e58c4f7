"""A thread that sends one broker's requests to other nodes, as Kafka's ``InterBrokerSendThread`` does."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from channel.clock import FOREVER
from channel.errors import ClientClosed
from channel.threads import FatalExit, StoppableThread, end_process

from .request import ClientResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from channel.types import Node

    from .client import NetworkClient
    from .request import Callback, ClientRequest, RequestBuilder


class NodeRequest(NamedTuple):
    """A request and its destination.

    Attributes:
        node: The node that it goes to.
        builder: Makes the body.
        handler: Takes the response, on the send thread; also a disconnected one.
        created_ms: The time at which the request was made, in ms of the clock.
    """

    node: Node
    builder: RequestBuilder
    handler: Callback
    created_ms: int


class InterBrokerSendThread(StoppableThread):
    """A thread that sends the requests of ``generate_requests``, each to its node as soon as the node is ready.

    A request whose node cannot be reached, or is not ready within the request timeout, ends with a disconnected
    response. The thread retries no request: its handler decides.

    Args:
        name: The thread's name.
        client: The client; the thread closes it at its end.
        request_timeout_ms: The longest time that a request may wait for its node, and then for its answer.
        log_prefix: Stands before every line logged.
        exit_procedure: Called with the exit status after an internal error, not one that a node caused.

    Attributes:
        client: The client; a subclass may replace it between two polls.
    """

    def __init__(
        self,
        name: str,
        client: NetworkClient,
        request_timeout_ms: int,
        *,
        log_prefix: str | None = None,
        exit_procedure: Callable[[int], None] = end_process,
    ) -> None:
        super().__init__(name, log_prefix=log_prefix, exit_procedure=exit_procedure)
        self.client = client
        self._request_timeout_ms = request_timeout_ms
        self._unsent: dict[str, tuple[Node, deque[ClientRequest]]] = {}
        self._is_closed = False

    @abstractmethod
    def generate_requests(self) -> Iterable[NodeRequest]:
        """Return the next requests to send; called before each poll, must not block."""

    def do_work(self) -> None:
        """Send, and wait for answers."""
        self.poll_once(FOREVER)

    def poll_once(self, max_timeout_ms: int) -> None:
        """Send what can be sent, wait for answers, and end the requests that cannot be delivered.

        Raises:
            FatalExit: The poll failed, and not because this thread is ending.
        """
        client = self.client
        try:
            for request in self.generate_requests():
                self._queue(request)
            timeout_ms = self._send_ready(max_timeout_ms)
            client.poll(timeout_ms)
            self._end_disconnected()
            self._end_expired()
        except ClientClosed:
            if client.active:
                self.log.exception("disconnected though the client is active")
                raise FatalExit from None
        except Exception as e:
            self.log.exception("the network client failed")
            raise FatalExit from e

    def _queue(self, request: NodeRequest) -> None:
        made = self.client.new_request(
            request.node.key,
            request.builder,
            callback=request.handler,
            timeout_ms=self._request_timeout_ms,
            created_ms=request.created_ms,
        )
        self._unsent.setdefault(request.node.key, (request.node, deque()))[1].append(made)

    def _send_ready(self, timeout_ms: int) -> int:
        """Hand the requests of ready nodes to the client; returns the longest wait of the next poll."""
        for key, (node, requests) in list(self._unsent.items()):
            while requests and self.client.ready(node):
                self.client.send(requests.popleft())
            if requests:
                timeout_ms = min(timeout_ms, self.client.connection_delay(node))
            else:
                del self._unsent[key]
        return timeout_ms

    def _end_disconnected(self) -> None:
        for key, (node, requests) in list(self._unsent.items()):
            if not self.client.connection_failed(node):
                continue
            del self._unsent[key]
            error = self.client.authentication_error(node)
            if error is not None:
                self.log.error("%d requests to %s end: %s", len(requests), node, error)
            now = self.client.clock.milliseconds()
            for request in requests:
                self._end(ClientResponse(request, now, disconnected=True, authentication_error=error))

    def _end_expired(self) -> None:
        """End the oldest request of each node if it is too old; as in Kafka at most one of a node in each round."""
        now = self.client.clock.milliseconds()
        for key, (_, requests) in list(self._unsent.items()):
            if now - requests[0].created_ms > self._request_timeout_ms:
                self._end(ClientResponse(requests.popleft(), now, disconnected=True))
                if not requests:
                    del self._unsent[key]

    def _end(self, response: ClientResponse) -> None:
        try:
            response.complete()
        except Exception:
            self.log.exception("the handler of %s failed", response.request)

    # ---- ending ------------------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """End a waiting poll."""
        self.client.initiate_close()

    def shutdown(self, timeout_s: float | None = None) -> bool:
        """Initiate the shutdown, wait for its end, at most this long, and close the client if the thread has ended."""
        has_ended = super().shutdown(timeout_s)
        if has_ended:
            self._close_client()
        return has_ended

    def ended(self) -> None:
        """Close the client."""
        self._close_client()

    def _close_client(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.client.close()

    def forget_in_child(self) -> None:
        """Count as ended in a forked child."""
        super().forget_in_child()
        self._is_closed = True
        self.client.abandon()
        self._unsent.clear()
