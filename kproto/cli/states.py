"""What a control request says of single partitions, and what the broker answered about each."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kproto.api import CONTROL_APIS, ApiKey
from kproto.cli.text import printable
from kproto.codec import message_class
from kproto.errors import UnsupportedApi
from kproto.json_form import uuid_to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kproto.capture import Exchange
    from kproto.tables.filters import Filters

__all__ = ["PartitionLine", "damage", "error_codes", "partition_errors", "partition_lines"]

_LEADERS: Final = {-1: "none", -2: "deleting"}
"""What the controller writes where there is no leader: none is electable, or the topic is being deleted."""


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """One partition of one request, as text.

    Attributes:
        topic, partition: Which.
        leader: ``leader 2 epoch 14``; StopReplica, which names no leader: the epoch alone.
        isr: The in-sync replicas.
        replicas: All of them.
        notes: What is out of the ordinary: new, adding 4, offline 3, recovering, delete.
        error: What the broker answered for it, 0 for none.
        deletes: Whether its log is to be deleted.
    """

    topic: str
    partition: int
    leader: str
    isr: str = ""
    replicas: str = ""
    notes: str = ""
    error: int = 0
    deletes: bool = False

    @property
    def name(self) -> str:
        """``orders-3``, harmless on a terminal."""
        return f"{printable(self.topic)}-{self.partition}"

    def cells(self) -> tuple[str, ...]:
        """The columns of a line of its own."""
        return self.name, self.leader, self.isr, self.replicas, self.notes

    def inline(self) -> str:
        """The same at the end of its request's line."""
        return "  ".join(cell for cell in self.cells() if cell)


def partition_lines(exchange: Exchange, filters: Filters) -> Iterator[PartitionLine]:
    """The chosen partitions of a control request, in the order of the wire; none of any other request."""
    request = exchange.request_message
    if request is None or exchange.api_key not in CONTROL_APIS:
        return
    errors = {(topic, partition): code for topic, partition, code in partition_errors(exchange) if code}
    for state in request.partition_states:
        topic, partition = state.topic_name, state.partition_index
        if not filters.wants_partition(topic, partition):
            continue
        error = errors.get((topic, partition), 0)
        if exchange.api_key == ApiKey.STOP_REPLICA:
            epoch = f"leader epoch {state.leader_epoch}" if state.leader_epoch != -1 else ""
            delete = bool(state.delete_partition)
            yield PartitionLine(
                topic, partition, epoch, notes="delete" if delete else "stop", error=error, deletes=delete
            )
            continue
        leader = _LEADERS.get(state.leader) or str(state.leader)
        yield PartitionLine(
            topic,
            partition,
            f"leader {leader} epoch {state.leader_epoch}",
            f"isr {_ids(state.isr)}",
            f"replicas {_ids(state.replicas)}",
            " ".join(_notes(state)),
            error,
        )


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "-"


def _notes(state: object) -> Iterator[str]:
    if getattr(state, "is_new", False):
        yield "new"
    for name in ("adding", "removing", "offline"):
        if ids := getattr(state, f"{name}_replicas", ()):
            yield f"{name} {_ids(ids)}"
    if getattr(state, "leader_recovery_state", 0):
        yield "recovering"


def damage(exchange: Exchange) -> str | None:
    """Why a body cannot be read; None if it can, or is of an API whose bodies kproto does not read at all."""
    return exchange.error if exchange.api_key is not None and _has_bodies(exchange.api_key) else None


@functools.cache
def _has_bodies(api_key: int) -> bool:
    try:
        message_class(api_key, "request")
    except UnsupportedApi:
        return False
    return True


def error_codes(exchange: Exchange, filters: Filters) -> Counter[int]:
    """How often each error code stands in the answer: the whole answer's, or those of the chosen partitions."""
    if code := getattr(exchange.response_message, "error_code", 0):
        return Counter([code])
    return Counter(
        code
        for topic, partition, code in partition_errors(exchange)
        if code and filters.wants_partition(topic, partition)
    )


def partition_errors(exchange: Exchange) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and error code, as the answer to LeaderAndIsr or StopReplica lists them.

    From LeaderAndIsr version 5 on answers name topics by id; the request tells whose id it is.
    """
    response = exchange.response_message
    if response is None:
        return
    if exchange.api_key == ApiKey.LEADER_AND_ISR:
        request = exchange.request_message
        names = {uuid: name for name, uuid in request.topic_ids.items()} if request is not None else {}
        for topic in response.topics:
            name = names.get(topic.topic_id, uuid_to_json(topic.topic_id))
            for error in topic.partition_errors:
                yield name, error.partition_index, error.error_code
    if exchange.api_key in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA):
        for error in response.partition_errors:
            yield error.topic_name, error.partition_index, error.error_code
