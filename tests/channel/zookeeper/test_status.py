"""What ``kproto controller --status`` tells of the controller's registration."""

import json
from typing import Any

import pytest

from channel.errors import NoNode
from channel.zookeeper import znodes
from channel.zookeeper.cluster_state import controller_status
from kproto.errors import ConfigurationError


class Session:
    """A ZooKeeper that holds the controller's znode alone."""

    def __init__(self, contents: bytes) -> None:
        self._contents = contents

    def get_many(self, paths: list[str]) -> list[Any]:
        return [(self._contents, None) if path == znodes.CONTROLLER else None for path in paths]

    def children(self, _path: str) -> list[str]:
        return []


def test_a_zookeeper_without_a_cluster_is_an_error_that_names_the_path() -> None:
    class Empty(Session):
        hosts = "zk:2181/kafak"

        def get_many(self, paths: list[str]) -> list[Any]:
            return [None] * len(paths)

        def children(self, path: str) -> list[str]:
            raise NoNode(f"ZooKeeper has no {path}")

    with pytest.raises(
        ConfigurationError, match=r"no cluster of Kafka is at zk:2181/kafak: .* path is missing or wrong"
    ):
        controller_status(Empty(b"{}"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("kraft_epoch", "kraft"), [(-1, False), (0, True), (7, True)])
def test_a_kraft_controller_is_known_by_its_epoch_from_0_on(kraft_epoch: int, kraft: bool) -> None:
    registered = {"version": 2, "brokerid": 3, "timestamp": "1795242957700", "kraftControllerEpoch": kraft_epoch}
    found = controller_status(Session(json.dumps(registered).encode()))  # type: ignore[arg-type]
    assert (found["controller"], found["kraft"], found["since"]) == (3, kraft, "2026-11-21T06:35:57.700Z")
