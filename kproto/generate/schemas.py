"""Lists the columns of the expected tables, as the generator understands their documentation.

A column's name has one meaning and one type in all tables.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

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
    _FLAG: "is_kraft_controller is_new delete_partition under_replicated zombie",
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
        "leader_recovery_state delete_partition eligible_leader_replicas",
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

FRAMES: Final = _columns(
    "frame_id capture file conn_id flow direction ts ts_last ts_ns status api_key api_version correlation_id client_id "
    "frame_len body_id date broker_epoch request_frame_id unmatched_reason error payload"
)
"""Generated frames: the columns of ``frames``, and the facts that reading a capture would find beside them. A row
without ``frame_id`` gives the reason why the request ``request_frame_id`` has no response."""
