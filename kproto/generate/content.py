"""Describes a control request before encoding: its body, and the brokers to which it is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kproto.api import ApiKey

if TYPE_CHECKING:
    from kproto.fanout import SharedBody

    from .fleet import Fleet

__all__ = ["Content", "Controller", "Rows"]

Rows: TypeAlias = dict[str, list[Any]]
"""Partition states by column, named as ``kproto.columns`` names them."""


class Controller(NamedTuple):
    """A controller: the broker's id and its controller epoch."""

    id: int
    epoch: int


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
        refused: Whether the sender is no longer the controller, so that brokers refuse the request.
        repeated: Whether the brokers know these leader epochs already, so that they refuse each partition.
        encoded: The body; None until it is needed.
    """

    fleet: Fleet
    api_key: ApiKey
    controller: Controller
    recipients: list[int]
    rows: Rows
    live: list[int]
    refused: bool = False
    repeated: bool = False
    encoded: SharedBody | None = None

    @property
    def version(self) -> int:
        """The request's version."""
        versions = self.fleet.versions
        match self.api_key:
            case ApiKey.LEADER_AND_ISR:
                return versions.leader_and_isr
            case ApiKey.STOP_REPLICA:
                return versions.stop_replica
        return versions.update_metadata

    @property
    def partitions(self) -> int:
        """The number of partitions in the body."""
        return len(self.rows["partition"])
