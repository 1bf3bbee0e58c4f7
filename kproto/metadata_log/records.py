"""The records of KRaft's metadata log, in every version of Kafka 3.3 to 4.1, and those that control its batches.

A record's value is two varints, the frame's version (1) and the record's type, a third for the version of that type,
and then the record's fields in the flexible form. The key is null. A control record's key holds a version and a type,
both int16, and its value the fields of that type.

Source: the definitions that the jars of Kafka 3.3.2 to 4.1.0 carry (``common/metadata/*.json``). A PartitionRecord and
a PartitionChangeRecord have a second reader, written by hand: a snapshot holds one for each partition of the cluster.
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from struct import Struct as Packed
from struct import error as _UNPACK_ERROR
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from kproto.errors import Malformed, UnsupportedVersion
from kproto.json_form import uuid_to_json
from kproto.reference.alter_client_quotas import AlterClientQuotasEntity
from kproto.reference.broker_registration import Feature, Listener
from kproto.reference.datatypes import (
    ArrayOf,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Nullable,
    String,
    StructOf,
    Uuid,
)
from kproto.reference.fields import Since, Tagged
from kproto.reference.raft_voters import KRaftVersionFeature, RaftVoterListener
from kproto.reference.struct import Struct, VersionedStruct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproto.types import Json

FRAME_VERSION: Final = 1

NO_LEADER: Final = -1
"""The leader of a partition that has none."""

SAME_LEADER: Final = -2
"""The leader in a PartitionChangeRecord that leaves the leader as it is."""

_LARGEST_VERSION: Final = 0x7FFF
_set = object.__setattr__
_uuid_text = lru_cache(1 << 14)(uuid_to_json)


class MetadataRecord(VersionedStruct):
    """The fields of one record; a class for each type.

    Attributes:
        record_type: The number of the type.
    """

    __slots__ = ()
    record_type: ClassVar[int]
    newest: ClassVar[int]

    def __init_subclass__(cls, *, record_type: int = -1, newest: int = 0) -> None:
        cls.record_type, cls.newest = record_type, newest

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Every version is, if it is there."""
        if not 0 <= version <= cls.newest:
            raise UnsupportedVersion(-1, version, cls.__name__, 0, cls.newest)
        return True

    @classmethod
    @cache
    def title(cls) -> str:
        """The type's name as Kafka's dump prints it: ``PARTITION_CHANGE_RECORD``."""
        return re.sub(r"(?<=.)(?=[A-Z])", "_", cls.__name__).upper()

    def to_json(self, version: int | None = None) -> Json:
        """The fields as Kafka's dump prints them."""
        return super().to_json(self.version if version is None else version)

    def to_json_text(self) -> str:
        """``to_json`` as text."""
        return json.dumps(self.to_json())

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.version == getattr(other, "version", None)


_Record = TypeVar("_Record", bound=MetadataRecord)


class UnknownRecord:
    """A record of a type or a version that Kafka 4.1 does not have.

    Attributes:
        record_type: The number of its type.
        version: Its version.
        data: The bytes of its fields.
    """

    __slots__ = ("data", "record_type", "version")

    def __init__(self, record_type: int, version: int, data: bytes) -> None:
        self.record_type: int = record_type
        self.version: int = version
        self.data: bytes = data

    def title(self) -> str:
        """The type by its number, or by its name where only the version is unknown."""
        known = RECORDS.get(self.record_type)
        return f"UNKNOWN_{self.record_type}" if known is None else known.title()

    def to_json(self) -> Json:
        """The bytes in hexadecimal."""
        return {"bytes": self.data.hex()}

    def to_json_text(self) -> str:
        """``to_json`` as text."""
        return json.dumps(self.to_json())

    def __repr__(self) -> str:
        return f"UnknownRecord({self.record_type}, {self.version}, {len(self.data)} bytes)"


# ---- brokers and controllers -----------------------------------------------------------------------------------------


class RegisterBrokerRecord(MetadataRecord, record_type=0, newest=3):
    """A broker registered: every start of a broker does so with a new incarnation id."""

    broker_id: int = Int32
    is_migrating_zk_broker: bool = Since(2, Bool)
    incarnation_id: bytes = Uuid
    broker_epoch: int = Int64
    end_points: list[Listener] = ArrayOf(Listener)
    features: list[Feature] = ArrayOf(Feature)
    rack: str | None = Nullable(String)
    fenced: bool = Since(0, Bool, default=True)
    in_controlled_shutdown: bool = Since(1, Bool)
    log_dirs: tuple[bytes, ...] = Tagged(0, ArrayOf(Uuid), since=3)


class UnregisterBrokerRecord(MetadataRecord, record_type=1):
    """A broker is no member of the cluster any more."""

    broker_id: int = Int32
    broker_epoch: int = Int64


class FenceBrokerRecord(MetadataRecord, record_type=7):
    """A broker is fenced: it leads nothing."""

    id: int = Int32
    epoch: int = Int64


class UnfenceBrokerRecord(MetadataRecord, record_type=8):
    """A broker is not fenced any more."""

    id: int = Int32
    epoch: int = Int64


class BrokerRegistrationChangeRecord(MetadataRecord, record_type=17, newest=2):
    """A registration changed. ``fenced``: 1 fenced, -1 unfenced; ``in_controlled_shutdown``: 1 it began; 0 as was."""

    broker_id: int = Int32
    broker_epoch: int = Int64
    fenced: int = Tagged(0, Int8, since=0)
    in_controlled_shutdown: int = Tagged(1, Int8, since=1)
    log_dirs: tuple[bytes, ...] = Tagged(2, ArrayOf(Uuid), since=2)


class RegisterControllerRecord(MetadataRecord, record_type=27):
    """A node of the quorum registered."""

    controller_id: int = Int32
    incarnation_id: bytes = Uuid
    zk_migration_ready: bool = Bool
    end_points: list[Listener] = ArrayOf(Listener)
    features: list[Feature] = ArrayOf(Feature)


# ---- topics ----------------------------------------------------------------------------------------------------------


class TopicRecord(MetadataRecord, record_type=2):
    """A topic was created."""

    name: str = String
    topic_id: bytes = Uuid


class RemoveTopicRecord(MetadataRecord, record_type=9):
    """A topic was deleted, with its partitions."""

    topic_id: bytes = Uuid


class PartitionRecord(MetadataRecord, record_type=3, newest=2):
    """A whole partition: a new one, or one in a snapshot. ``leader_recovery_state`` 1: after an unclean election."""

    partition_id: int = Since(0, Int32, default=-1)
    topic_id: bytes = Uuid
    replicas: tuple[int, ...] = ArrayOf(Int32)
    isr: tuple[int, ...] = ArrayOf(Int32)
    removing_replicas: tuple[int, ...] = ArrayOf(Int32)
    adding_replicas: tuple[int, ...] = ArrayOf(Int32)
    leader: int = Since(0, Int32, default=NO_LEADER)
    leader_recovery_state: int = Tagged(0, Int8, since=0)
    leader_epoch: int = Since(0, Int32, default=-1)
    partition_epoch: int = Since(0, Int32, default=-1)
    directories: tuple[bytes, ...] = Since(1, ArrayOf(Uuid))
    eligible_leader_replicas: tuple[int, ...] | None = Tagged(1, Nullable(ArrayOf(Int32)), since=2, default=None)
    last_known_elr: tuple[int, ...] | None = Tagged(2, Nullable(ArrayOf(Int32)), since=2, default=None)

    def to_json_text(self) -> str:
        """``to_json`` as text, written by hand: a snapshot holds one of these for each partition."""
        if self.version < 1 or self.eligible_leader_replicas is not None or self.last_known_elr is not None:
            return super().to_json_text()
        recovery = f', "leaderRecoveryState": {self.leader_recovery_state}' if self.leader_recovery_state else ""
        directories = '", "'.join([_uuid_text(directory) for directory in self.directories])
        return (
            f'{{"partitionId": {self.partition_id}, "topicId": "{_uuid_text(self.topic_id)}"'
            f', "replicas": {[*self.replicas]}, "isr": {[*self.isr]}'
            f', "removingReplicas": {[*self.removing_replicas]}, "addingReplicas": {[*self.adding_replicas]}'
            f', "leader": {self.leader}{recovery}, "leaderEpoch": {self.leader_epoch}'
            f', "partitionEpoch": {self.partition_epoch}'
            + (f', "directories": ["{directories}"]}}' if directories else ', "directories": []}')
        )


class PartitionChangeRecord(MetadataRecord, record_type=5, newest=2):
    """What changed of a partition; null, ``leader`` -2 and ``leader_recovery_state`` -1: as before.

    The partition epoch counts up by 1 with each such record, the leader epoch with each that names a leader, be it the
    same one.
    """

    partition_id: int = Since(0, Int32, default=-1)
    topic_id: bytes = Uuid
    isr: tuple[int, ...] | None = Tagged(0, Nullable(ArrayOf(Int32)), since=0, default=None)
    leader: int = Tagged(1, Int32, since=0, default=SAME_LEADER)
    replicas: tuple[int, ...] | None = Tagged(2, Nullable(ArrayOf(Int32)), since=0, default=None)
    removing_replicas: tuple[int, ...] | None = Tagged(3, Nullable(ArrayOf(Int32)), since=0, default=None)
    adding_replicas: tuple[int, ...] | None = Tagged(4, Nullable(ArrayOf(Int32)), since=0, default=None)
    leader_recovery_state: int = Tagged(5, Int8, since=0, default=-1)
    directories: tuple[bytes, ...] | None = Tagged(8, Nullable(ArrayOf(Uuid)), since=1, default=None)
    eligible_leader_replicas: tuple[int, ...] | None = Tagged(6, Nullable(ArrayOf(Int32)), since=2, default=None)
    last_known_elr: tuple[int, ...] | None = Tagged(7, Nullable(ArrayOf(Int32)), since=2, default=None)

    def to_json_text(self) -> str:
        """``to_json`` as text, the common fields written by hand."""
        if not (
            self.replicas is self.removing_replicas is self.adding_replicas is None
            and self.directories is None
            and self.eligible_leader_replicas is self.last_known_elr is None
        ):
            return super().to_json_text()
        isr = "" if self.isr is None else f', "isr": {[*self.isr]}'
        leader = "" if self.leader == SAME_LEADER else f', "leader": {self.leader}'
        recovery = "" if self.leader_recovery_state == -1 else f', "leaderRecoveryState": {self.leader_recovery_state}'
        head = f'{{"partitionId": {self.partition_id}, "topicId": "{_uuid_text(self.topic_id)}"'
        return f"{head}{isr}{leader}{recovery}}}"


class ClearElrRecord(MetadataRecord, record_type=28):
    """The eligible leader replicas of a topic were cleared; without a name, those of all topics."""

    topic_name: str = String


# ---- configurations, features, producers -----------------------------------------------------------------------------


class ConfigRecord(MetadataRecord, record_type=4):
    """A configuration was set, or removed (null). ``resource_type``: 2 topic, 4 broker, 16 client metrics, 32 group."""

    resource_type: int = Int8
    resource_name: str = String
    name: str = String
    value: str | None = Nullable(String)


class FeatureLevelRecord(MetadataRecord, record_type=12):
    """The cluster runs a feature at this level; 0 removes it."""

    name: str = String
    feature_level: int = Int16


class ClientQuotaRecord(MetadataRecord, record_type=14):
    """A client's quota was set or removed."""

    entity: list[AlterClientQuotasEntity] = ArrayOf(AlterClientQuotasEntity)
    key: str = String
    value: float = Float64
    remove: bool = Bool


class ProducerIdsRecord(MetadataRecord, record_type=15):
    """A broker was given a block of producer ids."""

    broker_id: int = Int32
    broker_epoch: int = Since(0, Int64, default=-1)
    next_producer_id: int = Int64


# ---- security --------------------------------------------------------------------------------------------------------


class AccessControlRecord(MetadataRecord, record_type=6):
    """An access control entry without an id, which Kafka 3.3 still defines."""

    resource_type: int = Int8
    resource_name: str | None = Nullable(String)
    pattern_type: int = Int8
    principal: str = String
    host: str = String
    operation: int = Int8
    permission_type: int = Int8


class AccessControlEntryRecord(MetadataRecord, record_type=18):
    """An access control entry was added."""

    id: bytes = Uuid
    resource_type: int = Int8
    resource_name: str = String
    pattern_type: int = Int8
    principal: str = String
    host: str = String
    operation: int = Int8
    permission_type: int = Int8


class RemoveAccessControlEntryRecord(MetadataRecord, record_type=19):
    """An access control entry was removed."""

    id: bytes = Uuid


class UserScramCredentialRecord(MetadataRecord, record_type=11):
    """A user's SCRAM credential; salt and keys are secrets."""

    name: str = String
    mechanism: int = Int8
    salt: bytes = Bytes
    stored_key: bytes = Bytes
    server_key: bytes = Bytes
    iterations: int = Int32


class RemoveUserScramCredentialRecord(MetadataRecord, record_type=22):
    """A user's SCRAM credential was removed."""

    name: str = String
    mechanism: int = Int8


class DelegationTokenRecord(MetadataRecord, record_type=10):
    """A delegation token was made or renewed; its HMAC follows from its id and the brokers' secret key."""

    owner: str = String
    requester: str = String
    renewers: tuple[str, ...] = ArrayOf(String)
    issue_timestamp: int = Int64
    max_timestamp: int = Int64
    expiration_timestamp: int = Int64
    token_id: str = String


class RemoveDelegationTokenRecord(MetadataRecord, record_type=26):
    """A delegation token was removed."""

    token_id: str = String


# ---- the log itself --------------------------------------------------------------------------------------------------


class NoOpRecord(MetadataRecord, record_type=20):
    """Nothing: the active controller writes one twice a second, so that lag can be seen."""


class ZkMigrationStateRecord(MetadataRecord, record_type=21):
    """The state of a migration: 0 none, 2 ZooKeeper's metadata is taken over, 1 it was, 3 finished."""

    zk_migration_state: int = Int8


class BeginTransactionRecord(MetadataRecord, record_type=23):
    """The records from here to the EndTransactionRecord hold together; after an AbortTransactionRecord, none does."""

    name: str | None = Tagged(0, Nullable(String), since=0, default=None)


class EndTransactionRecord(MetadataRecord, record_type=24):
    """The transaction holds."""


class AbortTransactionRecord(MetadataRecord, record_type=25):
    """The transaction never happened."""

    reason: str | None = Tagged(0, Nullable(String), since=0, default=None)


RECORDS: Final[Mapping[int, type[MetadataRecord]]] = {
    cls.record_type: cls for cls in MetadataRecord.__subclasses__() if cls.__module__ == __name__
}
"""The types by their numbers."""


# ---- control records -------------------------------------------------------------------------------------------------


class ControlRecord(MetadataRecord):
    """A record in a control batch, which the quorum writes for itself. ``record_type`` is the type in its key."""

    @classmethod
    @cache
    def title(cls) -> str:
        """The type's name as Kafka 4's dump prints it: ``LeaderChange``."""
        return cls.__name__.removesuffix("Record")


class Voter(Struct):
    """A voter by its node id, and from version 1 on by its directory."""

    voter_id: int = Int32
    voter_directory_id: bytes = Since(1, Uuid)


class LeaderChangeRecord(ControlRecord, record_type=2, newest=1):
    """An epoch of the quorum began with this leader: the active controller of that epoch."""

    version: int = Int16
    leader_id: int = Int32
    voters: list[Voter] = ArrayOf(Voter)
    granting_voters: list[Voter] = ArrayOf(Voter)


class SnapshotHeaderRecord(ControlRecord, record_type=3):
    """A snapshot begins; it holds the log up to a record of this time (ms since 1970)."""

    version: int = Int16
    last_contained_log_timestamp: int = Int64


class SnapshotFooterRecord(ControlRecord, record_type=4):
    """A snapshot ends; one without it is not whole."""

    version: int = Int16


class KRaftVersionRecord(ControlRecord, record_type=5):
    """The quorum's version: 0 its voters are configured, 1 they are in the log."""

    version: int = Int16
    k_raft_version: int = Int16


class VoterEntry(Struct):
    """A voter, its directory, addresses and versions."""

    voter_id: int = Int32
    voter_directory_id: bytes = Uuid
    endpoints: list[RaftVoterListener] = ArrayOf(RaftVoterListener)
    k_raft_version_feature: KRaftVersionFeature = StructOf(KRaftVersionFeature)


class KRaftVotersRecord(ControlRecord, record_type=6):
    """The quorum's voters from here on."""

    version: int = Int16
    voters: list[VoterEntry] = ArrayOf(VoterEntry)


CONTROL_RECORDS: Final[Mapping[int, type[ControlRecord]]] = {
    cls.record_type: cls for cls in ControlRecord.__subclasses__()
}
"""The control records by the type in their keys."""


# ---- reading ---------------------------------------------------------------------------------------------------------


def decode_record(value: bytes) -> MetadataRecord | UnknownRecord:
    """Read a record's value.

    Raises:
        DecodeError: The value is no metadata record, or its fields cannot be read.
    """
    if len(value) >= 3 and value[0] == FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        record_type, version, at = value[1], value[2], 3
        if record_type == 5:
            change = _read_change(value, version)
            if change is not None:
                return change
        elif record_type == 3:
            partition = _read_partition(value, version)
            if partition is not None:
                return partition
        elif value == _NO_OP:
            return _plain(NoOpRecord, 0)
    else:
        at = 0
        frame_version, at = varint(value, at)
        if frame_version != FRAME_VERSION:
            raise Malformed(f"a metadata record of frame version {frame_version}; Kafka 4.1 has 1", 0)
        record_type, at = varint(value, at)
        version, at = varint(value, at)
    if version > _LARGEST_VERSION:
        raise Malformed(f"a metadata record of version {version}", 0)
    cls = RECORDS.get(record_type)
    if cls is None or version > cls.newest:
        return UnknownRecord(record_type, version, value[at:])
    return cls.decode(version, value[at:])[0]


def encode_record(record: MetadataRecord | UnknownRecord) -> bytes:
    """Write a record's value, as ``decode_record`` reads it.

    Raises:
        EncodeError: A field cannot be written.
    """
    fields = record.data if isinstance(record, UnknownRecord) else record.encode(record.version)
    return b"".join([*map(varint_bytes, (FRAME_VERSION, record.record_type, record.version)), fields])


def decode_control_record(key: bytes, value: bytes) -> ControlRecord | UnknownRecord:
    """Read a record of a control batch.

    Raises:
        DecodeError: It has no such key, or its fields cannot be read.
    """
    if len(key) < 4:
        raise Malformed(f"the key of a control record has {len(key)} bytes; 4 are needed", 0)
    record_type = int.from_bytes(key[2:4], "big", signed=True)
    cls = CONTROL_RECORDS.get(record_type)
    version = int.from_bytes(value[:2], "big", signed=True)
    if cls is None or not 0 <= version <= cls.newest:
        return UnknownRecord(record_type, version, value)
    return cls.decode(version, value)[0]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint of 32 bits; also return the place after it.

    Raises:
        Malformed: It does not end within five bytes.
    """
    value = shift = 0
    for place in range(at, min(at + 5, len(data))):
        value |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:
            return value & 0xFFFF_FFFF, place + 1
        shift += 7
    raise Malformed("no varint", at)


def varint_bytes(value: int) -> bytes:
    """Write an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# ---- partitions, read by hand ----------------------------------------------------------------------------------------
#
# Each returns None where the bytes are not in the plain form that Kafka writes: the declared reader then reads them, or
# says what is wrong.

_HEAD: Final = Packed(">i16s").unpack_from
_THREE: Final = Packed(">iii").unpack_from
_LISTS: Final = [Packed(f">{count}i").unpack_from for count in range(64)]


_NO_OP: Final = bytes((FRAME_VERSION, NoOpRecord.record_type, 0, 0))


def _plain(cls: type[_Record], version: int) -> _Record:
    """Make a record whose own fields the caller sets."""
    record = cls.__new__(cls)
    _set(record, "unknown_tagged_fields", ())
    _set(record, "frozen", False)
    _set(record, "version", version)
    return record


def _read_partition(data: bytes, version: int) -> PartitionRecord | None:
    if version > PartitionRecord.newest:
        return None
    try:
        partition_id, topic_id = _HEAD(data, 3)
        lists = []
        at = 23
        for _ in range(4):
            count = data[at] - 1
            if not 0 <= count < 64:
                return None
            lists.append(_LISTS[count](data, at + 1))
            at += 1 + 4 * count
        leader, leader_epoch, partition_epoch = _THREE(data, at)
        at += 12
        directories: tuple[bytes, ...] = ()
        if version:
            count = data[at] - 1
            if not 0 <= count < 64:
                return None
            at += 1
            directories = tuple(data[place : place + 16] for place in range(at, at + 16 * count, 16))
            at += 16 * count
        if data[at] != 0 or len(data) != at + 1:  # tagged fields are rare
            return None
    except (IndexError, ValueError, _UNPACK_ERROR):
        return None
    record = _plain(PartitionRecord, version)
    _set(record, "partition_id", partition_id)
    _set(record, "topic_id", topic_id)
    _set(record, "replicas", lists[0])
    _set(record, "isr", lists[1])
    _set(record, "removing_replicas", lists[2])
    _set(record, "adding_replicas", lists[3])
    _set(record, "leader", leader)
    _set(record, "leader_recovery_state", 0)
    _set(record, "leader_epoch", leader_epoch)
    _set(record, "partition_epoch", partition_epoch)
    _set(record, "directories", directories)
    _set(record, "eligible_leader_replicas", None)
    _set(record, "last_known_elr", None)
    return record


def _read_change(data: bytes, version: int) -> PartitionChangeRecord | None:
    if version > PartitionChangeRecord.newest:
        return None
    isr = replicas = removing = adding = elr = last_known = None
    leader, recovery = SAME_LEADER, -1
    try:
        partition_id, topic_id = _HEAD(data, 3)
        at, last = 24, -1
        for _ in range(data[23]):
            tag, size = data[at], data[at + 1]
            at += 2
            if tag <= last or size > 0x7F:
                return None
            last = tag
            if tag == 1:
                if size != 4:
                    return None
                leader = int.from_bytes(data[at : at + 4], "big", signed=True)
            elif tag == 5:
                if size != 1:
                    return None
                recovery = int.from_bytes(data[at : at + 1], "big", signed=True)
            elif tag == 8 or tag > 8 or (tag > 5 and version < 2):
                return None
            else:
                count = data[at] - 1
                if not 0 <= count < 64 or size != 1 + 4 * count:
                    return None
                numbers = _LISTS[count](data, at + 1)
                if tag == 0:
                    isr = numbers
                elif tag == 2:
                    replicas = numbers
                elif tag == 3:
                    removing = numbers
                elif tag == 4:
                    adding = numbers
                elif tag == 6:
                    elr = numbers
                else:
                    last_known = numbers
            at += size
        if at != len(data):
            return None
    except (IndexError, ValueError, _UNPACK_ERROR):
        return None
    record = _plain(PartitionChangeRecord, version)
    _set(record, "partition_id", partition_id)
    _set(record, "topic_id", topic_id)
    _set(record, "isr", isr)
    _set(record, "leader", leader)
    _set(record, "replicas", replicas)
    _set(record, "removing_replicas", removing)
    _set(record, "adding_replicas", adding)
    _set(record, "leader_recovery_state", recovery)
    _set(record, "directories", None)
    _set(record, "eligible_leader_replicas", elr)
    _set(record, "last_known_elr", last_known)
    return record
