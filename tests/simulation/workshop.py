"""Threads that meet what once ended them unseen: no thread to be had, an error, a close while others close."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from channel.broker.to_controller import NodeToControllerThread
from channel.broker.worker import Worker
from channel.errors import IllegalState
from channel.network.brief_threads import BriefThreads
from channel.network.request import MessageRequest
from kproto import messages

from .cluster import PLANNED

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.broker.to_controller import ControllerProvider
    from channel.config import ChannelConfig
    from channel.security import SecurityConfig

    from .scheduler import World

__all__ = ["Workshop"]

QUESTION = messages.ControlledShutdownRequest(broker_id=0, broker_epoch=1)
CLOSE_S = 5.0


class _Unwritable(MessageRequest):
    """A request that cannot be encoded."""

    def build(self, version: int) -> Any:
        """Fail."""
        raise RuntimeError(f"{PLANNED}an error of the thread")


class _Mortal(NodeToControllerThread):
    """A thread that an error ends."""

    is_doomed = False

    def do_work(self) -> None:
        """Go on, or fail."""
        if self.is_doomed:
            raise RuntimeError(f"{PLANNED}an error of the thread")
        super().do_work()


class Workshop:
    """Makes threads of the product's, and has them end in every way.

    Args:
        world: The scheduler.
        controller: Where requests to the controller go.
        config, security: Of their client.
        pauses: How often the process has been paused so far, which makes everything late.
    """

    def __init__(
        self,
        world: World,
        controller: ControllerProvider,
        config: ChannelConfig,
        security: SecurityConfig,
        pauses: Callable[[], int],
    ) -> None:
        self._world = world
        self._controller = controller
        self._config, self._security = config, security
        self._pauses = pauses

    def run(self, is_over: Callable[[], bool]) -> None:
        """Do one piece of work after the other."""
        while not is_over():
            self._world.random.choice((self._close_a_worker, self._lack_threads, self._lose_the_thread))()
            self._world.sleep(self._world.draw() * 3)

    def _close_a_worker(self) -> None:
        """Every task that was taken is done or dropped, once, and the close returns however many threads wait."""
        world, ends, taken = self._world, Counter[int](), 0
        worker = Worker("workshop", 1 + int(world.draw() * 4))

        def work(number: int) -> None:
            if world.draw() < 0.3:
                world.sleep(world.draw() / 4)
            ends[number] += 1

        def drop(number: int) -> None:
            ends[number] += 1

        for number in range(int(world.draw() * 9)):
            if self._without_threads(0.2, partial(worker.submit, partial(work, number), partial(drop, number))):
                taken += 1
        if world.draw() < 0.5:
            world.sleep(world.draw() / 2)
        before = self._pauses()
        has_ended = worker.close(CLOSE_S)
        if not has_ended and self._pauses() == before:
            world.problem(f"a worker has not ended within {CLOSE_S:g} s")
        elif has_ended and sorted(ends.values()) != [1] * taken:
            world.problem(f"a worker took {taken} tasks, which came to {sorted(ends.values())} ends")

    def _lack_threads(self) -> None:
        """Every call that was taken is made, though the system sometimes gives no thread."""
        world, results = self._world, []
        threads = BriefThreads("brief", 2)
        for number in range(8):
            self._without_threads(0.5, lambda: results.append(threads.submit(lambda: None)))
            if number % 3 == 2:
                world.sleep(world.draw() / 10)
        results.append(threads.submit(lambda: None))
        self._wait(lambda: all(result.done() for result in results), "the calls of brief threads are made")

    def _lose_the_thread(self) -> None:
        """The requests of a thread that an error ends come to an end each, and it takes no more."""
        world, ends = self._world, Counter[int]()
        thread = _Mortal("doomed-thread", "forwarding", self._config, self._security, self._controller())
        thread.start()
        channel = thread.channel(0, self._controller, 600_000)

        def ended(number: int, *_: object) -> None:
            ends[number] += 1

        asked = 1 + int(world.draw() * 4)
        for number in range(asked):
            request = _Unwritable(QUESTION) if world.draw() < 0.3 else MessageRequest(QUESTION)
            channel.send_request(request, partial(ended, number), partial(ended, number))
        world.sleep(world.draw())
        thread.is_doomed = True
        thread.client.wakeup()
        self._wait(lambda: not thread.is_alive(), "the thread that an error ended is over")
        if sorted(ends.values()) != [1] * asked and not world.problems:
            world.problem(f"{asked} requests of a thread that an error ended came to {sorted(ends.values())} ends")
        try:
            channel.send_request(MessageRequest(QUESTION), ended)
        except IllegalState:
            pass
        else:
            world.problem("a thread that an error ended takes requests")
        if thread.is_serving or thread.error is None:
            world.problem(f"a thread that an error ended is serving: {thread.is_serving}, error {thread.error!r}")
        thread.shutdown(CLOSE_S)

    def _without_threads(self, chance: float, begin: Callable[[], object]) -> bool:
        """Begin something, sometimes where the system gives no thread; returns whether it was taken."""
        world, task = self._world, self._world.current
        assert task is not None
        if world.draw() < chance:
            world.without_threads.add(task)
        try:
            begin()
        except (RuntimeError, OSError):
            if task not in world.without_threads:
                raise
            return False
        finally:
            world.without_threads.discard(task)
        return True

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        world, before = self._world, self._pauses()
        end = world.elapsed_s() + CLOSE_S
        while not is_so() and not world.is_over:
            if world.elapsed_s() > end and self._pauses() == before:
                world.problem(f"after {CLOSE_S:g} s it does not hold that {what}")
                return
            world.sleep(0.05)
