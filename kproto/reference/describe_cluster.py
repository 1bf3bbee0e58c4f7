"""DescribeCluster (60): the cluster's id, controller and brokers. Versions 0 to 2, all flexible.

What each version brought:

    1  whether brokers or controllers are asked for
    2  fenced brokers
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Nullable, String
from .fields import Since
from .struct import RequestMessage, ResponseMessage, Struct


class DescribeClusterRequest(RequestMessage, api_key=ApiKey.DESCRIBE_CLUSTER):
    """What to describe. ``endpoint_type``: 1 brokers, 2 controllers."""

    include_cluster_authorized_operations: bool = Bool
    endpoint_type: int = Since(1, Int8, default=1)
    include_fenced_brokers: bool = Since(2, Bool)


class DescribeClusterBroker(Struct):
    """A broker or controller and its address."""

    broker_id: int = Int32
    host: str = String
    port: int = Int32
    rack: str | None = Since(0, Nullable(String), default=None)
    is_fenced: bool = Since(2, Bool)


class DescribeClusterResponse(ResponseMessage, api_key=ApiKey.DESCRIBE_CLUSTER):
    """The cluster's nodes."""

    throttle_time_ms: int = Int32
    error_code: int = Int16
    error_message: str | None = Since(0, Nullable(String), default=None)
    endpoint_type: int = Since(1, Int8, default=1)
    cluster_id: str = String
    controller_id: int = Since(0, Int32, default=-1)
    brokers: list[DescribeClusterBroker] = ArrayOf(DescribeClusterBroker)
    cluster_authorized_operations: int = Since(0, Int32, default=-0x8000_0000)
