"""Makes tables of verdicts: the findings of the rules, updates that brokers missed, and brokers that are behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kproto.tables.arrays import table_of
from kproto.tables.resolved import RESOLVED, by_cluster
from kproto.tables.schemas import INTS, TIME, column, described
from kproto.verdicts.catalogue import LIMITS
from kproto.verdicts.doctor import Doctor
from kproto.verdicts.events import events, reassignments
from kproto.verdicts.facts import FACT_COLUMNS, Facts
from kproto.verdicts.flaps import flapping
from kproto.verdicts.rules import findings
from kproto.verdicts.stale import CLUSTER
from kproto.verdicts.updates import brokers_behind, missed_updates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kproto.tables.stored import Reader

_SUBJECT: Final = (
    column("broker", pa.string(), "The broker that it is about: its id, or its address where no id is known; or null."),
    column("topic", pa.string(), "The topic that it is about; or null."),
    column("partition", pa.int32(), "The partition that it is about; or null."),
)
_PLACE: Final = (column("topic", pa.string(), "Topic."), column("partition", pa.int32(), "Partition."))
_FLAPS: Final = int(LIMITS["flaps"].default)
_FLAP_MINUTES: Final = int(LIMITS["flap-minutes"].default)

FINDINGS: Final = described(
    "What the rules of kproto doctor find, the worst first; docs/verdicts.md has the rules.",
    CLUSTER,
    column("rule", pa.string(), "The rule's id."),
    column("severity", pa.string(), "trouble, warning or note."),
    column("text", pa.string(), "A sentence."),
    column("first_ts", TIME, "When it began (UTC, us)."),
    column("last_ts", TIME, "When it was last seen (UTC, us)."),
    column("count", pa.int64(), "How often."),
    *_SUBJECT,
    column("cannot_tell", pa.string(), "What the captures lack, so that it is uncertain; null: it is certain."),
)

MISSED_UPDATES: Final = described(
    "Metadata updates that a living, connected broker was not sent, nor newer states in their place. "
    "None where the captures lack what may show it: doctor says there that it cannot tell.",
    CLUSTER,
    column("first_ts", TIME, "When the first broker was told (UTC, us)."),
    column("broker", pa.int32(), "The broker that missed it."),
    column("change_id", pa.binary(), "The update: its body. Joins requests.body_id and partition_states.body_id."),
    column("controller_id", pa.int32(), "Controller that sent it."),
    column("controller_epoch", pa.int32(), "Epoch of that controller."),
    column("n_partitions", pa.int32(), "Partitions in it."),
    column("down_since", TIME, "Since when updates list the broker as alive no more (UTC, us); null: they still do."),
)

BROKER_LIVES: Final = described(
    "Each registration of a broker, by the broker epochs of requests that it accepted.",
    CLUSTER,
    column("broker", pa.int32(), "The broker; null where no id is known."),
    column("address", pa.string(), "The address of the first request with this epoch."),
    column("mode", pa.string(), "ZooKeeper or KRaft: of the controller; their broker epochs are not compared."),
    column("broker_epoch", pa.int64(), "Its broker epoch."),
    column("valid_from", TIME, "When the first accepted request with this epoch passed (UTC, us)."),
    column("valid_to", TIME, "When the first with the next one passed (UTC, us); null: it is the last."),
    column("left_ts", TIME, "When the live brokers first lacked it after that (UTC, us); null: they did not."),
    column("left_how", pa.string(), "How it left them; null: it did not, or nothing tells how."),
    column("last_request", TIME, "When the last accepted request with this epoch passed (UTC, us)."),
    column("requests", pa.int64(), "Accepted requests with this epoch."),
    column("shown_by", pa.string(), "What shows that it began."),
)

EVENTS: Final = described(
    "What happened, in order: controllers, brokers, elections, topics, reassignments, clocks and gaps.",
    CLUSTER,
    column("ts", TIME, "When (UTC, us)."),
    column("event", pa.string(), "What, in a word or two: controller, broker left, topic created ..."),
    column("text", pa.string(), "A sentence."),
    *_SUBJECT,
    column("command", pa.string(), "The command that shows it; CAPTURE stands for the captures or tables."),
)

REASSIGNMENTS: Final = described(
    "Changes of partitions' replicas.",
    CLUSTER,
    *_PLACE,
    column("valid_from", TIME, "When a broker was first told of it (UTC, us)."),
    column(
        "valid_to", TIME, "When LeaderAndIsr first named no replica that is added any more (UTC, us); null: so far."
    ),
    column("added", INTS, "Replicas that it adds, ascending."),
    column("removed", INTS, "Replicas that it removes, ascending."),
    column("replicas", INTS, "The replicas at its end, or so far."),
)

BROKERS_DOWN: Final = described(
    "Brokers that the last accepted UpdateMetadata does not list as alive, though earlier ones did.",
    CLUSTER,
    column("broker", pa.int32(), "The broker."),
    column("down_since", TIME, "When the first update without it passed (UTC, us)."),
)

BEHIND: Final = described(
    "Partitions that exist and whose newest state a living broker was never told by UpdateMetadata. "
    "None where the captures lack what may show it: doctor says there that it cannot tell.",
    CLUSTER,
    column("broker", pa.int32(), "The broker."),
    *_PLACE,
    column("leader_told", pa.int32(), "Leader that it was told last; null: none."),
    column("newest_leader", pa.int32(), "Leader that others were told."),
    column("leader_epoch_told", pa.int32(), "Leader epoch that it was told last; null: none."),
    column("newest_leader_epoch", pa.int32(), "Leader epoch that others were told."),
    column("last_request", TIME, "When it was last sent a request (UTC, us)."),
)

LEADER_FLAPS: Final = described(
    f"Partitions whose leader changed {_FLAPS} times or more within {_FLAP_MINUTES} minutes, without the changes that "
    "follow from a broker's coming or going.",
    CLUSTER,
    *_PLACE,
    column("first_ts", TIME, "When the first of these changes passed (UTC, us)."),
    column("last_ts", TIME, "When the last one passed (UTC, us)."),
    column("changes", pa.int64(), f"The most changes within {_FLAP_MINUTES} minutes."),
    column("leaders", INTS, "The leaders that came with them, ascending; -1 none."),
)


Judged = tuple[str, Facts]
"""A cluster's name and its facts."""

Row = tuple[Any, ...]


def facts_of_clusters(read: Reader, *, redact: bool = False) -> Iterator[Judged]:
    """Yield the facts of each cluster in stored tables.

    Args:
        read: Reads resolved rows, see ``kproto.tables.resolved``.
        redact: Number topics, addresses and files instead of naming them.
    """
    tables = {}
    for name, columns in {**FACT_COLUMNS, "clusters": ("capture",)}.items():
        of = ("cluster",) if "cluster" in RESOLVED[name].names else ()
        tables[name] = pa.concat_tables(read(name, (*columns, *of)))
    if tables["clusters"].num_rows:
        for cluster, pieces in by_cluster(iter([tables])):
            yield cluster, Facts(pieces, redact=redact)


def _findings(facts: Facts) -> Iterable[Row]:
    for f in findings(facts):
        broker = None if f.broker is None else str(f.broker)
        yield f.rule, f.severity, f.text, f.first, f.last, f.count, broker, f.topic, f.partition, f.cannot_tell or None


def _missed(facts: Facts) -> Iterable[Row]:
    doctor = Doctor(facts)
    for broker, body in missed_updates(doctor):
        if facts.may_hide(broker, body.first, body.first, doctor.us("told")):
            continue  # the doctor says that it cannot tell
        sent = body.request
        yield (
            body.first, broker, sent.body_id, sent.controller_id, sent.controller_epoch, sent.n_partitions,
            facts.dead_since(broker),
        )  # fmt: skip


def _lives(facts: Facts) -> Iterable[Row]:
    for life in facts.lives:
        left = facts.left_after(life)
        yield (
            life.broker if isinstance(life.broker, int) else None, life.address,
            "KRaft" if life.is_kraft else "ZooKeeper", life.epoch, life.first, life.until, left,
            None if left is None else facts.how_it_left(life.broker, left), life.last, life.requests, life.shown_by,
        )  # fmt: skip


def _events(facts: Facts) -> Iterable[Row]:
    for event in events(facts):
        broker = None if event.broker is None else str(event.broker)
        yield event.ts, event.kind, event.text, broker, event.topic, event.partition, event.command


def _reassignments(facts: Facts) -> Iterable[Row]:
    for row in reassignments(facts):
        changed = sorted(row.added), sorted(row.removed)
        yield row.topic, row.partition, row.begin, row.end, *changed, row.replicas


def _down(facts: Facts) -> Iterable[Row]:
    for broker in sorted({broker for _ts, live in facts.live_changes for broker in live}):
        since = facts.dead_since(broker)
        if since is not None:
            yield broker, since


def _behind(facts: Facts) -> Iterable[Row]:
    doctor = Doctor(facts)
    for broker, partition, newest, told, since in brokers_behind(doctor):
        if facts.may_hide(broker, since, None, doctor.us("told")):
            continue  # the doctor says that it cannot tell
        leader, epoch = (None, None) if told is None else (told.state.leader, told.state.leader_epoch)
        now = newest.state
        yield broker, *partition, leader, now.leader, epoch, now.leader_epoch, facts.spans[broker].last


def _flaps(facts: Facts) -> Iterable[Row]:
    for what, partition, most, times, leaders in flapping(Doctor(facts)):
        if what == "leader":
            yield *partition, times[0], times[-1], most, sorted(leaders)


JUDGED: Final[dict[str, tuple[pa.Schema, Callable[[Facts], Iterable[Row]]]]] = {
    "findings": (FINDINGS, _findings),
    "missed_updates": (MISSED_UPDATES, _missed),
    "leader_flaps": (LEADER_FLAPS, _flaps),
    "behind": (BEHIND, _behind),
    "broker_lives": (BROKER_LIVES, _lives),
    "brokers_down": (BROKERS_DOWN, _down),
    "events": (EVENTS, _events),
    "reassignments": (REASSIGNMENTS, _reassignments),
}
"""The tables of verdicts, with the function that gives the rows of one cluster, without its name."""


def judged_table(name: str, clusters: Iterable[Judged]) -> pa.Table:
    """Return a table of ``JUDGED`` for clusters, with the default limits."""
    schema, rows_in = JUDGED[name]
    return table_of(((cluster, *row) for cluster, facts in clusters for row in rows_in(facts)), schema)
