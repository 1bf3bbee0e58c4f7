"""A client of one request over a connection of its own."""

import socket
from typing import Any

from kproto import codec, framing, headers
from kproto.api import request_header_version, response_header_version

__all__ = ["ask_port"]


def ask_port(port: int, message: Any, version: int) -> Any:
    """Send one request to a port of this machine; gives the answer."""
    key = message.api_key
    header = headers.request_header(key, version, 7, "test")
    frame = headers.encode_request_header(header, request_header_version(key, version)) + codec.encode(message, version)
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        sock.sendall(framing.frame(frame))
        stream = sock.makefile("rb")
        size = int.from_bytes(stream.read(4), "big")
        data = stream.read(size)
    if not data:
        raise ConnectionError("closed without an answer")
    _, at = headers.decode_response_header_from(data, response_header_version(key, version))
    return codec.decode_response(key, version, data[at:])
