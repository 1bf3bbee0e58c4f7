"""BrokerRegistration (62): a broker makes itself known to a KRaft controller. Versions 0 to 4, all flexible.

What each version brought:

    1  whether the broker is on its way from ZooKeeper
    2  log directories
    3  the epoch of the broker's former registration, which shows a clean restart
    4  (features whose lowest version is 0)
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Int64, Nullable, String, UInt16, Uuid
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class Listener(Struct):
    """One address of the broker. ``security_protocol``: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "host" / String,
        "port" / UInt16,
        "security_protocol" / Int16,
    )
    name: str
    host: str
    port: int
    security_protocol: int


class Feature(Struct):
    """A feature and the levels that the broker can run."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "min_supported_version" / Int16,
        "max_supported_version" / Int16,
    )
    name: str
    min_supported_version: int
    max_supported_version: int


class BrokerRegistrationRequest(RequestMessage):
    """A broker's registration: its id, addresses, rack and features."""

    api_key: int = ApiKey.BROKER_REGISTRATION
    fields: ClassVar[Fields] = Fields(
        "broker_id" / Int32,
        "cluster_id" / String,
        "incarnation_id" / Uuid,
        "listeners" / ArrayOf(Listener),
        "features" / ArrayOf(Feature),
        "rack" / Nullable(String),
        "is_migrating_zk_broker" / Since(1, Bool),
        "log_dirs" / Since(2, ArrayOf(Uuid), ignorable=True),
        "previous_broker_epoch" / Since(3, Int64, default=-1, ignorable=True),
    )
    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: list[Listener]
    features: list[Feature]
    rack: str | None
    is_migrating_zk_broker: bool
    log_dirs: tuple[bytes, ...]
    previous_broker_epoch: int


class BrokerRegistrationResponse(ResponseMessage):
    """The broker epoch that the controller gave."""

    api_key: int = ApiKey.BROKER_REGISTRATION
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "broker_epoch" / Since(0, Int64, default=-1),
    )
    throttle_time_ms: int
    error_code: int
    broker_epoch: int
