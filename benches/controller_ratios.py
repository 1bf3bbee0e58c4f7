"""kproto's controller beside Kafka's own: failovers, starts, reassignments, creations and deletions of topics.

    python benches/controller_ratios.py [--pairs N] [--quick] [--only GROUP ...] [--json FILE]

Both lead the same fleet of simulated brokers (``kproto brokers --zookeeper``, in a process of its own) from the same
ZooKeeper, with topics that were written before: `kproto controller` in the one run, a real broker of Kafka 3.9.1 in the
other. A pair is a new process of each, in turn; Kafka's has the options and the heap of Kafka's own scripts, and both
log a line for each request.

Failover: brokers end one after the other: a broker's port is closed and its id znode deleted; from there until the last
answer to a LeaderAndIsr. A JVM gets faster with each, so the first failover and the median of the last ones are rows of
their own. Start: from the creation of /controller until the last answer to an UpdateMetadata, with all partitions known
to every broker. Times are taken at the brokers, CPU is that of the controller's process until all requests are
answered, memory its largest resident set.

At size: one start over 50,000 partitions, the failover of one broker, then of twenty that end at once;
/admin/reassign_partitions names a thousand partitions, until the znode is gone; the deletion of every topic is
requested at once, until no broker knows a partition; topics are created by CreateTopics while /controller is deleted
three times, until every topic has its leaders. A thousand brokers are led by kproto alone: each of Kafka's thousand
send threads holds a request of 200,000 partitions of its own, which is more than its heap.

A group is measured in two pairs (controller) or one (the groups at size), unless --pairs says otherwise. Ends with 1
if a limit is missed, a row is not measured or a program fails. The figures and every round go to
benches/results/controller.json and controller-GROUP.json (GROUP: large, reassign, delete, create, thousand); --quick
runs small pairs, judges no limit and writes no file.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
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
from figures import Goal, finish, options_of, settled
from measure import machine

from channel.zookeeper.cluster_state import read_controller_epoch
from channel.zookeeper.session import Create, ZooKeeperSession
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
    "large": Shape(500, 100, range(100, 300)),
    "reassign": Shape(500, 100, range(100, 300)),
    "delete": Shape(500, 20, range(100, 150)),
    "create": Shape(1_000, 5, range(100, 120)),
    "thousand": Shape(2_000, 100, range(1_000, 2_000)),
}
QUICK: Mapping[str, Shape] = {
    "failover": Shape(20, 20, range(100, 110)),
    "start": Shape(50, 100, range(100, 104)),
    "large": Shape(20, 20, range(100, 130)),
    "reassign": Shape(20, 20, range(100, 110)),
    "delete": Shape(20, 5, range(100, 110)),
    "create": Shape(60, 3, range(100, 105)),
    "thousand": Shape(20, 20, range(100, 130)),
}
AT_SIZE = ("large", "reassign", "delete", "create", "thousand")
GROUPS: Mapping[str, Sequence[str]] = {"controller": ("failover", "start"), **{load: (load,) for load in AT_SIZE}}
"""The loads of each result file."""

ALONE = "thousand"
"""The group that is measured without Kafka."""

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
    failures = min(FAILURES, len(shape.brokers) // APART)
    with _led(program, shape, address, folder) as led:
        rounds = [_fail(led, shape, [broker]) for broker in shape.brokers[: failures * APART : APART]]
    return {
        "seconds": settled([found["seconds"] for found in rounds]),
        "cpu_s": settled([found["cpu_s"] for found in rounds]),
        "first_seconds": rounds[0]["seconds"],
        "first_cpu_s": rounds[0]["cpu_s"],
        "requests": settled([found["requests"] for found in rounds]),
        "bytes": settled([found["bytes"] for found in rounds]),
        "peak_mib": rounds[-1]["peak_mib"],
        "rounds": rounds,
    }


def _fail(led: Led, shape: Shape, failed: Sequence[int]) -> dict[str, Any]:
    """What the failover of brokers takes that end at once."""
    before = led.process.cpu_s
    answered = led.fleet.ask(f"fail {','.join(map(str, failed))}")
    costs = _costs(led.process, before, answered)
    for broker_id in failed:
        check_failover(led.session, shape, broker_id)
    return {"seconds": answered["last"]["LeaderAndIsr"] - answered["began"], **costs}


def start(program: str, shape: Shape, address: str, folder: Path) -> dict[str, Any]:
    """The start of one controller over topics that exist."""
    with _led(program, shape, address, folder, write=False) as led:
        return led.began


@contextlib.contextmanager
def _led(program: str, shape: Shape, address: str, folder: Path, *, write: bool = True) -> Iterator[Led]:
    """Brokers that know the topics of a shape, and the controller that leads them."""
    if write:
        write_topics(address, shape)
    with (
        ZooKeeperSession(address) as session,
        fleet_process(address, shape.brokers) as fleet,
        controller(program, address, folder) as process,
    ):
        process.await_election(session)
        answered = fleet.ask(f"know {shape.total}")
        costs = _costs(process, process.cpu_at_election, answered)
        yield Led(session, fleet, process, {"seconds": answered["last"]["UpdateMetadata"] - process.elected, **costs})


class Led(NamedTuple):
    """A session beside a controller that leads, its brokers, its process, and what its start has taken."""

    session: ZooKeeperSession
    fleet: FleetProcess
    process: ControllerProcess
    began: dict[str, Any]

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


def large(program: str, shape: Shape, address: str, folder: Path) -> dict[str, Any]:
    """The start of a controller, the failover of one broker, then of twenty that end at once."""
    first, *others = shape.brokers[::APART][: TOGETHER + 1]
    with _led(program, shape, address, folder) as led:
        one = _fail(led, shape, [first])
        many = _fail(led, shape, others)
        found = {"start": led.began, "one": one, "many": many}
        return {f"{event}_{key}": value for event, costs in found.items() for key, value in costs.items()}


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
                _depose(led.session)
            _create_topics(admin, [_new_topic(shape, name) for name in group])
            acknowledged.update(group)
        answered = led.fleet.ask(f"know {(shape.topics + 1) * shape.partitions}")
        seconds = answered["last"]["UpdateMetadata"] - began
        assert set(led.session.children(TOPICS)) >= acknowledged, "an acknowledged topic does not exist"
        tps = [TopicPartition(name, p) for name in names for p in range(shape.partitions)]
        states = led.session.get_many([partition_state_path(tp) for tp in tps])
        half = [tp for tp, state in zip(tps, states, strict=True) if state is None]
        assert not half, f"{len(half)} partitions have no state, {half[0]} among them"
        return {"seconds": seconds, **_costs(led.process, before, answered)}


def _depose(session: ZooKeeperSession) -> None:
    """Have the controller elected anew; the election before may still be under way."""
    deadline = time.monotonic() + WAIT_S
    while session.exists(CONTROLLER) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no controller was elected in {WAIT_S:g} s")
        time.sleep(0.01)
    session.delete(CONTROLLER)


def _new_topic(shape: Shape, name: str) -> NewTopic:
    """A topic with replicas on the simulated brokers alone: the broker that is Kafka's controller is to get none."""
    number = int(name.rpartition("-")[2])
    assignment = [list(shape.replicas(number, p)) for p in range(shape.partitions)]
    return NewTopic(name, num_partitions=shape.partitions, replica_assignment=assignment)


def _create_topics(admin: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Create topics, and try those again that no controller has acknowledged."""
    deadline = time.monotonic() + WAIT_S
    left = {topic.topic: topic for topic in topics}
    while left:
        for name, future in admin.create_topics(list(left.values())).items():
            try:
                future.result(WAIT_S)
            except KafkaException as e:
                if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
            del left[name]
        if left and time.monotonic() > deadline:
            raise TimeoutError(f"topics are not created after {WAIT_S:g} s: {sorted(left)}")


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
    "large": large,
    "reassign": reassign,
    "delete": delete,
    "create": create,
    "thousand": large,
}


_COSTS: Final = (("seconds", "", "s"), ("cpu_s", "CPU of the ", "s"), ("requests", "requests of the ", ""),
                 ("bytes", "bytes of the ", ""))  # fmt: skip
"""What is measured of an event: the field, the beginning of its row, and its unit."""


def goals(shapes: Mapping[str, Shape] = SHAPES, groups: Iterable[str] = GROUPS) -> list[Goal]:
    """The rows."""
    rows: list[tuple[str, str, str, str, float | None]] = [
        ("failover", "failover of a broker", "s", "seconds", 0.5),
        ("failover", "CPU of a failover", "s", "cpu_s", None),
        ("failover", "requests of a failover", "", "requests", 1.0),
        ("failover", "bytes of a failover", "", "bytes", 1.0),
        ("failover", "the first failover of the process", "s", "first_seconds", 0.5),
        ("failover", "CPU of the first failover", "s", "first_cpu_s", None),
        ("failover", "peak memory", "MiB", "peak_mib", 0.1),
        ("start", "start of a controller", "s", "seconds", 1.0),
        ("start", "CPU of the start", "s", "cpu_s", None),
        ("start", "requests of the start", "", "requests", 1.0),
        ("start", "bytes of the start", "", "bytes", 1.0),
        ("start", "peak memory", "MiB", "peak_mib", None),
        ("reassign", f"{REASSIGNED:,} reassignments", "s", "seconds", 1.0),
        ("reassign", "CPU of the reassignments", "s", "cpu_s", None),
        ("reassign", "requests of the reassignments", "", "requests", 1.0),
        ("reassign", "bytes of the reassignments", "", "bytes", 1.0),
        ("reassign", "leader epoch of each partition", "", "leader_epoch", 1.0),
        ("reassign", "peak memory during reassignments", "MiB", "peak_mib", None),
        ("delete", "deletion of all topics at once", "s", "seconds", 1.0),
        ("delete", "CPU of the deletion", "s", "cpu_s", None),
        ("delete", "requests of the deletion", "", "requests", 1.0),
        ("delete", "bytes of the deletion", "", "bytes", 1.0),
        ("create", f"creation of {{topics:,}} topics with {ELECTIONS} elections", "s", "seconds", 1.0),
        ("create", "CPU of the creation", "s", "cpu_s", None),
        ("create", "requests of the creation", "", "requests", 1.0),
        ("create", "bytes of the creation", "", "bytes", 1.0),
    ]
    for load, limits in (("large", (0.5, 0.5, 1.0, 1.0)), (ALONE, (None,) * 4)):
        for event, what in (
            ("start", "start of a controller"), ("one", "failover of a broker"),
            ("many", f"failover of {TOGETHER} brokers at once"),
        ):  # fmt: skip
            for (field, of, unit), limit in zip(_COSTS, limits, strict=True):
                rows.append((load, f"{of}{what}", unit, f"{event}_{field}", limit))
        rows.append((load, "peak memory", "MiB", "many_peak_mib", None))
    found = []
    for load, what, unit, field, limit in rows:
        group = "controller" if load in GROUPS["controller"] else load
        case = f"{len(shapes[load].brokers):,} brokers, {shapes[load].total:,} partitions"
        theirs, peer = (None, "") if load == ALONE else (f"kafka {load} {field}", "Kafka")
        what = what.format(topics=shapes[load].topics)
        found.append(Goal(group, what, case, unit, f"kproto {load} {field}", theirs, peer, limit))
    case = found[[row[0] for row in rows].index("reassign")].case
    found.append(
        Goal("reassign", "peak memory during reassignments, alone", case, "MiB", "kproto reassign peak_mib", limit=200)
    )
    return [goal for goal in found if goal.group in groups]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, help="by default 2 of group controller, 1 of the others")
    arguments.add_argument("--quick", action="store_true", help="one small pair, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    arguments.add_argument("--only", choices=tuple(GROUPS), nargs="+", default=tuple(GROUPS), help="some groups")
    arguments.add_argument("--program", choices=PROGRAMS, help="one program, for work on it; keeps no result")
    options = options_of(arguments)
    shapes = QUICK if options.quick else SHAPES
    with tempfile.TemporaryDirectory() as scratch, zookeeper(Path(scratch) / "zookeeper") as address:
        return max([_measure(group, shapes, options, address, Path(scratch)) for group in options.only])


def _measure(
    group: str,
    shapes: Mapping[str, Shape],
    options: argparse.Namespace,
    address: str,
    scratch: Path,
) -> int:
    """Measure the loads of one group in pairs, and print their rows; gives the exit code."""
    loads = GROUPS[group]
    all_programs = PROGRAMS[:1] if group == ALONE else PROGRAMS
    programs = all_programs if options.program is None else (options.program,)
    at_start, failed = machine("java"), list[str]()
    rounds, runs = list[dict[str, float]](), list[dict[str, Any]]()
    pairs = 1 if options.quick else options.pairs or (2 if group == "controller" else 1)
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
            except Exception as e:  # noqa: BLE001 - the other programs and groups are measured all the same
                failed.append(f"{name}: {type(e).__name__}: {e}")
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
        command, measured, rounds, at_start, failed, options, keep=programs == all_programs,
        settings={"pairs": pairs, "heap": HEAP}, runs=runs,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
