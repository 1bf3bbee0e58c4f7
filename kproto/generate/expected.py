"""Makes the expected tables of a fleet's capture from the generated history, without reading the capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kproto.api import ApiKey

from .bodies import encode_response, shared_body
from .expected_derived import derived_rows
from .files import DEFAULT_MSS
from .schemas import EXPECTED
from .traffic import steps
from .wire import FramePlanner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .content import Content
    from .fleet import PlannedFleet
    from .traffic import PlannedExchange
    from .wire import PlannedFrame

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
        self.rows["frames"].append(frame_row(request))
        if request.body_id not in self._bodies:
            self.rows["partition_states"] += _states(request.body_id, content)
        self._add_body(request)
        self._add_brokers(request)
        if response is None:
            return
        self.rows["frames"].append(frame_row(response))
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
            "payload": payload_of(frame),
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


def expected_tables(fleet: PlannedFleet, *, per_host: bool = False, mss: int = DEFAULT_MSS) -> dict[str, pa.Table]:
    """Return the expected tables of a fleet's captures. They are held in memory.

    Args:
        fleet: The fleet.
        per_host, mss: See ``write_captures``.

    Returns:
        The tables of ``kproto.generate.schemas.EXPECTED`` by name.
    """
    planner = FramePlanner(per_host=per_host, mss=mss, seed=fleet.seed)
    stored = _Stored()
    for step in steps(fleet):
        for exchange in step.exchanges:
            stored.add(*planner.record(exchange))
        planner.forget()
    rows = {**stored.rows, **derived_rows(stored.rows)}
    return {name: pa.Table.from_pylist(rows[name], schema) for name, schema in EXPECTED.items()}


def payload_of(frame: PlannedFrame) -> bytes:
    """Return a frame's body as it is sent."""
    content = frame.exchange.content
    if frame.direction == "response":
        return encode_response(content)
    return b"".join(shared_body(content).pieces(frame.exchange.broker_epoch))


def frame_row(frame: PlannedFrame) -> _Row:
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
        "unmatched_reason": None if response else unmatched_reason(exchange),
        "decode_error": None,
    }


def unmatched_reason(exchange: PlannedExchange) -> str:
    """Return why a request has no response, in the generator's own words."""
    return "the connection broke" if exchange.lost else "the capture missed the response"


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
