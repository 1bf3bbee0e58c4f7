"""Controller candidates in a fleet's brokers: the elected controller sends to all brokers, its own too, over sockets.

>>> from channel.broker.fleet import Fleet
>>> def lead_each_other(zookeeper):
...     with Fleet(zookeeper, range(3), stand=candidates()) as fleet:
...         return fleet.controller_id  # None until one of them is elected
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel.config import BrokerConfigs, ChannelConfig
from channel.controller.controller import Controller
from channel.controller.leadership import leadership_of
from channel.metrics import Metrics

from .node_requests import ForwardedRequests

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.broker.links import Stand
    from channel.zookeeper.session import ZooKeeperSession


class Candidate(Controller):
    """A broker that stands for election as controller: the ``Candidacy`` of a fleet's broker.

    Args:
        broker_id: The broker.
        session: The session of its registration.
        config: The controller's settings.
        on_elected: See ``candidates``.

    Attributes:
        apis: Serves requests that clients and brokers send to the controller.
    """

    def __init__(
        self, broker_id: int, session: ZooKeeperSession, config: ChannelConfig, on_elected: Callable[[int, int], None]
    ) -> None:
        last_epoch = 0

        def changed(active_id: int, epoch: int) -> None:
            nonlocal last_epoch
            if epoch != last_epoch:
                last_epoch = epoch
                on_elected(broker_id, epoch)

        metrics = Metrics()
        leadership = leadership_of(broker_id, config, metrics, stores_records=True)
        super().__init__(broker_id, session, leadership, metrics, on_change=changed)
        self.apis = ForwardedRequests(self)


def candidates(
    config: ChannelConfig | BrokerConfigs | None = None,
    on_elected: Callable[[int, int], None] = lambda broker_id, epoch: None,
) -> Stand:
    """Return the function that makes a fleet's controller candidates.

    Args:
        config: The settings of each broker's controller, ``BrokerConfigs`` where they differ; by default Kafka's own.
        on_elected: Called on the controller's event thread: with the broker's id and its controller epoch when it
            is elected, with its id and 0 when it resigns.
    """
    configs = config if isinstance(config, BrokerConfigs) else BrokerConfigs(config or ChannelConfig())
    return lambda broker_id, session: Candidate(broker_id, session, configs.of_broker(broker_id), on_elected)
