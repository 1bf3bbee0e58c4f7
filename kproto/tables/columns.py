"""Bodies of one API and direction -> the columns of their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kproto import codec
from kproto.tables.batches import plain_text
from kproto.tables.schemas import DECODED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.types import Buffer

__all__ = ["BodyColumns"]


class BodyColumns:
    """Columns of the bodies appended since the last ``take``."""

    def __init__(self, api_key: int, direction: str) -> None:
        self.api_key = api_key
        self.direction = direction
        self.size = 0
        self._rows: list[dict[str, Any]] = []

    def append(self, body_id: bytes, version: int, data: Buffer) -> tuple[dict[str, Any], list[tuple[int, str, int]]]:
        """Decode one body; gives its head and its live brokers."""
        self.size += memoryview(data).nbytes
        if self.direction != "req":
            m = codec.decode_response(self.api_key, version, data)
            errors = []
            if self.api_key == 4 and version >= 5:
                errors = [(None, t.topic_id, p) for t in m.topics for p in t.partition_errors]
            elif self.api_key != 6:
                errors = [(p.topic_name, None, p) for p in m.partition_errors]
            errors = [e for e in errors if e[2].error_code]
            for topic, topic_id, p in errors:
                self._rows.append(
                    {
                        "body_id": body_id,
                        "topic": plain_text(topic),
                        "topic_id": topic_id,
                        "partition": p.partition_index,
                        "error_code": p.error_code,
                    }
                )
            return {"error_code": m.error_code, "n_partition_errors": len(errors)}, []
        m = codec.decode_request(self.api_key, version, data)
        topics = set()
        states = m.partition_states
        named: list[tuple[str, bytes | None, Any]] = [(s.topic_name, bytes(16), s) for s in states]
        if m.topic_states:
            named = [
                (t.topic_name, getattr(t, "topic_id", None), s) for t in m.topic_states for s in t.partition_states
            ]
        for name, topic_id, s in named:
            topics.add(name)
            row = {
                "body_id": body_id,
                "api_key": self.api_key,
                "topic": plain_text(name),
                "partition": s.partition_index,
                "leader_epoch": s.leader_epoch,
            }
            if self.api_key == 5:
                row["delete_partition"] = s.delete_partition
            else:
                row |= {
                    "topic_id": topic_id,
                    "controller_epoch": s.controller_epoch,
                    "leader": s.leader,
                    "isr": list(s.isr),
                    "replicas": list(s.replicas),
                }
            if self.api_key == 6:
                row |= {"partition_epoch": s.zk_version, "offline": list(s.offline_replicas)}
            if self.api_key == 4:
                row |= {
                    "partition_epoch": s.partition_epoch,
                    "adding": list(s.adding_replicas),
                    "removing": list(s.removing_replicas),
                    "is_new": s.is_new,
                    "leader_recovery_state": s.leader_recovery_state,
                }
            self._rows.append(row)
        brokers = []
        if self.api_key == 6:
            brokers = sorted((b, e.host, e.port) for b, ends, _rack in m.broker_endpoints for e in ends)
        return {
            "controller_id": m.controller_id,
            "controller_epoch": m.controller_epoch,
            "is_kraft": m.is_kraft_controller,
            "type": getattr(m, "type", 0),
            "n_topics": len(topics),
            "n_partitions": len(named),
        }, brokers

    def take(self) -> Iterator[pa.RecordBatch]:
        """The rows so far."""
        if self._rows:
            name = "state" if self.direction == "req" else "error"
            schema = pa.schema([DECODED.field("body_id"), *DECODED.field(name).type])
            yield pa.RecordBatch.from_pylist(self._rows, schema=schema)
            self._rows = []
        self.size = 0

    def bytes_of(self, rows: pa.RecordBatch) -> int:
        """About how large they are."""
        return int(rows.nbytes)

    def as_struct(self, rows: pa.RecordBatch) -> pa.Array:
        """All but the body's id as one column."""
        return pa.StructArray.from_arrays(rows.columns[1:], fields=list(rows.schema)[1:])
