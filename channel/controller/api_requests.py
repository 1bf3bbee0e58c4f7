"""Requests of brokers and administrators to the controller, as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey

from .events import ControllerEvent, ControllerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from kproto.error_codes import ErrorCode

CONTROLLER_APIS: Final = frozenset(
    {
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    }
)
"""The APIs that a controller serves, each as an event."""

CONFIG_APIS: Final = frozenset({ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
"""The APIs that change settings: a controller that is a broker of its own serves them about topics and itself."""


class RequestRejected(Exception):
    """A part of a request, such as one topic, is answered with an error.

    Attributes:
        code: The error; its text is the exception's.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class ApiRequest(ControllerEvent, state=ControllerState.TOPIC_CHANGE):
    """A request about topics, partitions or producer ids.

    Attributes:
        api_key, version: The API and the version of the request.
        request: The message.
        callback: Takes the response, once.
    """

    api_key: int
    version: int
    request: Any
    callback: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class AlterPartitionReceived(ApiRequest, state=ControllerState.ISR_CHANGE):
    """An AlterPartition request of a leader."""


@dataclass(frozen=True, slots=True)
class ShutdownReceived(ApiRequest, state=ControllerState.CONTROLLED_SHUTDOWN):
    """A ControlledShutdown request of a broker."""


_KINDS: Final[dict[int, type[ApiRequest]]] = {
    ApiKey.ALTER_PARTITION: AlterPartitionReceived,
    ApiKey.CONTROLLED_SHUTDOWN: ShutdownReceived,
}


def api_request(api_key: int, version: int, request: Any, callback: Callable[[Any], None]) -> ApiRequest:
    """Make the event of a request of ``CONTROLLER_APIS``."""
    return _KINDS.get(api_key, ApiRequest)(api_key, version, request, callback)
