"""The watches of a ZooKeeper session: which nodes are watched, and which of the watches ZooKeeper holds at present."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from kazoo.protocol.states import EventType

from channel.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable


class Watches:
    """Handlers of changed nodes by kind ("node" or "children") and path; for any thread.

    A watch fires once, and begins with the read that registers it. A lost connection takes ZooKeeper's watches along:
    every handler whose watch was lost is called once the connection is back.

    Args:
        is_connected: Whether the session is connected at present.
    """

    def __init__(self, is_connected: Callable[[], bool]) -> None:
        self._is_connected = is_connected
        self._lock = new_lock("ZooKeeper watches")
        self._handlers: dict[tuple[str, str], Callable[[], object]] = {}
        self._registered: set[tuple[str, str]] = set()
        self._lost: list[Callable[[], object]] = []
        self._client: object = None

    def add(self, kind: str, path: str, handler: Callable[[], object]) -> None:
        """Watch a node from its next read on."""
        self._handlers[kind, path] = handler

    def remove(self, path: str) -> None:
        """Stop calling the handlers of a path."""
        self._handlers.pop(("node", path), None)
        self._handlers.pop(("children", path), None)

    def __contains__(self, watch: tuple[str, str]) -> bool:
        return watch in self._handlers

    def watcher(self, kind: str, path: str, client: object) -> Callable[[Any], None] | None:
        """Return a watch function for a read, if the path is watched and no read has registered a watch already.

        Args:
            kind: "node" or "children".
            path: The node's path.
            client: The client that reads: only that of the present session registers watches.
        """
        key = (kind, path)
        with self._lock:
            if client is not self._client or key not in self._handlers or key in self._registered:
                return None
            self._registered.add(key)

        def fired(event: Any) -> None:
            with self._lock:
                if client is not self._client:
                    return
                self._registered.discard(key)
                handler = self._handlers.get(key)
                if handler is None:
                    return
                if event.type == EventType.NONE and not self._is_connected():
                    self._lost.append(handler)
                    return
            handler()

        return fired

    def not_registered(self, kind: str, path: str, client: object) -> None:
        """Note that a read failed, and so did not register its watch: the next read of the node will."""
        with self._lock:
            if client is self._client:
                self._registered.discard((kind, path))

    def reading(
        self, kind: str, read: Callable[..., Any]
    ) -> tuple[Callable[[Any, str], Any], Callable[[object], None]]:
        """Return a function that starts a read of a node, and a function that takes note of a failed read.

        Args:
            kind: "node" or "children".
            read: Starts a read with a client, a path and a watch function.
        """
        registering: WeakKeyDictionary[object, Callable[[], None]] = WeakKeyDictionary()

        def ask(client: Any, path: str) -> Any:
            watcher = self.watcher(kind, path, client)
            request = read(client, path, watch=watcher)
            if watcher is not None:
                registering[request] = partial(self.not_registered, kind, path, client)
            return request

        def failed(request: object) -> None:
            if request in registering:
                registering.pop(request)()

        return ask, failed

    def reconnected(self) -> None:
        """Call the handlers of watches that the lost connection took along."""
        with self._lock:
            lost, self._lost = self._lost, []
        for handler in lost:
            handler()

    def begin_session(self, client: object) -> None:
        """Forget the watches of the session before, but not the handlers; None ends the last session."""
        with self._lock:
            self._client = client
            self._registered.clear()
            self._lost = []
