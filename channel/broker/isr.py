"""The in-sync replicas of the partitions that a broker leads: silent followers leave, fetching followers come back.

There are no records to fetch. A follower counts as in sync as long as it fetches from this leader in this leader
epoch; a follower that has not fetched for ``replica.lag.time.max.ms`` leaves the ISR.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

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
    from collections.abc import Callable, Sequence

    from channel.network.request import ClientResponse
    from channel.zookeeper.session import ZooKeeperSession
    from kproto.types import Uuid

    from .embedded import EmbeddedBroker, HostedReplica
    from .to_controller import NodeToControllerChannel


_log = get_logger(__name__)


class IsrProposal(NamedTuple):
    """A leader's new ISR for a partition, valid for one leader epoch and partition epoch.

    Attributes:
        topic_id: The id of the partition's topic, the zero id if it has none.
        isr: The proposed in-sync replicas, as broker ids.
        leader_epoch, partition_epoch, controller_epoch: The epochs of the state that the proposal replaces.
    """

    tp: TopicPartition
    topic_id: Uuid
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    controller_epoch: int


class LedPartitions:
    """The partitions that one broker leads, and the times since which their followers have been silent.

    Args:
        is_fetching: Returns whether a broker fetches a partition from this leader in this leader epoch.
        lag_max_ms: The time after which a silent follower leaves the ISR.
        propose: Announces proposals; ``accepted`` or ``forget`` takes the outcome of each.
    """

    def __init__(
        self,
        broker: EmbeddedBroker,
        is_fetching: Callable[[int, TopicPartition, HostedReplica], bool],
        lag_max_ms: int,
        propose: Callable[[LedPartitions, Sequence[IsrProposal]], None],
    ) -> None:
        self.broker = broker
        self._is_fetching = is_fetching
        self._lag_max_ms = lag_max_ms
        self._propose = propose
        self._silent_since: dict[tuple[TopicPartition, int], int] = {}
        self._pending: dict[TopicPartition, IsrProposal] = {}

    def check(self, now: int) -> None:
        """Propose ISRs without followers that went silent, and with followers that fetch again; ``now`` is in ms."""
        proposals = self.proposals(now)
        if not proposals:
            return
        try:
            self._propose(self, proposals)
        except ChannelError as e:
            _log.info("broker %d cannot propose an ISR now: %s", self.broker.broker_id, e)
            for proposal in proposals:
                self.forget(proposal)

    def proposals(self, now: int) -> list[IsrProposal]:
        """Return the ISR changes to propose, without partitions whose present state has an unanswered proposal."""
        replicas = self.broker.replicas
        silent_since: dict[tuple[TopicPartition, int], int] = {}
        found = []
        with replicas.lock:
            for tp, replica in replicas.hosted.items():
                if replica.role != "leader" or replica.offline:
                    continue
                isr = self._isr(tp, replica, now, silent_since)
                if set(isr) == set(replica.isr):
                    continue
                topic_id = replicas.logs.get(tp, ZERO_UUID)
                proposal = IsrProposal(
                    tp, topic_id, isr, replica.leader_epoch, replica.partition_epoch, replica.controller_epoch
                )
                pending = self._pending.get(tp)
                if pending is None or pending[3:5] != proposal[3:5]:
                    self._pending[tp] = proposal
                    found.append(proposal)
        self._silent_since = silent_since
        return found

    def _isr(
        self,
        tp: TopicPartition,
        replica: HostedReplica,
        now: int,
        silent_since: dict[tuple[TopicPartition, int], int],
    ) -> tuple[int, ...]:
        """Return the ISR that the partition should have, and note its silent followers."""
        isr = []
        for follower in replica.replicas:
            if follower == self.broker.broker_id or self._is_fetching(follower, tp, replica):
                isr.append(follower)
            elif follower in replica.isr:
                since = silent_since[tp, follower] = self._silent_since.get((tp, follower), now)
                if now - since < self._lag_max_ms:
                    isr.append(follower)
        return tuple(isr)

    def accepted(self, proposal: IsrProposal, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Take over the ISR that the controller, or ZooKeeper, has stored, unless the partition has changed since."""
        self._pending.pop(proposal.tp, None)
        replicas = self.broker.replicas
        with replicas.lock:
            replicas.take_isr(proposal.tp, proposal.leader_epoch, isr, partition_epoch)

    def forget(self, proposal: IsrProposal) -> None:
        """Forget a proposal; a later check repeats it if it is still due."""
        self._pending.pop(proposal.tp, None)


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
            topic = messages.AlterPartitionRequestTopic(topic_name=p.tp.topic, topic_id=p.topic_id, partitions=[])
            topic = topics.setdefault(p.tp.topic, topic)
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


def propose_to_controller(
    channel: NodeToControllerChannel, led: LedPartitions, proposals: Sequence[IsrProposal]
) -> None:
    """Send proposals in one AlterPartition; the answer arrives on the channel's thread."""
    builder = _AlterPartitionBuilder(led.broker.broker_id, led.broker.epoch_for_controller, proposals)
    channel.send_request(builder, partial(_take_answer, led, proposals))


def _take_answer(led: LedPartitions, proposals: Sequence[IsrProposal], response: ClientResponse) -> None:
    left = {p.tp: p for p in proposals}
    names = {p.topic_id: p.tp.topic for p in proposals}
    answer = response.body
    code = ErrorCode.NONE if answer is None else answer.error_code
    if answer is None:
        _log.warning("broker %d: AlterPartition was not answered: %s", led.broker.broker_id, response.failure)
    elif code != ErrorCode.NONE:
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
                led.forget(proposal)
    for proposal in left.values():
        led.forget(proposal)


def propose_in_zookeeper(session: ZooKeeperSession, led: LedPartitions, proposals: Sequence[IsrProposal]) -> None:
    """Write proposals to the partitions' state znodes, and announce them to the controller by a notification.

    Returns once ZooKeeper has answered.
    """
    changed = []
    for p in proposals:
        state = LeaderAndIsr(led.broker.broker_id, p.isr, p.leader_epoch)
        data = encode_partition_state(state, p.controller_epoch)
        try:
            stat = session.set(partition_state_path(p.tp), data, p.partition_epoch)
        except ChannelError as e:
            _log.info("%s: ISR %s was not written: %s", p.tp, p.isr, e)
            led.forget(p)
        else:
            led.accepted(p, p.isr, stat.version)
            changed.append(p.tp)
    if changed:
        session.create(f"{ISR_CHANGES}/isr_change_", encode_partitions(changed), sequence=True)
