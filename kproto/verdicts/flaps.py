"""Decides which partitions flap: leaders or ISRs that change again and again. See ``docs/verdicts.md``.

Times are us since 1970.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from kproto.verdicts.doctor import MINUTE, Doctor
from kproto.verdicts.facts import is_near
from kproto.verdicts.states import most_within, often_within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.verdicts.facts import Facts, Partition
    from kproto.verdicts.states import Incarnation


def flapping(doctor: Doctor) -> Iterator[tuple[Literal["leader", "ISR"], Partition, int, list[int], frozenset[int]]]:
    """Yield the partitions that exist and flap: by the limits flaps, flap-minutes and settled.

    Each with what flaps; the most changes within the window; the times of those that make it flap, ascending, without
    those that follow from a broker's coming or going; and the leaders that came with them.
    """
    facts, window = doctor.facts, int(doctor.limits["flap-minutes"] * MINUTE)
    for partition, life in facts.present.items():
        for what, changes in _changes(facts, life, doctor.us("settled")).items():
            times = often_within(sorted(ts for ts, _leader in changes), window, doctor.limits["flaps"])
            if times:
                some = set(times)
                leaders = frozenset(leader for ts, leader in changes if ts in some)
                yield what, partition, most_within(times, window), times, leaders


def _changes(facts: Facts, life: Incarnation, settled: int) -> dict[Literal["leader", "ISR"], list[tuple[int, int]]]:
    """The times at which leader and ISR changed, with the leader from then on.

    Where one broker alone was sent lists of live brokers, none shows when it was away itself: it may have been when its
    connections began or ended. KRaft's controller lists those that are away: of brokers whose connections are recorded
    elsewhere nothing shows that they came or went.
    """
    alone = facts.listed_to if len(facts.listed_to) == 1 else frozenset()
    ends = sorted(ts for broker in alone for span in facts.spans[broker].stretches for ts in span)
    breaks = [ts for ts in ends if facts.begin < ts < facts.end]

    def follows(brokers: set[int], ts: int) -> bool:
        is_alone = not alone.isdisjoint(brokers)
        if facts.is_kraft_controller and not all(facts.is_recorded(broker, ts, ts) for broker in brokers):
            return True
        return (is_alone and is_near(breaks, ts, settled)) or facts.is_settling(brokers, ts, settled)

    led: list[tuple[int, int]] = []
    moved: list[tuple[int, int]] = []
    for before, after in pairwise(life.steps):
        old, new, ts = before.state, after.state, after.ts
        leaders = {old.leader, new.leader}
        if len(leaders) > 1 and not follows(leaders, ts):
            led.append((ts, new.leader))
        changed = set(old.isr) ^ set(new.isr) if old.isr and new.isr else set()
        if changed and old.replicas == new.replicas and not follows(changed, ts):
            moved.append((ts, new.leader))
    return {"leader": led, "ISR": moved}
