"""A scenario for demonstrations on a real ZooKeeper: elected controllers lead a fleet through an ordinary day."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from channel.broker.fleet import Fleet
from channel.config import ChannelConfig
from channel.errors import RequestTimeout
from channel.node.controller_node import ControllerNode
from channel.types import ReplicaAssignment
from channel.zookeeper import znodes
from channel.zookeeper.session import ZooKeeperSession
from kproto.types import TopicPartition

from .journal import JournaledChannels
from .scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel.types import LeaderAndIsr

_FIRST_CONTROLLER: Final = 1000
_SECOND_CONTROLLER: Final = 1001
_SESSION_MS: Final = 2_000
_LAG_MS: Final = 500
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.02


class ZooKeeperScenario(Scenario):
    """The day of a fleet in ZooKeeper and of two controllers, of which the second takes over.

    The controllers decide by themselves: the scenario changes znodes and brokers, and waits for the effects.

    Args:
        zookeeper: ``HOST:PORT``, several with commas between them, and ``/PATH`` at the end for a chroot. The scenario
            creates a chroot of its own there, and deletes it at its end.
        brokers, options: See ``Scenario``.
    """

    _fleet: Fleet
    _admin: ZooKeeperSession

    def __init__(self, zookeeper: str, brokers: int = 3, **options: Any) -> None:
        super().__init__(brokers, **options)
        self._chroot = f"/kproto-demo-{time.time_ns():x}"
        self._server = zookeeper

    def run(self) -> None:
        """Run the scenario from the start of the brokers to their end.

        Raises:
            Disconnected: No ZooKeeper answers.
            RequestTimeout: A step has not had its effect after a minute; the text names the step.
        """
        with ZooKeeperSession(self._server) as session:
            session.ensure(self._chroot)
            try:
                self._run(self._server + self._chroot)
            finally:
                session.delete_tree(self._chroot)

    def _run(self, zookeeper: str) -> None:
        config = ChannelConfig(zookeeper_session_timeout_ms=_SESSION_MS, auto_leader_rebalance_enable=False)

        def controller(broker_id: int) -> ControllerNode:
            return ControllerNode(
                broker_id,
                zookeeper,
                config=config,
                recorder=self._recorder,
                make_channels=partial(JournaledChannels, self.journal),
            )

        fleet = Fleet(zookeeper, range(self._brokers), session_timeout_ms=_SESSION_MS, replica_lag_time_max_ms=_LAG_MS)
        with ZooKeeperSession(zookeeper) as self._admin, fleet as self._fleet:
            self._on_step(f"{self._brokers} brokers register in ZooKeeper at {self._server}")
            with controller(_FIRST_CONTROLLER) as first:
                self._elected(first)
                self._ordinary_day()
                second = controller(_SECOND_CONTROLLER)
                second.start()
            try:
                self._elected(second)
                self._fence(self._fleet[self._random.randrange(self._brokers)], _FIRST_CONTROLLER, 1)
                self._delete_topic()
            finally:
                second.close()

    def _ordinary_day(self) -> None:
        chance = self._random
        for _ in range(chance.randint(3, 6)):
            self._create_topic(chance.randint(1, 8))
        for _ in range(chance.randint(2, 4)):
            self._move_leader()
        victim = chance.randrange(self._brokers)
        self._kill(victim)
        self._create_topic(chance.randint(1, 4))
        self._on_step(f"broker {victim} is back with epoch {self._fleet.restart(victim)}")
        self._wait("the return of the broker", lambda: all(map(self._is_whole, self._partitions())))
        self._move(*self._reassignment(self._live()))

    # ---- steps

    def _elected(self, node: ControllerNode) -> None:
        self._wait("the election", lambda: node.controller.is_active)
        self._on_step(f"controller {node.controller.controller_id} leads in epoch {node.controller.epoch}")
        self._wait(
            "the first UpdateMetadata",
            lambda: all(
                (known := member.broker.metadata.snapshot.controller) is not None
                and known.id == node.controller.controller_id
                for member in self._fleet
            ),
        )

    def _create_topic(self, partitions: int) -> None:
        least = 1 if self._topics else 2  # so that there is a leader to move
        name, replicas = self._new_topic(partitions, self._live(), least)
        assignment = {p: ReplicaAssignment(tuple(each)) for p, each in enumerate(replicas)}
        self._admin.create(znodes.topic_path(name), znodes.encode_topic(assignment, None))
        self._wait("the topic", lambda: all(self._is_known(TopicPartition(name, p)) for p in assignment))

    def _move_leader(self) -> None:
        """Move the leader: put another replica first in the assignment, and request a preferred leader election."""
        tp = self._random.choice([tp for tp in self._partitions() if len(self._state(tp).isr) > 1])
        state = self._state(tp)
        leader = self._random.choice([b for b in state.isr if b != state.leader])
        self._on_step(f"{tp}: leader {state.leader} -> {leader}")
        self._move(tp, (leader, *(b for b in self._replicas(tp) if b != leader)))
        self._admin.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions([tp]))
        self._wait("the election", lambda: self._state(tp).leader == leader and self._is_known(tp))
        self._wait("its end", lambda: self._admin.exists(znodes.PREFERRED_ELECTION) is None)

    def _kill(self, broker_id: int) -> None:
        self._on_step(f"broker {broker_id} is killed; its session ends {_SESSION_MS / 1000:g} s later")
        self._fleet.kill(broker_id)
        live = {*self._live(), _FIRST_CONTROLLER}
        self._wait(
            "the end of the broker",
            lambda: all(set(m.broker.metadata.snapshot.alive_brokers) == live for m in self._fleet if m.is_up),
        )
        self._wait("new leaders", lambda: all(self._state(tp).leader != broker_id for tp in self._partitions()))

    def _delete_topic(self) -> None:
        topic = self._topic_to_delete()
        self._admin.create(f"{znodes.ADMIN_DELETE_TOPICS}/{topic}")
        self._wait("the deletion", lambda: self._admin.exists(znodes.topic_path(topic)) is None)

    # ---- the cluster

    def _live(self) -> list[int]:
        return [member.id for member in self._fleet if member.is_up]

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, p) for topic, count in self._topics.items() for p in range(count)]

    def _replicas(self, tp: TopicPartition) -> tuple[int, ...]:
        data, _ = self._admin.get(znodes.topic_path(tp.topic))
        return znodes.decode_topic(tp.topic, data).partitions[tp.partition].replicas

    def _state(self, tp: TopicPartition) -> LeaderAndIsr:
        data, stat = self._admin.get(znodes.partition_state_path(tp))
        return znodes.decode_partition_state(tp, data, stat.version).leader_and_isr

    def _is_known(self, tp: TopicPartition) -> bool:
        """Whether every broker that is up knows the partition's present leader."""
        known = [m.broker.metadata.partition_info(*tp) for m in self._fleet if m.is_up]
        if None in known:
            return False
        leader = self._state(tp).leader
        return all(each is not None and each.leader == leader for each in known)

    def _is_whole(self, tp: TopicPartition) -> bool:
        return set(self._state(tp).isr) == set(self._replicas(tp))

    def _move(self, tp: TopicPartition, replicas: Sequence[int]) -> None:
        self._admin.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({tp: replicas}))
        self._wait("the reassignment", lambda: self._admin.exists(znodes.REASSIGN_PARTITIONS) is None)

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, and the controllers' requests are answered."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            if time.monotonic() >= deadline:
                raise RequestTimeout(f"the scenario waited {_PATIENCE_S:g} s for {what} in vain")
            time.sleep(_LOOK_S)
        self.journal.wait(timeout_s=_PATIENCE_S)
