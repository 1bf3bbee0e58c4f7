"""``kproto inspect`` of KRaft's metadata log: a line for each change of a partition, a broker, the quorum's leader."""

from __future__ import annotations

import sys
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from kproto.capture import capture_points
from kproto.cli.text import compact, id_text, ids_text, moment_text
from kproto.errors import CaptureError, ConfigurationError
from kproto.json_form import uuid_to_json
from kproto.metadata_log.deliveries import MetadataTraffic
from kproto.metadata_log.files import read
from kproto.metadata_log.folding import fold
from kproto.tables.metadata_points import read_traffic
from kproto.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kproto.metadata_log.files import MetadataLog
    from kproto.metadata_log.finding import LogFiles
    from kproto.metadata_log.folding import BrokerSpan, FoldedBatch, FoldedState, QuorumEpoch
    from kproto.metadata_log.growing import GrowingLog
    from kproto.metadata_log.image import FoldedPartition
    from kproto.tables.filters import Filters

_MS: int = 1_000_000


class LogChange(NamedTuple):
    """A change that the log holds.

    Attributes:
        time_ns: When the controller wrote it.
        offset: The offset of its record; -1: a snapshot shows it.
        controller_id, controller_epoch: The controller that wrote it; None: unknown.
        what: A partition, a broker or the quorum.
        text: What changed.
        fields: The same for JSON.
    """

    time_ns: int
    offset: int
    controller_id: int | None
    controller_epoch: int | None
    what: str
    text: str
    fields: dict[str, Any]

    def line(self) -> str:
        """The change as a line of text."""
        place = "snapshot" if self.offset < 0 else f"offset {self.offset}"
        who = "-" if self.controller_id is None else f"{self.controller_id}"
        epoch = "-" if self.controller_epoch is None else f"{self.controller_epoch}"
        return printable(f"{moment_text(self.time_ns)}  {who} epoch {epoch}  {place}  {self.what}  {self.text}")

    def record(self) -> str:
        """The change as a JSON object."""
        head = {
            "record": "change",
            "time": self.time_ns / 1e9,
            "offset": None if self.offset < 0 else self.offset,
            "controller_id": self.controller_id,
            "controller_epoch": self.controller_epoch,
        }
        return compact(head | self.fields)


def refuse(options: Mapping[str, object], why: str) -> None:
    """Refuse options that a metadata log cannot answer.

    Args:
        options: Their values by name.
        why: The words behind an option's name.

    Raises:
        ConfigurationError: One of them is given.
    """
    for option, given in options.items():
        if given:
            raise ConfigurationError(f"{option} {why}")


def changes_of(files: LogFiles, filters: Filters, captures: Sequence[str] = (), *, deletes: bool) -> list[LogChange]:
    """Return the wanted changes of a log, in the order of time and offset; warn of what cannot be read.

    Args:
        files: The log's files.
        filters: Which changes are wanted.
        captures: Captures that show fetches of the same log.
        deletes: Only deletions.

    Raises:
        CaptureError: A file cannot be opened; or the log, alone, holds no record that can be read.
    """
    points = capture_points([path for path in captures if path != "-"])
    traffic = read_traffic(points, ports=filters.ports) if points else MetadataTraffic()
    log = read(files, traffic.shown())
    if log.nothing and not captures:
        raise CaptureError(log.nothing)
    warn_of_faults(log)
    folded = fold(log, named=traffic.quorum.named())
    epochs = {epoch.epoch: epoch for epoch in folded.epochs}
    found = [change for batch in folded.batches for change in changes_of_batch(batch)]
    if not deletes and not filters.by_partition:
        begins = [batch.base_offset for batch in log.batches]
        for span in folded.brokers:
            at = bisect_right(begins, span.offset) - 1
            found.append(change_of_broker(span, epochs.get(log.batches[at].epoch) if span.offset >= 0 <= at else None))
        found += (change_of_epoch(epoch) for epoch in folded.epochs if epoch.from_ms is not None)
    found = [change for change in found if _wants(filters, change, deletes=deletes)]
    found.sort(key=lambda change: (change.time_ns, change.offset))
    return found


def warn_of_faults(log: MetadataLog | GrowingLog) -> None:
    """Print what is wrong with a log to standard error."""
    for fault in log.faults:
        where = f"{fault.path}: " if fault.path else ""
        at = "" if fault.at is None else f" at byte {fault.at:,}"
        print(f"warning: {printable(where)}{fault.reason}{at}", file=sys.stderr)
    if log.fault_count > len(log.faults):
        print(f"warning: and {log.fault_count - len(log.faults):,} more", file=sys.stderr)


def _wants(filters: Filters, change: LogChange, *, deletes: bool) -> bool:
    fields = change.fields
    if deletes and fields.get("change") != "deleted":
        return False
    if not filters.wants_time(change.time_ns) or not filters.wants_controller(change.controller_id):
        return False
    if filters.brokers and filters.brokers.isdisjoint(
        {fields.get("broker_id"), fields.get("leader"), *(fields.get("isr") or ()), *(fields.get("replicas") or ())}
    ):
        return False
    return "topic" not in fields or filters.wants_partition(fields["topic"] or "", fields["partition"])


def changes_of_batch(batch: FoldedBatch) -> Iterator[LogChange]:
    """Yield the changes of partitions that a batch made."""
    for state in batch.states:
        change, text = _words(batch, state)
        name = state.topic if state.topic is not None else f"(topic id {uuid_to_json(state.topic_id)})"
        fields: dict[str, Any] = {
            "change": change,
            "topic": state.topic,
            "topic_id": uuid_to_json(state.topic_id),
            "partition": state.partition,
            **({} if state.state is None else _fields(state.state)),
            "former": None if state.former is None else _fields(state.former),
        }
        yield LogChange(
            batch.time_ms * _MS, state.offset, batch.leader_id, batch.epoch, f"{name}-{state.partition}", text, fields
        )


def _fields(state: FoldedPartition) -> dict[str, Any]:
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "isr": state.isr,
        "replicas": state.replicas,
        "adding_replicas": state.adding,
        "removing_replicas": state.removing,
        "leader_recovery_state": None if state.recovering is None else int(state.recovering),
        "eligible_leader_replicas": state.elr,
    }


def _words(batch: FoldedBatch, state: FoldedState) -> tuple[str, str]:
    """The kind of a change, and the change in words."""
    now, former = state.state, state.former
    if now is None:
        return "deleted", "deleted"
    if former is None:
        kind = "in a snapshot" if batch.snapshot is not None else "created"
        return kind.replace("in a ", ""), f"{kind}: leader {id_text(now.leader)}, isr {ids_text(now.isr)}"
    parts = []
    if now.leader != former.leader:
        parts.append(f"leader {id_text(former.leader)}→{id_text(now.leader)}")
    elif now.leader_epoch != former.leader_epoch:
        parts.append(f"leader {id_text(now.leader)} again")
    if now.leader_epoch != former.leader_epoch:
        parts.append(f"leader epoch {id_text(now.leader_epoch)}")
    for name, was, new in (
        ("isr", former.isr, now.isr),
        ("replicas", former.replicas, now.replicas),
        ("adding", former.adding, now.adding),
        ("removing", former.removing, now.removing),
        ("eligible leaders", former.elr, now.elr),
    ):
        if was != new:
            parts.append(f"{name} {ids_text(was)}→{ids_text(new)}")
    if state.is_unclean:
        parts.append("UNCLEAN ELECTION")
    elif former.recovering and now.recovering is False:
        parts.append("recovered")
    return "changed", ", ".join(parts) or "unchanged"


def change_of_broker(span: BrokerSpan, epoch: QuorumEpoch | None) -> LogChange:
    """The change that began a time of a broker, by the controller of an epoch."""
    fields = {
        "change": "broker",
        "broker_id": span.broker_id,
        "state": span.state,
        "broker_epoch": span.broker_epoch,
        "incarnation_id": uuid_to_json(span.incarnation_id),
        "why": span.why,
    }
    text = span.state if span.why == span.state else f"{span.state}: {span.why}"
    return LogChange(
        span.from_ms * _MS, span.offset, None if epoch is None else epoch.leader_id,
        None if epoch is None else epoch.epoch, f"broker {span.broker_id}", text, fields,
    )  # fmt: skip


def change_of_epoch(epoch: QuorumEpoch) -> LogChange:
    """The change that began an epoch of the quorum."""
    fields = {"change": "controller", "voters": epoch.voters, "granting_voters": epoch.granting_voters}
    votes = f"{ids_text(epoch.granting_voters)} of {ids_text(epoch.voters)}"
    text = f"controller {epoch.leader_id} leads; voted for by {votes}"
    offset = -1 if epoch.offset is None else epoch.offset
    return LogChange((epoch.from_ms or 0) * _MS, offset, epoch.leader_id, epoch.epoch, "quorum", text, fields)
