"""The request bodies that codecs are measured on, and a loop that reads every field of a decoded one.

Those of ``data`` are Kafka's own bytes. Those of every version, and the largest, are made here with kproto; the peers
that read and write them check the bytes. Files are named ``api-version-TOPICSxPARTITIONS.bin``.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = Path(__file__).parent / "data"
APIS = {"leaderandisr": 4, "stopreplica": 5, "updatemetadata": 6}
VERSIONS = {"leaderandisr": range(8), "stopreplica": range(5), "updatemetadata": range(9)}
EVERY_VERSION = [f"{api}-{version}-100x100" for api, versions in VERSIONS.items() for version in versions]
LARGEST = "updatemetadata-8-2000x100"


@dataclass(frozen=True)
class Body:
    """A request's body, with the number of its topics and of all its partitions."""

    name: str
    api_key: int
    version: int
    topics: int
    partitions: int
    data: bytes


def stored() -> Iterator[Body]:
    """Kafka's own bytes, kept beside the benches."""
    for path in sorted(DATA.glob("*.bin.gz")):
        yield body(path.name.removesuffix(".bin.gz"), gzip.decompress(path.read_bytes()))


def of_folder(folder: Path) -> Iterator[Body]:
    """The bodies that ``write`` has put into a folder."""
    for path in sorted(folder.glob("*.bin")):
        yield body(path.stem, path.read_bytes())


def body(name: str, data: bytes) -> Body:
    """A body by the name of its file."""
    match = re.fullmatch(r"([a-z]+)-(\d+)-(\d+)x(\d+)", name)
    if match is None:
        raise ValueError(f"{name} is no api-version-TOPICSxPARTITIONS")
    topics = int(match[3])
    return Body(name, APIS[match[1]], int(match[2]), topics, topics * int(match[4]), data)


def write(folder: Path, only: str = "") -> None:
    """Put the bodies whose names match a regular expression into a folder, for programs of any language."""
    for kept in stored():
        if re.search(only, kept.name):
            (folder / f"{kept.name}.bin").write_bytes(kept.data)
    for name in [*EVERY_VERSION, LARGEST]:
        if re.search(only, name):
            (folder / f"{name}.bin").write_bytes(made(name))


def made(name: str) -> bytes:
    """A body of any version, from columns: replication factor 3 on ten brokers."""
    from kproto.columns import encode_columns
    from kproto.messages import LeaderAndIsrLiveLeader, LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

    shape = body(name, b"")
    rows = columns(shape.api_key, shape.partitions, shape.partitions // shape.topics)
    hosts = {number: f"broker-{number}.kafka.internal" for number in range(1, 11)}
    if shape.api_key == 4:
        leaders = [LeaderAndIsrLiveLeader(broker_id=n, host_name=host, port=9092) for n, host in hosts.items()]
        return encode_columns(LeaderAndIsrRequest(controller_id=3, live_leaders=leaders), shape.version, rows)
    if shape.api_key == 5:
        return encode_columns(StopReplicaRequest(controller_id=3), shape.version, rows)
    brokers = [live_broker(n, host, shape.version) for n, host in hosts.items()]
    return encode_columns(UpdateMetadataRequest(controller_id=3, live_brokers=brokers), shape.version, rows)


def live_broker(number: int, host: str, version: int) -> Any:
    """A broker of an UpdateMetadata request, in the fields that the version has."""
    from kproto.messages import UpdateMetadataBroker, UpdateMetadataEndpoint

    if version == 0:
        return UpdateMetadataBroker(id=number, v0_host=host, v0_port=9092)
    listener = "PLAINTEXT" if version >= 3 else ""
    endpoint = UpdateMetadataEndpoint(port=9092, host=host, listener=listener, security_protocol=0)
    rack = f"rack-{number % 3}" if version >= 2 else None
    return UpdateMetadataBroker(id=number, endpoints=[endpoint], rack=rack)


def columns(api_key: int, partitions: int, each: int) -> dict[str, list[Any]]:
    """``partitions`` partitions, ``each`` in a topic, as columns."""
    where = [(k // each, k % each) for k in range(partitions)]
    rows: dict[str, list[Any]] = {
        "topic": [f"orders.region-{t:04d}.events" for t, _ in where],
        "partition": [p for _, p in where],
    }
    if api_key == 5:
        return rows
    replicas = [[(t * 7 + p + i) % 10 + 1 for i in range(3)] for t, p in where]
    ids = [t.to_bytes(16) for t in range(1, partitions // each + 1)]
    return rows | {
        "topic_id": [ids[t] for t, _ in where],
        "controller_epoch": [17] * partitions,
        "leader": [each[0] for each in replicas],
        "leader_epoch": [40 + p % 9 for _, p in where],
        "partition_epoch": [90 + p % 13 for _, p in where],
        "isr": replicas,
        "replicas": replicas,
    }


_FIELDS = {
    4: [("controller_epoch", 0), ("leader", 0), ("partition_epoch", 0), ("is_new", 1), ("leader_recovery_state", 6)],
    5: [("delete_partition", 3)],
    6: [("controller_epoch", 0), ("leader", 0), ("zk_version", 0)],
}
_LISTS = {
    4: [("isr", 0), ("replicas", 0), ("adding_replicas", 3), ("removing_replicas", 3)],
    5: [],
    6: [("isr", 0), ("replicas", 0), ("offline_replicas", 4)],
}


def reader(api_key: int, version: int) -> Callable[[Any], int]:
    """A straight loop over every field that a version has of every partition of a request with topics."""
    fields = [f"p.{name}" for name, since in _FIELDS[api_key] if version >= since]
    lists = [f"len(p.{name})" for name, since in _LISTS[api_key] if version >= since]
    total = " + ".join(["p.partition_index", "p.leader_epoch", *fields, *lists])
    space: dict[str, Any] = {}
    lines = [
        "def read(m):",
        " n = 0",
        " for t in m.topic_states:",
        "  for p in t.partition_states:",
        f"   n += {total}",
    ]
    exec("\n".join([*lines, " return n"]), space)
    read: Callable[[Any], int] = space["read"]
    return read
