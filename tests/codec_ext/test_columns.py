"""Partition rows as columns hold what the objects hold, go back to the same bytes, and are taken without a copy."""

import re
import threading
import weakref
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from conftest import DATA, read_jsonl
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import LATEST, VERSIONS, json_forms, mutations

from kproto.codec import decode_request, decode_response, encode, message_class
from kproto.columns import Columns, ColumnsBuilder, decode_columns, encode_batches, encode_columns
from kproto.errors import DecodeError, FieldNotInVersion, KprotoError, OutOfRange, Truncated, UnsupportedVersion
from kproto.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

CONTROL = (4, 5, 6)
NAMES = {4: "leaderandisr", 5: "stopreplica", 6: "updatemetadata"}
CASES = VERSIONS


def rows_of(message: Any) -> list[tuple[Any, ...]]:
    """A message's partition rows in the columns' order (all but ``frame``), read from its objects."""
    api, version = message.api_key, message.version
    if message.kind == "response":
        if api == 6:
            return []
        by_name = [(e.topic_name, None, e.partition_index, e.error_code) for e in message.partition_errors]
        if api == 5 or version < 5:
            return by_name
        return [(None, t.topic_id, e.partition_index, e.error_code) for t in message.topics for e in t.partition_errors]
    if api == 5:
        flag = message.delete_partitions
        return [
            *((p.topic_name, p.partition_index, -1, flag) for p in message.ungrouped_partitions),
            *((t.name, p, -1, flag) for t in message.topics for p in t.partition_indexes),
            *(
                (t.topic_name, p.partition_index, p.leader_epoch, p.delete_partition)
                for t in message.topic_states
                for p in t.partition_states
            ),
        ]
    named = [(p.topic_name, bytes(16), p) for p in message.ungrouped_partition_states]
    named += [(t.topic_name, t.topic_id, p) for t in message.topic_states for p in t.partition_states]
    rows = []
    for name, topic_id, p in named:
        row = (name, topic_id, p.partition_index, p.controller_epoch, p.leader, p.leader_epoch)
        ids = (list(p.isr), list(p.replicas))
        if api == 6:
            rows.append((*row, p.zk_version, *ids, list(p.offline_replicas)))
        else:
            more = (list(p.adding_replicas), list(p.removing_replicas), p.is_new, p.leader_recovery_state)
            rows.append((*row, p.partition_epoch, *ids, *more))
    return rows


def rows_in(columns: Columns) -> list[tuple[Any, ...]]:
    batch = pa.record_batch(columns)
    batch.validate(full=True)
    return list(zip(*(batch.column(name).to_pylist() for name in columns.names[1:]), strict=True))


def decode(api: int, version: int, kind: str, data: bytes) -> Any:
    return (decode_request if kind == "request" else decode_response)(api, version, data)


def columns_can_say(message: Any) -> bool:
    """What rows cannot tell: topics without partitions, a topic twice in a row, tagged fields inside."""
    topics = getattr(message, "topic_states", []) or getattr(message, "topics", [])
    keys = [(getattr(t, "topic_name", None) or getattr(t, "name", None), getattr(t, "topic_id", None)) for t in topics]
    counts = [len(getattr(t, "partition_states", None) or getattr(t, "partition_indexes", ())) for t in topics]
    return all(counts) and all(a != b for a, b in pairwise(keys))


@pytest.mark.parametrize("api", CONTROL)
@pytest.mark.parametrize("folder", ["valid", "malformed"])
def test_every_golden_message_gives_the_same_rows_or_the_same_error_as_objects(api: int, folder: str) -> None:
    for case in read_jsonl(DATA / "vectors" / folder / f"{NAMES[api]}.jsonl.gz"):
        data = bytes.fromhex(case["hex"])
        for strict in (False, True):
            read = decode_request if case["kind"] == "request" else decode_response
            try:
                message = read(api, case["version"], data, strict=strict)
            except KprotoError as e:
                with pytest.raises(type(e), match=f"^{re.escape(str(e))}$"):
                    decode_columns(api, case["version"], data, kind=case["kind"], strict=strict)
                continue
            columns = decode_columns(api, case["version"], data, kind=case["kind"], strict=strict)
            assert rows_in(columns) == rows_of(message), case["id"]
            assert len(columns) == len(rows_of(message))


@settings(max_examples=max(2, settings.default.max_examples // 4))
@given(data=st.data())
@pytest.mark.parametrize(("api", "version", "kind"), CASES, ids=str)
def test_objects_columns_and_json_hold_the_same_and_give_the_same_bytes(
    data: st.DataObject, api: int, version: int, kind: str
) -> None:
    form = data.draw(json_forms(api, version, kind))
    message = message_class(api, kind).from_json(form, version)
    body = encode(message, version)
    columns = decode_columns(api, version, body, kind=kind)
    read = decode(api, version, kind, body)
    assert rows_in(columns) == rows_of(read)
    assert read.to_json(version) == form
    if kind == "response":
        assert columns.message.error_code == read.error_code
    if kind == "request" and columns_can_say(read):
        assert encode_columns(columns.message, version, columns) == body
        assert encode_columns(columns.message, version, pa.record_batch(columns)) == body
        assert b"".join(encode_batches(columns.message, version, [columns])) == body
        assert type(read).from_columns(columns, version, columns.message) == read


@settings(max_examples=max(2, settings.default.max_examples // 4))
@given(data=st.data())
@pytest.mark.parametrize(("api", "kind"), sorted({(api, kind) for api, _, kind in CASES}))
def test_a_builder_holds_the_frames_that_could_be_read_and_nothing_of_the_others(
    data: st.DataObject, api: int, kind: Any
) -> None:
    builder, expected = ColumnsBuilder(api, kind), []
    for _ in range(data.draw(st.integers(1, 5))):
        version = data.draw(st.integers(0, LATEST[api]))
        message = message_class(api, kind).from_json(data.draw(json_forms(api, version, kind)), version)
        body = encode(message, version)
        mutant = data.draw(mutations(body))
        for bytes_ in (mutant, body):
            try:
                rows = rows_of(decode(api, version, kind, bytes_))
            except DecodeError as e:
                before = len(builder), builder.frames
                with pytest.raises(type(e)):
                    builder.append(version, bytes_)
                assert (len(builder), builder.frames) == before
            else:
                assert builder.append(version, bytes_) == len(rows)
                expected += [(builder.frames - 1, *row) for row in rows]
    columns = builder.finish()
    frames = pa.record_batch(columns).column("frame").to_pylist()
    assert [(frame, *row) for frame, row in zip(frames, rows_in(columns), strict=True)] == expected
    assert len(builder) == 0


def request(api: int = 6, topics: int = 30, partitions: int = 20) -> bytes:
    """A request whose every row differs."""
    names = [f"topic-{t}" for t in range(topics) for _ in range(partitions)]
    columns: dict[str, Any] = {
        "topic": names,
        "partition": list(range(partitions)) * topics,
        "leader_epoch": range(topics * partitions),
    }
    if api != 5:
        columns["topic_id"] = [name.encode().rjust(16) for name in names]
        columns["isr"] = [[i, i + 1, 70_000 + i][: i % 4] for i in range(topics * partitions)]
    message = message_class(api, "request")()
    return encode_columns(message, LATEST[api], columns)


def test_arrow_consumers_read_the_same_memory() -> None:
    columns = decode_columns(6, 8, request())
    first, second = pa.record_batch(columns), pa.record_batch(columns)
    for name in columns.names:
        ours = [b.address for b in first.column(name).buffers() if b]
        assert ours
        assert ours == [b.address for b in second.column(name).buffers() if b], name
    leader_epochs = first.column("leader_epoch").to_numpy(zero_copy_only=True)
    assert np.array_equal(leader_epochs, np.arange(600))
    assert first.column("topic").indices.buffers()[1].address == first.column("topic_id").indices.buffers()[1].address


def test_duckdb_and_polars_read_them() -> None:
    columns = decode_columns(6, 8, request())
    sums = "count(*), count(distinct topic), count(distinct topic_id), sum(len(isr)), max(leader_epoch)"
    query = f"select {sums} from columns"
    assert duckdb.sql(query).fetchall() == [(600, 30, 30, 900, 599)]
    frame = pl.DataFrame(columns)
    assert frame.shape == (600, 11)
    assert frame["isr"].list.len().sum() == 900
    assert frame["topic"].n_unique() == 30


def test_a_column_outlives_everything_it_came_from() -> None:
    column = pa.record_batch(decode_columns(6, 8, request())).column("isr")
    for _ in range(50):  # memory that was let go too early would be written over by now
        decode_columns(6, 8, request(topics=31))
    assert column[599].as_py() == [599, 600, 70_599]


def test_frames_of_several_versions_share_a_batch_and_its_dictionary() -> None:
    builder = ColumnsBuilder(6)
    rows = {"topic": ["a", "a", "b"], "partition": [0, 1, 0], "leader": [1, 2, 3]}
    for version in range(9):
        assert builder.append(version, encode_columns(UpdateMetadataRequest(), version, rows)) == 3
        assert builder.message.version == version
    columns = builder.finish()
    topics = pa.record_batch(columns).column("topic")
    assert topics.to_pylist() == ["a", "a", "b"] * 9
    assert len(topics.dictionary) == 4  # with no id below version 7, with a zero id from then on


def test_a_response_without_partitions_has_a_message_and_no_rows() -> None:
    columns = decode_columns(6, 8, b"\x00\x0b\x00", kind="response")
    assert len(columns) == 0
    assert columns.message.error_code == 11
    assert pa.record_batch(columns).num_rows == 0


def test_rows_become_requests_from_sequences_and_buffers() -> None:
    partitions = np.arange(4, dtype=np.int32)
    made = LeaderAndIsrRequest.from_columns(
        {
            "topic": ["é", "é", "b", "é"],
            "partition": partitions,
            "replicas": [[1], (), [2, 3], range(3)],
            "is_new": [True] * 4,
        },
        7,
        LeaderAndIsrRequest(controller_id=3),
    )
    assert made.controller_id == 3
    assert [(t.topic_name, [p.replicas for p in t.partition_states]) for t in made.topic_states] == [
        ("é", [(1,), ()]),
        ("b", [(2, 3)]),
        ("é", [(0, 1, 2)]),
    ]
    assert decode_request(4, 7, encode(made, 7)) == made


def test_sliced_and_plainly_typed_batches_are_taken() -> None:
    body = request(topics=3, partitions=2)
    batch = pa.record_batch(decode_columns(6, 8, body))
    plain = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    plain[1] = plain[1].cast(pa.large_string())
    doubled = pa.Table.from_batches([pa.record_batch(plain, names=batch.schema.names)] * 2).combine_chunks()
    sliced = doubled.to_batches()[0].slice(6, 6)
    assert encode_columns(UpdateMetadataRequest(), 8, sliced) == body


@pytest.mark.parametrize(("api", "version"), [(a, v) for a, v, kind in CASES if kind == "request"], ids=str)
def test_batches_in_pieces_are_the_same_bytes_as_all_columns_at_once(api: int, version: int) -> None:
    rows = pa.record_batch(decode_columns(api, LATEST[api], request(api, topics=10, partitions=3)))
    message = message_class(api, "request")(controller_id=3)
    cuts = [0, 3, 3, 12, 30]
    batches = [rows.slice(start, end - start) for start, end in pairwise(cuts)]
    pieces = encode_batches(message, version, batches)
    assert len(pieces) == len(batches) + 2
    assert b"".join(pieces) == encode_columns(message, version, rows)
    assert b"".join(encode_batches(message, version, [])) == encode(message, version)


def test_a_batch_is_let_go_before_the_next_is_asked_for() -> None:
    made: list[weakref.ref[Any]] = []

    class Rows(dict[str, Any]):
        pass

    def batches() -> Iterator[Rows]:
        for i in range(3):
            assert all(rows() is None for rows in made)
            yield (lambda rows: made.append(weakref.ref(rows)) or rows)(Rows(topic=["t"], partition=[i]))

    body = b"".join(encode_batches(UpdateMetadataRequest(), 8, batches()))
    assert [t.partition_states[0].partition_index for t in decode_request(6, 8, body).topic_states] == [0, 1, 2]


def test_what_cannot_be_written_in_a_batch_is_refused() -> None:
    good, bad = {"topic": ["a"], "partition": [1]}, {"topic": ["a"], "partition": [2**31]}
    with pytest.raises(OutOfRange, match="partition"):
        encode_batches(UpdateMetadataRequest(), 8, [good, bad])
    with pytest.raises(FieldNotInVersion, match="is_kraft_controller"):
        encode_batches(UpdateMetadataRequest(is_kraft_controller=True), 7, [good])
    with pytest.raises(ValueError, match="partition states of its own"):
        encode_batches(decode_request(6, 8, request()), 8, [])
    with pytest.raises(TypeError):
        encode_batches(UpdateMetadataRequest(), 8, 7)
    with pytest.raises(TypeError, match="request of this codec"):
        encode_batches(b"", 8, [])


WRONG_COLUMNS = {
    "no column": (pa.record_batch({"topic": ["a"]}), ValueError, "no column partition"),
    "int64": (pa.record_batch({"topic": ["a"], "partition": [1]}), TypeError, "partition: expected Arrow's int32"),
    "null": (pa.record_batch({"topic": ["a", None]}), ValueError, "topic holds a null in row 1"),
    "table": (pa.table({"topic": ["a"]}), TypeError, "one record batch"),
    "array": (pa.array([1]), TypeError, "record batch or a struct array"),
    "unknown": ({"topic": ["a"], "partition": [1], "isrs": [[1]]}, TypeError, "no column isrs"),
    "lengths": ({"topic": ["a"], "partition": [1, 2]}, ValueError, "must have 2 rows"),
    "range": ({"topic": ["a"], "partition": [1], "isr": [[2**31]]}, OutOfRange, r"isr\[0\]\[0\]"),
    "name": ({"topic": ["a" * 32768], "partition": [1]}, OutOfRange, r"topic\[0\]: a string of 32768 bytes"),
}


@pytest.mark.parametrize("case", WRONG_COLUMNS)
def test_columns_that_do_not_fit_are_refused_by_name(case: str) -> None:
    columns, error, text = WRONG_COLUMNS[case]
    with pytest.raises(error, match=text):
        encode_columns(UpdateMetadataRequest(), 8, columns)


def test_what_a_version_lacks_is_refused_as_in_objects() -> None:
    with pytest.raises(FieldNotInVersion, match=r"leader_recovery_state\[1\]"):
        encode_columns(LeaderAndIsrRequest(), 5, {"topic": "ab", "partition": [1, 2], "leader_recovery_state": [0, 1]})
    with pytest.raises(FieldNotInVersion, match=r"delete_partition\[0\]"):
        encode_columns(StopReplicaRequest(), 2, {"topic": ["a"], "partition": [1], "delete_partition": [True]})
    with pytest.raises(FieldNotInVersion, match="is_kraft_controller"):
        encode_columns(UpdateMetadataRequest(is_kraft_controller=True), 7, {"topic": [], "partition": []})
    with pytest.raises(UnsupportedVersion):
        decode_columns(5, 5, b"")
    with pytest.raises(ValueError, match="partition states of its own"):
        encode_columns(decode_request(6, 8, request()), 8, {"topic": [], "partition": []})


def test_columns_and_builders_are_not_made_by_the_back_door() -> None:
    with pytest.raises(TypeError):
        Columns()
    with pytest.raises(ValueError, match="never filled"):
        len(Columns.__new__(Columns))
    with pytest.raises(ValueError, match="never made"):
        ColumnsBuilder.__new__(ColumnsBuilder).append(8, b"")
    with pytest.raises(TypeError):
        ColumnsBuilder(6).__init__(6)


def test_other_threads_run_while_a_large_frame_is_read() -> None:
    """A builder that another thread is in the middle of refuses: to see that at all, this thread must run meanwhile."""
    body = request(topics=400, partitions=100)
    builder = ColumnsBuilder(6)
    met = threading.Event()

    def read() -> None:
        for _ in range(2000):
            if met.is_set():
                return
            try:
                builder.append(8, body)
                builder.finish()
            except RuntimeError:
                met.set()

    threads = [threading.Thread(target=read) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert met.is_set()


def test_a_buffer_that_changes_while_it_is_read_gives_rows_or_an_error_never_a_crash() -> None:
    body = bytearray(request(topics=40, partitions=40))
    good = bytes(body)
    stop = threading.Event()

    def scribble() -> None:
        position = 17
        while not stop.is_set():
            for _ in range(1000):
                body[position] ^= 0xFF
                position = 17 + (position * 7919) % (len(body) - 17)

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        for _ in range(60):
            try:
                rows_in(decode_columns(6, 8, body))
            except DecodeError:
                body[:] = good
    finally:
        stop.set()
        writer.join(60)


def test_a_short_frame_says_where() -> None:
    body = request(topics=1, partitions=2)
    with pytest.raises(Truncated) as caught:
        decode_columns(6, 8, body[: len(body) - 30])
    assert caught.value.path == "topic_states[0].partition_states"
    assert caught.value.api_key == 6
    assert caught.value.version == 8


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.lists(st.integers(1, 4), max_size=90)), max_size=6)
)
def test_a_builder_tells_of_the_frame_appended_last_and_drops_it(rows: list[tuple[str, int, list[int]]]) -> None:
    columns = {
        name: list(values)
        for name, values in zip(("topic", "partition", "replicas"), zip(*rows, strict=True), strict=False)
    }
    body = encode_columns(LeaderAndIsrRequest(), 7, columns or {"topic": [], "partition": []})
    builder = ColumnsBuilder(4)
    builder.append(7, encode_columns(LeaderAndIsrRequest(), 7, {"topic": ["first"], "partition": [0]}))
    assert builder.append(7, body) == len(rows)
    assert builder.topic_count == len({topic for topic, _, _ in rows})
    common = set.intersection(*(set(replicas) for _, _, replicas in rows)) if rows else set()
    assert sorted(builder.common_replicas) == sorted(common)
    builder.drop_last()
    builder.drop_last()
    assert (len(builder), builder.frames, builder.topic_count) == (1, 1, 0)
    assert pa.record_batch(builder.finish()).column("topic").to_pylist() == ["first"]
    assert ColumnsBuilder(4).common_replicas == ColumnsBuilder(6, "response").common_replicas == []
