"""SaslAuthenticate (36): one step of the mechanism that SaslHandshake agreed on. Versions 0 to 2.

1  how long the session may live before the client must prove itself again
2  flexible
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import Bytes, Int16, Int64, Nullable, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage


class SaslAuthenticateRequest(RequestMessage, api_key=ApiKey.SASL_AUTHENTICATE):
    """The client's token."""

    auth_bytes: bytes = Bytes


class SaslAuthenticateResponse(ResponseMessage, api_key=ApiKey.SASL_AUTHENTICATE):
    """The server's token, or an error and its text."""

    error_code: int = Int16
    error_message: str | None = Nullable(String)
    auth_bytes: bytes = Bytes
    session_lifetime_ms: int = Since(1, Int64, ignorable=True)
