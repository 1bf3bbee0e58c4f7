"""The commands that run brokers and speak to them, and the scenario whose recording must agree with its journal."""

import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
from functools import partial

import pytest
from commands import kproto_prints, kproto_running, run_kproto
from conftest import few
from free_ports import free_ports

from channel.broker.cluster import EmbeddedCluster
from channel.errors import BrokerNotAvailable
from channel.network.recorder import PcapngRecorder
from channel.rehearsal.scenario import EmbeddedScenario
from channel.rehearsal.scripted_controller import ScriptedController
from kproto.capture import exchanges
from kproto.cli.brokers import _printing_hooks
from kproto.cli.ending import Reader
from kproto.errors import ConfigurationError

UPDATE = {
    "controllerId": 1,
    "isKRaftController": False,
    "controllerEpoch": 2,
    "brokerEpoch": -1,
    "topicStates": [],
    "liveBrokers": [],
}


def test_brokers_answer_what_send_sends_and_tell_every_request():
    with kproto_running("brokers", "--count", "2", "--requests") as server:
        members = [json.loads(server.stdout.readline()) for _ in range(2)]
        assert [member["broker_id"] for member in members] == [0, 1]
        address = f"127.0.0.1:{members[1]['port']}"
        sent = kproto_prints("send", address, "--api", "UpdateMetadata", input=json.dumps(UPDATE))
        assert json.loads(sent) == {"errorCode": 0}
        stale = {**UPDATE, "controllerEpoch": 1}
        sent = kproto_prints("send", address, "--api", "6", "--api-version", "8", input=json.dumps(stale))
        assert json.loads(sent) == {"errorCode": 11}
        told = [json.loads(server.stdout.readline()) for _ in range(2)]
        assert [(t["broker_id"], t["request"], t["response"]) for t in told] == [
            (1, UPDATE, {"errorCode": 0}),
            (1, stale, {"errorCode": 11}),
        ]
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=120)
    assert server.returncode == 0
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("args", "text", "says"),
    [
        (["send", "nowhere", "--api", "6"], "{}", "no HOST:PORT"),
        (["send", "127.0.0.1:1", "--api", "6", "--api-version", "9"], "{}", "has no version 9"),
        (["send", "127.0.0.1:1", "--api", "6"], "[", "not JSON"),
        (["send", "127.0.0.1:1", "--api", "6", "--timeout", "nan"], json.dumps(UPDATE), "number of seconds"),
        (["send", "127.0.0.1:1", "--api", "6"], json.dumps(UPDATE), "the connection is refused: nothing listens"),
        (
            ["send", "a..b:9092", "--api", "6"],
            json.dumps(UPDATE),
            "a..b:9092 could not be reached: the name a..b cannot",
        ),
        (["send", "127.0.0.1:99999", "--api", "6"], "{}", "no HOST:PORT"),
        (["send", "127.0.0.1:1", "--api", "6"], "\udcff", "not JSON"),
        (["send", "127.0.0.1:1", "--api", "6", "--timeout", "inf"], "{}", "--timeout"),
        (
            ["metadata", "--bootstrap", "127.0.0.1:1", "--timeout", "0.2"],
            "",
            "no node answers: 127.0.0.1:1 could not be reached: the connection",
        ),
        (
            ["metadata", "--bootstrap", "a..b:9092"],
            "",
            "a..b:9092 could not be reached: the name a..b cannot be resolved. Check host and port",
        ),
        (["metadata", "--bootstrap", "127.0.0.1:1", "--watch", "--interval", "nan"], "", "number of seconds"),
        (["metadata", "--bootstrap", "127.0.0.1:1", "--timeout", "nan"], "", "number of seconds"),
        (["brokers", "--base-port", "70000"], "", "70000"),
        (["brokers", "--commands"], "", "--commands needs --zookeeper"),
        (["brokers", "--http", "0"], "", "--http needs --zookeeper"),
        (["brokers", "--elect"], "", "--elect needs --zookeeper"),
        (["brokers", "--advertised-host", "::1"], "", "--advertised-host needs --zookeeper"),
        (["brokers", "--quorum", "1@localhost:1"], "", "--quorum needs --zookeeper"),
        (["brokers", "--zookeeper", "localhost:1", "--quorum", "localhost:1"], "", "'localhost:1' is no ID@HOST:PORT"),
        (
            ["brokers", "--zookeeper", "localhost:1", "--quorum", "1@localhost:1", "--ibp", "2.8"],
            "",
            "needs inter.broker.protocol.version 3.4 or newer",
        ),
        (["brokers", "--zookeeper", "localhost:1", "--racks", "a,"], "", "a rack of --racks has no name"),
        (["brokers", "--zookeeper", "localhost:1", "--http", "0.0.0.0:x"], "", "'0.0.0.0:x' is no HOST:PORT"),
        (["brokers", "--zookeeper", "x:y:z"], "", "cannot use 'x:y:z' as ZooKeeper's address"),
        (["brokers", "--zookeeper", "127.0.0.1:1", "--ibp", "9.9"], "", "unknown inter.broker.protocol.version '9.9'"),
        (["brokers", "--base-port", "65534", "--count", "3"], "", "port 65536"),
        (
            ["tap", "--map", "127.0.0.1:0=127.0.0.1:1", "--out", "/no/such/directory/control.pcapng"],
            "",
            "cannot write /no/such/directory/control.pcapng: no such file or directory; choose another file with --out",
        ),
        (["brokers", "--host", "192.0.2.1"], "", "cannot listen at 192.0.2.1:0: this machine has no such address; try"),
    ],
)
def test_wrong_use_is_one_line(args, text, says):
    result = run_kproto(*args, input=text.encode("utf-8", "surrogateescape"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("num.partition=1", "did you mean 'num.partitions'"),
        ("broker.5.num.partitions=1", "has settings of broker 5; the brokers are 0-2"),
        ("broker.1.max.connections=1", "write max.connections for all of them"),
        ("ssl.client.auth=required", "put them into the file of --security"),
        ("authorizer.class.name=A", "names an authorizer; these brokers have none"),
    ],
)
def test_settings_that_no_broker_can_have_are_refused(tmp_path, setting, says):
    path = tmp_path / "brokers.properties"
    path.write_text(setting)
    result = run_kproto("brokers", "--config", path)
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", few([["brokers"], ["controller", "--id", "7"]]))
def test_a_signal_ends_the_search_for_zookeeper(command, number):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "kproto", *command, "--zookeeper", address], stderr=subprocess.PIPE
        )
        try:
            silent.settimeout(60)
            silent.accept()[0].close()
            process.send_signal(number)
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    # On a busy machine the search goes on, the signal comes when the controller's threads have begun, or the end of the
    # session, which nobody answers, is waited for no longer.
    slow = (
        rb"([-\d:, ]+ WARNING )?no ZooKeeper answers at [\d.:]+ yet; still trying, for \d+ s\n|[-\d:, ]+ INFO [^\n]*\n"
        rb"|([-\d:, ]+ WARNING )?zookeeper-session-closing has not ended within \d+ s\n"
    )
    said = re.sub(slow, b"", errors)
    assert (process.returncode, said) == (0, b"")


def test_the_status_of_a_silent_zookeeper_is_one_line(monkeypatch):
    class Silent:
        def __init__(self, *_):
            assert not logging.getLogger("kazoo.client").isEnabledFor(logging.WARNING), "it logs each attempt"
            raise ConfigurationError("no ZooKeeper answers")

    monkeypatch.setattr("channel.zookeeper.session.ZooKeeperSession", Silent)
    monkeypatch.setattr(logging.getLogger("kazoo"), "level", logging.NOTSET)
    result = run_kproto("controller", "--zookeeper", "127.0.0.1:1", "--status")
    assert (result.exit_code, result.stderr) == (2, "kproto: no ZooKeeper answers\n")


def test_closed_standard_streams_are_as_good_as_empty_ones():
    with subprocess.Popen(
        ["sh", "-c", f"exec {sys.executable} -m kproto brokers --count 1 <&- >&-"], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr.readline() == "1 broker listening; Ctrl-C ends them\n"
            process.terminate()
            assert (process.wait(120), process.stderr.read()) == (0, "")
        finally:
            process.kill()


def test_a_taken_port_is_told():
    with EmbeddedCluster(1) as cluster:
        result = run_kproto("brokers", "--count", "1", "--base-port", cluster[0].port)
    assert (result.exit_code, "in use" in result.stderr) == (2, True)


@pytest.mark.parametrize("seed", range(5))
def test_the_recording_holds_what_the_journal_says(seed, tmp_path):
    path = tmp_path / "recording.pcapng"
    with PcapngRecorder(path) as recorder:
        scenario = EmbeddedScenario(3, seed=seed, recorder=recorder)
        scenario.run()
    where = {str(member.port): member.id for member in scenario.cluster}
    journal = [
        (t.broker_id, t.api_key, t.version, t.error_code, t.message.to_json(t.version))
        for t in scenario.journal.entries
        if t.answered
    ]
    recorded = [
        (
            where[str(e.server.port)],
            e.api_key,
            e.api_version,
            e.response_message.error_code,
            e.request_message.to_json(e.api_version),
        )
        for e in exchanges(path)
        if e.response is not None
    ]

    def sort(rows):
        return sorted(rows, key=json.dumps)

    assert sort(recorded) == sort(journal)
    assert any(error == 11 for _, _, _, error, _ in journal)
    scenario.journal.wait(timeout_s=0)


def test_a_scenario_that_cannot_begin_leaves_nothing(monkeypatch):
    def fails(self):
        raise BrokerNotAvailable("too many open files")

    before = set(threading.enumerate())
    monkeypatch.setattr(EmbeddedCluster, "start", fails)
    with pytest.raises(BrokerNotAvailable):
        EmbeddedScenario(3).run()
    assert set(threading.enumerate()) <= before  # a thread of an earlier test may end meanwhile


def test_brokers_listen_at_the_base_port_and_their_id():
    port = free_ports(1)
    first = port - 100
    with kproto_running("brokers", "--count", "1", "--first-id", "100", "--base-port", first) as server:
        assert json.loads(server.stdout.readline()) == {"broker_id": 100, "host": "127.0.0.1", "port": port} | {
            "broker_epoch": 1
        }


def test_brokers_end_when_nobody_reads_their_requests():
    with kproto_running("brokers", "--count", "1", "--requests") as server:
        address = f"127.0.0.1:{json.loads(server.stdout.readline())['port']}"
        server.stdout.close()
        sent = kproto_prints("send", address, "--api", "6", input=json.dumps(UPDATE))
        assert json.loads(sent) == {"errorCode": 0}  # the answer does not depend on who watches
        assert server.wait(120) == 141
        assert "Traceback" not in server.stderr.read()


def test_the_demo_asks_for_pyspark_before_it_runs_anything(monkeypatch, tmp_path):
    monkeypatch.setattr("kproto.cli.demo.find_spec", lambda name: None)
    result = run_kproto("demo", "--out", tmp_path / "demo")
    assert result.exit_code != 0
    assert "kproto demo makes tables, which needs pyspark: pip install" in f"{result.output}{result.exception}"
    assert not (tmp_path / "demo").exists()


def test_each_request_that_a_broker_answers_is_one_line_of_json(capsys):
    reader = Reader()
    with (
        EmbeddedCluster(1, hooks=partial(_printing_hooks, reader=reader)) as cluster,
        ScriptedController(cluster, controller_id=5) as controller,
    ):
        controller.wait_all()
        (sent,) = controller.journal.entries
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (line["broker_id"], line["client_id"], line["api_key"], line["api_version"]) == (0, "5", 6, 8)
    assert line["request"] == sent.message.to_json(8)
    assert line["response"] == {"errorCode": 0}
    assert not reader.stop.is_set()


def test_send_reads_its_request_from_a_file(tmp_path):
    (tmp_path / "request.json").write_text(json.dumps(UPDATE))
    with EmbeddedCluster(1) as cluster:
        address = f"127.0.0.1:{cluster[0].port}"
        result = run_kproto("send", address, "--api", "6", "--file", tmp_path / "request.json")
    assert (result.exit_code, result.stdout) == (0, '{"errorCode": 0}\n')
