"""AllocateProducerIds (67): a broker asks the controller for a block of producer ids. Version 0, flexible."""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import Int16, Int32, Int64
from .fields import Since
from .struct import RequestMessage, ResponseMessage


class AllocateProducerIdsRequest(RequestMessage, api_key=ApiKey.ALLOCATE_PRODUCER_IDS):
    """A broker's request for a block of producer ids."""

    broker_id: int = Int32
    broker_epoch: int = Since(0, Int64, default=-1)


class AllocateProducerIdsResponse(ResponseMessage, api_key=ApiKey.ALLOCATE_PRODUCER_IDS):
    """The block: ``producer_id_len`` ids from ``producer_id_start`` on."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    producer_id_start: int = Int64
    producer_id_len: int = Int32
