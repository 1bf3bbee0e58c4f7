"""The controller's answers to the requests of brokers and administrators."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from channel.errors import (
    BadVersion,
    BrokerNotAvailable,
    NodeExists,
    NodeTooLarge,
    StaleBrokerEpoch,
)
from channel.logs import get_logger
from channel.types import LeaderAndIsr, LeaderRecoveryState, ReplicaAssignment, random_uuid
from channel.zookeeper import znodes
from channel.zookeeper.cluster_state import fenced, fenced_together, read_settings, write_settings
from channel.zookeeper.session import Create, SetData
from kproto import messages
from kproto.api import ApiKey, ibp_at_least
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

from .leader_election import Election
from .new_topics import (
    NewTopic,
    ReplicaBrokers,
    RequestRejected,
    added_partitions,
    create_partitions,
    new_topics,
    rejection,
    topics_to_delete,
)
from .topic_settings import check_topic_settings
from .zookeeper_store import raise_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from channel.zookeeper.session import Operation, ZooKeeperSession
    from kproto.types import Uuid

    from .broker_changes import BrokerChanges
    from .events import ApiRequest
    from .isr_changes import IsrChanges
    from .leader_balance import LeaderBalance
    from .reassignment import Reassignments
    from .state_machines import ControlledCluster
    from .topic_creation import TopicChanges
    from .topic_deletion import TopicDeletions

_log = get_logger(__name__)

_BY_ID: Final = 2
"""The first version of AlterPartition that names topics by id."""

_ELECTIONS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}
"""The elections that an administrator can request, by their numbers on the wire."""

_BLOCK: Final = 1000
"""The number of producer ids in a broker's block, as in Kafka."""

_ATTEMPTS: Final = 10
_LARGE_TOPIC: Final = 128 << 10
"""The size of a topic's znode, in bytes, from which it is written alone."""

_LAST_PRODUCER_ID: Final = (1 << 63) - 1

_MESSAGES: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "Replicas must be different live brokers that keep records.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is being deleted.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "No partition reassignment is in progress.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The partition does not exist.",
}

_TOPIC, _BROKER = 2, 4
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

_THROTTLES: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""The settings of one broker that any broker takes while it runs, whatever it stores."""

_LISTS: Final = frozenset(
    {"cleanup.policy", "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)
"""The settings of topics that are lists, to which values can be added."""

_SCRAM: Final = {1: ("SCRAM-SHA-256", "sha256"), 2: ("SCRAM-SHA-512", "sha512")}
_FEWEST_ITERATIONS, _MOST_ITERATIONS = 4096, 16_384


class Administration:
    """Answers brokers and administrators for an elected controller; on the event thread only.

    Args:
        session: The ZooKeeper session, for znodes that the store does not handle.
        brokers, topics, deletions, reassignments, isr_changes, balance: The decisions, by their subject.
    """

    def __init__(
        self,
        cluster: ControlledCluster,
        session: ZooKeeperSession,
        *,
        brokers: BrokerChanges,
        topics: TopicChanges,
        deletions: TopicDeletions,
        reassignments: Reassignments,
        isr_changes: IsrChanges,
        balance: LeaderBalance,
    ) -> None:
        self._context = cluster.context
        self._store = cluster.store
        self._config = cluster.config
        self._log = cluster.log
        self._controller_id = cluster.controller_id
        self._without_storage = cluster.without_storage
        self._session = session
        self._broker_changes, self._topics, self._deletions = brokers, topics, deletions
        self._reassignments, self._isr_changes, self._balance = reassignments, isr_changes, balance
        self._own_ids = range(0)
        self._has_topic_ids = ibp_at_least(self._config.inter_broker_protocol_version, "2.8-IV0")
        self._has_features = ibp_at_least(self._config.inter_broker_protocol_version, "2.7-IV0")
        self._answers: Mapping[int, Callable[[Any], Any]] = {
            ApiKey.CONTROLLED_SHUTDOWN: self._shut_down,
            ApiKey.CREATE_TOPICS: self._create_topics,
            ApiKey.CREATE_PARTITIONS: self._create_partitions,
            ApiKey.DELETE_TOPICS: self._delete_topics,
            ApiKey.ALLOCATE_PRODUCER_IDS: self._allocate_producer_ids,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.ELECT_LEADERS: self._elect_leaders,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self._reassign,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self._list_reassignments,
            ApiKey.UPDATE_FEATURES: self._update_features,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self._alter_credentials,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self._alter_configs,
            ApiKey.ALTER_CONFIGS: self._alter_configs,
        }

    def answer(self, event: ApiRequest) -> None:
        """Answer a request; after an error it is not answered.

        Raises:
            ControllerMoved: Another controller was elected.
        """
        if event.api_key == ApiKey.ALTER_PARTITION:
            self._alter_partition(event)
        else:
            event.callback(self._answers[event.api_key](event.request))

    # ---- requests of brokers about themselves and their partitions

    def _shut_down(self, request: Any) -> Any:
        try:
            remaining = self._broker_changes.shut_down(request.broker_id, request.broker_epoch)
        except (StaleBrokerEpoch, BrokerNotAvailable) as e:
            self._log.info("%s", e)
            is_stale = isinstance(e, StaleBrokerEpoch)
            code = ErrorCode.STALE_BROKER_EPOCH if is_stale else ErrorCode.BROKER_NOT_AVAILABLE
            return messages.ControlledShutdownResponse(error_code=code)
        partitions = [
            messages.RemainingPartition(topic_name=tp.topic, partition_index=tp.partition) for tp in sorted(remaining)
        ]
        return messages.ControlledShutdownResponse(remaining_partitions=partitions)

    def _alter_partition(self, event: ApiRequest) -> None:
        """Answer a leader that proposes ISRs, and then complete the reassignments that these complete.

        Raises:
            ControllerMoved: Another controller was elected.
        """
        request, version = event.request, event.version
        proposed: dict[TopicPartition, LeaderAndIsr] = {}
        names: list[str | None] = []
        for topic in request.topics:
            name = self._context.topic_name(topic.topic_id) if version >= _BY_ID else topic.topic_name
            names.append(name)
            if name is None:
                continue
            for each in topic.partitions:
                isr = each.new_isr or [broker.broker_id for broker in each.new_isr_with_epochs]
                proposed[TopicPartition(name, each.partition_index)] = LeaderAndIsr(
                    request.broker_id,
                    tuple(isr),
                    each.leader_epoch,
                    each.partition_epoch,
                    LeaderRecoveryState(each.leader_recovery_state),
                )

        def answer(states: Mapping[TopicPartition, LeaderAndIsr | ErrorCode]) -> None:
            topics = [
                messages.AlterPartitionResponseTopic(
                    topic_name=topic.topic_name,
                    topic_id=topic.topic_id,
                    partitions=[_altered(name, each.partition_index, states) for each in topic.partitions],
                )
                for topic, name in zip(request.topics, names, strict=True)
            ]
            event.callback(messages.AlterPartitionResponse(topics=topics))

        try:
            self._isr_changes.alter(request.broker_id, request.broker_epoch, proposed, version, answer)
        except StaleBrokerEpoch as e:
            self._log.info("%s", e)
            event.callback(messages.AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))

    # ---- CreateTopics

    def _create_topics(self, request: Any) -> Any:
        config = self._config
        found = new_topics(
            request, self._context.all_topics, self._brokers(), config.num_partitions, config.default_replication_factor
        )
        new = {name: each for name, each in found.items() if isinstance(each, NewTopic)}
        outcomes = {name: bytes(16) if isinstance(each, NewTopic) else each for name, each in found.items()}
        if not request.validate_only:
            outcomes |= self._write_topics(new)
            self._topics.process_topic_change()
        return messages.CreateTopicsResponse(
            topics=[
                messages.CreatableTopicResult(name=name, error_code=outcome.code, error_message=str(outcome))
                if isinstance(outcome, RequestRejected)
                else messages.CreatableTopicResult(
                    name=name,
                    topic_id=outcome,
                    num_partitions=len(new[name].replicas),
                    replication_factor=len(new[name].replicas[0]),
                    configs=[],
                )
                for name, outcome in outcomes.items()
            ]
        )

    def _brokers(self) -> ReplicaBrokers:
        live = self._context.live_broker_ids
        racks = {broker.id: broker.rack for broker in self._context.live_or_shutting_down_brokers if broker.id in live}
        return ReplicaBrokers(racks, self._without_storage)

    def _write_topics(self, new: Mapping[str, NewTopic]) -> dict[str, Uuid | RequestRejected]:
        """Write topics' configurations and assignments, pipelined; gives their ids, all zero before topic ids existed.

        ZooKeeper ends the connection at a znode above its limit, and requests after it are lost and sent again: a
        large topic is written alone.
        """
        ids = {name: random_uuid() if self._has_topic_ids else None for name in new}
        contents = {
            name: znodes.encode_topic({p: ReplicaAssignment(r) for p, r in topic.replicas.items()}, ids[name])
            for name, topic in new.items()
        }
        small = [name for name, data in contents.items() if len(data) < _LARGE_TOPIC]
        outcomes: dict[str, Uuid | RequestRejected] = {}
        for names in (small, *([name] for name in contents if len(contents[name]) >= _LARGE_TOPIC)):
            try:
                written = self._create_znodes({name: (new[name].config, contents[name]) for name in names})
            except NodeTooLarge as e:
                outcomes[names[0]] = RequestRejected(ErrorCode.INVALID_PARTITIONS, str(e))
                continue
            for name, is_new in written.items():
                if is_new:
                    _log.info("created topic %s with %d partitions", name, len(new[name].replicas))
                    outcomes[name] = ids[name] or bytes(16)
                else:
                    outcomes[name] = RequestRejected(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        return outcomes

    def _create_znodes(self, topics: Mapping[str, tuple[Mapping[str, str], bytes]]) -> dict[str, bool]:
        """Create the znodes of topics, whose settings and contents are given; False for those that exist already."""
        paths = {name: (f"{znodes.TOPIC_CONFIGS}/{name}", znodes.topic_path(name)) for name in topics}
        configs = self._session.get_unwatched([config for config, _ in paths.values()])
        writes: list[list[Operation]] = []
        for (config, topic), (settings, contents), known in zip(paths.values(), topics.values(), configs, strict=True):
            data = znodes.encode_config(settings)
            # There may be one, left by a topic whose creation or deletion was not finished.
            write: Operation = Create(config, data) if known is None else SetData(config, data)
            writes.append([write, Create(topic, contents)])
        written = {}
        outcomes = fenced_together(self._session, self._store.fence, writes)
        for (name, (_, contents)), outcome in zip(topics.items(), outcomes, strict=True):
            raise_error(outcome, NodeExists)
            # A write whose answer was lost with the connection is sent again, and meets its own znodes.
            written[name] = outcome.error is None or self._is_written(paths[name][1], contents)
        return written

    def _is_written(self, path: str, contents: bytes) -> bool:
        found = self._session.get_many([path])[0]
        return self._has_topic_ids and found is not None and found[0] == contents

    # ---- CreatePartitions

    def _create_partitions(self, request: Any) -> Any:
        return create_partitions(request, partial(self._add_partitions, request.validate_only))

    def _add_partitions(self, validate_only: bool, topic: Any) -> None:
        name, context = topic.name, self._context
        found = self._store.read_assignments([name]).get(name) if name in context.all_topics else None
        if found is None or name in context.topics_to_be_deleted:
            raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        known = found.partitions
        if any(assignment.is_being_reassigned for assignment in known.values()):
            raise RequestRejected(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"partitions of {name} are being reassigned")
        added = added_partitions(topic, [known[p].replicas for p in sorted(known)], self._brokers())
        if validate_only:
            return
        partitions = {**known, **{p: ReplicaAssignment(replicas) for p, replicas in added.items()}}
        try:
            self._store.write_assignment(name, znodes.TopicZnode(partitions, found.topic_id))
        except NodeTooLarge as e:
            raise RequestRejected(ErrorCode.INVALID_PARTITIONS, str(e)) from e
        self._topics.process_partition_modification(name)

    # ---- DeleteTopics

    def _delete_topics(self, request: Any) -> Any:
        results = []
        markers: dict[str, list[Operation]] = {}
        for name, result in topics_to_delete(request, self._context):
            results.append(result)
            if name is None:
                result.error_message = "there is no such topic"
            elif not self._config.delete_topic_enable:
                result.error_code = ErrorCode.TOPIC_DELETION_DISABLED
                result.error_message = "delete.topic.enable is false"
            else:
                result.topic_id = self._context.topic_ids.get(name, bytes(16))
                markers[name] = [Create(f"{znodes.ADMIN_DELETE_TOPICS}/{name}")]
        for outcome in fenced_together(self._session, self._store.fence, list(markers.values())):
            raise_error(outcome, NodeExists)
        self._deletions.process_topic_deletion()
        return messages.DeleteTopicsResponse(responses=results)

    # ---- producer ids

    def _init_producer_id(self, request: Any) -> Any:
        """Give a client an id from the controller's own block; a transactional client has to ask its coordinator."""
        if request.transactional_id is not None:
            return messages.InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR)
        if not self._own_ids:
            block = self._next_block(self._controller_id)
            if block is None:
                return messages.InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._own_ids = range(block.first, block.last + 1)
        producer_id, self._own_ids = self._own_ids[0], self._own_ids[1:]
        return messages.InitProducerIdResponse(producer_id=producer_id)

    def _allocate_producer_ids(self, request: Any) -> Any:
        epoch = self._context.live_broker_id_and_epochs.get(request.broker_id)
        if epoch is None:
            return messages.AllocateProducerIdsResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
        if request.broker_epoch != epoch:
            return messages.AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        block = self._next_block(request.broker_id)
        if block is None:
            return messages.AllocateProducerIdsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return messages.AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=_BLOCK)

    def _next_block(self, broker_id: int) -> znodes.ProducerIdBlock | None:
        """Allocate the next block of producer ids to a broker; None if others keep taking it first, or none is left."""
        path = znodes.PRODUCER_ID_BLOCK
        for _ in range(_ATTEMPTS):
            data, stat = self._session.get(path)
            first = znodes.decode_producer_id_block(data).last + 1 if data else 0
            if first > _LAST_PRODUCER_ID - _BLOCK:
                _log.error("all producer ids are given away")
                return None
            block = znodes.ProducerIdBlock(broker_id, first, first + _BLOCK - 1)
            write = SetData(path, znodes.encode_producer_id_block(block), stat.version)
            outcome = fenced(self._session, self._store.fence, [write])
            if outcome.error is None:
                return block
            raise_error(outcome, BadVersion)
        return None

    # ---- elections and reassignments

    def _elect_leaders(self, request: Any) -> Any:
        """Hold elections; a request of all partitions is answered with those alone that needed one."""
        kind = _ELECTIONS.get(request.election_type)
        if kind is None:
            return messages.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = request.topic_partitions
        partitions = None if asked is None else {TopicPartition(t.topic, p) for t in asked for p in t.partitions}
        codes = self._balance.elect(kind, partitions)
        return messages.ElectLeadersResponse(
            replica_election_results=_results(
                codes,
                lambda topic, rows: messages.ReplicaElectionResult(topic=topic, partition_result=rows),
                lambda partition, error: messages.PartitionElectionResult(partition_id=partition, **error),
            )
        )

    def _reassign(self, request: Any) -> Any:
        """Begin the reassignments with replicas, cancel those without."""
        targets = {
            TopicPartition(topic.name, each.partition_index): None if each.replicas is None else tuple(each.replicas)
            for topic in request.topics
            for each in topic.partitions
        }
        codes = self._reassignments.begin(targets)
        return messages.AlterPartitionReassignmentsResponse(
            error_message=None,
            responses=_results(
                codes,
                lambda topic, rows: messages.ReassignableTopicResponse(name=topic, partitions=rows),
                lambda partition, error: messages.ReassignablePartitionResponse(partition_index=partition, **error),
            ),
        )

    def _list_reassignments(self, request: Any) -> Any:
        asked = request.topics
        partitions = None if asked is None else {TopicPartition(t.name, p) for t in asked for p in t.partition_indexes}
        found = self._reassignments.under_way()
        return messages.ListPartitionReassignmentsResponse(
            error_message=None,
            topics=[
                messages.OngoingTopicReassignment(
                    name=topic,
                    partitions=[
                        messages.OngoingPartitionReassignment(
                            partition_index=tp.partition,
                            replicas=list(found[tp].replicas),
                            adding_replicas=list(found[tp].adding),
                            removing_replicas=list(found[tp].removing),
                        )
                        for tp in members
                    ],
                )
                for topic, members in _by_topic([tp for tp in found if partitions is None or tp in partitions])
            ],
        )

    # ---- features

    def _update_features(self, request: Any) -> Any:
        """Refuse every feature: brokers of Kafka 3.9 with ZooKeeper have none."""
        if not self._has_features:
            return messages.UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message="Feature versioning system is disabled."
            )
        unknown = "Could not apply finalized feature update because the provided feature is not supported."
        absent = "Can not delete non-existing finalized feature."
        return messages.UpdateFeaturesResponse(
            error_message=None,
            results=[
                messages.UpdatableFeatureResult(
                    feature=each.feature,
                    error_code=ErrorCode.INVALID_REQUEST,
                    error_message=absent if each.max_version_level < 1 else unknown,
                )
                for each in request.feature_updates
            ],
        )

    # ---- SCRAM credentials

    def _alter_credentials(self, request: Any) -> Any:
        users: dict[str, list[Any]] = {}
        for each in (*request.deletions, *request.upsertions):
            users.setdefault(each.name, []).append(each)
        results = [
            messages.AlterUserScramCredentialsResult(user=user, **rejection(self._alter_credentials_of, user, changes))
            for user, changes in users.items()
        ]
        return messages.AlterUserScramCredentialsResponse(results=results)

    def _alter_credentials_of(self, user: str, changes: list[Any]) -> None:
        if not user:
            raise RequestRejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if user in (".", ".."):  # no znode can have that name
            raise RequestRejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"no user can be named {user}")
        for each in changes:
            _check_credential(each)
        if len({each.mechanism for each in changes}) < len(changes):
            raise RequestRejected(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        entity = f"users/{quote(user, safe='-._')}"
        settings = read_settings(self._session, entity)
        for each in changes:
            name, digest = _SCRAM[each.mechanism]
            if isinstance(each, messages.ScramCredentialUpsertion):
                settings[name] = _credential(digest, each)
            elif settings.pop(name, None) is None:
                raise RequestRejected(
                    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                )
        self._write_settings(entity, settings)

    # ---- settings

    def _alter_configs(self, request: Any) -> Any:
        results = [
            messages.AlterConfigsResourceResponse(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                **rejection(self._alter_config, each, request.validate_only),
            )
            for each in request.resources
        ]
        if isinstance(request, messages.AlterConfigsRequest):
            return messages.AlterConfigsResponse(responses=results)
        return messages.IncrementalAlterConfigsResponse(responses=results)

    def _alter_config(self, resource: Any, validate_only: bool) -> None:
        kind, name = resource.resource_type, resource.resource_name
        if kind == _TOPIC:
            entity = f"topics/{name}"
            if name not in self._context.all_topics:
                raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        elif kind == _BROKER and name == str(self._controller_id):
            entity = f"brokers/{name}"
        else:
            raise RequestRejected(
                ErrorCode.INVALID_REQUEST,
                f"broker {self._controller_id} changes settings of topics and of itself alone; ask another broker",
            )
        before = read_settings(self._session, entity)
        settings = _changed(before, resource.configs)
        if kind == _TOPIC:
            reason = check_topic_settings(settings)
        else:
            fixed = sorted({each.name for each in resource.configs} - _THROTTLES)
            bad = [n for n, value in settings.items() if n in _THROTTLES and not value.strip().isdigit()]
            reason = f"cannot update these configs dynamically: {', '.join(fixed)}" if fixed else ""
            reason = reason or (f"{bad[0]} has to be a number of bytes per second" if bad else "")
        if reason:
            raise RequestRejected(ErrorCode.INVALID_CONFIG, reason)
        if not validate_only:
            self._write_settings(entity, settings)

    def _write_settings(self, entity: str, settings: Mapping[str, str]) -> None:
        try:
            write_settings(self._session, entity, settings)
        except NodeTooLarge as e:
            raise RequestRejected(ErrorCode.INVALID_CONFIG, str(e)) from e
        _log.info("settings of %s: %s", entity, ", ".join(sorted(settings)) or "none")


def _altered(
    name: str | None, partition: int, states: Mapping[TopicPartition, LeaderAndIsr | ErrorCode]
) -> messages.AlterPartitionResponsePartition:
    state = ErrorCode.UNKNOWN_TOPIC_ID if name is None else states[TopicPartition(name, partition)]
    if not isinstance(state, LeaderAndIsr):
        return messages.AlterPartitionResponsePartition(partition_index=partition, error_code=state)
    return messages.AlterPartitionResponsePartition(
        partition_index=partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.recovery_state,
        partition_epoch=state.partition_epoch,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterator[tuple[str, list[TopicPartition]]]:
    for topic, members in groupby(sorted(partitions), key=lambda tp: tp.topic):
        yield topic, list(members)


def _results(
    codes: Mapping[TopicPartition, ErrorCode],
    of_topic: Callable[[str, list[Any]], Any],
    of_partition: Callable[[int, dict[str, Any]], Any],
) -> list[Any]:
    """The rows of an answer with an error code for each partition, topic by topic."""

    def row(tp: TopicPartition) -> Any:
        return of_partition(tp.partition, {"error_code": codes[tp], "error_message": _MESSAGES.get(codes[tp])})

    return [of_topic(topic, [row(tp) for tp in members]) for topic, members in _by_topic(codes)]


def _changed(before: Mapping[str, str], changes: Any) -> dict[str, str]:
    """The settings after the changes of a resource; changes without an operation replace all settings.

    Raises:
        RequestRejected: A setting is changed twice, has no value, or is no list.
    """
    names = [each.name for each in changes]
    if len(set(names)) < len(names):
        raise RequestRejected(ErrorCode.INVALID_REQUEST, "a setting is changed twice")
    replaces_all = bool(changes) and not isinstance(changes[0], messages.AlterableConfig)
    settings = {} if replaces_all else dict(before)
    for each in changes:
        operation = _SET if replaces_all else each.config_operation
        if operation == _DELETE:
            settings.pop(each.name, None)
            continue
        if each.value is None:
            raise RequestRejected(ErrorCode.INVALID_CONFIG, f"setting {each.name} has no value")
        if operation == _SET:
            settings[each.name] = each.value
            continue
        if operation not in (_APPEND, _SUBTRACT) or each.name not in _LISTS:
            raise RequestRejected(ErrorCode.INVALID_CONFIG, f"setting {each.name} is no list")
        present = [value for value in settings.get(each.name, "").split(",") if value]
        given = each.value.split(",")
        if operation == _APPEND:
            present += [value for value in given if value not in present]
        else:
            present = [value for value in present if value not in given]
        settings[each.name] = ",".join(present)
    return settings


def _check_credential(change: Any) -> None:
    if change.mechanism not in _SCRAM:
        raise RequestRejected(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, messages.ScramCredentialUpsertion):
        if change.iterations < _FEWEST_ITERATIONS:
            raise RequestRejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if change.iterations > _MOST_ITERATIONS:
            raise RequestRejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")


def _credential(digest: str, given: Any) -> str:
    """A credential as Kafka stores it: salt, iterations and the two keys with which a server checks a client."""
    client_key = hmac.digest(given.salted_password, b"Client Key", digest)
    server_key = hmac.digest(given.salted_password, b"Server Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    salt, stored, server = (b64encode(each).decode() for each in (given.salt, stored_key, server_key))
    return f"salt={salt},stored_key={stored},server_key={server},iterations={given.iterations}"
