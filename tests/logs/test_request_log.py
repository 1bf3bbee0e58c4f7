"""Kafka's own request log is read as a capture is."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA
from log_lines import as_log, rows_of

from kproto.capture import CaptureSummary, exchanges, frames

LOGS = sorted((DATA / "request_log").glob("*.log.gz"))
"""What two Kafka 3.9.1 brokers wrote while a topic was made and deleted."""


def entries(path: Path) -> list[dict[str, Any]]:
    """The control requests in a log, taken apart without kproto."""
    out = []
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        entry = json.loads(line[line.index("{") : line.rindex("}") + 1])
        if entry["requestHeader"]["requestApiKey"] in (4, 5, 6):
            out.append(entry)
    return out


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_a_real_log_gives_every_control_request(path: Path) -> None:
    summary = CaptureSummary()
    found = list(exchanges(path, summary=summary))
    expected = entries(path)
    assert {e.api_key for e in found} == {4, 5, 6}
    assert [e.to_json()["request"] for e in found] == [entry["request"] for entry in expected]
    assert [e.to_json()["response"] for e in found] == [entry["response"] for entry in expected]
    for exchange, entry in zip(found, expected, strict=True):
        header = entry["requestHeader"]
        assert exchange.api_key == header["requestApiKey"]
        assert exchange.api_version == header["requestApiVersion"]
        assert (exchange.correlation_id, exchange.client_id) == (header["correlationId"], header["clientId"])
        assert f"{exchange.server}-{exchange.client}" == entry["connection"].rpartition("-")[0]
        assert exchange.latency_ms == pytest.approx(entry["totalTimeMs"])
    assert (summary.format, summary.bad_inputs, summary.problem()) == ("request log", [], None)
    assert (summary.first_ns, summary.last_ns) == (
        min(ends := [e.response.time_ns for e in found if e.response]),
        max(ends),
    )
    assert summary.requests[1, 17] > 0  # the others are counted


def test_times_are_those_of_the_request() -> None:
    first = next(iter(exchanges(LOGS[0])))
    assert first.response is not None
    assert first.response.time_ns == 1_795_242_957_700_000_000  # [2026-11-21 06:35:57,700]
    assert first.time_ns == 1_795_242_957_700_000_000 - 185_603_000
    assert first.time == 1795242957.514397


@pytest.mark.parametrize("name", ["ibp-0.8.2-a", "ibp-2.4-IV1-a", "ibp-2.8-a", "ibp-3.9-migration-a"])
def test_a_log_and_a_capture_of_the_same_traffic_agree(name: str, tmp_path: Path) -> None:
    """Frame by frame, byte for byte: what is made anew from the log is what passed on the wire."""
    rows = rows_of(name)
    path = tmp_path / "kafka-request.log"
    path.write_text(as_log(rows))
    wire = {
        (f.connection.client, f.connection.server, f.direction, f.api_key, f.correlation_id): f.payload
        for f in frames(DATA / "captures" / f"{name}.pcap.gz")
    }
    logged = list(frames(path))
    assert len(logged) == 2 * sum(row["api_key"] in (4, 5, 6) for row in rows)
    for f in logged:
        assert f.payload == wire[f.connection.client, f.connection.server, f.direction, f.api_key, f.correlation_id]
    ids = {f.connection for f in logged}
    assert len(ids) == len({row["connection"] for row in rows if row["api_key"] in (4, 5, 6)})


def test_packed_rotated_and_open(tmp_path: Path) -> None:
    plain = gzip.decompress(LOGS[0].read_bytes())
    expected = [e.to_json() for e in exchanges(LOGS[0])]
    rotated = tmp_path / "kafka-request.log.2026-11-21-06"
    rotated.write_bytes(plain)
    assert [e.to_json() for e in exchanges(rotated)] == expected
    with rotated.open("rb") as file:
        assert [e.to_json() for e in exchanges(file)] == expected


def test_a_number_of_thousands_of_digits_is_told_in_our_own_words(tmp_path: Path) -> None:
    good = gzip.decompress(LOGS[0].read_bytes()).decode().splitlines()[0]
    path = tmp_path / "kafka-request.log"
    path.write_text(good.replace('"correlationId":0', f'"correlationId":{"9" * 5000}'))
    summary = CaptureSummary()
    assert list(exchanges(path, summary=summary)) == []
    (bad,) = summary.bad_inputs
    assert bad.reason == "a logged request with a number of thousands of digits"


def test_lines_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    good = gzip.decompress(LOGS[0].read_bytes()).decode().splitlines()[0]
    mark = good.index("Completed")
    lines = [
        good,
        good[:200],
        good[:mark] + "Completed request:RequestHeader(apiKey=UPDATE_METADATA) -- {controller_id=1}",
        good.replace('"controllerEpoch":1,', ""),
        good.replace('"connection":"127.0.0.1:', '"connection":"'),
        good.replace("2026-11-21 06:35:57,700", "yesterday"),
        good.replace('"requestApiVersion":8', '"requestApiVersion":99'),
        good.replace('"correlationId":0', '"correlationId":null'),
        good[: good.rindex("}") // 2],
    ]
    path = tmp_path / "kafka-request.log"
    path.write_text("\n".join(lines))
    summary = CaptureSummary()
    assert len(list(exchanges(path, summary=summary))) == 1
    assert summary.bad_input_count == 8
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    assert [bad.offset for bad in summary.bad_inputs] == offsets[1:9]
    reasons = [bad.reason for bad in summary.bad_inputs]
    assert reasons[1] == "a request logged as text whose header or connection is missing; was the line cut?"
    assert "controller_epoch" in reasons[2] or "controllerEpoch" in reasons[2]
    assert reasons[4].startswith("a line without a time")
    assert any(re.fullmatch("a logged request whose JSON is cut or damaged at character [0-9]+", r) for r in reasons)
    assert not any("Error" in reason for reason in reasons)


def test_a_log_without_requests(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("[2026-11-21 06:35:57,700] INFO started (kafka.server.KafkaServer)\n")
    summary = CaptureSummary()
    assert list(exchanges(path, summary=summary)) == []
    assert summary.problem() == (
        "server.log: no line of this log tells of a request or a state change; name kafka-request.log "
        "(kafka.request.logger at DEBUG), state-change.log or controller.log"
    )


def test_the_names_of_earlier_releases_are_read(tmp_path: Path) -> None:
    """Up to 3.2 LeaderAndIsr's partition epoch is zkVersion; AlterPartition was AlterIsr until 3.2."""
    rows = [row for row in rows_of("ibp-2.8-a") if row["api_key"] == 4]
    path = tmp_path / "kafka-request.log"
    path.write_text(as_log(rows).replace('"partitionEpoch"', '"zkVersion"'))
    found = [e.to_json()["request"] for e in exchanges(path)]
    assert sorted(map(str, found)) == sorted(str(row["request"]) for row in rows)
    alter = {"brokerId": 1, "brokerEpoch": 7, "topics": [{"name": "a", "partitions": [
        {"partitionIndex": 0, "leaderEpoch": 5, "newIsr": [1], "currentIsrVersion": 7}]}]}  # fmt: skip
    answer = {"throttleTimeMs": 0, "errorCode": 0, "topics": [{"name": "a", "partitions": [
        {"partitionIndex": 0, "errorCode": 0, "leaderId": 1, "leaderEpoch": 5, "isr": [1],
         "currentIsrVersion": 8}]}]}  # fmt: skip
    elect = {"electionType": 0, "topicPartitions": [{"topic": "a", "partitionId": [0]}], "timeoutMs": 1000}
    elected = {"throttleTimeMs": 0, "errorCode": 0, "replicaElectionResults": [{"topic": "a", "partitionResult": [
        {"partitionId": 0, "errorCode": 0, "errorMessage": None}]}]}  # fmt: skip
    dirs = {"topics": [{"topic": "a", "partitionIndex": [0]}]}
    described = {"throttleTimeMs": 0, "results": []}
    path.write_text("")
    with path.open("a") as file:
        for api, version, request, response in (
            (56, 0, alter, answer),
            (43, 2, elect, elected),
            (35, 1, dirs, described),
        ):
            row = {"api_key": api, "version": version, "correlation_id": 1, "client_id": "c", "request": request}
            row |= {
                "response": response,
                "connection": "10.0.0.1:9092-10.0.0.2:4000-0-3",
                "total_time_ms": 1,
                "time": 1.7e9,
            }
            file.write(as_log([row]))
    found = list(exchanges(path, apis=None))
    assert [e.api_key for e in found] == [56, 43, 35]
    assert [e.error for e in found] == [None] * 3
    assert found[0].request_message.topics[0].partitions[0].partition_epoch == 7
    assert found[0].response_message.topics[0].partitions[0].partition_epoch == 8
    assert found[1].request_message.topic_partitions[0].partitions == (0,)
    assert found[2].request_message.topics[0].partitions == (0,)
