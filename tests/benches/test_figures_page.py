"""The tables of docs/figures.md are those of the result files, whole and unchanged."""

import re
from pathlib import Path

import figures
import figures_page
import pytest
from figures import Goal, line

PAGE = figures_page.PAGE.read_text(encoding="utf-8")


def test_the_page_has_exactly_the_tables_of_the_result_files() -> None:
    made = figures_page.tables()
    assert [name for _, name, _ in figures_page.MARK.findall(PAGE)] == list(made)
    assert figures_page.filled(PAGE, made) == PAGE, "run: python benches/figures_page.py --write"


def test_no_figure_stands_outside_the_tables() -> None:
    prose = figures_page.MARK.sub("", PAGE)
    assert re.findall(r"\d[\d,.]*\s*(?:ns|µs|us|ms|s|MB|MiB|GB|bytes)\b", prose) == []


def test_a_mark_without_a_table_is_an_error() -> None:
    with pytest.raises(KeyError):
        figures_page.filled("<!-- figures: nothing -->\n<!-- end of figures -->", {})


def test_cells_show_median_spread_and_what_missed(tmp_path: Path) -> None:
    rounds = [{"ours": 1.0, "theirs": 2.0}, {"ours": 3.0, "theirs": 4.0}, {"ours": 8.0, "theirs": 8.0}]
    goal = Goal("channel", "requests", "10 brokers", "/s", "ours", "theirs", "Kafka", 1.2, at_least=True)
    alone = Goal("channel", "growth", "", "bodies", "ours", limit=2)
    facts = {
        "cores": 2,
        "cpu": "a CPU",
        "system": "Linux 6",
        "python": "CPython 3.11.7 (GCC)",
        "busy_cores": 0.5,
        "began": "2026-11-24T01:00:00+00:00",
        "java": "openjdk 17",
    }
    path = tmp_path / "channel.json"
    settings = {"heap": "-Xmx1G"}
    found = [line(goal, rounds), line(alone, []), line(goal, rounds[:1])]
    figures.save(path, "channel-large", facts, found, changed={"pairs": 1}, rounds=rounds, settings=settings)
    result, lines = figures.load(path)
    assert figures_page._plain(lines)[2:] == [
        "| requests, 10 brokers | 3 /s | Kafka: 4 /s | 0.75 (0.50-1.00) | at least 1.2 **missed** |",
        "| growth |  |  |  | at most 2 **not measured** |",
        "| requests, 10 brokers | 1 /s | Kafka: 2 /s | 0.50 | at least 1.2 **missed** |",
    ]
    below = figures_page._facts(result | {"program": "channel_ratios.py", "seconds": 1234}, "java")
    assert below == (
        "`python benches/channel_ratios.py --only large`; 3 rounds in 1,234 s; heap -Xmx1G; 2 cores of a CPU, Linux 6, "
        "CPython 3.11.7, OpenJDK 17; other programs kept 0.5 cores busy: the figures scatter; "
        f"other options than the defaults: {{'pairs': 1}}; commit {result['commit']}, {result['when'][:10]}"
    )


def test_a_table_without_a_result_says_so(tmp_path: Path) -> None:
    made = figures_page.tables(tmp_path)
    assert made["tap"] == "Not measured yet: tap.\n"
    assert list(made) == list(figures_page.RESULTS_OF)
