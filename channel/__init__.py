"""The control plane's two ends over real sockets: a controller's sending half, brokers that answer, and their network.

``channel.network`` moves frames, ``channel.controller`` decides and sends, ``channel.broker`` receives and answers.
Every component takes its clock and its settings as arguments. Bytes and messages are ``kproto``'s.

The names below are the front door; each is loaded on first use:

>>> from channel import EmbeddedCluster, ScriptedController
>>> with EmbeddedCluster(3) as cluster, ScriptedController(cluster) as controller:
...     controller.create_topic("orders", partitions=6)
...     controller.wait_all()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from channel.broker.cluster import EmbeddedCluster
    from channel.broker.embedded import EmbeddedBroker
    from channel.broker.fleet import Fleet
    from channel.broker.hooks import BrokerHooks, Interception, RequestContext
    from channel.broker.records import RecordConfig
    from channel.config import ChannelConfig
    from channel.controller.controller import Controller
    from channel.controller.leadership import leadership_of
    from channel.controller.manager import ControllerChannelManager
    from channel.controller.requests import SingleRequest
    from channel.errors import (
        AuthenticationFailed,
        BrokerNotAvailable,
        ChannelError,
        ControllerMoved,
        Disconnected,
        IllegalState,
        RequestTimeout,
        StaleBrokerEpoch,
        TopicNotKnown,
    )
    from channel.metrics import Metrics
    from channel.network.metadata.clients import ClusterClient, ClusterWatch, MetadataSender
    from channel.network.metadata.snapshot import ClusterView
    from channel.network.recorder import PcapngRecorder
    from channel.node.candidate import candidates
    from channel.node.controller_node import ControllerNode
    from channel.rehearsal.journal import Journal
    from channel.rehearsal.scripted_controller import ScriptedController
    from channel.security import Password, SecurityConfig
    from channel.tap import Mapping, Tap
    from channel.types import Broker, EndPoint, Node, SecurityProtocol

__all__ = [
    "AuthenticationFailed",
    "Broker",
    "BrokerHooks",
    "BrokerNotAvailable",
    "ChannelConfig",
    "ChannelError",
    "ClusterClient",
    "ClusterView",
    "ClusterWatch",
    "Controller",
    "ControllerChannelManager",
    "ControllerMoved",
    "ControllerNode",
    "Disconnected",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "EndPoint",
    "Fleet",
    "IllegalState",
    "Interception",
    "Journal",
    "Mapping",
    "MetadataSender",
    "Metrics",
    "Node",
    "Password",
    "PcapngRecorder",
    "RecordConfig",
    "RequestContext",
    "RequestTimeout",
    "ScriptedController",
    "SecurityConfig",
    "SecurityProtocol",
    "SingleRequest",
    "StaleBrokerEpoch",
    "Tap",
    "TopicNotKnown",
    "candidates",
    "leadership_of",
]

_MODULES: Final = {
    "channel.broker.cluster": "EmbeddedCluster",
    "channel.broker.embedded": "EmbeddedBroker",
    "channel.broker.fleet": "Fleet",
    "channel.broker.hooks": "BrokerHooks Interception RequestContext",
    "channel.broker.records": "RecordConfig",
    "channel.config": "ChannelConfig",
    "channel.controller.controller": "Controller",
    "channel.controller.leadership": "leadership_of",
    "channel.controller.manager": "ControllerChannelManager",
    "channel.controller.requests": "SingleRequest",
    "channel.errors": (
        "AuthenticationFailed BrokerNotAvailable ChannelError ControllerMoved Disconnected IllegalState "
        "RequestTimeout StaleBrokerEpoch TopicNotKnown"
    ),
    "channel.metrics": "Metrics",
    "channel.network.metadata.clients": "ClusterClient ClusterWatch MetadataSender",
    "channel.network.metadata.snapshot": "ClusterView",
    "channel.network.recorder": "PcapngRecorder",
    "channel.node.candidate": "candidates",
    "channel.node.controller_node": "ControllerNode",
    "channel.rehearsal.journal": "Journal",
    "channel.rehearsal.scripted_controller": "ScriptedController",
    "channel.security": "Password SecurityConfig",
    "channel.tap": "Mapping Tap",
    "channel.types": "Broker EndPoint Node SecurityProtocol",
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
