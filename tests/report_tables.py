"""Tables of a made-up cluster for reports, as ``kproto.tables.read`` would give them."""

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from kproto.codec import encode
from kproto.messages import UpdateMetadataPartitionState, UpdateMetadataRequest, UpdateMetadataTopicState
from kproto.tables import TABLES

BEGIN = datetime(2026, 11, 21, 6, tzinfo=UTC)
VERSION = 8


class Cluster:
    """Requests, one after the other, and the tables that show them.

    Args:
        capture: Name of the capture point and of its file.
    """

    def __init__(self, capture: str = "a.pcap") -> None:
        self.capture = capture
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self._bodies: set[bytes] = set()

    def send(
        self,
        seconds: float,
        broker: int,
        states: list[dict[str, Any]],
        *,
        controller: int = 100,
        epoch: int = 2,
        error: int | None = 0,
        client_id: str = "100",
    ) -> None:
        """An UpdateMetadata; of each state: topic, partition, leader, leader_epoch, isr, replicas."""
        number = len(self.rows["requests"])
        frame, answer = (bytes([kind]) + number.to_bytes(15, "big") for kind in (1, 2))
        at = BEGIN + timedelta(seconds=seconds)
        payload = _payload(states, controller, epoch)
        body = blake2b(payload, digest_size=16).digest()
        if body not in self._bodies:
            self._bodies.add(body)
            told = {"body_id": body, "api_key": 6}
            self.rows["bodies"].append(told | {"api_version": VERSION, "direction": "request", "payload": payload})
            told |= {"topic_id": bytes(16), "controller_epoch": epoch, "partition_epoch": 0}
            self.rows["partition_states"] += [told | row for row in states]
        self.rows["requests"].append(
            {
                "frame_id": frame, "capture": self.capture, "ts": at, "api_key": 6, "api_version": VERSION,
                "correlation_id": number, "client_id": client_id, "controller_id": controller,
                "controller_epoch": epoch, "broker_epoch": 7,
                "is_kraft_controller": False, "type": 0, "broker_id": broker, "server_ip": "10.0.0.1",
                "server_port": 9092 + broker, "n_topics": 1, "n_partitions": len(states), "body_id": body,
                "response_frame_id": None if error is None else answer, "error_code": error,
                "latency_us": None if error is None else 900 + number,
                "unmatched_reason": "the capture ends before a response" if error is None else None,
            }
        )  # fmt: skip
        self.rows["frames"].append(
            {"frame_id": frame, "capture": self.capture, "file": self.capture, "ts": at, "body_id": body}
        )
        if error is not None:
            self.rows["responses"].append(
                {"frame_id": frame, "ts": at + timedelta(milliseconds=1), "error_code": error}
            )

    def tables(self) -> dict[str, pa.Table]:
        """The tables by name."""
        names = ("gaps", "gap_bytes", "cut_packets", "ip_fragments", "bad_checksums", "dropped_packets")
        counts = dict.fromkeys(names, 0)
        self.rows["captures"] = [
            {
                "capture": self.capture, "file": self.capture, "format": "pcap", "packets": len(self.rows["requests"]),
                "kafka_connections": 1, "tls_connections": 0, "unmatched_responses": 0, "bad_inputs": 0, **counts,
            }
        ]  # fmt: skip
        return {name: pa.Table.from_pylist(rows, schema=TABLES[name]) for name, rows in self.rows.items()}


def state(
    topic: str, partition: int, leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (0, 1, 2)
) -> dict[str, Any]:
    """A partition's state with the replicas 0, 1 and 2."""
    return {
        "topic": topic, "partition": partition, "leader": leader, "leader_epoch": epoch, "isr": list(isr),
        "replicas": [0, 1, 2],
    }  # fmt: skip


def fleet(partitions: int) -> Cluster:
    """A cluster with topics of 50 partitions, each of which gets another leader twice."""
    cluster = Cluster()
    names = [(f"topic-{number // 50:05d}", number % 50) for number in range(partitions)]
    for round_ in range(3):
        states = [state(topic, part, (part + round_) % 3, round_, (0, 1, 2)[: 3 - round_ % 2]) for topic, part in names]
        for start in range(0, partitions, 5000):
            cluster.send(round_ * 60 + start / 5000, start // 5000 % 3, states[start : start + 5000])
    return cluster


def _payload(states: list[dict[str, Any]], controller: int, epoch: int) -> bytes:
    topics: dict[str, list[UpdateMetadataPartitionState]] = {}
    for row in states:
        topics.setdefault(row["topic"], []).append(
            UpdateMetadataPartitionState(
                partition_index=row["partition"], leader=row["leader"], leader_epoch=row["leader_epoch"],
                isr=row["isr"], replicas=row["replicas"],
            )
        )  # fmt: skip
    named = [UpdateMetadataTopicState(topic_name=topic, partition_states=rows) for topic, rows in topics.items()]
    return bytes(
        encode(UpdateMetadataRequest(controller_id=controller, controller_epoch=epoch, topic_states=named), VERSION)
    )
