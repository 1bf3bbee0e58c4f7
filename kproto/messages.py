"""Every message, struct and header class by its public name.

The classes of LeaderAndIsr, StopReplica and UpdateMetadata and of the headers are the C-accelerated codec's; those of
the other APIs are the reference's. A class is loaded when its name is first used: a program that handles control
requests never imports Construct, and without the extension its classes raise the ``ImportError`` that says what to do.

>>> from kproto.messages import UpdateMetadataRequest
>>> UpdateMetadataRequest(controller_id=1, controller_epoch=5).to_json(0)["controllerEpoch"]
5
"""

# ruff: noqa: F403, F405 - each name stands once: in __all__

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .codec import get_codec

if TYPE_CHECKING:
    from ._codec import *
    from .reference.allocate_producer_ids import *
    from .reference.alter_client_quotas import *
    from .reference.alter_configs import *
    from .reference.alter_partition import *
    from .reference.alter_partition_reassignments import *
    from .reference.alter_user_scram_credentials import *
    from .reference.api_versions import *
    from .reference.assign_replicas_to_dirs import *
    from .reference.begin_quorum_epoch import *
    from .reference.broker_heartbeat import *
    from .reference.broker_registration import *
    from .reference.controlled_shutdown import *
    from .reference.controller_registration import *
    from .reference.create_acls import *
    from .reference.create_partitions import *
    from .reference.create_topics import *
    from .reference.delete_acls import *
    from .reference.delete_topics import *
    from .reference.describe_cluster import *
    from .reference.describe_configs import *
    from .reference.describe_log_dirs import *
    from .reference.describe_quorum import *
    from .reference.elect_leaders import *
    from .reference.end_quorum_epoch import *
    from .reference.envelope import *
    from .reference.fetch import *
    from .reference.fetch_snapshot import *
    from .reference.find_coordinator import *
    from .reference.incremental_alter_configs import *
    from .reference.init_producer_id import *
    from .reference.join_group import *
    from .reference.list_groups import *
    from .reference.list_offsets import *
    from .reference.list_partition_reassignments import *
    from .reference.list_transactions import *
    from .reference.metadata import *
    from .reference.produce import *
    from .reference.raft_voters import *
    from .reference.sasl_authenticate import *
    from .reference.sasl_handshake import *
    from .reference.unregister_broker import *
    from .reference.update_features import *
    from .reference.vote import *

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
