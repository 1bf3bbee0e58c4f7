"""The controller's answers to administrators about elections, reassignments, features, credentials and settings."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from channel.logs import get_logger
from channel.zookeeper.cluster_state import read_settings, write_settings
from kproto import messages
from kproto.api import ApiKey, ibp_at_least
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

from .api_requests import RequestRejected
from .cluster_events import (
    ApiPartitionReassignment,
    ElectionType,
    ListPartitionReassignments,
    ReplicaLeaderElection,
)
from .topic_settings import check_topic_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from channel.config import ChannelConfig
    from channel.types import ReplicaAssignment
    from channel.zookeeper.session import ZooKeeperSession

    from .api_requests import ApiRequest
    from .context import ControllerContext
    from .events import ControllerEvent

_log = get_logger(__name__)

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


class ClusterAdministration:
    """Answers administrators for an elected controller; on the event thread only.

    Args:
        context: The controller's knowledge.
        session: The ZooKeeper session.
        config: The controller's settings.
        process: Processes the event of a request, and calls its callback before it returns.
        controller_id: The controller's broker id.
    """

    def __init__(
        self,
        context: ControllerContext,
        session: ZooKeeperSession,
        config: ChannelConfig,
        process: Callable[[ControllerEvent], object],
        controller_id: int,
    ) -> None:
        self._context = context
        self._session = session
        self._process = process
        self._controller_id = controller_id
        self._has_features = ibp_at_least(config.inter_broker_protocol_version, "2.7-IV0")
        self._answers: Mapping[int, Callable[[Any], Any]] = {
            ApiKey.ELECT_LEADERS: self._elect_leaders,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self._reassign,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self._list_reassignments,
            ApiKey.UPDATE_FEATURES: self._update_features,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self._alter_credentials,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self._alter_configs,
            ApiKey.ALTER_CONFIGS: self._alter_configs,
        }

    def answer(self, event: ApiRequest) -> Any:
        """The response to a request; None if it is not one of these APIs.

        Raises:
            ControllerMoved: Another controller was elected.
        """
        found = self._answers.get(event.api_key)
        return None if found is None else found(event.request)

    # ---- elections and reassignments

    def _elect_leaders(self, request: Any) -> Any:
        """Hold elections; a request of all partitions is answered with those alone that needed one."""
        if request.election_type not in (ElectionType.PREFERRED.value, ElectionType.UNCLEAN.value):
            return messages.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = request.topic_partitions
        partitions = None if asked is None else {TopicPartition(t.topic, p) for t in asked for p in t.partitions}
        codes: dict[TopicPartition, ErrorCode] = {}
        self._process(ReplicaLeaderElection(ElectionType(request.election_type), partitions, codes.update))
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
        codes: dict[TopicPartition, ErrorCode] = {}
        self._process(ApiPartitionReassignment(targets, lambda _, found: codes.update(found)))
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
        found: dict[TopicPartition, ReplicaAssignment] = {}
        self._process(ListPartitionReassignments(partitions, lambda _, each: found.update(each)))
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
                for topic, members in _by_topic(found)
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
        results = []
        for user, changes in users.items():
            code, message = ErrorCode.NONE, None
            try:
                self._alter_credentials_of(user, changes)
            except RequestRejected as e:
                code, message = e.code, str(e)
            results.append(messages.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message))
        return messages.AlterUserScramCredentialsResponse(results=results)

    def _alter_credentials_of(self, user: str, changes: list[Any]) -> None:
        if not user:
            raise RequestRejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
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
        results = []
        for each in request.resources:
            code, message = ErrorCode.NONE, None
            try:
                self._alter_config(each, request.validate_only)
            except RequestRejected as e:
                code, message = e.code, str(e)
            results.append(
                messages.AlterConfigsResourceResponse(
                    error_code=code,
                    error_message=message,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                )
            )
        response = messages.IncrementalAlterConfigsResponse
        if isinstance(request, messages.AlterConfigsRequest):
            return messages.AlterConfigsResponse(responses=results)
        return response(responses=results)

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
        write_settings(self._session, entity, settings)
        _log.info("settings of %s: %s", entity, ", ".join(sorted(settings)) or "none")


def _by_topic(partitions: Mapping[TopicPartition, Any]) -> Iterator[tuple[str, list[TopicPartition]]]:
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
