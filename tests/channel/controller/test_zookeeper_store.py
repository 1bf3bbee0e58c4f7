"""What the controller's store keeps of ZooKeeper's answers; ``tests/kafka`` has a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from channel.controller.zookeeper_store import ZooKeeperStore
from channel.types import LeaderAndIsr
from channel.zookeeper import znodes
from channel.zookeeper.operations import Stat
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from channel.zookeeper.session import ZooKeeperSession


class Contents(bytes):
    """A znode's contents, counted while they are in memory."""

    alive: ClassVar[int] = 0
    most: ClassVar[int] = 0

    def __init__(self, _: bytes) -> None:
        Contents.alive += 1
        Contents.most = max(Contents.most, Contents.alive)

    def __del__(self) -> None:
        Contents.alive -= 1


class Session:
    """A session in which every second partition's state is the same."""

    def get_unwatched(self, paths: Iterable[str]) -> Iterator[tuple[bytes, Stat]]:
        for i, _ in enumerate(paths):
            state = LeaderAndIsr(1, (1, 2), i * (i % 2))
            yield Contents(znodes.encode_partition_state(state, 1)), Stat(1, 0, 0)


def test_a_read_of_many_states_keeps_the_states_and_not_their_contents() -> None:
    store = ZooKeeperStore(cast("ZooKeeperSession", cast("Any", Session())), lambda event: None)
    partitions = [TopicPartition("t", i) for i in range(5_000)]
    states = store.read_partition_states(partitions)
    assert [states[tp].leader_and_isr.leader_epoch for tp in partitions] == [i * (i % 2) for i in range(5_000)]
    assert states[partitions[0]] is states[partitions[2]]
    assert Contents.most < 1_100
