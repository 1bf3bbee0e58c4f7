"""Says which findings must and may come of a fleet's capture: of the planted faults, and of the rest of its history."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kproto.api import ApiKey
from kproto.error_codes import ErrorCode

from .cluster import FULL
from .plants import SLOW_BROKER, Planted, PlantedFinding
from .traffic import TrafficPlanner

if TYPE_CHECKING:
    from collections.abc import Callable

    from .content import Content
    from .fleet import PlannedFleet

_SECOND: Final = 1_000_000_000
_OFFLINE_NS: Final = 30 * _SECOND
_UNDER_REPLICATED_NS: Final = 300 * _SECOND
_UNSURE_NS: Final = 10 * _SECOND
"""Where a state lasts about as long as a limit, a finding is optional."""
_FLAPS: Final = 3
_FLAP_NS: Final = 11 * 60 * _SECOND
_SLOW_ANSWERS: Final = 120
_NO_LEADER: Final = -1
_BEING_DELETED: Final = -2

_Partition = tuple[str, int]


class _State(NamedTuple):
    """A state of a partition, and when the first broker was told of it."""

    time_ns: int
    leader_epoch: int
    partition_epoch: int
    leader: int
    isr: frozenset[int]
    replicas: frozenset[int]

    @property
    def lacks_replicas(self) -> bool:
        return self.isr < self.replicas


@dataclass
class Truth:
    """The findings that must and may come of a fleet's capture, with the default limits.

    Attributes:
        planted: The planted faults.
        required: The findings that must come, those of ``planted`` among them.
        allowed: The findings that may come besides.
        under_min_isr: Partitions that end with fewer than two in-sync replicas: required where the limit is 2.
    """

    planted: list[Planted]
    required: list[PlantedFinding] = field(default_factory=list)
    allowed: list[PlantedFinding] = field(default_factory=list)
    under_min_isr: list[PlantedFinding] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def findings_truth(fleet: PlannedFleet) -> Truth:
    """Return the truth of a fleet's capture, from its history alone."""
    planner = TrafficPlanner(fleet)
    history = _History()
    for step in planner.steps():
        for exchange in step.exchanges:
            history.end_ns = max(history.end_ns, exchange.answer_last_ns)
            history.answers[exchange.broker] = history.answers.get(exchange.broker, 0) + (not exchange.lost)
            history.add(exchange.content, exchange.broker, exchange.broker_epoch, exchange.time_ns)
    truth = Truth([planted for planted in planner.planter.planted if planted.required or planted.allowed])
    for planted in truth.planted:
        if planner.cluster.controller.is_kraft_controller:  # its lists of live brokers name those that are down too
            planted.allowed += [finding for finding in planted.required if finding.rule == "KP023"]
            planted.required = [finding for finding in planted.required if finding.rule != "KP023"]
        swept = [f for f in planted.required if f.rule == "KP041" and history.swept(f.broker_id) > planted.time_ns]
        planted.allowed += swept
        planted.required = [finding for finding in planted.required if finding not in swept]
        truth.required += planted.required
        truth.allowed += planted.allowed
    history.say(fleet, truth)
    if SLOW_BROKER in fleet.plants and history.answers.get(planner.slow, 0) > _SLOW_ANSWERS:
        truth.required.append(PlantedFinding("KP034", planner.slow))
        truth.allowed.append(PlantedFinding("KP032", planner.slow))
    return truth


class _History:
    """The states of partitions in order, and what happened to brokers."""

    def __init__(self) -> None:
        self.end_ns = 0
        self.answers: dict[int, int] = {}
        self.restarted: set[int] = set()
        self.waiting: set[tuple[int, str]] = set()
        self._states: dict[_Partition, list[_State]] = {}
        self._deleted: list[tuple[str, int, list[_State], int]] = []
        self._epochs: dict[tuple[int, bool], int] = {}
        self._fenced: set[int] = set()
        self._swept: dict[int, int] = {}
        self._adding: dict[_Partition, list[int]] = {}

    def swept(self, broker: int | None) -> int:
        """The time of a KRaft controller's last full LeaderAndIsr to a broker, by which it removes strays; else 0."""
        return self._swept.get(broker or 0, 0)

    def add(self, content: Content, broker: int, broker_epoch: int, time_ns: int) -> None:
        """Take in a request."""
        if content.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self._fenced.add(broker)
        if content.error_code:
            return
        key = broker, content.controller.is_kraft_controller
        if broker_epoch > self._epochs.setdefault(key, broker_epoch):
            self.restarted.add(broker)
            self._epochs[key] = broker_epoch
        if content.api_key == ApiKey.STOP_REPLICA:
            return
        if content.api_key == ApiKey.LEADER_AND_ISR and content.request_type == FULL:
            self._swept[broker] = time_ns
        rows = content.rows
        adding = rows.get("adding_replicas", ())
        self._adding.update(zip(zip(rows["topic"], rows["partition"], strict=True), adding, strict=False))
        names = ("leader_epoch", "partition_epoch", "leader", "isr", "replicas")
        columns = zip(rows["topic"], rows["partition"], *(rows[name] for name in names), strict=True)
        for topic, partition, leader_epoch, partition_epoch, leader, isr, replicas in columns:
            if leader == _BEING_DELETED:
                states = self._states.pop((topic, partition), None)
                if states:
                    self._deleted.append((topic, partition, states, time_ns))
                continue
            known = self._states.setdefault((topic, partition), [])
            held = frozenset(replicas).difference(self._adding.get((topic, partition), ()))
            state = _State(time_ns, leader_epoch, partition_epoch, leader, frozenset(isr), held)
            if not known or state[1:3] > known[-1][1:3]:
                known.append(state)

    def say(self, fleet: PlannedFleet, truth: Truth) -> None:
        """Add what the history itself requires and allows."""
        for (topic, partition), states in self._states.items():
            self._say_of(topic, partition, states, truth)
        for topic, partition, states, deleted_ns in self._deleted:
            self._say_how_long(topic, partition, states, deleted_ns, truth)
        truth.required += [PlantedFinding("KP035", broker) for broker in sorted(self.restarted)]
        truth.allowed += [PlantedFinding("KP002", broker) for broker in sorted(self._fenced)]
        if fleet.loss:
            truth.allowed += [PlantedFinding(rule) for rule in ("KP033", "KP052")]
        if fleet.capture_loss:
            truth.allowed += [PlantedFinding(rule) for rule in ("KP033", "KP052", "KP061")]
        if fleet.restarts:
            truth.allowed.append(PlantedFinding("KP040"))

    def _say_of(self, topic: str, partition: int, states: list[_State], truth: Truth) -> None:
        last = states[-1]
        self._say_how_long(topic, partition, states, self.end_ns, truth)
        if last.leader == _NO_LEADER:
            truth.allowed.append(PlantedFinding("KP010", None, topic, partition))
        if len(last.isr) < 2:
            truth.under_min_isr.append(PlantedFinding("KP021", None, topic, partition))
        changes = {
            "KP016": [b.time_ns for a, b in pairwise(states) if a.leader != b.leader],
            "KP022": [b.time_ns for a, b in pairwise(states) if a.isr != b.isr],
        }
        for rule, times in changes.items():
            if any(b - a < _FLAP_NS for a, b in zip(times, times[_FLAPS - 1 :], strict=False)):
                truth.allowed.append(PlantedFinding(rule, None, topic, partition))

    def _say_how_long(self, topic: str, partition: int, states: list[_State], end_ns: int, truth: Truth) -> None:
        """Add findings about how long a partition lacked replicas or a leader, whether it still does or not."""
        limits: dict[str, tuple[int, Callable[[_State], bool]]] = {
            "KP020": (_UNDER_REPLICATED_NS, lambda state: state.lacks_replicas),
            "KP010": (_OFFLINE_NS, lambda state: state.leader == _NO_LEADER),
            "KP021": (_OFFLINE_NS, lambda state: len(state.isr) < 2),
        }
        for rule, (limit, holds) in limits.items():
            longest = _longest(states, holds, end_ns)
            if longest > limit - _UNSURE_NS:
                sure = longest > limit + _UNSURE_NS and rule != "KP021"
                (truth.required if sure else truth.allowed).append(PlantedFinding(rule, None, topic, partition))


def _longest(states: list[_State], holds: Callable[[_State], bool], end_ns: int) -> int:
    """Return the longest time, in ns, for which consecutive states hold something; the last state lasts to the end."""
    longest = 0
    since: int | None = None
    for state in states:
        if holds(state):
            since = state.time_ns if since is None else since
        elif since is not None:
            longest, since = max(longest, state.time_ns - since), None
    return longest if since is None else max(longest, end_ns - since)
