"""Scalars in Kafka's JSON form: UUIDs as 22 characters of url-safe base64, bytes as base64, names in camelCase.

Each codec walks its own fields; only these rules are shared.
"""

from __future__ import annotations

import base64
import binascii
import re

from .errors import EncodeError

_URL_SAFE = re.compile(r"[A-Za-z0-9_-]*={0,2}")


def uuid_to_json(value: bytes) -> str:
    """Write a UUID's 16 bytes as Kafka prints them.

    >>> uuid_to_json(bytes(16))
    'AAAAAAAAAAAAAAAAAAAAAA'
    """
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_from_json(text: object, path: str = "") -> bytes:
    """Read a UUID's 16 bytes from Kafka's text; padding is optional, ``+`` and ``/`` are refused.

    Raises:
        EncodeError: Not the base64 of 16 bytes.
    """
    if not isinstance(text, str):
        raise EncodeError(f"expected a UUID as text, got {type(text).__name__}", path)
    if not _URL_SAFE.fullmatch(text):
        raise EncodeError(f"{text!r} is not url-safe base64", path)
    bare = text.rstrip("=")
    try:
        value = base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
    except binascii.Error as e:
        raise EncodeError(f"{text!r} is not base64: {e}", path) from None
    if len(value) != 16:
        raise EncodeError(f"a UUID has 16 bytes, {text!r} has {len(value)}", path)
    return value


def bytes_to_json(value: bytes) -> str:
    """Write bytes as Kafka's JSON does: plain base64 with padding."""
    return base64.b64encode(value).decode("ascii")


def bytes_from_json(text: object, path: str = "") -> bytes:
    """Read bytes from plain base64.

    Raises:
        EncodeError: Not base64.
    """
    if not isinstance(text, str):
        raise EncodeError(f"expected base64 text, got {type(text).__name__}", path)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise EncodeError(f"{text!r} is not base64: {e}", path) from None


def camel_case(name: str) -> str:
    """Turn a field's snake_case name into Kafka's spelling.

    >>> camel_case("leader_epoch"), camel_case("is_kraft_controller"), camel_case("v0_host")
    ('leaderEpoch', 'isKRaftController', 'v0Host')
    """
    if name == "is_kraft_controller":
        return "isKRaftController"  # the one name whose capitals no rule gives back
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def snake_case(name: str) -> str:
    """Turn Kafka's spelling of a field's name into snake_case.

    >>> snake_case("leaderEpoch"), snake_case("isKRaftController"), snake_case("v0Host")
    ('leader_epoch', 'is_kraft_controller', 'v0_host')
    """
    if name == "isKRaftController":
        return "is_kraft_controller"
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
