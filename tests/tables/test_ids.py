"""Ids say what was sent, and nothing of who it was sent to, when it was read or how it was split."""

import pytest
from conftest import DATA, read_jsonl
from hypothesis import given
from hypothesis import strategies as st
from table_truth import body_id

from kproto.capture import WHOLE, Connection, Endpoint, Frame
from kproto.capture.model import Direction
from kproto.codec import decode_request, encode
from kproto.prefix import prefix_of

EPOCH = {(4, v) for v in range(2, 8)} | {(5, v) for v in range(1, 5)} | {(6, v) for v in range(5, 9)}
REQUESTS = [
    (row["api"], row["version"], row["hex"])
    for file in ("leaderandisr", "stopreplica", "updatemetadata")
    for row in read_jsonl(DATA / "vectors" / "valid" / f"{file}.jsonl.gz")
    if row["kind"] == "request" and row["case"] == "typical"
]


def test_every_version_is_tried() -> None:
    assert {(api, version) for api, version, _ in REQUESTS} >= EPOCH
    assert len({(api, version) for api, version, _ in REQUESTS}) == 8 + 5 + 9


@pytest.mark.parametrize(("api", "version", "text"), REQUESTS)
def test_the_prefix_lies_where_the_codec_reads_it(api: int, version: int, text: str) -> None:
    body = bytes.fromhex(text)
    prefix = prefix_of(api, version)
    assert prefix is not None
    message = decode_request(api, version, body)
    at = prefix.controller_epoch_at
    assert int.from_bytes(body[at : at + 4], "big", signed=True) == message.controller_epoch
    assert (prefix.kraft_at is not None) == (version >= {4: 7, 5: 4, 6: 8}[api])
    assert (prefix.broker_epoch_at is not None) == ((api, version) in EPOCH)
    if prefix.broker_epoch_at is not None:
        at = prefix.broker_epoch_at
        assert int.from_bytes(body[at : at + 8], "big", signed=True) == message.broker_epoch


@pytest.mark.parametrize(("api", "version", "text"), REQUESTS)
def test_a_body_for_another_broker_is_the_same_body(api: int, version: int, text: str) -> None:
    body = bytes.fromhex(text)
    message = decode_request(api, version, body)
    if (api, version) in EPOCH:
        message.broker_epoch += 1
        other = encode(message, version)
        assert other != body
        assert body_id(api, version, "request", other) == body_id(api, version, "request", body)
    message.controller_epoch += 1
    assert body_id(api, version, "request", encode(message, version)) != body_id(api, version, "request", body)


@given(st.binary(max_size=60), st.sampled_from([4, 5, 6]), st.integers(-1, 9))
def test_any_bytes_have_an_id_that_names_api_version_and_direction(body: bytes, api: int, version: int) -> None:
    key = body_id(api, version, "request", body)
    assert len(key) == 16
    assert key != body_id(api, version + 1, "request", body)
    assert key != body_id(api + 1, version, "request", body)
    assert key != body_id(api, version, "response", body)


def test_a_frame_is_named_by_its_packet_and_no_place() -> None:
    def frame(capture: str = "a", port: int = 9, side: Direction = "request", sequence: int = 7, ns: int = 5) -> Frame:
        connection = Connection(Endpoint("10.0.0.1", port), Endpoint("10.0.0.2", 9092), 1, capture)
        return Frame(connection, side, 99, ns, ns, WHOLE, 0, b"", 6, 8, 3, None, 0, capture, sequence)

    base = frame()
    others = frame(port=8), frame(side="response"), frame(sequence=8), frame(ns=6)
    assert len({base.frame_id, *(other.frame_id for other in others)}) == 5
    assert frame(capture="b").frame_id == base.frame_id
    assert base.exchange_id == frame("b", ns=6).exchange_id
    assert base.exchange_id not in {frame(port=8).exchange_id, frame(sequence=8).exchange_id}


def test_a_frame_of_a_log_is_named_by_its_line() -> None:
    def frame(capture: str = "a", correlation_id: int = 3, ns: int = 5) -> Frame:
        connection = Connection(Endpoint("10.0.0.1", 9), Endpoint("10.0.0.2", 9092), 1, capture)
        return Frame(connection, "request", 99, ns, ns, WHOLE, 0, b"", 6, 8, correlation_id, None, 0, capture)

    base = frame()
    assert frame("b").frame_id == base.frame_id
    assert len({base.frame_id, frame(correlation_id=4).frame_id, frame(ns=6).frame_id}) == 3
    assert len({base.exchange_id, frame(correlation_id=4).exchange_id, frame(ns=6).exchange_id}) == 3


@pytest.mark.parametrize(("api", "version", "text"), [row for row in REQUESTS if row[:2] in EPOCH])
def test_a_body_that_ends_with_its_broker_epoch_is_named_without_it(api: int, version: int, text: str) -> None:
    prefix = prefix_of(api, version)
    assert prefix is not None
    assert prefix.broker_epoch_at is not None
    head = bytes.fromhex(text)[: prefix.broker_epoch_at]
    one, other = (head + epoch.to_bytes(8, "big") for epoch in (7, 8))
    assert body_id(api, version, "request", one) == body_id(api, version, "request", other)
    assert body_id(api, version, "request", one[:-1]) != body_id(api, version, "request", one[:-2])
