"""Bodies become columns: the same values as Kafka's JSON form, each body decoded once, any bytes survived."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from conftest import DATA, read_jsonl
from control_messages import broker, metadata_state, update_metadata
from hypothesis import given
from hypothesis import strategies as st
from table_truth import body_id, expected_errors, expected_states

from kproto.codec import encode
from kproto.tables import BODIES, PARTITION_STATES, PARTS, decode
from kproto.tables.schemas import described, description

VECTORS = DATA / "vectors"
FILES = ("leaderandisr", "stopreplica", "updatemetadata")

Body = tuple[int, int, str, bytes]


def bodies(rows: Iterable[Body]) -> pa.RecordBatch:
    """A batch as ``decode`` takes it."""
    columns = zip(*[(body_id(*row), *row) for row in rows], strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, BODIES, strict=True)], schema=BODIES
    )


Batches = list[tuple[str, pa.RecordBatch]]


def decoded(rows: list[Body], **options: Any) -> Batches:
    return list(decode([bodies(rows)], **options))


def part(batches: Batches, name: str) -> list[pa.RecordBatch]:
    """The batches of one kind of rows."""
    return [batch for kind, batch in batches if kind == name]


def rows_of(batches: Batches, name: str, of: bytes | None = None) -> list[dict[str, Any]]:
    found = [row for batch in part(batches, name) for row in batch.to_pylist() if of in (None, row.get("body_id"))]
    return [{k: v for k, v in row.items() if k != "body_id"} for row in found]


def well_formed(text: str) -> bool:
    return text.isascii() or not any(0xD800 <= ord(c) < 0xE000 for c in text)


def golden(file: str, kind: str) -> list[dict[str, Any]]:
    """Vectors of a kind, each body once."""
    found = {}
    for row in read_jsonl(VECTORS / "valid" / f"{file}.jsonl.gz"):
        if row["kind"] == kind:
            direction = "request" if kind == "request" else "response"
            found[body_id(row["api"], row["version"], direction, bytes.fromhex(row["hex"]))] = row
    return list(found.values())


@pytest.mark.parametrize("file", FILES)
def test_the_states_of_golden_requests_are_those_of_their_json(file: str) -> None:
    vectors = golden(file, "request")
    batches = decoded([(v["api"], v["version"], "request", bytes.fromhex(v["hex"])) for v in vectors])
    states: dict[bytes, list[dict[str, Any]]] = {}
    for batch in part(batches, "state"):
        for row in batch.to_pylist():
            states.setdefault(row.pop("body_id"), []).append(row)
    seen = 0
    for vector in vectors:
        expected = expected_states({"api_key": vector["api"], "request": vector["json"]})
        if not all(well_formed(state["topic"]) for state in expected):
            continue  # Arrow cannot hold half a surrogate pair; see the test of that
        key = body_id(vector["api"], vector["version"], "request", bytes.fromhex(vector["hex"]))
        assert states.get(key, []) == expected, vector["id"]
        seen += bool(expected)
    assert seen > 50


@pytest.mark.parametrize("file", FILES)
def test_the_errors_of_golden_responses_are_those_of_their_json(file: str) -> None:
    vectors = golden(file, "response")
    batches = decoded([(v["api"], v["version"], "response", bytes.fromhex(v["hex"])) for v in vectors])
    heads = {row["body_id"]: row for batch in part(batches, "head") for row in batch.to_pylist()}
    for vector in vectors:
        key = body_id(vector["api"], vector["version"], "response", bytes.fromhex(vector["hex"]))
        expected = expected_errors({"request": {}, "response": vector["json"]})
        assert heads[key]["error_code"] == vector["json"]["errorCode"], vector["id"]
        assert heads[key]["n_partition_errors"] == len(expected), vector["id"]
        if all(e["topic"] is None or well_formed(e["topic"]) for e in expected):
            assert rows_of(batches, "error", key) == expected, vector["id"]


@pytest.mark.parametrize("file", FILES)
def test_the_head_of_golden_requests_is_that_of_their_json(file: str) -> None:
    vectors = golden(file, "request")
    batches = decoded([(v["api"], v["version"], "request", bytes.fromhex(v["hex"])) for v in vectors])
    heads = {row["body_id"]: row for batch in part(batches, "head") for row in batch.to_pylist()}
    for vector in vectors:
        head = heads[body_id(vector["api"], vector["version"], "request", bytes.fromhex(vector["hex"]))]
        json = vector["json"]
        expected = expected_states({"api_key": vector["api"], "request": json})
        assert head["decode_error"] is None, vector["id"]
        assert head["controller_id"] == json["controllerId"], vector["id"]
        assert head["controller_epoch"] == json["controllerEpoch"], vector["id"]
        assert head["is_kraft_controller"] == json.get("isKRaftController", False), vector["id"]
        assert head["type"] == json.get("type", 0), vector["id"]
        assert head["n_partitions"] == len(expected), vector["id"]
        assert head["n_topics"] == len({(state["topic"], state["topic_id"]) for state in expected}), vector["id"]


def test_live_brokers_are_given_once_for_all_bodies_that_name_them() -> None:
    vectors = [v for v in golden("updatemetadata", "request") if v["version"] == 8 and v["json"]["liveBrokers"]]
    body = bytes.fromhex(vectors[0]["hex"])
    again = body[:4] + body[4:5] + (99).to_bytes(4, "big") + body[9:]  # another controller epoch, the same brokers
    batches = decoded([(6, 8, "request", body), (6, 8, "request", again)])
    heads = rows_of(batches, "head")
    assert heads[0]["brokers_id"] == heads[1]["brokers_id"] is not None
    expected = {
        (broker["id"], end["host"], end["port"])
        for broker in vectors[0]["json"]["liveBrokers"]
        for end in broker["endpoints"]
    }
    brokers = rows_of(batches, "broker")
    assert {(b["broker_id"], b["host"], b["port"]) for b in brokers} == expected
    assert len(brokers) == len(expected)


def test_a_broken_body_has_one_row_that_says_why() -> None:
    (good,) = [v for v in golden("updatemetadata", "request") if v["version"] == 8][:1]
    body = bytes.fromhex(good["hex"])
    batches = decoded(
        [(6, 8, "request", body[:-1]), (6, 9, "request", body), (6, -1, "request", body), (6, 8, "request", body)]
    )
    heads = rows_of(batches, "head")
    assert [head["decode_error"] is None for head in heads] == [False, False, False, True]
    assert "no version 9" in heads[1]["decode_error"]
    assert heads[0]["controller_id"] is None
    for broken in ((6, 8, "request", body[:-1]), (6, 9, "request", body)):
        assert not rows_of(batches, "state", body_id(*broken))
    states = rows_of(batches, "state", body_id(6, 8, "request", body))
    assert states == expected_states({"api_key": 6, "request": good["json"]})


@pytest.mark.parametrize("file", FILES)
def test_malformed_bodies_never_stop_the_others(file: str) -> None:
    rows = {}
    accepted = {}
    for v in read_jsonl(VECTORS / "malformed" / f"{file}.jsonl.gz"):
        row = (v["api"], v["version"], "request" if v["kind"] == "request" else "response", bytes.fromhex(v["hex"]))
        rows[body_id(*row)] = row
        accepted[body_id(*row)] = v["accept"]
    heads = [row for batch in part(decoded(list(rows.values())), "head") for row in batch.to_pylist()]
    assert {row["body_id"]: row["decode_error"] is None for row in heads} == accepted
    assert len(heads) == len(rows)


def test_a_topic_name_that_arrow_cannot_hold_is_told_with_question_marks() -> None:
    odd = bytes.fromhex("eda080")  # half a surrogate pair, as Java writes it
    body = b"".join(
        (
            (1).to_bytes(4, "big"), (2).to_bytes(4, "big"), (1).to_bytes(4, "big"),
            (3).to_bytes(2, "big"), odd, (5).to_bytes(4, "big"), (2).to_bytes(4, "big"), (0).to_bytes(4, "big"),
            (7).to_bytes(4, "big"), (0).to_bytes(4, "big"), (3).to_bytes(4, "big"), (0).to_bytes(4, "big"),
            (0).to_bytes(4, "big"),
        )
    )  # fmt: skip
    (state,) = rows_of(decoded([(6, 0, "request", body)]), "state")
    assert set(state["topic"]) <= {"?", "\N{REPLACEMENT CHARACTER}"}
    assert (state["partition"], state["leader_epoch"], state["partition_epoch"]) == (5, 7, 3)


def test_each_body_is_decoded_exactly_once() -> None:
    vectors = [v for file in FILES for kind in ("request", "response") for v in golden(file, kind)]
    rows = [
        (v["api"], v["version"], "request" if v["kind"] == "request" else "response", bytes.fromhex(v["hex"]))
        for v in vectors
    ]
    assert len(rows_of(decoded(rows), "head")) == len(rows)


@pytest.mark.parametrize("batch_bytes", [1, 5_000, 1 << 20])
def test_batches_end_by_bytes_and_their_size_changes_no_row(batch_bytes: int) -> None:
    vectors = [v for v in golden("updatemetadata", "request") if v["case"] == "typical"]
    rows = [(v["api"], v["version"], "request", bytes.fromhex(v["hex"])) for v in vectors]
    whole, cut = decoded(rows), decoded(rows, batch_bytes=batch_bytes)
    for name in ("head", "state"):
        assert rows_of(whole, name) == rows_of(cut, name)
    assert all(batch.schema == PARTS[kind] for kind, batch in cut)
    if batch_bytes == 1:
        assert max(batch.num_rows for batch in part(cut, "state")) == 1


def test_partition_states_have_exactly_the_columns_of_their_table() -> None:
    vector = next(v for v in golden("leaderandisr", "request") if v["version"] == 7 and v["json"]["topicStates"])
    batches = decoded([(4, 7, "request", bytes.fromhex(vector["hex"]))])
    (states,) = part(batches, "state")
    assert states.schema == PARTITION_STATES


@given(
    st.sampled_from([4, 5, 6]), st.integers(-1, 9), st.sampled_from(["request", "response"]), st.binary(max_size=200)
)
def test_any_bytes_give_one_head_and_no_error(api_key: int, version: int, direction: str, data: bytes) -> None:
    batches = decoded([(api_key, version, direction, data)])
    assert len(rows_of(batches, "head")) == 1


@pytest.mark.parametrize("kind", ["states", "errors", "brokers"])
def test_rows_are_given_before_all_bodies_are_read(kind: str) -> None:
    """Memory holds a batch of rows, not those of all bodies."""
    if kind == "brokers":
        rows = [(6, 8, "request", encode(update_metadata({}, [broker(n)], broker_epoch=-1), 8)) for n in range(400)]
    elif kind == "states":
        states = [metadata_state(partition, 1) for partition in range(20)]
        rows = [(6, 8, "request", encode(update_metadata({f"t{n}": states}), 8)) for n in range(400)]
    else:
        rows = [(6, 8, "request", n.to_bytes(3, "big")) for n in range(400)]
    told: list[Body] = []

    def given() -> Iterator[pa.RecordBatch]:
        for row in rows:
            told.append(row)
            yield bodies([row])

    batches = decode(given(), batch_bytes=4096)
    next(batches)
    assert len(told) < 200
    assert sum(batch.num_rows for _kind, batch in batches) > 0
    assert told == rows


def test_a_table_says_its_description() -> None:
    schema = described("Rows of nothing.", pa.field("id", pa.int64()))
    assert schema.names == ["id"]
    assert description(schema) == "Rows of nothing."
