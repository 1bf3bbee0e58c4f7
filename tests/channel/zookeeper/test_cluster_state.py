"""What a broker writes into ZooKeeper, beside the tests against a real one."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from channel.errors import NoNode, NotEmpty
from channel.zookeeper.cluster_state import register_broker, write_settings


def test_the_first_broker_of_a_cluster_makes_the_place_of_all() -> None:
    ensured: list[str] = []
    registered = SimpleNamespace(error=None, results=[None, SimpleNamespace(czxid=77)])
    outcomes = [SimpleNamespace(error=NoNode("/brokers/ids/5"), results=[]), registered]
    session = SimpleNamespace(transaction=lambda operations: outcomes.pop(0), ensure=ensured.append)
    assert register_broker(cast("Any", session), 5, b"{}") == 77
    assert ensured == ["/brokers/ids"]
    assert outcomes == []


@pytest.mark.parametrize(
    ("entity", "settings", "failure", "calls"),
    [
        ("users/alice", {}, None, ["delete"]),
        ("users/alice", {}, NoNode, ["delete"]),
        ("users/alice", {}, NotEmpty, ["delete", "set", "ensure", "set"]),  # clients of the user have settings
        ("users/alice", {"a": "1"}, None, ["set", "ensure", "set"]),
        ("topics/orders", {}, None, ["set", "ensure", "set"]),
    ],
)
def test_settings_of_a_user_go_with_their_znode_unless_clients_have_some(
    entity: str, settings: dict[str, str], failure: type[Exception] | None, calls: list[str]
) -> None:
    """Whatever becomes of them, the brokers are told of the change."""
    done: list[tuple[str, str]] = []

    def delete(path: str) -> None:
        done.append(("delete", path))
        if failure is not None:
            raise failure(path)

    def put(path: str, _: bytes) -> None:
        done.append(("set", path))
        if ("ensure", path) not in done:
            raise NoNode(path)

    session = SimpleNamespace(
        delete=delete,
        ensure=lambda path: done.append(("ensure", path)),
        set=put,
        create=lambda path, data, sequence: done.append((f"told, in turn: {sequence}", path)),
    )
    write_settings(cast("Any", session), entity, settings)
    changes = ("told, in turn: True", "/config/changes/config_change_")
    assert done == [*((call, f"/config/{entity}") for call in calls), changes]
