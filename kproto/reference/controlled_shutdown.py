"""ControlledShutdown (7): a broker asks the controller to move its leaderships away. Versions 0 to 3.

What each version brought:

    0  sent with a request header of its own, which has no client id
    1  the ordinary header
    2  the broker's epoch
    3  flexible
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Int16, Int32, Int64, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class ControlledShutdownRequest(RequestMessage, api_key=ApiKey.CONTROLLED_SHUTDOWN):
    """A broker's request to lose its leaderships before it stops."""

    broker_id: int = Int32
    broker_epoch: int = Since(2, Int64, default=-1, ignorable=True)


class RemainingPartition(Struct):
    """A partition that the broker still leads."""

    topic_name: str = String
    partition_index: int = Int32


class ControlledShutdownResponse(ResponseMessage, api_key=ApiKey.CONTROLLED_SHUTDOWN):
    """The partitions that the broker still leads; it repeats the request while there are any."""

    error_code: int = Int16
    remaining_partitions: list[RemainingPartition] = ArrayOf(RemainingPartition)
