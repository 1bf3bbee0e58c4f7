"""Ids say what was sent, and nothing of who it was sent to, when it was read or how it was split."""

from __future__ import annotations

import pytest
from conftest import DATA, read_jsonl
from hypothesis import given
from hypothesis import strategies as st

from kproto.codec import decode_request, encode
from kproto.prefix import prefix_of
from kproto.tables.ids import body_id, frame_id

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
    assert key == body_id(api, version, "request", memoryview(body))
    assert key != body_id(api, version + 1, "request", body)
    assert key != body_id(api + 1, version, "request", body)
    assert key != body_id(api, version, "response", body)


def test_a_frame_is_named_by_where_it_stands() -> None:
    base = ("host:eth0", b"c" * 16, "request", 1000)
    ids = {frame_id(*base)}
    for changed in (
        ("host:eth1", *base[1:]),
        (base[0], b"d" * 16, *base[2:]),
        (*base[:2], "response", 1000),
        (*base[:3], 1001),
    ):
        ids.add(frame_id(*changed))
    assert len(ids) == 5
    assert frame_id(*base) == frame_id(*base)


@pytest.mark.parametrize(("api", "version", "text"), [row for row in REQUESTS if row[:2] in EPOCH])
def test_a_body_that_ends_with_its_broker_epoch_is_named_without_it(api: int, version: int, text: str) -> None:
    prefix = prefix_of(api, version)
    assert prefix is not None
    assert prefix.broker_epoch_at is not None
    head = bytes.fromhex(text)[: prefix.broker_epoch_at]
    one, other = (head + epoch.to_bytes(8, "big") for epoch in (7, 8))
    assert body_id(api, version, "request", one) == body_id(api, version, "request", other)
    assert body_id(api, version, "request", one[:-1]) != body_id(api, version, "request", one[:-2])
