"""Makes findings of what rules see in the facts of captures: how severe each is, and whether the captures can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kproto.text import counted
from kproto.verdicts.catalogue import LIMITS, RULES, SEVERITIES
from kproto.verdicts.epochs import the_broker
from kproto.verdicts.request_figures import moment

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kproto.verdicts.catalogue import Basis, Severity
    from kproto.verdicts.facts import Facts, Partition
    from kproto.verdicts.states import Request

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND

NOT_COMPARED: Final = "the clocks of its captures cannot be compared"
"""What makes a finding uncertain that rests on the order of times; no damage does."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a rule.

    Attributes:
        rule: The rule's id.
        severity: The severity.
        text: A sentence.
        first, last: The times at which it began and was last seen, us since 1970.
        count: The number of times it was seen.
        broker: The broker that it is about; its address where no id is known; None: none.
        topic, partition: The partition, or the topic alone.
        cannot_tell: The data that the captures lack, so that the finding is uncertain; empty: it is certain.
    """

    rule: str
    severity: Severity
    text: str
    first: int
    last: int
    count: int = 1
    broker: Any = None
    topic: str | None = None
    partition: int | None = None
    cannot_tell: str = ""

    @property
    def rank(self) -> int:
        """The place of its severity: the worst is first."""
        return SEVERITIES.index(self.severity)

    @property
    def key(self) -> tuple[str, str | None, str | None, int | None]:
        """The key of the finding in a baseline: its rule and its subject."""
        return self.rule, None if self.broker is None else str(self.broker), self.topic, self.partition

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; times are ISO 8601 in UTC."""
        times = {"first": moment(self.first), "last": moment(self.last)}
        plain = {"broker_id" if name == "broker" else name: getattr(self, name) for name in self.__slots__}
        return {"rule": self.rule, "name": RULES[self.rule].name} | plain | times

    def _repr_html_(self) -> str:
        from kproto.notebook import table_html

        shown = {name: value for name, value in self.to_json().items() if value not in (None, "")}
        return table_html(list(shown), [list(shown.values())], 1)


class Doctor:
    """The facts, the limits, and questions that several rules ask."""

    def __init__(self, facts: Facts, limits: Mapping[str, float] | None = None) -> None:
        self.facts = facts
        self.limits: dict[str, float] = {name: limit.default for name, limit in LIMITS.items()} | dict(limits or {})

    def us(self, limit: str) -> int:
        """A limit in seconds, as us."""
        return int(self.limits[limit] * SECOND)

    def finding(
        self,
        rule: str,
        text: str,
        first: int,
        last: int | None = None,
        *,
        about: Any = None,
        lacks: str = "",
        since: int | None = None,
        is_shown: bool = False,
        place: Partition | None = None,
        **more: Any,
    ) -> Finding:
        """Make a finding.

        Args:
            rule: The rule.
            text: A sentence.
            first, last: The times at which it began and was last seen; ``last`` None: it lasts.
            about: The broker whose requests the finding misses, if that is not ``broker``.
            lacks: The data that the captures lack, so that the finding is uncertain.
            since: See ``Facts.may_hide``.
            is_shown: Whether the captures lack nothing at any of its times, though they may between them.
            place: The partition that it is about.
            more: Fields of the finding.
        """
        if place is not None:
            more["topic"], more["partition"] = place
        rests_on = [basis for basis in RULES[rule].rests_on if not (is_shown and basis == "absence")]
        lacks = self._lacks(rests_on, more.get("broker") if about is None else about, first, last, since) or lacks
        last = self.facts.end if last is None else last
        if not lacks:
            return Finding(rule, RULES[rule].severity, text, first, last, **more)
        text = f"cannot tell ({lacks}): {text[0].lower()}{text[1:]}"
        return Finding(rule, "note", text, first, last, cannot_tell=lacks, **more)

    def of_requests(self, rule: str, requests: Sequence[Request], verb: str, rest: str, lacks: str = "") -> Finding:
        """Make a finding about requests to a broker, in their order: it did with them what the words say."""
        broker, count = requests[0].broker_id, len(requests)
        text = f"{the_broker(broker)} {verb} {counted(count, 'request')}{rest}"
        return self.finding(rule, text, requests[0].ts, requests[-1].ts, lacks=lacks, count=count, broker=broker)

    def _lacks(self, rests_on: Collection[Basis], broker: Any, first: int, last: int | None, since: int | None) -> str:
        """What the captures lack of what a finding about a broker between two times rests on; empty: nothing."""
        facts = self.facts
        if "absence" in rests_on and (hidden := facts.may_hide(broker, first, last, self.us("told"), since)):
            return hidden
        if "time" in rests_on and not facts.has_one_clock:
            return NOT_COMPARED
        if "identity" in rests_on and facts.unknown_addresses and isinstance(broker, int) and broker not in facts.spans:
            return "the ids of brokers at some addresses are unknown; name them with --brokers"
        return ""
