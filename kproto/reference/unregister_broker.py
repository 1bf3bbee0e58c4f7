"""UnregisterBroker (64): a KRaft controller forgets a broker. Version 0; flexible."""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import Int16, Int32, Nullable, String
from .struct import RequestMessage, ResponseMessage


class UnregisterBrokerRequest(RequestMessage, api_key=ApiKey.UNREGISTER_BROKER):
    """The broker."""

    broker_id: int = Int32


class UnregisterBrokerResponse(ResponseMessage, api_key=ApiKey.UNREGISTER_BROKER):
    """Whether the broker is forgotten."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    error_message: str | None = Nullable(String)
