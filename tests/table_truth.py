"""Computes the expected tables from the brokers' logs: plain Python over Kafka's JSON, without kproto's readers."""

from __future__ import annotations

import base64
import ipaddress
import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from conftest import DATA, read_jsonl

from kproto.capture import WHOLE, Connection, Endpoint, Frame
from kproto.tables import TABLES, read
from kproto.tables.ids import frame_body_id
from kproto.tables.stored import SCHEMA
from kproto.tables.writing import DATED, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kproto.pipeline import Run

CAPTURES = sorted((DATA / "captures").glob("*.pcap.gz"))
WITH_TRUTH = [path for path in CAPTURES if "-lossy" not in path.name]

DAY = "date=2026-11-20"
"""The day of the captures, as a directory of stored tables."""

Row = dict[str, Any]
Key = tuple[str, int, int, int, int, int]


@dataclass
class Analyzed:
    """Tables on disk, the run's manifest, and the summary; each table is read once, with pyarrow."""

    path: Path
    run: Run
    summary: dict[str, Any]

    def rows(self, table: str) -> list[Row]:
        return self._tables[table]

    @cached_property
    def _tables(self) -> dict[str, list[Row]]:
        return {name: pq.read_table(self.path / name, columns=TABLES[name].names).to_pylist() for name in self.run.rows}


def store(place: Path, *captures: Path) -> None:
    """Store the tables of captures of one day as ``kproto analyze`` stores them."""
    counts: Counter[str] = Counter()
    files = {}
    for number, capture in enumerate(captures):
        for name, table in read(str(capture)).items():
            file = f"{name}/{DAY}" if name in DATED else name
            file += f"/part-{number}.zstd.parquet"
            write_table(place / "kproto-runs" / "1" / file, name, table)
            counts[name] += table.num_rows
            files[file] = table.num_rows
    facts = {"schema": SCHEMA, "run": "kproto-runs/1", "tables": counts, "files": files}
    (place / "_kproto.json").write_text(json.dumps(facts))


def body_id(api_key: int, version: int, direction: Any, body: bytes) -> bytes:
    """The id of the body of any frame."""
    connection = Connection(Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 9092), 0)
    frame = Frame(connection, direction, 0, 0, 0, WHOLE, len(body), body, api_key, version, 0, None, 0, "")
    return frame_body_id(frame, api_key, version)


def name_of(path: Any) -> str:
    return str(path.name).removesuffix(".pcap.gz")


NAMES_WITH_TRUTH = [name_of(path) for path in WITH_TRUTH]
"""Of captures whose brokers' logs are there."""


def truth_rows(name: str) -> Iterator[Row]:
    """The control requests of a capture that its brokers logged."""
    for row in read_jsonl(DATA / "captures" / f"{name}.truth.jsonl.gz"):
        if row["in_capture"] and row["api_key"] in (4, 5, 6):
            yield row


def truth_by_key(name: str) -> dict[Key, list[Row]]:
    """Truth rows by server, ports and ids; a port used again gives a list, in order of time."""
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in truth_rows(name):
        server, _, rest = row["connection"].partition("-")
        client = rest.rpartition("-")[0]
        (ip, server_port), (_ip, client_port) = _endpoint(server), _endpoint(client)
        key = (ip, server_port, client_port, row["api_key"], row["version"], row["correlation_id"])
        found[key].append(row)
    return found


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return str(ipaddress.ip_address(host)), int(port)


def expected_request(row: Row) -> Row:
    """Return the expected row of ``requests`` for a logged request."""
    request, response = row["request"], row["response"]
    states = expected_states(row)
    return {
        "api_key": row["api_key"],
        "api_version": row["version"],
        "correlation_id": row["correlation_id"],
        "client_id": row["client_id"],
        "controller_id": request["controllerId"],
        "controller_epoch": request["controllerEpoch"],
        "broker_epoch": request.get("brokerEpoch", -1),
        "is_kraft_controller": request.get("isKRaftController", False),
        "type": request.get("type", 0),
        "broker_id": row["broker"],
        "n_topics": len({state["topic"] for state in states}),
        "n_partitions": len(states),
        "error_code": response["errorCode"],
        "decode_error": None,
        "unmatched_reason": None,
    }


def expected_states(row: Row) -> list[Row]:
    """Return the expected ``partition_states`` of a logged request, in its order."""
    request, api_key = row["request"], row["api_key"]
    return [_state(api_key, topic, topic_id, state) for topic, topic_id, state in _flat(api_key, request)]


def _flat(api_key: int, request: Row) -> Iterator[tuple[str, bytes, Row]]:
    whole_flag = request.get("deletePartitions", False)
    for state in request.get("ungroupedPartitionStates", ()):
        yield state["topicName"], bytes(16), state
    for state in request.get("ungroupedPartitions", ()):
        yield state["topicName"], bytes(16), {**state, "deletePartition": whole_flag}
    for topic in request.get("topics", ()):
        for index in topic["partitionIndexes"]:
            yield topic["name"], bytes(16), {"partitionIndex": index, "deletePartition": whole_flag}
    for topic in request.get("topicStates", ()):
        topic_id = _uuid(topic["topicId"]) if "topicId" in topic else bytes(16)
        for state in topic["partitionStates"]:
            yield topic["topicName"], topic_id, state


def _state(api_key: int, topic: str, topic_id: bytes, state: Row) -> Row:
    row = dict.fromkeys(
        (
            "topic_id", "controller_epoch", "leader", "partition_epoch", "isr", "replicas", "offline_replicas",
            "adding_replicas", "removing_replicas", "is_new", "leader_recovery_state", "delete_partition",
            "eligible_leader_replicas", "unclean_election",
        )
    )  # fmt: skip
    row |= {
        "api_key": api_key,
        "topic": topic,
        "partition": state["partitionIndex"],
        "leader_epoch": state.get("leaderEpoch", -1),
    }
    if api_key == 5:
        return row | {"delete_partition": state.get("deletePartition", False)}
    row |= {
        "topic_id": topic_id,
        "controller_epoch": state["controllerEpoch"],
        "leader": state["leader"],
        "partition_epoch": state["partitionEpoch" if api_key == 4 else "zkVersion"],
        "isr": state["isr"],
        "replicas": state["replicas"],
    }
    if api_key == 6:
        return row | {"offline_replicas": state.get("offlineReplicas", [])}
    return row | {
        "adding_replicas": state.get("addingReplicas", []),
        "removing_replicas": state.get("removingReplicas", []),
        "is_new": state.get("isNew", False),
        "leader_recovery_state": state.get("leaderRecoveryState", 0),
    }


def expected_errors(row: Row) -> list[Row]:
    """Return the expected ``partition_errors`` of a logged response, in its order."""
    names = {_uuid(t["topicId"]): t["topicName"] for t in row["request"].get("topicStates", ()) if "topicId" in t}
    response = row["response"]
    found = [(e["topicName"], None, e) for e in response.get("partitionErrors", ())]
    for topic in response.get("topics", ()):
        topic_id = _uuid(topic["topicId"])
        found += [(names.get(topic_id), topic_id, e) for e in topic["partitionErrors"]]
    return [
        {"topic": topic, "topic_id": topic_id, "partition": e["partitionIndex"], "error_code": e["errorCode"]}
        for topic, topic_id, e in found
        if e["errorCode"]
    ]


def _uuid(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")
