"""Requests that Kafka up to 2.7 logs as text of their structs are read as the JSON of later releases is."""

from pathlib import Path
from typing import Any

import pytest
from conftest import few
from log_lines import clock_of, read, rows_of
from state_runs import files_of

import kproto.tables
from kproto.api import ApiKey
from kproto.json_form import snake_case
from kproto.tables.resolved import resolved_tables
from kproto.verdicts.facts import Facts
from kproto.verdicts.rules import findings

FORMER = {
    4: {
        "topic_name": "topic",
        "partition_index": "partition",
        "partition_epoch": "zk_version",
        "broker_id": "id",
        "host_name": "host",
        "ungrouped_partition_states": "partition_states",
    },
    5: {"topic_name": "topic", "partition_index": "partition", "ungrouped_partitions": "partitions"},
    6: {
        "topic_name": "topic",
        "partition_index": "partition",
        "endpoints": "end_points",
        "listener": "listener_name",
        "security_protocol": "security_protocol_type",
        "ungrouped_partition_states": "partition_states",
        "v0_host": "host",
        "v0_port": "port",
    },
}
"""How the structs of Kafka up to 2.3 name fields."""


def struct(value: Any, names: dict[str, str]) -> str:
    """A message as the text of its struct."""
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{names.get(snake_case(k), snake_case(k))}={struct(v, names)}" for k, v in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(struct(each, names) for each in value) + "]"
    return (
        {None: "null", True: "true", False: "false"}.get(value, str(value))
        if not isinstance(value, int) or isinstance(value, bool)
        else str(value)
    )


def line(row: dict[str, Any], names: dict[str, str], header: str) -> str:
    api = ApiKey(row["api_key"])
    head = header.format(name=api.name, key=int(api), **{k: row[k] for k in ("version", "client_id", "correlation_id")})
    errors = names | ({"partition_errors": "partitions"} if "topic_name" in names else {})
    return (
        f"[{' '.join(clock_of(row))}] DEBUG Completed request:{head} -- {struct(row['request'], names)},"
        f"response:{struct(row['response'], errors)} from connection {row['connection']};"
        f"totalTime:{row['total_time_ms']},requestQueueTime:0.1,principal:User:ANONYMOUS (kafka.request.logger)"
    )


HEADERS = {
    "1.0": "RequestHeader(apiKey={name}, apiVersion={version}, clientId={client_id}, correlationId={correlation_id})",
    "0.10": "{{api_key={key},api_version={version},correlation_id={correlation_id},client_id={client_id}}}",
}


@pytest.mark.parametrize("header", few(HEADERS))
@pytest.mark.parametrize("name", ["ibp-0.8.2-a", "ibp-2.4-IV1-a"])
@pytest.mark.parametrize("former", [True, False])
def test_structs_as_text_give_the_same_requests(name: str, header: str, former: bool) -> None:
    rows = [row for row in rows_of(name) if row["api_key"] in (4, 5, 6) and row["response"]]
    if former:
        rows = [row for row in rows if row["api_key"] != 5 or row["version"] == 0]
    log = "\n".join(line(row, FORMER[row["api_key"]] if former else {}, HEADERS[header]) for row in rows)
    found, summary = read(log)
    assert summary.bad_inputs == []
    assert [(request, response) for _, request, response in found] == [
        (row["request"], row["response"]) for row in rows
    ]


def test_the_names_of_generated_classes_are_read() -> None:
    log = (
        "[2020-12-01 10:00:00,000] DEBUG Completed request:RequestHeader(apiKey=STOP_REPLICA, apiVersion=3, "
        "clientId=1, correlationId=7) -- StopReplicaRequestData(controllerId=1, controllerEpoch=2, brokerEpoch=3, "
        "topicStates=[StopReplicaTopicState(topicName='a', partitionStates=[StopReplicaPartitionState("
        "partitionIndex=0, leaderEpoch=-2, deletePartition=true)])]),"
        "response:StopReplicaResponseData(errorCode=0, partitionErrors=[]) "
        "from connection 10.0.0.1:9092-10.0.0.2:4000-3;totalTime:1.5,x:1 (kafka.request.logger)"
    )
    ((_, request, response),), summary = read(log)
    assert summary.bad_inputs == []
    assert request["topicStates"] == [
        {"topicName": "a", "partitionStates": [{"partitionIndex": 0, "leaderEpoch": -2, "deletePartition": True}]}
    ]
    assert response == {"errorCode": 0, "partitionErrors": []}


def test_an_api_without_a_codec_is_a_row_all_the_same() -> None:
    tail = " from connection 10.0.0.1:9092-10.0.0.2:4000-3;totalTime:1.5,x:1 (kafka.request.logger)"
    head = "[2020-12-01 10:00:00,000] DEBUG Completed request:"
    head += "RequestHeader(apiKey={}, apiVersion=8, clientId=a, correlationId=6) -- "
    log = "\n".join(
        [
            head.format("PRODUCE")
            + "{acks=-1,timeout=30000,partitionSizes=[orders-0=15514]},response:{throttle_time_ms=0}"
            + tail,
            head.format("HEARTBEAT")
            + "{group_id=g,generation_id=1,member_id=m},response:{throttle_time_ms=0,error_code=0}"
            + tail,
        ]
    )
    found, summary = read(log)
    assert [(request, response) for _, request, response in found] == [(None, None)] * 2
    assert (summary.bad_inputs, summary.requests) == ([], {(0, 8): 1, (12, 8): 1})


def test_the_form_before_0_10_says_what_to_read_instead() -> None:
    log = (
        "[2015-12-01 10:00:00,000] TRACE Completed request:Name:UpdateMetadataRequest;Version:0;Controller:1;"
        "ControllerEpoch:3;CorrelationId:12;ClientId:id_1;AliveBrokers:id:1,host:b1,port:9092 from client "
        "/10.0.0.2:4000;totalTime:1 (kafka.request.logger)"
    )
    found, summary = read(log)
    assert found == []
    assert "UpdateMetadataRequest" in summary.bad_inputs[0].reason
    assert "state-change.log" in summary.bad_inputs[0].reason


def test_the_log_of_one_broker_accuses_no_other_of_what_it_does_not_show(tmp_path: Path) -> None:
    """Whether other brokers accepted the deletion of a topic stands in their own logs: no stray replica is found."""
    (tmp_path / "kafka-request.log").write_bytes(files_of("kafka-2.0.1")["broker-1/kafka-request.log"])
    found = findings(Facts([resolved_tables(kproto.tables.read(tmp_path))]))
    assert {each.rule for each in found} >= {"KP011", "KP035"}
    assert "KP041" not in {each.rule for each in found}
    assert all(each.cannot_tell for each in found if each.rule in {"KP040", "KP042"})
