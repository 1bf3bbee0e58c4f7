"""The simulation's model of ZooKeeper against a real ZooKeeper: each test runs over both, and expects the same."""

import contextlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from network_peers import until
from simulation.scheduler import Process, World
from simulation.substitution import installed
from simulation.threads import Primitives
from simulation.zookeeper import Ensemble
from simulation.zookeeper_client import client_class

from channel.errors import ControllerMoved, NodeExists, SessionExpired
from channel.zookeeper import cluster_state as cluster
from channel.zookeeper.session import Check, Create, Delete, SetData, ZooKeeperSession
from channel.zookeeper.znodes import CONTROLLER


class Scene(Protocol):
    """Where a story takes place."""

    hosts: str

    def client(self, **settings: Any) -> Any:
        """Make a client as kazoo's."""

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds."""

    def cut(self, client: Any) -> None:
        """Break a client's connection."""


class Real:
    """A real ZooKeeper."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts

    def client(self, **settings: Any) -> Any:
        return KazooClient(hosts=self.hosts, **settings)

    def until(self, condition: Callable[[], object]) -> None:
        until(condition)

    def cut(self, client: Any) -> None:
        client._connection._socket.shutdown(2)

    def play(self, story: Callable[[Scene], object]) -> Any:
        return story(self)


class Modelled:
    """The model, in a world of its own."""

    def __init__(self, servers: int, lag_ns: int) -> None:
        self.hosts = "127.0.0.1:2181/test"
        self.world = World(7)
        self.ensemble = Ensemble(self.world, servers, lag_ns)
        self._class = client_class(self.world, Primitives(self.world), self.ensemble)

    def client(self, **settings: Any) -> Any:
        return self._class(hosts=self.hosts, **settings)

    def until(self, condition: Callable[[], object]) -> None:
        end = self.world.now + int(60e9)
        while not condition():
            assert self.world.now < end, "what was awaited did not happen"
            self.world.sleep(0.01)

    def cut(self, client: Any) -> None:
        client._connection.cut()

    def play(self, story: Callable[[Scene], object]) -> Any:
        outcome: list[Any] = []

        def run() -> None:
            client = self._class(hosts="127.0.0.1:2181")
            client.start()
            client.create_async("/test").get()
            client.stop()
            try:
                outcome.append(story(self))
            except BaseException as e:  # raised below, on the test's own thread
                outcome.append(e)

        with installed(self.world, {id(KazooClient): self._class}):
            task = self.world.spawn("story", run, Process("client", "10.0.0.1"))
            self.world.run(lambda: task.is_over)
        assert not self.world.problems
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]


@pytest.fixture(params=["model", "model of 3", pytest.param("real", marks=[pytest.mark.kafka, pytest.mark.zookeeper])])
def scene(request: pytest.FixtureRequest) -> Iterator[Real | Modelled]:
    if request.param == "real":
        yield Real(request.getfixturevalue("zookeeper"))
    elif request.param == "model":
        yield Modelled(1, 0)
    else:
        yield Modelled(3, 50_000_000)


# ---- any operations, in the same order, have the same outcomes

PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep")


class _Writer:
    """A client that does what is drawn, and writes down what it is told."""

    def __init__(self, scene: Scene, name: str, told: list[str]) -> None:
        self.scene = scene
        self.name = name
        self.told = told
        self._functions: dict[tuple[str, str], Callable[[Any], None]] = {}
        self.begin()

    def begin(self) -> None:
        self.client = self.scene.client(timeout=30.0)
        self.client.start(30)

    def end(self) -> None:
        self.client.stop()
        self.client.close()

    def watch(self, kind: str, path: str) -> Callable[[Any], None]:
        def fired(event: Any) -> None:
            self.told.append(f"{self.name}: {kind} watch of {path}: {event.type} {event.path}")

        return self._functions.setdefault((kind, path), fired)

    def result(self, answer: Any) -> str:
        """What an answer says, without what differs from one ZooKeeper to the other."""
        try:
            return self.text(answer.get())
        except KazooException as e:
            return type(e).__name__

    def text(self, value: Any) -> str:
        if isinstance(value, Exception):
            return type(value).__name__
        if hasattr(value, "czxid"):
            is_mine = value.ephemeralOwner == self.client.client_id[0]
            owner = "mine" if is_mine else "another's" if value.ephemeralOwner else "nobody's"
            return f"version {value.version}.{value.cversion}, {owner}, {value.dataLength} B, {value.numChildren} below"
        if isinstance(value, (list, tuple)):
            texts = [self.text(each) for each in value]
            return str(sorted(texts) if isinstance(value, list) and all(isinstance(v, str) for v in value) else texts)
        return repr(value)


def _transcript(scene: Scene, seed: int) -> list[str]:
    chance = random.Random(seed)
    told: list[str] = []
    events: dict[str, list[str]] = {"one": [], "two": []}
    writers = [_Writer(scene, name, found) for name, found in events.items()]
    for number in range(250):
        writer = chance.choice(writers)
        client, path, version = writer.client, chance.choice(PATHS), chance.choice((-1, -1, 0, 1, 2))
        data = b"x" * chance.randrange(4)
        kind = chance.choice(
            ("create", "create", "create", "ephemeral", "sequence", "set", "set", "delete", "delete", "get", "exists",
             "children", "multi", "multi", "makepath", "again")
        )  # fmt: skip
        match kind:
            case "create" | "ephemeral" | "sequence":
                answer = client.create_async(path, data, ephemeral=kind == "ephemeral", sequence=kind == "sequence")
            case "makepath":
                answer = client.create_async(f"{path}/made/{number}", None, makepath=True)
            case "set":
                answer = client.set_async(path, data, version)
            case "delete":
                answer = client.delete_async(path, version)
            case "get":
                answer = client.get_async(path, watch=writer.watch("node", path))
            case "exists":
                answer = client.exists_async(path, watch=writer.watch("node", path))
            case "children":
                answer = client.get_children_async(path, watch=writer.watch("children", path))
            case "multi":
                transaction = client.transaction()
                for _ in range(chance.randrange(1, 5)):
                    each, at = chance.choice(PATHS), chance.choice((-1, 0, 1))
                    match chance.choice(("create", "set", "delete", "check")):
                        case "create":
                            transaction.create(each, data, ephemeral=at == 1, sequence=at == 0)
                        case "set":
                            transaction.set_data(each, data, at)
                        case "delete":
                            transaction.delete(each, at)
                        case "check":
                            transaction.check(each, max(0, at))
                answer = transaction.commit_async()
            case "again" if chance.random() < 0.3:
                told.append(f"{number} {writer.name} begins a new session")
                writer.end()
                writer.begin()
                answer = writer.client.exists_async("/a")
            case _:
                answer = client.exists_async(path)
        told.append(f"{number} {writer.name} {kind} {path}: {writer.result(answer)}")
        for each in writers:
            each.client.exists_async("/").get()  # what was told before this answer has arrived
    for each in writers:
        each.client.get_children_async("/", watch=each.watch("children", "/")).get()
    writers[0].client.create_async("/last").get()
    for name, found in events.items():
        scene.until(lambda name=name, found=found: any(f"{name}: children watch of /:" in text for text in found))
        told += found
    for each in writers:
        each.end()
    return told


@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.parametrize("seed", range(6))
def test_any_operations_have_the_outcomes_of_a_real_zookeeper(seed: int, zookeeper: str) -> None:
    expected = Real(zookeeper).play(partial(_transcript, seed=seed))
    found = Modelled(1, 0).play(partial(_transcript, seed=seed))
    assert found == expected
    assert sum("watch of" in line for line in found) >= 10


# ---- sessions of the product


def _session(scene: Scene, **settings: Any) -> ZooKeeperSession:
    return ZooKeeperSession(scene.hosts, **settings)


def _expire(scene: Scene, session: ZooKeeperSession) -> None:
    """Have the session ended, as a client does that takes it over and closes it."""
    thief = scene.client(client_id=session._client.client_id)
    thief.start(30)
    thief.stop()
    thief.close()


def test_an_expired_session_is_replaced_after_its_owner_has_heard_of_it(scene: Real | Modelled) -> None:
    def story(scene: Scene) -> None:
        happened: list[str] = []

        def expired() -> None:
            with pytest.raises(SessionExpired):
                session.exists("/")
            happened.append("expired")

        session = _session(scene, on_expired=expired, on_new_session=lambda: happened.append("began"))
        with session:
            first = session.id
            session.create("/mine", ephemeral=True)
            session.watch_node("/mine", lambda: happened.append("watched"))
            assert session.exists("/mine") is not None
            _expire(scene, session)
            scene.until(lambda: "began" in happened)
            assert happened == ["expired", "began"]
            assert session.previous_ids == [first]
            assert session.id != first
            assert session.exists("/mine") is None
            session.create("/mine")
            scene.until(lambda: happened[2:] == ["watched"])

    scene.play(story)


def test_watches_survive_a_lost_connection(scene: Real | Modelled) -> None:
    def story(scene: Scene) -> None:
        called: list[str] = []
        with _session(scene) as session, _session(scene) as other:
            session.create("/n")
            session.watch_node("/n", lambda: called.append("node"))
            session.watch_children("/n", lambda: called.append("children"))
            session.get("/n")
            session.children("/n")
            scene.cut(session._client)
            scene.until(lambda: sorted(called) == ["children", "node"])  # it may have changed meanwhile
            first = session.id
            assert session.get("/n")[0] == b""
            other.set("/n", b"1")
            scene.until(lambda: sorted(called) == ["children", "node", "node"])
            assert session.id == first

    scene.play(story)


def test_requests_wait_for_a_lost_connection_to_come_back(scene: Real | Modelled) -> None:
    def story(scene: Scene) -> None:
        with _session(scene) as session:
            paths = [f"/{i}" for i in range(30)]
            session.transactions([[Create(path, path.encode())] for path in paths])
            for _ in range(3):
                scene.cut(session._client)
                assert [found and found[0] for found in session.get_many(paths)] == [p.encode() for p in paths]

    scene.play(story)


@pytest.mark.conformance("ZKC-09")
def test_one_of_two_controllers_is_elected_and_fences_the_other(scene: Real | Modelled) -> None:
    def story(scene: Scene) -> None:
        with _session(scene) as one, _session(scene) as two:
            epoch = cluster.register_controller(one, 1)
            assert epoch == (1, 1)
            with pytest.raises(ControllerMoved, match="broker 1"):
                cluster.register_controller(two, 2)
            called: list[str] = []
            two.watch_node(CONTROLLER, lambda: called.append("gone"))
            assert two.exists(CONTROLLER) is not None
            _expire(scene, one)
            scene.until(lambda: called == ["gone"])
            assert cluster.register_controller(two, 2) == (2, 2)
            two.create("/old", b"1")
            scene.until(lambda: one.is_connected and one.previous_ids)
            for operation in (Create("/new"), SetData("/old", b"2"), Delete("/old")):
                with pytest.raises(ControllerMoved):
                    cluster.fenced(one, epoch.epoch_zk_version, [operation])
            with pytest.raises(ControllerMoved):
                cluster.delete_controller(one, epoch.epoch_zk_version)
            assert cluster.fenced(two, 2, [Check("/old", 0)]).error is None
            assert two.get("/old")[0] == b"1"
            assert two.exists("/new") is None

    scene.play(story)


def test_a_broker_replaces_the_registration_of_its_expired_session(scene: Real | Modelled) -> None:
    def story(scene: Scene) -> None:
        with _session(scene) as session, _session(scene) as before:
            epoch = cluster.register_broker(before, 5, b"{}")
            with pytest.raises(NodeExists):
                cluster.register_broker(session, 5, b"{}")
            session.previous_ids.append(before.id)
            assert cluster.register_broker(session, 5, b"{}") > epoch
            with contextlib.suppress(NodeExists):
                cluster.create_persistent_nodes(session)
            assert session.children("/brokers/ids") == ["5"]

    scene.play(story)


def test_a_client_reads_its_own_writes_at_once_and_those_of_others_in_order() -> None:
    modelled = Modelled(3, 500_000_000)

    def story(scene: Scene) -> None:
        with contextlib.ExitStack() as stack:
            session, *others = [stack.enter_context(_session(scene)) for _ in range(5)]
            session.create("/n", b"0")
            seen: list[list[int]] = [[] for _ in others]
            for number in range(1, 30):
                session.set("/n", str(number).encode())
                assert session.get("/n")[0] == str(number).encode()
                for other, found in zip(others, seen, strict=True):
                    node = other.get_many(["/n"])[0]
                    found.append(-1 if node is None else int(node[0]))
            assert seen == [sorted(found) for found in seen]
            assert any(found != list(range(1, 30)) for found in seen)  # a server may be late

    modelled.play(story)
