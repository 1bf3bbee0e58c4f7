"""Name resolution off the client's thread, as the system's resolver blocks."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from channel.locks import new_lock
from channel.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["InlineResolution", "NameResolution", "Resolution", "Resolver", "literal_address", "resolve"]

_log = get_logger(__name__)
_MOST_THREADS: Final = 32

Resolver: TypeAlias = "Callable[[str], Sequence[str]]"
"""Returns the addresses of a host's name, as texts; raises ``OSError``."""


def resolve(host: str) -> list[str]:
    """Look up the addresses of a host, in the order of the system's resolver.

    Raises:
        OSError: The name is malformed, or cannot be resolved.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as e:
        raise OSError(f"{host!r} is no host name: {e}") from e
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def literal_address(host: str) -> list[str]:
    """Return the host itself if it is an IP address, which needs no look-up; an empty list for a name."""
    with contextlib.suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    return []


class Resolution(Protocol):
    """Looks names up for a client."""

    def start(self, host: str, done: Callable[[Sequence[str] | OSError], None]) -> None:
        """Look a host up; ``done`` takes its addresses or the error, on any thread, perhaps before this returns."""


class InlineResolution:
    """Looks names up on the calling thread: for resolvers that do not block.

    Args:
        resolver: Looks names up.
    """

    def __init__(self, resolver: Resolver = resolve) -> None:
        self._resolver = resolver

    def start(self, host: str, done: Callable[[Sequence[str] | OSError], None]) -> None:
        """Look a host up, and call ``done`` at once."""
        done(_looked_up(self._resolver, host))


class NameResolution:
    """Looks names up on threads of its own, which end when there is nothing left to look up.

    Args:
        resolver: Looks names up, and may block.
        most_threads: The number of names that are looked up at the same time; further names wait.
    """

    def __init__(self, resolver: Resolver = resolve, most_threads: int = _MOST_THREADS) -> None:
        self._resolver = resolver
        self._most_threads = most_threads
        self._lock = new_lock("name resolution")
        self._jobs: deque[tuple[str, Callable[[Sequence[str] | OSError], None]]] = deque()
        self._threads = 0

    def start(self, host: str, done: Callable[[Sequence[str] | OSError], None]) -> None:
        """Look a host up soon; ``done`` gets an IP address at once."""
        literal = literal_address(host)
        if literal:
            done(literal)
            return
        with self._lock:
            self._jobs.append((host, done))
            if self._threads >= self._most_threads:
                return
            self._threads += 1
        # A daemon thread: the system's resolver cannot be interrupted, and the process must not wait for it.
        threading.Thread(target=self._run, name="name-resolution", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._threads -= 1
                    return
                host, done = self._jobs.popleft()
            done(_looked_up(self._resolver, host))


def _looked_up(resolver: Resolver, host: str) -> Sequence[str] | OSError:
    try:
        return resolver(host) or OSError(f"{host} has no address")
    except OSError as e:
        return e
    except Exception as e:  # noqa: BLE001  (whatever a resolver raises, the node cannot be reached)
        _log.exception("looking %s up failed", host)
        return OSError(f"{host} cannot be looked up: {type(e).__name__}: {e}")
