"""Scenarios for demonstrations: a small cluster through an ordinary day, decided by a seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from channel.broker.cluster import EmbeddedCluster
from kproto.types import TopicPartition

from .journal import Journal
from .scripted_controller import ScriptedController

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel.network.recorder import Recorder

    from .scripted_controller import BrokerAddress

_CONTROLLER: Final = 100
_DEPOSED_CONTROLLER: Final = 99
_EPOCH: Final = 2


class Scenario:
    """A day of a small cluster: topics come and go, leaders move, a broker restarts, a deposed controller is fenced.

    Args:
        seed: Decides the numbers of topics and partitions, the replicas, and the brokers and partitions that change.
        recorder: Sees every frame of the controllers.
        on_step: Called with a description of each step before it is taken.

    Attributes:
        journal: Every request of the controllers, with its response.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        seed: int = 0,
        recorder: Recorder | None = None,
        on_step: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.journal = Journal()
        self._brokers = brokers
        self._random = random.Random(seed)  # noqa: S311 - a scenario, no secret
        self._recorder = recorder
        self._on_step = on_step
        self._topics: dict[str, int] = {}

    def run(self) -> None:
        """Run the scenario from the start of the brokers to their end."""
        raise NotImplementedError

    def _new_topic(self, partitions: int, live: Sequence[int], least: int = 1) -> tuple[str, list[list[int]]]:
        """Choose name and replicas of a topic whose partitions have at least so many replicas."""
        name = f"topic-{len(self._topics)}"
        self._topics[name] = partitions
        self._on_step(f"{name} is created with {partitions} partition{'s' if partitions > 1 else ''}")
        return name, [self._random.sample(live, self._random.randint(least, len(live))) for _ in range(partitions)]

    def _any_partition(self) -> TopicPartition:
        topic = self._random.choice(list(self._topics))
        return TopicPartition(topic, self._random.randrange(self._topics[topic]))

    def _reassignment(self, live: Sequence[int]) -> tuple[TopicPartition, list[int]]:
        tp = self._any_partition()
        replicas = self._random.sample(live, self._random.randint(1, len(live)))
        self._on_step(f"{tp} is reassigned to brokers {', '.join(map(str, replicas))}")
        return tp, replicas

    def _topic_to_delete(self) -> str:
        topic = self._random.choice(list(self._topics))
        self._on_step(f"{topic} is deleted")
        return topic

    def _fence(self, broker: BrokerAddress, controller_id: int, controller_epoch: int) -> None:
        """Send requests of a deposed controller to a broker."""
        self._on_step(f"a deposed controller sends to broker {broker.id}, and is fenced")
        with self._controller_of([broker], controller_id, controller_epoch) as deposed:
            deposed.wait_all(allow_refused=True)

    def _controller_of(
        self, brokers: Sequence[BrokerAddress], controller_id: int, controller_epoch: int
    ) -> ScriptedController:
        return ScriptedController(
            brokers,
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            recorder=self._recorder,
            journal=self.journal,
        )


class EmbeddedScenario(Scenario):
    """The day of embedded brokers and of a controller that the scenario directs.

    Args:
        brokers, seed, recorder, on_step: See ``Scenario``.

    Attributes:
        cluster: The brokers; they end with ``run``.
    """

    cluster: EmbeddedCluster
    _controller: ScriptedController

    def run(self) -> None:
        """Run the scenario from the start of the brokers to their end."""
        chance = self._random
        with EmbeddedCluster(self._brokers) as self.cluster:
            self._on_step(f"{self._brokers} brokers register")
            with self._controller_of(list(self.cluster), _CONTROLLER, _EPOCH) as self._controller:
                for _ in range(chance.randint(3, 6)):
                    self._create_topic(chance.randint(1, 8))
                for _ in range(chance.randint(3, 8)):
                    self._move_leader()
                victim = chance.randrange(self._brokers)
                self._kill(victim)
                self._create_topic(chance.randint(1, 4))
                self._on_step(f"broker {victim} is back with epoch {self.cluster.restart(victim)}")
                self._controller.register(self.cluster[victim])
                self._controller.wait_all()
                for _ in range(chance.randint(1, 4)):
                    self._move_leader()
                tp, replicas = self._reassignment(self._live())
                self._controller.reassign(*tp, replicas)
                self._controller.wait_all()
                self._fence(self.cluster[chance.randrange(self._brokers)], _DEPOSED_CONTROLLER, _EPOCH - 1)
                self._controller.delete_topic(self._topic_to_delete())
                self._controller.wait_all()

    def _live(self) -> list[int]:
        return sorted(self._controller.context.live_broker_ids)

    def _create_topic(self, partitions: int) -> None:
        name, assignment = self._new_topic(partitions, self._live())
        self._controller.create_topic(name, assignment=assignment, topic_id=self._random.randbytes(16))
        self._controller.wait_all()

    def _move_leader(self) -> None:
        tp = self._any_partition()
        state = self._controller.leadership(*tp)
        others = [b for b in state.isr if b != state.leader and b in self._live()]
        leader = self._random.choice(others) if others else state.leader
        change = f"leader {state.leader} -> {leader}" if others else f"leader {leader} stays, in a new epoch"
        self._on_step(f"{tp}: {change}")
        self._controller.elect(*tp, leader=leader if leader >= 0 else None)
        self._controller.wait_all()

    def _kill(self, broker_id: int) -> None:
        """Kill a broker; the controller sends it one more request, which fails, before it notices."""
        self._on_step(f"broker {broker_id} is killed")
        self.cluster.kill(broker_id)
        self._controller.announce()
        self.journal.wait(most_waiting=1)
        self._controller.mark_dead(broker_id)
        self._controller.wait_all()
