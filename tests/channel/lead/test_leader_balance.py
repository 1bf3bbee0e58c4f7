"""Elections that somebody asks for: by a client, for preferred replicas and unclean ones, and by the imbalance."""

from typing import Any

import pytest
from decided_cluster import T0, DecidedCluster, broker

from channel.lead.events import (
    AutoPreferredReplicaLeaderElection,
    BrokerChange,
    IsrChangeNotification,
)
from channel.lead.leader_election import Election
from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.types import TopicPartition

UNKNOWN = TopicPartition("unknown", 0)


def moved(**settings: Any) -> DecidedCluster:
    """Partition t-0 prefers broker 0, which has been away: broker 1 leads, and 0 is in the ISR again."""
    cluster = DecidedCluster((0, 1), settings)
    cluster.elect()
    cluster.create([0, 1])
    bounce(cluster, 0)
    rejoin(cluster)
    return cluster


def bounce(cluster: DecidedCluster, broker_id: int) -> None:
    cluster.store.unregister_broker(broker_id)
    cluster.process(BrokerChange())
    cluster.store.register_broker(broker(broker_id))
    cluster.process(BrokerChange())


def rejoin(cluster: DecidedCluster) -> None:
    cluster.store.change_isr(T0, (1, 0))
    cluster.process(IsrChangeNotification())
    assert cluster.leader()[0] == 1
    cluster.taken()


def ask(
    cluster: DecidedCluster, kind: Election, partitions: set[TopicPartition] | None
) -> dict[TopicPartition, ErrorCode]:
    return cluster.decisions.balance.elect(kind, partitions)


def test_a_preferred_replica_is_elected_once() -> None:
    cluster = moved()
    assert ask(cluster, Election.PREFERRED, {T0, UNKNOWN}) == {
        T0: ErrorCode.NONE,
        UNKNOWN: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert cluster.leader() == (0, 2, [1, 0])
    assert sorted(cluster.requests(ApiKey.LEADER_AND_ISR)) == [0, 1]
    assert ask(cluster, Election.PREFERRED, {T0}) == {T0: ErrorCode.ELECTION_NOT_NEEDED}
    assert ask(cluster, Election.PREFERRED, None) == {}


def test_a_preferred_replica_outside_the_isr_is_not_elected() -> None:
    cluster = moved()
    cluster.store.change_isr(T0, (1,))
    assert ask(cluster, Election.PREFERRED, None) == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert cluster.leader()[0] == 1


def test_a_topic_that_is_being_deleted_has_no_elections() -> None:
    cluster = moved()
    cluster.decisions.context.queue_topic_deletion(["t"])
    assert ask(cluster, Election.PREFERRED, {T0}) == {T0: ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_an_unclean_election_takes_any_live_replica() -> None:
    cluster = DecidedCluster((0, 1))
    cluster.elect()
    cluster.create([0, 1])
    bounce(cluster, 1)
    cluster.store.unregister_broker(0)
    cluster.process(BrokerChange())
    assert cluster.leader() == (-1, 2, [0])
    assert ask(cluster, Election.UNCLEAN, {T0}) == {T0: ErrorCode.NONE}
    assert cluster.leader() == (1, 3, [1])
    assert ask(cluster, Election.UNCLEAN, {T0}) == {T0: ErrorCode.ELECTION_NOT_NEEDED}
    cluster.store.unregister_broker(1)
    cluster.process(BrokerChange())
    assert ask(cluster, Election.UNCLEAN, {T0}) == {T0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


@pytest.mark.parametrize(("percentage", "leader"), [(10, 0), (99, 0), (100, 1)])
def test_leaders_go_back_above_the_imbalance_that_is_allowed(percentage: int, leader: int) -> None:
    cluster = moved(leader_imbalance_per_broker_percentage=percentage)
    cluster.process(AutoPreferredReplicaLeaderElection())
    assert cluster.leader()[0] == leader


def test_no_leader_goes_back_during_a_reassignment() -> None:
    cluster = moved()
    cluster.decisions.context.partitions_being_reassigned.add(UNKNOWN)
    cluster.process(AutoPreferredReplicaLeaderElection())
    assert cluster.leader()[0] == 1


def test_a_balanced_cluster_is_left_alone() -> None:
    cluster = DecidedCluster((0, 1), {"leader_imbalance_per_broker_percentage": 0})
    cluster.elect()
    cluster.create([0, 1])
    cluster.taken()
    cluster.process(AutoPreferredReplicaLeaderElection())
    assert cluster.taken() == []


def test_a_broker_that_leads_what_it_should_does_not_keep_others_from_getting_theirs_back() -> None:
    cluster = DecidedCluster((0, 1))
    cluster.elect()
    cluster.create([1, 0])
    cluster.create([0, 1], "u")
    bounce(cluster, 1)
    cluster.store.change_isr(T0, (0, 1))
    cluster.process(IsrChangeNotification())
    assert cluster.leader()[0] == 0
    cluster.process(AutoPreferredReplicaLeaderElection())
    assert cluster.leader()[0] == 1
