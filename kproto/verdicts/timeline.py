"""Orders exchanges by time, each with the state that the capture has shown so far, for ``kproto inspect``."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kproto.api import CONTROL_APIS, ApiKey
from kproto.json_form import uuid_to_json
from kproto.tables.bodies import BodyCache, ControlBody, RequestPrefix, prefix_fields
from kproto.tables.brokers import BrokerDirectory
from kproto.tables.json_choice import named_ids, names_partition
from kproto.verdicts.answers import PartitionError, Verdict, partition_reason, verdict_of
from kproto.verdicts.epochs import Epochs, broker_name, refusal_reason
from kproto.verdicts.knowledge import Changes, Knowledge, PartitionChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kproto.capture import Endpoint, Exchange
    from kproto.tables.filters import Filters
    from kproto.types import BrokerId

_HELD: Final = 1000
"""The number of exchanges that may wait until the traffic shows the broker id of the first exchange's address."""

_REMEMBERED: Final = 64
"""The number of changes whose wanted partitions are cached, since the same update goes to every broker."""


@dataclass(slots=True)
class Entry:
    """A request with its response, and the state that the capture had shown before it.

    Attributes:
        exchange: The two frames.
        broker_id: The receiving broker's id, None where nothing tells it.
        sender: The request's first fields, None where they cannot be read or it is no control request.
        body: The request's body, None where it cannot be read or it is no control request.
        verdict: The broker's answer; its partition errors are those of wanted partitions.
        reason: The reason why the broker refused the request or a partition, in one clause; may be empty.
        changes: What it changed at its broker.
        wanted: The same of wanted partitions alone.
    """

    exchange: Exchange
    broker_id: BrokerId | None
    sender: RequestPrefix | None
    body: ControlBody | None
    verdict: Verdict
    reason: str = ""
    changes: Changes = field(default_factory=Changes)
    wanted: Changes = field(default_factory=Changes)

    @property
    def partitions(self) -> tuple[PartitionChange, ...]:
        """The wanted partitions and their changes."""
        return self.wanted.partitions

    @property
    def time_ns(self) -> int:
        """When the request passed, ns since 1970."""
        return self.exchange.time_ns

    @property
    def target(self) -> BrokerId | str:
        """The receiving broker: its id, or its address where the id is not known."""
        return str(self.exchange.server) if self.broker_id is None else self.broker_id

    @property
    def is_change(self) -> bool:
        """Whether the request changed the broker's state of any wanted partition."""
        return not self.verdict.failed and self.wanted.any


class Timeline:
    """Reads exchanges in the order of time and yields the wanted ones.

    Args:
        filters: The requests that are wanted.
        tests: What else an entry has to pass, such as tests of its outcome.
        apis: API keys that are wanted, None for all.
        strict: Whether bodies count as unreadable that the protocol forbids though Kafka lets them pass.
        follow: Whether exchanges must be given as they come, without waiting for their broker's id.

    Attributes:
        seen: Exchanges of wanted APIs, before any other filter.
        given: The number of rows given, by API key (None: a response whose request is not in the capture).
        outcomes: The same by outcome.
        unnamed: Left out by a filter on brokers only because the id at that address is not known.
        brokers: Ids of the brokers that requests were sent to.
    """

    def __init__(
        self,
        filters: Filters,
        tests: Sequence[Callable[[Entry], bool]] = (),
        *,
        apis: frozenset[int] | None = frozenset(CONTROL_APIS),
        strict: bool = False,
        follow: bool = False,
    ) -> None:
        self._filters = filters
        self._tests = tests
        self._apis = apis
        self._strict = strict
        self._follow = follow
        self._directory = BrokerDirectory(filters.broker_ids)
        self._bodies = BodyCache()
        self._epochs = Epochs()
        self._knowledge = Knowledge()
        self._by_topic_ids = filters.by_partition and (apis is None or not apis <= set(CONTROL_APIS))
        self._topic_names: dict[str, str] = {}
        self._chosen = lru_cache(_REMEMBERED)(self._wanted)
        self.seen: int = 0
        self.given: Counter[int | None] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.unnamed: int = 0
        self.brokers: set[BrokerId] = set()

    def entries(self, exchanges: Iterable[Exchange]) -> Iterator[Entry]:
        """Yield the wanted exchanges."""
        for exchange in self._named(exchanges):
            entry = self._entry(exchange)
            if entry is not None:
                self.given[exchange.api_key] += 1
                self.outcomes[entry.verdict.outcome] += 1
                yield entry

    def _named(self, exchanges: Iterable[Exchange]) -> Iterator[Exchange]:
        """Yield exchanges in their order, each held back (within a limit) until the id of its broker is known."""
        held: deque[Exchange] = deque()
        nameless: set[Endpoint] = set()
        limit = 0 if self._follow else _HELD
        for exchange in exchanges:
            exchange.strict = self._strict
            self._learn(exchange)
            held.append(exchange)
            if len(held) > limit:
                self._give_up_names(held[0], nameless)
            while (
                held and (held[0].server in nameless or self._id_of(held[0]) is not None) and self._has_names(held[0])
            ):
                yield held.popleft()
        yield from held

    def _learn(self, exchange: Exchange) -> None:
        if exchange.api_key == ApiKey.UPDATE_METADATA or (
            exchange.api_key == ApiKey.LEADER_AND_ISR and (self._by_topic_ids or self._id_of(exchange) is None)
        ):
            body = self._bodies.of(exchange.request)
            if body is not None:
                self._directory.learn(exchange.time_ns, exchange.connection.capture, exchange.server, body)
                if self._by_topic_ids:
                    self._learn_topics(body)

    def _give_up_names(self, exchange: Exchange, nameless: set[Endpoint]) -> None:
        """Wait no longer for the names that an exchange waits for."""
        if self._id_of(exchange) is None:
            nameless.add(exchange.server)
        if self._names_matter(exchange):
            for uuid in named_ids(exchange.to_json()["request"]):
                self._topic_names.setdefault(uuid, "")

    def _learn_topics(self, body: ControlBody) -> None:
        """Note the names of topic ids, which other requests may name alone."""
        for name, uuid in getattr(body.message, "topic_ids", {}).items():
            self._topic_names[uuid_to_json(uuid)] = name

    def _has_names(self, exchange: Exchange) -> bool:
        """Whether the names of the topics in a request of another API are known, if they matter."""
        if not self._names_matter(exchange):
            return True
        return all(uuid in self._topic_names for uuid in named_ids(exchange.to_json()["request"]))

    def _names_matter(self, exchange: Exchange) -> bool:
        return (
            self._by_topic_ids
            and exchange.api_key not in CONTROL_APIS
            and exchange.request is not None
            and (self._apis is None or exchange.api_key in self._apis)
        )

    def _id_of(self, exchange: Exchange) -> BrokerId | None:
        return self._directory.id_of(exchange.server, exchange.time_ns, exchange.connection.capture)

    def _entry(self, exchange: Exchange) -> Entry | None:
        is_control = exchange.api_key in CONTROL_APIS
        is_wanted_api = self._apis is None or exchange.api_key in self._apis
        if not is_control and not is_wanted_api:
            return None
        self.seen += is_wanted_api
        broker_id = self._id_of(exchange)
        if broker_id is not None:
            self.brokers.add(broker_id)
        is_wanted_broker = self._filters.wants_broker(broker_id)
        in_time = self._filters.wants_time(exchange.time_ns)
        sender = prefix_fields(exchange.request) if is_control and exchange.request is not None else None
        if not is_wanted_broker:
            if sender is not None and exchange.response is not None:  # that it is answered shows that it can be read
                self._learn_epochs(exchange, sender, getattr(exchange.response_message, "error_code", None))
            self.unnamed += broker_id is None and is_wanted_api and in_time
            return None
        body = self._bodies.of(exchange.request) if is_control else None
        if body is None and exchange.response is None:
            sender = None  # an unreadable request has no epochs
        entry = Entry(exchange, broker_id, sender, body, verdict_of(exchange, body))
        if is_control:
            self._compare(entry)
        return entry if is_wanted_api and in_time and self._wants(entry) else None

    def _learn_epochs(self, exchange: Exchange, sender: RequestPrefix, error_code: int | None) -> None:
        """Note the epochs of a request, wanted or not, which explain refusals of others."""
        moment = exchange.time_ns // 1000
        self._epochs.learn(
            moment, moment, exchange.server, sender.controller_id, sender.controller_epoch, sender.broker_epoch,
            is_kraft_controller=sender.is_kraft_controller, error_code=error_code,
        )  # fmt: skip

    def _compare(self, entry: Entry) -> None:
        """Fill in reason and changes, and apply the request to the brokers' known state."""
        exchange, sender, verdict = entry.exchange, entry.sender, entry.verdict
        target = entry.target
        wanted_errors = tuple(
            error for error in verdict.partition_errors if self._filters.wants_partition(error.topic, error.partition)
        )
        if sender is not None:
            if verdict.error_code:
                stale = self._epochs.stale(
                    exchange.time_ns // 1000, exchange.server, sender.controller_epoch, sender.broker_epoch,
                    verdict.error_code, is_kraft_controller=sender.is_kraft_controller,
                )  # fmt: skip
                entry.reason = refusal_reason(verdict.error_code, stale, broker_name(target))
            self._learn_epochs(exchange, sender, verdict.error_code)
        body = entry.body
        if body is not None:
            if wanted_errors and not verdict.error_code:
                entry.reason = self._partitions_reason(wanted_errors, body, target)
            entry.changes = self._knowledge.apply(
                target,
                body,
                None if sender is None else sender.broker_epoch,
                accepted=verdict.accepted,
                failed=[(error.topic, error.partition) for error in verdict.partition_errors],
            )
            entry.wanted = self._chosen(entry.changes) if self._filters.by_partition else entry.changes
        if len(wanted_errors) != len(verdict.partition_errors):
            outcome = "ok" if verdict.outcome == "partition errors" and not wanted_errors else verdict.outcome
            entry.verdict = Verdict(outcome, verdict.error_code, wanted_errors)

    def _partitions_reason(self, errors: tuple[PartitionError, ...], body: ControlBody, target: object) -> str:
        """Explain why single partitions were refused, by the first partition of each kind of error."""
        firsts: dict[int, PartitionError] = {}
        for error in errors:
            firsts.setdefault(error.error_code, error)
        reasons = (partition_reason(error, body, self._knowledge, target) for error in firsts.values())
        return "; ".join(dict.fromkeys(filter(None, reasons)))

    def _wanted(self, changes: Changes) -> Changes:
        wants = self._filters.wants_partition
        return Changes(
            tuple(change for change in changes.partitions if wants(change.state.topic, change.state.partition))
        )

    def _wants(self, entry: Entry) -> bool:
        filters, verdict = self._filters, entry.verdict
        if filters.controllers and not (
            entry.sender is not None and filters.wants_controller(entry.sender.controller_id)
        ):
            return False
        if self._names_matter(entry.exchange):
            if not names_partition(entry.exchange.to_json()["request"], filters, self._topic_names):
                return False
        elif filters.by_partition and not entry.partitions:
            return False
        if not filters.wants_errors(request=verdict.failed, partition=bool(verdict.partition_errors)):
            return False
        return all(test(entry) for test in self._tests)
