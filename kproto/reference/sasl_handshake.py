"""SaslHandshake (17): a client names the mechanism by which it will prove who it is. Versions 0 and 1.

    0  the mechanism's tokens follow bare, each with its length only
    1  they follow inside SaslAuthenticate requests

It never became flexible: it is spoken before the two ends know each other.
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, String
from .struct import RequestMessage, ResponseMessage


class SaslHandshakeRequest(RequestMessage, api_key=ApiKey.SASL_HANDSHAKE):
    """The mechanism that the client wants, e.g. ``SCRAM-SHA-512``."""

    mechanism: str = String


class SaslHandshakeResponse(ResponseMessage, api_key=ApiKey.SASL_HANDSHAKE):
    """An error code, and the mechanisms that the broker has."""

    error_code: int = Int16
    mechanisms: tuple[str, ...] = ArrayOf(String)
