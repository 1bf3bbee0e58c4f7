"""``inspect`` names brokers by their ids, and says why there is nothing to see."""

import re
from pathlib import Path
from typing import Any

import packets as make
import pytest
from commands import run_kproto
from control_messages import broker, leader_and_isr, leader_state, metadata_state, stop_replica, update_metadata

import kproto
from kproto.api import ApiKey
from kproto.capture import Endpoint

TWO = Endpoint("10.0.0.2", 9092)


def talk(client: int, server: Endpoint, *requests: Any, port: int = 50_000) -> list[make.Packet]:
    """A controller's connection on which each request is answered well."""
    talk = make.Talk(client=(f"10.0.1.{client}", port), server=server)
    talk.now_ns += client * 1_000_000_000
    talk.open()
    for number, message in enumerate(requests):
        version = ApiKey(message.api_key).info.max_version
        talk.ask(make.request(message.api_key, version, number, kproto.encode(message, version), str(client)))
        answer = message.error_response(0)
        talk.answer(make.response(message.api_key, version, number, kproto.encode(answer, version)))
    return talk.close().packets


def inspect(*arguments: str, packets: list[make.Packet]) -> Any:
    data = make.pcap(sorted(packets, key=lambda p: p.time_ns))
    result = run_kproto("inspect", "-", *arguments, input=data)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_a_broker_that_is_known_by_no_address_is_shown_by_its_own() -> None:
    request = update_metadata(
        {"orders": [metadata_state(3, 2, epoch=14)]}, [broker(7, host="kafka-7"), broker(8, host="kafka-8")]
    )
    result = inspect(packets=talk(1, TWO, request))
    assert " 2 → 10.0.0.2:9092  UpdateMetadata v8 " in result.stdout
    assert result.stdout.rstrip().endswith("live brokers 7-8; orders[3] first seen")
    result = inspect("--broker", "7", packets=talk(1, TWO, request))
    assert result.stdout == ""
    assert (
        "1 request to brokers whose id the traffic does not tell were left out; name them with --brokers"
        in result.stderr
    )
    result = inspect("--broker", "7", "--brokers", "7=10.0.0.2:9092", packets=talk(1, TWO, request))
    assert " 2 → 7 " in result.stdout


@pytest.mark.parametrize(
    "words",
    [["inspect"], ["summary"], ["doctor"], ["query", "B", "leader"], ["report"], ["check"], ["top", "--once"],
     ["analyze", "--out", "tables"], ["replay", "--to", "127.0.0.1:1"]],
    ids=" ".join,
)  # fmt: skip
def test_captures_that_lie_deeper_are_named_with_what_to_type(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for host in "broker-1", "broker-2":
        Path("b", host, "logs").mkdir(parents=True)
        Path("b", host, "logs", "control.pcap").write_bytes(make.pcap(talk(1, TWO, update_metadata({}, []))))
    words = ["b" if word == "B" else word for word in words] if "B" in words else [*words, "b"]
    result = run_kproto(*words)
    assert result.exit_code == 2
    said = r"(?:kproto: )?(\S*)b: captures or logs lie deeper in it; name their directories: \1b/\*/logs\n"
    assert re.fullmatch(said, result.stderr), result.stderr


def test_ids_learnt_late_name_the_requests_before_them(tmp_path: Any) -> None:
    """A file is read ahead a little, so that what was sent before the first UpdateMetadata has its broker too."""
    early = leader_and_isr({"orders": [leader_state(3, 7, replicas=[7, 8], isr=[7, 8])]})
    late = update_metadata({}, [broker(7, host="10.0.0.2"), broker(8, host="10.0.0.3")])
    file = tmp_path / "late.pcap"
    file.write_bytes(make.pcap(talk(1, TWO, early, late)))
    result = run_kproto("inspect", file, "--broker", "7")
    assert [line.split("  ")[2].strip() for line in result.stdout.splitlines()] == [
        "LeaderAndIsr v7",
        "UpdateMetadata v8",
    ]


def test_what_the_wire_says_cannot_drive_the_terminal() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202e\r\n"
    request = update_metadata({evil: [metadata_state(0, 2)]}, [broker(7, host=evil)])
    result = inspect("--details", "--topic", "*", packets=talk(1, TWO, request))
    assert "\\x1b[2J" in result.stdout
    assert not set(result.stdout) & {"\x1b", "\x07", "\r", "\u202e"}


def test_a_long_client_id_does_not_push_the_columns_away() -> None:
    talk = make.Talk().open()
    talk.ask(make.request(18, 0, 0, b"", "x" * 30_000)).answer(make.response(18, 0, 0, bytes.fromhex("000000000000")))
    (line,) = inspect("--all-apis", packets=talk.packets).stdout.splitlines()
    assert len(line) < 200


def test_a_packet_beyond_all_times_is_told_and_left_out() -> None:
    near, far = (
        talk(1, TWO, update_metadata({}, [broker(7, host="10.0.0.2")])),
        talk(2, TWO, update_metadata({}, [broker(7, host="10.0.0.2")])),
    )
    far = [make.Packet(p.time_ns + 10**12 * 10**9, p.data, p.on_wire) for p in far]
    ng = make.section() + make.interface() + b"".join(make.enhanced(p) for p in [*far, *near])
    result = run_kproto("inspect", "-", input=ng)
    assert result.exit_code == 0
    assert result.stdout.count("UpdateMetadata v8") == 1
    assert "a packet whose time lies before 1970 or after 2262" in result.stderr


def test_tls_is_named_as_the_reason() -> None:
    talk = make.Talk().open()
    talk.ask(bytes.fromhex("1603010200010001fc0303") + bytes(506)).answer(
        bytes.fromhex("160303005a020000560303") + bytes(84)
    )
    for _ in range(3):
        talk.ask(b"\x17\x03\x03\x00\x40" + bytes(range(64))).answer(b"\x17\x03\x03\x00\x40" + bytes(range(64)))
    result = inspect(packets=talk.close().packets)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "TLS inside" in result.stderr
    assert "capture a PLAINTEXT listener" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_kraft_clusters_traffic_is_named_as_the_reason() -> None:
    talk = make.Talk().open()
    heartbeat = bytes.fromhex("0000000100000000000000010000000000000002000000")
    for number in range(4):
        talk.ask(make.request(63, 1, number, heartbeat, "1"))
        talk.answer(make.response(63, 1, number, bytes.fromhex("0000000000000000010000")))
    result = inspect(packets=talk.close().packets)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "KRaft" in result.stderr
    assert result.stderr.count("\n") == 1


def test_kafka_without_control_requests_is_named_as_the_reason() -> None:
    talk = make.Talk().open()
    for number in range(4):
        talk.ask(make.request(18, 0, number, b"", "probe"))
        talk.answer(make.response(18, 0, number, bytes.fromhex("000000000000")))
    result = inspect(packets=talk.close().packets)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no control request" in result.stderr
    assert result.stderr.count("\n") == 1
    assert inspect("--all-apis", packets=talk.packets).stdout.count("ApiVersions v0") == 4


def test_a_kraft_controllers_request_without_a_type_has_none() -> None:
    requests = [
        stop_replica({"orders": [(0, 4, True)]}, is_kraft_controller=True),
        update_metadata({}, [broker(7, host="10.0.0.2")], is_kraft_controller=True, type=2),
    ]
    stop, update = inspect(packets=talk(1, TWO, *requests)).stdout.splitlines()[:2]
    assert "KRaft full" in update
    assert "KRaft" in stop
    assert "incremental" not in stop
    assert "full" not in stop
