"""Hypothesis strategies for every message of the three control APIs, in every version, as Kafka's JSON form.

They stand on a small table of their own, so that what they make owes nothing to either codec. The table also serves
the tests that speak of single fields: where a field begins and ends, its default, whether a version that lacks it may
drop it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from wire import array, boolean, i8, i16, i32, i64, ids, string, tags, varint

__all__ = [
    "FLEXIBLE_FROM",
    "LATEST",
    "MESSAGES",
    "VERSIONS",
    "Field",
    "Path",
    "Struct",
    "by_hand",
    "default_json",
    "fields_with_paths",
    "json_forms",
    "mutations",
    "plain_json",
    "reachable",
    "request_headers",
    "tagged_sections",
]

ZERO_UUID = "A" * 22

Path = tuple[str, ...]
"""The names that lead to a field, e.g. ``("topicStates", "partitionStates", "isr")``."""


@dataclass(frozen=True)
class Struct:
    """A message, or the element of an array: the name of its class and its fields in the order of the wire."""

    name: str
    fields: tuple[Field, ...]

    def of(self, version: int) -> list[Field]:
        """The fields that this version has."""
        return [field for field in self.fields if field.in_version(version)]


@dataclass(frozen=True)
class Field:
    """One field of a message or struct, as the protocol's tables give it.

    Attributes:
        name: In the JSON form.
        type: ``bool``, ``int8`` ... ``int64``, ``uuid``, ``string``, ``[]int32``, or the struct of an array's element.
        first, last: The versions that have it.
        ignorable: A version that lacks it drops its value in silence.
    """

    name: str
    type: str | Struct
    first: int = 0
    last: int = 99
    default: Any = None
    nullable: bool = False
    ignorable: bool = False
    tag: int | None = None

    def in_version(self, version: int) -> bool:
        return self.first <= version <= self.last

    @property
    def default_value(self) -> Any:
        if self.default is not None:
            return self.default
        if isinstance(self.type, Struct) or self.type.startswith("[]"):
            return []
        return {"bool": False, "uuid": ZERO_UUID, "string": ""}.get(self.type, 0)


_LISR_STATE = Struct(
    "LeaderAndIsrPartitionState",
    (
        Field("topicName", "string", 0, 1, ignorable=True),
        Field("partitionIndex", "int32"),
        Field("controllerEpoch", "int32"),
        Field("leader", "int32"),
        Field("leaderEpoch", "int32"),
        Field("isr", "[]int32"),
        Field("partitionEpoch", "int32"),
        Field("replicas", "[]int32"),
        Field("addingReplicas", "[]int32", 3, ignorable=True),
        Field("removingReplicas", "[]int32", 3, ignorable=True),
        Field("isNew", "bool", 1, ignorable=True),
        Field("leaderRecoveryState", "int8", 6),
    ),
)
_LISR_TOPIC = Struct(
    "LeaderAndIsrTopicState",
    (
        Field("topicName", "string", 2),
        Field("topicId", "uuid", 5, ignorable=True),
        Field("partitionStates", _LISR_STATE, 2),
    ),
)
_LISR_LEADER = Struct(
    "LeaderAndIsrLiveLeader", (Field("brokerId", "int32"), Field("hostName", "string"), Field("port", "int32"))
)
_LISR_ERROR = Struct(
    "LeaderAndIsrPartitionError",
    (
        Field("topicName", "string", 0, 4, ignorable=True),
        Field("partitionIndex", "int32"),
        Field("errorCode", "int16"),
    ),
)
_LISR_TOPIC_ERROR = Struct(
    "LeaderAndIsrTopicError", (Field("topicId", "uuid", 5), Field("partitionErrors", _LISR_ERROR, 5))
)
_SR_V0 = Struct("StopReplicaPartitionV0", (Field("topicName", "string", 0, 0), Field("partitionIndex", "int32", 0, 0)))
_SR_V1 = Struct("StopReplicaTopicV1", (Field("name", "string", 1, 2), Field("partitionIndexes", "[]int32", 1, 2)))
_SR_STATE = Struct(
    "StopReplicaPartitionState",
    (
        Field("partitionIndex", "int32", 3),
        Field("leaderEpoch", "int32", 3, default=-1),
        Field("deletePartition", "bool", 3),
    ),
)
_SR_TOPIC = Struct("StopReplicaTopicState", (Field("topicName", "string", 3), Field("partitionStates", _SR_STATE, 3)))
_SR_ERROR = Struct(
    "StopReplicaPartitionError",
    (Field("topicName", "string"), Field("partitionIndex", "int32"), Field("errorCode", "int16")),
)
_UMR_STATE = Struct(
    "UpdateMetadataPartitionState",
    (
        Field("topicName", "string", 0, 4, ignorable=True),
        Field("partitionIndex", "int32"),
        Field("controllerEpoch", "int32"),
        Field("leader", "int32"),
        Field("leaderEpoch", "int32"),
        Field("isr", "[]int32"),
        Field("zkVersion", "int32"),
        Field("replicas", "[]int32"),
        Field("offlineReplicas", "[]int32", 4, ignorable=True),
    ),
)
_UMR_TOPIC = Struct(
    "UpdateMetadataTopicState",
    (
        Field("topicName", "string", 5),
        Field("topicId", "uuid", 7, ignorable=True),
        Field("partitionStates", _UMR_STATE, 5),
    ),
)
_UMR_ENDPOINT = Struct(
    "UpdateMetadataEndpoint",
    (
        Field("port", "int32", 1),
        Field("host", "string", 1),
        Field("listener", "string", 3, ignorable=True),
        Field("securityProtocol", "int16", 1),
    ),
)
_UMR_BROKER = Struct(
    "UpdateMetadataBroker",
    (
        Field("id", "int32"),
        Field("v0Host", "string", 0, 0, ignorable=True),
        Field("v0Port", "int32", 0, 0, ignorable=True),
        Field("endpoints", _UMR_ENDPOINT, 1, ignorable=True),
        Field("rack", "string", 2, nullable=True, ignorable=True),
    ),
)

MESSAGES: dict[tuple[int, str], Struct] = {
    (4, "request"): Struct(
        "LeaderAndIsrRequest",
        (
            Field("controllerId", "int32"),
            Field("isKRaftController", "bool", 7),
            Field("controllerEpoch", "int32"),
            Field("brokerEpoch", "int64", 2, default=-1, ignorable=True),
            Field("type", "int8", 5),
            Field("ungroupedPartitionStates", _LISR_STATE, 0, 1),
            Field("topicStates", _LISR_TOPIC, 2),
            Field("liveLeaders", _LISR_LEADER),
        ),
    ),
    (4, "response"): Struct(
        "LeaderAndIsrResponse",
        (
            Field("errorCode", "int16"),
            Field("partitionErrors", _LISR_ERROR, 0, 4),
            Field("topics", _LISR_TOPIC_ERROR, 5),
        ),
    ),
    (5, "request"): Struct(
        "StopReplicaRequest",
        (
            Field("controllerId", "int32"),
            Field("isKRaftController", "bool", 4),
            Field("controllerEpoch", "int32"),
            Field("brokerEpoch", "int64", 1, default=-1, ignorable=True),
            Field("deletePartitions", "bool", 0, 2),
            Field("ungroupedPartitions", _SR_V0, 0, 0),
            Field("topics", _SR_V1, 1, 2),
            Field("topicStates", _SR_TOPIC, 3),
        ),
    ),
    (5, "response"): Struct("StopReplicaResponse", (Field("errorCode", "int16"), Field("partitionErrors", _SR_ERROR))),
    (6, "request"): Struct(
        "UpdateMetadataRequest",
        (
            Field("controllerId", "int32"),
            Field("isKRaftController", "bool", 8),
            Field("type", "int8", 8, tag=0),
            Field("controllerEpoch", "int32"),
            Field("brokerEpoch", "int64", 5, default=-1, ignorable=True),
            Field("ungroupedPartitionStates", _UMR_STATE, 0, 4),
            Field("topicStates", _UMR_TOPIC, 5),
            Field("liveBrokers", _UMR_BROKER),
        ),
    ),
    (6, "response"): Struct("UpdateMetadataResponse", (Field("errorCode", "int16"),)),
}

LATEST = {4: 7, 5: 4, 6: 8}
FLEXIBLE_FROM = {4: 4, 5: 2, 6: 6}
VERSIONS = [(api, version, kind) for api, kind in MESSAGES for version in range(LATEST[api] + 1)]
"""Every (api, version, kind) of the three."""


def fields_with_paths(struct: Struct, prefix: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Every field of a message with the names that lead to it."""
    for field in struct.fields:
        path = (*prefix, field.name)
        yield path, field
        if isinstance(field.type, Struct):
            yield from fields_with_paths(field.type, path)


def reachable(struct: Struct, path: Path, version: int) -> bool:
    """Whether this version has the field and every array on the way to it."""
    for name in path:
        field = next((f for f in struct.of(version) if f.name == name), None)
        if field is None:
            return False
        if isinstance(field.type, Struct):
            struct = field.type
    return True


def default_json(struct: Struct, version: int) -> dict[str, Any]:
    """The JSON form of a message fresh from its constructor."""
    return {f.name: f.default_value for f in struct.of(version) if f.tag is None}


def plain_json(struct: Struct, version: int) -> dict[str, Any]:
    """A message that has one element in every array of structs, so every field of the version stands in it once."""
    return {
        f.name: [plain_json(f.type, version)] if isinstance(f.type, Struct) else f.default_value
        for f in struct.of(version)
        if f.tag is None
    }


def by_hand(api: int, version: int, kind: str, form: dict[str, Any], instead: dict[Path, bytes] | None = None) -> bytes:
    """The bytes of a message, written from the table alone.

    ``instead`` puts other bytes in the place of a field, wherever it stands; ``tags`` names a struct's tagged section.
    """
    return _written(MESSAGES[api, kind], version, version >= FLEXIBLE_FROM[api], form, instead or {}, ())


def _written(struct: Struct, version: int, flexible: bool, form: Any, instead: dict[Path, bytes], at: Path) -> bytes:
    out = b""
    tagged = []
    for field in struct.of(version):
        path = (*at, field.name)
        if field.tag is not None:
            if form.get(field.name):
                tagged.append((field.tag, i8(form[field.name])))
            continue
        out += (
            instead[path]
            if path in instead
            else _value_bytes(field, form[field.name], version, flexible, instead, path)
        )
    if flexible:
        out += instead.get((*at, "tags"), tags(*tagged))
    return out


def _value_bytes(field: Field, value: Any, version: int, flexible: bool, instead: dict[Path, bytes], at: Path) -> bytes:
    if isinstance(field.type, Struct):
        elements = [_written(field.type, version, flexible, each, instead, at) for each in value]
        return array(elements, flexible=flexible)
    match field.type:
        case "string":
            return string(value, flexible=flexible)
        case "[]int32":
            return ids(value, flexible=flexible)
        case "uuid":
            return base64.urlsafe_b64decode(value + "==")
    return {"bool": boolean, "int8": i8, "int16": i16, "int32": i32, "int64": i64}[field.type](value)


# ---- values ----------------------------------------------------------------------------------------------------------


def _integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return st.sampled_from([0, 1, -1, low, high]) | st.integers(low, high)


_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uuid": st.binary(min_size=16, max_size=16).map(lambda b: base64.urlsafe_b64encode(b).rstrip(b"=").decode()),
    "string": st.sampled_from(["", "topic", "x" * 126, "x" * 127, "x" * 128]) | st.text(max_size=12),
    "[]int32": st.lists(_integers(32), max_size=4),
}


def _value(field: Field, version: int) -> st.SearchStrategy[Any]:
    if isinstance(field.type, Struct):
        return st.lists(_struct(field.type, version), max_size=3)
    value = _SCALARS[field.type]
    return st.none() | value if field.nullable else value


def _struct(struct: Struct, version: int) -> st.SearchStrategy[dict[str, Any]]:
    here = struct.of(version)
    plain = {f.name: _value(f, version) for f in here if f.tag is None}
    tagged = {f.name: _value(f, version).filter(bool) for f in here if f.tag is not None}  # the default is left out
    return st.fixed_dictionaries(plain, optional=tagged)


def json_forms(api: int, version: int, kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """Messages of that version in Kafka's JSON form."""
    return _struct(MESSAGES[api, kind], version)


def request_headers(header_version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Request headers in Kafka's JSON form; the API need not exist."""
    fields = {
        "requestApiKey": _SCALARS["int16"],
        "requestApiVersion": _SCALARS["int16"],
        "correlationId": _SCALARS["int32"],
    }
    if header_version > 0:
        fields["clientId"] = st.none() | _SCALARS["string"]
    return st.fixed_dictionaries(fields)


def tagged_sections(lowest: int = 1) -> st.SearchStrategy[tuple[tuple[int, bytes], ...]]:
    """Unknown tagged fields as Kafka would write them: sorted, no tag twice."""
    tag = st.integers(lowest, 40) | st.sampled_from([127, 128, 16383, 16384, 2**31 - 2])
    return st.dictionaries(tag, st.binary(max_size=9), max_size=3).map(lambda held: tuple(sorted(held.items())))


# ---- damage ----------------------------------------------------------------------------------------------------------

_LENGTHS = [i32(-1), i32(2**31 - 1), i32(-(2**31)), i32(0x10000000), i16(-1), i16(-2), i16(32767), i16(-32768)] + [
    varint(n) for n in (0, 1, 2, 127, 128, 32768, 32769, 2**31 - 1, 2**31, 2**32 - 1)
]
_ODD = [bytes.fromhex(h) for h in ("8000", "818000", "8080808010", "ffffffffffff", "eda080", "c080", "e282", "02")]


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with one to three wounds: cut, bits flipped, lengths changed, pieces doubled, moved or put in."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(out)))
        match draw(st.integers(0, 6)):
            case 0:
                del out[at:]
            case 1 if at < len(out):
                out[at] ^= 1 << draw(st.integers(0, 7))
            case 2 if at < len(out):
                out[at] = draw(st.integers(0, 255))
            case 3:
                length = draw(st.sampled_from(_LENGTHS))
                out[at : at + len(length)] = length
            case 4:
                out[at:at] = draw(st.sampled_from(_ODD) | st.binary(min_size=1, max_size=6))
            case 5:
                del out[at : at + draw(st.integers(1, 4))]
            case _:
                start = draw(st.integers(0, len(out)))
                out[at:at] = out[start : start + draw(st.integers(1, 16))]
    return bytes(out)
