"""Envelope (58): a client's request that a broker passes on to the controller. Version 0, flexible."""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import Bytes, Int16, Nullable
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage


class EnvelopeRequest(RequestMessage):
    """A whole request with its header, the client's principal (null if the broker has none) and address."""

    api_key = ApiKey.ENVELOPE
    fields = Fields(
        "request_data" / Bytes,
        "request_principal" / Nullable(Bytes),
        "client_host_address" / Bytes,
    )


class EnvelopeResponse(ResponseMessage):
    """A whole response with its header, or the error that prevented it."""

    api_key = ApiKey.ENVELOPE
    fields = Fields(
        "response_data" / Since(0, Nullable(Bytes), default=None),
        "error_code" / Int16,
    )
