"""BrokerRegistration (62): a broker makes itself known to a KRaft controller. Versions 0 to 4, all flexible.

What each version brought:

    1  whether the broker is on its way from ZooKeeper
    2  log directories
    3  the epoch of the broker's former registration, which shows a clean restart
    4  (features whose lowest version is 0)
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Int64, Nullable, String, UInt16, Uuid
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class Listener(Struct):
    """One address of the broker. ``security_protocol``: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str = String
    host: str = String
    port: int = UInt16
    security_protocol: int = Int16


class Feature(Struct):
    """A feature and the levels that the broker can run."""

    name: str = String
    min_supported_version: int = Int16
    max_supported_version: int = Int16


class BrokerRegistrationRequest(RequestMessage, api_key=ApiKey.BROKER_REGISTRATION):
    """A broker's registration: its id, addresses, rack and features."""

    broker_id: int = Int32
    cluster_id: str = String
    incarnation_id: bytes = Uuid
    listeners: list[Listener] = ArrayOf(Listener)
    features: list[Feature] = ArrayOf(Feature)
    rack: str | None = Nullable(String)
    is_migrating_zk_broker: bool = Since(1, Bool)
    log_dirs: tuple[bytes, ...] = Since(2, ArrayOf(Uuid), ignorable=True)
    previous_broker_epoch: int = Since(3, Int64, default=-1, ignorable=True)


class BrokerRegistrationResponse(ResponseMessage, api_key=ApiKey.BROKER_REGISTRATION):
    """The broker epoch that the controller gave."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    broker_epoch: int = Since(0, Int64, default=-1)
