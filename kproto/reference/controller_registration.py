"""ControllerRegistration (70): a KRaft controller makes itself known to the active one. Version 0; flexible."""

from __future__ import annotations

from kproto.api import ApiKey

from .broker_registration import Feature, Listener
from .datatypes import ArrayOf, Bool, Int16, Int32, Nullable, String, Uuid
from .struct import RequestMessage, ResponseMessage


class ControllerRegistrationRequest(RequestMessage, api_key=ApiKey.CONTROLLER_REGISTRATION):
    """A controller's registration: its id, addresses and features."""

    controller_id: int = Int32
    incarnation_id: bytes = Uuid
    zk_migration_ready: bool = Bool
    listeners: list[Listener] = ArrayOf(Listener)
    features: list[Feature] = ArrayOf(Feature)


class ControllerRegistrationResponse(ResponseMessage, api_key=ApiKey.CONTROLLER_REGISTRATION):
    """Whether the controller is registered."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    error_message: str | None = Nullable(String)
