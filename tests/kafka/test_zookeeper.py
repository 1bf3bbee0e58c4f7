"""Sessions, registrations and fences against a real ZooKeeper."""

import json
import time
from collections.abc import Iterator

import pytest
from network_peers import until

from channel.broker.embedded import EmbeddedBroker
from channel.broker.links import BrokerLinks
from channel.errors import (
    BadVersion,
    ControllerMoved,
    Disconnected,
    NodeExists,
    NodeTooLarge,
    NoNode,
)
from channel.types import Broker, EndPoint
from channel.zookeeper import cluster_state as cluster
from channel.zookeeper.session import Check, Create, Delete, SetData, ZooKeeperSession
from channel.zookeeper.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    PERSISTENT,
    broker_path,
    decode_broker,
    encode_broker,
)
from kproto.errors import ConfigurationError

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]


@pytest.fixture
def session(zookeeper: str) -> Iterator[ZooKeeperSession]:
    with ZooKeeperSession(zookeeper) as made:
        yield made


@pytest.mark.conformance("ZKC-01")
def test_nodes_without_contents_hold_null_as_kafka_leaves_them(session: ZooKeeperSession) -> None:
    """Brokers below inter-broker protocol 3.0 do not start where the producer ids' node is empty instead."""
    cluster.create_persistent_nodes(session)
    cluster.create_persistent_nodes(session)
    assert [session._client.get(path)[0] for path in PERSISTENT] == [None] * len(PERSISTENT)


def test_the_controller_epoch_is_written_by_version(session: ZooKeeperSession) -> None:
    assert cluster.read_controller_epoch(session) is None
    with pytest.raises(NoNode):
        session.set(CONTROLLER_EPOCH, b"1", 0)
    session.create(CONTROLLER_EPOCH, b"0")
    with pytest.raises(NodeExists):
        session.create(CONTROLLER_EPOCH, b"0")
    assert session.set(CONTROLLER_EPOCH, b"1", 0).version == 1
    assert cluster.read_controller_epoch(session) == (1, 1)
    with pytest.raises(BadVersion):
        session.set(CONTROLLER_EPOCH, b"1", 0)


def test_the_first_controller_has_epoch_1(session: ZooKeeperSession) -> None:
    assert cluster.read_controller(session) is None
    assert cluster.register_controller(session, 5) == (1, 1)
    found = cluster.read_controller(session)
    assert found is not None
    assert (found[0].broker_id, found[1].owner) == (5, session.id)


def test_a_controller_stands_for_no_second_election_while_it_is_the_controller(session: ZooKeeperSession) -> None:
    cluster.register_controller(session, 5)
    with pytest.raises(ControllerMoved, match="broker 5"):
        cluster.register_controller(session, 5)
    assert cluster.read_controller_epoch(session) == (1, 1)


def test_a_registration_says_when_it_was_made(zookeeper: str, session: ZooKeeperSession) -> None:
    cluster.create_persistent_nodes(session)
    before_s = time.time()
    links = BrokerLinks(zookeeper, EmbeddedBroker(5), Broker(5, (EndPoint("h", 1),)), "3.9", 18_000, None)
    try:
        links.register()
        found, _ = session.get(broker_path(5))
        assert before_s - 1 <= int(json.loads(found)["timestamp"]) / 1000 <= time.time() + 1
    finally:
        links.close()


@pytest.mark.conformance("ZKC-03")
def test_a_zookeeper_controller_waits_for_a_kraft_controller_to_leave(session: ZooKeeperSession) -> None:
    session.create(CONTROLLER_EPOCH, b"1")

    def register_kraft(version: int, epoch: int) -> int:
        contents = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":42}'
        replaced = [Delete(CONTROLLER)] if session.exists(CONTROLLER) else []
        outcome = session.transaction(
            [SetData(CONTROLLER_EPOCH, b"%d" % epoch, version), *replaced, Create(CONTROLLER, contents)]
        )
        assert outcome.error is None
        return outcome.results[0].version

    assert register_kraft(0, 2) == 1
    with pytest.raises(ControllerMoved):
        cluster.register_controller(session, 1)
    session.delete(CONTROLLER)
    assert cluster.register_controller(session, 1) == (3, 2)
    assert register_kraft(2, 4) == 3
    found = cluster.read_controller(session)
    assert found is not None
    assert found[0] == (3000, 42, 1)


@pytest.mark.conformance("ZKC-06")
def test_a_broker_replaces_the_registration_of_its_expired_session(zookeeper: str, session: ZooKeeperSession) -> None:
    data = encode_broker(Broker(5, (EndPoint("h", 1),)), "3.9", 0)
    with ZooKeeperSession(zookeeper) as before:
        epoch = cluster.register_broker(before, 5, data)
        assert cluster.register_broker(before, 5, b"other") == epoch  # the same session keeps what it has
        with pytest.raises(NodeExists):
            cluster.register_broker(session, 5, data)
        session.previous_ids.append(before.id)
        assert cluster.register_broker(session, 5, data) > epoch
        found, stat = session.get(broker_path(5))
        assert decode_broker(5, found) == Broker(5, (EndPoint("h", 1),))
        assert stat.owner == session.id


@pytest.mark.conformance("ZKC-07")
def test_an_election_whose_answer_was_lost_is_won(session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = session.transaction

    def loses_the_answer(operations: list[Create | SetData]) -> object:
        assert transaction(operations).error is None
        return transaction(operations)  # as the session does once the connection is back

    monkeypatch.setattr(session, "transaction", loses_the_answer)
    assert cluster.register_controller(session, 1) == (1, 1)


@pytest.mark.conformance("ZKC-08")
def test_an_election_that_another_broker_won_is_lost(zookeeper: str, session: ZooKeeperSession) -> None:
    with ZooKeeperSession(zookeeper) as other:
        cluster.register_controller(other, 2)
        with pytest.raises(ControllerMoved, match="broker 2"):
            cluster.register_controller(session, 1)
    with ZooKeeperSession(zookeeper) as namesake:  # the same id in another process is another controller
        cluster.register_controller(namesake, 1)
        with pytest.raises(ControllerMoved):
            cluster.register_controller(session, 1)


def test_watches_are_called_once_for_each_read(session: ZooKeeperSession) -> None:
    called: list[str] = []
    session.watch_node("/n", lambda: called.append("node"))
    assert session.exists("/n") is None
    session.watch_children("/", lambda: called.append("children"))
    session.children("/")
    session.create("/n")
    until(lambda: sorted(called) == ["children", "node"])
    session.set("/n", b"1")
    session.create("/m")
    assert session.get("/n")[0] == b"1"
    session.delete("/n")
    until(lambda: sorted(called) == ["children", "node", "node"])
    session.unwatch("/n")
    session.create("/n")
    session.create("/o")
    session.get_many(["/n", "/o"])
    assert len(called) == 3


def test_a_watched_node_that_appears_while_it_is_read_is_read(
    session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists_many = session.exists_many

    def appears(paths: list[str]) -> object:
        session.create("/late", b"data")
        return exists_many(paths)

    monkeypatch.setattr(session, "exists_many", appears)
    session.watch_node("/late", lambda: None)
    session.watch_node("/never", lambda: None)
    late, never = session.get_many(["/late", "/never"])
    assert (late and late[0], never) == (b"data", None)


def test_many_reads_and_transactions_keep_their_order(session: ZooKeeperSession) -> None:
    paths = [f"/{i}" for i in range(500)]
    outcomes = session.transactions([[Create(path, path.encode())] for path in paths])
    assert [outcome.results for outcome in outcomes] == [[path] for path in paths]
    assert [found and found[0] for found in session.get_many([*paths, "/none"])] == [
        *[p.encode() for p in paths],
        None,
    ]
    outcome = session.transaction([Check("/1", 0), SetData("/1", b"x"), Create("/2")])
    assert (outcome.failed, type(outcome.error)) == (2, NodeExists)
    assert session.get("/1")[0] == b"/1"


def test_a_node_larger_than_zookeeper_takes_is_an_error(session: ZooKeeperSession) -> None:
    session.create("/before", b"1")
    with pytest.raises(NodeTooLarge, match=r"1100000 bytes; its limit is jute\.maxbuffer"):
        session.create("/large", bytes(1_100_000))
    assert session.get("/before")[0] == b"1"
    assert session.exists("/large") is None


@pytest.mark.parametrize("version", ["Zookeeper version: 3.8.4", "Zookeeper version: 3.5.9"])
def test_bulk_reads_give_what_single_reads_give(session: ZooKeeperSession, version: str) -> None:
    paths = [f"/{i}" for i in range(2_000)]
    outcomes = session.transactions([[Create(path, path.encode())] for path in paths[:-1]])
    assert [outcome.error for outcome in outcomes] == [None] * 1_999
    session._client.command = lambda _: version  # an older server is read node by node
    called: list[str] = []
    session.watch_node("/0", lambda: called.append("/0"))
    found = list(session.get_unwatched(paths))
    assert found == [*session.get_many(paths[:-1]), None]
    session.set("/0", b"changed")
    until(lambda: called == ["/0"])  # get_many has watched it, once


def test_a_bulk_read_goes_on_after_the_connection_was_lost(session: ZooKeeperSession) -> None:
    paths = [f"/{i}" for i in range(3_000)]
    session.transactions([[Create(path, path.encode()) for path in paths]])
    found = []
    for n, each in enumerate(session.get_unwatched(paths)):
        found.append(each and each[0])
        if n == 700:
            session._client._connection._socket.shutdown(2)
    assert found == [path.encode() for path in paths]


def test_no_server_is_one_line() -> None:
    with pytest.raises(Disconnected, match=r"no ZooKeeper answers at 127.0.0.1:1 .*nothing listens there"):
        ZooKeeperSession("127.0.0.1:1").start(0.2)
    with pytest.raises(Disconnected, match=r"the name nowhere\.invalid cannot be resolved"):
        ZooKeeperSession("127.0.0.1:1,nowhere.invalid:2181/kafka").start(0.2)
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        ZooKeeperSession("127.0.0.1:x")
