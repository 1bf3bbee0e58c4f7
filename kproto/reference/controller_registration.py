"""ControllerRegistration (70): a KRaft controller makes itself known to the active one. Version 0; flexible."""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .broker_registration import Feature, Listener
from .datatypes import ArrayOf, Bool, Int16, Int32, Nullable, String, Uuid
from .fields import Fields
from .struct import RequestMessage, ResponseMessage


class ControllerRegistrationRequest(RequestMessage):
    """A controller's registration: its id, addresses and features."""

    api_key: int = ApiKey.CONTROLLER_REGISTRATION
    fields: ClassVar[Fields] = Fields(
        "controller_id" / Int32,
        "incarnation_id" / Uuid,
        "zk_migration_ready" / Bool,
        "listeners" / ArrayOf(Listener),
        "features" / ArrayOf(Feature),
    )
    controller_id: int
    incarnation_id: bytes
    zk_migration_ready: bool
    listeners: list[Listener]
    features: list[Feature]


class ControllerRegistrationResponse(ResponseMessage):
    """Whether the controller is registered."""

    api_key: int = ApiKey.CONTROLLER_REGISTRATION
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "error_message" / Nullable(String),
    )
    throttle_time_ms: int
    error_code: int
    error_message: str | None
