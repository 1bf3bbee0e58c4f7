"""The metadata cache of a ZooKeeper-mode broker: partial updates, deletions, topic ids, full updates of a migration."""

import logging
import tracemalloc
import weakref

import pytest
from conftest import few
from control_messages import broker, metadata_state, topic_id, update_metadata

from channel.broker import metadata_cache
from channel.broker.metadata_cache import (
    EMPTY,
    CachedController,
    MetadataCache,
    MetadataSnapshot,
    SharedUpdates,
    apply_update,
    deletions_of_full_update,
)
from channel.logs import STATE_CHANGE, TRACE
from channel.types import Node
from kproto import codec
from kproto.json_form import uuid_to_json
from kproto.messages import UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataRequest
from kproto.types import ZERO_UUID, TopicPartition

FULL, INCREMENTAL, UNKNOWN = 2, 1, 0
conformance = pytest.mark.conformance


def cache_after(*requests, version=8, migration_enabled=False, broker_id=1):
    cache = MetadataCache(broker_id, migration_enabled=migration_enabled)
    for request in requests:
        cache.update_metadata(0, request, version=version)
    return cache


@conformance("MDC-01")
def test_mdc_01_unknown_topics_are_left_out():
    assert cache_after().topic_metadata(["topic"], "PLAINTEXT") == []


@conformance("MDC-02")
@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL"])
def test_mdc_02_topics_are_answered_as_they_were_sent(listener):
    brokers = [broker(i, "PLAINTEXT", "SSL") for i in range(5)]
    cache = cache_after(
        update_metadata(
            {
                "topic-0": [
                    metadata_state(0, 0, isr=[0, 1, 3], replicas=[0, 1, 3]),
                    metadata_state(1, 1, epoch=1, isr=[1, 0], replicas=[1, 2, 0, 4]),
                ],
                "topic-1": [metadata_state(0, 2, epoch=2, isr=[2, 1], replicas=[2, 1, 3])],
            },
            brokers,
        )
    )
    expected = {
        "topic-0": [(0, 0, 0, 0, (0, 1, 3), (0, 1, 3)), (0, 1, 1, 1, (1, 0), (1, 2, 0, 4))],
        "topic-1": [(0, 0, 2, 2, (2, 1), (2, 1, 3))],
    }
    for asked in (["topic-0", "topic-1"], ["topic-1"], ["topic-1", "unknown", "topic-0"]):
        topics = cache.topic_metadata(asked, listener, error_unavailable_listeners=True)
        assert [t.name for t in topics] == [name for name in asked if name in expected]
        for topic in topics:
            assert (topic.error_code, topic.topic_id) == (0, topic_id(topic.name))
            rows = [
                (p.error_code, p.partition_index, p.leader_id, p.leader_epoch, p.isr_nodes, p.replica_nodes)
                for p in topic.partitions
            ]
            assert rows == expected[topic.name]
            assert all(p.offline_replicas == () for p in topic.partitions)


@conformance("MDC-03")
@pytest.mark.parametrize("newer_client", [False, True])
def test_mdc_03_a_dead_leader_is_not_available(newer_client):
    cache = cache_after(update_metadata({"topic": [metadata_state(0, 1, isr=[0], replicas=[0])]}, [broker(0)]))
    (topic,) = cache.topic_metadata(["topic"], "PLAINTEXT", error_unavailable_listeners=newer_client)
    assert topic.error_code == 0
    assert [(p.error_code, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [(5, (0,), (0,))]


@conformance("MDC-04")
@pytest.mark.parametrize(("newer_client", "code"), [(True, 72), (False, 5)])
def test_mdc_04_a_leader_without_the_listener(newer_client, code):
    brokers = [broker(0, "PLAINTEXT", "SSL"), broker(1, "PLAINTEXT")]
    cache = cache_after(update_metadata({"topic": [metadata_state(0, 1)]}, brokers))
    (topic,) = cache.topic_metadata(["topic"], "SSL", error_unavailable_listeners=newer_client)
    assert [p.error_code for p in topic.partitions] == [code]


@conformance("MDC-06")
@pytest.mark.parametrize(("unavailable_is_error", "code", "isr"), [(False, 0, (0, 1)), (True, 9, (0,))])
def test_mdc_06_isr_of_brokers_that_are_gone(unavailable_is_error, code, isr):
    cache = cache_after(update_metadata({"topic": [metadata_state(0, 0, isr=[0, 1], replicas=[0])]}, [broker(0)]))
    (topic,) = cache.topic_metadata(["topic"], "PLAINTEXT", error_unavailable_endpoints=unavailable_is_error)
    assert [(p.error_code, p.isr_nodes) for p in topic.partitions] == [(code, isr)]


@conformance("MDC-08")
def test_mdc_08_alive_brokers_taken_do_not_change():
    cache = cache_after(update_metadata({}, [broker(i) for i in range(3)]))
    taken = cache.snapshot.alive_brokers
    cache.update_metadata(1, update_metadata({}, [broker(i) for i in range(4)]), version=8)
    assert list(taken) == [0, 1, 2]
    assert list(cache.snapshot.alive_brokers) == [0, 1, 2, 3]


@conformance("MDC-09")
def test_mdc_09_cluster_view_shows_unknown_nodes_without_a_host():
    silent = broker(1)
    silent.endpoints = []
    state = metadata_state(0, 1, isr=[], replicas=[0, 1], offline_replicas=[1])
    cache = cache_after(update_metadata({"topic": [state]}, [broker(0, host="foo", rack="r"), silent]))
    cluster = cache.cluster("PLAINTEXT")
    assert cluster.nodes == (Node(0, "foo", 9092, "r"),)
    view = cluster.partitions[TopicPartition("topic", 0)]
    unknown = Node(1, "", -1)
    assert view.leader == unknown
    assert view.replicas == (Node(0, "foo", 9092, "r"), unknown)
    assert view.offline == (unknown,)


@conformance("MDC-10")
def test_mdc_10_partition_info_is_what_was_sent():
    state = metadata_state(
        0, 0, isr=[2, 3, 0], replicas=[2, 3, 0, 1, 4], offline_replicas=[0], zk_version=3, controller_epoch=1
    )
    cache = cache_after(update_metadata({"topic": [state]}, [broker(0)]))
    info = cache.partition_info("topic", 0)
    assert (info.leader, info.leader_epoch, info.zk_version, info.controller_epoch) == (0, 0, 3, 1)
    assert (tuple(info.isr), tuple(info.replicas), tuple(info.offline_replicas)) == ((2, 3, 0), (2, 3, 0, 1, 4), (0,))


def two_topics():
    rows = [metadata_state(i, 0) for i in range(3)]
    return update_metadata({"test-topic-1": rows, "test-topic-2": list(rows)}, [broker(0)])


MIGRATION_CASES = [
    pytest.param("MDC-11", False, True, FULL, 3, marks=conformance("MDC-11"), id="MDC-11 migration off"),
    pytest.param("MDC-12", True, True, FULL, 1, marks=conformance("MDC-12"), id="MDC-12 full"),
    pytest.param("MDC-13", True, False, FULL, 3, marks=conformance("MDC-13"), id="MDC-13 not KRaft"),
    pytest.param("MDC-14", True, True, INCREMENTAL, 3, marks=conformance("MDC-14"), id="MDC-14 incremental"),
    pytest.param("MDC-14", True, True, UNKNOWN, 3, marks=conformance("MDC-14"), id="MDC-14 unknown type"),
]


@pytest.mark.parametrize(("row", "enabled", "kraft", "kind", "topics"), MIGRATION_CASES)
def test_full_updates_count_as_full_only_in_a_migration(row, enabled, kraft, kind, topics, caplog):
    cache = cache_after(two_topics(), migration_enabled=enabled)
    caplog.clear()
    other = update_metadata(
        {"different-topic": [metadata_state(0, 0)]}, [broker(0)], is_kraft_controller=kraft, type=kind
    )
    with caplog.at_level(logging.INFO):
        cache.update_metadata(7, other, version=8)
    assert len(cache.snapshot.partitions) == topics
    assert cache.contains("different-topic", 0)
    assert cache.contains("test-topic-1") == cache.contains("test-topic-2") == (topics == 3)
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert bool(errors) == (row == "MDC-11"), errors


@conformance("MDC-18")
def test_mdc_18_a_topic_made_anew_is_deleted_and_put_back_with_its_new_id():
    old = cache_after(
        update_metadata(
            {"foo": [metadata_state(i, 0) for i in (0, 1)], "bar": [metadata_state(i, 0) for i in range(3)]}
        )
    ).snapshot
    again = update_metadata(
        {"foo": [metadata_state(i, 0) for i in (0, 1)], "bar": [metadata_state(i, 0) for i in range(3)]},
        ids={"foo": topic_id("foo"), "bar": topic_id("bar2")},
        is_kraft_controller=True,
        type=FULL,
    )
    deletions, lines = deletions_of_full_update(old, again.topic_states)
    assert deletions == [("bar", [0, 1, 2])]
    assert lines == [
        f"Removing topic bar with ID {uuid_to_json(topic_id('bar'))} from the metadata cache since the full UMR did "
        "not include it."
    ]
    update = apply_update(old, again, version=8, migration_enabled=True, lineage=1)
    assert set(update.snapshot.partitions) == {"foo", "bar"}
    assert update.deleted == ()
    # Kafka takes the ids before the deletions: the new id is lost until the next request that names the topic
    assert update.snapshot.topic_ids == {"foo": topic_id("foo")}
    named = apply_update(update.snapshot, again, version=8, migration_enabled=True, lineage=2)
    assert named.snapshot.topic_ids == {"foo": topic_id("foo"), "bar": topic_id("bar2")}


def test_a_full_update_without_changes_deletes_nothing():
    old = cache_after(two_topics()).snapshot
    assert deletions_of_full_update(old, two_topics().topic_states) == ([], [])


def test_a_full_update_leaves_partitions_that_vanished_from_a_kept_topic():
    old = cache_after(update_metadata({"t": [metadata_state(0, 0), metadata_state(1, 0)]})).snapshot
    full = update_metadata({"t": [metadata_state(0, 0), metadata_state(2, 0)]}, is_kraft_controller=True, type=FULL)
    update = apply_update(old, full, version=8, migration_enabled=True, lineage=1)
    assert sorted(update.snapshot.partitions["t"]) == [0, 1, 2]
    assert update.deleted == ()
    assert update.snapshot.topic_ids == {"t": topic_id("t")}
    ((is_error, line),) = update.notes
    assert not is_error
    assert line.startswith("Removing 1 partition(s) from topic t with ID")


def test_cached_and_deleted_partitions_are_traced_in_kafkas_words(caplog):
    cache = cache_after(two_topics(), migration_enabled=True)
    full = update_metadata({"test-topic-1": [metadata_state(0, 0)]}, is_kraft_controller=True, type=FULL)
    with caplog.at_level(TRACE, STATE_CHANGE.name):
        caplog.clear()
        cache.update_metadata(7, full, version=8)
    cause = "in response to UpdateMetadata request sent by controller 2 epoch 1 with correlation id 7"
    traced = [r.getMessage() for r in caplog.records if r.levelno == TRACE]
    assert traced[:3] == [
        f"[Broker id=1] Deleted partition test-topic-2-{index} from metadata cache {cause}" for index in range(3)
    ]
    assert len(traced) == 4
    assert traced[3].startswith("[Broker id=1] Cached leader info UpdateMetadataPartitionState(")
    assert traced[3].endswith(f"for partition test-topic-1-0 {cause}")
    counted = f"[Broker id=1] Add 1 partitions and deleted 3 partitions from metadata cache {cause}"
    assert caplog.records[-1].getMessage() == counted


def test_a_broker_that_is_not_said_to_migrate_deletes_nothing_for_a_full_update():
    cache = MetadataCache(1)
    cache.update_metadata(0, two_topics(), version=8)
    full = update_metadata({"test-topic-1": [metadata_state(0, 0)]}, is_kraft_controller=True, type=FULL)
    assert cache.update_metadata(0, full, version=8) == ()
    assert "test-topic-2" in cache.snapshot.partitions


@conformance("MDC-19")
def test_mdc_19_ids_without_partitions_are_told_as_errors():
    broken = MetadataSnapshot({}, {"foo": topic_id("foo"), "bar": topic_id("bar")}, None, {})
    request = update_metadata({"foo": [metadata_state(0, 0)], "bar": [metadata_state(0, 0)]})
    deletions, lines = deletions_of_full_update(broken, request.topic_states)
    assert deletions == []
    assert len(lines) == 2
    assert all(line.startswith("Error") and "not in currentMetadata.partitionStates" in line for line in lines)


@conformance("MDC-20")
def test_mdc_20_a_kraft_controllers_first_update():
    rows = [metadata_state(0, 0), metadata_state(1, 2, epoch=5, isr=[2, 1], replicas=[1, 2, 0])]
    cache = cache_after(update_metadata({"foo": rows, "bar": list(rows)}, [broker(0)], is_kraft_controller=True))
    assert cache.snapshot.topic_ids == {"foo": topic_id("foo"), "bar": topic_id("bar")}
    assert cache.snapshot.topic_names == {topic_id("foo"): "foo", topic_id("bar"): "bar"}
    for topic in ("foo", "bar"):
        found = [cache.partition_info(topic, index) for index in (0, 1)]
        assert [(row.leader, row.leader_epoch, row.isr, row.replicas) for row in found] == [
            (0, 0, (0,), (0,)),
            (2, 5, (2, 1), (1, 2, 0)),
        ]
    assert cache.snapshot.partition_count == 4


@conformance("MDC-24")
def test_mdc_24_deleted_and_put_back_within_one_request():
    cache = cache_after(update_metadata({"t": [metadata_state(0, 0)]}))
    again = update_metadata({"t": [metadata_state(0, -2), metadata_state(0, 1)]})
    assert cache.update_metadata(1, again, version=8) == ()
    assert cache.partition_info("t", 0).leader == 1


def test_a_topic_goes_with_its_last_partition_and_its_id_with_it():
    cache = cache_after(update_metadata({"t": [metadata_state(0, 0), metadata_state(1, 0)]}))
    one = update_metadata({"t": [metadata_state(0, -2)]})
    assert cache.update_metadata(1, one, version=8) == (TopicPartition("t", 0),)
    assert cache.contains("t")
    rest = update_metadata({"t": [metadata_state(1, -2)]})
    assert cache.update_metadata(2, rest, version=8) == (TopicPartition("t", 1),)
    assert not cache.contains("t")
    assert cache.snapshot.topic_ids == {}


@conformance("MDC-25")
def test_mdc_25_topic_ids_come_go_and_stay():
    cache = cache_after(update_metadata({"t": [metadata_state(0, 0)]}))
    cache.update_metadata(1, update_metadata({"t": [metadata_state(0, 0)]}, ids={"t": ZERO_UUID}), version=8)
    assert cache.snapshot.topic_ids == {}
    cache = cache_after(update_metadata({"t": [metadata_state(0, 0)]}), update_metadata({"u": [metadata_state(0, 0)]}))
    assert cache.snapshot.topic_ids == {"t": topic_id("t"), "u": topic_id("u")}
    ungrouped = update_metadata({})
    state = metadata_state(1, 0)
    state.topic_name = "t"
    ungrouped.ungrouped_partition_states = [state]
    cache.update_metadata(2, ungrouped, version=4)
    assert cache.snapshot.topic_ids == {"t": topic_id("t"), "u": topic_id("u")}
    assert cache.contains("t", 1)


@conformance("MDC-26")
@pytest.mark.parametrize(
    ("controller_id", "kraft", "expected"),
    [(-1, False, None), (3, False, CachedController(3, False)), (3, True, CachedController(3, True))],
)
def test_mdc_26_the_controller_is_remembered_with_its_kind(controller_id, kraft, expected):
    cache = cache_after(update_metadata({}, controller_id=controller_id, is_kraft_controller=kraft))
    assert cache.snapshot.controller == expected


@conformance("MDC-27")
def test_mdc_27_different_listeners_are_an_error_once_and_no_obstacle(caplog):
    caplog.set_level(logging.INFO)
    differing = [broker(1, "A", "B"), broker(2, "A"), broker(3, "B")]
    cache = cache_after(update_metadata({"t": [metadata_state(0, 2)]}, differing))
    (told,) = [r for r in caplog.records if "different listeners" in r.getMessage()]  # not one for each broker
    assert told.levelno == logging.ERROR
    assert list(cache.snapshot.alive_brokers) == [1, 2, 3]
    assert cache.partition_info("t", 0).leader == 2
    assert [node.id for node in cache.cluster("A").nodes] == [1, 2]
    assert [node.id for node in cache.cluster("B").nodes] == [1, 3]
    caplog.clear()
    same = [broker(1, "A", "B"), broker(2, "A", "B"), broker(3, "A", "B")]
    cache.update_metadata(1, update_metadata({}, same), version=8)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [node.id for node in cache.cluster("B").nodes] == [1, 2, 3]


def test_an_update_copies_only_the_topics_that_it_names():
    before = cache_after(two_topics()).snapshot
    after = apply_update(
        before, update_metadata({"test-topic-1": [metadata_state(0, 1)]}), version=8, migration_enabled=False, lineage=1
    ).snapshot
    assert after.partitions["test-topic-2"] is before.partitions["test-topic-2"]
    assert before.partition("test-topic-1", 0).leader == 0
    assert after.partition("test-topic-1", 0).leader == 1


def test_brokers_that_were_told_the_same_share_one_snapshot():
    updates = SharedUpdates()
    caches = [MetadataCache(i, updates=updates) for i in range(10)]
    small = update_metadata({"test-topic-1": [metadata_state(0, 1)]})
    for cache in caches:  # one broker after the other gets all three: the last one is behind by two updates each time
        for request in (two_topics(), small, update_metadata({"big": [metadata_state(i, 0) for i in range(300)]})):
            request.broker_epoch = cache.broker_id
            received = updates.decode(8, memoryview(codec.encode(request, 8)))
            assert received.broker_epoch == cache.broker_id
            cache.update_metadata(0, received, version=8)
    assert len({id(cache.snapshot) for cache in caches}) == 1
    assert caches[9].partition_info("test-topic-1", 0).leader == 1
    assert EMPTY.partition_count == 0


def test_another_order_of_updates_is_another_snapshot():
    updates = SharedUpdates()
    first, second = MetadataCache(1, updates=updates), MetadataCache(2, updates=updates)
    bodies = [memoryview(codec.encode(update_metadata({"t": [metadata_state(0, leader)]}), 8)) for leader in (1, 2)]
    for body in bodies:
        first.update_metadata(0, updates.decode(8, body), version=8)
    for body in reversed(bodies):
        second.update_metadata(0, updates.decode(8, body), version=8)
    assert (first.partition_info("t", 0).leader, second.partition_info("t", 0).leader) == (2, 1)


def test_a_few_large_updates_are_kept_to_be_shared():
    updates = SharedUpdates()
    bodies = [
        memoryview(codec.encode(update_metadata({"t": [metadata_state(i, 0, epoch=epoch) for i in range(1000)]}), 8))
        for epoch in range(3)
    ]
    messages = [updates.decode(8, body).message for body in bodies]
    assert all(updates.decode(8, body).message is message for body, message in zip(bodies, messages, strict=True))


def test_what_is_shared_is_bounded_by_bytes_and_gone_with_its_brokers():
    updates = SharedUpdates(budget=400_000)
    snapshots, kept = [], []
    cache = MetadataCache(0, updates=updates)
    for epoch in range(8):
        rows = [metadata_state(i, 0, epoch=epoch) for i in range(1000)]
        body = memoryview(codec.encode(update_metadata({"t": rows}), 8))
        cache.update_metadata(0, updates.decode(8, body), version=8)
        snapshots.append(weakref.ref(cache._last))
        kept.append(updates._kept)
    assert 200_000 < max(kept) <= 400_000, "more than one body is kept, and none above the budget"
    assert [ref() is not None for ref in snapshots] == [False] * 7 + [True]
    del cache
    assert snapshots[-1]() is None


def test_an_update_above_the_budget_is_shared_as_long_as_a_broker_has_it_as_its_last():
    updates, before = SharedUpdates(budget=100_000), 0
    huge = memoryview(codec.encode(update_metadata({"t": [metadata_state(i, 0) for i in range(5000)]}), 8))
    first, second = MetadataCache(1, updates=updates), MetadataCache(2, updates=updates)
    first.update_metadata(0, updates.decode(8, huge), version=8)
    message = weakref.ref(next(iter(updates._large.values())))
    received = updates.decode(8, huge)
    assert received.body is message()
    second.update_metadata(0, received, version=8)
    del received
    assert updates._kept == before
    small = memoryview(codec.encode(update_metadata({"t": [metadata_state(0, 1)]}), 8))
    for cache in (first, second):
        assert message() is not None
        cache.update_metadata(0, updates.decode(8, small), version=8)
    assert message() is None


@pytest.mark.parametrize("kind", few(["topics", "brokers", "endpoints", "partitions"]))
def test_what_is_kept_is_counted_as_it_is_decoded(kind):
    """Small structs on the wire are objects of a hundred bytes and more: bodies alone would be counted too low."""
    count = 20_000
    match kind:
        case "topics":
            request = update_metadata({f"{i:x}": [] for i in range(count)})
        case "brokers":
            request = UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(id=i) for i in range(count)])
        case "endpoints":
            endpoint = UpdateMetadataEndpoint(host="h", listener="l")
            request = UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(id=1, endpoints=[endpoint] * count)])
        case _:
            request = update_metadata({"t": [metadata_state(i, 0) for i in range(count)]})
    body = memoryview(codec.encode(request, 8))
    del request
    updates = SharedUpdates(budget=1 << 40)
    tracemalloc.start()
    try:
        kept = updates.decode(8, body)
        assert kept.body.brokers is not None
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < 2 * updates._kept
    assert updates._kept > len(body)


HOSTILE = {
    "topics": lambda i: update_metadata({f"{i} {n}": [] for n in range(600)}),
    "partitions": lambda i: update_metadata({f"{i}": [metadata_state(n, 0, isr=[], replicas=[]) for n in range(600)]}),
    "brokers": lambda i: update_metadata({}, [broker(n, host=f"{i}") for n in range(600)]),
    "bare brokers": lambda i: update_metadata({}, [UpdateMetadataBroker(id=n + i) for n in range(1_200)]),
}  # fmt: skip


@pytest.mark.parametrize("kind", few(HOSTILE))
def test_what_hostile_updates_leave_behind_is_bounded(kind):
    """Counted bytes after 16 different bodies of one kind: the budget of bodies, and the objects of the last update."""
    bodies = [codec.encode(HOSTILE[kind](i), 8) for i in range(16)]
    budget = 1 << 18
    left = []
    for shown in ([bodies[-1]], bodies):
        tracemalloc.start()
        try:
            cache = MetadataCache(0, updates=SharedUpdates(budget))
            for body in shown:
                cache.update_metadata(0, cache.updates.decode(8, memoryview(body)), version=8)
            left.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    one, all_of_them = left
    grows = 16 * one if kind in ("topics", "partitions") else one  # an update adds topics, and replaces the brokers
    assert all_of_them < grows + 2 * budget


def test_of_very_many_live_brokers_no_objects_are_kept(monkeypatch):
    """Counted bytes of each broker, besides those of the decoded request; what is told of them is the same."""
    count = 1_500
    body = memoryview(codec.encode(update_metadata({}, [broker(i, host=f"h{i}") for i in range(count)]), 8))

    def applied():
        request = codec.decode_request(6, 8, body)
        assert len(request.live_brokers) == count
        tracemalloc.start()
        try:
            cache = MetadataCache(0)
            cache.update_metadata(0, request, version=8)
            return cache, tracemalloc.get_traced_memory()[0] / count
        finally:
            tracemalloc.stop()

    built, before = applied()
    monkeypatch.setattr(metadata_cache, "_MOST_BROKERS", count - 1)
    lazy, after = applied()
    assert after < 200 < before
    assert dict(lazy.snapshot.alive_brokers) == dict(built.snapshot.alive_brokers)
    assert lazy.nodes("PLAINTEXT") == built.nodes("PLAINTEXT")
    assert count not in lazy.snapshot.alive_brokers


def test_a_lone_broker_keeps_no_bodies():
    updates = SharedUpdates(budget=0)
    body = memoryview(codec.encode(update_metadata({"t": [metadata_state(i, 0) for i in range(1000)]}), 8))
    cache = MetadataCache(0, updates=updates)
    cache.update_metadata(0, updates.decode(8, body), version=8)
    assert (cache.snapshot.partition_count, updates._kept) == (1000, 0)


@pytest.mark.parametrize("count", [1, 500])
def test_a_full_update_that_removes_many_topics_logs_a_few_lines(count, caplog):
    topics = {f"t{i}": [metadata_state(0, 0)] for i in range(count)}
    cache = cache_after(update_metadata(topics, [broker(1)]), migration_enabled=True)
    caplog.clear()
    full = update_metadata({}, [broker(1)], is_kraft_controller=True, type=FULL)
    with caplog.at_level(logging.INFO):
        cache.update_metadata(7, full, version=8)
    lines = [r.getMessage() for r in caplog.records]
    assert all(r.name == STATE_CHANGE.name for r in caplog.records)
    assert all(line.startswith("[Broker id=1] ") for line in lines)
    assert sum("Removing topic" in line for line in lines) == min(count, 10)
    assert ("and 490 more lines" in caplog.text) == (count == 500)
