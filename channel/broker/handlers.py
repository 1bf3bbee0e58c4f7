"""The handlers of an embedded broker, one function for each API, and the function that calls the request's handler."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from channel.api_errors import error_response
from channel.errors import ChannelError
from channel.logs import get_logger
from channel.types import is_topic_name
from kproto import messages
from kproto.api import CONTROL_APIS, ApiKey, api_name
from kproto.error_codes import ErrorCode
from kproto.errors import UnsupportedVersion
from kproto.messages import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaResponse,
)
from kproto.types import ZERO_UUID, TopicPartition

from .embedded import RECORD_VERSIONS, SERVED, Refused
from .metadata_cache import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .embedded import EmbeddedBroker
    from .hooks import RequestContext
    from .metadata_cache import MetadataCache


_log = get_logger(__name__)


def must_be_zookeeper_mode(broker: EmbeddedBroker, context: RequestContext) -> None:
    """Raise ``UnsupportedVersion`` on a KRaft broker, for APIs that only a ZooKeeper controller sends."""
    if not broker.zookeeper_mode:
        name = api_name(context.api_key)
        raise UnsupportedVersion(
            context.api_key, context.version, name, detail=f"should never receive {name} when running with KRaft"
        )


def refusal(broker: EmbeddedBroker, context: RequestContext, request: Any) -> int | None:
    """Return the error code of a refused control request, 31 (authorization) or 77 (broker epoch), else None."""
    must_be_zookeeper_mode(broker, context)
    authorize = broker.hooks.authorize
    if authorize is not None and not authorize(context):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if broker.is_stale(request.broker_epoch, is_kraft=bool(request.is_kraft_controller)):
        _log.info(
            "broker %d refuses %s of controller %d (epoch %d): it names broker epoch %d, this broker has epoch %d",
            broker.broker_id,
            api_name(context.api_key),
            request.controller_id,
            request.controller_epoch,
            request.broker_epoch,
            broker.kraft_epoch if request.is_kraft_controller else broker.broker_epoch,
        )
        return ErrorCode.STALE_BROKER_EPOCH
    return None


def _leader_and_isr(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer 0 with a code for each partition; 31, 77 and 11 stand on the top level and on every partition."""
    code = refusal(broker, context, request)
    if code is not None:
        return request.error_response(code)
    try:
        codes = broker.replicas.become_leader_or_follower(context.correlation_id, request)
    except Refused as e:
        return request.error_response(e.code)
    if broker.records is not None:
        broker.records.update(codes)
    if broker.hooks.leadership is not None:
        hosted = broker.replicas.hosted
        done = [tp for tp, code in codes.items() if code == 0 and tp in hosted]
        broker.hooks.leadership(
            [tp for tp in done if hosted[tp].role == "leader"], [tp for tp in done if hosted[tp].role == "follower"]
        )
    return _leader_and_isr_response(context.version, codes, request.topic_ids)


def _leader_and_isr_response(version: int, codes: Mapping[TopicPartition, int], topic_ids: Mapping[str, bytes]) -> Any:
    error = LeaderAndIsrPartitionError
    if version < 5:
        return LeaderAndIsrResponse(
            partition_errors=[
                error(topic_name=tp.topic, partition_index=tp.partition, error_code=code) for tp, code in codes.items()
            ]
        )
    by_id: dict[bytes, list[Any]] = {}  # topics without an id share the zero id's entry
    for tp, code in codes.items():
        by_id.setdefault(topic_ids.get(tp.topic, ZERO_UUID), []).append(
            error(partition_index=tp.partition, error_code=code)
        )
    return LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors) for topic_id, errors in by_id.items()
        ]
    )


def _stop_replica(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer 0 with a code for each partition; 77 and 11 stand on the top level alone, 31 on every partition too."""
    code = refusal(broker, context, request)
    if code is not None:
        return (
            StopReplicaResponse(error_code=code)
            if code == ErrorCode.STALE_BROKER_EPOCH
            else request.error_response(code)
        )
    try:
        codes = broker.replicas.stop_replicas(context.correlation_id, request)
    except Refused as e:
        return StopReplicaResponse(error_code=e.code)
    if broker.records is not None:
        broker.records.update(codes)
    resigned = broker.hooks.resigned
    if resigned is not None:
        for p in request.partition_states:
            stopped = codes[TopicPartition(p.topic_name, p.partition_index)] == ErrorCode.NONE
            if stopped and p.topic_name in INTERNAL_TOPICS and p.delete_partition:
                resigned(p.topic_name, p.partition_index, p.leader_epoch if p.leader_epoch >= 0 else None)
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
            for tp, code in codes.items()
        ]
    )


def _update_metadata(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer with a top-level code alone: 31, 77, 11 or 0."""
    code = refusal(broker, context, request)
    if code is not None:
        return request.error_response(code)
    replicas = broker.replicas
    with replicas.lock:
        try:
            replicas.fence("UpdateMetadata", request, context.correlation_id)
        except Refused as e:
            return request.error_response(e.code)
        deleted = broker.metadata.update_metadata(context.correlation_id, request, version=context.version)
        replicas.controller_epoch = request.controller_epoch  # set after the cache, unlike in the other two APIs
    hooks = broker.hooks  # in Kafka's order
    if deleted and hooks.partitions_deleted is not None:
        hooks.partitions_deleted(deleted)
    entries: list[TopicPartition] = []
    if hooks.topics_changed is not None or hooks.partitions_changed is not None:
        entries = [TopicPartition(row.topic_name, row.partition_index) for row in request.partition_states]
    if entries and hooks.topics_changed is not None:
        hooks.topics_changed([tp.topic for tp in entries])
    if hooks.quotas_changed is not None:
        hooks.quotas_changed(broker.metadata.cluster(context.listener))
    if entries and hooks.partitions_changed is not None:
        hooks.partitions_changed(entries)
    return request.error_response(ErrorCode.NONE)


_BY_ID: Final = 12
"""The first version that takes topics by id."""


def _metadata(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer with brokers, controller and topics; unknown topics get error 3 (by id: 100), or 5 if they are created."""
    asked, version = request.topics, context.version
    if asked and version < _BY_ID and any(t.name is None or t.topic_id != ZERO_UUID for t in asked):
        # versions 10 and 11 have the field, but brokers refuse it there; their answers cannot lack a name
        code = ErrorCode.INVALID_REQUEST
        return messages.MetadataResponse(
            topics=[
                messages.MetadataResponseTopic(error_code=code, name=t.name or "", topic_id=t.topic_id) for t in asked
            ]
        )
    topics = _wanted(broker.metadata, context.listener, asked, version)
    controller = broker.cluster_controller
    if controller is not None and request.allow_auto_topic_creation:
        missing = [t for t in topics if t.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and t.name]
        names = [name for t in missing if (name := t.name) is not None and is_topic_name(name)]
        if missing and controller.create_missing(names):
            for topic in missing:
                is_made = topic.name in names
                topic.error_code = ErrorCode.LEADER_NOT_AVAILABLE if is_made else ErrorCode.INVALID_TOPIC_EXCEPTION
    return _with_cluster(broker, context, topics)


def _with_cluster(
    broker: EmbeddedBroker, context: RequestContext, topics: list[messages.MetadataResponseTopic]
) -> messages.MetadataResponse:
    nodes, controller = broker.metadata.nodes(context.listener)
    return messages.MetadataResponse(
        brokers=[messages.MetadataResponseBroker(node_id=n.id, host=n.host, port=n.port, rack=n.rack) for n in nodes],
        cluster_id=broker.cluster_id,
        controller_id=controller.id if controller else -1,
        topics=topics,
    )


def error_answer(broker: EmbeddedBroker, context: RequestContext, request: Any, code: int) -> Any:
    """Make the answer of a request that ends with an error, of any API that the broker announces."""
    if context.api_key in CONTROL_APIS:
        return request.error_response(code)
    if context.api_key == ApiKey.METADATA:  # it has errors of topics alone
        asked = request.topics
        if asked is None or (context.version == 0 and not asked):
            asked = [messages.MetadataRequestTopic(name=name) for name in broker.metadata.snapshot.partitions]
        topics = [
            messages.MetadataResponseTopic(
                error_code=code,
                name=t.name if t.name is not None or context.version >= _BY_ID else "",
                topic_id=t.topic_id,
                is_internal=t.name in INTERNAL_TOPICS,
            )
            for t in asked
        ]
        return _with_cluster(broker, context, topics)
    if context.api_key == ApiKey.API_VERSIONS:
        return messages.ApiVersionsResponse(error_code=code)
    if broker.records is not None and context.api_key in broker.records.keys:
        return broker.records.error_response(context, request, code)
    return error_response(context.api_key, request, ErrorCode(code))


def _wanted(cache: MetadataCache, listener: str, asked: Any, version: int) -> list[messages.MetadataResponseTopic]:
    names: dict[str, None] = {}  # each topic once, however often the request names it
    unknown: dict[tuple[str | None, bytes], messages.MetadataResponseTopic] = {}
    if asked is None or (version == 0 and not asked):
        names = dict.fromkeys(cache.snapshot.partitions)
    else:
        by_id = cache.snapshot.topic_names if any(topic.name is None for topic in asked) else {}
        for topic in asked:
            name = by_id.get(topic.topic_id) if topic.name is None else topic.name
            if name is not None and cache.contains(name):
                names[name] = None
                continue
            code, topic_id = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ZERO_UUID
            if topic.name is None:
                code, topic_id = ErrorCode.UNKNOWN_TOPIC_ID, topic.topic_id
            unknown[topic.name, topic_id] = messages.MetadataResponseTopic(
                error_code=code, name=topic.name, topic_id=topic_id, is_internal=topic.name in INTERNAL_TOPICS
            )
    known = cache.topic_metadata(
        names,
        listener,
        error_unavailable_endpoints=version == 0,
        error_unavailable_listeners=version >= 6,
    )
    return known + list(unknown.values())


def _controlled_shutdown(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer as the owner's hook decides; without a hook with 11, as a broker that is not the active controller."""
    must_be_zookeeper_mode(broker, context)
    ask = broker.hooks.controlled_shutdown
    code, remaining = ask(request.broker_id, request.broker_epoch) if ask else (ErrorCode.STALE_CONTROLLER_EPOCH, ())
    return messages.ControlledShutdownResponse(
        error_code=code,
        remaining_partitions=[
            messages.RemainingPartition(topic_name=tp.topic, partition_index=tp.partition) for tp in remaining
        ],
    )


_TOPIC, _BROKER = 2, 4
_OF_TOPIC: Final = 1
_OF_RUNNING_BROKER: Final = 2
_OF_FILE: Final = 4


def _describe_configs(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer with the settings that the hook ``settings`` finds; an embedded broker has no list of defaults."""
    results: list[messages.DescribeConfigsResult] = []
    try:
        results += (_described(broker, each) for each in request.resources)
    except ChannelError as e:  # nor would the others be read
        _log.warning("broker %d cannot read settings: %s", broker.broker_id, e)
        results += error_response(ApiKey.DESCRIBE_CONFIGS, request, ErrorCode.REQUEST_TIMED_OUT).results[len(results) :]
    return messages.DescribeConfigsResponse(results=results)


def _described(broker: EmbeddedBroker, resource: Any) -> messages.DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    code, message = ErrorCode.NONE, None
    found: list[tuple[str, str, int]] = []
    if kind == _TOPIC and broker.metadata.contains(name):
        found = [(*each, _OF_TOPIC) for each in _settings(broker, f"topics/{name}")]
    elif kind == _TOPIC:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif kind == _BROKER and name == str(broker.broker_id):
        found = [(*each, _OF_RUNNING_BROKER) for each in _settings(broker, f"brokers/{name}")]
        found.append(("broker.id", name, _OF_FILE))
    else:
        code = ErrorCode.INVALID_REQUEST
        message = f"Unexpected broker id, expected {broker.broker_id}, but received {name}"
    wanted = resource.configuration_keys
    return messages.DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=kind,
        resource_name=name,
        configs=[
            messages.DescribeConfigsResourceResult(
                name=key, value=value, read_only=source == _OF_FILE, config_source=source, documentation=None
            )
            for key, value, source in found
            if wanted is None or key in wanted
        ],
    )


def _settings(broker: EmbeddedBroker, entity: str) -> list[tuple[str, str]]:
    return sorted(broker.settings(entity).items())


_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_OF_ZOOKEEPER: Final = {*CONTROL_APIS, ApiKey.CONTROLLED_SHUTDOWN}
_LEVEL_0_SINCE: Final = 4  # older clients treat a lowest level of 0 as an error, so the feature is left out


def _api_versions(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Answer with the served APIs and the features; error 42 if the client's name or version is malformed."""
    version = context.version
    if version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return messages.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    features = broker.features
    return messages.ApiVersionsResponse(
        api_keys=_ranges(
            key for key in SERVED | broker.announced_keys if broker.zookeeper_mode or key not in _OF_ZOOKEEPER
        ),
        supported_features=[
            messages.SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in features.supported.items()
            if lowest > 0 or version >= _LEVEL_0_SINCE
        ],
        finalized_features_epoch=features.finalized_epoch,
        finalized_features=[
            messages.FinalizedFeatureKey(name=name, min_version_level=lowest, max_version_level=highest)
            for name, (lowest, highest) in features.finalized.items()
        ],
        zk_migration_ready=broker.migration_enabled,
    )


def api_versions_before_authentication(version: int, more: Iterable[int] = ()) -> Any:
    """Answer a client that is not authenticated yet, with the APIs, those of SASL and ``more`` among them."""
    if version > ApiKey.API_VERSIONS.info.max_version:
        return unsupported_api_versions()
    return messages.ApiVersionsResponse(
        api_keys=_ranges({*SERVED, *more, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
    )


def unsupported_api_versions() -> Any:
    """Answer an unknown version with error 35, to be encoded as version 0, and the range of this API alone."""
    return messages.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges([ApiKey.API_VERSIONS])
    )


def _ranges(keys: Iterable[int]) -> list[messages.ApiVersion]:
    ranges = {key: RECORD_VERSIONS.get(ApiKey(key), (0, ApiKey(key).info.max_version)) for key in sorted(keys)}
    return [messages.ApiVersion(api_key=k, min_version=low, max_version=high) for k, (low, high) in ranges.items()]


HANDLERS: Final[dict[int, Callable[..., Any]]] = {
    ApiKey.METADATA: _metadata,
    ApiKey.LEADER_AND_ISR: _leader_and_isr,
    ApiKey.STOP_REPLICA: _stop_replica,
    ApiKey.UPDATE_METADATA: _update_metadata,
    ApiKey.CONTROLLED_SHUTDOWN: _controlled_shutdown,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
}
"""(broker, context, request) -> answer, by API key."""


def handle(broker: EmbeddedBroker, context: RequestContext, request: Any) -> Any:
    """Return the broker's answer to a request; an exception becomes an error answer, as in Kafka.

    Raises:
        UnsupportedVersion: No handler for this API, or not in this mode: the connection must be closed.
    """
    handler = HANDLERS.get(context.api_key)
    if handler is None:
        raise UnsupportedVersion(
            context.api_key, context.version, detail=f"no handler for api {context.api_key} in an embedded broker"
        )
    try:
        return handler(broker, context, request)
    except UnsupportedVersion:
        raise
    except Exception as e:
        _log.exception("broker %d: error while handling %s", broker.broker_id, api_name(context.api_key))
        if not isinstance(e, ChannelError):
            broker.note_failure(e)
        if context.api_key not in CONTROL_APIS:
            raise  # only the control requests list the partitions that an error answer must name
        return request.error_response(ErrorCode.UNKNOWN_SERVER_ERROR)
