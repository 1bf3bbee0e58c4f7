"""Joins the scan and the decoded bodies into the tables, by pyarrow alone; ``kproto.pipeline`` joins them with Spark.

All functions take and give whole ``pyarrow.Table``s. Rows are joined by the position of their key in the other table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import CONTROL_APIS, ApiKey
from kproto.capture.capture_points import without_number
from kproto.capture.collector import CAPTURE_ENDED
from kproto.capture.summary import SAID_OF_READ
from kproto.tables.arrays import rows_of
from kproto.tables.brokers import id_at
from kproto.tables.clusters import NODE
from kproto.tables.schemas import (
    BAD_INPUTS,
    BODIES,
    BROKERS,
    CAPTURES,
    FRAMES,
    LIVE_BROKERS,
    NO_EPOCH,
    PARTITION_ERRORS,
    PARTITION_STATES,
    PARTS,
    REQUESTS,
    RESPONSES,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kproto.tables.brokers import BrokerDirectory, BrokerFacts
    from kproto.tables.filters import Filters


class Decoded:
    """Decoded bodies as flat tables keyed by ``body_id``: the four kinds of rows that ``decode`` yields.

    Attributes:
        wanted: Bodies that name a wanted partition, whose states are not in memory any more; filled only where
            partitions are chosen.
        topics: Topic id -> topic, as requests named it.
    """

    def __init__(self) -> None:
        self.wanted: set[bytes] = set()
        self.topics: dict[bytes, str] = {}
        self._parts: dict[str, list[pa.RecordBatch]] = {name: [] for name in PARTS}
        self._used = pa.array([], pa.binary())  # the bodies that are remembered, those that were used last at the end

    def add(self, name: str, batch: pa.RecordBatch) -> None:
        """Add rows of one kind, as ``decode`` yields them."""
        self._parts[name].append(batch)

    def table(self, name: str) -> pa.Table:
        """All rows of one kind."""
        return pa.Table.from_batches(self._parts[name], PARTS[name])

    def of_bodies(self, name: str, body_ids: pa.ChunkedArray) -> pa.Table:
        """The rows of one kind that belong to some bodies."""
        rows = self.table(name)
        return rows.filter(pc.is_in(rows["body_id"], value_set=_column(pc.unique(body_ids)), skip_nulls=True))

    def unknown(self, body_ids: pa.ChunkedArray) -> pa.ChunkedArray:
        """Whether each body is none of those that are remembered."""
        return pc.invert(pc.is_in(body_ids, value_set=_column(self.table("head")["body_id"])))

    def forget_states(self) -> None:
        """Drop the states of partitions."""
        self._parts["state"].clear()

    def keep_recent(self, body_ids: pa.ChunkedArray, most: int) -> None:
        """Drop the rows of bodies that were used long ago.

        Args:
            body_ids: The bodies that were used since the call before, in the order of their use.
            most: The number of bodies used last that are kept; up to as many more may be.
        """
        backwards = pa.array(range(len(body_ids) - 1, -1, -1), pa.int64())
        used = pc.unique(_column(body_ids).take(backwards)).drop_null()
        used = used.take(pa.array(range(len(used) - 1, -1, -1), pa.int64()))
        earlier = self._used.filter(pc.invert(pc.is_in(self._used, value_set=used)))
        self._used = pa.concat_arrays([earlier, used])[-most:]
        if self.table("head").num_rows <= 2 * most:
            return
        self.wanted.intersection_update(self._used.to_pylist())
        for name in ("head", "error"):
            self._parts[name] = self._kept(self.table(name), "body_id", self._used)
        listeners = self.table("broker")
        listeners = listeners.group_by(listeners.column_names, use_threads=False).aggregate([])
        named = _column(pc.unique(self.table("head")["brokers_id"])).drop_null()
        self._parts["broker"] = self._kept(listeners, "brokers_id", named)

    @staticmethod
    def _kept(rows: pa.Table, key: str, values: pa.Array) -> list[pa.RecordBatch]:
        kept: pa.Table = rows.filter(pc.is_in(rows[key], value_set=values)).combine_chunks()
        return list(kept.to_batches())


class Relations:
    """The tables of a scan and its decoded bodies.

    Args:
        scan: Of the schema ``SCAN``.
        decoded: Its decoded bodies.
        directory: Tells the brokers' ids; has learnt from this scan.
        filters: The requests to keep.
        cluster: The declared cluster of the captures.
    """

    def __init__(
        self,
        scan: pa.Table,
        decoded: Decoded,
        directory: BrokerDirectory | BrokerFacts,
        filters: Filters,
        cluster: str,
    ) -> None:
        self._cluster = cluster
        self._scan = scan
        self._decoded = decoded
        self._directory = directory
        self._filters = filters
        self._heads = decoded.of_bodies("head", scan["body_id"])
        is_frame = pc.is_valid(scan["frame_id"])
        is_response = pc.equal(scan["direction"], "response")
        self._responses = scan.filter(pc.and_(is_frame, is_response))
        notes = scan.filter(pc.and_(pc.invert(is_frame), pc.is_valid(scan["request_frame_id"])))
        ended = pc.fill_null(pc.equal(notes["unmatched_reason"], CAPTURE_ENDED), False)
        # the first note of a request counts: one that knows the reason before the end of a part that others go on from
        self._notes = pa.concat_tables([notes.filter(pc.invert(ended)), notes.filter(ended)])
        self._every = scan.filter(pc.and_(is_frame, pc.invert(is_response)))

    def requests(self) -> pa.Table:
        """The table ``requests``, of the wanted requests."""
        requests = self._every
        head = _joined(requests["body_id"], self._heads, "body_id")
        answer = _joined(requests["frame_id"], self._responses, "request_frame_id")
        answer_head = _joined(answer["body_id"], self._heads, "body_id")
        note = _joined(requests["frame_id"], self._notes, "request_frame_id")
        answered = pc.is_valid(answer["frame_id"])
        broken_answer = pc.binary_join_element_wise(
            "response: ", pc.coalesce(answer["error"], answer_head["decode_error"]), ""
        )
        flow = requests["flow"]
        is_told = pc.not_equal(head["controller_epoch"], NO_EPOCH)
        columns = {
            "cluster": _repeated(self._cluster, requests),
            **{name: requests[name] for name in requests.column_names if name in REQUESTS.names},
            **{name: head[name] for name in ("controller_id", "controller_epoch", "type")},
            "is_kraft_controller": pc.if_else(is_told, head["is_kraft_controller"], None),
            "live_brokers_id": head["brokers_id"],
            "n_topics": head["n_topics"],
            "n_partitions": head["n_partitions"],
            "server_ip": pc.struct_field(flow, "dst_ip"),
            "server_port": pc.struct_field(flow, "dst_port"),
            "response_frame_id": answer["frame_id"],
            "latency_us": pc.subtract(answer["ts"].cast(pa.int64()), requests["ts_last"].cast(pa.int64())),
            "error_code": answer_head["error_code"],
            "unmatched_reason": pc.if_else(answered, None, note["unmatched_reason"]),
            "decode_error": pc.coalesce(requests["error"], head["decode_error"], broken_answer),
        }
        sent = pa.table({name: columns[name] for name in NODE})
        columns["broker_id"] = broker_ids_of(self._directory, sent, requests["ts_ns"].to_pylist())
        return self._wanted(_as_table(columns, REQUESTS), requests["ts_ns"])

    def _wanted(self, requests: pa.Table, time_ns: pa.ChunkedArray) -> pa.Table:
        filters = self._filters
        keep = _is_in(requests["api_key"], filters.apis or CONTROL_APIS)
        if filters.since_ns is not None:
            keep = pc.and_(keep, pc.greater_equal(time_ns, filters.since_ns))
        if filters.until_ns is not None:
            keep = pc.and_(keep, pc.less(time_ns, filters.until_ns))
        if filters.brokers:
            keep = pc.and_(keep, _is_in(requests["broker_id"], filters.brokers))
        if filters.controllers:
            keep = pc.and_(keep, _is_in(requests["controller_id"], filters.controllers))
        if filters.by_partition:
            self._decoded.wanted.update(pc.unique(self._states()["body_id"]).to_pylist())
            keep = pc.and_(keep, _is_in(requests["body_id"], self._decoded.wanted))
        requests = requests.filter(keep)
        if not filters.errors:
            return requests
        failed = pc.is_valid(requests["decode_error"])
        failed = pc.or_(failed, pc.fill_null(pc.not_equal(requests["error_code"], 0), False))
        if filters.errors == "request":
            return requests.filter(failed)
        frames = self.partition_errors(requests)["frame_id"]
        in_partition = pc.is_in(requests["frame_id"], value_set=_column(frames))
        return requests.filter(in_partition if filters.errors == "partition" else pc.or_(failed, in_partition))

    def responses(self, requests: pa.Table) -> pa.Table:
        """The table ``responses``: those that answer ``requests``."""
        found = self._responses.filter(
            pc.is_in(self._responses["frame_id"], value_set=_column(requests["response_frame_id"]), skip_nulls=True)
        )
        head = _joined(found["body_id"], self._heads, "body_id")
        return _as_table(
            {
                **{name: found[name] for name in found.column_names if name in RESPONSES.names},
                "frame_id": found["request_frame_id"],
                "response_frame_id": found["frame_id"],
                "cluster": _repeated(self._cluster, found),
                "error_code": head["error_code"],
                "n_partition_errors": head["n_partition_errors"],
            },
            RESPONSES,
        )

    def partition_errors(self, requests: pa.Table) -> pa.Table:
        """The table ``partition_errors``. Responses that name topics by id get the names from their requests."""
        answered = requests.filter(pc.is_valid(requests["response_frame_id"]))
        answer = _joined(answered["response_frame_id"], self._responses, "frame_id")
        errors = self._decoded.of_bodies("error", answer["body_id"])
        # One body of errors may answer several requests: its rows come for each of them.
        numbers = pa.array(range(answered.num_rows), pa.int64())
        asked = pa.table({"number": numbers, "body_id": answer["body_id"]})
        errors = errors.append_column("row", pa.array(range(errors.num_rows), pa.int64()))
        errors = errors.join(asked, "body_id", join_type="inner", use_threads=False)
        errors = errors.sort_by([("number", "ascending"), ("row", "ascending")])
        named = answered.take(errors["number"])
        columns = {name: errors[name] for name in PARTITION_ERRORS.names if name in errors.column_names}
        columns |= {name: named[name] for name in ("frame_id", "response_frame_id", "cluster")}
        columns["ts"] = answer["ts"].take(errors["number"])
        columns["topic"] = self._topic_names(errors, named["body_id"])
        return wanted_partitions(_as_table(columns, PARTITION_ERRORS), self._filters)

    def _topic_names(self, errors: pa.Table, request_bodies: pa.ChunkedArray) -> pa.Array:
        topics = self._decoded.topics
        states = self._decoded.table("state")
        named = states.select(["topic_id", "topic"]).group_by(["topic_id", "topic"], use_threads=False).aggregate([])
        topics.update((topic_id, topic) for topic_id, topic in rows_of(named) if topic_id is not None)
        states = states.filter(pc.is_in(states["body_id"], value_set=_column(pc.unique(request_bodies))))
        names: dict[tuple[bytes, bytes], str] = {}
        for body_id, topic_id, topic in rows_of(states, ("body_id", "topic_id", "topic")):
            known = names.setdefault((body_id, topic_id), topic)
            names[body_id, topic_id] = min(known, topic)
        at_hand = {body_id for body_id, _topic_id in names}
        topics.update((topic_id, topic) for (_body_id, topic_id), topic in names.items())
        found: list[str | None] = []
        rows = zip(errors["topic"].to_pylist(), request_bodies.to_pylist(), errors["topic_id"].to_pylist(), strict=True)
        for topic, body_id, topic_id in rows:
            if topic is None:
                topic = names.get((body_id, topic_id)) if body_id in at_hand else topics.get(topic_id)
            found.append(topic)
        return pa.array(found, pa.string())

    def partition_states(self, requests: pa.Table) -> pa.Table:
        """The table ``partition_states``: of the bodies of ``requests``, each once."""
        states = self._states()
        if self._filters.by_request:
            states = states.filter(pc.is_in(states["body_id"], value_set=_column(pc.unique(requests["body_id"]))))
        return _as_table({name: states[name] for name in PARTITION_STATES.names}, PARTITION_STATES)

    def frames(self, requests: pa.Table) -> pa.Table:
        """The table ``frames``: of ``requests`` and their responses."""
        frames = self._scan.filter(pc.is_valid(self._scan["frame_id"]))
        if self._filters.by_request:
            kept = pa.concat_arrays([_column(requests["frame_id"]), _column(requests["response_frame_id"])])
            frames = frames.filter(pc.is_in(frames["frame_id"], value_set=kept.drop_null()))
        frames = frames.append_column("cluster", _repeated(self._cluster, frames))
        return frames.select(FRAMES.names).cast(FRAMES)

    def bodies(self, bodies: pa.Table, frames: pa.Table) -> pa.Table:
        """The table ``bodies``: those of ``frames``."""
        if self._filters.by_request:
            kept = _column(pc.unique(frames["body_id"])).drop_null()
            bodies = bodies.filter(pc.is_in(bodies["body_id"], value_set=kept))
        return _as_table({name: bodies[name] for name in BODIES.names}, BODIES)

    def brokers(self) -> pa.Table:
        """The table ``brokers``: the listeners that UpdateMetadata lists, and since when."""
        requests = self._every.select(["capture", "ts", "body_id"])
        requests = requests.append_column(
            "brokers_id", _joined(requests["body_id"], self._heads, "body_id")["brokers_id"]
        )
        requests = requests.filter(pc.is_valid(requests["brokers_id"]))
        sets = requests.group_by(["capture", "brokers_id"], use_threads=False).aggregate([("ts", "min")])
        listeners = self._decoded.table("broker").select(["brokers_id", "broker_id", "host", "port"])
        listed = sets.join(listeners, "brokers_id", join_type="inner", use_threads=False)
        names = ["capture", "broker_id", "host", "port"]
        found = listed.group_by(names, use_threads=False).aggregate([("ts_min", "min")])
        found = found.sort_by([("ts_min_min", "ascending"), *((name, "ascending") for name in names)])
        found = found.select([*names, "ts_min_min"]).rename_columns([*names, "first_ts"])
        return found.append_column("cluster", _repeated(self._cluster, found)).select(BROKERS.names).cast(BROKERS)

    def live_brokers(self) -> pa.Table:
        """The table ``live_brokers``: of the sets that requests name."""
        listed = self._decoded.table("broker").select(["brokers_id", *LIVE_BROKERS.names[1:]])
        listed = listed.rename_columns(LIVE_BROKERS.names)
        named = _joined(self._every["body_id"], self._heads, "body_id")["brokers_id"]
        listed = listed.filter(pc.is_in(listed["live_brokers_id"], value_set=_column(pc.unique(named))))
        return listed.group_by(LIVE_BROKERS.names, use_threads=False).aggregate([]).cast(LIVE_BROKERS)

    def _states(self) -> pa.Table:
        return wanted_partitions(self._decoded.table("state"), self._filters)


def wanted_partitions(rows: pa.Table, filters: Filters) -> pa.Table:
    """Rows of wanted topics and partitions."""
    if not filters.by_partition:
        return rows
    whole = [t for t in pc.unique(rows["topic"]).to_pylist() if t is not None and filters.wants_partition(t, -1)]
    keep = _is_in(rows["topic"], whole)
    for topic, partition in filters.partitions:
        this = pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition))
        keep = pc.or_(keep, pc.fill_null(this, False))
    return rows.filter(keep)


def broker_ids_of(
    directory: BrokerDirectory | BrokerFacts, requests: pa.Table, times_ns: Sequence[int] | None = None
) -> pa.Array:
    """Return the ids of the brokers that requests were sent to, at some times, or else at their ``ts``."""
    keys = list(rows_of(requests, NODE))
    histories = {key: directory.history_of(key[1:], key[0]) for key in dict.fromkeys(keys)}
    if times_ns is None:
        times_ns = [us * 1000 + 999 for us in requests["ts"].cast(pa.int64()).to_pylist()]
    return pa.array([id_at(histories[key], ns) for key, ns in zip(keys, times_ns, strict=True)], pa.int32())


def learn_brokers(directory: BrokerDirectory | BrokerFacts, scan: pa.Table, decoded: Decoded) -> None:
    """Pass the UpdateMetadata and LeaderAndIsr requests of a scan to the directory, in the order of time."""
    requests = scan.filter(pc.fill_null(pc.equal(scan["direction"], "request"), False))
    head = _joined(requests["body_id"], decoded.of_bodies("head", requests["body_id"]), "body_id")
    listeners: dict[bytes, list[tuple[int, str, int]]] = {}
    listed_now = decoded.table("broker")
    listed_now = listed_now.filter(pc.is_in(listed_now["brokers_id"], value_set=_column(pc.unique(head["brokers_id"]))))
    for row in listed_now.to_pylist():
        listeners.setdefault(row["brokers_id"], []).append((row["broker_id"], row["host"], row["port"]))
    requests = requests.select(["ts_ns", "capture", "api_key", "flow"])
    requests = requests.append_column("brokers_id", head["brokers_id"]).append_column("common", head["common_replicas"])
    useful = pc.or_(pc.is_valid(requests["brokers_id"]), pc.is_valid(requests["common"]))
    listed: dict[str, bytes] = {}
    for row in requests.filter(useful).sort_by("ts_ns").to_pylist():
        capture = row["capture"]
        if row["api_key"] == ApiKey.LEADER_AND_ISR:
            directory.learn_replicas(capture, (row["flow"]["dst_ip"], row["flow"]["dst_port"]), row["common"])
        elif listed.get(capture) != row["brokers_id"]:
            listed[capture] = row["brokers_id"]
            directory.learn_listeners(row["ts_ns"], capture, listeners.get(row["brokers_id"], ()))


def first_bodies(scan: pa.Table) -> pa.Table:
    """Each distinct body of a scan once, as first sent: ``BODIES``, and its frame's time and id."""
    rows = pa.array(range(scan.num_rows), pa.int64())
    keys = scan.select(["body_id", "ts_ns", "frame_id"]).append_column("row", rows)
    keys = keys.filter(pc.is_valid(scan["payload"])).sort_by([("ts_ns", "ascending"), ("frame_id", "ascending")])
    first = keys.group_by("body_id", use_threads=False).aggregate([("row", "first")])
    chosen = pc.is_in(rows, value_set=_column(first["row_first"]))
    return scan.select([*BODIES.names, "ts_ns", "frame_id"]).filter(chosen)  # to take them would copy payloads twice


def distinct_frames(scan: pa.Table, seen: Collection[bytes] | None = None) -> pa.Table:
    """Return a scan with each frame once: the whole one, where copies of it are cut; and without those that were seen.

    A frame's notes and its response keep naming it.
    """
    if seen:
        again = [frame_id in seen for frame_id in scan["frame_id"].to_pylist()]
        scan = scan.filter(pc.invert(pa.array(again, pa.bool_())))
    ids = scan["frame_id"]
    if pc.count_distinct(ids).as_py() == len(ids) - ids.null_count:
        return scan
    rows = pa.array(range(scan.num_rows), pa.int64())
    rank = pc.add(pc.multiply(pc.fill_null(scan["status"], 0).cast(pa.int64()), scan.num_rows), rows)
    best = (
        pa.table({"frame_id": ids, "rank": rank}).group_by("frame_id", use_threads=False).aggregate([("rank", "min")])
    )
    chosen = pc.is_in(rank, value_set=_column(best["rank_min"]))
    return scan.filter(pc.or_(pc.is_null(ids), chosen))


def captures(scan: pa.Table, cluster: str) -> pa.Table:
    """The table ``captures``."""
    notes = scan.filter(pc.is_valid(scan["facts"]))
    names = {"cluster": _repeated(cluster, notes), "capture": notes["capture"], "file": notes["file"]}
    facts = {name: pc.struct_field(notes["facts"], name) for name in CAPTURES.names if name not in names}
    return _as_table(names | facts, CAPTURES)


def bad_inputs(scan: pa.Table) -> pa.Table:
    """The table ``bad_inputs``."""
    notes = scan.filter(pc.is_valid(scan["bad_input"]))
    parts = {name: pc.struct_field(notes["bad_input"], name) for name in BAD_INPUTS.names if name != "file"}
    return _as_table({"file": notes["file"], **parts}, BAD_INPUTS)


def _repeated(text: str, table: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), table.num_rows)


def _joined(keys: pa.ChunkedArray, table: pa.Table, key: str) -> pa.Table:
    """Return a table's row for each key; nulls where it has none."""
    return table.take(pc.index_in(keys, value_set=_column(table[key])))


def _column(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _is_in(column: pa.ChunkedArray, values: Any) -> Any:
    return pc.is_in(column, value_set=pa.array(sorted(values), column.type), skip_nulls=True)


def _as_table(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


JUDGED_BY: Final = ("cluster", "capture", "file", "connections", "not_read", "servers", "all_requests")
"""The columns of ``captures`` that ``judged_together`` reads."""


def judged_together(bad_inputs: pa.Table, captures: pa.Table) -> pa.Table:
    """Return ``bad_inputs`` without files that hold no control request, where others of their place hold some.

    Files of one capture point are of one place, and so are those that show connections to the same servers. Of a file
    that shows none, as a recorder's last one may be, its name tells the place: that of files with another number in it.

    Args:
        bad_inputs: The rows.
        captures: The rows of ``captures``: of all files that could be read.
    """
    rows = captures.select([*JUDGED_BY]).to_pylist()
    speaking: set[tuple[Any, ...]] = set()
    of_name: dict[tuple[str, str], set[tuple[Any, ...]]] = {}
    places = []
    for row in rows:
        every = [(one["is_kafka"], (row["cluster"], one["ip"], one["port"])) for one in row["servers"] or ()]
        servers = {server for _is_kafka, server in every}
        place = row["cluster"], row["capture"]
        named = of_name.setdefault((row["cluster"], without_number(row["capture"])), set())
        named |= {place, *servers}
        places.append({place, *servers} if servers or row["connections"] or row["not_read"] else named)
        if any(each["api_key"] in CONTROL_APIS for each in row["all_requests"]):
            speaking |= {place, *(server for is_kafka, server in every if is_kafka)}
    silent = {row["file"] for row, place in zip(rows, places, strict=True) if place.isdisjoint(speaking)}
    others = pa.array(sorted({row["file"] for row in rows} - silent), pa.string())
    read = pc.and_(pc.is_null(bad_inputs["offset"]), pc.match_substring_regex(bad_inputs["reason"], SAID_OF_READ))
    excused = pc.and_(read, pc.is_in(bad_inputs["file"], value_set=others))
    return bad_inputs.filter(pc.invert(excused))
