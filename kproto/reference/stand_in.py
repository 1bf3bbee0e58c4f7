"""The reference in the extension's place, for wheels that have none (macOS, Windows): with columns, by pyarrow.

``kproto.codec.get_codec`` gives it as ``cython`` there, and says so once. It has every name that the extension has in
``Codec`` and in ``kproto.columns``, with the reference's message classes, and is as slow as the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from kproto.api import CONTROL_APIS, ApiKey
from kproto.errors import UnsupportedApi

from . import decode_request, decode_response
from . import encode as encode
from .leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrTopicState
from .stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaState,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from .update_metadata import UpdateMetadataPartitionState, UpdateMetadataTopicState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kproto.types import Buffer, Kind

_STATE: Final = ("partition_index", "controller_epoch", "leader", "leader_epoch")
_STATES: Final[dict[int, tuple[str, ...]]] = {
    ApiKey.LEADER_AND_ISR: (
        *(*_STATE, "partition_epoch", "isr", "replicas"),
        *("adding_replicas", "removing_replicas", "is_new", "leader_recovery_state"),
    ),
    ApiKey.STOP_REPLICA: StopReplicaState._fields[1:],
    ApiKey.UPDATE_METADATA: (*_STATE, "zk_version", "isr", "replicas", "offline_replicas"),
}
"""The fields of a partition's row behind its topic, in the order of the columns."""

_COLUMNS: Final = {"partition_index": "partition", "zk_version": "partition_epoch"}
_ROWS: Final = ("ungrouped_partition_states", "ungrouped_partitions", "topic_states", "topics", "partition_errors")


def __getattr__(name: str) -> Any:
    import kproto.reference

    return getattr(kproto.reference, name)


def _layout(api_key: int, kind: str) -> tuple[str, ...]:
    """The names of the columns, without the frame's number."""
    if kind == "response":
        return "topic", "topic_id", "partition", "error_code"
    named = ("topic",) if api_key == ApiKey.STOP_REPLICA else ("topic", "topic_id")
    return (*named, *(_COLUMNS.get(name, name) for name in _STATES[api_key]))


def _type(name: str) -> Any:
    import pyarrow as pa

    match name:
        case "topic":
            return pa.dictionary(pa.int32(), pa.string())
        case "topic_id":
            return pa.dictionary(pa.int32(), pa.binary(16))
        case "is_new" | "delete_partition":
            return pa.bool_()
        case "leader_recovery_state":
            return pa.int8()
        case "error_code":
            return pa.int16()
    return pa.list_(pa.int32()) if name.endswith(("isr", "replicas")) else pa.int32()


class Columns:
    """Partition rows of one or many frames, as ``kproto.columns.Columns``."""

    def __init__(self, batch: Any, message: Any = None) -> None:
        self._batch = batch
        self.message: Any = message
        self.names: tuple[str, ...] = tuple(batch.schema.names)

    @staticmethod
    def from_sequences(api_key: int, **columns: Sequence[Any]) -> Columns:
        """The columns of a request from sequences of the same length, by name; what is missing holds the default.

        Raises:
            TypeError: There is no such column.
        """
        names = _layout(api_key, "request")
        if unknown := columns.keys() - set(names):
            raise TypeError(f"no such columns: {', '.join(sorted(unknown))}")
        count = len(columns["topic"])
        filled = {name: columns.get(name, [_default(api_key, name)] * count) for name in names}
        return Columns(_batch(names, [(0, *row) for row in zip(*filled.values(), strict=True)]))

    def __len__(self) -> int:
        rows: int = self._batch.num_rows
        return rows

    def __arrow_c_schema__(self) -> object:
        return self._batch.schema.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        both: tuple[object, object] = self._batch.__arrow_c_array__(requested_schema)
        return both

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_stream__(requested_schema)


def _default(api_key: int, name: str) -> Any:
    if name == "topic_id":
        return bytes(16)
    if name in ("is_new", "delete_partition"):
        return False
    if name.endswith(("isr", "replicas")):
        return ()
    return -1 if (api_key, name) == (ApiKey.STOP_REPLICA, "leader_epoch") else 0


def _batch(names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> Any:
    import pyarrow as pa

    names = ("frame", *names)
    values = zip(*rows, strict=True) if rows else ((),) * len(names)
    columns = []
    for name, column in zip(names, values, strict=True):
        kind = _type(name)
        if pa.types.is_dictionary(kind):
            columns.append(pa.array(column, kind.value_type).dictionary_encode())
        else:
            columns.append(pa.array(column, kind))
    return pa.record_batch(columns, names=list(names))


class ColumnsBuilder:
    """Frames of one API and direction as one batch of rows, as ``kproto.columns.ColumnsBuilder``."""

    def __init__(self, api_key: int, kind: Kind = "request", *, strict: bool = False) -> None:
        if api_key not in CONTROL_APIS:
            raise UnsupportedApi(api_key)
        self.api_key: int = int(api_key)
        self.kind: Kind = kind
        self.strict: bool = strict
        self.message: Any = None
        self.frames: int = 0
        self.topic_count: int = 0
        self._rows: list[tuple[Any, ...]] = []
        self._last = 0

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, version: int, data: Buffer) -> int:
        """Read a message's rows; return how many it has."""
        decode = decode_request if self.kind == "request" else decode_response
        message = decode(self.api_key, version, data, strict=self.strict)
        self._last = len(self._rows)
        self._rows += [(self.frames, *row) for row in _rows_of(message)]
        names = 3 if "topic_id" in _layout(self.api_key, self.kind) else 2
        self.topic_count = len({row[1:names] for row in self._rows[self._last :]})
        for name in _ROWS:
            if hasattr(message, name):
                setattr(message, name, [])
        self.message = message
        self.frames += 1
        return len(self._rows) - self._last

    @property
    def common_replicas(self) -> list[int]:
        """The replicas that all rows of the frame appended last have in common."""
        at = 1 + _layout(self.api_key, self.kind).index("replicas")
        return sorted(set.intersection(*(set(row[at]) for row in self._rows[self._last :])))

    def drop_last(self) -> None:
        """Take the rows of the frame appended last out again; its message stays."""
        del self._rows[self._last :]

    def finish(self) -> Columns:
        """Return the columns of all appended frames and empty the builder."""
        rows, self._rows, self._last, self.frames = self._rows, [], 0, 0
        return Columns(_batch(_layout(self.api_key, self.kind), rows))


def _rows_of(message: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of a message, in the order of the wire and of ``_layout``."""
    if message.kind == "response":
        for error in getattr(message, "partition_errors", ()):
            yield error.topic_name, None, error.partition_index, error.error_code
        for topic in getattr(message, "topics", ()):
            for error in topic.partition_errors:
                yield None, topic.topic_id, error.partition_index, error.error_code
        return
    if message.api_key == ApiKey.STOP_REPLICA:
        yield from (*message._flat(), *message._grouped())
        return
    names = _STATES[message.api_key]
    for state in message.ungrouped_partition_states:
        yield state.topic_name, bytes(16), *(getattr(state, name) for name in names)
    for topic in message.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, topic.topic_id, *(getattr(state, name) for name in names)


def decode_columns(
    api_key: int, version: int, data: Buffer, *, kind: Literal["request", "response"] = "request", strict: bool = False
) -> Columns:
    """Read one message's rows as columns; the columns' ``message`` holds its other fields."""
    builder = ColumnsBuilder(api_key, kind, strict=strict)
    builder.append(version, data)
    columns = builder.finish()
    columns.message = builder.message
    return columns


def encode_columns(message: Any, version: int, columns: Any) -> bytes:
    """Write a request with partition states from columns; consecutive rows of one topic form a group."""
    import pyarrow as pa

    given: Mapping[str, Sequence[Any]] = columns if hasattr(columns, "keys") else pa.record_batch(columns).to_pydict()
    filled = (
        given if "frame" in given else pa.record_batch(Columns.from_sequences(message.api_key, **given)).to_pydict()
    )
    names = _layout(message.api_key, "request")
    rows = list(zip(*(filled[name] for name in names), strict=True))
    whole = type(message)(**{name: getattr(message, name) for name in message.fields.names})
    for name, value in _with_rows(message, version, rows).items():
        setattr(whole, name, value)
    return encode(whole, version)


def encode_batches(message: Any, version: int, batches: Iterable[Any]) -> list[bytes]:
    """``encode_columns`` of batches that follow each other."""
    import pyarrow as pa

    tables = [pa.table({k: list(v) for k, v in b.items()}) if hasattr(b, "keys") else pa.table(b) for b in batches]
    whole = pa.concat_tables(tables, promote_options="default").to_pydict()
    return [encode_columns(message, version, whole)]


def _with_rows(message: Any, version: int, rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    """The fields that hold a request's partitions in a version."""
    from itertools import groupby

    is_stop = message.api_key == ApiKey.STOP_REPLICA
    groups = [(key, list(some)) for key, some in groupby(rows, lambda row: row[: 1 if is_stop else 2])]
    if is_stop:
        if version == 0:
            flat = [StopReplicaPartitionV0(topic_name=topic, partition_index=number) for topic, number, *_ in rows]
            return {"ungrouped_partitions": flat}
        if version < 3:
            return {
                "topics": [
                    StopReplicaTopicV1(name=t, partition_indexes=[r[1] for r in some]) for (t, *_), some in groups
                ]
            }
        fields = tuple(StopReplicaPartitionState.fields.all)
        return {
            "topic_states": [
                StopReplicaTopicState(
                    topic_name=topic,
                    partition_states=[
                        StopReplicaPartitionState(**dict(zip(fields, row[1:], strict=True))) for row in some
                    ],
                )
                for (topic, *_), some in groups
            ]
        }
    is_update = message.api_key == ApiKey.UPDATE_METADATA
    state: Any = UpdateMetadataPartitionState if is_update else LeaderAndIsrPartitionState
    topic_state: Any = UpdateMetadataTopicState if is_update else LeaderAndIsrTopicState
    names = _STATES[message.api_key]

    def made(row: tuple[Any, ...], **more: Any) -> Any:
        return state(**dict(zip(names, row[2:], strict=True)), **more)

    if version < (5 if is_update else 2):
        return {"ungrouped_partition_states": [made(row, topic_name=row[0]) for row in rows]}
    return {
        "topic_states": [
            topic_state(topic_name=topic, topic_id=some[0][1], partition_states=[made(row) for row in some])
            for (topic, *_), some in groups
        ]
    }
