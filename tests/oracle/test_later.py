"""The APIs of a KRaft quorum, and the versions that Kafka 4 brought, against the classes of Kafka 4.1.0."""

import json
import subprocess
from pathlib import Path
from typing import Any

import live
import pytest

from kproto import reference
from kproto.api import ApiKey, api_name, is_later

APIS = {
    **dict.fromkeys((52, 53, 54, 55, 60, 64, 70, 73, 80, 81, 82), "request,response"),
    **dict.fromkeys((2, 3, 22, 45, 57, 62, 63, 66), "request,response"),
    **dict.fromkeys((1, 59), "request"),  # the generator knows no records
}
RECORDS = bytes(range(70))


def made(program: Path, mode: str, api: int, count: int, out: Path, environment: dict[str, str]) -> list[str]:
    command = [program, mode, "--apis", str(api), "--kinds", APIS[api], "--seed", str(live.SEED), "--count", str(count)]
    subprocess.run([*command, "--out", out], check=True, capture_output=True, timeout=300, env=environment)
    return out.read_text("utf-8").split("\n")[:-1]


@pytest.mark.parametrize("api", APIS, ids=lambda api: ApiKey(api).info.name)
def test_later_versions_are_read_and_written_as_kafka_does(
    api: int, oracle_program: Path, later_release: dict[str, str], tmp_path: Path
) -> None:
    lines = made(oracle_program, "generate", api, 12, tmp_path / "whole.jsonl", later_release)
    lines += made(
        oracle_program,
        "malform",
        api,
        min(max(6, live.questions() // 2000), 20),
        tmp_path / "bent.jsonl",
        later_release,
    )
    assert max(json.loads(line)["version"] for line in lines) == ApiKey(api).info.newest_version
    tally, wrong = live.compare(lines)
    live.REPORT.add(tally)
    assert not wrong, f"seed {live.SEED}:\n" + "\n".join(wrong[:20])


def with_records(version: int) -> list[tuple[int, str, Any]]:
    """Messages that hold records: API, kind, and the message."""
    old = {"topic": "orders"} if version < 13 else {"topic_id": RECORDS[:16]}
    of_produce = {"name": "orders"} if version < 13 else old
    part = reference.PartitionData(partition_index=1, high_watermark=5, records=RECORDS)
    topic = reference.TopicProduceData(
        **of_produce, partition_data=[reference.PartitionProduceData(index=1, records=RECORDS)]
    )
    answer = reference.PartitionProduceResponse(index=1, base_offset=7)
    piece = reference.FetchSnapshotPartitionResult(
        size=900,
        position=70,
        unaligned_records=RECORDS,
        current_leader=reference.SnapshotLeader(leader_id=3, leader_epoch=9),
        snapshot_id=reference.FetchSnapshotId(end_offset=77, epoch=4),
    )
    return [
        (
            1,
            "response",
            reference.FetchResponse(responses=[reference.FetchableTopicResponse(**old, partitions=[part])]),
        ),
        (0, "request", reference.ProduceRequest(acks=-1, topic_data=[topic])),
        (
            0,
            "response",
            reference.ProduceResponse(
                responses=[reference.TopicProduceResponse(**of_produce, partition_responses=[answer])]
            ),
        ),
        (
            59,
            "response",
            reference.FetchSnapshotResponse(
                topics=[reference.FetchSnapshotTopicResult(name="__cluster_metadata", partitions=[piece])]
            ),
        ),
    ]


@pytest.mark.parametrize("version", range(19))
def test_messages_with_records_are_read_and_written_as_kafka_does(version: int, later_oracle: Any) -> None:
    for api, kind, message in with_records(version):
        if not {0: 3, 1: 4, 59: 0}[api] <= version <= ApiKey(api).info.newest_version:
            continue
        data = reference.encode(message, version)
        answer = later_oracle.ask_one(op="decode", api=api, version=version, kind=kind, hex=data.hex(), omit=["json"])
        assert answer["ok"], answer
        assert (answer["consumed"], answer["reencoded"]) == (len(data), data.hex())
        read = reference.decode_request if kind == "request" else reference.decode_response
        assert read(api, version, data) == message


def test_what_is_said_to_come_later_is_what_the_later_release_has(later_oracle: Any) -> None:
    rows = {row["api"]: row for row in later_oracle.ask_one(op="apis")["apis"]}
    assert set(range(88, 93)) < rows.keys()
    for key, row in rows.items():
        assert api_name(key) == ("ListClientMetricsResources" if key == 74 else row["name"])  # renamed in 4.1
        if key in ApiKey._value2member_map_:
            assert ApiKey(key).info.newest_version == max(row["max"], ApiKey(key).info.max_version)
        else:
            assert [is_later(key, version) for version in (row["max"], row["max"] + 1)] == [True, False]
