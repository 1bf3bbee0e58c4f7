"""BrokerHeartbeat (63): a broker tells a KRaft controller that it is alive. Versions 0 and 1, both flexible.

1  log directories that have failed, as a tagged field
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int16, Int32, Int64, Uuid
from .fields import Since, Tagged
from .struct import RequestMessage, ResponseMessage


class BrokerHeartbeatRequest(RequestMessage, api_key=ApiKey.BROKER_HEARTBEAT):
    """A broker's metadata offset, and whether it wants to be fenced or shut down."""

    broker_id: int = Int32
    broker_epoch: int = Since(0, Int64, default=-1)
    current_metadata_offset: int = Int64
    want_fence: bool = Bool
    want_shut_down: bool = Bool
    offline_log_dirs: tuple[bytes, ...] = Tagged(0, ArrayOf(Uuid), since=1)


class BrokerHeartbeatResponse(ResponseMessage, api_key=ApiKey.BROKER_HEARTBEAT):
    """The broker's state as the controller sees it: caught up, fenced, to shut down."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    is_caught_up: bool = Bool
    is_fenced: bool = Since(0, Bool, default=True)
    should_shut_down: bool = Bool
