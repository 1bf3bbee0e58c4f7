"""Every message, struct and header class by its public name.

The classes of LeaderAndIsr, StopReplica and UpdateMetadata and of the headers are the C-accelerated codec's; those of
the other APIs are the reference's. A class is loaded when its name is first used: a program that handles control
requests never imports Construct, and without the extension its classes raise the ``ImportError`` that says what to do.

>>> from kproto.messages import UpdateMetadataRequest
>>> UpdateMetadataRequest(controller_id=1, controller_epoch=5).to_json(0)["controllerEpoch"]
5
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .codec import get_codec

if TYPE_CHECKING:
    from ._codec import (
        LeaderAndIsrLiveLeader,
        LeaderAndIsrPartitionError,
        LeaderAndIsrPartitionState,
        LeaderAndIsrRequest,
        LeaderAndIsrResponse,
        LeaderAndIsrTopicError,
        LeaderAndIsrTopicState,
        RequestHeader,
        ResponseHeader,
        StopReplicaPartitionError,
        StopReplicaPartitionState,
        StopReplicaPartitionV0,
        StopReplicaRequest,
        StopReplicaResponse,
        StopReplicaState,
        StopReplicaTopicState,
        StopReplicaTopicV1,
        UpdateMetadataBroker,
        UpdateMetadataEndpoint,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
        UpdateMetadataResponse,
        UpdateMetadataTopicState,
    )
    from .reference.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
    from .reference.alter_configs import (
        AlterConfigsEntry,
        AlterConfigsRequest,
        AlterConfigsResource,
        AlterConfigsResourceResponse,
        AlterConfigsResponse,
    )
    from .reference.alter_partition import (
        AlterPartitionRequest,
        AlterPartitionRequestPartition,
        AlterPartitionRequestTopic,
        AlterPartitionResponse,
        AlterPartitionResponsePartition,
        AlterPartitionResponseTopic,
        BrokerState,
    )
    from .reference.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ReassignablePartition,
        ReassignablePartitionResponse,
        ReassignableTopic,
        ReassignableTopicResponse,
    )
    from .reference.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        AlterUserScramCredentialsResult,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from .reference.api_versions import (
        ApiVersion,
        ApiVersionsRequest,
        ApiVersionsResponse,
        FinalizedFeatureKey,
        SupportedFeatureKey,
    )
    from .reference.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
    from .reference.broker_registration import (
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
        Feature,
        Listener,
    )
    from .reference.controlled_shutdown import (
        ControlledShutdownRequest,
        ControlledShutdownResponse,
        RemainingPartition,
    )
    from .reference.create_partitions import (
        CreatePartitionsAssignment,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
        CreatePartitionsTopicResult,
    )
    from .reference.create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreatableTopicConfigs,
        CreatableTopicResult,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )
    from .reference.delete_topics import (
        DeletableTopicResult,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DeleteTopicState,
    )
    from .reference.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResourceResult,
        DescribeConfigsResponse,
        DescribeConfigsResult,
        DescribeConfigsSynonym,
    )
    from .reference.describe_log_dirs import (
        DescribableLogDirTopic,
        DescribeLogDirsPartition,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        DescribeLogDirsResult,
        DescribeLogDirsTopic,
    )
    from .reference.elect_leaders import (
        ElectLeadersRequest,
        ElectLeadersResponse,
        ElectLeadersTopic,
        PartitionElectionResult,
        ReplicaElectionResult,
    )
    from .reference.envelope import EnvelopeRequest, EnvelopeResponse
    from .reference.fetch import (
        AbortedTransaction,
        EpochEndOffset,
        FetchableTopicResponse,
        FetchPartition,
        FetchRequest,
        FetchResponse,
        FetchTopic,
        ForgottenTopic,
        PartitionData,
        ReplicaState,
        SnapshotId,
    )
    from .reference.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
    from .reference.incremental_alter_configs import (
        AlterableConfig,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResource,
        IncrementalAlterConfigsResponse,
    )
    from .reference.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
    from .reference.join_group import (
        JoinGroupRequest,
        JoinGroupRequestProtocol,
        JoinGroupResponse,
        JoinGroupResponseMember,
    )
    from .reference.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
    from .reference.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsPartitionResponse,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListOffsetsTopic,
        ListOffsetsTopicResponse,
    )
    from .reference.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        ListPartitionReassignmentsTopics,
        OngoingPartitionReassignment,
        OngoingTopicReassignment,
    )
    from .reference.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState
    from .reference.metadata import (
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponse,
        MetadataResponseBroker,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )
    from .reference.produce import (
        BatchIndexAndErrorMessage,
        LeaderIdAndEpoch,
        NodeEndpoint,
        PartitionProduceData,
        PartitionProduceResponse,
        ProduceRequest,
        ProduceResponse,
        TopicProduceData,
        TopicProduceResponse,
    )
    from .reference.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
    from .reference.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
    from .reference.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from .reference.update_features import (
        FeatureUpdateKey,
        UpdatableFeatureResult,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )

__all__ = [
    "AbortedTransaction",
    "AllocateProducerIdsRequest",
    "AllocateProducerIdsResponse",
    "AlterConfigsEntry",
    "AlterConfigsRequest",
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterConfigsResponse",
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "AlterPartitionRequest",
    "AlterPartitionRequestPartition",
    "AlterPartitionRequestTopic",
    "AlterPartitionResponse",
    "AlterPartitionResponsePartition",
    "AlterPartitionResponseTopic",
    "AlterUserScramCredentialsRequest",
    "AlterUserScramCredentialsResponse",
    "AlterUserScramCredentialsResult",
    "AlterableConfig",
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "BatchIndexAndErrorMessage",
    "BrokerHeartbeatRequest",
    "BrokerHeartbeatResponse",
    "BrokerRegistrationRequest",
    "BrokerRegistrationResponse",
    "BrokerState",
    "ControlledShutdownRequest",
    "ControlledShutdownResponse",
    "Coordinator",
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeletableTopicResult",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribableLogDirTopic",
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
    "DescribeLogDirsPartition",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeLogDirsResult",
    "DescribeLogDirsTopic",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "ElectLeadersTopic",
    "EnvelopeRequest",
    "EnvelopeResponse",
    "EpochEndOffset",
    "Feature",
    "FeatureUpdateKey",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "FinalizedFeatureKey",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "ForgottenTopic",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResource",
    "IncrementalAlterConfigsResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "JoinGroupRequest",
    "JoinGroupRequestProtocol",
    "JoinGroupResponse",
    "JoinGroupResponseMember",
    "LeaderAndIsrLiveLeader",
    "LeaderAndIsrPartitionError",
    "LeaderAndIsrPartitionState",
    "LeaderAndIsrRequest",
    "LeaderAndIsrResponse",
    "LeaderAndIsrTopicError",
    "LeaderAndIsrTopicState",
    "LeaderIdAndEpoch",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListPartitionReassignmentsTopics",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "ListedGroup",
    "Listener",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
    "NodeEndpoint",
    "OngoingPartitionReassignment",
    "OngoingTopicReassignment",
    "PartitionData",
    "PartitionElectionResult",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceRequest",
    "ProduceResponse",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
    "RemainingPartition",
    "ReplicaElectionResult",
    "ReplicaState",
    "RequestHeader",
    "ResponseHeader",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "ScramCredentialDeletion",
    "ScramCredentialUpsertion",
    "SnapshotId",
    "StopReplicaPartitionError",
    "StopReplicaPartitionState",
    "StopReplicaPartitionV0",
    "StopReplicaRequest",
    "StopReplicaResponse",
    "StopReplicaState",
    "StopReplicaTopicState",
    "StopReplicaTopicV1",
    "SupportedFeatureKey",
    "TopicProduceData",
    "TopicProduceResponse",
    "TransactionState",
    "UnregisterBrokerRequest",
    "UnregisterBrokerResponse",
    "UpdatableFeatureResult",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
    "UpdateMetadataBroker",
    "UpdateMetadataEndpoint",
    "UpdateMetadataPartitionState",
    "UpdateMetadataRequest",
    "UpdateMetadataResponse",
    "UpdateMetadataTopicState",
]

_CONTROL: Final = ("LeaderAndIsr", "RequestHeader", "ResponseHeader", "StopReplica", "UpdateMetadata")
"""The prefix of the names of the extension's classes."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(get_codec("cython" if name.startswith(_CONTROL) else "construct"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
