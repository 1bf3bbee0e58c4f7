"""ListTransactions (66): the transactions that a broker coordinates. Versions 0 to 2; flexible.

1  a filter for the duration of transactions
2  a pattern of transactional ids (Kafka 4.1)
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class ListTransactionsRequest(RequestMessage):
    """The states, producers and ms of duration of the transactions to list; empty and -1 for all."""

    api_key: int = ApiKey.LIST_TRANSACTIONS
    fields: ClassVar[Fields] = Fields(
        "state_filters" / ArrayOf(String),
        "producer_id_filters" / ArrayOf(Int64),
        "duration_filter" / Since(1, Int64, default=-1),
        "transactional_id_pattern" / Since(2, Nullable(String), default=None),
    )
    state_filters: tuple[str, ...]
    producer_id_filters: tuple[int, ...]
    duration_filter: int
    transactional_id_pattern: str | None


class TransactionState(Struct):
    """One transaction."""

    fields: ClassVar[Fields] = Fields(
        "transactional_id" / String,
        "producer_id" / Int64,
        "transaction_state" / String,
    )
    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponse(ResponseMessage):
    """The transactions, and the filters that name no state of a transaction."""

    api_key: int = ApiKey.LIST_TRANSACTIONS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "unknown_state_filters" / ArrayOf(String),
        "transaction_states" / ArrayOf(TransactionState),
    )
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: tuple[str, ...]
    transaction_states: list[TransactionState]
