"""``kproto inspect --format json``: makes one object a line, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kproto.api import api_name
from kproto.capture.summary import LOSSES
from kproto.cli.text import compact
from kproto.error_codes import error_name
from kproto.json_form import uuid_to_json
from kproto.tables.json_choice import wanted_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.capture import CaptureSummary
    from kproto.tables.filters import Filters
    from kproto.verdicts.timeline import Entry


def exchange_record(entry: Entry, filters: Filters) -> str:
    """Make the record of a request and its response in Kafka's JSON form, with ids and names to select by."""
    exchange, sender, verdict = entry.exchange, entry.sender, entry.verdict
    form: dict[str, Any] = {"record": "exchange", **exchange.to_json()}
    form.pop("unmatched_reason", None)
    if filters.by_partition and entry.body is not None:
        ids = {uuid_to_json(uuid): name for name, uuid in getattr(entry.body.message, "topic_ids", {}).items()}
        for direction in ("request", "response"):
            if form[direction] is not None:
                form[direction] = wanted_partitions(form[direction], filters, ids)
    form |= {
        "api": None if exchange.api_key is None else api_name(exchange.api_key),
        "broker_id": entry.broker_id,
        **{name: getattr(sender, name, None) for name in ("controller_id", "controller_epoch", "broker_epoch")},
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
    return compact(form)


def loss_records(path: str, summary: CaptureSummary) -> Iterator[str]:
    """Make the records of losses: the counts of a capture with any, and each piece that could not be used."""
    counts = {
        **{name: getattr(summary, name) for name in LOSSES},
        "bad_inputs": summary.bad_input_count,
        "untimed_packets": summary.untimed_packets,
        "not_read": summary.all_not_read,
    }
    if any(counts.values()):
        yield compact({"record": "loss", "file": path, **counts})
    for bad in summary.bad_inputs:
        lost = {"reason": bad.reason, "offset": bad.offset, "bytes_skipped": bad.bytes_skipped}
        yield compact({"record": "bad_input", "file": path, **lost})
