"""SaslAuthenticate (36): one step of the mechanism that SaslHandshake agreed on. Versions 0 to 2.

1  how long the session may live before the client must prove itself again
2  flexible
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import Bytes, Int16, Int64, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage


class SaslAuthenticateRequest(RequestMessage):
    """The client's token."""

    api_key: int = ApiKey.SASL_AUTHENTICATE
    fields: ClassVar[Fields] = Fields(
        "auth_bytes" / Bytes,
    )
    auth_bytes: bytes


class SaslAuthenticateResponse(ResponseMessage):
    """The server's token, or an error and its text."""

    api_key: int = ApiKey.SASL_AUTHENTICATE
    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "error_message" / Nullable(String),
        "auth_bytes" / Bytes,
        "session_lifetime_ms" / Since(1, Int64, ignorable=True),
    )
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
