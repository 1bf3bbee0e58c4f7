"""Answers a question with one codec in the oracle's format, so that answers can be compared.

An answer is what a line of the golden data or a line of ``tools/oracle`` holds: whether the bytes are taken, how many
of them, the JSON form, and what writing the message again gives.
"""

import json
from typing import Any

from kproto.codec import Codec
from kproto.errors import DecodeError, EncodeError
from kproto.types import Buffer

__all__ = [
    "Answer",
    "answer",
    "decode",
    "difference",
    "encode",
    "from_json",
    "json_equal",
    "message_type",
    "recorded",
    "short",
]

Answer = dict[str, Any]


def decode(codec: Codec, api: int, version: int, kind: str, data: Buffer, *, strict: bool = False) -> tuple[Any, int]:
    """Decode a message or header (``version`` is then the header's own); return it with the number of bytes read."""
    match kind:
        case "request":
            return codec.decode_request_from(api, version, data, strict=strict)
        case "response":
            return codec.decode_response_from(api, version, data, strict=strict)
        case "request_header":
            return codec.decode_request_header_from(data, version, strict=strict)
        case "response_header":
            return codec.decode_response_header_from(data, version, strict=strict)
    raise ValueError(kind)


def encode(codec: Codec, kind: str, message: Any, version: int) -> bytes:
    match kind:
        case "request_header":
            return codec.encode_request_header(message, version)
        case "response_header":
            return codec.encode_response_header(message, version)
    return codec.encode(message, version)


def message_type(codec: Codec, api: int, kind: str) -> Any:
    """Return the class of a kind of message or header."""
    if kind in ("request", "response"):
        return codec.message_class(api, kind)
    return codec.RequestHeader if kind == "request_header" else codec.ResponseHeader


def from_json(codec: Codec, api: int, kind: str, form: Any, version: int) -> Any:
    return message_type(codec, api, kind).from_json(form, version)


def answer(codec: Codec, api: int, version: int, kind: str, data: Buffer, *, strict: bool = False) -> Answer:
    """Return the codec's answer for these bytes. ``DecodeError`` and ``EncodeError`` are answers, others failures."""
    try:
        message, consumed = decode(codec, api, version, kind, data, strict=strict)
    except DecodeError:
        return {"accept": False}
    out: Answer = {"accept": True, "consumed": consumed, "json": message.to_json(version)}
    try:
        out["reencoded"] = encode(codec, kind, message, version).hex()
    except EncodeError:
        out["reencoded"] = None
    return out


def recorded(line: Answer) -> Answer:
    """Read the same four facts from a line of golden data or of the oracle."""
    if not line.get("accept", True):
        return {"accept": False}
    again = line["reencoded"] if "reencoded" in line else line["hex"]
    consumed = line.get("consumed", len(line["hex"]) // 2)
    return {"accept": True, "consumed": consumed, "json": line["json"], "reencoded": again}


def json_equal(a: Any, b: Any) -> bool:
    """Compare values as JSON: 1 is not true, and every character counts. (In Python ``True == 1``.)"""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def difference(got: Answer, expected: Answer) -> str:
    """Describe in a line the facts that differ; empty where none does."""
    wrong = []
    for key in expected.keys() | got.keys():
        a, b = got.get(key, "(none)"), expected.get(key, "(none)")
        if not (json_equal(a, b) if key == "json" else a == b):
            wrong.append(f"{key}: got {short(a)}, expected {short(b)}")
    return "; ".join(sorted(wrong))


def short(value: Any, limit: int = 400) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=True)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
