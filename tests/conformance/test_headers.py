"""Conformance rows HDR: request headers."""

from array import array

import pytest
from wire import i16, i32, string, tags

from kproto.api import ApiKey, request_header_version
from kproto.codec import Codec
from kproto.errors import Truncated

conformance = pytest.mark.conformance


@conformance("HDR-01")
def test_hdr_01_controlled_shutdown_v0(codec: Codec) -> None:
    """HDR-01: eight bytes, header version 0, no client id on the wire."""
    data = i16(7) + i16(0) + i32(2342)
    header = codec.decode_request_header(data)
    assert header.request_api_key == ApiKey.CONTROLLED_SHUTDOWN
    assert (header.request_api_version, header.correlation_id, header.client_id_or_empty) == (0, 2342, "")
    assert request_header_version(7, 0) == 0
    assert codec.encode_request_header(header) == data


@conformance("HDR-02", "HDR-03")
@pytest.mark.parametrize(("api", "version", "size"), [(ApiKey.FIND_COORDINATOR, 1, 10), (38, 2, 11)])
def test_hdr_02_and_03_headers_v1_and_v2(codec: Codec, api: int, version: int, size: int) -> None:
    """HDR-02: FindCoordinator v1 takes header 1. HDR-03: CreateDelegationToken v2 takes header 2, a byte more."""
    header = codec.RequestHeader(request_api_key=api, request_api_version=version, correlation_id=10, client_id="")
    data = codec.encode_request_header(header)
    assert (request_header_version(api, version), len(data)) == (version, size)
    assert codec.decode_request_header(data) == header


@conformance("HDR-04")
def test_hdr_04_a_header_inside_a_buffer(codec: Codec) -> None:
    """HDR-04: parsed at offset 10 of 64 bytes, whatever stands before and behind it."""
    header = codec.RequestHeader(request_api_key=10, request_api_version=1, correlation_id=10, client_id="")
    data = codec.encode_request_header(header)
    another = i16(5) + i16(3) + i32(77) + i16(0)  # a header of ten bytes too, of another version and API
    for before in (bytes(10), b"\xff" * 10, another):
        for kind in (bytes, bytearray, lambda whole: memoryview(bytearray(whole)), lambda whole: array("B", whole)):
            whole = kind(before + data + b"\xff" * 44)
            read, used = codec.decode_request_header_from(memoryview(whole)[10:])
            assert (read, used) == (header, len(data))
            with pytest.raises(Truncated) as cut:  # the ten bytes before it make up for none that is missing
                codec.decode_request_header_from(memoryview(whole)[10 : 10 + len(data) - 1])
            assert cut.value.offset <= len(data)  # counted from the header's start


@conformance("HDR-05")
def test_hdr_05_a_null_client_id_is_presented_as_empty(codec: Codec) -> None:
    """HDR-05: version 10 of FindCoordinator is beyond 3.9, its header is read all the same."""
    data = i16(10) + i16(10) + i32(123) + string(None, flexible=False) + tags()
    header = codec.decode_request_header(data)
    assert header.client_id_or_empty == ""
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (10, 10, 123)


@conformance("HDR-06")
def test_hdr_06_the_size_is_known_from_parsing(codec: Codec) -> None:
    """HDR-06: what parsing says it used is what writing takes."""
    data = i16(10) + i16(10) + i32(123) + string("hakuna-matata", flexible=False) + tags()
    header, used = codec.decode_request_header_from(data + b"the body")
    assert used == len(data) == len(codec.encode_request_header(header))
    assert header.client_id == "hakuna-matata"
