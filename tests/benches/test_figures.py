"""The arithmetic of the benches: medians of paired ratios, limits, verdicts, tables, result files."""

import json
from pathlib import Path

import figures
import pytest
from figures import Goal, Line, complaints, line, settled

AT_MOST = Goal("g", "decode", "1x1", "ns", "ours", "theirs", "Java", 0.6)
AT_LEAST = Goal("g", "requests", "10 brokers", "/s", "ours", "theirs", "Kafka", 1.2, at_least=True)
ALONE = Goal("g", "kept", "", "bytes", "ours", limit=120)


def pairs(*values: tuple[float, float]) -> list[dict[str, float]]:
    return [{"ours": ours, "theirs": theirs} for ours, theirs in values]


def test_the_value_is_the_median_of_each_rounds_own_ratio() -> None:
    row = line(AT_MOST, pairs((10, 20), (30, 40), (60, 60)))
    assert (row.ours, row.theirs) == (30, 40)
    assert (row.low, row.value, row.high) == (0.5, 0.75, 1.0)
    assert row.rounds == 3
    ratio_of_medians = line(AT_MOST, pairs((1, 10), (2, 2), (3, 4)))
    assert ratio_of_medians.value == 0.75  # not 2 / 4


def test_a_figure_that_stands_alone_is_its_own_value() -> None:
    row = line(ALONE, [{"ours": 110.0}, {"ours": 130.0}, {"ours": 90.0}])
    assert (row.theirs, row.low, row.value, row.high, row.verdict) == (None, 90, 110, 130, "met")


@pytest.mark.parametrize(
    ("goal", "value", "verdict"),
    [
        (AT_MOST, 0.59, "met"),
        (AT_MOST, 0.6, "met"),
        (AT_MOST, 0.61, "MISSED"),
        (AT_LEAST, 1.21, "met"),
        (AT_LEAST, 1.2, "met"),
        (AT_LEAST, 1.19, "MISSED"),
        (AT_MOST.without_limit(), 9.9, ""),
    ],
)
def test_the_median_is_judged_by_the_limit(goal: Goal, value: float, verdict: str) -> None:
    assert line(goal, pairs((value / 10, 1), (value, 1), (value * 10, 1))).verdict == verdict


def test_a_round_without_a_figure_is_never_met() -> None:
    row = line(AT_MOST, [*pairs((1, 10), (1, 10)), {"ours": 1.0}])
    assert (row.verdict, row.rounds, row.value) == ("NOT MEASURED", 2, 0.1)
    nothing = line(AT_MOST, [{}])
    assert (nothing.verdict, nothing.value, nothing.ours) == ("NOT MEASURED", None, None)
    assert line(AT_MOST, []).verdict == "NOT MEASURED"


def test_the_second_half_of_a_processs_rounds_counts() -> None:
    assert settled([100, 90, 80, 70, 10, 30, 20, 40]) == 25
    assert settled([9, 5, 1]) == 3
    assert settled([7]) == 7


def test_what_is_wrong_is_named() -> None:
    lines = [line(AT_MOST, pairs((1, 1))), line(AT_LEAST, [{}]), line(ALONE, [{"ours": 1.0}])]
    assert complaints(lines, ["kafka, pair 3: exit 1"]) == [
        "failed: kafka, pair 3: exit 1",
        "missed: decode, 1x1: 1, at most 0.6",
        "not measured: requests, 10 brokers",
    ]
    assert complaints(lines[2:], []) == []


def test_a_terminals_table_shows_spread_and_verdict() -> None:
    head, compared, alone = figures.text([line(AT_MOST, pairs((3, 4), (1, 2))), line(ALONE, [{"ours": 96.0}])])
    assert len(head) == len(compared) == len(alone)
    assert compared == ("decode", "1x1", "2", "ns", "Java 3", "0.62", "0.50 - 0.75", "at most 0.6", "MISSED")
    assert alone == ("kept", "", "96", "bytes", "", "", "96 - 96", "at most 120", "met")


def test_a_result_is_read_back_as_it_was_saved(tmp_path: Path) -> None:
    lines = [line(AT_MOST, pairs((1, 3), (2, 4))), line(ALONE, [{}])]
    path = tmp_path / "results" / "codec.json"
    figures.save(path, "codec", {"cpu": "a", "cores": 2, "load": [0.1]}, lines, rounds=pairs((1 / 3, 4)))
    result, found = figures.load(path)
    assert result["command"] == "codec"
    assert result["machine"] == {"cpu": "a", "cores": 2, "load": [0.1]}
    assert result["rounds"] == [{"ours": 0.333333, "theirs": 4}]
    assert {"when", "commit", "load_after"} <= result.keys()
    assert [isinstance(row, Line) for row in found] == [True, True]
    assert found[0].verdict == lines[0].verdict
    assert found[0].value == pytest.approx(lines[0].value, rel=1e-5)
    assert found[1] == lines[1]
    assert path.read_text().endswith("\n")
    json.loads(path.read_text())
