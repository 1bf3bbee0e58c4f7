"""``kproto metadata`` against embedded brokers: what they know of each other, and where they were told otherwise."""

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from commands import run_kproto
from control_messages import metadata_state, update_metadata

from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import Interception
from channel.metadata.clients import ClusterWatch, MetadataSender
from channel.metadata.cluster_metadata import ClusterView
from channel.rehearsal.scripted_controller import ScriptedController
from channel.send.encoded_requests import SingleRequest
from kproto import messages
from kproto.api import ApiKey
from kproto.messages import UpdateMetadataBroker, UpdateMetadataEndpoint

ID = bytes(range(16))


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2) as made:
        yield made


@pytest.fixture
def controller(cluster: EmbeddedCluster) -> Iterator[ScriptedController]:
    """Both brokers know each other and the topic orders."""
    with ScriptedController(cluster) as made:
        made.create_topic("orders", assignment=[[0, 1], [1, 0]], topic_id=ID)
        made.wait_all()
        yield made


def tell(controller: ScriptedController, cluster: EmbeddedCluster, broker_id: int, state: Any) -> None:
    """Tell one broker alone of a partition of orders."""
    brokers = [
        UpdateMetadataBroker(
            id=member.id,
            endpoints=[UpdateMetadataEndpoint(port=member.port, host=member.host, listener="PLAINTEXT")],
        )
        for member in cluster
    ]
    message = update_metadata(
        {"orders": [state]}, brokers, ids={"orders": ID}, controller_id=100, broker_epoch=cluster[broker_id].epoch
    )
    answers: SimpleQueue[Any] = SimpleQueue()
    controller.manager.send_request(broker_id, SingleRequest(message, 8), answers.put)
    assert answers.get(timeout=30).error_code == 0


def address(cluster: EmbeddedCluster, broker_id: int = 0) -> str:
    return f"127.0.0.1:{cluster[broker_id].port}"


def metadata(cluster: EmbeddedCluster, *arguments: str, code: int = 0) -> str:
    result = run_kproto("metadata", "--bootstrap", address(cluster), *arguments)
    assert result.exit_code == code, result.output
    return result.stdout


MOVED = metadata_state(0, 1, epoch=7, isr=[1], replicas=[0, 1])
"""Partition 0 of orders as the second broker alone knows it."""


@pytest.mark.usefixtures("controller")
def test_the_text_shows_brokers_and_partitions(cluster: EmbeddedCluster) -> None:
    first, second = address(cluster), address(cluster, 1)
    assert metadata(cluster).splitlines() == [
        f"cluster kproto, controller none, according to {first}",
        "  broker  listens at",
        f"  0       {first}",
        f"  1       {second}",
        "  partition  leader  leader epoch  isr  replicas",
        "  orders-0   0       0             0,1  0,1",
        "  orders-1   1       0             1,0  1,0",
    ]


@pytest.mark.usefixtures("controller")
def test_json_holds_the_same_and_what_is_wrong_with_a_topic(cluster: EmbeddedCluster) -> None:
    view = json.loads(metadata(cluster, "--topic", "orders", "--topic", "none", "--format", "json"))
    assert view["node"] == {"broker_id": -1, "host": "127.0.0.1", "port": cluster[0].port}
    assert [(b["broker_id"], b["port"]) for b in view["brokers"]] == [(m.id, m.port) for m in cluster]
    assert view["topics"] == [
        {"topic": "none", "topic_id": None, "internal": False, "error": "UNKNOWN_TOPIC_OR_PARTITION"},
        {"topic": "orders", "topic_id": "AAECAwQFBgcICQoLDA0ODw", "internal": False, "error": None},
    ]
    assert view["partitions"][1] == {
        "topic": "orders",
        "partition": 1,
        "leader": 1,
        "leader_epoch": 0,
        "isr": [1, 0],
        "replicas": [1, 0],
        "offline_replicas": [],
        "error": None,
    }


@pytest.mark.usefixtures("controller")
def test_an_unknown_topic_is_told_with_its_error(cluster: EmbeddedCluster) -> None:
    lines = metadata(cluster, "--topic", "none").splitlines()
    assert lines[-2:] == ["topic none: UNKNOWN_TOPIC_OR_PARTITION", "no topics"]


def test_a_broker_that_nobody_told_anything_knows_no_brokers(cluster: EmbeddedCluster) -> None:
    assert metadata(cluster).splitlines() == [
        f"cluster kproto, controller none, according to {address(cluster)}",
        "no brokers",
        "no topics",
    ]
    text = metadata(cluster, "--all-brokers", code=1)
    assert text == "the node knows no brokers yet; a controller tells it of them with UpdateMetadata\n"
    found = json.loads(metadata(cluster, "--all-brokers", "--format", "json", code=1))
    assert found == {"views": [], "differences": [], "failures": {}}


@pytest.mark.usefixtures("controller")
def test_brokers_that_were_told_the_same_agree(cluster: EmbeddedCluster) -> None:
    assert metadata(cluster, "--all-brokers").splitlines()[-1] == "2 brokers agree"
    found = json.loads(metadata(cluster, "--all-brokers", "--format", "json"))
    assert [view["node"]["broker_id"] for view in found["views"]] == [0, 1]
    assert (found["differences"], found["failures"]) == ([], {})


def test_brokers_that_were_told_different_things_are_set_side_by_side(
    cluster: EmbeddedCluster, controller: ScriptedController
) -> None:
    tell(controller, cluster, 1, MOVED)
    lines = metadata(cluster, "--all-brokers", code=1).splitlines()
    assert lines[-5:] == [
        "3 differences between 2 brokers",
        "  about     fact          broker 0  broker 1",
        "  orders-0  leader        0         1",
        "  orders-0  leader epoch  0         7",
        "  orders-0  isr           0,1       1",
    ]
    found = json.loads(metadata(cluster, "--all-brokers", "--format", "json", code=1))
    assert found["differences"][0] == {"about": "orders-0", "fact": "leader", "values": {"0": "0", "1": "1"}}
    assert len(found["differences"]) == 3


@pytest.mark.usefixtures("controller")
def test_a_broker_without_an_answer_is_named_and_nothing_agrees_with_itself(cluster: EmbeddedCluster) -> None:
    cluster.kill(1)
    *_, failed, verdict = metadata(cluster, "--all-brokers", code=1).splitlines()
    assert failed.startswith("broker 1 gave no answer: ")
    assert address(cluster, 1) in failed
    assert verdict == "broker 0 alone answered; there is nothing to compare it with"
    found = json.loads(metadata(cluster, "--all-brokers", "--format", "json", code=1))
    assert list(found["failures"]) == ["1"]


def after_each_view(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], Any]) -> list[Any]:
    """Do each step as soon as the command has one view more; after the last step it is interrupted.

    Gives the steps that are still to be done.
    """
    views = ClusterWatch.next
    left = [None, *steps]

    def step_and_wait(watched: ClusterWatch) -> ClusterView:
        if not left:
            raise KeyboardInterrupt
        step = left.pop(0)
        if step is not None:
            step()
        return views(watched)

    monkeypatch.setattr(ClusterWatch, "next", step_and_wait)
    return left


def nothing() -> None:
    """The cluster stays as it is."""


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("topics", [(), ("--topic", "orders")], ids=["all topics", "one topic"])
def test_watch_prints_changes_alone_until_ctrl_c(
    cluster: EmbeddedCluster,
    controller: ScriptedController,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    topics: tuple[str, ...],
) -> None:
    def move() -> None:
        for broker_id in (0, 1):  # either may be asked
            tell(controller, cluster, broker_id, MOVED)

    after_each_view(monkeypatch, nothing, move, nothing)
    lines = metadata(cluster, "--watch", "--interval", "0.1", "--format", form, *topics).splitlines()
    if form == "json":
        before, after = map(json.loads, lines)
        assert before["partitions"][1] == after["partitions"][1]
        assert (before["partitions"][0]["leader"], after["partitions"][0]["leader"]) == (0, 1)
    else:
        assert [line.split(" ", 1)[1] for line in lines[7:]] == [
            "orders-0: leader 0 -> 1",
            "orders-0: leader epoch 0 -> 7",
            "orders-0: isr 0,1 -> 1",
        ]


def test_watch_goes_on_with_another_broker_when_the_bootstrap_node_is_killed(
    cluster: EmbeddedCluster, controller: ScriptedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mark_dead() -> None:
        cluster.kill(0)
        controller.mark_dead(0)
        controller.wait_all()

    after_each_view(monkeypatch, mark_dead, nothing)
    lines = metadata(cluster, "--watch", "--interval", "0.1").splitlines()
    assert {line.split(" ", 1)[1] for line in lines[7:]} >= {
        "orders-0: leader 0 -> 1",
        f"broker 0: address {address(cluster)} -> unknown",
    }


@pytest.mark.usefixtures("controller")
def test_watch_says_that_nobody_answers_and_goes_on_when_a_broker_is_back(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill_all() -> None:
        for member in cluster:
            cluster.kill(member.id)

    left = after_each_view(monkeypatch, kill_all, lambda: cluster.restart(0))
    result = run_kproto("metadata", "--bootstrap", address(cluster), "--watch", "--interval", "0.1")
    assert result.exit_code == 0
    assert "no node answers at 127.0.0.1:" in result.stderr
    assert result.stdout.startswith("cluster kproto")
    assert not left


def test_watch_without_any_node_ends_at_once(cluster: EmbeddedCluster) -> None:
    cluster.kill(0)
    result = run_kproto("metadata", "--bootstrap", address(cluster), "--watch", "--interval", "3600")
    assert result.exit_code == 2
    assert f"no node answers at {address(cluster)}" in result.stderr


def test_the_next_bootstrap_node_is_asked_if_the_first_is_down(cluster: EmbeddedCluster) -> None:
    down = address(cluster, 1)
    cluster.kill(1)
    result = run_kproto("metadata", "--bootstrap", down, "--bootstrap", address(cluster))
    assert result.exit_code == 0
    assert f"according to {address(cluster)}" in result.stdout


@pytest.mark.usefixtures("controller")
def test_the_next_bootstrap_node_is_asked_if_the_first_cannot_say(cluster: EmbeddedCluster) -> None:
    """It knows no brokers yet, is too old, is no Kafka at all, or is not there."""

    class Web(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    with EmbeddedCluster(2) as other, socketserver.TCPServer(("127.0.0.1", 0), Web) as stranger:
        answering = threading.Thread(target=stranger.handle_request)
        answering.start()
        too_old = messages.ApiVersionsResponse(
            api_keys=[messages.ApiVersion(api_key=key, min_version=0, max_version=3) for key in (3, 18)]
        )
        other[1].intercept(Interception(answer=too_old), ApiKey.API_VERSIONS)
        web = f"127.0.0.1:{stranger.server_address[1]}"
        for each in address(other, 0), address(other, 1), web, "no.such.host:9092":
            result = run_kproto("metadata", "--bootstrap", each, "--bootstrap", address(cluster))
            assert result.exit_code == 0, each
            assert f"according to {address(cluster)}" in result.stdout
        answering.join(60)
        alone = run_kproto("metadata", "--bootstrap", address(other, 1))
        assert alone.exit_code == 2
        assert "Metadata" in alone.stderr


def test_a_node_that_is_silent_is_waited_for_no_longer_than_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        result = run_kproto("metadata", "--timeout", "0.05", "--bootstrap", where, "--bootstrap", where)
    assert result.exit_code == 2
    assert result.stderr.count(f"no connection to {where} within 50 ms") == 2


# ---- --wait ----------------------------------------------------------------------------------------------------------


def test_waiting_ends_when_the_topic_is_created(cluster: EmbeddedCluster, controller: ScriptedController) -> None:
    asked = threading.Event()
    cluster[0].broker.hooks.answered = lambda context, *_: asked.set() if context.api_key == ApiKey.METADATA else None
    printed: list[str] = []
    arguments = ("--topic", "later", "--topic", "orders", "--wait", "--format", "json")
    waiting = threading.Thread(target=lambda: printed.append(metadata(cluster, *arguments)))
    waiting.start()
    assert asked.wait(60)
    controller.create_topic("later", assignment=[[1]])
    waiting.join(60)
    (text,) = printed
    assert {row["topic"]: row["leader"] for row in json.loads(text)["partitions"]} == {"later": 1, "orders": 1}


@pytest.mark.usefixtures("controller")
def test_a_topic_that_is_not_created_in_time_is_an_error(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_topic = MetadataSender.wait_for_topic

    def wait(sender: MetadataSender, topic: str) -> Any:
        wait_for_topic(sender, "orders", max_block_ms=60_000)  # the cluster has answered when the time begins
        return wait_for_topic(sender, topic)

    monkeypatch.setattr(MetadataSender, "wait_for_topic", wait)
    arguments = ["--topic", "none", "--wait", "--timeout", "0.05"]
    result = run_kproto("metadata", "--bootstrap", address(cluster), *arguments)
    assert result.exit_code == 2
    assert "topic none did not become known within 50 ms" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [(["--wait"], "add --topic"), (["--wait", "--topic", "t", "--watch"], "leave out --watch")],
)
def test_waiting_is_for_topics_alone(arguments: list[str], why: str) -> None:
    result = run_kproto("metadata", "--bootstrap", "127.0.0.1:1", *arguments)
    assert result.exit_code == 2
    assert why in result.stderr
