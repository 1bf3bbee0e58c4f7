"""Commands by HTTP: steps, reports and states as JSON, and the requests that are refused."""

import contextlib
import http.client
import json
import socket
import threading

import pytest
from scripted_fleet import ScriptedFleet

from channel.network import http_door
from channel.rehearsal.command_server import CommandServer, FleetCommands
from kproto.errors import ConfigurationError

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def fleet():
    with ScriptedFleet(3) as made:
        yield made


@pytest.fixture
def reports():
    return []


@pytest.fixture
def stopped():
    return threading.Event()


@pytest.fixture
def server(fleet, reports, stopped):
    with CommandServer(FleetCommands(fleet, reports.append), "127.0.0.1", 0, stopped.set) as made:
        yield made


def ask(server, method, path, body=None, headers=JSON):
    connection = http.client.HTTPConnection(*server.address, timeout=30)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def step(server, line):
    return ask(server, "POST", "/steps", json.dumps({"step": line}))


@pytest.mark.slow
def test_steps_are_taken_and_reported(server, fleet, reports):
    status, killed = step(server, "kill 0")
    assert (status, killed["step"], killed["broker_ids"], killed["heard"]) == (200, "kill 0", [0], 2)
    assert not fleet[0].is_up
    status, slowed = step(server, "slow random:1 0.25")
    assert (status, fleet.delays) == (200, {slowed["broker_ids"][0]: 0.25})
    assert (step(server, "pause 1")[0], fleet[1].is_paused) == (200, True)
    assert step(server, "resume 1")[0] == 200
    status, bounced = step(server, "restart 0")
    assert (status, bounced["heard"]) == (200, 3)
    assert ask(server, "GET", "/events") == (200, reports)
    assert [event["step"].split()[0] for event in reports] == ["kill", "slow", "pause", "resume", "restart"]


def test_the_state_of_the_brokers(server, fleet):
    fleet.controller_id = 2
    fleet.pause(1)
    fleet.kill(0)
    status, brokers = ask(server, "GET", "/brokers")
    assert status == 200
    assert [(b["broker_id"], b["up"], b["paused"], b["leads_cluster"]) for b in brokers] == [
        (0, False, False, False),
        (1, True, True, False),
        (2, True, False, True),
    ]
    assert (brokers[2]["port"], brokers[2]["broker_epoch"]) == (fleet[2].port, fleet[2].epoch)
    fleet.resume(1)


def test_stop_is_handed_on(server, stopped):
    assert step(server, "stop") == (200, {"step": "stop"})
    assert stopped.wait(60)


@pytest.fixture
def long_step(monkeypatch):
    """When a step has begun, and what ends it."""
    begun, release = threading.Event(), threading.Event()

    def long_step(fleet, steps):
        begun.set()
        assert release.wait(60)
        raise ValueError("ended by the test")
        yield

    monkeypatch.setattr("channel.rehearsal.command_server.rehearse", long_step)
    return begun, release


def test_a_step_while_another_is_taken_is_refused(server, long_step):
    begun, release = long_step
    first = threading.Thread(target=step, args=(server, "wait 1"))
    first.start()
    try:
        assert begun.wait(60)
        status, answer = step(server, "kill 0")
        assert (status, answer) == (409, {"error": "another step is being taken; try again once it is over"})
    finally:
        release.set()
        first.join(60)
    assert step(server, "kill 0") == (400, {"error": "ended by the test"})


@pytest.mark.parametrize(
    ("body", "headers", "status", "error"),
    [
        ('{"step": "kill 9"}', JSON, 400, "no broker 9"),
        ('{"step": "explode 0"}', JSON, 400, "no action 'explode'"),
        ('{"step": "kill controller"}', JSON, 400, "no broker of the fleet leads the cluster"),
        ('{"step": 1}', JSON, 400, "JSON object like"),
        ("{}", JSON, 400, "JSON object like"),
        ("kill 0", JSON, 400, "JSON object like"),
        ("[" * 60_000, JSON, 400, "JSON object like"),
        ('{"step": "kill 0"}', {"Content-Type": "text/plain"}, 415, "application/json"),
        (" " * 70_000, JSON, 413, "at most 65536"),
    ],
)
def test_refused_requests(server, fleet, body, headers, status, error):
    answered, answer = ask(server, "POST", "/steps", body, headers)
    assert answered == status
    assert error in answer["error"]
    assert all(member.is_up for member in fleet)


def test_other_paths_are_not_found(server):
    for method in "GET", "POST":
        status, answer = ask(server, method, "/")
        assert (status, "POST /steps" in answer["error"]) == (404, True)


def test_other_methods_and_strangers_bytes_are_refused_in_json(server):
    status, answer = ask(server, "DELETE", "/steps")
    assert (status, answer["error"]) == (501, "Unsupported method ('DELETE')")
    with socket.create_connection(server.address, 20) as sock:
        sock.sendall(b"\x16\x03\x01 stranger HTTP/9.9\r\n\r\n")
        answer = sock.makefile("rb").read()
    assert b'{"error": "' in answer
    assert b"<html" not in answer


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:8080"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Host": "LOCALHOST:8080", "Origin": "http://LOCALHOST:8080"}, 200),
        ({"Host": "[::1]:8080"}, 200),
        ({"Host": "10.0.0.7"}, 200),
    ],
)
def test_a_request_of_another_site_is_refused(server, fleet, headers, status):
    assert ask(server, "GET", "/brokers", headers=headers)[0] == status
    assert ask(server, "POST", "/steps", '{"step": "kill 0"}', JSON | headers)[0] == status
    assert fleet[0].is_up == (status != 200)


def test_clients_that_send_slowly_keep_nobody_out(server):
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(server.address, 30)) for _ in range(20)]
        for each in slow:
            with contextlib.suppress(OSError):  # it has had to make room already
                each.sendall(b"GET /brokers HTTP/1.0\r\nHost:")
        for _ in range(3):
            assert ask(server, "GET", "/brokers")[0] == 200
        ended = 0
        for each in slow:
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                ended += each.recv(1) == b""
        assert ended < 10  # room is made for each new client, not more


def test_a_client_in_a_step_keeps_its_connection(server, long_step):
    begun, release = long_step
    answers = []
    first = threading.Thread(target=lambda: answers.append(step(server, "wait 1")))
    first.start()
    with contextlib.ExitStack() as stack:
        assert begun.wait(60)
        for _ in range(30):
            stack.enter_context(socket.create_connection(server.address, 30))
        assert ask(server, "GET", "/brokers")[0] == 200
        release.set()
        first.join(60)
    assert answers == [(400, {"error": "ended by the test"})]


@pytest.mark.parametrize("sends", [b"", b"x"])
def test_a_request_must_be_whole_in_time(server, monkeypatch, sends):
    monkeypatch.setattr(http_door, "REQUEST_S", 0.2)
    with socket.create_connection(server.address, 30) as slow:
        slow.settimeout(0.05)
        while True:  # one byte at a time, so that the connection is never silent for long
            try:
                slow.sendall(sends)
                assert slow.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                pass
            break


@pytest.mark.parametrize("head", [b"X: " + bytes(60_000) + b"\r\n", b"X: 1\r\n" * 99 + b"Y: " + b"y" * 64_000])
def test_a_head_without_end_is_refused(server, head):
    with socket.create_connection(server.address, 30) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(b"GET /brokers HTTP/1.0\r\n" + head * 40)
        with contextlib.suppress(ConnectionError):
            assert sock.recv(1000).startswith(b"HTTP/1.0 431")


def test_a_port_that_is_taken(server, fleet, reports, stopped):
    with pytest.raises(ConfigurationError, match="the port is in use; stop the process that uses it, or"):
        CommandServer(FleetCommands(fleet, reports.append), *server.address, stopped.set)
