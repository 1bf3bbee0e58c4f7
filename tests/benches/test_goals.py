"""The benches' rows: every figure has one place, and every limit that was promised stands."""

from __future__ import annotations

from collections import Counter

import channel_goals
import channel_runs
import codec_bodies
import codec_goals
import pytest
from figures import Goal

from kproto.codec import decode_request, encode

CODEC = list(codec_goals.goals())
CHANNEL = list(channel_goals.goals())


@pytest.mark.parametrize("goals", [CODEC, CHANNEL], ids=["codec", "channel"])
def test_no_row_is_there_twice(goals: list[Goal]) -> None:
    names = Counter((goal.group, goal.what, goal.case, goal.peer, goal.ours) for goal in goals)
    assert [name for name, count in names.items() if count > 1] == []


def test_every_version_of_the_three_apis_is_held_against_go_and_java() -> None:
    found = {(goal.case, goal.what, goal.peer): goal.limit for goal in CODEC if goal.group == "versions"}
    assert len(codec_bodies.EVERY_VERSION) == 8 + 5 + 9
    for body in codec_bodies.EVERY_VERSION:
        assert found[body, "encode", "Go"] == 0.8
        assert found[body, "encode", "Java"] == 0.3
        assert found[body, "decode to objects", "Java"] == 0.6


def test_programs_are_asked_for_the_figures_that_rows_show() -> None:
    assert ("decode", codec_bodies.LARGEST) in codec_goals.measured("kproto")
    assert codec_goals.measured("kio") >= {("decode+read", "updatemetadata-5-100x100")}
    assert all(op == "decode+read" for op, _ in codec_goals.measured("kio"))


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
