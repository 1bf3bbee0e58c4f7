"""Administrative requests, as captures show them: who asked the controller for a change, and which records it made.

A client asks any broker, which passes the request on to the active controller in an Envelope, with the client's
principal and address. A request and its records are joined by what both name and by the time between the request and
its answer; where several requests fit a record, it is not told whose it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from ipaddress import ip_address
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kproto.api import ApiKey, response_header_version
from kproto.errors import Malformed
from kproto.metadata_log.records import (
    SAME_LEADER,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    KRaftVersionRecord,
    KRaftVotersRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    varint,
)
from kproto.metadata_log.secrets import HIDDEN, is_secret_config
from kproto.reference import decode_request, decode_request_from, decode_response
from kproto.reference.headers import decode_request_header_from, decode_response_header_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kproto.capture import Exchange
    from kproto.metadata_log.batches import LogRecord

_TOPIC_RESOURCE: Final = 2
_RESOURCES: Final = {_TOPIC_RESOURCE: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}
_SLACK_MS: Final = 50
_NO_ID: Final = bytes(16)
_LONGEST_NS: Final = 60_000_000_000
"""A request without an answer may have made its records within this time."""


class AdminChange(NamedTuple):
    """One thing that an administrative request asked for.

    Attributes:
        what: In a few words, without secrets.
        error_code: Of the answer; None: it is missing.
        subject: What its records must name.
        topic, partition: The partition, or the topic alone; None: something else.
        topic_id: The topic's id, as the answer or the request names it; None: they do not.
    """

    what: str
    error_code: int | None
    subject: tuple[Any, ...]
    topic: str | None = None
    partition: int | None = None
    topic_id: bytes | None = None


@dataclass(slots=True)
class AdminRequest:
    """An administrative request.

    Attributes:
        api_key: Its API.
        time_ns, answer_ns: When it and its answer passed; ``answer_ns`` None: there is none.
        client_id: As the client named itself.
        address: The client's address.
        principal: ``User:alice``; None: the capture does not show it.
        correlation_id: In its header.
        is_envelope: Whether a broker passed it on.
        body: Its bytes.
        changes: What it asked for.
    """

    api_key: int
    time_ns: int
    answer_ns: int | None
    client_id: str
    address: str
    principal: str | None
    correlation_id: int
    is_envelope: bool
    body: bytes
    changes: list[AdminChange]


class AskedChange(NamedTuple):
    """A change that was asked for, with the records that it made.

    Attributes:
        request, change: The two.
        offsets: The offsets of the records; empty: none, or not told.
        note: Why no records are named; empty: they are, or it was refused.
    """

    request: AdminRequest
    change: AdminChange
    offsets: tuple[int, ...]
    note: str


@dataclass(slots=True)
class AdminTraffic:
    """The administrative requests of captures.

    Attributes:
        requests: Them.
        described: Answers to DescribeQuorum that brokers passed on, and when.
    """

    requests: list[AdminRequest] = field(default_factory=list)
    described: list[tuple[Any, int]] = field(default_factory=list)

    def add(self, exchange: Exchange) -> None:
        """Add an administrative request or an Envelope.

        Raises:
            KprotoError: It cannot be read.
        """
        request, response = exchange.request, exchange.response
        if request is None or request.api_key is None or request.api_version is None:
            return
        key, version = request.api_key, request.api_version
        client_id, correlation_id, body = request.client_id, request.correlation_id, bytes(request.body)
        address, principal = exchange.client.ip, None
        answer = None if response is None else decode_response(key, version, response.body)
        answer_ns = None if response is None else response.time_ns
        if key == ApiKey.ENVELOPE:
            envelope = decode_request(key, version, body)
            address, principal = _address(envelope.client_host_address), principal_of(envelope.request_principal)
            header, begin = decode_request_header_from(envelope.request_data)
            key, version, body = header.request_api_key, header.request_api_version, envelope.request_data[begin:]
            client_id, correlation_id = header.client_id, header.correlation_id
            if key not in APIS and key != ApiKey.DESCRIBE_QUORUM:
                return
            if answer is not None:
                data = answer.response_data
                if answer.error_code or data is None:
                    return  # the broker asks the next controller
                _header, begin = decode_response_header_from(data, response_header_version(key, version))
                answer = decode_response(key, version, data[begin:])
        if key == ApiKey.DESCRIBE_QUORUM:
            if answer is not None and answer_ns is not None:
                self.described.append((answer, answer_ns))
            return
        asked, used = decode_request_from(key, version, body)
        if not getattr(asked, "validate_only", False):
            self.requests.append(
                AdminRequest(
                    key, exchange.time_ns, answer_ns, client_id or "", address, principal, correlation_id or 0,
                    request.api_key == ApiKey.ENVELOPE,
                    body[:used],  # some clients write more, which brokers do not pass on
                    list(_CHANGES[key](asked, answer)),
                )
            )  # fmt: skip

    def finish(self) -> None:
        """Order the requests; leave out those to brokers whose Envelopes are there too."""
        self.requests.sort(key=lambda one: one.time_ns)
        passed_on: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for one in self.requests:
            if one.is_envelope:
                passed_on[one.api_key, one.client_id, one.correlation_id, one.body].append(one.time_ns)

        def is_repeated(one: AdminRequest) -> bool:
            if one.is_envelope:
                return False
            end = one.time_ns + _LONGEST_NS if one.answer_ns is None else one.answer_ns
            times = passed_on.get((one.api_key, one.client_id, one.correlation_id, one.body), [])
            place = bisect_left(times, one.time_ns)
            return place < len(times) and times[place] <= end

        self.requests = [one for one in self.requests if not is_repeated(one)]

    def joined(self, records: Iterable[LogRecord], clocks: Mapping[int, int]) -> Iterator[AskedChange]:
        """Yield each change with the offsets of the records that it made.

        Args:
            records: Those of ``CHANGING`` in the log, in the order of offsets.
            clocks: By how many ns the captures' clock is ahead of that of each epoch's leader; 0 where it lacks.
        """

        def written(each: LogRecord) -> int:
            """When a record was written, ms by the captures' clock."""
            return each.time_ms + clocks.get(each.epoch, 0) // 1_000_000

        made: dict[tuple[Any, ...], list[LogRecord]] = defaultdict(list)
        was_called: dict[str, list[bytes]] = defaultdict(list)
        entries: dict[bytes, tuple[Any, ...]] = {}
        for each in records:
            record = each.record
            if isinstance(record, TopicRecord):
                was_called[record.name].append(record.topic_id)
            elif isinstance(record, AccessControlEntryRecord):
                entries[record.id] = _entry(record, record.pattern_type)
            elif isinstance(record, RemoveAccessControlEntryRecord) and record.id in entries:
                made["entry removed", *entries.pop(record.id)].append(each)
            for subject in _SUBJECTS[type(record)](record):
                made[subject].append(each)
        for some in made.values():
            some.sort(key=written)  # those of a former controller may be ahead
        fitting: dict[tuple[int, tuple[Any, ...]], int] = defaultdict(int)
        found: list[tuple[AdminRequest, AdminChange, list[LogRecord]]] = []
        for request in self.requests:
            begin = request.time_ns // 1_000_000 - _SLACK_MS
            end_ns = request.time_ns + _LONGEST_NS if request.answer_ns is None else request.answer_ns
            end = end_ns // 1_000_000 + _SLACK_MS
            for change in request.changes:
                fits: list[LogRecord] = []
                if not change.error_code:
                    named = [change.topic_id] if change.topic_id else was_called.get(change.topic or "", [b""])
                    for topic_id in named:
                        subject = tuple(topic_id if part is _ID else part for part in change.subject)
                        some = made.get(subject, [])
                        first = bisect_left(some, begin, key=written)
                        last = bisect_right(some, end, key=written)
                        fits += sorted(some[first:last], key=lambda each: each.offset)
                for each in fits:
                    fitting[each.offset, change.subject] += 1
                found.append((request, change, fits))
        for request, change, fits in found:
            note = ""
            if not fits and not change.error_code:
                note = "no record within its time names this: nothing changed, or the log is not whole"
            elif any(fitting[each.offset, change.subject] > 1 for each in fits):
                fits, note = [], "cannot tell: several requests of this time ask for the same"
            yield AskedChange(request, change, tuple(each.offset for each in fits), note)


def principal_of(data: bytes | None) -> str | None:
    """Return a principal as Kafka's own builder writes it: version, then type and name; None: it cannot be read."""
    if not data or len(data) < 2 or int.from_bytes(data[:2], "big", signed=True) != 0:
        return None
    at, parts = 2, []
    for _part in range(2):
        try:
            length, at = varint(data, at)
        except Malformed:
            return None
        size = length - 1
        if size < 0 or at + size > len(data):
            return None
        parts.append(data[at : at + size].decode("utf-8", "replace"))
        at += size
    return ":".join(parts)


def _address(packed: bytes) -> str:
    try:
        return str(ip_address(bytes(packed)))
    except ValueError:
        return ""


# ---- what a request asks for


class _Id:
    """Stands for the topic's id in a change's subject, where the request names the topic."""


_ID: Final = _Id()


def _create_topics(asked: Any, answer: Any) -> Iterator[AdminChange]:
    said = {topic.name: topic for topic in answer.topics} if answer is not None else {}
    for topic in asked.topics:
        result = said.get(topic.name)
        given = [part.broker_ids for part in topic.assignments]
        count = len(given) or topic.num_partitions
        partitions = "the default number of" if count < 0 else f"{count}"
        what = f"create the topic, {partitions} partition{'s' * (count != 1)}"
        topic_id = getattr(result, "topic_id", None) or None
        yield AdminChange(
            what, None if result is None else result.error_code, ("topic", _ID), topic.name,
            topic_id=None if topic_id in (None, _NO_ID) else topic_id,
        )  # fmt: skip


def _delete_topics(asked: Any, answer: Any) -> Iterator[AdminChange]:
    said = {}
    for one in reversed(answer.responses if answer is not None else ()):
        said[one.topic_id] = said[one.name] = one
    named = [(topic.name, topic.topic_id) for topic in asked.topics] + [(name, _NO_ID) for name in asked.topic_names]
    for name, topic_id in named:
        result = said.get(name or topic_id)
        told = getattr(result, "topic_id", _NO_ID)
        topic_id = topic_id if topic_id != _NO_ID else told
        yield AdminChange(
            "delete the topic", None if result is None else result.error_code, ("removed", _ID),
            name or getattr(result, "name", None), topic_id=None if topic_id == _NO_ID else topic_id,
        )  # fmt: skip


def _create_partitions(asked: Any, answer: Any) -> Iterator[AdminChange]:
    said = {topic.name: topic.error_code for topic in answer.results} if answer is not None else {}
    for topic in asked.topics:
        what = f"raise the number of partitions to {topic.count}"
        yield AdminChange(what, said.get(topic.name), ("partitions", _ID), topic.name)


def _reassignments(asked: Any, answer: Any) -> Iterator[AdminChange]:
    said = _of_partitions(answer, "responses name partitions partition_index")
    for topic in asked.topics:
        for part in topic.partitions:
            to, at = part.replicas, (topic.name, part.partition_index)
            what = "cancel the reassignment" if to is None else f"move to replicas {list(to)}"
            yield AdminChange(what, said.get(at), ("replicas", _ID, part.partition_index), *at)


def _elect_leaders(asked: Any, answer: Any) -> Iterator[AdminChange]:
    said = _of_partitions(answer, "replica_election_results topic partition_result partition_id")
    kind = "an unclean" if asked.election_type else "the preferred"
    named = [(topic.topic, number) for topic in asked.topic_partitions or () for number in topic.partitions]
    for at in named or list(said):
        yield AdminChange(f"elect {kind} leader", said.get(at), ("leader", _ID, at[1]), *at)


def _of_partitions(answer: Any, names: str) -> dict[tuple[str, int], int]:
    """The errors of an answer by partition; ``names``: of its topics, their names, partitions, and their numbers."""
    topics, name, partitions, number = map(attrgetter, names.split())
    return {
        (name(topic), number(part)): part.error_code or answer.error_code
        for topic in (() if answer is None else topics(answer))
        for part in partitions(topic)
    }


def _configs(asked: Any, answer: Any) -> Iterator[AdminChange]:
    responses = () if answer is None else answer.responses
    said = {(one.resource_type, one.resource_name): one.error_code for one in responses}
    for resource in asked.resources:
        kind, name = resource.resource_type, resource.resource_name
        of = f"{_RESOURCES.get(kind, f'resource type {kind}')} {name or '(default)'}"
        for entry in resource.configs:
            value = HIDDEN if entry.value and is_secret_config(entry.name) else entry.value
            operation = getattr(entry, "config_operation", 0)
            if operation == 1 or value is None:
                what = f"{of}: remove {entry.name}"
            else:
                sign = {2: "+=", 3: "-="}.get(operation, "=")
                what = f"{of}: {entry.name}{sign}{value}"
            subject: tuple[Any, ...] = ("config", kind, name, entry.name)
            if operation in (0, 1):  # what it is then is known
                subject += (None if operation else entry.value,)
            yield AdminChange(what, said.get((kind, name)), subject, name if kind == _TOPIC_RESOURCE else None)


def _features(asked: Any, answer: Any) -> Iterator[AdminChange]:
    error = None if answer is None else answer.error_code
    said = {one.feature: one.error_code for one in answer.results} if answer is not None else {}
    for update in asked.feature_updates:
        what = f"set the feature {update.feature} to {update.max_version_level}"
        yield AdminChange(what, error or said.get(update.feature, error), ("feature", update.feature))


def _unregister(asked: Any, answer: Any) -> Iterator[AdminChange]:
    error = None if answer is None else answer.error_code
    yield AdminChange(f"unregister broker {asked.broker_id}", error, ("unregister", asked.broker_id))


def _entry(entry: Any, pattern_type: int) -> tuple[Any, ...]:
    """An access control entry, in whatever message or record."""
    return (
        entry.resource_type, entry.resource_name, pattern_type, entry.principal, entry.host, entry.operation,
        entry.permission_type,
    )  # fmt: skip


def _topic(entry: Any) -> str | None:
    """The topic that a rule is about."""
    return entry.resource_name if entry.resource_type == _TOPIC_RESOURCE else None


def _rule(entry: tuple[Any, ...]) -> str:
    """An access control entry in words; null, as filters have it, is anything."""
    kind, name, pattern, principal, host, operation, permission = entry
    of = f"{_ACL_RESOURCES.get(kind, f'resource type {kind}')} {'*' if name is None else name}"
    return (
        f"{_PERMISSIONS.get(permission, f'permission {permission}')} {'*' if principal is None else principal} "
        f"{_OPERATIONS.get(operation, f'operation {operation}')} on {of}{'*' * (pattern == _PREFIXED)}"
        f"{'' if host in (None, '*') else f' from {host}'}"
    )


def _acls_created(asked: Any, answer: Any) -> Iterator[AdminChange]:
    results = [] if answer is None else answer.results
    for place, creation in enumerate(asked.creations):
        entry = _entry(creation, creation.resource_pattern_type)
        error = results[place].error_code if place < len(results) else None
        yield AdminChange(f"add the rule: {_rule(entry)}", error, ("entry", *entry), _topic(creation))


def _acls_deleted(asked: Any, answer: Any) -> Iterator[AdminChange]:
    results = [] if answer is None else answer.filter_results
    for place, wanted in enumerate(asked.filters):
        result = results[place] if place < len(results) else None
        matching = [] if result is None else result.matching_acls
        for one in matching:
            entry = _entry(one, one.pattern_type)
            rule = f"remove the rule: {_rule(entry)}"
            yield AdminChange(rule, one.error_code, ("entry removed", *entry), _topic(one))
        if not matching:
            rule = _rule(
                (
                    wanted.resource_type_filter, wanted.resource_name_filter, wanted.pattern_type_filter,
                    wanted.principal_filter, wanted.host_filter, wanted.operation, wanted.permission_type,
                )
            )  # fmt: skip
            error = None if result is None else result.error_code
            yield AdminChange(f"remove rules: {rule}", error, ("no entry",))


def _entity(parts: Iterable[Any]) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted(((part.entity_type, part.entity_name) for part in parts), key=str))


def _quotas(asked: Any, answer: Any) -> Iterator[AdminChange]:
    said = {_entity(one.entity): one.error_code for one in answer.entries} if answer is not None else {}
    for entry in asked.entries:
        entity = _entity(entry.entity)
        of = ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)
        for op in entry.ops:
            what = f"quota of {of}: " + (f"remove {op.key}" if op.remove else f"{op.key}={op.value:.15g}")
            yield AdminChange(what, said.get(entity), ("quota", entity, op.key))


def _credentials(asked: Any, answer: Any) -> Iterator[AdminChange]:
    said = {one.user: one.error_code for one in answer.results} if answer is not None else {}
    for verb, some in (("remove", asked.deletions), ("set", asked.upsertions)):
        for one in some:
            kind = _MECHANISMS.get(one.mechanism, f"mechanism {one.mechanism}")
            what = f"{verb} the {kind} credential of user {one.name}"
            yield AdminChange(what, said.get(one.name), ("credential", one.name, one.mechanism, verb))


def _voter(asked: Any, answer: Any) -> Iterator[AdminChange]:
    error = None if answer is None else answer.error_code
    verb = "add" if asked.api_key == ApiKey.ADD_RAFT_VOTER else "remove"
    yield AdminChange(f"{verb} the voter {asked.voter_id} of the quorum", error, ("voters",))


_PREFIXED: Final = 4
_ACL_RESOURCES: Final = {
    1: "any resource", 2: "topic", 3: "group", 4: "cluster", 5: "transactional id", 6: "delegation token", 7: "user",
}  # fmt: skip
_PERMISSIONS: Final = {1: "any rule for", 2: "deny", 3: "allow"}
_OPERATIONS: Final = {
    1: "any operation", 2: "all", 3: "read", 4: "write", 5: "create", 6: "delete", 7: "alter", 8: "describe",
    9: "cluster action", 10: "describe configs", 11: "alter configs", 12: "idempotent write", 13: "create tokens",
    14: "describe tokens", 15: "two phase commit",
}  # fmt: skip
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


_CHANGES: Final[dict[int, Callable[[Any, Any], Iterator[AdminChange]]]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassignments,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.UPDATE_FEATURES: _features,
    ApiKey.UNREGISTER_BROKER: _unregister,
    ApiKey.CREATE_ACLS: _acls_created,
    ApiKey.DELETE_ACLS: _acls_deleted,
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _credentials,
    ApiKey.ADD_RAFT_VOTER: _voter,
    ApiKey.REMOVE_RAFT_VOTER: _voter,
}
APIS: Final = frozenset(_CHANGES)
"""The requests that change metadata and that are read."""


def _partition_changed(record: PartitionChangeRecord) -> list[tuple[Any, ...]]:
    of = record.topic_id, record.partition_id
    moves = any(part is not None for part in (record.replicas, record.adding_replicas, record.removing_replicas))
    return [("replicas", *of)] * moves + [("leader", *of)] * (record.leader != SAME_LEADER)


def _configured(record: ConfigRecord) -> list[tuple[Any, ...]]:
    subject = "config", record.resource_type, record.resource_name, record.name
    return [subject, (*subject, record.value)]


_SUBJECTS: Final[dict[type, Callable[[Any], list[tuple[Any, ...]]]]] = {
    TopicRecord: lambda record: [("topic", record.topic_id)],
    RemoveTopicRecord: lambda record: [("removed", record.topic_id)],
    PartitionRecord: lambda record: [("partitions", record.topic_id)],
    PartitionChangeRecord: _partition_changed,
    ConfigRecord: _configured,
    FeatureLevelRecord: lambda record: [("feature", record.name)],
    KRaftVersionRecord: lambda _record: [("feature", "kraft.version")],
    UnregisterBrokerRecord: lambda record: [("unregister", record.broker_id)],
    AccessControlEntryRecord: lambda record: [("entry", *_entry(record, record.pattern_type))],
    RemoveAccessControlEntryRecord: lambda _record: [],
    ClientQuotaRecord: lambda record: [("quota", _entity(record.entity), record.key)],
    UserScramCredentialRecord: lambda record: [("credential", record.name, record.mechanism, "set")],
    RemoveUserScramCredentialRecord: lambda record: [("credential", record.name, record.mechanism, "remove")],
    KRaftVotersRecord: lambda _record: [("voters",)],
}
"""What a record of each type can be the answer to."""

CHANGING: Final = tuple(_SUBJECTS)
"""The records that a request can make."""
