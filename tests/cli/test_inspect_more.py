"""``kproto inspect``: outcomes, changes, losses, the times that people type, and input that is not all right."""

import json
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jq
import packets as make
import pytest
from commands import kproto_rows, run_kproto
from conftest import path

from kproto.cli.times import moment_ns, parse_duration, span_of
from kproto.errors import ConfigurationError

inspect = partial(run_kproto, "inspect")
objects = partial(kproto_rows, "inspect")


# ---- outcomes and changes --------------------------------------------------------------------------------------------


def test_an_error_of_a_partition_is_not_that_of_its_request() -> None:
    everything = objects(path("external-controller-a"))
    refused = objects(path("external-controller-a"), "--errors", "request")
    partly = objects(path("external-controller-a"), "--errors", "partition")
    either = objects(path("external-controller-a"), "--errors")
    assert {row["outcome"] for row in refused} == {"refused", "unreadable"}
    assert all(row["error_code"] for row in refused if row["outcome"] == "refused")
    assert all(row["partition_errors"] for row in partly)
    assert {row["error_code"] for row in partly if row["outcome"] == "partition errors"} == {0}
    assert [row for row in everything if row in refused or row in partly] == either


def test_outcomes_in_the_footer_add_up() -> None:
    footer = inspect(path("external-controller-a")).stderr.splitlines()[0]
    total = int(footer.split(" of ")[0])
    outcomes = footer.split("; ")[1]
    assert sum(int(n) for n in re.findall(r"\d+(?= )", outcomes)) == total == 95


def test_changes_leave_out_what_told_a_broker_nothing_new() -> None:
    changed = objects(path("ibp-3.9-a"), "--changes")
    everything = objects(path("ibp-3.9-a"))
    assert changed == [row for row in everything if row["changes"]]
    assert 0 < len(changed) < len(everything)
    assert not any(row["outcome"] == "refused" for row in changed)


def test_what_changed_is_told_and_the_rest_counted() -> None:
    shown = inspect(path("ibp-3.9-a")).stdout
    assert re.search(r"leader 0→2 isr 2,0,1→2,1: 0r-jnuWj87v-p\[3\]", shown)
    assert re.search(r"live brokers 0-2→1-2; .*; unchanged \(9 more\)", shown)
    assert "deleted: " in shown


def test_slow_unanswered_deletes_and_controllers_are_filters() -> None:
    slow = objects(path("ibp-2.8-a"), "--slow", "750ms")
    assert len(slow) == 4
    assert all(row["latency_ms"] >= 750 for row in slow)
    silent = objects(path("external-controller-a"), "--unanswered")
    assert len(silent) == 8
    assert all(row["response"] is None for row in silent)
    deletes = objects(path("ibp-3.9-a"), "--deletes", "--api", "StopReplica")
    assert deletes
    for row in deletes:
        states = [state for topic in row["request"]["topicStates"] for state in topic["partitionStates"]]
        assert any(state["deletePartition"] for state in states)
    rows = objects(path("ibp-3.9-a"), "--controller", "0")
    assert {row["controller_id"] for row in rows} == {0}
    assert {row["controller_id"] for row in objects(path("ibp-3.9-a"), "--controller", "0,2")} == {0, 2}


def test_json_holds_only_the_partitions_asked_for() -> None:
    for row in objects(path("ibp-3.9-a"), "--partition", "0r-jnuWj87v-p-1"):
        named = [
            (topic["topicName"], state["partitionIndex"])
            for topic in row["request"]["topicStates"]
            for state in topic["partitionStates"]
        ]
        assert named == [("0r-jnuWj87v-p", 1)]
        errors = [e for topic in row["response"].get("topics", ()) for e in topic["partitionErrors"]]
        assert all(error["partitionIndex"] == 1 for error in errors)
    for row in objects(path("ibp-1.0-a"), "--topic", "*", "--broker", "1"):
        assert row["broker_id"] == 1
        assert row["api"] in ("LeaderAndIsr", "StopReplica", "UpdateMetadata")


def test_the_jq_lines_in_the_help_select_what_they_say() -> None:
    lines = inspect(path("external-controller-a"), "--format", "json").stdout
    programs = re.findall(r"--format json(?: \\\n)?\s*\| jq '([^']+)'", inspect("--help").stdout)
    assert len(programs) == 4
    refused, partly, slow, lost = (jq.compile(program).input_text(lines).all() for program in programs)
    rows = objects(path("external-controller-a"))
    assert len(refused) == sum(row["outcome"] == "refused" for row in rows) == 18
    assert all(row["error_name"] and row["time"] for row in refused)
    assert len(partly) == sum(len(row["partition_errors"]) for row in rows)
    assert slow == [r["broker_id"] for r in rows if r["latency_ms"] is not None and r["latency_ms"] > 500]
    assert len(slow) > 0
    assert lost == []
    lossy = inspect(path("ibp-3.9-a-lossy"), "--format", "json").stdout
    (loss,) = jq.compile(programs[3]).input_text(lossy).all()
    assert loss["gap_bytes"] > 0


def test_the_jq_lines_of_summary_select_what_they_say() -> None:
    printed = run_kproto("summary", path("external-controller-a"), "--format", "json").stdout
    programs = re.findall(r"--format json(?: \\\n)?\s*\| jq '([^']+)'", run_kproto("summary", "--help").stdout)
    refusals, slowest = (jq.compile(program).input_text(printed).all() for program in programs)
    assert all(row["error"] for row in refusals)
    assert len(refusals) == len(json.loads(printed)["refusals"])
    assert slowest == [{"broker_id": 0, "p99_ms": 2436.517}]


@pytest.mark.slow
def test_topics_are_found_in_requests_that_name_their_ids_alone() -> None:
    """AlterPartition v3 names topics by id; LeaderAndIsr and UpdateMetadata of the same capture tell the names."""
    capture = path("ibp-3.9-a")
    names = {}
    for row in objects(capture, "--api", "LeaderAndIsr"):
        names |= {topic["topicId"]: topic["topicName"] for topic in (row["request"] or {}).get("topicStates", ())}
    told = objects(capture, "--api", "AlterPartition")
    assert {row["api"] for row in told} == {"AlterPartition"}
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for row in told:
        for topic in row["request"]["topics"]:
            for partition in topic["partitions"]:
                by_topic.setdefault(f"{names[topic['topicId']]}-{partition['partitionIndex']}", []).append(row)
    assert len(by_topic) > 3
    for partition, rows in by_topic.items():
        assert objects(capture, "--all-apis", "--api", "AlterPartition", "--partition", partition) == rows
    topic = next(iter(by_topic)).rpartition("-")[0]
    shown = objects(capture, "--all-apis", "--topic", topic)
    wanted = [row for row in told if topic in {names[each["topicId"]] for each in row["request"]["topics"]}]
    assert [row for row in shown if row["api"] == "AlterPartition"] == wanted
    assert {row["api"] for row in shown} >= {"AlterPartition", "LeaderAndIsr", "UpdateMetadata", "CreateTopics"}


# ---- losses ----------------------------------------------------------------------------------------------------------


def test_a_capture_that_begins_inside_a_request_is_not_called_complete() -> None:
    """tcpdump was started while a request of several segments was on its way: that request is lost."""
    cut = path("ibp-3.9-a-cut")
    shown = inspect(cut, "--fail-on-loss")
    assert shown.exit_code == 3
    assert f"warning: {cut}: missing: the beginning of 1 message, before the capture" in shown.stderr
    summary = run_kproto("summary", cut, "--format", "line").stdout
    assert summary.strip().endswith("missing: the beginning of 1 message, before the capture")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_loss_is_a_warning_in_every_format_and_an_exit_code_where_asked(form: str) -> None:
    lossy = path("ibp-3.9-a-lossy")
    plain, strict = inspect(lossy, "--format", form), inspect(lossy, "--format", form, "--fail-on-loss")
    assert (plain.exit_code, strict.exit_code) == (0, 3)
    assert strict.stdout == plain.stdout
    assert f"warning: {lossy}: " in plain.stderr
    whole = inspect(path("ibp-3.9-a"), "--format", form, "--fail-on-loss")
    assert whole.exit_code == 0
    assert "warning" not in whole.stderr


def test_lost_bytes_are_records_of_their_own() -> None:
    rows = objects(path("ibp-3.9-a-lossy"))
    (loss,) = (row for row in rows if row["record"] == "loss")
    assert (loss["gaps"] > 0, loss["gap_bytes"] > 0) == (True, True)
    assert {row["record"] for row in rows} <= {"exchange", "loss", "bad_input"}


# ---- forgiving input -------------------------------------------------------------------------------------------------


def test_files_that_are_no_captures_are_skipped_if_one_is(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no capture")
    result = inspect(str(text), path("ibp-3.9-a"))
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 348
    assert result.stderr.startswith(f"warning: {text}: not a capture")
    nothing = inspect(str(text), str(tmp_path / "absent.pcap"))
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert f"{text}: not a capture" in nothing.stderr
    assert f"{tmp_path / 'absent.pcap'}: no such file" in nothing.stderr


def test_a_warning_of_a_name_with_a_line_break_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a\nb.pcap").write_text("no capture")
    result = inspect(str(tmp_path / "a\nb.pcap"), path("ibp-3.9-a"))
    assert result.stderr.splitlines()[0].startswith(f"warning: {tmp_path}/a\\nb.pcap: not a capture")


@pytest.mark.parametrize("form", ["text", "json"])
def test_brokers_that_are_there_are_named_where_a_filter_matches_none(form: str) -> None:
    result = inspect(path("ibp-3.9-a"), "--broker", "7", "--format", form)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "brokers in this capture: 0, 1, 2" in result.stderr


def test_apis_and_brokers_are_named_in_any_way() -> None:
    named = [["--api", text] for text in ("leaderandisr", "LEADER_AND_ISR", "Leader-And-Isr", "4")]
    assert len({inspect(path("ibp-3.9-a"), *arguments).stdout for arguments in named}) == 1
    assert objects(path("ibp-3.9-a"), "--broker", "0,1") == objects(path("ibp-3.9-a"), "--broker", "0", "--broker", "1")


def test_an_id_for_two_brokers_is_an_error() -> None:
    result = inspect(path("ibp-3.9-a"), "--brokers", "1=127.0.0.1:19092,1=127.0.0.1:19093")
    assert result.exit_code == 2
    assert "--brokers gives id 1 to two brokers, 0 and 1 as the traffic names them" in result.stderr
    hosts = inspect(path("ibp-3.9-a"), "--brokers", "1=10.0.0.1:9092,1=10.0.0.2:9092")
    assert hosts.exit_code == 2
    assert "--brokers gives id 1 to two brokers, 10.0.0.1 and 10.0.0.2" in hosts.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["inspect"], ["summary"], ["doctor"], ["replay", "--to", "127.0.0.1:1"],
        ["query", "--sql", "from requests"],
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_ports_without_kafka_are_told_with_those_that_carry_it(command: list[str]) -> None:
    result = run_kproto(command[0], path("ibp-3.9-a"), *command[1:], "--ports", "9092")
    assert result.exit_code == 2
    assert "no Kafka request on --ports 9092; ports that carry Kafka: 19092,19093,19094" in result.stderr
    assert result.stderr.count("\n") == 1


def test_tls_beside_kafka_is_named() -> None:
    plain = make.Talk(client=("10.0.1.1", 50_000), server=("10.0.0.2", 9092)).open()
    plain.ask(make.request(6, 8, 0, make.UPDATE_METADATA_8)).answer(make.response(6, 8, 0, b"\0\0\0"))
    secret = make.Talk(client=("10.0.1.1", 50_001), server=("10.0.0.2", 9093)).open()
    secret.ask(bytes.fromhex("1603010200010001fc0303") + bytes(506))
    secret.answer(bytes.fromhex("160303005a020000560303") + bytes(84))
    for _ in range(3):
        secret.ask(b"\x17\x03\x03\x00\x40" + bytes(range(64))).answer(b"\x17\x03\x03\x00\x40" + bytes(range(64)))
    packets = sorted([*plain.close().packets, *secret.close().packets], key=lambda p: p.time_ns)
    result = inspect("-", input=make.pcap(packets))
    assert result.exit_code == 0
    assert "1 connection speaks TLS and cannot be read, to 10.0.0.2:9093" in result.stderr


def test_an_interrupted_reader_of_standard_input_prints_the_totals() -> None:
    talk = make.Talk().open()
    talk.ask(make.request(6, 8, 0, make.UPDATE_METADATA_8)).answer(make.response(6, 8, 0, b"\0\0\0"))
    arguments = [sys.executable, "-m", "kproto", "inspect", "-"]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(make.pcap(talk.packets))
        assert b"UpdateMetadata" in process.stdout.readline()
        time.sleep(0.2)  # let it wait for more
        process.send_signal(signal.SIGINT)
        told = process.stderr.read().decode()
        assert process.wait(timeout=120) == 130
    assert told.startswith("1 of 1 requests shown: 1 UpdateMetadata; 1 ok")


# ---- times -----------------------------------------------------------------------------------------------------------

CAPTURE = path("ibp-3.9-a")  # of 2026-11-20, from 19:34:45.658854 to 19:35:51.680077


def at(text: str, capture: str = CAPTURE) -> int:
    return moment_ns(text, lambda: span_of([capture]))


@pytest.mark.parametrize(
    "text",
    ["19:34:50", "2026-11-20T19:34:50", "2026-11-20T20:34:50+01:00", "20:34:50+01:00", "20:34:50 Europe/Berlin",
     "2026-11-20T20:34:50 Europe/Berlin", "19:34:50 UTC", "1795203290"],
)  # fmt: skip
def test_a_moment_is_named_in_many_ways(text: str) -> None:
    assert at(text) == 1_795_203_290 * 10**9


@pytest.mark.parametrize(("text", "seconds"), [("19:34:00", -50), ("00:00:00", -70_490), ("23:59:59", 15_909)])
def test_a_time_of_day_outside_the_capture_is_of_the_captures_day(text: str, seconds: int) -> None:
    assert at(text) == (1_795_203_290 + seconds) * 10**9


HOUR_NS = 3600 * 10**9
MIDNIGHT_NS = 1_795_219_200 * 10**9  # 2026-11-21T00:00Z


@pytest.mark.parametrize(
    ("text", "hours"),
    [("23:30", -0.5), ("00:30", 0.5), ("00:30 Europe/Berlin", -0.5), ("22:00", -2), ("02:00", 2), ("9:30+09:00", 0.5)],
)
def test_a_time_of_day_is_found_on_the_day_that_a_capture_over_midnight_shows(text: str, hours: float) -> None:
    """Outside of it, the day counts on which it is nearer."""
    span = MIDNIGHT_NS - HOUR_NS, MIDNIGHT_NS + HOUR_NS
    assert moment_ns(text, lambda: span) == MIDNIGHT_NS + int(hours * HOUR_NS)


@pytest.mark.parametrize("text", ["23:30", "08:30+09:00", "00:30 Europe/Berlin"])
def test_a_time_of_day_that_a_capture_shows_on_two_days_is_refused(text: str) -> None:
    span = MIDNIGHT_NS - HOUR_NS, MIDNIGHT_NS + 24 * HOUR_NS
    with pytest.raises(ConfigurationError, match=r"is on 2 days of the captures, from 2026-.*; name the"):
        moment_ns(text, lambda: span)


@pytest.mark.slow
def test_every_command_reads_a_time_of_day_alike() -> None:
    """Leaders, at a time of day that the capture shows, are those at that moment of its day."""
    capture = path("external-controller-a")
    leader = "query", capture, "leader", "--format", "json"
    shown = [run_kproto(*leader, "--at", text).stdout for text in ("19:47:20", "2026-11-20T19:47:20Z")]
    assert shown[0] == shown[1] != run_kproto(*leader).stdout
    summed = ["summary", capture, "--format", "json"]
    for option in ("--since", "--until"):
        bare, full = (
            [run_kproto(*words, option, text).stdout for words in (leader, summed)]
            for text in ("19:47:20", "2026-11-20T19:47:20Z")
        )
        assert bare == full
        rows = objects(capture, option, "19:47:20")
        assert [row for row in rows if row["record"] == "exchange"] == [
            row
            for row in objects(capture)
            if row["record"] == "exchange" and (row["time"] >= 1_795_204_040) == (option == "--since")
        ]


def test_a_time_before_the_end_counts_from_the_last_packet() -> None:
    assert at("-5s") == at("19:35:46.680077")
    last = objects(CAPTURE, "--since", "-5s")
    since = at("-5s") / 10**9
    assert last == [row for row in objects(CAPTURE) if row["time"] >= since]
    assert 0 < len(last) < 348


@pytest.mark.parametrize("text", ["25:00:00", "19:61", "-5x", "19:34:50 Nowhere/City", "soon"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"2026-11-21T|Europe/Berlin"):
        at(text)


def test_durations_have_units() -> None:
    texts = {"500ms": 500_000_000, "1.5s": 1_500_000_000, "2m": 120 * 10**9, "1h": 3600 * 10**9}
    assert {text: parse_duration(text) for text in texts} == texts
    for wrong in ("500", "ms", "-1s", "1w"):
        with pytest.raises(ConfigurationError, match="500ms"):
            parse_duration(wrong)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--topic", "tvpm9n8d"], "no topic tvpm9n8d is in the captures; did you mean tVPM9N8d?"),
        (["--partition", "tVPM9N8-0"], "no topic tVPM9N8 is in the captures; did you mean tVPM9N8d?"),
        (["--topic", "x*"], "no topic x* is in the captures; there are "),
        (["--controller", "7"], "no controller 7 is in the captures; there are 0, 2"),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "summary"])
def test_what_is_not_in_the_captures_is_named(command: str, options: list[str], told: str) -> None:
    result = run_kproto(command, path("ibp-3.9-a"), *options)
    assert told in result.stderr
    assert result.stdout == ""


def test_what_is_there_at_another_time_is_not_called_absent() -> None:
    assert (
        "the captures reach from"
        in run_kproto("inspect", path("ibp-3.9-a"), "--topic", "tVPM9N8d", "--since", "2030-01-01").stderr
    )
