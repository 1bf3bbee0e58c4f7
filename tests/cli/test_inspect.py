"""``kproto inspect``: equal to what the brokers logged, readable for people, and clear when there is nothing to see."""

import gzip
import ipaddress
import json
import re
import subprocess
import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import packets as make
import pytest
from commands import kproto_on_a_terminal, kproto_prints, kproto_rows, run_kproto
from conftest import DATA, few, path, read_jsonl
from table_truth import NAMES_WITH_TRUTH

from channel.network.recorder import PcapngRecorder
from kproto.cli.text import is_styled

CAPTURES = DATA / "captures"
KEYS = [
    *("record", "time", "server", "client", "api_key", "api_version", "correlation_id", "client_id"),
    *("request", "response", "latency_ms"),
    *("api", "broker_id", "controller_id", "controller_epoch", "broker_epoch"),
    *("outcome", "error_code", "error_name", "partition_errors", "reason", "changes"),
]
ANSI = re.compile(r"\x1b\[[0-9;]*m")


inspect = partial(run_kproto, "inspect")
objects = partial(kproto_rows, "inspect")


def lines(*arguments: str) -> list[str]:
    return kproto_prints("inspect", *arguments).splitlines()


def endpoint(text: str) -> str:
    """An end of a connection as a broker logs it, as ``inspect`` writes it."""
    host, _, port = text.rpartition(":")
    ip = ipaddress.ip_address(host)
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


def name_of(connection: str) -> tuple[str, str]:
    """Server and client of ``server:port-client:port-n``."""
    server, client, _ = connection.split("-")
    return endpoint(server), endpoint(client)


@pytest.mark.parametrize("name", NAMES_WITH_TRUTH)
def test_every_request_that_a_broker_logged_is_shown_equal(name: str) -> None:
    shown: dict[Any, list[dict[str, Any]]] = {}
    for row in objects(path(name)):
        if row["record"] == "loss":
            assert (name, row["partial_starts"], row["gaps"]) == ("ibp-3.9-a-cut", 1, 0)
            continue
        key = row["server"], row["client"], row["correlation_id"], row["api_key"], row["api_version"]
        shown.setdefault(key, []).append(row)
    missing = wanted = 0
    for row in read_jsonl(CAPTURES / f"{name}.truth.jsonl.gz"):
        if row["api_key"] in (4, 5, 6) and row["in_capture"]:
            wanted += 1
            key = *name_of(row["connection"]), row["correlation_id"], row["api_key"], row["version"]
            missing += not any(
                # brokers log a null client id as the empty one
                (found["client_id"] or "", found["request"], found["response"])
                == (row["client_id"], row["request"], row["response"])
                for found in shown.get(key, [])
            )
    assert wanted > 0
    assert not missing, f"{missing} of {wanted}"


def test_json_has_the_same_keys_on_every_line() -> None:
    rows = objects(path("external-controller-a"))
    assert all([k for k in row if k != "error"] == KEYS for row in rows)
    unreadable = [row for row in rows if "error" in row]
    assert len(unreadable) == 8
    assert all(row["request"] is None for row in unreadable)
    assert {row["api_version"] for row in unreadable if "has no version" in row["error"]} == {8, 5, 9, -1, 99}
    assert all(type(row["time"]) is float for row in rows)


def test_one_command_tells_who_told_a_broker_what_and_when() -> None:
    shown = lines(path("ibp-3.9-a"), "--broker", "2", "--partition", "0r-jnuWj87v-p-1")
    assert len(shown) == 34
    assert re.split(" {2,}", shown[0]) == [
        *("2026-11-20T19:34:52.361Z", "2 → 2", "LeaderAndIsr v7", "#3", "1/58", "665.0 ms", "ok"),
        *("0r-jnuWj87v-p-1", "new", "leader 1 epoch 0", "isr 1,2,0", "replicas 1,2,0"),
    ]
    assert any("leader 1→2 epoch 1→2  isr 1,2→2  replicas 1,2,0  offline replicas 0→1,0" in line for line in shown)
    assert any(
        "ok, 1 of 1 partitions: STALE_CONTROLLER_EPOCH  leader epoch 4 is not newer than 4 (no zombie); "
        "0r-jnuWj87v-p-1  refused  leader 1 epoch 4" in line
        for line in shown
    )


def test_the_same_filters_choose_the_same_requests_in_json() -> None:
    rows = objects(path("ibp-3.9-a"), "--broker", "2", "--partition", "0r-jnuWj87v-p-1")
    assert len(rows) == 34
    assert {row["server"] for row in rows} == {"127.0.0.1:19094"}


def test_a_topic_is_told_partition_by_partition() -> None:
    shown = lines(path("ibp-3.9-a"), "--topic", "0r*", "--api", "LeaderAndIsr", "--broker", "2")
    at = next(i for i, line in enumerate(shown) if line.endswith("new: 0r-jnuWj87v-p[0-2]"))
    assert shown[at + 1 : at + 4] == [
        "    0r-jnuWj87v-p-0  new  leader 0 epoch 0  isr 0,1,2  replicas 0,1,2",
        "    0r-jnuWj87v-p-2  new  leader 2 epoch 0  isr 2,0,1  replicas 2,0,1",
        "    0r-jnuWj87v-p-1  new  leader 1 epoch 0  isr 1,2,0  replicas 1,2,0",
    ]


def test_details_tell_states_errors_and_live_brokers() -> None:
    shown = lines(path("external-controller-a"), "--errors", "-v")
    assert "    made.by-python_1-0  refused  leader 1 epoch 9  isr 0,1  replicas 0,1  INCONSISTENT_TOPIC_ID" in shown
    assert "    made.by-python_1-0  refused  delete leader epoch 0  FENCED_LEADER_EPOCH" in shown
    assert "    broker 0  PLAINTEXT://127.0.0.1:29092" in shown


def test_errors_only_leaves_out_what_went_well() -> None:
    everything, failed = objects(path("external-controller-a")), objects(path("external-controller-a"), "--errors")
    assert 0 < len(failed) < len(everything)
    for row in failed:
        assert "error" in row or re.search(r'"errorCode": -?[1-9]', json.dumps(row["response"]))
    well = [row for row in everything if row not in failed]
    assert not any("error" in row or re.search(r'"errorCode": -?[1-9]', json.dumps(row["response"])) for row in well)


def test_time_api_and_ports_are_filters_too() -> None:
    everything = objects(path("ibp-3.9-a"))
    middle = everything[len(everything) // 2]["time"]
    before, after = (objects(path("ibp-3.9-a"), option, f"{middle:.6f}") for option in ("--until", "--since"))
    assert before + after == everything
    assert {row["api_key"] for row in objects(path("ibp-3.9-a"), "--api", "5", "--api", "UpdateMetadata")} == {5, 6}
    one = objects(path("ibp-3.9-a"), "--ports", "19093")
    assert one == [row for row in everything if row["server"] == "127.0.0.1:19093"]


def test_other_requests_are_shown_when_asked_for() -> None:
    rows = objects(path("ibp-3.9-a"), "--all-apis")
    assert {3, 4, 5, 6, 7, 18, 56} <= {row["api_key"] for row in rows}
    (altered, *_) = (row for row in rows if row["api_key"] == 56)
    assert altered["request"]["topics"]
    assert altered["response"]["errorCode"] == 0
    assert objects(path("ibp-3.9-a"), "--api", "AlterPartition") == [row for row in rows if row["api_key"] == 56]
    told = inspect(path("ibp-3.9-a")).stderr
    assert "other requests, for --all-apis:" in told
    assert "23 AlterPartition" in told


def test_a_summary_goes_to_standard_error() -> None:
    result = inspect(path("ibp-3.9-a"))
    assert result.stderr.startswith(
        "348 of 348 requests shown: 92 LeaderAndIsr, 30 StopReplica, 226 UpdateMetadata; "
        "333 ok, 15 ok with errors of single partitions\n"
    )
    assert "requests shown" not in result.stdout
    assert inspect(path("ibp-3.9-a"), "--format", "json").stderr == ""


def test_filters_that_match_nothing_say_where_to_look() -> None:
    result = inspect(path("ibp-3.9-a"), "--partition", "nosuch-0")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no request matches the filters; the captures reach from 2026-11-20T19:34:" in result.stderr


def test_brokers_told_go_before_brokers_learnt() -> None:
    shown = lines(path("ibp-3.9-a"), "--brokers", "77=127.0.0.1:19094", "--broker", "77")
    assert shown
    assert all(" → 77 " in line for line in shown)


@pytest.mark.slow
def test_several_captures_are_shown_as_one_by_time() -> None:
    earlier, later = objects(path("ibp-3.9-a")), objects(path("ibp-2.8-a"))
    assert objects(path("ibp-2.8-a"), path("ibp-3.9-a")) == earlier + later
    split = [["--ports", str(port)] for port in (19092, 19093, 19094)]
    one_by_one = [row for ports in split for row in objects(path("ibp-3.9-a"), *ports)]
    assert sorted(one_by_one, key=lambda row: row["time"]) == earlier


def request_log(name: str, broker: int) -> str:
    """What a broker's kafka-request.log says of the requests in the truth of a capture."""
    text = []
    for row in read_jsonl(CAPTURES / f"{name}.truth.jsonl.gz"):
        if row["broker"] == broker:
            header = {"requestApiKey": row["api_key"], "requestApiVersion": row["version"]}
            header |= {"correlationId": row["correlation_id"], "clientId": row["client_id"]}
            entry = {k: row[k] for k in ("request", "response", "connection")} | {"totalTimeMs": row["total_time_ms"]}
            moment = datetime.fromtimestamp(row["time"]).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
            logged = json.dumps({"requestHeader": header, **entry})
            text.append(f"[{moment}] DEBUG Completed request:{logged} (kafka.request.logger)\n")
    return "".join(text)


def test_the_brokers_own_request_logs_are_captures_too(tmp_path: Path) -> None:
    logs = []
    for broker in range(3):
        file = tmp_path / f"kafka-request.log.{broker}"
        file.write_text(request_log("ibp-3.9-a", broker))
        logs.append(str(file))
    logged, captured = objects(*logs), objects(path("ibp-3.9-a"))

    def facts(rows: list[dict[str, Any]]) -> set[str]:
        return {json.dumps([row[k] for k in KEYS if k in ("server", "client", "request", "response")]) for row in rows}

    assert facts(logged) <= facts(captured)
    assert len(logged) == sum(row["api_key"] in (4, 5, 6) for row in read_jsonl(CAPTURES / "ibp-3.9-a.truth.jsonl.gz"))
    assert [row["time"] for row in logged] == sorted(row["time"] for row in logged)
    assert lines(*logs, "--broker", "2", "--partition", "0r-jnuWj87v-p-1")


@pytest.mark.parametrize("form", ["text", "json"])
def test_standard_input_is_read_like_a_file(form: str) -> None:
    data = gzip.decompress((CAPTURES / "ibp-3.9-a.pcap.gz").read_bytes())
    from_file = inspect(path("ibp-3.9-a"), "--format", form)
    from_pipe = inspect("-", "--format", form, input=data)
    assert from_pipe.exit_code == 0
    assert sorted(from_pipe.stdout.splitlines()) == sorted(from_file.stdout.splitlines())


def test_a_pipe_is_followed_as_it_grows() -> None:
    data = gzip.decompress((CAPTURES / "ibp-3.9-a.pcap.gz").read_bytes())
    arguments = [sys.executable, "-m", "kproto", "inspect", "-", "--format", "json"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(data[:50_000])
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["correlation_id"] == 0  # before the input has ended
        rest, _ = process.communicate(data[50_000:], timeout=60)
        assert len(rest.splitlines()) == 347
        assert process.returncode == 0


def test_a_terminal_gets_colour_headings_and_its_own_width() -> None:
    text = kproto_on_a_terminal("inspect", path("ibp-3.9-a"), "--topic", "0r*", columns=100)
    assert "\x1b[" in text
    shown = ANSI.sub("", text).splitlines()
    assert shown[0] == "2026-11-20 (UTC)"
    assert shown[1].split("  ")[0] == "time"
    assert shown[2].startswith("19:34:52.353  2 → 1      LeaderAndIsr")
    assert sum(line.startswith("2026") for line in shown) == 1
    assert max(len(line) for line in shown[:-1]) <= 100


@pytest.mark.parametrize(("environment", "styled"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_output_is_styled_where_a_terminal_and_its_user_want_it(
    environment: dict[str, str], styled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert not is_styled()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert is_styled() is styled


@pytest.mark.parametrize("columns", few([40, 60]))
def test_nothing_is_cut_on_a_narrow_terminal_if_asked_for(columns: int) -> None:
    cut, whole = (
        ANSI.sub(
            "", kproto_on_a_terminal("inspect", path("ibp-3.9-a"), "--topic", "0r*", *wide, columns=columns)
        ).splitlines()
        for wide in ((), ("--wide",))
    )
    assert max(map(len, cut[:-1])) <= columns < max(map(len, whole[:-1]))


def test_a_wide_terminal_has_states_in_columns_as_a_pipe_has() -> None:
    words = ("inspect", path("ibp-3.9-a"), "--topic", "0r*")
    in_a_pipe, wide = kproto_prints(*words), kproto_on_a_terminal(*words, columns=300, NO_COLOR="1")
    states, shown = ([line for line in text.splitlines() if line[:4] == "    "] for text in (in_a_pipe, wide))
    assert shown == states
    assert any("   " in line.strip() for line in states)


def test_in_a_pipe_there_is_no_colour_unless_asked_for() -> None:
    assert "\x1b[" not in "".join(lines(path("ibp-3.9-a")))
    coloured = lines(path("ibp-3.9-a"), "--color", "always")
    assert [ANSI.sub("", line) for line in coloured] == lines(path("ibp-3.9-a"))
    assert all("\x1b[" in line for line in coloured)


def test_strict_counts_as_unreadable_what_kafka_lets_pass() -> None:
    body = bytes.fromhex("000000010200000002ffffffffffffffff010100")  # a boolean of 2
    talk = make.Talk().open()
    talk.ask(make.request(6, 8, 0, body)).answer(make.response(6, 8, 0, b"\0\0\0"))
    capture = make.pcap(talk.close().packets)
    assert "  ok  " in inspect("-", input=capture).stdout
    strict = inspect("-", "--strict", input=capture)
    assert "cannot be read" in strict.stdout
    assert "is_kraft_controller" in strict.stdout
    row = json.loads(inspect("-", "--strict", "--format", "json", input=capture).stdout)
    assert row["request"] is None
    assert "is_kraft_controller" in row["error"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "an empty file"),
        (b"hello, this is text\n", "not a capture"),
        (b"PK\x03\x04 and so on", "a zip archive; unpack it first"),
        (bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"), "a capture without packets"),
    ],
    ids=["empty", "text", "zip", "no packets"],
)
def test_what_is_no_capture_is_one_line_with_the_reason(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "some.pcap"
    file.write_bytes(content)
    result = inspect(str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("kproto: ")
    assert "some.pcap: " in result.stderr
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_capture_without_the_wanted_api_says_so() -> None:
    result = inspect(path("ibp-3.9-a"), "--api", "BrokerHeartbeat")
    assert result.exit_code == 2
    assert "no BrokerHeartbeat request; without --api it shows 348 control requests" in result.stderr


def test_a_directory_is_read_as_the_captures_in_it(tmp_path: Path) -> None:
    result = inspect(str(tmp_path))
    assert result.exit_code == 2
    assert "a directory without a capture" in result.stderr
    (tmp_path / "control.pcap.gz").write_bytes((CAPTURES / "ibp-3.9-a.pcap.gz").read_bytes())
    (tmp_path / "README").write_text("no capture")
    assert inspect(str(tmp_path)).stdout == inspect(path("ibp-3.9-a")).stdout


def test_help_shows_the_tcpdump_line_that_makes_a_usable_capture() -> None:
    result = inspect("--help")
    assert "tcpdump -i any -s 0 -w control.pcap 'tcp port 9092 or tcp port 9091'" in result.stdout
    assert "tcpdump -i any -s 0 -U -w - 'tcp port 9092' | kproto inspect -" in result.stdout


def test_what_a_recording_lost_is_told_in_one_line(tmp_path: Path) -> None:
    """A packet that was changed, and an end that was cut: neither is blamed on the capture."""
    ends = ("127.0.0.1", 50000), ("127.0.0.1", 9092)
    request = make.request(6, 8, 1, make.UPDATE_METADATA_8)
    recording = tmp_path / "recording.pcapng"
    with PcapngRecorder(recording) as recorder:
        recorder.opened(*ends, make.START_NS)
        for number in range(8):
            recorder.record("sent", *ends, make.START_NS + number, [request])
    data = bytearray(recording.read_bytes())
    data[data.index(request, data.index(request) + 1) + 20] ^= 1
    recording.write_bytes(data[:-40])
    result = inspect(str(recording))
    assert result.exit_code == 0
    assert result.stderr.splitlines()[1:] == [
        f"warning: {recording}: missing: {len(request)} bytes in 1 gap; 1 packet, left out: not the recorded checksum; "
        "1 piece could not be used, first: the file ends within a block"
    ]
    recording.write_bytes(bytes(data).replace(b"\2\0\0\0\0\2", b"\2\0\0\0\0\3"))  # every packet's address
    result = inspect(str(recording))
    assert (result.exit_code, result.stderr) == (
        2,
        f"kproto: {recording}: no packet in it matches the checksum recorded with it; take the original file\n",
    )
