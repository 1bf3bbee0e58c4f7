"""What a request changes against what the same broker was told before."""

from itertools import count
from typing import Any

import pytest
from control_messages import leader_and_isr, leader_state, metadata_state, update_metadata

import kproto
from kproto.tables.bodies import ControlBody
from kproto.verdicts.knowledge import Changes, Knowledge

KEYS = count()


def body(message: Any) -> ControlBody:
    return ControlBody(next(KEYS).to_bytes(8, "big"), message.api_key, message)


def kinds(changes: Changes) -> list[str]:
    return [change.kind for change in changes.partitions]


def led(*partitions: tuple[int, int, int, list[int]], new: bool = False) -> ControlBody:
    """LeaderAndIsr of topic t: partition, leader, leader epoch and ISR of each."""
    states = [leader_state(n, leader, epoch=epoch, isr=isr, replicas=[0, 1, 2]) for n, leader, epoch, isr in partitions]
    for state in states:
        state.is_new = new
    return body(leader_and_isr({"t": states}))


def published(*partitions: tuple[int, int, int, list[int]]) -> ControlBody:
    states = [
        metadata_state(n, leader, epoch=epoch, isr=isr, replicas=[0, 1, 2]) for n, leader, epoch, isr in partitions
    ]
    return body(update_metadata({"t": states}))


def stopped(partition: int, *, delete: bool) -> ControlBody:
    state = kproto.StopReplicaRequest.from_json(
        {
            "controllerId": 0,
            "isKRaftController": False,
            "controllerEpoch": 1,
            "brokerEpoch": 1,
            "topicStates": [
                {
                    "topicName": "t",
                    "partitionStates": [{"partitionIndex": partition, "leaderEpoch": 9, "deletePartition": delete}],
                }
            ],
        },
        4,
    )
    return body(state)


def test_a_new_leader_and_isr_are_changes() -> None:
    knowledge = Knowledge()
    assert kinds(knowledge.apply(1, led((0, 0, 0, [0, 1, 2]), new=True), 7, accepted=True)) == ["new"]
    (change,) = knowledge.apply(1, led((0, 2, 1, [1, 2])), 7, accepted=True).partitions
    assert change.kind == "changed"
    assert change.before is not None
    assert (change.before.leader, change.state.leader) == (0, 2)
    assert (change.before.isr, change.state.isr) == ((0, 1, 2), (1, 2))


def test_the_order_of_an_isr_is_no_change() -> None:
    knowledge = Knowledge()
    knowledge.apply(1, led((0, 0, 0, [0, 1, 2])), 7, accepted=True)
    changes = knowledge.apply(1, led((0, 0, 0, [2, 1, 0])), 7, accepted=True)
    assert kinds(changes) == ["unchanged"]
    assert not changes.any


def test_replicas_and_metadata_are_kept_apart_as_a_broker_does() -> None:
    knowledge = Knowledge()
    knowledge.apply(1, led((0, 0, 0, [0, 1])), 7, accepted=True)
    assert kinds(knowledge.apply(1, published((0, 0, 0, [0, 1])), 7, accepted=True)) == ["first seen"]
    assert kinds(knowledge.apply(1, published((0, 0, 0, [0, 1])), 7, accepted=True)) == ["unchanged"]


def test_metadata_of_a_partition_that_was_created_before_is_new() -> None:
    knowledge = Knowledge()
    knowledge.apply(1, led((0, 0, 0, [0, 1]), new=True), 7, accepted=True)
    assert kinds(knowledge.apply(2, published((0, 0, 0, [0, 1]), (1, 0, 0, [0])), 7, accepted=True)) == [
        "new",
        "first seen",
    ]


def test_a_broker_that_starts_again_knows_nothing() -> None:
    knowledge = Knowledge()
    knowledge.apply(1, led((0, 0, 0, [0, 1]), new=True), 7, accepted=True)
    assert kinds(knowledge.apply(1, published((0, 0, 0, [0, 1])), 8, accepted=True)) == ["first seen"]
    assert knowledge.replica(1, "t", 0) is None


def test_what_a_broker_refused_changes_nothing() -> None:
    knowledge = Knowledge()
    knowledge.apply(1, led((0, 0, 0, [0, 1])), 7, accepted=True)
    refused = knowledge.apply(1, led((0, 1, 1, [1])), 6, accepted=False)
    assert kinds(refused) == ["refused"]
    assert not refused.any
    partly = knowledge.apply(1, led((0, 1, 1, [1]), (1, 1, 1, [1])), 7, accepted=True, failed=[("t", 0)])
    assert kinds(partly) == ["refused", "first seen"]
    known = knowledge.replica(1, "t", 0)
    assert known is not None
    assert known.leader == 0


@pytest.mark.parametrize(("delete", "kind"), [(True, "deleted"), (False, "stopped")])
def test_a_stopped_replica_is_forgotten(delete: bool, kind: str) -> None:
    knowledge = Knowledge()
    knowledge.apply(1, led((0, 0, 0, [0, 1])), 7, accepted=True)
    assert kinds(knowledge.apply(1, stopped(0, delete=delete), 7, accepted=True)) == [kind]
    assert knowledge.replica(1, "t", 0) is None


def test_brokers_that_were_told_the_same_share_what_they_know() -> None:
    knowledge = Knowledge()
    full, more = published(*((n, 0, 0, [0, 1]) for n in range(50))), published((3, 1, 1, [1]))
    first = [knowledge.apply(broker, full, 7, accepted=True) for broker in range(20)]
    second = [knowledge.apply(broker, more, 7, accepted=True) for broker in range(20)]
    assert len({id(changes) for changes in first}) == len({id(changes) for changes in second}) == 1
    assert kinds(second[-1]) == ["changed"]


def test_what_brokers_know_is_right_after_any_order_of_changes() -> None:
    """Held against plain dictionaries, one for each broker."""
    knowledge = Knowledge()
    plain: dict[int, dict[int, int]] = {broker: {} for broker in range(3)}
    for step in range(300):
        broker = step * 7 % 3
        partitions = {(step * 5 + n) % 23: step * n % 4 for n in range(1 + step % 9)}
        states = published(*((n, leader, step, [leader]) for n, leader in partitions.items()))
        for change in knowledge.apply(broker, states, 7, accepted=True).partitions:
            before = plain[broker].get(change.state.partition)
            assert (None if change.before is None else change.before.leader) == before
        plain[broker] |= partitions


def test_metadata_that_tells_of_a_deletion_makes_a_partition_forgotten() -> None:
    knowledge = Knowledge()
    knowledge.apply(1, published((0, 0, 0, [0, 1])), 7, accepted=True)
    assert kinds(knowledge.apply(1, published((0, -2, 1, [])), 7, accepted=True)) == ["deleted"]
    assert kinds(knowledge.apply(1, published((0, 0, 2, [0, 1])), 7, accepted=True)) == ["first seen"]
