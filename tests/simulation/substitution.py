"""Puts the simulation in place of the system, as the modules of ``channel`` see it; the product is not asked.

While a world is installed, the modules ``threading``, ``time``, ``socket``, ``select``, ``os`` and ``random`` that the
modules of ``channel`` have imported are replaced by views whose calls reach the world; everything else passes through.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import random
import resource
import select
import socket
import sys
import threading
import time
import uuid
from types import ModuleType
from typing import TYPE_CHECKING, Any

import lock_checks

from channel import clock as channel_clock
from channel import locks as channel_locks
from channel import threads as channel_threads

from .network import Epoll, EventFd, Network, Socket
from .scheduler import WALL_NS
from .threads import Primitives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .scheduler import World

__all__ = ["installed"]


class _View(ModuleType):
    """A module some of whose names are replaced."""

    def __init__(self, real: ModuleType, **replaced: Any) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(replaced)
        self.__dict__["_real"] = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_real"], name)


def _views(world: World, network: Network, more: dict[int, Any]) -> dict[int, Any]:
    primitives = Primitives(world)

    def new_socket(family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, *_: object) -> Socket:
        assert world.current is not None
        return Socket(network, world.current.process)

    def create_server(address: tuple[str, int], *, family: int = socket.AF_INET, backlog: int = 128) -> Socket:
        assert world.current is not None
        return network.listen(world.current.process, address, backlog)

    def getaddrinfo(host: str, port: int | None, **_: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port or 0))]

    def eventfd(initial: int, flags: int = 0) -> int:
        return network.descriptor(EventFd())

    def eventfd_write(fd: int, value: int) -> None:
        found = network.descriptors.get(fd)
        if found is None:
            raise OSError(9, "no such descriptor")
        found.count += value
        if found.watcher is not None:
            found.watcher.touch(fd)

    def eventfd_read(fd: int) -> int:
        found = network.descriptors[fd]
        if not found.count:
            raise BlockingIOError
        count, found.count = found.count, 0
        return int(count)

    def close(fd: int) -> None:
        if network.descriptors.pop(fd, None) is None:
            os.close(fd)

    views = {
        id(threading): _View(
            threading,
            Lock=primitives.Lock,
            RLock=primitives.RLock,
            Event=primitives.Event,
            Condition=primitives.Condition,
            Timer=primitives.Timer,
            local=primitives.Local,
            current_thread=primitives.current_thread,
        ),
        id(time): _View(
            time,
            monotonic=lambda: world.now / 1e9,
            monotonic_ns=lambda: world.now,
            time=lambda: (WALL_NS + world.now + world.wall_offset) / 1e9,
            time_ns=lambda: WALL_NS + world.now + world.wall_offset,
            perf_counter=lambda: world.now / 1e9,
            sleep=world.sleep,
        ),
        id(socket): _View(socket, socket=new_socket, create_server=create_server, getaddrinfo=getaddrinfo),
        id(select): _View(select, epoll=lambda: Epoll(network)),
        id(os): _View(
            os,
            eventfd=eventfd,
            eventfd_write=eventfd_write,
            eventfd_read=eventfd_read,
            close=close,
            urandom=world.random.randbytes,
        ),
        id(resource): _View(resource, getrlimit=lambda _: (resource.RLIM_INFINITY,) * 2),
        id(random): _View(
            random,
            Random=lambda *_: world.random,
            **{name: getattr(world.random, name) for name in ("random", "shuffle", "choice", "randrange", "sample")},
        ),
        id(uuid): _View(uuid, uuid4=lambda: uuid.UUID(bytes=world.random.randbytes(16), version=4)),
        id(lock_checks._held): primitives.Local(),
        id(queue.SimpleQueue): primitives.SimpleQueue,
        id(threading.Event): primitives.Event,
    }
    return views | more | {0: primitives}


@contextlib.contextmanager
def installed(world: World, more: dict[int, Any] | None = None) -> Iterator[Network]:
    """Replace the system for the modules of ``channel`` by a world's.

    Args:
        world: The world.
        more: Further objects to be replaced wherever they stand in a module, by ``id``.
    """
    network = Network(world)
    views = _views(world, network, more or {})
    primitives: Primitives = views.pop(0)
    undo: list[tuple[Any, str, Any]] = []

    def put(where: Any, name: str, value: Any) -> None:
        undo.append((where, name, where.__dict__[name]))
        setattr(where, name, value)

    no_small_calls: Callable[..., int] = lambda fd, buffers: -1  # noqa: E731
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] not in ("channel", "lock_checks") or module is None:
            continue
        for name, value in list(vars(module).items()):
            replacement = views.get(id(value))
            if replacement is not None and replacement is not value:
                put(module, name, replacement)
            elif isinstance(value, type) and dataclasses.is_dataclass(value):
                for cell in value.__init__.__closure__ or ():  # the default factories of its fields
                    if id(cell.cell_contents) in views:
                        undo.append((cell, "cell_contents", cell.cell_contents))
                        cell.cell_contents = views[id(cell.cell_contents)]
            elif name in ("receive_small", "send_small") and callable(value):
                put(module, name, no_small_calls)
    held = lock_checks._check_held

    def check_held(*what: Any) -> None:
        """Give way at an access to what a lock guards, as at a lock; then check that the lock is held."""
        if world.current is not None:
            if world.preemption and world.draw() < world.preemption and not world.is_over:
                world.give_way()
            if channel_locks.checks is not None and not world.is_over:
                held(*what)

    put(lock_checks, "_check_held", check_held)
    system = channel_clock.Clock
    put(system, "milliseconds", lambda self: world.now // 1_000_000)
    put(system, "nanoseconds", staticmethod(lambda: world.now))
    put(system, "wall_nanoseconds", staticmethod(lambda: WALL_NS + world.now + world.wall_offset))
    put(system, "sleep", lambda self, ms: world.sleep(ms / 1000))
    thread = threading.Thread
    start, join, is_alive = thread.start, thread.join, thread.is_alive
    put(thread, "start", lambda self: start(self) if world.current is None else primitives.start(self))
    put(thread, "join", lambda self, s=None: (primitives.join if hasattr(self, "simulated") else join)(self, s))
    put(thread, "is_alive", lambda self: (primitives.is_alive if hasattr(self, "simulated") else is_alive)(self))
    ending = channel_threads._ending
    known = list(ending)
    try:
        yield network
    finally:
        world.close()
        for where, name, value in reversed(undo):
            setattr(where, name, value)
        ending.clear()
        for each in known:
            ending.add(each)
