"""``kproto inspect --records``: the metadata log's records as Kafka's own dump prints them."""

import json
from functools import partial
from pathlib import Path

import pytest
from commands import kproto_rows, run_kproto
from kraft_runs import RUNS, metadata, truth
from metadata_batches import batch_of

from kproto.metadata_log.records import ConfigRecord, NoOpRecord, TopicRecord

inspect = partial(run_kproto, "inspect")
objects = partial(kproto_rows, "inspect", "--records")


def refusal(*arguments: str) -> str:
    result = run_kproto(*arguments)
    assert result.exit_code
    return f"{result.output}{result.exception}"


@pytest.mark.parametrize("run", RUNS)
def test_json_is_the_dump(run: str) -> None:
    found = objects(str(metadata(run)))
    for row, expected in zip(found, truth(run), strict=True):
        assert row.pop("record") == "metadata"
        if "data" in expected:
            assert {**expected, "version": row["version"]} == row
        else:
            assert row["offset"] == expected["offset"]


@pytest.mark.slow
def test_filters_choose_topics_brokers_and_times() -> None:
    place = str(metadata("kraft-4.1-a"))
    of_topic = objects(place, "--topic", "DD")
    assert {row["type"] for row in of_topic} == {"TOPIC_RECORD", "PARTITION_RECORD", "PARTITION_CHANGE_RECORD"}
    of_partition = objects(place, "--partition", "DD-0")
    assert {row["data"].get("partitionId", 0) for row in of_partition} == {0}
    assert 0 < len(of_partition) < len(of_topic)
    assert "REGISTER_BROKER_RECORD" in {row["type"] for row in objects(place, "--broker", "3")}
    moment = of_topic[5]["time_ms"] / 1000
    later = objects(place, "--topic", "DD", "--since", f"{moment:.3f}")
    assert [row["offset"] for row in later] == [row["offset"] for row in of_topic if row["time_ms"] >= moment * 1000]
    refused = refusal("inspect", place, "--records", "--controller", "1")
    assert "--controller does not apply to the records" in refused


def test_text_has_a_line_for_each_record() -> None:
    lines = inspect(str(metadata("kraft-3.9-a", 1000)), "--records").stdout.splitlines()
    assert len(lines) == 512
    assert lines[0].startswith("2026-11-26T15:20:40.007Z  offset 0  epoch 1  LeaderChange  {")


def test_snapshots_are_shown_where_they_are_named() -> None:
    (snapshot, *_more) = sorted(metadata("kraft-4.1-a", 1000).glob("*.checkpoint"))
    rows = objects(str(snapshot))
    assert rows[0]["type"] == "SnapshotHeader"
    assert rows[-1]["type"] == "SnapshotFooter"
    assert {row["snapshot"] for row in rows} == {snapshot.stem}


def test_damage_is_told_and_secrets_are_not(tmp_path: Path) -> None:
    secret = ConfigRecord(resource_type=4, name="ssl.key.password", value="hunter2")
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(batch_of(secret) + batch_of(NoOpRecord(), base_offset=1)[:-3])
    result = inspect(str(tmp_path), "--records", "--format", "json", "--fail-on-loss")
    assert result.exit_code == 3
    assert "hunter2" not in result.output
    record, fault = map(json.loads, result.stdout.splitlines())
    assert record["data"]["value"] == "(hidden)"
    assert (fault["record"], fault["file"]) == ("bad_input", str(file))
    assert "copied while it was written" in result.stderr
    assert "hunter2" in inspect(str(tmp_path), "--records", "--show-secrets").stdout
    assert "no file of a metadata log" in refusal("inspect", str(tmp_path / "none"), "--records")


SNAPSHOT = f"{328:020}-{1:010}.checkpoint"
SEGMENT = f"{0:020}.log"


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        (SEGMENT, b"", f"{SEGMENT}: nothing was written to it"),
        (SEGMENT, bytes(100_000), f"{SEGMENT}: nothing was written to it"),
        (SEGMENT, batch_of(NoOpRecord())[:40], f"{SEGMENT}: a batch that is cut after 40 bytes"),
        (SEGMENT, batch_of(NoOpRecord())[:-1] + b"\xff", f"{SEGMENT}: the batch at offset 0 does not match its CRC"),
        (SNAPSHOT, batch_of(NoOpRecord())[:-3], f"{SNAPSHOT}: a batch of "),
        (SNAPSHOT, bytes(100), f"{SNAPSHOT}: nothing was written to it"),
    ],
)
@pytest.mark.parametrize("is_directory", [False, True])
def test_a_log_without_a_record_is_told_in_one_line_that_says_what_to_try(
    name: str, data: bytes, told: str, tmp_path: Path, *, is_directory: bool
) -> None:
    file = tmp_path / "__cluster_metadata-0" / name
    file.parent.mkdir()
    file.write_bytes(data)
    place = str(file.parent if is_directory else file)
    for call in (["inspect", place], ["inspect", place, "--records"], ["summary", place], ["query", place, "leader"]):
        line = refusal(*call)
        assert f"/{told}" in line
        assert "name the copy of __cluster_metadata-0 of another node" in line


def test_a_log_of_noops_alone_is_not_said_to_fail_a_filter(tmp_path: Path) -> None:
    (tmp_path / SEGMENT).write_bytes(batch_of(NoOpRecord()))
    assert "holds no change, NoOpRecords alone: name older segments" in refusal("doctor", str(tmp_path))
    assert "note: no change of the metadata log passes" in inspect(str(tmp_path)).stderr


def test_a_log_whose_first_batch_is_damaged_is_found_by_the_next(tmp_path: Path) -> None:
    file = tmp_path / "copied.log"
    file.write_bytes(batch_of(NoOpRecord())[:-1] + b"\xff" + batch_of(NoOpRecord(), base_offset=1))
    result = inspect(str(file), "--records")
    assert ("offset 1 " in result.stdout, "offset 0 does not match its CRC" in result.stderr) == (True, True)


def summary(place: Path) -> str:
    result = run_kproto("summary", place)
    assert result.exit_code == 0, result.exception
    return str(result.stdout)


def test_a_log_is_summed_up_as_text() -> None:
    assert "none: every request is whole and answered" in summary(metadata("kraft-3.9-a", 0))


def test_a_log_that_does_not_name_its_leader_is_summed_up(tmp_path: Path) -> None:
    records = [TopicRecord(name="a", topic_id=bytes(15) + b"\x01"), NoOpRecord()]
    (tmp_path / f"{0:020}.log").write_bytes(batch_of(*records))
    assert "none: every request is whole and answered" in summary(tmp_path)


@pytest.mark.parametrize("name", [f"{'9' * 20}-{1:010}", f"{1:020}-{'9' * 10}"])
def test_a_snapshot_whose_name_no_offset_and_epoch_can_have_is_left_out(name: str, tmp_path: Path) -> None:
    for file in metadata("kraft-3.9-a", 0).iterdir():
        is_snapshot = file.suffix == ".checkpoint"
        (tmp_path / (f"{name}.checkpoint" if is_snapshot else file.name)).write_bytes(file.read_bytes())
    assert "the snapshot is not whole; it is left out" in summary(tmp_path)
