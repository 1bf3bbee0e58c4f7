"""A ZooKeeper session that is replaced after it expired.

Requests wait while the connection is down and are sent again once it is back; they fail once the session has expired.
Watches survive a lost connection: once it is back, every watched node counts as changed.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from collections import deque
from dataclasses import dataclass
from itertools import chain, islice
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import EventType, KazooState
from kazoo.retry import KazooRetry

from channel.addresses import show_address, why_unreachable
from channel.errors import (
    BadVersion,
    Disconnected,
    IllegalState,
    NodeExists,
    NodeTooLarge,
    NoNode,
    NotEmpty,
    RequestTimeout,
    SessionExpired,
    ZooKeeperError,
)
from channel.locks import guards, guards_changes, new_lock
from channel.logs import get_logger
from channel.threads import Startable, call_within, ends_with_process
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from channel.metrics import Histogram, Metrics

_log = get_logger(__name__)
_T = TypeVar("_T")

SLICE_S: Final = 1.0
"""The interval at which a wait checks its session; results and changes of state end the wait at once."""

PAUSE_S: Final = 1.0
"""The shortest time from the begin of a session to that of the next."""

WINDOW: Final = 1_000
"""The number of requests in flight: their answers and kazoo's own objects are what a pipelined read holds in memory."""

_BULK: Final = 256
"""The number of nodes that one bulk read names."""

_BULK_WINDOW: Final = 4
"""The number of bulk reads in flight."""

_LISTENER: Final = "kafka.server:type=SessionExpireListener"
_CLIENT: Final = "kafka.server:type=ZooKeeperClientMetrics"
_METERS: Final = {
    KazooState.CONNECTED: ("ZooKeeperSyncConnectsPerSec", "Connections to ZooKeeper"),
    KazooState.SUSPENDED: ("ZooKeeperDisconnectsPerSec", "Lost connections to ZooKeeper"),
    KazooState.LOST: ("ZooKeeperExpiresPerSec", "Expired sessions"),
}
"""The meter of each state of the connection, under Kafka's name."""

_LARGEST: Final = 1_000_000
"""Requests above this may be larger than ZooKeeper takes: it ends the connection at them, and would again."""

_LOST: Final = (kazoo_errors.ConnectionLoss, kazoo_errors.ConnectionClosedError)

_NOTICE_S: Final = 1.0
"""The time after which a start that waits for ZooKeeper says so."""
_EXPLAINING_S: Final = 2.0
"""The longest time to find out why no server answers, in seconds."""


# ---- operations on znodes, and their outcomes ------------------------------------------------------------------------


class Stat(NamedTuple):
    """A node's metadata in ZooKeeper.

    Attributes:
        czxid: The transaction that created the node: the broker epoch, for a broker's registration.
        version: Counts the changes of the data.
        owner: The session that an ephemeral node belongs to, 0 for others.
    """

    czxid: int
    version: int
    owner: int


class Create(NamedTuple):
    """Create a node; its parent must exist."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class SetData(NamedTuple):
    """Replace a node's data; version -1 means any."""

    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    """Delete a node without children; version -1 means any."""

    path: str
    version: int = -1


class Check(NamedTuple):
    """Check that a node has this version."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check


class Transaction(NamedTuple):
    """The outcome of operations that are applied together or not at all.

    Attributes:
        results: Each operation's result if all were applied: the path of a ``Create``, the ``Stat`` of a ``SetData``.
        failed: The index of the operation that failed, None if all were applied.
        error: The reason of the refusal.
    """

    results: list[Any]
    failed: int | None = None
    error: ZooKeeperError | None = None


def _size(thing: object) -> int:
    """The bytes of data in a transaction; 0 for anything else."""
    return sum(len(getattr(each, "data", b"")) for each in thing) if isinstance(thing, (list, tuple)) else 0


ERRORS: Final[dict[type[Exception], type[ZooKeeperError]]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.SessionExpiredError: SessionExpired,
}
_NOT_TRIED: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)


def stat_of(stat: Any) -> Stat:
    """Return the fields of a node's stat that the channel package needs."""
    return Stat(stat.czxid, stat.version, stat.ephemeralOwner)


def begin_transaction(client: Any, operations: Sequence[Operation]) -> Any:
    """Send operations as one transaction; returns kazoo's pending answer."""
    transaction = client.transaction()
    for each in operations:
        match each:
            case Create(path, data, ephemeral, sequence):
                transaction.create(path, data, ephemeral=ephemeral, sequence=sequence)
            case SetData(path, data, version):
                transaction.set_data(path, data, version)
            case Delete(path, version):
                transaction.delete(path, version)
            case Check(path, version):
                transaction.check(path, version)
    return transaction.commit_async()


def transaction_of(operations: Sequence[Operation], results: list[Any]) -> Transaction:
    """Return the outcome of a transaction: its results, or its first operation that ZooKeeper refused."""
    for index, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, _NOT_TRIED):
            kind = ERRORS.get(type(result), ZooKeeperError)
            operation = operations[index]
            error = kind(f"{type(operation).__name__} {operation.path}: {type(result).__name__}")
            return Transaction([], index, error)
    if any(isinstance(result, Exception) for result in results):
        return Transaction([], 0, ZooKeeperError(f"a transaction failed for no reason that ZooKeeper gave: {results}"))
    return Transaction([stat_of(r) if hasattr(r, "czxid") else r for r in results])


# ---- bulk reads, which kazoo does not have ---------------------------------------------------------------------------

NO_NODE: Final = -101
"""ZooKeeper's error code for a missing znode."""

_SINCE: Final = (3, 6)
_GET_DATA: Final = 4
_ERROR: Final = -1
_HEADER: Final = Struct(">i?i")  # of each operation: its type, whether this is the end, an error code
_LENGTH: Final = Struct(">i")
_STAT: Final = Struct(">q24xi8xq16x")  # czxid, version and ephemeral owner
_BEGIN: Final = _HEADER.pack(_GET_DATA, False, -1)
_END: Final = _HEADER.pack(_ERROR, True, -1)
_NO_WATCH: Final = b"\0"

Found: TypeAlias = tuple[bytes, Stat] | int
"""Data and stat of a znode, or the error code of its read."""


@dataclass(frozen=True, slots=True)
class ReadMany:
    """A request for data and stat of many znodes, without watches; paths are whole, with the chroot.

    Attributes:
        type: ZooKeeper's number of this request.
    """

    paths: Sequence[str]
    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        """The request's body."""
        pieces: list[bytes] = []
        for path in self.paths:
            name = path.encode()
            pieces += (_BEGIN, _LENGTH.pack(len(name)), name, _NO_WATCH)
        return b"".join((*pieces, _END))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Found]:
        """Data and stat of each znode, or the error code of its read, in the order of the request."""
        found: list[Found] = []
        while True:
            kind, is_end, _ = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size
            if is_end:
                return found
            (number,) = _LENGTH.unpack_from(data, offset)
            offset += _LENGTH.size
            if kind == _ERROR:
                found.append(number)
                continue
            end = offset + max(number, 0)  # -1 for no data at all
            found.append((bytes(data[offset:end]), Stat(*_STAT.unpack_from(data, end))))
            offset = end + _STAT.size


def serves_bulk_reads(answer: str) -> bool:
    """Whether a server of this version answers ``ReadMany``; older servers end the session instead.

    Args:
        answer: The server's answer to the command ``srvr``.
    """
    version = re.match(r"Zookeeper version: (\d+)\.(\d+)", answer)
    return version is not None and (int(version[1]), int(version[2])) >= _SINCE


# ---- the session -----------------------------------------------------------------------------------------------------


class _NoBulkReads(Exception):
    """The server that is connected by now answers no bulk reads."""


class _WatchFunction(NamedTuple):
    """The function that kazoo calls when a watch fires; kazoo keeps one of equal functions for a node."""

    fired: Callable[[Any, tuple[str, str], Any], None]
    client: Any
    watched: tuple[str, str]

    def __call__(self, event: Any) -> None:
        self.fired(self.client, self.watched, event)


class _Threads(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads: that of the connection, and those that call watches and complete requests.

    Args:
        died: Takes the error that has ended one of them.
    """

    def __init__(self, died: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._died = died

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        """Begin a thread."""

        def run() -> None:
            try:
                func(*args, **kwargs)
            except BaseException as e:  # noqa: BLE001  (nobody else would see it)
                self._died(e)

        thread = threading.Thread(target=run, name="zookeeper-client", daemon=True)
        thread.start()
        return thread


class ZooKeeperSession(Startable):
    """A session with ZooKeeper, and after its expiry the next session; for any thread.

    Args:
        hosts: ``HOST:PORT``, several with commas between them, and ``/PATH`` at the end for a chroot.
        timeout_ms: The session timeout: the time after the last heartbeat at which ZooKeeper ends the session.
        on_expired: Called after a session expired and before the next begins; requests fail meanwhile.
        on_new_session: Called once the next session has begun.
        metrics: Takes the state of the session, counts of connections and of their ends, and latencies of requests,
            under Kafka's names, until ``close``.

    Attributes:
        previous_ids: The expired sessions, the latest last: their ephemeral nodes were ours, and end by themselves.
        error: The error that keeps an expired session from being renewed; None while all is well.

    Raises:
        ConfigurationError: ``hosts`` names no server.
    """

    def __init__(
        self,
        hosts: str,
        *,
        timeout_ms: int = 18_000,
        on_expired: Callable[[], None] | None = None,
        on_new_session: Callable[[], None] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.hosts = hosts
        self._metrics = metrics
        self._meters = (
            {}
            if metrics is None
            else {state: metrics.meter(_LISTENER, name, doc=doc) for state, (name, doc) in _METERS.items()}
        )
        self._latencies: Histogram | None = None
        self._recording = new_lock("metrics")
        if metrics is not None:
            metrics.gauge(
                _LISTENER, "SessionState", lambda: float(self._connected.is_set()), doc="1 if connected, otherwise 0"
            )
            self._latencies = metrics.histogram(
                _CLIENT,
                "ZooKeeperRequestLatencyMs",
                doc="Milliseconds until ZooKeeper answers, of the first of the requests that are sent together",
            )
        self.previous_ids: list[int] = []
        self.error: BaseException | None = None
        self._timeout_ms = timeout_ms
        self._on_expired = on_expired
        self._on_new_session = on_new_session
        self._lock = new_lock("ZooKeeper session")
        self._connected = threading.Event()
        self._is_closed = False
        self._handlers: dict[tuple[str, str], Callable[[], object]] = {}  # by kind, "node" or "children", and path
        self._lost: list[Callable[[], object]] = []  # the handlers whose watches the lost connection took along
        self._renewing: threading.Thread | None = None
        self._client: Any = None
        self._expired: Any = None  # the client whose session was the last to expire
        self._last_id = 0
        self._connection_number = 0  # grows whenever a connection begins or ends
        self._serves_bulk = (-1, False)  # of which connection, and whether its server answers bulk reads
        try:
            self._make_client()
        except (kazoo_errors.KazooException, ValueError) as e:
            raise ConfigurationError(f"cannot use {hosts!r} as ZooKeeper's address ({e}); try HOST:PORT") from e
        ends_with_process(self)

    # ---- the session's life

    def start(self, timeout_s: float = 18.0) -> None:
        """Connect, and return once the session has begun.

        Raises:
            Disconnected: No server answered in time; the session is closed.
        """
        notice = threading.Timer(
            _NOTICE_S, _log.warning, ("no ZooKeeper answers at %s yet; still trying, for %g s", self.hosts, timeout_s)
        )
        notice.name, notice.daemon = "zookeeper-notice", True
        with contextlib.suppress(RuntimeError):  # without a thread for the notice it starts all the same
            notice.start()
        try:
            began = self._client.start_async()  # start() asks for the chroot, too, and warns in Python's way
            began.wait(timeout_s)
        finally:
            notice.cancel()
        if not self._client.connected:
            self.close()
            servers = collect_hosts(self.hosts)[0]
            each_s = _EXPLAINING_S / max(1, len(servers))
            tried = ((host, port, why_unreachable(host, port, each_s)) for host, port in servers)
            reasons = [f"{show_address((host, port))}: {why}" for host, port, why in tried if why]
            hint = "; ".join(reasons) or "is it running, and is the port right?"
            raise Disconnected(f"no ZooKeeper answers at {self.hosts} within {timeout_s:g} s; {hint}")

    def close(self, timeout_s: float | None = None) -> None:
        """End the session, and with it its ephemeral nodes. Harmless if closed.

        Args:
            timeout_s: The longest time to wait for each of its threads; the log names one that has not ended then.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            client, renewing = self._client, self._renewing
        if renewing is threading.current_thread():
            renewing = None  # it ends after this call by the session's owner
        self._connected.set()  # so that threads waiting for the connection stop waiting
        if self._metrics is not None:
            self._metrics.remove(_LISTENER)
            self._metrics.remove(_CLIENT)

        def end() -> None:
            client.stop()
            if renewing is not None:  # it may be stopping the same client, which cannot be closed before
                renewing.join()
            client.close()

        if timeout_s is None:
            end()
        else:
            call_within(timeout_s, "zookeeper-session-closing", end)

    def forget_in_child(self) -> None:
        """Count as closed in a forked child: the connection and its threads are the parent's."""
        self._lock = new_lock("ZooKeeper session")
        with self._lock:
            self._is_closed = True

    @property
    def id(self) -> int:
        """The present session's id, 0 before the first."""
        client_id = self._client.client_id
        return int(client_id[0]) if client_id else self._last_id

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._is_closed

    @property
    def is_connected(self) -> bool:
        """Whether the session is connected to a server at present."""
        return bool(self._client.connected)

    def _make_client(self) -> None:
        client = KazooClient(
            hosts=self.hosts,
            timeout=self._timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0),
            randomize_hosts=True,
            handler=_Threads(lambda error: self._thread_died(client, error)),
        )
        client.add_listener(lambda state: self._state_changed(client, state))
        self._lost = []
        self._began = time.monotonic()
        self._client = client

    def _state_changed(self, client: Any, state: str) -> None:
        """Take a change of the connection's state; on kazoo's thread, which must not be blocked.

        A client whose session has expired begins another one by itself, until it is stopped: that one does not count.
        """
        if client is not self._client or client is self._expired:
            return
        self._connection_number += 1
        if state in self._meters and not self._is_closed:
            self._meters[state].value += 1
        if state == KazooState.CONNECTED:
            self._last_id = int(client.client_id[0])
            self._connected.set()
            with self._lock:
                lost, self._lost = self._lost, []
            for handler in lost:
                handler()
        elif state == KazooState.SUSPENDED:
            self._connected.clear()
            _log.warning("the connection to ZooKeeper at %s is lost; trying to reach it again", self.hosts)
        else:
            with self._lock:
                if self._is_closed or client is self._expired:
                    return
                self._connected.clear()
                self._expired = client
                self._renewing = threading.Thread(
                    target=self._renew, args=(client,), name="zookeeper-session-renewal", daemon=True
                )
                try:
                    self._renewing.start()
                except RuntimeError as e:
                    self._renewing = None
                    self._fail(e)

    def _thread_died(self, client: Any, error: BaseException) -> None:
        """Begin another session: this one would hold its nodes, and tell of no change."""
        _log.critical("a thread of ZooKeeper's client was ended by an error", exc_info=error)
        self._state_changed(client, KazooState.LOST)

    def _fail(self, error: BaseException) -> None:
        """Note that there will be no session any more: the owner sees it, and ends."""
        self.error = error
        _log.critical("the expired ZooKeeper session is not renewed: %s", error, exc_info=error)

    def _renew(self, expired: Any) -> None:
        """Replace an expired session; an error ends the renewal, and ``error`` keeps it."""
        try:
            self._begin_next(expired)
        except BaseException as e:  # noqa: BLE001  (nobody else would see it)
            self._fail(e)

    def _begin_next(self, expired: Any) -> None:
        """Have ``on_expired`` called, then begin the new session."""
        _log.warning("ZooKeeper session 0x%x has expired", self._last_id)
        self.previous_ids.append(self._last_id)
        expired.stop()  # all requests of the old session fail
        self._call_owner(self._on_expired)
        expired.close()
        self._connected.wait(self._began + PAUSE_S - time.monotonic())  # a server may end each session at once
        with self._lock:
            if self._is_closed:
                return
            self._make_client()
            client = self._client
            began = client.start_async()  # under the lock, as a closed client must not be started
        while not began.wait(SLICE_S):
            if self.is_closed or client is not self._client:
                return
        self._call_owner(self._on_new_session)

    def _call_owner(self, callback: Callable[[], None] | None) -> None:
        """Call a callback of the owner's; its error must not end the session's renewal."""
        if callback is not None:
            try:
                callback()
            except Exception:  # noqa: BLE001
                _log.exception("the owner of the ZooKeeper session failed to take note of its renewal")

    # ---- watches

    def watch_node(self, path: str, handler: Callable[[], object]) -> None:
        """Call ``handler`` when the node is created, changed or deleted; the handler must only queue work.

        The watch begins with the next read of the node's data or existence, and again with each read after a call.
        """
        self._handlers["node", path] = handler

    def watch_children(self, path: str, handler: Callable[[], object]) -> None:
        """Call ``handler`` when the node gets or loses a child; the handler must only queue work.

        The watch begins with the next read of the children, and again with each read after a call.
        """
        self._handlers["children", path] = handler

    def unwatch(self, path: str) -> None:
        """Stop calling the handlers of this path."""
        self._handlers.pop(("node", path), None)
        self._handlers.pop(("children", path), None)

    def _watch_fired(self, client: Any, watched: tuple[str, str], event: Any) -> None:
        with self._lock:
            handler = self._handlers.get(watched)
            if handler is None or client is not self._client or self._is_closed:
                return
            if event.type == EventType.NONE and not self._connected.is_set():
                self._lost.append(handler)
                return
        handler()

    # ---- reading

    def get(self, path: str) -> tuple[bytes, Stat]:
        """Read a node's data and stat.

        Raises:
            NoNode: The node does not exist.
        """
        return _present(path, self.get_many([path])[0])

    def get_many(self, paths: Sequence[str], timeout_s: float | None = None) -> list[tuple[bytes, Stat] | None]:
        """Read data and stat of many nodes, pipelined; None for missing nodes.

        Raises:
            RequestTimeout: ZooKeeper has not answered within ``timeout_s``; without one only the session's end ends it.
        """
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        answers = list(_nodes(self._read_watched("node", KazooClient.get_async, paths, None, deadline)))
        missing = [i for i, answer in enumerate(answers) if answer is None and ("node", paths[i]) in self._handlers]
        if missing:
            stats = self.exists_many([paths[i] for i in missing])
            made = [i for i, stat in zip(missing, stats, strict=True) if stat is not None]  # meanwhile
            for i, answer in zip(made, self.get_many([paths[i] for i in made]) if made else (), strict=True):
                answers[i] = answer
        return answers

    def get_unwatched(self, paths: Iterable[str]) -> Iterator[tuple[bytes, Stat] | None]:
        """Read data and stat of any number of nodes, in bulk, and start no watches; None for missing nodes.

        Paths and nodes are read while the results are taken: only some thousand are in memory at a time.
        """
        left = iter(paths)
        batches = iter(lambda: list(islice(left, _BULK)), [])
        first = next(batches, [])
        if len(first) < _BULK or not self._serves_bulk_reads():
            yield from self._read_each(chain(first, left))
            return

        unread: deque[list[str]] = deque()

        def asked() -> Iterator[list[str]]:
            for batch in chain([first], batches):
                unread.append(batch)
                yield batch

        def read(client: Any, batch: Sequence[str]) -> Any:
            answer = client.handler.async_result()
            if not client.connected:
                answer.set_exception(kazoo_errors.ConnectionLoss())  # kazoo would send it to any server that comes
            elif self._serves_bulk_reads():
                client._call(ReadMany([client.chroot + path for path in batch]), answer)  # kazoo has no other door
            else:
                raise _NoBulkReads
            return answer

        try:
            for batch, results in self._answers(read, asked(), window=_BULK_WINDOW):
                unread.popleft()
                for path, found in zip(batch, results, strict=True):
                    if not isinstance(found, int):
                        yield found
                    elif found == NO_NODE:
                        yield None
                    else:
                        raise ZooKeeperError(f"ZooKeeper refused to read {path}: error {found}")
        except _NoBulkReads:
            yield from self._read_each(chain(chain.from_iterable(unread), left))

    def _read_each(self, paths: Iterable[str]) -> Iterator[tuple[bytes, Stat] | None]:
        return _nodes(self._answers(KazooClient.get_async, paths, None))

    def _serves_bulk_reads(self) -> bool:
        """Whether the connected server answers bulk reads; if it does not tell its version, it is not asked for any."""
        connection, client = self._connection_number, self._client
        if self._serves_bulk[0] != connection:  # it may be another server, of another version
            try:
                self._serves_bulk = connection, serves_bulk_reads(client.command(b"srvr"))
            except (OSError, AttributeError, kazoo_errors.KazooException, client.handler.timeout_exception):
                return False  # the connection is down, or was replaced meanwhile
        return self._serves_bulk == (self._connection_number, True)

    def exists(self, path: str) -> Stat | None:
        """Read a node's stat; None if the node does not exist."""
        return self.exists_many([path])[0]

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]:
        """Read the stats of many nodes, pipelined; None for missing nodes."""
        answers = self._read_watched("node", KazooClient.exists_async, paths)
        return [None if stat is None else stat_of(stat) for _, stat in answers]

    def children(self, path: str) -> list[str]:
        """Read the names of a node's children, sorted.

        Raises:
            NoNode: There is no such node.
        """
        return _present(path, self.children_of_many([path])[0])

    def children_of_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Read the names of the children of many nodes, pipelined; None for missing nodes."""
        answers = self._read_watched("children", KazooClient.get_children_async, paths, None)
        return [None if names is None else sorted(names) for _, names in answers]

    # ---- writing

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Create a node, and the missing nodes above it.

        Returns:
            The node's path, which ends in a number with ``sequence``.

        Raises:
            NodeExists: The node exists already.
        """
        create = Create(path, data, ephemeral, sequence)
        try:
            return str(self._apply(create))
        except NoNode:
            self.ensure(path.rpartition("/")[0])
            return str(self._apply(create))

    def ensure(self, path: str) -> None:
        """Create a persistent node and the nodes above it, if they are missing.

        The node has no data at all, as in Kafka: its migration to KRaft, and brokers below inter-broker protocol 3.0,
        refuse empty data.
        """
        if path:
            with contextlib.suppress(NodeExists):
                self._ask_all(lambda client, each: client.create_async(each, None, makepath=True), [path])

    def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        """Replace a node's data.

        Raises:
            NoNode, BadVersion: There is no such node, or it has another version.
            NodeTooLarge: ZooKeeper takes no request of this size.
        """
        stat: Stat = self._apply(SetData(path, data, version))
        return stat

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a node.

        Raises:
            NoNode, BadVersion, NotEmpty: There is no such node, it has another version, or children.
        """
        self._apply(Delete(path, version))

    def delete_tree(self, path: str) -> None:
        """Delete a node and all nodes below it; harmless if the node does not exist."""
        for name in self.children_of_many([path])[0] or []:
            self.delete_tree(f"{path}/{name}")
        with contextlib.suppress(NoNode):
            self.delete(path)

    def _apply(self, operation: Operation) -> Any:
        outcome = self.transaction([operation])
        if outcome.error is not None:
            raise outcome.error
        return outcome.results[0]

    def transaction(self, operations: Sequence[Operation]) -> Transaction:
        """Apply all of the operations or none.

        If the connection is lost before the answer the transaction is tried again, and may then be refused because it
        had been applied: callers whose operations are refused must check whether their changes are there.
        """
        return self.transactions([operations])[0]

    def transactions(self, many: Sequence[Sequence[Operation]]) -> list[Transaction]:
        """Apply many transactions, pipelined, each by itself."""
        return [
            transaction_of(operations, results)
            for operations, results in zip(many, self._ask_all(begin_transaction, many, missing=None), strict=True)
        ]

    # ---- asking kazoo

    def _ask_all(self, ask: Callable[[Any, _T], Any], things: Sequence[_T], missing: Any = ...) -> list[Any]:
        return [answer for _, answer in self._answers(ask, things, missing)]

    def _read_watched(
        self,
        kind: str,
        read: Callable[..., Any],
        paths: Iterable[str],
        missing: Any = ...,
        deadline: float = math.inf,
    ) -> Iterator[tuple[str, Any]]:
        def ask(client: Any, path: str) -> Any:
            is_watched = (kind, path) in self._handlers
            return read(
                client, path, watch=_WatchFunction(self._watch_fired, client, (kind, path)) if is_watched else None
            )

        return self._answers(ask, paths, missing, deadline=deadline)

    def _answers(
        self,
        ask: Callable[[Any, _T], Any],
        things: Iterable[_T],
        missing: Any = ...,
        window: int = WINDOW,
        deadline: float = math.inf,
    ) -> Iterator[tuple[_T, Any]]:
        """Send requests, pipelined, and those that a lost connection left unanswered once more.

        Args:
            ask: Starts one request with kazoo's client.
            things: The arguments of the requests.
            missing: The result for a missing node, which is an error if this is ``...``.
            window: The number of requests in flight.
            deadline: The time, as ``time.monotonic`` gives it, at which the wait for an answer ends.

        Raises:
            RequestTimeout: The deadline has passed.

        Yields:
            Each argument with its answer, in order, while further requests are sent.
        """
        client, left, began = self._client, iter(things), time.perf_counter_ns()
        losses = 0  # of the oldest request, one after the other
        in_flight = deque((thing, ask(client, thing)) for thing in islice(left, window))
        while in_flight:
            thing, pending = in_flight.popleft()
            try:
                while not pending.wait(SLICE_S):  # a request that came while kazoo failed all others is never answered
                    self._check_alive(client, deadline)
                answer = pending.get()
            except _LOST:
                self._check_alive(client)
                while not self._connected.wait(SLICE_S):
                    self._check_alive(client, deadline)
                self._check_alive(client)
                losses += 1
                if losses > 1 and (size := _size(thing)) > _LARGEST:
                    raise NodeTooLarge(
                        f"ZooKeeper ends the connection at each request of {size} bytes; its limit is jute.maxbuffer, "
                        "1 MiB by default"
                    ) from None
                in_flight.appendleft((thing, pending))
                in_flight = deque(
                    (each, ask(client, each) if isinstance(found.exception, _LOST) else found)
                    for each, found in in_flight
                )
                continue
            except kazoo_errors.NoNodeError as e:
                if missing is ...:
                    raise NoNode(f"ZooKeeper has no such node: {thing or e}") from e
                answer = missing
            except tuple(ERRORS) as e:
                raise ERRORS[type(e)](f"ZooKeeper refused a request: {type(e).__name__}") from e
            except kazoo_errors.KazooException as e:
                raise ZooKeeperError(f"ZooKeeper refused a request: {type(e).__name__} {e}".rstrip()) from e
            losses = 0
            in_flight.extend((each, ask(client, each)) for each in islice(left, 1))
            if began:
                with self._recording:
                    if self._latencies is not None:
                        self._latencies.record((time.perf_counter_ns() - began) / 1e6)
            began = 0
            yield thing, answer

    def _check_alive(self, client: Any, deadline: float = math.inf) -> None:
        if time.monotonic() >= deadline:
            raise RequestTimeout("ZooKeeper has not answered in time")
        if self._is_closed:
            raise IllegalState("the ZooKeeper session is closed")
        if client is not self._client or client.state == KazooState.LOST:
            raise SessionExpired("the ZooKeeper session has expired")


guards(ZooKeeperSession, "_lock", "_lost", "_renewing")
guards(ZooKeeperSession, "_recording", "_latencies")
guards_changes(ZooKeeperSession, "_lock", "_client", "_is_closed")


def _present(path: str, found: _T | None) -> _T:
    if found is None:
        raise NoNode(f"ZooKeeper has no {path}")
    return found


def _nodes(answers: Iterable[tuple[str, Any]]) -> Iterator[tuple[bytes, Stat] | None]:
    for _, found in answers:
        yield None if found is None else (found[0] or b"", stat_of(found[1]))
