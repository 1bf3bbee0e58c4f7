"""The benches' rows: every figure has one place, and every limit that was promised stands."""

import subprocess
import sys
from collections import Counter
from io import BytesIO
from pathlib import Path
from types import ModuleType

import channel_goals
import channel_runs
import codec_bodies
import codec_goals
import controller_ratios
import doctor_ratios
import doors
import growing_stream
import live_ratios
import metadata_log
import month
import pytest
import secured_ratios
import tap_ratios
import tshark_ratios
from figures import Goal, load

from kproto import capture
from kproto.codec import decode_request, encode
from kproto.metadata_log import files
from kproto.metadata_log.finding import find
from kproto.metadata_log.folding import fold

CODEC = list(codec_goals.goals())
CHANNEL = list(channel_goals.goals())
SECURED, TAP, CONTROLLER = secured_ratios.goals(), tap_ratios.goals(), controller_ratios.goals()
TSHARK, DOCTOR, MONTH, LIVE = tshark_ratios.goals(), doctor_ratios.goals(), month.goals(), live_ratios.goals()
METADATA, DOORS = metadata_log.goals(), doors.goals()


@pytest.mark.parametrize(
    "goals",
    [CODEC, CHANNEL, SECURED, TAP, CONTROLLER, TSHARK, DOCTOR, MONTH, LIVE, METADATA, DOORS],
    ids=["codec", "channel", "secured", "tap", "controller", "tshark", "doctor", "month", "live", "metadata", "doors"],
)
def test_no_row_is_there_twice(goals: list[Goal]) -> None:
    names = Counter((goal.group, goal.what, goal.case, goal.peer, goal.ours) for goal in goals)
    assert [name for name, count in names.items() if count > 1] == []


def test_every_version_of_the_three_apis_is_held_against_go_and_java() -> None:
    found = {(goal.case, goal.what, goal.peer): goal.limit for goal in CODEC if goal.group == "versions"}
    assert len(codec_bodies.EVERY_VERSION) == 8 + 5 + 9
    for body in codec_bodies.EVERY_VERSION:
        assert found[body, "encode", "Go"] == 0.8
        assert found[body, "encode", "Java"] == 0.3
        assert found[body, codec_goals.PARSE, "Java"] == 0.6


def test_the_live_view_and_the_replay_have_limits() -> None:
    assert {goal.what: (goal.limit, goal.at_least) for goal in LIVE} == {
        "kproto top": (5, False), "kproto replay": (1.0, True),
    }  # fmt: skip


def test_each_door_of_the_codec_has_a_limit_and_a_benchmark_of_its_name() -> None:
    benchmarks = (Path(doors.HERE) / "test_codec.py").read_text(encoding="utf-8")
    assert all(goal.limit for goal in DOORS)
    assert [goal.what for goal in DOORS if f"def test_{goal.what.replace(' ', '_')}(" not in benchmarks] == []


def test_a_door_is_judged_by_the_median_time_of_the_extension() -> None:
    def told(name: str, codec: str, ns: float) -> dict[str, object]:
        facts = {"codec": codec, "body": "updatemetadata-8-1x10000", "partitions": 10_000}
        return {"name": f"test_{name}[x]", "stats": {"median": ns, "min": 0.0}, "extra_info": facts}

    result = {"benchmarks": [told("encode", "cython", 5e-5), told("encode", "construct", 2.0)]}
    assert doors.figures(result) == {"encode updatemetadata-8-1x10000": pytest.approx(5.0)}


def test_programs_are_asked_for_the_figures_that_rows_show() -> None:
    assert ("decode", codec_bodies.LARGEST) in codec_goals.measured("kproto")
    assert codec_goals.measured("kio") >= {("decode+read", "updatemetadata-5-100x100")}
    assert {op for op, _ in codec_goals.measured("kio")} == {"decode+read", "read"}


@pytest.mark.parametrize(
    "name", ["leaderandisr-0-4x3", "stopreplica-1-4x3", "updatemetadata-0-4x3", "updatemetadata-8-4x3"]
)
def test_a_made_body_is_a_message_of_its_shape(name: str) -> None:
    body = codec_bodies.body(name, codec_bodies.made(name))
    message = decode_request(body.api_key, body.version, body.data)
    assert (body.topics, body.partitions, len(message.partition_states)) == (4, 12, 12)
    assert encode(message, body.version) == body.data


def test_every_field_of_every_partition_is_read() -> None:
    body = codec_bodies.body("updatemetadata-5-2x2", codec_bodies.made("updatemetadata-5-2x2"))
    message = decode_request(body.api_key, body.version, body.data)
    states = [state for topic in message.topic_states for state in topic.partition_states]
    total = sum(
        s.partition_index + s.controller_epoch + s.leader + s.leader_epoch + s.zk_version + len(s.isr)
        + len(s.replicas) + len(s.offline_replicas)
        for s in states
    )  # fmt: skip
    assert codec_bodies.reader(6, 5)(message) == total


def test_the_channels_rows_name_figures_that_its_workloads_give() -> None:
    given = {(program, load.what, load.brokers) for load in channel_goals.WORKLOADS for program in load.programs}
    for goal in CHANNEL:
        for name in filter(None, (goal.ours, goal.theirs)):
            program, what, brokers, field = name.split()
            workload = "small" if what.startswith("small") else "build" if what.startswith("build") else what
            assert (program, workload, int(brokers)) in given, name
            assert field in channel_runs.FIELDS


def test_figures_of_a_pair_are_medians_of_each_processs_settled_rounds() -> None:
    rows = [
        {"program": program, "brokers": 10, "what": "small-one", "requests": 10, "cpu_s": cpu, "per_s": per_s}
        for program, factor in (("kproto", 1), ("kafka", 2))
        for cpu, per_s in ((9 * factor, 1), (1 * factor, 10), (2 * factor, 20), (3 * factor, 30))
    ]
    found = channel_runs.figures([*rows, {"program": "kproto", "brokers": 10, "what": "sink", "bytes": 1}])
    assert found["kproto small-one 10 per_s"] == 25
    assert found["kafka small-one 10 cpu_us"] == pytest.approx(5 / 10 * 1e6)
    assert not [name for name in found if "sink" in name]


def test_tls_and_tap_are_held_to_what_was_promised() -> None:
    assert {goal.limit for goal in SECURED if goal.ours.startswith("tls ")} == {1.4}
    assert {(goal.ours, goal.theirs): (goal.limit, goal.at_least) for goal in TAP if goal.limit is not None} == {
        ("tap gb_s", "bare gb_s"): (0.5, True),
        ("added p99_us", None): (200, False),
    }


@pytest.mark.slow
@pytest.mark.parametrize("program", [secured_ratios, tap_ratios], ids=["secured", "tap"])
def test_a_quick_run_gives_every_figure(program: ModuleType, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    command = [sys.executable, str(program.__file__), "--quick", "--json", str(result)]
    subprocess.run(command, check=True, timeout=240)
    _, lines = load(result)
    assert [row.what for row in lines] == [goal.what for goal in program.goals()]
    assert all(row.ours is not None for row in lines)
    assert "the figures say nothing" in capfd.readouterr().err


def test_columns_are_held_to_fifteen_times_tshark_and_the_dissector_to_half_of_what_lua_allows() -> None:
    limits = {(goal.ours, goal.theirs): goal.limit for goal in TSHARK if goal.limit is not None and goal.at_least}
    assert limits == {
        ("kproto rate", "tshark rate"): 15,
        ("kproto rate", None): 250,
        ("dissector rate", "least rate"): 0.5,
        ("filter by kproto", "filter by least"): 0.5,
    }


def test_the_doctor_is_held_to_what_was_promised() -> None:
    assert {(goal.ours, goal.theirs): goal.limit for goal in DOCTOR} == {
        ("small summary", None): 1,
        ("small doctor", None): 1,
        ("large doctor", "large summary"): 1.5,
        ("large MB", None): 400,
        ("tables doctor", "analyze"): 0.2,
        ("late us", "early us"): 1.2,
        ("late MB", "early MB"): 1.2,
        ("all MB", "half MB"): 1.2,
    }


def test_the_metadata_log_is_held_to_what_was_promised() -> None:
    assert {goal.ours: goal.limit for goal in METADATA if goal.limit is not None} == {
        "image": 10, "image MB": 1074, "tables": 30, "log": 20,
    }  # fmt: skip


def test_a_snapshot_and_a_log_hold_what_the_bench_says(tmp_path: Path) -> None:
    snapshot = metadata_log.write_snapshot(tmp_path, 1500)
    log = metadata_log.write_log(tmp_path, 1_500_000)
    for path, partitions in ((snapshot, 1500), (log, 10_000)):
        read = files.read(find([path])[0])
        topics = fold(read).image.topics.values()
        assert (read.faults, read.gaps, sum(len(topic.partitions) for topic in topics)) == ([], [], partitions)


def test_a_stream_of_distinct_bodies_has_each_body_once() -> None:
    captured = b"".join(growing_stream.pieces(2500))
    frames = list(capture.frames(BytesIO(captured)))
    assert len(frames) == 5000
    requests = [frame for frame in frames if frame.direction == "request"]
    assert len({frame.body for frame in requests}) == 2500
    assert {frame.request for frame in frames if frame.direction == "response"} == set(requests)
