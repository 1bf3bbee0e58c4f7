"""Reassignments: new replicas beside the old ones, completion by the ISR, cancellation, another controller."""

from typing import Any

import pytest
from decided_cluster import T0, DecidedCluster, broker

from channel.lead.events import (
    ApiRequest,
    BrokerChange,
    PartitionReassignmentIsrChange,
    TopicChange,
    TopicDeletion,
    ZkPartitionReassignment,
)
from channel.types import LeaderAndIsr, ReplicaAssignment
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.messages import AlterPartitionRequest, AlterPartitionRequestPartition, AlterPartitionRequestTopic
from kproto.types import TopicPartition

CONTROLLER, OTHER = 0, 1


def elected(*broker_ids: int, **settings: Any) -> DecidedCluster:
    cluster = DecidedCluster(broker_ids, settings)
    cluster.elect()
    return cluster


def reassign(cluster: DecidedCluster, *target: int) -> None:
    cluster.store.reassign({T0: target})
    cluster.process(ZkPartitionReassignment())


def join(cluster: DecidedCluster, *isr: int, tp: TopicPartition = T0) -> None:
    """The leader asks for an ISR."""
    state = cluster.state(tp)
    epoch = cluster.decisions.context.live_broker_id_and_epochs[state.leader]
    wanted = {tp: state._replace(isr=isr)}
    altered = cluster.decisions.isr_changes.alter(state.leader, epoch, wanted, 3)[tp]
    assert isinstance(altered, LeaderAndIsr)
    assert altered.isr == isr


def ask(cluster: DecidedCluster, target: tuple[int, ...] | None, tp: TopicPartition = T0) -> ErrorCode:
    """The code that a client's request gets."""
    return cluster.decisions.reassignments.begin({tp: target})[tp]


def under_way(cluster: DecidedCluster) -> dict[TopicPartition, ReplicaAssignment]:
    return cluster.decisions.reassignments.under_way()


@pytest.mark.conformance("CIT-12")
def test_a_partition_moves_to_another_broker() -> None:
    cluster = elected(CONTROLLER, OTHER)
    cluster.create([CONTROLLER])
    cluster.taken()
    reassign(cluster, OTHER)
    assert cluster.replicas() == [OTHER, CONTROLLER]
    assert under_way(cluster) == {T0: ReplicaAssignment((OTHER, CONTROLLER), (OTHER,), (CONTROLLER,))}
    to_old, to_new = (cluster.requests(ApiKey.LEADER_AND_ISR)[b] for b in (CONTROLLER, OTHER))
    assert [s.partitions[T0].is_new for s in to_old] == [False]
    assert [s.partitions[T0].is_new for s in to_new] == [True, True]
    assert list(to_new[-1].partitions[T0].adding_replicas) == [OTHER]
    cluster.taken()
    join(cluster, CONTROLLER, OTHER)
    assert cluster.leader() == (OTHER, 3, [OTHER])
    assert cluster.replicas() == [OTHER]
    assert cluster.store.read_reassignments() == {}
    assert under_way(cluster) == {}
    stopped = cluster.requests(ApiKey.STOP_REPLICA)
    assert {b: [s.partitions[T0].delete_partition for s in sent] for b, sent in stopped.items()} == {
        CONTROLLER: [False, True]
    }
    assert list(cluster.taken()[-1].partitions[T0].replicas) == [OTHER]


def test_a_completed_partition_does_not_begin_the_others_again() -> None:
    cluster = elected(0, 1)
    partitions = [TopicPartition("t", p) for p in range(120)]
    cluster.store.create_topic("t", {tp.partition: (0,) for tp in partitions})
    cluster.process(TopicChange())
    cluster.store.reassign(dict.fromkeys(partitions, (1,)))
    cluster.process(ZkPartitionReassignment())
    assert {cluster.state(tp).leader_epoch for tp in partitions} == {1}
    for done, tp in enumerate(partitions, 1):
        join(cluster, 0, 1, tp=tp)
        cluster.process(ZkPartitionReassignment())  # the controller's own write to the znode
        assert len(cluster.store.read_reassignments()) == len(partitions) - done
        assert cluster.state(tp).leader_epoch == 3  # begun, completed, broker 0 out of the ISR
        assert {cluster.state(each).leader_epoch for each in partitions[done:]} <= {1}


def test_partitions_that_are_reassigned_together_share_their_requests() -> None:
    def requests(count: int) -> list[tuple[int, ApiKey]]:
        cluster = elected(0, 1)
        partitions = [TopicPartition("t", p) for p in range(count)]
        cluster.store.create_topic("t", {tp.partition: (0,) for tp in partitions})
        cluster.process(TopicChange())
        cluster.taken()
        cluster.store.reassign(dict.fromkeys(partitions, (1,)))
        cluster.process(ZkPartitionReassignment())
        epoch = cluster.decisions.context.live_broker_id_and_epochs[0]
        wanted = {tp: cluster.state(tp)._replace(isr=(0, 1)) for tp in partitions}
        cluster.decisions.isr_changes.alter(0, epoch, wanted, 3)
        assert {(cluster.state(tp).leader, cluster.state(tp).leader_epoch) for tp in partitions} == {(1, 3)}
        assert {tuple(cluster.replicas(tp)) for tp in partitions} == {(1,)}
        return [(sent.broker_id, sent.kind) for sent in cluster.taken()]

    assert requests(100) == requests(1)


def test_a_partition_that_is_added_to_the_znode_begins_and_a_recreated_znode_begins_anew() -> None:
    cluster = elected(0, 1, 2)
    cluster.create([0])
    second = TopicPartition("other", 0)
    cluster.create([0], "other")
    reassign(cluster, 1)
    cluster.store.reassign({second: (1,)})
    cluster.process(ZkPartitionReassignment())
    assert [cluster.state(tp).leader_epoch for tp in (T0, second)] == [1, 1]
    cluster.store.write_reassignments({})
    cluster.process(ZkPartitionReassignment())
    reassign(cluster, 2)
    assert under_way(cluster)[T0] == ReplicaAssignment((2, 0), (2,), (0,))


def test_a_request_of_a_client_takes_the_place_of_that_in_the_znode() -> None:
    cluster = elected(0, 1, 2)
    cluster.create([0])
    reassign(cluster, 1)
    assert ask(cluster, (9,)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.store.read_reassignments() == {T0: (1,)}
    assert ask(cluster, (2,)) is ErrorCode.NONE
    assert cluster.store.read_reassignments() == {}
    assert under_way(cluster)[T0] == ReplicaAssignment((2, 0), (2,), (0,))


def test_a_broker_without_storage_is_no_target() -> None:
    cluster = DecidedCluster((0, 1, 77), without_storage=frozenset({77}))
    cluster.elect()
    cluster.create([0])
    assert ask(cluster, (0, 77)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    reassign(cluster, 77)
    assert cluster.store.read_reassignments() == {}
    assert cluster.replicas() == [0]


@pytest.mark.conformance("CIT-13")
def test_a_reassignment_to_a_broker_that_is_down_waits() -> None:
    cluster = elected(CONTROLLER)
    cluster.create([CONTROLLER])
    reassign(cluster, OTHER)
    assert cluster.leader() == (CONTROLLER, 1, [CONTROLLER])
    assert cluster.store.read_reassignments() == {T0: (OTHER,)}


@pytest.mark.conformance("CIT-14")
def test_a_reassignment_goes_on_when_the_broker_is_back() -> None:
    cluster = elected(CONTROLLER)
    cluster.create([CONTROLLER])
    reassign(cluster, OTHER)
    cluster.store.register_broker(broker(OTHER))
    cluster.process(BrokerChange())
    join(cluster, CONTROLLER, OTHER)
    assert cluster.leader() == (OTHER, 4, [OTHER])
    assert cluster.store.read_reassignments() == {}


def test_another_controller_goes_on_with_a_reassignment() -> None:
    cluster = elected(0, 1, 2)
    cluster.create([0, 1])
    assert ask(cluster, (1, 2)) is ErrorCode.NONE
    cluster.elect()
    assert under_way(cluster) == {T0: ReplicaAssignment((1, 2, 0), (2,), (0,))}
    join(cluster, 0, 1, 2)
    assert cluster.replicas() == [1, 2]
    assert cluster.leader()[0] == 1


def test_a_leader_that_stays_is_told_of_the_new_replicas() -> None:
    cluster = elected(0, 1, 2)
    cluster.create([0, 1])
    ask(cluster, (0, 2))
    join(cluster, 0, 1, 2)
    assert cluster.replicas() == [0, 2]
    assert cluster.leader() == (0, 3, [0, 2])  # begun, completed, broker 1 out of the ISR


def test_brokers_before_alter_partition_complete_it_by_their_own_write() -> None:
    cluster = elected(0, 1, inter_broker_protocol_version="2.6")
    cluster.create([0])
    reassign(cluster, 1)
    cluster.store.change_isr(T0, (0, 1))
    cluster.process(PartitionReassignmentIsrChange(T0))
    assert cluster.replicas() == [1]
    cluster.process(PartitionReassignmentIsrChange(T0))  # a watch that comes late
    assert cluster.leader()[0] == 1


@pytest.mark.parametrize(("ibp", "watched"), [("2.7-IV1", True), ("2.7-IV2", False)])
def test_the_isr_is_watched_while_brokers_write_it(monkeypatch: pytest.MonkeyPatch, ibp: str, watched: bool) -> None:
    cluster = elected(0, 1, inter_broker_protocol_version=ibp)
    cluster.create([0])
    read, watches = cluster.store.read_partition_states, set[bool]()

    def noted(partitions: Any, *, watch: bool = False) -> Any:
        watches.add(watch)
        return read(partitions)

    monkeypatch.setattr(cluster.store, "read_partition_states", noted)
    reassign(cluster, 1)
    assert (True in watches) is watched


def test_a_cancelled_reassignment_stops_the_added_replicas() -> None:
    cluster = elected(0, 1, 2)
    cluster.create([0, 1])
    ask(cluster, (1, 2))
    cluster.taken()
    assert ask(cluster, None) is ErrorCode.NONE
    assert sorted(cluster.replicas()) == [0, 1]
    assert under_way(cluster) == {}
    stopped = cluster.requests(ApiKey.STOP_REPLICA)
    assert {b: [s.partitions[T0].delete_partition for s in sent] for b, sent in stopped.items()} == {2: [False, True]}
    assert cluster.leader()[0] == 0


def test_another_target_replaces_the_first_one() -> None:
    cluster = elected(0, 1, 2, 3)
    cluster.create([0, 1])
    ask(cluster, (1, 2))
    ask(cluster, (1, 3))
    assert under_way(cluster) == {T0: ReplicaAssignment((1, 3, 0), (3,), (0,))}
    assert sorted(cluster.requests(ApiKey.STOP_REPLICA)) == [2]


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1, 0), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((0, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_a_target_that_cannot_be(target: tuple[int, ...] | None, code: ErrorCode) -> None:
    cluster = elected(0, 1)
    cluster.create([0, 1])
    before = cluster.leader()
    assert ask(cluster, target) is code
    assert cluster.leader() == before


def test_an_unknown_partition_leaves_the_znode() -> None:
    cluster = elected(0, 1)
    unknown = TopicPartition("unknown", 0)
    assert ask(cluster, None, unknown) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert ask(cluster, (0,), unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.store.reassign({unknown: (0,)})
    cluster.process(ZkPartitionReassignment())
    assert cluster.store.read_reassignments() == {}


def test_a_topic_is_deleted_once_its_reassignment_is_done() -> None:
    cluster = elected(0, 1)
    cluster.create([0])
    reassign(cluster, 1)
    cluster.store.mark_for_deletion("t")
    cluster.process(TopicDeletion())
    assert cluster.decisions.context.topics_ineligible_for_deletion == {"t"}
    join(cluster, 0, 1)
    cluster.answer([0, 1])
    assert not cluster.store.read_topics()


def test_a_topic_whose_deletion_overtakes_its_reassignment_leaves_the_znode() -> None:
    cluster = elected(0)
    cluster.create([0])
    reassign(cluster, 0, 1)
    cluster.store.mark_for_deletion("t")
    cluster.process(TopicDeletion())
    cluster.store.register_broker(broker(1))
    cluster.process(BrokerChange())  # deletions that waited for the broker begin, reassigned or not, as in Kafka
    cluster.answer([0, 1])
    assert not cluster.store.read_topics()
    assert cluster.store.read_reassignments() == {}


def test_another_controller_goes_on_with_a_reassignment_for_which_a_deletion_waits() -> None:
    cluster = elected(0, 1)
    cluster.create([0])
    reassign(cluster, 1)
    cluster.store.mark_for_deletion("t")
    before = cluster.leader()
    cluster.elect()
    assert under_way(cluster) == {T0: ReplicaAssignment((1, 0), (1,), (0,))}
    assert cluster.leader() == (0, before[1] + 1, [0])  # each step of a reassignment begins with a new leader epoch
    join(cluster, 0, 1)
    cluster.answer([0, 1])
    assert not cluster.store.read_topics()


def test_a_partition_for_whose_reassignment_a_deletion_waits_gets_a_leader() -> None:
    cluster = elected(1)
    cluster.store.register_broker(broker(0))
    cluster.create([0])  # no replica is online: the partition has no leader, and no state
    reassign(cluster, 1)
    cluster.store.mark_for_deletion("t")
    assert under_way(cluster) == {T0: ReplicaAssignment((1, 0), (1,), (0,))}
    cluster.elect()  # the next controller finds broker 0 registered, the reassignment and the deletion
    assert under_way(cluster) == {}
    cluster.answer([0, 1])
    assert not cluster.store.read_topics()


def test_a_leader_has_its_answer_before_the_reassignment_that_it_completes() -> None:
    """It would see the next partition epoch before the answer to its own request."""
    cluster = elected(CONTROLLER, OTHER)
    cluster.create([CONTROLLER])
    reassign(cluster, OTHER)
    state = cluster.state()
    partition = AlterPartitionRequestPartition(
        partition_index=0, leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch, new_isr=[0, 1]
    )
    request = AlterPartitionRequest(
        broker_id=CONTROLLER,
        broker_epoch=cluster.decisions.context.live_broker_id_and_epochs[CONTROLLER],
        topics=[AlterPartitionRequestTopic(topic_name="t", partitions=[partition])],
    )
    seen = []

    def answered(response: Any) -> None:
        seen.append(
            (response.topics[0].partitions[0].partition_epoch, cluster.state().leader_epoch, under_way(cluster))
        )

    cluster.process(ApiRequest(ApiKey.ALTER_PARTITION, 0, request, answered))
    ((epoch, leader_epoch, then),) = seen
    assert epoch == state.partition_epoch + 1
    assert leader_epoch == state.leader_epoch
    assert list(then) == [T0]
    assert under_way(cluster) == {}
