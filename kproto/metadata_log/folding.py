"""Folds a metadata log into what it says of partitions, brokers and the quorum, in the order of its offsets.

``fold`` gives each batch with the states that it made. A log that begins in the middle has changes that name only what
changed; a snapshot behind them tells the rest backwards, since each change counts the partition epoch up by one, and
the leader epoch where it names a leader. What stays unknown is None. The records of a transaction count when it ends,
those of an aborted one never.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from kproto.metadata_log.batches import LogRecord, RecordBatch
from kproto.metadata_log.files import LogSnapshot
from kproto.metadata_log.image import Image
from kproto.metadata_log.members import QuorumMembers
from kproto.metadata_log.records import (
    NO_LEADER,
    SAME_LEADER,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FenceBrokerRecord,
    KRaftVotersRecord,
    LeaderChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kproto.metadata_log.files import MetadataLog, QuorumState
    from kproto.metadata_log.image import FoldedPartition, PartitionFold
    from kproto.metadata_log.records import MetadataRecord, Voter, VoterEntry


@dataclass(slots=True)
class FoldedState:
    """A state of a partition.

    Attributes:
        topic: The topic's name; None: no file says it.
        topic_id, partition: The partition.
        state: The state; None: its topic was deleted.
        former: The state before; None: there was none, or it is not known.
        offset: The offset of the record that made it; -1: a snapshot.
        is_decided: Whether this epoch's controller chose its leader, or an earlier state tells of it; not so in a
            snapshot, in what is taken over from ZooKeeper, and where the log begins after the election.
    """

    topic: str | None
    topic_id: bytes
    partition: int
    state: FoldedPartition | None
    former: FoldedPartition | None
    offset: int
    is_decided: bool = False

    @property
    def is_unclean(self) -> bool:
        """Whether it begins with the election of a leader that was not in sync.

        While the recovery from an earlier one lasts Kafka marks no second: it leaves a leader alone in the ISR that was
        neither in the ISR nor among the eligible leader replicas.
        """
        now, former = self.state, self.former
        if now is None or former is None or not now.recovering or now.leader in (None, NO_LEADER):
            return False
        if not former.recovering:
            return former.recovering is False
        in_sync = None if former.isr is None or former.elr is None else (former.leader, *former.isr, *former.elr)
        return in_sync is not None and now.isr == (now.leader,) and now.leader not in in_sync


@dataclass(slots=True)
class FoldedBatch:
    """A batch, or a snapshot, with what it changed.

    Attributes:
        batch_id: 16 bytes that name it: the same for each node's copy, and for what a capture shows of it.
        source: The one or the other.
        time_ms: When it was written, ms since 1970, by the clock of the quorum's leader.
        leader_id: The node that wrote it, the active controller; None: unknown, or a snapshot.
        states: The states that it made.
        live: The brokers that are registered and not fenced after it, where it changed them.
        all_live: Whether these are all that are registered.
        is_idle: Whether it holds NoOpRecords alone.
    """

    batch_id: bytes
    source: RecordBatch | LogSnapshot
    time_ms: int
    leader_id: int | None
    states: list[FoldedState] = field(default_factory=list)
    live: frozenset[int] | None = None
    all_live: bool = False
    is_idle: bool = False

    @property
    def snapshot(self) -> LogSnapshot | None:
        """The snapshot; None: it is a batch."""
        return self.source if isinstance(self.source, LogSnapshot) else None

    @property
    def epoch(self) -> int | None:
        """The quorum's epoch; None of a snapshot, which does not say who decided its states."""
        return self.source.epoch if isinstance(self.source, RecordBatch) else None

    @property
    def begin_offset(self) -> int:
        """The offset before which all must be known for it to follow: of a snapshot its end, as it has all before."""
        return self.source.base_offset if isinstance(self.source, RecordBatch) else self.source.end_offset


@dataclass(slots=True)
class BrokerSpan:
    """A time in which a broker's state was the same.

    Attributes:
        broker_id: The broker.
        state: ``fenced``, ``unfenced``, ``in controlled shutdown`` or ``unregistered``.
        broker_epoch: The epoch of its registration: the offset of the RegisterBrokerRecord.
        incarnation_id: Of its process, 16 bytes.
        from_ms, until_ms: When it began and ended, ms since 1970; ``until_ms`` None: it lasts.
        offset: The offset of the record that began it; -1: a snapshot.
        why: What began it, as far as records tell.
        is_restart: Whether it begins a process: a registration with a new incarnation id.
        listeners: Host and port of its addresses.
        rack: Its rack.
        epoch: The epoch of the quorum in which it began; -1: a snapshot.
    """

    broker_id: int
    state: str
    broker_epoch: int
    incarnation_id: bytes
    from_ms: int
    until_ms: int | None
    offset: int
    why: str
    is_restart: bool
    listeners: tuple[tuple[str, int], ...]
    rack: str | None
    epoch: int = -1


@dataclass(slots=True)
class QuorumEpoch:
    """An epoch of the quorum.

    Attributes:
        epoch: The epoch.
        leader_id: Its leader, the active controller.
        from_ms: When its leader wrote that it leads, ms since 1970; None: not shown.
        until_ms: When the next did, or the last record before a gap that hides it was written; None: not shown.
        offset: The offset of the LeaderChange record; None: a node's quorum-state alone tells of it.
        voters, granting_voters: The voters, and those that are known to have voted for it.
    """

    epoch: int
    leader_id: int
    from_ms: int | None
    until_ms: int | None
    offset: int | None
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


class NamedLeaders(NamedTuple):
    """The quorum's leaders that captures name, whether or not they show an election.

    Attributes:
        leaders: Of each epoch, as any answer or announcement names it; it need not have led.
        served: The epochs in which a leader answered.
    """

    leaders: Mapping[int, int]
    served: Collection[int]


@dataclass(slots=True)
class FoldedLog:
    """What a log says.

    Attributes:
        batches: The batches in order, and the snapshots that were needed.
        brokers: The states of brokers, in the order in which they began.
        epochs: The epochs of the quorum, ascending.
        image: The image at the end.
        members: Who votes in the quorum, and who only follows.
        unreadable: The number of records that cannot be read.
        unreadable_reason: Why the first of these cannot.
        unnamed: The number of states whose topic's name, or whose former state, no file tells.
    """

    batches: list[FoldedBatch] = field(default_factory=list)
    brokers: list[BrokerSpan] = field(default_factory=list)
    epochs: list[QuorumEpoch] = field(default_factory=list)
    image: Image = field(default_factory=Image)
    members: QuorumMembers = field(default_factory=QuorumMembers)
    unreadable: int = 0
    unreadable_reason: str = ""
    unnamed: int = 0

    def unread(self, record: LogRecord) -> None:
        """Count a record that cannot be read."""
        self.unreadable += 1
        self.unreadable_reason = self.unreadable_reason or record.error


_MS: Final = 1_000_000
_UNKNOWN_ID: Final = bytes(16)
_NO_CHANGE: Final = 0
_TRANSACTION: Final = frozenset({BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord})
_MARK: Final = re.compile(b"\x01[\x17-\x19]\0")
"""Bytes with which the records that begin and end a transaction begin, in batches that are not compressed."""


def fold(
    log: MetadataLog,
    visit: Callable[[FoldedBatch, LogRecord], None] | None = None,
    named: NamedLeaders | None = None,
    took_effect: Callable[[FoldedBatch, LogRecord], None] | None = None,
) -> FoldedLog:
    """Fold a log, see ``LogFold``."""
    return LogFold(visit, named, took_effect).run(log)


class LogFold:
    """Folds a log, and what is written to it afterwards.

    Args:
        visit: Called with each record, as it is read, and the batch that holds it.
        named: The leaders that captures name.
        took_effect: Called with each record that holds, in a transaction at its end, and the batch that holds it.
    """

    def __init__(
        self,
        visit: Callable[[FoldedBatch, LogRecord], None] | None = None,
        named: NamedLeaders | None = None,
        took_effect: Callable[[FoldedBatch, LogRecord], None] | None = None,
    ) -> None:
        named = named or NamedLeaders({}, ())
        self._visit, self._took_effect = visit, took_effect
        self._served = named.served
        self._made = FoldedLog()
        self._names: dict[bytes, str] = {}
        self._spans: dict[int, BrokerSpan] = {}
        self._nameless: dict[int, list[BrokerSpan]] = {}  # states of processes whose registration is not shown yet
        self._has_brokers = False
        self._snapshot_end = 0
        self._pending: dict[tuple[bytes, int], list[tuple[FoldedState, MetadataRecord]]] = {}
        self._open: list[tuple[FoldedBatch, LogRecord]] | None = None  # what waits for its transaction's end
        self._leaders = dict(named.leaders)

    def run(self, log: MetadataLog) -> FoldedLog:
        """Fold a log."""
        made = self._made
        self._leaders |= {state.leader_epoch: state.leader_id for state in log.states if state.leader_id >= 0}
        amid = _amid_aborted(log.batches)
        for source, after_gap in log.steps():
            if after_gap:
                made.image.forget()
                self._end_at_gap(source.epoch)
            if isinstance(source, LogSnapshot):
                self._snapshot(source)
            else:
                if source.base_offset in amid:
                    self._open = []
                self.add(source)
        for batch in made.batches:
            for state in batch.states:
                if state.topic is None:
                    state.topic = self._names.get(state.topic_id)
            if batch.leader_id is None and batch.epoch is not None:
                batch.leader_id = self._leaders.get(batch.epoch)
        for quorum_state in log.states:
            if quorum_state.voters and not made.members.has_voters:
                made.members.add_voters(0, None, ((node, b"") for node in quorum_state.voters), "quorum-state")
        made.unnamed = sum(not is_whole(state) for batch in made.batches for state in batch.states)
        self._finish_epochs(log.states)
        return made

    # ---- batches and snapshots

    def waiting(self) -> list[FoldedBatch]:
        """Return the batches whose records wait for the end of their transaction."""
        return list({id(batch): batch for batch, _record in self._open or ()}.values())

    def _end_at_gap(self, epoch: int) -> None:
        """Forget what brokers are, and who led, where the log has a gap before an epoch: both are known up to there.

        What comes after it tells nothing of partitions before it.
        """
        last_ms = self._made.batches[-1].time_ms if self._made.batches else 0
        for span in self._spans.values():
            span.until_ms = self._open[0][1].time_ms if self._open else last_ms
        for former in self._made.epochs[-1:]:
            if former.epoch < epoch and former.until_ms is None:
                former.until_ms = last_ms
        self._has_brokers, self._open = False, None
        for held in self._spans, self._nameless, self._pending:
            held.clear()

    def add(self, batch: RecordBatch) -> None:
        """Fold the next batch; what it makes is added to what ``run`` returned."""
        made = self._made
        found = FoldedBatch(
            blake2b(b"%d %d " % (batch.epoch, batch.base_offset) + batch.data[17:21], digest_size=16).digest(),
            batch, batch.time_ms, self._leaders.get(batch.epoch),
        )  # fmt: skip
        is_idle = not batch.is_control
        has_brokers = False
        visit = self._visit
        for each in batch.records():
            record = each.record
            if visit is not None:
                visit(found, each)
            if record is None:
                made.unread(each)
                is_idle = False
                continue
            is_idle = is_idle and isinstance(record, NoOpRecord)
            if each.is_control:
                if isinstance(record, LeaderChangeRecord):
                    self._led(record, each)
                    found.leader_id = record.leader_id
            elif type(record) in _TRANSACTION:
                ended, self._open = self._open or (), [] if isinstance(record, BeginTransactionRecord) else None
                for holder, held in ended if isinstance(record, EndTransactionRecord) else ():
                    has_brokers = self._take(holder, held) or has_brokers
                continue
            elif self._open is not None:
                self._open.append((found, each))
                continue
            has_brokers = self._take(found, each) or has_brokers
        found.is_idle = is_idle
        self._has_brokers = self._has_brokers or not batch.base_offset
        if has_brokers and self._has_brokers and not made.image.takes_over:
            self._list_live(found)
        made.batches.append(found)

    def _take(self, holder: FoldedBatch, each: LogRecord) -> bool:
        """Fold a record that holds; return whether it tells of who lives."""
        if self._took_effect is not None:
            self._took_effect(holder, each)
        if each.record is not None and not each.is_control:
            for change in self._made.image.apply(each.record):
                holder.states.append(self._state(change, each.offset))
        return self._told(each, holder.begin_offset)

    def _state(self, change: PartitionFold, offset: int) -> FoldedState:
        former = change.former
        is_older = former is not None and former.leader_epoch is None and not _names_leader(change.record)
        made = FoldedState(
            self._names.get(change.topic_id), change.topic_id, change.partition, change.state, former, offset,
            not self._made.image.takes_over and not is_older,
        )  # fmt: skip
        key = change.topic_id, change.partition
        if change.state is not None and None in change.state:
            self._pending.setdefault(key, []).append((made, change.record))
        elif key in self._pending and change.state is not None:
            del self._pending[key]
        return made

    def _snapshot(self, snapshot: LogSnapshot) -> None:
        """Take the image of a snapshot: what differs from the fold so far, or was not known, becomes states."""
        made = self._made
        after_gap = bool(made.batches) and snapshot.end_offset > made.batches[-1].source.end_offset
        if after_gap:
            self._end_at_gap(snapshot.epoch)
        self._snapshot_end = snapshot.end_offset
        image, former = Image(), made.image
        time_ms = snapshot.time_ms
        if time_ms is None or time_ms < 0:
            time_ms = made.batches[-1].time_ms if made.batches else 0
        name = b"snapshot %d %d" % (snapshot.end_offset, snapshot.epoch)
        found = FoldedBatch(blake2b(name, digest_size=16).digest(), snapshot, time_ms, None)
        removed = FoldedBatch(  # a topic of a name that it has was deleted before
            blake2b(name + b" removed", digest_size=16).digest(), snapshot, time_ms - 1, None
        )
        visit = self._visit
        registered = set()
        for each in snapshot.records():
            record = each.record
            if visit is not None:
                visit(found, each)
            if record is None:
                made.unread(each)
                continue
            if type(record) is not PartitionRecord:
                if self._took_effect is not None:
                    self._took_effect(found, each)
                self._told(each._replace(offset=-1, time_ms=time_ms))
            if isinstance(record, RegisterBrokerRecord):
                registered.add(record.broker_id)
            if not each.is_control:
                image.apply(record)
        for topic_id, topic in former.topics.items():
            if topic_id not in image.topics:
                for partition, before in topic.partitions.items():
                    removed.states.append(FoldedState(topic.name, topic_id, partition, None, before, -1))
        for topic_id, topic in image.topics.items():
            known = former.topics.get(topic_id)
            for partition, state in topic.partitions.items():
                was = None if known is None else known.partitions.get(partition)
                told = bool(self._pending) and self._backwards((topic_id, partition), state)
                if not told and (after_gap or was is None or _agrees(was, state) is not True):
                    found.states.append(FoldedState(topic.name, topic_id, partition, state, was, -1))
        for broker_id in [broker_id for broker_id in self._spans if broker_id not in registered]:
            self._turned(broker_id, -1, "unregistered", "not in the snapshot", LogRecord(-1, time_ms, -1, False, None))
        self._pending.clear()
        self._has_brokers = True
        self._list_live(found)
        made.image = image
        made.batches += [removed, found] if removed.states else [found]

    def _backwards(self, key: tuple[bytes, int], known: FoldedPartition) -> bool:
        """Fill the states before a known one; return whether the last of them is that one."""
        after, is_last = known, False
        for made, record in reversed(self._pending.pop(key, ())):
            state = made.state
            if state is None or not isinstance(record, PartitionChangeRecord) or _agrees(state, after) is False:
                return is_last
            whole = _filled(state, after)
            made.state, is_last = whole, True
            names_leader = _names_leader(record)
            before = whole._replace(
                leader=None if names_leader else whole.leader,
                leader_epoch=None if whole.leader_epoch is None else whole.leader_epoch - names_leader,
                partition_epoch=None if whole.partition_epoch is None else whole.partition_epoch - 1,
                isr=whole.isr if record.isr is None else None,
                replicas=whole.replicas if record.replicas is None else None,
                removing=whole.removing if record.removing_replicas is None else None,
                adding=whole.adding if record.adding_replicas is None else None,
                recovering=whole.recovering if record.leader_recovery_state == -1 else not record.leader_recovery_state,
                elr=whole.elr if record.eligible_leader_replicas is None else None,
                last_known=whole.last_known if record.last_known_elr is None else None,
            )
            former = made.former
            if former is not None:
                before = _filled(former, before)
            made.former = after = before
        return is_last

    # ---- brokers and the quorum

    def _told(self, each: LogRecord, batch_offset: int = -1) -> bool:
        """Note what a record says of names, nodes and brokers, at offset -1 in a snapshot; whether of who lives."""
        record = each.record
        if isinstance(record, RegisterBrokerRecord):
            self._registered(record, each, batch_offset)
        elif isinstance(record, FenceBrokerRecord):
            self._turned(record.id, record.epoch, "fenced", "fenced", each)
        elif isinstance(record, UnfenceBrokerRecord):
            self._turned(record.id, record.epoch, "unfenced", "unfenced", each)
        elif isinstance(record, BrokerRegistrationChangeRecord):
            span = self._spans.get(record.broker_id)
            if record.in_controlled_shutdown > _NO_CHANGE:
                self._turned(
                    record.broker_id, record.broker_epoch, "in controlled shutdown", "controlled shutdown", each
                )
            elif record.fenced > _NO_CHANGE:
                why = "fenced"
                if span is not None and span.state != "fenced":
                    is_stopping = span.state == "in controlled shutdown"
                    why += (
                        " after its controlled shutdown" if is_stopping else ", with no controlled shutdown before it"
                    )
                self._turned(record.broker_id, record.broker_epoch, "fenced", why, each)
            elif record.fenced < _NO_CHANGE:
                self._turned(record.broker_id, record.broker_epoch, "unfenced", "caught up and unfenced", each)
        elif isinstance(record, UnregisterBrokerRecord):
            self._turned(record.broker_id, record.broker_epoch, "unregistered", "unregistered", each)
        else:
            if isinstance(record, TopicRecord):
                self._names[record.topic_id] = record.name
            elif isinstance(record, RegisterControllerRecord):
                self._takes_part(record.controller_id, "RegisterController", each.offset, each.time_ms)
            elif isinstance(record, KRaftVotersRecord):
                self._vote(record.voters, "VotersRecord", each)
            return isinstance(record, ZkMigrationStateRecord)  # ZooKeeper's brokers live all along
        return True

    def _registered(self, record: RegisterBrokerRecord, each: LogRecord, batch_offset: int) -> None:
        before, is_new = self._spans.get(record.broker_id), each.offset >= 0
        is_same = record.broker_epoch < batch_offset  # a new process takes the offset of its first record
        if before is not None and before.incarnation_id != _UNKNOWN_ID:
            is_same = before.incarnation_id == record.incarnation_id
        state = "in controlled shutdown" if record.in_controlled_shutdown else "unfenced"
        if record.fenced:
            state = "fenced"
        listeners = tuple((point.host, point.port) for point in record.end_points)
        for span in self._nameless.pop(record.broker_id, ()):
            if not is_new and span.broker_epoch == record.broker_epoch:
                span.incarnation_id, span.listeners, span.rack = record.incarnation_id, listeners, record.rack
                is_same = True
        if is_same and not is_new and before is not None and before.state == state:
            return
        why = "registered again" if is_same else "registered with a new incarnation id"
        self._begin(
            BrokerSpan(
                record.broker_id, state, record.broker_epoch, record.incarnation_id, each.time_ms, None, each.offset,
                why if is_new else "in a snapshot", is_new and not is_same, listeners, record.rack,
                each.epoch if is_new else -1,
            )
        )  # fmt: skip

    def _turned(self, broker_id: int, broker_epoch: int, state: str, why: str, each: LogRecord) -> None:
        span = self._spans.get(broker_id)
        if span is None:
            span = BrokerSpan(broker_id, "", broker_epoch, _UNKNOWN_ID, 0, None, 0, "", False, (), None)
        if span.state != state:
            span = replace(
                span, state=state, from_ms=each.time_ms, until_ms=None, offset=each.offset, why=why, is_restart=False,
                epoch=each.epoch,
            )  # fmt: skip
            if span.incarnation_id == _UNKNOWN_ID:
                self._nameless.setdefault(broker_id, []).append(span)
            self._begin(span)

    def _begin(self, span: BrokerSpan) -> None:
        if span.state == "unregistered":
            self._made.members.add_end(self._place(span.offset, "")[0], span.from_ms * _MS, span.broker_id)
        elif span.offset < 0 or span.why.startswith("registered"):
            self._takes_part(span.broker_id, "RegisterBroker", span.offset, span.from_ms)
        before = self._spans.get(span.broker_id)
        if before is not None:
            before.until_ms = span.from_ms
        self._spans[span.broker_id] = span
        self._made.brokers.append(span)

    def _list_live(self, found: FoldedBatch) -> None:
        registered = {broker: span.state for broker, span in self._spans.items() if span.state != "unregistered"}
        found.live = frozenset(broker for broker, state in registered.items() if state != "fenced")
        found.all_live = len(found.live) == len(registered) > 0

    def _place(self, offset: int, told_by: str) -> tuple[int, str, int | None]:
        """Where a member is told: the offset before which all is known, by what, and the record's offset."""
        return (self._snapshot_end, "snapshot", None) if offset < 0 else (offset + 1, told_by, offset)

    def _takes_part(self, node_id: int, told_by: str, offset: int, time_ms: int) -> None:
        position, told_by, at = self._place(offset, told_by)
        self._made.members.add_node(position, time_ms * _MS, node_id, told_by, at)

    def _vote(self, voters: Iterable[Voter | VoterEntry], told_by: str, each: LogRecord) -> None:
        position, told_by, at = self._place(each.offset, told_by)
        ids = ((voter.voter_id, voter.voter_directory_id) for voter in voters)
        self._made.members.add_voters(position, each.time_ms * _MS, ids, told_by, at)

    def _led(self, record: LeaderChangeRecord, each: LogRecord) -> None:
        self._leaders[each.epoch] = record.leader_id
        self._vote(record.voters, "LeaderChange", each)
        self._made.epochs.append(
            QuorumEpoch(
                each.epoch, record.leader_id, each.time_ms, None, each.offset,
                tuple(voter.voter_id for voter in record.voters),
                tuple(voter.voter_id for voter in record.granting_voters),
            )
        )  # fmt: skip

    def _finish_epochs(self, states: Iterable[QuorumState]) -> None:
        epochs = {epoch.epoch: epoch for epoch in self._made.epochs}
        wrote = {batch.epoch for batch in self._made.batches if batch.epoch is not None}
        led = wrote.union(self._served)
        told = {state.leader_epoch for state in states}
        newest = max(led, default=-1)
        for number, leader in self._leaders.items():
            if number in led or (number > newest and number in told):
                epochs.setdefault(number, QuorumEpoch(number, leader, None, None, None, (), ()))
        ordered = [epochs[number] for number in sorted(epochs)]
        for former, later in pairwise(ordered):
            former.until_ms = later.from_ms if former.until_ms is None else former.until_ms
        self._made.epochs = ordered


def _amid_aborted(batches: Iterable[RecordBatch]) -> set[int]:
    """The offsets at which a log begins, or goes on behind a gap, amid a transaction that is aborted later."""
    found: set[int] = set()
    expected, begin = 0, None
    for batch in batches:
        begin = batch.base_offset if batch.base_offset > expected else begin
        expected = batch.end_offset
        if begin is not None and _MARK.search(batch.data):
            marks = [type(each.record) for each in batch.records() if type(each.record) in _TRANSACTION]
            found.update([begin] if marks[:1] == [AbortTransactionRecord] else [])
            begin = None if marks else begin
    return found


def _names_leader(record: MetadataRecord) -> bool:
    """Whether a partition's record elects a leader."""
    return not isinstance(record, PartitionChangeRecord) or record.leader != SAME_LEADER


def is_whole(state: FoldedState) -> bool:
    """Whether a state has a topic's name and what the tables need; its replicas may be unknown."""
    known = state.state
    return state.topic is not None and (
        known is None or None not in (known.leader, known.leader_epoch, known.partition_epoch, known.isr)
    )


def _filled(state: FoldedPartition, more: FoldedPartition) -> FoldedPartition:
    """A state with what another tells where it is unknown."""
    return type(state)._make(b if a is None else a for a, b in zip(state, more, strict=True))


def _agrees(one: FoldedPartition, other: FoldedPartition) -> bool | None:
    """Whether two states are equal; None: as far as both are known."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    if any(a != b for a, b in pairs):
        return False
    return True if len(pairs) == len(one) else None
