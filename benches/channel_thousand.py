"""A thousand embedded brokers in one process, and a controller with a send thread for each: what do they take?

    python benches/channel_thousand.py [brokers] [partitions]

Prints one JSON object: seconds from new_batch to the last answer, CPU, peak memory, open files, idle CPU, and how long
the shutdown takes.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from channel.broker.cluster import EmbeddedCluster
from channel.config import ChannelConfig
from channel.controller.batch import ControllerBrokerRequestBatch
from channel.controller.context import ControllerContext
from channel.controller.manager import ControllerChannelManager
from channel.types import Broker, EndPoint, LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.controller.events import ControllerEvent
    from channel.controller.requests import ControlRequest

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


def main(brokers: int = 1000, partitions: int = 20_000) -> None:
    with EmbeddedCluster(brokers) as cluster:
        context = ControllerContext()
        context.epoch = 1
        live = {Broker(m.id, (EndPoint(m.host, m.port),)): m.epoch for m in cluster}
        context.set_live_brokers(live)
        fill(context, partitions)
        manager = ControllerChannelManager(1, lambda: context.epoch)
        manager.startup(live)
        sender = Counted(manager)
        batch = ControllerBrokerRequestBatch(1, ChannelConfig(), sender, sender, lambda: context)
        began, cpu = time.perf_counter(), time.process_time()
        batch.new_batch()
        batch.add_update_metadata_request_for_brokers(range(brokers), list(context.partitions_with_leaders))
        batch.send_requests_to_brokers(1)
        for _ in range(brokers):
            if not sender.answers.acquire(timeout=300):
                raise TimeoutError("a broker did not answer")
        wall, used = time.perf_counter() - began, time.process_time() - cpu
        idle = time.process_time()
        time.sleep(IDLE_S)
        figures = {
            "brokers": brokers,
            "partitions": partitions,
            "update_s": round(wall, 2),
            "update_cpu_s": round(used, 2),
            "idle_cpu_share": round((time.process_time() - idle) / IDLE_S, 4),
            "threads": threading.active_count(),
            "open_files": len(list(Path("/proc/self/fd").iterdir())),
            "snapshots": len({id(m.broker.metadata.snapshot) for m in cluster}),
        }
        began = time.perf_counter()
        manager.shutdown()
    figures["shutdown_s"] = round(time.perf_counter() - began, 2)
    figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
