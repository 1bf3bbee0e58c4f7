"""``kproto top`` of KRaft's metadata log: its controller, brokers and partitions now, and what changed last."""

from __future__ import annotations

import time
from collections import Counter, deque
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kproto.cli.metadata_changes import change_of_broker, change_of_epoch, changes_of_batch, warn_of_faults
from kproto.cli.screen import PLAIN_ROWS, POLL_S, cut, finding_lines, section_lines
from kproto.cli.sections import Section, shortened
from kproto.cli.text import day_and_clock, id_text, ids_text
from kproto.errors import CaptureError
from kproto.json_form import uuid_to_json
from kproto.metadata_log.growing import GrowingLog
from kproto.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kproto.cli.metadata_changes import LogChange
    from kproto.cli.screen import Screen
    from kproto.metadata_log.folding import BrokerSpan, FoldedBatch, QuorumEpoch
    from kproto.metadata_log.image import FoldedPartition, Image
    from kproto.verdicts.doctor import Finding

    _Lacking = tuple[str, FoldedPartition]
    """The name and the state of a partition without a leader, or without some of its replicas in sync."""

_MS: Final = 1_000_000
_SHARE: Final = 0.05
"""The share of the time that looking through all partitions may take, and that the rules of ``doctor`` may."""

_MOST_CHANGES: Final = 50
_NAME_LIMIT: Final = 40


def show_log(paths: Sequence[str], screen: Screen) -> None:
    """Show a metadata log, for ever, or once.

    Args:
        paths: The log's files, or directories of them.
        screen: Shows the snapshots.

    Raises:
        CaptureError: The log cannot be read.
    """
    log = GrowingLog(paths)
    view = LogView(log, " ".join(paths))
    view.update()
    warn_of_faults(log)
    judge_at = view.judge(paths)
    lines = [*view.lines(*screen.size)]
    due_at = 0.0
    while not screen.once:
        if screen.wait_s() == 0:
            if view.has_news and time.monotonic() >= due_at:
                if time.monotonic() >= judge_at:
                    judge_at = view.judge(paths)
                began = time.monotonic()
                lines = [*view.lines(*screen.size)]
                due_at = time.monotonic() + (time.monotonic() - began) / _SHARE
            screen.show(lines)
        time.sleep(min(POLL_S, screen.wait_s()))
        view.update()
    screen.show(lines)


class _Partitions:
    """What an image tells of all partitions: how many each broker leads or holds, and which ones lack something.

    Attributes:
        leads, replicas, in_sync: The number of partitions by broker.
        offline: Those without a leader.
        lacking: Those with a leader, and with replicas that are not in sync.
        unknown: The number of the others whose leader, ISR or replicas the log does not tell.
        total: The number of all.
        is_partial: Whether the log tells no leader, ISR or replicas of some, so that the brokers' numbers may be more.
    """

    def __init__(self, image: Image) -> None:
        self.leads, self.replicas, self.in_sync = Counter[int](), Counter[int](), Counter[int]()
        self.offline: list[_Lacking] = []
        self.lacking: list[_Lacking] = []
        self.unknown = self.total = 0
        self.is_partial = False
        for topic_id, topic in image.topics.items():
            name = uuid_to_json(topic_id) if topic.name is None else topic.name
            self.total += len(topic.partitions)
            for number, state in topic.partitions.items():
                self._add(name, number, state)

    def _add(self, topic: str, number: int, state: FoldedPartition) -> None:
        self.leads.update(() if state.leader is None else [state.leader])
        self.replicas.update(state.replicas or ())
        self.in_sync.update(state.isr or ())
        is_whole = None not in (state.leader, state.isr, state.replicas)
        self.is_partial = self.is_partial or not is_whole
        if state.leader is not None and state.leader < 0:
            self.offline.append((f"{topic}-{number}", state))
        elif not is_whole:
            self.unknown += 1
        elif not set(state.replicas or ()).issubset(state.isr or ()):
            self.lacking.append((f"{topic}-{number}", state))


class LogView:
    """What a metadata log says now.

    Args:
        log: The log.
        name: Its name.

    Attributes:
        has_news: Whether the log has grown since ``lines``.
    """

    def __init__(self, log: GrowingLog, name: str) -> None:
        self.has_news = False
        self._log = log
        self._name = name
        self._changes: deque[LogChange] = deque(maxlen=_MOST_CHANGES)
        self._brokers: dict[int, BrokerSpan] = {}
        self._controller: QuorumEpoch | None = None
        self._findings: list[Finding] = []

    def judge(self, paths: Sequence[str]) -> float:
        """Apply the rules of ``doctor`` to the log's files; return when to do so again, by the monotonic clock."""
        from kproto.tables.reading import read
        from kproto.verdicts.facts import Facts
        from kproto.verdicts.rules import findings

        began = time.monotonic()
        with suppress(CaptureError):  # no record yet, or a file that Kafka has just deleted
            self._findings = findings(Facts([read(*paths)]))
        return time.monotonic() + (time.monotonic() - began) / _SHARE

    def update(self) -> None:
        """Read what is new in the log."""
        if not self._log.read():
            return
        self.has_news = True
        folded = self._log.folded
        if self._log.is_whole:
            self._changes.clear()
            self._brokers.clear()
            self._controller = None
        self._brokers |= {span.broker_id: span for span in folded.brokers}
        epochs = [*folded.epochs, *filter(None, [self._controller])]
        self._controller = max(epochs, key=attrgetter("epoch"), default=None)
        found = [change_of_broker(span, None) for span in folded.brokers[-_MOST_CHANGES:] if span.offset >= 0]
        found += [change_of_epoch(epoch) for epoch in folded.epochs[-_MOST_CHANGES:] if epoch.from_ms is not None]
        batches = [batch for batch in folded.batches if batch.states and batch.snapshot is None]
        found += map(_first, batches[-_MOST_CHANGES:])
        self._changes.extend(sorted(found, key=lambda change: change.offset))

    def lines(self, width: int, height: int | None) -> Iterator[str]:
        """Yield it as lines of text.

        Args:
            width: Columns.
            height: Lines to fit; None: any number.
        """
        self.has_news = False
        log, image = self._log, self._log.folded.image
        day, clock = day_and_clock(max(log.time_ms, 0) * _MS)
        tail = f"  {day} {clock[:8]}Z, offset {log.next_offset - 1}" if log.next_offset else "  no record yet"
        yield f"kproto top  {shortened(printable(self._name), max(width - len(tail) - 12, 8))}{tail}"
        now = _Partitions(image)
        controller = "controller not known yet"
        if self._controller is not None:
            controller = f"controller {self._controller.leader_id}, epoch {self._controller.epoch} (KRaft)"
        yield f"  {controller}; {counted(len(image.topics), 'topic')}, {counted(now.total, 'partition')}"
        parts = [f"{len(now.offline):,} partitions without a leader", f"{len(now.lacking):,} more under-replicated"]
        parts += [f"{now.unknown:,} told in part"] if now.unknown else []
        yield cut(f"  {', '.join(parts)}", width)
        rows = PLAIN_ROWS if height is None else max((height - 11) // 4, 1)
        yield from section_lines(self._of_brokers(now, rows), width)
        yield from section_lines(_of_partitions([*now.offline, *now.lacking], rows), width)
        yield "Latest changes"
        latest = [f"  {cut(_line(change), width - 2)}" for change in list(self._changes)[: -rows - 1 : -1]]
        yield from latest or ["  none"]
        yield "Findings so far"
        yield from finding_lines(self._findings, rows, width)

    def _of_brokers(self, now: _Partitions, rows: int) -> Section:
        section = Section("Brokers", ["broker", "~state", "since", ">leads", ">in sync", ">replicas", ">broker epoch"])
        spans = {broker: span for broker, span in self._brokers.items() if span.state != "unregistered"}
        ids = sorted({*spans, *now.replicas})
        ids.sort(
            key=lambda broker: (
                broker in spans and spans[broker].state == "unfenced",
                now.in_sync[broker] - now.replicas[broker],
            )
        )
        for broker in ids[:rows]:
            span = spans.get(broker)
            state, since, epoch = "not registered", "-", "-"
            if span is not None:
                state, since = span.state, " ".join(day_and_clock(span.from_ms * _MS)).split(".")[0]
                epoch = "-" if span.broker_epoch < 0 else str(span.broker_epoch)
            counts = [f"{'≥' * now.is_partial}{count[broker]}" for count in (now.leads, now.in_sync, now.replicas)]
            section.rows.append([str(broker), state, since, *counts, epoch])
        if len(ids) > rows:
            section.below = f"and {len(ids) - rows} more, unfenced or with fewer replicas out of sync"
        return section


def _of_partitions(found: Sequence[_Lacking], rows: int) -> Section:
    section = Section(
        "Partitions without a leader or replicas", ["~partition", "leader", "~in sync", "~replicas", ">leader epoch"]
    )
    for name, state in found[:rows]:
        section.rows.append([
            shortened(printable(name), _NAME_LIMIT), id_text(state.leader), ids_text(state.isr),
            ids_text(state.replicas), id_text(state.leader_epoch),
        ])  # fmt: skip
    section.text = "" if found else "none"
    if len(found) > rows:
        section.below = f"and {len(found) - rows:,} more: kproto query DIR offline, and under-replicated, show them"
    return section


def _first(batch: FoldedBatch) -> LogChange:
    """The change of a batch's first partition, with the number of the others."""
    change = next(changes_of_batch(batch))
    more = len(batch.states) - 1
    return change._replace(text=f"{change.text}; and {counted(more, 'more partition')}") if more else change


def _line(change: LogChange) -> str:
    _day, clock = day_and_clock(change.time_ns)
    return printable(f"{clock}  {shortened(change.what, _NAME_LIMIT)}  {change.text}")
