"""What the request batch sends to whom, in every protocol version."""

import contextlib
import logging
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from controller_cluster import ASSIGNMENT, BAR0, BAR1, FOO0, FOO1, Cluster

from channel.errors import BrokerNotAvailable, IllegalState
from channel.lead.events import LeaderAndIsrResponseReceived, TopicDeletionStopReplicaResponseReceived
from channel.lead.migration import MigrationRequestBatch, Registration
from channel.logs import STATE_CHANGE, TRACE
from channel.send.encoded_requests import ListenerNotExpressible
from channel.types import (
    Broker,
    EndPoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    PartitionMetadata,
    ReplicaAssignment,
    SecurityProtocol,
    UpdateType,
)
from kproto.api import ApiKey, control_versions, ibp_versions
from kproto.codec import decode_request
from kproto.messages import (
    LeaderAndIsrResponse,
    StopReplicaPartitionError,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from kproto.types import ZERO_UUID, TopicPartition

LISR, SR, UMR = ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA
SINCE_082 = ibp_versions()[ibp_versions().index("0.8.2") :]


def read_back(request: Any) -> Any:
    """What the broker reads."""
    body = b"".join(request.build(request.latest_version))
    return decode_request(request.api_key, request.latest_version, body, strict=True)


def states(message: Any) -> dict[TopicPartition, Any]:
    return {TopicPartition(s.topic_name, s.partition_index): s for s in message.partition_states}


def stop_replica_ok(request: Any) -> StopReplicaResponse:
    """Success for each partition, as a broker answers."""
    return StopReplicaResponse(
        error_code=0,
        partition_errors=[
            StopReplicaPartitionError(topic_name=s.topic_name, partition_index=s.partition_index, error_code=0)
            for s in request.message.partition_states
        ],
    )


def only(things: list[Any]) -> Any:
    assert len(things) == 1
    return things[0]


@contextlib.contextmanager
def sending(cluster: Cluster, *how: Any, **listeners: str) -> Iterator[Any]:
    """A new batch, which is sent at the end."""
    batch = cluster.batch(*how, **listeners)
    batch.new_batch()
    yield batch
    batch.send_requests_to_brokers(1)


def add_leader_and_isr(
    batch: Any, cluster: Cluster, brokers: list[int], tp: TopicPartition, is_new: bool = False
) -> None:
    info = cluster.context.partition_leadership_info(tp)
    assert info is not None
    batch.add_leader_and_isr_request_for_brokers(brokers, tp, info, ASSIGNMENT, is_new)


class TestLeaderAndIsr:
    @pytest.mark.conformance("CCM-01")
    def test_one_request_with_all_partitions_and_an_event_with_the_answer(self, cluster: Cluster) -> None:
        leadership = {FOO0: (1, (1, 2)), FOO1: (2, (2, 3)), BAR1: (3, (1, 3))}
        with sending(cluster) as batch:
            for tp, (leader, isr) in leadership.items():
                cluster.lead(tp, leader, isr)
                add_leader_and_isr(batch, cluster, [2], tp)

        request = only(cluster.collector.requests(2, LISR))
        assert len(cluster.collector.requests(2, UMR)) == 1
        message = request.message
        assert (message.controller_id, message.controller_epoch, message.broker_epoch) == (1, 1, 1)
        assert {tp: (s.leader, s.isr) for tp, s in states(message).items()} == leadership
        assert states(read_back(request)).keys() == leadership.keys()

        cluster.collector.answer(LISR, lambda r: read_back(r).error_response(0))
        event = only(cluster.collector.events)
        assert isinstance(event, LeaderAndIsrResponseReceived)
        assert event.broker_id == 2
        assert {t.topic_id for t in event.response.topics} == set(cluster.context.topic_ids.values())

    @pytest.mark.conformance("CCM-02")
    def test_new_stays_new(self, cluster: Cluster) -> None:
        cluster.lead(FOO0, 1, (1, 2))
        with sending(cluster) as batch:
            add_leader_and_isr(batch, cluster, [2], FOO0, is_new=True)
            add_leader_and_isr(batch, cluster, [2], FOO0, is_new=False)
        assert only(only(cluster.collector.requests(2, LISR)).message.partition_states).is_new

    @pytest.mark.parametrize("told", [(False, False), (False, True), (True, False), (False, False, True, False)])
    def test_a_partition_is_new_if_it_was_told_as_new_once(self, cluster: Cluster, told: tuple[bool, ...]) -> None:
        with sending(cluster) as batch:
            for epoch, is_new in enumerate(told):
                cluster.lead(FOO0, 1, leader_epoch=epoch)
                add_leader_and_isr(batch, cluster, [2], FOO0, is_new)
        state = only(only(cluster.collector.requests(2, LISR)).message.partition_states)
        assert (state.is_new, state.leader_epoch) == (any(told), len(told) - 1)

    def test_what_is_new_for_one_broker_need_not_be_for_another(self, cluster: Cluster) -> None:
        cluster.lead(FOO0, 1)
        with sending(cluster) as batch:
            add_leader_and_isr(batch, cluster, [2], FOO0, is_new=True)
            add_leader_and_isr(batch, cluster, [1, 2, 3], FOO0)
        new = {b: only(only(cluster.collector.requests(b, LISR)).message.partition_states).is_new for b in (1, 2, 3)}
        assert new == {1: False, 2: True, 3: False}

    @pytest.mark.conformance("CCM-03")
    def test_only_live_and_leaving_brokers_are_told(self, cluster: Cluster) -> None:
        cluster.shut_down(2)
        cluster.remove(3)
        cluster.lead(FOO0, 1)
        with sending(cluster) as batch:
            add_leader_and_isr(batch, cluster, [1, 2, 3], FOO0)
        assert cluster.collector.sent.keys() == {1, 2}
        for broker in (1, 2):
            assert list(states(only(cluster.collector.requests(broker, LISR)).message)) == [FOO0]
            assert len(cluster.collector.requests(broker, UMR)) == 1
        assert cluster.collector.events == []

    @pytest.mark.parametrize("ibp", SINCE_082)
    def test_the_version_follows_the_protocol_and_the_bytes_the_version(self, cluster: Cluster, ibp: str) -> None:
        cluster.lead(FOO0, 1)
        with sending(cluster, ibp) as batch:
            add_leader_and_isr(batch, cluster, [2], FOO0)
        request = only(cluster.collector.requests(2, LISR))
        assert request.latest_version == control_versions(ibp).leader_and_isr
        built = states(request.message)[FOO0]
        read = states(read_back(request))[FOO0]
        assert (
            (read.leader, read.isr, read.replicas)
            == (built.leader, built.isr, built.replicas)
            == (1, (1, 2, 3), (1, 2, 3))
        )

    @pytest.mark.conformance("CCM-05")
    @pytest.mark.parametrize(("ibp", "state"), [("3.9", 1), ("3.2-IV0", 1), ("3.1-IV0", 0), ("2.4", 0)])
    def test_the_recovery_state_exists_since_32(self, cluster: Cluster, ibp: str, state: int) -> None:
        cluster.lead(FOO0, 1, recovery=LeaderRecoveryState.RECOVERING)
        with sending(cluster, ibp) as batch:
            add_leader_and_isr(batch, cluster, [2], FOO0)
        request = only(cluster.collector.requests(2, LISR))
        assert states(request.message)[FOO0].leader_recovery_state == state
        assert states(read_back(request))[FOO0].leader_recovery_state == state

    @pytest.mark.conformance("CCM-06")
    @pytest.mark.parametrize(
        ("ibp", "built", "read"), [("2.8-IV1", True, True), ("2.4-IV1", True, False), ("2.1-IV2", None, None)]
    )
    def test_topic_ids(self, cluster: Cluster, ibp: str, built: bool | None, read: bool | None) -> None:
        cluster.lead(FOO0, 1)
        with sending(cluster, ibp) as batch:
            add_leader_and_isr(batch, cluster, [2], FOO0)
        request = only(cluster.collector.requests(2, LISR))
        for message, expected in ((request.message, built), (read_back(request), read)):
            if expected is None:
                assert "foo" not in message.topic_ids
            else:
                assert (message.topic_ids["foo"] != ZERO_UUID) == expected

    def test_a_topic_without_id_gets_the_zero_id(self, cluster: Cluster) -> None:
        cluster.context.set_all_topics(["foo", "old"])
        tp = TopicPartition("old", 0)
        cluster.lead(tp, 1)
        with sending(cluster) as batch:
            add_leader_and_isr(batch, cluster, [2], tp)
        assert dict(read_back(only(cluster.collector.requests(2, LISR))).topic_ids) == {"old": ZERO_UUID}

    @pytest.mark.parametrize("built_at_once", [False, True])
    @pytest.mark.parametrize("ibp", ["3.9", "2.0-IV1", "0.8.2"])
    def test_brokers_that_are_told_the_same_share_the_bytes_but_not_the_epoch(
        self, cluster: Cluster, ibp: str, built_at_once: bool
    ) -> None:
        cluster.context.set_live_brokers({Broker(i, (EndPoint("h", 9900 + i),)): 100 + i for i in (1, 2, 3)})
        keep = cluster.collector.send_request

        def build(broker_id: int, request: Any, callback: Any = None) -> None:
            request.build(request.latest_version)
            keep(broker_id, request, callback)

        if built_at_once:  # as the channel manager does
            cluster.collector.send_request = build  # type: ignore[method-assign]
        cluster.lead(FOO0, 1)
        cluster.lead(BAR0, 2)
        with sending(cluster, ibp) as batch:
            add_leader_and_isr(batch, cluster, [1, 2, 3], FOO0)
            add_leader_and_isr(batch, cluster, [3], BAR0)
        requests = [only(cluster.collector.requests(b, LISR)) for b in (1, 2, 3)]
        epochs = [101, 102, 103] if control_versions(ibp).leader_and_isr >= 2 else [-1, -1, -1]
        if not built_at_once:
            assert [r.message.broker_epoch for r in requests] == [101, 102, 103]
        assert [read_back(r).broker_epoch for r in requests] == epochs
        assert [r.message.broker_epoch for r in requests] == epochs
        assert [r.broker_epoch for r in requests] == [101, 102, 103]
        told = [{tp: s.leader for tp, s in states(read_back(r)).items()} for r in requests]
        assert told == [{FOO0: 1}, {FOO0: 1}, {FOO0: 1, BAR0: 2}]
        one, same, other = (r.build(r.latest_version) for r in requests)
        assert not built_at_once or same[-1].obj is one[0]
        assert b"".join(other) != b"".join(one)

    @pytest.mark.conformance("CCM-26")
    def test_live_leaders_are_the_leaders_at_the_inter_broker_listener(self, cluster: Cluster) -> None:
        def two_listeners(broker_id: int) -> Broker:
            return Broker(
                broker_id,
                (EndPoint("control", 1, "CONTROL"), EndPoint(f"internal-{broker_id}", 90 + broker_id, "INTERNAL")),
            )

        cluster.context.set_live_brokers({two_listeners(i): 1 for i in (1, 2)})
        cluster.lead(FOO0, 1)
        with sending(cluster, inter_broker_listener_name="INTERNAL", control_plane_listener_name="CONTROL") as batch:
            add_leader_and_isr(batch, cluster, [2], FOO0)
        message = only(cluster.collector.requests(2, LISR)).message
        assert [(x.broker_id, x.host_name, x.port) for x in message.live_leaders] == [(1, "internal-1", 91)]

    def test_a_leader_without_that_listener_fails_the_whole_send(self, cluster: Cluster) -> None:
        cluster.lead(FOO0, 1)
        batch = cluster.batch(inter_broker_listener_name="INTERNAL")
        batch.new_batch()
        add_leader_and_isr(batch, cluster, [2], FOO0)
        with pytest.raises(IllegalState) as caught:
            batch.send_requests_to_brokers(1)
        assert isinstance(caught.value.__cause__, BrokerNotAvailable)
        with pytest.raises(IllegalState):
            batch.new_batch()

    def test_a_reassignment_is_told_in_full(self, cluster: Cluster) -> None:
        info = cluster.lead(FOO0, 1)
        moving = ReplicaAssignment((1, 2)).reassign_to((2, 3))
        with sending(cluster) as batch:
            batch.add_leader_and_isr_request_for_brokers([3], FOO0, info, moving, is_new=True)
        state = states(read_back(only(cluster.collector.requests(3, LISR))))[FOO0]
        assert (state.replicas, state.adding_replicas, state.removing_replicas) == ((2, 3, 1), (3,), (1,))


class TestUpdateMetadata:
    @pytest.mark.conformance("CCM-08")
    def test_partitions_that_nobody_led_are_left_out(self, cluster: Cluster) -> None:
        with sending(cluster) as batch:
            batch.add_update_metadata_request_for_brokers([2], [FOO0, FOO1, BAR1])
        assert cluster.collector.sent.keys() == {2}
        message = only(cluster.collector.requests(2, UMR)).message
        assert list(message.partition_states) == []
        assert {b.id for b in message.live_brokers} == {1, 2, 3}

    def test_partitions_with_their_leaders(self, cluster: Cluster) -> None:
        leadership = {FOO0: (1, 10, 20), FOO1: (2, 11, 21), BAR1: (3, 12, 22)}
        for tp, (leader, leader_epoch, partition_epoch) in leadership.items():
            cluster.lead(tp, leader, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
        with sending(cluster) as batch:
            batch.add_update_metadata_request_for_brokers([2], leadership)
        message = read_back(only(cluster.collector.requests(2, UMR)))
        assert {tp: (s.leader, s.leader_epoch, s.zk_version) for tp, s in states(message).items()} == leadership
        assert dict(message.topic_ids) == dict(cluster.context.topic_ids)

    @pytest.mark.conformance("CCM-10")
    def test_a_topic_queued_for_deletion_is_told_as_deleted(self, cluster: Cluster) -> None:
        cluster.lead(FOO0, 1, (1, 2), leader_epoch=7, partition_epoch=9)
        cluster.context.queue_topic_deletion(["foo"])
        with sending(cluster) as batch:
            batch.add_update_metadata_request_for_brokers([2], [FOO0])
        state = states(read_back(only(cluster.collector.requests(2, UMR))))[FOO0]
        assert (state.leader, state.leader_epoch, state.zk_version) == (-2, 0, 0)
        assert (state.isr, state.replicas) == ((1, 2), (1, 2, 3))

    @pytest.mark.conformance("CCM-11")
    def test_live_and_leaving_brokers_are_told_and_listed(self, cluster: Cluster) -> None:
        cluster.shut_down(2)
        cluster.remove(3)
        with sending(cluster) as batch:
            batch.add_update_metadata_request_for_brokers([1, 2, 3])
        assert cluster.collector.sent.keys() == {1, 2}
        for broker in (1, 2):
            message = only(cluster.collector.requests(broker, UMR)).message
            assert list(message.partition_states) == []
            assert {b.id for b in message.live_brokers} == {1, 2}

    @pytest.mark.conformance("CCM-12")
    @pytest.mark.parametrize(
        ("ibp", "version"),
        [
            ("3.4-IV0", 8), ("3.3-IV3", 7), ("2.8-IV1", 7), ("2.8-IV0", 6), ("2.4-IV1", 6), ("2.4-IV0", 5),
            ("2.2-IV0", 5), ("2.1-IV2", 4), ("1.0-IV0", 4), ("0.11.0-IV2", 3), ("0.10.2-IV0", 3), ("0.10.1-IV2", 2),
            ("0.10.0-IV1", 2), ("0.10.0-IV0", 1), ("0.9.0", 1), ("0.8.2", 0),
        ],
    )  # fmt: skip
    def test_the_version_follows_the_protocol(self, cluster: Cluster, ibp: str, version: int) -> None:
        with sending(cluster, ibp) as batch:
            batch.add_update_metadata_request_for_brokers([2])
        request = only(cluster.collector.requests(2, UMR))
        assert (request.oldest_version, request.latest_version) == (version, version)
        assert {b.id for b in read_back(request).live_brokers} == {1, 2, 3}
        assert cluster.collector.events == []

    @pytest.mark.parametrize("ibp", SINCE_082)
    def test_every_version_carries_the_partitions(self, cluster: Cluster, ibp: str) -> None:
        cluster.lead(FOO0, 1)
        cluster.lead(BAR1, 2)
        with sending(cluster, ibp) as batch:
            batch.add_update_metadata_request_for_brokers([1, 2], [FOO0, BAR1])
        for broker in (1, 2):
            read = states(read_back(only(cluster.collector.requests(broker, UMR))))
            assert {tp: s.leader for tp, s in read.items()} == {FOO0: 1, BAR1: 2}

    @pytest.mark.parametrize(
        ("ibp", "endpoint"),
        [
            ("0.10.1", EndPoint("b", 9092, "REPLICATION")),
            ("0.9.0", EndPoint("b", 9092, "REPLICATION")),
            ("0.8.2", EndPoint("b", 9093, "SSL", SecurityProtocol.SSL)),
        ],
    )
    def test_a_listener_that_the_version_cannot_name_fails_in_the_brokers_queues_and_not_in_the_batch(
        self, cluster: Cluster, ibp: str, endpoint: EndPoint
    ) -> None:
        cluster.context.set_live_brokers({Broker(1, (EndPoint("a", 9092),)): 11, Broker(2, (endpoint,)): 12})
        cluster.lead(FOO0, 1)
        with sending(cluster, ibp) as batch:
            batch.add_update_metadata_request_for_brokers([1, 2], [FOO0])
        for broker_id in (1, 2):
            request = only(cluster.collector.requests(broker_id, UMR))
            assert (request.latest_version, request.controller_epoch, request.broker_epoch) == (
                control_versions(ibp).update_metadata, 1, 10 + broker_id,
            )  # fmt: skip
            assert request.message.live_brokers[1].endpoints[0].listener == endpoint.listener_name
            with pytest.raises(ListenerNotExpressible, match="broker 2"):
                request.build(request.latest_version)
        batch.new_batch()  # nothing is left in it

    def test_each_broker_gets_its_own_epoch_and_the_same_bytes(self, cluster: Cluster) -> None:
        cluster.context.set_live_brokers({Broker(i, (EndPoint("localhost", 1),)): 100 + i for i in (1, 2, 3)})
        cluster.lead(FOO0, 1)
        with sending(cluster) as batch:
            batch.add_update_metadata_request_for_brokers([1, 2, 3], [FOO0])
        requests = [only(cluster.collector.requests(b, UMR)) for b in (1, 2, 3)]
        bodies = [r.build(8) for r in requests]
        assert [r.message.broker_epoch for r in requests] == [101, 102, 103]
        assert len({id(b[-1].obj) for b in bodies}) == 1, "the partitions are held once"

    def test_the_last_word_about_a_partition_counts(self, cluster: Cluster) -> None:
        with sending(cluster) as batch:
            for leader in (1, 2):
                cluster.lead(FOO0, leader)
                batch.add_update_metadata_request_for_brokers([1], [FOO0])
            cluster.lead(FOO0, 3)
        assert states(only(cluster.collector.requests(1, UMR)).message)[FOO0].leader == 2

    def test_offline_replicas(self, cluster: Cluster) -> None:
        cluster.lead(FOO0, 1)
        cluster.context.set_replicas_on_offline_dirs(1, [FOO0])
        cluster.shut_down(3)
        with sending(cluster) as batch:
            batch.add_update_metadata_request_for_brokers([2], [FOO0])
        assert states(only(cluster.collector.requests(2, UMR)).message)[FOO0].offline_replicas == (1, 3)

    def test_partitions_in_so_many_words(self, cluster: Cluster) -> None:
        with sending(cluster) as batch:
            gone = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, (1,)), 1).during_delete()
            batch.add_update_metadata([1, -1], [(TopicPartition("gone", 3), PartitionMetadata(gone, (1,)))])
        read = states(read_back(only(cluster.collector.requests(1, UMR))))
        assert {tp: s.leader for tp, s in read.items()} == {TopicPartition("gone", 3): -2}

    @pytest.mark.parametrize("ibp", ["3.9", "2.4-IV0", "0.8.2"])
    def test_a_large_update_goes_out_in_pieces_that_are_one_body(self, cluster: Cluster, ibp: str) -> None:
        shapes = {"a": 3000, "b": 6000, "c": 1, "d": 4500}
        cluster.context.set_all_topics(shapes)
        tps = [TopicPartition(topic, p) for topic, count in shapes.items() for p in range(count)]
        for tp in tps:
            cluster.context.update_partition_full_replica_assignment(tp, ASSIGNMENT)
            cluster.lead(tp, tp.partition % 3 + 1, leader_epoch=tp.partition)
        with sending(cluster, ibp) as batch:
            batch.add_update_metadata_request_for_brokers([1, 2], tps)
        request, other = (only(cluster.collector.requests(b, UMR)) for b in (1, 2))
        pieces = request.build(request.latest_version)
        assert len(pieces) > 4
        assert [id(p) for p in pieces[1:]] == [id(p) for p in other.build(other.latest_version)[1:]]
        read = read_back(request)
        rows = [(s.topic_name, s.partition_index, s.leader, s.leader_epoch) for s in read.partition_states]
        assert rows == [(topic, p, p % 3 + 1, p) for topic, p in tps]
        assert len(read.topic_states) == (len(shapes) if request.latest_version >= 5 else 0)

    def test_a_full_update_takes_no_more_than_two_bodies_while_it_is_made(self, cluster: Cluster) -> None:
        tps = [TopicPartition(f"topic-{t:05}", p) for t in range(1000) for p in range(20)]
        cluster.context.set_all_topics({tp.topic for tp in tps})
        for tp in tps:
            cluster.context.update_partition_full_replica_assignment(tp, ASSIGNMENT)
            cluster.lead(tp, 1)
        batch = cluster.batch()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            batch.new_batch()
            batch.add_update_metadata_request_for_brokers([1, 2, 3], tps)
            batch.send_requests_to_brokers(1)
            alive, most = (size - before for size in tracemalloc.get_traced_memory())
        finally:
            tracemalloc.stop()
        body = sum(map(len, only(cluster.collector.requests(1, UMR)).build(8)))
        assert alive < 1.1 * body
        assert most < 2 * body

    @pytest.mark.parametrize("ibp", ["3.9", "0.8.2"])
    def test_topics_that_come_again_stay_one_group_and_the_last_word_counts(self, cluster: Cluster, ibp: str) -> None:
        with sending(cluster, ibp) as batch:
            for leader, tps in ((1, [FOO0, BAR0, FOO1]), (2, [BAR1, FOO1, BAR0]), (3, [FOO1])):
                for tp in tps:
                    cluster.lead(tp, leader)
                batch.add_update_metadata_request_for_brokers([1], tps)
                cluster.context.set_replicas_on_offline_dirs(leader, [FOO1])
            cluster.lead(FOO0, 3)
        message = read_back(only(cluster.collector.requests(1, UMR)))
        rows = [(s.topic_name, s.partition_index, s.leader) for s in message.partition_states]
        assert rows == [("foo", 0, 1), ("foo", 1, 3), ("bar", 0, 2), ("bar", 1, 2)]
        if ibp == "3.9":
            assert [s.offline_replicas for s in message.partition_states] == [(), (1, 2), (), ()]
            assert [t.topic_name for t in message.topic_states] == ["foo", "bar"]

    def test_the_live_brokers_are_those_of_now(self, cluster: Cluster) -> None:
        batch = cluster.batch()
        for change, expected in (
            (lambda: None, {1: 9901, 2: 9902, 3: 9903}),
            (lambda: cluster.context.update_broker_metadata(Broker(2, (EndPoint("h", 5),))), {1: 9901, 2: 5, 3: 9903}),
            (lambda: cluster.remove(3), {1: 9901, 2: 5}),
        ):
            change()
            cluster.collector.sent.clear()
            cluster.lead(FOO0, 2)
            batch.new_batch()
            add_leader_and_isr(batch, cluster, [1], FOO0)
            batch.send_requests_to_brokers(1)
            update, state = (only(cluster.collector.requests(1, api)).message for api in (UMR, LISR))
            assert {b.id: only(b.endpoints).port for b in update.live_brokers} == expected
            assert [(x.broker_id, x.port) for x in state.live_leaders] == [(2, expected[2])]

    def test_a_number_beyond_int32_is_refused_and_nothing_sent(self, cluster: Cluster) -> None:
        cluster.lead(FOO0, 2**31)
        batch = cluster.batch()
        batch.new_batch()
        batch.add_update_metadata_request_for_brokers([1], [FOO0])
        with pytest.raises(IllegalState, match=str(2**31)):
            batch.send_requests_to_brokers(1)
        assert cluster.collector.sent == {}

    def test_a_listener_of_another_name_is_sent_from_version_3_on(self, cluster: Cluster) -> None:
        endpoints = (EndPoint("h", 1), EndPoint("h", 2, "REPLICATION", SecurityProtocol.PLAINTEXT))
        cluster.context.set_live_brokers({Broker(1, endpoints): 1})
        with sending(cluster, "0.10.2-IV0") as batch:
            batch.add_update_metadata_request_for_brokers([1])
        request = only(cluster.collector.requests(1, UMR))
        assert [e.listener for e in only(read_back(request).live_brokers).endpoints] == ["PLAINTEXT", "REPLICATION"]

    def test_answers_become_events(self, cluster: Cluster) -> None:
        with sending(cluster) as batch:
            batch.add_update_metadata_request_for_brokers([1, 2])
        cluster.collector.answer(UMR, lambda r: UpdateMetadataResponse(error_code=77))
        assert [(e.broker_id, e.response.error_code) for e in cluster.collector.events] == [(1, 77), (2, 77)]


class TestStopReplica:
    def stop(self, batch: Any, tps: list[TopicPartition], delete: bool, brokers: list[int] | None = None) -> None:
        for tp in tps:
            batch.add_stop_replica_request_for_brokers(brokers or [2], tp, delete)

    @pytest.mark.conformance("CCM-13")
    def test_stopping_without_deletion(self, cluster: Cluster) -> None:
        for tp, leader in ((FOO0, 1), (FOO1, 2), (BAR1, 3)):
            cluster.lead(tp, leader)
        with sending(cluster) as batch:
            self.stop(batch, [FOO0, FOO1, BAR1], False)
        request = only([r for r, _ in cluster.collector.sent[2]])
        assert (request.api_key, request.latest_version) == (SR, 4)
        read = {tp: (s.leader_epoch, s.delete_partition) for tp, s in states(read_back(request)).items()}
        assert read == {FOO0: (0, False), FOO1: (0, False), BAR1: (0, False)}
        cluster.collector.answer(SR, stop_replica_ok)
        assert cluster.collector.events == []

    @pytest.mark.conformance("CCM-15")
    @pytest.mark.parametrize("ibp", SINCE_082)
    def test_a_topic_only_queued_for_deletion_gives_no_event(self, cluster: Cluster, ibp: str) -> None:
        for tp in (FOO0, FOO1, BAR1):
            cluster.lead(tp, 1)
        cluster.context.queue_topic_deletion(["foo"])
        with sending(cluster, ibp) as batch:
            self.stop(batch, [FOO0, FOO1, BAR1], True)
        request = only(cluster.collector.requests(2, SR))
        read = {tp: (s.leader_epoch, s.delete_partition) for tp, s in states(read_back(request)).items()}
        if request.latest_version >= 3:
            assert read == {FOO0: (-2, True), FOO1: (-2, True), BAR1: (0, True)}
        else:
            assert read == dict.fromkeys((FOO0, FOO1, BAR1), (-1, True))
        cluster.collector.answer(SR, stop_replica_ok)
        assert cluster.collector.events == []

    @pytest.mark.conformance("CCM-16")
    @pytest.mark.parametrize("ibp", SINCE_082)
    def test_a_topic_in_deletion_gives_one_event_with_its_partitions_alone(self, cluster: Cluster, ibp: str) -> None:
        for tp in (FOO0, FOO1, BAR1):
            cluster.lead(tp, 1)
        cluster.context.queue_topic_deletion(["foo"])
        cluster.context.topics_with_deletion_started.add("foo")
        with sending(cluster, ibp) as batch:
            self.stop(batch, [FOO0, FOO1, BAR1], True)
        assert len(cluster.collector.requests(2, SR)) == 1
        cluster.collector.answer(SR, stop_replica_ok)
        assert cluster.collector.events == [TopicDeletionStopReplicaResponseReceived(2, 0, {FOO0: 0, FOO1: 0})]

    @pytest.mark.conformance("CCM-18")
    @pytest.mark.parametrize("ibp", ibp_versions()[ibp_versions().index("2.6-IV0") :])
    def test_both_kinds_in_one_request_since_26(self, cluster: Cluster, ibp: str) -> None:
        with sending(cluster, ibp) as batch:
            self.stop(batch, [FOO0, FOO1], True)
            self.stop(batch, [BAR0, BAR1], False)
        read = states(read_back(only(cluster.collector.requests(2, SR))))
        assert {tp: s.delete_partition for tp, s in read.items()} == {FOO0: True, FOO1: True, BAR0: False, BAR1: False}

    @pytest.mark.parametrize("ibp", SINCE_082[: SINCE_082.index("2.6-IV0")])
    def test_deletions_first_and_alone_before_26(self, cluster: Cluster, ibp: str) -> None:
        with sending(cluster, ibp) as batch:
            self.stop(batch, [BAR0, BAR1], False)
            self.stop(batch, [FOO0, FOO1], True)
        sent = cluster.collector.sent[2]
        assert [read_back(r).delete_partitions for r, _ in sent] == [True, False]
        assert [set(states(read_back(r))) for r, _ in sent] == [{FOO0, FOO1}, {BAR0, BAR1}]
        assert [callback is None for _, callback in sent] == [False, True]

    def test_delete_stays_and_the_latest_epoch_counts(self, cluster: Cluster) -> None:
        with sending(cluster) as batch:
            cluster.lead(FOO0, 1, leader_epoch=3)
            self.stop(batch, [FOO0], True)
            cluster.lead(FOO0, 1, leader_epoch=4)
            self.stop(batch, [FOO0], False)
        state = states(only(cluster.collector.requests(2, SR)).message)[FOO0]
        assert (state.leader_epoch, state.delete_partition) == (4, True)

    def test_a_partition_that_nobody_led_has_epoch_minus_one(self, cluster: Cluster) -> None:
        with sending(cluster) as batch:
            self.stop(batch, [FOO0], False)
        assert states(only(cluster.collector.requests(2, SR)).message)[FOO0].leader_epoch == -1

    @pytest.mark.conformance("CCM-21")
    def test_only_live_and_leaving_brokers_are_told(self, cluster: Cluster) -> None:
        cluster.shut_down(2)
        cluster.remove(3)
        with sending(cluster) as batch:
            self.stop(batch, [FOO0, BAR1], False, [2, 3])
        assert {b: len(sent) for b, sent in cluster.collector.sent.items()} == {2: 1}
        batch.new_batch()

    def test_an_answer_after_clear_still_gives_its_event(self, cluster: Cluster) -> None:
        cluster.context.topics_with_deletion_started.add("foo")
        with sending(cluster) as batch:
            self.stop(batch, [FOO0], True)
        batch.clear()
        cluster.collector.answer(SR, stop_replica_ok)
        assert len(cluster.collector.events) == 1


class TestBatch:
    @pytest.mark.conformance("CCM-23")
    @pytest.mark.parametrize("what", ["LeaderAndIsr", "StopReplica", "UpdateMetadata"])
    def test_a_new_batch_refuses_to_lose_the_old_one(self, cluster: Cluster, what: str) -> None:
        cluster.lead(FOO0, 1)
        batch = cluster.batch()
        batch.new_batch()
        match what:
            case "LeaderAndIsr":
                add_leader_and_isr(batch, cluster, [2], FOO0)
            case "StopReplica":
                batch.add_stop_replica_request_for_brokers([2], FOO0, False)
            case "UpdateMetadata":
                batch.add_update_metadata_request_for_brokers([2])
        with pytest.raises(IllegalState, match=what):
            batch.new_batch()
        batch.clear()
        batch.new_batch()

    @pytest.mark.conformance("CCM-25")
    def test_negative_broker_ids_are_passed_over(self, cluster: Cluster) -> None:
        cluster.lead(FOO0, 1)
        with sending(cluster) as batch:
            add_leader_and_isr(batch, cluster, [-1, 2], FOO0)
            batch.add_update_metadata_request_for_brokers([-1, 2], [FOO0])
            batch.add_stop_replica_request_for_brokers([-1, 2], FOO0, False)
        sent = {b: [r.api_key for r, _ in requests] for b, requests in cluster.collector.sent.items()}
        assert sent == {2: [LISR, UMR, SR], 1: [UMR], 3: [UMR]}

    def test_only_negative_ids_leave_the_batch_empty(self, cluster: Cluster) -> None:
        batch = cluster.batch()
        batch.new_batch()
        batch.add_update_metadata_request_for_brokers([-1])
        batch.add_stop_replica_request_for_brokers([-1], FOO0, False)
        batch.new_batch()
        batch.send_requests_to_brokers(1)
        assert cluster.collector.sent == {}

    def test_an_unopened_batch_takes_nothing(self, cluster: Cluster) -> None:
        info = cluster.lead(FOO0, 1)
        batch = cluster.batch()
        for add in (
            lambda: batch.add_leader_and_isr_request_for_brokers([2], FOO0, info, ASSIGNMENT, False),
            lambda: batch.add_stop_replica_request_for_brokers([2], FOO0, False),
            lambda: batch.add_update_metadata_request_for_brokers([2], [FOO0]),
            lambda: batch.send_requests_to_brokers(1),
        ):
            with pytest.raises(IllegalState, match="new_batch"):
                add()
        batch.new_batch()

    def test_what_was_not_sent_stays_and_is_logged(self, cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
        def refuse(*args: Any) -> None:
            raise OSError("no")

        cluster.collector.send_request = refuse  # type: ignore[method-assign]
        batch = cluster.batch()
        batch.new_batch()
        batch.add_stop_replica_request_for_brokers([2], FOO0, False)
        with pytest.raises(IllegalState) as caught:
            batch.send_requests_to_brokers(1)
        assert isinstance(caught.value.__cause__, OSError)
        assert "not sent: StopReplica requests for brokers [2]" in caplog.text
        with pytest.raises(IllegalState):
            batch.new_batch()

    @pytest.mark.parametrize("queued", range(7))
    @pytest.mark.parametrize("ibp", ["3.9", "2.4"])
    def test_after_a_failure_half_way_only_the_rest_is_sent_again(
        self, cluster: Cluster, ibp: str, queued: int
    ) -> None:
        cluster.remove(3)
        cluster.lead(FOO0, 1)
        keep = cluster.collector.send_request
        passed: list[int] = []

        def fail_after_some(broker_id: int, request: Any, callback: Any = None) -> None:
            if len(passed) == queued:
                raise OSError("no room")
            passed.append(broker_id)
            keep(broker_id, request, callback)

        batch = cluster.batch(ibp)

        def collect() -> None:
            batch.new_batch()
            add_leader_and_isr(batch, cluster, [3, 1, 2], FOO0)
            batch.add_stop_replica_request_for_brokers([3, 1, 2], BAR0, True)
            batch.add_stop_replica_request_for_brokers([1, 2], BAR1, False)

        def sent() -> list[tuple[int, int, bytes]]:
            return [
                (broker_id, r.api_key, b"".join(r.build(r.latest_version)))
                for broker_id, requests in sorted(cluster.collector.sent.items())
                for r, _ in requests
            ]

        collect()
        batch.send_requests_to_brokers(1)
        at_once = sent()
        assert len(at_once) == (6 if ibp == "3.9" else 8)
        cluster.collector.sent.clear()

        collect()
        cluster.collector.send_request = fail_after_some  # type: ignore[method-assign]
        if queued < len(at_once):
            with pytest.raises(IllegalState, match="no room; still in it, and in it alone, are"):
                batch.send_requests_to_brokers(1)
            with pytest.raises(IllegalState, match="still holds"):
                batch.new_batch()
            cluster.collector.send_request = keep  # type: ignore[method-assign]
        batch.send_requests_to_brokers(1)
        assert sent() == at_once
        batch.new_batch()

    @pytest.mark.parametrize("kraft", [False, True])
    @pytest.mark.parametrize("ibp", ["3.4-IV0", "3.2-IV0", "2.8-IV1", "2.4-IV1"])
    def test_the_kraft_flag_and_the_type_are_in_each_version_that_has_them(
        self, cluster: Cluster, ibp: str, kraft: bool
    ) -> None:
        cluster.lead(FOO0, 1)
        batch = cluster.batch(ibp, MigrationRequestBatch if kraft else None)
        if isinstance(batch, MigrationRequestBatch):
            epochs = cluster.context.live_broker_id_and_epochs
            brokers = cluster.context.live_or_shutting_down_brokers
            batch.set_brokers(Registration(broker, epochs[broker.id]) for broker in brokers)
        batch.new_batch(UpdateType.INCREMENTAL)
        add_leader_and_isr(batch, cluster, [2], FOO0)
        batch.add_stop_replica_request_for_brokers([2], BAR0, True)
        batch.send_requests_to_brokers(1)
        read = {api: read_back(only(cluster.collector.requests(2, api))) for api in (LISR, UMR, SR)}
        versions = control_versions(ibp)
        assert read[LISR].type == (UpdateType.INCREMENTAL if versions.leader_and_isr >= 5 else UpdateType.UNKNOWN)
        assert read[UMR].type == (UpdateType.INCREMENTAL if versions.update_metadata >= 8 else UpdateType.UNKNOWN)
        assert read[LISR].is_kraft_controller == (kraft and versions.leader_and_isr >= 7)
        assert read[UMR].is_kraft_controller == (kraft and versions.update_metadata >= 8)
        assert read[SR].is_kraft_controller == (kraft and versions.stop_replica >= 4)

    def test_the_type_of_a_kraft_update_ends_with_the_batch(self, cluster: Cluster) -> None:
        batch = cluster.batch()
        for given, number in (([UpdateType.FULL], 2), ([], 0)):
            cluster.collector.sent.clear()
            batch.new_batch(*given)
            cluster.lead(FOO0, 1)
            add_leader_and_isr(batch, cluster, [2], FOO0)
            batch.send_requests_to_brokers(1)
            for api in (LISR, UMR):
                assert read_back(only(cluster.collector.requests(2, api))).type == number

    def test_state_changes_are_logged_for_each_partition_only_if_asked_for(
        self, cluster: Cluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        cluster.lead(FOO0, 2)
        cluster.lead(FOO1, 1)
        batch = cluster.batch()

        def lines(level: int) -> list[str]:
            caplog.clear()
            with caplog.at_level(level, STATE_CHANGE.name):
                batch.new_batch()
                for tp in (FOO0, FOO1):
                    add_leader_and_isr(batch, cluster, [2], tp)
                batch.add_stop_replica_request_for_brokers([2], BAR0, True)
                batch.send_requests_to_brokers(1)
            return [r.getMessage() for r in caplog.records if r.name == STATE_CHANGE.name]

        told = lines(logging.INFO)
        assert len(told) == 3
        assert sum("to broker 2, which is to lead 1 and follow 1 partitions" in line for line in told) == 1
        traced = lines(TRACE)
        assert all(line.startswith("[Controller id=1 epoch=1]") for line in traced)
        assert sum("become-leader" in line and "foo-0" in line for line in traced) == 1
        assert sum("become-follower" in line and "foo-1" in line for line in traced) == 1
        assert sum("StopReplica" in line and "bar-0" in line for line in traced) == 1
        assert max(map(len, traced)) < 1000

    def test_a_leader_and_isr_answer_with_an_error_is_an_event_too(self, cluster: Cluster) -> None:
        cluster.lead(FOO0, 1)
        with sending(cluster) as batch:
            add_leader_and_isr(batch, cluster, [2], FOO0)
        cluster.collector.answer(LISR, lambda r: LeaderAndIsrResponse(error_code=11))
        assert [e.response.error_code for e in cluster.collector.events] == [11]
