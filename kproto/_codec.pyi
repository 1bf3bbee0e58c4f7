"""The C-accelerated codec of LeaderAndIsr 0-7, StopReplica 0-4, UpdateMetadata 0-8 and the headers around them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, Self, TypeVar, final, type_check_only

from typing_extensions import disjoint_base

from .types import Buffer, Json, RawTag, Uuid

@type_check_only
class ArrowArrayLike(Protocol):
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

_T = TypeVar("_T")

@type_check_only
class _Tuple(Generic[_T]):
    """A field that takes any iterable, and gives a tuple."""

    def __get__(self, struct: Any, owner: Any = None, /) -> tuple[_T, ...]: ...
    def __set__(self, struct: Any, value: Iterable[_T], /) -> None: ...

@type_check_only
class _List(Generic[_T]):
    """A field that takes any iterable, and gives a list."""

    def __get__(self, struct: Any, owner: Any = None, /) -> list[_T]: ...
    def __set__(self, struct: Any, value: Iterable[_T], /) -> None: ...

class Struct:
    """A part of a message. Fields may be set; what does not fit raises ``OutOfRange`` or ``TypeError`` at once."""

    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __delattr__(self, name: str, /) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def _repr_html_(self) -> str: ...

@disjoint_base
class Tagged(Struct):
    """A struct that keeps the tagged fields it does not know."""

    unknown_tagged_fields: _Tuple[RawTag]

@disjoint_base
class Message(Tagged):
    """A whole request or response. ``version`` is the one it was read with; encoding names its own."""

    version: int

    def for_version(self, version: int) -> Self:
        """Return the message as one who reads it in this version gets it: with the fields that the version has.

        Raises:
            FieldNotInVersion: A field that the version lacks holds a value that may not be dropped.
            EncodeError, UnsupportedVersion: As ``encode``.
        """

@disjoint_base
class ControlRequest(Message):
    """A request of the controller to a broker."""

    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int
    topic_states: _List[Any]
    @classmethod
    def from_columns(
        cls,
        columns: ArrowArrayLike | Mapping[str, Sequence[Any]],
        version: int | None = None,
        message: Self | None = None,
    ) -> Self:
        """Make a request with partition states from columns, as ``encode_columns`` takes them."""

@disjoint_base
class TopicState(Tagged):
    """A topic's partition states in UpdateMetadata and LeaderAndIsr."""

    topic_name: str
    topic_id: Uuid
    partition_states: _List[Any]

@disjoint_base
class PartitionError(Tagged):
    """One partition's result."""

    topic_name: str
    partition_index: int
    error_code: int
    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
        error_code: int = 0,
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class LeaderAndIsrPartitionState(Struct):
    """One partition's state. Ids are tuples; ``topic_name`` is on the wire in versions 0-1 only."""

    topic_name: str
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    is_new: bool
    leader_recovery_state: int
    isr: _Tuple[int]
    replicas: _Tuple[int]
    adding_replicas: _Tuple[int]
    removing_replicas: _Tuple[int]
    unknown_tagged_fields: _Tuple[RawTag]
    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
        controller_epoch: int = 0,
        leader: int = 0,
        leader_epoch: int = 0,
        isr: Iterable[int] = (),
        partition_epoch: int = 0,
        replicas: Iterable[int] = (),
        adding_replicas: Iterable[int] = (),
        removing_replicas: Iterable[int] = (),
        is_new: bool = False,
        leader_recovery_state: int = 0,
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class LeaderAndIsrTopicState(TopicState):
    """A topic's partitions (versions 2 and later); ``topic_id`` is on the wire from version 5."""

    partition_states: _List[LeaderAndIsrPartitionState]
    def __init__(
        self,
        *,
        topic_name: str = "",
        topic_id: Uuid = ...,
        partition_states: Iterable[LeaderAndIsrPartitionState] = (),
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class LeaderAndIsrLiveLeader(Tagged):
    """The address of a leader that the request names."""

    broker_id: int
    host_name: str
    port: int
    def __init__(
        self,
        *,
        broker_id: int = 0,
        host_name: str = "",
        port: int = 0,
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class LeaderAndIsrRequest(ControlRequest):
    """Which partitions the broker is to lead or follow; ``type`` 1 means some of them, 2 all (versions 5 and later)."""

    api_key: Literal[4]
    kind: Literal["request"]
    type: int
    ungrouped_partition_states: _List[LeaderAndIsrPartitionState]
    topic_states: _List[LeaderAndIsrTopicState]
    live_leaders: _List[LeaderAndIsrLiveLeader]
    def __init__(
        self,
        *,
        controller_id: int = 0,
        is_kraft_controller: bool = False,
        controller_epoch: int = 0,
        broker_epoch: int = -1,
        type: int = 0,  # noqa: A002  (Kafka's name for it)
        ungrouped_partition_states: Iterable[LeaderAndIsrPartitionState] = (),
        topic_states: Iterable[LeaderAndIsrTopicState] = (),
        live_leaders: Iterable[LeaderAndIsrLiveLeader] = (),
        unknown_tagged_fields: Iterable[RawTag] = (),
        version: int = 7,
    ) -> None: ...
    @property
    def partition_states(self) -> tuple[LeaderAndIsrPartitionState, ...]:
        """All partition states, each with its topic's name, whatever the version.

        A read-only view: to set a field of its rows is an ``AttributeError``. Change the row in ``topic_states`` (or
        ``ungrouped_partition_states``), or a ``copy.copy`` of it.
        """

    @property
    def topic_ids(self) -> dict[str, Uuid]:
        """Topic ids by name: empty where the version has no groups, zero where it has no ids."""

    def error_response(self, error_code: int) -> LeaderAndIsrResponse:
        """The answer that reports an error for the request and each of its partitions."""

    def to_json(self, version: int) -> Json: ...
    @classmethod
    def from_json(cls, json: Mapping[str, Any], version: int) -> Self: ...

@final
class LeaderAndIsrPartitionError(PartitionError):
    """One partition's result; ``topic_name`` is on the wire in versions 0-4 only."""

@final
class LeaderAndIsrTopicError(Tagged):
    """A topic's results, by its id (versions 5 and later)."""

    topic_id: Uuid
    partition_errors: _List[LeaderAndIsrPartitionError]
    def __init__(
        self,
        *,
        topic_id: Uuid = ...,
        partition_errors: Iterable[LeaderAndIsrPartitionError] = (),
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class LeaderAndIsrResponse(Message):
    """The broker's answer: a code for the request, one for each partition (below version 5 by topic name)."""

    api_key: Literal[4]
    kind: Literal["response"]
    error_code: int
    partition_errors: _List[LeaderAndIsrPartitionError]
    topics: _List[LeaderAndIsrTopicError]
    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_errors: Iterable[LeaderAndIsrPartitionError] = (),
        topics: Iterable[LeaderAndIsrTopicError] = (),
        unknown_tagged_fields: Iterable[RawTag] = (),
        version: int = 7,
    ) -> None: ...
    def error_counts(self) -> dict[int, int]:
        """Count each error code; an error of the whole request counts for every partition too."""

    def to_json(self, version: int) -> Json: ...
    @classmethod
    def from_json(cls, json: Mapping[str, Any], version: int) -> Self: ...

class StopReplicaState(NamedTuple):
    """One partition to stop, whatever the version: below 3 the leader epoch is -1 and the flag the request's."""

    topic_name: str
    partition_index: int
    leader_epoch: int
    delete_partition: bool

@final
class StopReplicaPartitionV0(Tagged):
    """A partition to stop, version 0."""

    topic_name: str
    partition_index: int
    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class StopReplicaTopicV1(Tagged):
    """A topic's partitions to stop, versions 1 and 2."""

    name: str
    partition_indexes: _Tuple[int]
    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: Iterable[int] = (),
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class StopReplicaPartitionState(Tagged):
    """A partition to stop, versions 3 and later. Leader epoch -1: unknown, -2: the topic is being deleted."""

    partition_index: int
    leader_epoch: int
    delete_partition: bool
    def __init__(
        self,
        *,
        partition_index: int = 0,
        leader_epoch: int = -1,
        delete_partition: bool = False,
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class StopReplicaTopicState(Tagged):
    """A topic's partitions to stop, versions 3 and later."""

    topic_name: str
    partition_states: _List[StopReplicaPartitionState]
    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_states: Iterable[StopReplicaPartitionState] = (),
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class StopReplicaRequest(ControlRequest):
    """Which partitions the broker is to stop replicating, and of which to delete the log."""

    api_key: Literal[5]
    kind: Literal["request"]
    delete_partitions: bool
    ungrouped_partitions: _List[StopReplicaPartitionV0]
    topics: _List[StopReplicaTopicV1]
    topic_states: _List[StopReplicaTopicState]
    def __init__(
        self,
        *,
        controller_id: int = 0,
        is_kraft_controller: bool = False,
        controller_epoch: int = 0,
        broker_epoch: int = -1,
        delete_partitions: bool = False,
        ungrouped_partitions: Iterable[StopReplicaPartitionV0] = (),
        topics: Iterable[StopReplicaTopicV1] = (),
        topic_states: Iterable[StopReplicaTopicState] = (),
        unknown_tagged_fields: Iterable[RawTag] = (),
        version: int = 4,
    ) -> None: ...
    @property
    def partition_states(self) -> tuple[StopReplicaState, ...]:
        """All partitions, whatever the version, read-only; of one named twice in version 3 or later the last holds."""

    def error_response(self, error_code: int) -> StopReplicaResponse:
        """The answer that reports an error for the request and each of its partitions, in the request's order."""

    def to_json(self, version: int) -> Json: ...
    @classmethod
    def from_json(cls, json: Mapping[str, Any], version: int) -> Self: ...

@final
class StopReplicaPartitionError(PartitionError):
    """One partition's result."""

@final
class StopReplicaResponse(Message):
    """The broker's answer: a code for the request, one for each partition."""

    api_key: Literal[5]
    kind: Literal["response"]
    error_code: int
    partition_errors: _List[StopReplicaPartitionError]
    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_errors: Iterable[StopReplicaPartitionError] = (),
        unknown_tagged_fields: Iterable[RawTag] = (),
        version: int = 4,
    ) -> None: ...
    def error_counts(self) -> dict[int, int]:
        """Count each error code; an error of the whole request counts for every partition too."""

    def to_json(self, version: int) -> Json: ...
    @classmethod
    def from_json(cls, json: Mapping[str, Any], version: int) -> Self: ...

@final
class UpdateMetadataPartitionState(Struct):
    """One partition's state. Ids are tuples; ``topic_name`` is on the wire in versions 0-4 only."""

    topic_name: str
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    zk_version: int
    isr: _Tuple[int]
    replicas: _Tuple[int]
    offline_replicas: _Tuple[int]
    unknown_tagged_fields: _Tuple[RawTag]
    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
        controller_epoch: int = 0,
        leader: int = 0,
        leader_epoch: int = 0,
        isr: Iterable[int] = (),
        zk_version: int = 0,
        replicas: Iterable[int] = (),
        offline_replicas: Iterable[int] = (),
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class UpdateMetadataTopicState(TopicState):
    """A topic's partitions; ``topic_id`` is on the wire from version 7."""

    partition_states: _List[UpdateMetadataPartitionState]
    def __init__(
        self,
        *,
        topic_name: str = "",
        topic_id: Uuid = ...,
        partition_states: Iterable[UpdateMetadataPartitionState] = (),
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class UpdateMetadataEndpoint(Tagged):
    """An address of a broker (versions 1 and later); ``listener`` is on the wire from version 3."""

    port: int
    host: str
    listener: str
    security_protocol: int
    def __init__(
        self,
        *,
        port: int = 0,
        host: str = "",
        listener: str = "",
        security_protocol: int = 0,
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class UpdateMetadataBroker(Tagged):
    """A live broker: one address in version 0, endpoints from version 1, a rack (or None) from version 2."""

    id: int
    v0_host: str
    v0_port: int
    rack: str | None
    endpoints: _List[UpdateMetadataEndpoint]
    def __init__(
        self,
        *,
        id: int = 0,  # noqa: A002  (Kafka's name for it)
        v0_host: str = "",
        v0_port: int = 0,
        endpoints: Iterable[UpdateMetadataEndpoint] = (),
        rack: str | None = "",
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...

@final
class UpdateMetadataRequest(ControlRequest):
    """The cluster as brokers are to know it: partition states by topic (ungrouped below version 5), live brokers."""

    api_key: Literal[6]
    kind: Literal["request"]
    type: int
    ungrouped_partition_states: _List[UpdateMetadataPartitionState]
    topic_states: _List[UpdateMetadataTopicState]
    live_brokers: _List[UpdateMetadataBroker]
    def __init__(
        self,
        *,
        controller_id: int = 0,
        is_kraft_controller: bool = False,
        type: int = 0,  # noqa: A002  (Kafka's name for it)
        controller_epoch: int = 0,
        broker_epoch: int = -1,
        ungrouped_partition_states: Iterable[UpdateMetadataPartitionState] = (),
        topic_states: Iterable[UpdateMetadataTopicState] = (),
        live_brokers: Iterable[UpdateMetadataBroker] = (),
        unknown_tagged_fields: Iterable[RawTag] = (),
        version: int = 8,
    ) -> None: ...
    @property
    def partition_states(self) -> tuple[UpdateMetadataPartitionState, ...]:
        """All partition states, each with its topic's name, whatever the version.

        A read-only view: to set a field of its rows is an ``AttributeError``. Change the row in ``topic_states`` (or
        ``ungrouped_partition_states``), or a ``copy.copy`` of it.
        """

    @property
    def topic_ids(self) -> dict[str, Uuid]:
        """Topic ids by name: empty where the version has no groups, zero where it has no ids."""

    @property
    def _unread_brokers(self) -> bytes | None:
        """The live brokers as they were read, while nothing has looked at them."""

    @property
    def broker_endpoints(self) -> list[tuple[int, list[UpdateMetadataEndpoint], str | None]]:
        """``(broker id, endpoints, rack)`` of each live broker, whatever the version."""

    def error_response(self, error_code: int) -> UpdateMetadataResponse:
        """The answer that reports an error: its code alone."""

    def to_json(self, version: int) -> Json: ...
    @classmethod
    def from_json(cls, json: Mapping[str, Any], version: int) -> Self: ...

@final
class UpdateMetadataResponse(Message):
    """The broker's answer: one error code for the whole request."""

    api_key: Literal[6]
    kind: Literal["response"]
    error_code: int
    def __init__(
        self, *, error_code: int = 0, unknown_tagged_fields: Iterable[RawTag] = (), version: int = 8
    ) -> None: ...
    def error_counts(self) -> dict[int, int]:
        """Count each error code: the response has one."""

    def to_json(self, version: int) -> Json: ...
    @classmethod
    def from_json(cls, json: Mapping[str, Any], version: int) -> Self: ...

@final
class RequestHeader(Tagged):
    """The header of a request. ``client_id`` (versions 1 and later) may be None, as on the wire."""

    kind: Literal["request_header"]
    request_api_key: int
    request_api_version: int
    correlation_id: int
    client_id: str | None
    def __init__(
        self,
        *,
        request_api_key: int = 0,
        request_api_version: int = 0,
        correlation_id: int = 0,
        client_id: str | None = "",
        unknown_tagged_fields: Iterable[RawTag] = (),
    ) -> None: ...
    @property
    def client_id_or_empty(self) -> str:
        """The client id as Kafka's own parser presents it: null becomes the empty string."""

    def to_json(self, version: int) -> Json: ...
    @classmethod
    def from_json(cls, json: Mapping[str, Any], version: int) -> Self: ...

@final
class ResponseHeader(Tagged):
    """The header of a response."""

    kind: Literal["response_header"]
    correlation_id: int
    def __init__(self, *, correlation_id: int = 0, unknown_tagged_fields: Iterable[RawTag] = ()) -> None: ...
    def to_json(self, version: int) -> Json: ...
    @classmethod
    def from_json(cls, json: Mapping[str, Any], version: int) -> Self: ...

@final
class Columns:
    """Partition rows of one or many frames as Arrow columns; what takes Arrow's PyCapsules takes this without a copy.

    Requests: ``frame`` (int32, counted from 0), ``topic`` and ``topic_id`` (dictionaries with shared int32 codes),
    ``partition``, ``controller_epoch``, ``leader``, ``leader_epoch``, ``partition_epoch`` (int32; UpdateMetadata's
    ``zk_version``), ``isr``, ``replicas`` and ``offline_replicas`` or ``adding_replicas`` and ``removing_replicas``
    (lists of int32), ``is_new`` (bool), ``leader_recovery_state`` (int8). StopReplica: ``frame``, ``topic``,
    ``partition``, ``leader_epoch``, ``delete_partition``. Responses: ``frame``, ``topic`` or ``topic_id`` (the other
    is null), ``partition``, ``error_code`` (int16). Fields that a version lacks hold Kafka's defaults.
    """

    @property
    def message(self) -> Any:
        """The message of ``decode_columns`` without its rows; None for other columns."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""

    @staticmethod
    def from_sequences(api_key: int, **columns: Sequence[Any]) -> Columns:
        """The columns of a request from sequences of the same length, by name; what is missing holds the default."""

    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

@final
class ColumnsBuilder:
    """Frames of one API and direction, appended one after the other into one batch of rows.

    A frame that cannot be read raises and leaves the batch as it was before it. Frames of a builder may be of
    different versions. Large frames are read with the GIL released; a builder serves one thread at a time.
    """

    def __init__(
        self, api_key: int, kind: Literal["request", "response"] = "request", *, strict: bool = False
    ) -> None: ...
    @property
    def api_key(self) -> int: ...
    @property
    def kind(self) -> Literal["request", "response"]: ...
    @property
    def strict(self) -> bool: ...
    @property
    def message(self) -> Any:
        """The message appended last, without its rows; None before the first."""

    @property
    def frames(self) -> int:
        """The number of frames that were appended."""

    def __len__(self) -> int: ...
    def append(self, version: int, data: Buffer) -> int:
        """Read a message's rows; return how many it has."""

    @property
    def topic_count(self) -> int:
        """The number of topics of which the last frame has rows."""

    @property
    def common_replicas(self) -> list[int]:
        """The replicas that all rows of the frame appended last have in common."""

    def drop_last(self) -> None:
        """Take the rows of the frame appended last out again; its message stays."""

    def finish(self) -> Columns:
        """Return the columns of all appended frames and empty the builder."""

def decode_columns(
    api_key: int, version: int, data: Buffer, *, kind: Literal["request", "response"] = "request", strict: bool = False
) -> Columns:
    """Read one message's rows as columns; the columns' ``message`` holds its other fields."""

def decode_request(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> Any:
    """Read a request's body. See ``kproto.codec.decode_request``."""

def decode_request_from(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> tuple[Any, int]:
    """Read a request's body; also return how many bytes it took. The bytes after it are ignored."""

def decode_response(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> Any:
    """Read a response's body. See ``kproto.codec.decode_response``."""

def decode_response_from(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> tuple[Any, int]:
    """Read a response's body; also return how many bytes it took. The bytes after it are ignored."""

def encode(message: Any, version: int) -> bytes:
    """Write a message of this codec. See ``kproto.codec.encode``."""

def encode_columns(
    message: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest,
    version: int,
    columns: ArrowArrayLike | Mapping[str, Sequence[Any]],
) -> bytes:
    """Write a request with partition states from columns; consecutive rows of one topic form a group."""

def encode_batches(
    message: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest,
    version: int,
    batches: Iterable[ArrowArrayLike | Mapping[str, Sequence[Any]]],
) -> list[bytes]:
    """``encode_columns`` in pieces, for a request whose columns should not all be in memory at once."""

def message_class(api_key: int, kind: Literal["request", "response"]) -> type[Any]:
    """The class of an API's requests or responses."""

def decode_request_header(data: Buffer, header_version: int | None = None, *, strict: bool = False) -> RequestHeader:
    """Read a request header; without a version, that of the api key and version in it."""

def decode_request_header_from(
    data: Buffer, header_version: int | None = None, *, strict: bool = False
) -> tuple[RequestHeader, int]:
    """Read a request header; also return where the body begins."""

def encode_request_header(header: RequestHeader, header_version: int | None = None) -> bytes:
    """Write a request header; without a version, that of its api key and version."""

def decode_response_header(data: Buffer, header_version: int, *, strict: bool = False) -> ResponseHeader:
    """Read a response header."""

def decode_response_header_from(
    data: Buffer, header_version: int, *, strict: bool = False
) -> tuple[ResponseHeader, int]:
    """Read a response header; also return where the body begins."""

def encode_response_header(header: ResponseHeader, header_version: int) -> bytes:
    """Write a response header."""
