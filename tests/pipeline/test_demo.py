"""The demo's check: tables of a recorded rehearsal agree with the journal, and any changed value is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run_kproto

from channel.network.recorder import PcapngRecorder
from channel.rehearsal.journal import Journal
from channel.rehearsal.scenario import EmbeddedScenario
from channel.send.encoded_requests import SingleRequest
from kproto.cli.demo import differences
from kproto.codec import get_codec
from kproto.pipeline import OutputDirectory, analyze
from kproto.tables.schemas import PARTITION_ERRORS, PARTITION_STATES, REQUESTS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

codec = get_codec("cython")
TOPIC_ID = bytes(range(16))
NOT_SAID = {
    "requests": {  # what the wire and the clock decide, and how the tables name their rows
        "frame_id", "conn_id", "ts", "correlation_id", "body_id", "frame_len", "response_frame_id", "latency_us",
        "unmatched_reason", "decode_error", "exchange_id", "capture", "cluster", "server_ip", "server_port",
        "live_brokers_id",
    },
    "partition_states": {  # the last two: KRaft's metadata log alone
        "body_id", "api_key", "eligible_leader_replicas", "unclean_election",
    },
    "partition_errors": {"frame_id", "response_frame_id", "cluster", "ts"},
}  # fmt: skip
SCHEMAS = {"requests": REQUESTS, "partition_states": PARTITION_STATES, "partition_errors": PARTITION_ERRORS}
SAID = [
    (table, column) for table, schema in SCHEMAS.items() for column in schema.names if column not in NOT_SAID[table]
]


@pytest.mark.spark
def test_tables_of_a_rehearsal_agree_with_its_journal(spark: SparkSession, tmp_path: Path) -> None:
    recording = tmp_path / "recording.pcapng"
    with PcapngRecorder(recording) as recorder:
        scenario = EmbeddedScenario(3, seed=4, recorder=recorder)
        scenario.run()
    out = OutputDirectory(tmp_path / "tables")
    analyze(spark, [str(recording)], out)
    assert differences(out.path, scenario.journal) == []
    scenario.journal.entries[0].controller_epoch += 1
    assert len(differences(out.path, scenario.journal)) == 2


def journal() -> Journal:
    """A LeaderAndIsr request of two partitions, one of them refused, and a StopReplica request of two."""
    leader_and_isr = codec.message_class(4, "request").from_json(
        {
            "controllerId": 3, "isKRaftController": True, "controllerEpoch": 7, "brokerEpoch": 9, "type": 2,
            "topicStates": [{"topicName": "a", "topicId": "AAECAwQFBgcICQoLDA0ODw", "partitionStates": [
                {"partitionIndex": p, "controllerEpoch": 6, "leader": 1, "leaderEpoch": 4, "partitionEpoch": 5,
                 "isr": [1], "replicas": [1, 2], "addingReplicas": [3], "removingReplicas": [2], "isNew": True,
                 "leaderRecoveryState": 1} for p in (0, 1)]}],
            "liveLeaders": [],
        },
        7,
    )  # fmt: skip
    answer = codec.message_class(4, "response").from_json(
        {"errorCode": 0, "topics": [{"topicId": "AAECAwQFBgcICQoLDA0ODw", "partitionErrors": [
            {"partitionIndex": 0, "errorCode": 0}, {"partitionIndex": 1, "errorCode": 11}]}]},
        7,
    )  # fmt: skip
    update = codec.message_class(6, "request").from_json(
        {
            "controllerId": 3, "isKRaftController": False, "controllerEpoch": 7, "brokerEpoch": 9, "type": 1,
            "topicStates": [{"topicName": "b", "topicId": "AAECAwQFBgcICQoLDA0ODw", "partitionStates": [
                {"partitionIndex": 4, "controllerEpoch": 6, "leader": 1, "leaderEpoch": 4, "isr": [1], "zkVersion": 5,
                 "replicas": [1, 2], "offlineReplicas": [2]}]}],
            "liveBrokers": [],
        },
        8,
    )  # fmt: skip
    stop = codec.message_class(5, "request").from_json(
        {
            "controllerId": 3, "isKRaftController": False, "controllerEpoch": 7, "brokerEpoch": 9,
            "topicStates": [{"topicName": "c", "partitionStates": [
                {"partitionIndex": 0, "leaderEpoch": 4, "deletePartition": True},
                {"partitionIndex": 1, "leaderEpoch": 5, "deletePartition": False}]}],
        },
        4,
    )  # fmt: skip
    kept = Journal()
    for message, version, response in (
        (leader_and_isr, 7, answer),
        (update, 8, codec.message_class(6, "response").from_json({"errorCode": 0}, 8)),
        (stop, 4, codec.message_class(5, "response").from_json({"errorCode": 0, "partitionErrors": []}, 4)),
    ):
        kept.answered(kept.sent(3, 1, SingleRequest(message, version)), response)
    return kept


def rows() -> dict[str, list[dict[str, Any]]]:
    """What the tables must say of ``journal``."""
    head = {
        "broker_id": 1, "client_id": "3", "controller_id": 3, "controller_epoch": 7, "broker_epoch": 9,
        "n_topics": 1, "error_code": 0,
    }  # fmt: skip
    requests = [
        {"api_key": 4, "api_version": 7, "is_kraft_controller": True, "type": 2, "n_partitions": 2, "body_id": b"L"},
        {"api_key": 6, "api_version": 8, "is_kraft_controller": False, "type": 1, "n_partitions": 1, "body_id": b"U"},
        {"api_key": 5, "api_version": 4, "is_kraft_controller": False, "type": 0, "n_partitions": 2, "body_id": b"S"},
    ]
    common = {
        "topic_id": TOPIC_ID, "controller_epoch": 6, "leader": 1, "leader_epoch": 4, "partition_epoch": 5, "isr": [1],
        "replicas": [1, 2],
    }  # fmt: skip
    led = {"adding_replicas": [3], "removing_replicas": [2], "is_new": True, "leader_recovery_state": 1}
    states = [
        {"body_id": b"L", "topic": "a", "partition": 0, **common, **led},
        {"body_id": b"L", "topic": "a", "partition": 1, **common, **led},
        {"body_id": b"U", "topic": "b", "partition": 4, **common, "offline_replicas": [2]},
        {"body_id": b"S", "topic": "c", "partition": 0, "leader_epoch": 4, "delete_partition": True},
        {"body_id": b"S", "topic": "c", "partition": 1, "leader_epoch": 5, "delete_partition": False},
    ]
    errors = [{"frame_id": b"L", "topic": "a", "topic_id": TOPIC_ID, "partition": 1, "error_code": 11}]
    return {
        "requests": [
            head | row | {"frame_id": row["body_id"], "response_frame_id": row["body_id"]} for row in requests
        ],
        "partition_states": states,
        "partition_errors": errors,
    }


def write(tables: dict[str, list[dict[str, Any]]], out: Path) -> Path:
    for name, found in tables.items():
        (out / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(found, schema=SCHEMAS[name]), out / name / "part.parquet")
    return out


def changed(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case list():
            return [*value, 9]
        case bytes():
            return value[::-1]
    return value + "x"


def test_tables_that_say_the_same_agree(tmp_path: Path) -> None:
    assert differences(write(rows(), tmp_path), journal()) == []


@pytest.mark.parametrize(("table", "column"), SAID)
def test_a_changed_value_in_any_column_is_a_difference(table: str, column: str, tmp_path: Path) -> None:
    tables = rows()
    row = next(row for row in tables[table] if row.get(column) is not None)
    row[column] = changed(row[column])
    lines = differences(write(tables, tmp_path), journal())
    assert [line.split()[2] for line in lines] == ["journal", "tables"], lines


@pytest.mark.parametrize("table", SCHEMAS)
def test_a_missing_row_is_a_difference(table: str, tmp_path: Path) -> None:
    tables = rows()
    tables[table].pop()
    assert differences(write(tables, tmp_path), journal())


def test_a_file_in_the_place_of_the_directory_is_told(tmp_path: Path) -> None:
    path = tmp_path / "tables"
    path.touch()
    result = run_kproto("demo", "--out", path)
    assert result.exit_code == 2
    assert result.stderr == f"kproto: {path} is a file; --out takes a directory\n"
