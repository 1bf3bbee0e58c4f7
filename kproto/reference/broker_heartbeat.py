"""BrokerHeartbeat (63): a broker tells a KRaft controller that it is alive. Versions 0 and 1, both flexible.

1  log directories that have failed, as a tagged field
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Int64, Uuid
from .fields import Fields, Since, Tagged
from .struct import RequestMessage, ResponseMessage


class BrokerHeartbeatRequest(RequestMessage):
    """A broker's metadata offset, and whether it wants to be fenced or shut down."""

    api_key: int = ApiKey.BROKER_HEARTBEAT
    fields: ClassVar[Fields] = Fields(
        "broker_id" / Int32,
        "broker_epoch" / Since(0, Int64, default=-1),
        "current_metadata_offset" / Int64,
        "want_fence" / Bool,
        "want_shut_down" / Bool,
        "offline_log_dirs" / Tagged(0, ArrayOf(Uuid), since=1),
    )
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[bytes, ...]


class BrokerHeartbeatResponse(ResponseMessage):
    """The broker's state as the controller sees it: caught up, fenced, to shut down."""

    api_key: int = ApiKey.BROKER_HEARTBEAT
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "is_caught_up" / Bool,
        "is_fenced" / Since(0, Bool, default=True),
        "should_shut_down" / Bool,
    )
    throttle_time_ms: int
    error_code: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
