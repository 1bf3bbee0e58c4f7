"""Envelope (58): a client's request that a broker passes on to the controller. Version 0, flexible."""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import Bytes, Int16, Nullable
from .fields import Since
from .struct import RequestMessage, ResponseMessage


class EnvelopeRequest(RequestMessage, api_key=ApiKey.ENVELOPE):
    """A whole request with its header, the client's principal (null if the broker has none) and address."""

    request_data: bytes = Bytes
    request_principal: bytes | None = Nullable(Bytes)
    client_host_address: bytes = Bytes


class EnvelopeResponse(ResponseMessage, api_key=ApiKey.ENVELOPE):
    """A whole response with its header, or the error that prevented it."""

    response_data: bytes | None = Since(0, Nullable(Bytes), default=None)
    error_code: int = Int16
