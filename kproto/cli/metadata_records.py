"""``kproto inspect --records``: prints the records of KRaft's metadata log."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from kproto.cli.metadata_changes import refuse, warn_of_faults
from kproto.cli.text import compact, moment_text
from kproto.errors import CaptureError
from kproto.metadata_log.files import LogSnapshot, read
from kproto.metadata_log.finding import SNAPSHOT, find
from kproto.metadata_log.records import TopicRecord
from kproto.metadata_log.secrets import without_secrets
from kproto.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kproto.metadata_log.batches import LogRecord
    from kproto.metadata_log.files import MetadataLog
    from kproto.tables.filters import Filters

_BROKER_FIELDS = ("broker_id", "id", "leader")
_BROKER_LISTS = ("replicas", "isr")


def print_records(paths: Sequence[str], filters: Filters, *, form: str, show_secrets: bool) -> bool:
    """Print the records of the metadata log in some paths; return whether all of it could be read.

    Raises:
        CaptureError: No path has files of a metadata log.
        ConfigurationError: A filter was given that does not apply to records.
    """
    of_requests = {"--api": filters.apis, "--controller": filters.controllers, "--errors": filters.errors}
    refuse(
        of_requests | {"--ports": filters.ports, "--brokers": filters.broker_ids},
        "does not apply to the records of a metadata log; --topic, --partition, --broker, --since and --until do",
    )
    files, others = find(paths)
    if not files:
        raise CaptureError(
            f"{paths[0]}: no file of a metadata log; name a copy of __cluster_metadata-0, or its .log and .checkpoint "
            "files"
        )
    log = read(files)
    if log.nothing:
        raise CaptureError(log.nothing)
    names = {}
    if filters.by_partition:
        every = _records(log, {snapshot.path for snapshot in log.snapshots})
        names = {r.record.topic_id: r.record.name for _snapshot, r in every if isinstance(r.record, TopicRecord)}
    named = {path for path in paths if SNAPSHOT.search(path)}
    make_line = _json_line if form == "json" else _line
    for snapshot, record in _records(log, named):
        if _is_wanted(record, filters, names):
            print(make_line(snapshot, record, show_secrets))
    if form == "json":
        for fault in log.faults:
            lost = {"record": "bad_input", "file": fault.path, "offset": fault.at, "bytes_skipped": fault.size}
            print(compact(lost | {"reason": fault.reason}))
    warn_of_faults(log)
    for path in others:
        print(f"warning: {printable(path)}: captures are not shown with --records", file=sys.stderr)
    return not log.fault_count


def _records(log: MetadataLog, named: set[str]) -> Iterator[tuple[LogSnapshot | None, LogRecord]]:
    for snapshot in log.snapshots:
        if snapshot.path in named:
            for record in snapshot.records():
                yield snapshot, record
    for source, _after_gap in log.steps():
        of = source if isinstance(source, LogSnapshot) else None
        if of is None or of.path not in named:
            for record in source.records():
                yield of, record


def _is_wanted(each: LogRecord, filters: Filters, names: dict[bytes, str]) -> bool:
    """Tell whether a record passes the filters; ``names`` has those of topics by their ids."""
    if not filters.wants_time(each.time_ms * 1_000_000):
        return False
    if filters.by_partition:
        topic_id = getattr(each.record, "topic_id", None)
        name = names.get(topic_id) if topic_id is not None else getattr(each.record, "topic_name", None)
        partition = getattr(each.record, "partition_id", None)
        if name is None:
            return False
        if not (filters.wants_topic(name) if partition is None else filters.wants_partition(name, partition)):
            return False
    if filters.brokers:
        named = {getattr(each.record, field, None) for field in _BROKER_FIELDS}
        for field in _BROKER_LISTS:
            named.update(getattr(each.record, field, None) or ())
        return not named.isdisjoint(filters.brokers)
    return True


def _form(each: LogRecord, show_secrets: bool) -> dict[str, Any]:
    if each.record is None:
        return {"type": None, "version": None, "data": None, "error": each.error}
    record = each.record if show_secrets or each.is_control else without_secrets(each.record)
    return {"type": record.title(), "version": record.version, "data": record.to_json()}


def _json_line(snapshot: LogSnapshot | None, each: LogRecord, show_secrets: bool) -> str:
    of = {} if snapshot is None else {"snapshot": snapshot.name}
    head = {"record": "metadata", **of, "offset": each.offset, "time_ms": each.time_ms, "epoch": each.epoch}
    return compact(head | _form(each, show_secrets))


def _line(snapshot: LogSnapshot | None, each: LogRecord, show_secrets: bool) -> str:
    form = _form(each, show_secrets)
    place = f"offset {each.offset}" if snapshot is None else f"snapshot {snapshot.end_offset}, {each.offset}"
    said = form.get("error") or json.dumps(form["data"], ensure_ascii=False)
    when = moment_text(each.time_ms * 1_000_000)
    return printable(f"{when}  {place}  epoch {each.epoch}  {form['type'] or 'unreadable'}  {said}")
