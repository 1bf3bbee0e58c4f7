"""Any object with a buffer is data: bytes, bytearray, memoryview, mmap, numpy, pyarrow."""

import array
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strategies import MESSAGES, by_hand, plain_json

from kproto.codec import Codec
from kproto.errors import DecodeError

DATA = by_hand(6, 8, "request", plain_json(MESSAGES[6, "request"], 8))

KINDS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "memoryview-at-an-offset": lambda data: memoryview(b"\xff" * 7 + data + b"\xff" * 3)[7 : 7 + len(data)],
    "read-only-memoryview": lambda data: memoryview(bytearray(data)).toreadonly(),
    "array": lambda data: array.array("B", data),
    "signed-bytes": lambda data: array.array("b", (b - 256 if b > 127 else b for b in data)),
    "numpy": lambda data: np.frombuffer(data, dtype=np.uint8),
    "numpy-at-an-offset": lambda data: np.frombuffer(b"\xff" * 5 + data, dtype=np.uint8)[5:],
    "pyarrow": pa.py_buffer,
    "pyarrow-slice": lambda data: pa.py_buffer(b"\xff" * 9 + data).slice(9),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_the_same_message_out_of_any_buffer(codec: Codec, make: Callable[[bytes], Any]) -> None:
    message, used = codec.decode_request_from(6, 8, make(DATA))
    assert used == len(DATA)
    assert message == codec.decode_request(6, 8, DATA)


def test_out_of_a_mapped_file(codec: Codec, tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(DATA)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        message = codec.decode_request(6, 8, mapped)
    assert message == codec.decode_request(6, 8, DATA)  # nothing of the map is held, or closing it would have failed


def test_the_message_keeps_its_values_when_the_buffer_changes(codec: Codec) -> None:
    held = bytearray(DATA)
    message = codec.decode_request(6, 8, held)
    held[:] = bytes(len(held))
    held.clear()  # and the buffer is free again
    assert codec.encode(message, 8) == DATA


@pytest.mark.parametrize("bad", [DATA[:20], DATA[:0]], ids=["cut", "empty"])
def test_a_buffer_is_released_after_an_error_too(codec: Codec, bad: bytes) -> None:
    held = bytearray(bad)
    with pytest.raises(DecodeError):
        codec.decode_request(6, 8, held)
    held.clear()


NOT_IN_ONE_PIECE = {
    "every-second-byte": memoryview(DATA * 2)[::2],
    "backwards": memoryview(DATA)[::-1],
    "numpy-column": np.frombuffer(DATA * 2, dtype=np.uint8).reshape(2, -1).T[:, 0:1][::2],
}


@pytest.mark.parametrize("data", NOT_IN_ONE_PIECE.values(), ids=NOT_IN_ONE_PIECE)
def test_memory_in_pieces_is_refused(codec: Codec, data: Any) -> None:
    with pytest.raises((TypeError, ValueError, BufferError), match="contiguous"):
        codec.decode_request(6, 8, data)


@pytest.mark.parametrize("data", ["text", None, 7, [1, 2], object()], ids=lambda value: type(value).__name__)
def test_what_has_no_buffer_is_a_type_error(codec: Codec, data: Any) -> None:
    with pytest.raises(TypeError):
        codec.decode_request(6, 8, data)
    with pytest.raises(TypeError):
        codec.decode_request_header(data, 2)


def test_headers_out_of_any_buffer(codec: Codec) -> None:
    header = codec.RequestHeader(request_api_key=6, request_api_version=8, correlation_id=3, client_id="me")
    data = codec.encode_request_header(header)
    for make in KINDS.values():
        assert codec.decode_request_header(make(data)) == header
