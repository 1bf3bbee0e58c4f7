"""Responses that answer a whole request to the controller with an error code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kproto import messages
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable


def error_response(api_key: int, request: Any, code: ErrorCode) -> Any:
    """Make the response that answers the whole request with an error code."""
    match api_key:
        case ApiKey.CREATE_TOPICS:
            topics = [messages.CreatableTopicResult(name=name, error_code=code) for name in _names(request.topics)]
            return messages.CreateTopicsResponse(topics=topics)
        case ApiKey.CREATE_PARTITIONS:
            results = [
                messages.CreatePartitionsTopicResult(name=name, error_code=code) for name in _names(request.topics)
            ]
            return messages.CreatePartitionsResponse(results=results)
        case ApiKey.DELETE_TOPICS:
            asked = [(t.name, t.topic_id) for t in request.topics]
            named = [messages.DeletableTopicResult(name=name, error_code=code) for name in request.topic_names]
            by_either = [messages.DeletableTopicResult(name=n, topic_id=i, error_code=code) for n, i in asked]
            return messages.DeleteTopicsResponse(responses=named + by_either)
        case ApiKey.ALTER_PARTITION:
            return messages.AlterPartitionResponse(error_code=code)
        case ApiKey.ALLOCATE_PRODUCER_IDS:
            return messages.AllocateProducerIdsResponse(error_code=code)
        case ApiKey.INIT_PRODUCER_ID:
            return messages.InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)  # clients retry
        case ApiKey.ELECT_LEADERS:
            return _not_elected(request, code)
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            return messages.AlterPartitionReassignmentsResponse(error_code=code, error_message=None)
        case ApiKey.LIST_PARTITION_REASSIGNMENTS:
            return messages.ListPartitionReassignmentsResponse(error_code=code, error_message=None)
        case ApiKey.UPDATE_FEATURES:
            return messages.UpdateFeaturesResponse(error_code=code, error_message=None)
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            users = _names((*request.deletions, *request.upsertions))
            refused = [
                messages.AlterUserScramCredentialsResult(user=u, error_code=code, error_message=None) for u in users
            ]
            return messages.AlterUserScramCredentialsResponse(results=refused)
        case ApiKey.ALTER_CONFIGS:
            return messages.AlterConfigsResponse(responses=_not_altered(request, code))
        case ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return messages.IncrementalAlterConfigsResponse(responses=_not_altered(request, code))
        case ApiKey.CONTROLLED_SHUTDOWN:
            return messages.ControlledShutdownResponse(error_code=code)
    raise ValueError(f"the controller does not serve API {api_key}")


def _not_elected(request: Any, code: ErrorCode) -> Any:
    results = [
        messages.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                messages.PartitionElectionResult(partition_id=p, error_code=code, error_message=None)
                for p in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    whole = code if request.topic_partitions is None else ErrorCode.NONE
    return messages.ElectLeadersResponse(error_code=whole, replica_election_results=results)


def _not_altered(request: Any, code: ErrorCode) -> list[Any]:
    return [
        messages.AlterConfigsResourceResponse(
            error_code=code, error_message=None, resource_type=r.resource_type, resource_name=r.resource_name
        )
        for r in request.resources
    ]


def _names(topics: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(topic.name for topic in topics))
