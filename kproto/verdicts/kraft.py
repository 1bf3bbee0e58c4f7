"""The rules of KRaft's brokers and quorum: what captures show of them beside the log. Times are us since 1970."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from kproto.api import ApiKey
from kproto.error_codes import ErrorCode, error_name
from kproto.metadata_log.heartbeats import ALIVE
from kproto.verdicts.doctor import MINUTE, SECOND, Doctor, Finding
from kproto.verdicts.states import micros, most_within, often_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_SEVERAL: Final = 3


def _fenced(doctor: Doctor) -> Iterator[Finding]:
    for _capture, broker, _epoch, _start, begin, end, _why, state, evidence in doctor.facts.rows("broker_states"):
        if state == "fenced" and evidence and ALIVE in evidence:
            text = f"The controller fenced broker {broker}, {evidence}"
            yield doctor.finding("KP070", text, micros(begin), micros(begin if end is None else end), broker=broker)


def _not_unfenced(doctor: Doctor) -> Iterator[Finding]:
    heard: dict[tuple[int, int], int] = {}
    for broker, epoch, _first, last, _count, error in doctor.facts.rows("broker_heartbeats"):
        if not error:
            heard[broker, epoch] = max(micros(last), heard.get((broker, epoch), 0))
    fenced: dict[tuple[int, int], tuple[int, int | None, str]] = {}  # from the registration until it is unfenced
    turned: dict[tuple[int, int], str] = {}
    for _capture, broker, epoch, _start, begin, end, why, state, evidence in doctor.facts.rows("broker_states"):
        key, since = (broker, epoch), micros(begin)
        turned[broker, since] = state
        if state == "fenced":
            goes_on = key in fenced and fenced[key][1] == since
            if goes_on or why.startswith("registered"):
                began = fenced[key][0] if goes_on else since
                fenced[key] = began, None if end is None else micros(end), evidence or ""
    longest = doctor.us("unfencing")
    for (broker, epoch), (since, until, evidence) in fenced.items():
        last = heard.get((broker, epoch), since) if until is None else until
        after = None if until is None else turned.get((broker, until))
        if last - since > longest and (until is None or after is not None):  # else the log has a gap there
            still = "was unfenced only" if after == "unfenced" else "has not been unfenced"
            said = f" ({evidence})" if evidence else ""
            text = f"Broker {broker} {still} {(last - since) / SECOND:.0f} s after it registered{said}"
            yield doctor.finding("KP071", text, since, last, broker=broker)


def _lagging(doctor: Doctor) -> Iterator[Finding]:
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for broker, ts, lag, late in doctor.facts.rows("broker_progress"):
        if lag > doctor.us("metadata-lag") and late >= _SEVERAL:
            found[broker].append((micros(ts), lag))
    for broker, slots in found.items():
        slots.sort()
        worst = max(lag for _ts, lag in slots)
        text = (
            f"Broker {broker} applied committed metadata up to {worst / SECOND:.0f} s late, "
            f"in {len(slots)} stretches of ten seconds"
        )
        yield doctor.finding("KP072", text, slots[0][0] - slots[0][1], slots[-1][0], count=len(slots), broker=broker)


def _without_leader(doctor: Doctor) -> Iterator[Finding]:
    for begin, end, last, votes, refused, nodes in doctor.facts.rows("quorum_outages"):
        since, until = micros(begin), micros(last if end is None else end)
        if until - since > doctor.us("quorum"):
            so_far = " so far" if end is None else ""
            text = (
                f"No leader of the quorum answered for {(until - since) / SECOND:.1f} s{so_far}: {len(nodes)} nodes "
                f"asked, {votes} votes, {refused} fetches in vain"
            )
            yield doctor.finding("KP073", text, since, until)


def _in_vain(doctor: Doctor) -> Iterator[Finding]:
    window = doctor.limits["flap-minutes"] * MINUTE
    led = {row[0] for row in doctor.facts.rows("quorum_epochs")}
    asked: dict[int, int] = {}
    for first, _last, _count, api_key, _node, epoch, is_pre_vote in doctor.facts.rows("quorum_requests"):
        if api_key == ApiKey.VOTE and not is_pre_vote and epoch not in led:
            asked[epoch] = min(micros(first), asked.get(epoch, micros(first)))
    times = often_within(sorted(asked.values()), window, int(doctor.limits["failed-elections"]))
    if times:
        count = most_within(times, window)
        text = f"{count} elections of the quorum within {window / MINUTE:g} minutes had no winner"
        yield doctor.finding("KP074", text, times[0], times[-1], count=count)


def _late_leaders(doctor: Doctor) -> Iterator[Finding]:
    former: int | None = None
    for epoch, leader, _since, led, late, _why in sorted(doctor.facts.rows("quorum_epochs")):
        if late is not None and led is not None and former is not None:
            text = f"Controller {former} still answered fetches after {leader} led the quorum with epoch {epoch}"
            yield doctor.finding("KP075", text, micros(led), micros(late))
        former = leader


def _refused(doctor: Doctor) -> Iterator[Finding]:
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for first, last, count, api_key, node, _epoch, _is_pre_vote in doctor.facts.rows("quorum_requests"):
        if api_key == ApiKey.FETCH:
            found[node].append((micros(first), micros(last), count))
    for node, some in sorted(found.items()):
        first, last, count = _summed(some)
        if count >= int(doctor.limits["refused-fetches"]):
            text = f"Node {node} fetched the metadata log {count:,} times in vain: refused, or not answered"
            yield doctor.finding("KP076", text, first, last, count=count)


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


def _accepted(doctor: Doctor) -> dict[int, _Accepted]:
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for broker, epoch, first, last, _count, error in doctor.facts.rows("broker_heartbeats"):
        if error == 0:
            found[broker].append((micros(first), epoch, micros(last)))
    return {broker: _Accepted(some) for broker, some in found.items()}


def _two_processes(doctor: Doctor) -> Iterator[Finding]:
    accepted = _accepted(doctor)
    stale: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for broker, epoch, first, last, count, error in doctor.facts.rows("broker_heartbeats"):
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
            yield doctor.finding("KP077", text, first, last, count=count, broker=broker)


def _not_registered(doctor: Doctor) -> Iterator[Finding]:
    accepted = _accepted(doctor)
    for broker, cluster, address, listeners, error, first, last, count in doctor.facts.rows("broker_registrations"):
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
            yield doctor.finding("KP078", text, micros(first), micros(last), count=count, broker=broker)


_WHY_REFUSED: Final[Mapping[int, str]] = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another process with this id is registered and not fenced",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "its storage belongs to the cluster",
    ErrorCode.UNSUPPORTED_VERSION: "it does not support a feature level of the cluster",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "the controller does not know the id",
}
"""Answers that do not change while the process tries again; others (no controller, an election) pass."""

RULES: Final[tuple[Callable[[Doctor], Iterator[Finding]], ...]] = (
    _fenced, _not_unfenced, _lagging, _without_leader, _in_vain, _late_leaders, _refused, _two_processes,
    _not_registered,
)  # fmt: skip
