"""What every surface says of some captures: facts without their times, which windows on the same traffic share."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from commands import run_kproto

import kproto.tables
from kproto.errors import CaptureError
from kproto.query import ask, open_tables
from kproto.report.facts import report_facts
from kproto.tables.resolved import resolved_pieces
from kproto.verdicts.summary import summarize

SECOND_US = 1_000_000
MISSED_US: Final = 10 * SECOND_US
"""A connection to a broker that missed an update was in use for so long after it."""
Fact = tuple[Any, ...]
"""What a surface says, without its time."""

ABOUT: Final = {
    "leader": ("topic", "partition", "leader", "leader_epoch", "controller_id", "controller_epoch"),
    "offline": ("topic", "partition", "leader_epoch", "isr"),
    "under-replicated": ("topic", "partition", "missing", "isr_size", "leader", "leader_epoch"),
    "off-preferred": ("topic", "partition", "leader", "preferred_leader", "leader_epoch", "replicas", "isr"),
    "isr": ("topic", "partition", "kind", "removed", "added", "isr_size", "under_replicated", "leader"),
    "restarts": ("broker", "broker_epoch", "mode"),
    "controllers": ("controller_id", "controller_epoch", "mode"),
    "stale": ("controller_id", "controller_epoch", "broker", "api_key", "reason"),
    "flaps": ("topic", "partition"),
    "behind": ("broker", "topic", "partition"),
    "missed": ("broker", "change_id"),
    "errors": ("api_key", "api_version", "scope", "error_code"),
    "reassignments": ("topic", "partition", "added", "removed", "replicas"),
    "events": ("event", "broker", "topic", "partition"),
    "left": ("broker", "broker_epoch", "left_how"),
}
"""What a row of each question is about. ``isr`` needs the state before."""

DIFF: Final = (
    "topic", "partition", "change", "former_leader", "leader", "former_leader_epoch", "leader_epoch",
    "former_isr", "isr",
)  # fmt: skip
"""What a row of the question ``diff`` is about."""

_TIMES: Final = ("valid_from", "ts", "first_ts", "last_request")


class Said(NamedTuple):
    """What surfaces say.

    Attributes:
        facts: By surface each fact with its times in us.
        known: When each partition is first told.
        led: When LeaderAndIsr first tells each: it alone names the target of a reassignment.
        live: When live brokers are first listed.
        again: The updates that a broker was sent twice: which of the two a window shows first, it cannot tell.
    """

    facts: dict[str, dict[Fact, list[int]]]
    known: dict[tuple[str, int], int]
    led: dict[tuple[str, int], int]
    live: int
    again: frozenset[bytes]


def flat(value: Any) -> Any:
    """A value that can be part of a key."""
    return tuple(sorted(value)) if isinstance(value, (list, tuple)) else value


def us(value: Any) -> int:
    """A time in us since 1970."""
    return round(value.timestamp() * SECOND_US) if isinstance(value, datetime) else int(value)


def rows_of(sql: Any, question: str, **options: Any) -> Iterator[dict[str, Any]]:
    """The rows of a question's answer."""
    answer = ask(sql, question, **options)
    for values in answer.rows:
        yield dict(zip(answer.columns, values, strict=True))


def said_of(*paths: Path, diff_us: tuple[int, int] | None = None) -> Said | None:
    """What all surfaces say of captures; None: they have no control request.

    Args:
        paths: The captures.
        diff_us: The two times that the question ``diff`` compares; None: it is not asked.
    """
    try:
        tables = kproto.tables.read(*paths)
    except CaptureError:
        return None
    said = said_in(tables, diff_us=diff_us)
    said.facts.update(_of_summary([str(path) for path in paths]))
    said.facts["inspect"] = dict(_of_inspect([str(path) for path in paths]))
    return said


def said_in(tables: Mapping[str, Any], cluster: str | None = None, diff_us: tuple[int, int] | None = None) -> Said:
    """What the questions and the report say of tables, or of one of their clusters; see ``said_of``."""
    facts: dict[str, dict[Fact, list[int]]] = {}
    with open_tables(tables, cluster) as sql:
        for question, names in ABOUT.items():
            of = facts.setdefault(question, {})
            for row in rows_of(sql, "restarts" if question == "left" else question):
                if question == "left":
                    row["valid_from"] = row["left_ts"]
                time = next((row[name] for name in _TIMES if name in row), 0)
                if row.get("event") in SEVERAL:
                    row |= {"topic": None, "partition": None}
                if time is not None:
                    last = [us(row["last_ts"])] if question == "flaps" else []
                    of.setdefault(tuple(flat(row.get(name)) for name in names), []).extend([us(time), *last])
        of = facts.setdefault("propagation", {})
        for change, broker, lag, first in sql.execute(
            "SELECT change_id, broker_id, lag_us, first_ts FROM propagation"
        ).fetchall():
            of.setdefault((change, broker, lag), []).append(us(first))
        found = sql.execute("SELECT min(ts) FROM requests WHERE live_brokers_id IS NOT NULL").fetchone()
        led = sql.execute(
            "SELECT topic, partition, min(ts) FROM partition_states_by_broker WHERE api_key = 4 GROUP BY ALL"
        ).fetchall()
        again = sql.execute("SELECT DISTINCT body_id FROM deliveries WHERE api_key = 6 AND requests > 1").fetchall()
        if diff_us is not None:
            of = facts.setdefault("diff", {})
            since, until = diff_us
            for row in rows_of(sql, "diff", from_ns=since * 1000, to_ns=until * 1000):
                of[tuple(flat(row[name]) for name in DIFF)] = [since]
    report = report_facts(tables, cluster=cluster)
    facts |= _of_report(report)
    known: dict[tuple[str, int], int] = {}
    for (topic, number, *_state), times in facts["report"].items():
        known[topic, number] = min(*times, known.get((topic, number), times[0]))
    live = found[0] if found else None
    first_led = {(topic, number): us(ts) for topic, number, ts in led}
    return Said(facts, known, first_led, 0 if live is None else us(live), frozenset(body for (body,) in again))


def _of_report(report: Mapping[str, Any]) -> dict[str, dict[Fact, list[int]]]:
    line = report["timeline"]
    states, partitions = line["states"], line["partitions"]
    found: dict[Fact, list[int]] = {}
    names = ("row", "leader", "leader_epoch", "isr", "replicas", "ts")
    for place, leader, epoch, isr, replicas, ts in zip(*(states[name] for name in names), strict=True):
        partition = line["topics"][partitions["topic"][place]], partitions["partition"][place]
        isr, replicas = (flat(line["brokers"][n]) for n in (isr, replicas))
        found.setdefault((*partition, leader, epoch, isr, replicas), []).append(ts)
    stale: dict[Fact, list[int]] = {}
    for row in report["stale"]:
        stale.setdefault((row["controller_id"], row["controller_epoch"]), []).append(row["ts"])
    controllers = {(row["controller_id"], row["controller_epoch"]): [row["first"]] for row in report["controllers"]}
    return {"report": found, "report stale": stale, "report controllers": controllers}


def _of_summary(paths: Sequence[str]) -> dict[str, dict[Fact, list[int]]]:
    summary = summarize(resolved_pieces(paths))
    zombies = {(row["controller_id"], row["controller_epoch"]): [_us_of(row["first"])] for row in summary["zombies"]}
    deletions = {
        (row["topic"], number): [_us_of(row["first"])] for row in summary["deletions"] for number in row["partitions"]
    }
    controllers = {
        (row["controller_id"], row["controller_epoch"], row["mode"]): [_us_of(row["first"])]
        for row in summary["controllers"]
    }
    return {"summary zombies": zombies, "summary deletions": deletions, "summary controllers": controllers}


def _us_of(text: str) -> int:
    return us(datetime.fromisoformat(text))


def _of_inspect(paths: Sequence[str]) -> Iterator[tuple[Fact, list[int]]]:
    result = run_kproto("inspect", *paths, "--format", "json")
    assert result.exit_code in (0, 1), result.stderr
    for line in result.stdout.splitlines():
        row = json.loads(line)
        if row["record"] == "exchange":
            of = row["server"], row["client"], row["correlation_id"], row.get("broker_id")
            verdict = tuple(str(row.get(name)) for name in ("outcome", "response"))
            yield (*of, *verdict), [int(row["time"] * SECOND_US)]


Found = tuple[str, Fact, list[int]]
"""A surface, a fact and its times."""

MAY_BE_UNKNOWN: Final = {"leader": (4, 5), "left": (2,), "inspect": (3,), "restarts": (0,), "stale": (4,)}
"""The places of columns that are null, or else as ``UNKNOWN`` has it, where the window does not tell them.

That is a controller that sent nothing in the window, and its epoch too where ISRs changed since, how a broker left of
which no replica was told before, and the broker at an address, also one that was asked before it left and is listed no
more; and why a request is stale.
"""
UNKNOWN: Final = {"stale": "refused_as_stale"}

NEEDS_A_STATE_BEFORE: Final = {"isr", "diff", "flaps"}
OF_REASSIGNMENTS: Final = {"reassignment begins", "reassignment ends"}
NEEDS_A_LIST_BEFORE: Final = {"left"}
OF_LISTS: Final = {"broker left", "broker back", "broker new"}
SEVERAL: Final = {"no leader", "leader again"}
"""Events that tell of several partitions at once, as many as have a state before; ``offline`` has each."""
OF_LIVING_TOPICS: Final = {"offline", "under-replicated", "off-preferred"}
NEVER_YET: Final = {"unanswered", "unreadable"}
"""How ``inspect`` calls a request of which the response, or a part, may lie behind the end of a window."""


def _forms(fact: Fact, surface: str) -> Iterator[Fact]:
    """Yield a fact as the whole tells it, and as a window may that does not tell one column of it, or several."""
    yield fact
    for place in MAY_BE_UNKNOWN.get(surface, ()):
        fact = (*fact[:place], UNKNOWN.get(surface), *fact[place + 1 :])
        yield fact


def new_in(part: Said, every: Said, begin_us: int = 0) -> Iterator[Found]:
    """What a window says that the whole does not.

    ``begin_us`` is its begin: an update that was under way then has its first broker before the window.
    """
    under_way = {fact[0] for fact, times in every.facts["propagation"].items() if min(times) < begin_us}
    for surface, of in part.facts.items():
        whole = {form for fact in every.facts[surface] for form in _forms(fact, surface)}
        for fact, times in of.items():
            if (surface == "diff" and fact[2] == "first seen") or (surface == "inspect" and fact[4] in NEVER_YET):
                continue
            if surface == "propagation" and fact[0] in every.again | under_way:
                continue
            deleted = every.facts["events"].get(("topic deleted", None, fact[0], None))
            if surface in OF_LIVING_TOPICS and deleted and min(deleted) < begin_us:
                continue  # its deletion waits since before the window, which shows states that are told again
            if surface == "flaps" and deleted and max(deleted) > max(times):
                continue  # it exists no more at the end of the whole
            if fact not in whole:
                yield surface, fact, times


def _was_registered(part: Said, every: Said, broker: Any, ts: int) -> bool:
    """Whether a window shows the registration of a broker, in the same mode, before one that began at ``ts``."""
    lives = every.facts["restarts"].items()
    modes = {life[2] for life, some in lives if life[0] == broker and ts in some}
    known = (some for life, some in part.facts["restarts"].items() if life[0] == broker and life[2] in modes)
    return any(min(some) < ts for some in known)


def lost_in(part: Said, every: Said, since_us: int, until_us: int) -> Iterator[Found]:
    """What the whole says of the time of a window, and the window does not."""
    for surface, of in every.facts.items():
        for fact, times in of.items():
            inside = [ts for ts in times if since_us <= ts <= until_us]
            if surface == "left" and not any(fact[:2] == life[:2] for life in part.facts["restarts"]):
                continue  # the broker accepted nothing in the window
            if surface == "reassignments" or (surface == "events" and fact[0] in OF_REASSIGNMENTS):
                place = (fact[0], fact[1]) if surface == "reassignments" else (fact[2], fact[3])
                inside = [ts for ts in inside if part.led.get(place, ts) < ts]
            if surface == "events" and fact[0] == "registered again":  # needs the registration before
                inside = [ts for ts in inside if _was_registered(part, every, fact[1], ts)]
            if surface in NEEDS_A_STATE_BEFORE:
                inside = [ts for ts in inside if part.known.get((fact[0], fact[1]), ts) < ts]
            if surface == "flaps" and len(inside) < len(times):
                continue  # some of its changes lie outside, and the rest may be too few
            if surface == "leader":  # one that was decided before the window may be told of another controller
                deleted = every.facts["events"].get(("topic deleted", None, fact[0], None), ())
                inside = [ts for ts in inside if ts not in deleted]  # it is told later, behind the deletion
                shown = {(other[:4]) for other in part.facts["leader"]}
                inside = [ts for ts in inside if part.known.get((fact[0], fact[1]), ts) < ts or fact[:4] not in shown]
            if surface in ("missed", "behind"):  # needs a connection that was in use before what was missed
                missed = (
                    inside
                    if surface == "missed"
                    else [ts for of, some in every.facts["missed"].items() if of[0] == fact[0] for ts in some]
                )
                sent = [ts for of, some in part.facts["propagation"].items() if of[1] == fact[0] for ts in some]
                inside = inside if min(sent, default=0) < max(missed, default=1 << 62) else []
                if surface == "missed":  # and after it
                    inside = [ts for ts in inside if ts + MISSED_US <= max(sent, default=0)]
            if surface in NEEDS_A_LIST_BEFORE or (surface == "events" and fact[0] in OF_LISTS):
                inside = [ts for ts in inside if part.live < ts]
            if (surface == "propagation" and fact[0] in every.again) or (surface == "events" and fact[0] in SEVERAL):
                continue
            if inside and part.facts[surface].keys().isdisjoint(_forms(fact, surface)):
                yield surface, fact, inside
