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
    from .reference.alter_client_quotas import (
        AlterClientQuotasEntity,
        AlterClientQuotasEntry,
        AlterClientQuotasOp,
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        AlterClientQuotasResult,
    )
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
    from .reference.assign_replicas_to_dirs import (
        AssignedDirectory,
        AssignedDirectoryResult,
        AssignedPartition,
        AssignedPartitionResult,
        AssignedTopic,
        AssignedTopicResult,
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from .reference.begin_quorum_epoch import (
        BeginQuorumEpochPartition,
        BeginQuorumEpochRequest,
        BeginQuorumEpochResponse,
        BeginQuorumEpochTopic,
        QuorumEpochPartitionResult,
        QuorumEpochTopicResult,
        QuorumLeaderEndpoint,
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
    from .reference.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
    from .reference.create_acls import (
        AclCreation,
        AclCreationResult,
        CreateAclsRequest,
        CreateAclsResponse,
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
    from .reference.delete_acls import (
        DeleteAclsFilter,
        DeleteAclsFilterResult,
        DeleteAclsMatchingAcl,
        DeleteAclsRequest,
        DeleteAclsResponse,
    )
    from .reference.delete_topics import (
        DeletableTopicResult,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DeleteTopicState,
    )
    from .reference.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
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
    from .reference.describe_quorum import (
        DescribeQuorumPartition,
        DescribeQuorumPartitionResult,
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        DescribeQuorumTopic,
        DescribeQuorumTopicResult,
        QuorumNode,
        QuorumNodeListener,
        QuorumReplica,
    )
    from .reference.elect_leaders import (
        ElectLeadersRequest,
        ElectLeadersResponse,
        ElectLeadersTopic,
        PartitionElectionResult,
        ReplicaElectionResult,
    )
    from .reference.end_quorum_epoch import (
        EndQuorumEpochPartition,
        EndQuorumEpochRequest,
        EndQuorumEpochResponse,
        EndQuorumEpochTopic,
        PreferredCandidate,
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
    from .reference.fetch_snapshot import (
        FetchSnapshotId,
        FetchSnapshotPartition,
        FetchSnapshotPartitionResult,
        FetchSnapshotRequest,
        FetchSnapshotResponse,
        FetchSnapshotTopic,
        FetchSnapshotTopicResult,
        SnapshotLeader,
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
    from .reference.raft_voters import (
        AddRaftVoterRequest,
        AddRaftVoterResponse,
        KRaftVersionFeature,
        RaftLeader,
        RaftVoterListener,
        RemoveRaftVoterRequest,
        RemoveRaftVoterResponse,
        UpdateRaftVoterRequest,
        UpdateRaftVoterResponse,
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
    from .reference.vote import (
        QuorumNodeEndpoint,
        VotePartition,
        VotePartitionResult,
        VoteRequest,
        VoteResponse,
        VoteTopic,
        VoteTopicResult,
    )

__all__ = [
    "AbortedTransaction",
    "AclCreation",
    "AclCreationResult",
    "AddRaftVoterRequest",
    "AddRaftVoterResponse",
    "AllocateProducerIdsRequest",
    "AllocateProducerIdsResponse",
    "AlterClientQuotasEntity",
    "AlterClientQuotasEntry",
    "AlterClientQuotasOp",
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "AlterClientQuotasResult",
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
    "AssignReplicasToDirsRequest",
    "AssignReplicasToDirsResponse",
    "AssignedDirectory",
    "AssignedDirectoryResult",
    "AssignedPartition",
    "AssignedPartitionResult",
    "AssignedTopic",
    "AssignedTopicResult",
    "BatchIndexAndErrorMessage",
    "BeginQuorumEpochPartition",
    "BeginQuorumEpochRequest",
    "BeginQuorumEpochResponse",
    "BeginQuorumEpochTopic",
    "BrokerHeartbeatRequest",
    "BrokerHeartbeatResponse",
    "BrokerRegistrationRequest",
    "BrokerRegistrationResponse",
    "BrokerState",
    "ControlledShutdownRequest",
    "ControlledShutdownResponse",
    "ControllerRegistrationRequest",
    "ControllerRegistrationResponse",
    "Coordinator",
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateAclsRequest",
    "CreateAclsResponse",
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeletableTopicResult",
    "DeleteAclsFilter",
    "DeleteAclsFilterResult",
    "DeleteAclsMatchingAcl",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribableLogDirTopic",
    "DescribeClusterBroker",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
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
    "DescribeQuorumPartition",
    "DescribeQuorumPartitionResult",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeQuorumTopic",
    "DescribeQuorumTopicResult",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "ElectLeadersTopic",
    "EndQuorumEpochPartition",
    "EndQuorumEpochRequest",
    "EndQuorumEpochResponse",
    "EndQuorumEpochTopic",
    "EnvelopeRequest",
    "EnvelopeResponse",
    "EpochEndOffset",
    "Feature",
    "FeatureUpdateKey",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchSnapshotId",
    "FetchSnapshotPartition",
    "FetchSnapshotPartitionResult",
    "FetchSnapshotRequest",
    "FetchSnapshotResponse",
    "FetchSnapshotTopic",
    "FetchSnapshotTopicResult",
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
    "KRaftVersionFeature",
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
    "PreferredCandidate",
    "ProduceRequest",
    "ProduceResponse",
    "QuorumEpochPartitionResult",
    "QuorumEpochTopicResult",
    "QuorumLeaderEndpoint",
    "QuorumNode",
    "QuorumNodeEndpoint",
    "QuorumNodeListener",
    "QuorumReplica",
    "RaftLeader",
    "RaftVoterListener",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
    "RemainingPartition",
    "RemoveRaftVoterRequest",
    "RemoveRaftVoterResponse",
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
    "SnapshotLeader",
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
    "UpdateRaftVoterRequest",
    "UpdateRaftVoterResponse",
    "VotePartition",
    "VotePartitionResult",
    "VoteRequest",
    "VoteResponse",
    "VoteTopic",
    "VoteTopicResult",
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
