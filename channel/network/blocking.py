"""Functions that wait on a ``NetworkClient``, for threads that talk to one node at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel.clock import FOREVER
from channel.errors import ClientClosed, Disconnected, RequestTimeout
from channel.logs import bounded

if TYPE_CHECKING:
    from channel.types import Node

    from .client import NetworkClient
    from .request import ClientRequest, ClientResponse

__all__ = ["await_ready", "is_ready", "maybe_raise_authentication_error", "send_and_receive"]


def is_ready(client: NetworkClient, node: Node) -> bool:
    """Poll once, as the connection may have ended meanwhile, and return whether a request can be sent."""
    client.poll(0)
    return client.is_ready(node)


def await_ready(client: NetworkClient, node: Node, timeout_ms: int) -> bool:
    """Connect if need be and wait until a request can be sent.

    Returns:
        False if the node was not ready after ``timeout_ms``.

    Raises:
        ValueError: A negative timeout.
        Disconnected: The connection could not be made.
        AuthenticationFailed: One side rejected the other.
    """
    if timeout_ms < 0:
        raise ValueError(f"a wait of {timeout_ms} ms; it must be 0 or more")
    clock = client.clock
    began = clock.milliseconds()
    if is_ready(client, node) or client.ready(node):
        return True
    elapsed = 0
    while not client.is_ready(node) and elapsed < timeout_ms:
        if client.connection_failed(node):
            maybe_raise_authentication_error(client, node)
            raise Disconnected(f"Connection to {node} failed.")
        client.poll(timeout_ms - elapsed)
        maybe_raise_authentication_error(client, node)
        elapsed = clock.milliseconds() - began
    return client.is_ready(node)


def send_and_receive(client: NetworkClient, request: ClientRequest) -> ClientResponse:
    """Send a request and wait for its answer; the client's request timeout bounds the wait.

    Responses to other requests that arrive meanwhile reach their callbacks, and are otherwise dropped.

    Raises:
        Disconnected: The connection ended before the response; ``RequestTimeout`` if the response took too long.
        ClientClosed: The client was closed before the response.
        UnsupportedVersion: No version suits both sides.
    """
    try:
        client.send(request)
        while client.active:
            for response in client.poll(FOREVER):
                if response.request is request:
                    return _checked(response)
    except ClientClosed:
        if client.active:
            raise
    raise ClientClosed("Client was shutdown before response was read")


def _checked(response: ClientResponse) -> ClientResponse:
    if response.timed_out:
        raise RequestTimeout(f"no answer within {response.request.timeout_ms} ms: {bounded(str(response.request))}")
    if response.disconnected:
        node_id = response.request.destination
        raise Disconnected(f"Connection to {node_id} was disconnected before the response was read")
    if response.version_mismatch is not None:
        raise response.version_mismatch
    return response


def maybe_raise_authentication_error(client: NetworkClient, node: Node) -> None:
    """Raise the error of the last authentication, if it failed."""
    error = client.authentication_error(node)
    if error is not None:
        raise error
