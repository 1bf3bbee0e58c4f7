"""Processes that ask brokers: a metadata sender with threads that wait for topics, and a channel to the controller."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

from channel.broker.service import SETTINGS_S
from channel.broker.to_controller import ControllerInformation, NodeToControllerThread
from channel.config import ChannelConfig
from channel.errors import ChannelError, IllegalState, TopicNotKnown
from channel.metadata.clients import MetadataSender
from channel.network.node_client import NodeClient
from channel.network.request import MessageRequest
from channel.types import Node
from kproto import messages
from kproto.types import TopicPartition

from .scheduler import Process
from .workshop import Workshop

if TYPE_CHECKING:
    from .scripted import ScriptedSimulation

__all__ = ["Client"]

QUESTION = messages.ControlledShutdownRequest(broker_id=0, broker_epoch=1)
MISLEADING = {"early answer", "answer before request", "unsolicited answer"}
"""Faults after which a broker may never get a request that the controller takes for answered."""
CALLERS = 2
LATE_S = 1.0
"""How much later than asked a waiting caller may be answered."""
LEARNING_S = 120.0
"""The time after the last fault within which a client knows what the brokers know: two requests that time out, and the
waits between them."""
CLOSE_S = 5.0
RETRY_MS = 45_000
"""The age at which a request to the controller is given up."""
LONGEST_REQUEST_S = 90.0
"""The longest time for a request to the controller: the time for its retries, then one that times out."""


def settings_of(broker_id: int) -> Any:
    """Ask for a broker's settings."""
    resource = messages.DescribeConfigsResource(resource_type=4, resource_name=str(broker_id))
    return messages.DescribeConfigsRequest(resources=[resource])


class Client:
    """A client's process, whose threads wait for topics and ask the broker that counts as the controller.

    Args:
        simulation: The brokers, and what is known of their topics.
        number: Tells clients apart.
    """

    def __init__(self, simulation: ScriptedSimulation, number: int) -> None:
        self._simulation = simulation
        self._world = simulation.world
        self.process = Process(f"client-{number}", f"10.0.4.{number + 1}")
        self.pauses = 0
        self._config = ChannelConfig(metadata_max_age_ms=20_000).secured(simulation.protocol.name, simulation.security)
        self._sender: MetadataSender
        self._channel: Any = None
        self._epochs: dict[tuple[bytes | None, TopicPartition], int] = {}
        self._asked: dict[int, float] = {}
        self._numbers = itertools.count()
        self._is_closed = False
        self._is_misled = not MISLEADING.isdisjoint(action.kind for action in simulation.plan.actions)

    def __repr__(self) -> str:
        return self.process.name

    def start(self) -> None:
        """Start the process."""
        self._world.spawn("main", self._start, self.process)

    def _start(self) -> None:
        simulation = self._simulation
        bootstrap = [(broker.address, broker.port) for broker in simulation.brokers]
        self._sender = MetadataSender(
            bootstrap, self._config, protocol=simulation.protocol, client_id=self.process.name
        )
        metadata = self._sender.metadata
        update = metadata.update

        def updated(*args: Any, **settings: Any) -> None:
            update(*args, **settings)
            self._check_epochs()

        metadata.update = updated  # type: ignore[method-assign]
        self._sender.start()
        self._thread = NodeToControllerThread(
            f"{self}-to-controller-thread", "forwarding", self._config, simulation.security, self._controller()
        )
        self._thread.start()
        self._channel = self._thread.channel(0, self._controller, RETRY_MS)
        for number in range(CALLERS):
            self._world.spawn(f"caller {number}", self._call_again, self.process)
        self._world.spawn("asking", self._ask_again, self.process)
        self._administrator = self._world.spawn("administrator", self._administrate_again, self.process)
        workshop = Workshop(self._world, self._controller, self._config, simulation.security, lambda: self.pauses)
        self._world.spawn("workshop", partial(workshop.run, lambda: simulation.settling), self.process)

    # ---- topics

    def _check_epochs(self) -> None:
        """No leader epoch that was known may fall, and none that another answer named may be undercut."""
        snapshot = self._sender.metadata.snapshot
        for tp, info in snapshot.partitions():
            if info.leader_epoch is not None:
                key = snapshot.topics[tp.topic].topic_id, tp
                if info.leader_epoch < self._epochs.get(key, -1):
                    self._world.problem(f"{self} goes back from leader epoch {self._epochs[key]} of {tp}: {info}")
                self._epochs[key] = info.leader_epoch

    def _call_again(self) -> None:
        world, draw = self._world, self._world.draw
        while not self._simulation.settling:
            known = self._simulation.created
            name = f"t{int(draw() * (len(known) + 1))}"
            partition = None if draw() < 0.3 else int(draw() * 5)
            self._call(name, partition, world.random.choice((0.1, 1.0, 5.0, 40.0)))
            tp = TopicPartition(name, partition or 0)
            if draw() < 0.2 and self._simulation.knows(tp):
                epoch = self._simulation.controller.leadership(*tp).leader_epoch
                self._sender.learn_epoch(tp, epoch)
                info = self._sender.metadata.partition_if_current(tp)
                if info is not None and info.leader_epoch is not None and info.leader_epoch < epoch:
                    world.problem(f"{self} trusts {info} though it has seen leader epoch {epoch}")
            world.sleep(draw() * 6)

    def _call(self, name: str, partition: int | None, wait_s: float) -> bool:
        """Wait for a topic, and check the answer; returns whether it is known."""
        world = self._world
        began, pauses = world.elapsed_s(), self.pauses
        try:
            count, info = self._sender.wait_for_topic(name, partition, max_block_ms=int(wait_s * 1000))
        except TopicNotKnown:
            count, info = None, None
        except IllegalState:
            if not self._is_closed:
                raise
            return False
        took = world.elapsed_s() - began
        if took > wait_s + LATE_S and pauses == self.pauses:
            world.problem(f"{self} was told of {name}-{partition} after {took:.1f} s, not within {wait_s:g} s")
        if count is None and took < wait_s - 0.002:
            world.problem(f"{self} gave up {name}-{partition} after {took:.1f} s of {wait_s:g} s")
        wanted = self._simulation.created.get(name)
        if count is not None and (wanted is None or count > wanted or (count < wanted and not self._is_misled)):
            world.problem(f"{self} was told of {count} partitions of {name}, which has {wanted}")
        if info is not None and info.leader is not None and info.leader >= len(self._simulation.brokers):
            world.problem(f"{self} was told of an unknown leader: {info}")
        return count is not None

    # ---- requests to the controller

    def _controller(self) -> ControllerInformation:
        """The broker that counts as the controller now; another one every seven seconds."""
        brokers = self._simulation.brokers
        broker = brokers[int(self._world.elapsed_s() / 7) % len(brokers)]
        tap = self._simulation.tap
        node = Node(broker.id, broker.host if tap is None else tap.address, broker.port)
        protocol = self._simulation.protocol
        return ControllerInformation(node, protocol.name, protocol, True, self._simulation.security.sasl_mechanism)

    def _ask_again(self) -> None:
        while not self._simulation.settling:
            for _ in range(1 + int(self._world.draw() * 4)):
                self._ask()
            self._world.sleep(self._world.draw() * 5)
            self._watch()

    def _ask(self) -> None:
        number = next(self._numbers)
        self._asked[number] = self._world.elapsed_s()
        last = number - 1

        def ended(*_: object) -> None:
            if number not in self._asked:
                self._world.problem(f"{self}: request {number} to the controller has come to two ends")
            if last in self._asked:
                self._world.problem(f"{self}: request {number} to the controller is answered before request {last}")
            self._asked.pop(number, None)

        self._channel.send_request(MessageRequest(QUESTION), ended, ended)

    def _watch(self) -> None:
        if self._asked and not self.pauses:
            waits_s = self._world.elapsed_s() - min(self._asked.values())
            if waits_s > LONGEST_REQUEST_S:
                self._world.problem(f"{self}: a request to the controller has been waiting for {waits_s:.0f} s")

    # ---- an administrator

    def _ask_broker(self, broker: Any, request: Any, version: int) -> Any:
        """Ask a broker over a connection of its own; None if it does not answer."""
        simulation = self._simulation
        address = broker.address, broker.port
        try:
            with NodeClient(
                address, f"{self}-admin", protocol=simulation.protocol, security=simulation.security
            ) as client:
                return client.ask(request, version)
        except ChannelError:
            return None

    def _administrate_again(self) -> None:
        """Create topics, whose answers the brokers check, and read settings, which may take long."""
        world, draw = self._world, self._world.draw
        for number in itertools.count():
            broker = world.random.choice(self._simulation.brokers)
            if self._simulation.settling:
                return
            if draw() < 0.5:
                topic = messages.CreatableTopic(
                    name=f"{self.process.name}-{number}", num_partitions=1 + int(draw() * 3), replication_factor=1
                )
                timeout_ms = world.random.choice((0, 100, 2_000, 20_000))
                self._ask_broker(broker, messages.CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms), 5)
            else:
                self._ask_broker(broker, settings_of(broker.id), 4)
            world.sleep(draw() * 5)

    def _read_settings(self) -> None:
        """Settings are answered in time, though ZooKeeper does not answer the broker."""
        for broker in () if self._is_misled else self._simulation.brokers:
            began = self._world.elapsed_s()
            answer = self._ask_broker(broker, settings_of(broker.id), 4)
            took = self._world.elapsed_s() - began
            if answer is None or took > SETTINGS_S + LATE_S:
                self._world.problem(f"{broker.id} has answered DescribeConfigs with {answer} after {took:.1f} s")

    # ---- the end

    def settle(self) -> None:
        """Wait until the client knows what the controller has decided."""
        world, controller = self._world, self._simulation.controller
        end = world.elapsed_s() + LEARNING_S
        for tp in () if self._is_misled else list(controller.context.partitions_with_leaders):
            epoch = controller.leadership(*tp).leader_epoch
            while True:
                is_known = self._call(tp.topic, tp.partition, 60.0)
                info = self._sender.metadata.partition_if_current(tp)
                if is_known and info is not None and info.leader_epoch in (None, epoch):
                    break
                if world.problems or world.elapsed_s() > end:
                    world.problem(f"{self} knows {info} of {tp} in the end, leader epoch {epoch} is decided")
                    return
                self._sender.metadata.request_update()
                self._sender.client.wakeup()
                world.sleep(0.5)
        while not self._administrator.is_over and world.elapsed_s() < end:
            world.sleep(0.5)
        if not self._administrator.is_over:
            world.problem(f"{self}: a request of the administrator comes to no end")
            return
        self._read_settings()
        while self._asked and world.elapsed_s() < end:
            world.sleep(0.5)
        if self._asked:
            world.problem(f"{self}: {len(self._asked)} requests to the controller come to no end")

    def close(self) -> None:
        """Close while callers wait for a topic that does not exist, and while a request is under way."""
        world = self._world
        waiting = [world.spawn("waiting", partial(self._wait_until_closed), self.process) for _ in range(2)]
        self._channel.send_request(MessageRequest(QUESTION), lambda _: None)
        world.sleep(0.2)
        began, self._is_closed = world.elapsed_s(), True
        self._sender.close(CLOSE_S)
        self._channel.close()
        self._thread.shutdown()
        if world.elapsed_s() - began > CLOSE_S + LATE_S:
            world.problem(f"closing {self} took {world.elapsed_s() - began:.1f} s")
        world.sleep(LATE_S)
        if not all(task.is_over for task in waiting):
            world.problem(f"{self} is closed, and callers still wait")
        if self.process.sockets:
            world.problem(f"{self} is closed, and {len(self.process.sockets)} sockets are open")

    def _wait_until_closed(self) -> None:
        try:
            self._sender.wait_for_topic("never", max_block_ms=600_000)
        except IllegalState:
            return
        self._world.problem(f"a caller of {self} was not told that it is closed")
