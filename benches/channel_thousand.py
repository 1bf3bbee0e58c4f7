"""A thousand embedded brokers and their controller in one process: time, memory, threads and descriptors they take.

    python benches/channel_thousand.py [--processes 3] [--quick] [--json FILE]

An UpdateMetadata of 20,000 partitions goes to every broker, over real sockets; then nothing happens for five seconds,
and all ends. Rows show medians over the processes. Ends with 1 if a limit is missed or a process fails. The figures go
to benches/results/thousand.json; --quick runs one process with a hundred brokers, judges no limit and writes no file.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures import Goal, finish, options_of
from measure import machine

from channel.broker.cluster import EmbeddedCluster
from channel.config import ChannelConfig
from channel.lead.events import ControllerBrokerRequestBatch
from channel.send.context import ControllerContext
from channel.send.manager import ControllerChannelManager
from channel.types import Broker, EndPoint, LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.lead.events import ControllerEvent
    from channel.send.encoded_requests import ControlRequest

IDLE_S = 5.0


class Counted:
    """Sends through the channel manager and counts the answers."""

    def __init__(self, manager: ControllerChannelManager) -> None:
        self._manager = manager
        self.answers = threading.Semaphore(0)

    def send_request(
        self, broker_id: int, request: ControlRequest, callback: Callable[[Any], None] | None = None
    ) -> None:
        self._manager.send_request(broker_id, request, lambda _: self.answers.release())

    def put(self, event: ControllerEvent) -> None:
        raise AssertionError(f"no event is expected: {event}")


def fill(context: ControllerContext, partitions: int) -> None:
    """Topics of twenty partitions with three replicas each."""
    brokers = sorted(context.live_broker_ids)
    names = [f"topic-{i:05d}" for i in range(partitions // 20)]
    context.set_all_topics(names)
    for i, name in enumerate(names):
        context.add_topic_id(name, (i + 1).to_bytes(16, "big"))
        for p in range(20):
            replicas = tuple(brokers[(i + p + k) % len(brokers)] for k in range(3))
            tp = TopicPartition(name, p)
            context.update_partition_full_replica_assignment(tp, ReplicaAssignment(replicas))
            context.put_partition_leadership_info(
                tp, LeaderIsrAndControllerEpoch(LeaderAndIsr(replicas[0], replicas), 1)
            )


def once(brokers: int, partitions: int) -> dict[str, float]:
    """The result of one process."""
    with EmbeddedCluster(brokers) as cluster:
        context = ControllerContext()
        context.epoch = 1
        live = {Broker(m.id, (EndPoint(m.host, m.port),)): m.epoch for m in cluster}
        context.set_live_brokers(live)
        fill(context, partitions)
        threads, files = threading.active_count(), open_files()
        manager = ControllerChannelManager(1, lambda: context.epoch)
        manager.start(live)
        sender = Counted(manager)
        batch = ControllerBrokerRequestBatch(1, ChannelConfig(), sender, sender.put, context)
        began, cpu = time.perf_counter(), time.process_time()
        batch.new_batch()
        batch.add_update_metadata_request_for_brokers(range(brokers), list(context.partitions_with_leaders))
        batch.send_requests_to_brokers(1)
        for _ in range(brokers):
            if not sender.answers.acquire(timeout=300):
                raise TimeoutError("a broker did not answer")
        figures = {
            "update_s": time.perf_counter() - began,
            "update_cpu_s": time.process_time() - cpu,
            "threads": threading.active_count() - threads,
            "descriptors": (open_files() - files) / brokers,
            "open_files": open_files(),
        }
        idle = time.process_time()
        time.sleep(IDLE_S)
        figures["idle_percent"] = 100 * (time.process_time() - idle) / IDLE_S
        began = time.perf_counter()
        manager.close()
    figures["shutdown_s"] = time.perf_counter() - began
    figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def goals(brokers: int, partitions: int) -> list[Goal]:
    """The rows. A broker's connection is two descriptors here, one at each end."""
    case = f"{brokers:,} brokers"
    rows: list[tuple[str, str, str, float | None]] = [
        (f"UpdateMetadata of {partitions:,} partitions to every broker", "s", "update_s", None),
        ("its CPU", "s", "update_cpu_s", None),
        ("descriptors for a broker's connection, both ends", "", "descriptors", 2.1),
        ("threads of the controller", "", "threads", None),
        ("open files of the process", "", "open_files", None),
        ("CPU of a core when idle", "%", "idle_percent", 5),
        ("peak memory", "MiB", "peak_mib", 2048),
        ("shutdown", "s", "shutdown_s", 5),
    ]
    return [Goal("thousand", what, case, unit, field, limit=limit) for what, unit, field, limit in rows]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--processes", type=int, default=3)
    arguments.add_argument("--quick", action="store_true", help="one process with a hundred brokers, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    arguments.add_argument("--once", nargs=2, type=int, metavar=("BROKERS", "PARTITIONS"), help=argparse.SUPPRESS)
    options = options_of(arguments)
    if options.once:
        print(json.dumps(once(*options.once)))
        return 0
    brokers, partitions, processes = (100, 2_000, 1) if options.quick else (1_000, 20_000, options.processes)
    at_start, failures, rounds = machine(), list[str](), list[dict[str, float]]()
    for number in range(1, processes + 1):
        print(f"{brokers:,} brokers: process {number} of {processes}", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--once", str(brokers), str(partitions)]
        try:
            out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600).stdout
            rounds.append(json.loads(out))
        except (subprocess.SubprocessError, ValueError) as e:
            failures.append(f"process {number}: {e}")
            rounds.append({})
    wanted = goals(brokers, partitions)
    settings = {"processes": processes}
    return finish("thousand", wanted, rounds, at_start, failures, options, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
