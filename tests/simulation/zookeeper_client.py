"""Stands for kazoo's client in simulated processes: the part that ``channel.zookeeper`` uses, over the model.

Its thread of the connection takes what arrives, in order: answers wake those who wait for them, and functions that
watch are called by a second thread. What was asked and not answered fails when the connection is lost, and functions
that watch are told of the loss, as with kazoo.
"""

from __future__ import annotations

import contextlib
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any

from kazoo import exceptions as errors
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent

from channel.zookeeper.session import NO_NODE, Stat

from . import zookeeper as model

if TYPE_CHECKING:
    from collections.abc import Callable

    from .scheduler import World
    from .threads import Primitives
    from .zookeeper import Connection, Ensemble

__all__ = ["client_class"]

_EVENTS = {
    model.CREATED: EventType.CREATED,
    model.DELETED: EventType.DELETED,
    model.CHANGED: EventType.CHANGED,
    model.CHILD: EventType.CHILD,
}
_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 1.0
_CLOSED = (KeeperState.EXPIRED_SESSION, KeeperState.CLOSED)


class _TimedOut(Exception):
    """No server answered in time."""


class _Watch:
    """A read, and the function that it lets watch."""

    __slots__ = ("function", "is_of_children", "path")

    def __init__(self, path: str, function: Callable[[Any], None], is_of_children: bool) -> None:
        self.path = path
        self.function = function
        self.is_of_children = is_of_children


def client_class(world: World, primitives: Primitives, ensemble: Ensemble) -> type:
    """Make the class that stands for ``KazooClient`` in one world.

    Args:
        world: The world.
        primitives: Its threads and queues.
        ensemble: What each client connects to, whatever address it is given.
    """

    class Result:
        """An answer that is to come."""

        def __init__(self) -> None:
            self._ready = primitives.Event()
            self._then: list[Callable[[Result], None]] = []
            self.exception: Exception | None = None
            self.value: Any = None

        def ready(self) -> bool:
            return self._ready.is_set()

        def successful(self) -> bool:
            return self.ready() and self.exception is None

        def wait(self, timeout: float | None = None) -> bool:
            return bool(self._ready.wait(timeout))

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            self._ready.wait(timeout)
            if self.exception is not None:
                raise self.exception
            return self.value

        def set(self, value: Any = None) -> None:
            self.value = value
            self._done()

        def set_exception(self, exception: Exception) -> None:
            self.exception = exception
            self._done()

        def then(self, call: Callable[[Result], None]) -> None:
            """Call a function once the answer is there."""
            if self.ready():
                call(self)
            else:
                self._then.append(call)

        def _done(self) -> None:
            if not self._ready.is_set():
                self._ready.set()
                for call in self._then:
                    call(self)

    class Handler:
        """Makes results."""

        timeout_exception = _TimedOut
        async_result = Result

    class Transaction:
        """Operations that are applied together."""

        def __init__(self, client: Client) -> None:
            self._client = client
            self._operations: list[Any] = []

        def create(self, path: str, value: bytes = b"", ephemeral: bool = False, sequence: bool = False) -> None:
            self._operations.append(model.Create(self._client.whole(path), value, ephemeral | sequence << 1))

        def set_data(self, path: str, value: bytes, version: int = -1) -> None:
            self._operations.append(model.Set(self._client.whole(path), value, version))

        def delete(self, path: str, version: int = -1) -> None:
            self._operations.append(model.Delete(self._client.whole(path), version))

        def check(self, path: str, version: int) -> None:
            self._operations.append(model.Check(self._client.whole(path), version))

        def commit_async(self) -> Result:
            asked, answer = Result(), Result()
            asked.then(partial(self._client.unchrooted, answer))
            self._client.ask(model.Multi(tuple(self._operations)), asked)
            return answer

    class Client:
        """A client."""

        def __init__(
            self, hosts: str = "127.0.0.1:2181", timeout: float = 10.0, client_id: Any = None, **_: object
        ) -> None:
            self.hosts, chroot = collect_hosts(hosts)
            self.chroot = (chroot or "").rstrip("/")
            self.handler = Handler()
            self.state = KazooState.LOST
            self.client_id: tuple[int, bytes] | None = client_id
            self._timeout_ns = int(timeout * 1e9)
            self._keeper_state = KeeperState.CLOSED
            self._live = primitives.Event()
            self._ended = primitives.Event()
            self._listeners: list[Callable[[str], object]] = []
            self._watches: dict[bool, dict[str, dict[Any, None]]] = {False: {}, True: {}}
            self._pending: dict[int, tuple[Any, Result, _Watch | None]] = {}
            self._queue: list[tuple[Any, Result, _Watch | None]] = []
            self._inbox = primitives.SimpleQueue()
            self._callbacks = primitives.SimpleQueue()
            self._connection: Connection | None = None
            self._stopped = True
            self._seen = 0
            self._next_token = 0

        # ---- its life

        @property
        def connected(self) -> bool:
            return bool(self._live.is_set())

        def add_listener(self, listener: Callable[[str], object]) -> None:
            self._listeners.append(listener)

        def start_async(self) -> Any:
            task = world.current
            assert task is not None
            self._process = task.process
            self._stopped = False
            self._ended.clear()
            world.spawn("zookeeper-connection", self._run, task.process)
            world.spawn("zookeeper-callbacks", self._call_back, task.process)
            return self._live

        def start(self, timeout: float = 15) -> None:
            self.start_async().wait(timeout)
            if not self.connected:
                self.stop()
                raise _TimedOut("Connection time-out")

        def stop(self) -> None:
            if self._stopped:
                return
            self._stopped = True
            self._inbox.put(("stop",))
            self._ended.wait()

        def close(self) -> None:
            pass

        def command(self, cmd: bytes) -> str:
            if not self.connected:
                raise errors.ConnectionLoss
            return "Zookeeper version: 3.8.4"

        # ---- the thread of the connection

        def _run(self) -> None:
            delay = _FIRST_DELAY_S
            while not self._stopped:
                if self._keeper_state != KeeperState.CONNECTING:
                    self._change(KeeperState.CONNECTING)
                answer = self._connect()
                if answer == "connected":
                    delay = _FIRST_DELAY_S
                    self._serve()
                elif answer == "expired":
                    self.client_id = None
                    self._change(KeeperState.EXPIRED_SESSION)
                    delay = _FIRST_DELAY_S
                if not self._stopped:
                    self._pause(delay)
                    delay = min(_LONGEST_DELAY_S, delay * 2)
            self._change(KeeperState.CLOSED)
            self._callbacks.put(None)
            self._ended.set()

        def _pause(self, seconds: float) -> None:
            end = world.now + int(seconds * 1e9)
            while not self._stopped and world.now < end:
                with contextlib.suppress(Empty):
                    self._inbox.get(timeout=(end - world.now) / 1e9)

        def _connect(self) -> str:
            session = self.client_id[0] if self.client_id else 0
            connection = ensemble.connect(self._process, session, self._timeout_ns, self._seen, self._inbox.put)
            while True:
                what = self._inbox.get()
                if what[0] == "connected":
                    self._connection = connection
                    self.client_id = what[1], b""
                    if self._stopped:
                        self._end_session()
                        return "stopped"
                    self._change(KeeperState.CONNECTED)
                    return "connected"
                if what[0] in ("expired", "refused"):
                    return str(what[0])
                if what == ("lost", connection):
                    return "refused"

        def _serve(self) -> None:
            connection = self._connection
            assert connection is not None
            self._flush()
            while True:
                what = self._inbox.get()
                if what[0] == "answer":
                    self._answered(*what[1:])
                elif what[0] == "event":
                    self._fired(*what[1:])
                elif what[0] == "asked":
                    self._flush()
                elif what[0] == "stop":
                    self._end_session()
                    break
                elif what[0] == "lost" and what[1] is connection:
                    if not self._stopped:
                        self._change(KeeperState.CONNECTING)
                    break
            self._connection = None

        def _end_session(self) -> None:
            """Ask for the session's end, and wait for the answer as long as the connection lives."""
            connection = self._connection
            assert connection is not None
            self._flush()
            connection.close_session()
            while connection.is_open:
                what = self._inbox.get()
                if what[0] == "closed":
                    connection.cut()
                elif what[0] == "answer":
                    self._answered(*what[1:])
            self._connection = None

        def _change(self, state: str) -> None:
            was_closed, self._keeper_state = self._keeper_state in _CLOSED, state
            if was_closed and state == KeeperState.CONNECTING:
                return
            if state == KeeperState.CONNECTED:
                self._live.set()
                self._tell(KazooState.CONNECTED)
            elif state in _CLOSED:
                self._live.clear()
                self._tell(KazooState.LOST)
                expired = state == KeeperState.EXPIRED_SESSION
                self._fail_all(errors.SessionExpiredError if expired else errors.ConnectionLoss)
                self._watches = {False: {}, True: {}}
            else:
                self._live.clear()
                self._fail_all(errors.ConnectionLoss)
                self._tell(KazooState.SUSPENDED)
                watches, self._watches = self._watches, {False: {}, True: {}}
                for found in watches.values():
                    for path, functions in found.items():
                        for function in functions:
                            self._callbacks.put((function, WatchedEvent(EventType.NONE, self._keeper_state, path)))

        def _tell(self, state: str) -> None:
            if self.state != state:
                self.state = state
                for listener in list(self._listeners):
                    listener(state)

        def _fail_all(self, error: type[Exception]) -> None:
            pending, self._pending = self._pending, {}
            queue, self._queue = self._queue, []
            for _, result, _ in pending.values():
                result.set_exception(error())
            for _, result, _ in queue:
                result.set_exception(error())

        def _flush(self) -> None:
            while self._queue and self._connection is not None:
                request, result, watch = self._queue.pop(0)
                self._next_token += 1
                self._pending[self._next_token] = request, result, watch
                self._connection.send(request, self._next_token)

        def _answered(self, token: int, error: Exception | None, value: Any, zxid: int) -> None:
            self._seen = max(self._seen, zxid)
            found = self._pending.pop(token, None)
            if found is None:
                return
            request, result, watch = found
            if error is None:
                result.set(value)
            elif isinstance(request, model.Exists) and isinstance(error, errors.NoNodeError):
                result.set(None)
            else:
                result.set_exception(type(error)())
                return
            if watch is not None and not self._stopped:
                self._watches[watch.is_of_children].setdefault(watch.path, {})[watch.function] = None

        def _fired(self, kind: int, path: str) -> None:
            functions = dict(self._watches[False].pop(path, {})) if kind != model.CHILD else {}
            if kind in (model.CHILD, model.DELETED):
                functions |= self._watches[True].pop(path, {})
            if not self._stopped:
                event = WatchedEvent(_EVENTS[kind], self._keeper_state, path.removeprefix(self.chroot) or "/")
                for function in functions:
                    self._callbacks.put((function, event))

        def _call_back(self) -> None:
            while (found := self._callbacks.get()) is not None:
                found[0](found[1])

        # ---- what is asked

        def whole(self, path: str) -> str:
            return self.chroot + path if path != "/" else self.chroot or "/"

        def ask(self, request: Any, result: Result, watch: _Watch | None = None) -> Result:
            if self._keeper_state == KeeperState.CLOSED:
                result.set_exception(errors.ConnectionClosedError("Connection has been closed"))
            elif self._keeper_state == KeeperState.EXPIRED_SESSION:
                result.set_exception(errors.SessionExpiredError())
            else:
                self._queue.append((request, result, watch))
                self._inbox.put(("asked",))
            return result

        def _call(self, request: Any, result: Result) -> None:
            """Take kazoo's form of a bulk read."""
            asked = Result()
            asked.then(partial(self._bulk, result))
            self.ask(model.Many(tuple(request.paths)), asked)

        @staticmethod
        def _bulk(answer: Result, asked: Result) -> None:
            if asked.exception is not None:
                answer.set_exception(asked.exception)
                return
            found: list[Any] = []
            for each in asked.value:
                if each is None:
                    found.append(NO_NODE)
                else:
                    found.append((each[0] or b"", Stat(each[1].czxid, each[1].version, each[1].ephemeralOwner)))
            answer.set(found)

        def get_async(self, path: str, watch: Any = None) -> Result:
            whole = self.whole(path)
            found = _Watch(whole, watch, False) if watch is not None else None
            return self.ask(model.Get(whole, watch is not None), Result(), found)

        def get_children_async(self, path: str, watch: Any = None) -> Result:
            whole = self.whole(path)
            found = _Watch(whole, watch, True) if watch is not None else None
            return self.ask(model.Children(whole, watch is not None), Result(), found)

        def exists_async(self, path: str, watch: Any = None) -> Result:
            whole = self.whole(path)
            found = _Watch(whole, watch, False) if watch is not None else None
            return self.ask(model.Exists(whole, watch is not None), Result(), found)

        def set_async(self, path: str, value: bytes | None, version: int = -1) -> Result:
            return self.ask(model.Set(self.whole(path), value, version), Result())

        def delete_async(self, path: str, version: int = -1) -> Result:
            return self.ask(model.Delete(self.whole(path), version), Result())

        def create_async(
            self,
            path: str,
            value: bytes | None = b"",
            ephemeral: bool = False,
            sequence: bool = False,
            makepath: bool = False,
        ) -> Result:
            answer = Result()

            def begin() -> None:
                asked = Result()
                asked.then(done)
                self.ask(model.Create(self.whole(path), value, ephemeral | sequence << 1), asked)

            def done(asked: Result) -> None:
                if isinstance(asked.exception, errors.NoNodeError) and makepath:
                    self.create_async(path.rpartition("/")[0], makepath=True).then(again)
                else:
                    self.unchrooted(answer, asked)

            def again(parent: Result) -> None:
                if parent.exception is None or isinstance(parent.exception, errors.NodeExistsError):
                    begin()
                else:
                    answer.set_exception(parent.exception)

            begin()
            return answer

        def unchrooted(self, answer: Result, asked: Result) -> None:
            """Pass an answer on, its paths without the chroot."""
            if asked.exception is not None:
                answer.set_exception(asked.exception)
            elif isinstance(asked.value, list):
                answer.set([self._bare(each) for each in asked.value])
            else:
                answer.set(self._bare(asked.value))

        def _bare(self, value: Any) -> Any:
            return value.removeprefix(self.chroot) or "/" if isinstance(value, str) else value

        def transaction(self) -> Transaction:
            return Transaction(self)

    return Client
