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

from kproto.api import ApiKey

from .datatypes import Bool, Int16, Int32, Int64, Nullable, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage


class InitProducerIdRequest(RequestMessage, api_key=ApiKey.INIT_PRODUCER_ID):
    """A producer's request for its id; a null transactional id if it is not transactional."""

    transactional_id: str | None = Nullable(String)
    transaction_timeout_ms: int = Int32
    producer_id: int = Since(3, Int64, default=-1)
    producer_epoch: int = Since(3, Int16, default=-1)
    enable2_pc: bool = Since(6, Bool)
    keep_prepared_txn: bool = Since(6, Bool)


class InitProducerIdResponse(ResponseMessage, api_key=ApiKey.INIT_PRODUCER_ID):
    """The producer id and its epoch."""

    throttle_time_ms: int = Since(0, Int32, ignorable=True)
    error_code: int = Int16
    producer_id: int = Since(0, Int64, default=-1)
    producer_epoch: int = Int16
    ongoing_txn_producer_id: int = Since(6, Int64, default=-1)
    ongoing_txn_producer_epoch: int = Since(6, Int16, default=-1)
