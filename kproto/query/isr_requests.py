"""Reads which leader asked for which in-sync replicas: AlterPartition, which the tables do not hold, from captures."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kproto.api import ApiKey
from kproto.capture import capture_points, exchanges
from kproto.errors import CaptureError
from kproto.metadata_log.finding import find
from kproto.tables.files import expand
from kproto.tables.schemas import INTS, column, described

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.capture import Exchange

ISR_REQUESTS: Final = described(
    "Changes of in-sync replicas that leaders asked for by AlterPartition and the controller made.",
    column("broker", pa.int32(), "The leader that asked."),
    column("topic", pa.string(), "Topic; null from version 2 on, which has ids."),
    column("topic_id", pa.binary(), "Topic id; null before version 2, which has names."),
    column("partition", pa.int32(), "Partition."),
    column("leader_epoch", pa.int32(), "Leader epoch that the controller answered."),
    column("partition_epoch", pa.int32(), "Partition epoch that the controller answered."),
    column("isr", INTS, "In-sync replicas that the controller answered."),
)


def isr_requests(*captures: str | os.PathLike[str]) -> pa.Table:
    """Return the table ``ISR_REQUESTS`` of captures, which ``open_tables`` takes beside their other tables.

    Args:
        captures: Files, directories and patterns, as in ``kproto.capture.capture_points``. What is no capture is passed
            over: ``kproto.tables.read`` says why.
    """
    rows: list[dict[str, Any]] = []
    _logs, others = find(expand([os.fspath(path) for path in captures]))
    for point in capture_points(others):
        with suppress(CaptureError):
            for exchange in exchanges(point, apis=(ApiKey.ALTER_PARTITION,)):
                rows += _rows(exchange)
    return pa.Table.from_pylist(rows, schema=ISR_REQUESTS)


def _rows(exchange: Exchange) -> Iterator[dict[str, Any]]:
    request, response = exchange.request_message, exchange.response_message
    if request is None or response is None or response.error_code:
        return
    named = exchange.api_version in (0, 1)
    for topic in response.topics:
        for state in topic.partitions:
            if not state.error_code:
                yield {
                    "broker": request.broker_id,
                    "topic": topic.topic_name if named else None,
                    "topic_id": None if named else topic.topic_id,
                    "partition": state.partition_index,
                    "leader_epoch": state.leader_epoch,
                    "partition_epoch": state.partition_epoch,
                    "isr": state.isr,
                }
