"""InitProducerId (22): a producer asks for its producer id and epoch. Versions 0 to 6; flexible since 2.

What each version brought:

    1  (the broker throttles after its answer instead of before it)
    2  flexible
    3  the producer id and epoch that the producer had before
    4  (a producer whose transactional id another producer has taken has an error code)
    5  (a transaction that has to be aborted has an error code)
    6  two-phase commit: prepared transactions are kept (Kafka 4.1)
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import Bool, Int16, Int32, Int64, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage


class InitProducerIdRequest(RequestMessage):
    """A producer's request for its id; a null transactional id if it is not transactional."""

    api_key: int = ApiKey.INIT_PRODUCER_ID
    fields: ClassVar[Fields] = Fields(
        "transactional_id" / Nullable(String),
        "transaction_timeout_ms" / Int32,
        "producer_id" / Since(3, Int64, default=-1),
        "producer_epoch" / Since(3, Int16, default=-1),
        "enable2_pc" / Since(6, Bool),
        "keep_prepared_txn" / Since(6, Bool),
    )
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool


class InitProducerIdResponse(ResponseMessage):
    """The producer id and its epoch."""

    api_key: int = ApiKey.INIT_PRODUCER_ID
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Since(0, Int32, ignorable=True),
        "error_code" / Int16,
        "producer_id" / Since(0, Int64, default=-1),
        "producer_epoch" / Int16,
        "ongoing_txn_producer_id" / Since(6, Int64, default=-1),
        "ongoing_txn_producer_epoch" / Since(6, Int16, default=-1),
    )
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int
