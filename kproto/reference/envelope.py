"""Envelope (58): a client's request that a broker passes on to the controller. Version 0, flexible."""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import Bytes, Int16, Nullable
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage


class EnvelopeRequest(RequestMessage):
    """A whole request with its header, the client's principal (null if the broker has none) and address."""

    api_key: int = ApiKey.ENVELOPE
    fields: ClassVar[Fields] = Fields(
        "request_data" / Bytes,
        "request_principal" / Nullable(Bytes),
        "client_host_address" / Bytes,
    )
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


class EnvelopeResponse(ResponseMessage):
    """A whole response with its header, or the error that prevented it."""

    api_key: int = ApiKey.ENVELOPE
    fields: ClassVar[Fields] = Fields(
        "response_data" / Since(0, Nullable(Bytes), default=None),
        "error_code" / Int16,
    )
    response_data: bytes | None
    error_code: int
