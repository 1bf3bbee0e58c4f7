"""Defines the tables' Arrow schemas: the only place that names and describes their columns.

The types are those that Spark uses, so that a batch made here passes ``mapInArrow`` unchanged: plain ``binary`` for ids
(16 bytes each), UTC timestamps in microseconds, list items called ``element``, everything nullable. Each field's
metadata holds its ``description``, each schema's that of its table: ``kproto tables`` prints them.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_ID: Final = pa.binary()
NO_EPOCH: Final = -1
"""A controller's id and epoch where the log of a broker, which took a change of the metadata, names no controller."""

TIME: Final = pa.timestamp("us", tz="UTC")
INTS: Final = pa.list_(pa.field("element", pa.int32()))
_FLOW: Final = pa.struct(
    [("src_ip", pa.string()), ("src_port", pa.int32()), ("dst_ip", pa.string()), ("dst_port", pa.int32())]
)


def _structs(*fields: tuple[str, pa.DataType]) -> pa.ListType:
    return pa.list_(pa.field("element", pa.struct(fields)))


_REQUEST_COUNTS: Final = _structs(("api_key", pa.int16()), ("api_version", pa.int16()), ("requests", pa.int64()))
_NOT_READ: Final = _structs(("protocol", pa.string()), ("packets", pa.int64()))
_STREAM_LOSSES: Final = _structs(
    ("conn_id", _ID), ("server_ip", pa.string()), ("server_port", pa.int32()), ("direction", pa.string()),
    ("kind", pa.string()), ("ts", TIME), ("bytes", pa.int64()),
)  # fmt: skip
_SENDERS: Final = _structs(("ip", pa.string()), ("broker_id", pa.int32()), ("ts", TIME))
_SERVERS: Final = _structs(("ip", pa.string()), ("port", pa.int32()), ("is_kafka", pa.bool_()))
_CONTROLLER_EVENTS: Final = _structs(
    ("kind", pa.string()), ("controller_id", pa.int32()), ("broker_id", pa.int32()), ("topic", pa.string()),
    ("partition", pa.int32()), ("ts", TIME), ("last_ts", TIME), ("times", pa.int64()),
)  # fmt: skip


def column(name: str, kind: pa.DataType, text: str) -> pa.Field:
    """Make a column with its description."""
    return pa.field(name, kind, metadata={"description": text})


def described(text: str, *columns: pa.Field) -> pa.Schema:
    """Make a table's schema with the table's description."""
    return pa.schema(list(columns), metadata={"description": text})


def description(of: pa.Field | pa.Schema) -> str:
    """Return the description of a column, or of a whole table."""
    return bytes((of.metadata or {}).get(b"description", b"")).decode()


_CAPTURE: Final = column(
    "capture",
    pa.string(),
    "Capture point: as declared, or the file's name without rotation and compression; after CLUSTER/ if declared.",
)
_CLUSTER: Final = column("cluster", pa.string(), "Cluster, as declared by --cluster; default: none was declared.")
_REQUEST_FRAME: Final = column(
    "frame_id", _ID, "The request's frame. Joins requests, responses, partition_errors and frames."
)
_RESPONSE_FRAME: Final = column(
    "response_frame_id", _ID, "The response's frame, null where there is none. Joins frames.frame_id."
)
_EXCHANGE: Final = column(
    "exchange_id",
    _ID,
    "The exchange: the same of each place that saw it. Count by it where several places recorded one connection.",
)
_CONNECTION: Final = column("conn_id", _ID, "The TCP connection; the same in every table.")
_API_KEY: Final = column(
    "api_key", pa.int16(), "4 LeaderAndIsr, 5 StopReplica, 6 UpdateMetadata; 1 Fetch: a batch of KRaft's metadata log."
)
_API_VERSION: Final = column("api_version", pa.int16(), "Version of the request; its response has the same.")
_CORRELATION: Final = column("correlation_id", pa.int32(), "Counts the requests of a connection; joins the two halves.")
_CLIENT: Final = column("client_id", pa.string(), "Client id of the request's header: the controller's id as text.")
_BODY: Final = column("body_id", _ID, "The body; null where it cannot be read whole. Joins bodies, partition_states.")
_LENGTH: Final = column("frame_len", pa.int32(), "Bytes of header and body, without the 4 of the size field.")
_DIRECTION: Final = column("direction", pa.string(), "request: controller to broker; response: broker to controller.")
_CONTROLLER_EPOCH: Final = column("controller_epoch", pa.int32(), "Epoch of the controller that sent the request.")

FRAMES: Final = described(
    "Every control frame, request or response, without its body.",
    column(
        "frame_id",
        _ID,
        "This frame, the same in every file that holds its packet. requests.frame_id and response_frame_id of other "
        "tables join it.",
    ),
    _CLUSTER,
    _CAPTURE,
    column("file", pa.string(), "Name of the file that the frame was read from."),
    _CONNECTION,
    column("flow", _FLOW, "Addresses and ports: from src to dst."),
    _DIRECTION,
    column("ts", TIME, "When the first byte passed (UTC, us)."),
    column("ts_last", TIME, "When the last byte passed (UTC, us)."),
    column("ts_ns", pa.int64(), "As ts, in ns since 1970."),
    column("status", pa.int8(), "0: all bytes are in the capture; 3: some are missing."),
    _API_KEY,
    _API_VERSION,
    _CORRELATION,
    _CLIENT,
    _LENGTH,
    _BODY,
    column("date", pa.date32(), "Day of ts (UTC); partitions the table on disk."),
)

CAPTURES: Final = described(
    "One row a capture file: what was read, and what is missing. Filters leave it whole.",
    _CLUSTER,
    _CAPTURE,
    column("file", pa.string(), "Name of the file."),
    column("format", pa.string(), "pcap, pcapng, request log or state-change log."),
    column("packets", pa.int64(), "Packets; of a log: the requests that it tells of."),
    column("first_ts", TIME, "When the first packet passed (UTC, us); null without packets, or if it has no time."),
    column("last_ts", TIME, "When the last packet passed (UTC, us); null without packets, or if it has no time."),
    column("connections", pa.int64(), "TCP connections with data."),
    column("kafka_connections", pa.int64(), "Connections on which a Kafka request was found."),
    column(
        "without_handshake",
        pa.int64(),
        "Kafka connections whose TCP handshake is not in the capture: they began before it.",
    ),
    column("tls_connections", pa.int64(), "Connections that speak TLS, which cannot be read."),
    column(
        "not_read",
        _NOT_READ,
        "Packets that may hide Kafka traffic and are not read, by protocol (WireGuard, IPsec ESP ...) or link type.",
    ),
    column("untimed_packets", pa.int64(), "Packets without a time."),
    column(
        "copied_connections",
        pa.int64(),
        "Connections left out because they show the packets of another one under other addresses (address "
        "translation).",
    ),
    column("partial_starts", pa.int64(), "Streams that the capture shows from the middle of a request or response on."),
    column("gaps", pa.int64(), "Stretches of bytes within Kafka's streams that are not in the capture."),
    column("gap_bytes", pa.int64(), "Bytes of those stretches."),
    column("cut_packets", pa.int64(), "TCP packets cut short by the capture's snaplen."),
    column("ip_fragments", pa.int64(), "IP fragments whose packets are not whole."),
    column("bad_checksums", pa.int64(), "Packets left out because they differ from the checksum recorded with them."),
    column("dropped_packets", pa.int64(), "Packets that the recording program says that it did not record."),
    column("unmatched_responses", pa.int64(), "Responses whose request is not in the capture."),
    column("bad_inputs", pa.int64(), "Pieces that could not be used; the first 1000 are in the table bad_inputs."),
    column(
        "losses",
        _STREAM_LOSSES,
        "The first loss of each kind on each Kafka connection, the first 1000. kind: partial start, gap, unreadable "
        "(bytes that are no frame) or given up; ts: when the last byte before it passed. A connection without any is "
        "complete.",
    ),
    column(
        "senders",
        _SENDERS,
        "Brokers' own requests (AlterPartition, ControlledShutdown, heartbeats, fetches of followers) to other "
        "machines: the id that each names, its IP address, and when the first passed.",
    ),
    column(
        "servers",
        _SERVERS,
        "Servers of Kafka's connections (is_kafka), and of those of which too little was seen to tell the protocol; "
        "the first 1000 of each.",
    ),
    column(
        "controller_events",
        _CONTROLLER_EVENTS,
        "What a controller's log tells beside requests, the first 1000: connection failed (to broker_id), resigned, "
        "deletion waits (of topic), topic deleted (where its partitions are not told), reassignment taken up (of a "
        "partition); how often each was said, from ts to last_ts.",
    ),
    column(
        "assumed_zone",
        pa.bool_(),
        "Whether times of a log that are written without a zone were read in the zone of the machine that read them.",
    ),
    column(
        "all_requests",
        _REQUEST_COUNTS,
        "Requests of every API by API and version. A request that begins in one file and ends in the next is counted "
        "if it is one of the three control requests.",
    ),
)

COUNTS: Final = [field.name for field in CAPTURES if field.type == pa.int64()]
"""The columns of ``captures`` that count: of a file that was read in parts they add up."""

_BAD_INPUT: Final = [
    column("reason", pa.string(), "What is wrong, one line; names the connection where it is about one."),
    column("offset", pa.int64(), "Byte in the unpacked file, or in the stream of the connection; null: whole file."),
    column("bytes_skipped", pa.int64(), "Bytes passed over; null: whole file."),
]

BAD_INPUTS: Final = described(
    "Pieces of captures that could not be used. Filters leave it whole.",
    column("file", pa.string(), "Name of the file. Joins captures.file."),
    *_BAD_INPUT,
)

STAGED: Final = pa.struct([("piece", pa.string()), ("batch", pa.int32()), ("row", pa.int32()), ("bytes", pa.int64())])
"""Where a body is staged: the directory of a piece, the batch of bodies there and the row in it; and its length."""

SCAN: Final = pa.schema(
    [
        *(field for field in FRAMES if field.name != "cluster"),
        ("broker_epoch", pa.int64()),
        _EXCHANGE,
        ("request_frame_id", _ID),
        ("unmatched_reason", pa.string()),
        ("error", pa.string()),
        ("payload", _ID),
        ("bad_input", pa.struct(_BAD_INPUT)),
        ("facts", pa.struct([field for field in CAPTURES if field.name not in ("cluster", "capture", "file")])),
    ]
)
"""The rows that ``scan`` yields: a frame with facts that only scans have. ``payload`` is the body, null where the same
capture has given it before; ``request_frame_id`` is, for a response, the frame that it answers; ``error`` says why a
frame has no body. Rows without ``frame_id`` are notes, described at ``scan``."""

BODIES: Final = described(
    "Each distinct body once. Two request bodies that differ in their broker epoch alone are one.",
    column("body_id", _ID, "The body. Joins frames, requests and partition_states."),
    _API_KEY,
    _API_VERSION,
    _DIRECTION,
    column("payload", _ID, "The bytes after the header, as first sent."),
)

REQUESTS: Final = described(
    "One row a control request, with the outcome. Body fields that the version lacks hold Kafka's default.",
    _REQUEST_FRAME,
    _EXCHANGE,
    _CLUSTER,
    _CAPTURE,
    _CONNECTION,
    column("ts", TIME, "When the request's first byte passed (UTC, us)."),
    _API_KEY,
    _API_VERSION,
    _CORRELATION,
    _CLIENT,
    column(
        "controller_id",
        pa.int32(),
        "Node id of the sender; null where the body cannot be read; -1, as its epoch, where a log of KRaft lacks it.",
    ),
    _CONTROLLER_EPOCH,
    column("broker_epoch", pa.int64(), "Broker epoch that the request is meant for; -1 where the version has none."),
    column("is_kraft_controller", pa.bool_(), "Whether the sender is a KRaft controller (during a migration)."),
    column("type", pa.int8(), "0 unknown, 1 incremental, 2 full: set by KRaft controllers; else 0."),
    column("live_brokers_id", _ID, "The live brokers that an UpdateMetadata lists. Joins live_brokers; else null."),
    column("broker_id", pa.int32(), "Id of the receiving broker; null where nothing tells it."),
    column("server_ip", pa.string(), "Address that the request was sent to."),
    column("server_port", pa.int32(), "TCP port that the request was sent to."),
    column("n_topics", pa.int32(), "Topics named in the body; null where it cannot be read."),
    column("n_partitions", pa.int32(), "Partitions named in the body; null where it cannot be read."),
    _BODY,
    _LENGTH,
    _RESPONSE_FRAME,
    column(
        "latency_us",
        pa.int64(),
        "From the request's last byte to the response's first, in us; null: unanswered.",
    ),
    column("error_code", pa.int16(), "Error of the whole request, 0 for none; null: unanswered, or unreadable."),
    column("unmatched_reason", pa.string(), "Why there is no response; null where there is one."),
    column("decode_error", pa.string(), "Why request or response cannot be read; null where both can."),
)

_ANSWERED: Final = column("ts", TIME, "When the response's first byte passed (UTC, us).")

RESPONSES: Final = described(
    "One row a response to a row of requests.",
    _REQUEST_FRAME,
    _RESPONSE_FRAME,
    _EXCHANGE,
    _CLUSTER,
    _CONNECTION,
    _ANSWERED,
    _CORRELATION,
    _API_KEY,
    _API_VERSION,
    column("error_code", pa.int16(), "Error of the whole request, 0 for none; null: cannot be read."),
    column("n_partition_errors", pa.int32(), "Partitions in the response with a code other than 0, filters aside."),
)

_PARTITION_ERROR: Final = [
    column("topic", pa.string(), "Topic; null where the response names an id that its request does not."),
    column("topic_id", _ID, "Topic id, from LeaderAndIsr version 5 on; else null."),
    column("partition", pa.int32(), "Partition."),
    column("error_code", pa.int16(), "Error of this partition alone, never 0."),
]

PARTITION_ERRORS: Final = described(
    "The partitions that a response reports with an error.",
    _REQUEST_FRAME,
    _RESPONSE_FRAME,
    _CLUSTER,
    _ANSWERED,
    *_PARTITION_ERROR,
)

_STATE: Final = [
    _API_KEY,
    column("topic", pa.string(), "Topic."),
    column("topic_id", _ID, "Topic id, all zero where the version has none; null of StopReplica."),
    column("partition", pa.int32(), "Partition."),
    column("controller_epoch", pa.int32(), "Epoch of the controller that decided this state; null of StopReplica."),
    column("leader", pa.int32(), "Leader; -1 none, -2 the topic is being deleted; null of StopReplica."),
    column("leader_epoch", pa.int32(), "Leader epoch; -1 where StopReplica's version has none, -2 on deletion."),
    column("partition_epoch", pa.int32(), "Partition epoch (ZooKeeper version); null of StopReplica."),
    column("isr", INTS, "In-sync replicas; null of StopReplica."),
    column("replicas", INTS, "All replicas, the preferred leader first; null of StopReplica."),
    column("offline_replicas", INTS, "Offline replicas; of UpdateMetadata alone."),
    column("adding_replicas", INTS, "Replicas being added; of LeaderAndIsr alone."),
    column("removing_replicas", INTS, "Replicas being removed; of LeaderAndIsr alone."),
    column("is_new", pa.bool_(), "Whether the replica is new; of LeaderAndIsr alone."),
    column(
        "leader_recovery_state",
        pa.int8(),
        "1 after an unclean election, else 0; of LeaderAndIsr and KRaft's metadata log alone.",
    ),
    column("delete_partition", pa.bool_(), "Whether the log is to be deleted; of StopReplica alone."),
    column("eligible_leader_replicas", INTS, "Replicas outside the ISR that may lead; of KRaft's metadata log alone."),
    column("unclean_election", pa.bool_(), "Whether a leader not in sync was elected; of KRaft's metadata log alone."),
]

PARTITION_STATES: Final = described(
    "The partitions of each distinct request body, in the order sent. requests.body_id tells which brokers got them.",
    column("body_id", _ID, "The request body. Joins requests, frames and bodies."),
    *_STATE,
)

BROKERS: Final = described(
    "Listeners of brokers, as UpdateMetadata lists the live ones. Filters leave it whole.",
    _CLUSTER,
    _CAPTURE,
    column("broker_id", pa.int32(), "Broker."),
    column("host", pa.string(), "Host of a listener, as advertised."),
    column("port", pa.int32(), "TCP port of the listener."),
    column("first_ts", TIME, "When the capture first shows an UpdateMetadata that lists it (UTC, us)."),
)

LIVE_BROKERS: Final = described(
    "Each list of live brokers in an UpdateMetadata once, with their listeners. Filters leave it whole.",
    column("live_brokers_id", _ID, "The list. Joins requests."),
    column("broker_id", pa.int32(), "A broker in it."),
    column("host", pa.string(), "Host of a listener, as advertised; null: a metadata log tells the ids alone."),
    column("port", pa.int32(), "TCP port of the listener; null as host."),
    column("listener", pa.string(), "Name of the listener, before 1.0 its security protocol; null as host."),
)

_HEAD: Final = pa.schema(
    [
        ("body_id", _ID),
        ("controller_id", pa.int32()),
        ("controller_epoch", pa.int32()),
        ("is_kraft_controller", pa.bool_()),
        ("type", pa.int8()),
        ("n_topics", pa.int32()),
        ("n_partitions", pa.int32()),
        ("error_code", pa.int16()),
        ("n_partition_errors", pa.int32()),
        ("decode_error", pa.string()),
        ("brokers_id", _ID),
        ("common_replicas", INTS),
    ]
)
"""Fields that a body has once. ``brokers_id`` names the set of live brokers in an UpdateMetadata; ``common_replicas``
are the replicas that all partitions of a LeaderAndIsr share, null where it has no partitions."""

PARTS: Final = {
    "head": _HEAD,
    "state": PARTITION_STATES,
    "error": pa.schema([("body_id", _ID), *_PARTITION_ERROR]),
    "broker": pa.schema([("brokers_id", _ID), *list(LIVE_BROKERS)[1:]]),
}
"""The kinds of rows that ``decode`` yields: for each body one ``head`` and, as they occur in it, a row for each
partition's ``state`` or ``error``, and for each live ``broker``'s endpoint (each set of live brokers once)."""

TABLES: Final = {
    "requests": REQUESTS,
    "responses": RESPONSES,
    "partition_errors": PARTITION_ERRORS,
    "partition_states": PARTITION_STATES,
    "frames": FRAMES,
    "bodies": BODIES,
    "brokers": BROKERS,
    "live_brokers": LIVE_BROKERS,
    "captures": CAPTURES,
    "bad_inputs": BAD_INPUTS,
}
"""The tables, by name."""

KNOWN: Final = {
    "known_recordings": pa.schema(
        [
            ("id", pa.string()), ("capture", pa.string()), ("cluster", pa.string()), ("place", pa.binary()),
            ("start", pa.string()), ("start_bytes", pa.int64()), ("length", pa.int64()), ("size", pa.int64()),
            ("tail", pa.string()), ("has_context", pa.bool_()), ("was_set", pa.bool_()),
            ("behind_ns", pa.int64()),
        ]
    ),
    "known_names": pa.schema(
        [
            ("name", pa.binary()), ("recording", pa.string()), ("file", pa.binary()), ("size", pa.int64()),
            ("time_ns", pa.int64()),
        ]
    ),
    "known_borders": pa.schema(
        [
            ("id", pa.string()), ("at", pa.binary()), ("back_at", pa.binary()), ("is_end", pa.bool_()),
            ("part", pa.string()), ("capture", pa.string()), ("file", pa.binary()), ("place", pa.binary()),
            ("state", pa.string()), ("edges", pa.string()), ("flow", pa.binary()), ("sequence", pa.int64()),
            ("back_sequence", pa.int64()), ("time_ns", pa.int64()), ("conn_id", pa.binary()), ("is_sure", pa.bool_()),
        ]
    ),
    "known_bodies": pa.schema([("body_id", pa.binary())]),
    "known_batches": pa.schema([("snapshot", pa.string()), ("sent_in", pa.int32()), ("data", pa.large_binary())]),
}  # fmt: skip
"""What runs must know of earlier ones, by the names of the tables: see ``kproto.tables.known``. Of ``known_batches``,
KRaft's metadata log itself, see ``kproto.tables.metadata_rows``."""


def _of_log(text: str, *columns: pa.Field) -> pa.Schema:
    """Make the schema of a table that KRaft's metadata log has."""
    return described(text, _CLUSTER, _CAPTURE, *columns)


METADATA_TABLES: Final = {
    "metadata_deliveries": _of_log(
        "When each batch of KRaft's metadata log was told to each replica, committed and applied, as captures show it.",
        column("body_id", _ID, "The batch. Joins requests and partition_states."),
        column("node_id", pa.int32(), "The replica: a broker or a node of the quorum."),
        column("controller_epoch", pa.int32(), "The quorum's epoch."),
        column("log_offset", pa.int64(), "Offset of the batch's last record."),
        column("told_ts", TIME, "When an answer first carried it to the replica (UTC, us)."),
        column(
            "committed_ts",
            TIME,
            "When an answer to any replica first named a high watermark beyond it (UTC, us); null: none did, or the "
            "first one that captures show.",
        ),
        column("applied_ts", TIME, "When a heartbeat of the broker first named its offset (UTC, us); null: none did."),
    ),
    "broker_states": _of_log(
        "What each broker was to KRaft's controller, from when to when, by the metadata log.",
        column("broker_id", pa.int32(), "Broker."),
        column("state", pa.string(), "fenced, unfenced, in controlled shutdown or unregistered."),
        column("broker_epoch", pa.int64(), "Epoch of its registration: the offset of its RegisterBrokerRecord."),
        column(
            "incarnation_id", _ID, "Of its process: a new one with each start; null: its registration is not shown."
        ),
        column(
            "is_start", pa.bool_(), "Whether a process of the broker began here: it registered with a new incarnation."
        ),
        column("valid_from", TIME, "When the controller wrote the record that began it (UTC, us)."),
        column("valid_to", TIME, "When the next state began, or the log has a gap (UTC, us); null: it lasts."),
        column("why", pa.string(), "What began it, as far as records tell."),
        column("log_offset", pa.int64(), "Offset of the record that began it; null: a snapshot shows it."),
        column("evidence", pa.string(), "What the broker's heartbeats tell of it; null: captures show none."),
    ),
    "broker_registrations": _of_log(
        "Registrations that a broker's process asked of KRaft's controller and that were answered alike, as captures "
        "show.",
        column("broker_id", pa.int32(), "Broker."),
        column("incarnation_id", _ID, "Of its process."),
        column("cluster_id", pa.string(), "The cluster to which its storage belongs."),
        column("address", pa.string(), "Where the requests came from."),
        column("listeners", pa.list_(pa.string()), "The addresses that it would have."),
        column("error_code", pa.int16(), "The controller's answer; null: missing."),
        column("broker_epoch", pa.int64(), "The epoch that it was given; null: none."),
        column("first_ts", TIME, "When the first was sent (UTC, us)."),
        column("last_ts", TIME, "When the last was sent (UTC, us)."),
        column("requests", pa.int64(), "Their number."),
    ),
    "broker_heartbeats": _of_log(
        "Runs of heartbeats of a broker that asked for the same and were answered alike, as captures show them.",
        column("broker_id", pa.int32(), "Broker."),
        column("broker_epoch", pa.int64(), "The epoch that it named: that of its registration."),
        column("first_ts", TIME, "When the first was sent (UTC, us)."),
        column("last_ts", TIME, "When the last was sent (UTC, us)."),
        column("heartbeats", pa.int64(), "Their number."),
        column(
            "longest_gap_us", pa.int64(), "The longest time before one of them since the one of this epoch before it."
        ),
        column("wants_fence", pa.bool_(), "Whether the broker asked to be, or to stay, fenced."),
        column("wants_shutdown", pa.bool_(), "Whether it asked for its controlled shutdown."),
        column("error_code", pa.int16(), "The controller's answer; null: missing."),
        column(
            "is_fenced", pa.bool_(), "Whether the answers said fenced; null: missing, or errors, which leave it open."
        ),
        column("is_caught_up", pa.bool_(), "Whether the answers said caught up with the log; null: as is_fenced."),
        column("last_offset", pa.int64(), "The offset that the broker had applied in the last."),
    ),
    "broker_progress": _of_log(
        "How far each broker had applied the metadata log: its worst heartbeat of each ten seconds.",
        column("broker_id", pa.int32(), "Broker."),
        column("ts", TIME, "When the heartbeat was sent (UTC, us)."),
        column("told_offset", pa.int64(), "The last offset that answers had carried to it by then; null: none."),
        column(
            "committed_offset", pa.int64(), "The last that was committed by then, as answers said; null: not shown."
        ),
        column("applied_offset", pa.int64(), "The offset that it had applied."),
        column("lag_us", pa.int64(), "For how long the process had lacked a committed offset; 0: it lacked none."),
        column("late", pa.int64(), "Heartbeats of these ten seconds that were behind by over a second."),
    ),
    "quorum_epochs": _of_log(
        "The epochs of KRaft's quorum and their leaders, the active controllers.",
        column("controller_epoch", pa.int32(), "The epoch."),
        column("controller_id", pa.int32(), "Its leader, a node of the quorum."),
        column("valid_from", TIME, "When it wrote that it leads (UTC, us); null: the files do not have that record."),
        column(
            "valid_to",
            TIME,
            "When the next leader did, or a gap in the log began (UTC, us); null: neither.",
        ),
        column("voters", INTS, "Node ids of the voters; null where the record is missing."),
        column("granting_voters", INTS, "Those that are known to have voted for it; null where the record is missing."),
        column(
            "log_offset",
            pa.int64(),
            "Offset of its LeaderChange record; null: quorum-state or captures tell of it.",
        ),
        column("served_ts", TIME, "When a fetch was last answered in the epoch before (UTC, us); null: not shown."),
        column("led_ts", TIME, "When captures first show its leader lead (UTC, us); null: they do not."),
        column("candidates", INTS, "Node ids of those that asked for votes; null: no capture shows the time."),
        column("failed_elections", pa.int32(), "Epochs since the one before for which votes were asked in vain."),
        column(
            "late_ts", TIME, "When the leader before last answered a fetch after led_ts (UTC, us); null: it did not."
        ),
        column("why", pa.string(), "Why the controller changed; null: captures do not show it."),
    ),
    "quorum_members": _of_log(
        "The members of KRaft's quorum: who votes and who only follows the log, since when, and what tells it.",
        column("node_id", pa.int32(), "The node."),
        column("role", pa.string(), "voter or observer; null: nothing tells who votes."),
        column("directory_id", _ID, "The directory by which it votes; null: not told."),
        column(
            "valid_from", TIME, "When this was first told (UTC, us), by the clock of what tells it; null: not dated."
        ),
        column("valid_to", TIME, "When it was told to have ended (UTC, us); null: it was not."),
        column(
            "told_by",
            pa.string(),
            "What told it first: LeaderChange, VotersRecord, RegisterBroker, RegisterController, snapshot, "
            "quorum-state; of captures Fetch or DescribeQuorum.",
        ),
        column("log_offset", pa.int64(), "Offset of the record that did; null: it was none, or one in a snapshot."),
        column(
            "last_offset", pa.int64(), "The last offset that it had when it last fetched; null: no capture shows it."
        ),
        column("fetched_ts", TIME, "When it last fetched (UTC, us); null: not shown, or it led."),
    ),
    "quorum_requests": _of_log(
        "Votes, begins and ends of KRaft's epochs, and refused fetches of its log; those alike in a row are one row.",
        column("first_ts", TIME, "When the first was sent (UTC, us)."),
        column("last_ts", TIME, "When the last was sent (UTC, us)."),
        column("count", pa.int64(), "Their number."),
        column("api_key", pa.int16(), "52 Vote, 53 BeginQuorumEpoch, 54 EndQuorumEpoch; 1 Fetch."),
        column("node_id", pa.int32(), "The node that asked."),
        column("to_node", pa.int32(), "The node that was asked; null: the request does not say."),
        column("controller_epoch", pa.int32(), "The epoch that it named."),
        column("is_pre_vote", pa.bool_(), "Whether it asked only whether it would win."),
        column("is_granted", pa.bool_(), "Whether it got the vote; null: no vote, or no answer."),
        column("error_code", pa.int16(), "The answer; null: missing."),
        column("leader_id", pa.int32(), "The leader that the answer named; null: none."),
        column("leader_epoch", pa.int32(), "The epoch that the answer named; null: none."),
        column("is_diverging", pa.bool_(), "Whether the answer told the replica to cut off the end of its log."),
    ),
    "quorum_outages": _of_log(
        "Times in which nodes asked KRaft's quorum and no leader answered, as captures show them.",
        column("valid_from", TIME, "The last answer before it (UTC, us)."),
        column(
            "valid_to", TIME, "The first answer after it, or when nobody asked any more (UTC, us); null: captures end."
        ),
        column("last_ts", TIME, "When a node last asked in it (UTC, us)."),
        column("votes", pa.int64(), "Votes that were asked for, pre-votes too."),
        column("elections", pa.int64(), "Epochs for which they were, without pre-votes."),
        column("refused", pa.int64(), "Fetches that were refused or not answered."),
        column("nodes", INTS, "The nodes that asked."),
    ),
    "admin_changes": _of_log(
        "What administrative requests asked KRaft's controller for, who asked, and the records that it made of them.",
        column("ts", TIME, "When the request passed (UTC, us)."),
        column("client_id", pa.string(), "As the client named itself."),
        column(
            "client_address", pa.string(), "The client's address; that of the connection where no broker passed it on."
        ),
        column(
            "principal", pa.string(), "As whom the broker knew the client, User:alice; null: the capture does not show."
        ),
        column("api_key", pa.int16(), "The request's API."),
        column("topic", pa.string(), "The topic; null: it is about something else."),
        column("partition", pa.int32(), "The partition; null: it is about the whole topic, or something else."),
        column("what", pa.string(), "What was asked for; values of secrets are hidden."),
        column("error_code", pa.int16(), "The answer; null: missing."),
        column("log_offset", pa.int64(), "Offset of the first record that it made; null: none, or see note."),
        column("records", pa.int64(), "The number of records that it made, as far as they name what was asked for."),
        column("note", pa.string(), "Why no record is named; null: one is, or the request was refused."),
    ),
    "metadata_records": _of_log(
        "Each record of KRaft's metadata log, without secrets; NoOp records are left out.",
        column("log_offset", pa.int64(), "Offset; in a snapshot, the place there."),
        column("snapshot", pa.string(), "Name of the snapshot that holds it; null: the log."),
        column("ts", TIME, "When the controller wrote it (UTC, us)."),
        column("controller_epoch", pa.int32(), "The quorum's epoch."),
        column("type", pa.string(), "The record's type, as Kafka's dump names it."),
        column("version", pa.int16(), "Its version."),
        column("data", pa.string(), "Its fields as JSON; null: it cannot be read."),
        column("body_id", _ID, "Its batch. Joins requests and partition_states."),
    ),
}
"""The tables that KRaft's metadata log has beside ``TABLES``, by name; ``kproto analyze`` stores them where files of
the log are named."""

_FRAME: Final = "cluster conn_id api_key api_version correlation_id ts frame_id"
_OF_LOG: Final = "cluster capture"

NEVER_NULL: Final = {
    name: frozenset(paths.split())
    for name, paths in {
        "requests": f"{_FRAME} capture server_ip server_port frame_len",
        "responses": f"{_FRAME} response_frame_id exchange_id",
        "partition_errors": "frame_id response_frame_id cluster ts partition error_code",
        "partition_states": "body_id api_key topic partition leader_epoch",
        "frames": f"{_FRAME} capture file flow flow.src_ip flow.src_port flow.dst_ip flow.dst_port direction ts_last "
        "ts_ns status frame_len",
        "bodies": "body_id api_key api_version direction",
        "brokers": "cluster capture broker_id host port first_ts",
        "live_brokers": "live_brokers_id broker_id",
        "captures": " ".join(
            [
                "cluster capture file format not_read losses all_requests losses[].conn_id losses[].server_ip",
                "losses[].server_port losses[].kind losses[].ts senders[].ip senders[].broker_id senders[].ts",
                "servers[].ip servers[].port servers[].is_kafka controller_events[].kind controller_events[].ts",
                "controller_events[].last_ts controller_events[].times not_read[].protocol not_read[].packets",
                "all_requests[].api_key all_requests[].api_version all_requests[].requests",
                *COUNTS,
            ]
        ),
        "bad_inputs": "file reason",
        **{name: schema.names[0] for name, schema in KNOWN.items() if name != "known_batches"},
        "metadata_deliveries": f"{_OF_LOG} body_id node_id controller_epoch log_offset told_ts",
        "broker_states": f"{_OF_LOG} broker_id state broker_epoch is_start valid_from why",
        "broker_registrations": f"{_OF_LOG} broker_id incarnation_id cluster_id address listeners first_ts last_ts "
        "requests",
        "broker_heartbeats": f"{_OF_LOG} broker_id broker_epoch first_ts last_ts heartbeats longest_gap_us wants_fence "
        "wants_shutdown last_offset",
        "broker_progress": f"{_OF_LOG} broker_id ts applied_offset lag_us late",
        "quorum_epochs": f"{_OF_LOG} controller_epoch controller_id",
        "quorum_members": f"{_OF_LOG} node_id told_by",
        "quorum_requests": f"{_OF_LOG} first_ts last_ts count api_key node_id controller_epoch is_pre_vote",
        "quorum_outages": f"{_OF_LOG} valid_from last_ts votes elections refused nodes",
        "admin_changes": f"{_OF_LOG} ts client_address api_key what records",
        "metadata_records": f"{_OF_LOG} log_offset ts body_id",
    }.items()
}
"""The columns of stored tables, and what is in them, in which kproto writes no null, by table. No element of a list is
null either, ``losses[]``. Schemas do not say so: with what Spark makes of them, everything may be."""

NULL_OF_STOP_REPLICA: Final = frozenset(["controller_epoch", "leader"])
"""The columns of ``partition_states`` in which kproto writes null for StopReplica alone."""

BROKER_DAYS: Final = described(
    "Figures of each day and broker, stored by kproto tables rollup; those of several days add up.",
    column("date", pa.date32(), "Day (UTC)."),
    _CLUSTER,
    column("broker_id", pa.int32(), "Broker; null: the cluster as a whole."),
    column("requests", pa.int64(), "Control requests sent to it."),
    column("refusals", pa.int64(), "Of these: refused as a whole."),
    column("unanswered", pa.int64(), "Of these: without a response in the captures."),
    column("leader_changes", pa.int64(), "Partitions whose leader it was no more; of a cluster: all changes."),
    column("isr_shrinks", pa.int64(), "How often it left an ISR; of a cluster: how often an ISR lost brokers."),
    column("out_of_isr_minutes", pa.float64(), "Minutes that it lacked in ISRs, summed over its partitions."),
    column("offline_minutes", pa.float64(), "Minutes of partitions without leader that have it in the ISR, summed."),
    column("updates", pa.int64(), "Metadata updates that it was sent."),
    column(
        "lag_us_log",
        pa.map_(pa.int32(), pa.int64()),
        "How many updates came how long after the first broker's: floor(8 log2(us)) -> updates.",
    ),
)
