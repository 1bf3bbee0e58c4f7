"""Responses that answer a whole request to the controller with an error code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kproto import codec, messages
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def error_response(api_key: int, request: Any, code: ErrorCode) -> Any:
    """Make the response that answers the whole request with an error code."""
    response = codec.message_class(api_key, "response")
    match api_key:
        case (
            ApiKey.ALTER_PARTITION | ApiKey.ALLOCATE_PRODUCER_IDS | ApiKey.CONTROLLED_SHUTDOWN | ApiKey.ENVELOPE
            | ApiKey.LIST_GROUPS | ApiKey.LIST_TRANSACTIONS | ApiKey.DESCRIBE_LOG_DIRS
        ):  # fmt: skip
            return response(error_code=code)
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS | ApiKey.LIST_PARTITION_REASSIGNMENTS | ApiKey.UPDATE_FEATURES:
            return response(error_code=code, error_message=None)
        case ApiKey.INIT_PRODUCER_ID:
            return response(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)  # clients retry
        case ApiKey.CREATE_TOPICS:
            names = _names(request.topics)
            return response(topics=[messages.CreatableTopicResult(name=n, error_code=code) for n in names])
        case ApiKey.CREATE_PARTITIONS:
            names = _names(request.topics)
            return response(results=[messages.CreatePartitionsTopicResult(name=n, error_code=code) for n in names])
        case ApiKey.DELETE_TOPICS:
            asked = [{"name": name} for name in request.topic_names]
            asked += [{"name": t.name, "topic_id": t.topic_id} for t in request.topics]
            return response(responses=[messages.DeletableTopicResult(**each, error_code=code) for each in asked])
        case ApiKey.ELECT_LEADERS:
            return _not_elected(request, code)
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            users = _names((*request.deletions, *request.upsertions))
            refused = [
                messages.AlterUserScramCredentialsResult(user=u, error_code=code, error_message=None) for u in users
            ]
            return response(results=refused)
        case ApiKey.DESCRIBE_CONFIGS:
            return response(results=_of_resources(messages.DescribeConfigsResult, request, code))
        case ApiKey.ALTER_CONFIGS | ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return response(responses=_of_resources(messages.AlterConfigsResourceResponse, request, code))
    raise ValueError(f"the controller does not serve API {api_key}")


def _of_resources(result: Callable[..., Any], request: Any, code: ErrorCode) -> list[Any]:
    return [
        result(error_code=code, error_message=None, resource_type=r.resource_type, resource_name=r.resource_name)
        for r in request.resources
    ]


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


def _names(topics: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(topic.name for topic in topics))
