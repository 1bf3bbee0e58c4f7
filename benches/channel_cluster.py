"""The cluster whose channel is measured, and what a measurement notes; ``peers/channel/README.md`` says how it looks.

Garbage collector and logging are at their defaults, as on Kafka's side.
"""

from __future__ import annotations

import json
import resource
import threading
import time
from typing import TYPE_CHECKING, Any

from channel.clock import SYSTEM_CLOCK
from channel.config import ChannelConfig
from channel.lead.events import ControllerBrokerRequestBatch, ControllerEvent, ControllerEventManager
from channel.metrics import Metrics
from channel.send.context import ControllerContext
from channel.send.encoded_requests import ControlRequest, SingleRequest
from channel.send.manager import ControllerChannelManager
from channel.types import Broker, EndPoint, LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from kproto.messages import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONTROLLER, EPOCH = 1001, 7
PATIENCE_S = 300


class Latch:
    """Counts answers down; ``last`` is when the last one came, in ns."""

    def __init__(self, count: int) -> None:
        self.count, self.last = count, 0
        self._lock, self._done = threading.Lock(), threading.Event()

    def down(self, _: object = None) -> None:
        with self._lock:
            self.count -= 1
            if not self.count:
                self.last = time.perf_counter_ns()
                self._done.set()

    def wait(self) -> None:
        if not self._done.wait(PATIENCE_S):
            raise TimeoutError(f"{self.count} answers did not come within {PATIENCE_S} s")


class Cluster:
    """A controller that knows all partitions, connected to the brokers of the sink.

    Args:
        ports: One port a broker.
        topics, partitions: Number of topics, and of partitions of each.
        sender: Takes the batch's requests in the channel manager's place.
        manager: Arguments for the channel manager.
    """

    def __init__(self, ports: Sequence[int], topics: int, partitions: int, sender: Any = None, **manager: Any) -> None:
        n = len(ports)
        self.brokers = [Broker(i, (EndPoint("127.0.0.1", port),)) for i, port in enumerate(ports)]
        self.ids = list(range(n))
        self.context = ControllerContext()
        self.context.set_live_brokers({b: 1000 + b.id for b in self.brokers})
        names = [f"topic-{t:05d}" for t in range(topics)]
        self.context.set_all_topics(names)
        self.all = [TopicPartition(name, p) for name in names for p in range(partitions)]
        for i, name in enumerate(names):
            self.context.add_topic_id(name, (0x1234567890ABCDEF << 64 | i + 1).to_bytes(16, "big"))
        for k, tp in enumerate(self.all):
            replicas = tuple((k + r) % n for r in range(min(3, n)))
            self.context.update_partition_full_replica_assignment(tp, ReplicaAssignment(replicas))
            leadership = LeaderIsrAndControllerEpoch(LeaderAndIsr(replicas[0], replicas), EPOCH)
            self.context.put_partition_leadership_info(tp, leadership)
        self.latch = Latch(0)
        metrics = Metrics()
        self.channel = ControllerChannelManager(CONTROLLER, lambda: EPOCH, metrics=metrics, **manager)
        self.events = ControllerEventManager(CONTROLLER, self, SYSTEM_CLOCK, metrics)
        self.batch = ControllerBrokerRequestBatch(
            CONTROLLER, ChannelConfig(), sender or self.channel, self.events.put, self.context
        )

    def process(self, event: ControllerEvent) -> None:
        self.latch.down()

    def preempt(self, event: ControllerEvent) -> None:
        pass

    def __enter__(self) -> Cluster:
        """Connect: an UpdateMetadata without partitions to every broker."""
        self.events.start()
        self.channel.start(self.brokers)
        self.latch = Latch(len(self.ids))
        self.batch.new_batch()
        self.batch.add_update_metadata_request_for_brokers(self.ids)
        self.batch.send_requests_to_brokers(EPOCH)
        self.latch.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        self.events.close()

    def add_everything(self) -> None:
        """A new batch with an UpdateMetadata of every partition for every broker."""
        self.batch.new_batch()
        self.batch.add_update_metadata_request_for_brokers(self.ids, self.all)

    def add_leader_and_isr(self, tp: TopicPartition) -> None:
        """A LeaderAndIsr of one partition for its replicas, and so an UpdateMetadata for every broker."""
        assignment = self.context.partition_full_replica_assignment(tp)
        leadership = self.context.partition_leadership_info(tp)
        assert leadership is not None
        self.batch.add_leader_and_isr_request_for_brokers(assignment.replicas, tp, leadership, assignment, False)

    def leader_and_isr(self, i: int, broker_id: int) -> ControlRequest:
        """A LeaderAndIsr request of one partition, made from the context for this one sending."""
        tp = self.all[i % len(self.all)]
        leadership = self.context.partition_leadership_info(tp)
        assert leadership is not None
        state, epoch = leadership
        endpoint = self.brokers[state.leader].endpoints[0]
        row = LeaderAndIsrPartitionState(
            partition_index=tp.partition,
            controller_epoch=epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
            replicas=self.context.partition_replica_assignment(tp),
        )
        topic = LeaderAndIsrTopicState(
            topic_name=tp.topic, topic_id=self.context.topic_ids[tp.topic], partition_states=[row]
        )
        message = LeaderAndIsrRequest(
            controller_id=CONTROLLER,
            controller_epoch=EPOCH,
            broker_epoch=1000 + broker_id,
            topic_states=[topic],
            live_leaders=[LeaderAndIsrLiveLeader(broker_id=state.leader, host_name=endpoint.host, port=endpoint.port)],
        )
        return SingleRequest(message, 7)


def emit(**values: object) -> None:
    """Print one figure's line."""
    print(json.dumps({k: round(v, 6) if isinstance(v, float) else v for k, v in values.items()}), flush=True)


def measured(what: str, number: int, body: Callable[[], dict[str, Any]]) -> None:
    """Emit a round: what it gives, and the CPU time of the whole process, user and system."""
    cpu = time.process_time_ns()
    figures = body()
    cpu = time.process_time_ns() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    emit(what=what, round=number, **figures, cpu_s=cpu / 1e9, hwm=peak)


def percentiles(ns: list[int]) -> dict[str, float]:
    """Latencies in µs."""
    ns.sort()
    shares = (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999))
    return {k: ns[min(len(ns) - 1, int(len(ns) * p))] / 1e3 for k, p in shares} | {"max_us": ns[-1] / 1e3}
