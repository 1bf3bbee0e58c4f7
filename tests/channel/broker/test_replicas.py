"""Replicas as the control plane sees them: what LeaderAndIsr and StopReplica do, and with which codes."""

import threading
from dataclasses import replace

import pytest
from control_messages import (
    broker,
    leader_and_isr,
    leader_state,
    metadata_state,
    stop_replica,
    topic_id,
    update_metadata,
)

from channel.broker.embedded import EmbeddedBroker, Fetcher
from channel.broker.handlers import handle
from channel.broker.hooks import BrokerHooks, RequestContext
from channel.logs import STATE_CHANGE
from kproto.types import ZERO_UUID, TopicPartition

conformance = pytest.mark.conformance
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
INCREMENTAL, FULL = 1, 2


def running(broker_id=0, *, alive=(0, 1, 2), **more):
    """A broker that has been told who is alive."""
    made = EmbeddedBroker(broker_id, **more)
    request = update_metadata({}, [broker(i) for i in alive], controller_epoch=0)
    made.metadata.update_metadata(0, request, version=8)
    return made


def lead(made, *states, topic="t", version=7, **more):
    """Send a LeaderAndIsr; gives (top-level code, codes by partition)."""
    request = leader_and_isr({topic: list(states)}, **more)
    answer = handle(made, RequestContext(4, version, 0, "0", "PLAINTEXT"), request)
    errors = [e for t in answer.topics for e in t.partition_errors] or list(answer.partition_errors)
    return answer.error_code, {e.partition_index: e.error_code for e in errors}


def stop(made, *states, topic="t", version=4, **more):
    """Send a StopReplica with (partition, leader epoch, delete); gives (top-level code, codes by partition)."""
    answer = handle(made, RequestContext(5, version, 0, "0", "PLAINTEXT"), stop_replica({topic: list(states)}, **more))
    return answer.error_code, {e.partition_index: e.error_code for e in answer.partition_errors}


class Checkpoints:
    """Stands for a log folder's checkpoint files: the partitions whose logs were created and not deleted since."""

    def __init__(self):
        self.named, self.calls = set(), []
        self.hooks = BrokerHooks(create_log=self.create, delete_log=self.delete)

    def create(self, tp):
        assert tp not in self.named
        self.calls.append(("create", tp))
        self.named.add(tp)

    def delete(self, tp):
        self.calls.append(("delete", tp))
        self.named.remove(tp)


@conformance("RPM-01")
def test_rpm_01_a_new_leader_has_a_log_with_its_topic_id():
    folder = Checkpoints()
    made = running(hooks=folder.hooks)
    assert lead(made, leader_state(0, 0, is_new=True)) == (0, {0: 0})
    assert made.replicas.logs == {T0: topic_id("t")}
    assert folder.named == {T0}
    replica = made.replicas.hosted[T0]
    assert (replica.role, replica.leader, replica.leader_epoch) == ("leader", 0, 0)
    assert lead(made, leader_state(0, 0, epoch=1), ids={}) == (0, {0: 0})
    assert made.replicas.logs == {T0: topic_id("t")}  # the metadata file keeps the id of a request without one
    assert folder.calls == [("create", T0)]


@conformance("RPM-03")
def test_rpm_03_an_id_is_assigned_at_the_same_leader_epoch():
    made = running()
    assert lead(made, leader_state(0, 0), ids={}) == (0, {0: 0})
    assert made.replicas.logs == {T0: ZERO_UUID}
    assert lead(made, leader_state(0, 0)) == (0, {0: 0})
    assert made.replicas.logs == {T0: topic_id("t")}


@conformance("RPM-04")
def test_rpm_04_an_id_is_assigned_at_a_new_leader_epoch():
    made = running()
    assert lead(made, leader_state(1, 0), ids={}) == (0, {1: 0})
    assert lead(made, leader_state(1, 0, epoch=1)) == (0, {1: 0})
    assert made.replicas.logs == {T1: topic_id("t")}


@conformance("RPM-05")
def test_rpm_05_another_topic_id_is_refused_at_any_epoch():
    made = running()
    other = {"t": topic_id("other")}
    assert lead(made, leader_state(0, 0))[1] == {0: 0}
    assert lead(made, leader_state(0, 0, epoch=1))[1] == {0: 0}
    assert lead(made, leader_state(0, 0, epoch=1), ids=other)[1] == {0: 103}
    assert lead(made, leader_state(0, 0, epoch=2), ids=other)[1] == {0: 103}
    assert made.replicas.logs == {T0: topic_id("t")}


@pytest.mark.parametrize(
    ("migration", "stray_stays"),
    [
        pytest.param(7, False, marks=conformance("RPM-08"), id="RPM-08 migration on"),
        pytest.param(None, True, marks=conformance("RPM-09"), id="RPM-09 migration off"),
    ],
)
def test_a_full_request_of_a_kraft_controller_removes_strays(migration, stray_stays):
    made = running(1, kraft_epoch=migration)
    full = {"is_kraft_controller": True, "type": FULL, "broker_epoch": -1}
    assert lead(made, *[leader_state(i, 1) for i in (0, 1)], topic="hosted-topic")[0] == 0
    assert lead(made, *[leader_state(i, 1) for i in range(10)], topic="hosted-stray")[0] == 0
    told = lead(made, *[leader_state(i, 1, epoch=1) for i in (0, 1)], topic="hosted-topic", **full)
    assert told == (0, {0: 0, 1: 0})
    assert not made.replicas.hosted[TopicPartition("hosted-topic", 0)].offline
    strays = [TopicPartition("hosted-stray", index) for index in range(10)]
    online = [tp for tp in strays if tp in made.replicas.hosted and not made.replicas.hosted[tp].offline]
    assert online == (strays if stray_stays else [])
    assert [tp for tp in strays if tp in made.replicas.logs] == online


@conformance("RPM-11")
def test_rpm_11_fetchers_change_with_the_leader_epoch_alone():
    made = running()
    lead(made, leader_state(0, 1))
    first = made.replicas.fetchers[T0]
    lead(made, leader_state(0, 1, partition_epoch=1, replicas=[0, 1, 2]))
    assert made.replicas.fetchers[T0] is first
    assert made.replicas.hosted[T0].partition_epoch == 0
    lead(made, leader_state(0, 2, epoch=1, partition_epoch=2, replicas=[0, 1, 2]))
    assert made.replicas.fetchers[T0] == Fetcher(2, 1, topic_id("t"))
    replica = made.replicas.hosted[T0]
    assert (replica.leader_epoch, replica.partition_epoch) == (1, 2)


@conformance("RPM-11")
def test_rpm_11_also_for_a_kraft_controller_that_repeats_an_epoch():
    made = running(kraft_epoch=7)
    kraft = {"is_kraft_controller": True, "type": INCREMENTAL}
    lead(made, leader_state(0, 1, epoch=1), **kraft)
    fetcher = made.replicas.fetchers[T0]
    changed = leader_state(0, 1, epoch=1, partition_epoch=2, isr=[0, 1, 2], replicas=[0, 1, 2])
    assert lead(made, changed, **kraft) == (0, {0: 0})
    assert made.replicas.fetchers[T0] is fetcher
    assert made.replicas.hosted[T0].partition_epoch == 2
    assert made.replicas.hosted[T0].isr == (0, 1, 2)
    assert lead(made, leader_state(0, 2, epoch=2, replicas=[0, 1, 2]), **kraft) == (0, {0: 0})
    assert made.replicas.fetchers[T0] == Fetcher(2, 2, topic_id("t"))


@conformance("RPM-12")
def test_rpm_12_the_fetch_state_loses_and_gains_the_topic_id():
    made = running()
    assert lead(made, leader_state(0, 1))[1] == {0: 0}
    assert lead(made, leader_state(0, 1), ids={})[1] == {0: 0}
    assert made.replicas.fetchers[T0].topic_id == ZERO_UUID
    made = running()
    assert lead(made, leader_state(0, 1), ids={})[1] == {0: 0}
    assert lead(made, leader_state(0, 1))[1] == {0: 0}
    assert made.replicas.fetchers[T0].topic_id == topic_id("t")


@conformance("RPM-13")
def test_rpm_13_a_stale_controller_epoch_is_11_everywhere():
    made = running()
    made.replicas.controller_epoch = 5
    assert lead(made, leader_state(0, 0), leader_state(1, 0), controller_epoch=4) == (11, {0: 11, 1: 11})
    assert made.replicas.controller_epoch == 5
    assert lead(made, leader_state(0, 0), controller_epoch=5) == (0, {0: 0})


@conformance("RPM-14")
def test_rpm_14_leader_epochs_from_a_zookeeper_controller():
    made = running()
    lead(made, leader_state(0, 0, epoch=3))
    assert lead(made, leader_state(0, 0, epoch=2)) == (0, {0: 11})
    assert lead(made, leader_state(0, 0, epoch=3)) == (0, {0: 11})
    assert lead(made, leader_state(0, 0, epoch=4)) == (0, {0: 0})


@conformance("RPM-15")
def test_rpm_15_a_kraft_controller_may_repeat_an_epoch():
    made = running(kraft_epoch=7)
    lead(made, leader_state(0, 0, epoch=3))
    assert lead(made, leader_state(0, 0, epoch=3), is_kraft_controller=True, type=1) == (0, {0: 0})


@conformance("RPM-17")
@pytest.mark.parametrize("leader", [1, -1])
def test_rpm_17_a_leader_that_is_not_known_yet(leader):
    made = running(alive=[0])
    assert lead(made, leader_state(0, leader, epoch=4)) == (0, {0: 0})
    assert T0 in made.replicas.logs
    assert made.replicas.hosted[T0].leader_epoch == -1
    announce = update_metadata({}, [broker(0), broker(1)], controller_epoch=0)
    made.metadata.update_metadata(1, announce, version=8)
    assert lead(made, leader_state(0, leader, epoch=4)) == (0, {0: 0})
    assert made.replicas.hosted[T0].leader_epoch == (4 if leader == 1 else -1)


def with_t0_offline():
    """A broker that could not make the log of one partition, though its disk is whole again."""

    def disk_full(tp):
        raise OSError("the disk is full")

    made = running(hooks=BrokerHooks(create_log=disk_full))
    assert lead(made, leader_state(0, 0)) == (0, {0: 56})
    made.hooks = BrokerHooks()
    return made


@conformance("RPM-19")
def test_rpm_19_an_offline_partition_is_a_storage_error_of_its_own():
    made = with_t0_offline()
    assert lead(made, leader_state(0, 0), leader_state(1, 0)) == (0, {0: 56, 1: 0})


def test_a_broker_outside_the_replicas_is_told_so():
    assert lead(running(), leader_state(0, 1, replicas=[1, 2])) == (0, {0: 3})


def test_one_partition_twice_is_answered_once():
    assert lead(running(), leader_state(0, 0), leader_state(0, 0)) == (0, {0: 0})


def test_an_epoch_of_minus_one_for_an_unknown_partition_is_6_everywhere():
    assert lead(running(), leader_state(0, 0, epoch=-1)) == (6, {0: 6})


@pytest.mark.parametrize("name", ["", "a/b"])
def test_a_topic_that_no_folder_could_have_fails_the_request(name):
    assert lead(running(), leader_state(0, 0), topic=name) == (-1, {0: -1})


def test_old_versions_answer_by_topic_name():
    made = running()
    request = leader_and_isr({"t": [leader_state(0, 0)]})
    answer = handle(made, RequestContext(4, 4, 0, "0", "PLAINTEXT"), request)
    assert [(e.topic_name, e.partition_index, e.error_code) for e in answer.partition_errors] == [("t", 0, 0)]


@conformance("RPM-20")
def test_rpm_20_stop_with_a_stale_controller_epoch_lists_nothing():
    made = running()
    lead(made, leader_state(0, 0, epoch=1))
    made.replicas.controller_epoch = 10
    assert stop(made, (0, 1, False)) == (11, {})


@conformance("RPM-21")
def test_rpm_21_stop_of_an_offline_partition():
    assert stop(with_t0_offline(), (0, 1, False)) == (0, {0: 56})


@conformance("RPM-23")
def test_rpm_23_stop_with_delete_of_a_partition_that_has_only_a_log():
    made = running()
    made.replicas.logs[T0] = topic_id("t")
    assert stop(made, (0, 1, True)) == (0, {0: 0})
    assert made.replicas.logs == {}


STOP_CASES = [
    pytest.param(2, False, 0, True, marks=conformance("RPM-25"), id="RPM-25"),
    pytest.param(0, False, 74, True, marks=conformance("RPM-26"), id="RPM-26"),
    pytest.param(1, False, 0, True, marks=conformance("RPM-27"), id="RPM-27"),
    pytest.param(-2, False, 0, True, marks=conformance("RPM-28"), id="RPM-28"),
    pytest.param(2, True, 0, False, marks=conformance("RPM-30"), id="RPM-30"),
    pytest.param(0, True, 74, True, marks=conformance("RPM-32"), id="RPM-32"),
    pytest.param(1, True, 0, False, marks=conformance("RPM-33"), id="RPM-33"),
    pytest.param(-1, True, 0, False, marks=conformance("RPM-35"), id="RPM-35"),
]


@pytest.mark.parametrize(("epoch", "delete", "code", "still_hosted"), STOP_CASES)
def test_stop_replica_checks_the_leader_epoch(epoch, delete, code, still_hosted):
    folder = Checkpoints()
    made = running(hooks=folder.hooks)
    lead(made, leader_state(0, 0, epoch=1), leader_state(1, 1, epoch=1))
    before, other = replace(made.replicas.hosted[T0]), made.replicas.fetchers[T1]
    assert stop(made, (0, epoch, delete)) == (0, {0: code})
    hosted = {T0, T1} if still_hosted else {T1}
    assert made.replicas.hosted.keys() == made.replicas.logs.keys() == folder.named == hosted
    assert made.replicas.hosted.get(T0, before) == before  # stopping takes over no epoch
    assert made.replicas.fetchers == {T1: other}
    assert stop(made, (0, 3, True)) == (0, {0: 0})
    assert folder.calls.count(("delete", T0)) == 1


@pytest.mark.parametrize(("epoch", "code", "fetches_on"), [(0, 74, True), (1, 0, False), (2, 0, False), (-2, 0, False)])
def test_a_follower_that_is_stopped_fetches_no_more_unless_the_epoch_is_old(epoch, code, fetches_on):
    made = running()
    lead(made, leader_state(0, 1, epoch=1))
    assert stop(made, (0, epoch, False)) == (0, {0: code})
    assert (T0 in made.replicas.fetchers) == fetches_on


@conformance("RPM-31")
def test_rpm_31_a_delete_that_fails_on_disk():
    deleted = []

    def fails(tp):
        deleted.append(tp)
        raise OSError(f"cannot flush {tp}")

    made = running(hooks=BrokerHooks(delete_log=fails))
    lead(made, leader_state(0, 0, epoch=1))
    assert stop(made, (0, 2, True)) == (0, {0: 56})
    assert deleted == [T0]
    assert (made.replicas.logs, made.replicas.hosted) == ({}, {})  # unlinked before: a repeat has nothing to delete
    assert stop(made, (0, 2, True)) == (0, {0: 0})
    assert deleted == [T0]
    assert lead(made, leader_state(0, 0, epoch=3)) == (0, {0: 0})


@conformance("RPM-36")
def test_rpm_36_waiting_fetches_are_completed_when_their_partition_goes():
    fetches = {T0: [], T1: []}  # of each partition: the codes that its waiting fetch was completed with
    made = running(hooks=BrokerHooks(complete_requests=lambda tp, code: fetches[tp].append(code)))
    lead(made, leader_state(0, 0, epoch=1), leader_state(1, 0, epoch=1))
    assert stop(made, (1, 1, False)) == (0, {1: 0})
    assert stop(made, (0, -2, True)) == (0, {0: 0})
    assert fetches == {T0: [6], T1: []}
    assert stop(made, (0, -2, True)) == (0, {0: 0})
    assert fetches == {T0: [6], T1: []}


def test_a_log_that_cannot_be_created_takes_its_partition_offline(caplog):
    full = {T0, T1}

    def create(tp):
        if tp in full:
            raise OSError("no space left on device")

    made = running(hooks=BrokerHooks(create_log=create))
    states = [leader_state(0, 0), leader_state(1, 1), leader_state(2, 0)]
    assert lead(made, *states) == (0, {0: 56, 1: 56, 2: 0})
    assert set(made.replicas.logs) == {TopicPartition("t", 2)}
    assert made.replicas.fetchers == {}
    assert "no space left on device" in caplog.text
    full.clear()
    assert lead(made, *[leader_state(i, 0, epoch=1) for i in range(3)]) == (0, {0: 56, 1: 56, 2: 0})
    assert stop(made, (0, 2, True)) == (0, {0: 56})


def test_hooks_run_without_the_lock_of_the_replicas_in_kafkas_order():
    calls = []

    def note(what):
        def hook(tp, *_):
            def look():
                with made.replicas.lock:
                    calls.append((what, tp.partition, tp in made.replicas.hosted))

            other = threading.Thread(target=look, daemon=True)
            other.start()
            other.join(30)
            assert not other.is_alive(), f"{what} runs under the lock"

        return hook

    made = running(
        hooks=BrokerHooks(create_log=note("create"), delete_log=note("delete"), complete_requests=note("complete"))
    )
    assert lead(made, leader_state(1, 1), leader_state(0, 0)) == (0, {0: 0, 1: 0})
    assert calls == [("create", 0, False), ("create", 1, False)]  # leaders first
    calls.clear()
    assert stop(made, (0, 2, True), (1, 2, True)) == (0, {0: 0, 1: 0})
    assert calls == [(what, number, False) for what in ("complete", "delete") for number in (0, 1)]


def test_what_changes_while_a_log_is_made_counts():
    def create(tp):
        if tp == T0:
            made.hooks = BrokerHooks()
            assert lead(made, leader_state(0, 0, epoch=7), controller_epoch=5) == (0, {0: 0})

    made = running(hooks=BrokerHooks(create_log=create))
    assert lead(made, leader_state(0, 0, epoch=3), controller_epoch=4) == (11, {0: 11})
    assert made.replicas.hosted[T0].leader_epoch == 7


@pytest.mark.parametrize("leader", [0, 1])
def test_an_older_partition_epoch_changes_nothing_and_gives_no_topic_id(leader):
    made = running()
    lead(made, leader_state(0, leader, epoch=1, partition_epoch=5), ids={})
    before = made.replicas.hosted[T0]
    older = leader_state(0, leader, epoch=2, partition_epoch=4)
    assert lead(made, older) == (0, {0: 0})
    assert made.replicas.logs == {T0: ZERO_UUID}
    assert (before.leader_epoch, before.partition_epoch) == (1, 5)
    assert lead(made, leader_state(0, leader, epoch=2, partition_epoch=5)) == (0, {0: 0})
    assert made.replicas.logs == {T0: topic_id("t")}


def test_an_older_partition_epoch_makes_the_log_where_the_leader_is_not_alive():
    made = running()
    lead(made, leader_state(0, 1, epoch=1, partition_epoch=5), ids={})
    lead(made, leader_state(0, 5, epoch=2, partition_epoch=4))
    assert made.replicas.logs == {T0: topic_id("t")}
    assert made.replicas.hosted[T0].partition_epoch == 5


def test_leaders_that_are_not_known_yet_are_one_line_that_names_the_broker(caplog):
    made = running(7, alive=[7])
    states = [leader_state(i, i + 100, epoch=4, replicas=[7, i + 100]) for i in range(500)]
    assert lead(made, *states) == (0, dict.fromkeys(range(500), 0))
    lines = [r for r in caplog.records if r.name == STATE_CHANGE.name]
    assert len(lines) == 1
    assert (
        lines[0].getMessage().startswith("[Broker id=7] LeaderAndIsr of controller 0 (epoch 0, correlation id 0): 500")
    )


def test_a_partition_that_has_no_leader_is_no_error_of_the_controllers(caplog):
    made = running(7, alive=[7])
    assert lead(made, leader_state(0, -1, epoch=4, replicas=[7, 8])) == (0, {0: 0})
    assert [r for r in caplog.records if r.name == STATE_CHANGE.name] == []
    assert made.replicas.fetchers == {}


def test_deleting_a_coordinators_partition_is_told():
    told = []
    made = running(hooks=BrokerHooks(resigned=lambda *what: told.append(what)))
    stop(made, (3, -2, True), (4, 5, True), (5, 1, False), topic="__consumer_offsets")
    assert told == [("__consumer_offsets", 3, None), ("__consumer_offsets", 4, 5)]


# ---- what every control request is checked for first -----------------------------------------------------------------

OWN = 1239875


def ask(made, api, **more):
    """One request of an API with two partitions; gives the top-level code and the partitions' codes."""
    if api == 4:
        return lead(made, leader_state(0, 0), leader_state(1, 0), **more)
    if api == 5:
        return stop(made, (0, 1, False), (1, 1, False), **more)
    request = update_metadata({"t": [metadata_state(0, 0)]}, [broker(0)], **{"controller_epoch": 0, **more})
    return handle(made, RequestContext(6, 8, 0, "0", "PLAINTEXT"), request).error_code, {}


@pytest.mark.parametrize(
    ("api", "epoch", "code"),
    [
        pytest.param(6, OWN + 1, 0, marks=conformance("KAP-02"), id="KAP-02"),
        pytest.param(6, OWN - 1, 77, marks=conformance("KAP-03"), id="KAP-03"),
        pytest.param(4, OWN + 1, 0, marks=conformance("KAP-05"), id="KAP-05"),
        pytest.param(4, OWN - 1, 77, marks=conformance("KAP-06"), id="KAP-06"),
        pytest.param(5, OWN + 1, 0, id="StopReplica newer"),
        pytest.param(5, OWN - 1, 77, id="StopReplica stale"),
        *[pytest.param(api, -1, 0, marks=conformance("KAP-14"), id=f"KAP-14 api {api}") for api in (4, 5, 6)],
    ],
)
def test_a_request_for_an_earlier_registration_is_refused(api, epoch, code, monkeypatch):
    made = running(broker_epoch=OWN)
    called = []
    for owner, name in (
        (made.replicas, "become_leader_or_follower"),
        (made.replicas, "stop_replicas"),
        (made.metadata, "update_metadata"),
    ):
        monkeypatch.setattr(owner, name, _noted(called, getattr(owner, name)))
    top, partitions = ask(made, api, broker_epoch=epoch)
    assert top == code
    taken_by = {4: "become_leader_or_follower", 5: "stop_replicas", 6: "update_metadata"}[api]
    assert called == ([] if code else [taken_by])
    assert partitions == {4: {0: code, 1: code}, 5: {} if code else {0: 0, 1: 0}, 6: {}}[api]


def _noted(called, function):
    def call(*args, **more):
        called.append(function.__name__)
        return function(*args, **more)

    return call


@pytest.mark.parametrize(
    "api",
    [
        pytest.param(4, marks=conformance("KAP-10"), id="KAP-10"),
        pytest.param(5, marks=conformance("KAP-11"), id="KAP-11"),
        pytest.param(6, marks=conformance("KAP-12"), id="KAP-12"),
    ],
)
def test_a_kraft_broker_should_never_receive_them(api):
    from kproto import UnsupportedVersion

    made = EmbeddedBroker(0, zookeeper_mode=False)
    with pytest.raises(UnsupportedVersion, match="should never receive"):
        ask(made, api)


@conformance("KAP-13")
def test_kap_13_nor_a_controlled_shutdown():
    from kproto import UnsupportedVersion
    from kproto.codec import message_class

    request = message_class(7, "request")(broker_id=1)
    with pytest.raises(UnsupportedVersion, match="should never receive"):
        handle(EmbeddedBroker(0, zookeeper_mode=False), RequestContext(7, 3, 0, "1", "PLAINTEXT"), request)


@conformance("KAP-15")
@pytest.mark.parametrize(("registered", "epoch", "code"), [(7, 6, 77), (7, 7, 0), (7, 50, 0), (None, 7, -1)])
@pytest.mark.parametrize("api", [4, 5, 6])
def test_kap_15_a_kraft_controller_is_held_to_the_registration_epoch(api, registered, epoch, code):
    made = running(broker_epoch=100, kraft_epoch=registered)
    assert ask(made, api, broker_epoch=epoch, is_kraft_controller=True)[0] == code


@conformance("KAP-17")
def test_kap_17_which_answers_list_partitions_when_the_epoch_is_stale():
    made = running(broker_epoch=OWN)
    assert ask(made, 4, broker_epoch=1) == (77, {0: 77, 1: 77})
    assert ask(made, 5, broker_epoch=1) == (77, {})
    assert ask(made, 6, broker_epoch=1) == (77, {})


@pytest.mark.parametrize("api", [4, 5, 6])
def test_authorization_is_asked_first(api):
    made = running(broker_epoch=OWN, hooks=BrokerHooks(authorize=lambda context: False))
    code, partitions = ask(made, api, broker_epoch=1)
    assert code == 31
    assert set(partitions.values()) == ({31} if api in (4, 5) else set())


def test_a_coordinators_partition_that_was_not_stopped_is_not_told():
    told = []
    made = running(hooks=BrokerHooks(resigned=lambda *what: told.append(what)))
    lead(made, leader_state(0, 0, epoch=5), topic="__consumer_offsets")
    assert stop(made, (0, 1, True), topic="__consumer_offsets") == (0, {0: 74})
    assert told == []
