"""AllocateProducerIds (67): a broker asks the controller for a block of producer ids. Version 0, flexible."""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import Int16, Int32, Int64
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage


class AllocateProducerIdsRequest(RequestMessage):
    """A broker's request for a block of producer ids."""

    api_key: int = ApiKey.ALLOCATE_PRODUCER_IDS
    fields: ClassVar[Fields] = Fields(
        "broker_id" / Int32,
        "broker_epoch" / Since(0, Int64, default=-1),
    )
    broker_id: int
    broker_epoch: int


class AllocateProducerIdsResponse(ResponseMessage):
    """The block: ``producer_id_len`` ids from ``producer_id_start`` on."""

    api_key: int = ApiKey.ALLOCATE_PRODUCER_IDS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "producer_id_start" / Int64,
        "producer_id_len" / Int32,
    )
    throttle_time_ms: int
    error_code: int
    producer_id_start: int
    producer_id_len: int
