"""Whole payloads: a request and its response, each read by one call."""

import pytest

from kproto import ApiKey, Malformed, StopReplicaRequest, StopReplicaResponse, Truncated, encode
from kproto.capture import FrameStatus, frames
from kproto.headers import (
    encode_request_header,
    encode_response_header,
    read_request,
    read_response,
    request_header,
    response_header,
)

CAPTURE = "tests/data/captures/ibp-3.9-a.pcap.gz"
HEADER = request_header(ApiKey.STOP_REPLICA, 4, correlation_id=12, client_id=None)
REQUEST = StopReplicaRequest(controller_id=9, controller_epoch=3)
SENT = encode_request_header(HEADER) + encode(REQUEST, 4)
RESPONSE = StopReplicaResponse(error_code=11)
ANSWERED = encode_response_header(response_header(12), 1) + encode(RESPONSE, 4)


def test_a_request_and_its_response_are_read_by_one_call_each() -> None:
    header, request = read_request(SENT)
    assert (header, request) == (HEADER, REQUEST)
    answered, response = read_response(memoryview(ANSWERED), header)
    assert (answered.correlation_id, response) == (12, RESPONSE)


def test_a_response_to_another_request_is_malformed() -> None:
    other = request_header(ApiKey.STOP_REPLICA, 4, correlation_id=13)
    with pytest.raises(Malformed, match="correlation id 12, the request 13"):
        read_response(ANSWERED, other)


@pytest.mark.parametrize("size", range(len(SENT)))
def test_a_cut_request_is_truncated(size: int) -> None:
    with pytest.raises(Truncated):
        read_request(SENT[:size])


def test_bytes_behind_a_message_are_refused_if_strict() -> None:
    assert read_request(SENT + b"x")[1] == REQUEST
    assert read_response(ANSWERED + b"x", HEADER)[1] == RESPONSE
    with pytest.raises(Malformed):
        read_request(SENT + b"x", strict=True)
    with pytest.raises(Malformed):
        read_response(ANSWERED + b"x", HEADER, strict=True)


def test_every_frame_of_a_capture_is_read_as_a_whole() -> None:
    read = 0
    for frame in frames(CAPTURE):
        assert frame.status is FrameStatus.WHOLE
        if frame.direction == "request":
            header, message = read_request(frame.payload)
        elif frame.request is not None:
            header, message = read_response(frame.payload, read_request(frame.request.payload)[0])
        assert (header.correlation_id, message.api_key) == (frame.correlation_id, frame.api_key)
        read += 1
    assert read > 200
