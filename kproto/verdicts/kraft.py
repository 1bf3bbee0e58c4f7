"""What rules and events say of KRaft's brokers, quorum and administrators, from what captures show beside the log.

``kproto.verdicts.rules`` makes findings of ``shown``, ``kproto.verdicts.events`` events of the rest. Times are us since
1970.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kproto.api import ApiKey
from kproto.error_codes import ErrorCode, error_name
from kproto.metadata_log.heartbeats import ALIVE, SHUT_DOWN
from kproto.verdicts.states import micros, most_within, often_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Rows = Callable[[str], Iterable[tuple[Any, ...]]]

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "broker_registrations": (
        "broker_id", "cluster_id", "address", "listeners", "error_code", "first_ts", "last_ts", "requests",
    ),
    "broker_heartbeats": ("broker_id", "broker_epoch", "first_ts", "last_ts", "heartbeats", "error_code"),
    "broker_progress": ("broker_id", "ts", "lag_us", "late"),
    "quorum_epochs": ("controller_epoch", "controller_id", "valid_from", "led_ts", "late_ts", "why"),
    "quorum_requests": ("first_ts", "last_ts", "count", "api_key", "node_id", "controller_epoch", "is_pre_vote"),
    "quorum_outages": ("valid_from", "valid_to", "last_ts", "votes", "refused", "nodes"),
    "admin_changes": (
        "ts", "client_id", "client_address", "principal", "topic", "partition", "what", "error_code", "log_offset",
    ),
}  # fmt: skip
"""The columns of tables that are read here, beside ``broker_states``."""

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_SEVERAL: Final = 3


class Shown(NamedTuple):
    """What a rule finds.

    Attributes:
        rule: The rule.
        text: A sentence.
        first, last: When it began and was last seen.
        times: How often.
        broker: The broker; None: it is about the quorum.
    """

    rule: str
    text: str
    first: int
    last: int
    times: int = 1
    broker: int | None = None


def shown(rows: Rows, limit: Callable[[str], float]) -> Iterator[Shown]:
    """Yield what the rules of KRaft find.

    Args:
        rows: Returns the rows of a table: of ``broker_states`` its facts' columns, of the others ``COLUMNS``.
        limit: Returns a limit by name.
    """
    yield from _fenced(rows)
    yield from _not_unfenced(rows, limit("unfencing") * _SECOND)
    yield from _lagging(rows, limit("metadata-lag") * _SECOND)
    yield from _without_leader(rows, limit("quorum") * _SECOND)
    yield from _in_vain(rows, int(limit("failed-elections")), limit("flap-minutes") * _MINUTE)
    yield from _late_leaders(rows)
    yield from _refused(rows, int(limit("refused-fetches")))
    accepted = _accepted(rows)
    yield from _two_processes(rows, accepted)
    yield from _not_registered(rows, accepted)


def _fenced(rows: Rows) -> Iterator[Shown]:
    for _capture, broker, _epoch, _start, begin, end, _why, state, evidence in rows("broker_states"):
        if state == "fenced" and evidence and ALIVE in evidence:
            text = f"The controller fenced broker {broker}, {evidence}"
            yield Shown("KP070", text, micros(begin), micros(begin if end is None else end), broker=broker)


def _not_unfenced(rows: Rows, longest: float) -> Iterator[Shown]:
    heard: dict[tuple[int, int], int] = {}
    for broker, epoch, _first, last, _count, error in rows("broker_heartbeats"):
        if not error:
            heard[broker, epoch] = max(micros(last), heard.get((broker, epoch), 0))
    fenced: dict[tuple[int, int], tuple[int, int | None, str]] = {}  # from the registration until it is unfenced
    turned: dict[tuple[int, int], str] = {}
    for _capture, broker, epoch, _start, begin, end, why, state, evidence in rows("broker_states"):
        key, since = (broker, epoch), micros(begin)
        turned[broker, since] = state
        if state == "fenced":
            goes_on = key in fenced and fenced[key][1] == since
            if goes_on or why.startswith("registered"):
                began = fenced[key][0] if goes_on else since
                fenced[key] = began, None if end is None else micros(end), evidence or ""
    for (broker, epoch), (since, until, evidence) in fenced.items():
        last = heard.get((broker, epoch), since) if until is None else until
        after = None if until is None else turned.get((broker, until))
        if last - since > longest and (until is None or after is not None):  # else the log has a gap there
            still = "was unfenced only" if after == "unfenced" else "has not been unfenced"
            said = f" ({evidence})" if evidence else ""
            text = f"Broker {broker} {still} {(last - since) / _SECOND:.0f} s after it registered{said}"
            yield Shown("KP071", text, since, last, broker=broker)


def _lagging(rows: Rows, longest: float) -> Iterator[Shown]:
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for broker, ts, lag, late in rows("broker_progress"):
        if lag > longest and late >= _SEVERAL:
            found[broker].append((micros(ts), lag))
    for broker, slots in found.items():
        slots.sort()
        worst = max(lag for _ts, lag in slots)
        text = (
            f"Broker {broker} applied committed metadata up to {worst / _SECOND:.0f} s late, "
            f"in {len(slots)} stretches of ten seconds"
        )
        yield Shown("KP072", text, slots[0][0] - slots[0][1], slots[-1][0], len(slots), broker)


def _without_leader(rows: Rows, longest: float) -> Iterator[Shown]:
    for begin, end, last, votes, refused, nodes in rows("quorum_outages"):
        since, until = micros(begin), micros(last if end is None else end)
        if until - since > longest:
            so_far = " so far" if end is None else ""
            text = (
                f"No leader of the quorum answered for {(until - since) / _SECOND:.1f} s{so_far}: {len(nodes)} nodes "
                f"asked, {votes} votes, {refused} fetches in vain"
            )
            yield Shown("KP073", text, since, until)


def _in_vain(rows: Rows, most: int, window: float) -> Iterator[Shown]:
    led = {row[0] for row in rows("quorum_epochs")}
    asked: dict[int, int] = {}
    for first, _last, _count, api_key, _node, epoch, is_pre_vote in rows("quorum_requests"):
        if api_key == ApiKey.VOTE and not is_pre_vote and epoch not in led:
            asked[epoch] = min(micros(first), asked.get(epoch, micros(first)))
    times = often_within(sorted(asked.values()), window, most)
    if times:
        count = most_within(times, window)
        text = f"{count} elections of the quorum within {window / _MINUTE:g} minutes had no winner"
        yield Shown("KP074", text, times[0], times[-1], count)


def _late_leaders(rows: Rows) -> Iterator[Shown]:
    former: int | None = None
    for epoch, leader, _since, led, late, _why in sorted(rows("quorum_epochs")):
        if late is not None and led is not None and former is not None:
            text = f"Controller {former} still answered fetches after {leader} led the quorum with epoch {epoch}"
            yield Shown("KP075", text, micros(led), micros(late))
        former = leader


def _refused(rows: Rows, most: int) -> Iterator[Shown]:
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for first, last, count, api_key, node, _epoch, _is_pre_vote in rows("quorum_requests"):
        if api_key == ApiKey.FETCH:
            found[node].append((micros(first), micros(last), count))
    for node, some in sorted(found.items()):
        first, last, count = _summed(some)
        if count >= most:
            text = f"Node {node} fetched the metadata log {count:,} times in vain: refused, or not answered"
            yield Shown("KP076", text, first, last, count)


def _summed(some: Iterable[tuple[int, int, int]]) -> tuple[int, int, int]:
    """The first and the last time of several requests, and their number."""
    firsts, lasts, counts = zip(*some, strict=True)
    return min(firsts), max(lasts), sum(counts)


class _Accepted:
    """The heartbeats of one broker that were accepted.

    Args:
        rows: When each registration's began, its broker epoch, and when they ended.
    """

    def __init__(self, rows: Iterable[tuple[int, int, int]]) -> None:
        self._begins, epochs, ends = zip(*sorted(rows), strict=True)
        self._latest = [*accumulate(ends, max)]
        self._newest = [*accumulate(zip(epochs, ends, strict=True), max)]

    def is_within(self, first: int, last: int) -> bool:
        """Whether some lasted at a time between two."""
        place = bisect_left(self._begins, last)
        return place > 0 and self._latest[place - 1] > first

    def newest(self, first: int, last: int) -> int:
        """The newest epoch that had begun by a time and lasted at one before, else -1: no older one is accepted."""
        place = bisect_left(self._begins, last)
        epoch, end = self._newest[place - 1] if place else (-1, first)
        return epoch if end > first else -1


def _accepted(rows: Rows) -> dict[int, _Accepted]:
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for broker, epoch, first, last, _count, error in rows("broker_heartbeats"):
        if error == 0:
            found[broker].append((micros(first), epoch, micros(last)))
    return {broker: _Accepted(some) for broker, some in found.items()}


def _two_processes(rows: Rows, accepted: Mapping[int, _Accepted]) -> Iterator[Shown]:
    stale: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for broker, epoch, first, last, count, error in rows("broker_heartbeats"):
        if error == ErrorCode.STALE_BROKER_EPOCH and broker in accepted:
            stale[broker, epoch].append((micros(first), micros(last), count))
    for (broker, epoch), some in sorted(stale.items()):
        first, last, count = _summed(some)
        newer = accepted[broker].newest(first, last)
        if count >= _SEVERAL and newer > epoch:
            text = (
                f"Two processes say that they are broker {broker}: {count} heartbeats with broker epoch {epoch} were "
                f"refused while those with {newer} were accepted"
            )
            yield Shown("KP077", text, first, last, count, broker)


def _not_registered(rows: Rows, accepted: Mapping[int, _Accepted]) -> Iterator[Shown]:
    for broker, cluster, address, listeners, error, first, last, count in rows("broker_registrations"):
        is_alive = broker in accepted and accepted[broker].is_within(micros(first), micros(last))
        if error == ErrorCode.DUPLICATE_BROKER_REGISTRATION and not is_alive:
            continue  # the former process is gone, and its session has not ended yet
        if error in _WHY_REFUSED and count >= _SEVERAL:
            why = _WHY_REFUSED[error]
            if error == ErrorCode.INCONSISTENT_CLUSTER_ID:
                why = f"{why} {cluster}"
            where = f"{address}, which would listen at {', '.join(listeners)}," if listeners else address
            text = (
                f"A process at {where} asked {count} times to be broker {broker} and was refused with "
                f"{error_name(error)}: {why}"
            )
            yield Shown("KP078", text, micros(first), micros(last), count, broker)


_WHY_REFUSED: Final[Mapping[int, str]] = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another process with this id is registered and not fenced",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "its storage belongs to the cluster",
    ErrorCode.UNSUPPORTED_VERSION: "it does not support a feature level of the cluster",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "the controller does not know the id",
}
"""Answers that do not change while the process tries again; others (no controller, an election) pass."""


# ---- events


def leaders(rows: Rows) -> Iterator[tuple[int, int, int]]:
    """Yield the leaders of the quorum: epoch, node and since when, where that is known."""
    for epoch, leader, since, led, _late, _why in rows("quorum_epochs"):
        begin = led if since is None else since
        if begin is not None:
            yield epoch, leader, micros(begin)


def why_changed(rows: Rows) -> dict[tuple[int, int], str]:
    """Why each leader of the quorum came, by epoch and node."""
    return {row[:2]: row[5] for row in rows("quorum_epochs") if row[5]}


def how_fenced(rows: Rows) -> dict[tuple[int, int], str]:
    """How brokers were fenced, where the log or heartbeats tell, by broker and time."""
    found = {}
    for _capture, broker, _epoch, _start, begin, _end, why, state, evidence in rows("broker_states"):
        if why == "fenced after its controlled shutdown" or (state == "fenced" and evidence == SHUT_DOWN):
            found[broker, micros(begin)] = "a controlled shutdown"
        elif state == "fenced" and evidence and evidence.startswith("session timed out"):
            found[broker, micros(begin)] = evidence
    return found


def asked(rows: Rows) -> Iterator[tuple[int, str, str, str | None, int | None]]:
    """Yield administrative requests: when, who asked, what for, topic and partition."""
    for ts, client, address, principal, topic, partition, what, error, _offset in rows("admin_changes"):
        who = f"{client or 'a client'} at {address}" + (f" ({principal})" if principal else "")
        answer = f": {error_name(error)}" if error else "" if error == 0 else ": no answer"
        yield micros(ts), who, f"{what}{answer}", topic, partition


def outages(rows: Rows) -> Iterator[tuple[int, int | None]]:
    """Yield the times in which no leader of the quorum answered."""
    for begin, end, *_more in rows("quorum_outages"):
        yield micros(begin), None if end is None else micros(end)
