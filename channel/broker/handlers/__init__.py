"""One file for each API that an embedded broker serves; what ApiVersions announces is derived from this table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey

from . import api_versions, controlled_shutdown, leader_and_isr, metadata, stop_replica, update_metadata

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HANDLERS"]

HANDLERS: Final[dict[int, Callable[..., Any]]] = {
    ApiKey.METADATA: metadata.handle,
    ApiKey.LEADER_AND_ISR: leader_and_isr.handle,
    ApiKey.STOP_REPLICA: stop_replica.handle,
    ApiKey.UPDATE_METADATA: update_metadata.handle,
    ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown.handle,
    ApiKey.API_VERSIONS: api_versions.handle,
}
"""(broker, context, request) -> answer, by API key."""
