"""What brokers of Kafka 3.9.1 answer a controller, asked of embedded brokers and, with ``make real``, of real ones.

One set of expectations for both: an embedded broker is right where it cannot be told from a real one.
"""

import contextlib
import itertools
import socket
import struct

import pytest
from control_messages import (
    leader_and_isr,
    leader_state,
    metadata_state,
    stop_replica,
    topic_id,
    update_metadata,
)

from kproto import codec
from kproto import messages as c
from kproto.codec import get_codec
from kproto.framing import frame
from kproto.reference.metadata import MetadataRequest, MetadataRequestTopic

EPOCH = 5
_names = (f"t{i}" for i in itertools.count())


@pytest.fixture
def topic(cluster):
    """A topic of its own for each test, and brokers that know each other."""
    assert cluster.ask(update_metadata({}, live(cluster), **head(cluster)), 8).error_code == 0
    return next(_names)


def live(cluster):
    return [
        c.UpdateMetadataBroker(
            id=i,
            endpoints=[
                c.UpdateMetadataEndpoint(port=port, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)
            ],
            rack=None,
        )
        for i, port in cluster.ports.items()
    ]


def head(cluster, **more):
    return {"controller_id": 77, "controller_epoch": EPOCH, "broker_epoch": cluster.epochs[0], **more}


def lead(cluster, topic, *states, ids=None, version=7, **more):
    """LeaderAndIsr to broker 0; gives (top-level code, codes by partition)."""
    request = leader_and_isr({topic: list(states)}, ids=ids, **head(cluster, **more))
    request.live_leaders = [
        c.LeaderAndIsrLiveLeader(broker_id=i, host_name="127.0.0.1", port=port) for i, port in cluster.ports.items()
    ]
    answer = cluster.ask(request, version)
    errors = [e for t in answer.topics for e in t.partition_errors] or list(answer.partition_errors)
    return answer.error_code, {e.partition_index: e.error_code for e in errors}


def stop(cluster, topic, *states, version=4, **more):
    answer = cluster.ask(stop_replica({topic: list(states)}, **head(cluster, **more)), version)
    return answer.error_code, {e.partition_index: e.error_code for e in answer.partition_errors}


def announce(cluster, topic, *states, version=8, **more):
    return cluster.ask(
        update_metadata({topic: list(states)}, live(cluster), **head(cluster, **more)), version
    ).error_code


def new(partition, leader=0, **more):
    return leader_state(partition, leader, is_new=True, **{"controller_epoch": EPOCH, **more})


def test_a_partition_lives(cluster, topic):
    assert lead(cluster, topic, new(0), new(1, 1)) == (0, {0: 0, 1: 0})
    assert announce(cluster, topic, metadata_state(0, 0), metadata_state(1, 1)) == 0
    assert lead(cluster, topic, leader_state(0, 1, epoch=1)) == (0, {0: 0})
    assert announce(cluster, topic, metadata_state(0, -2), metadata_state(1, -2)) == 0
    assert stop(cluster, topic, (0, -2, True), (1, -2, True)) == (0, {0: 0, 1: 0})


@pytest.mark.parametrize("version", range(8))
def test_every_version_of_leader_and_isr_is_taken(cluster, topic, version):
    request = leader_and_isr({topic: [new(0)]}, **head(cluster))
    if version < 2:
        state = new(0)
        state.topic_name = topic
        request.topic_states, request.ungrouped_partition_states = [], [state]
    answer = cluster.ask(request, version)
    assert answer.error_code == 0
    assert answer.error_counts() == {0: 2}


@pytest.mark.parametrize("version", range(9))
def test_every_version_of_update_metadata_is_taken(cluster, topic, version):
    request = update_metadata({}, live(cluster), **head(cluster))
    if version == 0:
        for broker in request.live_brokers:
            broker.v0_host, broker.v0_port = "127.0.0.1", broker.endpoints[0].port
    assert cluster.ask(request, version).error_code == 0


@pytest.mark.parametrize(
    ("broker_epoch", "controller_epoch", "kraft", "top", "lists"),
    [
        pytest.param(-1, 0, False, 77, "LeaderAndIsr", id="broker epoch lower"),
        pytest.param(+1, 0, False, 0, "all", id="broker epoch higher"),
        pytest.param(None, 0, False, 0, "all", id="broker epoch -1"),
        pytest.param(0, -1, False, 11, "LeaderAndIsr", id="controller epoch lower"),
        pytest.param(-1, -1, False, 77, "LeaderAndIsr", id="both stale"),
        pytest.param(0, 0, True, -1, "all", id="KRaft flag without migration"),
    ],
)
def test_what_the_head_of_a_request_decides(cluster, topic, broker_epoch, controller_epoch, kraft, top, lists):
    wanted = -1 if broker_epoch is None else cluster.epochs[0] + broker_epoch
    more = {
        "broker_epoch": wanted,
        "controller_epoch": EPOCH + controller_epoch,
        "is_kraft_controller": kraft,
    }
    assert lead(cluster, topic, new(0), **more) == (top, {0: top})
    code, listed = stop(cluster, topic, (0, -2, True), **more)
    assert (code, listed) == (top, {0: top} if lists == "all" else {})
    assert announce(cluster, topic, metadata_state(0, 0), **more) == top


def test_another_controller_of_the_same_epoch_is_heard(cluster, topic):
    assert lead(cluster, topic, new(0), controller_id=78) == (0, {0: 0})
    assert announce(cluster, topic, metadata_state(0, 0), controller_id=78) == 0


def test_requests_without_partitions(cluster, topic):
    answer = cluster.ask(leader_and_isr({}, **head(cluster)), 7)
    assert (answer.error_code, list(answer.topics)) == (0, [])
    answer = cluster.ask(stop_replica({}, **head(cluster)), 4)
    assert (answer.error_code, list(answer.partition_errors)) == (0, [])


def test_leader_epochs(cluster, topic):
    assert lead(cluster, topic, new(0, epoch=3)) == (0, {0: 0})
    assert lead(cluster, topic, leader_state(0, 0, epoch=2)) == (0, {0: 11})
    assert lead(cluster, topic, leader_state(0, 0, epoch=3)) == (0, {0: 11})
    assert lead(cluster, topic, leader_state(0, 0, epoch=4), ids={}) == (0, {0: 0})


def test_topic_ids(cluster, topic):
    assert lead(cluster, topic, new(0)) == (0, {0: 0})
    assert lead(cluster, topic, leader_state(0, 0, epoch=1), ids={topic: topic_id("another")}) == (0, {0: 103})


@pytest.mark.parametrize("replicas", [[1], []], ids=["others", "none"])
def test_a_broker_outside_the_replicas(cluster, topic, replicas):
    assert lead(cluster, topic, new(0, 1, replicas=replicas, isr=replicas)) == (0, {0: 3})


@pytest.mark.parametrize("leader", [-1, 9], ids=["none", "not alive"])
def test_a_leader_that_is_not_there(cluster, topic, leader):
    assert lead(cluster, topic, new(0, leader)) == (0, {0: 0})


def test_a_partition_named_twice_is_answered_once(cluster, topic):
    assert lead(cluster, topic, new(0), new(0)) == (0, {0: 0})


def test_not_new_though_never_seen(cluster, topic):
    assert lead(cluster, topic, leader_state(0, 0)) == (0, {0: 0})


def test_leader_epoch_minus_one_of_an_unknown_partition(cluster, topic):
    assert lead(cluster, topic, leader_state(0, 0, epoch=-1, partition_epoch=0)) == (6, {0: 6})


def test_what_stop_replica_leaves(cluster, topic):
    assert lead(cluster, topic, new(0, epoch=1), new(1, epoch=1)) == (0, {0: 0, 1: 0})
    assert stop(cluster, topic, (0, 0, False)) == (0, {0: 74})
    assert stop(cluster, topic, (0, 1, False)) == (0, {0: 0})
    assert lead(cluster, topic, leader_state(0, 0, epoch=1)) == (0, {0: 11})
    assert stop(cluster, topic, (1, -1, True)) == (0, {1: 0})
    assert lead(cluster, topic, new(1), ids={topic: topic_id("made anew")}) == (0, {1: 0})
    assert stop(cluster, topic, (7, 0, True)) == (0, {7: 0})


def test_names_that_nobody_checks(cluster, topic):
    long = (topic + "-").ljust(250, "x")
    assert lead(cluster, long, new(0)) == (0, {0: 0})
    assert lead(cluster, topic, new(-1)) == (0, {-1: 0})


@pytest.mark.parametrize("name", ["", "a/b"], ids=["empty", "slash"])
def test_names_that_no_folder_has(cluster, topic, name):
    assert lead(cluster, name, new(0)) == (-1, {0: -1})


def test_types_that_a_zookeeper_broker_ignores(cluster, topic):
    assert lead(cluster, topic, new(0), type=7) == (0, {0: 0})
    for kind in (2, 9):
        assert announce(cluster, topic, metadata_state(0, 0), type=kind) == 0


def test_metadata_that_makes_no_sense(cluster, topic):
    assert announce(cluster, topic, metadata_state(0, 42)) == 0
    assert cluster.ask(update_metadata({}, [], **head(cluster)), 8).error_code == 0


# ---- bytes that are no request ---------------------------------------------------------------------------------------


def received(peer):
    """The payload of the next frame."""
    with peer.makefile("rb") as stream:
        return stream.read(int.from_bytes(stream.read(4), "big"))


GOOD_HEAD = struct.pack(">hhih2s", 6, 8, 0, 2, b"77")
CLOSED = {
    **{f"api {a} v{v}": frame(struct.pack(">hhih2s", a, v, 0, 2, b"77") + bytes(40))
       for a, v in [(4, 8), (4, 99), (5, 5), (6, 9), (6, -1), (99, 0)]},
    "random bytes": frame(bytes(range(7, 60))),
    "body cut short": frame(GOOD_HEAD + bytes(6)),
    "header without its tag byte": frame(GOOD_HEAD),
    "length -1": struct.pack(">i", -1),
    "length 0": struct.pack(">i", 0),
    "length 200 MB": struct.pack(">i", 200_000_000) + bytes(10),
    "HTTP": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("what", CLOSED)
def test_the_connection_is_closed_without_an_answer(cluster, what):
    with socket.create_connection(("127.0.0.1", cluster.ports[0]), timeout=60) as peer:
        peer.sendall(CLOSED[what])
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(1) == b""


def test_an_unknown_version_of_api_versions_is_answered(cluster):
    with socket.create_connection(("127.0.0.1", cluster.ports[0]), timeout=60) as peer:
        peer.sendall(frame(struct.pack(">hhih2sB", 18, 99, 7, 2, b"77", 0)))
        answer = received(peer)
    assert struct.unpack(">i", answer[:4]) == (7,)
    body, used = codec.decode_response_from(18, 0, answer[4:])
    assert used == len(answer) - 4
    assert [(k.api_key, k.min_version, k.max_version) for k in body.api_keys] == [(18, 0, 4)]
    assert body.error_code == 35


def test_clients_are_told_what_the_controller_said(cluster, topic):
    assert lead(cluster, topic, new(0)) == (0, {0: 0})
    assert announce(cluster, topic, metadata_state(0, 0, isr=[0, 1], replicas=[0, 1], epoch=0)) == 0
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    header = get_codec("cython").encode_request_header(
        get_codec("cython").RequestHeader(request_api_key=3, request_api_version=12, correlation_id=1, client_id="x")
    )
    with socket.create_connection(("127.0.0.1", cluster.ports[0]), timeout=60) as peer:
        peer.sendall(frame(header + codec.encode(request, 12)))
        answer = received(peer)
    body = codec.decode_response(3, 12, answer[5:])
    assert {b.node_id: b.port for b in body.brokers} == cluster.ports
    (told,) = body.topics
    assert (told.error_code, told.name, told.topic_id) == (0, topic, topic_id(topic))
    assert [(p.error_code, p.leader_id, list(p.replica_nodes), list(p.isr_nodes)) for p in told.partitions] == [
        (0, 0, [0, 1], [0, 1])
    ]
