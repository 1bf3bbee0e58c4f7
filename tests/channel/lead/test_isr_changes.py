"""AlterPartition and ISR change notifications: checks, answers, and what all brokers are told."""

import pytest
from decided_cluster import T0, DecidedCluster

from channel.errors import StaleBrokerEpoch
from channel.lead.events import IsrChangeNotification
from channel.types import LeaderAndIsr, LeaderRecoveryState
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

NOW = LeaderAndIsr(0, (0, 1), 0, 0)
"""The state of the topic's partition; brokers 0, 1 and 2 are live."""

UNKNOWN = TopicPartition("unknown", 0)
RECOVERING = LeaderRecoveryState.RECOVERING


@pytest.fixture
def cluster() -> DecidedCluster:
    cluster = DecidedCluster((0, 1, 2))
    cluster.elect()
    cluster.create([0, 1])
    cluster.taken()
    return cluster


def alter(
    cluster: DecidedCluster,
    wanted: dict[TopicPartition, LeaderAndIsr],
    version: int = 3,
    epoch_step: int = 0,
    broker_id: int = 0,
) -> dict[TopicPartition, LeaderAndIsr | ErrorCode]:
    epoch = cluster.decisions.context.live_broker_id_and_epochs.get(broker_id, 0)
    return cluster.decisions.isr_changes.alter(broker_id, epoch + epoch_step, wanted, version)


def test_an_isr_is_written_answered_and_told_to_all(cluster: DecidedCluster) -> None:
    result = alter(cluster, {T0: NOW._replace(isr=(0,))})
    after = LeaderAndIsr(0, (0,), 0, 1)
    assert result == {T0: after}
    assert cluster.state() == after
    sent = cluster.taken()
    assert [(s.broker_id, s.kind) for s in sent] == [(b, ApiKey.UPDATE_METADATA) for b in (0, 1, 2)]
    assert list(sent[0].partitions[T0].isr) == [0]


def test_a_request_that_asks_for_the_present_isr_is_answered_with_it(cluster: DecidedCluster) -> None:
    alter(cluster, {T0: NOW._replace(isr=(0,))})
    cluster.taken()
    again = alter(cluster, {T0: NOW._replace(isr=(0,))})  # its first answer was lost
    assert again == {T0: LeaderAndIsr(0, (0,), 0, 1)}
    assert cluster.taken() == []


@pytest.mark.parametrize(
    ("wanted", "version", "code"),
    [
        (NOW._replace(isr=(0,), leader_epoch=1), 3, ErrorCode.NOT_CONTROLLER),
        (NOW._replace(isr=(0,), partition_epoch=1), 3, ErrorCode.NOT_CONTROLLER),
        (NOW._replace(isr=(0,), leader_epoch=-1), 3, ErrorCode.FENCED_LEADER_EPOCH),
        (NOW._replace(isr=(0,), partition_epoch=-1), 3, ErrorCode.INVALID_UPDATE_VERSION),
        (NOW._replace(isr=(0,), recovery_state=RECOVERING), 3, ErrorCode.INVALID_REQUEST),
        (NOW._replace(recovery_state=RECOVERING), 3, ErrorCode.INVALID_REQUEST),
        (NOW._replace(isr=(0, 1, 9)), 3, ErrorCode.INELIGIBLE_REPLICA),
        (NOW._replace(isr=(0, 1, 9)), 1, ErrorCode.OPERATION_NOT_ATTEMPTED),
    ],
)
def test_a_state_that_is_refused(cluster: DecidedCluster, wanted: LeaderAndIsr, version: int, code: ErrorCode) -> None:
    assert alter(cluster, {T0: wanted}, version) == {T0: code}
    assert cluster.state() == NOW
    assert cluster.taken() == []


def test_each_partition_has_its_own_answer(cluster: DecidedCluster) -> None:
    result = alter(cluster, {UNKNOWN: NOW, T0: NOW._replace(isr=(0,))})
    assert list(result) == [UNKNOWN, T0]
    assert result[UNKNOWN] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert result[T0] == LeaderAndIsr(0, (0,), 0, 1)


@pytest.mark.parametrize(("broker_id", "epoch_step"), [(0, -1), (0, 1), (9, 0)])
def test_another_life_of_the_leader_is_refused(cluster: DecidedCluster, broker_id: int, epoch_step: int) -> None:
    with pytest.raises(StaleBrokerEpoch, match="stale epoch"):
        alter(cluster, {T0: NOW._replace(isr=(0,))}, epoch_step=epoch_step, broker_id=broker_id)
    assert cluster.state() == NOW


def test_a_replica_that_is_shutting_down_may_not_join(cluster: DecidedCluster) -> None:
    alter(cluster, {T0: NOW._replace(isr=(0,))})
    cluster.decisions.context.shutting_down_broker_ids.add(1)
    wanted = cluster.state()._replace(isr=(0, 1))
    assert alter(cluster, {T0: wanted}) == {T0: ErrorCode.INELIGIBLE_REPLICA}


def test_a_leader_that_has_recovered_says_so(cluster: DecidedCluster) -> None:
    recovering = NOW._replace(isr=(0,), recovery_state=RECOVERING)
    cluster.store.update_partition_states({T0: recovering}, 1)
    cluster.elect()
    state = cluster.state()
    assert state.recovery_state is RECOVERING
    result = alter(cluster, {T0: state._replace(recovery_state=LeaderRecoveryState.RECOVERED)})
    assert result == {T0: cluster.state()}
    assert cluster.state().recovery_state is LeaderRecoveryState.RECOVERED


def test_a_znode_that_has_changed_underneath_is_not_overwritten(cluster: DecidedCluster) -> None:
    cluster.store.change_isr(T0, (0,))
    result = alter(cluster, {T0: NOW._replace(isr=(0, 1, 2))})
    assert result == {T0: ErrorCode.INVALID_UPDATE_VERSION}
    assert cluster.store.read_partition_states([T0])[T0].leader_and_isr.isr == (0,)


def test_isrs_that_brokers_wrote_themselves_are_told_to_all(cluster: DecidedCluster) -> None:
    cluster.store.change_isr(T0, (0,))
    cluster.process(IsrChangeNotification())
    assert cluster.leader() == (0, 0, [0])
    assert [list(s.partitions[T0].isr) for s in cluster.taken()] == [[0], [0], [0]]
    assert cluster.store.read_isr_changes() == ([], [])


def test_a_notification_of_an_unknown_partition_is_removed(cluster: DecidedCluster) -> None:
    cluster.store.change_isr(T0, (0,))
    cluster.decisions.context.remove_topic("t")
    cluster.process(IsrChangeNotification())
    assert cluster.taken() == []
    assert cluster.store.read_isr_changes() == ([], [])
