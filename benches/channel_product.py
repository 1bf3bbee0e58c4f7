"""kproto's side of the channel's measurements: the same work as Kafka's own classes do, against the same sink.

    python benches/channel_product.py what=fanout|small|build|memory|body ports=20000,20001 [control=19999] \\
        [topics=1000] [partitions=20] [rounds=5] [total=20000] [gap_ms=300] [recorder=FILE] [send_threads=1] \\
        [file=FILE] [bare=1]

Prints one JSON object a line. Times are CLOCK_MONOTONIC; CPU is the whole process's, user and system. ``recorder``
records all traffic in a pcapng file; ``send_threads`` is a number or ``per_broker``; ``what=body`` writes the request's
body that the floor sends to ``file``; ``bare`` sends small requests by the bare loop of ``channel_bare``.
"""

from __future__ import annotations

import contextlib
import gc
import json
import queue
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from channel_bare import BareCluster
from channel_cluster import EPOCH, Cluster, Latch, emit, measured, percentiles

from channel.config import ChannelConfig
from channel.network import selector
from channel.network.recorder import PcapngRecorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.send.encoded_requests import ControlRequest


BURST = 2000
"""Requests that are queued at once."""


def fanout(cluster: Cluster) -> dict[str, Any]:
    """An UpdateMetadata of every partition to every broker, from the new batch to the last answer."""
    cluster.latch = Latch(len(cluster.ids))
    t0, k0 = time.perf_counter_ns(), time.thread_time_ns()
    cluster.add_everything()
    k1 = time.thread_time_ns()
    cluster.batch.send_requests_to_brokers(EPOCH)
    k2 = time.thread_time_ns()
    cluster.latch.wait()
    return {
        "requests": len(cluster.ids),
        "wall_s": (cluster.latch.last - t0) / 1e9,
        "add_cpu_s": (k1 - k0) / 1e9,
        "send_cpu_s": (k2 - k1) / 1e9,
    }


def closed(cluster: Cluster, per: int) -> dict[str, Any]:
    """One request in flight on every broker, the next one from the callback of the last."""
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
    return rate(per * len(cluster.ids), latch.last - t) | percentiles([x for b in ns for x in b])


def one(cluster: Cluster, per: int) -> dict[str, Any]:
    """One broker, one request at a time, from this thread: the bare latency."""
    ns: list[int] = []
    replies: queue.SimpleQueue[int] = queue.SimpleQueue()
    t = time.perf_counter_ns()
    for i in range(per):
        request = cluster.leader_and_isr(i, 0)
        began = time.perf_counter_ns()
        cluster.channel.send_request(0, request, lambda _: replies.put(time.perf_counter_ns()))
        ns.append(replies.get() - began)
    return rate(per, time.perf_counter_ns() - t) | percentiles(ns)


def burst(cluster: Cluster, total: int) -> dict[str, Any]:
    """Requests that are made before, queued all at once for the brokers in turn."""
    brokers = len(cluster.ids)
    requests = [cluster.leader_and_isr(i, i % brokers) for i in range(total)]
    latch, ns = Latch(total), [0] * total

    def answered(i: int, began: int) -> Callable[[object], None]:
        def note(_: object) -> None:
            ns[i] = time.perf_counter_ns() - began
            latch.down()

        return note

    t = time.perf_counter_ns()
    for i, request in enumerate(requests):
        cluster.channel.send_request(i % brokers, request, answered(i, time.perf_counter_ns()))
    latch.wait()
    return rate(total, latch.last - t) | percentiles(ns)


def batches(cluster: Cluster, total: int) -> dict[str, Any]:
    """One real batch a partition: LeaderAndIsr to its replicas, UpdateMetadata to all."""
    each = len(cluster.ids) + min(3, len(cluster.ids))
    count = total // each
    cluster.latch = latch = Latch(count * each)
    t = time.perf_counter_ns()
    for i in range(count):
        cluster.batch.new_batch()
        cluster.add_leader_and_isr(cluster.all[i % len(cluster.all)])
        cluster.batch.send_requests_to_brokers(EPOCH)
    latch.wait()
    return rate(count * each, latch.last - t)


def rate(requests: int, ns: int) -> dict[str, Any]:
    return {"requests": requests, "wall_s": ns / 1e9, "per_s": requests / ns * 1e9}


class Kept:
    """Takes requests in the channel manager's place and keeps them."""

    def __init__(self) -> None:
        self.requests: list[ControlRequest] = []

    def send_request(self, broker_id: int, request: ControlRequest, callback: object = None) -> None:
        self.requests.append(request)


def thread_cpu(work: Callable[[], object]) -> float:
    began = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - began) / 1e9


def build(cluster: Cluster, kept: Kept, rounds: int) -> None:
    """CPU of the controller's thread from the new batch until all requests are queued.

    For UpdateMetadata ours includes the one encoding that all brokers share; Kafka encodes later, for each broker.
    """
    count = len(cluster.all)

    def add_leader_and_isr() -> None:
        cluster.batch.new_batch()
        for tp in cluster.all:
            cluster.add_leader_and_isr(tp)

    def send() -> None:
        cluster.batch.send_requests_to_brokers(EPOCH)

    for number in range(rounds):
        kept.requests.clear()
        add, queued = thread_cpu(cluster.add_everything), thread_cpu(send)
        encode = thread_cpu(lambda: kept.requests[0].build(8))
        emit(
            what="build-um", round=number, requests=len(kept.requests), add_s=add, send_s=queued, encode_s=encode,
            ns_partition=(add + queued + encode) * 1e9 / count,
        )  # fmt: skip
        kept.requests.clear()
        add, queued = thread_cpu(add_leader_and_isr), thread_cpu(send)
        emit(
            what="build-lai", round=number, requests=len(kept.requests), add_s=add, send_s=queued,
            ns_partition=(add + queued) * 1e9 / count,
        )  # fmt: skip


def body(cluster: Cluster, kept: Kept, file: Path) -> None:
    """Write the UpdateMetadata of every partition, as one broker gets it."""
    cluster.add_everything()
    cluster.batch.send_requests_to_brokers(EPOCH)
    file.write_bytes(b"".join(kept.requests[0].build(8)))


def memory(cluster: Cluster, control_port: int) -> dict[str, Any]:
    """Every broker holds its answer back: how far memory has grown meanwhile, in bodies of the request."""
    with socket.create_connection(("127.0.0.1", control_port)) as connection, connection.makefile() as lines:

        def control(line: str) -> Any:
            connection.sendall(line.encode() + b"\n")
            return json.loads(lines.readline())

        gc.collect()
        before = resident()
        control("delay 120000000")
        control("reset")
        cluster.latch = Latch(len(cluster.ids))
        cluster.add_everything()
        cluster.batch.send_requests_to_brokers(EPOCH)
        while (stats := control("stats"))["requests"] < len(cluster.ids):
            time.sleep(0.02)
        gc.collect()
        grown = resident() - before
        control("delay 0")
        cluster.latch.wait()
    return {"requests": len(cluster.ids), "grown": grown, "bodies": grown / (stats["bytes"] / len(cluster.ids))}


def resident() -> int:
    with Path("/proc/self/status").open(encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def main() -> None:
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    what = given["what"]
    if selector.__file__.endswith(".py"):
        raise SystemExit("the channel is not compiled, so that its figures would not be the product's; run tools/setup")
    ports = [int(port) for port in given["ports"].split(",")]
    topics, partitions = int(given.get("topics", 1000)), int(given.get("partitions", 20))
    rounds, total = int(given.get("rounds", 5)), int(given.get("total", 20000))
    cluster: Any
    if what in ("build", "body"):
        kept = Kept()
        cluster = Cluster(ports, topics, partitions, kept)
        if what == "build":
            build(cluster, kept, rounds)
        else:
            body(cluster, kept, Path(given["file"]))
        return
    with contextlib.ExitStack() as stack:
        file = given.get("recorder")
        if "bare" in given:
            recording = stack.enter_context(Path(file).open("wb")) if file else None
            cluster = BareCluster(ports, per_broker="send_threads" in given, recording=recording)
        else:
            recorder = stack.enter_context(PcapngRecorder(file)) if file else None
            config = ChannelConfig(send_threads=given["send_threads"]) if "send_threads" in given else None
            cluster = stack.enter_context(Cluster(ports, topics, partitions, recorder=recorder, config=config))
        per = total // len(ports)
        for number in range(rounds):
            match what:
                case "fanout":
                    time.sleep(int(given.get("gap_ms", 300)) / 1000)
                    measured("fanout", number, lambda: fanout(cluster))
                case "small":
                    measured("small-closed", number, lambda: closed(cluster, per))
                    measured("small-one", number, lambda: one(cluster, per))
                    measured("small-burst", number, lambda: burst(cluster, min(total, BURST)))
                    measured("small-batch", number, lambda: batches(cluster, total))
                case "memory":
                    measured("memory", number, lambda: memory(cluster, int(given["control"])))
                case _:
                    raise SystemExit(f"what={what}; there are: fanout, small, build, memory, body")


if __name__ == "__main__":
    main()
