"""kproto's controller beside Kafka's own: failovers, starts, reassignments, creations and deletions of topics.

    python benches/controller_ratios.py [--pairs 3] [--quick] [--only GROUP ...] [--json FILE]

Both lead the same fleet of simulated brokers (``kproto brokers --zookeeper``, in a process of its own) from the same
ZooKeeper, with topics that were written before: `kproto controller` in the one run, a real broker of Kafka 3.9.1 in the
other. A pair is a new process of each, in turn; Kafka's has the options and the heap of Kafka's own scripts, and both
log a line for each request.

Failover: brokers end one after the other: a broker's port is closed and its id znode deleted; from there until the last
answer to a LeaderAndIsr. A JVM gets faster with each, so the first failover and the median of the last ones are rows of
their own. Start: from the creation of /controller until the last answer to an UpdateMetadata, with all partitions known
to every broker. Times are taken at the brokers, CPU is that of the controller's process until all requests are
answered, memory its largest resident set.

At size: twenty brokers end at once; /admin/reassign_partitions names a thousand partitions, until the znode is gone;
the deletion of every topic is requested at once, until no broker knows a partition; topics are created by CreateTopics
while /controller is deleted three times, until every topic has its leaders.

Ends with 1 if a limit is missed, a row is not measured or a program fails. The figures and every round go to
benches/results/controller.json and controller-GROUP.json (GROUP: burst, reassign, delete, create); --quick runs small
pairs, judges no limit and writes no file.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from controller_fleet import FleetProcess, fleet_process
from controller_processes import (
    HEAP,
    REPLICAS,
    ControllerProcess,
    Shape,
    check_failover,
    controller,
    name_of,
    write_topics,
    zookeeper,
)
from figures import Goal, finish, settled
from measure import machine

from channel.errors import ChannelError
from channel.zookeeper.cluster import read_controller_epoch
from channel.zookeeper.operations import Create
from channel.zookeeper.session import ZooKeeperSession
from channel.zookeeper.znodes import (
    ADMIN_DELETE_TOPICS,
    CONTROLLER,
    REASSIGN_PARTITIONS,
    TOPICS,
    broker_path,
    decode_broker,
    decode_partition_state,
    encode_reassignments,
    partition_state_path,
    topic_path,
)
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from channel.types import LeaderAndIsr

Load: TypeAlias = Callable[[str, Shape, str, Path], dict[str, Any]]
"""Measures one program: with its name, the topics and brokers, ZooKeeper's address and a folder."""

PROGRAMS = ("kproto", "kafka")
SHAPES: Mapping[str, Shape] = {
    "failover": Shape(100, 100, range(100, 150)),
    "start": Shape(1_000, 100, range(100, 110)),
    "burst": Shape(500, 100, range(100, 300)),
    "reassign": Shape(500, 100, range(100, 300)),
    "delete": Shape(500, 20, range(100, 150)),
    "create": Shape(1_000, 5, range(100, 120)),
}
QUICK: Mapping[str, Shape] = {
    "failover": Shape(20, 20, range(100, 110)),
    "start": Shape(50, 100, range(100, 104)),
    "burst": Shape(20, 20, range(100, 130)),
    "reassign": Shape(20, 20, range(100, 110)),
    "delete": Shape(20, 5, range(100, 110)),
    "create": Shape(60, 3, range(100, 105)),
}
AT_SIZE = ("burst", "reassign", "delete", "create")
GROUPS: Mapping[str, Sequence[str]] = {"controller": ("failover", "start"), **{load: (load,) for load in AT_SIZE}}
"""The loads of each result file."""

FAILURES = 6
TOGETHER = 20
"""The number of brokers that fail at once."""

REASSIGNED = 1_000
ELECTIONS = 3
REQUEST_TOPICS = 10
"""The number of topics in a CreateTopics request."""

WAIT_S = 600.0
APART = 5
"""Every fifth broker fails, so that no partition loses two replicas."""


def failover(program: str, shape: Shape, address: str, folder: Path) -> dict[str, Any]:
    """One controller's failovers of one broker after the other."""
    rounds = []
    failures = min(FAILURES, len(shape.brokers) // APART)
    with _led(program, shape, address, folder) as (session, fleet, process):
        for broker in shape.brokers[: failures * APART : APART]:
            before = process.cpu_s
            answered = fleet.ask(f"fail {broker}")
            rounds.append(
                {
                    "seconds": answered["last"]["LeaderAndIsr"] - answered["began"],
                    "cpu_s": process.cpu_s - before,
                    "requests": answered["requests"],
                    "bytes": answered["bytes"],
                }
            )
            check_failover(session, shape, broker)
        peak = process.peak_mib
    return {
        "seconds": settled([found["seconds"] for found in rounds]),
        "cpu_s": settled([found["cpu_s"] for found in rounds]),
        "first_seconds": rounds[0]["seconds"],
        "first_cpu_s": rounds[0]["cpu_s"],
        "peak_mib": peak,
        "rounds": rounds,
    }


def start(program: str, shape: Shape, address: str, folder: Path) -> dict[str, Any]:
    """The start of one controller over topics that exist."""
    with (
        ZooKeeperSession(address) as session,
        fleet_process(address, shape.brokers) as fleet,
        controller(program, address, folder) as process,
    ):
        process.await_election(session)
        answered = fleet.ask(f"know {shape.total}")
        return {
            "seconds": answered["last"]["UpdateMetadata"] - process.elected,
            "cpu_s": process.cpu_s - process.cpu_at_election,
            "peak_mib": process.peak_mib,
            "requests": answered["requests"],
            "bytes": answered["bytes"],
        }


@contextlib.contextmanager
def _led(program: str, shape: Shape, address: str, folder: Path) -> Iterator[Led]:
    """Brokers that know the topics of a shape, and the controller that leads them."""
    write_topics(address, shape)
    with (
        ZooKeeperSession(address) as session,
        fleet_process(address, shape.brokers) as fleet,
        controller(program, address, folder) as process,
    ):
        process.await_election(session)
        fleet.ask(f"know {shape.total}")
        yield Led(session, fleet, process)


class Led(NamedTuple):
    """A session beside a controller that leads, its brokers, and its process."""

    session: ZooKeeperSession
    fleet: FleetProcess
    process: ControllerProcess

    def gone(self, path: str) -> float:
        """Wait until a znode is gone; returns the time of its end.

        Raises:
            TimeoutError: It stays.
        """
        deleted = threading.Event()
        self.session.watch_node(path, deleted.set)
        deadline = time.monotonic() + WAIT_S
        while self.session.exists(path) is not None:
            if not deleted.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"ZooKeeper still has {path} after {WAIT_S:g} s")
            deleted.clear()
        self.session.unwatch(path)
        return time.monotonic()


def burst(program: str, shape: Shape, address: str, folder: Path) -> dict[str, Any]:
    """The failover of twenty brokers that end at once."""
    failed = shape.brokers[::APART][:TOGETHER]
    with _led(program, shape, address, folder) as led:
        before = led.process.cpu_s
        answered = led.fleet.ask(f"fail {','.join(map(str, failed))}")
        for broker_id in failed:
            check_failover(led.session, shape, broker_id)
        seconds = answered["last"]["LeaderAndIsr"] - answered["began"]
        return {"seconds": seconds, **_costs(led.process, before, answered)}


def reassign(program: str, shape: Shape, address: str, folder: Path) -> dict[str, Any]:
    """Reassignments of many partitions: the last replica of each moves to another broker."""
    targets = {}
    for number in range(min(REASSIGNED, shape.total)):
        topic, partition = divmod(number * (shape.total // min(REASSIGNED, shape.total)), shape.partitions)
        *kept, moved = shape.replicas(topic, partition)
        other = shape.brokers[(shape.brokers.index(moved) + REPLICAS) % len(shape.brokers)]
        targets[TopicPartition(name_of(topic), partition)] = (*kept, other)
    with _led(program, shape, address, folder) as led:
        epoch, before, began = read_controller_epoch(led.session), led.process.cpu_s, time.monotonic()
        led.session.create(REASSIGN_PARTITIONS, encode_reassignments(targets))
        seconds = led.gone(REASSIGN_PARTITIONS) - began
        answered = led.fleet.ask("settle 0")
        assert read_controller_epoch(led.session) == epoch, "the controller has lost its session"
        raised = [state.leader_epoch for state in _states(led.session, targets)]
        assert min(raised) == max(raised), f"leader epochs {min(raised)} to {max(raised)}"
        return {"seconds": seconds, "leader_epoch": float(max(raised)), **_costs(led.process, before, answered)}


def _states(session: ZooKeeperSession, targets: Mapping[TopicPartition, tuple[int, ...]]) -> Iterator[LeaderAndIsr]:
    """The states of partitions that must have these replicas in sync."""
    for tp, found in zip(targets, session.get_many([partition_state_path(tp) for tp in targets]), strict=True):
        assert found is not None
        state = decode_partition_state(tp, found[0], found[1].version).leader_and_isr
        assert set(state.isr) == set(targets[tp]), f"{tp} has ISR {state.isr}, not {targets[tp]}"
        yield state


def delete(program: str, shape: Shape, address: str, folder: Path) -> dict[str, Any]:
    """The deletion of all topics at once."""
    with _led(program, shape, address, folder) as led:
        before, began = led.process.cpu_s, time.monotonic()
        markers = [Create(f"{ADMIN_DELETE_TOPICS}/{name_of(topic)}") for topic in range(shape.topics)]
        outcome = led.session.transaction(markers)
        assert outcome.error is None, outcome.error
        seconds = max(led.gone(topic_path(name_of(topic))) for topic in range(shape.topics)) - began
        return {"seconds": seconds, **_costs(led.process, before, led.fleet.ask("forget 0"))}


def create(program: str, shape: Shape, address: str, folder: Path) -> dict[str, Any]:
    """The creation of topics while the controller is elected anew, again and again."""
    names = [name_of(topic) for topic in range(1, shape.topics + 1)]
    with _led(program, Shape(1, shape.partitions, shape.brokers), address, folder) as led:
        broker = decode_broker(shape.brokers[0], led.session.get(broker_path(shape.brokers[0]))[0]).endpoints[0]
        admin = AdminClient({"bootstrap.servers": f"{broker.host}:{broker.port}", "log_level": 0})
        before, began = led.process.cpu_s, time.monotonic()
        acknowledged = set[str]()
        groups = [names[at : at + REQUEST_TOPICS] for at in range(0, len(names), REQUEST_TOPICS)]
        elections = {len(groups) * number // (ELECTIONS + 1) for number in range(1, ELECTIONS + 1)}
        for number, group in enumerate(groups):
            if number in elections:
                led.session.delete(CONTROLLER)
            _create_topics(admin, group, shape.partitions)
            acknowledged.update(group)
        answered = led.fleet.ask(f"know {(shape.topics + 1) * shape.partitions}")
        seconds = answered["last"]["UpdateMetadata"] - began
        assert set(led.session.children(TOPICS)) >= acknowledged, "an acknowledged topic does not exist"
        tps = [TopicPartition(name, p) for name in names for p in range(shape.partitions)]
        states = led.session.get_many([partition_state_path(tp) for tp in tps])
        half = [tp for tp, state in zip(tps, states, strict=True) if state is None]
        assert not half, f"{len(half)} partitions have no state, {half[0]} among them"
        return {"seconds": seconds, **_costs(led.process, before, answered)}


def _create_topics(admin: AdminClient, names: Sequence[str], partitions: int) -> None:
    """Create topics, and try those again that no controller has acknowledged."""
    deadline = time.monotonic() + WAIT_S
    left = list(names)
    while left:
        futures = admin.create_topics([NewTopic(name, partitions, REPLICAS) for name in left])
        left = []
        for name, future in futures.items():
            try:
                future.result(WAIT_S)
            except KafkaException as e:
                if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    left.append(name)
        if left and time.monotonic() > deadline:
            raise TimeoutError(f"topics are not created after {WAIT_S:g} s: {left}")


def _costs(process: ControllerProcess, cpu_before: float, answered: Mapping[str, Any]) -> dict[str, Any]:
    """What the work has taken, with its requests in all and by API."""
    return {
        "cpu_s": process.cpu_s - cpu_before,
        "peak_mib": process.peak_mib,
        "requests": float(sum(answered["requests"].values())),
        "bytes": float(sum(answered["bytes"].values())),
        "by_api": answered["requests"],
    }


LOADS: Final[Mapping[str, Load]] = {
    "failover": failover,
    "start": start,
    "burst": burst,
    "reassign": reassign,
    "delete": delete,
    "create": create,
}


def goals(shapes: Mapping[str, Shape] = SHAPES, groups: Iterable[str] = GROUPS) -> list[Goal]:
    """The rows."""
    rows: Sequence[tuple[str, str, str, str, float | None]] = [
        ("failover", "failover of a broker", "s", "seconds", 0.5),
        ("failover", "CPU of a failover", "s", "cpu_s", None),
        ("failover", "the first failover of the process", "s", "first_seconds", 0.5),
        ("failover", "CPU of the first failover", "s", "first_cpu_s", None),
        ("failover", "peak memory", "MiB", "peak_mib", 0.1),
        ("start", "start of a controller", "s", "seconds", 1.0),
        ("start", "CPU of the start", "s", "cpu_s", None),
        ("start", "peak memory", "MiB", "peak_mib", None),
        ("burst", f"failover of {TOGETHER} brokers at once", "s", "seconds", 0.5),
        ("burst", "CPU of that failover", "s", "cpu_s", 0.5),
        ("burst", "requests of that failover", "", "requests", 1.0),
        ("burst", "bytes of that failover", "", "bytes", 1.0),
        ("reassign", f"{REASSIGNED:,} reassignments", "s", "seconds", 1.0),
        ("reassign", "CPU of the reassignments", "s", "cpu_s", None),
        ("reassign", "requests of the reassignments", "", "requests", 1.0),
        ("reassign", "bytes of the reassignments", "", "bytes", 1.0),
        ("reassign", "leader epoch of each partition", "", "leader_epoch", 1.0),
        ("reassign", "peak memory during reassignments", "MiB", "peak_mib", None),
        ("delete", "deletion of all topics at once", "s", "seconds", 1.0),
        ("delete", "CPU of the deletion", "s", "cpu_s", None),
        ("delete", "requests of the deletion", "", "requests", 1.0),
        ("create", f"creation of {{topics:,}} topics with {ELECTIONS} elections", "s", "seconds", 1.0),
        ("create", "CPU of the creation", "s", "cpu_s", None),
    ]
    found = [
        Goal(
            "controller" if load in GROUPS["controller"] else load, what.format(topics=shapes[load].topics),
            f"{len(shapes[load].brokers)} brokers, {shapes[load].total:,} partitions", unit,
            f"kproto {load} {field}", f"kafka {load} {field}", "Kafka", limit,
        )
        for load, what, unit, field, limit in rows
    ]  # fmt: skip
    case = found[[row[0] for row in rows].index("reassign")].case
    found.append(
        Goal("reassign", "peak memory during reassignments, alone", case, "MiB", "kproto reassign peak_mib", limit=200)
    )
    return [goal for goal in found if goal.group in groups]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=3)
    arguments.add_argument("--quick", action="store_true", help="one small pair, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    arguments.add_argument("--only", choices=tuple(GROUPS), nargs="+", default=tuple(GROUPS), help="some groups")
    arguments.add_argument("--program", choices=PROGRAMS, help="one program, for work on it; keeps no result")
    options = arguments.parse_args()
    shapes = QUICK if options.quick else SHAPES
    programs = PROGRAMS if options.program is None else (options.program,)
    with tempfile.TemporaryDirectory() as scratch, zookeeper(Path(scratch) / "zookeeper") as address:
        return max([_measure(group, programs, shapes, options, address, Path(scratch)) for group in options.only])


def _measure(
    group: str,
    programs: Sequence[str],
    shapes: Mapping[str, Shape],
    options: argparse.Namespace,
    address: str,
    scratch: Path,
) -> int:
    """Measure the loads of one group in pairs, and print their rows; gives the exit code."""
    loads = GROUPS[group]
    at_start, failed = machine("java"), list[str]()
    rounds, runs = list[dict[str, float]](), list[dict[str, Any]]()
    pairs = 1 if options.quick else options.pairs
    if "start" in loads:
        write_topics(f"{address}/start", shapes["start"])
    for number in range(1, pairs + 1):
        found: dict[str, float] = {}
        rounds.append(found)
        for load, program in itertools.product(loads, programs):
            name, folder = f"{load}, {program}, pair {number}", scratch / f"{load}-{program}-{number}"
            print(f"{name} of {pairs}", file=sys.stderr, flush=True)
            chroot = "start" if load == "start" else folder.name
            try:
                run = LOADS[load](program, shapes[load], f"{address}/{chroot}", folder)
            except (OSError, ChannelError, AssertionError, subprocess.SubprocessError) as e:
                failed.append(f"{name}: {e}")
                continue
            runs.append({"program": program, "load": load, "pair": number, **run})
            found |= {f"{program} {load} {key}": value for key, value in run.items() if isinstance(value, float)}
    wanted = {(program, load) for program in programs for load in loads}
    measured = [
        goal
        for goal in goals(shapes, [group])
        if wanted >= {tuple(key.split()[:2]) for key in (goal.ours, goal.theirs) if key is not None}
    ]
    command = "controller" if group == "controller" else f"controller-{group}"
    return finish(
        command, measured, rounds, at_start, failed, options, keep=programs == PROGRAMS,
        settings={"pairs": pairs, "heap": HEAP}, runs=runs,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
