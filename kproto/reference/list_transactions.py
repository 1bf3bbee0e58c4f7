"""ListTransactions (66): the transactions that a broker coordinates. Versions 0 to 2; flexible.

1  a filter for the duration of transactions
2  a pattern of transactional ids (Kafka 4.1)
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, Nullable, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class ListTransactionsRequest(RequestMessage, api_key=ApiKey.LIST_TRANSACTIONS):
    """The states, producers and ms of duration of the transactions to list; empty and -1 for all."""

    state_filters: tuple[str, ...] = ArrayOf(String)
    producer_id_filters: tuple[int, ...] = ArrayOf(Int64)
    duration_filter: int = Since(1, Int64, default=-1)
    transactional_id_pattern: str | None = Since(2, Nullable(String), default=None)


class TransactionState(Struct):
    """One transaction."""

    transactional_id: str = String
    producer_id: int = Int64
    transaction_state: str = String


class ListTransactionsResponse(ResponseMessage, api_key=ApiKey.LIST_TRANSACTIONS):
    """The transactions, and the filters that name no state of a transaction."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    unknown_state_filters: tuple[str, ...] = ArrayOf(String)
    transaction_states: list[TransactionState] = ArrayOf(TransactionState)
