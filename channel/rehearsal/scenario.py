"""A scenario for demonstrations: a small cluster through an ordinary day, decided by a seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from channel.broker.cluster import EmbeddedCluster
from kproto.types import TopicPartition

from .journal import Journal
from .scripted_controller import ScriptedController

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.network.recorder import Recorder

_CONTROLLER: Final = 100
_DEPOSED_CONTROLLER: Final = 99
_EPOCH: Final = 2


class Scenario:
    """A day of a small cluster: topics come and go, leaders move, a broker restarts, a deposed controller is fenced.

    Args:
        brokers: The number of embedded brokers.
        seed: Decides the numbers of topics and partitions, the replicas, and the brokers and partitions that change.
        recorder: Sees every frame of the controllers.
        on_step: Called with a description of each step before it is taken.

    Attributes:
        cluster: The brokers; they end with ``run``.
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
        self.cluster = EmbeddedCluster(brokers)
        self.journal = Journal()
        self._random = random.Random(seed)  # noqa: S311 - a scenario, no secret
        self._recorder = recorder
        self._on_step = on_step
        self._topics: dict[str, int] = {}

    def run(self) -> None:
        """Run the scenario from the start of the brokers to their end."""
        chance = self._random
        with self.cluster:
            self._on_step(f"{len(self.cluster.members)} brokers register")
            controller = ScriptedController(
                self.cluster,
                controller_id=_CONTROLLER,
                controller_epoch=_EPOCH,
                recorder=self._recorder,
                journal=self.journal,
            )
            with controller:
                for _ in range(chance.randint(3, 6)):
                    self._create_topic(controller, chance.randint(1, 8))
                for _ in range(chance.randint(3, 8)):
                    self._move_leader(controller)
                victim = chance.choice(list(self.cluster)).id
                self._kill(controller, victim)
                self._create_topic(controller, chance.randint(1, 4))
                self._on_step(f"broker {victim} is back with epoch {self.cluster.restart(victim)}")
                controller.register(self.cluster[victim])
                controller.wait_all()
                for _ in range(chance.randint(1, 4)):
                    self._move_leader(controller)
                self._reassign(controller)
                self._fence_deposed_controller(chance.choice(list(self.cluster)).id)
                topic = chance.choice(list(self._topics))
                self._on_step(f"{topic} is deleted")
                controller.delete_topic(topic)
                controller.wait_all()

    def _create_topic(self, controller: ScriptedController, partitions: int) -> None:
        name = f"topic-{len(self._topics)}"
        self._topics[name] = partitions
        self._on_step(f"{name} is created with {partitions} partitions")
        live = sorted(controller.context.live_broker_ids)
        assignment = [self._random.sample(live, self._random.randint(1, len(live))) for _ in range(partitions)]
        controller.create_topic(name, assignment=assignment, topic_id=self._random.randbytes(16))
        controller.wait_all()

    def _partition(self) -> TopicPartition:
        topic = self._random.choice(list(self._topics))
        return TopicPartition(topic, self._random.randrange(self._topics[topic]))

    def _move_leader(self, controller: ScriptedController) -> None:
        tp = self._partition()
        state = controller.leadership(*tp)
        others = [b for b in state.isr if b != state.leader and controller.context.is_live_broker(b)]
        leader = self._random.choice(others) if others else state.leader
        change = f"leader {state.leader} -> {leader}" if others else f"leader {leader} stays, in a new epoch"
        self._on_step(f"{tp}: {change}")
        controller.elect(*tp, leader=leader if leader >= 0 else None)
        controller.wait_all()

    def _kill(self, controller: ScriptedController, broker_id: int) -> None:
        """Kill a broker; the controller sends it one more request, which fails, before it notices."""
        self._on_step(f"broker {broker_id} is killed")
        self.cluster.kill(broker_id)
        controller.announce()
        self.journal.wait(most_waiting=1)
        controller.fail_over(broker_id)
        controller.wait_all()

    def _reassign(self, controller: ScriptedController) -> None:
        tp = self._partition()
        live = sorted(controller.context.live_broker_ids)
        replicas = self._random.sample(live, self._random.randint(1, len(live)))
        self._on_step(f"{tp} is reassigned to brokers {', '.join(map(str, replicas))}")
        controller.reassign(*tp, replicas)
        controller.wait_all()

    def _fence_deposed_controller(self, broker_id: int) -> None:
        self._on_step(f"a deposed controller sends to broker {broker_id}, and is fenced")
        deposed = ScriptedController(
            [self.cluster[broker_id]],
            controller_id=_DEPOSED_CONTROLLER,
            controller_epoch=_EPOCH - 1,
            recorder=self._recorder,
            journal=self.journal,
        )
        with deposed:
            deposed.wait_all()
