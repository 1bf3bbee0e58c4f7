"""KRaft's quorum, as captures show it: votes, begins and ends of epochs, refused fetches, and who served when.

An epoch of the quorum begins with votes, which a pre-vote may precede, and its leader announces itself with
BeginQuorumEpoch. A leader that shuts down says so with EndQuorumEpoch; one that is killed or cut off falls silent.
Voters that get no answer to their fetches ask for votes; brokers, which are observers, only go on to fetch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kproto.api import ApiKey
from kproto.metadata_log.files import Divergence
from kproto.metadata_log.finding import TOPIC
from kproto.metadata_log.folding import NamedLeaders
from kproto.metadata_log.members import DescribedQuorum, ReplicaFetch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kproto.capture import Exchange
    from kproto.metadata_log.folding import QuorumEpoch

APIS: Final = frozenset({ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.DESCRIBE_QUORUM})
"""The requests of a quorum's voters to each other, and the question who they are."""

_S: Final = 1_000_000_000
_PAUSE_NS: Final = _S
"""Nodes of the quorum fetch twice a second: a longer time without any answer is one without a leader."""
_THINNED_NS: Final = 10 * _S
"""Of a replica's fetches one in this time is kept, the first after a silence, and the last."""
_SILENCE_NS: Final = 3 * _S
"""After this time without a fetch or vote a node was silent."""
_ASKING_NS: Final = 5 * _S
"""Nodes without a leader ask at least so often; where none asks, the leader answers where no capture shows it."""
_START_NS: Final = 60 * _S
"""A controller that has started registers within this time of its election."""
_FOREVER: Final = 1 << 63


@dataclass(slots=True)
class QuorumRequest:
    """A request about the quorum, or several alike, one after the other: such are equal.

    Attributes:
        api_key: Vote, BeginQuorumEpoch, EndQuorumEpoch, or Fetch where it was refused.
        node_id: The node that asked: a candidate, a leader, or a replica that fetches.
        to_node: The node that was asked; None: unknown.
        epoch: The epoch that it named.
        pre_vote: Whether it asked only whether it would win.
        granted: Whether it got the vote; None: it is no vote, or the answer is missing.
        error_code: Of the answer; None: it is missing.
        leader_id, leader_epoch: What the answer said of the leader; None: nothing.
        diverges: Whether the answer told the replica to cut off its log.
        first_ns, last_ns: When the first and the last were sent.
        count: Their number.
    """

    api_key: int
    node_id: int
    to_node: int | None
    epoch: int
    pre_vote: bool
    granted: bool | None
    error_code: int | None
    leader_id: int | None
    leader_epoch: int | None
    diverges: bool
    first_ns: int = field(compare=False)
    last_ns: int = field(compare=False)
    count: int = field(default=1, compare=False)


class Served(NamedTuple):
    """A time in which fetches were answered without pause.

    Attributes:
        first_ns, last_ns: The times of the first and the last answer.
    """

    first_ns: int
    last_ns: int


class Outage(NamedTuple):
    """A time in which nodes asked the quorum and no leader answered.

    Attributes:
        from_ns: The last answer before it.
        until_ns: The first answer after it, or where captures show nobody ask any more; None: they end with it.
        last_ns: When a node last asked in it.
        votes, elections: The votes that were asked for (pre-votes too), and the epochs for which they were.
        refused: The fetches that were refused.
        nodes: The nodes that asked.
    """

    from_ns: int
    until_ns: int | None
    last_ns: int
    votes: int
    elections: int
    refused: int
    nodes: tuple[int, ...]


class EpochChange(NamedTuple):
    """How an epoch of the quorum came, as far as captures show it.

    Attributes:
        served_ns: The last answer to a fetch in the epoch before; None: none.
        led_ns: The first sign of the new leader; None: none.
        candidates: The nodes that asked for votes.
        failed: Epochs between the two for which votes were asked in vain.
        late_ns: The last answer to a fetch in the epoch before after that: its leader had not noticed; None: none.
        why: In a clause; None: the captures do not show it.
    """

    served_ns: int | None
    led_ns: int | None
    candidates: tuple[int, ...]
    failed: int
    late_ns: int | None
    why: str | None


@dataclass(slots=True)
class QuorumTraffic:
    """What captures show of the quorum.

    Attributes:
        requests: Votes, begins, ends and refused fetches.
        last_seen_ns: When the captures last show a request of any node.
        leaders: The leader of each epoch, as answers and announcements name it; it need not have led.
        fetches: Of each replica, thinned.
        described: Answers to DescribeQuorum.
        diverged: Answers that told a replica to cut off its log.
        outages: The times in which no leader answered although nodes asked, in order.
    """

    requests: list[QuorumRequest] = field(default_factory=list)
    last_seen_ns: int = 0
    leaders: dict[int, int] = field(default_factory=dict)
    fetches: dict[int, list[ReplicaFetch]] = field(default_factory=dict)
    described: list[DescribedQuorum] = field(default_factory=list)
    diverged: set[Divergence] = field(default_factory=set)
    outages: list[Outage] = field(default_factory=list)
    _last: dict[int, QuorumRequest] = field(default_factory=dict)
    _served: dict[int, list[Served]] = field(default_factory=dict)
    _heard: dict[int, list[Served]] = field(default_factory=dict)
    _votes: list[QuorumRequest] = field(default_factory=list)
    """Of all epochs, in their order."""
    _begun: dict[tuple[int, int], int] = field(default_factory=dict)
    """When each leader first announced each epoch."""
    _ended: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """The epochs that each leader ended, and when, in order."""

    def add(self, asked: Any, answer: Any, exchange: Exchange) -> None:
        """Add a Vote, BeginQuorumEpoch or EndQuorumEpoch; ``answer`` None: it is missing."""
        key = exchange.api_key
        assert key is not None
        if key == ApiKey.DESCRIBE_QUORUM:
            if answer is not None and exchange.response is not None:
                self.describe(answer, exchange.response.time_ns)
            return
        answered: dict[int, Any] = {}
        if answer is not None:
            answered = {part.partition_index: part for topic in answer.topics for part in topic.partitions}
        for topic in asked.topics:
            for part in topic.partitions if topic.topic_name == TOPIC else ():
                said = answered.get(part.partition_index)
                error = None if answer is None else answer.error_code or (0 if said is None else said.error_code)
                is_vote = key == ApiKey.VOTE
                voter = getattr(asked, "voter_id", -1)
                self._hold(
                    QuorumRequest(
                        key, part.replica_id if is_vote else part.leader_id, voter if voter >= 0 else None,
                        part.replica_epoch if is_vote else part.leader_epoch, is_vote and part.pre_vote,
                        said.vote_granted if is_vote and said is not None else None, error,
                        None if said is None else _known(said.leader_id),
                        None if said is None else _known(said.leader_epoch), False,
                        exchange.time_ns, exchange.time_ns,
                    )
                )  # fmt: skip

    def add_fetch(
        self, node_id: int, asked: Any, answer: Any, time_ns: int, answer_ns: int = 0, error_code: int | None = None
    ) -> None:
        """Add a fetch of the metadata log and its answer, of one partition.

        Args:
            node_id: The replica.
            asked, answer: The partition in the request, and in the response; ``answer`` None: it is missing.
            time_ns, answer_ns: When the two passed.
            error_code: Of the whole response, or of the partition.
        """
        self._hear(node_id, time_ns)
        one = QuorumRequest(
            ApiKey.FETCH, node_id, None, asked.current_leader_epoch, False, None, error_code, None, None, False,
            time_ns, time_ns,
        )  # fmt: skip
        if answer is not None:
            leader, ends = answer.current_leader, answer.diverging_epoch
            self._name(leader.leader_epoch, leader.leader_id)
            one.leader_id, one.leader_epoch = _known(leader.leader_id), _known(leader.leader_epoch)
            one.diverges = ends.epoch >= 0
            if not error_code and not one.diverges:
                self._note(self._served.setdefault(asked.current_leader_epoch, []), answer_ns, _PAUSE_NS)
                position = max(asked.fetch_offset, answer.high_watermark)
                fetches = self.fetches.setdefault(node_id, [])
                is_back = fetches and fetches[-1].time_ns == self._heard[node_id][-1].first_ns
                if len(fetches) > 1 and time_ns - fetches[-2].time_ns < _THINNED_NS and not is_back:
                    fetches.pop()
                fetches.append(ReplicaFetch(time_ns, asked.fetch_offset, position))
                return
            if not error_code:
                self.diverged.add(
                    Divergence(asked.current_leader_epoch, asked.last_fetched_epoch, ends.epoch, ends.end_offset)
                )
        self._hold(one)

    def describe(self, answer: Any, time_ns: int) -> None:
        """Add an answer to DescribeQuorum."""
        for topic in answer.topics:
            for part in topic.partitions if topic.topic_name == TOPIC else ():
                if not answer.error_code and not part.error_code:
                    self._name(part.leader_epoch, part.leader_id)
                    self.described.append(DescribedQuorum(time_ns, part))

    def finish(self) -> None:
        """Put all in the order of time, and in that of the epochs."""
        self.requests.sort(key=lambda one: one.first_ns)
        self._votes = sorted((one for one in self.requests if one.api_key == ApiKey.VOTE), key=lambda one: one.epoch)
        ended: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for one in self.requests:
            if one.api_key == ApiKey.BEGIN_QUORUM_EPOCH:
                self._begun.setdefault((one.epoch, one.node_id), one.first_ns)
            elif one.api_key == ApiKey.END_QUORUM_EPOCH:
                ended[one.node_id].append((one.epoch, one.first_ns))
        self._ended = {node: sorted(some) for node, some in ended.items()}
        self.outages = [*self._find_outages()]

    def named(self) -> NamedLeaders:
        """The leaders that answers and announcements name."""
        return NamedLeaders(self.leaders, self._served.keys() | {one.partition.leader_epoch for one in self.described})

    def serves(self, time_ns: int) -> bool:
        """Whether captures show that a leader answered fetches at a time."""
        spans = (span for spans in self._served.values() for span in spans)
        return time_ns <= self.last_seen_ns and any(one.first_ns <= time_ns <= one.last_ns + _PAUSE_NS for one in spans)

    def _name(self, epoch: int | None, leader_id: int | None) -> None:
        if epoch is not None and leader_id is not None and epoch >= 0 and leader_id >= 0:
            self.leaders.setdefault(epoch, leader_id)

    def _hold(self, one: QuorumRequest) -> None:
        self._name(one.leader_epoch, one.leader_id)
        if one.api_key == ApiKey.BEGIN_QUORUM_EPOCH:
            self._name(one.epoch, one.node_id)
        self._hear(one.node_id, one.first_ns)
        last = self._last.get(one.node_id)
        if last is not None and last == one and one.first_ns - last.last_ns < _SILENCE_NS:
            last.last_ns = max(last.last_ns, one.last_ns)
            last.count += 1
        else:
            self.requests.append(one)
            self._last[one.node_id] = one

    def _hear(self, node_id: int, time_ns: int) -> None:
        self.last_seen_ns = max(self.last_seen_ns, time_ns)
        self._note(self._heard.setdefault(node_id, []), time_ns, _SILENCE_NS)

    @staticmethod
    def _note(spans: list[Served], time_ns: int, pause_ns: int) -> None:
        """Lengthen the last span, or begin another."""
        if spans and spans[-1].first_ns <= time_ns <= spans[-1].last_ns + pause_ns:
            spans[-1] = Served(spans[-1].first_ns, max(spans[-1].last_ns, time_ns))
        else:
            insort(spans, Served(time_ns, time_ns))

    # ---- what follows

    def _find_outages(self) -> Iterator[Outage]:
        merged: list[Served] = []
        for span in sorted(span for spans in self._served.values() for span in spans):
            if merged and span.first_ns - merged[-1].last_ns <= _PAUSE_NS:
                merged[-1] = Served(merged[-1].first_ns, max(merged[-1].last_ns, span.last_ns))
            else:
                merged.append(span)
        firsts = [one.first_ns for one in self.requests]
        for place, span in enumerate(merged):
            until = merged[place + 1].first_ns if place + 1 < len(merged) else None
            end = len(firsts) if until is None else bisect_left(firsts, until)
            inside = self.requests[bisect_right(firsts, span.last_ns) : end]
            stretches: list[list[QuorumRequest]] = []
            heard_ns = span.last_ns
            for one in inside:
                if one.api_key in (ApiKey.VOTE, ApiKey.FETCH):
                    if not stretches or one.first_ns - heard_ns > _ASKING_NS:
                        stretches.append([])
                    stretches[-1].append(one)
                    heard_ns = max(heard_ns, one.last_ns)
            for asked in stretches:
                began, last = asked[0].first_ns, max(one.last_ns for one in asked)
                is_last = asked is stretches[-1]
                ended = last if not is_last or (until is not None and until - last > _ASKING_NS) else until
                began = span.last_ns if began - span.last_ns <= _ASKING_NS else began
                if max(last, ended or self.last_seen_ns) - began <= _PAUSE_NS:
                    continue  # a fetch may wait as long for its answer
                yield Outage(
                    began,
                    ended,
                    last,
                    sum(one.count for one in asked if one.api_key == ApiKey.VOTE),
                    len({one.epoch for one in asked if one.api_key == ApiKey.VOTE and not one.pre_vote}),
                    sum(one.count for one in asked if one.api_key == ApiKey.FETCH),
                    tuple(sorted({one.node_id for one in asked})),
                )

    def change(
        self, former: QuorumEpoch | None, epoch: QuorumEpoch, starts: Mapping[int, Sequence[int]]
    ) -> EpochChange:
        """Say how an epoch came.

        Args:
            former: The epoch before; None: none is known.
            epoch: The epoch.
            starts: For each node of the quorum when processes of it registered that took the place of another, in ns.
        """
        begun = self._begun.get((epoch.epoch, epoch.leader_id))
        led = [] if begun is None else [begun]
        led += [spans[0].first_ns for spans in (self._served.get(epoch.epoch),) if spans]
        led_ns = min(led, default=None)
        since = -1 if former is None else former.epoch
        first = bisect_left(self._votes, since, key=lambda one: one.epoch)
        votes = self._votes[first : bisect_right(self._votes, epoch.epoch, key=lambda one: one.epoch)]
        asked = [one for one in votes if (one.pre_vote and one.epoch < epoch.epoch) or since < one.epoch]
        if led_ns is not None:
            asked = [one for one in asked if one.first_ns <= led_ns]
        served_ns = late_ns = None
        for span in self._served.get(since, ()):
            if led_ns is None or span.first_ns <= led_ns:
                served_ns = span.last_ns
            else:
                late_ns = span.last_ns
        candidates = tuple(sorted({one.node_id for one in asked if not one.pre_vote}))
        failed = len({one.epoch for one in asked if not one.pre_vote and since < one.epoch < epoch.epoch})
        why = None
        if since + 1 < epoch.epoch and not self._is_without_leader(served_ns, led_ns):
            served_ns = late_ns = None  # another may have led between them
        elif former is not None and led_ns is not None:
            why = self._why(former, epoch, served_ns, led_ns, starts)
        return EpochChange(served_ns, led_ns, candidates, failed, late_ns, why)

    def _is_without_leader(self, from_ns: int | None, until_ns: int | None) -> bool:
        """Whether captures show nodes ask in vain from one time to another."""
        if from_ns is None or until_ns is None:
            return False
        return any(one.from_ns <= from_ns and until_ns <= (one.until_ns or 0) + _SILENCE_NS for one in self.outages)

    def _why(
        self,
        former: QuorumEpoch,
        epoch: QuorumEpoch,
        silent_ns: int | None,
        led_ns: int,
        starts: Mapping[int, Sequence[int]],
    ) -> str | None:
        node = former.leader_id
        ended = self._ended.get(node, [])
        for _epoch, ended_ns in ended[bisect_left(ended, (former.epoch, 0)) : bisect_left(ended, (epoch.epoch, 0))]:
            if ended_ns <= led_ns:
                return f"controller {node} resigned: it shut down (EndQuorumEpoch)"
        if silent_ns is None:
            return None
        started = [start for start in starts.get(node, ()) if start > silent_ns]
        if node == epoch.leader_id:
            if any(start <= led_ns + _START_NS for start in started):
                return f"controller {node} was started again"
            return f"controller {node} was elected again: the others had no answer from it"
        heard = self._heard.get(node, [])
        place = bisect_right(heard, led_ns, key=lambda span: span.last_ns)
        fell = f"controller {node} fell silent"
        if place == len(heard):
            if epoch.epoch not in self._served:  # it would be heard by the new leader
                return fell
            return f"{fell}, and does not come back: killed, hung or cut off"
        back = heard[place].first_ns
        if back <= silent_ns:
            return f"the others had no answer from controller {node}, which lived"
        after = f"{(max(back, led_ns) - silent_ns) / _S:.1f} s later"
        fell_again = heard[place + 1].first_ns if place + 1 < len(heard) else _FOREVER
        if any(start < fell_again for start in started):
            return f"{fell}, and was started again: it is back {after}"
        return f"{fell}, hung or cut off: the same process is back {after}"


def _known(number: int) -> int | None:
    """An id or an epoch; None: -1, which says nothing."""
    return None if number < 0 else number
