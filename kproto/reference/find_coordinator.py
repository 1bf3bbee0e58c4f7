"""FindCoordinator (10): a client asks for the coordinator of groups or transactions. Versions 0 to 6; flexible since 3.

What each version brought:

    1  coordinators of transactions; throttle time, messages beside error codes
    2  (the broker throttles after its answer instead of before it)
    3  flexible
    4  many coordinators in one request
    5  (a transaction that has to be aborted has an error code)
    6  coordinators of share groups
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int8, Int16, Int32, Nullable, String
from .fields import Between, Since, Until
from .struct import RequestMessage, ResponseMessage, Struct


class FindCoordinatorRequest(RequestMessage, api_key=ApiKey.FIND_COORDINATOR):
    """The groups or transactional ids; ``key_type`` is 0 for groups and 1 for transactions."""

    key: str = Until(3, String)
    key_type: int = Since(1, Int8)
    coordinator_keys: tuple[str, ...] = Since(4, ArrayOf(String))


class Coordinator(Struct):
    """The coordinator of one group or transactional id."""

    key: str = Since(4, String)
    node_id: int = Since(4, Int32)
    host: str = Since(4, String)
    port: int = Since(4, Int32)
    error_code: int = Since(4, Int16)
    error_message: str | None = Since(4, Nullable(String), ignorable=True)


class FindCoordinatorResponse(ResponseMessage, api_key=ApiKey.FIND_COORDINATOR):
    """The coordinator up to version 3, the coordinators from version 4 on."""

    throttle_time_ms: int = Since(1, Int32, ignorable=True)
    error_code: int = Until(3, Int16)
    error_message: str | None = Between(1, 3, Nullable(String), ignorable=True)
    node_id: int = Until(3, Int32)
    host: str = Until(3, String)
    port: int = Until(3, Int32)
    coordinators: list[Coordinator] = Since(4, ArrayOf(Coordinator))
