"""Kafka 3.9.1's APIs: keys, version ranges, header versions, and what a controller sends under each protocol version.

Facts of Apache Kafka 3.9.1 (``ApiKeys`` and the message schemas in its client jar); every row is compared with the jar
by the oracle tests. All APIs begin at version 0 in this release.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from .errors import ConfigurationError, UnsupportedApi, UnsupportedVersion

if TYPE_CHECKING:
    from .types import Buffer


class ApiKey(IntEnum):
    """An API's key, the first field of every request. ``ApiKey(4).info`` holds its name and versions."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CLIENT_METRICS_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87

    @property
    def info(self) -> ApiInfo:
        """Name, version range and listeners of this API."""
        return _INFO[self]


@dataclass(frozen=True, slots=True)
class ApiInfo:
    """One API's name, versions and listeners in Kafka 3.9.1.

    Attributes:
        name: As in Kafka's message schemas, e.g. ``LeaderAndIsr``.
        max_version: Highest version; the lowest is 0 for every API of 3.9.
        flexible_from: First version with compact strings and arrays and tagged fields, None if there is none.
        listeners: The nodes that serve it: Z a broker with ZooKeeper, B a KRaft broker, C a KRaft controller.
        stable: False for APIs whose versions 3.9 still keeps behind ``unstable.api.versions.enable``.
        later_version: Highest version in Kafka 4.1, where that is higher; None elsewhere.
    """

    name: str
    max_version: int
    flexible_from: int | None
    listeners: str
    stable: bool = True
    later_version: int | None = None

    @property
    def newest_version(self) -> int:
        """Highest version up to Kafka 4.1: what the codecs read, and what traffic may hold."""
        return self.max_version if self.later_version is None else self.later_version

    @property
    def min_version(self) -> int:
        """Lowest version (0 in 3.9)."""
        return 0

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact strings and arrays and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from


_INFO: Final[dict[int, ApiInfo]] = {
    0: ApiInfo("Produce", 11, 9, "ZB", later_version=13),
    1: ApiInfo("Fetch", 17, 12, "ZBC", later_version=18),
    2: ApiInfo("ListOffsets", 9, 6, "ZB", later_version=10),
    3: ApiInfo("Metadata", 12, 9, "ZB", later_version=13),
    4: ApiInfo("LeaderAndIsr", 7, 4, "Z"),
    5: ApiInfo("StopReplica", 4, 2, "Z"),
    6: ApiInfo("UpdateMetadata", 8, 6, "Z"),
    7: ApiInfo("ControlledShutdown", 3, 3, "ZC"),
    8: ApiInfo("OffsetCommit", 9, 8, "ZB", later_version=10),
    9: ApiInfo("OffsetFetch", 9, 6, "ZB", later_version=10),
    10: ApiInfo("FindCoordinator", 6, 3, "ZB"),
    11: ApiInfo("JoinGroup", 9, 6, "ZB"),
    12: ApiInfo("Heartbeat", 4, 4, "ZB"),
    13: ApiInfo("LeaveGroup", 5, 4, "ZB"),
    14: ApiInfo("SyncGroup", 5, 4, "ZB"),
    15: ApiInfo("DescribeGroups", 5, 5, "ZB", later_version=6),
    16: ApiInfo("ListGroups", 5, 3, "ZB"),
    17: ApiInfo("SaslHandshake", 1, None, "ZBC"),
    18: ApiInfo("ApiVersions", 4, 3, "ZBC"),
    19: ApiInfo("CreateTopics", 7, 5, "ZBC"),
    20: ApiInfo("DeleteTopics", 6, 4, "ZBC"),
    21: ApiInfo("DeleteRecords", 2, 2, "ZB"),
    22: ApiInfo("InitProducerId", 5, 2, "ZB", later_version=6),
    23: ApiInfo("OffsetForLeaderEpoch", 4, 4, "ZB"),
    24: ApiInfo("AddPartitionsToTxn", 5, 3, "ZB"),
    25: ApiInfo("AddOffsetsToTxn", 4, 3, "ZB"),
    26: ApiInfo("EndTxn", 4, 3, "ZB", later_version=5),
    27: ApiInfo("WriteTxnMarkers", 1, 1, "ZB"),
    28: ApiInfo("TxnOffsetCommit", 4, 3, "ZB", later_version=5),
    29: ApiInfo("DescribeAcls", 3, 2, "ZBC"),
    30: ApiInfo("CreateAcls", 3, 2, "ZBC"),
    31: ApiInfo("DeleteAcls", 3, 2, "ZBC"),
    32: ApiInfo("DescribeConfigs", 4, 4, "ZBC"),
    33: ApiInfo("AlterConfigs", 2, 2, "ZBC"),
    34: ApiInfo("AlterReplicaLogDirs", 2, 2, "ZB"),
    35: ApiInfo("DescribeLogDirs", 4, 2, "ZB"),
    36: ApiInfo("SaslAuthenticate", 2, 2, "ZBC"),
    37: ApiInfo("CreatePartitions", 3, 2, "ZBC"),
    38: ApiInfo("CreateDelegationToken", 3, 2, "ZBC"),
    39: ApiInfo("RenewDelegationToken", 2, 2, "ZBC"),
    40: ApiInfo("ExpireDelegationToken", 2, 2, "ZBC"),
    41: ApiInfo("DescribeDelegationToken", 3, 2, "ZBC"),
    42: ApiInfo("DeleteGroups", 2, 2, "ZB"),
    43: ApiInfo("ElectLeaders", 2, 2, "ZBC"),
    44: ApiInfo("IncrementalAlterConfigs", 1, 1, "ZBC"),
    45: ApiInfo("AlterPartitionReassignments", 0, 0, "ZBC", later_version=1),
    46: ApiInfo("ListPartitionReassignments", 0, 0, "ZBC"),
    47: ApiInfo("OffsetDelete", 0, None, "ZB"),
    48: ApiInfo("DescribeClientQuotas", 1, 1, "ZB"),
    49: ApiInfo("AlterClientQuotas", 1, 1, "ZBC"),
    50: ApiInfo("DescribeUserScramCredentials", 0, 0, "ZBC"),
    51: ApiInfo("AlterUserScramCredentials", 0, 0, "ZBC"),
    52: ApiInfo("Vote", 1, 0, "C", later_version=2),
    53: ApiInfo("BeginQuorumEpoch", 1, 1, "C"),
    54: ApiInfo("EndQuorumEpoch", 1, 1, "C"),
    55: ApiInfo("DescribeQuorum", 2, 0, "BC"),
    56: ApiInfo("AlterPartition", 3, 0, "ZC"),
    57: ApiInfo("UpdateFeatures", 1, 0, "ZBC", later_version=2),
    58: ApiInfo("Envelope", 0, 0, "ZC"),
    59: ApiInfo("FetchSnapshot", 1, 0, "C"),
    60: ApiInfo("DescribeCluster", 1, 0, "ZBC", later_version=2),
    61: ApiInfo("DescribeProducers", 0, 0, "ZB"),
    62: ApiInfo("BrokerRegistration", 4, 0, "C"),
    63: ApiInfo("BrokerHeartbeat", 1, 0, "C"),
    64: ApiInfo("UnregisterBroker", 0, 0, "BC"),
    65: ApiInfo("DescribeTransactions", 0, 0, "ZB"),
    66: ApiInfo("ListTransactions", 1, 0, "ZB", later_version=2),
    67: ApiInfo("AllocateProducerIds", 0, 0, "ZC"),
    68: ApiInfo("ConsumerGroupHeartbeat", 0, 0, "ZB", later_version=1),
    69: ApiInfo("ConsumerGroupDescribe", 0, 0, "ZB", later_version=1),
    70: ApiInfo("ControllerRegistration", 0, 0, "C"),
    71: ApiInfo("GetTelemetrySubscriptions", 0, 0, "B"),
    72: ApiInfo("PushTelemetry", 0, 0, "B"),
    73: ApiInfo("AssignReplicasToDirs", 0, 0, "C"),
    74: ApiInfo("ListClientMetricsResources", 0, 0, "B", later_version=1),
    75: ApiInfo("DescribeTopicPartitions", 0, 0, "B"),
    76: ApiInfo("ShareGroupHeartbeat", 0, 0, "B", stable=False, later_version=1),
    77: ApiInfo("ShareGroupDescribe", 0, 0, "B", stable=False, later_version=1),
    78: ApiInfo("ShareFetch", 0, 0, "B", stable=False, later_version=1),
    79: ApiInfo("ShareAcknowledge", 0, 0, "B", stable=False, later_version=1),
    80: ApiInfo("AddRaftVoter", 0, 0, "BC"),
    81: ApiInfo("RemoveRaftVoter", 0, 0, "BC"),
    82: ApiInfo("UpdateRaftVoter", 0, 0, "C"),
    83: ApiInfo("InitializeShareGroupState", 0, 0, "B", stable=False),
    84: ApiInfo("ReadShareGroupState", 0, 0, "B", stable=False),
    85: ApiInfo("WriteShareGroupState", 0, 0, "B", stable=False),
    86: ApiInfo("DeleteShareGroupState", 0, 0, "B", stable=False),
    87: ApiInfo("ReadShareGroupStateSummary", 0, 0, "B", stable=False),
}

_LATER: Final[dict[int, ApiInfo]] = {
    88: ApiInfo("StreamsGroupHeartbeat", 0, 0, "B"),
    89: ApiInfo("StreamsGroupDescribe", 0, 0, "B"),
    90: ApiInfo("DescribeShareGroupOffsets", 0, 0, "B"),
    91: ApiInfo("AlterShareGroupOffsets", 0, 0, "B"),
    92: ApiInfo("DeleteShareGroupOffsets", 0, 0, "B"),
}
"""APIs that Kafka 4.0 and 4.1 have and 3.9.1 lacks: their names and headers are known, their bodies are not read."""

CONTROL_APIS: Final = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)
"""LeaderAndIsr, StopReplica and UpdateMetadata: the requests from a ZooKeeper controller to its brokers."""


def api_name(api_key: int) -> str:
    """Return an API's name in Kafka's schemas, or ``UNKNOWN(337)`` for a key that no release up to 4.1 has."""
    info = _known(api_key)
    return info.name if info else f"UNKNOWN({api_key})"


def is_later(api_key: int, version: int) -> bool:
    """Whether Kafka 4.0 or 4.1 has this API or version, and 3.9.1 lacks it."""
    if api_key in _LATER:
        return 0 <= version <= _LATER[api_key].max_version
    info = _INFO.get(api_key)
    return info is not None and info.max_version < version <= info.newest_version


def _known(api_key: int) -> ApiInfo | None:
    return _INFO.get(api_key) or _LATER.get(api_key)


def check_version(api_key: int, version: int) -> ApiInfo:
    """Return the API's ``ApiInfo`` if Kafka has it in this version: 3.9.1, or 4.1 for versions that came later.

    Raises:
        UnsupportedApi: No such API in 3.9.1.
        UnsupportedVersion: The API has no such version up to Kafka 4.1.
        TypeError: One of the two is not an integer.
    """
    for name, value in (("api_key", api_key), ("version", version)):
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name}: expected an int, got {type(value).__name__}")
    info = _INFO.get(api_key)
    if info is None:
        raise UnsupportedApi(api_key)
    if not 0 <= version <= info.newest_version:
        raise UnsupportedVersion(api_key, version, info.name, 0, info.newest_version)
    return info


def request_header_version(api_key: int, version: int) -> int:
    """Return the version (0-2) of the request header before a body of this API and version.

    A version above the known range counts as flexible where the API has a flexible version: Kafka's own header parser
    does the same, so that the header of a too new request can still be read and refused.

    Raises:
        UnsupportedApi: No such API up to Kafka 4.1.
    """
    info = _known(api_key)
    if info is None:
        raise UnsupportedApi(api_key)
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and version == 0:
        return 0  # the only request without a client id
    return 2 if info.is_flexible(version) else 1


def response_header_version(api_key: int, version: int) -> int:
    """Return the version (0-1) of the response header in the answer to a request of this API and version.

    Raises:
        UnsupportedApi: No such API up to Kafka 4.1.
    """
    info = _known(api_key)
    if info is None:
        raise UnsupportedApi(api_key)
    if api_key == ApiKey.API_VERSIONS:
        return 0  # the client does not know yet which versions the broker has
    return 1 if info.is_flexible(version) else 0


def response_body_version(api_key: int, version: int, body: Buffer) -> int:
    """Return the version in which a response's body is written: that of its request, with one exception.

    A broker that does not have the version of an ApiVersions request answers in version 0 with the error
    UNSUPPORTED_VERSION, since the client cannot know which versions it has.
    """
    if api_key != ApiKey.API_VERSIONS or not version:
        return version
    view = memoryview(body)
    is_refusal = bytes(view[:2]) == b"\0\x23" and len(view) == 6 + 6 * int.from_bytes(view[2:6], "big")
    return 0 if is_refusal else version


# ---- inter.broker.protocol.version -----------------------------------------------------------------------------------

_IBP_ORDER: Final = (
    "0.8.0", "0.8.1", "0.8.2", "0.9.0", "0.10.0-IV0", "0.10.0-IV1", "0.10.1-IV0", "0.10.1-IV1", "0.10.1-IV2",
    "0.10.2-IV0", "0.11.0-IV0", "0.11.0-IV1", "0.11.0-IV2", "1.0-IV0", "1.1-IV0", "2.0-IV0", "2.0-IV1", "2.1-IV0",
    "2.1-IV1", "2.1-IV2", "2.2-IV0", "2.2-IV1", "2.3-IV0", "2.3-IV1", "2.4-IV0", "2.4-IV1", "2.5-IV0", "2.6-IV0",
    "2.7-IV0", "2.7-IV1", "2.7-IV2", "2.8-IV0", "2.8-IV1", "3.0-IV0", "3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0",
    "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2",
    "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0",
)  # fmt: skip


_STEPS: Final[dict[ApiKey, tuple[tuple[str, int], ...]]] = {
    ApiKey.LEADER_AND_ISR: (
        ("1.0-IV0", 1), ("2.2-IV0", 2), ("2.4-IV0", 3), ("2.4-IV1", 4), ("2.8-IV1", 5), ("3.2-IV0", 6), ("3.4-IV0", 7),
    ),
    ApiKey.STOP_REPLICA: (("2.2-IV0", 1), ("2.4-IV1", 2), ("2.6-IV0", 3), ("3.4-IV0", 4)),
    ApiKey.UPDATE_METADATA: (
        ("0.9.0", 1), ("0.10.0-IV1", 2), ("0.10.2-IV0", 3), ("1.0-IV0", 4), ("2.2-IV0", 5), ("2.4-IV1", 6),
        ("2.8-IV1", 7), ("3.4-IV0", 8),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ControlVersions:
    """The versions of the control requests under one inter.broker.protocol.version."""

    ibp: str
    leader_and_isr: int
    stop_replica: int
    update_metadata: int

    def of(self, api_key: int) -> int:
        """Return the version of one control API.

        Raises:
            UnsupportedApi: Not one of the three.
        """
        match api_key:
            case ApiKey.LEADER_AND_ISR:
                return self.leader_and_isr
            case ApiKey.STOP_REPLICA:
                return self.stop_replica
            case ApiKey.UPDATE_METADATA:
                return self.update_metadata
        raise UnsupportedApi(api_key)


def ibp_versions() -> tuple[str, ...]:
    """Return every inter.broker.protocol.version that Kafka 3.9.1 knows, oldest first, in full (``2.4-IV1``)."""
    return _IBP_ORDER


def ibp_at_least(ibp: str, since: str) -> bool:
    """Whether an inter.broker.protocol.version is another one, or a later one.

    >>> ibp_at_least("2.7", "2.7-IV2"), ibp_at_least("2.7-IV1", "2.7-IV2")
    (True, False)

    Raises:
        ConfigurationError: An unknown version.
    """
    return _IBP_ORDER.index(_full_ibp(ibp)) >= _IBP_ORDER.index(_full_ibp(since))


def _full_ibp(text: str) -> str:
    """``2.4`` means the last of ``2.4-IV*``; ``3.9.1`` means the release line ``3.9``."""
    if text in _IBP_ORDER:
        return text
    parts = text.split(".")
    depth = 3 if parts[0] == "0" else 2  # 0.10.2 is a release line of its own, 2.8.1 is not
    short = ".".join(parts[:depth])
    if "-" not in text and all(p.isdigit() for p in parts):
        for known in reversed(_IBP_ORDER):
            if known.partition("-")[0] == short:
                return known
    raise ConfigurationError(
        f"unknown inter.broker.protocol.version {text!r}; try one of 0.8.2, 2.4-IV1, 2.8, 3.9 (known: 0.8.0 to 3.9-IV0)"
    )


def metadata_version_level(ibp: str) -> int:
    """Return the level of the feature ``metadata.version`` that an inter.broker.protocol.version stands for.

    >>> metadata_version_level("3.4"), metadata_version_level("3.9")
    (8, 21)

    Raises:
        ConfigurationError: It is older than 3.0-IV1, the first with a level.
    """
    level = _IBP_ORDER.index(_full_ibp(ibp)) - _IBP_ORDER.index("3.0-IV0")
    if level < 1:
        raise ConfigurationError(f"inter.broker.protocol.version {ibp} is no metadata version; the first is 3.0-IV1")
    return level


def control_versions(ibp: str) -> ControlVersions:
    """Return the versions that a ZooKeeper controller sends under this inter.broker.protocol.version.

    >>> control_versions("2.8")
    ControlVersions(ibp='2.8-IV1', leader_and_isr=5, stop_replica=3, update_metadata=7)
    >>> control_versions("2.4-IV0").update_metadata
    5

    Raises:
        ConfigurationError: No release up to 3.9.1 knows it.
    """
    full = _full_ibp(ibp)
    rank = _IBP_ORDER.index(full)

    def at(api: ApiKey) -> int:
        return max((v for since, v in _STEPS[api] if _IBP_ORDER.index(since) <= rank), default=0)

    return ControlVersions(full, at(ApiKey.LEADER_AND_ISR), at(ApiKey.STOP_REPLICA), at(ApiKey.UPDATE_METADATA))
