"""UnregisterBroker (64): a KRaft controller forgets a broker. Version 0; flexible."""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import Int16, Int32, Nullable, String
from .struct import RequestMessage, ResponseMessage


class UnregisterBrokerRequest(RequestMessage):
    """The broker."""

    api_key: int = ApiKey.UNREGISTER_BROKER
    broker_id: int = Int32


class UnregisterBrokerResponse(ResponseMessage):
    """Whether the broker is forgotten."""

    api_key: int = ApiKey.UNREGISTER_BROKER
    throttle_time_ms: int = Int32
    error_code: int = Int16
    error_message: str | None = Nullable(String)
