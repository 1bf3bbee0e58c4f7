"""Many requests to ZooKeeper at once: sent ahead, answered in order, sent again after a lost connection."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kazoo import exceptions as kazoo_errors

from channel.errors import NoNode, ZooKeeperError

from .translation import ERRORS

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["SLICE_S", "WINDOW", "answers"]

_T = TypeVar("_T")

SLICE_S: Final = 1.0
"""The interval at which a wait checks its session; results and changes of state end the wait at once."""

WINDOW: Final = 1_000
"""The number of requests in flight: their answers and kazoo's own objects are what a pipelined read holds in memory."""

_LOST: Final = (kazoo_errors.ConnectionLoss, kazoo_errors.ConnectionClosedError)


def answers(
    client: Any,
    ask: Callable[[Any, _T], Any],
    things: Iterable[_T],
    missing: Any,
    window: int,
    connected: threading.Event,
    check_alive: Callable[[Any], None],
    failed: Callable[[Any], object],
) -> Iterator[tuple[_T, Any]]:
    """Send requests, pipelined, and those that a lost connection left unanswered once more.

    Args:
        client: Kazoo's client.
        ask: Starts one request with the client.
        things: The arguments of the requests.
        missing: The result for a missing node, which is an error if this is ``...``.
        window: How many requests are in flight.
        connected: Set while the session is connected.
        check_alive: Raises an error once the client's session is closed or has expired.
        failed: Called with each request that failed or was lost, before it is sent once more; for some twice.

    Yields:
        Each argument with its answer, in order, while further requests are sent.
    """
    left = iter(things)
    in_flight = deque((thing, ask(client, thing)) for thing in islice(left, window))
    while in_flight:
        thing, pending = in_flight.popleft()
        try:
            while not pending.wait(SLICE_S):
                check_alive(client)  # a request that arrived while kazoo failed all others would wait for ever
            if pending.exception is not None:
                failed(pending)
            answer = pending.get()
        except _LOST:
            check_alive(client)
            while not connected.wait(SLICE_S):
                check_alive(client)
            check_alive(client)
            in_flight.appendleft((thing, pending))
            lost = {found for _, found in in_flight if isinstance(found.exception, _LOST)}
            for found in lost:
                failed(found)
            in_flight = deque((each, ask(client, each) if found in lost else found) for each, found in in_flight)
            continue
        except kazoo_errors.NoNodeError as e:
            if missing is ...:
                raise NoNode(f"ZooKeeper has no such node: {thing or e}") from e
            answer = missing
        except tuple(ERRORS) as e:
            raise ERRORS[type(e)](f"ZooKeeper refused a request: {type(e).__name__}") from e
        except kazoo_errors.KazooException as e:
            raise ZooKeeperError(f"ZooKeeper refused a request: {type(e).__name__} {e}".rstrip()) from e
        in_flight.extend((each, ask(client, each)) for each in islice(left, 1))
        yield thing, answer
