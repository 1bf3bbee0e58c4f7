"""``kproto top`` of KRaft's metadata log: what it says of real logs, of growing ones, and beside captures."""

import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import kproto_rows, kproto_running, run_kproto, shown_until
from kraft_runs import RUNS, capture, metadata, truth

from kproto.cli.metadata_top import LogView
from kproto.metadata_log.growing import GrowingLog

SEGMENT = f"{0:020}.log"

top = partial(run_kproto, "top", "--once")


def told(run: str) -> tuple[dict[tuple[str, int], dict[str, Any]], dict[int, bool]]:
    """The partitions, and which brokers are fenced, as Kafka's own dump of the log tells them."""
    partitions: dict[tuple[str, int], dict[str, Any]] = {}
    fenced: dict[int, bool] = {}
    for row in truth(run):
        data = row.get("data", {})
        match row["type"]:
            case "PARTITION_RECORD":
                partitions[data["topicId"], data["partitionId"]] = dict(data)
            case "PARTITION_CHANGE_RECORD":
                partitions[data["topicId"], data.get("partitionId", 0)].update(data)
            case "REMOVE_TOPIC_RECORD":
                partitions = {key: state for key, state in partitions.items() if key[0] != data["topicId"]}
            case "REGISTER_BROKER_RECORD":
                fenced[data["brokerId"]] = data["fenced"]
            case "BROKER_REGISTRATION_CHANGE_RECORD" if data.get("fenced"):
                fenced[data["brokerId"]] = data["fenced"] > 0
    return partitions, fenced


@pytest.mark.parametrize("run", RUNS)
def test_a_real_log_is_shown_as_kafkas_dump_tells_it(run: str) -> None:
    partitions, fenced = told(run)
    result = top(str(metadata(run)))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    last = truth(run)[-1]
    assert lines[0].endswith(f"offset {last['offset']}")
    assert f"epoch {last['epoch']} (KRaft)" in lines[1]
    assert f"{len(partitions)} partitions" in lines[1]
    offline = [state for state in partitions.values() if state["leader"] == -1]
    lacking = [state for state in partitions.values() if set(state["replicas"]) - set(state["isr"])]
    lacking = [state for state in lacking if state["leader"] != -1]
    assert lines[2] == f"  {len(offline)} partitions without a leader, {len(lacking)} more under-replicated"
    table = lines[lines.index("Brokers") + 2 :][: len(fenced)]
    assert {int(line.split()[0]): line.split()[1] == "fenced" for line in table} == fenced
    assert {int(line.split()[0]): int(line.split()[4]) for line in table} == {
        broker: sum(state["leader"] == broker for state in partitions.values()) for broker in fenced
    }
    assert max(map(len, lines)) <= 80


def test_the_latest_changes_are_worded_as_inspect_words_them() -> None:
    lines = top(str(metadata("kraft-4.1-a"))).stdout.splitlines()
    latest = lines[lines.index("Latest changes") + 1 : lines.index("Findings so far")]
    assert latest[0].startswith("  15:20:19.913  quorum  controller 1002 leads; voted for by 1001,1002")
    assert "  15:20:19.096  broker 3  fenced: fenced after its controlled shutdown" in latest
    assert any(line.endswith("xe-2  isr 2,1→2; and 22 more partitions") for line in latest)


def test_findings_are_those_of_the_doctor() -> None:
    place = str(metadata("kraft-4.1-a"))
    lines = top(place).stdout.splitlines()
    found = [(row["severity"], row["rule"]) for row in kproto_rows("doctor", place)]
    shown = [tuple(line.split()[:2]) for line in lines[lines.index("Findings so far") + 1 :]]
    assert shown[:-1] == found[: len(shown) - 1]
    assert shown[-1] == ("and", str(len(found) - len(shown) + 1))


def test_a_screen_fits_its_terminal() -> None:
    paths = [str(metadata("kraft-4.1-a"))]
    view = LogView(GrowingLog(paths), "log")
    view.update()
    view.judge(paths)
    for height in (20, 24, 40):
        lines = [*view.lines(100, height)]
        assert len(lines) <= height
        assert max(map(len, lines)) <= 100


def test_a_growing_log_is_followed_in_a_pipe(tmp_path: Path) -> None:
    data = (metadata("kraft-4.1-a", 1002) / SEGMENT).read_bytes()
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    (directory / SEGMENT).write_bytes(data[:700])
    with kproto_running("top", "--interval", "0.1", directory) as process:
        assert shown_until(process, "epoch 1 (KRaft)").count("\n") == 2
        with (directory / SEGMENT).open("ab") as file:
            file.write(data[700:])
        shown_until(process, "controller 1002, epoch 3 (KRaft)")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130


def test_a_log_that_lacks_its_beginning_says_what_it_does_not_tell(tmp_path: Path) -> None:
    data = (metadata("kraft-4.1-a", 1002) / SEGMENT).read_bytes()
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "__cluster_metadata-0" / SEGMENT).write_bytes(data[len(data) // 2 :])
    result = top(str(tmp_path / "__cluster_metadata-0"))
    assert result.exit_code == 0
    assert (
        result.stdout.splitlines()[2] == "  26 partitions without a leader, 0 more under-replicated"
    )  # changes say so
    assert "≥4" in result.stdout
    (tmp_path / "__cluster_metadata-0" / SEGMENT).write_bytes(data[len(data) // 2 : len(data) * 3 // 4])
    assert " told in part" in top(str(tmp_path)).stdout.splitlines()[2]
    assert "no snapshot tells what was before" in result.stderr


def test_captures_are_followed_without_a_log_beside_them() -> None:
    result = top(str(metadata("kraft-4.1-a", 1002)), str(capture("kraft-4.1-a")))
    assert result.exit_code == 0
    assert "a metadata log is followed alone, without captures" in result.stderr
    assert "requests" in result.stdout or "no control request yet" in result.stdout
