"""Two ways to announce a new ISR: AlterPartition to the controller, or, before IBP 2.7-IV2, a write to ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from channel.errors import ChannelError
from channel.logs import get_logger
from channel.types import LeaderAndIsr
from channel.zookeeper.znodes import ISR_CHANGES, encode_partition_state, encode_partitions, partition_state_path
from kproto import messages
from kproto.api import ApiKey
from kproto.codec import encode
from kproto.error_codes import ErrorCode, error_name
from kproto.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel.network.request import ClientResponse
    from channel.zookeeper.session import ZooKeeperSession

    from .isr import IsrProposal, LedPartitions
    from .to_controller import NodeToControllerChannel

__all__ = ["AlterPartitionSender", "IsrSender", "ZooKeeperIsr"]

_log = get_logger(__name__)


class IsrSender(Protocol):
    """A way to announce a leader's ISR proposals."""

    def propose(self, led: LedPartitions, proposals: Sequence[IsrProposal]) -> None:
        """Announce proposals; ``led`` gets the outcome of each."""


class _AlterPartitionBuilder:
    """Builds AlterPartition in the controller's version; a ``RequestBuilder``."""

    api_key = int(ApiKey.ALTER_PARTITION)
    oldest_version = 0

    def __init__(self, broker_id: int, broker_epoch: int, proposals: Sequence[IsrProposal]) -> None:
        self._broker = broker_id, broker_epoch
        self._proposals = proposals
        has_ids = all(p.topic_id != ZERO_UUID for p in proposals)
        self.latest_version = ApiKey.ALTER_PARTITION.info.max_version if has_ids else 1  # later ones have topic ids

    def build(self, version: int) -> Sequence[bytes]:
        """The encoded request."""
        topics: dict[str, messages.AlterPartitionRequestTopic] = {}
        for p in self._proposals:
            topic = topics.get(p.tp.topic)
            if topic is None:
                topic = topics[p.tp.topic] = messages.AlterPartitionRequestTopic(
                    topic_name=p.tp.topic, topic_id=p.topic_id, partitions=[]
                )
            isr = (
                {"new_isr_with_epochs": [messages.BrokerState(broker_id=i) for i in p.isr]}
                if version >= 3
                else {"new_isr": list(p.isr)}
            )
            topic.partitions.append(
                messages.AlterPartitionRequestPartition(
                    partition_index=p.tp.partition,
                    leader_epoch=p.leader_epoch,
                    partition_epoch=p.partition_epoch,
                    **isr,
                )
            )
        broker_id, broker_epoch = self._broker
        request = messages.AlterPartitionRequest(
            broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values())
        )
        return (encode(request, version),)

    def __str__(self) -> str:
        return f"AlterPartition of broker {self._broker[0]} for {len(self._proposals)} partitions"


class AlterPartitionSender:
    """Proposes ISRs to the controller: one request for all partitions of a check.

    Args:
        channel: The broker's channel to its controller.
    """

    def __init__(self, channel: NodeToControllerChannel) -> None:
        self._channel = channel

    def propose(self, led: LedPartitions, proposals: Sequence[IsrProposal]) -> None:
        """Send proposals; the answer arrives on the channel's thread."""

        def answered(response: ClientResponse) -> None:
            _take_answer(led, proposals, response)

        broker = led.broker
        self._channel.send_request(
            _AlterPartitionBuilder(broker.broker_id, broker.epoch_for_controller, proposals), answered
        )


def _take_answer(led: LedPartitions, proposals: Sequence[IsrProposal], response: ClientResponse) -> None:
    left = {p.tp: p for p in proposals}
    names = {p.topic_id: p.tp.topic for p in proposals}
    answer = response.body
    code = ErrorCode.NONE if answer is None else answer.error_code
    if answer is None or code != ErrorCode.NONE:
        _log.warning("broker %d: AlterPartition was refused: %s", led.broker.broker_id, error_name(code))
    for topic in () if answer is None else answer.topics:
        name = topic.topic_name or names.get(topic.topic_id, "")
        for row in topic.partitions:
            proposal = left.pop(TopicPartition(name, row.partition_index), None)
            if proposal is None:
                continue
            if row.error_code == ErrorCode.NONE:
                led.accepted(proposal, tuple(row.isr), row.partition_epoch)
            else:
                _log.info("%s: ISR %s was refused: %s", proposal.tp, proposal.isr, error_name(row.error_code))
                led.refused(proposal)
    for proposal in left.values():
        led.refused(proposal)


class ZooKeeperIsr:
    """Writes ISRs to the partitions' state znodes, and announces them to the controller by a notification.

    Args:
        session: The broker's session.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def propose(self, led: LedPartitions, proposals: Sequence[IsrProposal]) -> None:
        """Write proposals; returns once ZooKeeper has answered."""
        changed = []
        for p in proposals:
            state = LeaderAndIsr(led.broker.broker_id, p.isr, p.leader_epoch)
            data = encode_partition_state(state, p.controller_epoch)
            try:
                stat = self._session.set(partition_state_path(p.tp), data, p.partition_epoch)
            except ChannelError as e:
                _log.info("%s: ISR %s was not written: %s", p.tp, p.isr, e)
                led.refused(p)
            else:
                led.accepted(p, p.isr, stat.version)
                changed.append(p.tp)
        if changed:
            self._session.create(f"{ISR_CHANGES}/isr_change_", encode_partitions(changed), sequence=True)
