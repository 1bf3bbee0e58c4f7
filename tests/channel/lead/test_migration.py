"""What a KRaft controller tells ZooKeeper brokers: images and changes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from controller_cluster import BAR0, FOO0, Cluster

from channel.broker.cluster import EmbeddedCluster
from channel.config import ChannelConfig
from channel.lead.migration import MigrationRequestBatch, Registration
from channel.rehearsal.journal import Journal, JournaledChannels
from channel.send.context import ControllerContext
from channel.types import (
    Broker,
    EndPoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    PartitionMetadata,
    ReplicaAssignment,
    UpdateType,
)
from kproto.api import ApiKey
from kproto.codec import decode_request
from kproto.types import TopicPartition

LISR, SR, UMR = ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA


def read(cluster: Cluster, broker_id: int, api_key: int) -> list[Any]:
    return [
        decode_request(api_key, r.latest_version, b"".join(r.build(r.latest_version)), strict=True)
        for r in cluster.collector.requests(broker_id, api_key)
    ]


def tps(message: Any) -> set[TopicPartition]:
    return {TopicPartition(s.topic_name, s.partition_index) for s in message.partition_states}


def kraft_batch(cluster: Cluster, ibp: str = "3.9") -> MigrationRequestBatch:
    batch = cluster.batch(ibp, MigrationRequestBatch)
    assert isinstance(batch, MigrationRequestBatch)
    epochs = cluster.context.live_broker_id_and_epochs
    batch.set_brokers([Registration(each, epochs[each.id]) for each in cluster.context.live_or_shutting_down_brokers])
    return batch


@pytest.fixture
def batch(cluster: Cluster) -> MigrationRequestBatch:
    for tp, leader in ((FOO0, 1), (BAR0, 2)):
        cluster.lead(tp, leader)
    return kraft_batch(cluster)


@pytest.mark.conformance("MPR-05")
def test_an_image_is_metadata_first_and_then_full_leadership(cluster: Cluster, batch: MigrationRequestBatch) -> None:
    batch.send_image(5)
    for broker in (1, 2, 3):
        assert [r.api_key for r, _ in cluster.collector.sent[broker]] == [UMR, LISR, UMR]
        first, second = read(cluster, broker, UMR)
        (leadership,) = read(cluster, broker, LISR)
        assert [m.type for m in (first, second, leadership)] == [UpdateType.UNKNOWN, UpdateType.FULL, UpdateType.FULL]
        assert all(m.is_kraft_controller and m.controller_epoch == 5 for m in (first, second, leadership))
        assert tps(first) == tps(second) == tps(leadership) == {FOO0, BAR0}
        assert all(s.is_new for s in leadership.partition_states)


def test_new_brokers_get_all_metadata_and_the_others_the_live_brokers(
    cluster: Cluster, batch: MigrationRequestBatch
) -> None:
    batch.send_new_brokers([2], 6)
    assert {b: [tps(m) for m in read(cluster, b, UMR)] for b in (1, 2, 3)} == {
        1: [set()],
        2: [{FOO0, BAR0}],
        3: [set()],
    }
    assert {b.id for b in read(cluster, 1, UMR)[0].live_brokers} == {1, 2, 3}


def test_a_deleted_topic_is_stopped_deleted_and_told_as_gone(cluster: Cluster, batch: MigrationRequestBatch) -> None:
    leadership = cluster.context.partition_leadership_info(FOO0)
    assert leadership is not None
    cluster.context.remove_topic("foo")
    batch.send_deleted({FOO0: PartitionMetadata(leadership, (1, 2))}, 6)
    assert {b: [tps(m) for m in read(cluster, b, SR)] for b in (1, 2, 3)} == {1: [{FOO0}], 2: [{FOO0}], 3: []}
    stops = [m for b in (1, 2) for m in read(cluster, b, SR)]
    assert all(s.delete_partition for m in stops for s in m.partition_states)
    assert all(m.is_kraft_controller and m.controller_epoch == 6 for m in stops)
    for broker in (1, 2, 3):
        (metadata,) = read(cluster, broker, UMR)
        assert [(s.leader, s.leader_epoch) for s in metadata.partition_states] == [(-2, 0)]


@pytest.mark.parametrize(
    ("ibp", "version", "read_back"),
    [("2.8-IV0", 4, UpdateType.UNKNOWN), ("2.8-IV1", 5, UpdateType.FULL), ("3.2-IV0", 6, UpdateType.FULL)],
)
def test_leadership_is_typed_since_version_5(cluster: Cluster, ibp: str, version: int, read_back: UpdateType) -> None:
    cluster.lead(FOO0, 1)
    kraft_batch(cluster, ibp).send_image(5)
    (request,) = cluster.collector.requests(1, LISR)
    (leadership,) = read(cluster, 1, LISR)
    assert (request.latest_version, leadership.type) == (version, read_back)


@pytest.mark.parametrize("ibp", ["3.3-IV3", "2.8-IV0"])
def test_old_versions_cannot_say_that_it_is_kraft(cluster: Cluster, ibp: str) -> None:
    cluster.lead(FOO0, 1)
    kraft_batch(cluster, ibp).send_image(5)
    assert not any(m.is_kraft_controller for m in read(cluster, 1, UMR) + read(cluster, 1, LISR))


@dataclass
class Migrating:
    """A migration's batch with channels to two embedded brokers, the topic ``t`` on both, and who got requests."""

    brokers: EmbeddedCluster
    journal: Journal
    channels: JournaledChannels
    batch: MigrationRequestBatch

    def registered(self, *states: str) -> list[Registration]:
        """The registrations of brokers 0 and 1, from their states."""
        return [
            Registration(
                Broker(member.id, (EndPoint(member.host, member.port),)),
                member.epoch,
                is_fenced=state == "fenced",
                is_zookeeper_broker=state != "kraft",
            )
            for member, state in zip(self.brokers, states, strict=True)
        ]

    def receivers(self, send: Callable[[], None]) -> set[int]:
        """The brokers that have answered what is sent now, all without an error."""
        before = len(self.journal.entries)
        send()
        self.journal.wait()
        sent = self.journal.entries[before:]
        assert not any(each.dropped or each.error_code for each in sent)
        return {each.broker_id for each in sent}


@pytest.fixture
def migrating() -> Iterator[Migrating]:
    journal, context, config = Journal(), ControllerContext(), ChannelConfig()
    context.set_all_topics(["t"])
    context.add_topic_id("t", bytes(range(16)))
    tp = TopicPartition("t", 0)
    context.update_partition_full_replica_assignment(tp, ReplicaAssignment((0, 1)))
    context.put_partition_leadership_info(tp, LeaderIsrAndControllerEpoch(LeaderAndIsr(1, (0, 1)), 5))
    with EmbeddedCluster(2, kraft=True) as brokers, JournaledChannels(journal, 3000, lambda: 5, config) as channels:
        yield Migrating(brokers, journal, channels, MigrationRequestBatch(3000, config, channels, context))


@pytest.mark.parametrize(
    ("before", "after", "added", "removed"),
    [
        pytest.param((), ("fenced", "zk"), {1}, set(), marks=pytest.mark.conformance("MPR-01")),
        pytest.param(("fenced", "zk"), ("zk", "zk"), {0}, set(), marks=pytest.mark.conformance("MPR-02")),
        pytest.param(("zk", "zk"), ("kraft", "kraft"), set(), {0, 1}, marks=pytest.mark.conformance("MPR-03")),
        pytest.param(("kraft", "kraft"), ("zk", "kraft"), {0}, set(), marks=pytest.mark.conformance("MPR-04")),
    ],
)
def test_unfenced_zookeeper_brokers_alone_have_channels(
    migrating: Migrating, before: tuple[str, ...], after: tuple[str, ...], added: set[int], removed: set[int]
) -> None:
    """The images go to brokers on sockets, which take them; a broker without a channel gets nothing."""
    batch, channels = migrating.batch, migrating.channels
    earlier = batch.set_brokers(migrating.registered(*before)) if before else set()
    assert set(channels.broker_ids) == earlier
    assert migrating.receivers(lambda: batch.send_image(5)) == earlier

    assert batch.set_brokers(migrating.registered(*after)) == added
    assert set(channels.broker_ids) == earlier - removed | added
    now = set(channels.broker_ids)
    receivers = migrating.receivers(lambda: batch.send_new_brokers(added, 5))
    assert receivers == (now if added else set())
    assert migrating.receivers(lambda: batch.send_image(6)) == now
    for member in migrating.brokers:
        assert member.broker.is_led_by_kraft is (member.id in earlier | now)
        assert member.broker.metadata.contains("t") is (member.id in earlier | now)
    live = {i for i, state in enumerate(after) if state != "fenced"}  # KRaft brokers may lead, too
    for broker_id in now:
        assert set(migrating.brokers[broker_id].broker.metadata.snapshot.alive_brokers) == live


def test_a_broker_that_was_registered_again_gets_a_new_channel(migrating: Migrating) -> None:
    batch = migrating.batch
    assert batch.set_brokers(migrating.registered("zk", "zk")) == {0, 1}
    assert batch.set_brokers(migrating.registered("zk", "zk")) == set()
    migrating.brokers.restart(1)
    assert batch.set_brokers(migrating.registered("zk", "zk")) == {1}
    assert migrating.receivers(lambda: batch.send_image(5)) == {0, 1}
