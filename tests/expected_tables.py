"""Makes the expected tables of a generated fleet from its history, without reading a capture, and compares them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from expected_derived import derived_rows
from planned_frames import FramePlanner

from kproto.api import ApiKey
from kproto.generate.bodies import encode_response, shared_body
from kproto.generate.files import DEFAULT_MSS
from kproto.generate.traffic import TrafficPlanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from planned_frames import PlannedFrame

    from kproto.generate.content import Content
    from kproto.generate.fleet import PlannedFleet
    from kproto.generate.traffic import PlannedExchange

# ---- columns ---------------------------------------------------------------------------------------------------------

_ID = pa.binary()
_TEXT = pa.string()
_SHORT = pa.int16()
_INT = pa.int32()
_LONG = pa.int64()
_FLAG = pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")
_INTS = pa.list_(pa.field("element", _INT))

_FLOW = pa.struct([("src_ip", _TEXT), ("src_port", _INT), ("dst_ip", _TEXT), ("dst_port", _INT)])

_TYPES: Final[dict[pa.DataType, str]] = {
    _ID: "frame_id exchange_id response_frame_id request_frame_id conn_id body_id topic_id payload change_id",
    _TEXT: "capture cluster file direction client_id server_ip unmatched_reason decode_error error topic host kind "
    "reason scope",
    pa.int8(): "status type leader_recovery_state",
    _SHORT: "api_key api_version error_code",
    _INT: "correlation_id controller_id controller_epoch broker_id server_port n_topics n_partitions frame_len "
    "n_partition_errors partition leader leader_epoch partition_epoch broker_id port isr_size incarnation "
    "former_leader_epoch former_partition_epoch",
    _LONG: "ts_ns broker_epoch latency_us changes_seen changes seen_epoch known_epoch lag_us n",
    _FLAG: "is_kraft_controller is_new delete_partition unclean_election under_replicated zombie",
    _TIME: "ts ts_last valid_from valid_to window_start window_end first_ts delivered_ts acked_ts last_ts deleted_ts",
    _INTS: "isr replicas offline_replicas adding_replicas removing_replicas eligible_leader_replicas removed added "
    "leaders",
    _FLOW: "flow",
    pa.date32(): "date",
}

_TYPE_OF: Final = {name: kind for kind, names in _TYPES.items() for name in names.split()}


def _columns(names: str) -> pa.Schema:
    return pa.schema([(name, _TYPE_OF[name]) for name in names.split()])


_PARTITION = "cluster topic topic_id partition incarnation"

EXPECTED: Final = {
    name: _columns(columns)
    for name, columns in {
        "requests": "frame_id exchange_id capture conn_id ts api_key api_version correlation_id client_id "
        "controller_id controller_epoch broker_epoch is_kraft_controller type broker_id server_ip server_port n_topics "
        "n_partitions body_id frame_len response_frame_id latency_us error_code unmatched_reason decode_error",
        "responses": "frame_id response_frame_id exchange_id conn_id ts correlation_id api_key api_version error_code "
        "n_partition_errors",
        "partition_errors": "frame_id response_frame_id ts topic topic_id partition error_code",
        "partition_states": "body_id api_key topic topic_id partition controller_epoch leader leader_epoch "
        "partition_epoch isr replicas offline_replicas adding_replicas removing_replicas is_new "
        "leader_recovery_state delete_partition eligible_leader_replicas unclean_election",
        "frames": "frame_id capture conn_id flow direction ts ts_last ts_ns status api_key api_version correlation_id "
        "client_id frame_len body_id date",
        "bodies": "body_id api_key api_version direction payload",
        "brokers": "capture broker_id host port first_ts",
        "changes": f"{_PARTITION} controller_epoch leader_epoch partition_epoch leader isr replicas ts controller_id "
        "frame_id deleted_ts",
        "leadership": f"{_PARTITION} leader leader_epoch controller_epoch controller_id valid_from valid_to "
        "changes_seen",
        "isr_events": f"{_PARTITION} ts kind removed added isr_size under_replicated leader leader_epoch "
        "former_leader_epoch partition_epoch former_partition_epoch",
        "stale_requests": "frame_id cluster ts broker_id controller_id reason zombie seen_epoch known_epoch error_code",
        "propagation": "cluster change_id first_ts broker_id delivered_ts acked_ts lag_us",
        "errors": "api_key api_version scope error_code n first_ts last_ts",
    }.items()
}
"""The expected tables by name. Frames lack the file, which depends on how a capture is cut into files. Stored tables
lack the cluster, as none is declared; derived ones name the one that all captures of a fleet belong to."""

# ---- rows ------------------------------------------------------------------------------------------------------------

_Row = dict[str, Any]

_US: Final = 1000
_NS_A_DAY: Final = 86_400 * 1_000_000_000
_WITH_ERRORS_BY_ID: Final = 5
"""From this version on LeaderAndIsr's response names topics by id."""
_WITH_LEADER_EPOCH: Final = 3
"""From this version on StopReplica has leader epochs."""

_STATE_COLUMNS: Final = (
    "topic_id", "controller_epoch", "leader", "partition_epoch", "isr", "replicas", "offline_replicas",
    "adding_replicas", "removing_replicas", "is_new", "leader_recovery_state", "delete_partition",
)  # fmt: skip


class _Stored:
    """Gathers the rows of the stored tables.

    Attributes:
        rows: Table -> its rows; times in us since 1970.
    """

    def __init__(self) -> None:
        names = ("requests", "responses", "partition_errors", "partition_states", "frames", "bodies", "brokers")
        self.rows: dict[str, list[_Row]] = {name: [] for name in names}
        self._first_sent: dict[bytes, tuple[int, bytes]] = {}
        self._bodies: dict[bytes, _Row] = {}
        self._listed: dict[tuple[str, int], _Row] = {}

    def add(self, request: PlannedFrame, response: PlannedFrame | None) -> None:
        """Add the rows of an exchange; a response has none where the capture missed its request."""
        if request.exchange.missed:
            return
        if request.exchange.answer_missed:
            response = None
        content = request.exchange.content
        errors = _partition_errors(content) if response is not None else []
        self.rows["requests"].append(_request(request, response))
        self.rows["frames"].append(_frame_row(request))
        if request.body_id not in self._bodies:
            self.rows["partition_states"] += _states(request.body_id, content)
        self._add_body(request)
        self._add_brokers(request)
        if response is None:
            return
        self.rows["frames"].append(_frame_row(response))
        self.rows["responses"].append(_response(request, response, len(errors)))
        self._add_body(response)
        for error in errors:
            ids = {"frame_id": request.frame_id, "response_frame_id": response.frame_id}
            self.rows["partition_errors"].append(ids | {"ts": response.time_ns // _US, **error})

    def _add_body(self, frame: PlannedFrame) -> None:
        sent = (frame.time_ns, frame.frame_id)
        if frame.body_id in self._bodies and self._first_sent[frame.body_id] < sent:
            return
        self._first_sent[frame.body_id] = sent
        content = frame.exchange.content
        row = {
            "body_id": frame.body_id,
            "api_key": int(content.api_key),
            "api_version": content.version,
            "direction": frame.direction,
            "payload": _payload_of(frame),
        }
        if frame.body_id in self._bodies:
            self._bodies[frame.body_id].update(row)
        else:
            self._bodies[frame.body_id] = row
            self.rows["bodies"].append(row)

    def _add_brokers(self, frame: PlannedFrame) -> None:
        content = frame.exchange.content
        if content.api_key != ApiKey.UPDATE_METADATA:
            return
        ts = frame.time_ns // _US
        for broker in content.live:
            row = self._listed.get((frame.capture, broker))
            if row is None:
                ip, port = content.fleet.address(broker)
                row = {"capture": frame.capture, "broker_id": broker, "host": ip, "port": port, "first_ts": ts}
                self._listed[frame.capture, broker] = row
                self.rows["brokers"].append(row)
            row["first_ts"] = min(row["first_ts"], ts)


def expected_tables(
    fleet: PlannedFleet, *, per_host: bool = False, mss: int = DEFAULT_MSS, clocks: Mapping[str, str] | None = None
) -> dict[str, pa.Table]:
    """Return the expected tables of a fleet's captures. They are held in memory.

    Args:
        fleet: The fleet.
        per_host, mss: See ``write_captures``.
        clocks: Capture -> the one with whose clock its own was compared; None: the order of all times is known.

    Returns:
        The tables of ``EXPECTED`` by name.
    """
    planner = FramePlanner(per_host=per_host, mss=mss, seed=fleet.seed)
    stored = _Stored()
    for step in TrafficPlanner(fleet).steps():
        for exchange in step.exchanges:
            stored.add(*planner.record(exchange))
        planner.forget()
    rows = {**stored.rows, **derived_rows(stored.rows, clocks or {})}
    return {name: pa.Table.from_pylist(rows[name], schema) for name, schema in EXPECTED.items()}


def _payload_of(frame: PlannedFrame) -> bytes:
    """Return a frame's body as it is sent."""
    content = frame.exchange.content
    if frame.direction == "response":
        return encode_response(content)
    return b"".join(shared_body(content).pieces(frame.exchange.broker_epoch))


def _frame_row(frame: PlannedFrame) -> _Row:
    """Return the row of ``frames`` about a frame."""
    exchange, connection = frame.exchange, frame.exchange.connection
    source, target = connection.client, connection.server
    if frame.direction == "response":
        source, target = target, source
    return {
        "frame_id": frame.frame_id,
        "capture": frame.capture,
        "conn_id": frame.conn_id,
        "flow": {"src_ip": source.ip, "src_port": source.port, "dst_ip": target.ip, "dst_port": target.port},
        "direction": frame.direction,
        "ts": frame.time_ns // _US,
        "ts_last": frame.last_ns // _US,
        "ts_ns": frame.time_ns,
        "status": 0,
        "api_key": int(exchange.content.api_key),
        "api_version": exchange.content.version,
        "correlation_id": exchange.correlation_id,
        "client_id": str(exchange.content.controller.id),
        "frame_len": frame.length,
        "body_id": frame.body_id,
        "date": frame.time_ns // _NS_A_DAY,
    }


def _unmatched_reason(exchange: PlannedExchange) -> str:
    """Return why a request has no response, in the generator's own words."""
    return "the connection broke" if exchange.lost else "the capture missed the response"


def _request(request: PlannedFrame, response: PlannedFrame | None) -> _Row:
    exchange = request.exchange
    content = exchange.content
    return {
        "frame_id": request.frame_id,
        "exchange_id": request.exchange_id,
        "capture": request.capture,
        "conn_id": request.conn_id,
        "ts": request.time_ns // _US,
        "api_key": int(content.api_key),
        "api_version": content.version,
        "correlation_id": exchange.correlation_id,
        "client_id": str(content.controller.id),
        "controller_id": content.controller.id,
        "controller_epoch": content.controller.epoch,
        "broker_epoch": exchange.broker_epoch,
        "is_kraft_controller": content.controller.is_kraft_controller,
        "type": content.request_type,
        "broker_id": exchange.broker,
        "server_ip": exchange.connection.server.ip,
        "server_port": exchange.connection.server.port,
        "n_topics": len(set(content.rows["topic"])),
        "n_partitions": content.partitions,
        "body_id": request.body_id,
        "frame_len": request.length,
        "response_frame_id": response and response.frame_id,
        "latency_us": response and (response.time_ns - request.last_ns) // _US,
        "error_code": response and _error_code(content),
        "unmatched_reason": None if response else _unmatched_reason(exchange),
        "decode_error": None,
    }


def _error_code(content: Content) -> int:
    return int(content.error_code)


def _response(request: PlannedFrame, response: PlannedFrame, errors: int) -> _Row:
    content = request.exchange.content
    return {
        "frame_id": request.frame_id,
        "response_frame_id": response.frame_id,
        "exchange_id": request.exchange_id,
        "conn_id": request.conn_id,
        "ts": response.time_ns // _US,
        "correlation_id": request.exchange.correlation_id,
        "api_key": int(content.api_key),
        "api_version": content.version,
        "error_code": _error_code(content),
        "n_partition_errors": errors,
    }


def _partition_errors(content: Content) -> list[_Row]:
    if not content.partition_error:
        return []
    by_id = content.version >= _WITH_ERRORS_BY_ID
    rows = zip(content.rows["topic"], content.rows["topic_id"], content.rows["partition"], strict=True)
    return [
        {
            "topic": topic,
            "topic_id": topic_id if by_id else None,
            "partition": partition,
            "error_code": int(content.partition_error),
        }
        for topic, topic_id, partition in rows
    ]


def _states(body_id: bytes, content: Content) -> Iterator[_Row]:
    """Return the partitions of a body, in its order."""
    rows, api_key = content.rows, content.api_key
    own: _Row = dict.fromkeys(_STATE_COLUMNS)
    if api_key == ApiKey.LEADER_AND_ISR:
        own |= {"adding_replicas": [], "removing_replicas": [], "is_new": False, "leader_recovery_state": 0}
    without_epoch = api_key == ApiKey.STOP_REPLICA and content.version < _WITH_LEADER_EPOCH
    for number in range(content.partitions):
        row = {"body_id": body_id, "api_key": int(api_key), **own}
        for name, values in rows.items():
            row[name] = values[number]
        if without_epoch:
            row["leader_epoch"] = -1
        yield row


# ---- comparison ------------------------------------------------------------------------------------------------------

ANY_REASON = "unmatched_reason"
"""Columns in the generator's own words: only whether they are null is compared."""

STORED = ("requests", "responses", "partition_errors", "partition_states", "frames", "bodies", "brokers")


def assert_rows(name: str, found: pa.Table, wanted: pa.Table) -> None:
    """The same rows in any order, each as often; columns that the expected table lacks are not compared."""
    names = EXPECTED[name].names
    for column in names:
        assert found.schema.field(column).type == wanted.schema.field(column).type, f"{name}.{column}"
    here, there = (Counter(_plain(row) for row in table.select(names).to_pylist()) for table in (found, wanted))
    only_found, only_wanted = here - there, there - here
    assert not only_found | only_wanted, (
        f"{name}: {only_found.total()} rows too many, e.g. {_one(only_found, names)}; "
        f"{only_wanted.total()} are missing, e.g. {_one(only_wanted, names)}"
    )


def _plain(row: dict[str, Any]) -> tuple[Any, ...]:
    if ANY_REASON in row:
        row[ANY_REASON] = row[ANY_REASON] is not None
    return tuple(_hashable(value) for value in row.values())


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(value.values())
    return tuple(value) if isinstance(value, list) else value


def _one(rows: Counter[tuple[Any, ...]], names: Iterable[str]) -> Any:
    return dict(zip(names, next(iter(rows)), strict=True)) if rows else "none"
