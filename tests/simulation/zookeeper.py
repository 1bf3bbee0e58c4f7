"""A model of a ZooKeeper ensemble: what its clients can tell of it, in virtual time.

A write is decided by the leader, and applied by each server in the same order, some later than others. A client talks
to one server, over a connection that keeps its order: it reads what this server has applied, and its write is answered
once this server has applied it. Watches fire once, when the server that holds them applies a change. Sessions end when
they were not heard of for their timeout. ``test_zookeeper_model.py`` holds it against a real ZooKeeper.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo import exceptions as errors
from kazoo.protocol.states import ZnodeStat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .scheduler import Process, World

__all__ = [
    "CHANGED", "CHILD", "CREATED", "DELETED", "Check", "Children", "Connection", "Create", "Delete", "Ensemble",
    "Exists", "Get", "Many", "Multi", "Request", "Set",
]  # fmt: skip

CREATED, DELETED, CHANGED, CHILD = 1, 2, 3, 4


class Request:
    """What a client asks of ZooKeeper."""


class Create(Request, NamedTuple("_Create", [("path", str), ("data", "bytes | None"), ("flags", int)])):
    """Create a znode; flag 1 for an ephemeral one, 2 for a number at its end."""


class Delete(Request, NamedTuple("_Delete", [("path", str), ("version", int)])):
    """Delete a znode."""


class Set(Request, NamedTuple("_Set", [("path", str), ("data", "bytes | None"), ("version", int)])):
    """Replace the data of a znode."""


class Check(Request, NamedTuple("_Check", [("path", str), ("version", int)])):
    """Check the version of a znode; in a transaction only."""


class Multi(Request, NamedTuple("_Multi", [("operations", "tuple[Any, ...]")])):
    """Do all or none of these operations."""


class Get(Request, NamedTuple("_Get", [("path", str), ("watches", bool)])):
    """Read data and stat of a znode."""


class Exists(Request, NamedTuple("_Exists", [("path", str), ("watches", bool)])):
    """Read the stat of a znode."""


class Children(Request, NamedTuple("_Children", [("path", str), ("watches", bool)])):
    """Read the names of the children of a znode."""


class Many(Request, NamedTuple("_Many", [("paths", "tuple[str, ...]")])):
    """Read data and stat of many znodes."""


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class _Znode:
    __slots__ = ("children", "created", "creations", "data", "modified", "owner", "version")

    def __init__(self, data: bytes | None, zxid: int, owner: int) -> None:
        self.data = data
        self.created = self.modified = zxid
        self.owner = owner
        self.version = 0
        self.creations = 0
        self.children: dict[str, None] = {}

    def stat(self) -> ZnodeStat:
        count, size = len(self.children), len(self.data or b"")
        cversion = 2 * self.creations - count
        return ZnodeStat(
            self.created, self.modified, 0, 0, self.version, cversion, 0, self.owner, size, count, self.created
        )


class _Change(NamedTuple):
    """A change of one znode that the leader has decided."""

    kind: int
    path: str
    data: bytes | None = None
    owner: int = 0


class _Tree:
    """The znodes that a server knows of."""

    def __init__(self) -> None:
        self.nodes = {"/": _Znode(b"", 0, 0)}
        self.ephemerals: dict[int, dict[str, None]] = {}

    def find(self, path: str) -> _Znode:
        node = self.nodes.get(path)
        if node is None:
            raise errors.NoNodeError
        return node

    def versioned(self, path: str, version: int) -> _Znode:
        node = self.find(path)
        if version not in (-1, node.version):
            raise errors.BadVersionError
        return node

    def apply(self, change: _Change, zxid: int) -> None:
        kind, path, data, owner = change
        if kind == CREATED:
            self.nodes[path] = _Znode(data, zxid, owner)
            parent = self.nodes[_parent(path)]
            parent.children[path.rpartition("/")[2]] = None
            parent.creations += 1
            if owner:
                self.ephemerals.setdefault(owner, {})[path] = None
        elif kind == DELETED:
            node = self.nodes.pop(path)
            del self.nodes[_parent(path)].children[path.rpartition("/")[2]]
            if node.owner:
                self.ephemerals[node.owner].pop(path)
        else:
            node = self.nodes[path]
            node.data, node.modified = data, zxid
            node.version += 1

    def undo(self, change: _Change, before: Any) -> None:
        """Take a change of an unfinished transaction back."""
        kind, path, _, owner = change
        if kind == CREATED:
            del self.nodes[path]
            parent = self.nodes[_parent(path)]
            del parent.children[path.rpartition("/")[2]]
            parent.creations -= 1
            if owner:
                self.ephemerals[owner].pop(path)
        elif kind == DELETED:
            self.nodes[path] = before
            self.nodes[_parent(path)].children[path.rpartition("/")[2]] = None
            if before.owner:
                self.ephemerals[before.owner][path] = None
        else:
            node = self.nodes[path]
            node.data, node.modified, node.version = before


class _Session:
    """A session, as the leader knows it."""

    def __init__(self, number: int, timeout_ns: int) -> None:
        self.id = number
        self.timeout_ns = timeout_ns
        self.heard = 0
        self.connection: Connection | None = None


class Connection:
    """A client's connection to one server.

    Args:
        ensemble: The ensemble.
        server: The server.
        process: The client's process; while it stands still, no heartbeat is sent.
        take: Takes what arrives at the client: a tuple whose first item tells what it is.
    """

    def __init__(self, ensemble: Ensemble, server: _Server, process: Process, take: Callable[[Any], None]) -> None:
        self.ensemble = ensemble
        self.server = server
        self.process = process
        self.take = take
        self.session: _Session | None = None
        self.is_open = True
        self.arrives = True
        self._due_there = self._due_here = 0
        self.waiting: deque[tuple[int, Any]] = deque()

    def send(self, request: Request, token: Any) -> None:
        """Send a request; the answer names its token."""
        if self.is_open:
            world = self.ensemble.world
            self._due_there = max(self._due_there, world.now + self.ensemble.latency())
            world.at(self._due_there, partial(self._arrived, request, token))

    def close_session(self) -> None:
        """Ask for the end of the session."""
        self.send(Request(), None)

    def _arrived(self, request: Request, token: Any) -> None:
        session = self.session
        if session is None or session.connection is not self or not self.arrives or not self.server.is_up:
            return
        session.heard = self.ensemble.world.now
        if type(request) is Request:
            self.ensemble.end_session(session)
            self.answer(("closed",))
            return
        if isinstance(request, (Get, Exists, Children, Many)):
            self.server.after_zxid(
                self, self.waiting[-1][0] if self.waiting else 0, partial(self._read, request, token)
            )
            return
        zxid, error, result = self.ensemble.write(request, session)
        self.server.after_zxid(self, zxid, lambda: self.answer(("answer", token, error, result, zxid)))

    def _read(self, request: Request, token: Any) -> None:
        try:
            result, error = self.server.read(request, self), None
        except errors.ZookeeperError as e:
            result, error = None, e
        self.answer(("answer", token, error, result, self.server.zxid))

    def answer(self, what: tuple[Any, ...]) -> None:
        """Send something to the client, after everything that was sent before."""
        if self.is_open:
            world = self.ensemble.world
            self._due_here = max(self._due_here, world.now + self.ensemble.latency())
            world.at(self._due_here, partial(self._came, what))

    def _came(self, what: tuple[Any, ...]) -> None:
        if self.is_open and not self.process.dead:
            self.take(what)

    def cut(self, *, arrives: bool = False, noticed_after_ns: int = 0) -> None:
        """Break the connection.

        Args:
            arrives: Whether requests that are under way arrive, though no answer comes back.
            noticed_after_ns: When the client notices.
        """
        if self.is_open:
            self.is_open = False
            self.arrives = arrives
            self.server.forget(self)
            self.ensemble.world.after(noticed_after_ns, self._tell_of_loss)

    def _tell_of_loss(self) -> None:
        if not self.process.dead:
            self.take(("lost", self))


class _Server:
    """One server of the ensemble."""

    def __init__(self, ensemble: Ensemble, lag_ns: int) -> None:
        self.ensemble = ensemble
        self.tree = _Tree()
        self.lag_ns = lag_ns
        self.zxid = 0
        self.is_up = True
        self._due = 0
        self._watches: dict[tuple[bool, str], dict[Connection, None]] = {}
        self._waiting: dict[Connection, None] = {}

    def commit(self, zxid: int, changes: list[_Change]) -> None:
        """Take a transaction of the leader, and apply it some time later."""
        if not self.lag_ns:
            self._apply(zxid, changes)
            return
        world = self.ensemble.world
        self._due = max(self._due, world.now + int(world.draw() ** 4 * self.lag_ns))
        world.at(self._due, partial(self._apply, zxid, changes))

    def _apply(self, zxid: int, changes: list[_Change]) -> None:
        for change in changes:
            self.tree.apply(change, zxid)
            self._fire(change.kind, change.path)
        self.zxid = zxid
        for connection in list(self._waiting):
            self._go_on(connection)

    def _fire(self, kind: int, path: str) -> None:
        watches = self._watches
        told = watches.pop((False, path), {})
        if kind == DELETED:
            told = {**told, **(watches.pop((True, path), {}))}
        for connection in told:
            connection.answer(("event", kind, path))
        if kind != CHANGED:
            for connection in watches.pop((True, _parent(path)), {}):
                connection.answer(("event", CHILD, _parent(path)))

    def after_zxid(self, connection: Connection, zxid: int, go_on: Callable[[], None]) -> None:
        """Answer once everything that the client has asked before is answered, and this transaction is applied."""
        connection.waiting.append((zxid, go_on))
        if len(connection.waiting) == 1:
            self._waiting[connection] = None
            self._go_on(connection)

    def _go_on(self, connection: Connection) -> None:
        waiting = connection.waiting
        while waiting and waiting[0][0] <= self.zxid:
            waiting[0][1]()
            waiting.popleft()
        if not waiting:
            self._waiting.pop(connection, None)

    def read(self, request: Request, connection: Connection) -> Any:
        """Read what this server has applied."""
        if isinstance(request, Many):
            return [
                None if node is None else (node.data, node.stat())
                for node in (self.tree.nodes.get(path) for path in request.paths)
            ]
        assert isinstance(request, (Get, Exists, Children))
        node = self.tree.nodes.get(request.path)
        if request.watches and (node is not None or isinstance(request, Exists)):
            key = isinstance(request, Children), request.path
            self._watches.setdefault(key, {})[connection] = None
        if node is None:
            raise errors.NoNodeError
        if isinstance(request, Exists):
            return node.stat()
        return list(node.children) if isinstance(request, Children) else (node.data, node.stat())

    def forget(self, connection: Connection) -> None:
        """Drop the watches of a connection."""
        self._waiting.pop(connection, None)
        connection.waiting.clear()
        for key in [key for key, found in self._watches.items() if connection in found]:
            del self._watches[key][connection]
            if not self._watches[key]:
                del self._watches[key]


class Ensemble:
    """Servers that agree.

    Args:
        world: Their time and draws.
        servers: How many there are.
        lag_ns: How much later than the leader a server applies a write, at most; the first is never late.

    Attributes:
        tree: The znodes, as the leader knows them.
        is_away: Whether no server can be reached.
        latency_ns: The shortest and the longest time that a message takes.
    """

    def __init__(self, world: World, servers: int = 1, lag_ns: int = 0) -> None:
        self.world = world
        self.servers = [_Server(self, lag_ns if i else 0) for i in range(servers)]
        self.tree = _Tree()
        self.zxid = 0
        self.is_away = False
        self.latency_ns = (20_000, 2_000_000)
        self.sessions: dict[int, _Session] = {}
        self.connections: dict[Connection, None] = {}
        self._next_session = 0x1000

    def latency(self) -> int:
        """Draw how long a message takes."""
        low, high = self.latency_ns
        return low + int(self.world.draw() ** 3 * (high - low))

    # ---- sessions

    def connect(
        self, process: Process, session_id: int, timeout_ns: int, seen: int, take: Callable[[Any], None]
    ) -> Connection:
        """Connect a client to some server; it gets ("connected", session id), ("expired",) or ("refused",).

        Args:
            process: The client's process.
            session_id: The session to go on with, 0 for a new one.
            timeout_ns: Its timeout.
            seen: The latest transaction that the client knows of: a server that does not know it refuses the client.
            take: Takes what arrives.
        """
        connection = Connection(self, self.servers[int(self.world.draw() * len(self.servers))], process, take)
        self.world.after(2 * self.latency(), partial(self._connect, connection, session_id, timeout_ns, seen))
        return connection

    def _connect(self, connection: Connection, session_id: int, timeout_ns: int, seen: int) -> None:
        if self.is_away or not connection.server.is_up or connection.server.zxid < seen:
            connection.answer(("refused",))
            return
        if session_id:
            session = self.sessions.get(session_id)
            if session is None:
                connection.answer(("expired",))
                return
            if session.connection is not None:
                session.connection.cut()
        else:
            self._next_session += 1
            self.zxid += 1
            session = self.sessions[self._next_session] = _Session(self._next_session, timeout_ns)
            for server in self.servers:
                server.commit(self.zxid, [])
            self.world.after(timeout_ns, partial(self._look_at, session))
        session.heard = self.world.now
        session.connection = connection
        connection.session = session
        self.connections = {known: None for known in self.connections if known.is_open}
        self.connections[connection] = None
        self.world.after(session.timeout_ns // 3, partial(self._heartbeat, connection))
        connection.answer(("connected", session.id))

    def _heartbeat(self, connection: Connection) -> None:
        session = connection.session
        if session is None or not connection.is_open or session.id not in self.sessions or connection.process.dead:
            return
        if not connection.process.paused:
            session.heard = self.world.now
        self.world.after(session.timeout_ns // 3, partial(self._heartbeat, connection))

    def _look_at(self, session: _Session) -> None:
        if session.id not in self.sessions:
            return
        due = session.heard + session.timeout_ns
        if self.is_away:
            due = max(due, self.world.now + session.timeout_ns // 3)  # no server, no expiry
        if due <= self.world.now:
            self.world.note(f"ZooKeeper session 0x{session.id:x} expires")
            self.end_session(session)
            if session.connection is not None:
                session.connection.cut()
        else:
            self.world.at(due, partial(self._look_at, session))

    def end_session(self, session: _Session) -> None:
        """End a session, and delete its ephemeral znodes."""
        if self.sessions.pop(session.id, None) is None:
            return
        paths = list(self.tree.ephemerals.get(session.id, ()))
        self.world.random.shuffle(paths)  # in no order that a client could rely on
        self.zxid += 1
        changes = [_Change(DELETED, path) for path in paths]
        for change in changes:
            self.tree.apply(change, self.zxid)
        for server in self.servers:
            server.commit(self.zxid, changes)

    def expire(self, session_id: int) -> None:
        """End a session as if it had not been heard of."""
        session = self.sessions.get(session_id)
        if session is not None:
            connection = session.connection
            self.end_session(session)
            if connection is not None:
                connection.cut()

    def go_away(self) -> None:
        """Let no server be reached until ``come_back``."""
        self.is_away = True
        for connection in list(self.connections):
            connection.cut(arrives=self.world.draw() < 0.3)

    def come_back(self) -> None:
        """Let the servers be reached again; no session expires before it had its timeout to come back."""
        if self.is_away:
            self.is_away = False
            for session in self.sessions.values():
                session.heard = self.world.now

    # ---- writes

    def write(self, request: Request, session: _Session) -> tuple[int, Exception | None, Any]:
        """Decide on a write; gives its number, and its error or result."""
        self.zxid += 1
        operations = request.operations if isinstance(request, Multi) else (request,)
        done: list[tuple[_Change, Any]] = []
        results: list[Any] = []
        failed: Exception | None = None
        for operation in operations:
            try:
                change, before, result = self._decide(operation, session)
            except errors.ZookeeperError as e:
                failed = e
                break
            if change is not None:
                done.append((change, before))
            results.append(result)
        if failed is not None:
            for change, before in reversed(done):
                self.tree.undo(change, before)
            done = []
        for server in self.servers:
            server.commit(self.zxid, [change for change, _ in done])
        if not isinstance(request, Multi):
            return self.zxid, failed, None if failed else results[0]
        if failed is not None:
            at = len(results)
            rest = len(operations) - at - 1
            results = [errors.RolledBackError() for _ in range(at)]
            results += [failed, *(errors.RuntimeInconsistency() for _ in range(rest))]
        return self.zxid, None, results

    def _decide(self, operation: Any, session: _Session) -> tuple[_Change | None, Any, Any]:
        tree, zxid = self.tree, self.zxid
        path = operation.path
        if isinstance(operation, Create):
            parent = tree.find(_parent(path))
            if operation.flags & 2:
                path = f"{path}{parent.creations:010d}"
            if path in tree.nodes:
                raise errors.NodeExistsError
            if parent.owner:
                raise errors.NoChildrenForEphemeralsError
            change = _Change(CREATED, path, operation.data, session.id if operation.flags & 1 else 0)
            tree.apply(change, zxid)
            return change, None, path
        node = tree.versioned(path, operation.version)
        if isinstance(operation, Check):
            return None, None, True
        if isinstance(operation, Delete):
            if node.children:
                raise errors.NotEmptyError
            change = _Change(DELETED, path)
            tree.apply(change, zxid)
            return change, node, True
        before = node.data, node.modified, node.version
        change = _Change(CHANGED, path, operation.data)
        tree.apply(change, zxid)
        return change, before, node.stat()

    def walk(self, path: str = "/") -> Iterator[tuple[str, bytes]]:
        """All znodes below a path, with their data, by path."""
        for found in sorted(self.tree.nodes):
            if found.startswith(path):
                yield found, self.tree.nodes[found].data or b""
