"""A watch on settings that administrators change while the cluster runs, as far as the controller depends on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .partitions import UNCLEAN

if TYPE_CHECKING:
    from .cluster import ControlledCluster
    from .partitions import PartitionStateMachine

__all__ = ["ConfigChangeWatch"]


class ConfigChangeWatch:
    """Notices that unclean elections became allowed, and holds the elections that leaderless partitions wait for.

    Args:
        cluster: The cluster.
        partitions: Holds the elections.
    """

    def __init__(self, cluster: ControlledCluster, partitions: PartitionStateMachine) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._last = -1

    def startup(self) -> None:
        """Skip past notifications, as every election reads the present settings."""
        self._last = self._cluster.store.read_config_changes(None).last

    def process(self) -> None:
        """Process the new notifications."""
        store = self._cluster.store
        changes = store.read_config_changes(self._last)
        self._last = changes.last
        if changes.of_default:
            self._partitions.elect_for_waiting_partitions()
            return
        for topic, settings in store.read_topic_configs(changes.topics).items():
            if settings.get(UNCLEAN, "").strip().lower() == "true":
                self._partitions.elect_for_waiting_partitions(topic)
