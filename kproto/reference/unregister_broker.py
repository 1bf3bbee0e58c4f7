"""UnregisterBroker (64): a KRaft controller forgets a broker. Version 0; flexible."""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import Int16, Int32, Nullable, String
from .fields import Fields
from .struct import RequestMessage, ResponseMessage


class UnregisterBrokerRequest(RequestMessage):
    """The broker."""

    api_key: int = ApiKey.UNREGISTER_BROKER
    fields: ClassVar[Fields] = Fields(
        "broker_id" / Int32,
    )
    broker_id: int


class UnregisterBrokerResponse(ResponseMessage):
    """Whether the broker is forgotten."""

    api_key: int = ApiKey.UNREGISTER_BROKER
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "error_message" / Nullable(String),
    )
    throttle_time_ms: int
    error_code: int
    error_message: str | None
