"""What the functions of kproto.codec give for each API, for type checkers.

Written by tests/reference_types.py from the reference's classes.
"""

from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar, overload

from .api import ApiKey
from .messages import *
from .types import Buffer

_P = ParamSpec("_P")
_T = TypeVar("_T")

def _with_length(decode: Callable[_P, _T]) -> Callable[_P, tuple[_T, int]]: ...

decode_request_from = _with_length(decode_request)
decode_response_from = _with_length(decode_response)

@overload
def decode_request(
    api_key: Literal[ApiKey.PRODUCE, 0], version: int, data: Buffer, *, strict: bool = False
) -> ProduceRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.FETCH, 1], version: int, data: Buffer, *, strict: bool = False
) -> FetchRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.LIST_OFFSETS, 2], version: int, data: Buffer, *, strict: bool = False
) -> ListOffsetsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.METADATA, 3], version: int, data: Buffer, *, strict: bool = False
) -> MetadataRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.LEADER_AND_ISR, 4], version: int, data: Buffer, *, strict: bool = False
) -> LeaderAndIsrRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.STOP_REPLICA, 5], version: int, data: Buffer, *, strict: bool = False
) -> StopReplicaRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.UPDATE_METADATA, 6], version: int, data: Buffer, *, strict: bool = False
) -> UpdateMetadataRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.CONTROLLED_SHUTDOWN, 7], version: int, data: Buffer, *, strict: bool = False
) -> ControlledShutdownRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.FIND_COORDINATOR, 10], version: int, data: Buffer, *, strict: bool = False
) -> FindCoordinatorRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.JOIN_GROUP, 11], version: int, data: Buffer, *, strict: bool = False
) -> JoinGroupRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.LIST_GROUPS, 16], version: int, data: Buffer, *, strict: bool = False
) -> ListGroupsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.SASL_HANDSHAKE, 17], version: int, data: Buffer, *, strict: bool = False
) -> SaslHandshakeRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.API_VERSIONS, 18], version: int, data: Buffer, *, strict: bool = False
) -> ApiVersionsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.CREATE_TOPICS, 19], version: int, data: Buffer, *, strict: bool = False
) -> CreateTopicsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.DELETE_TOPICS, 20], version: int, data: Buffer, *, strict: bool = False
) -> DeleteTopicsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.INIT_PRODUCER_ID, 22], version: int, data: Buffer, *, strict: bool = False
) -> InitProducerIdRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.CREATE_ACLS, 30], version: int, data: Buffer, *, strict: bool = False
) -> CreateAclsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.DELETE_ACLS, 31], version: int, data: Buffer, *, strict: bool = False
) -> DeleteAclsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.DESCRIBE_CONFIGS, 32], version: int, data: Buffer, *, strict: bool = False
) -> DescribeConfigsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.ALTER_CONFIGS, 33], version: int, data: Buffer, *, strict: bool = False
) -> AlterConfigsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.DESCRIBE_LOG_DIRS, 35], version: int, data: Buffer, *, strict: bool = False
) -> DescribeLogDirsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.SASL_AUTHENTICATE, 36], version: int, data: Buffer, *, strict: bool = False
) -> SaslAuthenticateRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.CREATE_PARTITIONS, 37], version: int, data: Buffer, *, strict: bool = False
) -> CreatePartitionsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.ELECT_LEADERS, 43], version: int, data: Buffer, *, strict: bool = False
) -> ElectLeadersRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.INCREMENTAL_ALTER_CONFIGS, 44], version: int, data: Buffer, *, strict: bool = False
) -> IncrementalAlterConfigsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.ALTER_PARTITION_REASSIGNMENTS, 45], version: int, data: Buffer, *, strict: bool = False
) -> AlterPartitionReassignmentsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.LIST_PARTITION_REASSIGNMENTS, 46], version: int, data: Buffer, *, strict: bool = False
) -> ListPartitionReassignmentsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.ALTER_CLIENT_QUOTAS, 49], version: int, data: Buffer, *, strict: bool = False
) -> AlterClientQuotasRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 51], version: int, data: Buffer, *, strict: bool = False
) -> AlterUserScramCredentialsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.VOTE, 52], version: int, data: Buffer, *, strict: bool = False
) -> VoteRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.BEGIN_QUORUM_EPOCH, 53], version: int, data: Buffer, *, strict: bool = False
) -> BeginQuorumEpochRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.END_QUORUM_EPOCH, 54], version: int, data: Buffer, *, strict: bool = False
) -> EndQuorumEpochRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.DESCRIBE_QUORUM, 55], version: int, data: Buffer, *, strict: bool = False
) -> DescribeQuorumRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.ALTER_PARTITION, 56], version: int, data: Buffer, *, strict: bool = False
) -> AlterPartitionRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.UPDATE_FEATURES, 57], version: int, data: Buffer, *, strict: bool = False
) -> UpdateFeaturesRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.ENVELOPE, 58], version: int, data: Buffer, *, strict: bool = False
) -> EnvelopeRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.FETCH_SNAPSHOT, 59], version: int, data: Buffer, *, strict: bool = False
) -> FetchSnapshotRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.DESCRIBE_CLUSTER, 60], version: int, data: Buffer, *, strict: bool = False
) -> DescribeClusterRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.BROKER_REGISTRATION, 62], version: int, data: Buffer, *, strict: bool = False
) -> BrokerRegistrationRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.BROKER_HEARTBEAT, 63], version: int, data: Buffer, *, strict: bool = False
) -> BrokerHeartbeatRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.UNREGISTER_BROKER, 64], version: int, data: Buffer, *, strict: bool = False
) -> UnregisterBrokerRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.LIST_TRANSACTIONS, 66], version: int, data: Buffer, *, strict: bool = False
) -> ListTransactionsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.ALLOCATE_PRODUCER_IDS, 67], version: int, data: Buffer, *, strict: bool = False
) -> AllocateProducerIdsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.CONTROLLER_REGISTRATION, 70], version: int, data: Buffer, *, strict: bool = False
) -> ControllerRegistrationRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.ASSIGN_REPLICAS_TO_DIRS, 73], version: int, data: Buffer, *, strict: bool = False
) -> AssignReplicasToDirsRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.ADD_RAFT_VOTER, 80], version: int, data: Buffer, *, strict: bool = False
) -> AddRaftVoterRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.REMOVE_RAFT_VOTER, 81], version: int, data: Buffer, *, strict: bool = False
) -> RemoveRaftVoterRequest: ...
@overload
def decode_request(
    api_key: Literal[ApiKey.UPDATE_RAFT_VOTER, 82], version: int, data: Buffer, *, strict: bool = False
) -> UpdateRaftVoterRequest: ...
@overload
def decode_request(
    api_key: int, version: int, data: Buffer, *, strict: bool = False
) -> Any: ...

@overload
def decode_response(
    api_key: Literal[ApiKey.PRODUCE, 0], version: int, data: Buffer, *, strict: bool = False
) -> ProduceResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.FETCH, 1], version: int, data: Buffer, *, strict: bool = False
) -> FetchResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.LIST_OFFSETS, 2], version: int, data: Buffer, *, strict: bool = False
) -> ListOffsetsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.METADATA, 3], version: int, data: Buffer, *, strict: bool = False
) -> MetadataResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.LEADER_AND_ISR, 4], version: int, data: Buffer, *, strict: bool = False
) -> LeaderAndIsrResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.STOP_REPLICA, 5], version: int, data: Buffer, *, strict: bool = False
) -> StopReplicaResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.UPDATE_METADATA, 6], version: int, data: Buffer, *, strict: bool = False
) -> UpdateMetadataResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.CONTROLLED_SHUTDOWN, 7], version: int, data: Buffer, *, strict: bool = False
) -> ControlledShutdownResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.FIND_COORDINATOR, 10], version: int, data: Buffer, *, strict: bool = False
) -> FindCoordinatorResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.JOIN_GROUP, 11], version: int, data: Buffer, *, strict: bool = False
) -> JoinGroupResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.LIST_GROUPS, 16], version: int, data: Buffer, *, strict: bool = False
) -> ListGroupsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.SASL_HANDSHAKE, 17], version: int, data: Buffer, *, strict: bool = False
) -> SaslHandshakeResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.API_VERSIONS, 18], version: int, data: Buffer, *, strict: bool = False
) -> ApiVersionsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.CREATE_TOPICS, 19], version: int, data: Buffer, *, strict: bool = False
) -> CreateTopicsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.DELETE_TOPICS, 20], version: int, data: Buffer, *, strict: bool = False
) -> DeleteTopicsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.INIT_PRODUCER_ID, 22], version: int, data: Buffer, *, strict: bool = False
) -> InitProducerIdResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.CREATE_ACLS, 30], version: int, data: Buffer, *, strict: bool = False
) -> CreateAclsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.DELETE_ACLS, 31], version: int, data: Buffer, *, strict: bool = False
) -> DeleteAclsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.DESCRIBE_CONFIGS, 32], version: int, data: Buffer, *, strict: bool = False
) -> DescribeConfigsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.ALTER_CONFIGS, 33], version: int, data: Buffer, *, strict: bool = False
) -> AlterConfigsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.DESCRIBE_LOG_DIRS, 35], version: int, data: Buffer, *, strict: bool = False
) -> DescribeLogDirsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.SASL_AUTHENTICATE, 36], version: int, data: Buffer, *, strict: bool = False
) -> SaslAuthenticateResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.CREATE_PARTITIONS, 37], version: int, data: Buffer, *, strict: bool = False
) -> CreatePartitionsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.ELECT_LEADERS, 43], version: int, data: Buffer, *, strict: bool = False
) -> ElectLeadersResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.INCREMENTAL_ALTER_CONFIGS, 44], version: int, data: Buffer, *, strict: bool = False
) -> IncrementalAlterConfigsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.ALTER_PARTITION_REASSIGNMENTS, 45], version: int, data: Buffer, *, strict: bool = False
) -> AlterPartitionReassignmentsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.LIST_PARTITION_REASSIGNMENTS, 46], version: int, data: Buffer, *, strict: bool = False
) -> ListPartitionReassignmentsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.ALTER_CLIENT_QUOTAS, 49], version: int, data: Buffer, *, strict: bool = False
) -> AlterClientQuotasResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 51], version: int, data: Buffer, *, strict: bool = False
) -> AlterUserScramCredentialsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.VOTE, 52], version: int, data: Buffer, *, strict: bool = False
) -> VoteResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.BEGIN_QUORUM_EPOCH, 53], version: int, data: Buffer, *, strict: bool = False
) -> BeginQuorumEpochResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.END_QUORUM_EPOCH, 54], version: int, data: Buffer, *, strict: bool = False
) -> EndQuorumEpochResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.DESCRIBE_QUORUM, 55], version: int, data: Buffer, *, strict: bool = False
) -> DescribeQuorumResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.ALTER_PARTITION, 56], version: int, data: Buffer, *, strict: bool = False
) -> AlterPartitionResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.UPDATE_FEATURES, 57], version: int, data: Buffer, *, strict: bool = False
) -> UpdateFeaturesResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.ENVELOPE, 58], version: int, data: Buffer, *, strict: bool = False
) -> EnvelopeResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.FETCH_SNAPSHOT, 59], version: int, data: Buffer, *, strict: bool = False
) -> FetchSnapshotResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.DESCRIBE_CLUSTER, 60], version: int, data: Buffer, *, strict: bool = False
) -> DescribeClusterResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.BROKER_REGISTRATION, 62], version: int, data: Buffer, *, strict: bool = False
) -> BrokerRegistrationResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.BROKER_HEARTBEAT, 63], version: int, data: Buffer, *, strict: bool = False
) -> BrokerHeartbeatResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.UNREGISTER_BROKER, 64], version: int, data: Buffer, *, strict: bool = False
) -> UnregisterBrokerResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.LIST_TRANSACTIONS, 66], version: int, data: Buffer, *, strict: bool = False
) -> ListTransactionsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.ALLOCATE_PRODUCER_IDS, 67], version: int, data: Buffer, *, strict: bool = False
) -> AllocateProducerIdsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.CONTROLLER_REGISTRATION, 70], version: int, data: Buffer, *, strict: bool = False
) -> ControllerRegistrationResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.ASSIGN_REPLICAS_TO_DIRS, 73], version: int, data: Buffer, *, strict: bool = False
) -> AssignReplicasToDirsResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.ADD_RAFT_VOTER, 80], version: int, data: Buffer, *, strict: bool = False
) -> AddRaftVoterResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.REMOVE_RAFT_VOTER, 81], version: int, data: Buffer, *, strict: bool = False
) -> RemoveRaftVoterResponse: ...
@overload
def decode_response(
    api_key: Literal[ApiKey.UPDATE_RAFT_VOTER, 82], version: int, data: Buffer, *, strict: bool = False
) -> UpdateRaftVoterResponse: ...
@overload
def decode_response(
    api_key: int, version: int, data: Buffer, *, strict: bool = False
) -> Any: ...

@overload
def message_class(
    api_key: Literal[ApiKey.PRODUCE, 0], kind: Literal["request"]
) -> type[ProduceRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.FETCH, 1], kind: Literal["request"]
) -> type[FetchRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.LIST_OFFSETS, 2], kind: Literal["request"]
) -> type[ListOffsetsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.METADATA, 3], kind: Literal["request"]
) -> type[MetadataRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.LEADER_AND_ISR, 4], kind: Literal["request"]
) -> type[LeaderAndIsrRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.STOP_REPLICA, 5], kind: Literal["request"]
) -> type[StopReplicaRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.UPDATE_METADATA, 6], kind: Literal["request"]
) -> type[UpdateMetadataRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.CONTROLLED_SHUTDOWN, 7], kind: Literal["request"]
) -> type[ControlledShutdownRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.FIND_COORDINATOR, 10], kind: Literal["request"]
) -> type[FindCoordinatorRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.JOIN_GROUP, 11], kind: Literal["request"]
) -> type[JoinGroupRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.LIST_GROUPS, 16], kind: Literal["request"]
) -> type[ListGroupsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.SASL_HANDSHAKE, 17], kind: Literal["request"]
) -> type[SaslHandshakeRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.API_VERSIONS, 18], kind: Literal["request"]
) -> type[ApiVersionsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.CREATE_TOPICS, 19], kind: Literal["request"]
) -> type[CreateTopicsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.DELETE_TOPICS, 20], kind: Literal["request"]
) -> type[DeleteTopicsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.INIT_PRODUCER_ID, 22], kind: Literal["request"]
) -> type[InitProducerIdRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.CREATE_ACLS, 30], kind: Literal["request"]
) -> type[CreateAclsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.DELETE_ACLS, 31], kind: Literal["request"]
) -> type[DeleteAclsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.DESCRIBE_CONFIGS, 32], kind: Literal["request"]
) -> type[DescribeConfigsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ALTER_CONFIGS, 33], kind: Literal["request"]
) -> type[AlterConfigsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.DESCRIBE_LOG_DIRS, 35], kind: Literal["request"]
) -> type[DescribeLogDirsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.SASL_AUTHENTICATE, 36], kind: Literal["request"]
) -> type[SaslAuthenticateRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.CREATE_PARTITIONS, 37], kind: Literal["request"]
) -> type[CreatePartitionsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ELECT_LEADERS, 43], kind: Literal["request"]
) -> type[ElectLeadersRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.INCREMENTAL_ALTER_CONFIGS, 44], kind: Literal["request"]
) -> type[IncrementalAlterConfigsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ALTER_PARTITION_REASSIGNMENTS, 45], kind: Literal["request"]
) -> type[AlterPartitionReassignmentsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.LIST_PARTITION_REASSIGNMENTS, 46], kind: Literal["request"]
) -> type[ListPartitionReassignmentsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ALTER_CLIENT_QUOTAS, 49], kind: Literal["request"]
) -> type[AlterClientQuotasRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 51], kind: Literal["request"]
) -> type[AlterUserScramCredentialsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.VOTE, 52], kind: Literal["request"]
) -> type[VoteRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.BEGIN_QUORUM_EPOCH, 53], kind: Literal["request"]
) -> type[BeginQuorumEpochRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.END_QUORUM_EPOCH, 54], kind: Literal["request"]
) -> type[EndQuorumEpochRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.DESCRIBE_QUORUM, 55], kind: Literal["request"]
) -> type[DescribeQuorumRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ALTER_PARTITION, 56], kind: Literal["request"]
) -> type[AlterPartitionRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.UPDATE_FEATURES, 57], kind: Literal["request"]
) -> type[UpdateFeaturesRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ENVELOPE, 58], kind: Literal["request"]
) -> type[EnvelopeRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.FETCH_SNAPSHOT, 59], kind: Literal["request"]
) -> type[FetchSnapshotRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.DESCRIBE_CLUSTER, 60], kind: Literal["request"]
) -> type[DescribeClusterRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.BROKER_REGISTRATION, 62], kind: Literal["request"]
) -> type[BrokerRegistrationRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.BROKER_HEARTBEAT, 63], kind: Literal["request"]
) -> type[BrokerHeartbeatRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.UNREGISTER_BROKER, 64], kind: Literal["request"]
) -> type[UnregisterBrokerRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.LIST_TRANSACTIONS, 66], kind: Literal["request"]
) -> type[ListTransactionsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ALLOCATE_PRODUCER_IDS, 67], kind: Literal["request"]
) -> type[AllocateProducerIdsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.CONTROLLER_REGISTRATION, 70], kind: Literal["request"]
) -> type[ControllerRegistrationRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ASSIGN_REPLICAS_TO_DIRS, 73], kind: Literal["request"]
) -> type[AssignReplicasToDirsRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ADD_RAFT_VOTER, 80], kind: Literal["request"]
) -> type[AddRaftVoterRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.REMOVE_RAFT_VOTER, 81], kind: Literal["request"]
) -> type[RemoveRaftVoterRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.UPDATE_RAFT_VOTER, 82], kind: Literal["request"]
) -> type[UpdateRaftVoterRequest]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.PRODUCE, 0], kind: Literal["response"]
) -> type[ProduceResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.FETCH, 1], kind: Literal["response"]
) -> type[FetchResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.LIST_OFFSETS, 2], kind: Literal["response"]
) -> type[ListOffsetsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.METADATA, 3], kind: Literal["response"]
) -> type[MetadataResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.LEADER_AND_ISR, 4], kind: Literal["response"]
) -> type[LeaderAndIsrResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.STOP_REPLICA, 5], kind: Literal["response"]
) -> type[StopReplicaResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.UPDATE_METADATA, 6], kind: Literal["response"]
) -> type[UpdateMetadataResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.CONTROLLED_SHUTDOWN, 7], kind: Literal["response"]
) -> type[ControlledShutdownResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.FIND_COORDINATOR, 10], kind: Literal["response"]
) -> type[FindCoordinatorResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.JOIN_GROUP, 11], kind: Literal["response"]
) -> type[JoinGroupResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.LIST_GROUPS, 16], kind: Literal["response"]
) -> type[ListGroupsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.SASL_HANDSHAKE, 17], kind: Literal["response"]
) -> type[SaslHandshakeResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.API_VERSIONS, 18], kind: Literal["response"]
) -> type[ApiVersionsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.CREATE_TOPICS, 19], kind: Literal["response"]
) -> type[CreateTopicsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.DELETE_TOPICS, 20], kind: Literal["response"]
) -> type[DeleteTopicsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.INIT_PRODUCER_ID, 22], kind: Literal["response"]
) -> type[InitProducerIdResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.CREATE_ACLS, 30], kind: Literal["response"]
) -> type[CreateAclsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.DELETE_ACLS, 31], kind: Literal["response"]
) -> type[DeleteAclsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.DESCRIBE_CONFIGS, 32], kind: Literal["response"]
) -> type[DescribeConfigsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ALTER_CONFIGS, 33], kind: Literal["response"]
) -> type[AlterConfigsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.DESCRIBE_LOG_DIRS, 35], kind: Literal["response"]
) -> type[DescribeLogDirsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.SASL_AUTHENTICATE, 36], kind: Literal["response"]
) -> type[SaslAuthenticateResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.CREATE_PARTITIONS, 37], kind: Literal["response"]
) -> type[CreatePartitionsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ELECT_LEADERS, 43], kind: Literal["response"]
) -> type[ElectLeadersResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.INCREMENTAL_ALTER_CONFIGS, 44], kind: Literal["response"]
) -> type[IncrementalAlterConfigsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ALTER_PARTITION_REASSIGNMENTS, 45], kind: Literal["response"]
) -> type[AlterPartitionReassignmentsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.LIST_PARTITION_REASSIGNMENTS, 46], kind: Literal["response"]
) -> type[ListPartitionReassignmentsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ALTER_CLIENT_QUOTAS, 49], kind: Literal["response"]
) -> type[AlterClientQuotasResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 51], kind: Literal["response"]
) -> type[AlterUserScramCredentialsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.VOTE, 52], kind: Literal["response"]
) -> type[VoteResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.BEGIN_QUORUM_EPOCH, 53], kind: Literal["response"]
) -> type[BeginQuorumEpochResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.END_QUORUM_EPOCH, 54], kind: Literal["response"]
) -> type[EndQuorumEpochResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.DESCRIBE_QUORUM, 55], kind: Literal["response"]
) -> type[DescribeQuorumResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ALTER_PARTITION, 56], kind: Literal["response"]
) -> type[AlterPartitionResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.UPDATE_FEATURES, 57], kind: Literal["response"]
) -> type[UpdateFeaturesResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ENVELOPE, 58], kind: Literal["response"]
) -> type[EnvelopeResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.FETCH_SNAPSHOT, 59], kind: Literal["response"]
) -> type[FetchSnapshotResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.DESCRIBE_CLUSTER, 60], kind: Literal["response"]
) -> type[DescribeClusterResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.BROKER_REGISTRATION, 62], kind: Literal["response"]
) -> type[BrokerRegistrationResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.BROKER_HEARTBEAT, 63], kind: Literal["response"]
) -> type[BrokerHeartbeatResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.UNREGISTER_BROKER, 64], kind: Literal["response"]
) -> type[UnregisterBrokerResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.LIST_TRANSACTIONS, 66], kind: Literal["response"]
) -> type[ListTransactionsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ALLOCATE_PRODUCER_IDS, 67], kind: Literal["response"]
) -> type[AllocateProducerIdsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.CONTROLLER_REGISTRATION, 70], kind: Literal["response"]
) -> type[ControllerRegistrationResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ASSIGN_REPLICAS_TO_DIRS, 73], kind: Literal["response"]
) -> type[AssignReplicasToDirsResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.ADD_RAFT_VOTER, 80], kind: Literal["response"]
) -> type[AddRaftVoterResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.REMOVE_RAFT_VOTER, 81], kind: Literal["response"]
) -> type[RemoveRaftVoterResponse]: ...
@overload
def message_class(
    api_key: Literal[ApiKey.UPDATE_RAFT_VOTER, 82], kind: Literal["response"]
) -> type[UpdateRaftVoterResponse]: ...
@overload
def message_class(api_key: int, kind: Literal["request", "response"]) -> type[Any]: ...
