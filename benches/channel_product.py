"""The product's side of the channel's measurements: the same work as Kafka's own classes do, against the same sink.

    python benches/channel_product.py what=fanout|small|build|memory|retry ports=20000,20001 control=19999 \\
        topics=1000 partitions=20 rounds=5 total=20000 gap_ms=300

Prints one JSON object a line. Times are CLOCK_MONOTONIC; CPU is the whole process's, user and system.
"""

from __future__ import annotations

import gc
import json
import queue
import resource
import socket
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from channel.clock import SYSTEM_CLOCK
from channel.config import ChannelConfig
from channel.controller.batch import ControllerBrokerRequestBatch
from channel.controller.context import ControllerContext
from channel.controller.events import ControllerEvent, ControllerEventManager
from channel.controller.manager import ControllerChannelManager
from channel.controller.requests import ControlRequest, SingleRequest
from channel.metrics import Metrics
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


def emit(**values: object) -> None:
    print(json.dumps({k: round(v, 6) if isinstance(v, float) else v for k, v in values.items()}), flush=True)


def status(key: str) -> int:
    with Path("/proc/self/status").open() as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))


class Latch:
    """Counts down; ``last`` is when it reached zero, in ns."""

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
        if not self._done.wait(300):
            raise TimeoutError("no replies")


class Cluster:
    """The cluster that is measured; its README says how it looks."""

    def __init__(self, ports: Sequence[int], topics: int, partitions: int, sender: Any = None) -> None:
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
        self._leaders = [
            LeaderAndIsrLiveLeader(broker_id=b.id, host_name=b.endpoints[0].host, port=b.endpoints[0].port)
            for b in self.brokers
        ]
        self.latch = Latch(0)
        metrics = Metrics()
        self.channel = ControllerChannelManager(CONTROLLER, lambda: EPOCH, metrics=metrics)
        self.events = ControllerEventManager(CONTROLLER, self, SYSTEM_CLOCK, metrics)
        self.batch = ControllerBrokerRequestBatch(
            CONTROLLER, ChannelConfig(), sender or self.channel, self.events, lambda: self.context
        )

    def process(self, event: ControllerEvent) -> None:
        self.latch.down()

    def preempt(self, event: ControllerEvent) -> None:
        pass

    def __enter__(self) -> Cluster:
        self.events.start()
        self.channel.startup(self.brokers)
        self.latch = Latch(len(self.ids))
        self.batch.new_batch()
        self.batch.add_update_metadata_request_for_brokers(self.ids)
        self.batch.send_requests_to_brokers(EPOCH)
        self.latch.wait()
        gc.collect()
        gc.freeze()  # the cluster's own objects; what a round makes is collected as ever
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.shutdown()
        self.events.close()

    def leader_and_isr(self, i: int, broker_id: int) -> ControlRequest:
        """A LeaderAndIsr request of one partition, made from the context as the batch would."""
        tp = self.all[i % len(self.all)]
        leadership = self.context.partition_leadership_info(tp)
        assert leadership is not None
        state, epoch = leadership
        replicas = self.context.partition_replica_assignment(tp)
        row = LeaderAndIsrPartitionState(
            partition_index=tp.partition,
            controller_epoch=epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
            replicas=replicas,
        )
        message = LeaderAndIsrRequest(
            controller_id=CONTROLLER,
            controller_epoch=EPOCH,
            broker_epoch=1000 + broker_id,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=tp.topic, topic_id=self.context.topic_ids[tp.topic], partition_states=[row]
                )
            ],
            live_leaders=[self._leaders[state.leader]],
        )
        return SingleRequest(message, 7)


def measured(what: str, number: int, body: Callable[[], dict[str, Any]], **shape: object) -> None:
    cpu, usage = time.process_time_ns(), resource.getrusage(resource.RUSAGE_SELF)
    figures = body()
    cpu = time.process_time_ns() - cpu
    after = resource.getrusage(resource.RUSAGE_SELF)
    emit(
        what=what,
        round=number,
        **shape,
        **figures,
        cpu_s=cpu / 1e9,
        user_s=after.ru_utime - usage.ru_utime,
        sys_s=after.ru_stime - usage.ru_stime,
        switches=after.ru_nvcsw - usage.ru_nvcsw,
        hwm=status("VmHWM"),
        rss=status("VmRSS"),
    )


def percentiles(ns: list[int]) -> dict[str, float]:
    ns.sort()
    shares = (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999))
    return {k: ns[min(len(ns) - 1, int(len(ns) * p))] / 1e3 for k, p in shares} | {"max_us": ns[-1] / 1e3}


def fanout(cluster: Cluster) -> dict[str, Any]:
    cluster.latch = Latch(len(cluster.ids))
    t0, k0 = time.perf_counter_ns(), time.thread_time_ns()
    cluster.batch.new_batch()
    cluster.batch.add_update_metadata_request_for_brokers(cluster.ids, cluster.all)
    t1, k1 = time.perf_counter_ns(), time.thread_time_ns()
    cluster.batch.send_requests_to_brokers(EPOCH)
    t2, k2 = time.perf_counter_ns(), time.thread_time_ns()
    cluster.latch.wait()
    last = cluster.latch.last
    return {
        "add_s": (t1 - t0) / 1e9,
        "send_s": (t2 - t1) / 1e9,
        "wall_s": (last - t1) / 1e9,
        "wall_with_add_s": (last - t0) / 1e9,
        "add_cpu_s": (k1 - k0) / 1e9,
        "send_cpu_s": (k2 - k1) / 1e9,
    }


def closed(cluster: Cluster, per: int) -> dict[str, Any]:
    """Ten conversations at once, the next request from the callback of the last."""
    latch, ns = Latch(len(cluster.ids)), [[0] * per for _ in cluster.ids]

    def following(broker_id: int, i: int) -> None:
        if i == per:
            latch.down()
            return
        request = cluster.leader_and_isr(i, broker_id)
        began = time.perf_counter_ns()

        def answered(_: object) -> None:
            ns[broker_id][i] = time.perf_counter_ns() - began
            following(broker_id, i + 1)

        cluster.channel.send_request(broker_id, request, answered)

    t = time.perf_counter_ns()
    for broker_id in cluster.ids:
        following(broker_id, 0)
    latch.wait()
    seconds = (latch.last - t) / 1e9
    return {"wall_s": seconds, "per_s": per * len(cluster.ids) / seconds, **percentiles([x for b in ns for x in b])}


def one(cluster: Cluster, per: int) -> dict[str, Any]:
    """One broker, one request at a time, from this thread: the bare latency."""
    ns: list[int] = []
    replies: queue.SimpleQueue[int] = queue.SimpleQueue()
    t0 = time.perf_counter_ns()
    for i in range(per):
        request = cluster.leader_and_isr(i, 0)
        began = time.perf_counter_ns()
        cluster.channel.send_request(0, request, lambda _: replies.put(time.perf_counter_ns()))
        ns.append(replies.get() - began)
    seconds = (time.perf_counter_ns() - t0) / 1e9
    return {"wall_s": seconds, "per_s": per / seconds, **percentiles(ns)}


def burst(cluster: Cluster, total: int) -> dict[str, Any]:
    """Everything into the queues at once."""
    n, latch, ns = len(cluster.ids), Latch(total), [0] * total
    requests = [cluster.leader_and_isr(i, i % n) for i in range(total)]
    t0 = time.perf_counter_ns()
    for i, request in enumerate(requests):

        def answered(_: object, i: int = i, began: int = time.perf_counter_ns()) -> None:
            ns[i] = time.perf_counter_ns() - began
            latch.down()

        cluster.channel.send_request(i % n, request, answered)
    t1 = time.perf_counter_ns()
    latch.wait()
    seconds = (latch.last - t0) / 1e9
    return {"wall_s": seconds, "per_s": total / seconds, "enqueue_s": (t1 - t0) / 1e9, **percentiles(ns)}


def batches(cluster: Cluster, total: int) -> dict[str, Any]:
    """One real batch a partition: LeaderAndIsr to its replicas, UpdateMetadata to all."""
    n = len(cluster.ids)
    each = n + min(3, n)
    count = total // each
    cluster.latch = latch = Latch(count * each)
    t0, k0 = time.perf_counter_ns(), time.thread_time_ns()
    for i in range(count):
        tp = cluster.all[i % len(cluster.all)]
        assignment = cluster.context.partition_full_replica_assignment(tp)
        leadership = cluster.context.partition_leadership_info(tp)
        assert leadership is not None
        cluster.batch.new_batch()
        cluster.batch.add_leader_and_isr_request_for_brokers(assignment.replicas, tp, leadership, assignment, False)
        cluster.batch.send_requests_to_brokers(EPOCH)
    t1, k1 = time.perf_counter_ns(), time.thread_time_ns()
    latch.wait()
    seconds = (latch.last - t0) / 1e9
    return {
        "batches": count,
        "requests": count * each,
        "wall_s": seconds,
        "per_s": count * each / seconds,
        "batch_build_s": (t1 - t0) / 1e9,
        "batch_build_cpu_s": (k1 - k0) / 1e9,
    }


class Kept:
    """Takes requests and keeps them."""

    def __init__(self) -> None:
        self.requests: list[ControlRequest] = []

    def send_request(self, broker_id: int, request: ControlRequest, callback: object = None) -> None:
        self.requests.append(request)


def build(ports: Sequence[int], topics: int, partitions: int, rounds: int, shape: dict[str, Any]) -> None:
    kept = Kept()
    cluster = Cluster(ports, topics, partitions, kept)
    gc.collect()
    gc.freeze()
    batch, count = cluster.batch, len(cluster.all)

    def cpu(work: Callable[[], object]) -> float:
        began = time.thread_time_ns()
        work()
        return (time.thread_time_ns() - began) / 1e9

    def add_all() -> None:
        batch.new_batch()
        batch.add_update_metadata_request_for_brokers(cluster.ids, cluster.all)

    def add_leader_and_isr() -> None:
        batch.new_batch()
        for tp in cluster.all:
            assignment = cluster.context.partition_full_replica_assignment(tp)
            leadership = cluster.context.partition_leadership_info(tp)
            assert leadership is not None
            batch.add_leader_and_isr_request_for_brokers(assignment.replicas, tp, leadership, assignment, False)

    for number in range(rounds):
        kept.requests.clear()
        add, send = cpu(add_all), cpu(lambda: batch.send_requests_to_brokers(EPOCH))
        first, second = kept.requests[0], kept.requests[-1]
        encode, again = cpu(partial(first.build, 8)), cpu(partial(second.build, 8))
        emit(
            what="build-um", round=number, add_s=add, send_s=send, add_ns_partition=add * 1e9 / count,
            send_ns_partition=send * 1e9 / count, send_ns_partition_broker=send * 1e9 / count / len(ports),
            encode_s=encode, encode_ns_partition=encode * 1e9 / count, per_broker_build_s=again,
            per_broker_build_ns_partition=again * 1e9 / count, **shape,
        )  # fmt: skip
        kept.requests.clear()
        add, send = cpu(add_leader_and_isr), cpu(lambda: batch.send_requests_to_brokers(EPOCH))
        emit(
            what="build-lai", round=number, requests=len(kept.requests), add_s=add, send_s=send,
            add_ns_partition=add * 1e9 / count, send_ns_partition=send * 1e9 / count, **shape,
        )  # fmt: skip
    took = time.perf_counter()
    line = str(kept.requests[-1])
    emit(what="failed-send-log-line", cpu_s=time.perf_counter() - took, chars=len(line), **shape)


class Control:
    """The sink's control port."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._lines = self._socket.makefile()

    def __call__(self, line: str) -> Any:
        self._socket.sendall(line.encode() + b"\n")
        return json.loads(self._lines.readline())


def memory(cluster: Cluster, control: Control, shape: dict[str, Any]) -> None:
    """Every broker holds its answer back: what is in memory meanwhile."""
    gc.collect()
    before = status("VmRSS")
    control("delay 120000000")
    control("reset")
    cluster.latch = Latch(len(cluster.ids))
    cluster.batch.new_batch()
    cluster.batch.add_update_metadata_request_for_brokers(cluster.ids, cluster.all)
    cluster.batch.send_requests_to_brokers(EPOCH)
    while (stats := control("stats"))["requests"] < len(cluster.ids):
        time.sleep(0.02)
    gc.collect()
    alive = status("VmRSS")
    emit(
        what="memory", round=0, rss_before=before, rss_in_flight=alive, in_flight_growth=alive - before,
        payload_bytes_all=stats["bytes"], hwm=status("VmHWM"), **shape,
    )  # fmt: skip
    control("delay 0")
    cluster.latch.wait()


def retry(cluster: Cluster, control: Control, rounds: int, down_ms: int) -> None:
    """The broker is down with a request in the queue; from listening again to the request's first byte."""
    for mode in ("down", "down rst"):
        for number in range(rounds):
            control(mode)
            cpu, latch = time.process_time_ns(), Latch(1)
            cluster.channel.send_request(0, cluster.leader_and_isr(number, 0), latch.down)
            time.sleep((down_ms + number * 37 % 100) / 1000)
            control("reset")
            up = control("up")["ns"]
            latch.wait()
            answered, first = time.monotonic_ns(), control("stats")["first_ns"]
            emit(
                what="retry", mode=mode, round=number, up_to_request_ms=(first - up) / 1e6,
                up_to_callback_ms=(answered - up) / 1e6, cpu_s=(time.process_time_ns() - cpu) / 1e9,
            )  # fmt: skip


def main() -> None:
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    ports = [int(port) for port in given["ports"].split(",")]
    topics, partitions = int(given.get("topics", 1000)), int(given.get("partitions", 20))
    rounds, total = int(given.get("rounds", 5)), int(given.get("total", 20000))
    gap_s = int(given.get("gap_ms", 300)) / 1000
    shape = {"topics": topics, "partitions": partitions, "brokers": len(ports)}
    what = given["what"]
    if what == "build":
        build(ports, topics, partitions, rounds, shape)
        return
    if what == "retry":
        ports, topics, partitions = ports[:1], 1, 1
    with Cluster(ports, topics, partitions) as cluster:
        match what:
            case "fanout":
                for number in range(rounds):
                    time.sleep(gap_s)
                    measured("fanout", number, lambda: fanout(cluster), **shape)
            case "small":
                per = total // len(ports)
                for number in range(rounds):
                    measured("small-closed", number, lambda: closed(cluster, per), **shape)
                    measured("small-one", number, lambda: one(cluster, per), **shape)
                    measured("small-burst", number, lambda: burst(cluster, per * len(ports)), **shape)
                    measured("small-batch", number, lambda: batches(cluster, total), **shape)
            case "burst":
                for number in range(rounds):
                    measured("small-burst", number, lambda: burst(cluster, total), **shape)
            case "memory":
                memory(cluster, Control(int(given["control"])), shape)
            case "retry":
                retry(cluster, Control(int(given["control"])), rounds, int(given.get("down_ms", 3000)))
            case _:
                raise SystemExit(f"what={what}; there are: fanout, small, build, memory, retry")


if __name__ == "__main__":
    main()
