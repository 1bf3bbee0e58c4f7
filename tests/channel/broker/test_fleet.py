"""The end of a fleet."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from channel.broker.cluster import EmbeddedCluster
from channel.broker.fleet import Fleet
from channel.broker.links import BrokerLinks
from channel.errors import IllegalState, RequestTimeout
from channel.types import Node
from channel.zookeeper.session import ZooKeeperSession
from kproto.messages import BrokerRegistrationResponse


class _Links:
    """A broker's links whose ZooKeeper is away: a request waits until the session is closed."""

    leads_cluster = False

    def __init__(self) -> None:
        self.closed = threading.Event()

    def leave(self, timeout_s: float) -> None:
        """No observer is called."""

    def close(self, timeout_s: float) -> None:
        self.closed.set()


def test_a_task_that_waits_for_zookeeper_does_not_keep_the_sessions_open() -> None:
    fleet, links = Fleet("127.0.0.1:1", [1]), _Links()
    fleet._links[1] = cast("Any", links)
    waiting, ended = threading.Event(), threading.Event()

    def write_isr() -> None:
        waiting.set()
        if links.closed.wait(60):
            ended.set()

    fleet._submit(write_isr)
    assert waiting.wait(60)
    fleet.close()
    assert ended.wait(60)


def test_a_part_that_cannot_be_closed_keeps_no_session_open_and_is_tried_again() -> None:
    class Stubborn(_Links):
        fails = True

        def leave(self, timeout_s: float) -> None:
            if self.fails:
                raise OSError("not now")

    fleet, links = Fleet("127.0.0.1:1", [1, 2, 3]), [Stubborn(), _Links(), _Links()]
    fleet._links.update(enumerate(cast("Any", links), 1))
    try:
        with pytest.raises(OSError, match="not now"):
            fleet.close()
        assert all(each.closed.is_set() for each in links)
    finally:
        for each in links:
            each.closed.clear()
        Stubborn.fails = False
        fleet.close()
    assert all(each.closed.is_set() for each in links)
    fleet.close()


def test_brokers_whose_zookeeper_is_away_end_side_by_side() -> None:
    """Each ends once all have begun to: their time limits do not add up."""
    order: list[str] = []

    class Waiting(_Links):
        def __init__(self, met: threading.Barrier, *, leads_cluster: bool) -> None:
            super().__init__()
            self.met, self.leads_cluster = met, leads_cluster  # type: ignore[misc]

        def leave(self, timeout_s: float) -> None:
            self.met.wait(60)
            order.append("controller" if self.leads_cluster else "other")

        def close(self, timeout_s: float) -> None:
            self.met.wait(60)
            super().close(timeout_s)

    fleet, others, alone = Fleet("127.0.0.1:1", range(1, 6)), threading.Barrier(4), threading.Barrier(1)
    links = {i: Waiting(alone if i == 3 else others, leads_cluster=i == 3) for i in range(1, 6)}
    fleet._links.update(cast("Any", links))
    fleet.close()
    assert all(each.closed.is_set() for each in links.values())
    assert order == ["other"] * 4 + ["controller"]


def test_no_broker_is_restarted_once_the_fleet_is_closed() -> None:
    fleet = Fleet("127.0.0.1:1", [1])
    fleet.close()
    with pytest.raises(IllegalState, match="broker 1 cannot be restarted: its fleet is closed"):
        fleet.restart(1)


def test_the_kraft_epoch_of_a_broker_is_that_of_the_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [None, BrokerRegistrationResponse(broker_epoch=17)]

    def register(links: BrokerLinks) -> int:
        assert links.kraft is not None
        answer = answers.pop()
        if answer is not None:
            links.kraft._registered(answer)
        return 500

    monkeypatch.setattr(BrokerLinks, "register", register)
    fleet = Fleet("127.0.0.1:1", [1, 2], quorum=[Node(9, "127.0.0.1", 1)])
    try:
        EmbeddedCluster.start(fleet)
        assert [(member.epoch, member.broker.kraft_epoch) for member in fleet] == [(500, 17), (500, -1)]
    finally:
        fleet.close()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Fleet, list[list[int]]]]:
    """A fleet of three brokers, of which broker 2 leads the cluster, and the groups that ask their controller."""
    asked: list[list[int]] = []

    def shut_down(asking: dict[int, Any], leave: object, timeout_s: float) -> dict[int, str]:
        asked.append(sorted(asking))
        return {}

    monkeypatch.setattr(BrokerLinks, "register", lambda links: 500)
    monkeypatch.setattr(BrokerLinks, "ask_to_leave", lambda links: None)
    monkeypatch.setattr(BrokerLinks, "leads_cluster", property(lambda links: links._broker.id == 2))
    monkeypatch.setattr("channel.broker.fleet.controlled_shutdown", shut_down)
    fleet = Fleet("127.0.0.1:1", [1, 2, 3])
    try:
        EmbeddedCluster.start(fleet)
        yield fleet, asked
    finally:
        fleet.close()


def zookeeper_answers(monkeypatch: pytest.MonkeyPatch, *answers: object) -> list[object]:
    """Have ZooKeeper answer each question for the controller in turn; returns the answers that are left."""
    left = [*answers]

    def get_many(session: ZooKeeperSession, paths: list[str], timeout_s: float) -> list[object]:
        assert paths == ["/controller"]
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [answer]

    monkeypatch.setattr(ZooKeeperSession, "get_many", get_many)
    return left


def test_the_broker_that_leads_the_cluster_is_shut_down_after_the_others(
    registered: tuple[Fleet, list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, asked = registered
    left = zookeeper_answers(monkeypatch, "broker 2", None, "broker 2, elected again")
    assert fleet.shut_down() == {}
    assert (asked, left) == ([[1, 3], [2]], [])


def test_brokers_that_have_no_controller_leave_without_waiting_for_one(
    registered: tuple[Fleet, list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, asked = registered
    left = zookeeper_answers(monkeypatch, None, None)
    assert fleet.shut_down(1, 3) == {1: "there is no controller", 3: "there is no controller"}
    assert ([member.is_up for member in fleet], asked, left) == ([False, True, False], [], [])


def test_brokers_that_may_leave_one_after_the_other_end_side_by_side(
    registered: tuple[Fleet, list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, _ = registered
    zookeeper_answers(monkeypatch, "broker 2")
    both, ended = threading.Barrier(2), []

    def consent(asking: dict[int, Any], leave: Callable[[int], None], timeout_s: float) -> dict[int, str]:
        for broker_id in asking:
            leave(broker_id)
        return {}

    def close(links: BrokerLinks, timeout_s: float | None = None) -> None:
        both.wait(60)
        links.session.close(0)
        ended.append(links._broker.id)

    with monkeypatch.context() as patched:
        patched.setattr("channel.broker.fleet.controlled_shutdown", consent)
        patched.setattr(BrokerLinks, "close", close)
        assert fleet.shut_down(1, 3) == {}
    assert sorted(ended) == [1, 3]
    assert [member.is_up for member in fleet] == [False, True, False]


def test_brokers_whose_zookeeper_is_away_ask_their_controller(
    registered: tuple[Fleet, list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, asked = registered
    zookeeper_answers(monkeypatch, RequestTimeout("ZooKeeper is away"))
    assert fleet.shut_down(1, 3) == {}
    assert asked == [[1, 3]]


def test_a_broker_whose_session_cannot_end_is_not_waited_for(
    registered: tuple[Fleet, list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, _ = registered
    zookeeper_answers(monkeypatch, None, None)
    limits: list[float | None] = []
    both = threading.Barrier(2)

    def close(links: BrokerLinks, timeout_s: float | None = None) -> None:
        both.wait(60)  # side by side: no broker's time is added to another's
        limits.append(timeout_s)
        links.session.close(0)

    with monkeypatch.context() as patched:
        patched.setattr(BrokerLinks, "close", close)
        assert set(fleet.shut_down(1, 3, timeout_s=60)) == {1, 3}
    assert len(limits) == 2
    assert all(limit is not None and 0 < limit <= 60 for limit in limits)
