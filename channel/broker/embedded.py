"""One embedded broker without its sockets: who it is, what it hosts and knows, and which handler answers what.

Cheap on purpose: a thousand of them in a process share decoded messages and metadata snapshots.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kproto.api import CONTROL_APIS
from kproto.error_codes import ErrorCode
from kproto.errors import UnsupportedVersion

from .handlers import HANDLERS
from .hooks import BrokerHooks, RequestContext
from .metadata_cache import MetadataCache
from .replicas import ReplicaState

if TYPE_CHECKING:
    from .snapshot import SnapshotMemo

__all__ = ["EmbeddedBroker"]

_log = logging.getLogger(__name__)


class EmbeddedBroker:
    """A broker as a controller sees it; it stores no messages, and says so by serving no API that would need them.

    Args:
        broker_id: Its id.
        broker_epoch: The epoch of its registration in ZooKeeper (the znode's czxid).
        cluster_id: What Metadata answers name.
        kraft_epoch: The epoch of its registration with a KRaft controller, where a migration is enabled.
        zookeeper_mode: False for a KRaft broker, which should never receive the three control requests.
        rack: Its rack.
        hooks: What it tells and asks.
        memo: Shared by the brokers of a process.
    """

    def __init__(
        self,
        broker_id: int,
        *,
        broker_epoch: int = 0,
        cluster_id: str = "kproto",
        kraft_epoch: int | None = None,
        zookeeper_mode: bool = True,
        rack: str | None = None,
        hooks: BrokerHooks | None = None,
        memo: SnapshotMemo | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.cluster_id = cluster_id
        self.kraft_epoch = kraft_epoch
        self.zookeeper_mode = zookeeper_mode
        self.rack = rack
        self.hooks = hooks or BrokerHooks()
        migration = kraft_epoch is not None
        self.metadata = MetadataCache(broker_id, migration_enabled=migration, memo=memo)
        self.replicas = ReplicaState(broker_id, self.metadata.has_alive_broker, migration_enabled=migration)

    def is_stale(self, request_epoch: int, *, is_kraft: bool) -> bool:
        """Whether a request is meant for an earlier registration of this broker.

        -1 is never stale, and a larger epoch is accepted: the controller may learn of a registration first.

        Raises:
            RuntimeError: A KRaft controller asks, and this broker is not registered with one.
        """
        if request_epoch == -1:
            return False
        if is_kraft:
            if self.kraft_epoch is None:
                raise RuntimeError("a KRaft controller's request, but migration to KRaft is not enabled here")
            return request_epoch < self.kraft_epoch
        return request_epoch < self.broker_epoch

    def handle(self, context: RequestContext, request: Any) -> Any:
        """The answer to a request; whatever goes wrong inside becomes an error answer, as in Kafka.

        Raises:
            UnsupportedVersion: No handler for this API, or not in this mode: the connection is to be closed.
        """
        handler = HANDLERS.get(context.api_key)
        if handler is None:
            raise UnsupportedVersion(
                context.api_key, context.version, detail=f"no handler for api {context.api_key} in an embedded broker"
            )
        try:
            return handler(self, context, request)
        except UnsupportedVersion:
            raise
        except Exception:
            _log.exception("broker %d: error while handling api %d", self.broker_id, context.api_key)
            if context.api_key not in CONTROL_APIS:
                raise  # only the control requests list what an error answer must name
            return request.error_response(ErrorCode.UNKNOWN_SERVER_ERROR)
