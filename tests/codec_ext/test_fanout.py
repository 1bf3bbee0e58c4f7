"""One body for many brokers: the same bytes as encoding each request whole, and nothing copied."""

import copy
import socket
import threading
from typing import Any

import pytest
from conftest import few
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import VERSIONS, json_forms

from kproto.api import request_header_version
from kproto.codec import encode, message_class
from kproto.errors import FieldNotInVersion
from kproto.fanout import Fanout
from kproto.framing import frame
from kproto.headers import encode_request_header
from kproto.messages import RequestHeader, UpdateMetadataRequest, UpdateMetadataResponse

CASES = [(api, version) for api, version, kind in VERSIONS if kind == "request"]
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def whole(message: Any, version: int, client_id: str | None, correlation_id: int) -> bytes:
    header = RequestHeader(
        request_api_key=message.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return frame(encode_request_header(header) + encode(message, version))


@settings(max_examples=max(2, settings.default.max_examples // 4))
@given(data=st.data(), client_id=st.one_of(st.none(), st.text(max_size=20)), correlation_id=INT32, broker_epoch=INT64)
@pytest.mark.parametrize(("api", "version"), few(CASES, 8), ids=str)
def test_each_brokers_bytes_are_those_of_its_own_encoding(
    data: st.DataObject, client_id: str | None, correlation_id: int, broker_epoch: int, api: int, version: int
) -> None:
    message = message_class(api, "request").from_json(data.draw(json_forms(api, version, "request")), version)
    if request_header_version(api, version) == 2:
        message.unknown_tagged_fields = [(7, b"kept")]
    shared = Fanout(message, version, client_id=client_id)
    mine = copy.deepcopy(message)
    assert b"".join(shared.buffers(correlation_id)) == whole(mine, version, client_id, correlation_id)
    mine.broker_epoch = broker_epoch
    buffers = shared.buffers(correlation_id, broker_epoch)
    assert b"".join(buffers) == whole(mine, version, client_id, correlation_id)
    assert sum(len(b) for b in buffers) == shared.frame_size


def test_brokers_share_one_view_of_the_body() -> None:
    rows = {"topic": ["t"] * 1000, "partition": range(1000), "isr": [[1, 2, 3]] * 1000}
    shared = Fanout(UpdateMetadataRequest.from_columns(rows, 8), 8, client_id="controller-1")
    (first, tail), (second, other) = shared.buffers(1, 10), shared.buffers(2, 11)
    assert tail is other
    assert isinstance(tail, memoryview)
    assert tail.obj is shared.body
    assert len(first) == len(second) < 64


def test_the_buffers_go_through_a_socket_as_they_are() -> None:
    rows = {"topic": ["t"] * 20_000, "partition": range(20_000), "isr": [[1, 2, 3]] * 20_000}
    shared = Fanout(UpdateMetadataRequest.from_columns(rows, 8), 8)
    left, right = socket.socketpair()
    received = bytearray()

    def receive() -> None:
        while len(received) < shared.frame_size:
            received.extend(right.recv(1 << 16))

    reader = threading.Thread(target=receive)
    reader.start()
    with left, right:
        buffers: list[Any] = shared.buffers(3, 99)
        while buffers:
            sent = left.sendmsg(buffers)
            while buffers and sent >= len(buffers[0]):
                sent -= len(buffers.pop(0))
            if sent:
                buffers[0] = memoryview(buffers[0])[sent:]
        reader.join(60)
    assert bytes(received) == b"".join(shared.buffers(3, 99))


def test_what_does_not_fit_is_refused() -> None:
    shared = Fanout(UpdateMetadataRequest(), 8)
    for correlation_id, epoch in ((2**31, 1), (1, 2**63), (1.5, 1)):
        with pytest.raises(ValueError, match="no int32 or int64"):
            shared.buffers(correlation_id, epoch)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="only control requests"):
        Fanout(UpdateMetadataResponse(), 8)
    with pytest.raises(FieldNotInVersion):
        Fanout(UpdateMetadataRequest(type=2), 7)


def test_versions_without_a_broker_epoch_have_no_place_for_one() -> None:
    shared = Fanout(UpdateMetadataRequest(broker_epoch=5), 4)
    assert shared.broker_epoch is None
    assert shared.buffers(1, 77)[0] == shared.buffers(1)[0]
