"""Embedded brokers over real sockets: what they answer, what they hang up on, how they die and return."""

import socket
import struct
import threading
import time
import tracemalloc
from pathlib import Path

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
from network_peers import until

import kproto
import kproto.capture
from channel.broker.cluster import EmbeddedCluster, raise_file_limit
from channel.broker.embedded import Features
from channel.broker.handlers import HANDLERS
from channel.broker.hooks import BrokerHooks, Interception, PlannedFaults
from channel.errors import BrokerNotAvailable, IllegalState
from kproto import codec, headers, messages
from kproto.api import ApiKey, response_header_version
from kproto.error_codes import ErrorCode
from kproto.errors import ConfigurationError
from kproto.framing import FrameSplitter, frame
from kproto.messages import LeaderAndIsrTopicError, MetadataRequestTopic, MetadataResponseTopic
from kproto.types import ZERO_UUID, TopicPartition

conformance = pytest.mark.conformance
CAPTURES = Path(__file__).parents[2] / "data" / "captures"


class Peer:
    """A bare connection that writes requests and reads answers."""

    def __init__(self, member):
        self.socket = socket.create_connection((member.host, member.port), timeout=30)
        self._frames = FrameSplitter()
        self._next = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, api, version, body, client_id="77"):
        header = headers.encode_request_header(headers.request_header(api, version, self._next, client_id))
        self._next += 1
        self.socket.sendall(frame(header + body))
        return self._next - 1

    def receive(self):
        """The next payload, or None if the peer has closed."""
        for payload in self._frames:
            return payload
        while True:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            for payload in self._frames.feed(data):
                return payload

    def ask(self, request, version):
        sent = self.send(request.api_key, version, codec.encode(request, version))
        payload = self.receive()
        header, at = headers.decode_response_header_from(payload, response_header_version(request.api_key, version))
        assert header.correlation_id == sent
        return codec.decode_response(request.api_key, version, memoryview(payload)[at:])


@pytest.fixture
def cluster():
    with EmbeddedCluster(3) as made:
        yield made


VERSIONS = [(4, v) for v in range(8)] + [(5, v) for v in range(5)] + [(6, v) for v in range(9)]


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_every_version_of_the_three_requests_is_answered(cluster, api, version):
    request = {4: leader_and_isr, 5: stop_replica, 6: update_metadata}[api]({})
    with Peer(cluster[0]) as peer:
        assert peer.ask(request, version).error_code == 0


def test_brokers_take_free_ports_unless_a_base_port_is_named(cluster):
    with EmbeddedCluster(2) as other:
        ports = [member.port for each in (cluster, other) for member in each]
    assert len(set(ports)) == len(ports)
    assert min(ports) > 1023


def test_a_partition_is_made_moved_and_deleted(cluster):
    with Peer(cluster[0]) as peer:
        announce = update_metadata({"t": [metadata_state(0, 0)]}, [broker(i) for i in range(3)], broker_epoch=1)
        assert peer.ask(announce, 8).error_code == 0
        made = peer.ask(leader_and_isr({"t": [leader_state(0, 0)]}, broker_epoch=1, controller_epoch=1), 7)
        assert [(t.topic_id, [e.error_code for e in t.partition_errors]) for t in made.topics] == [(topic_id("t"), [0])]
        moved = leader_and_isr({"t": [leader_state(0, 1, epoch=1)]}, broker_epoch=1, controller_epoch=1)
        assert peer.ask(moved, 7).error_code == 0
        assert next(iter(cluster[0].broker.replicas.hosted.values())).role == "follower"
        gone = peer.ask(stop_replica({"t": [(0, -2, True)]}, controller_epoch=1, broker_epoch=1), 4)
        assert [e.error_code for e in gone.partition_errors] == [0]
        assert cluster[0].broker.replicas.hosted == {}


def disk_full(tp):
    raise OSError("the disk is full")


@conformance("SRI-01")
def test_sri_01_stopping_twice_gives_the_same_answer(cluster):
    replicas, epoch = cluster[0].broker.replicas, cluster[0].epoch
    with Peer(cluster[0]) as peer:
        assert peer.ask(leader_and_isr({"topic": [leader_state(0, 0, epoch=1)]}, broker_epoch=epoch), 7).error_code == 0
        cluster[0].broker.hooks = BrokerHooks(create_log=disk_full)
        failed = leader_and_isr({"topic": [leader_state(1, 0, epoch=1)]}, broker_epoch=epoch)
        assert [e.error_code for t in peer.ask(failed, 7).topics for e in t.partition_errors] == [56]
        for _ in range(2):
            answer = peer.ask(stop_replica({"topic": [(0, 2, True), (1, 2, True)]}, broker_epoch=epoch), 4)
            assert answer.error_code == 0
            found = {(e.topic_name, e.partition_index): e.error_code for e in answer.partition_errors}
            assert found == {("topic", 0): 0, ("topic", 1): 56}
            assert TopicPartition("topic", 0) not in replicas.hosted


def test_clients_see_what_the_controller_said(cluster):
    with Peer(cluster[1]) as peer:
        states = {"orders": [metadata_state(0, 2, isr=[2], replicas=[2, 1])]}
        peer.ask(update_metadata(states, [broker(i) for i in range(3)]), 8)
        for version in range(13):
            request = codec.message_class(3, "request")(topics=None if version else [])
            answer = peer.ask(request, version)
            assert [b.node_id for b in answer.brokers] == [0, 1, 2]
            assert [(t.name, t.error_code, [p.leader_id for p in t.partitions]) for t in answer.topics] == [
                ("orders", 0, [2])
            ]
            assert version < 1 or answer.controller_id == 2
        topic = MetadataRequestTopic(name="absent")
        absent = peer.ask(codec.message_class(3, "request")(topics=[topic]), 9)
        assert [(t.name, t.error_code) for t in absent.topics] == [("absent", 3)]


@pytest.mark.parametrize(
    ("api", "version"), [(4, 8), (4, 99), (5, 5), (6, 9), (6, -1), (99, 0), (0, 9)], ids=lambda v: str(v)
)
def test_what_is_not_served_ends_the_connection(cluster, api, version):
    with Peer(cluster[0]) as peer:
        peer.socket.sendall(frame(struct.pack(">hhih2s", api, version, 0, 2, b"77") + bytes(20)))
        assert peer.receive() is None


GARBAGE = {
    "random bytes": frame(bytes(range(7, 60))),
    "body cut short": frame(struct.pack(">hhih2sB", 6, 8, 0, 2, b"77", 0) + bytes(5)),
    "header without its tag byte": frame(struct.pack(">hhih2s", 6, 8, 0, 2, b"77")),
    "length -1": struct.pack(">i", -1),
    "length 0": struct.pack(">i", 0),
    "length 200 MB": struct.pack(">i", 200_000_000) + bytes(10),
    "HTTP": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_ends_the_connection_and_nothing_else(cluster, what):
    with Peer(cluster[0]) as peer, Peer(cluster[0]) as neighbour:
        peer.socket.sendall(GARBAGE[what])
        assert peer.receive() is None
        assert neighbour.ask(update_metadata({}), 8).error_code == 0


@pytest.mark.parametrize("what", ["header without its tag byte", "body cut short"])
def test_a_request_that_cannot_be_decoded_costs_a_line_in_the_log(cluster, caplog, what):
    with Peer(cluster[0]) as peer:
        peer.socket.sendall(GARBAGE[what])
        assert peer.receive() is None
    (record,) = (record for record in caplog.records if "closes" in record.message)
    assert record.exc_info is None


def test_a_length_longer_than_what_follows_is_waited_for(cluster):
    with Peer(cluster[0]) as peer:
        peer.socket.sendall(struct.pack(">i", 1000) + bytes(10))
        peer.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            peer.receive()


@conformance("AVR-14")
def test_avr_14_an_unknown_version_of_api_versions_is_answered_in_version_0(cluster):
    with Peer(cluster[0]) as peer:
        sent = peer.send(18, 99, b"")
        payload = peer.receive()
        header, at = headers.decode_response_header_from(payload, 0)
        assert header.correlation_id == sent
        answer, used = codec.decode_response_from(18, 0, payload[at:])
        assert used == len(payload) - at
        assert answer.error_code == 35
        assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 4)]


def test_api_versions_announces_the_handlers(cluster):
    with Peer(cluster[0]) as peer:
        for version in range(5):
            request = codec.message_class(18, "request")(client_software_name="kproto", client_software_version="1.0")
            answer = peer.ask(request, version)
            of_records = {0: 9, 1: 10, 2: 6, 10: 6, 11: 9, 22: 5}
            versions = {3: 12, 4: 7, 5: 4, 6: 8, 7: 3, 18: 4, 32: 4} | of_records
            assert {k.api_key: k.max_version for k in answer.api_keys} == versions
            assert {k.api_key for k in answer.api_keys} == set(HANDLERS) | of_records.keys()
        nameless = codec.message_class(18, "request")(client_software_name="-", client_software_version="1.0")
        assert [peer.ask(nameless, version).error_code for version in (2, 3, 4)] == [0, 42, 42]


def announced(made, version):
    request = codec.message_class(18, "request")(client_software_name="kproto", client_software_version="1.0")
    with Peer(made[0]) as peer:
        answer = peer.ask(request, version)
    supported = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
    finalized = {f.name: (f.min_version_level, f.max_version_level) for f in answer.finalized_features}
    return supported, finalized, answer.finalized_features_epoch, answer.zk_migration_ready


@pytest.mark.parametrize(("capture", "migration"), [("ibp-3.9-a", False), ("ibp-3.9-migration-a", True)])
def test_features_are_announced_as_a_real_broker_announces_them(capture, migration):
    real = {
        (
            tuple(answer.supported_features),
            tuple(answer.finalized_features),
            answer.finalized_features_epoch,
            answer.zk_migration_ready,
        )
        for exchange in kproto.capture.exchanges(CAPTURES / f"{capture}.pcap.gz", apis=[18])
        if (answer := exchange.response_message) is not None and exchange.api_version >= 3
    }
    with EmbeddedCluster(1, kraft=migration) as made:
        for version in (3, 4):
            supported, finalized, epoch, ready = announced(made, version)
            assert {(tuple(supported), tuple(finalized), epoch, ready)} == real
        assert announced(made, 2) == ({}, {}, -1, False)


def test_a_feature_of_level_0_is_announced_from_version_4_on():
    features = Features(
        supported={"kraft.version": (0, 1), "metadata.version": (1, 21)},
        finalized={"metadata.version": (1, 20)},
        finalized_epoch=5,
    )
    with EmbeddedCluster(1, features=features) as made:
        assert announced(made, 3) == ({"metadata.version": (1, 21)}, {"metadata.version": (1, 20)}, 5, False)
        assert announced(made, 4) == (
            {"kraft.version": (0, 1), "metadata.version": (1, 21)},
            {"metadata.version": (1, 20)},
            5,
            False,
        )


def test_a_metadata_request_holds_up_no_other_broker(cluster):
    """The reference codec reads and writes it, microseconds for each byte: not on the thread that serves everyone."""
    at_work, go_on, threads = threading.Event(), threading.Event(), {}

    def hold(context, _request):
        if context.api_key == 3:
            at_work.set()
            assert go_on.wait(60)

    def note(context, _request, _answer):
        threads[context.api_key] = threading.current_thread().name

    for member in cluster:
        member.broker.hooks = BrokerHooks(intercept=hold, answered=note)
    with Peer(cluster[0]) as slow, Peer(cluster[1]) as quick:
        slow.send(3, 9, codec.encode(codec.message_class(3, "request")(topics=None), 9))
        assert at_work.wait(60)
        assert quick.ask(update_metadata({}), 8).error_code == 0
        assert threads == {6: "embedded-cluster-network-thread"}
        go_on.set()
        assert slow.receive() is not None
    assert threads[3] == "embedded-cluster-worker-thread"


def test_a_handler_that_fails_on_the_worker_closes_its_connection(cluster, monkeypatch, caplog):
    def fail(broker, context, request):
        raise RuntimeError("no such snapshot")

    monkeypatch.setitem(HANDLERS, 3, fail)
    with Peer(cluster[0]) as peer:
        peer.send(3, 9, codec.encode(codec.message_class(3, "request")(topics=None), 9))
        assert peer.receive() is None
    assert "no such snapshot" in caplog.text
    monkeypatch.undo()
    with Peer(cluster[0]) as peer:
        assert peer.ask(codec.message_class(3, "request")(topics=None), 9).topics == []


@pytest.mark.parametrize(("api", "version", "largest"), [(3, 9, 256 * 1024), (7, 3, 1024), (18, 3, 4096)])
def test_a_request_larger_than_its_api_needs_ends_the_connection_unread(cluster, caplog, api, version, largest):
    with Peer(cluster[0]) as peer:
        peer.send(api, version, bytes(largest + 1))
        assert peer.receive() is None
    assert f"request of {largest + 1} bytes; an embedded broker reads {largest}" in caplog.text
    with Peer(cluster[0]) as peer:
        assert peer.ask(update_metadata({}), 8).error_code == 0


def test_requests_of_one_connection_are_answered_in_order_whatever_their_pieces(cluster):
    with Peer(cluster[0]) as peer:
        body = codec.encode(update_metadata({"t": [metadata_state(0, 0)]}), 8)
        stream = b"".join(
            frame(headers.encode_request_header(headers.request_header(6, 8, i, "77")) + body) for i in range(20)
        )
        for i in range(0, len(stream), 7):
            peer.socket.sendall(stream[i : i + 7])
        ids = [headers.decode_response_header(peer.receive(), 1).correlation_id for _ in range(20)]
        assert ids == list(range(20))


def test_a_killed_broker_comes_back_with_a_new_epoch_and_no_memory(cluster):
    with Peer(cluster[0]) as peer:
        peer.ask(leader_and_isr({"t": [leader_state(0, 0)]}, broker_epoch=1), 7)
        cluster.kill(0)
        assert peer.receive() is None
    with pytest.raises(ConnectionRefusedError):
        Peer(cluster[0])
    with pytest.raises(IllegalState):
        cluster.kill(0)
    epoch = cluster.restart(0)
    assert epoch > 3
    assert cluster[0].broker.replicas.hosted == {}
    with Peer(cluster[0]) as peer:
        assert peer.ask(update_metadata({}, broker_epoch=1), 8).error_code == 77
        assert peer.ask(update_metadata({}, broker_epoch=epoch), 8).error_code == 0


def test_a_broker_serves_nothing_before_it_is_registered():
    epochs = iter((500, 600))
    asked = []

    def register(member):
        with Peer(member) as peer:  # the port is open, and nobody answers yet
            peer.send(6, 8, codec.encode(update_metadata({}, broker_epoch=500), 8))
            peer.socket.settimeout(0.1)
            with pytest.raises(TimeoutError):
                peer.receive()
        asked.append(member.id)
        return next(epochs)

    with EmbeddedCluster([7], register=register) as cluster:
        assert cluster[7].epoch == 500
        assert cluster.restart(7) == 600
        with Peer(cluster[7]) as peer:
            assert peer.ask(update_metadata({}, broker_epoch=500), 8).error_code == 77
            assert peer.ask(update_metadata({}, broker_epoch=600), 8).error_code == 0
    assert asked == [7, 7]


def test_the_kraft_epoch_of_a_registered_broker_is_its_broker_epoch():
    epochs = iter([500, 600])
    with EmbeddedCluster([7], kraft=True, register=lambda _: next(epochs)) as cluster:
        assert cluster[7].broker.kraft_epoch == 500
        cluster.restart(7)
        assert cluster[7].broker.kraft_epoch == cluster[7].epoch == 600


def test_a_broker_that_cannot_register_again_is_down():
    epochs = [500]

    def register(member):
        if not epochs:
            raise IllegalState("the id is taken")
        return epochs.pop()

    with EmbeddedCluster([7], register=register) as cluster:
        with pytest.raises(IllegalState, match="the id is taken"):
            cluster.restart(7)
        assert not cluster[7].is_up


def test_a_paused_broker_answers_when_it_goes_on(cluster):
    with Peer(cluster[0]) as peer:
        peer.ask(update_metadata({}), 8)
        cluster.pause(0)
        peer.send(6, 8, codec.encode(update_metadata({}), 8))
        peer.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            peer.receive()
        cluster.resume(0)
        peer.socket.settimeout(30)
        assert peer.receive() is not None


def interceptor(plan):
    return lambda broker_id: BrokerHooks(intercept=lambda context, request: plan)


def test_faults_on_demand():
    request = update_metadata({"t": [metadata_state(0, 0)]})
    with EmbeddedCluster(1, hooks=interceptor(Interception(error=11))) as made, Peer(made[0]) as peer:
        assert peer.ask(request, 8).error_code == 11
        assert not made[0].broker.metadata.contains("t")
    with EmbeddedCluster(1, hooks=interceptor(Interception(delay_s=0.2))) as made, Peer(made[0]) as peer:
        began = time.monotonic()
        assert peer.ask(request, 8).error_code == 0
        assert time.monotonic() - began >= 0.19
    for when, applied in (("before", False), ("after", True)):
        with EmbeddedCluster(1, hooks=interceptor(Interception(disconnect=when))) as made, Peer(made[0]) as peer:
            peer.send(6, 8, codec.encode(request, 8))
            assert peer.receive() is None
            assert made[0].broker.metadata.contains("t") == applied
    answer = kproto.UpdateMetadataResponse(error_code=31)
    with EmbeddedCluster(1, hooks=interceptor(Interception(answer=answer))) as made, Peer(made[0]) as peer:
        assert peer.ask(request, 8).error_code == 31


def test_an_answer_that_cannot_be_written_is_an_error_answer_or_the_end_of_the_connection(cluster, caplog):
    """Control requests list the partitions of an error answer, the others do not."""
    unwritable = {
        4: kproto.LeaderAndIsrResponse(
            topics=[LeaderAndIsrTopicError(topic_id=topic_id("t"))]
        ),  # there since version 5
        3: codec.message_class(3, "response")(topics=[MetadataResponseTopic(name=None)]),
    }
    cluster[0].broker.hooks = BrokerHooks(
        intercept=lambda context, request: Interception(answer=unwritable[context.api_key])
    )
    with Peer(cluster[0]) as peer:
        assert peer.ask(leader_and_isr({"t": [leader_state(0, 0)]}), 4).error_code == -1
        peer.send(3, 9, codec.encode(codec.message_class(3, "request")(topics=None), 9))
        assert peer.receive() is None
    assert caplog.text.count("broker 0 cannot write its answer") == 2
    assert [type(each).__name__ for each in cluster.failures] == ["FieldNotInVersion", "EncodeError"]


@pytest.mark.parametrize(
    "answer", [messages.CreateTopicsResponse(), messages.MetadataRequest(topics=[]), kproto.UpdateMetadataResponse()]
)
def test_an_interceptions_answer_to_another_request_is_a_failure_and_is_not_sent(cluster, answer):
    cluster[0].intercept(Interception(answer=answer), ApiKey.METADATA)
    with Peer(cluster[0]) as peer:
        peer.send(ApiKey.METADATA, 9, codec.encode(messages.MetadataRequest(topics=[]), 9))
        assert peer.receive() is None
    assert "an Interception answers Metadata by " in str(cluster.failures[0])


def test_a_request_to_the_controller_is_answered_with_the_error_that_was_ordered(cluster):
    class Controller:
        keys = frozenset({ApiKey.CREATE_TOPICS})

        def __call__(self, context, request, answer):
            raise AssertionError("it is not to be handled")

    cluster[0].broker.hooks = BrokerHooks(
        intercept=lambda context, request: Interception(error=ErrorCode.POLICY_VIOLATION), controller=Controller()
    )
    with Peer(cluster[0]) as peer:
        answer = peer.ask(messages.CreateTopicsRequest(topics=[messages.CreatableTopic(name="t")]), 5)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", ErrorCode.POLICY_VIOLATION)]


def test_a_request_to_the_controller_is_served_before_its_answer_is_lost(cluster):
    class Controller:
        keys = frozenset({ApiKey.ALLOCATE_PRODUCER_IDS})

        def __call__(self, context, request, answer):
            served.append(context.api_key)
            answer(messages.AllocateProducerIdsResponse())

    served = []
    cluster[0].broker.hooks = BrokerHooks(
        intercept=lambda context, request: Interception(disconnect="after"), controller=Controller()
    )
    with Peer(cluster[0]) as peer:
        peer.send(67, 0, codec.encode(messages.AllocateProducerIdsRequest(), 0))
        assert peer.receive() is None
    assert served == [ApiKey.ALLOCATE_PRODUCER_IDS]


def test_an_answer_from_another_thread_that_is_none_closes_the_connection(cluster):
    class Controller:
        keys = frozenset({ApiKey.ALLOCATE_PRODUCER_IDS})

        def __call__(self, context, request, answer):
            threading.Thread(target=answer, args=(object(),)).start()

    cluster[0].broker.hooks = BrokerHooks(controller=Controller())
    with Peer(cluster[0]) as peer:
        peer.send(67, 0, codec.encode(messages.AllocateProducerIdsRequest(), 0))
        assert peer.receive() is None
    assert len(cluster.failures) == 1


@pytest.mark.parametrize(
    "plan", [Interception(drop=True), Interception(disconnect="before"), Interception(disconnect="after")], ids=str
)
def test_a_request_without_an_answer_is_told_as_such(cluster, plan):
    seen = threading.Event()
    told = []

    def note(context, request, answer):
        told.append((context.api_key, answer))
        seen.set()

    cluster[0].broker.hooks = BrokerHooks(intercept=lambda context, request: plan, answered=note)
    with Peer(cluster[0]) as peer:
        peer.send(6, 8, codec.encode(update_metadata({}), 8))
        assert seen.wait(60)
        if plan.disconnect:
            assert peer.receive() is None
        else:
            peer.socket.settimeout(0.1)
            with pytest.raises(TimeoutError):
                peer.receive()
    assert told == [(6, None)]


@pytest.mark.parametrize("name", ["topics_changed", "partitions_changed"])
def test_each_hook_of_update_metadata_works_without_the_others(cluster, name):
    seen = []
    cluster[0].broker.hooks = BrokerHooks(**{name: seen.append})
    with Peer(cluster[0]) as peer:
        assert peer.ask(update_metadata({}), 8).error_code == 0
        assert peer.ask(update_metadata({"t": [metadata_state(0, 0)]}), 8).error_code == 0
    assert seen == [["t"] if name == "topics_changed" else [TopicPartition("t", 0)]]


def test_the_hooks_of_an_update_run_in_kafkas_order(cluster):
    calls = []
    cluster[0].broker.hooks = BrokerHooks(
        partitions_deleted=lambda tps: calls.append(("deleted", tps)),
        topics_changed=lambda topics: calls.append(("topic operations", topics)),
        quotas_changed=lambda view: calls.append(("quotas", sorted(view.partitions))),
        partitions_changed=lambda tps: calls.append(("elections", tps)),
    )
    t0, u0 = TopicPartition("t", 0), TopicPartition("u", 0)
    with Peer(cluster[0]) as peer:
        assert peer.ask(update_metadata({"t": [metadata_state(0, 0)]}), 8).error_code == 0
        calls.clear()
        deleted = update_metadata({"t": [metadata_state(0, -2)], "u": [metadata_state(0, 0)]})
        assert peer.ask(deleted, 8).error_code == 0
    assert calls == [
        ("deleted", (t0,)), ("topic operations", ["t", "u"]), ("quotas", [u0]), ("elections", [t0, u0]),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("topics", "version"), [(2, 0), (2, 12), (2_000, 12)])
def test_a_metadata_answer_takes_less_than_a_kilobyte_for_each_partition(topics, version):
    count = 2_000
    rows = [metadata_state(i, i % 3, isr=[0, 1, 2], replicas=[0, 1, 2]) for i in range(count // topics)]
    with EmbeddedCluster(1) as made, Peer(made[0]) as peer:
        request = update_metadata({f"topic-{i}": rows for i in range(topics)}, [broker(i) for i in range(3)])
        assert peer.ask(request, 8).error_code == 0
        everything = codec.encode(kproto.messages.MetadataRequest(topics=None if version else []), version)
        tracemalloc.start()
        try:
            peer.send(3, version, everything)
            answer = peer.receive()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 1024 * count
    _, at = headers.decode_response_header_from(answer, response_header_version(3, version))
    told = codec.decode_response(3, version, memoryview(answer)[at:])
    assert sum(len(topic.partitions) for topic in told.topics) == count


def test_every_answer_is_told():
    told = []
    hooks = BrokerHooks(answered=lambda context, request, answer: told.append((context.api_key, answer.error_code)))
    with EmbeddedCluster(1, hooks=lambda _: hooks) as made, Peer(made[0]) as peer:
        peer.ask(update_metadata({}), 8)
        peer.ask(update_metadata({}, broker_epoch=0), 8)
    assert told == [(6, 0), (6, 77)]


def test_brokers_of_one_process_decode_a_large_update_once():
    rows = [metadata_state(i, i % 3, isr=[0, 1, 2], replicas=[0, 1, 2]) for i in range(500)]
    with EmbeddedCluster(5) as made:
        for member in made:
            request = update_metadata({"big": rows}, [broker(i) for i in range(5)], broker_epoch=member.epoch)
            with Peer(member) as peer:
                assert peer.ask(request, 8).error_code == 0
        snapshots = {id(member.broker.metadata.snapshot) for member in made}
        assert len(snapshots) == 1
        with Peer(made[4]) as peer:
            stale = update_metadata({"big": rows}, [broker(i) for i in range(5)], broker_epoch=0)
            assert peer.ask(stale, 8).error_code == 77


def test_brokers_with_different_histories_share_the_live_brokers_of_an_update():
    with EmbeddedCluster(2) as cluster:
        brokers = [broker(i, host="h" * 100) for i in range(100)]
        with Peer(cluster[0]) as peer:
            peer.ask(update_metadata({"orders": [metadata_state(0, 1)]}), 8)
        for member in cluster:
            with Peer(member) as peer:
                peer.ask(update_metadata({}, brokers, broker_epoch=member.epoch), 8)
        first, second = (member.broker.metadata.snapshot for member in cluster)
        assert first is not second
        assert first.alive_brokers is second.alive_brokers
        assert len(first.alive_brokers) == 100


@pytest.mark.parametrize(
    ("order", "error"),
    [
        ({"disconnect": "during"}, 'disconnect is \'during\'; it must be "before" or "after"'),
        ({"delay_s": -1}, "delay_s is -1; it must be 0 to 86400"),
        ({"delay_s": float("nan")}, "delay_s is nan"),
        ({"drop": True, "error": 11}, "drop and error contradict each other"),
        ({"disconnect": "after", "answer": object()}, "disconnect and answer contradict each other"),
    ],
)
def test_an_interception_that_makes_no_sense_is_refused(order, error):
    with pytest.raises(ValueError, match=error):
        Interception(**order)


def test_a_broker_of_a_cluster_that_is_not_started_is_told_to_be_so():
    cluster = EmbeddedCluster(1)
    try:
        with pytest.raises(BrokerNotAvailable, match=r"broker 0 is not started; call start\(\) first"):
            cluster[0]
        with pytest.raises(BrokerNotAvailable, match="no broker 1 here"):
            cluster[1]
    finally:
        cluster.close()


def test_a_plan_that_no_request_could_follow_is_refused_at_once():
    faults = PlannedFaults()
    with pytest.raises(TypeError, match=r"plan: expected an Interception, got <ErrorCode.*try e.g. Interception"):
        faults.add(ErrorCode.KAFKA_STORAGE_ERROR, (), None)
    with pytest.raises(TypeError, match="api_keys: expected an ApiKey, got 'Metadata'"):
        faults.add(Interception(drop=True), ("Metadata",), None)
    with pytest.raises(TypeError, match="error: expected an ErrorCode, got 'KAFKA_STORAGE_ERROR'"):
        Interception(error="KAFKA_STORAGE_ERROR")


def test_an_interception_may_hold_an_answer_back_for_a_day():
    assert Interception(delay_s=86_400).delay_s == 86_400
    with pytest.raises(ValueError, match="it must be 0 to 86400"):
        Interception(delay_s=86_401)


def test_wrong_use_says_what_is_wrong(cluster):
    with pytest.raises(BrokerNotAvailable, match="no broker 9 here"):
        cluster[9]
    with pytest.raises(kproto.ConfigurationError, match="in use"):
        EmbeddedCluster(1, base_port=cluster[0].port).start()
    with pytest.raises(BrokerNotAvailable, match="ulimit -Hn"):
        raise_file_limit(10**9, 6)


# ---- what clients and watchers may do wrong --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [10, 11, 12])
def test_topics_are_asked_for_by_id_from_version_12_on(cluster, version):
    with Peer(cluster[0]) as peer:
        peer.ask(update_metadata({"orders": [metadata_state(0, 0)]}, [broker(i) for i in range(3)]), 8)
        topics = [MetadataRequestTopic(name=None, topic_id=topic_id("orders")), MetadataRequestTopic(name="orders")]
        answer = peer.ask(codec.message_class(3, "request")(topics=topics), version)
        found = [(t.error_code, t.name, t.topic_id) for t in answer.topics]
        if version < 12:
            assert found == [(42, "", topic_id("orders")), (42, "orders", ZERO_UUID)]
        else:
            assert found == [(0, "orders", topic_id("orders"))]
        assert peer.ask(update_metadata({}), 8).error_code == 0  # the connection goes on


def test_a_topic_asked_for_many_times_is_answered_once(cluster):
    with Peer(cluster[0]) as peer:
        peer.ask(update_metadata({"orders": [metadata_state(0, 0)]}, [broker(0)]), 8)
        names = ["orders", "absent"] * 1000
        request = codec.message_class(3, "request")(topics=[MetadataRequestTopic(name=name) for name in names])
        assert [(t.name, t.error_code) for t in peer.ask(request, 9).topics] == [("orders", 0), ("absent", 3)]


def test_a_request_decoded_once_shows_every_broker_its_own_epoch(cluster):
    told = []
    request = update_metadata({"t": [metadata_state(i, 0) for i in range(300)]}, [broker(0)])
    for member in cluster:
        member.broker.hooks = BrokerHooks(
            answered=lambda context, read, answer: told.append((read.broker_epoch, read.to_json(context.version)))
        )
        request.broker_epoch = member.epoch
        with Peer(member) as peer:
            assert peer.ask(request, 8).error_code == 0
    epochs = [member.epoch for member in cluster]
    assert len(set(epochs)) == 3
    assert [epoch for epoch, _ in told] == [form["brokerEpoch"] for _, form in told] == epochs


def test_a_hook_that_only_watches_costs_nobody_an_answer(cluster, caplog):
    def fails(*_):
        raise BrokenPipeError("nobody reads")

    cluster[0].broker.hooks = BrokerHooks(answered=fails)
    with Peer(cluster[0]) as peer:
        for _ in range(2):
            assert peer.ask(update_metadata({}), 8).error_code == 0
    assert "nobody reads" in caplog.text


def test_plans_are_followed_in_order_and_used_up(cluster):
    ask = codec.message_class(18, "request")(client_software_name="kproto", client_software_version="1.0")
    cluster[0].hooks.intercept = lambda context, request: Interception(error=5)
    cluster[0].intercept(Interception(error=3), ApiKey.API_VERSIONS, times=2)
    cluster[0].intercept(Interception(error=4), ApiKey.METADATA)
    with Peer(cluster[0]) as peer:
        assert [peer.ask(ask, 3).error_code for _ in range(3)] == [3, 3, 5]
        topics = [MetadataRequestTopic(name="t")]
        answer = peer.ask(codec.message_class(3, "request")(topics=topics), 9)
        assert [(each.name, each.error_code) for each in answer.topics] == [("t", 4)]
        cluster[0].hooks.intercept = None
        assert peer.ask(ask, 3).error_code == 0
    with pytest.raises(ValueError, match="times is 0"):
        cluster[0].intercept(Interception(drop=True), times=0)


def test_a_dropped_answer_belongs_to_a_request_that_was_handled(cluster):
    told = []
    cluster[0].hooks.answered = lambda context, request, answer: told.append(answer)
    cluster[0].intercept(Interception(drop_answer=True), ApiKey.UPDATE_METADATA, times=1)
    with Peer(cluster[0]) as peer:
        update = update_metadata({"t": [metadata_state(0, 0)]}, [broker(i) for i in range(3)], broker_epoch=1)
        peer.send(6, 8, codec.encode(update, 8))
        until(lambda: told)
        assert told == [None]
        assert cluster[0].broker.metadata.contains("t")


def test_hooks_outlive_a_restart_unless_the_cluster_makes_them(cluster):
    cluster[0].hooks.intercept = lambda context, request: None
    kept = cluster[0].hooks
    cluster.restart(0)
    assert cluster[0].hooks is kept
    with EmbeddedCluster(1, hooks=lambda _: BrokerHooks()) as other:
        made = other[0].hooks
        other.restart(0)
        assert other[0].hooks is not made


def test_what_a_hook_raises_is_kept(cluster):
    def refuse(context, request):
        raise AssertionError("not this one")

    cluster[1].hooks.intercept = refuse
    with Peer(cluster[1]) as peer:
        peer.send(6, 8, codec.encode(update_metadata({}), 8))
        assert peer.receive() is None
    (failure,) = cluster.failures
    assert str(failure) == "not this one"


@pytest.mark.parametrize(
    ("brokers", "message"),
    [
        (0, "a cluster of 0 brokers; give their number, from 1, or their ids"),
        (-1, "a cluster of -1 brokers"),
        ([], r"a cluster of \[\] brokers"),
        ([1, 2, 1], r"brokers \[1, 2, 1\]: an id is given twice"),
        ([-1], "a broker's id is a whole number from 0"),
        ("3", r"\['3'\]: a broker's id is a whole number from 0"),
        (None, "a cluster of None brokers; give their number"),
        (2.5, "a cluster of 2.5 brokers; give their number"),
    ],
)
def test_a_cluster_of_wrong_brokers_is_refused(brokers, message):
    with pytest.raises(ConfigurationError, match=message):
        EmbeddedCluster(brokers)


def test_a_cluster_starts_once():
    with EmbeddedCluster(2).start() as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{cluster[0].port},127.0.0.1:{cluster[1].port}"
        with pytest.raises(IllegalState, match="this cluster is started already"):
            cluster.start()
    with pytest.raises(IllegalState, match="this cluster is closed; a cluster starts once: make another"):
        cluster.start()
    with pytest.raises(IllegalState, match="is closed"), cluster:
        pass
