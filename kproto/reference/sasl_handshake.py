"""SaslHandshake (17): a client names the mechanism by which it will prove who it is. Versions 0 and 1.

    0  the mechanism's tokens follow bare, each with its length only
    1  they follow inside SaslAuthenticate requests

It never became flexible: it is spoken before the two ends know each other.
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, String
from .fields import Fields
from .struct import RequestMessage, ResponseMessage


class SaslHandshakeRequest(RequestMessage):
    """The mechanism that the client wants, e.g. ``SCRAM-SHA-512``."""

    api_key: int = ApiKey.SASL_HANDSHAKE
    fields: ClassVar[Fields] = Fields(
        "mechanism" / String,
    )
    mechanism: str


class SaslHandshakeResponse(ResponseMessage):
    """An error code, and the mechanisms that the broker has."""

    api_key: int = ApiKey.SASL_HANDSHAKE
    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "mechanisms" / ArrayOf(String),
    )
    error_code: int
    mechanisms: tuple[str, ...]
