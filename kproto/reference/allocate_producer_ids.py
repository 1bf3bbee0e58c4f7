"""AllocateProducerIds (67): a broker asks the controller for a block of producer ids. Version 0, flexible."""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import Int16, Int32, Int64
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage


class AllocateProducerIdsRequest(RequestMessage):
    """A broker's request for a block of producer ids."""

    api_key = ApiKey.ALLOCATE_PRODUCER_IDS
    fields = Fields(
        "broker_id" / Int32,
        "broker_epoch" / Since(0, Int64, default=-1),
    )


class AllocateProducerIdsResponse(ResponseMessage):
    """The block: ``producer_id_len`` ids from ``producer_id_start`` on."""

    api_key = ApiKey.ALLOCATE_PRODUCER_IDS
    fields = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "producer_id_start" / Int64,
        "producer_id_len" / Int32,
    )
