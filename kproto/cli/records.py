"""``kproto inspect --format json``: one object a line, for programs."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from kproto.api import api_name
from kproto.error_codes import error_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.capture import CaptureSummary
    from kproto.tables.filters import Filters
    from kproto.tables.timeline import Entry

__all__ = ["exchange_record", "loss_records"]

_STATE_LISTS = ("ungroupedPartitionStates", "ungroupedPartitions", "partitionErrors")
_TOPIC_LISTS = ("topicStates", "topics")


def exchange_record(entry: Entry, filters: Filters) -> str:
    """A request and its response, in Kafka's JSON form, and beside them ids and names that are easy to select by."""
    exchange, sender, verdict = entry.exchange, entry.sender, entry.verdict
    form: dict[str, Any] = {"record": "exchange", **exchange.to_json()}
    form.pop("unmatched_reason", None)
    if filters.by_partition and entry.body is not None:
        ids = {_uuid(uuid): name for name, uuid in getattr(entry.body.message, "topic_ids", {}).items()}
        for direction in ("request", "response"):
            if form[direction] is not None:
                form[direction] = _chosen(form[direction], filters, ids)
    form |= {
        "api": None if exchange.api_key is None else api_name(exchange.api_key),
        "broker_id": entry.broker_id,
        "controller_id": None if sender is None else sender.controller_id,
        "controller_epoch": None if sender is None else sender.controller_epoch,
        "broker_epoch": None if sender is None else sender.broker_epoch,
        "outcome": verdict.outcome,
        "error_code": verdict.error_code,
        "error_name": None if verdict.error_code is None else error_name(verdict.error_code),
        "partition_errors": [
            {"topic": e.topic, "partition": e.partition, "error_code": e.error_code, "error_name": e.error}
            for e in verdict.partition_errors
        ],
        "reason": entry.reason or exchange.unmatched_reason,
        "changes": entry.is_change if entry.body is not None else None,
    }
    return json.dumps(form, separators=(",", ":"))


def _chosen(form: Any, filters: Filters, ids: dict[str, str]) -> Any:
    """A message's JSON form with the wanted partitions alone."""
    form = dict(form)
    for name in _STATE_LISTS:
        if isinstance(form.get(name), list):
            form[name] = [s for s in form[name] if filters.wants_partition(s["topicName"], s["partitionIndex"])]
    for name in _TOPIC_LISTS:
        if isinstance(form.get(name), list):
            topics = (_chosen_topic(topic, filters, ids) for topic in form[name])
            form[name] = [topic for topic in topics if topic is not None]
    return form


def _chosen_topic(topic: dict[str, Any], filters: Filters, ids: dict[str, str]) -> dict[str, Any] | None:
    name = topic.get("topicName", topic.get("name"))
    if name is None:
        name = ids.get(topic.get("topicId", ""), "")
    for key in ("partitionStates", "partitionErrors"):
        if key in topic:
            kept = [s for s in topic[key] if filters.wants_partition(name, s["partitionIndex"])]
            return {**topic, key: kept} if kept else None
    if "partitionIndexes" in topic:
        indexes = [index for index in topic["partitionIndexes"] if filters.wants_partition(name, index)]
        return {**topic, "partitionIndexes": indexes} if indexes else None
    return topic


def _uuid(uuid: bytes) -> str:
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def loss_records(path: str, summary: CaptureSummary) -> Iterator[str]:
    """What a capture lacks: one record of its counts if there is a loss, and one a piece that could not be used."""
    counts = {
        "gaps": summary.gaps,
        "gap_bytes": summary.gap_bytes,
        "cut_packets": summary.cut_packets,
        "ip_fragments": summary.ip_fragments,
        "bad_checksums": summary.bad_checksums,
        "bad_inputs": summary.bad_input_count,
    }
    if any(counts.values()):
        yield json.dumps({"record": "loss", "file": path, **counts}, separators=(",", ":"))
    for bad in summary.bad_inputs:
        yield json.dumps(
            {
                "record": "bad_input",
                "file": path,
                "reason": bad.reason,
                "offset": bad.offset,
                "bytes_skipped": bad.bytes_skipped,
            },
            separators=(",", ":"),
        )
