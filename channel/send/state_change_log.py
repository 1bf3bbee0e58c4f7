"""Kafka's state-change log of a controller: one line for each partition of a request.

A partition's line is built only if the log's level demands it: with the log off, a request of a million partitions
costs one check of the level.
"""

from __future__ import annotations

from logging import INFO
from typing import TYPE_CHECKING, Any

from channel.logs import STATE_CHANGE, TRACE, bounded

if TYPE_CHECKING:
    from collections.abc import Iterable


class StateChangeLog:
    """The log of one controller.

    Args:
        controller_id: Its broker id, shown before every line together with the epoch.
    """

    def __init__(self, controller_id: int) -> None:
        self.controller_id = controller_id

    @property
    def logs_info(self) -> bool:
        """Whether lines about whole requests are logged, and perhaps lines for single partitions too."""
        return STATE_CHANGE.isEnabledFor(INFO)

    @property
    def logs_traces(self) -> bool:
        """Whether lines for single partitions are logged."""
        return STATE_CHANGE.isEnabledFor(TRACE)

    def info(self, epoch: int, line: str, *values: object) -> None:
        """Log a line about a whole request; check ``logs_info`` before counting or rendering for it."""
        STATE_CHANGE.info("[Controller id=%d epoch=%d] " + line, self.controller_id, epoch, *values)

    def error(self, epoch: int, line: str, *values: object) -> None:
        """Log a line about a failure."""
        STATE_CHANGE.error("[Controller id=%d epoch=%d] " + line, self.controller_id, epoch, *values)

    def trace(self, epoch: int, line: str, *values: object) -> None:
        """Log a line about one partition; check ``logs_traces`` before a loop over partitions."""
        STATE_CHANGE.log(TRACE, "[Controller id=%d epoch=%d] " + line, self.controller_id, epoch, *values)

    def leader_and_isr(self, epoch: int, broker_id: int, states: Iterable[tuple[str, Any]]) -> None:
        """Log the lines of a LeaderAndIsr request: a line for each partition, and a line with the counts.

        Check ``logs_info`` first.

        Args:
            states: Topic and partition state.
        """
        logs_traces, leaders, followers = self.logs_traces, 0, 0
        for topic, state in states:
            leads = state.leader == broker_id
            leaders += leads
            followers += not leads
            if logs_traces:
                kind = "become-leader" if leads else "become-follower"
                self.trace(
                    epoch,
                    "sending %s LeaderAndIsr request %s to broker %d for %s-%d",
                    kind,
                    bounded(repr(state)),
                    broker_id,
                    topic,
                    state.partition_index,
                )
        self.info(
            epoch,
            "sending a LeaderAndIsr request to broker %d, which is to lead %d and follow %d partitions",
            broker_id,
            leaders,
            followers,
        )
