"""The controller's knowledge: what counts as live, which epoch a deletion gets, how imbalance is counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel.send.context import ControllerContext
from channel.types import Broker, EndPoint, LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from kproto.types import TopicPartition

FOO = [TopicPartition("foo", p) for p in range(3)]


def leads(leader: int, epoch: int = 0) -> LeaderIsrAndControllerEpoch:
    return LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, (leader,), epoch), 1)


@pytest.fixture
def context() -> ControllerContext:
    context = ControllerContext()
    context.set_live_brokers({Broker(i, (EndPoint("localhost", 9900 + i),)): 10 + i for i in (3, 1, 2)})
    context.set_all_topics(["foo", "bar"])
    for tp in FOO:
        context.update_partition_full_replica_assignment(tp, ReplicaAssignment((1, 2, 3)))
    return context


def test_a_broker_that_shuts_down_is_known_but_not_live(context: ControllerContext) -> None:
    context.shutting_down_broker_ids.add(2)
    assert context.live_broker_ids == {1, 3}
    assert set(context.live_or_shutting_down_broker_ids) == {1, 2, 3}
    assert [b.id for b in context.live_or_shutting_down_brokers] == [1, 2, 3]
    assert not context.is_replica_online(2, FOO[0])


def test_removed_brokers_are_gone_with_their_epochs(context: ControllerContext) -> None:
    context.remove_live_brokers([2, 7])
    assert dict(context.live_broker_id_and_epochs) == {1: 11, 3: 13}
    assert context.live_or_shutting_down_broker(2) is None


def test_an_endpoint_change_keeps_the_epoch(context: ControllerContext) -> None:
    context.update_broker_metadata(Broker(2, (EndPoint("elsewhere", 1),)))
    context.update_broker_metadata(Broker(9, ()))
    broker = context.live_or_shutting_down_broker(2)
    assert broker is not None
    assert broker.endpoint("PLAINTEXT") == EndPoint("elsewhere", 1)
    assert dict(context.live_broker_id_and_epochs) == {1: 11, 2: 12, 3: 13}


@pytest.mark.parametrize(
    ("known", "queued", "epoch"), [(False, False, -1), (True, False, 5), (True, True, -2), (False, True, -2)]
)
def test_the_leader_epoch_for_stop_replica(context: ControllerContext, known: bool, queued: bool, epoch: int) -> None:
    if known:
        context.put_partition_leadership_info(FOO[0], leads(1, 5))
    if queued:
        context.queue_topic_deletion(["foo"])
    assert context.leader_epoch(FOO[0]) == epoch


def test_queued_topics_have_no_partitions_with_leaders(context: ControllerContext) -> None:
    context.put_partition_leadership_info(FOO[0], leads(1))
    assert list(context.partitions_with_leaders) == [FOO[0]]
    context.queue_topic_deletion(["foo"])
    assert list(context.partitions_with_leaders) == []


def test_only_leaders_that_somebody_could_replace_are_listed(context: ControllerContext) -> None:
    alone = TopicPartition("bar", 0)
    context.update_partition_full_replica_assignment(alone, ReplicaAssignment((1,)))
    for tp in (FOO[0], alone):
        context.put_partition_leadership_info(tp, leads(1))
    assert context.partition_leaders_on_broker(1) == [FOO[0]]


def test_a_removed_topic_leaves_nothing(context: ControllerContext) -> None:
    context.add_topic_id("foo", b"a" * 16)
    context.put_partition_leadership_info(FOO[0], leads(2))
    context.queue_topic_deletion(["foo"])
    context.remove_topic("foo")
    assert context.partition_count == 0
    assert list(context.partitions_with_leaders) == []
    assert context.topic_ids == {}
    assert context.all_topics == {"bar"}
    assert not context.topics_to_be_deleted


def test_offline_replicas_are_on_dead_or_leaving_brokers_or_failed_directories(context: ControllerContext) -> None:
    def offline() -> list[tuple[int, ...]]:
        return [context.partition_state(tp)[2] for tp in FOO[:2]]

    assert offline() == [(), ()]
    context.set_replicas_on_offline_dirs(1, [FOO[0]])
    assert offline() == [(1,), ()]
    context.shutting_down_broker_ids.add(2)
    context.remove_live_brokers([3])
    assert offline() == [(1, 2, 3), (2, 3)]
    context.set_replicas_on_offline_dirs(1, [])
    assert offline() == [(2, 3), (2, 3)]


def test_what_is_told_of_partitions_that_are_not_known(context: ControllerContext) -> None:
    context.put_partition_leadership_info(FOO[1], leads(2))
    assert context.partition_state(FOO[0]) == (None, (1, 2, 3), ())
    assert context.partition_state(FOO[1]) == (leads(2), (1, 2, 3), ())
    assert context.partition_state(TopicPartition("bar", 0)) == (None, (), ())


def test_many_partitions_are_told_at_once_only_if_nothing_is_special_about_them(context: ControllerContext) -> None:
    def states() -> object:
        return context.partition_states("foo", [0, 2])

    assert states() is None, "nobody leads them"
    for tp in FOO:
        context.put_partition_leadership_info(tp, leads(tp.partition + 1))
    assert states() == ([leads(1), leads(3)], [(1, 2, 3)] * 2)
    assert context.partition_states("foo", [0, 9]) is None
    assert context.partition_states("bar", [0]) is None
    context.set_replicas_on_offline_dirs(9, [FOO[1]])
    assert states() is None
    context.set_replicas_on_offline_dirs(9, [])
    context.shutting_down_broker_ids.add(2)
    assert states() is None
    context.shutting_down_broker_ids.clear()
    context.remove_live_brokers([3])
    assert states() is None


def test_reset_forgets_all(context: ControllerContext) -> None:
    context.epoch = 5
    context.reset()
    assert (context.epoch, context.partition_count, context.live_or_shutting_down_brokers) == (0, 0, [])


def test_brokers_are_never_taken_for_earlier_ones(context: ControllerContext) -> None:
    changes = [
        lambda: context.set_live_brokers({Broker(4, ()): 1}),
        lambda: context.add_live_brokers({Broker(5, ()): 2}),
        lambda: context.update_broker_metadata(Broker(5, (EndPoint("elsewhere", 1),))),
        lambda: context.remove_live_brokers([5]),
        context.reset,
    ]
    seen = {context.brokers_version}
    for change in [*changes, *reversed(changes), *changes]:
        change()
        assert context.brokers_version not in seen
        seen.add(context.brokers_version)


@given(st.permutations(range(6)), st.permutations(range(6)), st.integers(1, 5), st.integers(1, 5))
def test_a_reassignment_knows_where_it_comes_from_and_goes(a: list, b: list, n: int, m: int) -> None:
    origin, target = tuple(a[:n]), tuple(b[:m])
    moving = ReplicaAssignment(origin).reassign_to(target)
    assert set(moving.replicas) == set(origin) | set(target)
    assert set(moving.adding) == set(target) - set(origin)
    assert set(moving.removing) == set(origin) - set(target)
    assert moving.target == target
    assert set(moving.origin) == set(origin)
    assert moving.is_being_reassigned == (set(origin) != set(target))


# ---- the rows of the conformance list

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)


def assigned(*replicas: int, adding: tuple[int, ...] = (), removing: tuple[int, ...] = ()) -> ReplicaAssignment:
    return ReplicaAssignment(replicas, adding, removing)


@pytest.fixture
def of_two_topics() -> ControllerContext:
    context = ControllerContext()
    context.set_live_brokers({Broker(i, (EndPoint("localhost", 9900 + i),)): 1 for i in (1, 2, 3)})
    context.set_all_topics(["A", "B"])
    for tp, replicas in {A0: (1, 2, 3), A1: (2, 3, 1), B0: (3, 1, 2)}.items():
        context.update_partition_full_replica_assignment(tp, assigned(*replicas))
    return context


@pytest.mark.conformance("CTX-02")
def test_unknown_partitions_have_no_replicas(of_two_topics: ControllerContext) -> None:
    assert of_two_topics.partition_replica_assignment(TopicPartition("NONEXISTENT", 0)) == ()
    assert of_two_topics.partition_replica_assignment(TopicPartition("A", 100)) == ()


@pytest.mark.conformance("CTX-04")
def test_an_unknown_topic_has_no_assignments(of_two_topics: ControllerContext) -> None:
    assert of_two_topics.partitions_for_topic("NONEXISTENT") == []


@pytest.mark.conformance("CTX-05")
def test_the_assignments_of_a_topic(of_two_topics: ControllerContext) -> None:
    found = {tp: of_two_topics.partition_replica_assignment(tp) for tp in of_two_topics.partitions_for_topic("A")}
    assert found == {A0: (1, 2, 3), A1: (2, 3, 1)}


@pytest.mark.conformance("CTX-06")
@pytest.mark.parametrize(
    ("assignment", "target", "is_being_reassigned"),
    [
        (assigned(1, 2, 3, 4, 5, 6, adding=(2, 3, 4), removing=(1, 5, 6)), (2, 3, 4), True),
        (assigned(1, 2, 3, 4, removing=(1, 4)), (2, 3), True),
        (assigned(1, 2, 3, 4, adding=(4,), removing=(2,)), (1, 3, 4), True),
        (assigned(1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6), False),
    ],
)
def test_the_target_of_an_assignment(
    assignment: ReplicaAssignment, target: tuple[int, ...], is_being_reassigned: bool
) -> None:
    assert assignment.target == target
    assert assignment.is_being_reassigned is is_being_reassigned


@pytest.mark.conformance("CTX-08")
@pytest.mark.parametrize(
    "assignment",
    [
        assigned(1, 2, 3),
        assigned(4, 5, 6, 1, 2, 3, adding=(4, 5, 6), removing=(1, 2, 3)),
        assigned(4, 2, 3, 1, adding=(4,), removing=(1,)),
    ],
)
def test_reassigning_to_the_target_changes_nothing(assignment: ReplicaAssignment) -> None:
    assert assignment.reassign_to(assignment.target) == assignment


@pytest.mark.conformance("CTX-09")
def test_another_reassignment_drops_the_replicas_that_were_being_added() -> None:
    first = assigned(1, 2, 3).reassign_to((4, 5, 6))
    assert first == assigned(4, 5, 6, 1, 2, 3, adding=(4, 5, 6), removing=(1, 2, 3))
    assert first.reassign_to((7, 8, 9)) == assigned(7, 8, 9, 1, 2, 3, adding=(7, 8, 9), removing=(1, 2, 3))
    assert first.reassign_to((1, 2, 3)) == assigned(1, 2, 3)


@pytest.mark.conformance("CTX-10")
def test_the_imbalance_follows_leaders_assignments_and_deletions(of_two_topics: ControllerContext) -> None:
    context = of_two_topics
    for tp in (A0, A1, B0):
        context.update_partition_full_replica_assignment(tp, assigned(1, 2, 3))
    for leader, imbalance, tp in ((1, 0, A0), (2, 1, A1), (3, 2, B0)):
        context.put_partition_leadership_info(tp, leads(leader))
        assert context.preferred_replica_imbalance_count == imbalance
    context.update_partition_full_replica_assignment(A0, assigned(2, 3, 1))
    context.update_partition_full_replica_assignment(A1, assigned(2, 3, 1))
    assert context.preferred_replica_imbalance_count == 2
    context.queue_topic_deletion(["B"])
    assert context.preferred_replica_imbalance_count == 1
    context.put_partition_leadership_info(B0, leads(1))
    assert context.preferred_replica_imbalance_count == 1
    context.remove_topic("A")
    context.remove_topic("B")
    assert context.preferred_replica_imbalance_count == 0


@pytest.mark.conformance("CTX-11")
def test_a_deletion_that_is_queued_twice_counts_once(of_two_topics: ControllerContext) -> None:
    context = of_two_topics
    for tp in (A0, B0):
        context.update_partition_full_replica_assignment(tp, assigned(1, 2, 3))
        context.put_partition_leadership_info(tp, leads(1))
    counts = [context.preferred_replica_imbalance_count]
    context.queue_topic_deletion(["A"])
    counts.append(context.preferred_replica_imbalance_count)
    context.put_partition_leadership_info(A0, leads(-1))
    counts.append(context.preferred_replica_imbalance_count)
    context.queue_topic_deletion(["A", "B"])
    assert [*counts, context.preferred_replica_imbalance_count] == [0, 0, 0, 0]


@pytest.mark.conformance("CTX-13")
def test_a_topic_and_its_id_belong_together() -> None:
    context, x, y, z = ControllerContext(), b"x" * 16, b"y" * 16, b"z" * 16
    context.set_all_topics(["t"])
    context.add_topic_id("t", x)
    context.add_topic_id("t", x)
    with pytest.raises(ValueError, match="already has the id"):
        context.add_topic_id("t", y)
    with pytest.raises(ValueError, match="there is no topic u"):
        context.add_topic_id("u", z)
    context.set_all_topics(["t", "u"])
    with pytest.raises(ValueError, match="belongs to topic t"):
        context.add_topic_id("u", x)
    assert dict(context.topic_ids) == {"t": x}
    assert (context.topic_name(x), context.topic_name(y)) == ("t", None)


# ---- lookups of many partitions


def test_the_partitions_of_several_brokers(of_two_topics: ControllerContext) -> None:
    of_two_topics.update_partition_full_replica_assignment(A1, assigned(2, 3))
    found = of_two_topics.partitions_on_brokers([1, 3, 9])
    assert found == {1: [A0, B0], 3: [A0, A1, B0], 9: []}


def test_a_leader_is_offline_with_its_broker_its_directory_or_if_there_is_none(
    of_two_topics: ControllerContext,
) -> None:
    context = of_two_topics
    for tp, leader in {A0: 1, A1: 2, B0: -1}.items():
        context.put_partition_leadership_info(tp, leads(leader))
    assert context.partitions_with_offline_leader() == [B0]
    context.set_replicas_on_offline_dirs(1, [A0, A1])
    assert context.partitions_with_offline_leader() == [A0, B0]
    context.remove_live_brokers([2])
    assert context.partitions_with_offline_leader() == [A0, A1, B0]
    context.queue_topic_deletion(["A"])
    assert context.partitions_with_offline_leader() == [B0]
