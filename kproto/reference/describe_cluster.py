"""DescribeCluster (60): the cluster's id, controller and brokers. Versions 0 to 2, all flexible.

What each version brought:

    1  whether brokers or controllers are asked for
    2  fenced brokers
"""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class DescribeClusterRequest(RequestMessage):
    """What to describe. ``endpoint_type``: 1 brokers, 2 controllers."""

    api_key: int = ApiKey.DESCRIBE_CLUSTER
    fields: ClassVar[Fields] = Fields(
        "include_cluster_authorized_operations" / Bool,
        "endpoint_type" / Since(1, Int8, default=1),
        "include_fenced_brokers" / Since(2, Bool),
    )
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool


class DescribeClusterBroker(Struct):
    """A broker or controller and its address."""

    fields: ClassVar[Fields] = Fields(
        "broker_id" / Int32,
        "host" / String,
        "port" / Int32,
        "rack" / Since(0, Nullable(String), default=None),
        "is_fenced" / Since(2, Bool),
    )
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class DescribeClusterResponse(ResponseMessage):
    """The cluster's nodes."""

    api_key: int = ApiKey.DESCRIBE_CLUSTER
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "error_message" / Since(0, Nullable(String), default=None),
        "endpoint_type" / Since(1, Int8, default=1),
        "cluster_id" / String,
        "controller_id" / Since(0, Int32, default=-1),
        "brokers" / ArrayOf(DescribeClusterBroker),
        "cluster_authorized_operations" / Since(0, Int32, default=-0x8000_0000),
    )
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: int
