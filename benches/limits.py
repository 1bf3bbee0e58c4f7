"""Finds where things end: each probe takes sizes up to ten times the tested ones, until one fails.

    python benches/limits.py [PROBE...] [--seconds 60]

Each size runs in a process of its own with a bound of memory and time; a process that is ended for its time is a hang,
and the program fails. docs/limits.md has a table of the results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEMORY: Final = 8 << 30
"""The resources that a process may take."""

ENOUGH_S: Final = 150
"""After so long a size counts as a hang."""


# ---- probes: each raises where it ends -------------------------------------------------------------------------------


def brokers(count: int) -> str:
    """Embedded brokers and their controller in one process; every broker is sent 1,000 partitions."""
    from channel_thousand import once

    found = once(count, 1_000)
    return f"all told in {found['update_s']:.1f} s, {found['open_files']:,} open files"


def update_metadata(count: int) -> str:
    """Partitions in one UpdateMetadata: encoded, sent by NodeClient to an embedded broker, answered."""
    from channel import EmbeddedCluster
    from channel.network.node_client import NodeClient

    with EmbeddedCluster(1) as cluster, NodeClient(("127.0.0.1", cluster[0].port), "limits") as client:
        request = _update(count, cluster[0].epoch)
        answer = client.ask(request, 8)
        if answer.error_code or cluster[0].broker.metadata.snapshot.partition_count != count:
            raise ValueError(f"the broker has {cluster[0].broker.metadata.snapshot.partition_count} partitions")
    return ""


def _update(count: int, epoch: int) -> Any:
    from kproto.messages import UpdateMetadataPartitionState, UpdateMetadataRequest, UpdateMetadataTopicState

    topics = []
    for number in range(count // 1_000):
        states = [
            UpdateMetadataPartitionState(partition_index=p, leader=0, isr=[0], replicas=[0]) for p in range(1_000)
        ]
        topics.append(
            UpdateMetadataTopicState(
                topic_name=f"topic-{number:06d}", topic_id=(number + 1).to_bytes(16, "big"), partition_states=states
            )
        )
    return UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=epoch, topic_states=topics)


def decoded_frame(mib: int) -> str:
    """The MiB of an UpdateMetadata that the codec decodes."""
    from kproto import codec

    count = (mib << 20) // 33
    data = codec.encode(_update(count // 1_000 * 1_000, 1), 8)
    found = codec.decode_request(6, 8, data)
    if len(found.topic_states) != count // 1_000:
        raise ValueError("a wrong answer")
    return f"{len(data) >> 20} MiB, {count:,} partitions"


def connections(count: int) -> str:
    """Connections to one embedded broker, each of which is answered."""
    from channel import EmbeddedCluster
    from channel.broker.cluster import raise_file_limit

    request = struct.pack(">ihhih6s", 16, 18, 0, 1, 6, b"limits")
    raise_file_limit(count, 2)
    with EmbeddedCluster(1) as cluster, contextlib.ExitStack() as stack:
        address = "127.0.0.1", cluster[0].port
        made = [stack.enter_context(socket.create_connection(address, 20)) for _ in range(count)]
        for each in made:
            each.sendall(request)
        for each in made:
            each.settimeout(20)
            if not each.recv(4):
                raise ConnectionError("the broker closed the connection")
    return "each answered"


def captures(count: int) -> str:
    """Capture files of as many hosts in one directory, summed up."""
    from kproto.generate import PlannedFleet, write_captures

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "one").mkdir()
        write_captures(PlannedFleet(seed=1, brokers=3, topics=2, partitions=6, isr_changes=3), Path(directory) / "one")
        (first,) = (p for p in (Path(directory) / "one").iterdir() if "pcap" in p.name)
        data = first.read_bytes()
        folder = Path(directory) / "many"
        folder.mkdir()
        for number in range(count):
            (folder / f"host-{number:06d}-a.pcap").write_bytes(data)
        return _command("summary", str(folder))


def capture_gib(count: int) -> str:
    """The GiB of one capture, summed up from standard input."""
    made = subprocess.Popen(
        [sys.executable, "-m", "kproto", "generate", "--out", "-", "--size", f"{count}G", "--brokers", "20"],
        stdout=subprocess.PIPE,
    )
    try:
        return _command("summary", "-", stdin=made.stdout)
    finally:
        made.kill()
        made.wait()


def _command(*words: str, stdin: Any = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kproto", *words], stdin=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"exit code {done.returncode}: {done.stderr.strip().splitlines()[-1]}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return f"{used:.0f} MiB"


@contextlib.contextmanager
def _led() -> Iterator[tuple[Any, Any]]:
    """A controller on a real ZooKeeper with three embedded brokers, and a function that asks it."""
    from controller_processes import zookeeper

    from channel.broker.fleet import Fleet
    from channel.config import ChannelConfig
    from channel.network.node_client import NodeClient
    from channel.node.controller_node import ControllerNode

    with (
        tempfile.TemporaryDirectory() as folder,
        zookeeper(Path(folder)) as address,
        Fleet(address, range(3)) as fleet,
        ControllerNode(77, address, config=ChannelConfig(default_replication_factor=3)) as node,
    ):
        _wait(lambda: node.controller.is_active and len(fleet[0].broker.metadata.snapshot.alive_brokers) >= 3)
        assert node.endpoint is not None
        client = NodeClient(("127.0.0.1", node.endpoint.port), "limits", timeout_ms=ENOUGH_S * 1000)
        with client:
            yield fleet, client.ask


def _wait(condition: Callable[[], bool], seconds: float = ENOUGH_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come true")
        time.sleep(0.05)


def created_topics(count: int) -> str:
    """Topics of one partition in one CreateTopics, until every broker knows them."""
    from kproto.messages import CreatableTopic, CreateTopicsRequest

    with _led() as (fleet, ask):
        topics = [CreatableTopic(name=f"t-{n}", num_partitions=1, replication_factor=3) for n in range(count)]
        codes = {
            t.error_code: t.error_message for t in ask(CreateTopicsRequest(topics=topics, timeout_ms=100_000), 7).topics
        }
        if set(codes) != {0}:
            raise ValueError(f"refused: {codes}")
        _wait(lambda: all(m.broker.metadata.snapshot.partition_count == count for m in fleet))
    return ""


def topic_partitions(count: int) -> str:
    """Partitions of one topic in one CreateTopics, until every broker knows them."""
    from kproto.messages import CreatableTopic, CreateTopicsRequest

    with _led() as (fleet, ask):
        topics = [CreatableTopic(name="t", num_partitions=count, replication_factor=3)]
        (found,) = ask(CreateTopicsRequest(topics=topics, timeout_ms=100_000), 7).topics
        if found.error_code:
            raise ValueError(f"refused: {found.error_code} {found.error_message}")
        _wait(lambda: all(m.broker.metadata.snapshot.partition_count == count for m in fleet))
    return ""


class Probe(NamedTuple):
    """A probe with its sizes: the tested one first."""

    what: str
    run: Callable[[int], str]
    sizes: tuple[int, ...]


PROBES: Final = {
    "brokers": Probe("brokers in one process", brokers, (1_000, 3_000, 10_000)),
    "partitions": Probe(
        "partitions in one UpdateMetadata", update_metadata, (200_000, 1_000_000, 2_000_000, 4_000_000)
    ),
    "decoded": Probe("MiB of a frame for the codec", decoded_frame, (10, 100, 300)),
    "connections": Probe("connections to one broker", connections, (1_000, 5_000, 10_000, 20_000)),
    "captures": Probe("captures in a directory", captures, (100, 1_000, 10_000)),
    "capture": Probe("GiB of a capture from a pipe", capture_gib, (1, 4)),
    "topics": Probe("topics in one CreateTopics", created_topics, (1_000, 5_000, 10_000, 50_000)),
    "topic": Probe("partitions of one new topic", topic_partitions, (2_000, 20_000, 50_000, 100_000)),
}


# ---- running them ----------------------------------------------------------------------------------------------------


def measured(name: str, size: int) -> dict[str, Any]:
    """What a process of its own gives for a size."""
    began = time.monotonic()
    command = [sys.executable, __file__, "--one", name, str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, errors = process.communicate(timeout=ENOUGH_S + 60)
        except subprocess.TimeoutExpired:
            process.kill()
            return {"size": size, "failed": "HANG", "s": time.monotonic() - began}
    found = json.loads(out.splitlines()[-1]) if out else {"failed": f"ended with {process.returncode}: {errors[-300:]}"}
    return {"size": size, **found}


def one(name: str, size: int) -> dict[str, Any]:
    """Take a probe in this process."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    began = time.monotonic()
    try:
        found = {"ok": PROBES[name].run(size)}
    except Exception as e:  # noqa: BLE001 - the error is what is looked for
        found = {"failed": f"{type(e).__name__}: {e}"[:400]}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {**found, "s": round(time.monotonic() - began, 1), "mib": peak}


def main() -> int:
    """Print a row for each size; 1 if one was a hang."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("probes", nargs="*", metavar="PROBE", help=f"of {', '.join(PROBES)}; by default all")
    arguments.add_argument("--seconds", type=float, default=60, help="no larger size after one that took longer")
    arguments.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.one:
        print(json.dumps(one(options.one[0], int(options.one[1]))))
        return 0
    hangs = 0
    for name in options.probes or PROBES:
        for size in PROBES[name].sizes:
            found = measured(name, size)
            outcome = found.get("failed") or f"ok {found['ok']}"
            print(
                f"{PROBES[name].what}: {size:,}: {found['s']:.1f} s, {found.get('mib', 0):,} MiB: {outcome}", flush=True
            )
            hangs += outcome == "HANG"
            if "failed" in found or found["s"] > options.seconds:
                break
    return bool(hangs)


if __name__ == "__main__":
    sys.exit(main())
