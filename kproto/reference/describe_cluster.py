"""DescribeCluster (60): the cluster's id, controller and brokers. Versions 0 to 2, all flexible.

What each version brought:

    1  whether brokers or controllers are asked for
    2  fenced brokers
"""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Int8, Int16, Int32, Nullable, String
from .fields import Fields, Since
from .struct import RequestMessage, ResponseMessage, Struct


class DescribeClusterRequest(RequestMessage):
    """What to describe. ``endpoint_type``: 1 brokers, 2 controllers."""

    api_key = ApiKey.DESCRIBE_CLUSTER
    fields = Fields(
        "include_cluster_authorized_operations" / Bool,
        "endpoint_type" / Since(1, Int8, default=1),
        "include_fenced_brokers" / Since(2, Bool),
    )


class DescribeClusterBroker(Struct):
    """A broker or controller and its address."""

    fields = Fields(
        "broker_id" / Int32,
        "host" / String,
        "port" / Int32,
        "rack" / Since(0, Nullable(String), default=None),
        "is_fenced" / Since(2, Bool),
    )


class DescribeClusterResponse(ResponseMessage):
    """The cluster's nodes."""

    api_key = ApiKey.DESCRIBE_CLUSTER
    fields = Fields(
        "throttle_time_ms" / Int32,
        "error_code" / Int16,
        "error_message" / Since(0, Nullable(String), default=None),
        "endpoint_type" / Since(1, Int8, default=1),
        "cluster_id" / String,
        "controller_id" / Since(0, Int32, default=-1),
        "brokers" / ArrayOf(DescribeClusterBroker),
        "cluster_authorized_operations" / Since(0, Int32, default=-0x8000_0000),
    )
