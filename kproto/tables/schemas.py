"""The tables' Arrow schemas: the one place that names their columns.

Written as Spark hands them around, so that a batch made here passes ``mapInArrow`` unchanged: plain ``binary`` for ids
(16 bytes each), UTC timestamps in microseconds, list items called ``element``, everything nullable.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = [
    "BODIES",
    "DECODED",
    "FRAMES",
    "PARTITION_ERRORS",
    "PARTITION_STATES",
    "REQUESTS",
    "RESPONSES",
    "SCAN",
    "TABLES",
]

_ID: Final = pa.binary()
_TIME: Final = pa.timestamp("us", tz="UTC")
_INTS: Final = pa.list_(pa.field("element", pa.int32()))
_FLOW: Final = pa.struct(
    [("src_ip", pa.string()), ("src_port", pa.int32()), ("dst_ip", pa.string()), ("dst_port", pa.int32())]
)

_BAD_INPUT: Final = pa.struct([("reason", pa.string()), ("offset", pa.int64()), ("bytes_skipped", pa.int64())])

FRAMES: Final = pa.schema(
    [
        ("frame_id", _ID),
        ("capture", pa.string()),
        ("file", pa.string()),
        ("conn_id", _ID),
        ("flow", _FLOW),
        ("direction", pa.string()),
        ("ts", _TIME),
        ("ts_last", _TIME),
        ("ts_ns", pa.int64()),
        ("status", pa.int8()),
        ("api_key", pa.int16()),
        ("api_version", pa.int16()),
        ("correlation_id", pa.int32()),
        ("client_id", pa.string()),
        ("frame_len", pa.int32()),
        ("body_id", _ID),
        ("date", pa.date32()),
    ]
)
"""Every control frame, without its payload. ``ts`` is the first byte's time, ``ts_last`` the last one's; ``status`` 0
is whole, 3 has a gap; ``frame_len`` leaves the size field out; ``body_id`` is null where no body can be read."""

SCAN: Final = pa.schema(
    [
        *FRAMES,
        ("broker_epoch", pa.int64()),
        ("request_frame_id", _ID),
        ("unmatched_reason", pa.string()),
        ("error", pa.string()),
        ("payload", _ID),
        ("bad_input", _BAD_INPUT),
    ]
)
"""What ``scan`` yields: a frame and what only the scan knows of it. ``payload`` is the body, null where the same
``scan`` has given it before; ``request_frame_id`` is, for a response, the frame that it answers; ``error`` says why a
frame has no body. Rows without ``frame_id`` are notes, see there."""

BODIES: Final = pa.schema(
    [
        ("body_id", _ID),
        ("api_key", pa.int16()),
        ("api_version", pa.int16()),
        ("direction", pa.string()),
        ("payload", _ID),
    ]
)
"""Each distinct body once, as first sent. Two bodies that differ in their broker epoch alone are the same."""

REQUESTS: Final = pa.schema(
    [
        ("frame_id", _ID),
        ("conn_id", _ID),
        ("ts", _TIME),
        ("api_key", pa.int16()),
        ("api_version", pa.int16()),
        ("correlation_id", pa.int32()),
        ("client_id", pa.string()),
        ("controller_id", pa.int32()),
        ("controller_epoch", pa.int32()),
        ("broker_epoch", pa.int64()),
        ("is_kraft", pa.bool_()),
        ("type", pa.int8()),
        ("target_broker", pa.int32()),
        ("n_topics", pa.int32()),
        ("n_partitions", pa.int32()),
        ("body_id", _ID),
        ("frame_len", pa.int32()),
        ("response_frame_id", _ID),
        ("latency_us", pa.int64()),
        ("error_code", pa.int16()),
        ("unmatched_reason", pa.string()),
        ("decode_error", pa.string()),
    ]
)
"""One row a control request, with what was answered. Fields that the version lacks hold Kafka's default; with a
``decode_error`` the body's fields are null. ``latency_us`` is from the request's last byte to the answer's first."""

RESPONSES: Final = pa.schema(
    [
        ("frame_id", _ID),
        ("conn_id", _ID),
        ("ts", _TIME),
        ("correlation_id", pa.int32()),
        ("api_key", pa.int16()),
        ("api_version", pa.int16()),
        ("error_code", pa.int16()),
        ("n_partition_errors", pa.int32()),
    ]
)
"""One row a control response. ``n_partition_errors`` counts the partitions whose code is not 0."""

_PARTITION_ERROR: Final = [
    ("topic", pa.string()),
    ("topic_id", _ID),
    ("partition", pa.int32()),
    ("error_code", pa.int16()),
]

PARTITION_ERRORS: Final = pa.schema([("frame_id", _ID), *_PARTITION_ERROR])
"""The partitions that a response reports with a code other than 0. The frame is the response's."""

_STATE: Final = [
    ("api_key", pa.int16()),
    ("topic", pa.string()),
    ("topic_id", _ID),
    ("partition", pa.int32()),
    ("controller_epoch", pa.int32()),
    ("leader", pa.int32()),
    ("leader_epoch", pa.int32()),
    ("partition_epoch", pa.int32()),
    ("isr", _INTS),
    ("replicas", _INTS),
    ("offline", _INTS),
    ("adding", _INTS),
    ("removing", _INTS),
    ("is_new", pa.bool_()),
    ("leader_recovery_state", pa.int8()),
    ("delete_partition", pa.bool_()),
]

PARTITION_STATES: Final = pa.schema([("body_id", _ID), *_STATE])
"""The partitions of each distinct request body, in the order sent; ``requests.body_id`` tells who got them. Columns of
another API are null; fields that the version lacks hold Kafka's default."""

_HEAD: Final = pa.struct(
    [
        ("controller_id", pa.int32()),
        ("controller_epoch", pa.int32()),
        ("is_kraft", pa.bool_()),
        ("type", pa.int8()),
        ("n_topics", pa.int32()),
        ("n_partitions", pa.int32()),
        ("error_code", pa.int16()),
        ("n_partition_errors", pa.int32()),
        ("decode_error", pa.string()),
        ("brokers_id", _ID),
    ]
)
"""What is said once in a body. ``brokers_id`` names the set of live brokers in an UpdateMetadata."""

_BROKER: Final = pa.struct(
    [("brokers_id", _ID), ("broker_id", pa.int32()), ("host", pa.string()), ("ip", pa.string()), ("port", pa.int32())]
)

DECODED: Final = pa.schema(
    [
        ("body_id", _ID),
        ("head", _HEAD),
        ("state", pa.struct(_STATE)),
        ("error", pa.struct(_PARTITION_ERROR)),
        ("broker", _BROKER),
    ]
)
"""What ``decode`` yields: for each body one row with ``head`` and, as they occur in it, rows with a partition's
``state``, a partition's ``error`` or a live ``broker``'s endpoint (each set of live brokers once). The other three are
null in each row: one stream of flat rows, because a body is decoded once and Spark's ``mapInArrow`` has one output."""

TABLES: Final = {
    "frames": FRAMES,
    "bodies": BODIES,
    "requests": REQUESTS,
    "responses": RESPONSES,
    "partition_errors": PARTITION_ERRORS,
    "partition_states": PARTITION_STATES,
}
"""The tables on disk, by name."""
