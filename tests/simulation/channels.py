"""The simulation of a channel manager that several threads call: they send, add and remove brokers, and it is closed.

Callbacks raise, block, send, and call what a callback may not call; send threads die. Each request must come to one
end: its callback is called, or it is reported as dropped.
"""

from __future__ import annotations

import contextlib
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

from channel.config import ChannelConfig
from channel.errors import BrokerNotAvailable, IllegalState
from channel.send.manager import ControllerChannelManager
from channel.types import Broker as Registered
from channel.types import EndPoint
from kproto import messages
from kproto.api import control_versions

from .cluster import PLANNED, SETTLING_S, Simulation

if TYPE_CHECKING:
    from .cluster import Broker
    from .plan import Action, Plan

__all__ = ["ChannelsSimulation"]

CALLERS = 3
LONGEST_CALL_S = 75.0
"""The longest time that adding or removing a broker may take: it waits for a callback, of 20 s at most, and paused
processes of 50 s."""
CLOSE_S = 5.0


class _Sent:
    """A request, and the ends that it has come to."""

    def __init__(self, broker_id: int, number: int) -> None:
        self.broker_id = broker_id
        self.number = number
        self.answered = 0
        self.dropped = 0

    def __repr__(self) -> str:
        return f"request {self.number} to broker {self.broker_id}"


class ChannelsSimulation(Simulation):
    """Threads that call one channel manager.

    Args:
        plan: What is done.
        capture: Where the frames that pass are written, None for nowhere.
    """

    def __init__(self, plan: Plan, capture: str | None) -> None:
        super().__init__(plan, capture)
        self.manager: ControllerChannelManager
        self.sent: list[_Sent] = []
        self.by_request: dict[int, tuple[_Sent, Any]] = {}
        self.busy: dict[int, tuple[float, str]] = {}
        self.calls = itertools.count()
        self.is_closed = False
        self.died = 0

    def left(self, broker: Broker, within_s: float) -> None:
        """Remove the broker within this time."""
        self.world.after(within_s * 1e9, lambda: self._call("remove", broker))

    def came(self, broker: Broker) -> None:
        """Add the broker soon, at its new epoch."""
        self.world.after(1e8, lambda: self._call("remove and add", broker))

    # ---- calls

    def _call(self, kind: str, broker: Broker) -> None:
        """Let a thread of its own make a call."""
        if not self.settling:
            self._spawn(kind, broker)

    def _spawn(self, kind: str, broker: Broker) -> None:
        if not self.is_closed:
            self.world.spawn(f"caller ({kind})", partial(self._do, kind, broker), self.controller_process)

    def _do(self, kind: str, broker: Broker) -> None:
        self.world.note(f"{kind} broker {broker.id}")
        token = next(self.calls)
        self.busy[token] = (self.world.elapsed_s(), f"{kind} broker {broker.id}")
        try:
            if kind in ("remove", "remove and add"):
                with contextlib.suppress(BrokerNotAvailable):
                    self.manager.remove_broker(broker.id)
            if kind in ("add", "remove and add") and not self.is_closed:
                if self.manager.broker_ids.count(broker.id) == 0:
                    self.wires.began(broker.id)
                self.manager.add_broker(self._registered(broker))
        finally:
            began, what = self.busy.pop(token)
            took = self.world.elapsed_s() - began
            if took > LONGEST_CALL_S:
                self.world.problem(f"{what} took {took:.1f} s")

    def _registered(self, broker: Broker) -> Registered:
        return Registered(broker.id, (EndPoint(broker.host, broker.port, self.protocol.name, self.protocol),))

    def _send(self, broker: Broker, callback: str = "", draw: float = 0.0) -> None:
        sent = _Sent(broker.id, len(self.sent))
        self.sent.append(sent)
        epoch = broker.epoch if broker.epoch else -1
        endpoint = messages.UpdateMetadataEndpoint(
            port=broker.port, host=broker.host, listener="PLAINTEXT", security_protocol=0
        )
        alive = [messages.UpdateMetadataBroker(id=broker.id, endpoints=[endpoint])]
        message = messages.UpdateMetadataRequest(
            controller_id=100, controller_epoch=1, broker_epoch=epoch, live_brokers=alive if sent.number % 2 else []
        )
        request = self.manager.versioned(message)
        self.by_request[id(request)] = sent, request

        def answered(_: Any) -> None:
            sent.answered += 1
            if sent.answered + sent.dropped > 1:
                self.world.problem(f"{sent} has come to two ends")
            self._called_back(broker, callback, draw)

        self.manager.send_request(broker.id, request, answered)

    def _called_back(self, broker: Broker, callback: str, draw: float) -> None:
        other = self.brokers[int(draw * len(self.brokers))]
        match callback:
            case "callback raises":
                raise RuntimeError(f"{PLANNED}a callback raises")
            case "callback adds a broker":
                for forbidden in (
                    lambda: self.manager.add_broker(self._registered(other)),
                    lambda: self.manager.remove_broker(other.id),
                ):
                    try:
                        forbidden()
                    except IllegalState:
                        continue
                    except BrokerNotAvailable:
                        pass
                    self.world.problem("a callback could add or remove a broker")
            case "callback sends":
                self._send(other)
            case "callback blocks":
                self.world.sleep(draw * draw * 20)

    def _dropped(self, broker_id: int, items: list[Any]) -> None:
        for item in items:
            sent, _ = self.by_request[id(item.request)]
            sent.dropped += 1
            if sent.answered + sent.dropped > 1:
                self.world.problem(f"{sent} has come to two ends")

    def _thread_failed(self, name: str, broker_ids: list[int]) -> None:
        """Have its brokers removed and added again; one time in three fail after that."""
        self.world.note(f"{name} has died, and its brokers {broker_ids} are removed and added")
        for broker_id in broker_ids:
            self._spawn("remove and add", self.brokers[broker_id])
        if self.world.draw() < 0.3:
            raise RuntimeError(f"{PLANNED}the hook for dead threads fails")

    def _kill_send_thread(self, draw: float) -> None:
        """Let a send thread's next poll fail in a way that nothing expects."""
        threads = [
            t
            for t in self.world.tasks
            if t.process is self.controller_process and t.waits == "a poll" and "send-thread" in t.name
        ]
        if threads:
            task = threads[int(draw * len(threads))]
            self.world.note(f"{task.name} dies")
            self.died += 1
            self.world.fail(task, RuntimeError(f"{PLANNED}a send thread dies"))

    # ---- the run

    def direct(self) -> None:
        """Start everything, make the plan's calls, settle, check, and end everything."""
        self.wires.are_ordered = False
        world = self.world
        for broker in self.brokers:
            self.start_broker(broker)
        while not all(broker.is_up for broker in self.brokers):
            world.sleep(0.01)
        config = ChannelConfig(inter_broker_protocol_version=self.plan.ibp, send_threads=self.plan.send_threads)
        config = config.secured(self.protocol.name, self.security)
        assert control_versions(self.plan.ibp)
        self.manager = ControllerChannelManager(
            100,
            lambda: 1,
            config,
            on_dropped=self._dropped,
            on_thread_failed=self._thread_failed,
            recorder=self.recorder,
        )
        for broker in self.brokers:
            self._do("add", broker)
        work = [action for action in self.plan.actions if not action.is_fault]
        for number in range(CALLERS):
            world.spawn(f"caller {number}", partial(self._work_off, work), self.controller_process)
        while world.elapsed_s() < self.plan.length_s:
            world.sleep(1)
            self._watch()
        self.calm()
        self._settle()
        self._close()
        self.close_brokers()
        self.done = True

    def _work_off(self, work: list[Action]) -> None:
        while work and not self.settling:
            left = work[0].at_s - self.world.elapsed_s()
            if left > 0:
                self.world.sleep(min(left, 1))
                continue
            action = work.pop(0)
            a, b, c = action.draws
            broker = self.brokers[int(a * len(self.brokers))]
            match action.kind:
                case "send":
                    self._send(broker)
                case "burst":
                    for _ in range(2 + int(b * 30)):
                        self._send(broker)
                case "add" | "remove" | "remove and add":
                    self._call(action.kind, broker)
                case "thread dies":
                    if c < 0.7:
                        self._do("remove", broker)
                    self._kill_send_thread(b)
                    self._call("add", broker)
                case _:
                    self.world.note(f"send to broker {broker.id}: {action.kind}")
                    self._send(broker, action.kind, c)
                    if c < 0.5:
                        self._call("remove" if b < 0.5 else "remove and add", broker)

    def _watch(self) -> None:
        now = self.world.elapsed_s()
        for began, what in self.busy.values():
            if now - began > LONGEST_CALL_S:
                self.world.problem(f"{what} has been waiting for {now - began:.0f} s; {self.world.waiting()}")

    def _open(self) -> list[_Sent]:
        return [sent for sent in self.sent if not sent.answered and not sent.dropped]

    def _settle(self) -> None:
        """Every broker is up and has a channel; then every request comes to its end."""
        world = self.world
        world.sleep(1)  # calls that were about to begin
        self.start_dead_brokers()
        while self.busy and not world.problems:
            world.sleep(0.5)
            self._watch()
        for broker in self.brokers:
            self._do("add", broker)  # of a broker that has a channel, which must work as it is
            self._send(broker)
        end = world.elapsed_s() + SETTLING_S
        while self._open() or self.busy:
            world.sleep(0.5)
            self._watch()
            if world.elapsed_s() > end:
                world.problem(f"{len(self._open())} requests come to no end, the first is {self._open()[:1]}")
                return
        size = sum(1 for sent in self.sent[-len(self.brokers) :] if not sent.answered)
        if size:
            world.problem(f"{size} of the last requests were dropped though their brokers are up")

    def _close(self) -> None:
        """Close the manager while its queues are full and a callback blocks."""
        for broker in self.brokers:
            self._send(broker, "callback blocks", 0.7)
            self._send(broker)
        self.world.sleep(0.2)
        began = self.world.elapsed_s()
        self.is_closed = True
        self.manager.close(CLOSE_S)
        took = self.world.elapsed_s() - began
        if took > CLOSE_S + 1:
            self.world.problem(f"close({CLOSE_S:g}) took {took:.1f} s")
        self.world.sleep(30)
        if self._open():
            self.world.problem(f"after the end {len(self._open())} requests have come to no end: {self._open()[:1]}")
        if self.manager.broker_ids:
            self.world.problem(f"brokers {self.manager.broker_ids} are left after the end")
        self.manager.close(CLOSE_S)
