"""Describes a control request before encoding: its body, and the brokers to which it is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kproto.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproto.api import ApiKey
    from kproto.fanout import SharedBody

    from .fleet import PlannedFleet

Rows: TypeAlias = dict[str, list[Any]]
"""Partition states by column, named as ``kproto.columns`` names them."""


class PlannedController(NamedTuple):
    """A controller: the node's id, its controller epoch, and whether it is a KRaft controller."""

    id: int
    epoch: int
    is_kraft_controller: bool = False


@dataclass(eq=False, slots=True)
class Content:
    """One request body, and the brokers to which it is sent.

    Attributes:
        fleet: The fleet, for its versions and addresses.
        api_key: LeaderAndIsr, StopReplica or UpdateMetadata.
        controller: The sender.
        recipients: Ids of the receiving brokers.
        rows: The partitions.
        live: Ids of the live brokers.
        external: Host and port of brokers' second listener, of those that have one.
        error_code: The answer to the whole request.
        partition_error: The answer to each partition: STALE_CONTROLLER_EPOCH where brokers know these leader epochs.
        request_type: Full or incremental, of a KRaft controller's requests.
        broker_epoch: The broker epoch that the request names; None for that of the broker's registration.
        delay_ns: How long after its event the controller sends it.
        is_lost: Whether the connection breaks before the answer, and the controller does not send it again.
        is_sent_again: Whether the connection breaks before the first answer.
        encoded: The body; None until it is needed.
    """

    fleet: PlannedFleet
    api_key: ApiKey
    controller: PlannedController
    recipients: list[int]
    rows: Rows
    live: list[int]
    external: Mapping[int, tuple[str, int]] | None = None
    error_code: ErrorCode = ErrorCode.NONE
    partition_error: ErrorCode = ErrorCode.NONE
    request_type: int = 0
    broker_epoch: int | None = None
    delay_ns: int = 0
    is_lost: bool = False
    is_sent_again: bool = False
    encoded: SharedBody | None = None

    @property
    def version(self) -> int:
        """The request's version."""
        return self.fleet.versions[self.api_key]

    @property
    def partitions(self) -> int:
        """The number of partitions in the body."""
        return len(self.rows["partition"])
