"""Describes a control request in words: changes first, topic names as long as the line has room."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kproto.api import CONTROL_APIS
from kproto.cli.sections import shortened
from kproto.cli.text import compact, id_text, ids_text
from kproto.error_codes import error_name
from kproto.text import counted, printable, ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kproto.tables.bodies import RequestPartition
    from kproto.verdicts.answers import Verdict
    from kproto.verdicts.knowledge import Changes, PartitionChange
    from kproto.verdicts.timeline import Entry

_UPDATE_TYPES: Final = {1: "incremental", 2: "full"}
_LONGEST_JSON: Final = 160
"""The number of characters of another API's request that are shown."""
_MOST_TOPICS: Final = 4
_LONGEST_RANGES: Final = 24


def answer_of(entry: Entry) -> tuple[str, str]:
    """Return the broker's answer in words, and its colour."""
    verdict = entry.verdict
    match verdict.outcome:
        case "unreadable":
            return "cannot be read", "red"
        case "unanswered":
            return "unanswered", "yellow"
        case "not decoded":
            return "not decoded", ""
        case "refused":
            return f"REFUSED: {error_name(verdict.error_code or 0)}", "red"
        case "partition errors":
            return f"ok, {_partition_errors(verdict, len(entry.partitions))}", "yellow"
    return "ok", "green"


def _partition_errors(verdict: Verdict, named: int) -> str:
    counts = sorted(verdict.error_counts().items())
    first, *rest = (error_name(code) for code, _n in counts)
    whole = max(named, sum(n for _code, n in counts))
    text = f"{counts[0][1]} of {whole} partitions: {first}"
    return text + "".join(f", {n}: {name}" for (_code, n), name in zip(counts[1:], rest, strict=True))


def parts_of(entry: Entry, name_limit: int | None = None) -> Iterator[str]:
    """Return the description's parts: reason of a refusal, kind of update, changed and unchanged partitions.

    Args:
        entry: The request.
        name_limit: The longest that a topic's name may be, None for no limit; with a limit long lists of topics and
            partitions are counted instead.
    """
    if entry.verdict.problem is not None:
        yield printable(entry.verdict.problem)
        return
    exchange = entry.exchange
    if exchange.request is None:
        yield exchange.unmatched_reason or ""
        return
    if exchange.api_key not in CONTROL_APIS:
        if exchange.request_message is not None:
            form = exchange.request_message.to_json(exchange.api_version)
            yield shortened(compact(form), _LONGEST_JSON)
        return
    if entry.reason:
        yield entry.reason
    if exchange.response is None and exchange.unmatched_reason:
        yield exchange.unmatched_reason
    if entry.body is None:
        return
    if entry.sender is not None and entry.sender.is_kraft_controller:
        kind = _UPDATE_TYPES.get(entry.body.update_type)
        yield f"KRaft {kind}" if kind else "KRaft"
    yield from _broker_part(entry)
    yield from _partition_words(entry.wanted, name_limit)


def _broker_part(entry: Entry) -> Iterator[str]:
    after, before = entry.changes.brokers, entry.changes.brokers_before
    if after is None:
        return
    if before is None:
        yield f"live brokers {ranges(after) or 'none'}"
    elif after != before:
        yield f"live brokers {ranges(before) or 'none'}→{ranges(after) or 'none'}"
    elif not entry.partitions:
        yield f"live brokers {ranges(after)} unchanged"


@lru_cache(64)  # the same update goes to every broker
def _partition_words(changes: Changes, name_limit: int | None) -> list[str]:
    return list(_partition_parts(changes.partitions, name_limit))


def _partition_parts(changes: Sequence[PartitionChange], name_limit: int | None) -> Iterator[str]:
    groups: dict[str, list[RequestPartition]] = {}
    for change in changes:
        groups.setdefault(_label(change), []).append(change.state)
    unchanged = groups.pop("unchanged", [])
    first_seen = groups.get("first seen", [])
    if len({state.topic for state in first_seen}) > _MOST_TOPICS:
        groups.pop("first seen")
        of_topics = counted(len({state.topic for state in first_seen}), "topic")
        yield f"first seen ({len(first_seen)} partitions of {of_topics})"
    if len(changes) == 1 and not unchanged:
        ((label, (state,)),) = groups.items()
        yield f"{_named([state], name_limit)}{' ' * bool(label)}{label}"
        return
    for label, states in groups.items():
        yield f"{label}: {_named(states, name_limit)}" if label else _named(states, name_limit)
    if unchanged and len(unchanged) < len(changes):
        yield f"unchanged ({len(unchanged)} more)"
    elif unchanged:
        topics = len({state.topic for state in unchanged})
        several = topics > _MOST_TOPICS
        yield f"unchanged ({len(unchanged)} partitions)" if several else f"{_named(unchanged, name_limit)} unchanged"


def _label(change: PartitionChange) -> str:
    """The change of a partition, in words that partitions with the same change share."""
    kind, state, before = change
    if kind != "changed" or before is None:
        return "" if kind == "refused" else kind
    parts = []
    if state.leader != before.leader:
        parts.append(f"leader {id_text(before.leader)}→{id_text(state.leader)}")
    if set(state.isr) != set(before.isr):
        parts.append(f"isr {ids_text(before.isr)}→{ids_text(state.isr)}")
    if state.replicas != before.replicas:
        parts.append(f"replicas {ids_text(before.replicas)}→{ids_text(state.replicas)}")
    if not parts and state.leader_epoch != before.leader_epoch:
        parts.append(f"leader epoch {before.leader_epoch}→{state.leader_epoch}")
    return " ".join(parts or _notes(state, before)) or "changed"


def _named(states: Iterable[RequestPartition], name_limit: int | None) -> str:
    """Write partitions by topic: ``orders[0-2,5] payments[1]``."""
    topics: dict[str, list[int]] = {}
    for state in states:
        topics.setdefault(state.topic, []).append(state.partition)
    shown = list(topics.items())
    more = 0
    if name_limit is not None and len(shown) > _MOST_TOPICS:
        more, shown = len(shown) - _MOST_TOPICS + 1, shown[: _MOST_TOPICS - 1]
    words = []
    for topic, numbers in shown:
        name = printable(topic) or repr(topic)
        places = ranges(numbers)
        if name_limit is not None:
            name = shortened(name, name_limit)
            if len(places) > _LONGEST_RANGES:
                places = counted(len(numbers), "partition")
        words.append(f"{name}[{places}]")
    if more:
        words.append(f"and {counted(more, 'topic')} more")
    return " ".join(words)


def state_cells(change: PartitionChange) -> tuple[str, str, str, str, str]:
    """Describe a partition in full: kind of change, leader, ISR, replicas, and unusual fields."""
    kind, state, before = change
    if before is None or kind not in ("changed", "unchanged"):
        before = state
    shown = "" if kind == "changed" else kind
    if state.leader is None:  # StopReplica
        epoch = f"leader epoch {state.leader_epoch}" if state.leader_epoch >= 0 else ""
        if kind == "refused":
            epoch = f"{'delete' if state.delete else 'stop'} {epoch}".rstrip()
        return shown, epoch, "", "", ""
    leader = f"leader {_step(id_text(before.leader), id_text(state.leader))}"
    leader += f" epoch {_step(str(before.leader_epoch), str(state.leader_epoch))}"
    former = state.isr if set(before.isr) == set(state.isr) else before.isr
    isr = f"isr {_step(ids_text(former), ids_text(state.isr))}"
    replicas = f"replicas {_step(ids_text(before.replicas), ids_text(state.replicas))}"
    return shown, leader, isr, replicas, " ".join(_notes(state, before))


def _step(before: str, after: str) -> str:
    return after if before == after else f"{before}→{after}"


def _notes(state: RequestPartition, before: RequestPartition) -> Iterator[str]:
    """Describe unusual fields: replicas that are, or were, offline, added or removed."""
    for name in ("adding", "removing", "offline"):
        earlier, ids = getattr(before, f"{name}_replicas"), getattr(state, f"{name}_replicas")
        if earlier or ids:
            yield f"{name} replicas {_step(ids_text(earlier), ids_text(ids))}"
    if state.recovering:
        yield "recovering"
