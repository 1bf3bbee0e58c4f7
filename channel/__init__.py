"""The control plane's two ends over real sockets: a controller's sending half, brokers that answer, and their network.

``channel.network`` moves frames, ``channel.send`` sends control requests, ``channel.lead`` decides them, and
``channel.broker`` receives and answers.
Every component takes its clock and its settings as arguments. Bytes and messages are ``kproto``'s.

The names below are the front door; each is loaded on first use:

>>> from channel import EmbeddedCluster, ScriptedController
>>> with EmbeddedCluster(3) as cluster, ScriptedController(cluster) as controller:
...     controller.create_topic("orders", partitions=6)
...     controller.wait_all()
"""

from __future__ import annotations

import ast
import select
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from channel.broker.cluster import EmbeddedCluster as EmbeddedCluster
    from channel.broker.embedded import EmbeddedBroker as EmbeddedBroker
    from channel.broker.fleet import Fleet as Fleet
    from channel.broker.hooks import BrokerHooks as BrokerHooks
    from channel.broker.hooks import Interception as Interception
    from channel.broker.hooks import RequestContext as RequestContext
    from channel.broker.records import RecordConfig as RecordConfig
    from channel.config import ChannelConfig as ChannelConfig
    from channel.errors import AuthenticationFailed as AuthenticationFailed
    from channel.errors import BrokerNotAvailable as BrokerNotAvailable
    from channel.errors import ChannelError as ChannelError
    from channel.errors import ControllerMoved as ControllerMoved
    from channel.errors import Disconnected as Disconnected
    from channel.errors import IllegalState as IllegalState
    from channel.errors import RequestTimeout as RequestTimeout
    from channel.errors import StaleBrokerEpoch as StaleBrokerEpoch
    from channel.errors import TopicNotKnown as TopicNotKnown
    from channel.lead.election import Controller as Controller
    from channel.lead.leadership import LeadershipSettings as LeadershipSettings
    from channel.metadata.clients import ClusterClient as ClusterClient
    from channel.metadata.clients import ClusterWatch as ClusterWatch
    from channel.metadata.clients import MetadataSender as MetadataSender
    from channel.metadata.cluster_metadata import ClusterView as ClusterView
    from channel.metrics import Metrics as Metrics
    from channel.network.recorder import PcapngRecorder as PcapngRecorder
    from channel.node.controller_node import ControllerNode as ControllerNode
    from channel.node.controller_node import candidates as candidates
    from channel.rehearsal.journal import Journal as Journal
    from channel.rehearsal.scripted_controller import ScriptedController as ScriptedController
    from channel.security import Password as Password
    from channel.security import SecurityConfig as SecurityConfig
    from channel.send.encoded_requests import SingleRequest as SingleRequest
    from channel.send.manager import ControllerChannelManager as ControllerChannelManager
    from channel.tap import Tap as Tap
    from channel.tap import TapMapping as TapMapping
    from channel.types import Broker as Broker
    from channel.types import EndPoint as EndPoint
    from channel.types import Node as Node
    from channel.types import SecurityProtocol as SecurityProtocol

if not hasattr(select, "epoll"):
    raise ImportError(
        "channel needs Linux: its connections wait by epoll, which this system does not have; kproto's codec, captures "
        "and tables do without it",
        name="channel",
    )


def _modules() -> dict[str, str]:
    """Return the module of each name above: the imports that type checkers read are the only list."""
    source = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    imports = (each for each in ast.walk(source) if isinstance(each, ast.ImportFrom))
    return {alias.name: str(each.module) for each in imports for alias in each.names if alias.asname == alias.name}


_MODULE_OF: Final = _modules()
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return __all__
