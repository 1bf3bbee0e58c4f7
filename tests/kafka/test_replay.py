"""An incident that was captured, replayed to a real broker of Kafka 3.9.1: it ends in the state of the original.

What the original was told and answered is in the request log that it wrote itself (``*.truth.jsonl.gz``).
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from asking import ask_port
from commands import run_kproto
from free_ports import free_ports
from real_brokers import eventually, real_kafka

from kproto.messages import MetadataRequest

pytestmark = pytest.mark.kafka

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
NAME = "ibp-3.9-a"
BROKER = 1
CAPTURED_PORTS = {0: 19092, 1: 19093, 2: 19094}


@pytest.fixture
def brokers(kafka_jars: Path, tmp_path: Path) -> Iterator[tuple[Path, int, int]]:
    """Real brokers 0 and 1 without a controller: their folder, broker 0's port and broker 1's epoch."""
    folder, base = tmp_path / "kafka", free_ports(4)
    real_kafka("install", str(folder), "--jars", str(kafka_jars))
    ports = ["--base-port", str(base), "--zk-port", str(base + 3)]
    try:
        started = real_kafka("start", str(folder), "--brokers", "2", "--external-controller", "77", *ports)
        yield folder, base, started["brokers"][str(BROKER)]["broker_epoch"]
    finally:
        real_kafka("stop", str(folder), "--kill")


def told() -> list[dict[str, Any]]:
    """What the original broker logged of the requests that the capture holds, in order."""
    with gzip.open(CAPTURES / f"{NAME}.truth.jsonl.gz", "rt") as lines:
        entries = [json.loads(line) for line in lines]
    return [entry for entry in entries if entry["broker"] == BROKER and entry["in_capture"]]


class Known(NamedTuple):
    """What a broker tells clients of a partition."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


def known_to_the_original() -> dict[tuple[str, int], Known]:
    """What the original told clients at the end; a leader that is not alive is -1."""
    partitions: dict[tuple[str, int], Known] = {}
    alive: set[int] = set()
    for entry in told():
        if entry["api_name"] != "UPDATE_METADATA":
            continue
        alive = {broker["id"] for broker in entry["request"]["liveBrokers"]}
        for topic in entry["request"]["topicStates"]:
            for state in topic["partitionStates"]:
                partition = topic["topicName"], state["partitionIndex"]
                if state["leader"] == -2:
                    partitions.pop(partition, None)
                else:
                    isr, replicas = tuple(state["isr"]), tuple(state["replicas"])
                    partitions[partition] = Known(state["leader"], state["leaderEpoch"], isr, replicas)
    return {tp: known if known.leader in alive else known._replace(leader=-1) for tp, known in partitions.items()}


def replicas_of_the_original() -> dict[str, str]:
    """The replicas that the original kept at the end, with their topic ids."""
    replicas: dict[str, str] = {}
    for entry in told():
        if entry["api_name"] == "LEADER_AND_ISR":
            for topic in entry["request"]["topicStates"]:
                for state in topic["partitionStates"]:
                    replicas[f"{topic['topicName']}-{state['partitionIndex']}"] = topic["topicId"]
        elif entry["api_name"] == "STOP_REPLICA":
            for topic in entry["request"]["topicStates"]:
                for state in topic["partitionStates"]:
                    if state["deletePartition"]:
                        replicas.pop(f"{topic['topicName']}-{state['partitionIndex']}", None)
    return replicas


def known_to(port: int) -> dict[tuple[str, int], Known]:
    """What a broker tells clients of all partitions."""
    return {
        (topic.name, p.partition_index): Known(p.leader_id, p.leader_epoch, tuple(p.isr_nodes), tuple(p.replica_nodes))
        for topic in ask_port(port, MetadataRequest(topics=None), 12).topics
        for p in topic.partitions
    }


def replicas_in(folder: Path) -> dict[str, str]:
    """The replicas whose logs lie in a broker's folder, with the topic ids that the broker wrote beside them."""
    found = {}
    for file in folder.rglob("partition.metadata"):
        if not file.parent.name.endswith("-delete"):
            found[file.parent.name] = file.read_text().split("topic_id: ")[1].strip()
    return found


def test_a_replayed_incident_ends_in_the_state_of_the_original(brokers: tuple[Path, int, int]) -> None:
    folder, base, epoch = brokers
    moved = [f"--map=127.0.0.1:{port}=127.0.0.1:{base + broker}" for broker, port in CAPTURED_PORTS.items()]
    target = ["--to", f"127.0.0.1:{base + BROKER}", f"--broker={BROKER}", f"--broker-epoch={epoch}"]
    result = run_kproto("replay", CAPTURES / f"{NAME}.pcap.gz", *target, *moved)
    assert result.exit_code == 0, result.output
    assert "0 answers differ" in result.output.splitlines()[-1]
    assert len({known.leader_epoch for known in known_to_the_original().values()}) > 1
    assert known_to(base + BROKER) == known_to_the_original()
    (data,) = {file.parents[1] for file in folder.rglob("partition.metadata")}
    wanted = replicas_of_the_original()
    assert len(wanted) > 1
    eventually(lambda: replicas_in(data).keys() == wanted.keys())
    assert replicas_in(data) == wanted
