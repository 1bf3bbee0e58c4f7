"""The faults of a soak: drawn from its seed before it begins, and made one after the other."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from real_brokers import paused, real_kafka

from channel.errors import ChannelError, RequestTimeout
from channel.zookeeper import cluster_state as zk
from kproto.messages import DescribeConfigsRequest, DescribeConfigsResource, MetadataRequest

from .processes import SESSION_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .packets import Packets
    from .processes import Program, Soak

__all__ = ["CONTROLLER_ENDS", "FAULTS", "SABOTAGE", "Fault", "draw", "leader", "make"]

SABOTAGE: Final = frozenset({"kill-thread", "refuse-threads"})
"""The faults that are made within a controller's process."""

CONTROLLER_ENDS: Final = SABOTAGE | {"kill-controller", "stop-controller", "end-program"}
"""The faults at which a controller may cease to lead."""

_END_S: Final = 60
_REPLACED: Final = ("-send-thread", "controller-scheduler")
"""The ends of the names of threads without which a controller goes on: it gets others."""


class Fault(NamedTuple):
    """A fault that is to come.

    Attributes:
        pause_s: How long to wait before it.
        name: Which function of this module makes it.
        target: Drawn at random, for the choice of its victim.
        lasts_s: How long it lasts, if it lasts.
    """

    pause_s: float
    name: str
    target: int
    lasts_s: float


def draw(seed: int, seconds: float) -> list[Fault]:
    """Draw the faults of a soak: each kind comes once before any comes twice."""
    chance = random.Random(f"faults {seed}")
    found: list[Fault] = []
    left: list[str] = []
    at = 0.0
    while True:
        if not left:
            left = chance.sample(sorted(FAULTS), len(FAULTS))
        fault = Fault(chance.uniform(2, 6), left.pop(), chance.randrange(1 << 30), chance.uniform(1, 9))
        at += fault.pause_s + fault.lasts_s
        if at > seconds:
            return found
        found.append(fault)


def make(soak: Soak, packets: Packets, fault: Fault) -> str:
    """Make a fault, and end it; gives its victim."""
    return FAULTS[fault.name](soak, packets, fault)


@contextlib.contextmanager
def _stopped(*programs: Program) -> Iterator[None]:
    for program in programs:
        program.stop()
    try:
        yield
    finally:
        for program in programs:
            program.go_on()


def leader(soak: Soak) -> Program | None:
    """The controller that leads; None if there is none."""
    found = zk.read_controller(soak.session)
    names = [program.name for program in soak.controllers]
    if found is None or f"controller-{found[0].broker_id}" not in names:
        return None
    return soak.controllers[names.index(f"controller-{found[0].broker_id}")]


def _leader_or_any(soak: Soak, fault: Fault) -> Program:
    """The controller that leads, or any in one of four cases."""
    leads = leader(soak) if fault.target % 4 else None
    return leads or soak.controllers[fault.target % len(soak.controllers)]


def _group(soak: Soak, fault: Fault) -> Program:
    return soak.groups[fault.target % len(soak.groups)]


def _some(soak: Soak, fault: Fault, most: int = 4) -> list[int]:
    chance = random.Random(fault.target)
    group = soak.ids_of(_group(soak, fault))
    return chance.sample(group, min(len(group), chance.randint(1, most)))


def kill_controller(soak: Soak, _: Any, fault: Fault) -> str:
    """kill -9 of a controller, which is started again."""
    victim = _leader_or_any(soak, fault)
    victim.kill()
    time.sleep(fault.lasts_s)
    _start_again(soak, victim)
    return victim.name


def _start_again(soak: Soak, controller: Program) -> None:
    """Start a controller that has ended, once it is registered no more."""
    controller_id = int(controller.name.rpartition("-")[2])
    soak.wait_for(lambda: controller_id not in soak.registered(), "the controller's session has ended", 60)
    controller.start()


def end_program(soak: Soak, _: Any, fault: Fault) -> str:
    """SIGTERM of a controller, which must end in time and in order, and is started again."""
    victim = _leader_or_any(soak, fault)
    try:
        code = victim.end(timeout_s=_END_S)
    except subprocess.TimeoutExpired:
        soak.wrong.append(f"{victim.name} has not ended {_END_S} s after SIGTERM")
    else:
        if code:
            soak.wrong.append(f"{victim.name} ended with status {code} at SIGTERM")
    time.sleep(fault.lasts_s)
    _start_again(soak, victim)
    return victim.name


def kill_thread(soak: Soak, _: Any, fault: Fault) -> str:
    """A thread of a controller dies: the log says so, and the process ends with a status, or goes on without it."""
    victim = _leader_or_any(soak, fault)
    began, name = victim.log.stat().st_size, ""

    def is_killed() -> bool:
        nonlocal name
        name = victim.order(kill=fault.target)
        return bool(name)

    soak.wait_for(is_killed, f"{victim.name} has a thread", _END_S)

    def is_told() -> bool:
        lines = _since(victim, began).splitlines()
        return any(f'"thread": "{name}"' in line and "ended by an error" in line for line in lines)

    try:
        soak.wait_for(is_told, "a thread's death is told", _END_S)
    except TimeoutError:
        soak.wrong.append(f"{name} of {victim.name} has died, and nobody says so")
    if name.endswith(_REPLACED):
        time.sleep(fault.lasts_s)
    else:
        try:
            soak.wait_for(lambda: not victim.is_running, "a process ends with its thread", _END_S)
        except TimeoutError:
            soak.wrong.append(f"{victim.name} goes on without its {name}")
    _must_go_on_or_tell(soak, victim)
    return f"{name} of {victim.name}"


def refuse_threads(soak: Soak, _: Any, fault: Fault) -> str:
    """The system gives a controller no thread for a while: the process goes on, or ends with a status."""
    victim = _leader_or_any(soak, fault)
    victim.order(refuse_s=fault.lasts_s)
    time.sleep(fault.lasts_s + 1)
    _must_go_on_or_tell(soak, victim)
    return victim.name


def _must_go_on_or_tell(soak: Soak, victim: Program) -> None:
    assert victim.process is not None
    if not victim.is_running:
        if victim.process.returncode == 0 or "has ended by itself" not in _since(victim, 0):
            soak.wrong.append(f"{victim.name} ended with status {victim.process.returncode}, and does not say why")
        _start_again(soak, victim)


def _since(program: Program, position: int) -> str:
    """What a program's log says behind a position."""
    return program.log.read_bytes()[position:].decode("utf-8", "replace")


def stop_controller(soak: Soak, _: Any, fault: Fault) -> str:
    """SIGSTOP of a controller, for less or more than its session."""
    victim = _leader_or_any(soak, fault)
    with _stopped(victim):
        time.sleep(fault.lasts_s * 1.5)
    return victim.name


def kill_brokers(soak: Soak, _: Any, fault: Fault) -> str:
    """kill -9 of a process of brokers, which is started again once its sessions have ended."""
    victim = _group(soak, fault)
    victim.kill()
    gone = set(soak.ids_of(victim))
    soak.wait_for(lambda: not soak.registered() & gone, "the sessions of killed brokers have ended", 60)
    victim.start()
    soak.wait_for(lambda: soak.registered() >= gone, "killed brokers are back", 60)
    return victim.name


def stop_brokers(soak: Soak, _: Any, fault: Fault) -> str:
    """SIGSTOP of a process of brokers."""
    victim = _group(soak, fault)
    with _stopped(victim):
        time.sleep(fault.lasts_s)
    return victim.name


def bounce(soak: Soak, _: Any, fault: Fault) -> str:
    """Single brokers end and begin again."""
    ids = ",".join(map(str, _some(soak, fault)))
    _group(soak, fault).say(f"bounce {ids}")
    return f"brokers {ids}"


def kill_and_restart(soak: Soak, _: Any, fault: Fault) -> str:
    """Single brokers end as by kill -9, and begin again later."""
    return _for_a_while(soak, fault, "kill", "restart")


def pause(soak: Soak, _: Any, fault: Fault) -> str:
    """Single brokers hang, while their sessions live."""
    return _for_a_while(soak, fault, "pause", "resume")


def _for_a_while(soak: Soak, fault: Fault, step: str, back: str) -> str:
    """Have a process take one step with some of its brokers, and later another."""
    ids, group = ",".join(map(str, _some(soak, fault))), _group(soak, fault)
    group.say(f"{step} {ids}")
    time.sleep(fault.lasts_s)
    group.say(f"{back} {ids}")
    return f"brokers {ids}"


def stall_tap(soak: Soak, _: Any, fault: Fault) -> str:
    """SIGSTOP of a tap: the bytes of ten brokers' connections stand still."""
    victim = soak.taps[fault.target % len(soak.taps)]
    with _stopped(victim):
        time.sleep(fault.lasts_s)
    return victim.name


def stop_zookeeper(soak: Soak, _: Any, fault: Fault) -> str:
    """SIGSTOP of ZooKeeper, while a broker is asked for settings: it must answer Metadata all the same."""
    broker_id, until = _some(soak, fault)[0], time.monotonic() + fault.lasts_s
    resource = DescribeConfigsResource(resource_type=4, resource_name=str(broker_id))
    with paused(soak.zookeeper_pid()):
        asking = [
            threading.Thread(target=_ask_in_vain, args=(soak, broker_id, DescribeConfigsRequest(resources=[resource])))
            for _ in range(4)
        ]
        for each in asking:
            each.start()
        try:
            soak.ask(broker_id, MetadataRequest(topics=None), 9, timeout_ms=15_000)
        except RequestTimeout:
            soak.wrong.append(f"broker {broker_id} answers no Metadata while it reads settings, as ZooKeeper is silent")
        except (ChannelError, OSError):
            pass  # its process may be about to end
        time.sleep(max(0.0, until - time.monotonic()))
    for each in asking:
        each.join()
    return f"{fault.lasts_s:.1f} s"


def _ask_in_vain(soak: Soak, broker_id: int, request: Any) -> None:
    with contextlib.suppress(ChannelError, OSError):
        soak.ask(broker_id, request, 4, timeout_ms=15_000)


def restart_zookeeper(soak: Soak, _: Any, fault: Fault) -> str:
    """kill -9 of ZooKeeper, which is started again with its data."""
    real_kafka("stop-zookeeper", str(soak.folder / "zookeeper"), "--kill")
    time.sleep(min(fault.lasts_s, SESSION_S / 2))
    real_kafka("start-zookeeper", str(soak.folder / "zookeeper"))
    return ""


def fill_disk(soak: Soak, _: Any, fault: Fault) -> str:
    """A tap's disk is full."""
    victim = soak.taps[fault.target % len(soak.taps)]
    with soak.disks.full(victim):
        time.sleep(fault.lasts_s)
    return victim.name


def reorder_packets(soak: Soak, packets: Packets, fault: Fault) -> str:
    """Packets of some brokers are late, come twice or are lost, and others overtake them."""
    ids = _some(soak, fault, 10)
    with packets.detoured([soak.ports[i] for i in ids]) as happened:
        until = time.monotonic() + fault.lasts_s
        while time.monotonic() < until:
            for i in ids:  # so that there are packets, though nobody may change anything
                with contextlib.suppress(ChannelError, OSError):
                    soak.ask(i, MetadataRequest(topics=None), 9, timeout_ms=5_000)
    return f"brokers {','.join(map(str, ids))}: {', '.join(f'{count} {name}' for name, count in happened.items())}"


def _packets(name: str) -> Callable[[Soak, Packets, Fault], str]:
    def fault_of_packets(soak: Soak, packets: Packets, fault: Fault) -> str:
        ids = _some(soak, fault, 10)
        with packets.held(name, [soak.ports[i] for i in ids]):
            time.sleep(fault.lasts_s)
        return f"brokers {','.join(map(str, ids))}"

    return fault_of_packets


FAULTS: Final[dict[str, Callable[[Soak, Packets, Fault], str]]] = {
    "kill-controller": kill_controller,
    "stop-controller": stop_controller,
    "end-program": end_program,
    "kill-thread": kill_thread,
    "refuse-threads": refuse_threads,
    "kill-brokers": kill_brokers,
    "stop-brokers": stop_brokers,
    "bounce": bounce,
    "kill-and-restart": kill_and_restart,
    "pause": pause,
    "stall-tap": stall_tap,
    "stop-zookeeper": stop_zookeeper,
    "restart-zookeeper": restart_zookeeper,
    "drop-packets": _packets("dropped"),
    "lose-packets": _packets("lossy"),
    "reset-connections": _packets("rejected"),
    "reorder-packets": reorder_packets,
    "fill-disk": fill_disk,
}
