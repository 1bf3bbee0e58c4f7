"""Compares a recording's tables with the controller's own journal, request by request and field by field."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kproto.api import api_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from channel.rehearsal.journal import Journal, SentRequest

_Row: TypeAlias = dict[str, Any]
_Exchange: TypeAlias = tuple[tuple[tuple[Any, ...], ...], ...]
"""Values of the request's columns, then of each partition state, then of each partition error."""

_REQUEST: Final = (
    "broker_id", "api_key", "api_version", "client_id", "controller_id", "controller_epoch", "broker_epoch",
    "is_kraft_controller", "type", "n_topics", "n_partitions", "error_code",
)  # fmt: skip
_STATE: Final = (
    "topic", "partition", "topic_id", "controller_epoch", "leader", "leader_epoch", "partition_epoch", "isr",
    "replicas", "offline_replicas", "adding_replicas", "removing_replicas", "is_new", "leader_recovery_state",
    "delete_partition",
)  # fmt: skip
_ERROR: Final = ("topic", "partition", "topic_id", "error_code")


def differences(tables: Path, journal: Journal) -> list[str]:
    """Compare the tables of a recording with the journal; gives one line a difference, none if they agree.

    Compared are, for each answered request, all that the tables say of it: broker, API, version, client id,
    controller, epochs, KRaft flag, request type, error code, every field of every partition and every partition error.
    """
    written = Counter(_from_journal(entry) for entry in journal.entries if entry.answered)
    recorded = Counter(_from_tables(tables))
    lines = [f"only the journal has {_show(exchange)}" for exchange in written - recorded]
    return lines + [f"only the tables have {_show(exchange)}" for exchange in recorded - written]


def _show(exchange: _Exchange) -> str:
    request = dict(zip(_REQUEST, exchange[0][0], strict=True))
    return (
        f"{api_name(request['api_key'])} v{request['api_version']} of controller {request['controller_id']} epoch "
        f"{request['controller_epoch']} to broker {request['broker_id']}, answered {request['error_code']}, "
        f"{len(exchange[1])} partitions: {exchange}"
    )


def _exchange(request: _Row, states: Iterable[_Row], errors: Iterable[_Row]) -> _Exchange:
    place = itemgetter("topic", "partition")
    parts = ([request], _REQUEST), (sorted(states, key=place), _STATE), (sorted(errors, key=place), _ERROR)
    return tuple(tuple(_values(row, columns) for row in rows) for rows, columns in parts)


def _values(row: _Row, columns: tuple[str, ...]) -> tuple[Any, ...]:
    values = (row.get(column) for column in columns)
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def _from_journal(entry: SentRequest) -> _Exchange:
    message = entry.message
    states = []
    for topic in message.topic_states:
        for state in topic.partition_states:
            row = {name: getattr(state, name, None) for name in _STATE}
            states.append(row | {
                "topic": topic.topic_name,
                "partition": state.partition_index,
                "topic_id": getattr(topic, "topic_id", None),  # StopReplica has none
                "partition_epoch": getattr(state, "zk_version", row["partition_epoch"]),  # UpdateMetadata's name of it
            })  # fmt: skip
    request = {name: getattr(entry, name, None) for name in _REQUEST} | {
        "api_version": entry.version,
        "client_id": str(entry.controller_id),
        "is_kraft_controller": message.is_kraft_controller,
        "type": getattr(message, "type", 0),  # StopReplica has no type
        "n_topics": len({state["topic"] for state in states}),
        "n_partitions": len(states),
    }
    return _exchange(request, states, entry.partition_errors)


def _from_tables(tables: Path) -> list[_Exchange]:
    states = _grouped(tables / "partition_states", "body_id")
    errors = _grouped(tables / "partition_errors", "frame_id")
    answered = _grouped(tables / "requests", "response_frame_id")
    answered.pop(None, None)
    return [
        _exchange(row, states[row["body_id"]], errors[row["frame_id"]]) for rows in answered.values() for row in rows
    ]


def _grouped(table: Path, column: str) -> dict[bytes | None, list[_Row]]:
    import pyarrow.parquet as pq

    groups: dict[bytes | None, list[_Row]] = defaultdict(list)
    for row in pq.read_table(table).to_pylist():
        groups[row[column]].append(row)
    return groups
